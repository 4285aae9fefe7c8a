import { expect, test } from 'vitest';
import { Keyed } from './keyed';

interface Thing {
  id: string;
  word: string;
}

function store() {
  const flushes: (() => void)[] = [];
  const keyed = new Keyed<Thing>(
    (thing) => thing.id,
    (flush) => void flushes.push(flush),
  );
  const flush = () => flushes.splice(0).forEach((run) => run());
  return { keyed, flush };
}

test('only who looks at a thing hears of it, and once', () => {
  const { keyed, flush } = store();
  const heard: string[] = [];
  keyed.subscribeTo('a', () => heard.push('a'));
  keyed.subscribeTo('b', () => heard.push('b'));
  keyed.subscribe(() => heard.push('all'));
  keyed.put({ id: 'a', word: 'one' });
  keyed.put({ id: 'a', word: 'two' });
  expect(heard).toEqual([]);
  flush();
  expect(heard).toEqual(['a', 'all']);
  expect(keyed.get('a')?.word).toBe('two');
});

test('who has left hears nothing', () => {
  const { keyed, flush } = store();
  const heard: string[] = [];
  const leave = keyed.subscribeTo('a', () => heard.push('a'));
  leave();
  keyed.put({ id: 'a', word: 'one' });
  flush();
  expect(heard).toEqual([]);
});

test('a patch shows until it is taken away, over whatever the daemon says meanwhile', () => {
  const { keyed } = store();
  keyed.put({ id: 'a', word: 'running' });
  const undo = keyed.lay('a', { word: 'stopped' });
  expect(keyed.get('a')?.word).toBe('stopped');
  keyed.put({ id: 'a', word: 'paused' });
  expect(keyed.get('a')?.word).toBe('stopped');
  undo();
  expect(keyed.get('a')?.word).toBe('paused');
});

test('taking an older patch away leaves the newer one', () => {
  const { keyed } = store();
  keyed.put({ id: 'a', word: 'running' });
  const first = keyed.lay('a', { word: 'paused' });
  keyed.lay('a', { word: 'stopped' });
  first();
  expect(keyed.get('a')?.word).toBe('stopped');
});

test('a list replaces all but what is known better', () => {
  const { keyed } = store();
  keyed.put({ id: 'gone', word: 'old' });
  keyed.put({ id: 'new', word: 'from an event' });
  keyed.put({ id: 'kept', word: 'from an event' });
  const list = [
    { id: 'kept', word: 'from the list' },
    { id: 'listed', word: 'from the list' },
  ];
  keyed.replace(list, new Set(['new', 'kept']));
  expect([...keyed.all()].map((thing) => `${thing.id}: ${thing.word}`).sort()).toEqual([
    'kept: from an event',
    'listed: from the list',
    'new: from an event',
  ]);
});

test('what counts is counted as it comes, changes and goes', () => {
  const keyed = new Keyed<Thing>((thing) => thing.id, () => undefined, (thing) => thing.word === 'open');
  keyed.put({ id: 'a', word: 'open' });
  keyed.put({ id: 'b', word: 'closed' });
  keyed.put({ id: 'a', word: 'open' });
  expect(keyed.tally).toBe(1);
  const undo = keyed.lay('a', { word: 'closed' });
  expect(keyed.tally).toBe(0);
  undo();
  keyed.replace([{ id: 'c', word: 'open' }, { id: 'b', word: 'open' }], new Set());
  expect(keyed.tally).toBe(2);
  keyed.remove('c');
  expect(keyed.tally).toBe(1);
});
