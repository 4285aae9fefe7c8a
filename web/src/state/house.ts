// All that the page knows of the daemon: the lists as they were read, and what events changed since.

import type { Message, Pulse, Question, Session, Timer } from '../wire';
import { get, withQuery } from './api';
import { now } from './clock';
import { Keyed, type Later } from './keyed';

/** A timer with the moment at which it is due, so that it can be drawn without asking again. */
export interface HeldTimer extends Timer {
  due: number | null;
}

/** A question, and what the person is answering right now. */
export interface HeldQuestion extends Question {
  answering?: 'yes' | 'no' | 'quiet';
}

/** A session, and whether it is being ended from here. */
export interface HeldSession extends Session {
  ending?: boolean;
}

const PAGE = 1_000;
/** Ended sessions and messages that are read at the start; more come when somebody scrolls. */
const RECENT = 200;
/** Messages that are held; older ones are read again where somebody wants them. */
const MESSAGES_HELD = 2_000;

export function held(timer: Timer): HeldTimer {
  const runs = timer.status === 'running' || timer.status === 'running_background';
  return { ...timer, due: runs ? now() + timer.remaining_time * 1_000 : null };
}

interface Page {
  next?: string | null;
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
  /** Where older ended sessions and messages go on. */
  olderSessions: string | null = null;
  olderMessages: string | null = null;
  private touched: Set<string> | undefined;
  private loading: Promise<void> | undefined;
  private again = false;

  constructor(later?: Later) {
    this.sessions = new Keyed((session) => session.session_id, later);
    this.pulses = new Keyed((pulse) => pulse.session_id, later);
    this.timers = new Keyed((timer) => timer.timer_id, later);
    this.questions = new Keyed((question) => question.question_id, later);
    this.messages = new Keyed((message) => message.message_id, later);
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
        this.touched = undefined;
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

  private async readOnce(): Promise<void> {
    const newer = new Set<string>();
    this.touched = newer;
    await this.read(newer);
  }

  private async read(newer: Set<string>): Promise<void> {
    const [questions, running, recent, timers, messages] = await Promise.all([
      get<{ questions: Question[] }>('/v1/questions'),
      everything<Session>('/v1/sessions', { tails: true }, 'sessions'),
      get<Page & { sessions: Session[] }>(withQuery('/v1/sessions', { include_ended: true, limit: RECENT })),
      everything<Timer>('/v1/timers', {}, 'timers'),
      get<Page & { messages: Message[] }>(withQuery('/v1/messages', { limit: RECENT })),
    ]);
    this.questions.replace(questions.questions, newer);
    // What runs comes last: of a session that is in both lists it says more.
    this.sessions.replace([...recent.sessions, ...running], newer);
    for (const session of running) this.feel(session, newer);
    this.timers.replace(timers.map(held), newer);
    this.messages.replace(messages.messages, newer);
    this.olderSessions = recent.next ?? null;
    this.olderMessages = messages.next ?? null;
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
    if (!this.olderSessions) return;
    const after = this.olderSessions;
    this.olderSessions = null;
    const path = withQuery('/v1/sessions', { include_ended: true, limit: PAGE, after });
    const page = await get<Page & { sessions: Session[] }>(path);
    for (const session of page.sessions) if (!this.sessions.get(session.session_id)) this.sessions.put(session);
    this.olderSessions = page.next ?? null;
  }

  async moreMessages(): Promise<void> {
    if (!this.olderMessages) return;
    const after = this.olderMessages;
    this.olderMessages = null;
    const page = await get<Page & { messages: Message[] }>(withQuery('/v1/messages', { limit: PAGE, after }));
    for (const message of page.messages) if (!this.messages.get(message.message_id)) this.messages.put(message);
    this.olderMessages = page.next ?? null;
  }

  /** Reads the timers that have not ended anew. */
  async reloadTimers(): Promise<void> {
    const newer = (this.touched ??= new Set());
    const timers = await everything<Timer>('/v1/timers', {}, 'timers');
    this.timers.replace(timers.map(held), newer);
    if (!this.loading) this.touched = undefined;
  }

  putTimer(timer: Timer): void {
    this.touched?.add(timer.timer_id);
    this.timers.put(held(timer));
  }

  putSession(session: Session): void {
    this.touched?.add(session.session_id);
    this.sessions.put(session);
    if (session.status !== 'running') this.pulses.remove(session.session_id);
  }

  putMessage(message: Message): void {
    this.touched?.add(message.message_id);
    this.messages.put(message);
    if (this.messages.size > MESSAGES_HELD) {
      const oldest = [...this.messages.all()].reduce((a, b) => (a.created_at <= b.created_at ? a : b));
      this.messages.remove(oldest.message_id);
    }
  }

  putPulse(pulse: Pulse): void {
    this.touched?.add(`pulse ${pulse.session_id}`);
    this.pulses.put(pulse);
  }

  putQuestion(question: Question): void {
    this.touched?.add(question.question_id);
    this.questions.put(question);
  }

  closeQuestion(id: string): void {
    this.touched?.add(id);
    this.questions.remove(id);
  }
}

export const house = new House();
