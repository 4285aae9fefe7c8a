//! Limits and defaults of the engine. A limit that only one module uses is defined in that module.

use crate::time::Millis;

/// Maximum number of waiting calls.
pub const WAITS: usize = 16_384;
/// Maximum number of sessions whose leader runs.
pub const RUNNING_SESSIONS: usize = 16_384;
/// Maximum number of sessions in memory, including ended ones. Retention stays far below this limit.
pub const SESSIONS: usize = 262_144;
/// Maximum number of ended sessions that retention keeps, regardless of age and size.
pub const KEPT_SESSIONS: usize = 98_304;
/// Maximum number of idempotency keys of one command, at most 255 in its stored form.
pub const KEYS_PER_COMMAND: usize = 64;
/// Number of closed questions that are remembered, so that the refusal of a late answer can name the first one.
pub const CLOSED_QUESTIONS: usize = 1_024;
/// Maximum number of commands that wait for the answer of a person.
pub const HELD_COMMANDS: usize = 500;
/// Maximum number of questions about commands that one agent can cause within [`QUESTION_TIME`].
pub const QUESTIONS_PER_AGENT: usize = 10;
/// Time in which the questions of an agent are counted.
pub const QUESTION_TIME: Millis = Millis::from_secs(60);
/// Time after which a held command expires.
pub const HELD_TIME: Millis = Millis::from_secs(24 * 3_600);
/// Idle limit of `execute_command` and `abide run` if none is given.
pub const IDLE_DEFAULT: Millis = Millis::from_secs(60);
/// Time before the client's limit at which a call that can return a question asks it, if the command is quiet then.
/// Long enough for the keeper to report the time of the last output.
pub const ASK_BEFORE_CUT: Millis = Millis::from_secs(2);
/// Inactivity after which a terminal session is closed if no limit is given.
pub const INACTIVITY_DEFAULT: Millis = Millis::from_secs(300);
/// Deadline of `shell` if none is given.
pub const DEADLINE_DEFAULT: Millis = Millis::from_secs(100);
/// Size of a terminal if none is given.
pub const COLS_DEFAULT: u16 = 120;
/// Rows of that size.
pub const ROWS_DEFAULT: u16 = 40;
/// Lines that `read_output` and `search` return if no number is given.
pub const LINES_DEFAULT: usize = 100;
/// Most lines that a call can ask for.
pub const LINES_MAX: u64 = 10_000;
/// Time after the deadline at which the daemon itself kills a session whose keeper does not answer.
pub const FORCE_AFTER_DEADLINE: Millis = Millis(500);
/// Time after a kill request at which the daemon itself kills a session whose keeper does not answer.
pub const FORCE_AFTER_KILL: Millis = Millis::from_secs(1);
/// Interval at which the daemon repeats that kill.
pub const FORCE_AGAIN: Millis = Millis::from_secs(5);
/// Maximum number of timers that have not ended, of all agents together.
pub const TIMERS: usize = 4_000_000;
/// Maximum number of agents that have owned a timer since the start of the daemon.
pub const AGENTS: usize = 65_536;
/// Number of ended timers kept in memory; older ones are only in the database.
pub const ENDED_TIMERS: usize = 4_096;
/// Maximum number of timers that complete in one step. The rest waits for the next step, so that calls are handled in
/// between.
pub const DUE_AT_ONCE: usize = 512;
/// Maximum number of timers that one call creates.
pub const TIMERS_AT_ONCE: usize = 10_000;
/// Maximum number of timers in one page of a list.
pub const TIMERS_LISTED: usize = 1_000;
/// Changes that the history of a timer keeps.
pub const TIMER_CHANGES: usize = 100;
/// Maximum number of ids listed for a caller that named an unknown one.
pub const IDS_LISTED: usize = 20;
/// Maximum number of messages in one answer.
pub const MESSAGES_AT_ONCE: usize = 100;
/// Time after a failed commit until the engine retries.
pub const COMMIT_RETRY: Millis = Millis::from_secs(1);
/// Time after a start in which a client can reconnect to take the ending of a session that it waited for. After that
/// the agent gets a message.
pub const TAKE_UP: Millis = Millis::from_secs(2);
/// Time after a start in which the condition of a timer that came due before is looked at. Then the timer completes by
/// time.
pub const FIRST_PROBE: Millis = Millis::from_secs(2);
/// Delay of the message about a session while a call stands by on a timer that may wait for the session: the answer
/// of that call tells its ending.
pub const MESSAGE_DELAY: Millis = Millis::from_secs(1);
/// Time in which a client can reconnect after the last connection of its conversation was closed, or after the daemon
/// started. After that another conversation of the agent may read the messages of this one.
pub const RECONNECT: Millis = Millis::from_secs(5);
/// Time in which a page can come back that is reloaded or whose daemon was started again. After that, calls that wait for
/// the answer of its person are told that nobody can be asked.
pub const PAGE_RELOAD: Millis = Millis::from_secs(5);
/// Time after posting for which a message is reserved for a closed conversation that a waker can resume.
pub const RESUME: Millis = Millis::from_secs(24 * 3_600);
/// Maximum difference between the system clock and the anchor before the anchor is moved.
pub const CLOCK_DISAGREEMENT: Millis = Millis::from_secs(1);
