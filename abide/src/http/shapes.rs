//! What answers look like, for the document of the routes. The answers themselves are made of facts
//! where they arise; the tests hold every one of them against these.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A problem (RFC 9457). Nothing was changed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `urn:abide:problem:` and a word for programs.
    pub r#type: String,
    /// The status in words.
    pub title: String,
    /// The status.
    pub status: u16,
    /// One sentence that says what is wrong and what to do next.
    pub detail: String,
    /// The same sentence where a tool says it, as every result of a tool has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `true` where a tool says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

/// One command with its whole process tree.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Its id.
    pub session_id: String,
    /// `running`, `exited`, or `failed` where it could not be run at all.
    pub status: String,
    /// The exit code, where it ended with one.
    pub exit_code: Option<i32>,
    /// The signal that ended it, where one did.
    pub signal: Option<i32>,
    /// Why it ended: `exited`, `signaled`, `deadline`, `idle_declined`, `user`, `agent`,
    /// `inactivity`, `out_of_memory`, `lost`.
    pub end: Option<String>,
    /// Seconds it ran, or has run so far; 0 where it could not be started.
    pub duration: f64,
    /// All bytes it wrote.
    pub bytes_total: u64,
    /// How many of them are not kept any more.
    pub bytes_dropped: u64,
    /// What it left behind.
    pub still_running: Vec<Process>,
    /// `cgroup`, `pid_namespace` or `subreaper`.
    pub contained_by: Option<String>,
    /// The command as given.
    pub command: String,
    /// Whose it is.
    pub agent: String,
    /// The timer whose condition runs this command, or `wait` for one that `abide wait` waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// When it was made, in Unix milliseconds.
    pub created_at: u64,
    /// When it ended or could not be started, in Unix milliseconds; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Where it runs.
    pub cwd: String,
    /// Whether it has a terminal.
    pub pty: bool,
    /// Its hard limit in seconds, counted from its start.
    pub timeout: Option<f64>,
    /// Seconds of quiet after which a person is asked.
    pub idle: Option<f64>,
    /// Seconds without output, input or a reader after which it is closed.
    pub inactivity_timeout: Option<f64>,
    /// When it last showed life, in Unix milliseconds.
    pub last_activity: u64,
    /// Seconds since then, while it runs.
    pub idle_for: Option<f64>,
    /// Why it could not be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What is wrong with its record on disk; the log is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// Its last lines as plain text (with `tails`, while it runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Vec<String>>,
    /// How much of one processor it uses (with `tails`, while it runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Bytes of memory it holds (with `tails`, while it runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Whether it waits for somebody to type (with `tails`, while it runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for_input: Option<bool>,
}

/// A process.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its arguments.
    pub command: String,
}

/// A page of sessions, the newest first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sessions {
    /// In order.
    pub sessions: Vec<Session>,
    /// The `after` of the next page.
    pub next: Option<String>,
    /// How many there are in all.
    pub total: u64,
}

/// A durable countdown.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Timer {
    /// Its id.
    pub timer_id: String,
    /// `waiting` or `mission`.
    pub timer_type: String,
    /// Whose it is.
    pub agent: String,
    /// `running`, `paused`, `running_background`, `completed` or `stopped`.
    pub status: String,
    /// Seconds it runs in all.
    pub total_duration: f64,
    /// Seconds that the last call stood by at most.
    pub timeout_duration: f64,
    /// Seconds that have passed.
    pub elapsed_time: f64,
    /// Seconds that are left.
    pub remaining_time: f64,
    /// What is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is to be done then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mission: Option<String>,
    /// When it was made, in Unix milliseconds.
    pub created_at: u64,
    /// When somebody last asked for it.
    pub last_check_at: u64,
    /// When it goes on by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<u64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// `time`, `condition` or `impossible`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_by: Option<String>,
    /// What was seen when its condition held, or last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Why it was stopped, paused or moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Seconds after it was due that it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<f64>,
    /// Whether a call stands by on it.
    pub standing_by: bool,
    /// The condition that ends it early, as it was given.
    pub until: Option<BTreeMap<String, Value>>,
    /// What the last look at its condition saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_look: Option<String>,
    /// What it says to a model (one timer only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether the standby ended before the timer did (a call that stood by).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<bool>,
}

/// A timer to be made, or with `timer_id` to be stood by on again; with `timers` many to be made.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NewTimer {
    /// Seconds it runs in all.
    pub total_duration: Option<f64>,
    /// Seconds that this call stands by at most.
    pub timeout_duration: Option<f64>,
    /// What is waited for.
    pub reason: Option<String>,
    /// What is to be done then; instead of a reason.
    pub mission: Option<String>,
    /// A timer that exists already.
    pub timer_id: Option<String>,
    /// The condition that ends it early, as for the tool `timer`.
    pub until: Option<BTreeMap<String, Value>>,
    /// A request repeated with the same key makes no second timer.
    pub idempotency_key: Option<String>,
    /// Many timers, on none of which this call stands by.
    pub timers: Option<Vec<NewTimer>>,
}

/// One timer that was made, or the ids of many.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Made {
    /// It stood by on this one.
    One(Box<Timer>),
    /// These were made, in the order in which they were asked for.
    Many(TimerIds),
}

/// Timers that were made together.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TimerIds {
    /// Their ids, in the order in which they were asked for.
    pub timer_ids: Vec<String>,
}

/// A page of timers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Timers {
    /// In the order that was asked for.
    pub timers: Vec<Timer>,
    /// The `after` of the next page.
    pub next: Option<String>,
    /// How many there are in all.
    pub total: u64,
}

/// Statistics of all timers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// Made in all, as far as is remembered.
    pub made: u64,
    /// Not ended.
    pub running: u64,
    /// Completed because their time was over.
    pub completed_by_time: u64,
    /// Completed because a condition held.
    pub completed_by_condition: u64,
    /// Completed because a condition could no longer hold.
    pub completed_by_impossible: u64,
    /// Stopped.
    pub stopped: u64,
    /// Seconds that completed timers ran, added up.
    pub elapsed_total: f64,
    /// Seconds by which the latest completion was late.
    pub latest: f64,
    /// The last 30 days on which timers ended.
    pub days: Vec<Day>,
    /// Calls that were not needed: for every ended timer, how often a loop would have looked that
    /// looks every 30 seconds, less the calls that were made. Those are reckoned, not counted: one
    /// for each standby of the length that the last call named, and at least one.
    pub calls_saved: u64,
}

/// What became of timers on one day, in Greenwich time.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Day {
    /// As `2026-11-15`.
    pub day: String,
    /// Completed on it.
    pub completed: u64,
    /// Stopped on it.
    pub stopped: u64,
    /// Seconds that the completed ones ran, added up.
    pub waited: f64,
}

/// Something that a person must decide.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// Its id.
    pub question_id: String,
    /// Which session it is about.
    pub session_id: String,
    /// The question itself.
    pub question: String,
    /// The command it is about.
    pub command: String,
    /// Whose it is.
    pub agent: String,
    /// Seconds of quiet after which it was asked.
    pub idle: f64,
    /// Seconds that the command had run then.
    pub running_for: f64,
    /// Seconds for which it is quiet by now.
    pub idle_for: Option<f64>,
    /// Its last line of output.
    pub last_line: String,
    /// Its last lines of output.
    pub tail: Vec<String>,
    /// What it does: busy, sleeping, waiting for input.
    pub facts: String,
    /// The same.
    pub doing: String,
    /// Whether it waits for somebody to type.
    pub waiting_for_input: bool,
    /// How much of one processor it used, in percent.
    pub cpu: u32,
    /// When it was asked, in Unix milliseconds.
    pub asked_at: u64,
    /// All of it, as a person reads it.
    pub text: String,
}

/// Open questions, oldest first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Questions {
    /// In order.
    pub questions: Vec<Question>,
    /// The `after` of the next page.
    pub next: Option<String>,
    /// How many there are in all.
    pub total: u64,
}

/// A message to an agent.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Its id.
    pub message_id: String,
    /// The timer it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_id: Option<String>,
    /// The session it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// To whom.
    pub agent: String,
    /// What it says.
    pub text: String,
    /// When it was made, in Unix milliseconds.
    pub created_at: u64,
    /// When its agent saw it.
    pub seen_at: Option<u64>,
    /// When its agent was first woken for it.
    pub woken_at: Option<u64>,
    /// How often that was tried.
    pub wake_attempts: u64,
    /// What went wrong the last time.
    pub wake_fault: Option<String>,
    /// What each waker did with it.
    pub deliveries: Vec<Delivery>,
}

/// What one waker did with a message.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// Which waker.
    pub waker: String,
    /// How it stands.
    pub state: String,
    /// Whether it has arrived.
    pub ok: bool,
    /// When it was last tried, in Unix milliseconds.
    pub at: Option<u64>,
    /// How often.
    pub attempts: u64,
    /// What went wrong.
    pub fault: Option<String>,
    /// When it is tried next.
    pub next_at: Option<u64>,
}

/// A page of messages, the newest first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Messages {
    /// In order.
    pub messages: Vec<Message>,
    /// The `after` of the next page.
    pub next: Option<String>,
}

/// Lines that match.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Matches {
    /// Those of the newest session first.
    pub matches: Vec<Match>,
    /// Whether there may be more.
    pub truncated: bool,
    /// The `after` of the following page, where there may be more.
    pub next: Option<String>,
    /// Sessions whose logs could not be read, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub unreadable: BTreeMap<String, String>,
}

/// A line that matches.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Match {
    /// In whose log.
    pub session_id: String,
    /// The session's command.
    pub command: String,
    /// Its number, counted from one.
    pub line: u64,
    /// The line as plain text.
    pub text: String,
}

/// A link that lets one browser in.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// The link; its fragment holds the code.
    pub url: String,
    /// Seconds for which it is good, once.
    pub expires_in: u64,
}

/// How the daemon is.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Who it is.
    pub daemon: Daemon,
    /// Sessions by where they stand.
    pub sessions: SessionCounts,
    /// Questions by where they stand.
    pub questions: QuestionCounts,
    /// Timers by where they stand.
    pub timers: TimerCounts,
    /// How trees of processes are held together.
    pub containment: Held,
    /// Where timers, questions and messages are kept.
    pub database: Database,
    /// Where HTTP is served over TCP. `null`: nowhere.
    pub http: Option<Served>,
    /// Where its files are.
    pub places: Places,
}

/// The database.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Database {
    /// What is wrong with it, or was when the daemon started. `null`: nothing.
    pub trouble: Option<String>,
}

/// A daemon.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Daemon {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// When it was started, in Unix milliseconds.
    pub started_at: u64,
}

/// How many sessions there are.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionCounts {
    /// Those that run.
    pub running: u64,
    /// Those whose command has ended and left something running.
    pub background: u64,
    /// Those that have ended.
    pub ended: u64,
}

/// How many questions there are.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuestionCounts {
    /// Those that nobody has answered yet.
    pub open: u64,
}

/// How many timers there are.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TimerCounts {
    /// Those that have not ended.
    pub running: Option<u64>,
}

/// How trees of processes are held together.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// As the configuration says.
    pub wanted: String,
    /// As the newest session was.
    pub last_used: Option<String>,
}

/// Where HTTP is served over TCP.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Served {
    /// Its address and port. `null`: it could not be opened.
    pub address: Option<String>,
    /// The file that holds the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// Why it could not be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Where the files are.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Places {
    /// What is kept.
    pub state: String,
    /// Sockets and locks.
    pub runtime: String,
    /// The configuration.
    pub config: String,
}

/// A daemon that is about to end.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stopping {
    /// True.
    pub stopping: bool,
    /// Its process.
    pub pid: u32,
}

/// All tools.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Tools {
    /// In the order in which a model should read them.
    pub tools: Vec<Tool>,
}

/// One tool.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// As it is called.
    pub name: String,
    /// As people call it.
    pub title: String,
    /// What it does, for a model.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: BTreeMap<String, Value>,
    /// The schema of its result.
    pub output_schema: BTreeMap<String, Value>,
}

/// That it is there.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `ok`.
    pub status: String,
}

/// A screen as bytes that paint it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Painted {
    /// The bytes, as text.
    pub paint: String,
    /// Characters in a line.
    pub cols: u16,
    /// Lines.
    pub rows: u16,
    /// Where the log goes on from there.
    pub offset: u64,
}

/// Bytes that were typed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// How many.
    pub written: u64,
}

/// An answer that was taken.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    /// To which question.
    pub question_id: String,
    /// `yes` or `no`.
    pub answer: String,
}

/// What was waited for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    /// Whether it held within the time.
    pub held: bool,
    /// What was seen last, or why it can no longer hold.
    pub seen: Option<String>,
    /// Set where it can no longer hold, so that the wait ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impossible: Option<bool>,
}

/// A person's answer to a question.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// `yes` or `no`.
    pub answer: String,
    /// With `yes`: seconds for which not to ask about this session again.
    pub quiet_for: Option<f64>,
}

/// A session to be started, with a terminal unless told otherwise.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NewSession {
    /// The command line, as for `sh -c`.
    pub command: String,
    /// Where; the home folder.
    pub cwd: Option<String>,
    /// For which agent; only a person names another.
    pub agent: Option<String>,
    /// Variables to set besides the inherited ones.
    pub env: Option<BTreeMap<String, String>>,
    /// Whether it has a terminal.
    pub pty: Option<bool>,
    /// Characters in a line.
    pub cols: Option<u16>,
    /// Lines.
    pub rows: Option<u16>,
    /// Seconds without output, input or a reader after which it is closed; 0: never.
    pub inactivity_timeout: Option<f64>,
    /// A request repeated with the same key starts nothing.
    pub idempotency_key: Option<String>,
}

/// New limits, counted from now. At least one is needed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// The hard limit in seconds.
    pub timeout: Option<f64>,
    /// The idle limit in seconds.
    pub idle: Option<f64>,
}

/// A signal.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Signal {
    /// A name such as `INT`, or a number from 1 to 64.
    pub signal: Value,
    /// Said again under the same key, it is not sent twice.
    pub key: Option<String>,
}

/// Something done to a timer.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TimerAct {
    /// Why.
    pub reason: Option<String>,
    /// With `pause`: after so many seconds it goes on by itself.
    pub pause_duration: Option<f64>,
    /// With `continue`: how long this call stands by, in seconds.
    pub timeout_duration: Option<f64>,
    /// With `continue`: what shall remain, in seconds.
    pub total_duration: Option<f64>,
}

/// Something to wait for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// The condition, as for the tool `timer`.
    pub until: BTreeMap<String, Value>,
    /// For how many seconds.
    pub r#for: f64,
}

/// An object whose fields are told elsewhere.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Object {
    /// Its fields.
    #[serde(flatten)]
    pub fields: BTreeMap<String, Value>,
}

/// Nothing, as an object.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Nothing {}
