//! `abide rerun`: runs the command of a session again, as `abide run` would.

use abide_core::{Millis, SessionName, settings_name};
use serde_json::Value;

use crate::cli::args::{RerunArgs, RunArgs};
use crate::cli::client::Client;
use crate::cli::duration::DurationLimit;
use crate::cli::error::{CliError, EXIT_ABIDE_ERROR};
use crate::cli::ids;

/// Agent of people.
const PERSON: &str = "default";

pub async fn rerun(client: Client, args: RerunArgs) -> Result<u8, CliError> {
    let own = |error: CliError| error.code(EXIT_ABIDE_ERROR);
    let id = ids::session(&client, &args.session).await.map_err(own)?;
    let session = client.get(&format!("/v1/sessions/{id}")).await;
    let session = session.map_err(|error| own(error.into()))?;
    if let Some(machine) = session["machine"].as_str() {
        return Err(own(CliError::new(format!("{id} ran on {machine}")).next(
            format!("start its command there: abide session start --on {machine} -- COMMAND"),
        )));
    }
    let sandboxed = session["sandboxed_by"]
        .as_str()
        .is_some_and(|by| by != "off");
    if sandboxed && args.sandbox.is_none() {
        return Err(own(CliError::new(format!("{id} ran in a sandbox")).next(
            "say which one: --sandbox workspace-write, --sandbox read-only or --sandbox off",
        )));
    }
    let agent = session["agent"]
        .as_str()
        .filter(|name| settings_name(name) != PERSON);
    let client = match agent {
        Some(agent) => client.of_agent(agent),
        None => client,
    };
    super::run(client, again(&session, args)).await
}

/// Arguments of `abide run` for the command of a session.
fn again(session: &Value, args: RerunArgs) -> RunArgs {
    let text = |field: &str| session[field].as_str();
    let idle = match session["idle"].as_f64() {
        Some(seconds) => DurationLimit::After(Millis::from_secs_f64(seconds)),
        None => DurationLimit::Never,
    };
    RunArgs {
        idle: args.idle.or(Some(idle)),
        timeout: args.timeout,
        cwd: text("cwd").map(Into::into),
        pty: session["pty"] == true,
        name: text("name").and_then(|name| SessionName::parse(name).ok()),
        sandbox: args.sandbox,
        network: args.network,
        json: args.json,
        command: vec![text("command").unwrap_or_default().into()],
        ..RunArgs::default()
    }
}
