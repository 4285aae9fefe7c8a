//! Checks of the PostgreSQL server that `store` names: version, pooler, replication that can lose commits, clock.

use abide_core::Millis;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config::Config;
use abide_engine::machine_link::joining::server_facts;
use abide_engine::store::ServerFacts;

use super::Finding;

/// Difference of the clocks that is worth a word, in milliseconds.
const CLOCK_TOLERANCE: u64 = 5_000;

/// Findings about the server; none if the state is in a file. A server that cannot be used is reported by the check of
/// the daemon.
pub fn check(config: &Config) -> Vec<Finding> {
    if config.store.is_none() {
        return Vec::new();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let facts = runtime.map(|runtime| runtime.block_on(server_facts(config)));
    match facts {
        Ok(Some(Ok(facts))) => findings(&facts, SystemClock.now().wall.0),
        Ok(None | Some(Err(_))) | Err(_) => Vec::new(),
    }
}

fn findings(facts: &ServerFacts, now: u64) -> Vec<Finding> {
    let mut findings = vec![Finding::good(
        "server",
        format!("PostgreSQL {}", facts.version),
    )];
    if !facts.is_durable {
        findings.push(Finding::warning(
            "server",
            "`fsync` or `synchronous_commit` is off, so a crash of the server can lose timers that were accepted",
            "turn both on at the server",
        ));
    }
    if facts.replicas > 0 && !facts.is_synchronous {
        findings.push(Finding::warning(
            "server",
            format!(
                "{} replicas follow without `synchronous_standby_names`: a failover can lose the last commits, and \
                 completions of that time may be told again",
                facts.replicas
            ),
            "set `synchronous_standby_names` at the server, or accept that",
        ));
    }
    if !facts.notifies {
        findings.push(Finding::good(
            "server",
            "does not notify, as behind a pooler: calls between machines begin up to a second later",
        ));
    }
    let difference = facts.clock.abs_diff(now);
    if difference > CLOCK_TOLERANCE {
        findings.push(Finding::warning(
            "server",
            format!(
                "its clock and that of this machine differ by {}; timers are not affected, printed times are",
                Millis(difference / 1_000 * 1_000)
            ),
            "synchronise both clocks, for example with chrony",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ServerFacts {
        ServerFacts {
            version: "17.2".into(),
            replicas: 0,
            is_synchronous: false,
            is_durable: true,
            notifies: true,
            clock: 1_000_000,
        }
    }

    #[test]
    fn plain_server_gives_one_good_finding() {
        assert_eq!(findings(&facts(), 1_000_000).len(), 1);
    }

    #[test]
    fn each_risk_of_a_server_gives_a_finding_of_its_own() {
        let risks = [
            ServerFacts {
                is_durable: false,
                ..facts()
            },
            ServerFacts {
                replicas: 2,
                ..facts()
            },
            ServerFacts {
                notifies: false,
                ..facts()
            },
            ServerFacts {
                clock: 2_000_000,
                ..facts()
            },
        ];
        for risk in risks {
            assert_eq!(findings(&risk, 1_000_000).len(), 2, "{risk:?}");
        }
        let synchronous = ServerFacts {
            replicas: 2,
            is_synchronous: true,
            ..facts()
        };
        assert_eq!(findings(&synchronous, 1_000_000).len(), 1);
    }
}
