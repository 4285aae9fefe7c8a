//! `abide status`: prints the state of the daemon.

use abide_api::{Configuration, HttpListener, SessionCounts, Status};
use abide_output::printable::one_line;
use serde_json::Value;

use super::client::{Client, public_type};
use super::error::CliError;
use super::show;
use super::show::outln;
use abide_engine::clock::{Clock, SystemClock};

pub async fn status(client: Client, as_json: bool) -> Result<u8, CliError> {
    let status: Value = client.get("/v1/status").await?;
    if as_json {
        show::json(&status);
        return Ok(0);
    }
    let status: Status = public_type(status)?;
    let (daemon, containment) = (&status.daemon, &status.containment);
    let now = SystemClock.now().wall.0;
    let lines = [
        (
            "daemon",
            format!(
                "version {}, process {}, up for {}",
                daemon.version,
                daemon.pid,
                show::ago(now, daemon.started_at)
            ),
        ),
        ("sessions", sessions(&status.sessions)),
        ("questions", format!("{} open", status.questions.open)),
        (
            "timers",
            format!("{} open", status.timers.running.unwrap_or(0)),
        ),
        (
            "containment",
            match containment.last_used {
                Some(by) => by.as_str().to_owned(),
                None => format!("{} (no command has run yet)", containment.wanted),
            },
        ),
        ("http", http(status.http.as_ref())),
        ("settings", settings(&status.configuration, now)),
        ("state", status.places.state.clone()),
    ];
    let heading = show::HEADING;
    for (name, value) in lines {
        outln!("{heading}{name:<11}{heading:#} {value}");
    }
    if let Some(trouble) = &status.database.trouble {
        let bad = show::BAD;
        outln!(
            "{heading}{:<11}{heading:#} {bad}{}{bad:#}",
            "database",
            one_line(trouble)
        );
    }
    print_broken_file(&status);
    if status.questions.open > 0 {
        outln!("\n`abide answer` shows the questions.");
    }
    Ok(0)
}

/// Says which file cannot be used and what holds until it is corrected. Both sentences are about the same file if it is
/// no TOML at all, so the second is not printed then.
fn print_broken_file(status: &Status) {
    let (what, holds) = match (&status.configuration.trouble, &status.policy.trouble) {
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
fn sessions(counts: &SessionCounts) -> String {
    let (running, ended) = (counts.running, counts.ended);
    match counts.background {
        0 => format!("{running} running, {ended} ended"),
        left => format!("{running} running, {left} in the background, {ended} ended"),
    }
}

/// Age of the configuration in force, and what of its file is not.
fn settings(configuration: &Configuration, now: u64) -> String {
    let later = &configuration.at_next_start;
    let read = format!("read {} ago", show::ago(now, configuration.read_at));
    match later.is_empty() {
        true => read,
        false => format!("{read}; after `abide stop`: {}", later.join(", ")),
    }
}

fn http(listener: Option<&HttpListener>) -> String {
    let Some(listener) = listener else {
        return "off".to_owned();
    };
    match &listener.address {
        Some(address) => {
            let token = listener.token_file.as_deref().unwrap_or_default();
            format!("http://{address}, token in {token}")
        }
        None => listener.error.clone().unwrap_or_default(),
    }
}
