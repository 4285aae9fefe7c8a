//! Sandbox of a session that was started: facts for results, refusals, and what is left to remove.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use abide_core::Sandboxed;

use rustix::fs::AtFlags;

use super::gate::{self, Gate, Listed};
use super::init::Sandbox;
use super::layers::WorkFolders;
use super::plan::Plan;
use super::refusals::{Refusals, Watched};
use super::supervision::{Supervision, Violation};

/// Sandbox of a session that is about to start, or was started. Dropping it removes what only a running sandbox needs.
pub(crate) struct RunSandbox {
    /// Mechanism and gaps, for results.
    pub sandboxed: Sandboxed,
    /// Attempts to write that it has refused.
    pub refusals: Refusals,
    /// The session's directory.
    folder: Rc<OwnedFd>,
    /// Network gate, if it has one.
    gate: Option<Gate>,
    /// Refusals of the gate that are known.
    of_gate: Listed,
    /// Supervision of what the kernel cannot refuse.
    pub supervision: Supervision,
    /// Set when the command has ended. Processes may be left.
    has_ended: bool,
    /// Mount namespace and work folders, see [`Sandbox`]: dropped last, and in this order.
    _mounts: Option<OwnedFd>,
    _work: Option<WorkFolders>,
}

impl RunSandbox {
    /// Supervises a sandbox from now on, before its command runs. `folder` is the session's directory.
    pub fn new(plan: &Plan, built: &mut Sandbox, gate: Option<Gate>, folder: Rc<OwnedFd>) -> Self {
        let protected = std::mem::take(&mut built.protected);
        let init = built.namespace.as_ref().map(|space| space.pid);
        let supervision = match init {
            Some(_) => Supervision::new(plan, &protected),
            None => Supervision::of_layers(plan),
        };
        let filter = built.entry.filter_rules();
        RunSandbox {
            sandboxed: built.sandboxed.clone(),
            refusals: Refusals::new(Watched::new(plan, init, protected), filter),
            folder,
            gate,
            of_gate: Listed::default(),
            supervision,
            has_ended: false,
            _mounts: built.mounts.take(),
            _work: built.work.take(),
        }
    }

    /// Descriptor of the watch over git directories, readable when a file was made in one.
    pub fn git_watch(&self) -> Option<BorrowedFd<'_>> {
        self.supervision.git_watch()
    }

    /// Checks the watch over git directories. `true`: the command must be ended.
    pub fn check_git_watch(&mut self) -> bool {
        let violation = self.supervision.check_git_watch();
        self.violated(violation)
    }

    /// Checks the size of the layers, if it is time to. `true`: the command must be ended.
    pub fn check_layers(&mut self, now: u64) -> bool {
        let violation = self.supervision.check_layers(now);
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
    pub fn handle_attempt(&mut self, ended: bool) {
        match ended {
            true => self.refusals.close(),
            false => {
                if self.refusals.handle(self.gate.as_mut()) {
                    self.write_record();
                }
                if let (Some(address), Some(gate)) = (self.refusals.no_listener.take(), &self.gate)
                {
                    gate.tell_no_listener(address);
                }
                if self.gate.as_ref().is_some_and(|gate| gate.has_refused) {
                    self.read_gate();
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
        let made = self.supervision.check_git_watch();
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
            for socket in [gate::SOCKET, gate::PORTS_SOCKET] {
                let _ = rustix::fs::unlinkat(&*self.folder, socket, AtFlags::empty());
            }
        }
    }
}
