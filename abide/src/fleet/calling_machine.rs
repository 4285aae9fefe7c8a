//! Machine that has sent a request, for handlers whose response lasts: what it may do can change meanwhile.

use std::sync::Arc;

use abide_core::fleet::rights::Right;
use abide_engine::Handle;
use abide_engine::machine_link::{KnownMachine, OtherMachines};

use super::needed_right::sentence;

/// Machine at the other end of a link, in the extensions of its requests.
#[derive(Clone)]
pub struct CallingMachine {
    /// Machines of the fleet.
    pub machines: Arc<OtherMachines>,
    /// Machine that calls.
    pub caller: KnownMachine,
    /// Daemon that is called.
    pub handle: Handle,
}

impl CallingMachine {
    /// Sentence about the right to type, if this machine does not give it to the caller now.
    pub fn input_refusal(&self) -> Option<String> {
        let rights = self.handle.config().fleet.rights();
        let decided = (self.machines).decide_by_last_look(&rights, Right::Type, &self.caller);
        let denied = decided.err()?;
        Some(sentence(
            &denied,
            &self.caller.name,
            &self.machines.own_name(),
        ))
    }

    /// Waits until the machine does not belong to the fleet any more.
    pub async fn until_expelled(&self) {
        self.machines.until_expelled(&self.caller).await;
    }
}
