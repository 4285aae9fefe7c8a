import { describe, expect, it } from 'vitest';
import { assign, NO_ROW_ELEMENTS } from './row-elements';

const keysOf = (rowElements: ReturnType<typeof assign>) => rowElements.ids.map((id) => rowElements.keys.get(id));

describe('assign', () => {
  const first = assign(NO_ROW_ELEMENTS, ['a', 'b', 'c'], undefined);

  it('creates an element for each row at first', () => {
    expect(keysOf(first)).toEqual([0, 1, 2]);
  });

  it('keeps the elements of rows while some rows stay', () => {
    expect(keysOf(assign(first, ['b', 'c', 'd'], undefined))).toEqual([1, 2, 3]);
    expect(keysOf(assign(first, ['z', 'a', 'b'], undefined))).toEqual([3, 0, 1]);
  });

  it('reuses the elements in order if no row stays', () => {
    expect(keysOf(assign(first, ['x', 'y', 'z'], undefined))).toEqual([0, 1, 2]);
    expect(keysOf(assign(first, ['w', 'x', 'y', 'z'], undefined))).toEqual([0, 1, 2, 3]);
    expect(keysOf(assign(first, ['x'], undefined))).toEqual([0]);
  });

  it('never reuses the element that has the focus', () => {
    const jumped = assign(first, ['x', 'y', 'b'], 'b');
    expect(keysOf(jumped)).toEqual([0, 2, 1]);
    expect(keysOf(assign(jumped, ['p', 'q', 'r', 'b'], 'b'))).toEqual([0, 2, 3, 1]);
  });

  it('never gives one element to two rows', () => {
    let rowElements = NO_ROW_ELEMENTS;
    for (let turn = 0; turn < 400; turn += 1) {
      const from = (turn * turn * 7 + 13) % 401;
      const ids = Array.from({ length: 5 + (from % 9) }, (_, n) => `row ${from + n}`);
      rowElements = assign(rowElements, ids, `row ${from % 17}`);
      expect(new Set(keysOf(rowElements)).size).toBe(ids.length);
    }
  });
});
