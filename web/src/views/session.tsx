// One session: all that is known of it, and its terminal or its log.

import { lazy, Suspense, useEffect, useState } from 'react';
import { bytes, duration, length, moment } from '../format';
import { sentence } from '../state/acts';
import { get } from '../state/api';
import { now } from '../state/clock';
import { house, type HeldQuestion } from '../state/house';
import type { Keyed } from '../state/keyed';
import { link } from '../state/live';
import { fragment, useParam } from '../state/route';
import { useThing } from '../state/use';
import { useValue } from '../state/value';
import { isAlive, type Session as SessionFacts } from '../wire';
import { Empty } from '../parts/empty';
import { FileIcon } from '../parts/icons';
import { Link } from '../parts/link';
import { parseLines } from '../parts/log-window';
import { QuestionCard } from '../parts/question';
import { Load, Quiet, SessionState } from '../parts/session';
import { SessionActs } from '../parts/session-acts';
import { Exact, extent, FewLines, isLong, ScrollArea, Since } from '../parts/text';
import { useIds } from '../state/use';

const Terminal = lazy(() => import('../parts/terminal'));
const Log = lazy(() => import('../parts/log'));

export function Session({ id }: { id: string }) {
  const session = useThing(house.sessions, id);
  const pulse = useThing(house.pulses, id);
  const [fault, setFault] = useState('');
  const known = session !== undefined;
  // What could not be read is read once the daemon is there again.
  const live = useValue(link).state === 'live';
  useEffect(() => {
    if (known || !live) return;
    const asked = house.ask(id, () => get<SessionFacts>(`/v1/sessions/${encodeURIComponent(id)}`));
    asked.then(
      (told) => told && house.putSession(told),
      (error: unknown) => setFault(sentence(error)),
    );
  }, [id, known, live]);
  if (!session) {
    return (
      <div className="page">
        {fault ? (
          <Empty title={fault}>
            <Link href="/sessions">All sessions</Link>
          </Empty>
        ) : (
          <p className="soft">Loading…</p>
        )}
      </div>
    );
  }
  const alive = isAlive(session);
  return (
    <div className="page">
      <header className="session-head">
        <div className="page-head">
          <SessionState session={session} waits={pulse?.waiting_for_input ?? false} />
          <span className="soft small">{id}</span>
          <div className="end">
            <a className="button" href={`/v1/sessions/${id}/log/raw?download=1`} download={`${id}.log`}>
              <FileIcon /> Download the log
            </a>
            <SessionActs session={session} />
          </div>
        </div>
        <Command text={session.command} />
        <div className="facts">
          {session.status !== 'failed' && (
            <span>
              {alive ? 'age ' : 'ran '}
              <b>{alive ? <Since stamp={session.created_at} /> : length(session.duration)}</b>
            </span>
          )}
          {alive && <Quiet session={session} pulse={pulse} />}
          <Load pulse={pulse} />
          {session.timeout != null && <span>limit {duration(session.timeout)}</span>}
          <span>
            output <b>{bytes(pulse?.bytes_total ?? session.bytes_total)}</b>
            {session.bytes_dropped > 0 && `, ${bytes(session.bytes_dropped)} of it no longer kept`}
          </span>
          <span>agent {session.agent}</span>
          <span>started {moment(session.created_at, now())}</span>
          <span>
            in <Exact text={session.cwd} />
          </span>
          {session.contained_by && <span>contained by {session.contained_by}</span>}
        </div>
        {session.error && (
          <p className="fault">
            <Exact text={session.error} />
          </p>
        )}
        {session.still_running.length > 0 && (
          <p className="soft">
            Left running: <Exact text={session.still_running.map((left) => `${left.command} (${left.pid})`).join(', ')} />
          </p>
        )}
      </header>
      <Asked session={id} />
      <Output session={session} bytes={pulse?.bytes_total ?? session.bytes_total} />
    </div>
  );
}

/** What it wrote: as a log, and of a terminal as its screen, unless a line of the log was asked for. */
function Output({ session, bytes }: { session: SessionFacts; bytes: number }) {
  const { session_id: id, pty } = session;
  const [view, setView] = useParam('view');
  const [find] = useParam('find');
  const linked = parseLines(useValue(fragment)) !== null || find !== '';
  const asLog = !pty || view === 'log' || (view !== 'terminal' && linked);
  return (
    <>
      {pty && (
        <div className="row-of-buttons" role="group" aria-label="View">
          <button type="button" className={`button compact ${asLog ? '' : 'on'}`} aria-pressed={!asLog} onClick={() => setView('terminal')}>
            Terminal
          </button>
          <button type="button" className={`button compact ${asLog ? 'on' : ''}`} aria-pressed={asLog} onClick={() => setView('log')}>
            Log
          </button>
        </div>
      )}
      <Suspense fallback={<div className="screen screen-wait" />}>
        {asLog ? <Log key={id} id={id} live={isAlive(session)} bytes={bytes} /> : <Terminal key={id} id={id} silent={bytes === 0} />}
      </Suspense>
    </>
  );
}

/** The command as the title of the page. A long one is opened on request. */
function Command({ text }: { text: string }) {
  if (!isLong(text)) {
    return (
      <h1>
        <Exact text={text} />
      </h1>
    );
  }
  return (
    <>
      <h1>
        <FewLines text={text} />
      </h1>
      <details>
        <summary className="small">Whole command: {extent(text)}</summary>
        <ScrollArea className="command" text={text} label="Whole command" />
      </details>
    </>
  );
}

/** A question about this session is answered here as well. */
function Asked({ session }: { session: string }) {
  const ids = useIds(house.questions, all);
  const own = ids.filter((id) => house.questions.get(id)?.session_id === session);
  return own.map((id) => <QuestionCard key={id} id={id} />);
}

function all(store: Keyed<HeldQuestion>): string[] {
  return [...store.all()].map((question) => question.question_id);
}
