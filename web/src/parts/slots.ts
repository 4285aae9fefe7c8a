// Which element of a long list shows which row. An element that is there already costs far less than a
// new one; but only where the whole list has jumped are elements taken over, so that their order stays
// that of the rows, and so that what a person looks at is never moved about.

export interface Slots {
  /** The rows, in their order. */
  readonly ids: readonly string[];
  /** The element of each. */
  readonly keys: ReadonlyMap<string, number>;
  /** The next element that has never been. */
  readonly next: number;
}

export const NO_SLOTS: Slots = { ids: [], keys: new Map(), next: 0 };

/** Gives every row its element. That of `kept`, which holds the focus, is never given to another. */
export function assign(old: Slots, ids: readonly string[], kept: string | undefined): Slots {
  const jumped = !ids.some((id) => id !== kept && old.keys.has(id));
  const free = jumped ? old.ids.filter((id) => id !== kept).map((id) => old.keys.get(id)) : [];
  let { next } = old;
  let taken = 0;
  const keys = new Map<string, number>();
  for (const id of ids) keys.set(id, old.keys.get(id) ?? free[taken++] ?? next++);
  return { ids, keys, next };
}

export function sameRows(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((id, place) => id === b[place]);
}
