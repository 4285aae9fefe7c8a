//! Results of refused requests about timers.

use abide_api::{ErrorCode, ToolOutput, ToolResult};
use abide_core::request::Caller;
use abide_core::timer::{self, Request, Status, Timer, Why};
use abide_core::{Outcome, Refusal, TimerId, limit};
use abide_engine::Handle;
use abide_engine::store::{EndedQuery, StoreFault, TimerRow};
use abide_engine::text::{timer_completion, timer_not_found};

use super::presentation::{done_before, fields, pause_left, purpose, row_fields, why_stopped};
use super::{CallKind, TimerCall};
use crate::tools::refused;

impl TimerCall {
    /// Result of a refused request. A timer that is no longer in memory may still be in the database: then the request
    /// is answered from there.
    pub(super) async fn refusal_result(
        &self,
        handle: &Handle,
        refusal: timer::Refusal,
    ) -> ToolResult {
        if let timer::Refusal::NotFound { timer, .. } = &refusal
            && let Ok(Some(row)) = handle.store_reader().timer(*timer).await
            && self.agent.as_ref().is_none_or(|me| row.agent == *me.0)
            && row.ended.is_some()
        {
            if matches!(self.kind, CallKind::Act) {
                let sentence = format!(
                    "Timer '{}' is {}: nothing can be done to it any more",
                    row.id,
                    row.status.as_str()
                );
                let output = self
                    .result_fields(handle, row_fields(&row), Some(&row), None)
                    .await;
                return ToolResult {
                    output: ToolOutput::Timer(Box::new(output)),
                    ..ToolResult::error(ErrorCode::Conflict, sentence)
                };
            }
            return self.ended_result(handle, &row).await;
        }
        if let timer::Refusal::NotAllowed { timer, status, .. } = &refusal
            && let Some(timer) = self.timer_in(handle, *timer, *status).await
        {
            let row = handle.store_reader().timer(timer.id).await.ok().flatten();
            let fields = fields(&timer, row.as_ref());
            let mut result = refused(&Refusal::Timer(refusal));
            if let Some(left) = pause_left(&fields) {
                result
                    .text
                    .push_str(&format!(". It resumes by itself in {left}"));
            }
            let output = self.result_fields(handle, fields, row.as_ref(), None).await;
            result.output = ToolOutput::Timer(Box::new(output));
            return result;
        }
        match refusal {
            timer::Refusal::NotFound { timer, .. } if is_database_away(handle, timer).await => {
                let why = handle.storage_fault().unwrap_or_default();
                let sentence = format!("Timer '{timer}' is not of this machine, and {why}");
                ToolResult::error(ErrorCode::Unreachable, sentence)
            }
            timer::Refusal::NotFound { timer, known, more } => {
                self.not_found(handle, &timer.to_string(), &known, more)
                    .await
            }
            other => refused(&Refusal::Timer(other)),
        }
    }

    /// Result about a timer that has ended, from its row.
    pub(super) async fn ended_result(&self, handle: &Handle, row: &TimerRow) -> ToolResult {
        let text = match (&self.kind, row.completed_by) {
            (CallKind::Done(act), _) => done_before(handle, *act, row, self.channel).await,
            (_, Some(_)) => timer_completion(row),
            (_, None) => format!(
                "Timer '{}' is {}.{}{}",
                row.id,
                row.status.as_str(),
                purpose(Some(row)),
                why_stopped(row)
            ),
        };
        let fields = row_fields(row);
        let output = self
            .result_fields(handle, fields, Some(row), Some(Why::Ended))
            .await;
        self.one(text, output)
    }

    /// State of a timer, if it still has the status that a refusal names.
    async fn timer_in(&self, handle: &Handle, timer: TimerId, status: Status) -> Option<Timer> {
        let caller = Caller {
            agent: self.agent.clone(),
            conversation: None,
        };
        let read = Request::Read { asks: false, timer };
        let pending = handle
            .call(caller, abide_core::Request::Timer(read), None)
            .await;
        match pending.done().await {
            Some(Outcome::Timer(timer, _)) if timer.status.as_str() == status.as_str() => {
                Some(*timer)
            }
            _ => None,
        }
    }

    /// Error that lists the existing ids: timers that have not ended, and the most recently ended ones.
    pub(super) async fn not_found(
        &self,
        handle: &Handle,
        given: &str,
        known: &[TimerId],
        more: usize,
    ) -> ToolResult {
        let which = EndedQuery {
            agent: self.agent.as_ref().map(|agent| agent.0.as_ref()),
            limit: limit::IDS_LISTED,
        };
        let ended = handle.store_reader().ended_timers(which).await;
        let ended: Vec<TimerId> = ended.unwrap_or_default().iter().map(|row| row.id).collect();
        ToolResult::error(
            ErrorCode::NotFound,
            timer_not_found(given, known, more, &ended),
        )
    }
}

/// True if it is not known whether there is such a timer, because the database does not answer.
async fn is_database_away(handle: &Handle, timer: TimerId) -> bool {
    let read = handle.store_reader().timer(timer).await;
    matches!(read, Err(StoreFault::Unreadable(_))) && handle.storage_fault().is_some()
}
