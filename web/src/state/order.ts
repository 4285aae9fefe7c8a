// Putting many things in order, cheaply.

import type { Keyed } from './keyed';

type Compare<T> = (a: T, b: T) => number;

/**
 * The ids of all that is wanted, in order. What was there before comes first in the order it had then,
 * so that a sort finds nearly everything in its place.
 */
export function ordered<T extends object>(
  store: Keyed<T>,
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

/** The first `most` in order, without putting the others in order as well. */
export function foremost<T>(all: Iterable<T>, most: number, wanted: (thing: T) => boolean, compare: Compare<T>): T[] {
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
