// The state as React sees it.

import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { onTick, second } from './clock';
import type { Keyed } from './keyed';

/** One thing; drawn anew only when that one changes. */
export function useThing<T extends object>(store: Keyed<T>, key: string): T | undefined {
  const subscribe = useCallback((listener: () => void) => store.subscribeTo(key, listener), [store, key]);
  return useSyncExternalStore(subscribe, () => store.get(key));
}

/** How many things count; drawn anew only when that changes. */
export function useTally<T extends object>(store: Keyed<T>): number {
  return useSyncExternalStore(
    useCallback((listener: () => void) => store.subscribe(listener), [store]),
    () => store.tally,
  );
}

/** Lists are put in order at most this often, */
const ORDER_EVERY = 250;
/** and where that takes long, for no larger part of the time than one in this. */
const ORDER_SHARE = 20;

/**
 * Picks ids out of all things and puts them in order. The order of the last time comes along: what is
 * nearly in order is put in order fast.
 */
export type Choose<T extends object> = (store: Keyed<T>, before: string[]) => string[];

/**
 * The ids of what `choose` picks, in its order. Drawn anew only when the ids or their order change,
 * and reckoned a few times a second at most, however fast the things change.
 */
export function useIds<T extends object>(store: Keyed<T>, choose: Choose<T>): string[] {
  const [ids, setIds] = useState<string[]>(() => choose(store, []));
  const latest = useRef(ids);
  const reckoned = useRef<{ choose: Choose<T>; version: number }>({ choose, version: store.version });
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let next = 0;
    const reckon = () => {
      timer = undefined;
      const began = performance.now();
      reckoned.current = { choose, version: store.version };
      const fresh = choose(store, latest.current);
      const took = performance.now() - began;
      next = began + Math.max(ORDER_EVERY, took * ORDER_SHARE);
      if (same(fresh, latest.current)) return;
      latest.current = fresh;
      setIds(fresh);
    };
    const soon = () => {
      if (timer !== undefined) return;
      const wait = Math.max(0, next - performance.now());
      if (wait === 0) reckon();
      else timer = setTimeout(reckon, wait);
    };
    if (reckoned.current.choose !== choose || reckoned.current.version !== store.version) reckon();
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
