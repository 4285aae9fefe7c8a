import { expect, test } from 'vitest';
import { EventParser } from './sse';

const STREAM = 'id: 7-1\nevent: hello\ndata: {"a":1}\n\n: breath\n\nid: 7-2\r\nevent: timer\r\ndata: {\r\ndata: }\r\n\r\ndata: x\n\n';
const EVENTS = [
  { id: '7-1', event: 'hello', data: '{"a":1}' },
  { id: '7-2', event: 'timer', data: '{\n}' },
  { id: '7-2', event: 'message', data: 'x' },
];

test('events are the same for any chunk boundaries', () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let from = 0; from < STREAM.length; from += size) {
      events.push(...parser.take(STREAM.slice(from, from + size)));
    }
    expect(events).toEqual(EVENTS);
  }
});

test('an incomplete event is not returned', () => {
  const parser = new EventParser();
  expect(parser.take('event: timer\ndata: {}\n')).toEqual([]);
  expect(parser.take('\n')).toHaveLength(1);
});
