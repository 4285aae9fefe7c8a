import { expect, test } from 'vitest';
import { KeyedStore } from './keyed-store';

interface Thing {
  id: string;
  word: string;
}

function store() {
  const flushes: (() => void)[] = [];
  const keyed = new KeyedStore<Thing>(
    (thing) => thing.id,
    (flush) => void flushes.push(flush),
  );
  const flush = () => flushes.splice(0).forEach((run) => run());
  return { keyed, flush };
}

test('a listener of one entry is called once, only for its entry', () => {
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

test('an unsubscribed listener is not called', () => {
  const { keyed, flush } = store();
  const heard: string[] = [];
  const leave = keyed.subscribeTo('a', () => heard.push('a'));
  leave();
  keyed.put({ id: 'a', word: 'one' });
  flush();
  expect(heard).toEqual([]);
});

test('an overlay stays over updates until it is removed', () => {
  const { keyed } = store();
  keyed.put({ id: 'a', word: 'running' });
  const undo = keyed.overlay('a', { word: 'stopped' });
  expect(keyed.get('a')?.word).toBe('stopped');
  keyed.put({ id: 'a', word: 'paused' });
  expect(keyed.get('a')?.word).toBe('stopped');
  undo();
  expect(keyed.get('a')?.word).toBe('paused');
});

test('removing an older overlay leaves the newer one', () => {
  const { keyed } = store();
  keyed.put({ id: 'a', word: 'running' });
  const first = keyed.overlay('a', { word: 'paused' });
  keyed.overlay('a', { word: 'stopped' });
  first();
  expect(keyed.get('a')?.word).toBe('stopped');
});

test('a list replaces all entries except newer ones', () => {
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

test('the tally follows added, changed and removed entries', () => {
  const keyed = new KeyedStore<Thing>((thing) => thing.id, () => undefined, (thing) => thing.word === 'open');
  keyed.put({ id: 'a', word: 'open' });
  keyed.put({ id: 'b', word: 'closed' });
  keyed.put({ id: 'a', word: 'open' });
  expect(keyed.tally).toBe(1);
  const undo = keyed.overlay('a', { word: 'closed' });
  expect(keyed.tally).toBe(0);
  undo();
  keyed.replace([{ id: 'c', word: 'open' }, { id: 'b', word: 'open' }], new Set());
  expect(keyed.tally).toBe(2);
  keyed.remove('c');
  expect(keyed.tally).toBe(1);
});
