//! What is said of timers: sentences for a model, fields for a program.

use abide_core::timer::{Act, Status, Timer};
use abide_core::{Millis, TimerId};
use serde_json::{Map, Value, json};

use super::Tells;
use abide_engine::store::TimerRow;
use abide_engine::text::{seconds, seconds_number, timer_label};

/// What is said of an act that was done.
pub(super) fn done(act: Act, timer: &Timer, row: Option<&TimerRow>, tells: Tells) -> String {
    let next = what_next(act, timer.status.as_str(), tells);
    acted(act, timer.id, &counted(timer), &next, row)
}

/// The same of an act on a timer that has ended since.
pub(super) fn done_before(act: Act, row: &TimerRow, tells: Tells) -> String {
    let remaining = row.remaining.unwrap_or_default();
    let counted = course(row.total.less(remaining), row.total, remaining);
    let next = what_next(act, &row.status, tells);
    acted(act, row.id, &counted, &next, Some(row))
}

fn acted(act: Act, id: TimerId, counted: &str, next: &str, row: Option<&TimerRow>) -> String {
    let note = row.and_then(|row| row.reason.as_deref());
    let note = note.map(|note| format!("\nWhy: {note}"));
    format!(
        "Timer '{id}' was {}: {counted}.{}{}\n{}",
        past_of(act),
        purpose(row),
        note.unwrap_or_default(),
        next
    )
}

/// How far a timer has come.
pub(super) fn counted(timer: &Timer) -> String {
    course(timer.elapsed(), timer.total, timer.remaining)
}

fn course(elapsed: Millis, total: Millis, remaining: Millis) -> String {
    format!(
        "{} of {} elapsed, {} remain",
        seconds_number(elapsed),
        seconds(total),
        seconds_number(remaining)
    )
}

/// What a timer is for, on a line of its own.
pub(super) fn purpose(row: Option<&TimerRow>) -> String {
    row.map(|row| format!("\n{}: {}", timer_label(row), row.text))
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

/// What becomes of a mission, said to the one who made it.
pub(super) fn on_mission(tells: Tells) -> &'static str {
    match tells {
        Tells::Waking => {
            "End your turn now: you will be woken by a message when it completes. Polling is not needed."
        }
        Tells::NextCall => {
            "Nothing will wake you: no waker is set up for this conversation. After it completes you \
             will be told with your next abide call. Polling is not needed."
        }
        Tells::ByMessage => "A message comes when it completes. Polling is not needed.",
    }
}

fn what_next(act: Act, status: &str, tells: Tells) -> String {
    match act {
        Act::Stop => "It has stopped; nobody is notified.".into(),
        Act::Cancel => {
            let told = match tells {
                Tells::Waking => "a message wakes you when it completes",
                Tells::NextCall => "after it completes you will be told with your next abide call",
                Tells::ByMessage => "a message comes when it completes",
            };
            format!("It runs on in the background; {told}. Polling is not needed.")
        }
        Act::Pause(time) => format!(
            "Nothing elapses; it goes on by itself after {}, or at once with resume_timer.",
            seconds(time)
        ),
        Act::Resume => format!("It goes on, {status}."),
    }
}

/// A timer as fields.
pub(crate) fn facts(timer: &Timer, row: Option<&TimerRow>) -> Map<String, Value> {
    let mut facts = row.map(row_facts).unwrap_or_default();
    facts.insert("timer_id".into(), json!(timer.id.to_string()));
    facts.insert("timer_type".into(), json!(timer.kind.as_str()));
    facts.insert("status".into(), json!(timer.status.as_str()));
    facts.insert("total_duration".into(), secs(timer.total));
    facts.insert("elapsed_time".into(), secs(timer.elapsed()));
    facts.insert("remaining_time".into(), secs(timer.remaining));
    facts.insert("last_check_at".into(), json!(timer.checked.0));
    if let Status::Completed { by, .. } = timer.status {
        facts.insert("completed_by".into(), json!(by.as_str()));
    }
    if let Some(until) = timer.pause_until {
        facts.insert("pause_until".into(), json!(until.0));
    }
    facts
}

/// A timer's row as fields; what has elapsed is known only where it has ended.
pub(crate) fn row_facts(row: &TimerRow) -> Map<String, Value> {
    let mut facts = Map::new();
    let remaining = row.remaining.unwrap_or_default();
    facts.insert("timer_id".into(), json!(row.id.to_string()));
    facts.insert("timer_type".into(), json!(row.kind.as_str()));
    facts.insert("agent".into(), json!(row.agent));
    facts.insert("status".into(), json!(row.status));
    facts.insert("total_duration".into(), secs(row.total));
    facts.insert(
        "timeout_duration".into(),
        secs(row.standby.unwrap_or(row.total)),
    );
    facts.insert("elapsed_time".into(), secs(row.total.less(remaining)));
    facts.insert("remaining_time".into(), secs(remaining));
    facts.insert(timer_label(row).to_lowercase(), json!(row.text));
    facts.insert("created_at".into(), json!(row.created.0));
    facts.insert("last_check_at".into(), json!(row.checked.0));
    if let Some(by) = &row.completed_by {
        facts.insert("completed_by".into(), json!(by));
    }
    if let Some(reason) = &row.reason {
        let name = match (&row.completed_by, row.status.as_str()) {
            (Some(_), _) => Some("seen"),
            // Why it went on is no reason to have stopped.
            (None, "running") => None,
            (None, _) => Some("stop_reason"),
        };
        facts.extend(name.map(|name| (name.to_owned(), json!(reason))));
    }
    if let Some(late) = row.late {
        facts.insert("late".into(), secs(late));
    }
    if let Some(ended) = row.ended {
        facts.insert("ended_at".into(), json!(ended.0));
    }
    facts
}

/// Seconds as a number; whole ones without a fraction.
pub(crate) fn secs(time: Millis) -> Value {
    match time.0 % 1_000 {
        0 => json!(time.0 / 1_000),
        _ => json!(time.0 as f64 / 1_000.0),
    }
}
