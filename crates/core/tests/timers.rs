//! Transcripts of timers and messages, like `scenarios.rs`: events, one per line, and their results.
//!
//! Each line is a step with its own commit, which succeeds unless the line before says `fail`. `open` starts the
//! engine on its database, `crash` restarts it at once, `crash 1h` an hour later, `reboot 1h` after an hour in which
//! the machine was off. `open fleet` starts it on a machine that shares messages with others. `+10s` lets time pass
//! with a tick at each alarm; `suspend 8h` is a sleep of the machine, `wall +1h` sets the wall clock.
//!
//! From `gather` on, effects wait for a commit: `begin_commit` begins one, `commit_succeeded` shows the effects of
//! its generation, `commit_failed` makes it fail and shows the remaining effects of both generations.

mod script;
mod test_database;
mod words;

use std::fmt::Write as _;

use abide_core::id::IdPermutation;
use abide_core::message::{self, About, ReturnedMessage};
use abide_core::request::Caller;
use abide_core::session::{Phase, StartedBy};
use abide_core::time::Boot;
use abide_core::timer::{
    self, Act, CompletedBy, Countdown, Create, Kind, Observation, Status, Timer, WaitMode, Why,
};
use abide_core::{
    Agent, Asking, Conversation, Effect, End, Ending, Engine, Event, Exit, Key, MessageId, Millis,
    Mono, Now, Outcome, Record, Refusal, Request, Run, Session, SessionId, TimerId, Try, Update,
    Wall,
};
use test_database::TestDatabase;
use words::{Words, duration, parse};

#[test]
fn timers_match_their_transcripts() {
    script::check::<Stage>("timers", 40);
}

struct Stage {
    engine: Engine,
    database: TestDatabase,
    now: Now,
    boot_id: u128,
    is_in_fleet: bool,
    failing: bool,
    /// Effects that wait for a commit, and how many of them belong to the generation in flight.
    waiting: Option<(Vec<Effect>, usize)>,
}

const BEGIN: u64 = 1_000_000_000;

impl script::Stage for Stage {
    fn new() -> Self {
        let now = Now {
            wall: Wall(1_700_000_000_000),
            boot: Boot(BEGIN),
            mono: Mono(BEGIN),
        };
        Stage {
            engine: Engine::new(7),
            database: TestDatabase::default(),
            now,
            boot_id: 1,
            is_in_fleet: false,
            failing: false,
            waiting: None,
        }
    }

    fn happens(&mut self, line: &str) -> Result<String, String> {
        let mut told = String::new();
        let out = &mut told;
        let mut words = Words::new(line);
        let verb = words.next()?;
        if let Some(time) = verb.strip_prefix('+') {
            self.pass(duration(time)?, out);
            return Ok(told);
        }
        match verb.as_str() {
            "open" | "crash" => {
                self.is_in_fleet |= words.flag("fleet");
                let time = words.maybe().map(|time| duration(&time)).transpose()?;
                self.advance(time.unwrap_or_default());
                self.start(out);
            }
            "reboot" => {
                self.now.wall.0 += duration(&words.next()?)?.0;
                (self.now.boot, self.now.mono) = (Boot(5_000), Mono(5_000));
                self.boot_id += 1;
                self.start(out);
            }
            "fail" => self.failing = true,
            "gather" => self.waiting = Some((Vec::new(), 0)),
            "begin_commit" => {
                let (effects, in_flight) = self.waiting.as_mut().expect("gather first");
                *in_flight = effects.len();
                self.engine.begin_commit();
            }
            "commit_succeeded" => {
                let (mut effects, in_flight) = self.waiting.take().expect("gather first");
                self.waiting = Some((effects.split_off(in_flight), 0));
                self.engine.commit_succeeded();
                self.show(effects, out);
            }
            "commit_failed" => {
                let (mut effects, _) = self.waiting.take().expect("gather first");
                self.engine.commit_failed(self.now, &mut effects);
                self.show(effects, out);
            }
            "suspend" => {
                let time = duration(&words.next()?)?.0;
                self.now.wall.0 += time;
                self.now.boot.0 += time;
                self.step(Event::Tick, out);
            }
            "late" => {
                self.advance(duration(&words.next()?)?);
                self.step(Event::Tick, out);
            }
            "wall" => {
                let by = words.next()?;
                let size = duration(&by[1..])?.0;
                self.now.wall.0 = if by.starts_with('-') {
                    self.now.wall.0 - size
                } else {
                    self.now.wall.0 + size
                };
                self.step(Event::Tick, out);
            }
            "alarm" => {
                let due = self.engine.next_boot_tick();
                let due = due.map(|at| Millis(at.0.saturating_sub(self.now.boot.0)));
                let due = due.map_or("none".into(), |time| format!("in {time}"));
                let _ = writeln!(out, "  = {due}");
            }
            "unread" => {
                let conversation = words.conversation();
                let ann = Agent("ann".into());
                let unread = self.engine.unread(self.now, &ann, conversation.as_ref());
                let _ = writeln!(out, "  = {unread}");
            }
            _ => {
                let event = event(&verb, &mut words)?;
                self.step(event, out);
            }
        }
        words.end_of_line()?;
        Ok(told)
    }
}

impl Stage {
    fn start(&mut self, out: &mut String) {
        // The keepers of sessions outlive the daemon.
        let sessions: Vec<_> = (self.engine.sessions())
            .map(|(session, state)| (session, found(state)))
            .collect();
        self.engine = Engine::new(7);
        if self.is_in_fleet {
            let engine = std::mem::replace(&mut self.engine, Engine::new(7));
            self.engine = engine.with_default_agent(Agent::default_on("desk"));
        }
        let found = !sessions.is_empty();
        for (session, state) in sessions {
            self.step(
                Event::SessionFound {
                    session,
                    state: Box::new(state),
                    deadline: None,
                    ending_told: true,
                },
                out,
            );
        }
        let kept = self.database.kept(self.boot_id);
        self.step(Event::StateLoaded(Box::new(kept)), out);
        if found {
            self.step(Event::Recovered, out);
        }
        self.step(Event::Tick, out);
    }

    fn advance(&mut self, time: Millis) {
        self.now.wall.0 += time.0;
        self.now.boot.0 += time.0;
        self.now.mono.0 += time.0;
    }

    fn pass(&mut self, time: Millis, out: &mut String) {
        let target = self.now.boot.0 + time.0;
        while let Some(at) = self.engine.next_boot_tick()
            && at.0 < target
        {
            self.advance(Millis(at.0.saturating_sub(self.now.boot.0)));
            let mut told = String::new();
            self.step(Event::Tick, &mut told);
            let rest = Millis(target - self.now.boot.0);
            for line in told.lines() {
                let _ = writeln!(out, "{line}   ({rest} before)");
            }
        }
        self.advance(Millis(target - self.now.boot.0));
        self.step(Event::Tick, out);
    }

    fn step(&mut self, event: Event, out: &mut String) {
        let mut effects = Vec::new();
        self.engine.step(self.now, event, &mut effects);
        assert!(effects.is_sorted_by_key(Effect::rank), "order: {effects:?}");
        if let Some((waiting, _)) = &mut self.waiting {
            return waiting.append(&mut effects);
        }
        let records = effects.iter().any(|e| matches!(e, Effect::Record(_)));
        if records && self.failing {
            self.failing = false;
            self.engine.commit_failed(self.now, &mut effects);
        } else {
            self.engine.begin_commit();
            self.engine.commit_succeeded();
        }
        self.show(effects, out);
    }

    /// Shows effects that are performed, after their records are in the database.
    fn show(&mut self, effects: Vec<Effect>, out: &mut String) {
        for effect in effects {
            if let Effect::Record(record) = &effect {
                self.database.apply(record);
            }
            let since = match &effect {
                Effect::Probe {
                    until: Some(until), ..
                } if until.since != self.now.wall => {
                    format!(", since {} before", Millis(self.now.wall.0 - until.since.0))
                }
                _ => String::new(),
            };
            let _ = writeln!(out, "  > {}{since}", shown(&effect));
        }
    }
}

/// A session as the next daemon finds it: a pending kill is not recorded.
fn found(state: &Session) -> Session {
    let mut state = state.clone();
    if let Phase::Running { ending, .. } = &mut state.phase {
        *ending = None;
    }
    state
}

fn event(verb: &str, words: &mut Words) -> Result<Event, String> {
    Ok(match verb {
        "call" => {
            let call = words.call()?;
            let agent = match words.value("by").as_deref() {
                Some("person") => None,
                Some(name) => Some(Agent(name.into())),
                None => Some(Agent("ann".into())),
            };
            Event::Called {
                call,
                caller: Caller {
                    agent,
                    conversation: words.conversation(),
                },
                reserved: Some(SessionId::from_bits(call.0)),
                request: request(words)?,
            }
        }
        "gone" => Event::CallerGone {
            call: words.call()?,
        },
        "interrupt" => Event::Interrupted {
            call: words.call()?,
        },
        "delivered" => Event::Delivered {
            call: words.call()?,
        },
        "connect" => Event::Connected {
            agent: Agent("ann".into()),
            conversation: Conversation(words.next()?.into()),
        },
        "disconnect" => Event::Disconnected {
            agent: Agent("ann".into()),
            conversation: Conversation(words.next()?.into()),
        },
        "resumable" => Event::Resumable {
            agent: Agent("ann".into()),
            conversations: vec![Conversation(words.next()?.into())],
        },
        "started" => Event::Started {
            session: words.session()?,
        },
        "exited" => Event::Exited {
            session: words.session()?,
            ending: Ending {
                exit: Some(Exit::Code(words.number()? as i32)),
                end: match words.value("end") {
                    Some(word) => End::of_word(&word).ok_or("no such end")?,
                    None => End::Exited,
                },
                duration: words.time("after")?.unwrap_or(Millis(5)),
                bytes: 0,
                dropped: 0,
            },
            empty: !words.flag("leftover"),
        },
        "emptied" => Event::Emptied {
            session: words.session()?,
        },
        "impossible" => Event::ConditionImpossible {
            timer: timer(words)?,
            why: Observation::new(words.next()?),
        },
        "held" => Event::ConditionHeld {
            timer: timer(words)?,
            seen: Observation::new(words.next()?),
        },
        other => return Err(format!("no such verb: {other}")),
    })
}

fn request(words: &mut Words) -> Result<Request, String> {
    let verb = words.next()?;
    Ok(match verb.as_str() {
        "wait" => Request::Timer(timer::Request::Create(create(words, Kind::Waiting)?)),
        "mission" => Request::Timer(timer::Request::Create(create(words, Kind::Mission)?)),
        "many" => {
            let count = words.number()? as usize;
            let one = create(words, Kind::Mission)?;
            Request::Timer(timer::Request::CreateMany(vec![one; count]))
        }
        "continue" => Request::Timer(timer::Request::Continue {
            timer: timer(words)?,
            remaining: words.time("remaining")?,
            standby: words.time("standby")?,
            client_limit: words.time("client_limit")?,
            key: words.value("key").map(|key| Key(key.into())),
        }),
        "stop" => act(words, Act::Stop)?,
        "cancel" => act(words, Act::Cancel)?,
        "pause" => {
            let time = words.time("for")?.ok_or("for= is missing")?;
            act(words, Act::Pause(time))?
        }
        "resume" => act(words, Act::Resume)?,
        "read" => Request::Timer(timer::Request::Read {
            asks: true,
            timer: timer(words)?,
        }),
        "list" => Request::Timer(timer::Request::List {
            asks: true,
            after: None,
            most: 10,
        }),
        "serve" => Request::Run(run("serve", None)),
        "shell" => Request::Run(run("make", Some(Millis::from_secs(100)))),
        "watch" => Request::Join {
            session: words.session()?,
            asking: Asking::Never,
            standby: None,
        },
        "probe" => Request::Probe {
            session: words.session()?,
        },
        "try" => {
            let timer = timer(words)?;
            Request::Try(Try {
                command: words.next()?.into(),
                started_by: StartedBy::Timer(timer),
                key: Key::of_try(timer, 0),
                deadline: Millis::from_secs(60),
            })
        }
        "messages" => Request::ReadMessages {
            standby: words.time("standby")?.unwrap_or_default(),
            most: words.count("most")?.unwrap_or(10) as usize,
            known: known(words)?.into_iter().collect(),
        },
        other => return Err(format!("no such request: {other}")),
    })
}

/// Command of `shell` if it has a deadline, else of `terminal_session`.
fn run(command: &str, deadline: Option<Millis>) -> Run {
    Run {
        command: command.into(),
        deadline,
        idle: None,
        inactivity: None,
        asking: Asking::Never,
        standby: None,
        detach: deadline.is_none(),
        key: None,
        approval: None,
    }
}

fn create(words: &mut Words, kind: Kind) -> Result<Create, String> {
    Ok(Create {
        kind,
        purpose: words.next()?.into(),
        until: words.value("until").map(Into::into),
        total: words.time("total")?.ok_or("total= is missing")?,
        standby: words.time("standby")?,
        client_limit: words.time("client_limit")?,
        detach: words.flag("detach"),
        key: words.value("key").map(|key| Key(key.into())),
    })
}

fn act(words: &mut Words, act: Act) -> Result<Request, String> {
    Ok(Request::Timer(timer::Request::Act {
        timer: timer(words)?,
        act,
        stop_reason: words.value("reason").map(Into::into),
        key: words.value("key").map(|key| Key(key.into())),
    }))
}

fn timer(words: &mut Words) -> Result<TimerId, String> {
    timer_named(&words.next()?)
}

fn known(words: &mut Words) -> Result<Option<About>, String> {
    let Some(name) = words.value("known") else {
        return Ok(None);
    };
    Ok(Some(match name.strip_prefix('s') {
        Some(number) => About::Session(SessionId::from_bits(parse(number)?)),
        None => About::Timer(timer_named(&name)?),
    }))
}

/// Timer with a name such as `t1`.
fn timer_named(name: &str) -> Result<TimerId, String> {
    let number: u64 = parse(&name[1..])?;
    Ok(TimerId::from_bits(
        IdPermutation { key: 7 }.to_bits(number - 1),
    ))
}

fn shown(effect: &Effect) -> String {
    match effect {
        Effect::Record(Record::Timer(record)) => format!("record {}", recorded(record)),
        Effect::Record(Record::Message(record)) => format!("record {}", noted(record)),
        Effect::Probe { timer, until } => {
            let until = until.as_ref().map_or("as known", |until| &until.condition);
            format!("probe {} {until}", t(*timer))
        }
        Effect::PauseProbe { timer } => format!("rest {}", t(*timer)),
        Effect::StopProbe { timer } => format!("unprobe {}", t(*timer)),
        Effect::PublishTimer { timer } => format!("publish {}", t(*timer)),
        Effect::Posted { agent, message } => format!("post {} to {}", m(*message), agent.0),
        Effect::Reply { call, outcome, .. } => format!("reply {} {}", call.0, answered(outcome)),
        Effect::Start {
            session, deadline, ..
        } => {
            let limit = deadline.map(|limit| format!(" for at most {limit}"));
            format!("start {}{}", s(*session), limit.unwrap_or_default())
        }
        Effect::Kill { session, end } => format!("kill {} end={}", s(*session), end.as_str()),
        Effect::Remove { session } => format!("remove {}", s(*session)),
        Effect::Publish { session } => format!("publish {}", s(*session)),
        Effect::PublishSeen { numbers } => format!("publish {} messages seen", numbers.len()),
        Effect::MarkEndingDelivered { session } => format!("mark {} delivered", s(*session)),
        Effect::Tell { call, update } => match update {
            Update::Accepted(session) => format!("tell {} accepted {}", call.0, s(*session)),
            other => panic!("not about tries: {other:?}"),
        },
        other => panic!("not about timers: {other:?}"),
    }
}

fn recorded(record: &timer::Record) -> String {
    match record {
        timer::Record::Created(timer::Created {
            id,
            kind,
            purpose,
            total,
            ..
        }) => format!("{} made: {} \"{purpose}\" {total}", t(*id), kind.as_str()),
        timer::Record::Changed(timer::Changed { number, state, .. }) => {
            let mode = match state.wait_mode {
                WaitMode::Foreground => "foreground",
                WaitMode::Background => "background",
            };
            let countdown = match state.countdown {
                Countdown::Running { .. } => "running".into(),
                Countdown::Paused { remaining, .. } => format!("paused with {remaining} left"),
            };
            let total = state.total;
            format!("t{} {countdown} in {mode} of {total}", number + 1)
        }
        timer::Record::Ended(timer::Ended { number, status, .. }) => {
            format!("t{} {}", number + 1, status.as_str())
        }
        timer::Record::Acted { number, key } => format!("t{} done by {}", number + 1, key.0),
        timer::Record::Anchored(anchor) => {
            let (sign, by) = (anchor.wall_offset < 0, anchor.wall_offset.unsigned_abs());
            let sign = if sign { "-" } else { "" };
            format!("anchor, calendar off by {sign}{}", Millis(by))
        }
    }
}

fn noted(record: &message::Record) -> String {
    let all = |numbers: &[u64]| -> String {
        let names: Vec<_> = numbers.iter().map(|n| format!("m{}", n + 1)).collect();
        names.join(" ")
    };
    match record {
        message::Record::Posted {
            id,
            agent,
            content: of,
            reported_by_call,
            ..
        } => {
            let told = if *reported_by_call {
                ", being told"
            } else {
                ""
            };
            let conversation = of.conversation.as_ref();
            let conversation = conversation.map_or(String::new(), |of| format!(" in {}", of.0));
            let wakes = if of.wakes { "" } else { ", unasked" };
            let about = subject(of.about);
            format!(
                "{} to {}{conversation} about {about}{wakes}{told}",
                m(*id),
                agent.0
            )
        }
        message::Record::DeliveryStarted { numbers, .. } => format!("{} being told", all(numbers)),
        message::Record::Seen { numbers, .. } => format!("{} seen", all(numbers)),
        message::Record::Released { numbers } => format!("{} released", all(numbers)),
    }
}

fn answered(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Timer(timer, why) => {
            let why = match why {
                Why::Made => "made".into(),
                Why::Joined => "joined".into(),
                Why::Completed => "completed".into(),
                Why::StandbyOver => "standby is over".into(),
                Why::Interrupted(act) => format!("someone did {}", act.as_str()),
                Why::Done(act) => format!("did {}", act.as_str()),
                Why::Looked => "looked".into(),
                Why::Ended => "had ended".into(),
            };
            format!("{why}: {}", state(timer))
        }
        Outcome::Timers(timers) => {
            let all: Vec<_> = timers.iter().map(state).collect();
            format!("[{}]", all.join("; "))
        }
        Outcome::TimersMade(ids) => {
            let all: Vec<_> = ids.iter().map(|id| t(*id)).collect();
            format!("made {}", all.join(" "))
        }
        Outcome::Messages(messages, more) => {
            let all: Vec<_> = messages.iter().map(told).collect();
            format!("messages [{}], {more} more", all.join("; "))
        }
        Outcome::Refused(refusal) => format!("refused: {}", refused(refusal)),
        Outcome::Started(session) => format!("started {}", s(*session)),
        Outcome::Ended(session) => format!("ended {}", s(*session)),
        other => panic!("not about timers: {other:?}"),
    }
}

fn state(timer: &Timer) -> String {
    assert_eq!(timer.elapsed() + timer.remaining, timer.total);
    let more = match timer.status {
        Status::Completed {
            by: CompletedBy::Time,
            late,
        } => format!(" by time, {late} late"),
        Status::Completed {
            by: CompletedBy::Condition,
            ..
        } => " by condition".into(),
        Status::Completed {
            by: CompletedBy::Impossible,
            ..
        } => " since it is impossible".into(),
        Status::Running(_) | Status::Paused { .. } | Status::Stopped => String::new(),
    };
    let (elapsed, total) = (timer.elapsed(), timer.total);
    let status = timer.status.as_str();
    format!("{} {status}{more}, {elapsed} of {total}", t(timer.id))
}

fn told(message: &ReturnedMessage) -> String {
    let repeated = if message.repeated { " repeated" } else { "" };
    let known = if message.known { " known" } else { "" };
    let whose = message.taken_over.as_ref();
    let whose = whose.map_or(String::new(), |of| format!(" taken over from {}", of.0));
    format!(
        "{} about {}{repeated}{known}{whose}",
        m(message.id),
        subject(message.about)
    )
}

fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Timer(timer::Refusal::NotFound { timer, known, more }) => {
            let known: Vec<_> = known.iter().map(|id| t(*id)).collect();
            let known = known.join(" ");
            format!("{} not found among [{known}] and {more} more", t(*timer))
        }
        Refusal::Timer(timer::Refusal::NotAllowed {
            timer,
            attempt,
            status,
        }) => format!("cannot {attempt} {}: {}", t(*timer), status.as_str()),
        Refusal::Timer(timer::Refusal::KeyReused(key)) => format!("key {} reused", key.0),
        Refusal::NotRecorded => "not recorded".into(),
        Refusal::TooMany(sentence) => format!("too many: {sentence}"),
        other => panic!("not about timers: {other:?}"),
    }
}

fn subject(about: About) -> String {
    match about {
        About::Timer(timer) => t(timer),
        About::Session(session) => session.to_string(),
        About::Question(question) => question.to_string(),
    }
}

fn s(id: SessionId) -> String {
    let known = (0..1_000).find(|n| SessionId::from_bits(*n) == id);
    format!("s{}", known.expect("a session of this test"))
}

fn t(id: TimerId) -> String {
    format!("t{}", IdPermutation { key: 7 }.to_number(id.0.bits()) + 1)
}

fn m(id: MessageId) -> String {
    format!(
        "m{}",
        IdPermutation { key: 7 }
            .for_messages()
            .to_number(id.0.bits())
            + 1
    )
}
