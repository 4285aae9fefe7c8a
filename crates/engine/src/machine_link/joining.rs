//! Checks before a machine joins a fleet, and its departure. They run in the command line, while no daemon does.

use std::path::PathBuf;

use abide_core::fleet::rights::Caller;
use abide_core::fleet::row::Standing;

use super::key::{FleetSecret, KeyFault, MachineKey};
use super::machines::IntroducedMachine;
use crate::config::{Config, Paths};
use crate::fleet::MachineIdentity;
use crate::store::{
    InvalidAddress, PostgresAddress, ServerFacts, StoreFault, inspect, introduced_machines, leave,
};

/// Reason why a machine cannot join or leave.
#[derive(Debug, thiserror::Error)]
pub enum CannotJoin {
    /// The address is not valid.
    #[error("the address of the database is not valid: {0}")]
    Address(InvalidAddress),
    /// The database cannot be used.
    #[error("the database at {0} cannot be used: {1}")]
    Database(String, String),
    /// Another secret vouches for the machines of the fleet.
    #[error(
        "the secret is not the one of the fleet at {0}; take it from a machine that is in the fleet"
    )]
    OtherSecret(String),
    /// A person has revoked this machine.
    #[error(
        "this machine was revoked; to join as a new one, first remove `machine` and `machine-key` in {0}"
    )]
    Revoked(String),
    /// The key of this machine cannot be read.
    #[error("{0}")]
    Key(KeyFault),
    /// There is a fleet already.
    #[error("there is a fleet at {0} already; join it with its secret: `abide fleet join`")]
    Exists(String),
    /// The identity of this machine cannot be read.
    #[error("the id of this machine cannot be read: {0}")]
    Identity(std::io::Error),
}

/// Checks that no fleet is at this address yet.
pub async fn check_new(url: &str, ca_file: Option<PathBuf>) -> Result<(), CannotJoin> {
    let address = PostgresAddress::parse(url, ca_file).map_err(CannotJoin::Address)?;
    let machines = introduced_machines(&address).await;
    match machines.map_err(|fault| unusable(&address, &fault))?.len() {
        0 => Ok(()),
        _ => Err(CannotJoin::Exists(address.shown())),
    }
}

/// Name that another machine of a fleet has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenName {
    pub taken: String,
    /// Name that this machine takes instead.
    pub instead: String,
}

/// Checks that the secret is the one of the fleet at this address, and that this machine was not revoked there. Returns
/// its name if that is taken.
pub async fn check_join(
    paths: &Paths,
    config: &Config,
    url: &str,
    secret: &FleetSecret,
) -> Result<Option<TakenName>, CannotJoin> {
    let address = PostgresAddress::parse(url, config.ca_file.clone());
    let address = address.map_err(CannotJoin::Address)?;
    let machines = introduced_machines(&address).await;
    let machines = machines.map_err(|fault| unusable(&address, &fault))?;
    let is_ours = machines
        .iter()
        .any(|machine| secret.check(&machine.introduction, machine.standing) != Caller::Unknown);
    let own = MachineKey::load_or_create(&paths.machine_key()).map_err(CannotJoin::Key)?;
    let is_revoked = |machine: &IntroducedMachine| {
        machine.introduction.key == own.public() && machine.standing == Standing::Revoked
    };
    if machines.iter().any(is_revoked) {
        return Err(CannotJoin::Revoked(paths.state.display().to_string()));
    }
    if !machines.is_empty() && !is_ours {
        return Err(CannotJoin::OtherSecret(address.shown()));
    }
    let identity = MachineIdentity::open(paths, config.machine.as_deref());
    let identity = identity.map_err(CannotJoin::Identity)?;
    let is_taken = |machine: &IntroducedMachine| {
        let other = &machine.introduction;
        other.id != identity.id
            && other.name == identity.name
            && machine.standing == Standing::Member
    };
    Ok(machines.iter().any(is_taken).then(|| TakenName {
        instead: identity.other_name(),
        taken: identity.name,
    }))
}

/// Marks this machine as left. Others take over its timers.
pub async fn leave_fleet(paths: &Paths, config: &Config) -> Result<(), CannotJoin> {
    let Some(url) = &config.store else {
        return Ok(());
    };
    let address = PostgresAddress::parse(url, config.ca_file.clone());
    let address = address.map_err(CannotJoin::Address)?;
    let identity = MachineIdentity::open(paths, config.machine.as_deref());
    let identity = identity.map_err(CannotJoin::Identity)?;
    let left = leave(&address, identity.id).await;
    left.map_err(|fault| unusable(&address, &fault))
}

/// Settings of the server that `store` names; `None`: it names none.
pub async fn server_facts(config: &Config) -> Option<Result<ServerFacts, CannotJoin>> {
    let url = config.store.as_deref()?;
    let address = match PostgresAddress::parse(url, config.ca_file.clone()) {
        Ok(address) => address,
        Err(why) => return Some(Err(CannotJoin::Address(why))),
    };
    let facts = inspect(&address).await;
    Some(facts.map_err(|fault| unusable(&address, &fault)))
}

fn unusable(address: &PostgresAddress, fault: &StoreFault) -> CannotJoin {
    let why = match fault {
        StoreFault::Unwritable(why) | StoreFault::Unreadable(why) => why.clone(),
        fault => fault.to_string(),
    };
    CannotJoin::Database(address.shown(), why)
}
