// Shared parts of the statistics views: repeated fetches, tiles with one number, and the table of days.

import { useCallback, useEffect, useRef, useState } from 'react';
import { count } from '../format';
import { errorMessage } from '../state/actions';
import { LatestResponse } from '../state/latest-response';

/** Changes within this time cause one fetch, in milliseconds. */
const GATHER = 500;

export const COUNT_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000, 100_000];

/** A count on an axis, which has no room for fractions. */
export const wholeCount = (value: number) => (Number.isInteger(value) ? count(value) : '');

/** Fetches at once, and again soon after `subscribe` reports a change. */
export function useReadAgain(read: () => void, subscribe: (listener: () => void) => () => void): void {
  useEffect(() => {
    read();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const leave = subscribe(() => {
      timer ??= setTimeout(() => {
        timer = undefined;
        read();
      }, GATHER);
    });
    return () => {
      leave();
      clearTimeout(timer);
    };
  }, [read, subscribe]);
}

/** Statistics of the daemon, or the error text if the fetch failed. Both functions must be stable between renders. */
export function useStatistics<T>(ask: () => Promise<T>, subscribe: (listener: () => void) => () => void) {
  const [stats, setStats] = useState<T | null>(null);
  const [fault, setFault] = useState('');
  const newest = useRef(new LatestResponse());
  const read = useCallback(() => {
    newest.current.of(ask()).then(
      (response) => {
        if (!response) return;
        setStats(response);
        setFault('');
      },
      (error: unknown) => setFault(errorMessage(error)),
    );
  }, [ask]);
  useReadAgain(read, subscribe);
  return { stats, fault };
}

export function Tile({ value, name }: { value: string; name: string }) {
  return (
    <div className="card tile">
      <b>{value}</b>
      <span className="soft small">{name}</span>
    </div>
  );
}

/** The numbers of a chart as a table. */
export function DayTable({ label, columns, rows }: { label: string; columns: string[]; rows: string[][] }) {
  return (
    <details>
      <summary>Show as a table</summary>
      <NumberTable label={label} columns={columns} rows={rows} />
    </details>
  );
}

export function NumberTable({ label, columns, rows }: { label: string; columns: string[]; rows: string[][] }) {
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label={label}>
      <table className="table">
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells) => (
            <tr key={cells[0]}>
              {cells.map((cell, at) => (
                <td key={columns[at]}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
