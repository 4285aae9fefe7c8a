// The first view: questions, running sessions, timers and recent messages.

import { count, firstLine, plural, visible } from '../format';
import { stateCache, type CachedQuestion, type CachedSession, type CachedTimer } from '../state/state-cache';
import type { KeyedStore } from '../state/keyed-store';
import { firstN } from '../state/order';
import { useIds, useTally, useEntry } from '../state/use';
import { useValue } from '../state/value';
import { isAlive, isCheck, isOpen, type Message } from '../wire';
import { Empty, CommandExample } from '../parts/empty';
import { Link } from '../parts/link';
import { Machines } from '../parts/machines';
import { QuestionCard } from '../parts/question';
import { SessionCard, SessionState } from '../parts/session';
import { useStableOrder } from '../parts/stable-order';
import { Ago, FewLines, OneLine } from '../parts/text';
import { TimerCard } from '../parts/timer';
import { useTimerStatistics } from './timer-stats';

/** Cards of each kind; the list has the rest. */
const CARDS = 6;
const RECENT_MESSAGES = 8;
const MAX_QUESTIONS = 50;
const RECENT_SESSIONS = 5;

const always = () => true;

function openQuestions(store: KeyedStore<CachedQuestion>): string[] {
  const questions = firstN(store.all(), MAX_QUESTIONS, always, (a, b) => a.asked_at - b.asked_at);
  return questions.map((question) => question.question_id);
}

function running(store: KeyedStore<CachedSession>): string[] {
  const runs = (session: CachedSession) => isAlive(session) && !isCheck(session);
  const sessions = firstN(store.all(), CARDS, runs, (a, b) => b.created_at - a.created_at);
  return sessions.map((session) => session.session_id);
}

const endOf = (session: CachedSession) => session.ended_at ?? session.created_at;

/**
 * Agent name of the sessions in which abide runs wakers. The message shows their result, so they are not listed here.
 */
const WAKER = 'waker';

/** Ended sessions, newest first. */
function ended(store: KeyedStore<CachedSession>): string[] {
  const over = (session: CachedSession) => !isAlive(session) && session.agent !== WAKER && !isCheck(session);
  const sessions = firstN(store.all(), RECENT_SESSIONS, over, (a, b) => endOf(b) - endOf(a));
  return sessions.map((session) => session.session_id);
}

function Ended({ id }: { id: string }) {
  const session = useEntry(stateCache.sessions, id);
  if (!session) return null;
  return (
    <li>
      <SessionState session={session} />
      <Link className="name one-line" href={`/sessions/${id}`} title={visible(session.command)}>
        <OneLine text={session.command} before={session.name && <b>{session.name}:</b>} />
      </Link>
      <span className="soft small">
        <Ago stamp={endOf(session)} />
      </span>
    </li>
  );
}

/** Timers that are due next come first, then paused ones. */
function open(store: KeyedStore<CachedTimer>): string[] {
  const timers = firstN(store.all(), CARDS, isOpen, (a, b) => (a.due ?? Infinity) - (b.due ?? Infinity) || 0);
  return timers.map((timer) => timer.timer_id);
}

function newest(store: KeyedStore<Message>): string[] {
  const messages = firstN(store.all(), RECENT_MESSAGES, always, (a, b) => b.created_at - a.created_at);
  return messages.map((message) => message.message_id);
}

function FeedItem({ id }: { id: string }) {
  const message = useEntry(stateCache.messages, id);
  if (!message) return null;
  const { line, more } = firstLine(message.text);
  const rest = message.text.slice(message.text.indexOf(line) + line.length);
  return (
    <li>
      <Link className="name" href={message.timer_id !== undefined ? `/timers/${message.timer_id}` : `/sessions/${message.session_id ?? ''}`}>
        <FewLines text={line} prose />
      </Link>
      {more > 0 && (
        <span className="soft small">
          <FewLines text={rest} prose />
        </span>
      )}
      <span className="soft small">
        to {message.agent}, <Ago stamp={message.created_at} />
        {message.seen_at === null ? ', not seen yet' : ''}
        {message.wake_fault ? ', waking failed' : ''}
      </span>
    </li>
  );
}

/** Shows how to start a session, unless there have been sessions already. */
function Idle({ known }: { known: boolean }) {
  if (known) {
    return (
      <Empty title="No running sessions">
        <span>Commands that agents run with abide appear here.</span>
      </Empty>
    );
  }
  return (
    <Empty title="No running sessions">
      <span>Commands that agents run with abide appear here. Set up your agents first:</span>
      <CommandExample command="abide setup" />
      <span>Or run a command yourself:</span>
      <CommandExample command="abide run --idle 60s -- make test" />
    </Empty>
  );
}

/** Text of a message for screen readers, without its age, which changes all the time. */
function Words({ id }: { id: string }) {
  const message = useEntry(stateCache.messages, id);
  return message ? visible(message.text) : null;
}

function More({ all, shown, word, href }: { all: number; shown: number; word: string; href: string }) {
  if (all <= shown) return null;
  return (
    <p className="soft">
      …and <Link href={href}>{plural(all - shown, `more ${word}`)}</Link>.
    </p>
  );
}

export function Now() {
  const questions = useIds(stateCache.questions, openQuestions);
  const sessions = useIds(stateCache.sessions, running);
  const { ids: timers, props: stableOrder } = useStableOrder(useIds(stateCache.timers, open));
  const messages = useIds(stateCache.messages, newest);
  const recent = useIds(stateCache.sessions, ended);
  const asked = useTally(stateCache.questions);
  const alive = useTally(stateCache.sessions) + useValue(stateCache.unloadedSessions);
  const waiting = useTally(stateCache.timers) + useValue(stateCache.unloadedTimers);
  return (
    <div className="page">
      <header className="page-head">
        <h1>{headline(asked, alive, waiting)}</h1>
        <CallsSaved />
      </header>
      {questions.length > 0 && (
        <section className="questions" aria-label="Open questions">
          {questions.map((id) => (
            <QuestionCard key={id} id={id} />
          ))}
        </section>
      )}
      <div className="now sided">
        <div className="now-main">
          <section className="section" aria-labelledby="now-sessions">
            <div className="section-head">
              <h2 id="now-sessions">Running sessions</h2>
              <span className="badge">{count(alive)}</span>
              <Link href="/sessions">All sessions</Link>
            </div>
            {sessions.length === 0 ? (
              <Idle known={recent.length > 0} />
            ) : (
              <div className="cards">
                {sessions.map((id) => (
                  <SessionCard key={id} id={id} />
                ))}
              </div>
            )}
            <More all={alive} shown={sessions.length} word="session" href="/sessions" />
          </section>
          {recent.length > 0 && (
            <section className="section" aria-labelledby="now-ended">
              <div className="section-head">
                <h2 id="now-ended">Recently finished</h2>
              </div>
              <ul className="card recent-list">
                {recent.map((id) => (
                  <Ended key={id} id={id} />
                ))}
              </ul>
            </section>
          )}
          <section className="section" aria-labelledby="now-timers">
            <div className="section-head">
              <h2 id="now-timers">Timers</h2>
              <span className="badge">{count(waiting)}</span>
              <Link href="/timers">All timers</Link>
            </div>
            {timers.length === 0 ? (
              <Empty title="No active timers">
                <span>Agents set timers to wait. You can, too:</span>
                <CommandExample command="abide timer start 10m --reason 'tea'" />
              </Empty>
            ) : (
              <div className="cards" {...stableOrder}>
                {timers.map((id) => (
                  <TimerCard key={id} id={id} />
                ))}
              </div>
            )}
            <More all={waiting} shown={timers.length} word="timer" href="/timers" />
          </section>
          <Machines />
        </div>
        <section className="section" aria-labelledby="now-messages">
          <div className="section-head">
            <h2 id="now-messages">Messages</h2>
            <Link href="/messages">All messages</Link>
          </div>
          {messages.length === 0 ? (
            <Empty title="No messages">
              <span>Agents get a message when a timer completes or a session ends. You can read them here.</span>
            </Empty>
          ) : (
            <ul className="card feed">
              {messages.map((id) => (
                <FeedItem key={id} id={id} />
              ))}
            </ul>
          )}
          <p className="hidden" role="status">
            {messages[0] !== undefined && <Words id={messages[0]} />}
          </p>
        </section>
      </div>
    </div>
  );
}

/** Calls of a polling loop that timers made unnecessary. */
function CallsSaved() {
  const { stats } = useTimerStatistics();
  if (!stats || stats.calls_saved === 0) return null;
  return (
    <div className="end">
      <Link href="/timers?tab=stats" className="soft">
        <b>{count(stats.calls_saved)}</b> {stats.calls_saved === 1 ? 'call' : 'calls'} saved by waiting
      </Link>
    </div>
  );
}

function headline(questions: number, sessions: number, timers: number): string {
  if (questions > 0) return questions === 1 ? 'One question for you' : `${questions} questions for you`;
  if (sessions + timers === 0) return 'All quiet';
  const parts = [];
  if (sessions > 0) parts.push(`${plural(sessions, 'session')} running`);
  if (timers > 0) parts.push(plural(timers, 'timer'));
  return parts.join(', ');
}
