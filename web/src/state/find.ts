// A search within one log: the numbers of the matching lines, and the current match.

import { useCallback, useEffect, useRef, useState } from 'react';
import type { LogMatches } from '../wire';
import { errorMessage } from './actions';
import { get, withQuery } from './api';

/** A search starts when nothing has been typed for this long, in milliseconds. */
const TYPING = 250;
/** Minimum time between two searches while the log grows, in milliseconds. */
const AGAIN = 2_000;

export interface SearchResult {
  pattern: string;
  /** Matching lines that have been fetched. */
  lines: number[];
  /** Number of all matching lines. */
  total: number;
  /** Cursor of the next page; `null`: all are fetched. */
  next: number | null;
  /** The search took too long: there may be more than `total`. */
  stopped: boolean;
}

function readMatches(id: string, pattern: string, after: number, signal?: AbortSignal): Promise<LogMatches> {
  return get(withQuery(`/v1/sessions/${encodeURIComponent(id)}/matches`, { pattern, after }), signal);
}

/** Index in `lines` of the first match at or after a line; past the last match, the first one. */
export function placeFrom(lines: readonly number[], line: number): number {
  const place = lines.findIndex((number) => number >= line);
  return place < 0 ? 0 : place;
}

interface LogSearch {
  found: SearchResult | null;
  fault: string;
  more: () => Promise<SearchResult | null>;
}

/** Searches a log for a pattern, and again when the log has grown or its lines have other numbers. */
export function useLogSearch(id: string, pattern: string, total: number | null, dropped: number): LogSearch {
  const [found, setFound] = useState<SearchResult | null>(null);
  const [fault, setFault] = useState('');
  const searched = useRef('');
  const known = total !== null;
  // Throttled while the log grows.
  const settled = useThrottled(`${total ?? 0} ${dropped}`, AGAIN);
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
          if (!stop.signal.aborted) setFault(errorMessage(error));
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
    const all: SearchResult = {
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

/** The value as it was at most `every` milliseconds ago, however often it changes. */
function useThrottled<T>(value: T, every: number): T {
  const [settled, setSettled] = useState(value);
  const latest = useRef(value);
  useEffect(() => {
    latest.current = value;
  }, [value]);
  const isBehind = value !== settled;
  useEffect(() => {
    if (!isBehind) return;
    const timer = setTimeout(() => setSettled(latest.current), every);
    return () => clearTimeout(timer);
  }, [isBehind, settled, every]);
  return settled;
}
