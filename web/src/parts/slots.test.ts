import { describe, expect, it } from 'vitest';
import { assign, NO_SLOTS } from './slots';

const keysOf = (slots: ReturnType<typeof assign>) => slots.ids.map((id) => slots.keys.get(id));

describe('which element shows which row', () => {
  const first = assign(NO_SLOTS, ['a', 'b', 'c'], undefined);

  it('makes an element for each at first', () => {
    expect(keysOf(first)).toEqual([0, 1, 2]);
  });

  it('leaves rows in their elements while some of them stay', () => {
    expect(keysOf(assign(first, ['b', 'c', 'd'], undefined))).toEqual([1, 2, 3]);
    expect(keysOf(assign(first, ['z', 'a', 'b'], undefined))).toEqual([3, 0, 1]);
  });

  it('takes the elements over, in order, where none of the rows stays', () => {
    expect(keysOf(assign(first, ['x', 'y', 'z'], undefined))).toEqual([0, 1, 2]);
    expect(keysOf(assign(first, ['w', 'x', 'y', 'z'], undefined))).toEqual([0, 1, 2, 3]);
    expect(keysOf(assign(first, ['x'], undefined))).toEqual([0]);
  });

  it('never gives away the element that holds the focus', () => {
    const jumped = assign(first, ['x', 'y', 'b'], 'b');
    expect(keysOf(jumped)).toEqual([0, 2, 1]);
    expect(keysOf(assign(jumped, ['p', 'q', 'r', 'b'], 'b'))).toEqual([0, 2, 3, 1]);
  });

  it('never gives one element to two rows', () => {
    let slots = NO_SLOTS;
    for (let turn = 0; turn < 400; turn += 1) {
      const from = (turn * turn * 7 + 13) % 401;
      const ids = Array.from({ length: 5 + (from % 9) }, (_, n) => `row ${from + n}`);
      slots = assign(slots, ids, `row ${from % 17}`);
      expect(new Set(keysOf(slots)).size).toBe(ids.length);
    }
  });
});
