import { expect, test } from 'vitest';
import { now, setClock } from './clock';

test('the daemon’s clock counts, not this machine’s', () => {
  setClock(1_000_000, 400_000);
  expect(now(400_000)).toBe(1_000_000);
  expect(now(460_000)).toBe(1_060_000);
  setClock(50, 100);
  expect(now(100)).toBe(50);
});
