//! Refusal of a new timer whose idempotency key an earlier call has used for another one.

use abide_core::request::Caller;
use abide_core::timer::{self, Create, Request};
use abide_core::{Agent, Outcome, Refusal};
use abide_engine::Handle;
use abide_engine::probe::StoredCondition;
use abide_engine::store::TimerRow;
use abide_engine::text::refusal_sentence;
use serde_json::Value;

use crate::tools::{BadInput, written_condition};

/// Refuses the timer if an earlier call of the agent has created a different one with its key. A call that is repeated
/// joins the timer that it created.
pub(super) async fn refuse(
    new: &Create,
    agent: Option<&Agent>,
    handle: &Handle,
) -> Result<(), BadInput> {
    let Some(key) = &new.key else {
        return Ok(());
    };
    let caller = Caller {
        agent: agent.cloned(),
        conversation: None,
    };
    let keyed = abide_core::Request::Timer(Request::Keyed { key: key.clone() });
    let found = handle.call(caller, keyed, None).await.done().await;
    let Some(Outcome::Timers(found)) = found else {
        return Ok(());
    };
    let Some(first) = found.first() else {
        return Ok(());
    };
    let row = handle.store_reader().timer(first.id).await.ok().flatten();
    if row.is_none_or(|row| is_same(new, &row)) {
        return Ok(());
    }
    let refusal = timer::Refusal::KeyReused(key.clone());
    Err(BadInput::new(refusal_sentence(&Refusal::Timer(refusal))))
}

/// Compares what does not change after the creation. The total duration of a timer may have been changed since.
fn is_same(new: &Create, row: &TimerRow) -> bool {
    let until = |text: Option<&str>| -> Option<Value> {
        let stored = serde_json::from_str::<StoredCondition>(text?).ok()?;
        Some(written_condition(&stored.condition))
    };
    row.kind == new.kind
        && row.purpose == *new.purpose
        && until(row.condition.as_deref()) == until(new.until.as_deref())
}
