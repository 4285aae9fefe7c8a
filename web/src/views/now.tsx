// What matters at the moment: questions first, then what runs, what waits, and what was said.

import { count, firstLine, plural, visible } from '../format';
import { house, type HeldQuestion, type HeldSession, type HeldTimer } from '../state/house';
import type { Keyed } from '../state/keyed';
import { foremost } from '../state/order';
import { useIds, useTally, useThing } from '../state/use';
import { useValue } from '../state/value';
import { isAlive, isOpen, type Message } from '../wire';
import { Empty, Try } from '../parts/empty';
import { Link } from '../parts/link';
import { QuestionCard } from '../parts/question';
import { SessionCard, SessionState } from '../parts/session';
import { useSteady } from '../parts/steady';
import { Ago, FewLines, OneLine } from '../parts/text';
import { TimerCard } from '../parts/timer';

/** Cards of a kind; the rest is in the list. */
const CARDS = 6;
const FEED = 8;
const ASKED = 50;
const LATELY = 5;

const ever = () => true;

function openQuestions(store: Keyed<HeldQuestion>): string[] {
  const questions = foremost(store.all(), ASKED, ever, (a, b) => a.asked_at - b.asked_at);
  return questions.map((question) => question.question_id);
}

function running(store: Keyed<HeldSession>): string[] {
  const sessions = foremost(store.all(), CARDS, isAlive, (a, b) => b.created_at - a.created_at);
  return sessions.map((session) => session.session_id);
}

const endOf = (session: HeldSession) => session.ended_at ?? session.created_at;

/** Under this name abide itself runs what wakes an agent. It is told with the message, and is not what anybody comes back for. */
const WAKER = 'waker';

/** What has ended, the latest first: who comes back wants to know. */
function ended(store: Keyed<HeldSession>): string[] {
  const over = (session: HeldSession) => !isAlive(session) && session.agent !== WAKER;
  const sessions = foremost(store.all(), LATELY, over, (a, b) => endOf(b) - endOf(a));
  return sessions.map((session) => session.session_id);
}

function Ended({ id }: { id: string }) {
  const session = useThing(house.sessions, id);
  if (!session) return null;
  return (
    <li>
      <SessionState session={session} />
      <Link className="name one-line" href={`/sessions/${id}`} title={visible(session.command)}>
        <OneLine text={session.command} />
      </Link>
      <span className="soft small">
        <Ago stamp={endOf(session)} />
      </span>
    </li>
  );
}

/** The next to come first, then what is paused. */
function open(store: Keyed<HeldTimer>): string[] {
  const timers = foremost(store.all(), CARDS, isOpen, (a, b) => (a.due ?? Infinity) - (b.due ?? Infinity) || 0);
  return timers.map((timer) => timer.timer_id);
}

function newest(store: Keyed<Message>): string[] {
  const messages = foremost(store.all(), FEED, ever, (a, b) => b.created_at - a.created_at);
  return messages.map((message) => message.message_id);
}

function Said({ id }: { id: string }) {
  const message = useThing(house.messages, id);
  if (!message) return null;
  const { line, more } = firstLine(message.text);
  const rest = message.text.slice(message.text.indexOf(line) + line.length);
  return (
    <li>
      <FewLines text={line} prose />
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

/** Who has run something already need not be told how. */
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
      <span>Commands that agents run with abide appear here. Set up an agent first:</span>
      <Try command="abide setup claude-code" />
      <span>Or run a command yourself:</span>
      <Try command="abide run --idle 60s -- make test" />
    </Empty>
  );
}

/** What a message says, to be read out when it comes; how long ago that was changes all the time. */
function Words({ id }: { id: string }) {
  const message = useThing(house.messages, id);
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
  const questions = useIds(house.questions, openQuestions);
  const sessions = useIds(house.sessions, running);
  const { ids: timers, props: steady } = useSteady(useIds(house.timers, open));
  const messages = useIds(house.messages, newest);
  const recent = useIds(house.sessions, ended);
  const asked = useTally(house.questions);
  const alive = useTally(house.sessions) + useValue(house.laterSessions);
  const waiting = useTally(house.timers) + useValue(house.moreTimers);
  return (
    <div className="page">
      <header className="page-head">
        <h1>{headline(asked, alive, waiting)}</h1>
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
                <Try command="abide timer start 10m --reason 'tea'" />
              </Empty>
            ) : (
              <div className="cards" {...steady}>
                {timers.map((id) => (
                  <TimerCard key={id} id={id} />
                ))}
              </div>
            )}
            <More all={waiting} shown={timers.length} word="timer" href="/timers" />
          </section>
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
                <Said key={id} id={id} />
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

function headline(questions: number, sessions: number, timers: number): string {
  if (questions > 0) return questions === 1 ? 'One question for you' : `${questions} questions for you`;
  if (sessions + timers === 0) return 'All quiet';
  const parts = [];
  if (sessions > 0) parts.push(`${plural(sessions, 'session')} running`);
  if (timers > 0) parts.push(`${plural(timers, 'timer')} waiting`);
  return parts.join(', ');
}
