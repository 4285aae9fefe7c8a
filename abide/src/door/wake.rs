//! Wakes agents that do not read their messages, by commands from the configuration. Each runs as a
//! session like any other, so nothing that is woken can pass for a person, what it did can be read,
//! and a crash in the middle never runs it twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_core::request::Caller;
use abide_core::time::Steady;
use abide_core::wait::Asking;
use abide_core::wake::{Failed, Waker};
use abide_core::{Agent, Key, Millis, Mono, Outcome, Request, Run};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;

use super::tools::message_words;
use crate::config::{self, WakerConfig};
use crate::daemon::{Change, Handle, Launch, Stdin};
use crate::world::clock::{Clock, sleep_until};
use crate::world::store::{Store, WakeNote, Which};
use crate::world::tail;

/// Whose sessions wake-ups are. It has no wakers itself, so that none wakes another.
const OWNER: &str = "waker";
/// A command that has run for so long has taken the message and works on it.
const TAKEN: Millis = Millis::from_secs(10);
/// The longest that a wake-up may run.
const DEADLINE: Millis = Millis::from_secs(6 * 3_600);
/// Messages of the past that are taken up at start.
const PAST: usize = 1_000;

/// Wakes for as long as the daemon lives.
pub async fn keep_awake(handle: Handle, clock: Arc<dyn Clock>, store: Arc<dyn Store>) {
    if handle.config().wakers.is_empty() {
        return;
    }
    let mut changes = handle.board().follow();
    let mut watch = Watch {
        handle,
        store,
        wakers: BTreeMap::new(),
    };
    watch.catch_up(now(&*clock));
    let mut tries = JoinSet::new();
    loop {
        let alarm = watch.wakers.values().filter_map(Waker::alarm).min();
        let alarm = alarm.map(|at| Mono(clock.now().mono.0 + at.since(now(&*clock)).0));
        tokio::select! {
            change = changes.recv() => match change {
                Ok(Change::Message(agent, id)) => {
                    let number = watch.handle.past().number_of(id);
                    watch.posted(now(&*clock), &agent, number);
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => watch.catch_up(now(&*clock)),
                Err(RecvError::Closed) => return,
            },
            Some(Ok(tried)) = tries.join_next() => watch.tried(now(&*clock), clock.now().wall.0, tried).await,
            () = sleep_until(&*clock, alarm) => {
                for attempt in watch.due(now(&*clock)) {
                    let handle = watch.handle.clone();
                    tries.spawn(async move {
                        let fault = attempt.wake(&handle).await.err();
                        Tried { attempt, fault }
                    });
                }
            }
        }
    }
}

fn now(clock: &dyn Clock) -> Steady {
    Steady(clock.now().boot.0)
}

struct Watch {
    handle: Handle,
    store: Arc<dyn Store>,
    /// By the waker's place in the configuration and the agent.
    wakers: BTreeMap<(usize, Agent), Waker>,
}

/// One try.
struct Attempt {
    place: usize,
    agent: Agent,
    messages: Vec<u64>,
    text: String,
}

struct Tried {
    attempt: Attempt,
    fault: Option<String>,
}

impl Watch {
    /// Messages that nobody has been woken for yet, from before or missed.
    fn catch_up(&mut self, now: Steady) {
        let which = Which {
            agent: None,
            most: PAST,
        };
        let rows = self.handle.past().messages(which, true).unwrap_or_default();
        for row in rows.iter().filter(|row| row.woken.is_none()) {
            self.posted(now, &Agent(row.agent.as_str().into()), row.number);
        }
    }

    fn posted(&mut self, now: Steady, agent: &Agent, message: u64) {
        if agent.0.as_ref() == OWNER {
            return;
        }
        for (place, config) in self.handle.config().wakers.iter().enumerate() {
            if config.agent == "*" || config.agent == *agent.0 {
                let fresh = || {
                    Waker::new(
                        Millis((config.after * 1_000.0) as u64),
                        config.most_per_hour,
                    )
                };
                let waker = self
                    .wakers
                    .entry((place, agent.clone()))
                    .or_insert_with(fresh);
                waker.posted(now, message);
            }
        }
    }

    fn due(&mut self, now: Steady) -> Vec<Attempt> {
        let past = self.handle.past();
        let mut due = Vec::new();
        for ((place, agent), waker) in &mut self.wakers {
            if waker.alarm().is_none_or(|at| at > now) {
                continue;
            }
            let rows: Vec<_> = waker
                .waiting()
                .map(|number| (number, past.message(number)))
                .collect();
            let mut texts = Vec::new();
            for (number, row) in rows {
                match row {
                    Ok(Some(row)) if row.seen.is_none() => {
                        texts.push(message_words(&self.handle, row.about))
                    }
                    _ => waker.settled(number),
                }
            }
            if let Some(messages) = waker.take(now) {
                let (place, agent, text) = (*place, agent.clone(), texts.join("\n\n"));
                due.push(Attempt {
                    place,
                    agent,
                    messages,
                    text,
                });
            }
        }
        due
    }

    async fn tried(&mut self, now: Steady, at_ms: u64, tried: Tried) {
        let Tried { attempt, fault } = tried;
        let Some(waker) = self.wakers.get_mut(&(attempt.place, attempt.agent.clone())) else {
            return;
        };
        let name = &attempt.agent.0;
        let woken = match &fault {
            None => {
                waker.done(&attempt.messages);
                true
            }
            Some(fault) => match waker.failed(now, &attempt.messages) {
                Failed::Again(at) => {
                    let again = at.since(now);
                    tracing::warn!("{name} was not woken: {fault}; tried again in {again}");
                    false
                }
                Failed::GivenUp => {
                    tracing::error!("{name} was not woken: {fault}; given up");
                    true
                }
            },
        };
        let note = WakeNote {
            messages: attempt.messages,
            at_ms,
            woken,
            fault,
        };
        if let Ok(Err(e)) = self.store.note_wake(note).await {
            tracing::warn!("a wake-up could not be noted: {e}");
        }
    }
}

impl Attempt {
    async fn wake(&self, handle: &Handle) -> Result<(), String> {
        let wakers = &handle.config().wakers;
        let config = wakers.get(self.place).ok_or("its configuration is gone")?;
        let argv = self.words(config);
        let last = self.messages.last().copied().unwrap_or(0);
        let tries = handle
            .past()
            .message(last)
            .ok()
            .flatten()
            .map_or(0, |row| row.wake_attempts);
        let run = Run {
            command: argv.join(" ").into(),
            deadline: Some(DEADLINE),
            idle: None,
            inactivity: None,
            asking: Asking::Never,
            standby: Some(TAKEN),
            detach: false,
            key: Some(Key(format!("wake:{}:{last}:{tries}", self.place).into())),
        };
        let mut env = config::environment();
        env.retain(|(name, _)| name != "ABIDE_AGENT");
        env.push(("ABIDE_AGENT".into(), self.agent.0.as_ref().into()));
        let launch = Launch {
            argv: Some(argv.iter().map(Into::into).collect()),
            cwd: config.cwd.clone().unwrap_or_else(config::home),
            env,
            stdin: Stdin::Bytes(self.text.clone().into_bytes()),
            pty: None,
        };
        let caller = Caller {
            agent: Some(Agent(OWNER.into())),
        };
        let pending = handle.call(caller, Request::Run(run), Some(launch)).await;
        match pending.done().await {
            Some(Outcome::Running(..)) => Ok(()),
            Some(Outcome::Ended(id) | Outcome::Failed(id)) => {
                let view = handle.board().session(id).ok_or("its session is gone")?;
                let code = view
                    .ending()
                    .and_then(|ending| ending.exit)
                    .map(|exit| exit.shell_code());
                if code == Some(0) {
                    return Ok(());
                }
                let said = String::from_utf8_lossy(&tail::last_line(&view.folder)).into_owned();
                let said = super::digest::one_line(&said);
                Err(match code {
                    Some(code) => format!("{} exited with code {code}: {said}", argv[0]),
                    None => format!("{} could not be run", argv[0]),
                })
            }
            _ => Err("it could not be started".into()),
        }
    }

    /// The command with what it is about in its places. Words are never split or joined.
    fn words(&self, config: &WakerConfig) -> Vec<String> {
        let fill = |word: &String| {
            word.replace("{text}", &self.text)
                .replace("{agent}", &self.agent.0)
        };
        config.command.iter().map(fill).collect()
    }
}
