import { expect, test, vi } from 'vitest';
import { now, onTick, setClock, whenJumped } from './clock';

test('now() follows the daemon’s clock, not this machine’s', () => {
  setClock(1_000_000, 400_000);
  expect(now(400_000)).toBe(1_000_000);
  expect(now(460_000)).toBe(1_060_000);
  setClock(50, 100);
  expect(now(100)).toBe(50);
});

test('a clock change or a sleep is detected within a second', () => {
  vi.useFakeTimers({ toFake: ['Date', 'performance', 'setInterval', 'clearInterval'] });
  const jumped = vi.fn();
  whenJumped(jumped);
  const leave = onTick(() => undefined);
  vi.advanceTimersByTime(60_000);
  expect(jumped).not.toHaveBeenCalled();
  vi.setSystemTime(Date.now() + 3_600_000);
  vi.advanceTimersByTime(1_000);
  expect(jumped).toHaveBeenCalledTimes(1);
  vi.setSystemTime(Date.now() - 7_200_000);
  vi.advanceTimersByTime(5_000);
  expect(jumped).toHaveBeenCalledTimes(2);
  leave();
  vi.useRealTimers();
});
