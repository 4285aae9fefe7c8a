//! Timers.

use std::collections::BTreeMap;

use abide_core::TimerId;
use abide_core::timer::{self, Kind, Status, WaitMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::words::words;
use crate::{Id, Seconds};

/// A durable countdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timer {
    /// Id of the timer.
    pub timer_id: Id<TimerId>,
    /// `waiting` has a reason, `mission` a mission.
    pub timer_type: TimerType,
    /// Agent that owns the timer.
    pub agent: String,
    /// State of the timer.
    pub status: TimerStatus,
    /// Seconds that the timer runs in all.
    pub total_duration: Seconds,
    /// Seconds that the last call stood by at most.
    pub timeout_duration: Seconds,
    /// Seconds that have passed.
    pub elapsed_time: Seconds,
    /// Seconds that are left.
    pub remaining_time: Seconds,
    /// Thing that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Task for the time after completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mission: Option<String>,
    /// Creation, in Unix milliseconds.
    pub created_at: u64,
    /// Last call that asked for the timer, in Unix milliseconds.
    pub last_check_at: u64,
    /// End of the pause, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<u64>,
    /// End of the timer, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Cause of the completion. impossible: the condition can no longer hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_by: Option<CompletedBy>,
    /// Last observation of an ended timer, or the reason why its condition can no longer hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Reason given with stop, cancel or pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Seconds between when it was due and when it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<Seconds>,
    /// Last observation of the condition of a timer that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_look: Option<String>,
    /// Changes by calls and by the end of a pause, oldest first. Only where one timer is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<TimerChange>,
}

/// Change of a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerChange {
    /// `cancelled`, `paused`, `resumed`, or `resumed_by_itself` after the pause.
    pub change: String,
    /// Reason given with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the change, in Unix milliseconds.
    pub at: u64,
}

words! {
    /// Purpose of a timer.
    TimerType {
        Waiting = "waiting",
        Mission = "mission",
    } from Kind;

    /// State of a timer.
    TimerStatus {
        Running = "running",
        Paused = "paused",
        RunningBackground = "running_background",
        Completed = "completed",
        Stopped = "stopped",
    };

    /// Cause of the completion of a timer.
    CompletedBy {
        Time = "time",
        Condition = "condition",
        Impossible = "impossible",
    } from timer::CompletedBy;
}

impl From<Status> for TimerStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Running(WaitMode::Foreground) => TimerStatus::Running,
            Status::Running(WaitMode::Background) => TimerStatus::RunningBackground,
            Status::Paused { .. } => TimerStatus::Paused,
            Status::Completed { .. } => TimerStatus::Completed,
            Status::Stopped => TimerStatus::Stopped,
        }
    }
}

/// Fields of a result about one timer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TimerResult {
    #[serde(flatten)]
    pub timer: Timer,
    /// The standby ended and the timer runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<bool>,
    /// Seconds that this call could wait, fitted to the client's own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_timeout: Option<Seconds>,
    /// Condition as it is stored, for an interface that shows it.
    #[serde(skip)]
    pub condition: Option<String>,
    /// True if this call has created it and does not wait: no call stands by on it.
    #[serde(skip)]
    pub is_new: bool,
}

/// Fields of a `read_timer` result.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ReadTimerResult {
    /// With `timer_id`.
    One(Box<TimerResult>),
    /// Without.
    List(TimerList),
}

/// Timers of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TimerList {
    /// The timers, oldest first.
    pub timers: Vec<Timer>,
    /// There are more timers than are listed.
    pub truncated: bool,
}

/// A timer as a person or a program sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Timer")]
pub struct TimerDetails {
    #[serde(flatten)]
    pub timer: Timer,
    /// True if a call stands by on the timer.
    pub standing_by: bool,
    /// Condition that ends the timer early, as it was given.
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    pub until: Option<Value>,
    /// Text of the tool (one timer only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// True if the standby ended before the timer did (a call that stood by).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<bool>,
}

/// A timer that was made, or the ids of many.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Made")]
pub enum TimerMade {
    /// The call stood by on this one.
    One(Box<TimerDetails>),
    /// These were made, in the order of the request.
    Many(TimerIds),
}

/// Timers that were made together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerIds {
    /// Ids, in the order of the request.
    pub timer_ids: Vec<Id<TimerId>>,
}

/// A page of timers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Timers")]
pub struct TimerPage {
    /// Timers of this page, in the requested order.
    pub timers: Vec<TimerDetails>,
    /// `after` of the next page.
    pub next: Option<String>,
    /// Number of timers in all pages.
    pub total: u64,
    /// While the database is away: time up to which the timers of other machines are known, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
    /// Sentence about a database that is away. The list has what the daemon knows: its own active timers, and those that
    /// it has read before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Statistics of all timers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Stats")]
pub struct TimerStats {
    /// Timers made in all, as far as is remembered.
    pub made: u64,
    /// Timers that have not ended.
    pub running: u64,
    /// Timers whose time was over.
    pub completed_by_time: u64,
    /// Timers whose condition held.
    pub completed_by_condition: u64,
    /// Timers whose condition could no longer hold.
    pub completed_by_impossible: u64,
    /// Timers that were stopped.
    pub stopped: u64,
    /// Seconds that completed timers ran, added up.
    pub elapsed_total: f64,
    /// Seconds by which the completion that was latest missed its deadline.
    pub max_late: f64,
    /// The last 30 days on which timers ended.
    pub days: Vec<TimerDay>,
    /// Calls that were not needed: for every ended timer, the number of looks of a loop that looks every 30 seconds, less
    /// the calls that were made. Those are estimated: one for each standby of the length that the last call named, and at
    /// least one.
    pub calls_saved: u64,
}

/// Timers that ended on one day (UTC).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Day")]
pub struct TimerDay {
    /// Date, such as `2026-11-15`.
    pub day: String,
    /// Timers completed.
    pub completed: u64,
    /// Timers stopped.
    pub stopped: u64,
    /// Seconds that the completed ones ran, added up.
    pub waited: f64,
}

/// Result of a wait for a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    /// True if the condition held within the time.
    pub held: bool,
    /// Last look, or the reason why the condition can no longer hold.
    pub seen: String,
    /// The condition can no longer hold, so the wait ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impossible: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_has_the_words_of_the_core() {
        for by in [
            timer::CompletedBy::Time,
            timer::CompletedBy::Condition,
            timer::CompletedBy::Impossible,
        ] {
            assert_eq!(CompletedBy::of(by.as_str()), Some(by.into()));
        }
    }
}
