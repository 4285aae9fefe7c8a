// The page's copy of the daemon's state: the lists as they were fetched, updated by events since then.

import { isAlive, isCheck, isOpen, type Message, type Pulse, type Question, type Session, type Timer } from '../wire';
import { get, withQuery } from './api';
import { now } from './clock';
import { KeyedStore, type Later } from './keyed-store';
import { Value } from './value';

/** A timer with the time at which it is due, so that its countdown can be drawn without another request. */
export interface CachedTimer extends Timer {
  due: number | null;
}

/** A question, and the answer that is being sent from this page. */
export interface CachedQuestion extends Question {
  answering?: string;
}

/** A session; `ending` is set while this page is killing it. */
export interface CachedSession extends Session {
  ending?: boolean;
}

const PAGE = 1_000;
/** Ended sessions and messages that are fetched at the start. More are fetched when the list is scrolled. */
const RECENT = 200;
/** Entries of each kind that are fetched first, so that the first view is drawn early. */
const FIRST = 20;
/** Messages in the cache. Older ones are fetched again when they are needed. */
const MAX_MESSAGES = 2_000;
/** Messages above `MAX_MESSAGES` before the oldest ones are removed, all at once. */
const MESSAGES_SLACK = 200;
/** Sessions that may end before the list is fetched again, so that the cache does not grow without limit. */
const MAX_ENDED_SESSIONS = 4_000;
/** Timers in the cache. If there are more, the cache has those that are due next. */
export const MAX_TIMERS = 20_000;
/** Minimum time between two fetches of the timers, in milliseconds. */
const TIMERS_EVERY = 1_000;

export function withDueTime(timer: Timer): CachedTimer {
  const runs = timer.status === 'running' || timer.status === 'running_background';
  return { ...timer, due: runs ? now() + timer.remaining_time * 1_000 : null };
}

interface Page {
  next?: string | null;
  total?: number;
}

export class StateCache {
  readonly sessions: KeyedStore<CachedSession>;
  readonly pulses: KeyedStore<Pulse>;
  readonly timers: KeyedStore<CachedTimer>;
  readonly questions: KeyedStore<CachedQuestion>;
  readonly messages: KeyedStore<Message>;
  /** Increases with every timer that ends. */
  readonly endedTimers = new Value(0);
  /** Active timers that are not in the cache because there are too many. */
  readonly unloadedTimers = new Value(0);
  /** Running sessions that have not been fetched yet. */
  readonly unloadedSessions = new Value(0);
  /** Cursors of the next page of ended sessions and of messages. */
  olderSessions: string | null = null;
  olderMessages: string | null = null;
  /** For each fetch in progress: the keys that events have updated since it began. */
  private readonly readings = new Set<Set<string>>();
  /** Aborts when the connection is lost. */
  private signal: AbortSignal | undefined;
  private loading: Promise<void> | undefined;
  private again = false;
  private endedSessions = 0;
  /** How often all lists were fetched. */
  readonly timesRead = new Value(0);
  private readingTimers: Promise<void> | undefined;
  private timersAgain = false;
  private onQuestion: (question: Question) => void = () => undefined;

  constructor(later?: Later) {
    this.sessions = new KeyedStore<CachedSession>((session) => session.session_id, later, (session) => isAlive(session) && !isCheck(session));
    this.pulses = new KeyedStore((pulse) => pulse.session_id, later);
    this.timers = new KeyedStore<CachedTimer>((timer) => timer.timer_id, later, isOpen);
    this.questions = new KeyedStore((question) => question.question_id, later);
    this.messages = new KeyedStore((message) => message.message_id, later);
  }

  /** Sets the handler of questions that are found in a list without an event. */
  whenAsked(act: (question: Question) => void): void {
    this.onQuestion = act;
  }

  /**
   * Sets the signal that ends the fetches of lists: a request whose connection is lost may never be answered. Fetches
   * of the connection before are no longer waited for.
   */
  fetchUntil(signal: AbortSignal): void {
    this.signal = signal;
    this.loading = this.readingTimers = undefined;
    this.again = this.timersAgain = false;
  }

  private get<T>(path: string): Promise<T> {
    return get<T>(path, this.signal);
  }

  /** Fetches all pages of a list. */
  private async allPages<T>(path: string, query: Record<string, string | boolean>, field: string): Promise<T[]> {
    const all: T[] = [];
    let after: string | undefined;
    do {
      const page: Page & Record<string, unknown> = await this.get(withQuery(path, { ...query, limit: PAGE, after }));
      all.push(...((page[field] ?? []) as T[]));
      after = page.next ?? undefined;
    } while (after);
    return all;
  }

  /** Fetches only what the first view shows. `load` has to follow. */
  first(): Promise<void> {
    return this.reading(async (newer) => {
      const [questions, running, recent, timers, messages] = await Promise.all([
        this.get<{ questions: Question[] }>('/v1/questions'),
        this.get<Page & { sessions: Session[] }>(withQuery('/v1/sessions', { tails: true, limit: FIRST })),
        this.get<Page & { sessions: Session[] }>(withQuery('/v1/sessions', { include_ended: true, limit: FIRST })),
        this.get<Page & { timers: Timer[] }>(withQuery('/v1/timers', { sort: 'remaining', limit: FIRST })),
        this.get<Page & { messages: Message[] }>(withQuery('/v1/messages', { limit: FIRST })),
      ]);
      if (this.timesRead.get() > 0) return;
      this.questions.replace(questions.questions, newer);
      this.sessions.replace([...recent.sessions, ...running.sessions], newer);
      for (const session of running.sessions) this.putPulseOf(session, newer);
      this.timers.replace(timers.timers.map(withDueTime), newer);
      this.messages.replace(messages.messages, newer);
      this.unloadedSessions.set(Math.max(0, (running.total ?? 0) - running.sessions.length));
      this.unloadedTimers.set(Math.max(0, (timers.total ?? 0) - timers.timers.length));
    });
  }

  /** Fetches all lists. Updates from events that arrive during the fetch win over the lists. */
  load(): Promise<void> {
    if (this.loading) {
      this.again = true;
      return this.loading;
    }
    const work = async () => {
      await this.readOnce();
      while (this.takeAgain()) await this.readOnce();
    };
    const loading = work().finally(() => {
      if (this.loading === loading) this.loading = undefined;
    });
    this.loading = loading;
    return loading;
  }

  private takeAgain(): boolean {
    const again = this.again;
    this.again = false;
    return again;
  }

  private readOnce(): Promise<void> {
    return this.reading((newer) => this.read(newer));
  }

  /** Runs a fetch and records the keys that events update while it runs. */
  private async reading(read: (newer: Set<string>) => Promise<void>): Promise<void> {
    const newer = new Set<string>();
    this.readings.add(newer);
    try {
      await read(newer);
    } finally {
      this.readings.delete(newer);
    }
  }

  /**
   * Sends a request about one entry. The result is `undefined` if an event updated the entry meanwhile: the response
   * may be older than the event, and would stay in the cache.
   */
  async ask<T>(key: string, asked: () => Promise<T>): Promise<T | undefined> {
    let response: T | undefined;
    await this.reading(async (newer) => {
      const answer = await asked();
      if (!newer.has(key)) response = answer;
    });
    return response;
  }

  private touch(key: string): void {
    for (const newer of this.readings) newer.add(key);
  }

  private async read(newer: Set<string>): Promise<void> {
    const [questions, running, recent, timers, messages] = await Promise.all([
      this.get<{ questions: Question[] }>('/v1/questions'),
      this.allPages<Session>('/v1/sessions', { tails: true }, 'sessions'),
      this.get<Page & { sessions: Session[] }>(withQuery('/v1/sessions', { include_ended: true, limit: RECENT })),
      this.openTimers(),
      this.get<Page & { messages: Message[] }>(withQuery('/v1/messages', { limit: RECENT })),
    ]);
    const unannounced = questions.questions.filter(({ question_id }) => !newer.has(question_id) && !this.questions.get(question_id));
    this.questions.replace(questions.questions, newer);
    // A person who opens the page sees the open questions. A page that is open already announces the new ones.
    if (this.timesRead.get() > 0) unannounced.forEach((question) => this.onQuestion(question));
    // Running sessions come last: for a session in both lists, this entry has more fields.
    this.sessions.replace([...recent.sessions, ...running], newer);
    for (const session of running) this.putPulseOf(session, newer);
    for (const { session_id } of [...this.pulses.all()]) if (this.hasEnded(session_id)) this.pulses.remove(session_id);
    this.timers.replace(timers.map(withDueTime), newer);
    this.messages.replace(messages.messages, newer);
    this.unloadedSessions.set(0);
    this.olderSessions = recent.next ?? null;
    this.olderMessages = messages.next ?? null;
    this.endedSessions = 0;
    this.timesRead.set(this.timesRead.get() + 1);
    // Timers may have ended without an event.
    this.endedTimers.set(this.endedTimers.get() + 1);
  }

  /** Timers that have not ended. If there are too many: those that are due next. */
  private async openTimers(): Promise<Timer[]> {
    const first = await this.get<Page & { timers: Timer[] }>(withQuery('/v1/timers', { limit: PAGE }));
    const total = first.total ?? 0;
    const all: Timer[] = [];
    const query = total > MAX_TIMERS ? { sort: 'remaining' } : {};
    let page = total > MAX_TIMERS ? await this.timerPage(query, undefined) : first;
    all.push(...page.timers);
    while (page.next && all.length < MAX_TIMERS) {
      page = await this.timerPage(query, page.next);
      all.push(...page.timers);
    }
    this.unloadedTimers.set(page.next ? Math.max(0, total - all.length) : 0);
    return all;
  }

  private timerPage(query: Record<string, string>, after: string | undefined): Promise<Page & { timers: Timer[] }> {
    return this.get(withQuery('/v1/timers', { ...query, limit: PAGE, after }));
  }

  /** Stores the pulse that a list of sessions contains for a running session. */
  private putPulseOf(session: Session, newer: ReadonlySet<string>): void {
    const { session_id, bytes_total, last_activity, tail, cpu, memory, waiting_for_input } = session;
    if (!tail || newer.has(`pulse ${session_id}`)) return;
    this.pulses.put({
      session_id,
      bytes_total,
      last_activity,
      tail,
      cpu: cpu ?? null,
      memory: memory ?? null,
      waiting_for_input: waiting_for_input ?? false,
    });
  }

  /** Fetches the next page of older sessions. Returns whether there are still more. */
  async moreSessions(): Promise<boolean> {
    const after = this.olderSessions;
    if (!after) return false;
    this.olderSessions = null;
    const path = withQuery('/v1/sessions', { include_ended: true, limit: PAGE, after });
    const page = await this.older(this.get<Page & { sessions: Session[] }>(path), () => (this.olderSessions = after));
    if (!page) return false;
    for (const session of page.sessions) if (!this.sessions.get(session.session_id)) this.sessions.put(session);
    this.olderSessions = page.next ?? null;
    return this.olderSessions !== null;
  }

  async moreMessages(): Promise<void> {
    const after = this.olderMessages;
    if (!after) return;
    this.olderMessages = null;
    const path = withQuery('/v1/messages', { limit: PAGE, after });
    const page = await this.older(this.get<Page & { messages: Message[] }>(path), () => (this.olderMessages = after));
    if (!page) return;
    for (const message of page.messages) if (!this.messages.get(message.message_id)) this.messages.put(message);
    this.olderMessages = page.next ?? null;
  }

  /**
   * The next page of older entries, or `undefined` if the lists were fetched again meanwhile, since the cursor is then
   * outdated. After an error `again` restores the cursor.
   */
  private async older<T>(asked: Promise<T>, again: () => void): Promise<T | undefined> {
    const timesRead = this.timesRead.get();
    try {
      const page = await asked;
      return timesRead === this.timesRead.get() ? page : undefined;
    } catch (fault) {
      if (timesRead === this.timesRead.get()) again();
      throw fault;
    }
  }

  /** Fetches the open timers again: calls during a fetch share the next one, at most one per `TIMERS_EVERY`. */
  reloadTimers(): Promise<void> {
    if (this.readingTimers) {
      this.timersAgain = true;
      return this.readingTimers;
    }
    const work = async () => {
      do {
        this.timersAgain = false;
        await this.readTimersOnce();
        await new Promise((done) => setTimeout(done, TIMERS_EVERY));
      } while (this.wantsTimersAgain());
    };
    const reading = work().finally(() => {
      if (this.readingTimers === reading) this.readingTimers = undefined;
    });
    this.readingTimers = reading;
    return reading;
  }

  private wantsTimersAgain(): boolean {
    return this.timersAgain;
  }

  private readTimersOnce(): Promise<void> {
    return this.reading(async (newer) => {
      const timers = await this.openTimers();
      this.timers.replace(timers.map(withDueTime), newer);
      this.endedTimers.set(this.endedTimers.get() + 1);
    });
  }

  /** An ended timer is removed from the cache; the history has it. */
  putTimer(timer: Timer): void {
    this.touch(timer.timer_id);
    if (isOpen(timer)) {
      this.timers.put(withDueTime(timer));
      return;
    }
    this.timers.remove(timer.timer_id);
    this.endedTimers.set(this.endedTimers.get() + 1);
  }

  putSession(session: Session): void {
    this.touch(session.session_id);
    this.sessions.put(session);
    if (session.status === 'running') return;
    this.pulses.remove(session.session_id);
    this.endedSessions += 1;
    if (this.endedSessions > MAX_ENDED_SESSIONS && !this.loading) void this.load().catch(() => undefined);
  }

  removeSession(id: string): void {
    this.touch(id);
    this.sessions.remove(id);
    this.pulses.remove(id);
  }

  putMessage(message: Message): void {
    this.touch(message.message_id);
    this.messages.put(message);
    if (this.messages.size <= MAX_MESSAGES + MESSAGES_SLACK) return;
    const newest = [...this.messages.all()].sort((a, b) => b.created_at - a.created_at);
    for (const { message_id } of newest.slice(MAX_MESSAGES)) this.messages.remove(message_id);
    this.olderMessages = newest[MAX_MESSAGES - 1]?.message_id ?? null;
  }

  private hasEnded(id: string): boolean {
    const session = this.sessions.get(id);
    return session !== undefined && session.status !== 'running';
  }

  /** A pulse that was taken just before the end may arrive just after it; it is ignored. */
  putPulse(pulse: Pulse): void {
    if (this.hasEnded(pulse.session_id)) return;
    this.touch(`pulse ${pulse.session_id}`);
    this.pulses.put(pulse);
  }

  putQuestion(question: Question): void {
    this.touch(question.question_id);
    this.questions.put(question);
  }

  closeQuestion(id: string): void {
    this.touch(id);
    this.questions.remove(id);
  }
}

export const stateCache = new StateCache();
