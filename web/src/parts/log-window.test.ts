import { describe, expect, it } from 'vitest';
import { formatLines, listHeight, literalPattern, parseLines, ROW, topFor, windowAt } from './log-window';

describe('windowAt', () => {
  it('places lines of one height where a plain list has them', () => {
    for (const top of [0, 5, 1_234, 19_600]) {
      const { anchor, part, y } = windowAt(top, 400, 1_000);
      expect((anchor + part) * ROW - y).toBeCloseTo(top);
    }
  });

  it('shows the first line at the top and the end of the last at the bottom, however long the log is', () => {
    for (const total of [1_000, 1_000_000, 100_000_000]) {
      const first = windowAt(0, 400, total);
      expect([first.from, first.anchor, first.part, first.y]).toEqual([0, 0, 0, 0]);
      const last = windowAt(listHeight(total) - 400, 400, total);
      expect([last.to, last.anchor, last.part, last.y]).toEqual([total, total - 1, 1, 400]);
    }
  });

  it('covers the window on both sides of the anchor', () => {
    const { from, to, anchor, y } = windowAt(9_000_000, 600, 5_000_000);
    expect((anchor - from) * ROW).toBeGreaterThanOrEqual(y);
    expect((to - anchor) * ROW).toBeGreaterThanOrEqual(600 - y);
    expect(to - from).toBeLessThan(100);
  });
});

describe('topFor', () => {
  it('brings a whole line into sight', () => {
    for (const [line, total, even] of [
      [1, 2_000, true],
      [700, 2_000, true],
      [2_000, 2_000, false],
      [1, 1_000_000, true],
      [999, 1_000_000, true],
      [7_000, 1_000_000, true],
      [999_999, 1_000_000, true],
      [1, 1_000_000, false],
      [7_000, 1_000_000, false],
      [99_999_999, 100_000_000, false],
    ] as const) {
      const { from, to, anchor, part, y } = windowAt(topFor(line, 500, total, even), 500, total);
      expect(line - 1).toBeGreaterThanOrEqual(from);
      expect(line - 1).toBeLessThan(to);
      const place = y + (line - 1 - anchor - part) * ROW;
      expect(place).toBeGreaterThanOrEqual(-0.01);
      expect(place).toBeLessThanOrEqual(500 - ROW + 0.01);
    }
  });

  it('shows a line in the middle, however long the log is', () => {
    for (const total of [2_000, 1_000_000]) {
      const { anchor, part, y } = windowAt(topFor(700, 500, total, true), 500, total);
      expect(y + (699.5 - anchor - part) * ROW).toBeCloseTo(250, 1);
    }
  });
});

describe('parseLines', () => {
  it('reads one line and a range in either order', () => {
    expect(parseLines('#L7000')).toEqual([7_000, 7_000]);
    expect(parseLines('#L12-L7')).toEqual([7, 12]);
    expect(parseLines(formatLines(9, 3))).toEqual([3, 9]);
  });

  it('returns null for other fragments', () => {
    for (const text of ['', '#main', '#L', '#L0', '#L1-', '#l5']) expect(parseLines(text)).toBeNull();
  });
});

describe('literalPattern', () => {
  it('escapes special characters of regular expressions', () => {
    expect(literalPattern('a.b (c)[1]*')).toBe('(?i)a\\.b \\(c\\)\\[1\\]\\*');
  });
});
