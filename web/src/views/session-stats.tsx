// Statistics of sessions: outcomes by day and by agent.

import { lazy, Suspense, useMemo } from 'react';
import { bytes, count, length, share } from '../format';
import { get } from '../state/api';
import { stateCache } from '../state/state-cache';
import type { SessionStats } from '../wire';
import { COUNT_STEPS, DayTable, NumberTable, Tile, useStatistics, wholeCount } from '../parts/statistics';

const DayChart = lazy(() => import('../parts/charts'));

const ask = () => get<SessionStats>('/v1/sessions/stats');

type Outcomes = SessionStats['outcomes'];

/** Calls `listener` when the number of running sessions has changed. */
function onSessionEnd(listener: () => void): () => void {
  let before = stateCache.sessions.tally;
  return stateCache.sessions.subscribe(() => {
    if (stateCache.sessions.tally === before) return;
    before = stateCache.sessions.tally;
    listener();
  });
}

const endedOf = ({ succeeded, failed, stopped, lost }: Outcomes) => succeeded + failed + stopped + lost;

/** Share of sessions that succeeded, of those that ended by themselves. */
function successRate({ succeeded, failed }: Outcomes): string {
  return succeeded + failed === 0 ? '–' : share(succeeded / (succeeded + failed));
}

export function SessionStatistics() {
  const { stats, fault } = useStatistics(ask, onSessionEnd);
  if (fault) return <p className="fault">{fault}</p>;
  if (!stats) return <p className="soft">Loading…</p>;
  const { outcomes, agents, days } = stats;
  return (
    <>
      <div className="tiles">
        <Tile value={count(endedOf(outcomes))} name="ended" />
        <Tile value={successRate(outcomes)} name="succeeded" />
        <Tile value={count(outcomes.failed)} name="failed" />
        <Tile value={count(outcomes.stopped)} name="stopped" />
        <Tile value={length(stats.run_total)} name="running time" />
        <Tile value={bytes(stats.bytes_total)} name="output" />
      </div>
      <p className="soft small">
        Succeeded: exit code 0, of all sessions that ended by themselves. Stopped: ended by a limit, a person or their agent.
      </p>
      {days.length > 0 && (
        <Suspense fallback={<p className="soft">Loading…</p>}>
          <Days days={days} />
        </Suspense>
      )}
      {agents.length > 0 && (
        <section className="section" aria-labelledby="agents-heading">
          <h2 id="agents-heading">By agent</h2>
          <NumberTable
            label="Sessions by agent"
            columns={['Agent', 'Running', 'Ended', 'Success rate', 'Failed', 'Stopped', 'Running time']}
            rows={agents.map((agent) => [
              agent.agent,
              count(agent.running),
              count(endedOf(agent.outcomes)),
              successRate(agent.outcomes),
              count(agent.outcomes.failed),
              count(agent.outcomes.stopped),
              length(agent.run_total),
            ])}
          />
        </section>
      )}
    </>
  );
}

function Days({ days }: { days: SessionStats['days'] }) {
  const series = useMemo(() => {
    const by = (value: (outcomes: Outcomes) => number) => new Map(days.map((day) => [day.day, value(day.outcomes)]));
    return [
      { name: 'succeeded', colour: '--accent', values: by((day) => day.succeeded) },
      { name: 'failed', colour: '--bad', values: by((day) => day.failed) },
      { name: 'stopped', colour: '--line-strong', values: by((day) => day.stopped + day.lost) },
    ] as const;
  }, [days]);
  return (
    <>
      <DayChart
        title="Ended, by day"
        label="Sessions that ended each day; the table below has the numbers"
        series={series}
        format={wholeCount}
        steps={COUNT_STEPS}
      />
      <DayTable
        label="Sessions by day"
        columns={['Day', 'Succeeded', 'Failed', 'Stopped', 'Lost']}
        rows={days.map(({ day, outcomes }) => [
          day,
          count(outcomes.succeeded),
          count(outcomes.failed),
          count(outcomes.stopped),
          count(outcomes.lost),
        ])}
      />
    </>
  );
}
