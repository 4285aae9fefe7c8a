//! `abide top`: a live view of questions, sessions, timers and messages in the terminal, with keys to
//! act on them.

mod feed;
mod full_screen;
mod key_decoder;
mod model;
mod render;

use abide_api::{Session, TimerDetails};
use abide_core::{Mono, SessionId};
use serde_json::json;
use tokio::task::JoinSet;

use super::answer;
use super::args::{AttachArgs, TopArgs};
use super::attach::attach;
use super::error::{CliError, EXIT_ABIDE_ERROR};
use super::sessions::killed;
use super::show;
use crate::cli::terminal::{Terminal, TerminalSignal, TerminalSignals};
use crate::client::{Client, ClientError};
use abide_engine::clock::{Clock, SystemClock, sleep_until};
use feed::{Feed, FeedUpdate};
use full_screen::FullScreen;
use key_decoder::{Key, KeyDecoder};
use model::{KeyEffect, Model, TimerAct, TopRequest};

/// Interval, in milliseconds, at which ages and progress bars are redrawn.
const TICK: u64 = 1_000;
/// Duration, in seconds, for which `p` pauses a timer.
const PAUSE_SECONDS: u64 = 600;

fn next_tick() -> Mono {
    Mono(SystemClock.mono().0 + TICK)
}

pub async fn top(client: Client, args: TopArgs) -> Result<u8, CliError> {
    if args.json {
        let lists = feed::load(&client, args.all).await?;
        show::json(&lists.top);
        return Ok(0);
    }
    let terminal = Terminal::foreground().filter(|_| super::stdout_is_terminal());
    let terminal = terminal.ok_or_else(|| {
        CliError::new("there is no terminal to draw on")
            .next("run it at a terminal; `abide top --json` prints what it would show")
            .code(EXIT_ABIDE_ERROR)
    })?;
    let (feed, lists) = Feed::open(client.clone(), args.all).await?;
    let model = Model::new(lists, SystemClock.now().wall.0);
    let view = TopView {
        feed,
        screen: FullScreen::enter(terminal)?,
        requests: JoinSet::new(),
        keys: KeyDecoder::default(),
        client,
        model,
    };
    view.run().await
}

/// End of a request to the daemon.
enum RequestDone {
    /// Sentence about an action that was carried out or failed.
    Notice(String),
    Log {
        session: SessionId,
        lines: Vec<String>,
    },
}

struct TopView {
    client: Client,
    feed: Feed,
    model: Model,
    screen: FullScreen,
    keys: KeyDecoder,
    requests: JoinSet<RequestDone>,
}

impl TopView {
    async fn run(mut self) -> Result<u8, CliError> {
        let mut signals = TerminalSignals::new()?;
        let mut room = [0; 256];
        let mut tick = next_tick();
        loop {
            self.draw()?;
            tokio::select! {
                typed = self.screen.read(&mut room) => match typed {
                    Ok(0) | Err(_) => return Ok(0),
                    Ok(read) => {
                        let typed = self.keys.decode(&room[..read]);
                        for key in typed {
                            if self.press(key).await? {
                                return Ok(0);
                            }
                        }
                    }
                },
                signal = signals.next() => match signal {
                    TerminalSignal::Resized => self.screen.invalidate(),
                    TerminalSignal::End => return Ok(0),
                },
                update = self.feed.next() => self.apply(update),
                Some(Ok(done)) = self.requests.join_next() => self.done(done),
                () = sleep_until(&SystemClock, Some(tick)) => {
                    tick = next_tick();
                    self.tick();
                }
            }
        }
    }

    fn draw(&mut self) -> std::io::Result<()> {
        let (cols, rows) = self.screen.size();
        self.model.now = SystemClock.now().wall.0;
        let lines = render::frame(&mut self.model, cols.into(), rows.into());
        self.screen.show(&lines)
    }

    /// Handles a key; `true` quits.
    async fn press(&mut self, key: Key) -> Result<bool, CliError> {
        match self.model.press(key) {
            KeyEffect::Nothing => {}
            KeyEffect::Quit => return Ok(true),
            KeyEffect::Attach(session) => self.attach(session).await?,
            KeyEffect::Request(request) => {
                let client = self.client.clone();
                self.requests
                    .spawn(async move { perform(&client, request).await });
            }
        }
        Ok(false)
    }

    /// Attaches to a session, and comes back when the person detaches.
    async fn attach(&mut self, session: SessionId) -> Result<(), CliError> {
        self.screen.suspend();
        let args = AttachArgs {
            session: Some(session.to_string()),
            ..AttachArgs::default()
        };
        let attached = attach(self.client.clone(), args).await;
        self.screen.resume()?;
        self.model.notice = Some(match attached {
            Ok(_) => format!("back from {session}"),
            Err(error) => abide_output::printable::one_line(&error.to_string()),
        });
        self.feed.request_reload();
        Ok(())
    }

    fn apply(&mut self, update: FeedUpdate) {
        match update {
            FeedUpdate::Lists(lists) => self.model.set_lists(*lists),
            FeedUpdate::Output(output) => self.model.output(output),
            FeedUpdate::Unreachable(why) => self.model.notice = Some(why),
        }
    }

    fn done(&mut self, done: RequestDone) {
        match done {
            RequestDone::Log { session, lines } => self.model.set_log(session, lines),
            RequestDone::Notice(notice) => {
                self.model.notice = Some(notice);
                self.feed.request_reload();
            }
        }
    }

    /// Reads the log that is shown again, once per tick.
    fn tick(&mut self) {
        if let Some(request) = self.model.log_request() {
            let client = self.client.clone();
            self.requests
                .spawn(async move { perform(&client, request).await });
        }
    }
}

async fn perform(client: &Client, request: TopRequest) -> RequestDone {
    let notice = match request {
        TopRequest::Log { session, pty } => {
            let lines = feed::log(client, session, pty).await;
            let lines = lines.unwrap_or_else(|error| vec![sentence(error)]);
            return RequestDone::Log { session, lines };
        }
        TopRequest::Answer { question, answer } => {
            let answered = client.answer(question, &answer).await;
            answered.map(|answered| answer::done(&answered).to_owned())
        }
        TopRequest::Kill { session } => {
            let path = format!("/v1/sessions/{session}/kill");
            let ended = client.post::<Session>(&path, &json!({})).await;
            ended.map(|ended| killed(&ended))
        }
        TopRequest::Timer { timer, act } => {
            let (action, body, done) = match act {
                TimerAct::Stop => ("stop", json!({}), "stopped"),
                TimerAct::Pause => ("pause", json!({"pause_duration": PAUSE_SECONDS}), "paused"),
                TimerAct::Resume => ("resume", json!({}), "resumed"),
            };
            let path = format!("/v1/timers/{timer}/{action}");
            let acted = client.post::<TimerDetails>(&path, &body).await;
            acted.map(|_| format!("{timer}: {done}"))
        }
    };
    RequestDone::Notice(notice.unwrap_or_else(sentence))
}

/// Reason why a request failed, on one line.
fn sentence(error: ClientError) -> String {
    let why = match error {
        ClientError::Refused { detail, .. } => detail,
        ClientError::Broken(_) => "the daemon stopped".to_owned(),
        ClientError::NoDaemon(why) => why,
    };
    abide_output::printable::one_line(&why)
}
