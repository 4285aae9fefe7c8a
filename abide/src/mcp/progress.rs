//! Progress notifications of a call that waits.

use std::time::Duration;

use abide_core::Millis;
use futures_util::future::BoxFuture;
use rmcp::model::{
    ProgressNotification, ProgressNotificationParam, ProgressToken, ServerNotification,
};

use super::call::CallContext;
use super::peer::Peer;
use abide_engine::clock::{Clock, SystemClock, pause};

/// Interval of notifications that a call is alive.
const PROGRESS: Duration = Duration::from_secs(12);
/// A call that starts no command is waiting if it is not answered by then.
pub const FIRST: Duration = Duration::from_millis(100);

/// Tells a client that asked for it that its call is alive: once the command is there, or the call is not answered
/// at once, and then every so often. A call that is taken up again goes on counting where it was: what is told must grow.
pub struct Progress {
    peer: Peer,
    token: ProgressToken,
    /// When the command began, on the calendar.
    since: u64,
    last: f64,
    /// "waiting" or "running".
    what: &'static str,
    /// Until the next notification.
    pause: BoxFuture<'static, ()>,
}

impl Progress {
    pub fn new(cx: &CallContext) -> Option<Self> {
        Some(Progress {
            peer: cx.peer.clone(),
            token: cx.meta.get_progress_token()?,
            since: SystemClock.now().wall.0,
            last: -1.0,
            what: "waiting",
            pause: Box::pin(pause(FIRST)),
        })
    }

    pub fn begin(&mut self, since: Option<u64>) {
        self.since = since.unwrap_or(self.since);
        self.what = "running";
        self.notify();
    }

    fn notify(&mut self) {
        let run = Millis(SystemClock.now().wall.0.saturating_sub(self.since));
        // It must grow, whatever the calendar does.
        self.last = (run.0 as f64 / 1_000.0).max(self.last + 0.001);
        let whole = Millis(run.0 / 1_000 * 1_000);
        let told = ProgressNotificationParam::new(self.token.clone(), self.last)
            .with_message(format!("{} for {whole}", self.what));
        let told = ProgressNotification::new(told);
        (self.peer).notify(ServerNotification::ProgressNotification(told));
        self.pause = Box::pin(pause(PROGRESS));
    }

    /// Sends the next notification when it is due. Can be cancelled and called again.
    pub async fn tell(&mut self) {
        (&mut self.pause).await;
        self.notify();
    }
}
