// Things by their id. Whoever looks at one thing hears only of that one; whoever looks at the whole
// hears once a frame, however much has changed. A patch laid over a thing shows what a button is
// about to do; it is taken away again when the daemon has answered, whatever the answer is.

type Listener = () => void;

/** Calls back soon, once for many calls. */
export type Later = (flush: () => void) => void;

const nextFrame: Later = (flush) => {
  // A hidden page draws no frames, and still has to hear of questions.
  if (document.hidden) setTimeout(flush, 100);
  else requestAnimationFrame(flush);
};

export class Keyed<T extends object> {
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

  /** Changes whenever anything has changed. */
  get version(): number {
    return this.count;
  }

  get size(): number {
    return this.shown.size;
  }

  /** How many things count, known without looking at all of them. */
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

  /** What a list said: all that is there, but for keys of which something newer is known. */
  replace(things: Iterable<T>, newer: ReadonlySet<string>): void {
    const told = new Set<string>();
    for (const thing of things) {
      const key = this.keyOf(thing);
      told.add(key);
      if (!newer.has(key)) this.put(thing);
    }
    for (const key of [...this.base.keys()]) {
      if (!told.has(key) && !newer.has(key)) this.remove(key);
    }
  }

  /** Lays `patch` over the thing until the returned function is called. */
  lay(key: string, patch: Partial<T>): () => void {
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
