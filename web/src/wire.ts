// Types of what the daemon sends, and what can be told from them.

import type { Session, Timer } from './api.gen';

export type {
  Delivery,
  Hello,
  LogLine,
  LogLines,
  LogMatches,
  Match,
  Message,
  Question,
  QuestionCommand,
  Session,
  SessionPulse as Pulse,
  Stats,
  Timer,
} from './api.gen';

export type TimerStatus = Timer['status'];

/** Whether anything of a session still runs. */
export function isAlive(session: Session): boolean {
  return session.status === 'running' || session.still_running.length > 0;
}

/** Whether a timer can still change. */
export function isOpen(timer: Timer): boolean {
  return timer.status !== 'completed' && timer.status !== 'stopped';
}
