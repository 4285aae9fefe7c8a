//! Progress notifications of a call that waits.

use std::time::Duration;

use abide_core::Millis;
use futures_util::future::BoxFuture;
use rmcp::model::{
    ProgressNotification, ProgressNotificationParam, ProgressToken, ServerNotification,
};

use super::client_channel::ClientChannel;
use abide_engine::clock::{Clock, SystemClock, pause};

/// Interval between progress notifications.
const INTERVAL: Duration = Duration::from_secs(12);
/// Time after which a call that starts no command counts as waiting.
pub const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Sender of progress notifications for one call whose client asked for them: once the command has started or
/// the call is not answered at once, and then at intervals. The value is the age of the command, so that it
/// keeps growing, as MCP requires, when the call is resumed or another daemon takes it over.
pub struct Progress {
    client_channel: ClientChannel,
    token: ProgressToken,
    /// Start of the command, as wall-clock time in milliseconds.
    since: u64,
    last: f64,
    /// State in the message: "waiting" or "running".
    state: &'static str,
    /// Timer of the next notification.
    timer: BoxFuture<'static, ()>,
}

impl Progress {
    /// Sender of notifications with the token of the call's request.
    pub fn new(client_channel: ClientChannel, token: ProgressToken) -> Self {
        Progress {
            client_channel,
            token,
            since: SystemClock.now().wall.0,
            last: -1.0,
            state: "waiting",
            timer: Box::pin(pause(FIRST_DELAY)),
        }
    }

    pub fn begin(&mut self, since: Option<u64>) {
        self.since = since.unwrap_or(self.since);
        self.state = "running";
        self.notify();
    }

    fn notify(&mut self) {
        let run = Millis(SystemClock.now().wall.0.saturating_sub(self.since));
        // The value must grow even if the wall clock is set back.
        self.last = run.as_secs_f64().max(self.last + 0.001);
        let whole = Millis(run.0 / 1_000 * 1_000);
        let progress = ProgressNotificationParam::new(self.token.clone(), self.last)
            .with_message(format!("{} for {whole}", self.state));
        let progress = ProgressNotification::new(progress);
        (self.client_channel).notify(ServerNotification::ProgressNotification(progress));
        self.timer = Box::pin(pause(INTERVAL));
    }

    /// Sends the next notification when it is due. Cancel-safe.
    pub async fn send_when_due(&mut self) {
        (&mut self.timer).await;
        self.notify();
    }
}
