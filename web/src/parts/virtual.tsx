// A virtual list: only visible rows are drawn. The page itself scrolls. One row is in the tab order; the arrow keys
// move to the others.

import { memo, useCallback, useEffect, useLayoutEffect, useRef, useState, type KeyboardEvent, type ReactNode } from 'react';
import { flushSync } from 'react-dom';
import { assign, NO_ROW_ELEMENTS, sameRows } from './row-elements';

type DrawRow = (id: string, tabIndex: number) => ReactNode;

interface Props {
  ids: string[];
  label: string;
  height: number;
  /**
   * Renders a row; `tabIndex` is for its focusable element. The function must be stable between renders. The elements
   * of a row may be reused for another one: local state needs the row's id as key.
   */
  row: DrawRow;
  /** Called when the end becomes visible. */
  onEnd?: () => void;
}

/** Rows outside the window that are drawn as well. */
const MARGIN = 6;
/** The range of drawn rows changes in steps of this many rows, so that a little scrolling changes nothing. */
const STEP = 4;
/** Scrolling has stopped after this time without a scroll event, in milliseconds. */
const STILL = 120;

interface Span {
  from: number;
  to: number;
}

export function Virtual({ ids, label, height, row, onEnd }: Props) {
  const list = useRef<HTMLUListElement>(null);
  const [span, setSpan] = useState<Span>({ from: 0, to: 30 });
  const [active, setActive] = useState<string | null>(null);
  const goTo = useRef<string | null>(null);

  const lastTop = useRef(0);
  const look = useCallback(() => {
    if (!list.current) return false;
    const top = -list.current.getBoundingClientRect().top;
    // While whole screens are skipped, rows outside the window are not needed.
    const racing = Math.abs(top - lastTop.current) > window.innerHeight / 2;
    lastTop.current = top;
    const margin = racing ? 0 : MARGIN;
    const step = racing ? 1 : STEP;
    const first = Math.floor(top / height) - margin;
    const last = Math.ceil((top + window.innerHeight) / height) + margin;
    const from = Math.max(0, Math.floor(first / step) * step);
    const to = Math.max(from, Math.ceil(last / step) * step);
    setSpan((old) => (old.from === from && old.to === to ? old : { from, to }));
    return racing;
  }, [height]);

  useEffect(() => {
    let frame = 0;
    let rest: ReturnType<typeof setTimeout> | undefined;
    // Drawn in the same frame as the scroll; one frame later a gap is visible.
    const draw = () => {
      clearTimeout(rest);
      if (flushSync(look)) rest = setTimeout(look, STILL);
    };
    const soon = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(draw);
    };
    look();
    window.addEventListener('scroll', soon, { passive: true });
    window.addEventListener('resize', soon);
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(rest);
      window.removeEventListener('scroll', soon);
      window.removeEventListener('resize', soon);
    };
  }, [look, ids.length]);

  useEffect(() => {
    if (span.to >= ids.length) onEnd?.();
  }, [span, ids.length, onEnd]);

  // A row that was not drawn is focused once it is.
  useLayoutEffect(() => {
    if (goTo.current === null) return;
    const target = list.current?.querySelector<HTMLElement>(`[data-row="${CSS.escape(goTo.current)}"] [data-main]`);
    if (!target) return;
    goTo.current = null;
    target.focus({ preventScroll: true });
  });

  const place = Math.max(0, active === null ? 0 : ids.indexOf(active));
  const current = ids[place];

  const moveTo = (next: number) => {
    const id = ids[Math.min(ids.length - 1, Math.max(0, next))];
    if (id === undefined || !list.current) return;
    goTo.current = id;
    setActive(id);
    const top = list.current.getBoundingClientRect().top + window.scrollY + ids.indexOf(id) * height;
    const room = 96;
    if (top < window.scrollY + room) window.scrollTo(0, Math.max(0, top - room));
    else if (top + height > window.scrollY + window.innerHeight - room) {
      window.scrollTo(0, top + height - window.innerHeight + room);
    }
    look();
  };

  const onKey = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(window.innerHeight / height) - 3);
    const steps: Record<string, number> = {
      ArrowDown: place + 1,
      j: place + 1,
      ArrowUp: place - 1,
      k: place - 1,
      PageDown: place + page,
      PageUp: place - page,
      Home: 0,
      End: ids.length - 1,
    };
    const next = steps[event.key];
    const inRow = (event.target as HTMLElement).closest('[data-row]');
    if (next === undefined || !inRow || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    moveTo(next);
  };

  const [rowElements, setRowElements] = useState(NO_ROW_ELEMENTS);
  const shown = ids.slice(span.from, span.to);
  // The row with the focus stays, so that scrolling does not lose the focus.
  const apart = current !== undefined && active !== null && (place < span.from || place >= span.to);
  if (apart) shown.push(current);
  if (!sameRows(rowElements.ids, shown)) setRowElements(assign(rowElements, shown, active ?? undefined));

  return (
    <ul
      ref={list}
      className="virtual"
      aria-label={label}
      style={{ height: ids.length * height }}
      onKeyDown={onKey}
      onFocus={(event) => {
        const id = event.target.closest<HTMLElement>('[data-row]')?.dataset['row'];
        if (id) setActive(id);
      }}
    >
      {shown.map((id, n) => (
        <Item
          key={rowElements.keys.get(id)}
          id={id}
          at={apart && id === current ? place : span.from + n}
          all={ids.length}
          height={height}
          tabIndex={id === current ? 0 : -1}
          row={row}
        />
      ))}
    </ul>
  );
}

interface ItemProps {
  id: string;
  at: number;
  all: number;
  height: number;
  tabIndex: number;
  row: DrawRow;
}

/** Memoized: scrolling adds other rows and does not render this one again. */
const Item = memo(function Item({ id, at, all, height, tabIndex, row }: ItemProps) {
  return (
    <li
      data-row={id}
      className={at + 1 === all ? 'last' : undefined}
      aria-setsize={all}
      aria-posinset={at + 1}
      style={{ height, top: at * height }}
    >
      {row(id, tabIndex)}
    </li>
  );
});

/** The height of a row, which differs on narrow screens. */
export function useRowHeight(wide: number, narrow: number): number {
  const [small, setSmall] = useState(() => matchMedia('(max-width: 900px)').matches);
  useEffect(() => {
    const query = matchMedia('(max-width: 900px)');
    const change = () => setSmall(query.matches);
    query.addEventListener('change', change);
    return () => query.removeEventListener('change', change);
  }, []);
  return small ? narrow : wide;
}
