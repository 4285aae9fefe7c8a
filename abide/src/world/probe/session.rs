//! Whether a session has ended, or has written something.

use std::path::PathBuf;
use std::sync::Arc;

use abide_core::SessionId;
use anstream::adapter::StripBytes;
use regex::bytes::Regex;

use super::condition::SessionWant;
use super::pattern::{Window, pattern};
use super::{Boxed, Slots};
use crate::world::keepers::Follower;
use crate::world::log::{Log, Piece};

/// Where sessions can be looked at.
pub trait Sessions: Send + Sync {
    /// Waits until its leader has ended; says how. `None`: there is no such session.
    fn ended(&self, session: SessionId) -> Boxed<'_, Option<String>>;
    /// Follows how far its output has come; `None`: nothing will be added.
    fn follow(&self, session: SessionId) -> Option<Follower>;
    /// Where its log is.
    fn folder(&self, session: SessionId) -> PathBuf;
}

pub(super) async fn until_so(
    session: SessionId,
    want: &SessionWant,
    sessions: Option<&Arc<dyn Sessions>>,
    slots: &Slots,
) -> String {
    let Some(sessions) = sessions else {
        return std::future::pending().await;
    };
    match want {
        SessionWant::Ended => {
            slots.say(format!("{session} has not ended"));
            let how = sessions.ended(session).await;
            let how = how.unwrap_or_else(|| "it is no longer known".into());
            let seen = format!("{session} has ended: {how}");
            slots.say(seen.as_str());
            seen
        }
        SessionWant::Output(text) => match pattern(text) {
            Ok(pattern) => until_written(session, &pattern, &**sessions, slots).await,
            Err(_) => std::future::pending().await,
        },
    }
}

async fn until_written(
    session: SessionId,
    pattern: &Regex,
    sessions: &dyn Sessions,
    slots: &Slots,
) -> String {
    let mut pieces = Log::open(&sessions.folder(session)).pieces(0, None);
    let mut follower = sessions.follow(session);
    let mut strip = StripBytes::new();
    let mut window = Window::default();
    let mut total = 0_u64;
    let mut known = 0;
    loop {
        while let Ok(Some(piece)) = pieces.next_within(usize::MAX) {
            let Piece::Chunk(chunk) = piece else { continue };
            total += chunk.bytes.len() as u64;
            for part in strip.strip_next(&chunk.bytes) {
                window.end().extend_from_slice(part);
            }
            if let Some(words) = window.find(pattern) {
                let seen = format!("{session} wrote {words:?}");
                slots.say(seen.as_str());
                return seen;
            }
            window.slide();
        }
        match &mut follower {
            Some(follow) => {
                slots.say(format!("{session} wrote {total} bytes without a match"));
                let tide = follow.beyond_the_end(pieces.at().max(known)).await;
                known = tide.bytes;
                if tide.closed {
                    follower = None;
                }
            }
            None => {
                slots.say(format!(
                    "{session} has ended after {total} bytes without a match"
                ));
                return std::future::pending().await;
            }
        }
    }
}
