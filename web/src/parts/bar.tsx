// A bar that fills by itself. The browser moves it; nothing is drawn anew until the facts change.

import { useLayoutEffect, useRef } from 'react';
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
  const inner = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const bar = inner.current;
    if (!bar) return;
    bar.classList.toggle('moving', full !== null);
    if (full === null) {
      bar.style.transform = `scaleX(${Math.min(1, Math.max(0, at))})`;
      return;
    }
    bar.style.animationDuration = `${total}s`;
    const [animation] = bar.getAnimations();
    if (animation) animation.currentTime = Math.max(0, total * 1_000 - (full - now()));
  }, [total, full, at]);
  return (
    <div className={`bar ${className}`} role="img" aria-label={label}>
      <i ref={inner} />
    </div>
  );
}
