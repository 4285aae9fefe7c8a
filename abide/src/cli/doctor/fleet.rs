//! Check of the membership in a fleet: the machines that the daemon sees.

use abide_engine::config::{Config, Paths};
use abide_output::printable::one_line;
use serde_json::Value;

use super::Finding;
use crate::cli::fleet::ssh_sentence;
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
fn judge(fleet: &Value) -> Finding {
    let text = |value: &Value| one_line(value.as_str().unwrap_or_default());
    let name = text(&fleet["machine"]);
    if fleet["joined"] != true {
        let trouble = fleet["trouble"].as_str().map(one_line);
        let says = trouble.unwrap_or_else(|| "not connected to the other machines yet".to_owned());
        return Finding::trouble(
            "fleet",
            says,
            "check the database and the network (line `server`); the daemon connects by itself",
        );
    }
    let machines = fleet["machines"].as_array().map_or(&[][..], Vec::as_slice);
    let seen = match machines.len() {
        1 => "no other machine seen".to_owned(),
        count => format!("{count} machines seen, this one included"),
    };
    let says = format!("connected as {name}; {seen}");
    let is_away = |machine: &&Value| machine["state"] == "unreachable";
    let away: Vec<String> = machines
        .iter()
        .filter(is_away)
        .map(|machine| text(&machine["name"]))
        .collect();
    if fleet["linked"] != true {
        return Finding::warning(
            "fleet",
            format!("{says}; without a fleet secret, machines cannot call each other"),
            "`abide fleet join --help` says how to give this machine the secret",
        );
    }
    if !away.is_empty() {
        return Finding::warning(
            "fleet",
            format!("{says}; unreachable: {}", away.join(", ")),
            "start abide there; if a machine is gone for good, `abide machine lost NAME` ends what ran on it",
        );
    }
    let has_failed = |machine: &&Value| machine["ssh"]["fault"].is_string();
    match machines.iter().find(has_failed) {
        None => Finding::good("fleet", says),
        Some(machine) => Finding::warning(
            "fleet",
            format!("{says}. {}", ssh_sentence(machine).unwrap_or_default()),
            format!(
                "`ssh -o BatchMode=yes {} abide relay` must print `abide-link 1` and nothing else",
                text(&machine["ssh"]["destination"])
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Severity;
    use serde_json::json;

    #[test]
    fn fleet_line_names_the_machines_and_the_remedy() {
        let machine = |name: &str, state: &str| json!({"name": name, "state": state});
        let here = machine("a", "here");
        let mut failed = machine("b", "alive");
        failed["ssh"] = json!({"destination": "b.example", "fault": "refused"});
        for (machines, joined, linked, level, says) in [
            (
                vec![here.clone()],
                true,
                true,
                Severity::Ok,
                "connected as a; no other machine seen",
            ),
            (
                vec![here.clone(), machine("b", "alive")],
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
                vec![here.clone(), machine("b", "unreachable")],
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
            let fleet =
                json!({"machine": "a", "joined": joined, "linked": linked, "machines": machines});
            let finding = judge(&fleet);
            assert_eq!((finding.level, finding.says.as_str()), (level, says));
            assert_eq!(finding.next.is_some(), level != Severity::Ok);
        }
    }
}
