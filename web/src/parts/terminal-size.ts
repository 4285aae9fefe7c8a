// Size of a terminal that fills this window.

/** Largest font size, in pixels. */
export const LARGEST = 14;
/** Width of a character, relative to the font size. */
export const WIDE = 0.6023;
/** Height of a line, relative to the font size. */
const HIGH = 1.21;
/** Height of what stands around the terminal, in pixels: on a phone also the keys and two bars. */
const AROUND = { wide: 220, narrow: 330 };

/** Columns and rows for a box of this width. */
export function fittingSize(width: number): { cols: number; rows: number } {
  const around = matchMedia('(max-width: 720px)').matches ? AROUND.narrow : AROUND.wide;
  return {
    cols: Math.max(20, Math.floor((width - 32) / (LARGEST * WIDE))),
    rows: Math.max(10, Math.min(60, Math.floor((window.innerHeight - around) / (LARGEST * HIGH)))),
  };
}
