//! Sandbox of a session that was started: facts for results, refusals, and what is left to remove.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use abide_core::Sandboxed;

use rustix::fs::AtFlags;

use super::gate::{self, Gate};
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
    /// Network gate, if it has one.
    pub gate: Option<Gate>,
    /// Mount namespace of the sandbox, see [`super::Sandbox`].
    pub mounts: Option<OwnedFd>,
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
            false => {
                if self.refusals.handle() {
                    self.write_record(false);
                }
            }
        }
    }

    /// Writes the refusals into the session's directory at its end.
    pub fn record(&self) {
        self.write_record(true);
    }

    /// A record that cannot be written is only missing from the result. Names that the gate has refused are asked for at
    /// the end only.
    fn write_record(&self, is_end: bool) {
        let of_gate = self.gate.as_ref().filter(|_| is_end).map(Gate::listed);
        let of_gate = of_gate.unwrap_or_default();
        let _ = self.refusals.record(self.folder.as_fd(), is_end, &of_gate);
    }
}

impl Drop for RunSandbox {
    fn drop(&mut self) {
        if self.gate.is_some() {
            let _ = rustix::fs::unlinkat(&*self.folder, gate::SOCKET, AtFlags::empty());
        }
        self.mounts = None;
        clean_up(&self.plan, &self.session);
    }
}
