// Keeps the order of a list while the pointer is over it: a card that moves away under the pointer is missed, or
// another one is clicked.

import { useEffect, useRef, useState } from 'react';

/** The order is kept this long after the pointer has left, in milliseconds. */
const AFTER = 1_500;

/** Known ids keep their order; removed ids are dropped, and new ids come last. */
export function keepOrder(before: readonly string[], now: readonly string[]): string[] {
  const there = new Set(now);
  const known = new Set(before);
  return [...before.filter((id) => there.has(id)), ...now.filter((id) => !known.has(id))];
}

interface StableOrder {
  ids: string[];
  /** Props of the element that contains the list. */
  props: { onPointerEnter: () => void; onPointerLeave: () => void };
}

export function useStableOrder(ids: string[]): StableOrder {
  /** The order that is kept; `null`: the pointer is not over the list. */
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
