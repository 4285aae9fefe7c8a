//! Sandbox of a session that was started: facts for results, refusals, and what is left to remove.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use abide_core::Sandboxed;

use super::init::clean_up;
use super::plan::Plan;
use super::refusals::Refusals;

/// Sandbox of a session that was started. Dropping it removes what only a running sandbox needs.
pub(crate) struct RunSandbox {
    /// The plan that it was built from.
    pub plan: Plan,
    /// Id of the session.
    pub session: String,
    /// Mechanism and gaps, for results.
    pub sandboxed: Sandboxed,
    /// Attempts to write that it has refused.
    pub refusals: Refusals,
    /// The session's directory.
    pub folder: Rc<OwnedFd>,
}

impl RunSandbox {
    /// Listener for attempts to write.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.refusals.listener()
    }

    /// Handles an attempt to write. `ended`: no process is left that could make one.
    pub fn attempted(&mut self, ended: bool) {
        match ended {
            true => self.refusals.close(),
            false => self.refusals.handle(),
        }
    }

    /// Writes the refusals into the session's directory. A record that cannot be written is only missing from the result.
    pub fn record(&self) {
        let _ = self.refusals.record(self.folder.as_fd());
    }
}

impl Drop for RunSandbox {
    fn drop(&mut self) {
        clean_up(&self.plan, &self.session);
    }
}
