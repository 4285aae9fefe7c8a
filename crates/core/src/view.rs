//! Parts of a session that interfaces may read without asking the engine.

use crate::session::{Phase, Session};

impl Session {
    /// One word for people, lists and results.
    pub fn status(&self) -> &'static str {
        match &self.phase {
            Phase::Starting => "starting",
            Phase::Running { .. } => "running",
            Phase::Leftover { .. } | Phase::Ended { .. } => "ended",
            Phase::Failed { .. } => "failed",
        }
    }
}
