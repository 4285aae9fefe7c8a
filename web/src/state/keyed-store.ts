// Entries by id. A listener of one entry is called only for that entry; a listener of the store is called once per
// frame, however many entries have changed. An overlay on an entry shows the expected result of an action; it is
// removed when the daemon has answered, whatever the answer is.

type Listener = () => void;

/** Runs a callback soon, once for many calls. */
export type Later = (flush: () => void) => void;

const nextFrame: Later = (flush) => {
  // A hidden page draws no frames, but still has to process questions.
  if (document.hidden) setTimeout(flush, 100);
  else requestAnimationFrame(flush);
};

export class KeyedStore<T extends object> {
  private readonly base = new Map<string, T>();
  private readonly patches = new Map<string, Partial<T>>();
  private readonly shown = new Map<string, T>();
  private readonly byKey = new Map<string, Set<Listener>>();
  private readonly whole = new Set<Listener>();
  private readonly dirty = new Set<string>();
  private waiting = false;
  private count = 0;
  private counted = 0;

  constructor(
    private readonly keyOf: (thing: T) => string,
    private readonly later: Later = nextFrame,
    private readonly counts: (thing: T) => boolean = () => true,
  ) {}

  /** Increases with every change. */
  get version(): number {
    return this.count;
  }

  get size(): number {
    return this.shown.size;
  }

  /** Number of entries for which `counts` is true, kept up to date without iterating. */
  get tally(): number {
    return this.counted;
  }

  get(key: string): T | undefined {
    return this.shown.get(key);
  }

  all(): IterableIterator<T> {
    return this.shown.values();
  }

  put(thing: T): void {
    const key = this.keyOf(thing);
    this.base.set(key, thing);
    this.show(key);
  }

  remove(key: string): void {
    if (!this.base.delete(key)) return;
    this.patches.delete(key);
    this.show(key);
  }

  /** Replaces all entries by those of a list, except for keys in `newer`. */
  replace(things: Iterable<T>, newer: ReadonlySet<string>): void {
    const listed = new Set<string>();
    for (const thing of things) {
      const key = this.keyOf(thing);
      listed.add(key);
      if (!newer.has(key)) this.put(thing);
    }
    for (const key of [...this.base.keys()]) {
      if (!listed.has(key) && !newer.has(key)) this.remove(key);
    }
  }

  /** Lays `patch` over the entry until the returned function is called. */
  overlay(key: string, patch: Partial<T>): () => void {
    this.patches.set(key, patch);
    this.show(key);
    return () => {
      if (this.patches.get(key) !== patch) return;
      this.patches.delete(key);
      this.show(key);
    };
  }

  subscribe(listener: Listener): () => void {
    this.whole.add(listener);
    return () => this.whole.delete(listener);
  }

  subscribeTo(key: string, listener: Listener): () => void {
    let listeners = this.byKey.get(key);
    if (!listeners) this.byKey.set(key, (listeners = new Set()));
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.byKey.get(key) === listeners) this.byKey.delete(key);
    };
  }

  private show(key: string): void {
    const thing = this.base.get(key);
    const patch = this.patches.get(key);
    const before = this.shown.get(key);
    const after = thing && patch ? { ...thing, ...patch } : thing;
    if (after) this.shown.set(key, after);
    else this.shown.delete(key);
    this.counted += Number(after !== undefined && this.counts(after)) - Number(before !== undefined && this.counts(before));
    this.count += 1;
    this.dirty.add(key);
    if (this.waiting) return;
    this.waiting = true;
    this.later(() => this.flush());
  }

  private flush(): void {
    this.waiting = false;
    const keys = [...this.dirty];
    this.dirty.clear();
    for (const key of keys) this.byKey.get(key)?.forEach((listener) => listener());
    this.whole.forEach((listener) => listener());
  }
}
