//! Wakers: wake agents that do not read their messages, as configured. The result of each attempt is stored before
//! the next one, so that every failure is visible and a restart continues where the last daemon stopped.

mod attempt;
mod clients;
mod restart;
#[cfg(test)]
mod tests;
mod webhook;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use abide_core::time::Steady;
use abide_core::wake::{Failed, OWNER, Waker};
use abide_core::{Agent, Event, Millis, Mono};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock::{Clock, sleep_until};
use crate::config::{WakerConfig, WakesFor};
use crate::entropy;
use crate::store::{Delivery, DeliveryState, MessageQuery, MessageRow, StoreFault, WakerRecord};
use crate::web::Web;
use crate::{Change, Handle, ResendRequest};
use attempt::{Attempt, WakeFault};
pub use restart::run;

/// Messages that one waker queues in memory; the others stay in the database.
const MAX_QUEUED: usize = 1_000;
/// Maximum of pages of messages that are read at start.
const MAX_PAGES: usize = 1_000;
/// Delay after messages could not be read from the database.
const READ_RETRY: Millis = Millis::from_secs(5);

/// Runs these wakers until the daemon stops.
async fn run_configured(
    handle: Handle,
    clock: Arc<dyn Clock>,
    web: Arc<Web>,
    configured: Arc<[WakerConfig]>,
    resend_requests: &mut mpsc::Receiver<ResendRequest>,
) {
    if configured.is_empty() {
        return std::future::pending().await;
    }
    let mut changes = handle.published().follow();
    let disabled = handle.store_reader().disabled_wakers().await;
    let mut task = WakerTask {
        handle,
        clock,
        configured,
        wakers: BTreeMap::new(),
        disabled: disabled.unwrap_or_default().into_iter().collect(),
        read_again_at: None,
    };
    task.catch_up().await;
    let mut tries = JoinSet::new();
    loop {
        task.drop_idle();
        task.record_budget_delay().await;
        let alarms = task.wakers.values().filter_map(|w| w.waker.alarm());
        let alarm = alarms.chain(task.read_again_at).min();
        let alarm = alarm.map(|at| task.to_mono(at));
        tokio::select! {
            change = changes.recv() => match change {
                Ok(Change::Message(agent, id)) => {
                    let number = task.handle.store_reader().message_number(id);
                    task.posted(&agent, number).await;
                }
                Ok(
                    Change::Session(_)
                    | Change::Asked(_)
                    | Change::Closed(..)
                    | Change::Timer(_)
                    | Change::MessageUpdated(_),
                ) => {}
                Err(RecvError::Lagged(_)) => task.catch_up_missed().await,
                Err(RecvError::Closed) => return,
            },
            () = task.handle.clients().new_connection() => task.queue_for_open_conversations().await,
            Some(request) = resend_requests.recv() => task.resend(&request).await,
            Some(Ok(finished)) = tries.join_next() => task.attempt_finished(finished).await,
            () = sleep_until(&*task.clock, alarm) => {
                for attempt in task.due().await {
                    let (handle, web) = (task.handle.clone(), web.clone());
                    let config = task.configured.get(attempt.index).cloned();
                    let at_ms = task.clock.now().wall.0;
                    tries.spawn(async move {
                        let outcome = attempt.wake(config.as_ref(), &handle, &web, at_ms).await;
                        FinishedAttempt { attempt, outcome }
                    });
                }
            }
        }
    }
}

/// State of the task that runs the wakers.
struct WakerTask {
    handle: Handle,
    clock: Arc<dyn Clock>,
    /// Wakers in the order of the configuration.
    configured: Arc<[WakerConfig]>,
    /// State by waker, agent and, for clients, conversation.
    wakers: BTreeMap<WakerKey, WakerState>,
    /// Disabled wakers, with the reason.
    disabled: HashMap<String, String>,
    /// Time at which messages are read that could not be read before.
    read_again_at: Option<Steady>,
}

/// Index of a waker, agent and client session.
type WakerKey = (usize, Agent, Option<String>);

/// Queue of one waker for one agent or conversation.
struct WakerState {
    waker: Waker,
    /// True if there are more messages in the database than in the queue.
    more: bool,
    /// Time until which the budget holds the queue back, once that has been recorded.
    budget_delay: Option<Steady>,
    /// Messages that a person asked to send again, regardless of the settings.
    requested: BTreeSet<u64>,
}

impl WakerState {
    fn new(config: &WakerConfig) -> Self {
        WakerState {
            waker: Waker::new(config.rules()),
            more: false,
            budget_delay: None,
            requested: BTreeSet::new(),
        }
    }
}

struct FinishedAttempt {
    attempt: Attempt,
    outcome: Result<(), WakeFault>,
}

impl WakerTask {
    fn now(&self) -> Steady {
        Steady(self.clock.now().boot.0)
    }

    /// Monotonic time of a steady time.
    fn to_mono(&self, at: Steady) -> Mono {
        let now = self.clock.now();
        Mono(now.mono.0 + at.since(Steady(now.boot.0)).0)
    }

    fn to_wall_ms(&self, at: Steady) -> u64 {
        let now = self.clock.now();
        now.wall.0 + at.since(Steady(now.boot.0)).0
    }

    /// Queues the messages of earlier daemons, the oldest first.
    async fn catch_up(&mut self) {
        let mut begins = vec![None];
        while begins.len() < MAX_PAGES
            && let Some(oldest) = self.unseen(begins[begins.len() - 1]).await.last()
        {
            begins.push(Some(oldest.number));
        }
        for before in begins.into_iter().rev() {
            let rows = self.unseen(before).await;
            self.queue_all(&rows);
        }
    }

    /// Queues messages after the receiver lagged. If a waker has more than it can queue, older ones wait until it has
    /// room.
    async fn catch_up_missed(&mut self) {
        if self.wakers.values().any(|state| state.more) {
            let rows = self.unseen(None).await;
            self.queue_all(&rows);
        } else {
            self.catch_up().await;
        }
    }

    /// Page of messages that their agents have not seen, the newest first.
    async fn unseen(&mut self, before: Option<u64>) -> Vec<MessageRow> {
        let page = MessageQuery {
            agent: None,
            unseen: true,
            own: true,
            before,
            since: None,
            limit: MAX_QUEUED,
        };
        let rows = self.handle.store_reader().messages(page).await;
        rows.unwrap_or_else(|fault| {
            self.read_later(&fault);
            Vec::new()
        })
    }

    fn read_later(&mut self, fault: &StoreFault) {
        tracing::debug!("messages are read again in {READ_RETRY}: {fault}");
        self.read_again_at = Some(self.now() + READ_RETRY);
    }

    fn queue_all(&mut self, rows: &[MessageRow]) {
        let wakers = self.configured.clone();
        for row in rows.iter().rev() {
            for (index, config) in wakers.iter().enumerate() {
                self.queue(index, config, row);
            }
        }
    }

    fn queue(&mut self, index: usize, config: &WakerConfig, row: &MessageRow) {
        if !self.is_active_for(config, &row.agent) || !self.wakes_for(config, row) {
            return;
        }
        let Some(key) = self.key(index, config, row) else {
            return;
        };
        let id = config.id();
        let before = row.deliveries.iter().find(|known| known.waker == id);
        let (failures, hold) = match before {
            None => (0, None),
            Some(known) if known.state == DeliveryState::Waiting => {
                let failures = usize::try_from(known.failures).unwrap_or(usize::MAX);
                (failures, known.hold_ms)
            }
            Some(_) => return,
        };
        let now = self.clock.now();
        let hold = hold.map(|at| Steady(now.boot.0 + at.saturating_sub(now.wall.0)));
        if let Some(state) = self.state(key, config) {
            let now = Steady(now.boot.0);
            state.waker.restored(now, row.number, failures, hold);
        }
    }

    fn is_active_for(&self, config: &WakerConfig, agent: &str) -> bool {
        agent != OWNER && config.is_for(agent) && !self.disabled.contains_key(&config.id())
    }

    /// True if this waker delivers a message now. An open conversation gets every message; a closed one is resumed
    /// only for messages that its agent asked for, unless the configuration says otherwise.
    fn wakes_for(&self, config: &WakerConfig, row: &MessageRow) -> bool {
        let is_open = || {
            let kind = config.kind.client()?;
            let session = match &row.conversation {
                Some(of) => Some(kind.session_of(of)?),
                None => None,
            };
            let (_, open) = self.handle.clients().find(&row.agent, kind, session)?;
            Some(open)
        };
        match config.wakes_for {
            WakesFor::All => true,
            WakesFor::Asked => row.wakes || is_open() == Some(true),
        }
    }

    /// Queues messages that waited for a conversation to be opened.
    async fn queue_for_open_conversations(&mut self) {
        let rows = self.unseen(None).await;
        self.queue_all(&rows);
    }

    async fn posted(&mut self, agent: &Agent, message: u64) {
        let row = match self.handle.store_reader().message(message).await {
            Ok(Some(row)) => row,
            Ok(None) => return,
            Err(fault) => return self.read_later(&fault),
        };
        let now = self.now();
        let wakers = self.configured.clone();
        let mut given_up = Vec::new();
        for (index, config) in wakers.iter().enumerate() {
            if !self.is_active_for(config, &agent.0) {
                given_up.extend(self.disabled_delivery(config, agent, message).await);
                continue;
            }
            let key = self.key(index, config, &row);
            let key = key.filter(|_| self.wakes_for(config, &row));
            if let Some(state) = key.and_then(|key| self.state(key, config)) {
                state.waker.posted(now, message);
            }
        }
        self.record_deliveries(given_up).await;
    }

    /// Delivery that is given up because its waker is disabled.
    async fn disabled_delivery(
        &self,
        config: &WakerConfig,
        agent: &Agent,
        message: u64,
    ) -> Option<(u64, Delivery)> {
        let why = self.disabled.get(&config.id())?;
        let delivery = self.delivery(message, config).await;
        let would = *agent.0 != *OWNER && config.is_for(&agent.0);
        (would && delivery.state == DeliveryState::Waiting)
            .then(|| (message, given_up(delivery, why)))
    }

    /// Key of the state for a message: for a client, the conversation that the message belongs to. `None`: the
    /// message belongs to another kind of client.
    fn key(&self, index: usize, config: &WakerConfig, row: &MessageRow) -> Option<WakerKey> {
        let session = match (config.kind.client(), &row.conversation) {
            (Some(kind), Some(of)) => Some(kind.session_of(of)?.to_owned()),
            (Some(_), None) | (None, _) => None,
        };
        Some((index, Agent(row.agent.as_str().into()), session))
    }

    /// Drops the state of agents with nothing to deliver.
    fn drop_idle(&mut self) {
        let now = self.now();
        self.wakers
            .retain(|_, state| state.more || !state.waker.is_idle(now));
    }

    /// State of one waker; `None`: its queue is full.
    fn state(&mut self, key: WakerKey, config: &WakerConfig) -> Option<&mut WakerState> {
        let entry = self.wakers.entry(key);
        let state = entry.or_insert_with(|| WakerState::new(config));
        state.more |= state.waker.len() >= MAX_QUEUED;
        (!state.more).then_some(state)
    }

    /// Queues a message again, seen or not, for every waker of its agent.
    async fn resend(&mut self, request: &ResendRequest) {
        let row = self.handle.store_reader().message(request.message).await;
        let Ok(Some(row)) = row else {
            return;
        };
        let (now, agent) = (self.now(), Agent(row.agent.as_str().into()));
        let wakers = self.configured.clone();
        let mut deliveries = Vec::new();
        for (index, config) in wakers.iter().enumerate() {
            if *agent.0 == *OWNER || !config.is_for(&agent.0) {
                continue;
            }
            let id = config.id();
            if self.disabled.remove(&id).is_some() {
                self.record(WakerRecord::Enabled(id)).await;
            }
            let Some(key) = self.key(index, config, &row) else {
                continue;
            };
            if let Some(state) = self.state(key, config) {
                state.waker.send_now(now, row.number);
                state.requested.insert(row.number);
                let delivery = self.delivery(row.number, config).await;
                let again = Delivery {
                    failures: 0,
                    state: DeliveryState::Waiting,
                    next_ms: Some(self.clock.now().wall.0),
                    hold_ms: None,
                    ..delivery
                };
                deliveries.push((row.number, again));
            }
        }
        self.record_deliveries(deliveries).await;
    }

    async fn due(&mut self) -> Vec<Attempt> {
        let now = self.now();
        if self.read_again_at.take_if(|at| *at <= now).is_some() {
            self.catch_up_missed().await;
        }
        let mut due = Vec::new();
        let mut seen = Vec::new();
        let is_due = |state: &WakerState| state.waker.alarm().is_some_and(|at| at <= now);
        let keys: Vec<WakerKey> = (self.wakers.iter())
            .filter(|(_, state)| is_due(state))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let Some(mut state) = self.wakers.remove(&key) else {
                continue;
            };
            match self.drop_unneeded(&key, &mut state, &mut seen).await {
                Ok(()) => {
                    let messages = state.waker.take(now);
                    due.extend(messages.map(|messages| (key.clone(), messages)));
                }
                Err(fault) => {
                    tracing::debug!("no message is delivered for {READ_RETRY}: {fault}");
                    state.waker.postpone(now + READ_RETRY);
                }
            }
            self.wakers.insert(key, state);
        }
        self.record_seen(seen).await;
        self.refill().await;
        let mut attempts = Vec::new();
        for ((index, agent, conversation), messages) in due {
            let Some(config) = self.configured.get(index) else {
                continue;
            };
            let mut tries = Vec::new();
            for number in messages {
                tries.push((number, self.delivery(number, config).await.attempts));
            }
            attempts.push(Attempt::new(index, agent, conversation, tries));
        }
        attempts
    }

    /// Drops messages that were read meanwhile, and those whose conversation was closed and is not resumed for them.
    async fn drop_unneeded(
        &self,
        key: &WakerKey,
        state: &mut WakerState,
        seen: &mut Vec<(usize, u64)>,
    ) -> Result<(), StoreFault> {
        let config = self.configured.get(key.0);
        let waiting: Vec<u64> = state.waker.waiting().collect();
        for number in waiting {
            if state.waker.is_sent_now(number) {
                continue;
            }
            let row = self.handle.store_reader().message(number).await?;
            let unseen = row.as_ref().is_some_and(|row| row.seen.is_none());
            let wakes = state.requested.contains(&number)
                || config
                    .zip(row.as_ref())
                    .is_some_and(|(config, row)| self.wakes_for(config, row));
            if !unseen {
                seen.push((key.0, number));
            }
            if !unseen || !wakes {
                state.waker.settled(number);
            }
        }
        state
            .requested
            .retain(|number| state.waker.waiting().any(|waits| waits == *number));
        Ok(())
    }

    /// Records messages that were read before the agent was woken.
    async fn record_seen(&self, seen: Vec<(usize, u64)>) {
        let wakers = &self.configured;
        let mut deliveries = Vec::new();
        for (index, number) in seen {
            let Some(config) = wakers.get(index) else {
                continue;
            };
            let reader = self.handle.store_reader();
            if let Ok(Some(known)) = reader.delivery(number, &config.id()).await {
                let delivery = Delivery {
                    state: DeliveryState::Seen,
                    next_ms: None,
                    ..known
                };
                deliveries.push((number, delivery));
            }
        }
        self.record_deliveries(deliveries).await;
    }

    async fn attempt_finished(&mut self, finished: FinishedAttempt) {
        let FinishedAttempt { attempt, outcome } = finished;
        let config = self.configured.get(attempt.index).cloned();
        let (now, numbers) = (self.now(), attempt.numbers());
        let key = (
            attempt.index,
            attempt.agent.clone(),
            attempt.conversation.clone(),
        );
        let (Some(config), Some(state)) = (config, self.wakers.get_mut(&key)) else {
            return;
        };
        let (name, agent) = (config.name(), attempt.agent.clone());
        let deliveries = match outcome {
            Ok(()) => {
                state.waker.done(&numbers);
                if config.kind.reaches_agent() {
                    let messages = numbers.clone();
                    let event = Event::Woken { agent, messages };
                    self.handle.send_event(event).await;
                }
                let delivered = |before| Delivery {
                    state: DeliveryState::Done,
                    failures: 0,
                    fault: None,
                    next_ms: None,
                    hold_ms: None,
                    ..self.attempted(before)
                };
                self.deliveries(&config, &numbers, delivered).await
            }
            Err(WakeFault::Disabled(why)) => {
                tracing::error!("{name} is disabled: {why}");
                state.waker.done(&numbers);
                self.disable(&config, &why).await;
                let given_up = |before| given_up(self.attempted(before), &why);
                self.deliveries(&config, &numbers, given_up).await
            }
            Err(fault @ (WakeFault::Retry(_) | WakeFault::RetryAfter(..))) => {
                let (why, retry_after) = fault.into_parts();
                let jitter = (entropy::bits() % 1_000) as u16;
                let verdicts = state.waker.failed(now, &numbers, retry_after, jitter);
                for (number, failed) in &verdicts {
                    let what = match failed {
                        Failed::Again(at) => format!("next try in {}", at.since(now)),
                        Failed::GivenUp => "given up".into(),
                    };
                    tracing::warn!("message {number} to {}: {name}: {why}; {what}", agent.0);
                }
                self.failed(&config, &verdicts, &why, retry_after.is_some())
                    .await
            }
        };
        self.record_deliveries(deliveries).await;
        self.refill().await;
    }

    /// Queues more messages if a queue that was full is empty now.
    async fn refill(&mut self) {
        let states = self.wakers.values_mut();
        let emptied = states.filter(|state| state.more && state.waker.is_empty());
        if emptied.map(|state| state.more = false).count() > 0 {
            self.catch_up().await;
        }
    }

    /// Deliveries of these messages by one waker, each changed.
    async fn deliveries(
        &self,
        config: &WakerConfig,
        numbers: &[u64],
        change: impl Fn(Delivery) -> Delivery,
    ) -> Vec<(u64, Delivery)> {
        let mut deliveries = Vec::new();
        for &number in numbers {
            let before = self.delivery(number, config).await;
            deliveries.push((number, change(before)));
        }
        deliveries
    }

    async fn failed(
        &self,
        config: &WakerConfig,
        verdicts: &[(u64, Failed)],
        why: &str,
        by_retry_after: bool,
    ) -> Vec<(u64, Delivery)> {
        let mut deliveries = Vec::new();
        for (number, failed) in verdicts {
            let (state, next_ms) = match failed {
                Failed::Again(at) => (DeliveryState::Waiting, Some(self.to_wall_ms(*at))),
                Failed::GivenUp => (DeliveryState::GivenUp, None),
            };
            let before = self.attempted(self.delivery(*number, config).await);
            let missed = Delivery {
                state,
                failures: before.failures + 1,
                fault: Some(why.to_owned()),
                next_ms,
                hold_ms: next_ms.filter(|_| by_retry_after),
                ..before
            };
            deliveries.push((*number, missed));
        }
        deliveries
    }

    /// Delivery with one more attempt, made now.
    fn attempted(&self, before: Delivery) -> Delivery {
        Delivery {
            attempts: before.attempts + 1,
            at_ms: Some(self.clock.now().wall.0),
            ..before
        }
    }

    async fn delivery(&self, message: u64, config: &WakerConfig) -> Delivery {
        let id = config.id();
        let known = self.handle.store_reader().delivery(message, &id).await;
        known.ok().flatten().unwrap_or_else(|| Delivery {
            waker: id,
            name: config.name(),
            attempts: 0,
            failures: 0,
            state: DeliveryState::Waiting,
            at_ms: None,
            fault: None,
            next_ms: None,
            hold_ms: None,
        })
    }

    /// Records that the budget holds messages back, and until when.
    async fn record_budget_delay(&mut self) {
        let mut delayed = Vec::new();
        for ((index, ..), state) in &mut self.wakers {
            let until = state.waker.budget_delay();
            if until != state.budget_delay {
                state.budget_delay = until;
                let messages = state.waker.waiting().collect::<Vec<_>>();
                delayed.extend(until.map(|until| (*index, until, messages)));
            }
        }
        let mut deliveries = Vec::new();
        for (index, until, messages) in delayed {
            let Some(config) = self.configured.get(index) else {
                continue;
            };
            let next_ms = Some(self.to_wall_ms(until));
            let fault = format!(
                "held back: at most {} per hour (most_per_hour)",
                config.most_per_hour
            );
            let delivery = |before| Delivery {
                fault: Some(fault.clone()),
                next_ms,
                ..before
            };
            deliveries.extend(self.deliveries(config, &messages, delivery).await);
        }
        self.record_deliveries(deliveries).await;
    }

    /// Disables a waker and gives up its queue.
    async fn disable(&mut self, config: &WakerConfig, why: &str) {
        let (id, at_ms) = (config.id(), self.clock.now().wall.0);
        self.disabled.insert(id.clone(), why.to_owned());
        let wakers = &self.configured;
        let mut waiting = Vec::new();
        for ((index, ..), state) in &mut self.wakers {
            if wakers.get(*index).is_some_and(|other| other.id() == id) {
                waiting.extend(state.waker.waiting());
                *state = WakerState::new(config);
            }
        }
        let given_up = |before| given_up(before, why);
        let deliveries = self.deliveries(config, &waiting, given_up).await;
        self.record_deliveries(deliveries).await;
        self.record(WakerRecord::Disabled {
            waker: id,
            at_ms,
            fault: why.to_owned(),
        })
        .await;
    }

    async fn record_deliveries(&self, deliveries: Vec<(u64, Delivery)>) {
        let numbers: Vec<u64> = deliveries.iter().map(|(number, _)| *number).collect();
        if !numbers.is_empty() && self.record(WakerRecord::Deliveries(deliveries)).await {
            for number in numbers {
                self.handle.published().message_updated(number);
            }
        }
    }

    /// Stores a record. Returns false on failure.
    async fn record(&self, record: WakerRecord) -> bool {
        let fault = match self.handle.store().write_waker_record(record).await {
            Ok(Ok(())) => return true,
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => "the writer thread of the database has ended".into(),
        };
        tracing::warn!("cannot store a delivery: {fault}");
        false
    }
}

fn given_up(before: Delivery, why: &str) -> Delivery {
    Delivery {
        state: DeliveryState::GivenUp,
        fault: Some(why.to_owned()),
        next_ms: None,
        hold_ms: None,
        ..before
    }
}
