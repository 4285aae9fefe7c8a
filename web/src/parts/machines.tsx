// Machines of the fleet. A machine that is alone shows nothing.

import { useCallback, useEffect, useState, useSyncExternalStore } from 'react';
import { plural, visible } from '../format';
import { get } from '../state/api';
import { daemon } from '../state/live';
import { stateCache } from '../state/state-cache';
import { useValue } from '../state/value';
import { isAlive, type Fleet, type Machine } from '../wire';
import { Ago } from './text';

/** Time between two looks at the machines of a fleet, in milliseconds. */
const LOOK = 10_000;

const STATES: Record<Machine['state'], [string, string]> = {
  here: ['This machine', 'good'],
  alive: ['Alive', 'good'],
  unreachable: ['Unreachable', 'warn'],
  left: ['Left', ''],
  revoked: ['Revoked', 'bad'],
};

/** The fleet, if this machine is not alone in it. A daemon that begins to share its database starts again. */
function useFleet(): Fleet | null {
  const [fleet, setFleet] = useState<Fleet | null>(null);
  const started = useValue(daemon)?.started_at;
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = () => {
      get<Fleet>('/v1/machines', stop.signal).then(
        (found) => {
          setFleet(found.machines.length > 1 ? found : null);
          if (found.machine !== null) timer = setTimeout(look, LOOK);
        },
        () => {
          if (!stop.signal.aborted) timer = setTimeout(look, LOOK);
        },
      );
    };
    look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [started]);
  return fleet;
}

/**
 * Number of sessions of a machine that have not ended, as far as it is known. The machine of the page is not named in
 * its sessions.
 */
function useRunning(machine: string | undefined): number {
  const subscribe = useCallback((listener: () => void) => stateCache.sessions.subscribe(listener), []);
  return useSyncExternalStore(subscribe, () => {
    let running = 0;
    for (const session of stateCache.sessions.all()) {
      if (session.machine === machine && (isAlive(session) || session.status === 'unreachable')) running += 1;
    }
    return running;
  });
}

function Row({ machine }: { machine: Machine }) {
  const running = useRunning(machine.state === 'here' ? undefined : machine.name);
  const isCounted = useValue(stateCache.unloadedSessions) === 0;
  const [words, tone] = STATES[machine.state];
  return (
    <li>
      <span className={`chip ${tone}`}>{machine.declared_lost ? 'Lost' : words}</span>
      <span className="name one-line" title={visible(machine.name)}>
        <b>{visible(machine.name)}</b>
        {isCounted && <span className="soft small"> {running === 0 ? 'no sessions' : plural(running, 'session')}</span>}
      </span>
      <span className="soft small">
        seen <Ago stamp={machine.as_of} />
      </span>
    </li>
  );
}

export function Machines() {
  const fleet = useFleet();
  if (!fleet) return null;
  return (
    <section className="section" aria-labelledby="now-machines">
      <div className="section-head">
        <h2 id="now-machines">Machines</h2>
        <span className="badge">{fleet.machines.length}</span>
      </div>
      {fleet.trouble && <p className="fault">{visible(fleet.trouble)}</p>}
      <ul className="card recent-list">
        {fleet.machines.map((machine) => (
          <Row key={machine.name} machine={machine} />
        ))}
      </ul>
    </section>
  );
}
