//! Events of the membership, the statements it sends and the effects it wants.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::row::{Claim, FleetRow, Look, MachineId, Pace, ShardId, Standing};
use super::version::WriteRefusal;
use crate::time::{Boot, Millis, Steady};

/// Something that happened to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Event {
    /// The alarm is due.
    Tick,
    /// The daemon wants to be part of the fleet.
    Join,
    /// The daemon leaves in order.
    Leave,
    /// A statement was answered.
    Answered {
        /// Number of the statement.
        request: u64,
        answer: Answer,
    },
    /// A statement failed, or its outcome is unknown. The rows tell at the next look.
    Failed {
        /// Number of the statement.
        request: u64,
    },
    /// Next deadline of what this daemon has loaded or is about to write. A deadline counts before its batch is sent:
    /// the batch writes the pace ([`Member::own_pace`](super::Member::own_pace)), so that the observers know it as soon
    /// as the timer exists.
    Due {
        /// Earliest deadline.
        soonest: Option<Steady>,
        /// True if a call here waits for something on another machine.
        waiting: bool,
    },
    /// A batch was refused because this machine is not the owner in that epoch. None is sent until the next
    /// [`Effect::Load`].
    Fenced {
        /// Shard of the batch.
        shard: ShardId,
        /// Epoch of the batch.
        epoch: u64,
    },
    /// The outcome of a batch is unknown. The shard is claimed with a higher epoch, so that the batch cannot be
    /// carried out any more; then its stamp in the rows tells.
    BatchUnknown {
        /// Shard of the batch.
        shard: ShardId,
        /// Epoch of the batch.
        epoch: u64,
    },
    /// Another machine has begun to beat fast: look sooner.
    Notified,
    /// A machine has not answered a call, though this one reaches the database.
    Unanswered { machine: MachineId },
    /// A batch that makes timers was refused because the time of the database is not that of this machine.
    TimeRefused,
    /// Another machine asks for the shard that was made on it.
    HandBackRequested { shard: ShardId },
}

/// Something that the daemon should do for the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Effect {
    /// Send a statement and answer with [`Event::Answered`] or [`Event::Failed`].
    Send {
        /// Number of the statement.
        request: u64,
        statement: Statement,
    },
    /// This machine owns the shard in this epoch. Find out what became of batches whose outcome is unknown, write again
    /// the rows in memory and the newest batches where the database has older stamps, then load its timers.
    Load {
        shard: ShardId,
        /// Epoch for the fence and the stamps of batches.
        epoch: u64,
    },
    /// Ownership of the shard is in doubt: keep it in memory, but send no batch until the next [`Effect::Load`].
    Suspend { shard: ShardId },
    /// Another machine owns the shard: forget its timers, but keep the newest batches for a later [`Effect::Load`].
    Drop { shard: ShardId },
    /// Ask the owner for the shard of this machine.
    RequestHandBack {
        shard: ShardId,
        /// Machine that owns it.
        owner: MachineId,
    },
    /// Have another machine look soon, where the database can notify: this one beats fast now, or has handed back its
    /// shard. A machine that is not notified sees it at its next look.
    NotifyMachine { machine: MachineId },
    /// A machine counts as dead since its heartbeat stopped at this time of the boot clock.
    MachineSilent {
        machine: MachineId,
        /// First look that saw its last heartbeat.
        since: Boot,
    },
    /// A machine does not answer calls. It does not count as dead: only its heartbeat decides about its shard.
    MachineUnanswered { machine: MachineId },
    /// A machine that counted as dead, or did not answer calls, beats again.
    MachineBack { machine: MachineId },
    /// The fleet time has changed: arm deadlines again.
    TimeSet,
    /// This daemon is a member.
    Joined,
    /// Another process has this id, or a person removed it: make a new id, then start the daemon again with it.
    TakeNewIdentity,
    /// This daemon may not join. Its sessions go on.
    CannotJoin(WriteRefusal),
    /// A person expelled this machine.
    Expelled,
}

/// Rows of machines that a look reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All machines.
    All,
    /// Those machines.
    Machines(Vec<MachineId>),
}

/// Heartbeat, with the look that the same statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Number. Written where the row has this claim and a lower number.
    pub heartbeat: u64,
    /// Claim of this process.
    pub claim: Claim,
    /// Pace for observers.
    pub pace: Pace,
    /// Relation to the fleet.
    pub standing: Standing,
    /// Fleet time at the time of sending.
    pub fleet_time: Option<Steady>,
    /// Machines to read.
    pub scope: Scope,
    /// Shards to read besides those of these machines.
    pub shards: Vec<ShardId>,
}

/// One atomic statement, or transaction in one flight.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Statement {
    /// Read all rows.
    Look,
    /// Raise the heartbeat and read.
    Beat(Beat),
    /// Write the row of this machine where claim and heartbeat are as expected (`None`: there is no row), and raise
    /// `members` in the fleet row.
    Enter {
        /// Claim and heartbeat of the present row.
        expected: Option<(Claim, u64)>,
        /// Claim of this process.
        claim: Claim,
        /// Boot id.
        boot: u128,
        /// First heartbeat.
        heartbeat: u64,
        /// Silence after which the sessions of this machine are lost.
        lost_after: Option<Millis>,
    },
    /// Become the owner of a shard where all expectations hold.
    Claim {
        shard: ShardId,
        /// Owner and epoch of the present row (`None`: there is no row).
        expected: Option<(MachineId, u64)>,
        /// Claim and heartbeat of the owner's machine row; `None`: this machine is the owner, or it has no row.
        silent: Option<(Claim, u64)>,
        /// Timeline of the server.
        timeline: u64,
        /// New claim.
        claim: Claim,
        /// New epoch.
        epoch: u64,
    },
    /// Make another machine the owner, with the next epoch and no claim, where this machine is the owner in this epoch.
    HandBack {
        shard: ShardId,
        /// Present epoch.
        epoch: u64,
        /// New owner.
        to: MachineId,
    },
    /// Change the fleet row where its version is one lower than that of the new row, except for `members`.
    SetFleet {
        /// New row.
        row: FleetRow,
        /// Timeline of the server. Another one may have the same version of another row.
        timeline: u64,
    },
}

/// Answer to a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Answer to [`Statement::Look`] and [`Statement::Beat`].
    Looked(Box<Look>),
    /// Result of the other statements. `true`: carried out; `false`: an expectation did not hold, and nothing was written.
    Done(bool),
}
