// Filter by agent, if there are several agents.

import { useCallback } from 'react';
import type { KeyedStore } from '../state/keyed-store';
import { useIds } from '../state/use';

interface Props<T extends { agent: string }> {
  store: KeyedStore<T>;
  agent: string;
  onChange: (agent: string) => void;
}

const names = new Intl.Collator(undefined, { numeric: true });

export function AgentFilter<T extends { agent: string }>({ store, agent, onChange }: Props<T>) {
  const choose = useCallback((all: KeyedStore<T>) => {
    const agents = new Set<string>();
    for (const thing of all.all()) agents.add(thing.agent);
    return [...agents].sort(names.compare);
  }, []);
  const agents = useIds(store, choose);
  if (agents.length < 2 && agent === '') return null;
  const listed = agent === '' || agents.includes(agent) ? agents : [...agents, agent];
  return (
    <label>
      <span className="hidden">Agent</span>
      <select className="input" value={agent} onChange={(event) => onChange(event.target.value)}>
        <option value="">All agents</option>
        {listed.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
