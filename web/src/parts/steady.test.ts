import { expect, it } from 'vitest';
import { keepOrder } from './steady';

it('keeps the order of what stays, and puts what is new last', () => {
  expect(keepOrder(['a', 'b', 'c'], ['c', 'd', 'a'])).toEqual(['a', 'c', 'd']);
  expect(keepOrder([], ['b', 'a'])).toEqual(['b', 'a']);
});
