//! Decision whether this program may write the database of a fleet.
//!
//! Migrations only add, so a newer schema is no obstacle in itself. The fleet row names the oldest program that may
//! write; it is raised when something is removed.

use core::fmt;

use super::row::FleetRow;

/// Version of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16, pub u16, pub u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// This program: its version, and the schema it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Version.
    pub version: Version,
    /// Schema.
    pub schema: u32,
}

/// Reason why a daemon does not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefusal {
    /// The fleet needs a newer program.
    TooOld {
        /// Oldest version that may write.
        needed: Version,
    },
    /// The schema is older than this program: migrate it in one transaction that locks the fleet row, then join.
    Migrate {
        /// Schema of the database.
        from: u32,
        /// Schema of this program.
        to: u32,
    },
}

/// Decides whether the program may write.
pub fn may_write(program: Program, fleet: &FleetRow) -> Result<(), WriteRefusal> {
    if program.version < fleet.oldest_writer {
        return Err(WriteRefusal::TooOld {
            needed: fleet.oldest_writer,
        });
    }
    if fleet.schema < program.schema {
        return Err(WriteRefusal::Migrate {
            from: fleet.schema,
            to: program.schema,
        });
    }
    Ok(())
}
