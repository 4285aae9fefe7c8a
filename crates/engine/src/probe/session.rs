//! Whether a session has ended, or has written something.

use std::path::{Path, PathBuf};
use std::time::Duration;

use abide_core::{Agent, Ending, SessionId, Wall};
use anstream::adapter::StripBytes;
use regex::bytes::Regex;

use super::Owner;
use super::condition::{Command, SessionCondition};
use super::pattern::{Window, pattern};
use super::{BoxFuture, Observations, ProbeServices};
use crate::clock::pause;
use crate::keepers::Follower;
use abide_session::log::{Log, Piece, Pieces};

/// Where sessions can be looked at.
pub trait Sessions: Send + Sync {
    /// Waits until its leader has ended; says how. `None`: there is no such session.
    fn ended(&self, session: SessionId) -> BoxFuture<'_, Option<String>>;
    /// Follows how far its output has come; `None`: nothing will be added.
    fn follow(&self, session: SessionId) -> Option<Follower>;
    /// Where its log is.
    fn folder(&self, session: SessionId) -> PathBuf;
    /// How it ended; `None`: there is no such session.
    fn session_end(&self, session: SessionId) -> Option<SessionEnd>;
    /// Runs a command as a session, and waits until its whole tree is gone. Where this is given up, it is ended.
    fn try_once<'a>(
        &'a self,
        condition: &'a Command,
        owner: &'a Owner,
        leaf: usize,
    ) -> BoxFuture<'a, TryResult>;
    /// Follows the sessions of an agent that could open a port for which it has waited since then.
    fn port_candidates(&self, agent: &Agent, since: Wall) -> Box<dyn PortCandidates>;
}

/// Sessions that could open a port.
pub trait PortCandidates: Send {
    /// Waits until all of them are gone; says how the last one ended. Where there were none, that is never.
    fn all_ended(&mut self) -> BoxFuture<'_, SessionEnd>;
}

/// What came of one try of a command.
pub enum TryResult {
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
pub struct SessionEnd {
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

impl SessionEnd {
    /// A sentence with the last lines of output below it.
    pub(super) fn with_output(&self, sentence: String) -> String {
        match self.last_lines.as_str() {
            "" => format!("{sentence}. It wrote nothing."),
            lines => format!("{sentence}. Its last output:\n{lines}"),
        }
    }
}

pub(super) async fn until_holds(
    session: SessionId,
    want: &SessionCondition,
    services: &ProbeServices,
    observations: &Observations,
) -> Result<String, String> {
    let Some(sessions) = services.sessions.get() else {
        return std::future::pending().await;
    };
    match want {
        SessionCondition::Ended => {
            observations.set(format!("{session} has not ended"));
            let how = sessions.ended(session).await;
            let how = how.unwrap_or_else(|| "it is no longer known".into());
            let seen = format!("{session} has ended: {how}");
            observations.set(seen.as_str());
            Ok(seen)
        }
        SessionCondition::Output(text) => match pattern(text) {
            Ok(pattern) => {
                until_written(session, &pattern, services, &**sessions, observations).await
            }
            Err(_) => std::future::pending().await,
        },
    }
}

async fn until_written(
    session: SessionId,
    pattern: &Regex,
    services: &ProbeServices,
    sessions: &dyn Sessions,
    observations: &Observations,
) -> Result<String, String> {
    let mut reader = OutputReader::of(&sessions.folder(session));
    let mut follower = sessions.follow(session);
    // How much there is: nobody has said yet.
    let mut known = u64::MAX;
    loop {
        let found;
        (reader, found) = reader.read_portion(known, pattern, services).await;
        match found {
            ReadOutcome::Match(words) => {
                let seen = format!("{session} wrote {words:?}");
                observations.set(seen.as_str());
                return Ok(seen);
            }
            ReadOutcome::More => {
                // A command may write faster than this reads; others get their turn in between.
                tokio::task::yield_now().await;
                continue;
            }
            ReadOutcome::Unreadable(why) => {
                observations.set(format!("the log of {session} cannot be read: {why}"));
                pause(RETRY).await;
                continue;
            }
            ReadOutcome::End => {}
        }
        let total = reader.total;
        match &mut follower {
            Some(follow) => {
                observations.set(format!("{session} wrote {total} bytes without a match"));
                let read = if known == u64::MAX { 0 } else { known };
                let progress = follow
                    .wait_beyond_after_exit(reader.pieces.at().max(read))
                    .await;
                known = progress.bytes;
                if progress.closed {
                    follower = None;
                }
            }
            None => {
                observations.set(format!(
                    "{session} has ended after {total} bytes without a match"
                ));
                // That nothing more will come may be known before how it ended.
                sessions.ended(session).await;
                return Err(impossible_reason(session, pattern, sessions));
            }
        }
    }
}

/// Why output that matches can no longer come.
fn impossible_reason(session: SessionId, pattern: &Regex, sessions: &dyn Sessions) -> String {
    match sessions.session_end(session) {
        None => format!("{session} is no longer known, so no output of it can match"),
        Some(end) => {
            let how = &end.how;
            let pattern = pattern.as_str();
            end.with_output(format!(
                "{session} has ended, {how}, without output that matches {pattern:?}"
            ))
        }
    }
}

/// How long after a failure the log is read again.
const RETRY: Duration = Duration::from_secs(1);
/// Output up to this is looked through on the spot; more on a thread of its own.
const MAX_INLINE: u64 = 16 << 10;
/// So much is looked through at once. A command may write faster than anybody can read, and whoever is not
/// interested any more is to be heard in between.
const PORTION_SIZE: u64 = 1 << 20;

/// How far a session's output has been looked through.
struct OutputReader {
    pieces: Pieces,
    strip: StripBytes,
    window: Window,
    total: u64,
}

/// What came of looking through a portion of it.
enum ReadOutcome {
    /// This matches.
    Match(String),
    /// Nothing does, and there may be more.
    More,
    /// Nothing does, and there is no more yet.
    End,
    /// The log could not be read, and why.
    Unreadable(String),
}

impl OutputReader {
    fn of(folder: &Path) -> Self {
        OutputReader {
            pieces: Log::open(folder).pieces(0, None),
            strip: StripBytes::new(),
            window: Window::default(),
            total: 0,
        }
    }

    /// Looks through a portion of the output, of which there is as much as is `known`.
    async fn read_portion(
        mut self,
        known: u64,
        pattern: &Regex,
        services: &ProbeServices,
    ) -> (Self, ReadOutcome) {
        if known.saturating_sub(self.pieces.at()) <= MAX_INLINE {
            let found = self.read(MAX_INLINE, pattern);
            return (self, found);
        }
        let pattern = pattern.clone();
        let looking = services.run_blocking(move || {
            let found = self.read(PORTION_SIZE, &pattern);
            (self, found)
        });
        looking.await
    }

    fn read(&mut self, limit: u64, pattern: &Regex) -> ReadOutcome {
        let until = self.total.saturating_add(limit);
        loop {
            let piece = match self.pieces.next_within(usize::MAX) {
                Ok(Some(piece)) => piece,
                Ok(None) => return ReadOutcome::End,
                Err(fault) => return ReadOutcome::Unreadable(fault.to_string()),
            };
            let Piece::Chunk(chunk) = piece else { continue };
            self.total += chunk.bytes.len() as u64;
            for part in self.strip.strip_next(&chunk.bytes) {
                self.window.end().extend_from_slice(part);
            }
            if let Some(words) = self.window.find(pattern) {
                return ReadOutcome::Match(words);
            }
            self.window.slide();
            if self.total >= until {
                return ReadOutcome::More;
            }
        }
    }
}
