//! Identity of a machine: an id and a name in its state folder.
//!
//! A copy of the folder, as a cloned virtual machine has, must not act under the same id. So the file also has a hash of
//! the place where it was made (`/etc/machine-id` and the path of the folder): in another place it is replaced.

use std::io;
use std::path::Path;

use abide_core::fleet::MachineId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::{Paths, is_machine_name};
use crate::{entropy, secret};

/// Identity of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineIdentity {
    pub id: MachineId,
    pub name: String,
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    id: String,
    name: String,
    place: String,
}

impl MachineIdentity {
    /// Identity in the state folder; a new one if there is none that was made for this place. `configured` is the name
    /// in the configuration.
    pub fn open(paths: &Paths, configured: Option<&str>) -> io::Result<Self> {
        let place = place(&paths.state);
        let found = read(&paths.machine())?.filter(|stored| {
            let same = stored.place == place;
            if !same {
                tracing::warn!(
                    "{} was made on another machine, or for another folder; this machine takes a new id",
                    paths.machine().display()
                );
            }
            same
        });
        let identity = found.and_then(|stored| {
            let id = u64::from_str_radix(&stored.id, 16).ok().map(MachineId)?;
            let name = configured.map_or(stored.name, str::to_owned);
            is_machine_name(&name).then_some(MachineIdentity { id, name })
        });
        match identity {
            Some(identity) => Ok(identity),
            None => Self::make(paths, configured),
        }
    }

    /// New identity, which replaces the one in the state folder.
    pub fn make(paths: &Paths, configured: Option<&str>) -> io::Result<Self> {
        let identity = MachineIdentity {
            // Positive as a column of the database, too.
            id: MachineId(entropy::bits() >> 1),
            name: configured.map_or_else(host_name, str::to_owned),
        };
        identity.store(paths)?;
        Ok(identity)
    }

    /// The same machine with a name that no other machine has, because its own is taken.
    pub(super) fn rename(&mut self, paths: &Paths) -> io::Result<()> {
        self.name = self.other_name();
        self.store(paths)
    }

    /// Name that the machine takes if its own is taken.
    pub(crate) fn other_name(&self) -> String {
        let name = self.name.get(..58).unwrap_or(&self.name);
        format!("{name}{}", suffix(self.id))
    }

    fn store(&self, paths: &Paths) -> io::Result<()> {
        let stored = Stored {
            id: format!("{:016x}", self.id.0),
            name: self.name.clone(),
            place: place(&paths.state),
        };
        let text = serde_json::to_string(&stored).map_err(io::Error::other)?;
        secret::write(&paths.machine(), &text)
    }
}

/// Name that a machine had to give up for `name`, because another machine had it.
pub(super) fn taken_name(name: &str, id: MachineId) -> Option<&str> {
    name.strip_suffix(&suffix(id))
}

/// End of the name of a machine that had to take another name.
fn suffix(id: MachineId) -> String {
    format!("-{:04x}", id.0 & 0xffff)
}

fn read(path: &Path) -> io::Result<Option<Stored>> {
    match secret::read(path) {
        Ok(text) => Ok(text.and_then(|text| serde_json::from_slice(&text).ok())),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Hash of the machine and the folder.
fn place(state: &Path) -> String {
    let mut hash = Sha256::new();
    hash.update(std::fs::read("/etc/machine-id").unwrap_or_default());
    let folder = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    hash.update(folder.as_os_str().as_encoded_bytes());
    secret::hex(&hash.finalize()[..16])
}

/// Name of the host, in a form that the name of a machine can have.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().split('.').next().unwrap_or_default();
    match is_machine_name(name) {
        true => name.to_owned(),
        false => "machine".into(),
    }
}

/// Line of the fleet clock, which stays the same while the machine runs: fleet time minus boot time.
pub(super) fn read_boot_offset(paths: &Paths, boot: u128) -> Option<i64> {
    let text = std::fs::read_to_string(paths.fleet_time()).ok()?;
    let (of_boot, boot_offset) = text.trim().split_once(' ')?;
    (u128::from_str_radix(of_boot, 16).ok()? == boot).then(|| boot_offset.parse().ok())?
}

/// Stores the boot offset for the next daemon of this boot.
pub(super) fn write_boot_offset(paths: &Paths, boot: u128, boot_offset: i64) -> io::Result<()> {
    secret::write(&paths.fleet_time(), &format!("{boot:032x} {boot_offset}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> (tempfile::TempDir, Paths) {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = Paths::under(folder.path());
        (folder, paths)
    }

    #[test]
    fn identity_stays_the_same_in_its_folder() {
        let (_folder, paths) = paths();
        let first = MachineIdentity::open(&paths, None).expect("an identity");
        assert_eq!(MachineIdentity::open(&paths, None).expect("it"), first);
        let named = MachineIdentity::open(&paths, Some("desk")).expect("it");
        assert_eq!((named.id, named.name.as_str()), (first.id, "desk"));
    }

    #[test]
    fn copied_folder_has_a_new_identity() {
        let ((_one, one), (_two, two)) = (paths(), paths());
        let first = MachineIdentity::open(&one, None).expect("an identity");
        std::fs::copy(one.machine(), two.machine()).expect("a copy");
        let second = MachineIdentity::open(&two, None).expect("an identity");
        assert_ne!(second.id, first.id);
        assert_eq!(MachineIdentity::open(&two, None).expect("it"), second);
    }

    #[test]
    fn boot_offset_of_another_boot_is_not_used() {
        let (_folder, paths) = paths();
        assert_eq!(read_boot_offset(&paths, 1), None);
        write_boot_offset(&paths, 1, -7).expect("a file");
        assert_eq!(read_boot_offset(&paths, 1), Some(-7));
        assert_eq!(read_boot_offset(&paths, 2), None);
    }
}
