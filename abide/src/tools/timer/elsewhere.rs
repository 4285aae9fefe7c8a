//! Timers that other machines own, which the engine of this one does not know.

use abide_core::{Agent, TimerId, limit};
use abide_engine::Handle;
use abide_engine::store::{TimerQuery, TimerRow};

/// Active timers of an agent on other machines, from the database; `here` are those of this machine.
pub(super) async fn timers(
    handle: &Handle,
    agent: Option<&Agent>,
    here: &[TimerId],
) -> Vec<TimerRow> {
    if !handle
        .fleet()
        .is_some_and(|fleet| fleet.state().has_others())
    {
        return Vec::new();
    }
    let query = TimerQuery {
        agent: agent.map(|agent| agent.0.to_string()),
        limit: limit::TIMERS_LISTED,
        ..TimerQuery::default()
    };
    let page = handle.store_reader().timers(query).await;
    let rows = page.ok().flatten().map(|page| page.rows);
    let mut rows = rows.unwrap_or_default();
    rows.retain(|row| !here.contains(&row.id));
    rows
}
