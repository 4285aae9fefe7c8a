// A search within one log: the numbers of the lines that match, and which of them is looked at.

import { useCallback, useEffect, useRef, useState } from 'react';
import type { LogMatches } from '../wire';
import { sentence } from './acts';
import { get, withQuery } from './api';

/** A search waits until nothing has been typed for so long. */
const TYPING = 250;
/** While a log grows, it is searched again at most this often. */
const AGAIN = 2_000;

export interface Found {
  pattern: string;
  /** Lines that match, as far as they were read. */
  lines: number[];
  /** All lines that match. */
  total: number;
  /** Where to go on; `null`: all are read. */
  next: number | null;
  /** The search took too long: there may be more than `total`. */
  stopped: boolean;
}

function readMatches(id: string, pattern: string, after: number, signal?: AbortSignal): Promise<LogMatches> {
  return get(withQuery(`/v1/sessions/${encodeURIComponent(id)}/matches`, { pattern, after }), signal);
}

/** The place in `lines` of the first match at or after a line; after the last one, the first. */
export function placeFrom(lines: readonly number[], line: number): number {
  const place = lines.findIndex((number) => number >= line);
  return place < 0 ? 0 : place;
}

/** Searches a log for a pattern, again when it has grown. */
export function useFound(id: string, pattern: string, total: number | null): { found: Found | null; fault: string; more: () => Promise<Found | null> } {
  const [found, setFound] = useState<Found | null>(null);
  const [fault, setFault] = useState('');
  const searched = useRef('');
  const known = total !== null;
  // Changes at most every so often while the log grows.
  const settled = useThrottled(total ?? 0, AGAIN);
  useEffect(() => {
    if (pattern === '' || !known) return;
    const stop = new AbortController();
    const search = () => {
      searched.current = pattern;
      readMatches(id, pattern, 0, stop.signal).then(
        ({ lines, total, next, stopped }) => {
          setFound({ pattern, lines, total, next: next ?? null, stopped });
          setFault('');
        },
        (error: unknown) => {
          if (!stop.signal.aborted) setFault(sentence(error));
        },
      );
    };
    const timer = setTimeout(search, searched.current === pattern ? 0 : TYPING);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [id, pattern, settled, known]);
  const current = found?.pattern === pattern ? found : null;
  const more = useCallback(async () => {
    if (current === null || current.next === null) return current;
    const page = await readMatches(id, pattern, current.next);
    const all: Found = {
      pattern,
      lines: [...current.lines, ...page.lines],
      total: current.lines.length + page.total,
      next: page.next ?? null,
      stopped: page.stopped,
    };
    setFound((now) => (now === current ? all : now));
    return all;
  }, [id, pattern, current]);
  return { found: current, fault: pattern === '' ? '' : fault, more };
}

function useThrottled(value: number, every: number): number {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (value === settled) return;
    const timer = setTimeout(() => setSettled(value), every);
    return () => clearTimeout(timer);
  }, [value, settled, every]);
  return settled;
}
