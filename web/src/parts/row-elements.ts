// Assigns DOM elements to the visible rows of a long list. Reusing an element costs far less than creating one.
// Elements are reused only when no visible row stays, so that their order is that of the rows and visible rows never
// move.

export interface RowElements {
  /** The visible rows, in order. */
  readonly ids: readonly string[];
  /** The element key of each row. */
  readonly keys: ReadonlyMap<string, number>;
  /** The first unused element key. */
  readonly next: number;
}

export const NO_ROW_ELEMENTS: RowElements = { ids: [], keys: new Map(), next: 0 };

/** Assigns an element to every row. The element of `kept`, which has the focus, is never reused. */
export function assign(old: RowElements, ids: readonly string[], kept: string | undefined): RowElements {
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
