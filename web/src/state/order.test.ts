import { expect, test } from 'vitest';
import { KeyedStore } from './keyed-store';
import { firstN, ordered } from './order';

interface Thing {
  id: string;
  rank: number;
}

const up = (a: Thing, b: Thing) => a.rank - b.rank;

function many(count: number): Thing[] {
  return Array.from({ length: count }, (_, n) => ({ id: `t${n}`, rank: (n * 7_919) % 10_007 }));
}

test('firstN returns what a full sort puts first', () => {
  const things = many(3_000);
  const odd = (thing: Thing) => thing.rank % 2 === 1;
  const sorted = things.filter(odd).sort(up);
  expect(firstN(things, 24, odd, up)).toEqual(sorted.slice(0, 24));
  expect(firstN(things.slice(0, 10), 24, odd, up)).toEqual(things.slice(0, 10).filter(odd).sort(up));
  expect(firstN(things, 0, odd, up)).toEqual([]);
});

test('the order does not depend on the previous result', () => {
  const store = new KeyedStore<Thing>((thing) => thing.id, () => undefined);
  many(500).forEach((thing) => store.put(thing));
  const order = (before: string[]) => ordered(store, before, (thing) => thing.id, (thing) => thing.rank > 100, up);
  const first = order([]);
  expect(first.length).toBeGreaterThan(400);
  store.put({ id: 't7', rank: 1_000_000 });
  store.remove('t9');
  const second = order(first);
  expect(second).toEqual(order([]));
  expect(second.at(-1)).toBe('t7');
  expect(second).not.toContain('t9');
});

test('a nearly sorted list needs few comparisons', () => {
  const store = new KeyedStore<Thing>((thing) => thing.id, () => undefined);
  many(10_000).forEach((thing) => store.put(thing));
  let compared = 0;
  const order = (before: string[]) =>
    ordered(store, before, (thing) => thing.id, () => true, (a, b) => {
      compared += 1;
      return up(a, b);
    });
  const first = order([]);
  const whole = compared;
  compared = 0;
  store.put({ id: 't5', rank: 5_000.5 });
  order(first);
  expect(compared).toBeLessThan(whole / 4);
});
