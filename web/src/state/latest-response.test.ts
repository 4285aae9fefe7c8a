import { expect, test } from 'vitest';
import { LatestResponse } from './latest-response';

/** A promise that is resolved or rejected from outside. */
function pending(): { answer: Promise<string>; come: (word: string) => void; fail: () => void } {
  let come: (word: string) => void = () => undefined;
  let fail: () => void = () => undefined;
  const answer = new Promise<string>((kept, broken) => {
    come = kept;
    fail = () => broken(new Error('no'));
  });
  return { answer, come, fail };
}

test('a response that a later one has overtaken is dropped', async () => {
  const newest = new LatestResponse();
  const [one, two] = [pending(), pending()];
  const [first, second] = [newest.of(one.answer), newest.of(two.answer)];
  two.come('two');
  expect(await second).toBe('two');
  one.come('one');
  expect(await first).toBeUndefined();
});

test('responses in order are all returned', async () => {
  const newest = new LatestResponse();
  const [one, two] = [pending(), pending()];
  const [first, second] = [newest.of(one.answer), newest.of(two.answer)];
  one.come('one');
  expect(await first).toBe('one');
  two.come('two');
  expect(await second).toBe('two');
});

test('an error that a later response has overtaken is dropped', async () => {
  const newest = new LatestResponse();
  const [one, two] = [pending(), pending()];
  const [first, second] = [newest.of(one.answer), newest.of(two.answer)];
  two.come('two');
  await second;
  one.fail();
  expect(await first).toBeUndefined();
  await expect(newest.of(Promise.reject(new Error('no')))).rejects.toThrow('no');
});
