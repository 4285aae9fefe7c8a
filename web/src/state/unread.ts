// The number of messages since the messages view was last open in this browser.

import { useEffect } from 'react';
import type { Message } from '../wire';
import { now } from './clock';
import { stateCache } from './state-cache';
import type { KeyedStore } from './keyed-store';
import { messagesRead, setMessagesRead } from './prefs';
import { useIds } from './use';
import { useValue } from './value';

function ids(store: KeyedStore<Message>): string[] {
  return [...store.all()].map((message) => message.message_id);
}

function newestOf(): number {
  let newest = 0;
  for (const { created_at } of stateCache.messages.all()) newest = Math.max(newest, created_at);
  return newest;
}

/** The number of unread messages; `looking`: the messages view is open. */
export function useUnread(looking: boolean): number {
  const messages = useIds(stateCache.messages, ids);
  const read = useValue(messagesRead);
  useEffect(() => {
    // On the first visit there are no unread messages.
    if (read === null) setMessagesRead(Math.max(newestOf(), now()));
    else if (looking && newestOf() > read) setMessagesRead(newestOf());
  }, [read, looking, messages]);
  if (looking || read === null) return 0;
  return messages.filter((id) => (stateCache.messages.get(id)?.created_at ?? 0) > read).length;
}
