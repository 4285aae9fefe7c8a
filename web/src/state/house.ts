// All that the page knows of the daemon: the lists as they were read, and what events changed since.

import { isAlive, isOpen, type Message, type Pulse, type Question, type Session, type Timer } from '../wire';
import { get, withQuery } from './api';
import { now } from './clock';
import { Keyed, type Later } from './keyed';
import { Value } from './value';

/** A timer with the moment at which it is due, so that it can be drawn without asking again. */
export interface HeldTimer extends Timer {
  due: number | null;
}

/** A question, and what the person is answering right now. */
export interface HeldQuestion extends Question {
  answering?: string;
}

/** A session, and whether it is being ended from here. */
export interface HeldSession extends Session {
  ending?: boolean;
}

const PAGE = 1_000;
/** Ended sessions and messages that are read at the start; more come when somebody scrolls. */
const RECENT = 200;
/** Things of each kind that are read before all others, so that the first view is drawn early. */
const FIRST = 20;
/** Messages that are held; older ones are read again where somebody wants them. */
const MESSAGES_HELD = 2_000;
/** So many more may come before the oldest are let go, all at once. */
const MESSAGES_OVER = 200;
/** Sessions that may end before the list is read anew, so that it does not grow for ever. */
const ENDED_HELD = 4_000;
/** Timers that are held. Where there are more, those that are due next. */
export const TIMERS_HELD = 20_000;
/** The timers are read anew at most this often. */
const TIMERS_EVERY = 1_000;

export function held(timer: Timer): HeldTimer {
  const runs = timer.status === 'running' || timer.status === 'running_background';
  return { ...timer, due: runs ? now() + timer.remaining_time * 1_000 : null };
}

interface Page {
  next?: string | null;
  total?: number;
}

/** Everything of a list, page by page. */
async function everything<T>(path: string, query: Record<string, string | boolean>, field: string): Promise<T[]> {
  const all: T[] = [];
  let after: string | undefined;
  do {
    const page: Page & Record<string, unknown> = await get(withQuery(path, { ...query, limit: PAGE, after }));
    all.push(...((page[field] ?? []) as T[]));
    after = page.next ?? undefined;
  } while (after);
  return all;
}

export class House {
  readonly sessions: Keyed<HeldSession>;
  readonly pulses: Keyed<Pulse>;
  readonly timers: Keyed<HeldTimer>;
  readonly questions: Keyed<HeldQuestion>;
  readonly messages: Keyed<Message>;
  /** Goes up with every timer that ends. */
  readonly endedTimers = new Value(0);
  /** Active timers that are not held, since there are too many. */
  readonly moreTimers = new Value(0);
  /** Running sessions that are not held yet. */
  readonly laterSessions = new Value(0);
  /** Where older ended sessions and messages go on. */
  olderSessions: string | null = null;
  olderMessages: string | null = null;
  /** What events told of while lists are being read, for each reading. */
  private readonly readings = new Set<Set<string>>();
  private loading: Promise<void> | undefined;
  private again = false;
  private endedSessions = 0;
  private timesRead = 0;
  private readingTimers: Promise<void> | undefined;
  private timersAgain = false;
  private onQuestion: (question: Question) => void = () => undefined;

  constructor(later?: Later) {
    this.sessions = new Keyed<HeldSession>((session) => session.session_id, later, isAlive);
    this.pulses = new Keyed((pulse) => pulse.session_id, later);
    this.timers = new Keyed<HeldTimer>((timer) => timer.timer_id, later, isOpen);
    this.questions = new Keyed((question) => question.question_id, later);
    this.messages = new Keyed((message) => message.message_id, later);
  }

  /** What to do where a question turns up that no event has told of. */
  whenAsked(act: (question: Question) => void): void {
    this.onQuestion = act;
  }

  /** Reads the little that the first view shows. All lists are to be read afterwards. */
  first(): Promise<void> {
    return this.reading(async (newer) => {
      const [questions, running, recent, timers, messages] = await Promise.all([
        get<{ questions: Question[] }>('/v1/questions'),
        get<Page & { sessions: Session[] }>(withQuery('/v1/sessions', { tails: true, limit: FIRST })),
        get<Page & { sessions: Session[] }>(withQuery('/v1/sessions', { include_ended: true, limit: FIRST })),
        get<Page & { timers: Timer[] }>(withQuery('/v1/timers', { sort: 'remaining', limit: FIRST })),
        get<Page & { messages: Message[] }>(withQuery('/v1/messages', { limit: FIRST })),
      ]);
      if (this.timesRead > 0) return;
      this.questions.replace(questions.questions, newer);
      this.sessions.replace([...recent.sessions, ...running.sessions], newer);
      for (const session of running.sessions) this.feel(session, newer);
      this.timers.replace(timers.timers.map(held), newer);
      this.messages.replace(messages.messages, newer);
      this.laterSessions.set(Math.max(0, (running.total ?? 0) - running.sessions.length));
      this.moreTimers.set(Math.max(0, (timers.total ?? 0) - timers.timers.length));
    });
  }

  /** Reads all lists. Whatever an event tells meanwhile is newer than what a list says. */
  load(): Promise<void> {
    if (this.loading) {
      this.again = true;
      return this.loading;
    }
    const work = async () => {
      try {
        await this.readOnce();
        while (this.takeAgain()) await this.readOnce();
      } finally {
        this.loading = undefined;
      }
    };
    this.loading = work();
    return this.loading;
  }

  private takeAgain(): boolean {
    const again = this.again;
    this.again = false;
    return again;
  }

  private readOnce(): Promise<void> {
    return this.reading((newer) => this.read(newer));
  }

  /** Reads lists, and notes what events tell of meanwhile. */
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
   * Asks the daemon for one thing. Gives nothing where an event told of it meanwhile: the answer may
   * have been overtaken on its way, and would stay for good.
   */
  async ask<T>(key: string, asked: () => Promise<T>): Promise<T | undefined> {
    let told: T | undefined;
    await this.reading(async (newer) => {
      const answer = await asked();
      if (!newer.has(key)) told = answer;
    });
    return told;
  }

  private touch(key: string): void {
    for (const newer of this.readings) newer.add(key);
  }

  private async read(newer: Set<string>): Promise<void> {
    const [questions, running, recent, timers, messages] = await Promise.all([
      get<{ questions: Question[] }>('/v1/questions'),
      everything<Session>('/v1/sessions', { tails: true }, 'sessions'),
      get<Page & { sessions: Session[] }>(withQuery('/v1/sessions', { include_ended: true, limit: RECENT })),
      this.openTimers(),
      get<Page & { messages: Message[] }>(withQuery('/v1/messages', { limit: RECENT })),
    ]);
    const unheard = questions.questions.filter(({ question_id }) => !newer.has(question_id) && !this.questions.get(question_id));
    this.questions.replace(questions.questions, newer);
    // Who comes to the page sees what is asked; who has it open already is told of what came since.
    if (this.timesRead > 0) unheard.forEach((question) => this.onQuestion(question));
    // What runs comes last: of a session that is in both lists it says more.
    this.sessions.replace([...recent.sessions, ...running], newer);
    for (const session of running) this.feel(session, newer);
    for (const { session_id } of [...this.pulses.all()]) if (this.hasEnded(session_id)) this.pulses.remove(session_id);
    this.timers.replace(timers.map(held), newer);
    this.messages.replace(messages.messages, newer);
    this.laterSessions.set(0);
    this.olderSessions = recent.next ?? null;
    this.olderMessages = messages.next ?? null;
    this.endedSessions = 0;
    this.timesRead += 1;
    // Timers may have ended that nobody told of.
    this.endedTimers.set(this.endedTimers.get() + 1);
  }

  /** The timers that have not ended; of too many, those that are due next. */
  private async openTimers(): Promise<Timer[]> {
    const first = await get<Page & { timers: Timer[] }>(withQuery('/v1/timers', { limit: PAGE }));
    const total = first.total ?? 0;
    const all: Timer[] = [];
    const query = total > TIMERS_HELD ? { sort: 'remaining' } : {};
    let page = total > TIMERS_HELD ? await this.timerPage(query, undefined) : first;
    all.push(...page.timers);
    while (page.next && all.length < TIMERS_HELD) {
      page = await this.timerPage(query, page.next);
      all.push(...page.timers);
    }
    this.moreTimers.set(page.next ? Math.max(0, total - all.length) : 0);
    return all;
  }

  private timerPage(query: Record<string, string>, after: string | undefined): Promise<Page & { timers: Timer[] }> {
    return get(withQuery('/v1/timers', { ...query, limit: PAGE, after }));
  }

  /** A list of sessions brings the pulse of what runs along. */
  private feel(session: Session, newer: ReadonlySet<string>): void {
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

  async moreSessions(): Promise<void> {
    const after = this.olderSessions;
    if (!after) return;
    this.olderSessions = null;
    const path = withQuery('/v1/sessions', { include_ended: true, limit: PAGE, after });
    const page = await this.older(get<Page & { sessions: Session[] }>(path), () => (this.olderSessions = after));
    if (!page) return;
    for (const session of page.sessions) if (!this.sessions.get(session.session_id)) this.sessions.put(session);
    this.olderSessions = page.next ?? null;
  }

  async moreMessages(): Promise<void> {
    const after = this.olderMessages;
    if (!after) return;
    this.olderMessages = null;
    const path = withQuery('/v1/messages', { limit: PAGE, after });
    const page = await this.older(get<Page & { messages: Message[] }>(path), () => (this.olderMessages = after));
    if (!page) return;
    for (const message of page.messages) if (!this.messages.get(message.message_id)) this.messages.put(message);
    this.olderMessages = page.next ?? null;
  }

  /**
   * The next page of what is older. Nothing where the lists were read anew meanwhile: they go on elsewhere.
   * What could not be read is there to be asked for again.
   */
  private async older<T>(asked: Promise<T>, again: () => void): Promise<T | undefined> {
    const { timesRead } = this;
    try {
      const page = await asked;
      return timesRead === this.timesRead ? page : undefined;
    } catch (fault) {
      if (timesRead === this.timesRead) again();
      throw fault;
    }
  }

  /** Reads the timers that have not ended anew: once for all who ask meanwhile, and not all the time. */
  reloadTimers(): Promise<void> {
    if (this.readingTimers) {
      this.timersAgain = true;
      return this.readingTimers;
    }
    const work = async () => {
      try {
        do {
          this.timersAgain = false;
          await this.readTimersOnce();
          await new Promise((done) => setTimeout(done, TIMERS_EVERY));
        } while (this.wantsTimersAgain());
      } finally {
        this.readingTimers = undefined;
      }
    };
    this.readingTimers = work();
    return this.readingTimers;
  }

  private wantsTimersAgain(): boolean {
    return this.timersAgain;
  }

  private readTimersOnce(): Promise<void> {
    return this.reading(async (newer) => {
      const timers = await this.openTimers();
      this.timers.replace(timers.map(held), newer);
      this.endedTimers.set(this.endedTimers.get() + 1);
    });
  }

  /** One that has ended is not held any longer: the history has it. */
  putTimer(timer: Timer): void {
    this.touch(timer.timer_id);
    if (isOpen(timer)) {
      this.timers.put(held(timer));
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
    if (this.endedSessions > ENDED_HELD && !this.loading) void this.load().catch(() => undefined);
  }

  removeSession(id: string): void {
    this.touch(id);
    this.sessions.remove(id);
    this.pulses.remove(id);
  }

  putMessage(message: Message): void {
    this.touch(message.message_id);
    this.messages.put(message);
    if (this.messages.size <= MESSAGES_HELD + MESSAGES_OVER) return;
    const newest = [...this.messages.all()].sort((a, b) => b.created_at - a.created_at);
    for (const { message_id } of newest.slice(MESSAGES_HELD)) this.messages.remove(message_id);
    this.olderMessages = newest[MESSAGES_HELD - 1]?.message_id ?? null;
  }

  private hasEnded(id: string): boolean {
    const session = this.sessions.get(id);
    return session !== undefined && session.status !== 'running';
  }

  /** One that was felt just before the end may be told of just after it. */
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

export const house = new House();
