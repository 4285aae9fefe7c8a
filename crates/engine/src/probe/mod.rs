//! Probes: find out if the condition of a timer holds. Files and sessions are watched by events; ports, URLs and
//! commands are checked again and again, with a back-off.
//!
//! Each condition has a task of its own. Its last observation is kept for the message of a timer that runs out. A
//! condition that can no longer hold ends the wait with the reason.

mod backoff;
mod bounds;
mod command;
mod condition;
mod file;
mod inotify;
mod pattern;
mod port;
mod reach;
mod session;
mod url;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use abide_core::fleet::MachineId;
use abide_core::session::StartedBy;
use abide_core::timer::{self, Until};
use abide_core::{Agent, Conversation, Event, Key, SessionId, TimerId, Wall};
use abide_output::mask::Mask;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tracing::Instrument;

pub use bounds::{Bounds, OutOfBounds};
pub use command::LIMIT as TRY_LIMIT;
pub use condition::{
    Command, Condition, File, FileState, Fingerprint, SessionCondition, StoredCondition, Url,
};
pub use pattern::Pattern;
pub use session::{SessionEnd, TryResult};

use super::clock::pause;
use super::entropy;
use super::web::Web;
use crate::lock::lock;
use crate::seams::ProbeControl;
use crate::session_access::SessionAccess;
use crate::text::safe_words;
use backoff::ActiveProbes;
use inotify::Watcher;

/// Delay before all parts of an `All` are checked again, if one of them no longer holds.
const RECHECK_DELAY: Duration = Duration::from_millis(100);

/// Reason why a condition can no longer hold.
pub struct Impossible {
    pub reason: String,
    /// Sessions whose end is the reason.
    ended_sessions: Vec<SessionId>,
}

impl From<OutOfBounds> for Impossible {
    fn from(why: OutOfBounds) -> Self {
        Impossible {
            reason: why.0,
            ended_sessions: Vec::new(),
        }
    }
}

/// Result of one check of a condition, with a description of what was observed.
enum Observation {
    Holds(String),
    NotYet(String),
}

impl Observation {
    fn holds(&self) -> bool {
        matches!(self, Observation::Holds(_))
    }
}

/// Prober of all conditions.
pub struct Prober {
    probes: Mutex<HashMap<TimerId, TimerProbe>>,
    events: mpsc::Sender<Event>,
    services: Arc<ProbeServices>,
}

/// Probe of a timer's condition, running or paused.
struct TimerProbe {
    /// Condition and its owner, or the reason why the condition cannot be looked at.
    watched: Result<(Arc<Condition>, Arc<Owner>), String>,
    task: Option<AbortHandle>,
    observations: Observations,
}

/// Reason for a condition whose row others may have written.
const NO_SEAL: &str = "the condition was not looked at: its row in the database has no valid seal of this machine, so \
    another user of the database may have written or changed it";

/// Owner of a condition.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Agent that owns the sessions of its commands.
    pub agent: Agent,
    /// Conversation that waits.
    pub conversation: Option<Conversation>,
    /// Origin recorded in those sessions.
    pub started_by: StartedBy,
    /// Root folder of the agent, on which its sandbox depends; `None`: a person waits, whom no sandbox limits.
    root: Option<PathBuf>,
    /// Name of the condition in the idempotency keys of its tries.
    name: String,
    /// Begin of the wait, see [`Until::since`]. Sessions of the agent that have run since then may open a port; `None`:
    /// they are not considered.
    since: Option<Wall>,
}

impl Owner {
    /// Owner of a timer's condition.
    fn timer(id: TimerId, until: Until, root: Option<PathBuf>) -> Self {
        Owner {
            root,
            agent: until.agent,
            conversation: until.conversation,
            started_by: StartedBy::Timer(id),
            name: id.to_string(),
            since: Some(until.since),
        }
    }

    /// Owner of a wait without a timer. Without `root` it is a person; without `since` no session is expected to open a
    /// port.
    pub fn wait(
        agent: Agent,
        conversation: Option<Conversation>,
        root: Option<PathBuf>,
        since: Option<Wall>,
    ) -> Self {
        Owner {
            root,
            agent,
            conversation,
            started_by: StartedBy::Wait,
            name: format!("wait_{:016x}", entropy::bits()),
            since,
        }
    }

    /// Idempotency key of the tries of one of its commands.
    pub fn key(&self, leaf: usize) -> Key {
        Key::of_try(&self.name, leaf)
    }
}

/// Services and owner for one probe.
#[derive(Clone, Copy)]
struct ProbeContext<'a> {
    services: &'a ProbeServices,
    owner: &'a Owner,
}

impl ProbeContext<'_> {
    /// Bounds of what may be looked at now; `None`: there are none.
    async fn bounds(self) -> Result<Option<Bounds>, OutOfBounds> {
        let Some(root) = &self.owner.root else {
            return Ok(None);
        };
        match self.services.sessions.get() {
            Some(sessions) => sessions.bounds(self.owner, root),
            None => std::future::pending().await,
        }
    }
}

/// Services that all probes share.
struct ProbeServices {
    sessions: OnceLock<SessionAccess>,
    watcher: Watcher,
    web: Arc<Web>,
    active: ActiveProbes,
    active_sessions: session::ActiveSessions,
    blocking: Arc<Semaphore>,
}

/// Maximum of blocking checks at a time. Some may block for ever on an unreachable file server, and other work needs
/// threads too.
const MAX_BLOCKING: usize = 128;

impl ProbeServices {
    /// Runs something that may block on a thread of its own.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let place = self.blocking.clone().acquire_owned().await;
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
    /// Prober that reports to `events` and sends requests through `web`.
    pub fn new(events: mpsc::Sender<Event>, web: Arc<Web>) -> Arc<Self> {
        Arc::new(Prober {
            probes: Mutex::default(),
            events,
            services: Arc::new(ProbeServices {
                sessions: OnceLock::new(),
                watcher: Watcher::default(),
                web,
                active: ActiveProbes::default(),
                active_sessions: session::ActiveSessions::default(),
                blocking: Arc::new(Semaphore::new(MAX_BLOCKING)),
            }),
        })
    }

    /// Sets the access to sessions.
    pub(crate) fn set_sessions(&self, sessions: SessionAccess) {
        let _ = self.services.sessions.set(sessions);
    }

    /// Registers a condition without starting its probe. `None`: it must not be used. A condition that cannot be looked at
    /// ends the wait as soon as it is started.
    pub fn register(&self, timer: TimerId, until: Option<Until>) {
        let watched = match until {
            None => Err(NO_SEAL.to_owned()),
            Some(until) => serde_json::from_str::<StoredCondition>(&until.condition)
                .map(|StoredCondition { condition, root }| {
                    let owner = Owner::timer(timer, until, root);
                    (Arc::new(condition), Arc::new(owner))
                })
                .map_err(|fault| format!("the condition cannot be read: {fault}")),
        };
        if let Err(why) = &watched {
            tracing::error!(%timer, "{why}");
        }
        let conditions = watched.as_ref().map(|(condition, _)| &**condition);
        let probe = TimerProbe {
            observations: Observations::of(conditions.ok()),
            watched,
            task: None,
        };
        lock(&self.probes).insert(timer, probe);
    }

    /// Waits for a condition for as long as the returned future exists. It resolves to a description when the condition
    /// holds, or to the reason why it no longer can. A wait that is cancelled has its last observations.
    pub fn wait_for(
        &self,
        condition: Condition,
        owner: Owner,
    ) -> (BoxFuture<'static, Result<String, Impossible>>, Observations) {
        let all = Observations::of(Some(&condition));
        let (services, observations) = (self.services.clone(), all.clone());
        let decision = Box::pin(async move {
            let context = ProbeContext {
                services: &services,
                owner: &owner,
            };
            let decided = until_decided(&condition, context, observations).await;
            decided.map(|held| held.seen)
        });
        (decision, all)
    }

    /// Checks what a condition looks at, which may change later.
    pub async fn check_bounds(
        &self,
        condition: &Condition,
        owner: &Owner,
    ) -> Result<(), OutOfBounds> {
        let context = ProbeContext {
            services: &self.services,
            owner,
        };
        let Some(bounds) = context.bounds().await? else {
            return Ok(());
        };
        let bounds = Arc::new(bounds);
        for leaf in condition.each_leaf() {
            match leaf {
                Condition::Port { host, port, .. } => bounds.check_host(host.as_deref(), *port)?,
                Condition::Url(url) => bounds.check_host(Some(&url.host), url.port)?,
                Condition::File(file) => {
                    let (bounds, path) = (bounds.clone(), file.path.clone());
                    let open = move || bounds.open(&path).map(drop);
                    self.services.run_blocking(open).await?;
                }
                // A command runs in the agent's sandbox, and sessions are its own. `each_leaf` returns no group.
                Condition::Command(_)
                | Condition::Session { .. }
                | Condition::SessionElsewhere { .. }
                | Condition::All(_)
                | Condition::Any(_) => {}
            }
        }
        Ok(())
    }

    /// Last observation of a probe.
    pub fn last_seen(&self, timer: TimerId) -> Option<String> {
        let all = lock(&self.probes);
        let last = all.get(&timer).map(|probe| probe.observations.last());
        last.as_deref().map(safe_words)
    }
}

impl ProbeControl for Prober {
    fn start(&self, timer: TimerId, until: Option<Until>) {
        if until.is_some() {
            self.register(timer, until);
        }
        let mut all = lock(&self.probes);
        let Some(probe) = all.get_mut(&timer) else {
            return;
        };
        probe.stop();
        let watched = probe.watched.clone();
        let (services, events) = (self.services.clone(), self.events.clone());
        let observations = probe.observations.clone();
        let span = tracing::debug_span!("timer", %timer);
        let watch = async move {
            let (condition, owner);
            let decided = match watched {
                Err(reason) => Err(Impossible {
                    reason,
                    ended_sessions: Vec::new(),
                }),
                Ok(watched) => {
                    (condition, owner) = watched;
                    let context = ProbeContext {
                        services: &services,
                        owner: &owner,
                    };
                    until_decided(&condition, context, observations).await
                }
            };
            let decided = match decided {
                Ok(held) => Event::ConditionHeld {
                    timer,
                    seen: timer::Observation {
                        ended_sessions: held.ended_sessions(),
                        text: held.seen.into(),
                    },
                },
                Err(impossible) => Event::ConditionImpossible {
                    timer,
                    why: timer::Observation {
                        text: impossible.reason.into(),
                        ended_sessions: impossible.ended_sessions,
                    },
                },
            };
            tracing::debug!("its condition is decided");
            let _ = events.send(decided).await;
        };
        let task = tokio::spawn(watch.instrument(span));
        probe.task = Some(task.abort_handle());
    }

    fn pause(&self, timer: TimerId) {
        let mut all = lock(&self.probes);
        if let Some(probe) = all.get_mut(&timer) {
            probe.stop();
        }
    }

    fn remove(&self, timer: TimerId) {
        let mut all = lock(&self.probes);
        if let Some(mut probe) = all.remove(&timer) {
            probe.stop();
        }
    }

    fn last_seen(&self, timer: TimerId) -> Option<String> {
        Prober::last_seen(self, timer)
    }
}

impl TimerProbe {
    fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Last observations of the parts of a condition, in the order in which they are written.
#[derive(Clone)]
pub struct Observations {
    seen: Arc<Mutex<Vec<String>>>,
    first: usize,
}

impl Observations {
    fn of(condition: Option<&Condition>) -> Self {
        let seen = vec![String::new(); condition.map_or(0, Condition::leaves)];
        Observations {
            seen: Arc::new(Mutex::new(seen)),
            first: 0,
        }
    }

    /// All of them as one sentence.
    pub fn last(&self) -> String {
        let mut seen = lock(&self.seen).clone();
        seen.retain(|observed| !observed.is_empty());
        seen.join("; ")
    }

    /// Sets the observation if there is none yet.
    fn set_if_empty(&self, what: impl FnOnce() -> String) {
        let mut seen = lock(&self.seen);
        if let Some(slot) = seen.get_mut(self.first).filter(|slot| slot.is_empty()) {
            *slot = without_tokens(what());
        }
    }

    fn set(&self, what: impl Into<String>) {
        let mut seen = lock(&self.seen);
        if let Some(slot) = seen.get_mut(self.first) {
            *slot = without_tokens(what.into());
        }
    }

    fn skip(&self, leaves: usize) -> Self {
        let seen = self.seen.clone();
        Observations {
            seen,
            first: self.first + leaves,
        }
    }
}

/// Description with tokens of known formats masked: timers, messages and fields show it. The secrets of a session are
/// masked where its output is read.
fn without_tokens(text: String) -> String {
    Mask::default().apply(text)
}

/// Description of what was observed, and the simple conditions by which it holds.
struct Satisfied<'a> {
    seen: String,
    by: Vec<LeafCondition<'a>>,
}

impl Satisfied<'_> {
    /// Sessions that it waited for and that have ended.
    fn ended_sessions(&self) -> Vec<SessionId> {
        let ended = self.by.iter().filter_map(|leaf| match leaf.condition {
            Condition::Session {
                session,
                want: SessionCondition::Ended,
            } => Some(*session),
            _ => None,
        });
        ended.collect()
    }
}

/// Simple condition and its position in the whole.
#[derive(Clone, Copy)]
struct LeafCondition<'a> {
    condition: &'a Condition,
    place: usize,
}

/// Final result of a probe.
type Decided<'a> = Result<Satisfied<'a>, Impossible>;

/// Waits until a condition holds, or no longer can.
fn until_decided<'a>(
    condition: &'a Condition,
    context: ProbeContext<'a>,
    observations: Observations,
) -> BoxFuture<'a, Decided<'a>> {
    Box::pin(async move {
        let services = context.services;
        let decided = match condition {
            Condition::Port {
                host,
                port,
                every_ms,
            } => port::until_open(host.as_deref(), *port, *every_ms, context, &observations).await,
            Condition::Url(condition) => {
                url::until_answers(condition, context, &observations).await
            }
            Condition::File(condition) => {
                file::until_holds(condition, context, &observations).await
            }
            Condition::Session { session, want } => {
                session::until_holds(*session, want, services, &observations).await
            }
            Condition::SessionElsewhere { session, machine } => {
                let machine = MachineId(*machine);
                Ok(
                    session::until_ended_elsewhere(*session, machine, services, &observations)
                        .await,
                )
            }
            Condition::Command(condition) => {
                Ok(command::until_succeeds(condition, context, &observations).await)
            }
            Condition::Any(parts) => return until_any_holds(parts, context, &observations).await,
            Condition::All(parts) => return until_all_hold(parts, context, &observations).await,
        };
        let place = observations.first;
        let by = vec![LeafCondition { condition, place }];
        match decided {
            Ok(seen) => Ok(Satisfied {
                seen: without_tokens(seen),
                by,
            }),
            Err(impossible) => Err(Impossible {
                reason: without_tokens(impossible.reason),
                ..impossible
            }),
        }
    })
}

/// Waits until one of them holds, or none of them can.
async fn until_any_holds<'a>(
    parts: &'a [Condition],
    context: ProbeContext<'a>,
    observations: &Observations,
) -> Decided<'a> {
    let mut open = start_each(parts, context, observations);
    let mut whys = Vec::new();
    while let Some((n, decided)) = open.next().await {
        match decided {
            Ok(held) => return Ok(held),
            Err(why) => whys.push((n, why)),
        }
    }
    whys.sort_by_key(|(n, _)| *n);
    let (reasons, ended): (Vec<_>, Vec<_>) = (whys.into_iter())
        .map(|(_, why)| (why.reason, why.ended_sessions))
        .unzip();
    Err(Impossible {
        reason: reasons.join("\n"),
        ended_sessions: ended.concat(),
    })
}

/// Waits until all of them hold at the same time, or one of them no longer can: the first may no longer hold when the
/// last one does.
async fn until_all_hold<'a>(
    parts: &'a [Condition],
    context: ProbeContext<'a>,
    observations: &Observations,
) -> Decided<'a> {
    loop {
        let mut open = start_each(parts, context, observations);
        let mut held = Vec::new();
        while let Some((n, decided)) = open.next().await {
            held.push((n, decided?));
        }
        if still_hold(to_recheck(&held), context).await {
            held.sort_by_key(|(n, _)| *n);
            let (seen, by): (Vec<_>, Vec<_>) = held
                .into_iter()
                .map(|(_, part)| (part.seen, part.by))
                .unzip();
            let (seen, by) = (seen.join("; "), by.concat());
            break Ok(Satisfied { seen, by });
        }
        pause(RECHECK_DELAY).await;
    }
}

/// Conditions that may no longer hold, given the order in which they began to: all before the last one, and the last
/// one if its check took time, because it may have begun before the others held.
fn to_recheck<'a>(held: &[(usize, Satisfied<'a>)]) -> Vec<LeafCondition<'a>> {
    match held.split_last() {
        Some((last, earlier)) if !earlier.is_empty() => {
            let last = last.1.by.iter();
            let last = last.filter(|leaf| leaf.condition.is_slow());
            let earlier = earlier.iter().flat_map(|(_, part)| &part.by);
            earlier.chain(last).copied().collect()
        }
        _ => Vec::new(),
    }
}

/// Starts the probes of several conditions, each with its position.
fn start_each<'a>(
    parts: &'a [Condition],
    context: ProbeContext<'a>,
    observations: &Observations,
) -> FuturesUnordered<impl Future<Output = (usize, Decided<'a>)> + use<'a>> {
    let mut leaves = 0;
    let each = parts.iter().enumerate().map(|(n, part)| {
        let observations = observations.skip(leaves);
        leaves += part.leaves();
        until_decided(part, context, observations).map(move |decided| (n, decided))
    });
    each.collect()
}

/// True if all of these, which held a moment ago, still do.
async fn still_hold(leaves: Vec<LeafCondition<'_>>, context: ProbeContext<'_>) -> bool {
    for leaf in leaves {
        let holds = match leaf.condition {
            Condition::Port { host, port, .. } => {
                let opened = port::check(host.as_deref(), *port, context).await;
                opened.is_ok_and(|opened| opened.holds())
            }
            Condition::File(condition) => file::holds_now(condition, context).await,
            Condition::Url(condition) => {
                let answered = url::check(condition, context).await;
                answered.is_ok_and(|answered| answered.holds())
            }
            Condition::Command(condition) => command::try_once(condition, context, leaf.place)
                .await
                .holds(),
            // The state of a session does not go back, and the others have parts instead.
            Condition::Session { .. }
            | Condition::SessionElsewhere { .. }
            | Condition::Any(_)
            | Condition::All(_) => true,
        };
        if !holds {
            return false;
        }
    }
    true
}
