//! Probe for a session that has ended or written a certain output.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use abide_core::fleet::MachineId;
use abide_core::{Ending, SessionId};
use abide_output::mask::Mask;
use abide_output::secret_fingerprints::SecretFingerprints;
use anstream::adapter::StripBytes;
use regex::bytes::Regex;

use super::condition::SessionCondition;
use super::pattern::Window;
use super::{Impossible, Observations, ProbeServices};
use crate::clock::pause;
use crate::handle::PendingCall;
use crate::lock::lock;
use crate::session_access::SessionAccess;
use abide_session::keeper_record;
use abide_session::log::{Log, Piece, Pieces};

/// Calls that keep sessions active, one for each session, however many conditions name it.
#[derive(Default)]
pub(super) struct ActiveSessions(Mutex<HashMap<SessionId, Weak<PendingCall>>>);

impl ActiveSessions {
    /// Keeps a session active until every returned guard is dropped.
    async fn keep(&self, session: SessionId, sessions: &SessionAccess) -> Arc<PendingCall> {
        let before = lock(&self.0).get(&session).and_then(Weak::upgrade);
        if let Some(call) = before {
            return call;
        }
        let call = Arc::new(sessions.keep_active(session).await);
        let mut calls = lock(&self.0);
        calls.retain(|_, call| call.strong_count() > 0);
        calls.insert(session, Arc::downgrade(&call));
        call
    }
}

/// Result of one try of a command.
pub enum TryResult {
    /// The command ran.
    Ended {
        ending: Ending,
        /// Last line of its output.
        last_line: String,
        /// Sandbox of the command, and what it has refused, as half a sentence; `None`: it had none.
        sandbox: Option<String>,
    },
    /// The command could not be run, for this reason.
    NotRun(String),
}

/// Ending of a session, for a wait that depends on it.
pub struct SessionEnd {
    pub session: SessionId,
    /// Command, on one line.
    pub command: String,
    /// Description of the ending.
    pub how: String,
    /// Last lines of its output.
    pub last_lines: String,
}

impl SessionEnd {
    /// Adds the last lines of output to a sentence.
    pub(super) fn with_output(&self, sentence: String) -> String {
        match self.last_lines.as_str() {
            "" => format!("{sentence}. It wrote nothing."),
            lines => format!("{sentence}. Its last output:\n{lines}"),
        }
    }
}

/// Waits until the session is in the requested state, or can no longer get there.
pub(super) async fn until_holds(
    session: SessionId,
    want: &SessionCondition,
    services: &ProbeServices,
    observations: &Observations,
) -> Result<String, Impossible> {
    let Some(sessions) = services.sessions.get() else {
        return std::future::pending().await;
    };
    observations.set_if_empty(|| format!("{session} was not started yet"));
    if let Err(why) = sessions.started(session).await {
        return Err(Impossible {
            reason: format!("{session} was not started: {why}"),
            ended_sessions: Vec::new(),
        });
    }
    let _active = services.active_sessions.keep(session, sessions).await;
    match want {
        SessionCondition::Ended => {
            observations.set(format!("{session} has not ended"));
            let how = sessions.ended(session).await;
            let how = how.unwrap_or_else(|| "it is no longer known".into());
            let mask = mask_of(&sessions.folder(session));
            let seen = mask.apply(format!("{session} has ended: {how}"));
            observations.set(seen.as_str());
            Ok(seen)
        }
        SessionCondition::Output(pattern) => {
            until_written(session, pattern, services, sessions, observations).await
        }
    }
}

/// Waits until a session of another machine has ended.
pub(super) async fn until_ended_elsewhere(
    session: SessionId,
    machine: MachineId,
    services: &ProbeServices,
    observations: &Observations,
) -> String {
    let Some(sessions) = services.sessions.get() else {
        return std::future::pending().await;
    };
    let observe = |seen| observations.set(format!("{session}: {seen}"));
    let how = sessions.ended_elsewhere(session, machine, observe);
    let seen = format!("{session} has ended: {}", how.await);
    observations.set(seen.as_str());
    seen
}

/// Mask for the secrets that the session in this folder was given, as its record has them.
fn mask_of(folder: &Path) -> Mask {
    let meta = keeper_record::read_meta(folder).ok().flatten();
    meta.map_or_else(Mask::default, |meta| {
        let secrets = SecretFingerprints::from_bytes(&meta.launch.secret_fingerprints);
        Mask::of(Arc::new(secrets))
    })
}

/// Waits until the output matches, or is complete without a match.
async fn until_written(
    session: SessionId,
    pattern: &Regex,
    services: &ProbeServices,
    sessions: &SessionAccess,
    observations: &Observations,
) -> Result<String, Impossible> {
    let mut reader = OutputReader::of(&sessions.folder(session));
    let mut follower = sessions.follow(session);
    // The length is not known yet.
    let mut known = u64::MAX;
    loop {
        let found;
        (reader, found) = reader.read_portion(known, pattern, services).await;
        match found {
            ReadOutcome::Match(line) => {
                let seen = format!("{session} wrote {line:?}");
                observations.set(seen.as_str());
                return Ok(seen);
            }
            ReadOutcome::More => {
                // A command may write faster than this reads; other tasks get a turn in between.
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
                // The end of the log may be known before the ending.
                sessions.ended(session).await;
                return Err(impossible(session, pattern, sessions));
            }
        }
    }
}

/// Reason why matching output can no longer come.
fn impossible(session: SessionId, pattern: &Regex, sessions: &SessionAccess) -> Impossible {
    match sessions.session_end(session) {
        None => Impossible {
            reason: format!("{session} is no longer known, so no output of it can match"),
            ended_sessions: Vec::new(),
        },
        Some(end) => {
            let how = mask_of(&sessions.folder(session)).apply(end.how.clone());
            let pattern = pattern.as_str();
            let reason = end.with_output(format!(
                "{session} has ended, {how}, without output that matches {pattern:?}"
            ));
            Impossible {
                reason,
                ended_sessions: vec![session],
            }
        }
    }
}

/// Pause after the log could not be read.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes that are searched on the loop's thread; more are searched on another thread.
const MAX_INLINE: u64 = 16 << 10;
/// Bytes searched at once: a command may write faster than the search reads, and a cancelled wait must end.
const PORTION_SIZE: u64 = 1 << 20;

/// Position of the search in a session's output.
struct OutputReader {
    folder: PathBuf,
    pieces: Pieces,
    strip: StripBytes,
    window: Window,
    total: u64,
}

/// Result of searching a portion.
enum ReadOutcome {
    /// This line matches. Its secrets are masked.
    Match(String),
    /// No match, and there may be more output.
    More,
    /// No match, and no more output yet.
    End,
    /// The log could not be read, for this reason.
    Unreadable(String),
}

impl OutputReader {
    fn of(folder: &Path) -> Self {
        OutputReader {
            folder: folder.to_owned(),
            pieces: Log::open(folder).pieces(0, None),
            strip: StripBytes::new(),
            window: Window::default(),
            total: 0,
        }
    }

    /// Searches a portion of the output, of which `known` bytes exist.
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
        let reading = services.run_blocking(move || {
            let found = self.read(PORTION_SIZE, &pattern);
            (self, found)
        });
        reading.await
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
            if let Some(line) = self.window.find_line(pattern, || mask_of(&self.folder)) {
                return ReadOutcome::Match(line);
            }
            self.window.slide();
            if self.total >= until {
                return ReadOutcome::More;
            }
        }
    }
}
