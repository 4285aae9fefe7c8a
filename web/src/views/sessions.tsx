// All sessions, and a search in their output.

import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { bytes, count, length, plural, visible } from '../format';
import { errorMessage } from '../state/actions';
import { get, withQuery } from '../state/api';
import { stateCache, type CachedSession } from '../state/state-cache';
import type { KeyedStore } from '../state/keyed-store';
import { ordered } from '../state/order';
import { useParam } from '../state/route';
import { useIds, useEntry } from '../state/use';
import { useValue } from '../state/value';
import { isAlive, isCheck, type Match, type Session } from '../wire';
import { AgentFilter } from '../parts/agent-filter';
import { Empty, CommandExample } from '../parts/empty';
import { PlusIcon } from '../parts/icons';
import { Link } from '../parts/link';
import { openNewTerminal } from '../parts/new-terminal';
import { KillButton, SessionState } from '../parts/session';
import { TabbedPage } from '../parts/tabbed-page';
import { Ago, Exact, OneLine, Since } from '../parts/text';
import { useRowHeight, Virtual } from '../parts/virtual';
import { SessionStatistics } from './session-stats';

type Which = 'all' | 'running' | 'ended' | 'checks';
/** A search starts when nothing has been typed for this long, in milliseconds. */
const TYPING = 250;

function holds(session: Session, words: string): boolean {
  const { session_id, name, command, agent, machine } = session;
  return `${session_id} ${name ?? ''} ${command} ${agent} ${machine ?? ''}`.toLowerCase().includes(words);
}

export function Sessions() {
  return (
    <TabbedPage
      title="Sessions"
      tabs={[
        { value: 'list', name: 'List', content: <FilteredList /> },
        { value: 'stats', name: 'Statistics', content: <SessionStatistics /> },
      ]}
      action={
        <button type="button" className="button primary" onClick={openNewTerminal}>
          <PlusIcon /> New terminal
        </button>
      }
    />
  );
}

function FilteredList() {
  const [words, setWords] = useParam('q');
  const [state, setState] = useParam('state');
  const [agent, setAgent] = useParam('agent');
  const [place, setPlace] = useParam('in');
  const which: Which = state === 'running' || state === 'ended' || state === 'checks' ? state : 'all';
  const inLogs = place === 'logs';
  return (
    <>
        <div className="tools">
          <label className="search">
            <span className="hidden">Find</span>
            <input
              className="input"
              type="search"
              placeholder={inLogs ? 'Search all logs: a word or a regular expression' : 'Find by command, name, agent or id'}
              value={words}
              onChange={(event) => setWords(event.target.value)}
              data-search
            />
          </label>
          <label>
            <span className="hidden">Search in</span>
            <select
              className="input"
              value={inLogs ? 'logs' : 'names'}
              onChange={(event) => setPlace(event.target.value === 'logs' ? 'logs' : '')}
            >
              <option value="names">In commands</option>
              <option value="logs">In the logs</option>
            </select>
          </label>
          {!inLogs && (
            <>
              <label>
                <span className="hidden">Filter</span>
                <select
                  className="input"
                  value={which}
                  onChange={(event) => setState(event.target.value === 'all' ? '' : event.target.value)}
                >
                  <option value="all">All</option>
                  <option value="running">Running</option>
                  <option value="ended">Ended</option>
                  <option value="checks">Condition checks</option>
                </select>
              </label>
              <AgentFilter store={stateCache.sessions} agent={agent} onChange={setAgent} />
            </>
          )}
        </div>
        {inLogs ? <Matches pattern={words.trim()} /> : <List words={words.trim().toLowerCase()} which={which} agent={agent} />}
    </>
  );
}

function isOfKind(session: Session, which: Which): boolean {
  if (which === 'checks' || isCheck(session)) return which === 'checks' && isCheck(session);
  return which === 'all' || isAlive(session) === (which === 'running');
}

function List({ words, which, agent }: { words: string; which: Which; agent: string }) {
  const choose = useCallback(
    (store: KeyedStore<CachedSession>, before: string[]) => {
      const wanted = (session: CachedSession) =>
        isOfKind(session, which) &&
        (agent === '' || session.agent === agent) &&
        (words === '' || holds(session, words));
      // Running sessions come first.
      const order = (a: CachedSession, b: CachedSession) =>
        Number(isAlive(b)) - Number(isAlive(a)) || b.created_at - a.created_at;
      return ordered(store, before, (session) => session.session_id, wanted, order);
    },
    [words, which, agent],
  );
  const ids = useIds(stateCache.sessions, choose);
  const height = useRowHeight(60, 104);
  const onEnd = useMoreSessions(ids.length);
  useOlderOnes(words === '' ? agent : words);
  const timesRead = useValue(stateCache.timesRead);
  // A filter may match older sessions only.
  useEffect(() => {
    if (ids.length === 0) onEnd();
  }, [ids.length, onEnd, timesRead]);
  if (ids.length === 0) {
    return words === '' && agent === '' && (which === 'all' || which === 'running') ? (
      <Empty title="No sessions yet">
        <span>Every command runs in a session, and its log is kept. Start one:</span>
        <CommandExample command="abide session start -- bash" />
      </Empty>
    ) : (
      <Empty title="No matching sessions" />
    );
  }
  return (
    <>
      <span className="soft small numbers" role="status">
        {count(ids.length)}
        {stateCache.olderSessions !== null && '+'} {ids.length === 1 ? 'session' : 'sessions'}
      </span>
      <div className="heads session-row" aria-hidden="true">
        <span>State</span>
        <span>Command</span>
        <span>Agent</span>
        <span>Output</span>
        <span>Time</span>
      </div>
      <Virtual
        ids={ids}
        label="Sessions"
        height={height}
        row={sessionRow}
        onEnd={onEnd}
      />
    </>
  );
}

const sessionRow = (id: string, tabIndex: number) => <Row id={id} tabIndex={tabIndex} />;

/** A function that fetches older sessions until the list, which has this length, is longer or there are no more. */
function useMoreSessions(length: number): () => void {
  const shown = useRef(length);
  useEffect(() => {
    shown.current = length;
  }, [length]);
  return useCallback(() => {
    const before = shown.current;
    const more = async () => {
      while ((await stateCache.moreSessions()) && shown.current === before);
    };
    more().catch(() => undefined);
  }, []);
}

/** Fetches matching sessions that are not in the cache. */
function useOlderOnes(words: string): void {
  const timesRead = useValue(stateCache.timesRead);
  useEffect(() => {
    if (words === '') return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const path = withQuery('/v1/sessions', { include_ended: true, q: words, limit: 200 });
      const found = get<{ sessions: Session[] }>(path, stop.signal);
      found.then(
        ({ sessions }) => {
          for (const session of sessions) if (!stateCache.sessions.get(session.session_id)) stateCache.putSession(session);
        },
        () => undefined,
      );
    }, TYPING);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [words, timesRead]);
}

function Row({ id, tabIndex }: { id: string; tabIndex: number }) {
  const session = useEntry(stateCache.sessions, id);
  const pulse = useEntry(stateCache.pulses, id);
  if (!session) return null;
  const alive = isAlive(session);
  return (
    <div className="line session-row">
      <span className="lead">
        <SessionState session={session} waits={pulse?.waiting_for_input ?? false} />
      </span>
      <span>
        <Link className="name one-line block" href={`/sessions/${id}`} tabIndex={tabIndex} data-main title={visible(session.command)}>
          <OneLine text={session.command} before={session.name && <b>{session.name}:</b>} />
        </Link>
        <span className="soft small one-line block">
          {id}
          {session.machine && ` on ${session.machine}`}, {alive ? 'started ' : session.status === 'failed' ? '' : `ran ${length(session.duration)}, `}
          <Ago stamp={session.created_at} />
        </span>
      </span>
      <span className="soft small one-line wide" title={session.agent}>
        {session.agent}
      </span>
      <span className="numbers small wide">{bytes(pulse?.bytes_total ?? session.bytes_total)}</span>
      <span className="numbers small wide">
        {alive ? <Since stamp={session.created_at} /> : length(session.duration)}
      </span>
      <span className="end">
        {alive && <KillButton key={id} session={session} compact />}
      </span>
    </div>
  );
}

interface SearchPage {
  matches: Match[];
  next: string | null;
  /** Machines that could not be searched, and the reason. */
  unreachable?: Record<string, string>;
}

/** Lines per request. */
const PAGE = 500;

/** The next matching lines. A search that timed out without a match is continued. */
async function find(pattern: string, from: string | null, signal?: AbortSignal): Promise<SearchPage> {
  let after = from ?? undefined;
  while (true) {
    const found = await get<SearchPage>(withQuery('/v1/search', { pattern, limit: PAGE, after }), signal);
    if (found.matches.length > 0 || found.next === null) return found;
    after = found.next;
  }
}

function Matches({ pattern }: { pattern: string }) {
  const [found, setFound] = useState<{ pattern: string; found: SearchPage } | null>(null);
  const [fault, setFault] = useState('');
  useEffect(() => {
    if (pattern === '') return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      find(pattern, null, stop.signal).then(
        (response) => {
          setFound({ pattern, found: response });
          setFault('');
        },
        (error: unknown) => {
          if (!stop.signal.aborted) setFault(errorMessage(error));
        },
      );
    }, TYPING);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [pattern]);
  const readOn = useCallback(async (pattern: string, from: SearchPage) => {
    try {
      const page = await find(pattern, from.next);
      const all = {
        matches: [...from.matches, ...page.matches],
        next: page.next,
        unreachable: { ...from.unreachable, ...page.unreachable },
      };
      // The pattern may have changed meanwhile.
      setFound((now) => (now?.found === from ? { pattern, found: all } : now));
    } catch (error) {
      setFault(errorMessage(error));
    }
  }, []);
  const byKey = useMemo(
    () => new Map((found?.found.matches ?? []).map((match) => [`${match.session_id}:${match.line}`, match])),
    [found],
  );
  const keys = useMemo(() => [...byKey.keys()], [byKey]);
  const row = useCallback(
    (key: string, tabIndex: number) => <MatchRow match={byKey.get(key)} pattern={pattern} tabIndex={tabIndex} />,
    [byKey, pattern],
  );
  const height = useRowHeight(56, 96);
  const onEnd = useCallback(() => {
    if (found && found.found.next !== null) void readOn(found.pattern, found.found);
  }, [found, readOn]);
  if (pattern === '') {
    return (
      <Empty title="Search session output">
        <span>Type a word or a regular expression, such as</span>
        <code>error|warning</code>
      </Empty>
    );
  }
  if (fault) return <p className="fault" role="alert">{fault}</p>;
  if (found?.pattern !== pattern) return <p className="soft" role="status">Searching…</p>;
  const unreachable = Object.values(found.found.unreachable ?? {});
  const notSearched = unreachable.length > 0 && (
    <span className="soft small" role="status">
      Not searched: {unreachable.join('; ')}
    </span>
  );
  if (keys.length === 0) {
    return (
      <>
        <Empty title="No matching lines" />
        {notSearched}
      </>
    );
  }
  return (
    <>
      <span className="soft small" role="status">
        {plural(keys.length, 'line')} {keys.length === 1 ? 'matches' : 'match'}{found.found.next === null ? '' : ' so far'}
      </span>
      {notSearched}
      <Virtual
        ids={keys}
        label="Matching lines"
        height={height}
        row={row}
        onEnd={onEnd}
      />
    </>
  );
}

/** Link to the line in its log, with the same search. */
function lineLink(match: Match, pattern: string): string {
  return `${withQuery(`/sessions/${match.session_id}`, { find: pattern, regex: 1 })}#L${match.line}`;
}

interface MatchRowProps {
  match: Match | undefined;
  pattern: string;
  tabIndex: number;
}

function MatchRow({ match, pattern, tabIndex }: MatchRowProps) {
  if (!match) return null;
  return (
    <div className="line match-row">
      <span>
        <Link className="name one-line block" href={lineLink(match, pattern)} tabIndex={tabIndex} data-main>
          <OneLine text={match.command} />
        </Link>
        <span className="soft small">
          line {count(match.line)}
          {match.machine && ` on ${match.machine}`}
        </span>
      </span>
      <Exact text={match.text} className="one-line small" />
    </div>
  );
}
