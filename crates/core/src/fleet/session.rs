//! State of a session on another machine, as far as it can be known.
//!
//! A machine that cannot be reached may be alive. So its sessions are `unreachable`, and `lost` only when that is sure:
//! the machine is back without them, a person says so, or the machine had declared itself ephemeral.

use super::row::{MachineRow, Standing};
use crate::time::{Millis, Steady};

/// Knowledge of the home machine of a session.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// Row of the machine; `None` if there is none.
    pub row: Option<&'a MachineRow>,
    /// Time for which its heartbeat was seen to stand still, if it counts as dead by observation
    /// ([`Watch::is_dead`](super::watch::Watch::is_dead)).
    pub dead_for: Option<Millis>,
    /// True if a person has said that what ran on it is lost.
    pub declared_lost: bool,
}

/// Reach of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The machine answers: the state in the directory is at most a second old.
    Known,
    /// The machine cannot be reached. `as_of` is the fleet time of its last heartbeat.
    Unreachable {
        /// Fleet time of the last heartbeat; `None` if it never said one.
        as_of: Option<Steady>,
    },
    /// The session is lost. Its exit code is not known.
    Lost(Loss),
}

/// Evidence that a session is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The machine was started again.
    Rebooted,
    /// A person says so, or removed the machine.
    Person,
    /// The machine was ephemeral and silent for as long as it had declared.
    Ephemeral,
}

/// Decides what is known of a session that ran in the boot `boot` of its machine.
pub fn reach(boot: u128, home: Home<'_>, now: Option<Steady>) -> Reach {
    if home.declared_lost {
        return Reach::Lost(Loss::Person);
    }
    let Some(row) = home.row else {
        return Reach::Unreachable { as_of: None };
    };
    match row.standing {
        Standing::Forgotten => return Reach::Lost(Loss::Person),
        Standing::Member | Standing::Left | Standing::Revoked => {}
    }
    if row.boot != boot {
        return Reach::Lost(Loss::Rebooted);
    }
    if home.dead_for.is_none() && row.standing == Standing::Member {
        return Reach::Known;
    }
    // A machine that died before its first heartbeat has said no time.
    let by_row = now.zip(row.fleet_time).map(|(now, last)| now.since(last));
    let silent = home.dead_for.map(|seen| by_row.unwrap_or(seen));
    match (row.lost_after, silent) {
        (Some(limit), Some(silent)) if silent >= limit => Reach::Lost(Loss::Ephemeral),
        _ => Reach::Unreachable {
            as_of: row.fleet_time,
        },
    }
}
