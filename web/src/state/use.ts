// The state as React sees it.

import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { onTick, second } from './clock';
import type { Keyed } from './keyed';

/** One thing; drawn anew only when that one changes. */
export function useThing<T extends object>(store: Keyed<T>, key: string): T | undefined {
  const subscribe = useCallback((listener: () => void) => store.subscribeTo(key, listener), [store, key]);
  return useSyncExternalStore(subscribe, () => store.get(key));
}

/** Lists are put in order at most this often. */
const ORDER_EVERY = 250;

/**
 * The ids of what `choose` picks, in its order. Drawn anew only when the ids or their order change,
 * and reckoned a few times a second at most, however fast the things change.
 */
export function useIds<T extends object>(store: Keyed<T>, choose: (all: Iterable<T>) => string[]): string[] {
  const [ids, setIds] = useState<string[]>(() => choose(store.all()));
  const latest = useRef(ids);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let last = 0;
    const reckon = () => {
      timer = undefined;
      last = performance.now();
      const fresh = choose(store.all());
      if (same(fresh, latest.current)) return;
      latest.current = fresh;
      setIds(fresh);
    };
    const soon = () => {
      if (timer !== undefined) return;
      const wait = Math.max(0, last + ORDER_EVERY - performance.now());
      if (wait === 0) reckon();
      else timer = setTimeout(reckon, wait);
    };
    reckon();
    const leave = store.subscribe(soon);
    return () => {
      leave();
      clearTimeout(timer);
    };
  }, [store, choose]);
  return ids;
}

function same(a: string[], b: string[]): boolean {
  return a.length === b.length && a.every((id, place) => id === b[place]);
}

/** The daemon's time, to the second. */
export function useSecond(): number {
  return useSyncExternalStore(onTick, second);
}
