// One session: its facts, and its terminal or its log.

import { lazy, Suspense, useEffect, useState } from 'react';
import { bytes, duration, length, moment } from '../format';
import { errorMessage } from '../state/actions';
import { get, Refused } from '../state/api';
import { now } from '../state/clock';
import { stateCache, type CachedQuestion } from '../state/state-cache';
import type { KeyedStore } from '../state/keyed-store';
import { connection } from '../state/live';
import { fragment, useParam } from '../state/route';
import { useEntry } from '../state/use';
import { useValue } from '../state/value';
import { isAlive, type Session as SessionFacts } from '../wire';
import { Empty } from '../parts/empty';
import { FileIcon } from '../parts/icons';
import { Link } from '../parts/link';
import { parseLines } from '../parts/log-window';
import { QuestionCard } from '../parts/question';
import { Load, Quiet, SessionState } from '../parts/session';
import { EndedActions, RenameButton, RunningActions } from '../parts/session-actions';
import { Exact, extent, FewLines, isLong, ScrollArea, Since } from '../parts/text';
import { useIds } from '../state/use';

const Terminal = lazy(() => import('../parts/terminal'));
const Log = lazy(() => import('../parts/log'));

/** A longer command is cut in the title, so that a phone has room for its output. */
const TITLE_CHARACTERS = 200;

export function Session({ id }: { id: string }) {
  const cached = useEntry(stateCache.sessions, id);
  const pulse = useEntry(stateCache.pulses, id);
  const [fault, setFault] = useState<unknown>(null);
  const known = cached !== undefined;
  // Lists that are fetched again lack an older session. It is shown until it is fetched, so that its log stays in place.
  const [last, setLast] = useState(cached);
  if (known && last !== cached) setLast(cached);
  const isGone = fault instanceof Refused && fault.status === 404;
  const session = cached ?? (isGone ? undefined : last);
  // After a failure the session is fetched again once the connection is back.
  const live = useValue(connection).state === 'live';
  useEffect(() => {
    if (known || !live) return;
    const asked = stateCache.ask(id, () => get<SessionFacts>(`/v1/sessions/${encodeURIComponent(id)}`));
    asked.then(
      (response) => {
        setFault(null);
        if (response) stateCache.putSession(response);
      },
      setFault,
    );
  }, [id, known, live]);
  if (!session) {
    return (
      <div className="page">
        <h1>Session</h1>
        {fault !== null ? (
          <Empty title={errorMessage(fault)}>
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
    <div className="page session-page">
      <header className="session-head">
        <div className="page-head">
          <SessionState session={session} waits={pulse?.waiting_for_input ?? false} />
          {session.name && <b>{session.name}</b>}
          <span className="session-id">
            <span className="soft small">{id}</span>
            <RenameButton session={session} />
          </span>
          <div className="end">
            <a className="button folds" href={`/v1/sessions/${id}/log/raw?download=1`} download={`${id}.log`} title="Download the log">
              <FileIcon /> <span>Download the log</span>
            </a>
            {alive ? <RunningActions session={session} /> : <EndedActions session={session} />}
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
          {session.machine && <span>on {session.machine}</span>}
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

/** Output of a session: the log, or the screen of a terminal unless the URL names a log line. */
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
        {asLog ? <Log key={id} id={id} live={isAlive(session)} bytes={bytes} machine={session.machine} /> : <Terminal key={id} id={id} silent={bytes === 0} />}
      </Suspense>
    </>
  );
}

/** The command as the title of the page. A long one is expanded on request. */
function Command({ text }: { text: string }) {
  if (text.length <= TITLE_CHARACTERS && !isLong(text)) {
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

/** An open question about this session can be answered here as well. */
function Asked({ session }: { session: string }) {
  const ids = useIds(stateCache.questions, all);
  const own = ids.filter((id) => stateCache.questions.get(id)?.session_id === session);
  return own.map((id) => <QuestionCard key={id} id={id} page={session} />);
}

function all(store: KeyedStore<CachedQuestion>): string[] {
  return [...store.all()].map((question) => question.question_id);
}
