import { afterEach, expect, test, vi } from 'vitest';
import type { Message, Pulse, Session, Timer } from '../wire';
import { foreseen, inTurn } from './acts';
import { setClock } from './clock';
import { held, House, TIMERS_HELD } from './house';
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

/** Answers every list as `lists` says, and waits for `gate` with the timers. */
function daemon(lists: Record<string, unknown>, gate: Promise<void>) {
  const empty = { questions: [], sessions: [], messages: [], timers: [], next: null };
  vi.stubGlobal('fetch', async (path: string) => {
    const at = path.split('?')[0] ?? '';
    if (at === '/v1/timers') await gate;
    return new Response(JSON.stringify(lists[path] ?? lists[at] ?? empty));
  });
}

/** Until `holds` is true, looked at after each turn of the loop. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((done) => setImmediate(done));
}

test('what an event tells while a list is read is not overwritten by the list', async () => {
  let open: () => void = () => undefined;
  const gate = new Promise<void>((done) => (open = done));
  daemon({ '/v1/timers': { timers: [timer('a'), timer('b')], next: null } }, gate);
  const house = new House(() => undefined);
  const loading = house.load();
  house.putTimer(timer('a', { status: 'paused' }));
  open();
  await loading;
  expect(house.timers.get('a')?.status).toBe('paused');
  expect(house.timers.get('b')?.status).toBe('running');
});

test('an answer that an event has overtaken is let go of', async () => {
  const house = new House(() => undefined);
  const alone = await house.ask('a', () => Promise.resolve(timer('a')));
  expect(alone?.timer_id).toBe('a');
  const overtaken = await house.ask('a', () => {
    house.putTimer(timer('a', { status: 'paused' }));
    return Promise.resolve(timer('a'));
  });
  expect(overtaken).toBeUndefined();
});

test('a list is read to its last page', async () => {
  daemon(
    {
      '/v1/timers?limit=1000': { timers: [timer('a')], next: 'a' },
      '/v1/timers?limit=1000&after=a': { timers: [timer('b')], next: null },
    },
    Promise.resolve(),
  );
  const house = new House(() => undefined);
  await house.load();
  expect([...house.timers.all()].map((held) => held.timer_id)).toEqual(['a', 'b']);
});

/** A house whose lists end with the sessions `a` and go on after it, and what answers the next page. */
async function withOlderOnes(): Promise<{ house: House; answer: (page: Promise<Response>) => void }> {
  let answer: (page: Promise<Response>) => void = () => undefined;
  const page = new Promise<Response>((done) => (answer = done));
  const lists = { '/v1/sessions?include_ended=true&limit=200': { sessions: [session('a')], next: 'a' } };
  daemon(lists, Promise.resolve());
  const house = new House(() => undefined);
  await house.load();
  const told = fetch;
  vi.stubGlobal('fetch', (path: string) => (path.includes('after=') ? page : told(path)));
  return { house, answer };
}

test('older ones that could not be read are there to be asked for again', async () => {
  const { house, answer } = await withOlderOnes();
  const more = house.moreSessions();
  expect(house.olderSessions).toBeNull();
  answer(Promise.reject(new Error('gone')));
  await expect(more).rejects.toThrow('does not answer');
  expect(house.olderSessions).toBe('a');
});

test('older ones of a list that was read anew meanwhile are let go of', async () => {
  const { house, answer } = await withOlderOnes();
  const more = house.moreSessions();
  await house.load();
  answer(Promise.resolve(new Response(JSON.stringify({ sessions: [session('z')], next: 'z' }))));
  await more;
  expect([house.olderSessions, house.sessions.get('z')]).toEqual(['a', undefined]);
});

test('however often the daemon says that timers changed, one reading follows another', async () => {
  vi.useFakeTimers();
  const asked: string[] = [];
  vi.stubGlobal('fetch', (path: string) => {
    asked.push(path);
    return Promise.resolve(new Response(JSON.stringify({ timers: [timer('a')], next: null, total: 1 })));
  });
  const house = new House(() => undefined);
  for (let n = 0; n < 50; n += 1) void house.reloadTimers();
  const all = house.reloadTimers();
  await vi.advanceTimersByTimeAsync(10_000);
  await all;
  expect(asked).toHaveLength(2);
  vi.useRealTimers();
});

test('of too many timers those that are due next are held, and the others are counted', async () => {
  const total = TIMERS_HELD + 5_000;
  vi.stubGlobal('fetch', (path: string) => {
    const query = new URLSearchParams(path.split('?')[1]);
    const from = Number(query.get('after') ?? 0);
    const name = query.get('sort') ?? 'any';
    const timers = Array.from({ length: 1_000 }, (_, n) => timer(`${name} ${from + n}`));
    return Promise.resolve(new Response(JSON.stringify({ timers, next: String(from + 1_000), total })));
  });
  const house = new House(() => undefined);
  await Promise.race([house.reloadTimers(), until(() => house.timers.tally === TIMERS_HELD)]);
  expect(house.moreTimers.get()).toBe(5_000);
  expect(house.timers.get('remaining 0')).toBeDefined();
  expect(house.timers.get('any 0')).toBeUndefined();
});

test('a timer that has ended is let go, and whoever reads the history hears of it', () => {
  const house = new House(() => undefined);
  const heard = vi.fn();
  house.endedTimers.subscribe(heard);
  house.putTimer(timer('a'));
  expect([house.timers.tally, heard.mock.calls.length]).toEqual([1, 0]);
  house.putTimer(timer('a', { status: 'completed' }));
  expect([house.timers.tally, house.timers.size, heard.mock.calls.length]).toEqual([0, 0, 1]);
});

test('a timer that runs is due by the daemon’s clock, one that is paused is not', () => {
  vi.useFakeTimers();
  setClock(Date.now() + 5_000_000);
  expect(held(timer('a')).due).toBe(Date.now() + 5_060_000);
  expect(held(timer('a', { status: 'paused' })).due).toBeNull();
  vi.useRealTimers();
});

test('elapsed and remaining time add up in what a button foresees', () => {
  for (const act of ['stop', 'pause', 'resume'] as const) {
    const seen = foreseen(held(timer('a')), act, 60);
    expect((seen.elapsed_time ?? 0) + (seen.remaining_time ?? 0)).toBeCloseTo(100, 6);
  }
});

test('the pauses between tries grow and stay bounded', () => {
  const pauses = Array.from({ length: 12 }, (_, tries) => pauseBefore(tries, 1));
  expect(pauses.slice(0, 4)).toEqual([300, 600, 1_200, 2_400]);
  expect(Math.max(...pauses)).toBe(10_000);
  expect(pauseBefore(0, 0)).toBe(225);
});

test('acts on one thing follow each other, and those on another do not wait', async () => {
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

test('what has ended while nobody listened has no pulse any more', async () => {
  const house = new House(() => undefined);
  house.putSession({ ...session('a'), status: 'running' });
  house.putPulse(pulse('a'));
  expect(house.pulses.get('a')?.cpu).toBe(0.9);
  daemon({ '/v1/sessions?include_ended=true&limit=200': { sessions: [session('a')], next: null } }, Promise.resolve());
  await house.load();
  expect(house.sessions.get('a')?.status).toBe('exited');
  expect(house.pulses.get('a')).toBeUndefined();
});

test('a pulse that comes after the end is let go of', () => {
  const house = new House(() => undefined);
  house.putSession(session('a'));
  house.putPulse(pulse('a'));
  expect(house.pulses.get('a')).toBeUndefined();
});

test('a question that was asked while nobody listened is told of once the lists are read again', async () => {
  const asked = (id: string) => ({ question_id: id, question: '?', command: 'x' });
  const house = new House(() => undefined);
  const heard: string[] = [];
  house.whenAsked((question) => heard.push(question.question_id));
  daemon({ '/v1/questions': { questions: [asked('first')] } }, Promise.resolve());
  await house.load();
  expect(heard).toEqual([]);
  daemon({ '/v1/questions': { questions: [asked('first'), asked('second')] } }, Promise.resolve());
  await house.load();
  expect(heard).toEqual(['second']);
});

test('whoever shows the history hears that the lists were read again', async () => {
  const house = new House(() => undefined);
  const heard = vi.fn();
  house.endedTimers.subscribe(heard);
  daemon({}, Promise.resolve());
  await house.load();
  expect(heard).toHaveBeenCalledTimes(1);
});

test('messages that were let go of can be read again', () => {
  const house = new House(() => undefined);
  house.olderMessages = 'long ago';
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
  for (let n = 0; n <= 2_200; n += 1) house.putMessage(message(n));
  expect(house.messages.size).toBe(2_000);
  expect([house.messages.get('m200'), house.messages.get('m201')?.message_id]).toEqual([undefined, 'm201']);
  expect(house.olderMessages).toBe('m201');
});

test('the first view is read in small lists, and says how much more there is', async () => {
  daemon(
    {
      '/v1/timers?sort=remaining&limit=20': { timers: [timer('a')], next: 'a', total: 2_000 },
      '/v1/sessions?tails=true&limit=20': { sessions: [{ ...session('s'), status: 'running' }], next: 's', total: 100 },
    },
    Promise.resolve(),
  );
  const house = new House((flush) => flush());
  await house.first();
  expect([house.timers.tally, house.moreTimers.get()]).toEqual([1, 1_999]);
  expect([house.sessions.tally, house.laterSessions.get()]).toEqual([1, 99]);
  await house.load();
  expect([house.moreTimers.get(), house.laterSessions.get()]).toEqual([0, 0]);
});
