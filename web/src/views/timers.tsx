// Open timers, the history of timers, and statistics.

import { useCallback, useMemo, useRef, useState } from 'react';
import { conditionWords } from '../condition';
import { count, length, moment, visible } from '../format';
import { errorMessage } from '../state/actions';
import { get, withQuery } from '../state/api';
import { now } from '../state/clock';
import { stateCache, type CachedTimer } from '../state/state-cache';
import type { KeyedStore } from '../state/keyed-store';
import { LatestResponse } from '../state/latest-response';
import { ordered } from '../state/order';
import { useParam } from '../state/route';
import { useIds, useEntry } from '../state/use';
import { useValue } from '../state/value';
import { isOpen, type Timer } from '../wire';
import { AgentFilter } from '../parts/agent-filter';
import { Empty, CommandExample } from '../parts/empty';
import { PlusIcon } from '../parts/icons';
import { Link } from '../parts/link';
import { openNewTimer } from '../parts/new-timer';
import { useReadAgain } from '../parts/statistics';
import { useStableOrder } from '../parts/stable-order';
import { TabbedPage } from '../parts/tabbed-page';
import { OneLine } from '../parts/text';
import { completionReason, TimeLeft, purpose, SteppingBar, TimerMenu, TimerState } from '../parts/timer';
import { useRowHeight, Virtual } from '../parts/virtual';
import { onTimerEnd, TimerStatistics } from './timer-stats';

export function Timers() {
  return (
    <TabbedPage
      title="Timers"
      tabs={[
        { value: 'open', name: 'Open', content: <Open /> },
        { value: 'history', name: 'History', content: <History /> },
        { value: 'stats', name: 'Statistics', content: <TimerStatistics /> },
      ]}
      action={
        <button type="button" className="button primary" onClick={openNewTimer}>
          <PlusIcon /> New timer
        </button>
      }
    />
  );
}

const ORDERS = ['remaining', 'created', 'status', 'reason'] as const;
type Order = (typeof ORDERS)[number];

/** Compares words in the order of the locale; one collator is much faster than `localeCompare`. */
const words = new Intl.Collator(undefined, { numeric: true });

/** Compares timers at one point in time: a paused timer keeps its time left. */
function comparison(order: Order): (a: CachedTimer, b: CachedTimer) => number {
  const at = now();
  const due = (timer: CachedTimer) => timer.due ?? at + timer.remaining_time * 1_000;
  switch (order) {
    case 'remaining':
      return (a, b) => due(a) - due(b);
    case 'created':
      return (a, b) => b.created_at - a.created_at;
    case 'status':
      return (a, b) => words.compare(a.status, b.status) || due(a) - due(b);
    case 'reason':
      return (a, b) => words.compare(purpose(a), purpose(b));
  }
}

/** Searchable text of a timer. A timer object never changes, so the text is built once. */
const texts = new WeakMap<Timer, string>();

function holds(timer: Timer, wanted: string): boolean {
  let text = texts.get(timer);
  if (text === undefined) {
    text = [timer.timer_id, timer.reason, timer.mission, timer.agent, timer.status].join(' ').toLowerCase();
    texts.set(timer, text);
  }
  return text.includes(wanted);
}

function Open() {
  const [text, setText] = useParam('q');
  const [status, setStatus] = useParam('state');
  const [agent, setAgent] = useParam('agent');
  const [sort, setSort] = useParam('sort');
  const order = ORDERS.find((known) => known === sort) ?? 'remaining';
  const sought = text.trim().toLowerCase();
  const choose = useCallback(
    (store: KeyedStore<CachedTimer>, before: string[]) => {
      const wanted = (timer: CachedTimer) =>
        isOpen(timer) &&
        (status === '' || timer.status === status) &&
        (agent === '' || timer.agent === agent) &&
        (sought === '' || holds(timer, sought));
      return ordered(store, before, (timer) => timer.timer_id, wanted, comparison(order));
    },
    [sought, status, agent, order],
  );
  const beyond = useValue(stateCache.unloadedTimers);
  const { ids, props } = useStableOrder(useIds(stateCache.timers, choose));
  const height = useRowHeight(60, 112);
  const showAll = () => {
    setText('');
    setStatus('');
    setAgent('');
  };
  const filtered = text !== '' || status !== '' || agent !== '';
  return (
    <>
      <div className="tools">
        <label className="search">
          <span className="hidden">Find timers</span>
          <input
            className="input"
            type="search"
            placeholder="Find by reason, mission, agent or id"
            value={text}
            onChange={(event) => setText(event.target.value)}
            data-search
          />
        </label>
        <label>
          <span className="hidden">State</span>
          <select className="input" value={status} onChange={(event) => setStatus(event.target.value)}>
            <option value="">All states</option>
            <option value="running">Running</option>
            <option value="paused">Paused</option>
            <option value="running_background">In background</option>
          </select>
        </label>
        <AgentFilter store={stateCache.timers} agent={agent} onChange={setAgent} />
        <label>
          <span className="hidden">Order</span>
          <select className="input" value={order} onChange={(event) => setSort(event.target.value === 'remaining' ? '' : event.target.value)}>
            <option value="remaining">Next first</option>
            <option value="created">Newest first</option>
            <option value="status">By state</option>
            <option value="reason">By reason</option>
          </select>
        </label>
        <span className="soft small numbers" role="status">
          {count(ids.length)} {ids.length === 1 ? 'timer' : 'timers'}
        </span>
      </div>
      {beyond > 0 && (
        <p className="soft small">
          These are the timers that are due next. {count(beyond)} more are not shown here; <code>abide timer list</code> shows
          all.
        </p>
      )}
      {ids.length === 0 ? (
        filtered ? (
          <Empty title="No matching timers">
            <button type="button" className="button compact" onClick={showAll}>
              Show all
            </button>
          </Empty>
        ) : (
          <Empty title="No active timers">
            <span>A timer waits for a time or a condition. Try one:</span>
            <CommandExample command="abide timer start 10m --reason 'tea'" />
          </Empty>
        )
      ) : (
        <>
          <div className="heads timer-row" aria-hidden="true">
            <span>State</span>
            <span>Reason or mission</span>
            <span>Progress</span>
            <span>Time left</span>
            <span>Agent</span>
          </div>
          <div {...props}>
            <Virtual ids={ids} label="Active timers" height={height} row={openRow} />
          </div>
        </>
      )}
    </>
  );
}

function TimerLink({ timer, tabIndex }: { timer: Timer; tabIndex: number }) {
  return (
    <Link className="name one-line block" href={`/timers/${timer.timer_id}`} tabIndex={tabIndex} data-main title={visible(purpose(timer))}>
      <OneLine text={purpose(timer)} prose />
    </Link>
  );
}

const openRow = (id: string, tabIndex: number) => <Row id={id} tabIndex={tabIndex} />;

function Row({ id, tabIndex }: { id: string; tabIndex: number }) {
  const timer = useEntry(stateCache.timers, id);
  if (!timer) return null;
  const condition = timer.until == null ? '' : `or when ${conditionWords(timer.until)}`;
  return (
    <div className="line timer-row">
      <span className="lead">
        <TimerState status={timer.status} />
      </span>
      <span>
        <TimerLink timer={timer} tabIndex={tabIndex} />
        <span className="soft small one-line block" title={visible(condition)}>
          {timer.mission ? 'mission' : 'waiting'}, total {length(timer.total_duration)}
          {!timer.mission && timer.timeout_duration < timer.total_duration && `, standby ${length(timer.timeout_duration)}`}
          {condition && `, ${condition}`}
        </span>
      </span>
      <SteppingBar timer={timer} />
      <span className="time-left">
        <TimeLeft timer={timer} />
      </span>
      <span className="soft small one-line wide">{timer.agent}</span>
      <span className="end">
        <TimerMenu key={id} timer={timer} tabIndex={tabIndex} />
      </span>
    </div>
  );
}

interface Past {
  timers: Timer[];
  next?: string | null;
}

function history(after?: string): Promise<Past> {
  return get<Past>(withQuery('/v1/timers/history', { limit: 200, after }));
}

function History() {
  const [past, setPast] = useState<Past | null>(null);
  const [fault, setFault] = useState('');
  const newest = useRef(new LatestResponse());
  const readTop = useCallback(async () => {
    try {
      const page = await newest.current.of(history());
      if (!page) return;
      setPast((old) => (old === null ? page : newOnTop(page, old)));
      setFault('');
    } catch (error) {
      setFault(errorMessage(error));
    }
  }, []);
  const readOn = useCallback(async (after: string) => {
    try {
      const page = await history(after);
      // If the list was fetched again meanwhile, this page does not follow its end.
      setPast((old) => (old?.next === after ? { ...page, timers: [...old.timers, ...page.timers] } : old));
      setFault('');
    } catch (error) {
      setFault(errorMessage(error));
    }
  }, []);
  useReadAgain(useCallback(() => void readTop(), [readTop]), onTimerEnd);
  const byId = useMemo(() => new Map((past?.timers ?? []).map((timer) => [timer.timer_id, timer])), [past]);
  const next = past?.next;
  const ids = useMemo(() => [...byId.keys()], [byId]);
  const row = useCallback(
    (id: string, tabIndex: number) => <PastRow timer={byId.get(id)} tabIndex={tabIndex} />,
    [byId],
  );
  const height = useRowHeight(56, 96);
  const onEnd = useCallback(() => {
    if (next) void readOn(next);
  }, [next, readOn]);
  if (fault) return <p className="fault">{fault}</p>;
  if (!past) return <p className="soft">Loading…</p>;
  if (ids.length === 0) {
    return (
      <Empty title="No finished timers">
        <span>Timers that complete or are stopped are kept for 30 days.</span>
      </Empty>
    );
  }
  return (
    <>
      <div className="heads past-row" aria-hidden="true">
        <span>Outcome</span>
        <span>Reason or mission</span>
        <span>Time passed</span>
        <span>Ended</span>
        <span>Agent</span>
      </div>
      <Virtual ids={ids} label="Finished timers" height={height} row={row} onEnd={onEnd} />
    </>
  );
}

/** Adds new entries on top of those that were fetched before, so that the scroll position stays. */
function newOnTop(fresh: Past, old: Past): Past {
  const newest = old.timers[0]?.timer_id;
  const at = fresh.timers.findIndex((timer) => timer.timer_id === newest);
  // Without a common entry, timers between the two may be missing.
  return at < 0 ? fresh : { ...old, timers: [...fresh.timers.slice(0, at), ...old.timers] };
}

function PastRow({ timer, tabIndex }: { timer: Timer | undefined; tabIndex: number }) {
  if (!timer) return null;
  const ended = timer.ended_at ?? timer.created_at + timer.elapsed_time * 1_000;
  const why = timer.status === 'stopped' ? timer.stop_reason : completionReason(timer);
  return (
    <div className="line past-row">
      <span className="lead">
        <TimerState status={timer.status} />
      </span>
      <span>
        <TimerLink timer={timer} tabIndex={tabIndex} />
        {why && (
          <span className="soft small one-line block">
            <OneLine text={why} prose />
          </span>
        )}
      </span>
      <span className="numbers small">
        {length(timer.elapsed_time)} of {length(timer.total_duration)}
        <span className="soft narrow">, {moment(ended, now())}</span>
      </span>
      <span className="soft small wide">{moment(ended, now())}</span>
      <span className="soft small one-line wide">{timer.agent}</span>
    </div>
  );
}
