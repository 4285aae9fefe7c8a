//! Links between the machines of a fleet: TLS 1.3 with pinned keys, carried by frames in rows of the database. No port is
//! opened, so that machines behind a NAT can be called, and what the rows contain can only be read by the two machines.
//!
//! [`key`] knows the key of this machine and the fleet secret, [`tls`] pins keys, [`frame`] is the protocol of a link
//! (pure), [`stream`] makes a stream of bytes of it, `carrier` moves frames to and from the database, [`ssh`] carries the same
//! bytes where that is configured, [`machines`] knows the other machines, `handshake` opens links to them, `connections` sends
//! requests over these, [`directory`] tells them which sessions run here, `session_end` waits for the
//! end of theirs, and [`lost_sessions`] tells the owners of those that are lost.

mod carrier;
mod connections;
pub mod directory;
pub mod frame;
mod handshake;
pub mod joining;
pub mod key;
mod known_sessions;
pub mod lost_sessions;
pub mod machines;
pub(crate) mod session_end;
pub mod ssh;
pub mod stream;
pub mod tls;

use std::path::PathBuf;
use std::sync::Arc;

pub use carrier::CalledLink;
pub use key::{FleetSecret, KeyFault, MachineKey};
pub use machines::{CannotCall, CannotSay, KnownMachine, OtherMachines, PersonsWord, StartedLinks};

use crate::Handle;
use crate::config::Paths;
use crate::fleet::{Introduction, MachineIdentity};

impl Paths {
    /// File with the fleet secret. A machine without it has no links.
    pub fn fleet_secret(&self) -> PathBuf {
        self.state.join("fleet-secret")
    }

    /// Socket for `abide relay`, which brings links of other machines over ssh.
    pub fn link_socket(&self) -> PathBuf {
        self.runtime.join("link.sock")
    }

    /// File with the private key of this machine.
    pub fn machine_key(&self) -> PathBuf {
        self.state.join("machine-key")
    }

    /// File with the key of the codes in rows that make this machine run something.
    pub fn row_key(&self) -> PathBuf {
        self.state.join("row-key")
    }

    /// File with the keys of machines that were revoked.
    pub fn revoked_keys(&self) -> PathBuf {
        self.state.join("revoked-keys")
    }
}

impl Handle {
    /// Other machines of the fleet, to which there are links. `None`: this machine has no fleet secret.
    pub fn other_machines(&self) -> Option<&Arc<OtherMachines>> {
        self.fleet()?.others()
    }
}

/// Key of this machine and the code that vouches for it, if it has a fleet secret. A fault is reported where the links
/// are started.
pub(crate) fn proof(paths: &Paths, identity: &MachineIdentity) -> Introduction {
    let (Ok(Some(secret)), Ok(key)) = (
        FleetSecret::load(&paths.fleet_secret()),
        MachineKey::load_or_create(&paths.machine_key()),
    ) else {
        return Introduction::default();
    };
    let own = secret.introduce(identity.id, &identity.name, &key);
    Introduction {
        public_key: Some(own.key),
        mac: Some(own.mac),
        ..Introduction::default()
    }
}
