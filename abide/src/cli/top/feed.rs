//! Data of `abide top`. Events from the daemon say that something has changed, and the lists are then
//! read again, at most once per [`READ_DELAY`]. No request is made while nothing changes.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use abide_api::cli::Top;
use abide_api::{MessagePage, QuestionPage, Session, SessionPage, SessionPulse, Status, TimerPage};
use abide_core::{Mono, SessionId};
use abide_output::sanitizer::Sanitizer;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::cli::sessions::is_check;
use crate::client::{Client, ClientError, ResponseStream, ToolResult, public_type};
use crate::http::frame::Frame;
use abide_engine::clock::{SystemClock, pause, sleep_until};

/// Path of the stream of events.
const EVENTS: &str = "/v1/events?tails=true";
/// Largest number of rows that are read of a list.
const ROW_LIMIT: usize = 200;
/// Number of messages that are read.
const MESSAGE_LIMIT: usize = 50;
/// Delay between an event and reading the lists, to combine events that arrive together.
const READ_DELAY: Duration = Duration::from_millis(200);
/// Back-off before the next request to a daemon that does not answer or does not serve events.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Capacity of the queue of updates to be drawn.
const QUEUE: usize = 64;
/// Number of bytes that are shown from the end of a log.
const LOG_TAIL: u64 = 64 << 10;

/// Everything that is shown.
#[derive(Clone, Debug)]
pub struct Lists {
    /// The rows of each section.
    pub top: Top,
    /// Numbers of open questions, running sessions and active timers; only some of them may be in the lists.
    pub totals: Totals,
}

/// Numbers of things, in the lists or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub questions: u64,
    pub sessions: u64,
    pub timers: u64,
}

/// Reads all lists. Checks of conditions are left out unless `all`.
pub async fn load(client: &Client, all: bool) -> Result<Lists, ClientError> {
    let status: Status = client.get("/v1/status").await?;
    let path = format!("/v1/questions?limit={ROW_LIMIT}");
    let questions: QuestionPage = client.get(&path).await?;
    let path = format!("/v1/sessions?limit={ROW_LIMIT}&tails=true");
    let mut sessions: SessionPage = client.get(&path).await?;
    let path = format!("/v1/timers?limit={ROW_LIMIT}&sort=remaining");
    let timers: TimerPage = client.get(&path).await?;
    let path = format!("/v1/messages?limit={MESSAGE_LIMIT}");
    let mut messages: MessagePage = client.get(&path).await?;
    if !all {
        let before = sessions.sessions.len();
        sessions.sessions.retain(|session| !is_check(session));
        let checks = before - sessions.sessions.len();
        sessions.total = sessions.total.saturating_sub(checks);
    }
    messages
        .messages
        .sort_by_key(|message| Reverse(message.created_at));
    Ok(Lists {
        totals: Totals {
            questions: questions.total as u64,
            sessions: sessions.total as u64,
            timers: timers.total,
        },
        top: Top {
            daemon: status.daemon,
            questions: questions.questions,
            sessions: sessions.sessions,
            timers: timers.timers,
            messages: messages.messages,
            as_of: timers.as_of,
            trouble: timers.trouble,
        },
    })
}

/// Lines at the end of a session's log; for a session with a pseudo-terminal, its screen.
pub async fn log(
    client: &Client,
    session: SessionId,
    pty: bool,
) -> Result<Vec<String>, ClientError> {
    if pty {
        let body = json!({"action": "screen", "session_id": session.to_string()});
        let screen: ToolResult = client.post("/v1/tools/terminal_session", &body).await?;
        return Ok(screen.text.lines().map(str::to_owned).collect());
    }
    let facts: Session = client.get(&format!("/v1/sessions/{session}")).await?;
    let from = facts.summary.bytes_total.saturating_sub(LOG_TAIL);
    let path = format!("/v1/sessions/{session}/log?format=frames&from={from}");
    let mut answer = client.get_stream(&path).await?;
    let mut text = String::new();
    let mut sanitizers: [Sanitizer; 3] = Default::default();
    loop {
        match answer.frame().await? {
            Frame::Output(stream, bytes) => {
                text.push_str(&sanitizers[stream as usize].clean(&bytes));
            }
            Frame::Ended(_) => break,
            _ => {}
        }
    }
    Ok(text.lines().map(str::to_owned).collect())
}

/// Update from the daemon.
pub enum FeedUpdate {
    /// All lists, read again.
    Lists(Box<Lists>),
    /// Output and resource usage of one session.
    Output(SessionPulse),
    /// The daemon does not answer.
    Unreachable(String),
}

/// Stream of updates. Dropping it stops the task that follows the events.
pub struct Feed {
    updates: mpsc::Receiver<FeedUpdate>,
    reload: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Feed {
    /// Starts the task that follows the events, and reads the lists. The stream of events is opened first, so that a person
    /// counts as watching before anything is shown.
    pub async fn open(client: Client, all: bool) -> Result<(Self, Lists), ClientError> {
        let stream = match client.get_stream(EVENTS).await {
            Ok(stream) => Some(stream),
            Err(ClientError::Refused { .. }) => None,
            Err(error) => return Err(error),
        };
        let lists = load(&client, all).await?;
        let (sender, updates) = mpsc::channel(QUEUE);
        let reload = Arc::new(Notify::new());
        let follower = Follower {
            client,
            all,
            reload: reload.clone(),
            updates: sender,
            due: None,
        };
        let feed = Feed {
            updates,
            reload,
            task: tokio::spawn(follower.follow(stream)),
        };
        Ok((feed, lists))
    }

    /// Requests that the lists are read again soon.
    pub fn request_reload(&self) {
        self.reload.notify_one();
    }

    /// Waits for the next update. Cancel safe: no update is lost if the future is dropped.
    pub async fn next(&mut self) -> FeedUpdate {
        match self.updates.recv().await {
            Some(update) => update,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Follower {
    client: Client,
    /// Checks of conditions are shown too.
    all: bool,
    reload: Arc<Notify>,
    updates: mpsc::Sender<FeedUpdate>,
    /// Time at which the lists are to be read again.
    due: Option<Mono>,
}

impl Follower {
    async fn follow(mut self, opened: Option<ResponseStream>) {
        let mut opened = opened.map(Ok);
        loop {
            let stream = match opened.take() {
                Some(stream) => stream,
                None => self.client.get_stream(EVENTS).await,
            };
            let sent = match stream {
                Ok(mut stream) => {
                    // Changes before the stream was open sent no event; they are found in the lists.
                    self.read_after(READ_DELAY);
                    self.follow_events(&mut stream).await
                }
                // A daemon that refuses the event stream is polled every second.
                Err(ClientError::Refused { .. }) => self.read().await,
                Err(error) => {
                    self.send(FeedUpdate::Unreachable(super::sentence(error)))
                        .await
                }
            };
            if sent.is_none() {
                return;
            }
            pause(RETRY_DELAY).await;
        }
    }

    fn read_after(&mut self, span: Duration) {
        let now = SystemClock.mono().0;
        let at = Mono(now + u64::try_from(span.as_millis()).unwrap_or(0));
        self.due.get_or_insert(at);
    }

    /// Handles events until the stream ends. `None`: the receiver of the updates is gone.
    async fn follow_events(&mut self, stream: &mut ResponseStream) -> Option<()> {
        loop {
            tokio::select! {
                event = stream.event() => match event {
                    Ok(Some((name, data))) if name == "output" => {
                        if let Ok(pulse) = public_type(data) {
                            self.send(FeedUpdate::Output(pulse)).await?;
                        }
                    }
                    Ok(Some((name, _))) if name == "hello" => {}
                    Ok(Some(_)) => self.read_after(READ_DELAY),
                    Ok(None) | Err(_) => return Some(()),
                },
                () = self.reload.notified() => self.read_after(READ_DELAY),
                () = sleep_until(&SystemClock, self.due) => {
                    self.due = None;
                    self.read().await?;
                }
            }
        }
    }

    async fn read(&self) -> Option<()> {
        let update = match load(&self.client, self.all).await {
            Ok(lists) => FeedUpdate::Lists(Box::new(lists)),
            Err(error) => FeedUpdate::Unreachable(super::sentence(error)),
        };
        self.send(update).await
    }

    async fn send(&self, update: FeedUpdate) -> Option<()> {
        self.updates.send(update).await.ok()
    }
}
