// Sorting of large lists.

import type { KeyedStore } from './keyed-store';

type Compare<T> = (a: T, b: T) => number;

/**
 * The ids of all wanted entries, sorted. Entries of the previous result come first in their old order, so that the list
 * is nearly sorted already.
 */
export function ordered<T extends object>(
  store: KeyedStore<T>,
  before: string[],
  idOf: (thing: T) => string,
  wanted: (thing: T) => boolean,
  compare: Compare<T>,
): string[] {
  const things: T[] = [];
  const known = new Set<string>();
  for (const id of before) {
    const thing = store.get(id);
    known.add(id);
    if (thing && wanted(thing)) things.push(thing);
  }
  for (const thing of store.all()) {
    if (!known.has(idOf(thing)) && wanted(thing)) things.push(thing);
  }
  return things.sort(compare).map(idOf);
}

/** The first `most` entries in order, without sorting the others. */
export function firstN<T>(all: Iterable<T>, most: number, wanted: (thing: T) => boolean, compare: Compare<T>): T[] {
  const best: T[] = [];
  for (const thing of all) {
    if (!wanted(thing)) continue;
    const last = best[best.length - 1];
    if (best.length === most && (last === undefined || compare(thing, last) >= 0)) continue;
    let at = best.length;
    while (at > 0 && compare(thing, best[at - 1] as T) < 0) at -= 1;
    best.splice(at, 0, thing);
    if (best.length > most) best.pop();
  }
  return best;
}
