// The lines of one log, fetched in pages as they are scrolled into view. Only the pages that were used last are cached,
// so a log of any length takes the same memory.

import type { LogLine, LogLines } from '../wire';

/** Lines per page. */
export const PAGE = 500;
/** Pages in the cache. */
const HELD = 40;

export type ReadLines = (from: number, limit: number) => Promise<LogLines>;

/** Reads a page. One of long lines is returned in parts. */
async function readPage(read: ReadLines, page: number): Promise<LogLines> {
  const first = page * PAGE + 1;
  let part = await read(first, PAGE);
  const { lines, dropped } = part;
  while (part.lines.length > 0 && lines.length < PAGE && first + lines.length <= part.total) {
    part = await read(first + lines.length, PAGE - lines.length);
    // The lines of the parts were numbered differently.
    if (part.dropped !== dropped) return readPage(read, page);
    lines.push(...part.lines);
  }
  return { ...part, lines };
}

export class LogPages {
  /** Lines in the log; `null`: not known yet. */
  total: number | null = null;
  /** Bytes missing from the log. When the quota drops more, lines have other numbers. */
  dropped = 0;
  fault: unknown = null;
  /** Increases with every change. */
  version = 0;
  private readonly pages = new Map<number, LogLines>();
  /** Pages without the highlights of the current search, shown until they are fetched again. */
  private stale = new Map<number, LogLines>();
  private reading = new Set<number>();
  private refreshing = false;
  private again = false;
  private readonly listeners = new Set<() => void>();

  constructor(private read: ReadLines) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** A line by its number, from 1; `undefined`: not in the cache. */
  line(number: number): LogLine | undefined {
    const page = Math.floor((number - 1) / PAGE);
    const place = (number - 1) % PAGE;
    return this.pages.get(page)?.lines[place] ?? this.stale.get(page)?.lines[place];
  }

  /** Replaces the fetch function. Cached lines are shown until they are fetched again. */
  use(read: ReadLines): void {
    this.read = read;
    this.stale = new Map([...this.stale, ...this.pages]);
    this.pages.clear();
    this.reading = new Set();
    this.changed();
  }

  /** Fetches the lines `from` to `to` unless they are in the cache. */
  want(from: number, to: number): void {
    if (this.total === null || this.fault !== null) return;
    const last = Math.min(to, this.total);
    for (let page = Math.floor((Math.max(1, from) - 1) / PAGE); page * PAGE < last; page += 1) {
      const cached = this.pages.get(page);
      if (cached) {
        // Marks the page as the one used last.
        this.pages.delete(page);
        this.pages.set(page, cached);
      }
      // A page is fetched again only after the log has grown, whatever its response contained.
      const isComplete = cached && (cached.lines.length === PAGE || cached.total === this.total);
      if (!isComplete) void this.fetch(page);
    }
  }

  /** Fetches the end of the log; calls during a fetch share the next one. */
  refresh(): void {
    if (this.refreshing) {
      this.again = true;
      return;
    }
    this.refreshing = true;
    const page = Math.max(0, Math.ceil((this.total ?? 0) / PAGE) - 1);
    void this.fetch(page, true).finally(() => {
      this.refreshing = false;
      if (!this.again) return;
      this.again = false;
      this.refresh();
    });
  }

  private async fetch(page: number, anyway = false): Promise<void> {
    const { read, reading } = this;
    if (reading.has(page) && !anyway) return;
    reading.add(page);
    try {
      const response = await readPage(read, page);
      if (read !== this.read) return;
      this.fault = null;
      if (this.takeExtent(response)) this.store(page, response);
    } catch (fault) {
      if (read !== this.read) return;
      this.fault = fault;
    } finally {
      reading.delete(page);
    }
    this.changed();
  }

  private store(page: number, response: LogLines): void {
    this.pages.delete(page);
    this.pages.set(page, response);
    this.stale.delete(page);
    for (const oldest of this.pages.keys()) {
      if (this.pages.size <= HELD) break;
      this.pages.delete(oldest);
    }
    while (this.stale.size > HELD) this.stale.delete(this.stale.keys().next().value as number);
  }

  /** Takes the length of the log from a response. Returns `false` if the response is older than the cached lines. */
  private takeExtent({ total, dropped }: LogLines): boolean {
    if (this.total !== null && dropped < this.dropped) return false;
    if (dropped > this.dropped) {
      this.pages.clear();
      this.stale.clear();
      this.total = null;
    }
    this.dropped = dropped;
    // With the same numbers a log only grows: a smaller number is that of an older response.
    this.total = Math.max(this.total ?? 0, total);
    return true;
  }

  /** Tries again after an error. */
  retry(): void {
    this.fault = null;
    this.refresh();
  }

  private changed(): void {
    this.version += 1;
    this.listeners.forEach((listener) => listener());
  }
}
