//! Text and fields about timers.

use abide_api as api;
use abide_core::timer::{Act, Kind, Status, Timer};
use abide_core::{Millis, TimerId};

use super::CompletionChannel;
use abide_engine::Handle;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::store::TimerRow;
use abide_engine::text::{rounded, rounded_elapsed, seconds, seconds_number, timer_label};

/// Text about an action that was performed.
pub(super) async fn done(
    handle: &Handle,
    act: Act,
    timer: &Timer,
    row: Option<&TimerRow>,
    channel: CompletionChannel,
) -> String {
    let next = what_next(act, timer.status.as_str(), channel);
    acted(handle, act, timer.id, &progress(timer), &next, row).await
}

/// Text about an action that was performed on a timer that has ended since.
pub(super) async fn done_before(
    handle: &Handle,
    act: Act,
    row: &TimerRow,
    channel: CompletionChannel,
) -> String {
    let remaining = row.remaining.unwrap_or_default();
    let progress = elapsed_and_remaining(row.total.saturating_sub(remaining), row.total);
    let next = what_next(act, row.status.as_str(), channel);
    acted(handle, act, row.id, &progress, &next, Some(row)).await
}

async fn acted(
    handle: &Handle,
    act: Act,
    id: TimerId,
    progress: &str,
    next: &str,
    row: Option<&TimerRow>,
) -> String {
    let note = match act {
        // Its reason is in the history only.
        Act::Resume => changes(handle, id).await.pop().and_then(|last| last.reason),
        Act::Stop | Act::Cancel | Act::Pause(_) => row.and_then(|row| row.stop_reason.clone()),
    };
    let note = note.map(|note| format!("\nWhy: {note}"));
    format!(
        "Timer '{id}' was {}: {progress}.{}{}\n{}",
        past_of(act),
        purpose(row),
        note.unwrap_or_default(),
        next
    )
}

/// Elapsed and remaining time of a timer, as text.
pub(super) fn progress(timer: &Timer) -> String {
    elapsed_and_remaining(timer.elapsed(), timer.total)
}

fn elapsed_and_remaining(elapsed: Millis, total: Millis) -> String {
    let elapsed = rounded_elapsed(elapsed, total);
    format!(
        "{} of {} elapsed, {} remain",
        seconds_number(elapsed),
        seconds(total),
        seconds_number(total.saturating_sub(elapsed))
    )
}

/// Changes of a timer, for a call that reads this timer alone.
pub(super) async fn changes(handle: &Handle, id: TimerId) -> Vec<api::TimerChange> {
    let rows = handle.store_reader().timer_changes(id).await;
    rows.unwrap_or_default()
        .into_iter()
        .map(|row| api::TimerChange {
            change: row.change,
            reason: row.reason,
            at: row.at.0,
        })
        .collect()
}

/// Lines that tell why a timer is paused and what ends the pause, or why it was resumed.
pub(super) fn until_resumed(timer: &api::Timer, channel: CompletionChannel) -> String {
    let Some(last) = timer.changes.last() else {
        return String::new();
    };
    let why = last.reason.as_deref();
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    match (timer.status, last.change.as_str()) {
        (api::TimerStatus::Paused, _) => {
            let left = pause_left(timer);
            let when = left.map_or("when the pause is over".into(), |left| format!("in {left}"));
            format!(
                "\nPaused{why}\nIt resumes by itself {when}, or at once with {}.",
                resume_command(channel)
            )
        }
        (api::TimerStatus::Running | api::TimerStatus::RunningBackground, "resumed") => {
            format!("\nResumed{why}")
        }
        (api::TimerStatus::Running | api::TimerStatus::RunningBackground, "resumed_by_itself") => {
            "\nResumed by itself after the pause.".into()
        }
        _ => String::new(),
    }
}

/// Rest of a timer's pause, as text.
pub(super) fn pause_left(timer: &api::Timer) -> Option<String> {
    let left = timer.pause_until?.saturating_sub(SystemClock.now().wall.0);
    Some(seconds(rounded(Millis(left))))
}

/// Line that tells why a timer was stopped.
pub(super) fn why_stopped(row: &TimerRow) -> String {
    let stopped = row.status == api::TimerStatus::Stopped;
    let why = row.stop_reason.as_ref().filter(|_| stopped);
    why.map_or_else(String::new, |why| format!("\nWhy: {why}"))
}

/// Reason or mission of a timer, on a line of its own.
pub(super) fn purpose(row: Option<&TimerRow>) -> String {
    row.map(|row| format!("\n{}: {}", timer_label(row), row.purpose))
        .unwrap_or_default()
}

fn past_of(act: Act) -> &'static str {
    match act {
        Act::Stop => "stopped",
        Act::Cancel => "cancelled",
        Act::Pause(_) => "paused",
        Act::Resume => "resumed",
    }
}

/// Text for the creator of a mission: how it will learn of the completion.
pub(super) fn on_mission(channel: CompletionChannel) -> &'static str {
    match channel {
        CompletionChannel::Waker => {
            "End your turn now: you will be woken by a message when it completes. Polling is not needed."
        }
        CompletionChannel::NextCall => {
            "End your turn now, unless you have other work: no waker is set up for this conversation, so \
             you will be told with your next abide call after it completes. Polling is not needed."
        }
        CompletionChannel::Message => "A message comes when it completes.",
    }
}

/// Line after a standby that ended before the timer. A person or a program is not told what an agent calls next.
pub(super) fn after_standby(id: TimerId, channel: CompletionChannel) -> String {
    match channel {
        CompletionChannel::Waker | CompletionChannel::NextCall => format!(
            "\nTo go on waiting call timer with timer_id '{id}'; polling is not needed. cancel_timer lets it run on and \
             tell you by a message."
        ),
        CompletionChannel::Message => String::new(),
    }
}

/// Call or command that resumes a paused timer.
fn resume_command(channel: CompletionChannel) -> &'static str {
    match channel {
        CompletionChannel::Waker | CompletionChannel::NextCall => "resume_timer",
        CompletionChannel::Message => "`abide timer resume`",
    }
}

fn what_next(act: Act, status: &str, channel: CompletionChannel) -> String {
    match act {
        Act::Stop => "It has stopped; nobody is notified.".into(),
        Act::Cancel => {
            let told = match channel {
                CompletionChannel::Waker => {
                    "a message wakes you when it completes. Polling is not needed."
                }
                CompletionChannel::NextCall => {
                    "after it completes you will be told with your next abide call. Polling is not needed."
                }
                CompletionChannel::Message => "a message comes when it completes.",
            };
            format!("It continues in the background; {told}")
        }
        Act::Pause(time) => format!(
            "It resumes by itself after {}, or at once with {}.",
            seconds(time),
            resume_command(channel)
        ),
        Act::Resume if status == "running_background" => "It is running in the background.".into(),
        Act::Resume => format!("It is {status}."),
    }
}

/// Timer as fields.
pub(crate) fn fields(timer: &Timer, row: Option<&TimerRow>) -> api::Timer {
    let mut fields = match row {
        Some(row) => row_fields(row),
        None => without_row(timer),
    };
    fields.status = timer.status.into();
    fields.elapsed_time = timer.elapsed().into();
    fields.remaining_time = timer.remaining.into();
    fields.last_check_at = timer.checked.0;
    if let Status::Completed { by, .. } = timer.status {
        fields.completed_by = Some(by.into());
    }
    fields.pause_until = timer.pause_until.map(|until| until.0);
    fields
}

/// Fields of a timer whose row cannot be read. The last check is the earliest known time.
fn without_row(timer: &Timer) -> api::Timer {
    api::Timer {
        timer_id: api::Id(timer.id),
        timer_type: timer.kind.into(),
        agent: timer.agent.0.to_string(),
        status: timer.status.into(),
        total_duration: timer.total.into(),
        timeout_duration: timer.total.into(),
        elapsed_time: timer.elapsed().into(),
        remaining_time: timer.remaining.into(),
        reason: None,
        mission: None,
        created_at: timer.checked.0,
        last_check_at: timer.checked.0,
        pause_until: None,
        ended_at: None,
        completed_by: None,
        seen: None,
        stop_reason: None,
        late: None,
        last_look: None,
        changes: Vec::new(),
    }
}

/// Fields from the row of a timer that may run on another machine.
pub(crate) fn row_fields_now(handle: &Handle, row: &TimerRow) -> api::Timer {
    let mut fields = row_fields(row);
    let now = handle.fleet().and_then(|fleet| fleet.state().now());
    if let (None, Some(due), Some(now)) = (row.ended, row.due, now) {
        let remaining = due.since(now).min(row.total);
        fields.remaining_time = remaining.into();
        fields.elapsed_time = row.total.saturating_sub(remaining).into();
    }
    fields
}

/// Fields from a timer's row. The elapsed time is exact only for a timer that has ended.
pub(crate) fn row_fields(row: &TimerRow) -> api::Timer {
    let remaining = row.remaining.unwrap_or_default();
    let (reason, mission) = match row.kind {
        Kind::Waiting => (Some(row.purpose.clone()), None),
        Kind::Mission => (None, Some(row.purpose.clone())),
    };
    api::Timer {
        timer_id: api::Id(row.id),
        timer_type: row.kind.into(),
        agent: row.agent.clone(),
        status: row.status,
        total_duration: row.total.into(),
        timeout_duration: row.standby.unwrap_or(row.total).into(),
        elapsed_time: row.total.saturating_sub(remaining).into(),
        remaining_time: remaining.into(),
        reason,
        mission,
        created_at: row.created.0,
        last_check_at: row.checked.0,
        pause_until: None,
        ended_at: row.ended.map(|ended| ended.0),
        completed_by: row.completed_by,
        seen: row.seen.clone(),
        stop_reason: row.stop_reason.clone(),
        late: row.late.map(Into::into),
        last_look: None,
        changes: Vec::new(),
    }
}
