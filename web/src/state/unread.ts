// How many messages have come since a person last looked at them in this browser.

import { useEffect } from 'react';
import type { Message } from '../wire';
import { now } from './clock';
import { house } from './house';
import type { Keyed } from './keyed';
import { messagesRead, setMessagesRead } from './prefs';
import { useIds } from './use';
import { useValue } from './value';

function ids(store: Keyed<Message>): string[] {
  return [...store.all()].map((message) => message.message_id);
}

function newestOf(): number {
  let newest = 0;
  for (const { created_at } of house.messages.all()) newest = Math.max(newest, created_at);
  return newest;
}

/** The messages that have not been looked at; `looking`: they are looked at now. */
export function useUnread(looking: boolean): number {
  const messages = useIds(house.messages, ids);
  const read = useValue(messagesRead);
  useEffect(() => {
    // Who comes for the first time has missed nothing.
    if (read === null) setMessagesRead(Math.max(newestOf(), now()));
    else if (looking && newestOf() > read) setMessagesRead(newestOf());
  }, [read, looking, messages]);
  if (looking || read === null) return 0;
  return messages.filter((id) => (house.messages.get(id)?.created_at ?? 0) > read).length;
}
