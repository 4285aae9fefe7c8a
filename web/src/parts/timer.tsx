// A timer: its state, its buttons and its card.

import { Menu } from '@base-ui/react/menu';
import { memo, useState } from 'react';
import { conditionWords } from '../condition';
import { ahead, countdown, firstLine, length, visible } from '../format';
import { timerAction } from '../state/actions';
import { type CachedTimer, stateCache } from '../state/state-cache';
import { useSecond, useEntry } from '../state/use';
import { isOpen, type Timer, type TimerStatus } from '../wire';
import { Bar, StillBar } from './bar';
import { ConfirmDialog, DialogForm, ModalDialog } from './dialog';
import { DownIcon, MoreIcon } from './icons';
import { MenuButton } from './menu';
import { Link } from './link';
import { FewLines, WholeText } from './text';

const STATES: Record<TimerStatus, [string, string]> = {
  running: ['Running', 'good'],
  paused: ['Paused', 'warn'],
  running_background: ['In background', ''],
  completed: ['Completed', 'good'],
  stopped: ['Stopped', 'bad'],
};

export function TimerState({ status }: { status: TimerStatus }) {
  const [word, tone] = STATES[status];
  return <span className={`chip ${tone}`}>{word}</span>;
}

export function purpose(timer: Timer): string {
  return timer.reason ?? timer.mission ?? timer.timer_id;
}

/** Reason for which a timer has completed. */
export function completionReason(timer: Timer): string {
  if (timer.completed_by === 'condition') return 'its condition was met';
  if (timer.completed_by === 'impossible') return 'its condition can no longer be met';
  return 'its time was up';
}

/** Time left, counting down. */
export function TimeLeft({ timer }: { timer: CachedTimer }) {
  const now = useSecond();
  const left = timer.due === null ? timer.remaining_time : (timer.due - now) / 1_000;
  return <span className="numbers">{countdown(left)}</span>;
}

/** Bar of a list row, updated once a second: dozens of animated bars would use too much CPU time. */
export function SteppingBar({ timer }: { timer: CachedTimer }) {
  const now = useSecond();
  const left = timer.due === null ? timer.remaining_time : (timer.due - now) / 1_000;
  const done = timer.total_duration > 0 ? 1 - left / timer.total_duration : 1;
  const label = `${Math.round(Math.min(1, Math.max(0, done)) * 100)}% of ${length(timer.total_duration)} has passed`;
  return <StillBar label={label} at={done} className={timer.due === null ? 'still' : ''} />;
}

export function TimerBar({ timer }: { timer: CachedTimer }) {
  const now = useSecond();
  const left = timer.due === null ? timer.remaining_time : Math.max(0, (timer.due - now) / 1_000);
  const done = timer.total_duration > 0 ? 1 - left / timer.total_duration : 1;
  const label = `${Math.round(done * 100)}% of ${length(timer.total_duration)} has passed`;
  const still = timer.due === null ? 'still' : '';
  return (
    <Bar
      label={label}
      total={timer.total_duration}
      full={timer.due}
      at={timer.status === 'completed' ? 1 : done}
      className={still}
    />
  );
}

/** Time that the agent's call still waits; `null`: no call waits. */
function standbyLeft(timer: CachedTimer, at: number): number | null {
  if (!timer.standing_by || timer.status !== 'running') return null;
  const left = timer.last_check_at / 1_000 + timer.timeout_duration - at / 1_000;
  return Math.min(timer.timeout_duration, Math.max(0, left));
}

/** The standby of a timer: the agent's call waits no longer than this. */
export function Standby({ timer }: { timer: CachedTimer }) {
  const now = useSecond();
  const left = standbyLeft(timer, now);
  const total = timer.timeout_duration;
  if (left === null) return <p className="soft">No call is standing by. The last one could wait {length(total)}.</p>;
  const done = total > 0 ? 1 - left / total : 1;
  return (
    <>
      <div className="timer-line">
        <span className="left numbers">{countdown(left)}</span>
        <span className="soft small">left of {length(total)}</span>
      </div>
      <StillBar label={`${Math.round(done * 100)}% of the standby of ${length(total)} has passed`} at={done} className="thin" />
    </>
  );
}

/** The standby as one line of a card. */
function StandbyFact({ timer }: { timer: CachedTimer }) {
  const now = useSecond();
  const left = standbyLeft(timer, now);
  return (
    <span>
      standby{' '}
      {left !== null && (
        <>
          <b className="numbers">{countdown(left)}</b> of{' '}
        </>
      )}
      <b>{length(timer.timeout_duration)}</b>
    </span>
  );
}

export function PausedUntil({ until }: { until: number }) {
  const now = useSecond();
  return <>resumes {ahead(until, now)}</>;
}

const PAUSES: [string, number][] = [
  ['1 minute', 60],
  ['5 minutes', 300],
  ['15 minutes', 900],
  ['1 hour', 3_600],
  ['1 day', 86_400],
];

/** Parses `90`, `5m` or `1h30m` to seconds; `null`: not a duration. */
export function seconds(text: string): number | null {
  const plain = text.trim().toLowerCase();
  if (/^\d+(\.\d+)?$/.test(plain)) return Number(plain) > 0 ? Number(plain) : null;
  const parts = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(plain.replace(/\s+/g, ''));
  if (!parts) return null;
  const [days, hours, minutes, rest] = parts.slice(1).map((part) => Number(part) || 0);
  const sum = (days ?? 0) * 86_400 + (hours ?? 0) * 3_600 + (minutes ?? 0) * 60 + (rest ?? 0);
  return sum > 0 ? sum : null;
}

function PauseDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const [text, setText] = useState('10m');
  const length = seconds(text);
  const pause = () => {
    onClose();
    return timerAction(id, 'pause', length ?? undefined);
  };
  return (
    <ModalDialog open onClose={onClose} title="Pause this timer">
      <DialogForm act="Pause" ready={length !== null} submit={pause} onClose={onClose}>
        <label className="field">
          <span>For how long</span>
          <input className="input" value={text} onChange={(event) => setText(event.target.value)} autoFocus />
          <small>Such as 90s, 10m or 1h30m. It resumes by itself.</small>
        </label>
        {length === null && <p className="fault">Not a valid duration.</p>}
      </DialogForm>
    </ModalDialog>
  );
}

function PauseItems({ id, onOther }: { id: string; onOther: () => void }) {
  return (
    <>
      {PAUSES.map(([words, length]) => (
        <Menu.Item key={length} className="menu-item" onClick={() => void timerAction(id, 'pause', length)}>
          {words}
        </Menu.Item>
      ))}
      <Menu.Item className="menu-item" onClick={onOther}>
        Another duration…
      </Menu.Item>
    </>
  );
}

/** Confirms that a timer is to be stopped. */
function StopDialog({ timer, onClose }: { timer: CachedTimer; onClose: () => void }) {
  return (
    <ConfirmDialog open onClose={onClose} title="Stop this timer?" act="Stop timer" onYes={() => void timerAction(timer.timer_id, 'stop')}>
      <WholeText text={purpose(timer)} label={timer.mission ? 'Mission' : 'Reason'} />
      <p className="soft">It ends now, and its agent is not notified. This cannot be undone.</p>
    </ConfirmDialog>
  );
}

const BACKGROUND = 'Cancel the wait: the timer continues, and the agent is notified when it completes';

/** The buttons that are allowed in the current state. */
export function TimerButtons({ timer }: { timer: CachedTimer }) {
  const [asking, setAsking] = useState(false);
  const [stopping, setStopping] = useState(false);
  const id = timer.timer_id;
  if (!isOpen(timer)) return null;
  const paused = timer.status === 'paused';
  return (
    <div className="row-of-buttons">
      {paused ? (
        <button type="button" className="button compact" onClick={() => void timerAction(id, 'resume')}>
          Resume
        </button>
      ) : (
        <MenuButton
          className="button compact"
          align="start"
          face={
            <>
              Pause <DownIcon />
            </>
          }
        >
          <PauseItems id={id} onOther={() => setAsking(true)} />
        </MenuButton>
      )}
      <button
        type="button"
        className="button compact"
        disabled={timer.status !== 'running'}
        title={BACKGROUND}
        onClick={() => void timerAction(id, 'cancel')}
      >
        Run in background
      </button>
      <button type="button" className="button compact bad" onClick={() => setStopping(true)}>
        Stop timer…
      </button>
      {stopping && <StopDialog timer={timer} onClose={() => setStopping(false)} />}
      {asking && <PauseDialog id={id} onClose={() => setAsking(false)} />}
    </div>
  );
}

/** The same actions as a menu, for a list. */
export function TimerMenu({ timer, tabIndex }: { timer: CachedTimer; tabIndex: number }) {
  const [asking, setAsking] = useState(false);
  const [stopping, setStopping] = useState(false);
  const id = timer.timer_id;
  if (!isOpen(timer)) return null;
  const paused = timer.status === 'paused';
  return (
    <>
      <MenuButton
        className="button plain compact icon"
        label={`Actions for ${visible(firstLine(purpose(timer)).line)}`}
        align="end"
        tabIndex={tabIndex}
        face={<MoreIcon />}
      >
        {paused ? (
          <Menu.Item className="menu-item" onClick={() => void timerAction(id, 'resume')}>
            Resume
          </Menu.Item>
        ) : (
          <Menu.Group>
            <Menu.GroupLabel className="menu-label">Pause for</Menu.GroupLabel>
            <PauseItems id={id} onOther={() => setAsking(true)} />
          </Menu.Group>
        )}
        <Menu.Separator className="menu-line" />
        <Menu.Item
          className="menu-item"
          disabled={timer.status !== 'running'}
          title={BACKGROUND}
          onClick={() => void timerAction(id, 'cancel')}
        >
          Run in background
        </Menu.Item>
        <Menu.Item className="menu-item fault" onClick={() => setStopping(true)}>
          Stop timer…
        </Menu.Item>
      </MenuButton>
      {stopping && <StopDialog timer={timer} onClose={() => setStopping(false)} />}
      {asking && <PauseDialog id={id} onClose={() => setAsking(false)} />}
    </>
  );
}

/** The condition of a timer and the result of the last check. */
function Until({ timer, words }: { timer: CachedTimer; words: string }) {
  return (
    <>
      <span title={visible(words)}>
        <FewLines before="or when " text={words} />
      </span>
      {timer.last_look && (
        <span title={visible(timer.last_look)}>
          <FewLines before="last check: " text={timer.last_look} prose />
        </span>
      )}
    </>
  );
}

export const TimerCard = memo(function TimerCard({ id }: { id: string }) {
  const timer = useEntry(stateCache.timers, id);
  if (!timer) return null;
  const look = timer.status === 'paused' ? 'paused' : isOpen(timer) ? '' : 'over';
  return (
    <article className={`card timer-card ${look}`} tabIndex={-1} data-stop aria-labelledby={`${id}-title`}>
      <div className="card-head">
        <h3 className="title" id={`${id}-title`}>
          <Link href={`/timers/${id}`} title={visible(purpose(timer))}>
            <FewLines text={purpose(timer)} prose />
          </Link>
        </h3>
        <TimerState status={timer.status} />
      </div>
      <div className="timer-line">
        <span className="left">
          <TimeLeft timer={timer} />
        </span>
        <span className="soft small">{timer.mission ? 'mission' : 'waiting'}</span>
      </div>
      <TimerBar timer={timer} />
      <div className="facts">
        <span>
          total <b>{length(timer.total_duration)}</b>
        </span>
        {!timer.mission && <StandbyFact timer={timer} />}
        {timer.agent && <span>agent {timer.agent}</span>}
        {timer.status === 'paused' && timer.pause_until != null && (
          <span>
            <PausedUntil until={timer.pause_until} />
          </span>
        )}
        {timer.until != null && <Until timer={timer} words={conditionWords(timer.until)} />}
        {timer.stop_reason && <span>“{timer.stop_reason}”</span>}
      </div>
      <TimerButtons timer={timer} />
    </article>
  );
});
