// Computes which lines of a log are visible, and the scroll position of a line. The scroll bar represents the whole
// log: at a fraction of the scroll range, the line at the same fraction of the log is at that fraction of the window.
// So both ends are reached exactly for any line heights, and a log that is higher than a browser can scroll only
// scrolls faster.

/** Height of a line that is not wrapped, in pixels. */
export const ROW = 20;
/** Browsers cannot scroll much farther than this, in pixels. */
const HIGHEST = 10_000_000;
/** Lines outside the window that are drawn as well. */
const MARGIN = 12;

export interface LogWindow {
  /** The first line that is drawn, from 0, and the line after the last one. */
  from: number;
  to: number;
  /** The line that fixes the position of the others, and the part of it that is at `y`. */
  anchor: number;
  part: number;
  /** Position of the anchor in the window, in pixels. */
  y: number;
}

/** Height of the whole list in pixels. */
export function listHeight(total: number): number {
  return Math.min(HIGHEST, total * ROW);
}

export function windowAt(top: number, height: number, total: number): LogWindow {
  const way = Math.max(1, listHeight(total) - height);
  const share = Math.min(1, Math.max(0, top / way));
  const at = share * total;
  const anchor = Math.max(0, Math.min(total - 1, Math.floor(at)));
  const y = share * height;
  return {
    from: Math.max(0, anchor - Math.ceil(y / ROW) - MARGIN),
    to: Math.min(total, anchor + Math.ceil((height - y) / ROW) + MARGIN + 1),
    anchor,
    part: at - anchor,
    y,
  };
}

/** Scroll position that makes a whole line visible: in the middle, if all lines have the same height. */
export function topFor(line: number, height: number, total: number, even: boolean): number {
  const way = Math.max(0, listHeight(total) - height);
  const share = even
    ? ((line - 0.5) * ROW - height / 2) / Math.max(1, total * ROW - height)
    : (line - 1) / Math.max(1, total - 1);
  return Math.min(1, Math.max(0, share)) * way;
}

/** The lines that a fragment such as `#L7` or `#L7-L12` names. */
export function parseLines(fragment: string): [number, number] | null {
  const found = /^#L(\d{1,12})(?:-L(\d{1,12}))?$/.exec(fragment);
  if (!found) return null;
  const first = Number(found[1]);
  const last = Number(found[2] ?? found[1]);
  if (first < 1 || last < 1) return null;
  return [Math.min(first, last), Math.max(first, last)];
}

export function formatLines(first: number, last: number): string {
  return first === last ? `#L${first}` : `#L${Math.min(first, last)}-L${Math.max(first, last)}`;
}

/** A case-insensitive regular expression that matches a text literally. */
export function literalPattern(text: string): string {
  return `(?i)${text.replace(/[\\^$.*+?()[\]{}|#&~-]/g, '\\$&')}`;
}
