import { expect, it } from 'vitest';
import { keepOrder } from './stable-order';

it('keeps the order of known ids and puts new ids last', () => {
  expect(keepOrder(['a', 'b', 'c'], ['c', 'd', 'a'])).toEqual(['a', 'c', 'd']);
  expect(keepOrder([], ['b', 'a'])).toEqual(['b', 'a']);
});
