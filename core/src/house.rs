//! All sessions, waits and questions of one daemon, and the one function that changes them.
#![expect(missing_docs, unused, reason = "being built")]
use crate::effect::Effect;
use crate::event::Event;
use crate::id::{QuestionId, SessionId};
use crate::question::Question;
use crate::session::Session;
use crate::time::{Mono, Now};
use alloc::vec::Vec;

#[derive(Default)]
pub struct House {}

impl House {
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {}
    /// When the next [`Event::Tick`] is wanted.
    pub fn alarm(&self) -> Option<Mono> {
        None
    }
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        None
    }
    pub fn question(&self, id: QuestionId) -> Option<&Question> {
        None
    }
}
