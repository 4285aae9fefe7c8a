//! Looks whether what a timer waits for holds. Files and sessions are watched by events; only the
//! network and commands are looked at again and again, at once and then ever less often.
//!
//! Each condition is looked for by a task of its own. What it saw last is kept for when the time
//! runs out. A condition that can no longer hold ends the search, with the reason.

mod command;
mod condition;
mod file;
mod inotify;
mod openers;
mod pace;
mod pattern;
mod port;
mod session;
mod url;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use abide_core::session::StartedBy;
use abide_core::timer::Until;
use abide_core::{Agent, Event, Key, TimerId, Wall};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

pub use command::LIMIT as TRY_LIMIT;
pub use condition::{Command, Condition, File, FileState, Fingerprint, SessionWant, Url};
pub use pattern::pattern;
pub use session::{Closing, Openers, Sessions, Tried};

use super::clock::pause;
use super::entropy;
use super::web::Web;
use inotify::Watcher;
use pace::Pace;

/// When one of several holds no longer while another begins to, all are looked for again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// A future that others may hold.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Looks for conditions.
pub struct Prober {
    watched: Mutex<HashMap<TimerId, Watched>>,
    events: mpsc::Sender<Event>,
    tools: Arc<Tools>,
}

struct Watched {
    condition: Arc<Condition>,
    owner: Arc<Owner>,
    task: Option<AbortHandle>,
    seen: Arc<Mutex<Vec<String>>>,
}

/// On whose behalf a condition is looked for.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The agent, to whom the sessions of its commands belong.
    pub agent: Agent,
    /// What those sessions say had them started.
    pub started_by: StartedBy,
    /// Names the condition in the keys of its tries.
    name: String,
    /// Since when. The agent's sessions that have run since then may be what opens a port; `None`: they are
    /// not looked at.
    since: Option<Wall>,
}

impl Owner {
    /// A timer.
    fn timer(id: TimerId, agent: Agent, since: Wall) -> Self {
        Owner {
            agent,
            started_by: StartedBy::Timer(id),
            name: id.to_string(),
            since: Some(since),
        }
    }

    /// A wait without a timer. Without `since` no session is expected to open a port.
    pub fn wait(agent: Agent, since: Option<Wall>) -> Self {
        Owner {
            agent,
            started_by: StartedBy::Wait,
            name: format!("wait_{:016x}", entropy::bits()),
            since,
        }
    }

    /// The key of the tries of one of its commands.
    pub fn key(&self, leaf: usize) -> Key {
        Key::of_try(&self.name, leaf)
    }
}

/// What one search for a condition is made with.
#[derive(Clone, Copy)]
struct Search<'a> {
    tools: &'a Tools,
    owner: &'a Owner,
}

/// What the probes share.
struct Tools {
    sessions: OnceLock<Arc<dyn Sessions>>,
    watcher: Watcher,
    web: Arc<Web>,
    pace: Pace,
    aside: Arc<Semaphore>,
}

/// Looks on threads of their own at once. Some may wait for ever, where a file server is gone; there are
/// more threads than these, and others need them.
const ASIDE: usize = 128;

impl Tools {
    /// Does something that may take long on a thread of its own.
    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let place = self.aside.clone().acquire_owned().await;
        let working = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        match working.await {
            Ok(done) => done,
            // The runtime is shutting down.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Prober {
    /// What holds is told to `events`; web servers are asked through `web`.
    pub fn new(events: mpsc::Sender<Event>, web: Arc<Web>) -> Arc<Self> {
        Arc::new(Prober {
            watched: Mutex::default(),
            events,
            tools: Arc::new(Tools {
                sessions: OnceLock::new(),
                watcher: Watcher::default(),
                web,
                pace: Pace::default(),
                aside: Arc::new(Semaphore::new(ASIDE)),
            }),
        })
    }

    /// Says where sessions can be looked at.
    pub fn show_sessions(&self, sessions: Arc<dyn Sessions>) {
        let _ = self.tools.sessions.set(sessions);
    }

    /// Keeps a condition in mind without looking.
    pub fn know(&self, timer: TimerId, until: Until) {
        match serde_json::from_str::<Condition>(&until.condition) {
            Ok(condition) => {
                let seen = vec![String::new(); condition.leaves()];
                let watched = Watched {
                    condition: Arc::new(condition),
                    owner: Arc::new(Owner::timer(timer, until.agent, until.since)),
                    task: None,
                    seen: Arc::new(Mutex::new(seen)),
                };
                let mut all = self.watched.lock().expect("no holder panics");
                all.insert(timer, watched);
            }
            Err(e) => tracing::error!("the condition of {timer} cannot be read: {e}"),
        }
    }

    /// Looks for a condition until it holds, or never will.
    pub fn probe(&self, timer: TimerId, until: Option<Until>) {
        if let Some(until) = until {
            self.know(timer, until);
        }
        let mut all = self.watched.lock().expect("no holder panics");
        let Some(watched) = all.get_mut(&timer) else {
            return;
        };
        watched.stop();
        let (condition, owner) = (watched.condition.clone(), watched.owner.clone());
        let (tools, events) = (self.tools.clone(), self.events.clone());
        let slots = Slots {
            seen: watched.seen.clone(),
            first: 0,
        };
        let task = tokio::spawn(async move {
            let search = Search {
                tools: &tools,
                owner: &owner,
            };
            let decided = match until_decided(&condition, search, slots).await {
                Ok(held) => Event::Held {
                    timer,
                    seen: held.seen.into(),
                },
                Err(why) => Event::ConditionImpossible {
                    timer,
                    why: why.into(),
                },
            };
            let _ = events.send(decided).await;
        });
        watched.task = Some(task.abort_handle());
    }

    /// Looks for a condition for as long as somebody holds this.
    pub fn look(&self, condition: Condition, owner: Owner) -> Look {
        let seen = Arc::new(Mutex::new(vec![String::new(); condition.leaves()]));
        let (tools, slots) = (
            self.tools.clone(),
            Slots {
                seen: seen.clone(),
                first: 0,
            },
        );
        let looking = Box::pin(async move {
            let search = Search {
                tools: &tools,
                owner: &owner,
            };
            let decided = until_decided(&condition, search, slots).await;
            decided.map(|held| held.seen)
        });
        Look {
            looking,
            saw: Saw(seen),
        }
    }

    /// Stops looking for a while.
    pub fn rest(&self, timer: TimerId) {
        let mut all = self.watched.lock().expect("no holder panics");
        if let Some(watched) = all.get_mut(&timer) {
            watched.stop();
        }
    }

    /// Stops looking for good. Returns what was seen last.
    pub fn forget(&self, timer: TimerId) -> Option<String> {
        let mut all = self.watched.lock().expect("no holder panics");
        let mut watched = all.remove(&timer)?;
        watched.stop();
        Some(watched.saw())
    }

    /// What was seen last.
    pub fn saw(&self, timer: TimerId) -> Option<String> {
        let all = self.watched.lock().expect("no holder panics");
        all.get(&timer).map(Watched::saw)
    }
}

/// Ends when a condition holds, with what was seen, or when it no longer can, with the reason.
pub struct Look {
    looking: Boxed<'static, Result<String, String>>,
    saw: Saw,
}

/// What was seen so far.
#[derive(Clone)]
pub struct Saw(Arc<Mutex<Vec<String>>>);

impl Look {
    /// What was seen so far, for when it is given up.
    pub fn saw(&self) -> Saw {
        self.saw.clone()
    }
}

impl Future for Look {
    type Output = Result<String, String>;

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        self.looking.as_mut().poll(context)
    }
}

impl Saw {
    /// What was seen last.
    pub fn last(&self) -> String {
        let seen = self.0.lock().expect("no holder panics");
        let said: Vec<&str> = seen
            .iter()
            .map(String::as_str)
            .filter(|s| !s.is_empty())
            .collect();
        said.join("; ")
    }
}

impl Watched {
    fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    fn saw(&self) -> String {
        Saw(self.seen.clone()).last()
    }
}
/// Where the leaves of a condition say what they saw, in the order in which they are written.
#[derive(Clone)]
struct Slots {
    seen: Arc<Mutex<Vec<String>>>,
    first: usize,
}

impl Slots {
    /// Says that nothing was seen yet, where that is so.
    fn begin(&self, what: impl FnOnce() -> String) {
        let mut seen = self.seen.lock().expect("no holder panics");
        if let Some(slot) = seen.get_mut(self.first).filter(|slot| slot.is_empty()) {
            *slot = what();
        }
    }

    fn say(&self, what: impl Into<String>) {
        let mut seen = self.seen.lock().expect("no holder panics");
        if let Some(slot) = seen.get_mut(self.first) {
            *slot = what.into();
        }
    }

    fn skip(&self, leaves: usize) -> Self {
        let seen = self.seen.clone();
        Slots {
            seen,
            first: self.first + leaves,
        }
    }
}

/// What was seen, and the simple conditions by which it holds.
struct Satisfied<'a> {
    seen: String,
    by: Vec<Leaf<'a>>,
}

/// A simple condition, and its place among those of the whole.
#[derive(Clone, Copy)]
struct Leaf<'a> {
    condition: &'a Condition,
    place: usize,
}

/// A condition holds, or can no longer hold and this is why.
type Decided<'a> = Result<Satisfied<'a>, String>;

/// Waits until a condition holds, or no longer can.
fn until_decided<'a>(
    condition: &'a Condition,
    search: Search<'a>,
    slots: Slots,
) -> Boxed<'a, Decided<'a>> {
    Box::pin(async move {
        let tools = search.tools;
        let seen = match condition {
            Condition::Port { host, port } => {
                port::until_open(host.as_deref(), *port, search, &slots).await?
            }
            Condition::Url(wanted) => url::until_answers(wanted, search, &slots).await?,
            Condition::File(wanted) => file::until_so(wanted, tools, &slots).await,
            Condition::Session { session, want } => {
                session::until_so(*session, want, tools, &slots).await?
            }
            Condition::Command(wanted) => command::until_succeeds(wanted, search, &slots).await,
            Condition::Any(parts) => return until_any_holds(parts, search, &slots).await,
            Condition::All(parts) => return until_all_hold(parts, search, &slots).await,
        };
        let place = slots.first;
        let by = vec![Leaf { condition, place }];
        Ok(Satisfied { seen, by })
    })
}

/// Waits until one of them holds, or none of them can.
async fn until_any_holds<'a>(
    parts: &'a [Condition],
    search: Search<'a>,
    slots: &Slots,
) -> Decided<'a> {
    let mut open = each(parts, search, slots);
    let mut whys = Vec::new();
    while let Some((n, decided)) = open.next().await {
        match decided {
            Ok(held) => return Ok(held),
            Err(why) => whys.push((n, why)),
        }
    }
    whys.sort();
    let whys: Vec<String> = whys.into_iter().map(|(_, why)| why).collect();
    Err(whys.join("\n"))
}

/// Waits until all of them hold at one time, or one of them no longer can: what held first may hold no longer
/// when the last one does.
async fn until_all_hold<'a>(
    parts: &'a [Condition],
    search: Search<'a>,
    slots: &Slots,
) -> Decided<'a> {
    loop {
        let mut open = each(parts, search, slots);
        let mut held = Vec::new();
        while let Some((n, decided)) = open.next().await {
            held.push((n, decided?));
        }
        if hold_still(in_doubt(&held), search).await {
            held.sort_by_key(|(n, _)| *n);
            let (seen, by): (Vec<_>, Vec<_>) = held
                .into_iter()
                .map(|(_, part)| (part.seen, part.by))
                .unzip();
            let (seen, by) = (seen.join("; "), by.concat());
            break Ok(Satisfied { seen, by });
        }
        pause(AGAIN).await;
    }
}

/// Which of these, in the order in which they began to hold, may hold no longer: those before the last one,
/// and the last one itself where its look took a while, since it may have begun before the others held.
fn in_doubt<'a>(held: &[(usize, Satisfied<'a>)]) -> Vec<Leaf<'a>> {
    match held.split_last() {
        Some((last, earlier)) if !earlier.is_empty() => {
            let last = last.1.by.iter();
            let last = last.filter(|leaf| leaf.condition.takes_a_while());
            let earlier = earlier.iter().flat_map(|(_, part)| &part.by);
            earlier.chain(last).copied().collect()
        }
        _ => Vec::new(),
    }
}

/// The searches for several conditions, each with its place among them.
fn each<'a>(
    parts: &'a [Condition],
    search: Search<'a>,
    slots: &Slots,
) -> FuturesUnordered<impl Future<Output = (usize, Decided<'a>)> + use<'a>> {
    let mut leaves = 0;
    let each = parts.iter().enumerate().map(|(n, part)| {
        let slots = slots.skip(leaves);
        leaves += part.leaves();
        until_decided(part, search, slots).map(move |decided| (n, decided))
    });
    each.collect()
}

/// Whether all of these, which held a moment ago, still do.
async fn hold_still(leaves: Vec<Leaf<'_>>, search: Search<'_>) -> bool {
    let tools = search.tools;
    for leaf in leaves {
        let holds = match leaf.condition {
            Condition::Port { host, port } => port::open(host.as_deref(), *port).await.is_ok(),
            Condition::File(wanted) => file::holds_now(wanted, tools).await,
            Condition::Url(wanted) => url::look(wanted, &tools.web).await.is_ok(),
            Condition::Command(wanted) => command::look(wanted, search, leaf.place).await.is_ok(),
            // What a session has done cannot come undone, and the others have parts instead.
            Condition::Session { .. } | Condition::Any(_) | Condition::All(_) => true,
        };
        if !holds {
            return false;
        }
    }
    true
}
