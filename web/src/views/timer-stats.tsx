// Statistics of timers: how they ended, how long they waited, and the calls they saved.

import { lazy, Suspense, useMemo } from 'react';
import { count, length } from '../format';
import { get } from '../state/api';
import { stateCache } from '../state/state-cache';
import type { Stats } from '../wire';
import { COUNT_STEPS, DayTable, Tile, useStatistics, wholeCount } from '../parts/statistics';

const DayChart = lazy(() => import('../parts/charts'));

const SPAN_STEPS = [1, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400, 172_800, 604_800, 2_592_000];

export function onTimerEnd(listener: () => void): () => void {
  return stateCache.endedTimers.subscribe(listener);
}

const ask = () => get<Stats>('/v1/timers/stats');

export const useTimerStatistics = () => useStatistics(ask, onTimerEnd);

export function TimerStatistics() {
  const { stats, fault } = useTimerStatistics();
  if (fault) return <p className="fault">{fault}</p>;
  if (!stats) return <p className="soft">Loading…</p>;
  return (
    <>
      <div className="tiles">
        <Tile value={count(stats.completed_by_time + stats.completed_by_condition + stats.completed_by_impossible)} name="completed" />
        <Tile value={count(stats.completed_by_condition)} name="of them by condition" />
        <Tile value={count(stats.stopped)} name="stopped" />
        <Tile value={length(stats.elapsed_total)} name="total waiting time" />
        <Tile value={count(stats.calls_saved)} name="calls saved" />
      </div>
      <p className="soft small">
        Calls saved: the calls that a loop with a check every 30 seconds would have made, minus the calls that were made.
      </p>
      {stats.days.length > 0 && (
        <Suspense fallback={<p className="soft">Loading…</p>}>
          <Charts days={stats.days} />
        </Suspense>
      )}
    </>
  );
}

function Charts({ days }: { days: Stats['days'] }) {
  const [ended, waited] = useMemo(() => {
    const by = (value: (day: Stats['days'][number]) => number) => new Map(days.map((day) => [day.day, value(day)]));
    return [
      [
        { name: 'completed', colour: '--accent', values: by((day) => day.completed) },
        { name: 'stopped', colour: '--line-strong', values: by((day) => day.stopped) },
      ] as const,
      [{ name: 'waited', colour: '--accent', values: by((day) => day.waited) }] as const,
    ];
  }, [days]);
  return (
    <>
      <div className="charts">
        <DayChart
          title="Ended, by day"
          label="Timers that ended each day; the table below has the numbers"
          series={ended}
          format={wholeCount}
          steps={COUNT_STEPS}
        />
        <DayChart
          title="Waited, by day"
          label="Time waited each day; the table below has the numbers"
          series={waited}
          format={length}
          steps={SPAN_STEPS}
        />
      </div>
      <DayTable
        label="Timers by day"
        columns={['Day', 'Completed', 'Stopped', 'Waited']}
        rows={days.map((day) => [day.day, count(day.completed), count(day.stopped), length(day.waited)])}
      />
    </>
  );
}
