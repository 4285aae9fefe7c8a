//! Machines of a fleet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// Fleet as this machine knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Machines")]
pub struct FleetMachines {
    /// Name of this machine; `null` if its state is not in a shared database.
    pub machine: Option<String>,
    /// Name that this machine was to have, if another machine had it already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_taken: Option<String>,
    /// True if this machine is a member.
    pub joined: bool,
    /// True if this machine has a fleet secret, so that machines can call each other.
    pub linked: bool,
    /// Sentence about a membership that does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// All machines, by name.
    pub machines: Vec<FleetMachine>,
}

/// One machine of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Machine")]
pub struct FleetMachine {
    /// Name.
    pub name: String,
    /// State of the machine.
    pub state: MachineState,
    /// Labels, by which `on` can choose it.
    pub labels: Vec<String>,
    /// Version of its program.
    pub version: String,
    /// True if its key is vouched for by the fleet secret.
    pub vouched_for: bool,
    /// Way of calls to it over ssh, if one is configured here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshRoute>,
    /// True if a person has said that the sessions which ran on it are lost.
    pub declared_lost: bool,
    /// Last heartbeat by the clock of the database, in Unix milliseconds.
    pub as_of: u64,
}

/// Way of calls to a machine over ssh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SshRoute {
    /// Destination of ssh.
    pub destination: String,
    /// Reason why ssh failed last, so that the database carries the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

words! {
    /// State of a machine. `alive`: its heartbeat rises; `unreachable`: it stands still; `left`: in order; `revoked`: a person
    /// expelled it.
    MachineState {
        Here = "here",
        Alive = "alive",
        Unreachable = "unreachable",
        Left = "left",
        Revoked = "revoked",
    };
}

/// Result of an act on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineActed {
    /// Name of the machine.
    pub machine: String,
    /// `lost`, `forget` or `revoke`.
    pub act: String,
}
