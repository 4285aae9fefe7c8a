// What buttons do. Each shows at once what it is about to do, and takes it back when the daemon says
// no, with the daemon's sentence.

import type { Session, Timer } from '../wire';
import { post, postBytes } from './api';
import { now } from './clock';
import { type HeldTimer, house } from './house';
import { tell } from './notes';

/** Why it went wrong, in words. */
export function sentence(fault: unknown): string {
  return fault instanceof Error ? fault.message : String(fault);
}

/** Shows `undo`able work until it is answered. Gives whether it was done. */
async function attempt(undo: () => void, work: () => Promise<unknown>, failed: string): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (fault) {
    tell({ tone: 'bad', title: failed, text: sentence(fault) });
    return false;
  } finally {
    undo();
  }
}

/** The last act on each thing that is not answered yet. */
const underWay = new Map<string, Promise<boolean>>();

/**
 * Acts on one thing are sent one after the other, in the order of the clicks: requests go out on several
 * connections, and one may overtake another.
 */
export function inTurn(id: string, act: () => Promise<boolean>): Promise<boolean> {
  const mine = (underWay.get(id) ?? Promise.resolve(true)).then(act);
  underWay.set(id, mine);
  const leave = () => {
    if (underWay.get(id) === mine) underWay.delete(id);
  };
  mine.then(leave, leave);
  return mine;
}

export const QUIET_FOR = 600;

export async function answer(id: string, word: 'yes' | 'no' | 'quiet'): Promise<boolean> {
  const body = word === 'quiet' ? { answer: 'yes', quiet_for: QUIET_FOR } : { answer: word };
  const work = async () => {
    await post(`/v1/questions/${id}/answer`, body);
    house.closeQuestion(id);
  };
  return attempt(house.questions.lay(id, { answering: word }), work, 'Your answer was not accepted');
}

/** Answers a question about a command that was not started, in the words that the question offers. */
export async function answerCommand(id: string, word: string, because: string): Promise<boolean> {
  const work = async () => {
    await post(`/v1/questions/${id}/answer`, because ? { answer: word, because } : { answer: word });
    house.closeQuestion(id);
  };
  return attempt(house.questions.lay(id, { answering: word }), work, 'Your answer was not accepted');
}

export type TimerAct = 'stop' | 'cancel' | 'pause' | 'resume';

const TIMER_FAILED: Record<TimerAct, string> = {
  stop: 'The timer was not stopped',
  cancel: 'The timer was not sent to the background',
  pause: 'The timer was not paused',
  resume: 'The timer was not resumed',
};

/** How a timer will look. */
export function foreseen(timer: HeldTimer, act: TimerAct, pause: number): Partial<HeldTimer> {
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

export async function timerAct(id: string, act: TimerAct, pause = 60): Promise<boolean> {
  const timer = house.timers.get(id);
  const undo = timer ? house.timers.lay(id, foreseen(timer, act, pause)) : () => undefined;
  const body = act === 'pause' ? { pause_duration: pause } : {};
  const work = async () => {
    const told = await house.ask(id, () => post<Partial<Timer>>(`/v1/timers/${id}/${act}`, body));
    // The daemon's word replaces ours at once; the event that follows says the same.
    const known = house.timers.get(id);
    if (known && told?.timer_id === id) house.putTimer({ ...known, ...told });
  };
  return inTurn(id, () => attempt(undo, work, TIMER_FAILED[act]));
}

export async function kill(id: string): Promise<boolean> {
  const work = async () => {
    const told = await house.ask(id, () => post<Session>(`/v1/sessions/${id}/kill`));
    if (told) house.putSession(told);
  };
  return attempt(house.sessions.lay(id, { ending: true }), work, 'The session was not killed');
}

const encoder = new TextEncoder();

/** Ctrl-C: at a terminal the key itself, so that the program decides; elsewhere the signal. */
export function interrupt(session: Session): Promise<boolean> {
  if (!session.pty) return sendSignal(session.session_id, 'INT');
  const path = `/v1/sessions/${session.session_id}/input`;
  const work = () => postBytes(path, encoder.encode('\x03'));
  return attempt(() => undefined, work, 'Ctrl-C was not sent');
}

export function sendSignal(id: string, signal: string): Promise<boolean> {
  const work = async () => {
    await post(`/v1/sessions/${id}/signal`, { signal });
    tell({ tone: 'good', title: `SIG${signal} sent` });
  };
  return attempt(() => undefined, work, `SIG${signal} was not sent`);
}

/** Changes limits, counted from now; `null` leaves one as it is. */
export async function extend(id: string, timeout: number | null, idle: number | null): Promise<void> {
  const body = { ...(timeout === null ? {} : { timeout }), ...(idle === null ? {} : { idle }) };
  const told = await house.ask(id, () => post<Session>(`/v1/sessions/${id}/extend`, body));
  if (told) house.putSession(told);
}

/** Runs the command of a session in a new one. Gives its id, or `null` where it was refused. */
export async function rerun(session: Session): Promise<string | null> {
  const { command, cwd, pty } = session;
  let id: string | null = null;
  const work = async () => {
    const started = await post<Session>('/v1/sessions', { command, cwd, pty, inactivity_timeout: 0 });
    if (!house.sessions.get(started.session_id)) house.putSession(started);
    id = started.session_id;
  };
  await attempt(() => undefined, work, 'The command was not run again');
  return id;
}

export function deleteSession(id: string): Promise<boolean> {
  const work = async () => {
    await post(`/v1/sessions/${id}/delete`);
    house.removeSession(id);
    tell({ tone: 'good', title: 'The session was deleted' });
  };
  return attempt(() => undefined, work, 'The session was not deleted');
}

export async function wakeAgain(id: string): Promise<boolean> {
  const work = async () => {
    // What comes of it is told by events alone: the answer is the message as it was before.
    await post(`/v1/messages/${id}/wake`);
    tell({ tone: 'good', title: 'The message is being sent again' });
  };
  return attempt(() => undefined, work, 'The message was not sent again');
}
