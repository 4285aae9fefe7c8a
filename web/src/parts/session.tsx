// A session: its state or result, and its card with the live tail.

import { memo, useState } from 'react';
import { bytes, duration, share, visible } from '../format';
import { kill } from '../state/actions';
import { type CachedSession, stateCache } from '../state/state-cache';
import { useSecond, useEntry } from '../state/use';
import { isAlive, type Pulse, type Session } from '../wire';
import { Bar } from './bar';
import { ConfirmDialog } from './dialog';
import { Link } from './link';
import { FewLines, Since, Tail, WholeText } from './text';

const ENDS: Record<string, string> = {
  deadline: 'Timed out',
  idle_declined: 'Declined by a person',
  user: 'Killed by a person',
  agent: 'Killed by its agent',
  inactivity: 'Closed: inactive',
  out_of_memory: 'Out of memory',
  sandbox: 'Ended by its sandbox',
  lost: 'Lost',
};

/** The result of a session: its text and its tone. */
function howItEnded(session: Session): [string, string] {
  if (session.status === 'failed') return ['Failed to start', 'bad'];
  if (session.status === 'unreachable') return ['Machine unreachable', 'warn'];
  if (session.status === 'lost') return ['Lost', 'bad'];
  const special = session.end ? ENDS[session.end] : undefined;
  if (special) return [special, 'warn'];
  if (session.signal !== null) return [`Signal ${session.signal}`, 'bad'];
  if (session.exit_code === null) return ['Ended', ''];
  return [`Exit code ${session.exit_code}`, session.exit_code === 0 ? 'good' : 'bad'];
}

export function SessionState({ session, waits }: { session: CachedSession; waits?: boolean }) {
  if (session.ending) return <span className="chip warn">Killing…</span>;
  if (session.status === 'running') {
    return waits ? <span className="chip warn">Waiting for input</span> : <span className="chip good">Running</span>;
  }
  if (isAlive(session)) return <span className="chip warn">Background processes</span>;
  const [words, tone] = howItEnded(session);
  return <span className={`chip ${tone}`}>{words}</span>;
}

/** Time without output, compared with the idle limit. */
export function Quiet({ session, pulse }: { session: Session; pulse: Pulse | undefined }) {
  const now = useSecond();
  const last = Math.max(pulse?.last_activity ?? 0, session.last_activity);
  const limit = session.idle ?? (session.inactivity_timeout || null);
  const quiet = Math.max(0, (now - last) / 1_000);
  return (
    <span>
      quiet <b>{duration(quiet)}</b>
      {limit !== null && (quiet > limit ? `, limit ${duration(limit)}` : ` of ${duration(limit)}`)}
    </span>
  );
}

function QuietBar({ session, pulse }: { session: Session; pulse: Pulse | undefined }) {
  const limit = session.idle ?? (session.inactivity_timeout || null);
  if (limit === null) return null;
  const last = Math.max(pulse?.last_activity ?? 0, session.last_activity);
  const label = `Quiet time against its limit of ${duration(limit)}`;
  return <Bar label={label} total={limit} full={last + limit * 1_000} className="thin warn" />;
}

export function Load({ pulse }: { pulse: Pulse | undefined }) {
  if (!pulse) return null;
  return (
    <>
      {pulse.cpu !== null && (
        <span>
          CPU <b>{share(pulse.cpu)}</b>
        </span>
      )}
      {pulse.memory !== null && (
        <span>
          memory <b>{bytes(pulse.memory)}</b>
        </span>
      )}
    </>
  );
}

export function KillButton({ session, compact }: { session: CachedSession; compact?: boolean }) {
  const [asking, setAsking] = useState(false);
  if (!isAlive(session)) return null;
  return (
    <>
      <button
        type="button"
        className={`button bad ${compact ? 'compact' : ''}`}
        disabled={session.ending ?? false}
        onClick={() => setAsking(true)}
      >
        Kill
      </button>
      {asking && (
        <ConfirmDialog
          open
          onClose={() => setAsking(false)}
          title="Kill this session?"
          act="Kill it"
          onYes={() => void kill(session.session_id)}
        >
          <WholeText className="command" text={session.command} label="Command" />
          <p className="soft">This ends the command and every process it started. Its log is kept.</p>
        </ConfirmDialog>
      )}
    </>
  );
}

/** Text for a session whose last lines are not known here. */
export function withoutTail(session: Session): string | undefined {
  if (session.bytes_total === 0) return undefined;
  // Other machines do not send their output here until it is asked for.
  return session.machine ? `Its output is on ${session.machine}` : `${bytes(session.bytes_total)} in its log`;
}

export const SessionCard = memo(function SessionCard({ id }: { id: string }) {
  const session = useEntry(stateCache.sessions, id);
  const pulse = useEntry(stateCache.pulses, id);
  if (!session) return null;
  return (
    <article className="card session-card" tabIndex={-1} data-stop aria-labelledby={`${id}-title`}>
      <div className="card-head">
        <h3 className="title" id={`${id}-title`}>
          <Link href={`/sessions/${id}`} title={visible(session.command)}>
            <FewLines text={session.command} before={session.name && <b>{session.name}: </b>} />
          </Link>
        </h3>
        <SessionState session={session} waits={pulse?.waiting_for_input ?? false} />
      </div>
      <Tail
        lines={pulse?.tail ?? session.tail ?? []}
        label={`Last lines of ${id}`}
        empty={withoutTail(session)}
        unwrapped
      />
      <QuietBar session={session} pulse={pulse} />
      {/* Above the parts that grow: a button that moves while it is pressed is not clicked. */}
      <div className="row-of-buttons">
        <Link className="button compact" href={`/sessions/${id}`}>
          Open
        </Link>
        <KillButton session={session} compact />
      </div>
      <div className="facts">
        <span>
          age{' '}
          <b>
            <Since stamp={session.created_at} />
          </b>
        </span>
        <Quiet session={session} pulse={pulse} />
        <Load pulse={pulse} />
        <span>agent {session.agent}</span>
        {session.machine && <span>on {session.machine}</span>}
      </div>
    </article>
  );
});
