//! Wakes agents that do not read their messages, by the wakers of the configuration. What came of
//! each try is a row in the database before the next is made, so that nothing is silent and a restart
//! goes on where the last daemon was.

mod attempt;
mod clients;
mod webhook;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use abide_core::time::Steady;
use abide_core::wake::{Failed, OWNER, Rules, Waker};
use abide_core::{Agent, Event, Millis, Mono};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock::{Clock, sleep_until};
use crate::config::{WakerConfig, WakesFor, WakingWay};
use crate::entropy;
use crate::store::{Delivery, DeliveryState, MessageRow, Note, Page};
use crate::web::Web;
use crate::{Change, Handle, SendAgain};
use attempt::{Attempt, Fault};

/// Messages that one waker keeps in mind; the rest stays in the database until these are through.
const IN_MIND: usize = 1_000;
/// Pages of so many messages that are looked through for those that somebody is to be woken for.
const PAGES: usize = 1_000;

/// Wakes for as long as the daemon lives.
pub async fn keep_awake(
    handle: Handle,
    clock: Arc<dyn Clock>,
    web: Arc<Web>,
    mut again: mpsc::Receiver<SendAgain>,
) {
    if handle.config().wakers.is_empty() {
        return;
    }
    let mut changes = handle.published().follow();
    let ended = handle.past().ended_wakers().unwrap_or_default();
    let mut watch = Watch {
        handle,
        clock,
        wakers: BTreeMap::new(),
        ended: ended.into_iter().collect(),
    };
    watch.catch_up();
    let mut tries = JoinSet::new();
    loop {
        watch.forget_spent();
        watch.note_held_back().await;
        let alarm = watch.wakers.values().filter_map(|w| w.waker.alarm()).min();
        let alarm = alarm.map(|at| watch.on_the_clock(at));
        tokio::select! {
            change = changes.recv() => match change {
                Ok(Change::Message(agent, id)) => {
                    let number = watch.handle.past().number_of(id);
                    watch.posted(&agent, number).await;
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => watch.catch_up_missed(),
                Err(RecvError::Closed) => return,
            },
            () = watch.handle.clients().came() => watch.look_again(),
            Some(wanted) = again.recv() => watch.send_again(&wanted).await,
            Some(Ok(tried)) = tries.join_next() => watch.tried(tried).await,
            () = sleep_until(&*watch.clock, alarm) => {
                for attempt in watch.due().await {
                    let (handle, web) = (watch.handle.clone(), web.clone());
                    let at_ms = watch.clock.now().wall.0;
                    tries.spawn(async move {
                        let outcome = attempt.wake(&handle, &web, at_ms).await;
                        Tried { attempt, outcome }
                    });
                }
            }
        }
    }
}

struct Watch {
    handle: Handle,
    clock: Arc<dyn Clock>,
    /// By the waker's place in the configuration, the agent, and where a client is woken its
    /// conversation.
    wakers: BTreeMap<Place, Watched>,
    /// Wakers that are wanted no more, and why.
    ended: HashMap<String, String>,
}

type Place = (usize, Agent, Option<String>);

struct Watched {
    waker: Waker,
    /// There are more messages than it keeps in mind.
    more: bool,
    /// That the budget holds these back has been noted.
    held_back: Option<Steady>,
    /// Those that a person wants sent, whatever wakes otherwise.
    wanted: BTreeSet<u64>,
}

impl Watched {
    fn new(config: &WakerConfig) -> Self {
        Watched {
            waker: Waker::new(rules(config)),
            more: false,
            held_back: None,
            wanted: BTreeSet::new(),
        }
    }
}

struct Tried {
    attempt: Attempt,
    outcome: Result<(), Fault>,
}

impl Watch {
    fn now(&self) -> Steady {
        Steady(self.clock.now().boot.0)
    }

    /// When the runtime's own clock shows what this names.
    fn on_the_clock(&self, at: Steady) -> Mono {
        let now = self.clock.now();
        Mono(now.mono.0 + at.since(Steady(now.boot.0)).0)
    }

    /// When the calendar does.
    fn on_the_calendar(&self, at: Steady) -> u64 {
        let now = self.clock.now();
        now.wall.0 + at.since(Steady(now.boot.0)).0
    }

    /// Messages that nobody has been woken for yet, from before: the oldest first, and behind however
    /// many that are nobody's business here.
    fn catch_up(&mut self) {
        let mut begins = vec![None];
        while begins.len() < PAGES
            && let Some(oldest) = self.unseen(begins[begins.len() - 1]).last()
        {
            begins.push(Some(oldest.number));
        }
        for before in begins.into_iter().rev() {
            let rows = self.unseen(before);
            self.take_up_all(&rows);
        }
    }

    /// Some may have been missed. Those that are far behind wait until a waker has room again, where one
    /// has more to do than it keeps in mind.
    fn catch_up_missed(&mut self) {
        if self.wakers.values().any(|watched| watched.more) {
            let rows = self.unseen(None);
            self.take_up_all(&rows);
        } else {
            self.catch_up();
        }
    }

    /// A page of messages that their agents have not seen, the newest first.
    fn unseen(&self, before: Option<u64>) -> Vec<MessageRow> {
        let page = Page {
            agent: None,
            unseen: true,
            before,
            since: None,
            most: IN_MIND,
        };
        self.handle.past().messages(page).unwrap_or_default()
    }

    fn take_up_all(&mut self, rows: &[MessageRow]) {
        let wakers = self.handle.config().wakers.clone();
        for row in rows.iter().rev().filter(|row| row.woken.is_none()) {
            for (place, config) in wakers.iter().enumerate() {
                self.take_up(place, config, row);
            }
        }
    }

    fn take_up(&mut self, place: usize, config: &WakerConfig, row: &MessageRow) {
        if !self.is_woken_by(config, &row.agent) || !self.wakes_for(config, row) {
            return;
        }
        let Some(place) = self.place(place, config, row) else {
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
        if let Some(watched) = self.watched(place, config) {
            let now = Steady(now.boot.0);
            watched.waker.kept(now, row.number, failures, hold);
        }
    }

    fn is_woken_by(&self, config: &WakerConfig, agent: &str) -> bool {
        agent != OWNER && config.is_for(agent) && !self.ended.contains_key(&config.id())
    }

    /// Whether a message is one that this waker wakes for, as things stand. Into a conversation that is
    /// open it brings every one; a closed one is resumed only for what its agent asked for, unless the
    /// configuration says otherwise.
    fn wakes_for(&self, config: &WakerConfig, row: &MessageRow) -> bool {
        let is_open = || {
            let kind = config.way.client()?;
            let session = match &row.conversation {
                Some(of) => Some(kind.session_of(of)?),
                None => None,
            };
            let (_, open) = self.handle.clients().of(&row.agent, kind, session)?;
            Some(open)
        };
        match config.wakes_for {
            WakesFor::All => true,
            WakesFor::Asked => row.wakes || is_open() == Some(true),
        }
    }

    /// A conversation has been opened: what waited for that is brought now.
    fn look_again(&mut self) {
        let rows = self.unseen(None);
        self.take_up_all(&rows);
    }

    async fn posted(&mut self, agent: &Agent, message: u64) {
        let Ok(Some(row)) = self.handle.past().message(message) else {
            return;
        };
        let now = self.now();
        let wakers = self.handle.config().wakers.clone();
        let mut unwanted = Vec::new();
        for (place, config) in wakers.iter().enumerate() {
            if !self.is_woken_by(config, &agent.0) {
                unwanted.extend(self.unwanted(config, agent, message));
                continue;
            }
            let place = self.place(place, config, &row);
            let place = place.filter(|_| self.wakes_for(config, &row));
            if let Some(watched) = place.and_then(|place| self.watched(place, config)) {
                watched.waker.posted(now, message);
            }
        }
        if !unwanted.is_empty() {
            self.note(Note::Deliveries(unwanted)).await;
        }
    }

    /// What is said of a message that would be sent, were its waker not wanted no more.
    fn unwanted(
        &self,
        config: &WakerConfig,
        agent: &Agent,
        message: u64,
    ) -> Option<(u64, Delivery)> {
        let why = self.ended.get(&config.id())?;
        let delivery = self.delivery(message, config);
        let would = *agent.0 != *OWNER && config.is_for(&agent.0);
        (would && delivery.state == DeliveryState::Waiting).then(|| {
            let over = Delivery {
                state: DeliveryState::GivenUp,
                fault: Some(why.clone()),
                next_ms: None,
                ..delivery
            };
            (message, over)
        })
    }

    /// Who is woken for a message: where a client is, the conversation that the message belongs to, and
    /// no other. `None`: that is not one of this client.
    fn place(&self, place: usize, config: &WakerConfig, row: &MessageRow) -> Option<Place> {
        let session = match (config.way.client(), &row.conversation) {
            (Some(kind), Some(of)) => Some(kind.session_of(of)?.to_owned()),
            (Some(_), None) | (None, _) => None,
        };
        Some((place, Agent(row.agent.as_str().into()), session))
    }

    /// Agents come and go; what is kept of one that needs nothing is let go of.
    fn forget_spent(&mut self) {
        let now = self.now();
        self.wakers
            .retain(|_, watched| watched.more || !watched.waker.is_spent(now));
    }

    /// The waker of one agent or conversation; `None`: it has enough in mind.
    fn watched(&mut self, place: Place, config: &WakerConfig) -> Option<&mut Watched> {
        let entry = self.wakers.entry(place);
        let watched = entry.or_insert_with(|| Watched::new(config));
        watched.more |= watched.waker.len() >= IN_MIND;
        (!watched.more).then_some(watched)
    }

    /// Somebody wants a message sent again, seen or not, by every waker of its agent.
    async fn send_again(&mut self, wanted: &SendAgain) {
        let Ok(Some(row)) = self.handle.past().message(wanted.message) else {
            return;
        };
        let (now, agent) = (self.now(), Agent(row.agent.as_str().into()));
        let wakers = self.handle.config().wakers.clone();
        let mut notes = Vec::new();
        for (place, config) in wakers.iter().enumerate() {
            if *agent.0 == *OWNER || !config.is_for(&agent.0) {
                continue;
            }
            let id = config.id();
            if self.ended.remove(&id).is_some() {
                self.note(Note::WakerBack(id)).await;
            }
            let Some(place) = self.place(place, config, &row) else {
                continue;
            };
            if let Some(watched) = self.watched(place, config) {
                watched.waker.urge(now, row.number);
                watched.wanted.insert(row.number);
                let delivery = self.delivery(row.number, config);
                let again = Delivery {
                    failures: 0,
                    state: DeliveryState::Waiting,
                    next_ms: Some(self.clock.now().wall.0),
                    hold_ms: None,
                    ..delivery
                };
                notes.push((row.number, again));
            }
        }
        self.note(Note::Deliveries(notes)).await;
    }

    /// The tries that are to be made now.
    async fn due(&mut self) -> Vec<Attempt> {
        let now = self.now();
        let mut due = Vec::new();
        let mut seen = Vec::new();
        let is_due = |watched: &Watched| watched.waker.alarm().is_some_and(|at| at <= now);
        let keys: Vec<Place> = (self.wakers.iter())
            .filter(|(_, watched)| is_due(watched))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let Some(mut watched) = self.wakers.remove(&key) else {
                continue;
            };
            self.drop_needless(&key, &mut watched, &mut seen);
            if let Some(messages) = watched.waker.take(now) {
                due.push((key.clone(), messages));
            }
            self.wakers.insert(key, watched);
        }
        self.note_seen(seen).await;
        let attempts = due.into_iter().filter_map(|(key, messages)| {
            let (place, agent, conversation) = key;
            let config = self.handle.config().wakers.get(place)?;
            let tries = |number: &u64| (*number, self.delivery(*number, config).attempts);
            let messages = messages.iter().map(tries).collect();
            Some(Attempt::new(place, agent, conversation, messages))
        });
        attempts.collect()
    }

    /// Nobody is woken for messages that have been read meanwhile, nor for those whose conversation has
    /// been closed, where they do not wake a closed one.
    fn drop_needless(&self, key: &Place, watched: &mut Watched, seen: &mut Vec<(usize, u64)>) {
        let config = self.handle.config().wakers.get(key.0);
        let waiting: Vec<u64> = watched.waker.waiting().collect();
        for number in waiting {
            if watched.waker.is_urged(number) {
                continue;
            }
            let row = self.handle.past().message(number).ok().flatten();
            let unseen = row.as_ref().is_some_and(|row| row.seen.is_none());
            let wakes = watched.wanted.contains(&number)
                || config
                    .zip(row.as_ref())
                    .is_some_and(|(config, row)| self.wakes_for(config, row));
            if !unseen {
                seen.push((key.0, number));
            }
            if !unseen || !wakes {
                watched.waker.settled(number);
            }
        }
        watched
            .wanted
            .retain(|number| watched.waker.waiting().any(|waits| waits == *number));
    }

    /// Messages that were read before anybody was woken need nothing more.
    async fn note_seen(&self, seen: Vec<(usize, u64)>) {
        let wakers = &self.handle.config().wakers;
        let begun = seen.into_iter().filter_map(|(place, number)| {
            let known = self
                .handle
                .past()
                .delivery(number, &wakers.get(place)?.id());
            let delivery = Delivery {
                state: DeliveryState::Seen,
                next_ms: None,
                ..known.ok().flatten()?
            };
            Some((number, delivery))
        });
        let begun: Vec<_> = begun.collect();
        if !begun.is_empty() {
            self.note(Note::Deliveries(begun)).await;
        }
    }

    async fn tried(&mut self, tried: Tried) {
        let Tried { attempt, outcome } = tried;
        let config = self.handle.config().wakers.get(attempt.place).cloned();
        let (now, numbers) = (self.now(), attempt.numbers());
        let place = (
            attempt.place,
            attempt.agent.clone(),
            attempt.conversation.clone(),
        );
        let (Some(config), Some(watched)) = (config, self.wakers.get_mut(&place)) else {
            return;
        };
        let (name, agent) = (config.name(), attempt.agent.clone());
        let notes = match outcome {
            Ok(()) => {
                watched.waker.done(now, &numbers);
                if config.way.tells_the_agent() {
                    let messages = numbers.clone();
                    let told = Event::Woken { agent, messages };
                    self.handle.tell(told).await;
                }
                self.made(&config, &numbers)
            }
            Err(Fault::Ended(why)) => {
                tracing::error!("{name} is disabled: {why}");
                watched.waker.done(now, &numbers);
                self.end(&config, &why).await;
                self.given_up(&config, &numbers, &why)
            }
            Err(fault) => {
                let (why, no_sooner) = fault.parts();
                let jitter = (entropy::bits() % 1_000) as u16;
                let verdicts = watched.waker.failed(now, &numbers, no_sooner, jitter);
                for (number, failed) in &verdicts {
                    let what = match failed {
                        Failed::Again(at) => format!("next try in {}", at.since(now)),
                        Failed::GivenUp => "given up".into(),
                    };
                    tracing::warn!("message {number} to {}: {name}: {why}; {what}", agent.0);
                }
                self.missed(&config, &verdicts, &why, no_sooner.is_some())
            }
        };
        self.note(Note::Deliveries(notes)).await;
        let watched = self.wakers.get_mut(&place);
        if let Some(watched) = watched.filter(|watched| watched.more && watched.waker.is_empty()) {
            watched.more = false;
            self.catch_up();
        }
    }

    fn made(&self, config: &WakerConfig, numbers: &[u64]) -> Vec<(u64, Delivery)> {
        let made = |number: &u64| {
            let made = Delivery {
                state: DeliveryState::Done,
                failures: 0,
                fault: None,
                next_ms: None,
                hold_ms: None,
                ..self.one_more(*number, config)
            };
            (*number, made)
        };
        numbers.iter().map(made).collect()
    }

    fn given_up(&self, config: &WakerConfig, numbers: &[u64], why: &str) -> Vec<(u64, Delivery)> {
        let over = |number: &u64| {
            let over = Delivery {
                state: DeliveryState::GivenUp,
                fault: Some(why.to_owned()),
                next_ms: None,
                hold_ms: None,
                ..self.one_more(*number, config)
            };
            (*number, over)
        };
        numbers.iter().map(over).collect()
    }

    fn missed(
        &self,
        config: &WakerConfig,
        verdicts: &[(u64, Failed)],
        why: &str,
        on_request: bool,
    ) -> Vec<(u64, Delivery)> {
        let missed = |(number, failed): &(u64, Failed)| {
            let next_ms = match failed {
                Failed::Again(at) => Some(self.on_the_calendar(*at)),
                Failed::GivenUp => None,
            };
            let state = match failed {
                Failed::Again(_) => DeliveryState::Waiting,
                Failed::GivenUp => DeliveryState::GivenUp,
            };
            let before = self.one_more(*number, config);
            let missed = Delivery {
                state,
                failures: before.failures + 1,
                fault: Some(why.to_owned()),
                next_ms,
                hold_ms: next_ms.filter(|_| on_request),
                ..before
            };
            (*number, missed)
        };
        verdicts.iter().map(missed).collect()
    }

    /// What is known of a delivery, tried once more just now.
    fn one_more(&self, message: u64, config: &WakerConfig) -> Delivery {
        let before = self.delivery(message, config);
        Delivery {
            attempts: before.attempts + 1,
            at_ms: Some(self.clock.now().wall.0),
            ..before
        }
    }

    fn delivery(&self, message: u64, config: &WakerConfig) -> Delivery {
        let id = config.id();
        let known = self.handle.past().delivery(message, &id);
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

    /// Says of what the budget holds back that it does, and until when.
    async fn note_held_back(&mut self) {
        let mut held = Vec::new();
        for ((place, ..), watched) in &mut self.wakers {
            let until = watched.waker.held_back();
            if until != watched.held_back {
                watched.held_back = until;
                let messages = watched.waker.waiting().collect::<Vec<_>>();
                held.extend(until.map(|until| (*place, until, messages)));
            }
        }
        let mut notes = Vec::new();
        for (place, until, messages) in held {
            let Some(config) = self.handle.config().wakers.get(place) else {
                continue;
            };
            let next_ms = Some(self.on_the_calendar(until));
            let fault = format!(
                "held back: at most {} per hour (most_per_hour)",
                config.most_per_hour
            );
            notes.extend(messages.into_iter().map(|number| {
                let fault = Some(fault.clone());
                let before = self.delivery(number, config);
                let held = Delivery {
                    fault,
                    next_ms,
                    ..before
                };
                (number, held)
            }));
        }
        if !notes.is_empty() {
            self.note(Note::Deliveries(notes)).await;
        }
    }

    /// A waker is wanted no more: nothing waits for it any longer.
    async fn end(&mut self, config: &WakerConfig, why: &str) {
        let (id, at_ms) = (config.id(), self.clock.now().wall.0);
        self.ended.insert(id.clone(), why.to_owned());
        let wakers = &self.handle.config().wakers;
        let mut notes = Vec::new();
        for ((place, ..), watched) in &mut self.wakers {
            if wakers.get(*place).is_some_and(|other| other.id() == id) {
                notes.extend(watched.waker.waiting());
                *watched = Watched::new(config);
            }
        }
        let notes = notes.into_iter().map(|number| {
            let over = Delivery {
                state: DeliveryState::GivenUp,
                fault: Some(why.to_owned()),
                next_ms: None,
                ..self.delivery(number, config)
            };
            (number, over)
        });
        let notes = notes.collect();
        self.note(Note::Deliveries(notes)).await;
        self.note(Note::WakerEnded {
            waker: id,
            at_ms,
            fault: why.to_owned(),
        })
        .await;
    }

    async fn note(&self, note: Note) {
        let numbers: Vec<u64> = match &note {
            Note::Deliveries(all) => all.iter().map(|(number, _)| *number).collect(),
            _ => Vec::new(),
        };
        let fault = match self.handle.store().note(note).await {
            Ok(Ok(())) => {
                for number in numbers {
                    self.handle.published().handled(number);
                }
                return;
            }
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => "the database's writer is gone".into(),
        };
        tracing::warn!("a delivery could not be noted: {fault}");
    }
}

fn rules(config: &WakerConfig) -> Rules {
    Rules {
        after: Millis((config.after * 1_000.0) as u64),
        budget: config.most_per_hour,
        at_once: match config.way {
            WakingWay::Webhook(_) => 1,
            _ => usize::MAX,
        },
    }
}
