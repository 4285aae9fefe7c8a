//! What is looked at last: it is true of a moment, and all the rest of an answer can be made before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::daemon::{Handle, SessionView};
use crate::door::tools::report;
use crate::keeper::folder::Meta;
use crate::world::facts::{Facts, facts_from};
use crate::world::lookout::Lookout;

/// A look at what the processes of a session do, which somebody may be taking just now.
pub struct LastLook {
    pub(super) handle: Handle,
    pub(super) view: Arc<SessionView>,
    pub(super) meta: Meta,
    /// From where they are looked at.
    pub(super) lookout: Arc<Lookout>,
}

/// Facts by their names.
pub type Late = [(&'static str, Value); LastLook::NAMES.len()];

impl LastLook {
    /// What it tells, in the order in which it does.
    pub const NAMES: [&str; 3] = ["cpu", "doing", "waiting_for_input"];

    /// What they do now.
    pub fn look(&self) -> Late {
        let look = || report::kernel_facts_of(&self.handle, &self.view, &self.facts());
        // Whoever waits for the answer gets it, even if this fails.
        catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_| report::nothing_known())
    }

    /// Adds that to what else is known.
    pub fn add_to(&self, facts: &mut Map<String, Value>) {
        facts.extend(self.look().map(|(name, value)| (name.into(), value)));
    }

    fn facts(&self) -> Facts {
        facts_from(&self.lookout, &self.meta)
    }
}
