//! Rows that the machines of a fleet share, as a look returns them.

use alloc::string::String;
use alloc::vec::Vec;

use super::version::Version;
use super::{HEARTBEAT_FAST, HEARTBEAT_SLOW, SILENCE_FAST, SILENCE_SLOW};
use crate::time::{Millis, Steady};

/// Id of a machine: random, made once, kept in its state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u64);

/// Id of a shard: that of the machine on which its timers are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub MachineId);

/// Random number that tells one's own write from that of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim(pub u64);

/// Reading of the clock of the database server, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseClock(pub u64);

/// Pace of heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pace {
    /// Every second: something is due soon.
    Fast,
    /// Every five seconds.
    Slow,
}

impl Pace {
    /// Time between two heartbeats.
    pub const fn every(self) -> Millis {
        match self {
            Pace::Fast => HEARTBEAT_FAST,
            Pace::Slow => HEARTBEAT_SLOW,
        }
    }

    /// Time that the heartbeat must stand still until the machine counts as dead.
    pub const fn silence(self) -> Millis {
        match self {
            Pace::Fast => SILENCE_FAST,
            Pace::Slow => SILENCE_SLOW,
        }
    }

    /// Word in the row of a machine.
    pub const fn as_str(self) -> &'static str {
        match self {
            Pace::Fast => "fast",
            Pace::Slow => "slow",
        }
    }

    /// Pace with this word.
    pub fn of_word(word: &str) -> Option<Self> {
        let all = [Pace::Fast, Pace::Slow];
        all.into_iter().find(|pace| pace.as_str() == word)
    }
}

/// Relation of a machine to the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Machine of the fleet.
    Member,
    /// Left in order: its shards can be claimed at once.
    Left,
    /// Removed by a person. A daemon that still has this id takes a new one.
    Forgotten,
    /// Expelled by a person: its key has no rights anywhere.
    Revoked,
}

impl Standing {
    /// Word in the row of a machine.
    pub const fn as_str(self) -> &'static str {
        match self {
            Standing::Member => "member",
            Standing::Left => "left",
            Standing::Forgotten => "forgotten",
            Standing::Revoked => "revoked",
        }
    }

    /// Relation with this word.
    pub fn of_word(word: &str) -> Option<Self> {
        let all = [
            Standing::Member,
            Standing::Left,
            Standing::Forgotten,
            Standing::Revoked,
        ];
        all.into_iter().find(|standing| standing.as_str() == word)
    }
}

/// Row of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRow {
    /// Id.
    pub id: MachineId,
    /// Claim of the process that writes this row.
    pub claim: Claim,
    /// Boot id of the kernel under that process.
    pub boot: u128,
    /// Relation to the fleet.
    pub standing: Standing,
    /// Number of the newest heartbeat.
    pub heartbeat: u64,
    /// Pace of the heartbeats, which decides after how much silence the machine counts as dead.
    pub pace: Pace,
    /// Fleet time of the machine when it sent that heartbeat; `None` while it does not know the fleet time.
    pub fleet_time: Option<Steady>,
    /// Clock of the database when it carried out that heartbeat.
    pub written: DatabaseClock,
    /// Silence after which the sessions of an ephemeral machine are lost.
    pub lost_after: Option<Millis>,
}

/// Row of a shard. It changes only when the owner does; batches lock it and do not write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow {
    /// Id.
    pub id: ShardId,
    /// Machine that may write the rows of the shard.
    pub owner: MachineId,
    /// Number of changes of the owner.
    pub epoch: u64,
    /// Claim with which the owner took it. `None` after a hand-back: the new owner has still to claim it.
    pub claim: Option<Claim>,
}

/// The one row of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRow {
    /// Version of this row; every change raises it.
    pub version: u64,
    /// Version of the schema.
    pub schema: u32,
    /// Oldest program that may write.
    pub oldest_writer: Version,
    /// Clock of the database minus fleet time.
    pub clock_ahead: i64,
    /// Fleet time that is known to have passed.
    pub reached: Steady,
    /// Number that every machine raises when it enters, so that the others look at all rows.
    pub members: u64,
    /// Timeline of the database server that the fleet knows. A promoted replica or a restored backup has another.
    pub timeline: u64,
    /// Fleet time at which another timeline was last noticed.
    pub went_back: Steady,
}

/// Result of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Row of the fleet.
    pub fleet: FleetRow,
    /// Clock of the database.
    pub database_clock: DatabaseClock,
    /// Timeline of the server that answered.
    pub timeline: u64,
    /// True if the heartbeat that the statement carried was written.
    pub heartbeat_written: bool,
    /// Row of this machine, after the heartbeat.
    pub own: Option<MachineRow>,
    /// Rows of the machines that were asked for, or of all others.
    pub machines: Vec<MachineRow>,
    /// Rows of all shards whose owner is among those machines, that this machine owns, or that were asked for.
    pub shards: Vec<ShardRow>,
    /// True if all machines were read.
    pub wide: bool,
}

/// Name, public key and message authentication code of a machine, as its row says them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Id.
    pub id: MachineId,
    /// Name, which rights refer to.
    pub name: String,
    /// Public key.
    pub key: [u8; 32],
    /// Code over the three under the fleet secret.
    pub mac: [u8; 32],
}
