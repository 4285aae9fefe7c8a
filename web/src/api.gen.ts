// Types of what the daemon sends, generated from crates/api by `make reference`. Do not edit.
// Times are Unix milliseconds, durations seconds.

/** Sessions of one agent. */
export interface AgentSessions {
  /** Name of the agent. */
  agent: string;
  /** Outcomes of the ended ones. */
  outcomes: SessionOutcomes;
  /** Seconds that the ended ones ran, added up. */
  run_total: number;
  /** Running sessions of the agent. */
  running: number;
}

/** Answer that can be given to a question about a command. */
export interface AnswerOffer {
  /** Rules that the answer adds, as TOML. Empty: none. */
  adds: string;
  /** `once`, `this agent`, `always here`, `always` or `no`. */
  answer: string;
}

/** Decisions, newest first. */
export interface Audit {
  /** Decisions of this page. */
  entries: AuditLine[];
  /** `after` of the next page. */
  next: string | null;
}

/** One line of the audit log: a decision about a command of an agent, written before the act. */
export interface AuditLine {
  /** Rules that the answer added. */
  added?: string[];
  /** Agent that wants to run the command. */
  agent?: string;
  /** Answer of the person. */
  answer?: string;
  /** Time, in Unix milliseconds. */
  at: number;
  /** Channel of the answer: `person` or `client`. */
  by?: string;
  /** Command line, with secrets masked. */
  command?: string;
  /** Commands in it, or what the sandbox refused. */
  commands?: string[];
  /** Host and port that the sandboxed command wanted to connect to, if the question was about that. */
  connection?: string;
  /** `allow`, `ask`, `deny`, `broken` (the rules cannot be used), `answered`, `expired`, `withdrawn` (a held command),
`removed` (a rule) or `refused` (by the sandbox of a command that has ended). */
  event: string;
  /** Working directory. */
  folder?: string;
  /** Hash of the line before this one. Empty: this is the first line of the log. */
  previous: string;
  /** Question that was asked or answered. */
  question_id?: string;
  /** Name of the rule that decided. An `allow` without a rule and a reason: no rule is about the command. */
  rule?: string;
  /** Reason of the decision. */
  why?: string;
}

/** Check of the chain of the audit log. */
export interface AuditVerified {
  /** First place where the chain is broken. */
  error?: string;
  /** True if no line was changed, removed or inserted. */
  intact: boolean;
  /** Lines whose writing was interrupted. */
  interrupted: number;
  /** SHA-256 hash of the last line. Kept elsewhere, it shows later whether the end of the log was removed. */
  last: string | null;
  /** Number of lines. */
  lines: number;
  /** Time of the first line, in Unix milliseconds. */
  since: number | null;
}

/** Timers that ended on one day (UTC). */
export interface Day {
  /** Timers completed. */
  completed: number;
  /** Date, such as `2026-11-15`. */
  day: string;
  /** Timers stopped. */
  stopped: number;
  /** Seconds that the completed ones ran, added up. */
  waited: number;
}

/** Delivery of a message by one waker. */
export interface Delivery {
  /** Last attempt, in Unix milliseconds. */
  at: number | null;
  /** Number of attempts. */
  attempts: number;
  /** Fault of the last attempt. */
  fault: string | null;
  /** Next attempt, in Unix milliseconds. */
  next_at: number | null;
  /** True if the message has arrived. */
  ok: boolean;
  /** State of the delivery. */
  state: string;
  /** Name of the waker. */
  waker: string;
}

/** First event of a stream. */
export interface Hello {
  /** Clock of the daemon, in Unix milliseconds. */
  now: number;
  /** Process id of the daemon. */
  pid: number;
  /** Start of the daemon, in Unix milliseconds. */
  started_at: number;
  /** Version of the daemon. */
  version: string;
}

/** A line of a log. */
export interface LogLine {
  /** Arrival of its first byte, in Unix milliseconds. */
  at: number;
  /** Bytes left out in the middle of a long line, where `text` says so. */
  cut?: number;
  /** Parts of the text that match `pattern`. */
  matches?: LogRange[];
  /** Bytes before this line that are missing from the log. */
  missing?: number;
  /** Number of the line, from 1. */
  number: number;
  /** Stream that it came from; `both`: begun by one stream, continued by the other. */
  stream: 'stdout' | 'stderr' | 'both' | 'pty';
  /** Parts of the text that have a colour or are bold. */
  styles?: LogStyle[];
  /** The line without escape sequences, after carriage returns and erasures. */
  text: string;
}

/** Consecutive lines of a log. */
export interface LogLines {
  /** Bytes missing from the log so far. When there are more than before, the lines after them have other numbers. */
  dropped: number;
  /** Lines in order; fewer than requested if they are long. */
  lines: LogLine[];
  /** Number of lines in the log so far. A last line without a newline counts. */
  total: number;
}

/** Numbers of the lines of a log that match a pattern. */
export interface LogMatches {
  /** Line numbers in order. */
  lines: number[];
  /** `after` of the next page, if there are more: a byte offset in the log. */
  next?: number;
  /** True if the search took too long and `total` counts only the lines before `next`. */
  stopped: boolean;
  /** Number of matching lines after `after`, including those that are not listed. */
  total: number;
}

/** Part of a text, in UTF-16 code units. */
export interface LogRange {
  /** Code unit after the last one. */
  end: number;
  /** First code unit. */
  start: number;
}

/** Part of a text that has a style, in UTF-16 code units. */
export interface LogStyle {
  /** True if the text is bold. */
  bold?: boolean;
  /** Number of the colour, 0 to 15. */
  colour?: number;
  /** Code unit after the last one. */
  end: number;
  /** First code unit. */
  start: number;
}

/** One machine of a fleet. */
export interface Machine {
  /** Last heartbeat by the clock of the database, in Unix milliseconds. */
  as_of: number;
  /** True if a person has said that the sessions which ran on it are lost. */
  declared_lost: boolean;
  /** Labels, by which `on` can choose it. */
  labels: string[];
  /** Name. */
  name: string;
  /** Way of calls to it over ssh, if one is configured here. */
  ssh?: SshRoute;
  /** State of the machine. */
  state: 'here' | 'alive' | 'unreachable' | 'left' | 'revoked';
  /** Version of its program. */
  version: string;
  /** True if its key is vouched for by the fleet secret. */
  vouched_for: boolean;
}

/** Fleet as this machine knows it. */
export interface Machines {
  /** True if this machine is a member. */
  joined: boolean;
  /** True if this machine has a fleet secret, so that machines can call each other. */
  linked: boolean;
  /** Name of this machine; `null` if its state is not in a shared database. */
  machine: string | null;
  /** All machines, by name. */
  machines: Machine[];
  /** Name that this machine was to have, if another machine had it already. */
  name_taken?: string;
  /** Sentence about a membership that does not work. */
  trouble?: string;
}

/** A line that matches. */
export interface Match {
  /** Command of the session. */
  command: string;
  /** Number of the line, from 1. */
  line: number;
  /** Machine of the fleet that has the session, if it is another one. */
  machine?: string;
  /** Session whose log has the line. */
  session_id: string;
  /** The line as plain text. */
  text: string;
}

/** A page of lines that match. */
export interface Matches {
  /** Lines, those of the newest session first; those of other machines follow, machine by machine. */
  matches: Match[];
  /** `after` of the next page, if there may be more. */
  next: string | null;
  /** True if there may be more. */
  truncated: boolean;
  /** Machines of the fleet that could not be searched, and the reason. */
  unreachable?: Record<string, string>;
  /** Sessions whose logs could not be read, and the reason. */
  unreadable?: Record<string, string>;
}

/** A message to an agent, with its deliveries. */
export interface Message {
  /** Recipient. */
  agent: string;
  /** Creation, in Unix milliseconds. */
  created_at: number;
  /** State of each waker. */
  deliveries: Delivery[];
  /** Id of the message. */
  message_id: string;
  /** Time at which the agent saw the message, in Unix milliseconds. */
  seen_at: number | null;
  /** Session that the message is about. */
  session_id?: string;
  /** The message. */
  text: string;
  /** Timer that the message is about. */
  timer_id?: string;
  /** Attempts of all wakers. */
  wake_attempts: number;
  /** Fault of the last attempt. */
  wake_fault: string | null;
  /** First time at which a waker delivered the message, in Unix milliseconds. */
  woken_at: number | null;
}

/** Rules in force. */
export interface Policy {
  /** File of the rules that the answer `always` has written. */
  always_file: string;
  /** Reason why the rules cannot be used: commands of agents are refused. */
  error?: string;
  /** Decision about commands that no rule names. */
  otherwise: 'allow' | 'ask' | 'deny';
  /** Rules. Empty if `error` says why they cannot be used. */
  rules: PolicyRule[];
  /** Decision about text that cannot be parsed. */
  unparsed: 'allow' | 'ask' | 'deny';
}

/** One command of a command line. */
export interface PolicyPart {
  /** The command. */
  command: string;
  /** The decision about it. */
  decision: 'allow' | 'ask' | 'deny';
  /** Name of the rule that decides. */
  rule: string | null;
}

/** One rule. */
export interface PolicyRule {
  /** Agents that the rule is for. */
  agent: string | null;
  /** Decision about such a command. */
  do: 'allow' | 'ask' | 'deny';
  /** Folder that the rule is for. */
  folder: string | null;
  /** Command to use in its place. */
  instead: string | null;
  /** Name of the rule. */
  name: string;
  /** True if only a person can say yes, not the client of the agent. */
  person_only: boolean;
  /** Words that a command begins with; `*` is one word, `...` any words. */
  run: string[];
  /** Origin of the rule. */
  source: 'built-in' | 'configuration' | 'always' | 'this agent';
  /** Reason. */
  why: string;
  /** Words of which a command has at least one. */
  with: string[];
}

/** Decision about a command line that was not run. */
export interface PolicyTested {
  /** Answers that a person could give. */
  answers: string[];
  /** The command line. */
  command: string;
  /** The decision. */
  decision: 'allow' | 'ask' | 'deny';
  /** Commands in the command line. */
  parts: PolicyPart[];
  /** Name of the rule that decides. */
  rule: string | null;
  /** Reason. */
  why: string | null;
}

/** A process. */
export interface Process {
  /** Command line. */
  command: string;
  /** Process id. */
  pid: number;
}

/** A question with the state of its session now. */
export interface Question {
  /** `idle`: the session is idle, wait longer? `command`: the command was not started, may it run? `connection`: a
connection of its sandbox waits, may it go on? */
  about: 'idle' | 'command' | 'connection';
  /** Agent that owns the session. */
  agent: string;
  /** Time at which that machine said so, in Unix milliseconds. */
  as_of?: number;
  /** Time of the question, in Unix milliseconds. */
  asked_at: number;
  /** Command of the session. */
  command: string;
  /** Percent of one processor. */
  cpu: number;
  /** Working directory of the command. */
  cwd: string;
  /** Activity in words: busy, sleeping, stopped or waiting for input. */
  doing: string;
  /** Details of a question about a command that was not started, or about a connection. */
  held?: QuestionCommand;
  /** Seconds without output after which the question was asked. */
  idle: number;
  /** Seconds without output by now. */
  idle_for: number | null;
  /** Last line of output. */
  last_line: string;
  /** Machine of the fleet that asks, if it is another one. */
  machine?: string;
  /** The question. */
  question: string;
  /** Id of the question. */
  question_id: string;
  /** Seconds that the command had run then; in the output of `abide answer`, by now. */
  running_for: number;
  /** Session that the question is about. */
  session_id: string;
  /** Last lines of output. */
  tail: string[];
  /** The whole question for people. */
  text: string;
  /** True if the command waits for input. */
  waiting_for_input: boolean;
}

/** Command of a question. */
export interface QuestionCommand {
  /** Answers that can be given. */
  answers: AnswerOffer[];
  /** Working directory. */
  folder: string;
  /** Part of the command line that asks. */
  part: string;
  /** Rule that asks. Empty: the text itself is the reason. */
  rule: string;
  /** Reason of the question. */
  why: string;
}

/** Sessions in which a sandbox refused something, newest first. */
export interface Refusals {
  /** `after` of the next page. */
  next: string | null;
  /** Sessions of this page. */
  sessions: SandboxRefusals[];
}

/** A refused thing. */
export interface SandboxRefusal {
  /** `write` for a path, `make` for a protected name that did not exist, `name` for a host and port, `address` for one that
was given as a number, `udp` for one to which UDP was sent, `call` for a system call, `failed` for a host that is
allowed and could not be reached. */
  kind: string;
  /** The path, the host, or the system call with what to do instead. */
  what: string;
}

/** Refusals of the sandbox of one session. */
export interface SandboxRefusals {
  /** Agent of the session. */
  agent: string;
  /** Command of the session. */
  command: string;
  /** Number of refused attempts. */
  count: number;
  /** Time of its start, in Unix milliseconds. */
  created_at: number;
  /** `read-only` or `workspace-write`. */
  mode: string;
  /** `off`, `allowlist` or `on`. */
  network: string;
  /** Names that the command has made in the workspace, and that other programs run or obey. */
  planted: string[];
  /** Different things that were refused; the first ones, if there are many. */
  refused: SandboxRefusal[];
  /** The session. */
  session_id: string;
}

/** One command with its whole process tree. */
export interface Session {
  /** Agent that owns the session. */
  agent: string;
  /** Time at which that machine said so, in Unix milliseconds. */
  as_of?: number;
  /** Bytes written that are not kept. */
  bytes_dropped: number;
  /** Bytes written so far. */
  bytes_total: number;
  /** Command as given. */
  command: string;
  /** Mechanism that keeps track of the process tree. */
  contained_by: 'cgroup' | 'pid_namespace' | 'subreaper' | null;
  /** Use of the processor; 1 is one processor. */
  cpu?: number | null;
  /** Start, in Unix milliseconds. */
  created_at: number;
  /** Working directory. */
  cwd: string;
  /** Fault in the record on disk; the log is kept. */
  damaged?: string;
  /** Seconds that the command ran, or has run so far; 0 if it could not be started. */
  duration: number;
  /** Cause of the end. */
  end: 'exited' | 'signaled' | 'deadline' | 'idle_declined' | 'user' | 'agent' | 'inactivity' | 'out_of_memory' | 'sandbox' | 'lost' | null;
  /** End, or failure to start, in Unix milliseconds; absent while the command runs. */
  ended_at?: number;
  /** Reason for a failure to start. */
  error?: string;
  /** Exit code; `null` if no exit was seen. */
  exit_code: number | null;
  /** Seconds without output after which a person is asked. */
  idle: number | null;
  /** Seconds since then, while the command runs. */
  idle_for: number | null;
  /** Seconds without output, input or a reader after which the session is closed. */
  inactivity_timeout: number | null;
  /** Last sign of life, in Unix milliseconds. */
  last_activity: number;
  /** Machine of the fleet that runs it, if it is another one. */
  machine?: string;
  /** Memory in bytes. */
  memory?: number | null;
  /** Name that a person or agent gave the session. */
  name?: string;
  /** Ports on which the sandboxed command listens and that are reachable on 127.0.0.1. */
  ports?: number[];
  /** True if the command has a terminal. */
  pty: boolean;
  /** Promises of the sandbox that this mechanism does not keep. */
  sandbox_gaps: string[];
  /** Mechanism that enforces the sandbox; `off`: the command has none, `null`: nothing was run. */
  sandboxed_by: 'namespaces' | 'bubblewrap' | 'landlock' | 'off' | null;
  /** Id of the session. */
  session_id: string;
  /** Signal that ended the command. */
  signal: number | null;
  /** Timer whose condition runs this command, or `wait` for a command of `abide wait`. */
  started_by?: string;
  /** `failed`: the command could not be started. */
  status: 'running' | 'exited' | 'failed' | 'unreachable' | 'lost';
  /** Processes that the command left in the background. */
  still_running: Process[];
  /** Last lines as plain text (with `tails`, while the command runs). */
  tail?: string[];
  /** Hard limit in seconds, counted from the start. */
  timeout: number | null;
  /** True if the command waits for input. */
  waiting_for_input?: boolean;
}

/** Sessions that ended on one day (UTC). */
export interface SessionDay {
  /** Date, such as `2026-11-15`. */
  day: string;
  /** Outcomes of that day. */
  outcomes: SessionOutcomes;
}

/** Number of ended sessions by outcome. */
export interface SessionOutcomes {
  /** Sessions with another exit code, killed by a foreign signal or by the OOM killer, or failed to start. */
  failed: number;
  /** Sessions whose ending is unknown. */
  lost: number;
  /** Sessions ended by a limit, a person or their agent. */
  stopped: number;
  /** Sessions with exit code 0. */
  succeeded: number;
}

/** Activity of a running session. */
export interface SessionPulse {
  /** Bytes written so far. */
  bytes_total: number;
  /** Use of the processor; 1 is one processor. */
  cpu: number | null;
  /** Last sign of life, in Unix milliseconds. */
  last_activity: number;
  /** Memory in bytes. */
  memory: number | null;
  /** Id of the session. */
  session_id: string;
  /** Last lines as plain text (with `tails`, while the command runs). */
  tail: string[];
  /** True if the command waits for input. */
  waiting_for_input: boolean;
}

/** Statistics of all sessions that are kept. */
export interface SessionStats {
  /** Agents, the one with most sessions first. */
  agents: AgentSessions[];
  /** Bytes of output of the ended ones. */
  bytes_total: number;
  /** The last 30 days on which sessions ended, oldest first. */
  days: SessionDay[];
  /** Outcomes of the ended ones. */
  outcomes: SessionOutcomes;
  /** Seconds that the ended ones ran, added up. */
  run_total: number;
  /** Sessions that run. */
  running: number;
}

/** Way of calls to a machine over ssh. */
export interface SshRoute {
  /** Destination of ssh. */
  destination: string;
  /** Reason why ssh failed last, so that the database carries the calls. */
  fault?: string;
}

/** Statistics of all timers. */
export interface Stats {
  /** Calls that were not needed: for every ended timer, the number of looks of a loop that looks every 30 seconds, less
the calls that were made. Those are estimated: one for each standby of the length that the last call named, and at
least one. */
  calls_saved: number;
  /** Timers whose condition held. */
  completed_by_condition: number;
  /** Timers whose condition could no longer hold. */
  completed_by_impossible: number;
  /** Timers whose time was over. */
  completed_by_time: number;
  /** The last 30 days on which timers ended. */
  days: Day[];
  /** Seconds that completed timers ran, added up. */
  elapsed_total: number;
  /** Timers made in all, as far as is remembered. */
  made: number;
  /** Seconds by which the completion that was latest missed its deadline. */
  max_late: number;
  /** Timers that have not ended. */
  running: number;
  /** Timers that were stopped. */
  stopped: number;
}

/** A timer as a person or a program sees it. */
export interface Timer {
  /** Agent that owns the timer. */
  agent: string;
  /** Changes by calls and by the end of a pause, oldest first. Only where one timer is read. */
  changes?: TimerChange[];
  /** Cause of the completion. impossible: the condition can no longer hold. */
  completed_by?: 'time' | 'condition' | 'impossible';
  /** Creation, in Unix milliseconds. */
  created_at: number;
  /** Seconds that have passed. */
  elapsed_time: number;
  /** End of the timer, in Unix milliseconds. */
  ended_at?: number;
  /** Last call that asked for the timer, in Unix milliseconds. */
  last_check_at: number;
  /** Last observation of the condition of a timer that has not ended. */
  last_look?: string;
  /** Seconds between when it was due and when it completed. */
  late?: number;
  /** Task for the time after completion. */
  mission?: string;
  /** End of the pause, in Unix milliseconds. */
  pause_until?: number;
  /** Thing that is waited for. */
  reason?: string;
  /** Seconds that are left. */
  remaining_time: number;
  /** Last observation of an ended timer, or the reason why its condition can no longer hold. */
  seen?: string;
  /** True if a call stands by on the timer. */
  standing_by: boolean;
  /** State of the timer. */
  status: 'running' | 'paused' | 'running_background' | 'completed' | 'stopped';
  /** Reason given with stop, cancel or pause. */
  stop_reason?: string;
  /** Text of the tool (one timer only). */
  text?: string;
  /** True if the standby ended before the timer did (a call that stood by). */
  timeout?: boolean;
  /** Seconds that the last call stood by at most. */
  timeout_duration: number;
  /** Id of the timer. */
  timer_id: string;
  /** `waiting` has a reason, `mission` a mission. */
  timer_type: 'waiting' | 'mission';
  /** Seconds that the timer runs in all. */
  total_duration: number;
  /** Condition that ends the timer early, as it was given. */
  until: Record<string, unknown> | null;
}

/** Change of a timer. */
export interface TimerChange {
  /** Time of the change, in Unix milliseconds. */
  at: number;
  /** `cancelled`, `paused`, `resumed`, or `resumed_by_itself` after the pause. */
  change: string;
  /** Reason given with it. */
  reason?: string;
}
