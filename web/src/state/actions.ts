// Actions of buttons. Each shows its expected result at once, and reverts it with the daemon's error text if the daemon
// refuses.

import type { Session, Timer } from '../wire';
import { post, postBytes } from './api';
import { now } from './clock';
import { type CachedTimer, stateCache } from './state-cache';
import { showToast } from './toasts';

/** The text of an error. */
export function errorMessage(fault: unknown): string {
  return fault instanceof Error ? fault.message : String(fault);
}

/** Runs an action and calls `undo` when it has been answered. Resolves to whether it succeeded. */
async function attempt(undo: () => void, work: () => Promise<unknown>, failed: string): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (fault) {
    showToast({ tone: 'bad', title: failed, text: errorMessage(fault) });
    return false;
  } finally {
    undo();
  }
}

/** The last unanswered action on each entry. */
const pendingActions = new Map<string, Promise<boolean>>();

/**
 * Actions on one entry are sent one after the other, in the order of the clicks: requests use several connections, and
 * one may overtake another.
 */
export function inTurn(id: string, act: () => Promise<boolean>): Promise<boolean> {
  const mine = (pendingActions.get(id) ?? Promise.resolve(true)).then(act);
  pendingActions.set(id, mine);
  const leave = () => {
    if (pendingActions.get(id) === mine) pendingActions.delete(id);
  };
  mine.then(leave, leave);
  return mine;
}

const QUIET_FOR = 600;

export async function answer(id: string, word: 'yes' | 'no' | 'quiet'): Promise<boolean> {
  const body = word === 'quiet' ? { answer: 'yes', quiet_for: QUIET_FOR } : { answer: word };
  const work = async () => {
    await post(`/v1/questions/${id}/answer`, body);
    stateCache.closeQuestion(id);
  };
  return attempt(stateCache.questions.overlay(id, { answering: word }), work, 'Your answer was not accepted');
}

/** Answers a question about a command that has not been started, with one of the offered answers. */
export async function answerCommand(id: string, word: string, because: string): Promise<boolean> {
  const work = async () => {
    await post(`/v1/questions/${id}/answer`, because ? { answer: word, because } : { answer: word });
    stateCache.closeQuestion(id);
  };
  return attempt(stateCache.questions.overlay(id, { answering: word }), work, 'Your answer was not accepted');
}

export type TimerAction = 'stop' | 'cancel' | 'pause' | 'resume';

const TIMER_FAILED: Record<TimerAction, string> = {
  stop: 'The timer was not stopped',
  cancel: 'The timer was not sent to the background',
  pause: 'The timer was not paused',
  resume: 'The timer was not resumed',
};

/** The expected state of a timer after an action. */
export function optimisticUpdate(timer: CachedTimer, act: TimerAction, pause: number): Partial<CachedTimer> {
  const left = timer.due === null ? timer.remaining_time : Math.max(0, (timer.due - now()) / 1_000);
  const times = { remaining_time: left, elapsed_time: timer.total_duration - left };
  switch (act) {
    case 'stop':
      return { ...times, status: 'stopped', due: null };
    case 'cancel':
      return { status: 'running_background' };
    case 'pause':
      return { ...times, status: 'paused', due: null, pause_until: now() + pause * 1_000 };
    case 'resume':
      return { ...times, status: 'running', due: now() + left * 1_000 };
  }
}

export async function timerAction(id: string, act: TimerAction, pause = 60): Promise<boolean> {
  const timer = stateCache.timers.get(id);
  const undo = timer ? stateCache.timers.overlay(id, optimisticUpdate(timer, act, pause)) : () => undefined;
  const body = act === 'pause' ? { pause_duration: pause } : {};
  const work = async () => {
    const response = await stateCache.ask(id, () => post<Partial<Timer>>(`/v1/timers/${id}/${act}`, body));
    // The daemon's response replaces the overlay at once; the event that follows has the same content.
    const known = stateCache.timers.get(id);
    if (known && response?.timer_id === id) stateCache.putTimer({ ...known, ...response });
  };
  return inTurn(id, () => attempt(undo, work, TIMER_FAILED[act]));
}

export async function kill(id: string): Promise<boolean> {
  const work = async () => {
    const response = await stateCache.ask(id, () => post<Session>(`/v1/sessions/${id}/kill`));
    if (response) stateCache.putSession(response);
  };
  return attempt(stateCache.sessions.overlay(id, { ending: true }), work, 'The session was not killed');
}

const encoder = new TextEncoder();

/** Ctrl-C: in a terminal the key, so that the program handles it; otherwise SIGINT. */
export function interrupt(session: Session): Promise<boolean> {
  if (!session.pty) return sendSignal(session.session_id, 'INT');
  const path = `/v1/sessions/${session.session_id}/input`;
  const work = () => postBytes(path, encoder.encode('\x03'));
  return attempt(() => undefined, work, 'Ctrl-C was not sent');
}

export function sendSignal(id: string, signal: string): Promise<boolean> {
  const work = async () => {
    await post(`/v1/sessions/${id}/signal`, { signal });
    showToast({ tone: 'good', title: `SIG${signal} sent` });
  };
  return attempt(() => undefined, work, `SIG${signal} was not sent`);
}

/** Changes limits, counted from now; `null` leaves a limit unchanged. */
export async function extend(id: string, timeout: number | null, idle: number | null): Promise<void> {
  const body = { ...(timeout === null ? {} : { timeout }), ...(idle === null ? {} : { idle }) };
  const response = await stateCache.ask(id, () => post<Session>(`/v1/sessions/${id}/extend`, body));
  if (response) stateCache.putSession(response);
}

/** Renames a session; an empty name removes the name. */
export async function rename(id: string, name: string): Promise<void> {
  const response = await stateCache.ask(id, () => post<Session>(`/v1/sessions/${id}/rename`, { name }));
  if (response) stateCache.putSession(response);
}

/** Sandbox of a command that a person runs; empty: none. */
export type Sandbox = 'workspace-write' | 'read-only' | '';

/** Runs the command of a session in a new session. Resolves to its id, or `null` if it was refused. */
export async function rerun(session: Session, sandbox: Sandbox): Promise<string | null> {
  const { command, cwd, pty, name } = session;
  let id: string | null = null;
  const work = async () => {
    const wanted = { command, cwd, pty, name, inactivity_timeout: 0, ...(sandbox ? { sandbox } : {}) };
    const started = await post<Session>('/v1/sessions', wanted);
    if (!stateCache.sessions.get(started.session_id)) stateCache.putSession(started);
    id = started.session_id;
  };
  await attempt(() => undefined, work, 'The command was not run again');
  return id;
}

export function deleteSession(id: string): Promise<boolean> {
  const work = async () => {
    await post(`/v1/sessions/${id}/delete`);
    stateCache.removeSession(id);
    showToast({ tone: 'good', title: 'The session was deleted' });
  };
  return attempt(() => undefined, work, 'The session was not deleted');
}

export async function wakeAgain(id: string): Promise<boolean> {
  const work = async () => {
    // The result arrives as an event: the response is the message as it was before.
    await post(`/v1/messages/${id}/wake`);
    showToast({ tone: 'good', title: 'The message is being sent again' });
  };
  return attempt(() => undefined, work, 'The message was not sent again');
}
