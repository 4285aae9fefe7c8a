//! Timers that other machines own, which the engine of this one does not know.

use abide_core::time::Wall;
use abide_core::{Agent, TimerId, limit};
use abide_engine::Handle;
use abide_engine::store::{TimerQuery, TimerRow};
use abide_engine::timestamp::rfc3339;

/// Active timers of an agent on other machines, from the database, and a line about it if it is away;
/// `here` are those of this machine.
pub(super) async fn timers(
    handle: &Handle,
    agent: Option<&Agent>,
    here: &[TimerId],
) -> (Vec<TimerRow>, Option<String>) {
    if !handle
        .fleet()
        .is_some_and(|fleet| fleet.state().has_others())
    {
        return (Vec::new(), None);
    }
    let query = TimerQuery {
        agent: agent.map(|agent| agent.0.to_string()),
        limit: limit::TIMERS_LISTED,
        ..TimerQuery::default()
    };
    let page = handle.store_reader().timers(query).await;
    let (mut rows, trouble) = match page {
        Ok(page) => (page.map(|page| page.rows).unwrap_or_default(), None),
        Err(fault) => {
            let agent = agent.map(|agent| agent.0.as_ref());
            let (rows, read) = handle.store_reader().known_timers(agent);
            let why = handle.storage_fault().unwrap_or_else(|| fault.to_string());
            (rows, Some(away(&why, read)))
        }
    };
    rows.retain(|row| !here.contains(&row.id));
    (rows, trouble)
}

/// Line about timers of other machines while the database is away.
fn away(why: &str, read: Option<Wall>) -> String {
    match read {
        Some(read) => format!(
            "[{why}; timers of other machines are as of {}]",
            rfc3339(read.0)
        ),
        None => format!("[{why}; timers of other machines are not known]"),
    }
}
