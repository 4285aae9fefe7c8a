// A session: what it does or how it ended, and as a card with its live tail.

import { memo, useState } from 'react';
import { bytes, duration, share, visible } from '../format';
import { kill } from '../state/acts';
import { type HeldSession, house } from '../state/house';
import { useSecond, useThing } from '../state/use';
import { isAlive, type Pulse, type Session } from '../wire';
import { Bar } from './bar';
import { Sure } from './dialog';
import { Link } from './link';
import { FewLines, Since, Tail, WholeText } from './text';

const ENDS: Record<string, string> = {
  deadline: 'timed out',
  idle_declined: 'ended: no output',
  user: 'killed by a person',
  agent: 'killed by its agent',
  inactivity: 'closed: inactive',
  out_of_memory: 'out of memory',
  lost: 'lost',
};

/** How it ended, in words and in tone. */
export function howItEnded(session: Session): [string, string] {
  if (session.status === 'failed') return ['failed to start', 'bad'];
  const special = session.end ? ENDS[session.end] : undefined;
  if (special) return [special, 'warn'];
  if (session.signal !== null) return [`signal ${session.signal}`, 'bad'];
  if (session.exit_code === null) return ['ended', ''];
  return [`exit code ${session.exit_code}`, session.exit_code === 0 ? 'good' : 'bad'];
}

export function SessionState({ session, waits }: { session: HeldSession; waits?: boolean }) {
  if (session.ending) return <span className="chip warn">Killing…</span>;
  if (session.status === 'running') {
    return waits ? <span className="chip warn">Waiting for input</span> : <span className="chip good">Running</span>;
  }
  if (isAlive(session)) return <span className="chip warn">Background processes</span>;
  const [words, tone] = howItEnded(session);
  return <span className={`chip ${tone}`}>{words}</span>;
}

/** How long it has been quiet, against how long it may be. */
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

export function KillButton({ session, compact }: { session: HeldSession; compact?: boolean }) {
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
        <Sure
          open
          onClose={() => setAsking(false)}
          title="Kill this session?"
          act="Kill it"
          onYes={() => void kill(session.session_id)}
        >
          <WholeText className="command" text={session.command} label="Command" />
          <p className="soft">This ends the command and every process it started. Its log is kept.</p>
        </Sure>
      )}
    </>
  );
}

export const SessionCard = memo(function SessionCard({ id }: { id: string }) {
  const session = useThing(house.sessions, id);
  const pulse = useThing(house.pulses, id);
  if (!session) return null;
  return (
    <article className="card session-card" tabIndex={-1} data-stop aria-labelledby={`${id}-title`}>
      <div className="card-head">
        <h3 className="title" id={`${id}-title`}>
          <Link href={`/sessions/${id}`} title={visible(session.command)}>
            <FewLines text={session.command} />
          </Link>
        </h3>
        <SessionState session={session} waits={pulse?.waiting_for_input ?? false} />
      </div>
      <Tail lines={pulse?.tail ?? session.tail ?? []} label={`Last lines of ${id}`} unwrapped />
      <QuietBar session={session} pulse={pulse} />
      {/* Above what grows with each number: a button that moves while it is pressed is not pressed. */}
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
      </div>
    </article>
  );
});
