import { expect, test } from 'vitest';
import { Newest } from './newest';

/** A promise that is kept, or broken, from outside. */
function pending(): { answer: Promise<string>; come: (word: string) => void; fail: () => void } {
  let come: (word: string) => void = () => undefined;
  let fail: () => void = () => undefined;
  const answer = new Promise<string>((kept, broken) => {
    come = kept;
    fail = () => broken(new Error('no'));
  });
  return { answer, come, fail };
}

test('an answer that a later one has overtaken is let go of', async () => {
  const newest = new Newest();
  const [one, two] = [pending(), pending()];
  const [first, second] = [newest.of(one.answer), newest.of(two.answer)];
  two.come('two');
  expect(await second).toBe('two');
  one.come('one');
  expect(await first).toBeUndefined();
});

test('answers in their order are all told', async () => {
  const newest = new Newest();
  const [one, two] = [pending(), pending()];
  const [first, second] = [newest.of(one.answer), newest.of(two.answer)];
  one.come('one');
  expect(await first).toBe('one');
  two.come('two');
  expect(await second).toBe('two');
});

test('a refusal that comes too late is no fault any more', async () => {
  const newest = new Newest();
  const [one, two] = [pending(), pending()];
  const [first, second] = [newest.of(one.answer), newest.of(two.answer)];
  two.come('two');
  await second;
  one.fail();
  expect(await first).toBeUndefined();
  await expect(newest.of(Promise.reject(new Error('no')))).rejects.toThrow('no');
});
