// A progress bar that is animated by the browser and rendered again only when its data change.

import { useState } from 'react';
import { now } from '../state/clock';

interface Props {
  label: string;
  /** Seconds from empty to full. */
  total: number;
  /** The time at which it is full; `null`: the bar does not move. */
  full: number | null;
  /** Position of a bar that does not move, 0 to 1. */
  at?: number;
  className?: string;
}

export function Bar({ label, total, full, at = 0, className = '' }: Props) {
  return (
    <div className={`bar ${className}`} role="img" aria-label={label}>
      {full === null ? (
        <i style={{ transform: `scaleX(${Math.min(1, Math.max(0, at))})` }} />
      ) : (
        <Moving key={`${total} ${full}`} total={total} full={full} />
      )}
    </div>
  );
}

/** A bar without animation: one element, since a list has many. */
export function StillBar({ label, at, className = '' }: { label: string; at: number; className?: string }) {
  const part = Math.min(1, Math.max(0, at)) * 100;
  return <div className={`still-bar ${className}`} role="img" aria-label={label} style={{ backgroundSize: `${part}% 100%` }} />;
}

/** New data create a new element: the time of a running animation cannot be changed by style alone. */
function Moving({ total, full }: { total: number; full: number }) {
  const [gone] = useState(() => Math.max(0, total - (full - now()) / 1_000));
  return <i className="moving" style={{ animationDuration: `${total}s`, animationDelay: `${-gone}s` }} />;
}
