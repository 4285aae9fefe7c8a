//! Sandbox of a session that was started: facts for results, refusals, and what is left to remove.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use abide_core::Sandboxed;

use rustix::fs::AtFlags;

use super::gate::{self, Gate, Listed};
use super::init::clean_up;
use super::plan::Plan;
use super::refusals::Refusals;
use super::supervision::{Supervision, Violation};

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
    /// Supervision of what the kernel cannot refuse.
    pub supervision: Supervision,
    /// Set when the command has ended. Processes may be left.
    pub has_ended: bool,
}

impl RunSandbox {
    /// Descriptor that becomes readable when something was made in a git directory.
    pub fn made(&self) -> Option<BorrowedFd<'_>> {
        self.supervision.made()
    }

    /// Looks at what was made in git directories. `true`: the command must be ended.
    pub fn look_at_git(&mut self) -> bool {
        let violation = self.supervision.look_at_git();
        self.violated(violation)
    }

    /// Looks at the size of the layers, if it is time to. `true`: the command must be ended.
    pub fn look_at_layers(&mut self, now: u64) -> bool {
        let violation = self.supervision.look(now);
        self.violated(violation)
    }

    fn violated(&mut self, violation: Option<Violation>) -> bool {
        let Some(violation) = violation else {
            return false;
        };
        self.refusals.violation = Some(violation);
        self.write_record();
        true
    }

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
                    self.write_record();
                }
            }
        }
    }

    /// Channel of the network gate.
    pub fn gate_channel(&self) -> Option<BorrowedFd<'_>> {
        self.gate.as_ref().and_then(Gate::channel)
    }

    /// Handles messages of the network gate.
    pub fn read_gate(&mut self) {
        if let Some(gate) = &mut self.gate
            && gate.take_messages()
        {
            self.of_gate = gate.listed();
            self.write_record();
        }
    }

    /// Writes the refusals into the session's directory at its end.
    pub fn record(&mut self) {
        if let Some(gate) = &mut self.gate {
            self.of_gate = gate.listed();
        }
        let made = self.supervision.look_at_git();
        self.refusals.violation = self.refusals.violation.take().or(made);
        self.has_ended = true;
        self.write_record();
    }

    /// A record that cannot be written is only missing from the result.
    fn write_record(&self) {
        let folder = self.folder.as_fd();
        let _ = (self.refusals).record(folder, self.has_ended, &self.of_gate);
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
