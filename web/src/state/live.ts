// The stream of events: opened, read, and opened again when it breaks, with the page told the truth
// about it all the while.

import type { Hello, Message, Pulse, Question, Session, Timer } from '../wire';
import { get, Refused, withQuery } from './api';
import { now, setClock, whenJumped } from './clock';
import { house } from './house';
import { EventParser, type ServerEvent } from './sse';
import { Value } from './value';

export type Link =
  | { state: 'connecting' }
  | { state: 'live' }
  | { state: 'broken'; tries: number; nextAt: number }
  | { state: 'stranger' };

export const link = new Value<Link>({ state: 'connecting' });
export const daemon = new Value<Hello | null>(null);
/** Whether the lists have been read once. */
export const loaded = new Value(false);

/** The stream is never silent for this long: the daemon breathes every 15 seconds. */
const SILENCE = 40_000;
const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 10_000;

type Opened = (question: Question) => void;
let onQuestion: Opened = () => undefined;

export function whenAsked(act: Opened): void {
  onQuestion = act;
  house.whenAsked(act);
}

/** How long to wait before the next try: twice as long each time, and never all pages at once. */
export function pauseBefore(tries: number, chance = Math.random()): number {
  const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** Math.min(tries, 10));
  return longest * (0.75 + chance * 0.25);
}

let lastId: string | undefined;
/** Whether the lists must be read before what the stream says can be trusted. */
let stale = true;
let stop: AbortController | undefined;
let skipPause: (() => void) | undefined;

/** Begins, or begins anew after a login. */
export function connect(): void {
  stop?.abort();
  // Nothing is known of what happened before, nor of who looked at it.
  lastId = undefined;
  stale = true;
  const controller = new AbortController();
  stop = controller;
  link.set({ state: 'connecting' });
  void keepAlive(controller.signal);
}

export function disconnect(): void {
  stop?.abort();
  link.set({ state: 'stranger' });
}

/** Does not wait any longer. */
export function tryNow(): void {
  skipPause?.();
}

// Whoever is connected anew is told what time it is; and of what came while the machine slept.
let beginAnew: (() => void) | undefined;
whenJumped(() => {
  beginAnew?.();
  tryNow();
});

async function keepAlive(signal: AbortSignal): Promise<void> {
  let tries = 0;
  const over = () => signal.aborted;
  while (!over()) {
    try {
      await follow(signal, () => {
        tries = 0;
        link.set({ state: 'live' });
      });
    } catch (fault) {
      if (!over() && fault instanceof Refused && fault.status === 401) {
        link.set({ state: 'stranger' });
        return;
      }
    }
    if (over()) return;
    const pause = pauseBefore(tries);
    tries += 1;
    link.set({ state: 'broken', tries, nextAt: now() + pause });
    await rest(pause, signal);
  }
}

async function rest(pause: number, signal: AbortSignal): Promise<void> {
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

/** One connection, to its end. */
async function follow(signal: AbortSignal, onLive: () => void): Promise<void> {
  const own = new AbortController();
  const end = () => own.abort();
  // Lists that come in after the end do not bring the connection back.
  const live = () => {
    if (!own.signal.aborted) onLive();
  };
  signal.addEventListener('abort', end, { once: true });
  beginAnew = end;
  try {
    const parser = new EventParser();
    const take = (text: string) => {
      for (const event of parser.take(text)) hear(event, live, end);
    };
    // A browser does not say why it was let in nowhere; a plain request does.
    if (!(await listen(take, own.signal))) await get('/v1/status', own.signal);
  } finally {
    signal.removeEventListener('abort', end);
    own.abort();
  }
}

/** Hears all that the daemon says, until it says no more or nobody wants to hear it. `false`: it said nothing. */
function listen(take: (text: string) => void, signal: AbortSignal): Promise<boolean> {
  return new Promise((done, failed) => {
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
    const socket = new WebSocket(`${scheme}://${location.host}${withQuery('/v1/events', { tails: true, last: lastId })}`);
    let heard = false;
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const leave = () => {
      clearTimeout(watchdog);
      signal.removeEventListener('abort', leave);
      socket.onmessage = socket.onclose = null;
      socket.close();
      done(heard);
    };
    const wait = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(leave, SILENCE);
    };
    wait();
    signal.addEventListener('abort', leave);
    socket.onclose = leave;
    socket.onmessage = (message: MessageEvent<string>) => {
      heard = true;
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

function hear(event: ServerEvent, onLive: () => void, giveUp: () => void): void {
  const data: unknown = JSON.parse(event.data);
  if (event.id) lastId = event.id;
  if (event.event === 'hello') {
    const hello = data as Hello;
    setClock(hello.now);
    daemon.set(hello);
    if (stale) load(onLive, giveUp);
    else onLive();
  } else if (event.event === 'reset') {
    stale = true;
    load(onLive, giveUp);
  } else if (event.event === 'timers_changed') {
    house.reloadTimers().catch(() => {
      // Nothing will say again that they have changed.
      stale = true;
      giveUp();
    });
  } else {
    apply(event.event, data);
  }
}

/** Reads the lists while events go on; without them the connection is worth nothing. */
function load(onLive: () => void, giveUp: () => void): void {
  const done = () => {
    stale = false;
    loaded.set(true);
    onLive();
  };
  const early = loaded.get() ? Promise.resolve() : house.first().then(() => loaded.set(true));
  early.then(() => house.load()).then(done, giveUp);
}

interface QuestionEvent extends Question {
  state?: 'open' | 'closed';
}

function apply(kind: string, data: unknown): void {
  if (kind === 'session') house.putSession(data as Session);
  else if (kind === 'output') house.putPulse(data as Pulse);
  else if (kind === 'timer') house.putTimer(data as Timer);
  else if (kind === 'message') house.putMessage(data as Message);
  else if (kind === 'question') {
    const { state, ...question } = data as QuestionEvent;
    if (state === 'closed') {
      house.closeQuestion(question.question_id);
    } else {
      house.putQuestion(question);
      onQuestion(question);
    }
  }
}
