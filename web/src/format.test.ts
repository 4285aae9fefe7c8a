import { expect, test } from 'vitest';
import { conditionWords } from './condition';
import { ahead, bytes, countdown, duration, exactly, firstLine, length, plural } from './format';

test('durations have at most two units', () => {
  const written = [0, 0.9, 45, 60, 90, 3_600, 3_725, 86_400, 273_600].map(duration);
  expect(written).toEqual(['0s', '0s', '45s', '1m', '1m30s', '1h', '1h2m', '1d', '3d4h']);
});

test('a countdown shows zero only when it is over', () => {
  expect([0.2, 59.5, 60, 3_725, -3].map(countdown)).toEqual(['0:01', '1:00', '1:00', '1:02:05', '0:00']);
});

test('bytes and counts', () => {
  expect([0, 999, 1_000, 123_456_789].map(bytes)).toEqual(['0 B', '999 B', '1.0 kB', '123 MB']);
  expect([plural(1, 'timer'), plural(2_000, 'timer')]).toEqual(['1 timer', '2,000 timers']);
  expect([ahead(5_000, 5_500), ahead(95_000, 5_000)]).toEqual(['now', 'in 1m30s']);
});

test('durations below a second have fractions', () => {
  expect([0, 0.05, 0.234, 1, 1.5, 9.99, 12.7, 90].map(length)).toEqual(['0s', '0.05s', '0.23s', '1s', '1.5s', '10s', '12s', '1m30s']);
});

test('hidden characters of a command are made visible', () => {
  const runs = exactly('rm \u202e-rf\u0007 \u{e0041}x\ty\n');
  expect(runs.map((run) => (run.mark ? `<${run.text}>` : run.text)).join('')).toBe('rm <U+202E>-rf<U+0007> <U+E0041>x\ty\n');
  expect(exactly('größer 👩‍🔬 <b>')).toEqual([{ text: 'größer 👩‍🔬 <b>', mark: false }]);
});

test('the first line is the first that is not blank', () => {
  expect(firstLine('make')).toEqual({ line: 'make', more: 0 });
  expect(firstLine('make\n')).toEqual({ line: 'make', more: 0 });
  expect(firstLine('\n  \nset -e\r\nmake\r\n\r\nmake test\n\n')).toEqual({ line: 'set -e', more: 3 });
  expect(firstLine('')).toEqual({ line: '', more: 0 });
});

test('conditions are formatted as text', () => {
  const until = { any: [{ port: 3000 }, { all: [{ file: 'x', is: 'gone' }, { command: 'test -f y' }] }] };
  expect(conditionWords(until)).toBe('port 3000 is open or x is gone and `test -f y` succeeds');
  expect(conditionWords({ session: 'session_a', is: 'ended' })).toBe('session_a has ended');
  expect(conditionWords({ new: 1 })).toBe('{"new":1}');
});
