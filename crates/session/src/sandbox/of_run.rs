//! Sandbox of a session that was started: facts for results, refusals, and what is left to remove.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use abide_core::Sandboxed;

use rustix::fs::AtFlags;

use super::gate::{self, Gate, Listed};
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
    /// Refusals of the gate that are known.
    pub of_gate: Listed,
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

    /// Channel of the network gate.
    pub fn gate_channel(&self) -> Option<BorrowedFd<'_>> {
        self.gate.as_ref().and_then(Gate::channel)
    }

    /// Handles messages of the network gate.
    pub fn hear_gate(&mut self) {
        if let Some(gate) = &mut self.gate
            && gate.take_messages()
        {
            self.of_gate = gate.listed();
            self.write_record(false);
        }
    }

    /// Writes the refusals into the session's directory at its end.
    pub fn record(&mut self) {
        if let Some(gate) = &mut self.gate {
            self.of_gate = gate.listed();
        }
        self.write_record(true);
    }

    /// A record that cannot be written is only missing from the result.
    fn write_record(&self, is_end: bool) {
        let folder = self.folder.as_fd();
        let _ = self.refusals.record(folder, is_end, &self.of_gate);
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
