import { expect, test, vi } from 'vitest';
import type { Message } from '../wire';
import { setClock } from './clock';
import { readUntil } from './unread';

const message = (created_at: number): Message => ({
  message_id: `m${created_at}`,
  agent: 'me',
  text: '',
  created_at,
  seen_at: null,
  woken_at: null,
  wake_attempts: 0,
  wake_fault: null,
  deliveries: [],
});

test('on the first visit the daemon’s clock decides, also if the one of this machine is ahead', () => {
  vi.useFakeTimers();
  setClock(Date.now());
  expect(readUntil(null, false, [], false)).toBeNull();
  setClock(Date.now() - 3_600_000);
  expect(readUntil(null, false, [message(1)], true)).toBe(Date.now() - 3_600_000);
  vi.useRealTimers();
});

test('messages are read while the messages view is open', () => {
  expect(readUntil(5, false, [message(7)], true)).toBe(5);
  expect(readUntil(5, true, [message(7), message(6)], true)).toBe(7);
  expect(readUntil(5, true, [message(4)], true)).toBe(5);
});
