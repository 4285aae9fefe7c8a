//! Machines of the fleet.

use abide_api::{FleetMachine, FleetMachines, MachineActed, MachineState, SshRoute};
use abide_core::fleet::Standing;
use abide_engine::fleet::{FleetState, Machine};
use abide_engine::machine_link::{CannotSay, PersonsWord};
use axum::extract::{Path, State as Shared};

use super::body::JsonResponse;
use super::problem::Problem;
use super::requester::Requester;
use super::state::State;

/// Lists the machines. Without a shared database the list is empty.
pub async fn list(Shared(state): Shared<State>, _: Requester) -> JsonResponse<FleetMachines> {
    let Some(fleet) = state.handle.fleet() else {
        let is_shared = state.handle.config().store.is_some();
        return JsonResponse(FleetMachines {
            machine: None,
            name_taken: None,
            joined: false,
            linked: false,
            // A database that was away at the start.
            trouble: is_shared.then(|| state.handle.storage_fault()).flatten(),
            machines: Vec::new(),
        });
    };
    let known = fleet.state();
    let own = known.own.and_then(|own| known.machines.get(&own));
    let listed = known.machines.values();
    let listed = listed.filter(|machine| machine.row.standing != Standing::Forgotten);
    let mut machines: Vec<FleetMachine> = listed
        .map(|machine| described(&state, &known, machine))
        .collect();
    machines.sort_by(|one, other| one.name.cmp(&other.name));
    JsonResponse(FleetMachines {
        machine: own.map(|own| own.name.clone()),
        name_taken: (known.taken_name(state.handle.config().machine.as_deref())).map(str::to_owned),
        joined: known.is_joined,
        linked: fleet.others().is_some(),
        trouble: known
            .trouble
            .clone()
            .or_else(|| state.handle.storage_fault())
            .or_else(|| {
                let is_away = known.is_database_away;
                is_away.then(|| "the database does not answer".into())
            }),
        machines,
    })
}

fn described(state: &State, known: &FleetState, machine: &Machine) -> FleetMachine {
    let others = state.handle.other_machines();
    FleetMachine {
        name: machine.name.clone(),
        state: match machine.row.standing {
            _ if Some(machine.row.id) == known.own => MachineState::Here,
            Standing::Member if machine.is_alive() => MachineState::Alive,
            Standing::Member | Standing::Forgotten => MachineState::Unreachable,
            Standing::Left => MachineState::Left,
            Standing::Revoked => MachineState::Revoked,
        },
        labels: machine.labels.clone(),
        version: machine.version.clone(),
        vouched_for: others.is_some_and(|others| others.is_vouched_for(machine)),
        ssh: others
            .and_then(|others| others.ssh_route(machine))
            .map(|(destination, fault)| SshRoute { destination, fault }),
        declared_lost: machine.declared_lost,
        as_of: machine.row.written.0,
    }
}

/// Records what a person says of another machine.
pub async fn act(
    Shared(state): Shared<State>,
    requester: Requester,
    Path((name, act)): Path<(String, String)>,
) -> Result<JsonResponse<MachineActed>, Problem> {
    requester.check_again().await?;
    let word = match act.as_str() {
        "lost" => PersonsWord::Lost,
        "forget" => PersonsWord::Forgotten,
        "revoke" => PersonsWord::Revoked,
        _ => {
            let detail = format!(
                "`{}` is not `lost`, `forget` or `revoke`",
                crate::tools::shown(&act)
            );
            return Err(Problem::bad_input(detail));
        }
    };
    let others = state.handle.other_machines().ok_or_else(|| {
        Problem::conflict("this machine is not in a fleet; `abide fleet init` makes one")
    })?;
    let said = others.say(&name, word).await;
    said.map_err(|fault| match fault {
        CannotSay::NoMachine => Problem::not_found(fault.to_string()),
        CannotSay::Own | CannotSay::Alive => Problem::conflict(fault.to_string()),
        CannotSay::Database => Problem::fault(fault.to_string()),
    })?;
    Ok(JsonResponse(MachineActed { machine: name, act }))
}
