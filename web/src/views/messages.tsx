// Messages to agents, and the state of each delivery.

import { useCallback, useState } from 'react';
import { ahead, count, moment } from '../format';
import { wakeAgain } from '../state/actions';
import { now } from '../state/clock';
import { stateCache } from '../state/state-cache';
import type { KeyedStore } from '../state/keyed-store';
import { useParam } from '../state/route';
import { useIds, useSecond, useEntry } from '../state/use';
import type { Delivery, Message } from '../wire';
import { AgentFilter } from '../parts/agent-filter';
import { Empty, CommandExample } from '../parts/empty';
import { Link } from '../parts/link';
import { Ago, Exact, TextWithOutput } from '../parts/text';

type Which = 'all' | 'unseen' | 'failed';
/** Messages that are added to the list at a time. */
const STEP = 100;

function failed(message: Message): boolean {
  return message.deliveries.some((delivery) => !delivery.ok && delivery.fault !== null);
}

export function Messages() {
  const [shown, setShown] = useParam('show');
  const [agent, setAgent] = useParam('agent');
  const which: Which = shown === 'unseen' || shown === 'failed' ? shown : 'all';
  const [most, setMost] = useState(STEP);
  const choose = useCallback(
    (store: KeyedStore<Message>) => {
      const wanted = [...store.all()].filter(
        (message) =>
          (agent === '' || message.agent === agent) &&
          (which === 'all' || (which === 'unseen' && message.seen_at === null) || (which === 'failed' && failed(message))),
      );
      return wanted.sort((a, b) => b.created_at - a.created_at).map((message) => message.message_id);
    },
    [which, agent],
  );
  const ids = useIds(stateCache.messages, choose);
  const more = () => {
    setMost((old) => old + STEP);
    if (most + STEP > ids.length) void stateCache.moreMessages().catch(() => undefined);
  };
  return (
    <div className="page">
      <header className="page-head">
        <h1>Messages</h1>
        <div className="end">
          <AgentFilter store={stateCache.messages} agent={agent} onChange={setAgent} />
          <label>
            <span className="hidden">Filter</span>
            <select className="input" value={which} onChange={(event) => setShown(event.target.value === 'all' ? '' : event.target.value)}>
              <option value="all">All</option>
              <option value="unseen">Not seen</option>
              <option value="failed">Delivery failed</option>
            </select>
          </label>
        </div>
      </header>
      {ids.length === 0 ? (
        <Empty title={which === 'all' && agent === '' ? 'No messages yet' : 'No matching messages'}>
          {which === 'all' && agent === '' && (
            <>
              <span>A timer that completes while no call is waiting sends a message to its agent. Try one:</span>
              <CommandExample command="abide timer start 5s --mission 'look at the build'" />
            </>
          )}
        </Empty>
      ) : (
        <ul className="messages" aria-label="Messages">
          {ids.slice(0, most).map((id) => (
            <li key={id}>
              <MessageCard id={id} />
            </li>
          ))}
        </ul>
      )}
      {(ids.length > most || stateCache.olderMessages) && ids.length > 0 && (
        <button type="button" className="button" onClick={more}>
          Show older
        </button>
      )}
      {ids.length > 0 && (
        <span className="soft small numbers" role="status">
          {count(Math.min(most, ids.length))} of {count(ids.length)} shown
        </span>
      )}
    </div>
  );
}

function MessageCard({ id }: { id: string }) {
  const message = useEntry(stateCache.messages, id);
  const [sending, setSending] = useState(false);
  if (!message) return null;
  const again = () => {
    setSending(true);
    void wakeAgain(id).finally(() => setSending(false));
  };
  const { deliveries } = message;
  return (
    <article className="card message" tabIndex={-1} data-stop aria-label={`Message to ${message.agent}`}>
      <TextWithOutput text={message.text} />
      <div className="message-head">
        {message.seen_at === null ? (
          <span className="chip warn">Not seen</span>
        ) : (
          <span className="chip good">Seen</span>
        )}
        <span className="soft small">
          to {message.agent}, <Ago stamp={message.created_at} />
          {message.seen_at !== null && (
            <>
              , seen <Ago stamp={message.seen_at} />
            </>
          )}
        </span>
        <span className="end">
          {message.timer_id !== undefined && (
            <Link className="button compact" href={`/timers/${message.timer_id}`}>
              Open timer
            </Link>
          )}
          {message.session_id !== undefined && (
            <Link className="button compact" href={`/sessions/${message.session_id}`}>
              Open session
            </Link>
          )}
          {/* Without a waker the message cannot be sent. */}
          {deliveries.length > 0 && (
            <button type="button" className="button compact" disabled={sending} onClick={again}>
              {sending ? 'Sending…' : 'Send again'}
            </button>
          )}
        </span>
      </div>
      {deliveries.length > 0 && (
        <ul className="deliveries" aria-label="Deliveries">
          {deliveries.map((delivery, place) => (
            <DeliveryLine key={place} delivery={delivery} />
          ))}
        </ul>
      )}
    </article>
  );
}

function DeliveryLine({ delivery }: { delivery: Delivery }) {
  const second = useSecond();
  const tries = delivery.attempts;
  return (
    <li>
      <span className={`dot ${delivery.ok ? 'good' : delivery.fault ? 'bad' : 'warn'}`} />
      <Exact text={delivery.waker} />
      <span className="soft">
        {deliveryState(delivery)}
        {delivery.at !== null && ` ${moment(delivery.at, now())}`}
        {tries > 1 && `, ${count(tries)} tries`}
        {delivery.next_at !== null && `, next try ${ahead(delivery.next_at, second)}`}
      </span>
      {delivery.fault && !delivery.ok && (
        <span className="fault why">
          <Exact text={delivery.fault} className="prose" />
        </span>
      )}
    </li>
  );
}

/** State of a delivery in words. */
function deliveryState(delivery: Delivery): string {
  if (delivery.ok) return 'delivered';
  if (delivery.state === 'seen') return 'not needed: the agent has seen the message';
  if (delivery.state === 'given_up') return 'given up';
  return delivery.fault === null ? 'waiting' : 'failed';
}
