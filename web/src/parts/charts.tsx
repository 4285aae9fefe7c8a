// A bar chart of the last days. uPlot draws it on a canvas, so every view with a chart also has the numbers as a table.

import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { now } from '../state/clock';
import { theme } from '../state/prefs';

const HEIGHT = 220;
const DAY = 86_400_000;
const SHOWN = 30;

/** One kind of value, with a number for each day that has one. */
export interface Series {
  name: string;
  /** Name of a CSS variable. */
  colour: '--accent' | '--bad' | '--line-strong';
  /** Value by day, such as `2026-11-15`. */
  values: Map<string, number>;
}

interface ChartProps {
  title: string;
  label: string;
  /** Stacked: the first series is on top. */
  series: readonly Series[];
  format: (value: number) => string;
  /** Possible distances between grid lines. */
  steps: number[];
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function onScheme(listener: () => void): () => void {
  const query = matchMedia('(prefers-color-scheme: dark)');
  query.addEventListener('change', listener);
  const leave = theme.subscribe(listener);
  return () => {
    query.removeEventListener('change', listener);
    leave();
  };
}

/** Changes with the theme, so that the canvas is drawn in the right colours. */
function useScheme(): string {
  return useSyncExternalStore(onScheme, () => `${theme.get()} ${matchMedia('(prefers-color-scheme: dark)').matches}`);
}

/** The last days up to today in UTC, as the daemon counts them. */
function lastDays(today: number): string[] {
  return Array.from({ length: SHOWN }, (_, n) => new Date(today - (SHOWN - 1 - n) * DAY).toISOString().slice(0, 10));
}

const dayName = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', timeZone: 'UTC' });

export default function DayChart({ title, label, series, format, steps }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const scheme = useScheme();
  const [pointed, setPointed] = useState<number | null>(null);
  const days = useMemo(() => lastDays(now()), []);
  const names = useMemo(() => days.map((day) => dayName.format(new Date(day))), [days]);
  useEffect(() => {
    const box = place.current;
    if (!box) return;
    const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
    const bars = uPlot.paths.bars?.({ size: [0.62, 28], radius: 0.25 });
    // Bars overlap, the tallest first: each is as high as its own value plus the values below it.
    const heights = series.map((_, n) => days.map((day) => series.slice(n).reduce((sum, { values }) => sum + (values.get(day) ?? 0), 0)));
    const plot = new uPlot(
      {
        width: box.clientWidth,
        height: HEIGHT,
        padding: [10, 8, 0, 0],
        cursor: { x: false, y: false, points: { show: false }, drag: { x: false, y: false } },
        legend: { show: false },
        scales: { x: { time: false, range: [-0.6, days.length - 0.4] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
        axes: [
          { ...axis, size: 28, grid: { show: false }, values: (_, places) => places.map((at) => names[at] ?? '') },
          { ...axis, size: 52, incrs: steps, values: (_, values) => values.map(format) },
        ],
        series: [
          {},
          ...series.map((line) => ({
            label: line.name,
            fill: colour(line.colour),
            stroke: colour(line.colour),
            width: 0,
            points: { show: false },
            ...(bars ? { paths: bars } : {}),
          })),
        ],
        hooks: { setCursor: [(plot) => setPointed(plot.cursor.idx ?? null)] },
      },
      [days.map((_, at) => at), ...heights],
      box,
    );
    const sized = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT }));
    sized.observe(box);
    return () => {
      sized.disconnect();
      plot.destroy();
    };
  }, [days, names, series, format, steps, scheme]);
  const day = pointed === null ? undefined : days[pointed];
  return (
    <figure className="card">
      <figcaption className="legend">
        <h2>{title}</h2>
        <span className="soft small">
          {day !== undefined && pointed !== null && `${names[pointed] ?? ''}: `}
          {series.map(({ name, colour: swatch, values }) => (
            <span key={name}>
              <i className={`swatch ${swatch.slice(2)}`} /> {day === undefined ? name : `${format(values.get(day) ?? 0)} ${name}`}
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={place} className="chart" role="img" aria-label={label} />
    </figure>
  );
}
