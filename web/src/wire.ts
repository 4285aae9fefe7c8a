// Types of the daemon's responses, and facts derived from them.

import type { Session, Timer } from './api.gen';

export type {
  Audit,
  AuditLine,
  AuditVerified,
  Delivery,
  Hello,
  LogLine,
  LogLines,
  LogMatches,
  Machine,
  Machines as Fleet,
  Match,
  Message,
  Policy,
  PolicyRule,
  PolicyTested,
  Question,
  QuestionCommand,
  Refusals,
  SandboxRefusals,
  Session,
  SessionPulse as Pulse,
  SessionStats,
  Stats,
  Timer,
} from './api.gen';

export type TimerStatus = Timer['status'];

/** True while a process of the session is running. */
export function isAlive(session: Session): boolean {
  return session.status === 'running' || session.still_running.length > 0;
}

/**
 * True for a command that is run for a condition. Its timer shows it; there may be one every second, so it is not listed
 * among the other sessions.
 */
export function isCheck(session: Session): boolean {
  return session.started_by !== undefined;
}

/** True until the timer has completed or was stopped. */
export function isOpen(timer: Timer): boolean {
  return timer.status !== 'completed' && timer.status !== 'stopped';
}
