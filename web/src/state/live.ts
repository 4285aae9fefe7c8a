// The event stream: connects, applies events and reconnects after a failure. `connection` always has its current state.

import type { Hello, Message, Pulse, Question, Session, Timer } from '../wire';
import { get, Refused, withQuery } from './api';
import { now, setClock, whenJumped } from './clock';
import { stateCache } from './state-cache';
import { EventParser, type ServerEvent } from './sse';
import { Value } from './value';

export type Connection =
  | { state: 'connecting' }
  | { state: 'live' }
  | { state: 'broken'; tries: number; nextAt: number }
  | { state: 'logged_out' };

export const connection = new Value<Connection>({ state: 'connecting' });
export const daemon = new Value<Hello | null>(null);
/** Set once the lists have been fetched. */
export const loaded = new Value(false);

/** Timeout of the event stream and of a request for the status, in milliseconds. The daemon sends a keep-alive every 15 seconds. */
const SILENCE = 40_000;
const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 10_000;

type QuestionHandler = (question: Question) => void;
let onQuestion: QuestionHandler = () => undefined;

export function whenAsked(act: QuestionHandler): void {
  onQuestion = act;
  stateCache.whenAsked(act);
}

/** Delay before the next attempt: exponential backoff with jitter, so that pages do not reconnect all at once. */
export function pauseBefore(tries: number, chance = Math.random()): number {
  const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** Math.min(tries, 10));
  return longest * (0.75 + chance * 0.25);
}

let lastId: string | undefined;
/** Set while the lists have to be fetched before events can be applied. */
let stale = true;
let stop: AbortController | undefined;
let skipPause: (() => void) | undefined;

/** Connects, or reconnects after a login. */
export function connect(): void {
  stop?.abort();
  // Events before this connection are unknown, and the login may be another one.
  lastId = undefined;
  stale = true;
  const controller = new AbortController();
  stop = controller;
  connection.set({ state: 'connecting' });
  void keepAlive(controller.signal);
}

export function disconnect(): void {
  stop?.abort();
  connection.set({ state: 'logged_out' });
}

/** Ends the current reconnect delay. */
export function tryNow(): void {
  skipPause?.();
}

// A new connection brings the daemon's time, and what happened while the machine slept.
let reconnect: (() => void) | undefined;
whenJumped(() => {
  reconnect?.();
  tryNow();
});

async function keepAlive(signal: AbortSignal): Promise<void> {
  let tries = 0;
  const over = () => signal.aborted;
  while (!over()) {
    try {
      await follow(signal, () => {
        tries = 0;
        connection.set({ state: 'live' });
      });
    } catch (fault) {
      if (!over() && fault instanceof Refused && fault.status === 401) {
        connection.set({ state: 'logged_out' });
        return;
      }
    }
    if (over()) return;
    const pause = pauseBefore(tries);
    tries += 1;
    connection.set({ state: 'broken', tries, nextAt: now() + pause });
    await sleep(pause, signal);
  }
}

async function sleep(pause: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((done) => {
    const over = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', over);
      window.removeEventListener('online', over);
      done();
    };
    const timer = setTimeout(over, pause);
    skipPause = over;
    signal.addEventListener('abort', over);
    window.addEventListener('online', over);
  });
}

/** Follows one connection until it ends. */
async function follow(signal: AbortSignal, onLive: () => void): Promise<void> {
  const own = new AbortController();
  const end = () => own.abort();
  // Lists that arrive after the end of the connection do not mark it as live again.
  const live = () => {
    if (!own.signal.aborted) onLive();
  };
  signal.addEventListener('abort', end, { once: true });
  reconnect = end;
  stateCache.fetchUntil(own.signal);
  try {
    const parser = new EventParser();
    const take = (text: string) => {
      for (const event of parser.take(text)) handleEvent(event, live, end);
    };
    // A browser does not say why a WebSocket was refused; a plain request does.
    if (!(await listen(take, own.signal))) await get('/v1/status', AbortSignal.any([own.signal, AbortSignal.timeout(SILENCE)]));
  } finally {
    signal.removeEventListener('abort', end);
    own.abort();
  }
}

/** Reads the event stream until it ends or `signal` aborts. Resolves to `false` if nothing was received. */
function listen(take: (text: string) => void, signal: AbortSignal): Promise<boolean> {
  return new Promise((done, failed) => {
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
    const socket = new WebSocket(`${scheme}://${location.host}${withQuery('/v1/events', { tails: true, last: lastId })}`);
    let received = false;
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const leave = () => {
      clearTimeout(watchdog);
      signal.removeEventListener('abort', leave);
      socket.onmessage = socket.onclose = null;
      socket.close();
      done(received);
    };
    const wait = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(leave, SILENCE);
    };
    wait();
    signal.addEventListener('abort', leave);
    socket.onclose = leave;
    socket.onmessage = (message: MessageEvent<string>) => {
      received = true;
      wait();
      try {
        take(message.data);
      } catch (fault) {
        failed(fault instanceof Error ? fault : new Error('invalid event from the daemon'));
        leave();
      }
    };
  });
}

function handleEvent(event: ServerEvent, onLive: () => void, drop: () => void): void {
  const data: unknown = JSON.parse(event.data);
  if (event.id) lastId = event.id;
  if (event.event === 'hello') {
    const hello = data as Hello;
    setClock(hello.now);
    daemon.set(hello);
    if (stale) load(onLive, drop);
    else onLive();
  } else if (event.event === 'reset') {
    stale = true;
    load(onLive, drop);
  } else if (event.event === 'timers_changed') {
    stateCache.reloadTimers().catch(() => {
      // The daemon does not repeat this event, so the timers have to be fetched again.
      stale = true;
      drop();
    });
  } else {
    apply(event.event, data);
  }
}

/** Fetches the lists while events continue. If this fails, the connection is dropped. */
function load(onLive: () => void, drop: () => void): void {
  const done = () => {
    stale = false;
    loaded.set(true);
    onLive();
  };
  const early = loaded.get() ? Promise.resolve() : stateCache.first().then(() => loaded.set(true));
  early.then(() => stateCache.load()).then(done, drop);
}

interface QuestionEvent extends Question {
  state?: 'open' | 'closed';
}

function apply(kind: string, data: unknown): void {
  if (kind === 'session') stateCache.putSession(data as Session);
  else if (kind === 'session_removed') stateCache.removeSession((data as Pick<Session, 'session_id'>).session_id);
  else if (kind === 'output') stateCache.putPulse(data as Pulse);
  else if (kind === 'timer') stateCache.putTimer(data as Timer);
  else if (kind === 'message') stateCache.putMessage(data as Message);
  else if (kind === 'question') {
    const { state, ...question } = data as QuestionEvent;
    if (state === 'closed') {
      stateCache.closeQuestion(question.question_id);
    } else {
      stateCache.putQuestion(question);
      onQuestion(question);
    }
  }
}
