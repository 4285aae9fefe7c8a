// What agents were told, and how each message found its way.

import { useCallback, useState } from 'react';
import { ahead, count, moment } from '../format';
import { wakeAgain } from '../state/acts';
import { now } from '../state/clock';
import { house } from '../state/house';
import type { Keyed } from '../state/keyed';
import { useParam } from '../state/route';
import { useIds, useSecond, useThing } from '../state/use';
import type { Delivery, Message } from '../wire';
import { AgentFilter } from '../parts/agent-filter';
import { Empty, Try } from '../parts/empty';
import { Link } from '../parts/link';
import { Ago, Exact } from '../parts/text';

type Which = 'all' | 'unseen' | 'failed';
/** Messages that are drawn at once. */
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
    (store: Keyed<Message>) => {
      const wanted = [...store.all()].filter(
        (message) =>
          (agent === '' || message.agent === agent) &&
          (which === 'all' || (which === 'unseen' && message.seen_at === null) || (which === 'failed' && failed(message))),
      );
      return wanted.sort((a, b) => b.created_at - a.created_at).map((message) => message.message_id);
    },
    [which, agent],
  );
  const ids = useIds(house.messages, choose);
  const more = () => {
    setMost((old) => old + STEP);
    if (most + STEP > ids.length) void house.moreMessages().catch(() => undefined);
  };
  return (
    <div className="page">
      <header className="page-head">
        <h1>Messages</h1>
        <div className="end">
          <AgentFilter store={house.messages} agent={agent} onChange={setAgent} />
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
              <Try command="abide timer start 5s --mission 'look at the build'" />
            </>
          )}
        </Empty>
      ) : (
        <ul className="messages" aria-label="Messages">
          {ids.slice(0, most).map((id) => (
            <li key={id}>
              <Told id={id} />
            </li>
          ))}
        </ul>
      )}
      {(ids.length > most || house.olderMessages) && ids.length > 0 && (
        <button type="button" className="button" onClick={more}>
          Show older ones
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

function Told({ id }: { id: string }) {
  const message = useThing(house.messages, id);
  const [sending, setSending] = useState(false);
  if (!message) return null;
  const again = () => {
    setSending(true);
    void wakeAgain(id).finally(() => setSending(false));
  };
  const { deliveries } = message;
  return (
    <article className="card message" tabIndex={-1} data-stop aria-label={`Message to ${message.agent}`}>
      <Exact text={message.text} />
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
          {/* Without a waker there is no way to send it. */}
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
            <Way key={place} delivery={delivery} />
          ))}
        </ul>
      )}
    </article>
  );
}

function Way({ delivery }: { delivery: Delivery }) {
  const second = useSecond();
  const tries = delivery.attempts;
  return (
    <li>
      <span className={`dot ${delivery.ok ? 'good' : delivery.fault ? 'bad' : 'warn'}`} />
      <Exact text={delivery.waker} />
      <span className="soft">
        {became(delivery)}
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

/** What became of it, in words. */
function became(delivery: Delivery): string {
  if (delivery.ok) return 'delivered';
  if (delivery.state === 'seen') return 'not needed: its agent had seen it';
  if (delivery.state === 'given_up') return 'given up';
  return delivery.fault === null ? 'is waiting' : 'failed';
}
