import { afterEach, expect, test, vi } from 'vitest';
import type { Message, Pulse, Session, Timer } from '../wire';
import { optimisticUpdate, inTurn } from './actions';
import { setClock } from './clock';
import { withDueTime, StateCache, MAX_TIMERS } from './state-cache';
import { pauseBefore } from './live';

const timer = (id: string, more: Partial<Timer> = {}): Timer => ({
  timer_id: id,
  timer_type: 'waiting',
  agent: 'me',
  total_duration: 100,
  timeout_duration: 100,
  elapsed_time: 40,
  remaining_time: 60,
  status: 'running',
  reason: id,
  created_at: 0,
  last_check_at: 0,
  standing_by: false,
  until: null,
  ...more,
});

const session = (id: string): Session => ({
  session_id: id,
  status: 'exited',
  command: 'true',
  agent: 'me',
  cwd: '/',
  pty: false,
  created_at: 0,
  last_activity: 0,
  duration: 0,
  bytes_total: 0,
  bytes_dropped: 0,
  exit_code: 0,
  signal: null,
  end: 'exited',
  still_running: [],
  contained_by: null,
  sandboxed_by: null,
  sandbox_gaps: [],
  timeout: null,
  idle: null,
  idle_for: null,
  inactivity_timeout: null,
});

afterEach(() => vi.unstubAllGlobals());

/** Answers every list from `lists`; the response of the timers waits for `gate`. */
function daemon(lists: Record<string, unknown>, gate: Promise<void>) {
  const empty = { questions: [], sessions: [], messages: [], timers: [], next: null };
  vi.stubGlobal('fetch', async (path: string) => {
    const at = path.split('?')[0] ?? '';
    if (at === '/v1/timers') await gate;
    return new Response(JSON.stringify(lists[path] ?? lists[at] ?? empty));
  });
}

/** Waits until `holds` is true, checked after each turn of the event loop. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((done) => setImmediate(done));
}

test('an event during a fetch is not overwritten by the list', async () => {
  let open: () => void = () => undefined;
  const gate = new Promise<void>((done) => (open = done));
  daemon({ '/v1/timers': { timers: [timer('a'), timer('b')], next: null } }, gate);
  const stateCache = new StateCache(() => undefined);
  const loading = stateCache.load();
  stateCache.putTimer(timer('a', { status: 'paused' }));
  open();
  await loading;
  expect(stateCache.timers.get('a')?.status).toBe('paused');
  expect(stateCache.timers.get('b')?.status).toBe('running');
});

test('a response that an event has overtaken is dropped', async () => {
  const stateCache = new StateCache(() => undefined);
  const alone = await stateCache.ask('a', () => Promise.resolve(timer('a')));
  expect(alone?.timer_id).toBe('a');
  const overtaken = await stateCache.ask('a', () => {
    stateCache.putTimer(timer('a', { status: 'paused' }));
    return Promise.resolve(timer('a'));
  });
  expect(overtaken).toBeUndefined();
});

test('all pages of a list are fetched', async () => {
  daemon(
    {
      '/v1/timers?limit=1000': { timers: [timer('a')], next: 'a' },
      '/v1/timers?limit=1000&after=a': { timers: [timer('b')], next: null },
    },
    Promise.resolve(),
  );
  const stateCache = new StateCache(() => undefined);
  await stateCache.load();
  expect([...stateCache.timers.all()].map((held) => held.timer_id)).toEqual(['a', 'b']);
});

/**
 * A cache whose list of sessions ends with `a` and has another page, and a function that answers the request for that
 * page.
 */
async function withOlderOnes(): Promise<{ stateCache: StateCache; answer: (page: Promise<Response>) => void }> {
  let answer: (page: Promise<Response>) => void = () => undefined;
  const page = new Promise<Response>((done) => (answer = done));
  const lists = { '/v1/sessions?include_ended=true&limit=200': { sessions: [session('a')], next: 'a' } };
  daemon(lists, Promise.resolve());
  const stateCache = new StateCache(() => undefined);
  await stateCache.load();
  const listFetch = fetch;
  vi.stubGlobal('fetch', (path: string) => (path.includes('after=') ? page : listFetch(path)));
  return { stateCache, answer };
}

test('older entries are fetched again after an error', async () => {
  const { stateCache, answer } = await withOlderOnes();
  const more = stateCache.moreSessions();
  expect(stateCache.olderSessions).toBeNull();
  answer(Promise.reject(new Error('gone')));
  await expect(more).rejects.toThrow('does not answer');
  expect(stateCache.olderSessions).toBe('a');
});

test('older entries of a list that was fetched again meanwhile are dropped', async () => {
  const { stateCache, answer } = await withOlderOnes();
  const more = stateCache.moreSessions();
  await stateCache.load();
  answer(Promise.resolve(new Response(JSON.stringify({ sessions: [session('z')], next: 'z' }))));
  await more;
  expect([stateCache.olderSessions, stateCache.sessions.get('z')]).toEqual(['a', undefined]);
});

test('repeated timers_changed events cause one fetch at a time', async () => {
  vi.useFakeTimers();
  const asked: string[] = [];
  vi.stubGlobal('fetch', (path: string) => {
    asked.push(path);
    return Promise.resolve(new Response(JSON.stringify({ timers: [timer('a')], next: null, total: 1 })));
  });
  const stateCache = new StateCache(() => undefined);
  for (let n = 0; n < 50; n += 1) void stateCache.reloadTimers();
  const all = stateCache.reloadTimers();
  await vi.advanceTimersByTimeAsync(10_000);
  await all;
  expect(asked).toHaveLength(2);
  vi.useRealTimers();
});

test('above the limit the timers that are due next are cached and the others counted', async () => {
  const total = MAX_TIMERS + 5_000;
  vi.stubGlobal('fetch', (path: string) => {
    const query = new URLSearchParams(path.split('?')[1]);
    const from = Number(query.get('after') ?? 0);
    const name = query.get('sort') ?? 'any';
    const timers = Array.from({ length: 1_000 }, (_, n) => timer(`${name} ${from + n}`));
    return Promise.resolve(new Response(JSON.stringify({ timers, next: String(from + 1_000), total })));
  });
  const stateCache = new StateCache(() => undefined);
  await Promise.race([stateCache.reloadTimers(), until(() => stateCache.timers.tally === MAX_TIMERS)]);
  expect(stateCache.unloadedTimers.get()).toBe(5_000);
  expect(stateCache.timers.get('remaining 0')).toBeDefined();
  expect(stateCache.timers.get('any 0')).toBeUndefined();
});

test('an ended timer leaves the cache and updates the history', () => {
  const stateCache = new StateCache(() => undefined);
  const heard = vi.fn();
  stateCache.endedTimers.subscribe(heard);
  stateCache.putTimer(timer('a'));
  expect([stateCache.timers.tally, heard.mock.calls.length]).toEqual([1, 0]);
  stateCache.putTimer(timer('a', { status: 'completed' }));
  expect([stateCache.timers.tally, stateCache.timers.size, heard.mock.calls.length]).toEqual([0, 0, 1]);
});

test('a running timer has a due time by the daemon’s clock, a paused one has none', () => {
  vi.useFakeTimers();
  setClock(Date.now() + 5_000_000);
  expect(withDueTime(timer('a')).due).toBe(Date.now() + 5_060_000);
  expect(withDueTime(timer('a', { status: 'paused' })).due).toBeNull();
  vi.useRealTimers();
});

test('elapsed and remaining time add up in an optimistic update', () => {
  for (const act of ['stop', 'pause', 'resume'] as const) {
    const seen = optimisticUpdate(withDueTime(timer('a')), act, 60);
    expect((seen.elapsed_time ?? 0) + (seen.remaining_time ?? 0)).toBeCloseTo(100, 6);
  }
});

test('reconnect delays grow and stay bounded', () => {
  const pauses = Array.from({ length: 12 }, (_, tries) => pauseBefore(tries, 1));
  expect(pauses.slice(0, 4)).toEqual([300, 600, 1_200, 2_400]);
  expect(Math.max(...pauses)).toBe(10_000);
  expect(pauseBefore(0, 0)).toBe(225);
});

test('actions on one entry run in order, actions on another do not wait', async () => {
  const said: string[] = [];
  let first: (done: boolean) => void = () => undefined;
  const act = (word: string, answer: Promise<boolean>) => () => {
    said.push(word);
    return answer;
  };
  const pause = inTurn('a', act('pause', new Promise((done) => (first = done))));
  const resume = inTurn('a', act('resume', Promise.resolve(true)));
  await inTurn('b', act('stop', Promise.resolve(true)));
  expect(said).toEqual(['pause', 'stop']);
  first(false);
  expect(await Promise.all([pause, resume])).toEqual([false, true]);
  expect(said).toEqual(['pause', 'stop', 'resume']);
});

const pulse = (id: string): Pulse => ({
  session_id: id,
  bytes_total: 5,
  last_activity: 0,
  tail: ['x'],
  cpu: 0.9,
  memory: 1,
  waiting_for_input: false,
});

test('a session that ended without an event has no pulse', async () => {
  const stateCache = new StateCache(() => undefined);
  stateCache.putSession({ ...session('a'), status: 'running' });
  stateCache.putPulse(pulse('a'));
  expect(stateCache.pulses.get('a')?.cpu).toBe(0.9);
  daemon({ '/v1/sessions?include_ended=true&limit=200': { sessions: [session('a')], next: null } }, Promise.resolve());
  await stateCache.load();
  expect(stateCache.sessions.get('a')?.status).toBe('exited');
  expect(stateCache.pulses.get('a')).toBeUndefined();
});

test('a pulse after the end of its session is ignored', () => {
  const stateCache = new StateCache(() => undefined);
  stateCache.putSession(session('a'));
  stateCache.putPulse(pulse('a'));
  expect(stateCache.pulses.get('a')).toBeUndefined();
});

/** A daemon that never answers, as on a connection that is lost. */
function hangingDaemon(): void {
  vi.stubGlobal('fetch', (_: string, { signal }: RequestInit) => {
    return new Promise((_, failed) => signal?.addEventListener('abort', () => failed(new Error('aborted'))));
  });
}

test('lists of a lost connection are not waited for', async () => {
  const stateCache = new StateCache(() => undefined);
  const lost = new AbortController();
  stateCache.fetchUntil(lost.signal);
  hangingDaemon();
  const hanging = Promise.allSettled([stateCache.load(), stateCache.reloadTimers()]);
  lost.abort();
  daemon({ '/v1/timers': { timers: [timer('a')], next: null, total: 1 } }, Promise.resolve());
  stateCache.fetchUntil(new AbortController().signal);
  await stateCache.load();
  expect(stateCache.timers.get('a')?.status).toBe('running');
  stateCache.timers.remove('a');
  await Promise.race([stateCache.reloadTimers(), until(() => stateCache.timers.get('a') !== undefined)]);
  expect((await hanging).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
});

test('a question without an event is announced when the lists are fetched again', async () => {
  const asked = (id: string) => ({ question_id: id, question: '?', command: 'x' });
  const stateCache = new StateCache(() => undefined);
  const heard: string[] = [];
  stateCache.whenAsked((question) => heard.push(question.question_id));
  daemon({ '/v1/questions': { questions: [asked('first')] } }, Promise.resolve());
  await stateCache.load();
  expect(heard).toEqual([]);
  daemon({ '/v1/questions': { questions: [asked('first'), asked('second')] } }, Promise.resolve());
  await stateCache.load();
  expect(heard).toEqual(['second']);
});

test('the history is notified when the lists are fetched again', async () => {
  const stateCache = new StateCache(() => undefined);
  const heard = vi.fn();
  stateCache.endedTimers.subscribe(heard);
  daemon({}, Promise.resolve());
  await stateCache.load();
  expect(heard).toHaveBeenCalledTimes(1);
});

test('messages that left the cache can be fetched again', () => {
  const stateCache = new StateCache(() => undefined);
  stateCache.olderMessages = 'long ago';
  const message = (n: number): Message => ({
    message_id: `m${n}`,
    agent: 'me',
    text: '',
    created_at: n,
    seen_at: null,
    woken_at: null,
    wake_attempts: 0,
    wake_fault: null,
    deliveries: [],
  });
  for (let n = 0; n <= 2_200; n += 1) stateCache.putMessage(message(n));
  expect(stateCache.messages.size).toBe(2_000);
  expect([stateCache.messages.get('m200'), stateCache.messages.get('m201')?.message_id]).toEqual([undefined, 'm201']);
  expect(stateCache.olderMessages).toBe('m201');
});

test('the first fetch is small and counts the remaining entries', async () => {
  daemon(
    {
      '/v1/timers?sort=remaining&limit=20': { timers: [timer('a')], next: 'a', total: 2_000 },
      '/v1/sessions?tails=true&limit=20': { sessions: [{ ...session('s'), status: 'running' }], next: 's', total: 100 },
    },
    Promise.resolve(),
  );
  const stateCache = new StateCache((flush) => flush());
  await stateCache.first();
  expect([stateCache.timers.tally, stateCache.unloadedTimers.get()]).toEqual([1, 1_999]);
  expect([stateCache.sessions.tally, stateCache.unloadedSessions.get()]).toEqual([1, 99]);
  await stateCache.load();
  expect([stateCache.unloadedTimers.get(), stateCache.unloadedSessions.get()]).toEqual([0, 0]);
});
