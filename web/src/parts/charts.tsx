// The last days as bars. uPlot draws them on a canvas; the same numbers stand below as a table.

import { useEffect, useMemo, useRef, useSyncExternalStore } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { count, length } from '../format';
import { now } from '../state/clock';
import { theme } from '../state/prefs';
import type { Stats } from '../wire';

type Days = NonNullable<Stats['days']>;

const HEIGHT = 220;

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

/** Changes with light and dark, so that a canvas can be drawn in the right colours. */
function useScheme(): string {
  return useSyncExternalStore(onScheme, () => `${theme.get()} ${matchMedia('(prefers-color-scheme: dark)').matches}`);
}

interface Line {
  name: string;
  colour: string;
  values: number[];
}

interface PlotProps {
  label: string;
  days: Days;
  lines: Line[];
  format: (value: number) => string;
  /** How far the lines behind the bars may be apart. */
  steps: number[];
}

function Plot({ label, days, lines, format, steps }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const scheme = useScheme();
  useEffect(() => {
    const box = place.current;
    if (!box) return;
    const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
    const names = days.map(({ day }) => day.slice(5).replace('-', '/'));
    const bars = uPlot.paths.bars?.({ size: [0.62, 28], radius: 0.25 });
    const plot = new uPlot(
      {
        width: box.clientWidth,
        height: HEIGHT,
        padding: [10, 8, 0, 0],
        cursor: { show: false },
        legend: { show: false },
        scales: { x: { time: false, range: [-0.6, days.length - 0.4] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
        axes: [
          { ...axis, size: 28, grid: { show: false }, values: (_, places) => places.map((at) => names[at] ?? '') },
          { ...axis, size: 52, incrs: steps, values: (_, values) => values.map(format) },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.name,
            fill: colour(line.colour),
            stroke: colour(line.colour),
            width: 0,
            points: { show: false },
            ...(bars ? { paths: bars } : {}),
          })),
        ],
      },
      [days.map((_, at) => at), ...lines.map((line) => line.values)],
      box,
    );
    const sized = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT }));
    sized.observe(box);
    return () => {
      sized.disconnect();
      plot.destroy();
    };
  }, [days, lines, format, steps, scheme]);
  return <div ref={place} className="chart" role="img" aria-label={label} />;
}

const COUNTS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000, 100_000];
const SPANS = [1, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400, 172_800, 604_800, 2_592_000];

const whole = (value: number) => (Number.isInteger(value) ? count(value) : '');

const DAY = 86_400_000;
const SHOWN = 30;

/** The last days up to today, those on which nothing ended as well. Days are those of Greenwich, as the daemon's. */
export function everyDay(days: Days, today: number): Days {
  const known = new Map(days.map((day) => [day.day, day]));
  return Array.from({ length: SHOWN }, (_, n) => {
    const day = new Date(today - (SHOWN - 1 - n) * DAY).toISOString().slice(0, 10);
    return known.get(day) ?? { day, completed: 0, stopped: 0, waited: 0 };
  });
}

export default function Charts({ days: told }: { days: Days }) {
  const days = useMemo(() => everyDay(told, now()), [told]);
  const ended: Line[] = [
    // The taller bar stands behind the shorter one: together they are all that ended.
    { name: 'Completed', colour: '--accent', values: days.map((day) => day.completed + day.stopped) },
    { name: 'Stopped', colour: '--line-strong', values: days.map((day) => day.stopped) },
  ];
  const waited: Line[] = [{ name: 'Waited', colour: '--accent', values: days.map((day) => day.waited) }];
  return (
    <>
      <div className="charts">
        <figure className="card">
          <figcaption className="legend">
            <h2>Ended, by day</h2>
            <span className="soft small">
              <span>
                <i className="swatch accent" /> completed
              </span>{' '}
              <span>
                <i className="swatch" /> stopped
              </span>
            </span>
          </figcaption>
          <Plot label="Timers that ended each day; the table below has the numbers" days={days} lines={ended} format={whole} steps={COUNTS} />
        </figure>
        <figure className="card">
          <figcaption className="legend">
            <h2>Waited, by day</h2>
          </figcaption>
          <Plot label="Time waited each day; the table below has the numbers" days={days} lines={waited} format={length} steps={SPANS} />
        </figure>
      </div>
      <details>
        <summary>The same as a table</summary>
        <div className="scroll" tabIndex={0} role="group" aria-label="Timers by day">
          <table className="table">
            <thead>
              <tr>
                <th scope="col">Day</th>
                <th scope="col">Completed</th>
                <th scope="col">Stopped</th>
                <th scope="col">Waited</th>
              </tr>
            </thead>
            <tbody>
              {told.map((day) => (
                <tr key={day.day}>
                  <td>{day.day}</td>
                  <td>{count(day.completed)}</td>
                  <td>{count(day.stopped)}</td>
                  <td>{length(day.waited)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </>
  );
}
