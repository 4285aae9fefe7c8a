//! `abide status`: prints the state of the daemon.

use abide_output::printable::one_line;

use super::client::Client;
use super::error::CliError;
use super::show;
use super::show::outln;
use abide_engine::clock::{Clock, SystemClock};

pub async fn status(client: Client, as_json: bool) -> Result<u8, CliError> {
    let status = client.get("/v1/status").await?;
    if as_json {
        show::json(&status);
        return Ok(0);
    }
    let daemon = &status["daemon"];
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    let now = SystemClock.now().wall.0;
    let lines = [
        (
            "daemon",
            format!(
                "version {}, process {}, up for {}",
                daemon["version"].as_str().unwrap_or("unknown"),
                number(&daemon["pid"]),
                show::ago(now, number(&daemon["started_at"]))
            ),
        ),
        ("sessions", sessions(&status["sessions"])),
        (
            "questions",
            format!("{} open", number(&status["questions"]["open"])),
        ),
        (
            "timers",
            format!("{} open", number(&status["timers"]["running"])),
        ),
        (
            "containment",
            match status["containment"]["last_used"].as_str() {
                Some(by) => by.to_owned(),
                None => format!(
                    "{} (no command has run yet)",
                    status["containment"]["wanted"].as_str().unwrap_or("auto")
                ),
            },
        ),
        ("http", http(&status["http"])),
        ("settings", settings(&status["configuration"], now)),
        (
            "state",
            status["places"]["state"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ),
    ];
    let heading = show::HEADING;
    for (name, value) in lines {
        outln!("{heading}{name:<11}{heading:#} {value}");
    }
    if let Some(trouble) = status["database"]["trouble"].as_str() {
        let bad = show::BAD;
        outln!(
            "{heading}{:<11}{heading:#} {bad}{}{bad:#}",
            "database",
            one_line(trouble)
        );
    }
    print_broken_file(&status);
    if number(&status["questions"]["open"]) > 0 {
        outln!("\n`abide answer` shows the questions.");
    }
    Ok(0)
}

/// Says which file cannot be used and what holds until it is corrected. Both sentences are about the same file if it is
/// no TOML at all, so the second is not printed then.
fn print_broken_file(status: &serde_json::Value) {
    let trouble = |part: &str| status[part]["trouble"].as_str();
    let (what, holds) = match (trouble("configuration"), trouble("policy")) {
        (Some(what), _) => (what, "The former configuration stays in force."),
        (None, Some(what)) => (what, "The rules about commands cannot be used."),
        (None, None) => return,
    };
    let bad = show::BAD;
    outln!("\n{bad}{}{bad:#}", one_line(what));
    outln!("{holds} Commands of agents are refused until the file is corrected.");
}

/// Number of sessions by state. Sessions whose command has ended but that have processes in the
/// background are listed separately, if there are any.
fn sessions(counts: &serde_json::Value) -> String {
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    let (running, ended) = (count("running"), count("ended"));
    match count("background") {
        0 => format!("{running} running, {ended} ended"),
        left => format!("{running} running, {left} in the background, {ended} ended"),
    }
}

/// Age of the configuration in force, and what of its file is not.
fn settings(configuration: &serde_json::Value, now: u64) -> String {
    let read_at = configuration["read_at"].as_u64().unwrap_or(now);
    let later = configuration["at_next_start"].as_array();
    let later: Vec<&str> = later
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
        .collect();
    let read = format!("read {} ago", show::ago(now, read_at));
    match later.is_empty() {
        true => read,
        false => format!("{read}; after `abide stop`: {}", later.join(", ")),
    }
}

fn http(listener: &serde_json::Value) -> String {
    let text = |field: &str| listener[field].as_str();
    match (text("address"), text("error")) {
        (Some(address), _) => format!(
            "http://{address}, token in {}",
            text("token_file").unwrap_or_default()
        ),
        (None, Some(error)) => error.to_owned(),
        (None, None) => "off".to_owned(),
    }
}
