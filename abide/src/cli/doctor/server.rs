//! Checks of the PostgreSQL server that `store` names: version, pooler, replication that can lose commits, a second
//! server that accepts writes, connections, old versions of rows, clock.

use abide_core::Millis;
use abide_engine::config::Config;
use abide_engine::machine_link::joining::server_facts;
use abide_engine::store::ServerFacts;
use abide_output::printable::one_line;

use super::Finding;

/// Difference of the clocks that is worth a word, in milliseconds.
const CLOCK_TOLERANCE: u64 = 5_000;

/// Age of a transaction that is worth a word, in milliseconds.
const LONG_TRANSACTION: u64 = 3_600_000;

/// Findings about the server; none if the state is in a file. This connects itself, because the daemon may not know yet
/// that a server does not answer.
pub fn check(config: &Config) -> Vec<Finding> {
    if config.store.is_none() {
        return Vec::new();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let facts = runtime.map(|runtime| runtime.block_on(server_facts(config)));
    match facts {
        Ok(Some(Ok(facts))) => findings(&facts),
        Ok(Some(Err(fault))) => vec![Finding::trouble(
            "server",
            one_line(&fault.to_string()),
            "check the server and the network; commands run meanwhile, timers come late",
        )],
        Ok(None) | Err(_) => Vec::new(),
    }
}

fn findings(facts: &ServerFacts) -> Vec<Finding> {
    let difference = facts.clock.abs_diff(facts.own_clock);
    let mut findings = vec![Finding::good(
        "server",
        format!(
            "PostgreSQL {}; its clock and that of this machine differ by {}",
            facts.version,
            Millis(difference / 1_000 * 1_000)
        ),
    )];
    findings.extend(risks_of_loss(facts));
    findings.extend(risks_of_load(facts));
    if !facts.notifies {
        findings.push(Finding::good(
            "server",
            "does not notify, as behind a pooler: calls between machines begin up to a second later",
        ));
    }
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

/// Ways in which the server can lose commits.
fn risks_of_loss(facts: &ServerFacts) -> impl Iterator<Item = Finding> {
    let not_durable = (!facts.is_durable).then(|| {
        Finding::warning(
            "server",
            "`fsync` or `synchronous_commit` is off, so a crash of the server can lose timers that were accepted",
            "turn both on at the server",
        )
    });
    let replicas = (facts.replicas > 0 && !facts.is_synchronous).then(|| {
        Finding::warning(
            "server",
            format!(
                "{} replicas follow without `synchronous_standby_names`: a failover can lose the last commits, and \
                 completions of that time may be told again",
                facts.replicas
            ),
            "set `synchronous_standby_names` at the server, or accept that",
        )
    });
    let writers = (facts.writers > 1).then(|| {
        Finding::warning(
            "server",
            format!(
                "{} hosts of `store` accept writes, so machines may write to different ones, and what one of them has is \
                 lost when it goes",
                facts.writers
            ),
            "stop the server that was replaced, or make it a standby of the other",
        )
    });
    not_durable.into_iter().chain(replicas).chain(writers)
}

/// Ways in which the server becomes slow or full.
fn risks_of_load(facts: &ServerFacts) -> impl Iterator<Item = Finding> {
    let connections = (facts.connections * 5 >= facts.max_connections * 4).then(|| {
        Finding::warning(
            "server",
            format!(
                "{} of {} connections are used; a daemon needs up to four",
                facts.connections, facts.max_connections
            ),
            "use a pooler in transaction mode, or raise `max_connections`",
        )
    });
    let age = facts.oldest_transaction;
    let transaction = age.filter(|age| *age > LONG_TRANSACTION).map(|age| {
        Finding::warning(
            "server",
            format!(
                "a transaction is open for {}, and the server keeps every version of a row that it may still read; \
                 heartbeats add one every few seconds",
                Millis(age / 60_000 * 60_000)
            ),
            "end it: `SELECT pid, query FROM pg_stat_activity ORDER BY xact_start` shows it",
        )
    });
    let vacuum = (!facts.vacuums).then(|| {
        Finding::warning(
            "server",
            "`autovacuum` is off, so its tables grow with every heartbeat and every removed timer",
            "turn it on, or run `VACUUM` regularly",
        )
    });
    connections.into_iter().chain(transaction).chain(vacuum)
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
            own_clock: 1_000_000,
            vacuums: true,
            oldest_transaction: Some(60_000),
            connections: 20,
            max_connections: 100,
            writers: 1,
        }
    }

    #[test]
    fn plain_server_gives_one_good_finding() {
        assert_eq!(findings(&facts()).len(), 1);
    }

    #[test]
    fn each_risk_of_a_server_gives_a_finding_of_its_own() {
        let risks: [fn(&mut ServerFacts); 8] = [
            |facts| facts.is_durable = false,
            |facts| facts.replicas = 2,
            |facts| facts.notifies = false,
            |facts| facts.vacuums = false,
            |facts| facts.oldest_transaction = Some(7_200_000),
            |facts| facts.connections = 80,
            |facts| facts.writers = 2,
            |facts| facts.clock = 2_000_000,
        ];
        for risk in risks {
            let mut facts = facts();
            risk(&mut facts);
            assert_eq!(findings(&facts).len(), 2, "{facts:?}");
        }
        let synchronous = ServerFacts {
            replicas: 2,
            is_synchronous: true,
            ..facts()
        };
        assert_eq!(findings(&synchronous).len(), 1);
    }
}
