// What the daemon says, named as it names it. Stamps are Unix milliseconds, durations seconds.

export interface Session {
  session_id: string;
  status: 'running' | 'exited' | 'failed';
  command: string;
  agent: string;
  cwd: string;
  pty: boolean;
  created_at: number;
  /** When it ended, or could not be started. */
  ended_at?: number;
  last_activity: number;
  duration: number;
  bytes_total: number;
  bytes_dropped: number;
  exit_code: number | null;
  signal: number | null;
  end: string | null;
  error?: string;
  still_running: { pid: number; command: string }[];
  contained_by: string | null;
  /** Hard limit. */
  timeout?: number | null;
  /** Quiet for so long, and a person is asked. */
  idle?: number | null;
  /** Unused for so long, and it is closed. */
  inactivity_timeout?: number | null;
  tail?: string[];
  cpu?: number | null;
  memory?: number | null;
  waiting_for_input?: boolean;
}

/** What a running session does at the moment. */
export interface Pulse {
  session_id: string;
  bytes_total: number;
  last_activity: number;
  tail: string[];
  cpu: number | null;
  memory: number | null;
  waiting_for_input: boolean;
}

export type TimerStatus = 'running' | 'paused' | 'running_background' | 'completed' | 'stopped';

export interface Timer {
  timer_id: string;
  timer_type: 'waiting' | 'mission';
  total_duration: number;
  timeout_duration: number | null;
  elapsed_time: number;
  remaining_time: number;
  status: TimerStatus;
  reason?: string | null;
  mission?: string | null;
  stop_reason?: string | null;
  completed_by?: string | null;
  created_at: number;
  last_check_at?: number | null;
  pause_until?: number | null;
  ended_at?: number | null;
  late_by?: number | null;
  agent?: string;
  standing_by?: boolean;
  until?: unknown;
  /** What the last look at its condition saw. */
  last_look?: string;
}

export interface Question {
  question_id: string;
  session_id: string;
  question: string;
  command: string;
  agent: string;
  idle: number;
  running_for: number;
  last_line: string;
  tail?: string[];
  doing: string;
  waiting_for_input: boolean;
  cpu: number | null;
  asked_at: number;
}

export interface Delivery {
  waker: string;
  state?: string;
  attempts?: number;
  /** When it was last tried. */
  at: number | null;
  ok: boolean;
  fault: string | null;
  next_at: number | null;
}

export interface Message {
  message_id: string;
  agent: string;
  text: string;
  created_at: number;
  seen_at: number | null;
  woken_at: number | null;
  wake_attempts: number;
  wake_fault: string | null;
  deliveries?: Delivery[];
}

export interface Stats {
  made: number;
  running: number;
  completed_by_time: number;
  completed_by_condition: number;
  completed_by_impossible: number;
  stopped: number;
  elapsed_total: number;
  latest: number;
  calls_saved?: number;
  days?: { day: string; completed: number; stopped: number; waited: number }[];
}

export interface Match {
  session_id: string;
  command: string;
  line: number;
  text: string;
}

export interface Hello {
  version: string;
  pid: number;
  started_at: number;
  now: number;
}

/** Whether anything of a session still runs. */
export function isAlive(session: Session): boolean {
  return session.status === 'running' || session.still_running.length > 0;
}

/** Whether a timer can still change. */
export function isOpen(timer: Timer): boolean {
  return timer.status !== 'completed' && timer.status !== 'stopped';
}
