//! Whether a session has ended, or has written something.

use std::path::{Path, PathBuf};
use std::time::Duration;

use abide_core::{Agent, Ending, SessionId, Wall};
use anstream::adapter::StripBytes;
use regex::bytes::Regex;

use super::Owner;
use super::condition::{Command, SessionWant};
use super::pattern::{Window, pattern};
use super::{Boxed, Slots, Tools};
use crate::clock::pause;
use crate::keepers::Follower;
use abide_session::log::{Log, Piece, Pieces};

/// Where sessions can be looked at.
pub trait Sessions: Send + Sync {
    /// Waits until its leader has ended; says how. `None`: there is no such session.
    fn ended(&self, session: SessionId) -> Boxed<'_, Option<String>>;
    /// Follows how far its output has come; `None`: nothing will be added.
    fn follow(&self, session: SessionId) -> Option<Follower>;
    /// Where its log is.
    fn folder(&self, session: SessionId) -> PathBuf;
    /// How it ended; `None`: there is no such session.
    fn closing(&self, session: SessionId) -> Option<Closing>;
    /// Runs a command as a session, and waits until its whole tree is gone. Where this is given up, it is ended.
    fn try_once<'a>(
        &'a self,
        wanted: &'a Command,
        owner: &'a Owner,
        leaf: usize,
    ) -> Boxed<'a, Tried>;
    /// Follows the sessions of an agent that could open a port for which it has waited since then.
    fn openers(&self, agent: &Agent, since: Wall) -> Box<dyn Openers>;
}

/// Sessions that could open a port.
pub trait Openers: Send {
    /// Waits until all of them are gone; says how the last one ended. Where there were none, that is never.
    fn gone(&mut self) -> Boxed<'_, Closing>;
}

/// What came of one try of a command.
pub enum Tried {
    /// It ran.
    Ended {
        /// How it ended.
        ending: Ending,
        /// The last line that it wrote.
        last_line: String,
    },
    /// It could not be run, and this is why.
    NotRun(String),
}

/// How a session ended, for those who waited for something of it.
pub struct Closing {
    /// Which session.
    pub session: SessionId,
    /// Its command, on one line.
    pub command: String,
    /// Whether it ended otherwise than with code 0.
    pub failed: bool,
    /// How, in words.
    pub how: String,
    /// The last lines of its output.
    pub last_lines: String,
}

impl Closing {
    /// A sentence with the last lines of output below it.
    pub(super) fn with_output(&self, sentence: String) -> String {
        match self.last_lines.as_str() {
            "" => format!("{sentence}. It wrote nothing."),
            lines => format!("{sentence}. Its last output:\n{lines}"),
        }
    }
}

pub(super) async fn until_so(
    session: SessionId,
    want: &SessionWant,
    tools: &Tools,
    slots: &Slots,
) -> Result<String, String> {
    let Some(sessions) = tools.sessions.get() else {
        return std::future::pending().await;
    };
    match want {
        SessionWant::Ended => {
            slots.say(format!("{session} has not ended"));
            let how = sessions.ended(session).await;
            let how = how.unwrap_or_else(|| "it is no longer known".into());
            let seen = format!("{session} has ended: {how}");
            slots.say(seen.as_str());
            Ok(seen)
        }
        SessionWant::Output(text) => match pattern(text) {
            Ok(pattern) => until_written(session, &pattern, tools, &**sessions, slots).await,
            Err(_) => std::future::pending().await,
        },
    }
}

async fn until_written(
    session: SessionId,
    pattern: &Regex,
    tools: &Tools,
    sessions: &dyn Sessions,
    slots: &Slots,
) -> Result<String, String> {
    let mut reading = Reading::of(&sessions.folder(session));
    let mut follower = sessions.follow(session);
    // How much there is: nobody has said yet.
    let mut known = u64::MAX;
    loop {
        let found;
        (reading, found) = reading.read_aside(known, pattern, tools).await;
        match found {
            Found::Match(words) => {
                let seen = format!("{session} wrote {words:?}");
                slots.say(seen.as_str());
                return Ok(seen);
            }
            Found::More => {
                // A command may write faster than this reads; others get their turn in between.
                tokio::task::yield_now().await;
                continue;
            }
            Found::Unreadable(why) => {
                slots.say(format!("the log of {session} cannot be read: {why}"));
                pause(RETRY).await;
                continue;
            }
            Found::End => {}
        }
        let total = reading.total;
        match &mut follower {
            Some(follow) => {
                slots.say(format!("{session} wrote {total} bytes without a match"));
                let read = if known == u64::MAX { 0 } else { known };
                let progress = follow.beyond_the_end(reading.pieces.at().max(read)).await;
                known = progress.bytes;
                if progress.closed {
                    follower = None;
                }
            }
            None => {
                slots.say(format!(
                    "{session} has ended after {total} bytes without a match"
                ));
                // That nothing more will come may be known before how it ended.
                sessions.ended(session).await;
                return Err(unwritten(session, pattern, sessions));
            }
        }
    }
}

/// Why output that matches can no longer come.
fn unwritten(session: SessionId, pattern: &Regex, sessions: &dyn Sessions) -> String {
    match sessions.closing(session) {
        None => format!("{session} is no longer known, so no output of it can match"),
        Some(closing) => {
            let how = &closing.how;
            let pattern = pattern.as_str();
            closing.with_output(format!(
                "{session} has ended, {how}, without output that matches {pattern:?}"
            ))
        }
    }
}

/// How long after a failure the log is read again.
const RETRY: Duration = Duration::from_secs(1);
/// Output up to this is looked through on the spot; more on a thread of its own.
const ON_THE_SPOT: u64 = 16 << 10;
/// So much is looked through at once. A command may write faster than anybody can read, and whoever is not
/// interested any more is to be heard in between.
const PORTION: u64 = 1 << 20;

/// How far a session's output has been looked through.
struct Reading {
    pieces: Pieces,
    strip: StripBytes,
    window: Window,
    total: u64,
}

/// What came of looking through a portion of it.
enum Found {
    /// This matches.
    Match(String),
    /// Nothing does, and there may be more.
    More,
    /// Nothing does, and there is no more yet.
    End,
    /// The log could not be read, and why.
    Unreadable(String),
}

impl Reading {
    fn of(folder: &Path) -> Self {
        Reading {
            pieces: Log::open(folder).pieces(0, None),
            strip: StripBytes::new(),
            window: Window::default(),
            total: 0,
        }
    }

    /// Looks through a portion of the output, of which there is as much as is `known`.
    async fn read_aside(mut self, known: u64, pattern: &Regex, tools: &Tools) -> (Self, Found) {
        if known.saturating_sub(self.pieces.at()) <= ON_THE_SPOT {
            let found = self.read(ON_THE_SPOT, pattern);
            return (self, found);
        }
        let pattern = pattern.clone();
        let looking = tools.aside(move || {
            let found = self.read(PORTION, &pattern);
            (self, found)
        });
        looking.await
    }

    fn read(&mut self, most: u64, pattern: &Regex) -> Found {
        let until = self.total.saturating_add(most);
        loop {
            let piece = match self.pieces.next_within(usize::MAX) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Found::End,
                Err(fault) => return Found::Unreadable(fault.to_string()),
            };
            let Piece::Chunk(chunk) = piece else { continue };
            self.total += chunk.bytes.len() as u64;
            for part in self.strip.strip_next(&chunk.bytes) {
                self.window.end().extend_from_slice(part);
            }
            if let Some(words) = self.window.find(pattern) {
                return Found::Match(words);
            }
            self.window.slide();
            if self.total >= until {
                return Found::More;
            }
        }
    }
}
