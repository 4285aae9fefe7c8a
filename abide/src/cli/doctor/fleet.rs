//! Check of the membership in a fleet: the machines that the daemon sees.

use abide_api::{FleetMachines, MachineState};
use abide_engine::config::{Config, Paths};
use abide_output::printable::one_line;

use super::Finding;
use crate::cli::fleet::{ssh_sentence, taken_sentence};
use crate::http;

/// Finding about the fleet; none if the state is not in a shared database.
pub fn check(paths: &Paths, config: &Config) -> Option<Finding> {
    config.store.as_ref()?;
    Some(match http::daemon_machines(&paths.http_socket()) {
        Ok(fleet) => judge(&fleet),
        Err(_) => Finding::warning(
            "fleet",
            "configured; the daemon is not running, so the other machines are not known",
            "`abide fleet status` starts the daemon and shows them",
        ),
    })
}

/// Finding about the machines that the daemon sees.
fn judge(fleet: &FleetMachines) -> Finding {
    let name = one_line(fleet.machine.as_deref().unwrap_or_default());
    if !fleet.joined {
        let trouble = fleet.trouble.as_deref().map(one_line);
        let says = trouble.unwrap_or_else(|| "not connected to the other machines yet".to_owned());
        return Finding::trouble(
            "fleet",
            says,
            "check the database and the network (line `server`); the daemon connects by itself",
        );
    }
    let seen = match fleet.machines.len() {
        1 => "no other machine seen".to_owned(),
        count => format!("{count} machines seen, this one included"),
    };
    if fleet.trouble.is_some() {
        return Finding::warning(
            "fleet",
            format!("{name} is not connected; before that, {seen}"),
            "check the database and the network (line `database`); the daemon connects by itself",
        );
    }
    let says = format!("connected as {name}; {seen}");
    let away = fleet.machines.iter();
    let away = away.filter(|machine| machine.state == MachineState::Unreachable);
    let away: Vec<String> = away.map(|machine| one_line(&machine.name)).collect();
    if !fleet.linked {
        return Finding::warning(
            "fleet",
            format!("{says}; without a fleet secret, machines cannot call each other"),
            "`abide fleet join --help` says how to give this machine the secret",
        );
    }
    if let Some(taken) = &fleet.name_taken {
        return Finding::warning(
            "fleet",
            format!("{says}. {}", taken_sentence(taken, &name)),
            "set `machine` in the configuration; a name is the address of a machine for `on` and `[fleet]`",
        );
    }
    if !away.is_empty() {
        return Finding::warning(
            "fleet",
            format!("{says}; unreachable: {}", away.join(", ")),
            "start abide there; if a machine is gone for good, `abide machine lost NAME` ends what ran on it",
        );
    }
    let mut routes = fleet.machines.iter().filter_map(|machine| {
        let ssh = machine.ssh.as_ref().filter(|ssh| ssh.fault.is_some())?;
        Some((machine, ssh))
    });
    match routes.next() {
        None => Finding::good("fleet", says),
        Some((machine, ssh)) => Finding::warning(
            "fleet",
            format!("{says}. {}", ssh_sentence(machine).unwrap_or_default()),
            format!(
                "`ssh -o BatchMode=yes {} abide relay` must print `abide-link 1` and nothing else",
                one_line(&ssh.destination)
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Severity;
    use abide_api::{FleetMachine, SshRoute};

    #[test]
    fn fleet_line_names_the_machines_and_the_remedy() {
        let machine = |name: &str, state: MachineState| FleetMachine {
            name: name.into(),
            state,
            labels: Vec::new(),
            version: "1".into(),
            vouched_for: true,
            ssh: None,
            declared_lost: false,
            as_of: 0,
        };
        let here = machine("a", MachineState::Here);
        let mut failed = machine("b", MachineState::Alive);
        failed.ssh = Some(SshRoute {
            destination: "b.example".into(),
            fault: Some("refused".into()),
        });
        let taken = FleetMachines {
            machine: Some("a-0001".into()),
            name_taken: Some("a".into()),
            joined: true,
            linked: true,
            trouble: None,
            machines: vec![here.clone()],
        };
        let finding = judge(&taken);
        assert_eq!(finding.level, Severity::Warning);
        let says = "has the name a, so this one is called a-0001;";
        assert!(finding.says.contains(says), "{}", finding.says);
        let away = FleetMachines {
            trouble: Some("the database cannot be reached".into()),
            ..taken
        };
        let finding = judge(&away);
        let says = "a-0001 is not connected; before that, no other machine seen";
        assert_eq!(
            (finding.level, finding.says.as_str()),
            (Severity::Warning, says)
        );
        for (machines, joined, linked, level, says) in [
            (
                vec![here.clone()],
                true,
                true,
                Severity::Ok,
                "connected as a; no other machine seen",
            ),
            (
                vec![here.clone(), machine("b", MachineState::Alive)],
                true,
                true,
                Severity::Ok,
                "connected as a; 2 machines seen, this one included",
            ),
            (
                vec![here.clone(), failed],
                true,
                true,
                Severity::Warning,
                "connected as a; 2 machines seen, this one included. Calls to b go through the database, because ssh to \
                 b.example failed: refused",
            ),
            (
                vec![here.clone(), machine("b", MachineState::Unreachable)],
                true,
                true,
                Severity::Warning,
                "connected as a; 2 machines seen, this one included; unreachable: b",
            ),
            (
                vec![here.clone()],
                true,
                false,
                Severity::Warning,
                "connected as a; no other machine seen; without a fleet secret, machines cannot call each other",
            ),
            (
                vec![],
                false,
                true,
                Severity::Trouble,
                "not connected to the other machines yet",
            ),
        ] {
            let fleet = FleetMachines {
                machine: Some("a".into()),
                name_taken: None,
                joined,
                linked,
                trouble: None,
                machines,
            };
            let finding = judge(&fleet);
            assert_eq!((finding.level, finding.says.as_str()), (level, says));
            assert_eq!(finding.next.is_some(), level != Severity::Ok);
        }
    }
}
