//! `abide fleet` and `abide machine`.

use std::fs::Permissions;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use abide_api::{FleetMachine, FleetMachines, MachineActed, MachineState};
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config::{Config, Paths};
use abide_engine::machine_link::FleetSecret;
use abide_engine::machine_link::joining::{CannotJoin, check_join, check_new, leave_fleet};
use abide_output::printable::one_line;
use serde_json::json;
use toml_edit::{Array, DocumentMut, value};

use super::args::{FleetInitArgs, FleetJoinArgs, MachineActArgs, MachineLabelArgs};
use super::client::Client;
use super::error::CliError;
use super::show::{self, Row, outln};
use super::{daemon, replace_file};

/// Longest text that is read as a secret.
const MAX_SECRET: u64 = 1_024;

/// Makes a fleet secret.
pub fn init(paths: &Paths, args: FleetInitArgs) -> Result<u8, CliError> {
    let config = load(paths)?;
    refuse_member(paths)?;
    let Some(url) = args.url.or(config.store.clone()) else {
        return Err(CliError::new("a fleet needs a PostgreSQL database")
            .next("give its address: `abide fleet init postgres://user@host/db`"));
    };
    super::block_on(check_new(&url, config.ca_file.clone()))?;
    let secret = FleetSecret::random();
    enter(paths, &url, &secret)?;
    outln!("This machine is the first of a new fleet.");
    outln!(
        "The fleet secret is in {}. With it a machine can join, so send it only over a channel that you trust:",
        paths.fleet_secret().display()
    );
    outln!(
        "  ssh HOST abide fleet join URL < {}",
        paths.fleet_secret().display()
    );
    outln!(
        "URL is the address of the database, as `store` in {} has it.",
        paths.config.display()
    );
    Ok(0)
}

pub fn join(paths: &Paths, args: FleetJoinArgs) -> Result<u8, CliError> {
    let config = load(paths)?;
    refuse_member(paths)?;
    let secret = read_secret(args.secret_file.as_deref())?;
    let name = super::block_on(check_join(paths, &config, &args.url, &secret))?;
    enter(paths, &args.url, &secret)?;
    outln!("This machine has joined the fleet. `abide fleet status` shows it.");
    if let Some(name) = name {
        outln!("{}", taken_sentence(&name.taken, &name.instead));
    }
    Ok(0)
}

/// Leaves the fleet.
pub fn leave(paths: &Paths) -> Result<u8, CliError> {
    let config = load(paths)?;
    if !paths.fleet_secret().exists() {
        return Err(CliError::new("this machine is not in a fleet"));
    }
    daemon::stop_quietly(paths)?;
    super::block_on(leave_fleet(paths, &config))?;
    change_config(paths, |document| {
        document.remove("store");
    })?;
    std::fs::remove_file(paths.fleet_secret())?;
    outln!("This machine has left the fleet, and `store` was removed from its configuration.");
    outln!("Its timers and messages stay in the database; the other machines complete them.");
    Ok(0)
}

/// Sets the labels of this machine, or shows them.
pub fn label(paths: &Paths, args: MachineLabelArgs) -> Result<u8, CliError> {
    let labels = match args.labels.is_empty() && !args.none {
        true => load(paths)?.labels,
        false => {
            // Only a person can stop the daemon, so nothing is changed for a command of an agent.
            daemon::stop_quietly(paths)?;
            change_config(paths, |document| {
                let labels: Array = args.labels.iter().map(String::as_str).collect();
                document["labels"] = value(labels);
            })?;
            start(paths)?;
            args.labels
        }
    };
    match labels.is_empty() {
        true => outln!("This machine has no labels."),
        false => outln!("Labels of this machine: {}.", labels.join(", ")),
    }
    Ok(0)
}

fn load(paths: &Paths) -> Result<Config, CliError> {
    Config::load(&paths.config).map_err(|fault| CliError::new(fault.to_string()))
}

fn refuse_member(paths: &Paths) -> Result<(), CliError> {
    match paths.fleet_secret().exists() {
        true => Err(CliError::new("this machine is in a fleet already")
            .next("`abide fleet status` shows it; `abide fleet leave` leaves it")),
        false => Ok(()),
    }
}

impl From<CannotJoin> for CliError {
    fn from(fault: CannotJoin) -> Self {
        CliError::new(fault.to_string()).next("Nothing was changed.")
    }
}

/// Reads the secret from a file or standard input.
fn read_secret(file: Option<&Path>) -> Result<FleetSecret, CliError> {
    let mut text = Vec::new();
    match file {
        Some(file) => {
            let found = std::fs::File::open(file);
            let found = found.map_err(|fault| {
                CliError::new(format!("cannot read {}: {fault}", file.display()))
            })?;
            found.take(MAX_SECRET).read_to_end(&mut text)?;
        }
        None if std::io::stdin().is_terminal() => {
            return Err(CliError::new("the fleet secret is missing")
                .next("give it with --secret-file, or on standard input"));
        }
        None => {
            std::io::stdin().take(MAX_SECRET).read_to_end(&mut text)?;
        }
    }
    FleetSecret::parse(&text).ok_or_else(|| {
        CliError::new("this is not a fleet secret, which has 64 hexadecimal digits")
            .next("`abide fleet init` says where it is on the first machine")
    })
}

/// Stores the secret and the address, and starts the daemon again: the others see a machine whose daemon runs.
fn enter(paths: &Paths, url: &str, secret: &FleetSecret) -> Result<(), CliError> {
    crate::lock::make_folders(paths)?;
    daemon::stop_quietly(paths)?;
    if has_password(url) {
        keep_private(&paths.config)?;
    }
    change_config(paths, |document| {
        document["store"] = value(url);
    })?;
    let written = secret.write(&paths.fleet_secret());
    written.map_err(|fault| CliError::new(fault.to_string()))?;
    start(paths)
}

/// True if the address of a database has a password.
fn has_password(url: &str) -> bool {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user = after_scheme.split_once('@').map_or("", |(user, _)| user);
    user.contains(':') || url.contains("password=")
}

/// Lets nobody else read a configuration that is to have a password. A new one is private from the beginning.
fn keep_private(config: &Path) -> Result<(), CliError> {
    let Ok(found) = std::fs::metadata(config) else {
        return Ok(());
    };
    if found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    std::fs::set_permissions(config, Permissions::from_mode(0o600))?;
    outln!(
        "Only you can read {} from now on, because it has the password of the database.",
        config.display()
    );
    Ok(())
}

/// Starts the daemon.
fn start(paths: &Paths) -> Result<(), CliError> {
    let client = Client::new(paths.clone(), None);
    let _: FleetMachines = super::block_on(client.get("/v1/machines"))?;
    Ok(())
}

/// Changes the configuration and keeps the rest of its text.
fn change_config(paths: &Paths, change: impl FnOnce(&mut DocumentMut)) -> Result<(), CliError> {
    let path = &paths.config;
    let unusable =
        |fault: String| CliError::new(format!("cannot change {}: {fault}", path.display()));
    let before = replace_file::read(path).map_err(|fault| unusable(fault.to_string()))?;
    let document = before.as_deref().unwrap_or_default().parse::<DocumentMut>();
    let mut document = document.map_err(|fault| unusable(fault.to_string()))?;
    change(&mut document);
    let after = document.to_string();
    Config::parse(path, &after).map_err(|fault| unusable(fault.to_string()))?;
    replace_file::may_change(path)
        .and_then(|()| replace_file::replace(path, before.as_deref(), Some(&after)))
        .map_err(|fault| unusable(fault.to_string()))
}

/// Shows the membership of this machine.
pub async fn status(client: Client, as_json: bool) -> Result<u8, CliError> {
    let fleet: FleetMachines = client.get("/v1/machines").await?;
    if as_json {
        show::json(&fleet);
        return Ok(0);
    }
    let Some(name) = &fleet.machine else {
        print_no_machines(&fleet);
        return Ok(0);
    };
    match (fleet.joined, fleet.machines.len()) {
        (true, 1) => outln!("This machine is {name}; no other shares the database."),
        (true, count) => outln!("This machine is {name}, one of {count} that share the database."),
        (false, _) => outln!("This machine is {name}; it has not joined the others yet."),
    }
    if let Some(taken) = &fleet.name_taken {
        outln!("{}", taken_sentence(taken, name));
    }
    print_trouble(&fleet);
    if !fleet.linked {
        outln!(
            "It has no fleet secret, so other machines cannot call it: see `abide fleet join --help`."
        );
    }
    print_machines(&fleet);
    Ok(0)
}

/// Lists the machines.
pub async fn list(client: Client, as_json: bool) -> Result<u8, CliError> {
    let fleet: FleetMachines = client.get("/v1/machines").await?;
    if as_json {
        show::json(&fleet);
    } else if fleet.machines.is_empty() {
        print_no_machines(&fleet);
    } else {
        print_trouble(&fleet);
        print_machines(&fleet);
    }
    Ok(0)
}

fn print_no_machines(fleet: &FleetMachines) {
    match fleet.trouble.is_some() {
        true => print_trouble(fleet),
        false => outln!("This machine is not in a fleet. `abide fleet init` makes one."),
    }
}

/// Sentence about a fleet whose machines cannot be asked.
pub(super) async fn trouble(client: &Client) -> Result<Option<String>, CliError> {
    let fleet: FleetMachines = client.get("/v1/machines").await?;
    Ok(fleet.trouble.as_deref().map(one_line))
}

/// Says why the list may be out of date.
fn print_trouble(fleet: &FleetMachines) {
    if let Some(trouble) = &fleet.trouble {
        outln!("{}", one_line(trouble));
    }
}

fn print_machines(fleet: &FleetMachines) {
    let now = SystemClock.now().wall.0;
    let machines = fleet.machines.iter();
    let rows: Vec<Row> = machines
        .map(|machine| row(machine, fleet.linked, now))
        .collect();
    show::table(&["MACHINE", "STATE", "SEEN", "VERSION", "LABELS"], &rows);
    for sentence in fleet.machines.iter().filter_map(ssh_sentence) {
        outln!("{sentence}");
    }
}

/// Sentence about a machine that could not have its name.
pub(super) fn taken_sentence(taken: &str, name: &str) -> String {
    let (taken, name) = (one_line(taken), one_line(name));
    format!(
        "Another machine of the fleet has the name {taken}, so this one is called {name}; `machine` in the configuration \
         gives it another name."
    )
}

/// Way of calls to a machine for which ssh is configured.
pub(super) fn ssh_sentence(machine: &FleetMachine) -> Option<String> {
    let ssh = machine.ssh.as_ref()?;
    let (name, destination) = (one_line(&machine.name), one_line(&ssh.destination));
    Some(match &ssh.fault {
        None => format!("Calls to {name} go over ssh to {destination}."),
        Some(fault) => format!(
            "Calls to {name} go through the database, because ssh to {destination} failed: {}",
            one_line(fault)
        ),
    })
}

fn row(machine: &FleetMachine, linked: bool, now: u64) -> Row {
    let plain = anstyle::Style::new();
    let mut state = machine.state.as_str().to_owned();
    let mut colour = match machine.state {
        MachineState::Here | MachineState::Alive => show::GOOD,
        MachineState::Unreachable | MachineState::Left | MachineState::Revoked => show::BAD,
    };
    if linked && !machine.vouched_for {
        state.push_str(", not vouched for");
        colour = show::BAD;
    }
    if machine.declared_lost {
        state.push_str(", lost");
    }
    let labels: Vec<String> = machine.labels.iter().map(|label| one_line(label)).collect();
    vec![
        (one_line(&machine.name), show::HEADING),
        (state, colour),
        (show::ago(now, machine.as_of), plain),
        (one_line(&machine.version), show::FAINT),
        (labels.join(" "), plain),
    ]
}

/// Records what a person says of a machine.
pub async fn act(client: Client, act: &str, args: MachineActArgs) -> Result<u8, CliError> {
    let name = &args.machine;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(
            CliError::new(format!("'{}' is not the name of a machine", one_line(name)))
                .next("`abide machine list` lists them"),
        );
    }
    let path = format!("/v1/machines/{name}/{act}");
    let done: MachineActed = client.post(&path, &json!({})).await?;
    let sentence = match act {
        "lost" => format!("What ran on {name} counts as lost."),
        "forget" => format!("{name} is not listed any more, and what ran on it counts as lost."),
        _ => format!(
            "{name} has no rights any more. If it was stolen, also change the password of the database and make a new \
             fleet secret."
        ),
    };
    show::result(args.json.json, &done, sentence);
    Ok(0)
}
