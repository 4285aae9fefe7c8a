// A bar that fills by itself. The browser moves it; nothing is drawn anew until the facts change.

import { useState } from 'react';
import { now } from '../state/clock';

interface Props {
  label: string;
  /** Seconds from empty to full. */
  total: number;
  /** When it is full; `null`: it stands still. */
  full: number | null;
  /** How full it is where it stands still, 0 to 1. */
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

/** A bar that is set anew each time: one element, since a list has many. */
export function StillBar({ label, at, className = '' }: { label: string; at: number; className?: string }) {
  const part = Math.min(1, Math.max(0, at)) * 100;
  return <div className={`still-bar ${className}`} role="img" aria-label={label} style={{ backgroundSize: `${part}% 100%` }} />;
}

/** Another fact makes another element: an animation that runs cannot be set to another time by style alone. */
function Moving({ total, full }: { total: number; full: number }) {
  const [gone] = useState(() => Math.max(0, total - (full - now()) / 1_000));
  return <i className="moving" style={{ animationDuration: `${total}s`, animationDelay: `${-gone}s` }} />;
}
