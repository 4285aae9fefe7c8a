// One timer: both durations, its condition and its history.

import { useEffect, useState, type ReactNode } from 'react';
import { conditionWords } from '../condition';
import { ago, length, moment } from '../format';
import { errorMessage } from '../state/actions';
import { get, withQuery } from '../state/api';
import { now } from '../state/clock';
import { stateCache, type CachedTimer } from '../state/state-cache';
import type { KeyedStore } from '../state/keyed-store';
import { connection } from '../state/live';
import { useIds, useSecond, useEntry } from '../state/use';
import { useValue } from '../state/value';
import { isOpen, type Message, type Session, type Timer } from '../wire';
import { Empty } from '../parts/empty';
import { Link } from '../parts/link';
import { SessionState } from '../parts/session';
import { Exact, OneLine, TextWithOutput, WholeText } from '../parts/text';
import { completionReason, TimeLeft, PausedUntil, purpose, Standby, TimerBar, TimerButtons, TimerState } from '../parts/timer';

/** A timer of the cache; an ended timer is not in the cache and is fetched. */
function useTimer(id: string): { timer: CachedTimer | undefined; fault: string } {
  const open = useEntry(stateCache.timers, id);
  const [past, setPast] = useState<CachedTimer>();
  const [fault, setFault] = useState('');
  const live = useValue(connection).state === 'live';
  const known = open !== undefined;
  useEffect(() => {
    if (known || !live) return;
    const stop = new AbortController();
    const read = get<{ timers: Timer[] }>(withQuery('/v1/timers/history', { q: id, limit: 10 }), stop.signal);
    read.then(
      ({ timers }) => {
        const found = timers.find((timer) => timer.timer_id === id);
        if (found) setPast({ ...found, due: null });
        setFault(found ? '' : `There is no timer ${id}`);
      },
      (error: unknown) => {
        if (!stop.signal.aborted) setFault(errorMessage(error));
      },
    );
    return () => stop.abort();
  }, [id, known, live]);
  return { timer: open ?? past, fault };
}

export function TimerView({ id }: { id: string }) {
  const { timer, fault } = useTimer(id);
  if (!timer) {
    return (
      <div className="page">
        <h1>Timer</h1>
        {fault ? (
          <Empty title={fault}>
            <Link href="/timers">All timers</Link>
          </Empty>
        ) : (
          <p className="soft">Loading…</p>
        )}
      </div>
    );
  }
  const open = isOpen(timer);
  return (
    <div className="page">
      <header className="session-head">
        <div className="page-head">
          <TimerState status={timer.status} />
          <span className="soft small">{id}</span>
          <div className="end">
            <TimerButtons timer={timer} />
          </div>
        </div>
        <h1 className="prose-title">
          <WholeText text={purpose(timer)} label={timer.mission ? 'Mission' : 'Reason'} />
        </h1>
        <div className="facts">
          <span>{timer.mission ? 'mission' : 'waiting'}</span>
          <span>agent {timer.agent}</span>
          {timer.status === 'paused' && timer.pause_until != null && (
            <span>
              <PausedUntil until={timer.pause_until} />
            </span>
          )}
        </div>
      </header>
      <div className="clocks">
        <section className="card" aria-labelledby="timer-total">
          <h2 id="timer-total">Total</h2>
          <div className="timer-line">
            <span className="left">{open ? <TimeLeft timer={timer} /> : length(timer.elapsed_time)}</span>
            <span className="soft small">
              {open ? 'left' : 'passed'} of {length(timer.total_duration)}
            </span>
          </div>
          <TimerBar timer={timer} />
        </section>
        {!timer.mission && open && (
          <section className="card" aria-labelledby="timer-standby">
            <h2 id="timer-standby">Standby</h2>
            <Standby timer={timer} />
          </section>
        )}
        {timer.until != null && (
          <section className="card" aria-labelledby="timer-condition">
            <h2 id="timer-condition">Condition</h2>
            <p>
              {open ? 'Completes early when ' : timer.completed_by === 'condition' ? 'Completed early when ' : 'Not met: '}
              <Exact text={conditionWords(timer.until)} />
            </p>
            {(timer.last_look ?? timer.seen) && (
              <div className="soft small">
                Last check: <TextWithOutput text={timer.last_look ?? timer.seen ?? ''} />
              </div>
            )}
          </section>
        )}
      </div>
      <section className="section" aria-labelledby="timer-history">
        <h2 id="timer-history">History</h2>
        <History timer={timer} />
      </section>
      <Tries id={id} />
    </div>
  );
}

interface Entry {
  at: number;
  what: ReactNode;
}

function ending(timer: Timer): string {
  return timer.status === 'stopped' ? 'Stopped; nobody was notified' : `Completed: ${completionReason(timer)}`;
}

function entries(timer: CachedTimer, messages: Message[]): Entry[] {
  const all: Entry[] = [{ at: timer.created_at, what: `Created for agent ${timer.agent}` }];
  if (timer.last_check_at > timer.created_at) all.push({ at: timer.last_check_at, what: 'Last call about it' });
  if (timer.ended_at !== undefined) {
    const late = timer.late !== undefined && timer.late >= 1 ? `, ${length(timer.late)} late` : '';
    all.push({ at: timer.ended_at, what: ending(timer) + late });
  }
  for (const message of messages) {
    all.push({ at: message.created_at, what: <Link href="/messages">Message to {message.agent}</Link> });
    if (message.seen_at !== null) all.push({ at: message.seen_at, what: `Message seen by ${message.agent}` });
    for (const { waker, ok, at, fault } of message.deliveries) {
      if (at === null) continue;
      const words = ok ? 'delivered' : `failed: ${fault ?? ''}`;
      all.push({ at, what: <OneLine text={`Waker ${waker} ${words}`} prose /> });
    }
  }
  return all.sort((a, b) => a.at - b.at);
}

function History({ timer }: { timer: CachedTimer }) {
  const second = useSecond();
  const ids = useIds(stateCache.messages, all);
  const own = ids.map((id) => stateCache.messages.get(id)).filter((message) => message?.timer_id === timer.timer_id);
  const past = entries(timer, own as Message[]);
  return (
    <ol className="card history">
      {past.map(({ at, what }, place) => (
        <li key={place}>
          <time dateTime={new Date(at).toISOString()} title={ago(at, second)} className="numbers soft">
            {moment(at, now())}
          </time>
          <span>{what}</span>
        </li>
      ))}
      {timer.status === 'paused' && (
        <li className="soft">
          <span>now</span>
          <span>Paused{timer.stop_reason ? `: ${timer.stop_reason}` : ''}</span>
        </li>
      )}
      {timer.due !== null && (
        <li className="soft">
          <time dateTime={new Date(timer.due).toISOString()} className="numbers">
            {moment(timer.due, now())}
          </time>
          <span>Due</span>
        </li>
      )}
      {!isOpen(timer) && timer.stop_reason && (
        <li>
          <span className="soft">reason</span>
          <Exact text={timer.stop_reason} className="prose" />
        </li>
      )}
    </ol>
  );
}

function all(store: KeyedStore<Message>): string[] {
  return [...store.all()].map((message) => message.message_id);
}

/** Runs of the command of the timer's condition, as far as they are stored. */
function Tries({ id }: { id: string }) {
  const ids = useIds(stateCache.sessions, sessions);
  const own = ids.map((session) => stateCache.sessions.get(session)).filter((session) => session?.started_by === id) as Session[];
  if (own.length === 0) return null;
  const newest = own.sort((a, b) => b.created_at - a.created_at).slice(0, 20);
  return (
    <section className="section" aria-labelledby="timer-tries">
      <h2 id="timer-tries">Checks of its command</h2>
      <ul className="card recent-list">
        {newest.map((session) => (
          <li key={session.session_id}>
            <SessionState session={session} />
            <Link className="name one-line" href={`/sessions/${session.session_id}`}>
              <OneLine text={session.command} />
            </Link>
            <span className="soft small numbers">{moment(session.created_at, now())}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function sessions(store: KeyedStore<Session>): string[] {
  return [...store.all()].map((session) => session.session_id);
}
