//! `abide sandbox layers`: what agents have written to their layers. It reads the files and needs no daemon.

use std::time::UNIX_EPOCH;

use abide_api::cli::{AgentLayers, Layers};
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config::Paths;
use abide_engine::sandbox::{agent_of_layers, layers_of};
use abide_output::printable::one_line;
use abide_session::sandbox::{OWN_LAYERS, remove_folder, stored_layers};

use super::args::SandboxLayersArgs;
use super::error::CliError;
use super::show::{self, outln};

pub fn layers(paths: &Paths, args: SandboxLayersArgs) -> Result<u8, CliError> {
    let root = paths.state.join(OWN_LAYERS);
    if let Some(agent) = &args.remove {
        remove(paths, agent)?;
    }
    let listed = Layers {
        layers: stored_layers(&root)?
            .into_iter()
            .map(|found| AgentLayers {
                agent: agent_of_layers(&found.name),
                path: found.path.display().to_string(),
                bytes: found.bytes,
                used_at: found
                    .used
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |time| time.as_millis() as u64),
                sessions: found.sessions,
            })
            .collect(),
        removed: args.remove,
    };
    if args.json.json {
        show::json(&listed);
        return Ok(0);
    }
    if let Some(agent) = &listed.removed {
        outln!("Removed the layers of {}.", one_line(agent));
        return Ok(0);
    }
    if listed.layers.is_empty() {
        outln!(
            "No layers: no command has run in a sandbox, or none has written to home or temporary folders."
        );
    }
    let now = SystemClock.now().wall.0;
    for layers in &listed.layers {
        let used = match layers.sessions.is_empty() {
            true => format!("last used {} ago", show::ago(now, layers.used_at)),
            false => format!("in use by {}", layers.sessions.join(", ")),
        };
        outln!(
            "{:>10}  {}  ({used})  {}",
            show::bytes(layers.bytes),
            one_line(&layers.agent),
            layers.path
        );
    }
    Ok(0)
}

fn remove(paths: &Paths, agent: &str) -> Result<(), CliError> {
    let path = layers_of(paths, agent);
    let all = stored_layers(&paths.state.join(OWN_LAYERS))?;
    let Some(found) = all.into_iter().find(|found| found.path == path) else {
        let shown = one_line(agent);
        return Err(CliError::new(format!("the agent '{shown}' has no layers"))
            .next("`abide sandbox layers` lists all"));
    };
    if let Some(session) = found.sessions.first() {
        return Err(
            CliError::new(format!("the layers are in use by {session}")).next(format!(
                "`abide session kill {session}` ends it; what a killed keeper has left is removed within an hour"
            )),
        );
    }
    Ok(remove_folder(&path)?)
}
