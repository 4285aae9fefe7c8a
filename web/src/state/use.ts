// React hooks for the state.

import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { onTick, second } from './clock';
import type { KeyedStore } from './keyed-store';

/** One entry of a store; renders again only when that entry changes. */
export function useEntry<T extends object>(store: KeyedStore<T>, key: string): T | undefined {
  const subscribe = useCallback((listener: () => void) => store.subscribeTo(key, listener), [store, key]);
  return useSyncExternalStore(subscribe, () => store.get(key));
}

/** Number of entries that count; renders again only when it changes. */
export function useTally<T extends object>(store: KeyedStore<T>): number {
  return useSyncExternalStore(
    useCallback((listener: () => void) => store.subscribe(listener), [store]),
    () => store.tally,
  );
}

/** Minimum time between two sorts of a list, in milliseconds. */
const ORDER_EVERY = 250;
/** Sorting takes at most one part in this many of the time. */
const ORDER_SHARE = 20;

/**
 * Selects ids of entries and sorts them. `before` is the previous result: a list that is nearly sorted is sorted fast.
 */
export type Choose<T extends object> = (store: KeyedStore<T>, before: string[]) => string[];

/**
 * The ids that `choose` returns. Renders again only when the ids or their order change, and recomputes a few times a
 * second at most, however fast the entries change.
 */
export function useIds<T extends object>(store: KeyedStore<T>, choose: Choose<T>): string[] {
  const [ids, setIds] = useState<string[]>(() => choose(store, []));
  const latest = useRef(ids);
  const computed = useRef<{ choose: Choose<T>; version: number }>({ choose, version: store.version });
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let next = 0;
    const recompute = () => {
      timer = undefined;
      const began = performance.now();
      computed.current = { choose, version: store.version };
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
      if (wait === 0) recompute();
      else timer = setTimeout(recompute, wait);
    };
    if (computed.current.choose !== choose || computed.current.version !== store.version) recompute();
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
