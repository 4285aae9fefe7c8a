// The number of messages since the messages view was last open in this browser.

import { useEffect } from 'react';
import type { Message } from '../wire';
import { now } from './clock';
import { loaded } from './live';
import { stateCache } from './state-cache';
import type { KeyedStore } from './keyed-store';
import { messagesRead, setMessagesRead } from './prefs';
import { useIds } from './use';
import { useValue } from './value';

function ids(store: KeyedStore<Message>): string[] {
  return [...store.all()].map((message) => message.message_id);
}

/**
 * The time up to which messages are read: `read` or a later one. On the first visit there are no unread messages; `null`
 * until the daemon's clock is known, since the one of this machine may be ahead.
 */
export function readUntil(read: number | null, looking: boolean, messages: Iterable<Message>, isLoaded: boolean): number | null {
  if (read === null ? !isLoaded : !looking) return read;
  let until = read ?? now();
  for (const { created_at } of messages) until = Math.max(until, created_at);
  return until;
}

/** The number of unread messages; `looking`: the messages view is open. */
export function useUnread(looking: boolean): number {
  const messages = useIds(stateCache.messages, ids);
  const read = useValue(messagesRead);
  const isLoaded = useValue(loaded);
  useEffect(() => {
    const until = readUntil(read, looking, stateCache.messages.all(), isLoaded);
    if (until !== null && until !== read) setMessagesRead(until);
  }, [read, looking, messages, isLoaded]);
  if (looking || read === null) return 0;
  return messages.filter((id) => (stateCache.messages.get(id)?.created_at ?? 0) > read).length;
}
