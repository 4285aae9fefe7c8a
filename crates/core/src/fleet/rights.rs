//! Rights of one machine on another. The target decides from its own configuration; the database is not believed.
//!
//! A machine is believed to be who its row says only if the row carries a message authentication code under the fleet
//! secret, which never enters the database. This crate has no cryptography: the caller passes the check, which must be
//! HMAC-SHA-256 over [`signed_bytes`] under the fleet secret, compared in constant time.

use alloc::string::String;
use alloc::vec::Vec;

use super::row::{Introduction, Standing};

/// Right on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Lists, states, output, screens and search.
    See,
    /// Input, attaching, killing, extending, signals and answers to questions.
    Type,
    /// Starting sessions.
    Run,
}

/// Machines that a setting names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Machines {
    /// Only those, by name.
    Named(Vec<String>),
    /// Every machine of the fleet.
    All,
    /// None.
    #[default]
    None,
}

impl Machines {
    fn contains(&self, name: &str) -> bool {
        match self {
            Machines::Named(names) => names.iter().any(|known| known == name),
            Machines::All => true,
            Machines::None => false,
        }
    }
}

/// Settings `[fleet]` of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Machines that may type.
    pub type_: Machines,
    /// Machines that may run.
    pub run: Machines,
}

/// Machine that asks, after its row was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller<'a> {
    /// Vouched for by the fleet secret.
    Known {
        /// Name in the checked row.
        name: &'a str,
    },
    /// The row has no valid code.
    Unknown,
    /// A person expelled or removed it.
    Expelled,
}

/// Reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The machine is not vouched for.
    Unknown,
    /// A person expelled it.
    Expelled,
    /// The configuration of the target does not name it.
    NotNamed {
        /// Setting to which the name can be added.
        setting: &'static str,
    },
}

/// Bytes that the code of a machine's row covers. Each part is preceded by its length, so no two rows share them. The
/// name is part of it because rights name machines.
pub fn signed_bytes(introduction: &Introduction) -> Vec<u8> {
    let id = introduction.id.0.to_be_bytes();
    let parts: [&[u8]; 4] = [
        b"abide machine 1",
        &id,
        introduction.name.as_bytes(),
        &introduction.key,
    ];
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Checks a row. `verify(bytes, code)` says whether the code is that of the bytes under the fleet secret.
pub fn introduce(
    introduction: &Introduction,
    standing: Standing,
    verify: impl FnOnce(&[u8], &[u8; 32]) -> bool,
) -> Caller<'_> {
    if !verify(&signed_bytes(introduction), &introduction.mac) {
        return Caller::Unknown;
    }
    match standing {
        Standing::Member | Standing::Left => Caller::Known {
            name: &introduction.name,
        },
        Standing::Forgotten | Standing::Revoked => Caller::Expelled,
    }
}

/// Decides whether the caller has a right on this machine.
pub fn decide(rights: &Rights, right: Right, caller: &Caller<'_>) -> Result<(), Denied> {
    let name = match caller {
        Caller::Known { name } => name,
        Caller::Unknown => return Err(Denied::Unknown),
        Caller::Expelled => return Err(Denied::Expelled),
    };
    let (named, setting) = match right {
        Right::See => return Ok(()),
        Right::Type => (&rights.type_, "fleet.type"),
        Right::Run => (&rights.run, "fleet.run"),
    };
    if named.contains(name) {
        Ok(())
    } else {
        Err(Denied::NotNamed { setting })
    }
}
