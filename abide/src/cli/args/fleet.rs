//! Arguments of `fleet` and `machine`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::JsonArg;

const JOIN_HELP: &str = "\
The secret comes from --secret-file or standard input, never from the command line:
  ssh build abide fleet join postgres://abide@db/abide < ~/.local/state/abide/fleet-secret

The daemon is started again; sessions continue.";

/// Make, join or leave a fleet of machines that share a database
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    Init(FleetInitArgs),
    Join(FleetJoinArgs),
    /// Leave the fleet; its machines take over the timers of this one
    Leave,
    /// Show the membership of this machine and the other machines
    Status(JsonArg),
}

/// Make a fleet with this machine as the first member
#[derive(Debug, Args)]
pub struct FleetInitArgs {
    /// Address of the database [default: `store` in the configuration]
    #[arg(value_name = "URL")]
    pub url: Option<String>,
}

/// Join a fleet with its secret
#[derive(Debug, Args)]
#[command(after_help = JOIN_HELP)]
pub struct FleetJoinArgs {
    /// Address of the database
    #[arg(value_name = "URL")]
    pub url: String,
    /// File with the fleet secret [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// List the machines of the fleet, label this one, remove others
#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// List the machines of the fleet
    List(JsonArg),
    Label(MachineLabelArgs),
    /// Declare that a machine is gone: what ran on it counts as lost
    Lost(MachineActArgs),
    /// Remove a machine that does not come back; what ran on it is lost
    Forget(MachineActArgs),
    /// Take all rights from a machine, for example a stolen one
    Revoke(MachineActArgs),
}

/// Show or set the labels of this machine, by which others can choose it
#[derive(Debug, Args)]
pub struct MachineLabelArgs {
    /// Labels that replace those of this machine. Without any, the labels are shown
    #[arg(value_name = "LABEL")]
    pub labels: Vec<String>,
    /// Remove all labels
    #[arg(long, conflicts_with = "labels")]
    pub none: bool,
}

#[derive(Debug, Args)]
pub struct MachineActArgs {
    /// Name of the machine
    #[arg(value_name = "NAME")]
    pub machine: String,
    #[command(flatten)]
    pub json: JsonArg,
}
