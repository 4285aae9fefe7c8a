// Keeps the order of a list while the pointer is on it: a card that moves away under the pointer is missed, or
// another one is pressed.

import { useEffect, useRef, useState } from 'react';

/** The order stays for so long after the pointer has left, in milliseconds. */
const AFTER = 1_500;

/** What was there stays in its order; what is gone is left out, and what is new comes last. */
export function keepOrder(before: readonly string[], now: readonly string[]): string[] {
  const there = new Set(now);
  const known = new Set(before);
  return [...before.filter((id) => there.has(id)), ...now.filter((id) => !known.has(id))];
}

interface Steady {
  ids: string[];
  /** To be set on what contains the list. */
  props: { onPointerEnter: () => void; onPointerLeave: () => void };
}

export function useSteady(ids: string[]): Steady {
  /** The order that is kept; `null`: nobody points at the list. */
  const [kept, setKept] = useState<string[] | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const shown = kept === null ? ids : keepOrder(kept, ids);
  return {
    ids: shown,
    props: {
      onPointerEnter: () => {
        clearTimeout(timer.current);
        setKept(shown);
      },
      onPointerLeave: () => {
        clearTimeout(timer.current);
        timer.current = setTimeout(() => setKept(null), AFTER);
      },
    },
  };
}
