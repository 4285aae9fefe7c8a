//! `abide rerun`: runs the command of a session again, as `abide run` would.

use abide_api::{SandboxedBy, Session};
use abide_core::{Millis, SessionName, settings_name};

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
    let session: Session = session.map_err(|error| own(error.into()))?;
    if let Some(machine) = &session.machine {
        return Err(own(CliError::new(format!("{id} ran on {machine}")).next(
            format!("start its command there: abide session start --on {machine} -- COMMAND"),
        )));
    }
    let sandboxed_by = session.summary.sandboxed_by;
    if sandboxed_by.is_some_and(|by| by != SandboxedBy::Off) && args.sandbox.is_none() {
        return Err(own(CliError::new(format!("{id} ran in a sandbox")).next(
            "say which one: --sandbox workspace-write, --sandbox read-only or --sandbox off",
        )));
    }
    let client = match settings_name(&session.agent) == PERSON {
        true => client,
        false => client.of_agent(&session.agent),
    };
    super::run(client, again(session, args)).await
}

/// Arguments of `abide run` for the command of a session.
fn again(session: Session, args: RerunArgs) -> RunArgs {
    let idle = match session.idle {
        Some(seconds) => DurationLimit::After(Millis::from_secs_f64(seconds)),
        None => DurationLimit::Never,
    };
    RunArgs {
        idle: args.idle.or(Some(idle)),
        timeout: args.timeout,
        cwd: Some(session.cwd.into()),
        pty: session.pty,
        name: (session.name).and_then(|name| SessionName::parse(&name).ok()),
        sandbox: args.sandbox,
        network: args.network,
        json: args.json,
        command: vec![session.command.into()],
        ..RunArgs::default()
    }
}
