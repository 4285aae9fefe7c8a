//! `abide top`: a live view of questions, sessions, timers and messages in the terminal, with keys to
//! act on them.

mod draw;
mod feed;
mod keys;
mod model;
mod screen;

use abide_core::Mono;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::args::Top;
use super::sessions::killed;
use super::show;
use super::trouble::{OWN, Trouble};
use crate::cli::terminal::Terminal;
use crate::client::{Client, ClientError};
use abide_engine::clock::{Clock, SystemClock, sleep_until};
use feed::{Feed, News};
use keys::{Key, Keys};
use model::{Deed, Model, Wish};
use screen::Screen;

/// Interval, in milliseconds, at which ages and progress bars are redrawn.
const TICK: u64 = 1_000;

fn next_tick() -> Mono {
    Mono(SystemClock.mono().0 + TICK)
}

pub async fn top(client: Client, args: Top) -> Result<u8, Trouble> {
    if args.json {
        let lists = feed::load(&client).await?;
        show::json(&lists.snapshot());
        return Ok(0);
    }
    let terminal = Terminal::in_front().filter(|_| super::person_reads());
    let terminal = terminal.ok_or_else(|| {
        Trouble::new("there is no terminal to draw on")
            .next("run it at a terminal; `abide top --json` prints what it would show")
            .code(OWN)
    })?;
    let lists = feed::load(&client).await?;
    let model = Model::new(lists, SystemClock.now().wall.0);
    let view = View {
        feed: Feed::open(client.clone()),
        screen: Screen::enter(terminal)?,
        acts: JoinSet::new(),
        keys: Keys::default(),
        client,
        model,
    };
    view.run().await
}

/// Signals that end the program.
struct Ends {
    term: Signal,
    hang_up: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> std::io::Result<Self> {
        Ok(Ends {
            term: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn come(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.hang_up.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Result of an action, or the lines of a log that was read.
struct Done {
    said: Result<String, String>,
    log: Option<(String, Vec<String>)>,
}

struct View {
    client: Client,
    feed: Feed,
    model: Model,
    screen: Screen,
    keys: Keys,
    acts: JoinSet<Done>,
}

impl View {
    async fn run(mut self) -> Result<u8, Trouble> {
        let mut resized = signal(SignalKind::window_change())?;
        let mut ends = Ends::new()?;
        let mut room = [0; 256];
        let mut tick = next_tick();
        loop {
            self.draw()?;
            tokio::select! {
                typed = self.screen.read(&mut room) => match typed {
                    Ok(0) | Err(_) => return Ok(0),
                    Ok(read) => {
                        let typed = self.keys.typed(&room[..read]);
                        for key in typed {
                            if self.press(key) {
                                return Ok(0);
                            }
                        }
                    }
                },
                _ = resized.recv() => self.screen.forget(),
                () = ends.come() => return Ok(0),
                news = self.feed.next() => self.hear(news),
                Some(Ok(done)) = self.acts.join_next() => self.done(done),
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
        let lines = draw::frame(&mut self.model, cols.into(), rows.into());
        self.screen.show(&lines)
    }

    /// Handles a key; `true` quits.
    fn press(&mut self, key: Key) -> bool {
        match self.model.press(key) {
            Wish::Nothing => {}
            Wish::Quit => return true,
            Wish::Act(deed) => {
                let client = self.client.clone();
                self.acts.spawn(async move { act(&client, deed).await });
            }
        }
        false
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Lists(lists) => self.model.take(*lists),
            News::Output(output) => self.model.output(&output),
            News::Trouble(why) => self.model.notice = Some(why),
        }
    }

    fn done(&mut self, done: Done) {
        if let Some((session, lines)) = done.log {
            self.model.log_came(&session, lines);
            return;
        }
        let (Ok(said) | Err(said)) = done.said;
        self.model.notice = Some(said);
        self.feed.look_again();
    }

    /// Reads the log that is shown again, once per tick.
    fn tick(&mut self) {
        if let Some(deed) = self.model.log_wanted() {
            let client = self.client.clone();
            self.acts.spawn(async move { act(&client, deed).await });
        }
    }
}

async fn act(client: &Client, deed: Deed) -> Done {
    let (path, body, said) = match &deed {
        Deed::Log { session, pty } => {
            let lines = feed::log(client, session, *pty).await;
            let lines = lines.unwrap_or_else(|error| vec![sentence(error)]);
            return Done {
                said: Ok(String::new()),
                log: Some((session.clone(), lines)),
            };
        }
        Deed::Answer { question, yes } => {
            let word = if *yes { "yes" } else { "no" };
            let said = match yes {
                true => "Yes: continuing to wait.",
                false => "No: the command is being ended.",
            };
            let path = format!("/v1/questions/{question}/answer");
            (path, json!({"answer": word}), said.to_owned())
        }
        Deed::Kill { session } => {
            let path = format!("/v1/sessions/{session}/kill");
            let said = match client.post(&path, &json!({})).await {
                Ok(ended) => Ok(killed(session, &ended)),
                Err(error) => Err(sentence(error)),
            };
            return Done { said, log: None };
        }
        Deed::Timer { timer, act, body } => {
            let said = format!("{timer}: {}", done_word(act));
            (format!("/v1/timers/{timer}/{act}"), body.clone(), said)
        }
    };
    let said = match client.post(&path, &body).await {
        Ok(_) => Ok(said),
        Err(error) => Err(sentence(error)),
    };
    Done { said, log: None }
}

fn done_word(act: &str) -> &'static str {
    match act {
        "stop" => "stopped",
        "pause" => "paused",
        _ => "resumed",
    }
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

impl feed::Lists {
    /// All lists as one JSON object, for programs.
    fn snapshot(self) -> Value {
        json!({
            "daemon": self.daemon,
            "questions": self.questions,
            "sessions": self.sessions,
            "timers": self.timers,
            "messages": self.messages,
        })
    }
}
