//! Callers: agents and people that call, wait, disconnect, and check their answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_core::held::{Approval, NotStarted};
use abide_core::request::Caller;
use abide_core::timer::{self, Act, Create, Kind, Why};
use abide_core::{
    Agent, Answer, Asking, End, Key, Millis, Mono, Outcome, QuestionId, Refusal, Request, Run,
    SessionId, TimerId, WhyRunning,
};

use super::World;
use super::clock::LATE;
use super::disk::SLOWEST;
use crate::clock::pause;
use crate::config::{NetworkMode, SandboxMode};
use crate::handle::{CallStep, CallUpdate, Handle, LaunchOptions, PendingCall};
use crate::launch_bytes::HeldLaunch;

pub const AGENTS: [&str; 2] = ["ann", "bob"];

/// Command that a person must approve.
pub const HELD: &str = "git push";

/// Time that a call about timers may take beyond its limit: two commits, and the retry after a failed one.
const COMMITS: u64 = 2 * SLOWEST + 2_000;

/// One call and what is expected of it.
pub struct Plan {
    caller: Caller,
    request: Request,
    launch: Option<LaunchOptions>,
    /// Text of the timer that the call creates.
    text: Option<String>,
    /// Longest time until the answer, in milliseconds.
    answered_within: Option<u64>,
}

pub fn caller(agent: &str) -> Caller {
    Caller {
        agent: Some(Agent(agent.into())),
        conversation: None,
    }
}

impl World {
    fn caller(&self) -> Caller {
        match self.dice.below(8) {
            0 => Caller::PERSON,
            1..3 => caller(AGENTS[1]),
            _ => caller(AGENTS[0]),
        }
    }

    fn standby(&self) -> Option<Millis> {
        let dice = &self.dice;
        dice.chance(50).then(|| Millis(dice.below(15_000)))
    }

    fn asking(&self) -> Asking {
        let all = [Asking::Never, Asking::Elsewhere, Asking::Here];
        self.dice.pick(&all).expect("one")
    }

    pub fn plan(&self, handle: &Handle) -> Plan {
        match self.dice.below(20) {
            0..5 => self.plan_run(),
            5..7 => self.plan_about_session(handle),
            7 => self.plan_answer(handle),
            8..13 => self.plan_create(),
            13..17 => self.plan_about_timer(),
            _ => self.plan_read(),
        }
    }

    fn plan_run(&self) -> Plan {
        let dice = &self.dice;
        let standby = self.standby();
        let caller = self.caller();
        let launch = LaunchOptions::plain("/".into(), Vec::new(), None, Arc::default());
        let held = caller.agent.is_some() && dice.chance(25);
        let run = Run {
            command: if held { HELD } else { "make" }.into(),
            deadline: dice.chance(30).then(|| Millis(dice.below(15_000))),
            idle: dice.chance(60).then(|| Millis(1_000 + dice.below(5_000))),
            inactivity: dice.chance(20).then(|| Millis(3_000 + dice.below(9_000))),
            asking: self.asking(),
            standby,
            detach: dice.chance(20),
            key: dice
                .chance(20)
                .then(|| Key(format!("k{}", dice.below(3)).into())),
            approval: held.then(|| {
                Arc::new(Approval {
                    // Sometimes equal to that of another call, which then shares its question.
                    launch: held_launch(launch.clone()).to_bytes().into(),
                    asking: self.asking(),
                    folder: "/".into(),
                    part: HELD.into(),
                    rule: "r".into(),
                    why: "w".into(),
                    offers: Vec::new(),
                    person_only: dice.chance(20),
                })
            }),
        };
        // The answer about a held command waits for the commit of its question, its start for that of the answer.
        let plan = match held {
            true => record_plan(caller, Request::Run(run), standby.map(|time| time.0)),
            false => session_plan(caller, Request::Run(run), standby),
        };
        Plan {
            launch: Some(launch),
            ..plan
        }
    }

    fn plan_about_session(&self, handle: &Handle) -> Plan {
        let dice = &self.dice;
        let unknown = SessionId::from_bits(dice.bits());
        let mut sessions = self.keepers.ids(|_| true);
        let questions = handle.published().questions();
        sessions.extend(questions.iter().map(|question| question.state.session()));
        let session = dice.pick(&sessions).unwrap_or(unknown);
        let standby = self.standby();
        let (request, standby) = match dice.below(4) {
            0 => {
                let end = End::Agent;
                (Request::Kill { session, end }, None)
            }
            1 => {
                let (deadline, idle) = (Some(Millis(dice.below(9_000))), Some(Millis(4_000)));
                let extend = Request::Extend {
                    session,
                    deadline,
                    idle,
                    inactivity: None,
                };
                // Answered at once.
                (extend, Some(Millis(0)))
            }
            _ => {
                let asking = self.asking();
                let join = Request::Join {
                    session,
                    asking,
                    standby,
                };
                (join, standby)
            }
        };
        // A session of a held command may not exist yet.
        record_plan(self.caller(), request, standby.map(|time| time.0))
    }

    fn plan_answer(&self, handle: &Handle) -> Plan {
        let open = handle.published().questions();
        let ids: Vec<QuestionId> = open.iter().map(|question| question.id).collect();
        let unknown = QuestionId::from_bits(self.dice.bits());
        let question = self.dice.pick(&ids).unwrap_or(unknown);
        let answer = match self.dice.chance(60) {
            true => Answer::Yes,
            false => Answer::No,
        };
        let about = open.iter().find(|open| open.id == question);
        if let Some(open) = about.filter(|_| answer == Answer::Yes) {
            self.book.says_yes(open.state.session());
        }
        let request = Request::Answer {
            question,
            answer,
            quiet_for: None,
            because: None,
            key: None,
        };
        record_plan(Caller::PERSON, request, Some(0))
    }

    fn plan_create(&self) -> Plan {
        let dice = &self.dice;
        let text = format!("t{}", self.next());
        let total = 1 + dice.below(60_000);
        let (standby, client_limit) = (self.standby(), self.standby());
        let create = Create {
            kind: match dice.chance(50) {
                true => Kind::Mission,
                false => Kind::Waiting,
            },
            purpose: text.as_str().into(),
            until: dice.chance(30).then(|| "port".into()),
            total: Millis(total),
            standby,
            client_limit,
            detach: dice.chance(30),
            key: dice
                .chance(15)
                .then(|| Key(format!("k{}", dice.below(4)).into())),
        };
        let first = standby.into_iter().chain(client_limit).min();
        // A timer that is paused or continued by another caller may take longer than its total.
        let bound = first.map(|first| first.0);
        Plan {
            text: Some(text),
            ..record_plan(
                self.caller(),
                Request::Timer(timer::Request::Create(create)),
                bound,
            )
        }
    }

    fn plan_about_timer(&self) -> Plan {
        let dice = &self.dice;
        let ids = self.disk.texts("SELECT id FROM timer", []);
        let known = dice.pick(&ids).and_then(|id| id.parse::<TimerId>().ok());
        let timer = known.unwrap_or(TimerId::from_bits(dice.bits()));
        let (request, bound) = match dice.below(8) {
            0..4 => {
                let act = match dice.below(5) {
                    0 => Act::Stop,
                    1 => Act::Cancel,
                    2..4 => Act::Pause(Millis(dice.below(30_000))),
                    _ => Act::Resume,
                };
                let act = timer::Request::Act {
                    timer,
                    act,
                    stop_reason: None,
                    key: None,
                };
                (act, Some(0))
            }
            4 => {
                let client_limit = Some(Millis(dice.below(10_000)));
                let go_on = timer::Request::Continue {
                    timer,
                    remaining: Some(Millis(dice.below(30_000))),
                    standby: None,
                    client_limit,
                    key: None,
                };
                (go_on, Some(10_000))
            }
            5 => {
                let (after, most) = (None, 100);
                let asks = true;
                (timer::Request::List { asks, after, most }, Some(0))
            }
            _ => (timer::Request::Read { asks: true, timer }, Some(0)),
        };
        record_plan(self.caller(), Request::Timer(request), bound)
    }

    fn plan_read(&self) -> Plan {
        let standby = self.standby().unwrap_or_default();
        let request = Request::ReadMessages {
            standby,
            most: 1 + self.dice.below(4) as usize,
            known: Vec::new(),
        };
        // A person has no messages.
        let agent = self.dice.pick(&AGENTS).expect("one");
        record_plan(caller(agent), request, Some(standby.0))
    }

    /// Sends a call, waits for its answer or disconnects before, and checks the answer.
    pub async fn follow(self: Arc<Self>, handle: Handle, plan: Plan) {
        let began = self.clock.truth();
        let mono = self.mono();
        let failures = self.disk.failures.load(Ordering::Relaxed);
        if let Some(text) = &plan.text {
            self.book.asks(text, began);
        }
        self.tell(|| format!("call {:?} {:?}", plan.caller.agent, plan.request));
        let mut pending = handle
            .call(plan.caller.clone(), plan.request.clone(), plan.launch)
            .await;
        let leaves = self.dice.chance(15);
        let leaves = leaves.then(|| Duration::from_millis(self.dice.below(5_000)));
        let outcome = tokio::select! {
            biased;
            outcome = self.listen(&mut pending) => outcome,
            () = wait(leaves) => {
                self.book.tally.count("caller left");
                return;
            }
        };
        // The daemon has crashed; it is unknown whether the call was executed.
        let Some(outcome) = outcome else { return };
        self.tell(|| format!("answer to {:?}: {outcome:?}", plan.request));
        let took = self.mono().since(mono).0;
        if let Some(limit) = plan.answered_within {
            assert!(
                took <= limit,
                "{took} ms for {:?}: {outcome:?}",
                plan.request
            );
        }
        self.check(&plan.request, plan.text.as_deref(), &outcome, failures);
        self.arrive(pending).await;
    }

    /// Confirms an answer, after a while, or loses it.
    async fn arrive(&self, pending: PendingCall) {
        if self.dice.chance(30) {
            pause(Duration::from_millis(self.dice.below(200))).await;
        }
        match self.dice.chance(80) {
            true => pending.delivered(),
            false => drop(pending),
        }
    }

    async fn listen(&self, pending: &mut PendingCall) -> Option<Outcome> {
        loop {
            match pending.next().await? {
                CallStep::Done(outcome) => return Some(outcome),
                CallStep::Update(CallUpdate::Asked(view)) => {
                    self.book.tally.count("asked");
                    let sql = "SELECT count(*) FROM question WHERE id = ?";
                    let rows = self.disk.count(sql, [view.id.to_string()]);
                    // A question that could not be recorded is asked anyway.
                    let failed = self.disk.failures.load(Ordering::Relaxed) > 0;
                    assert!(rows == 1 || failed, "{} is no row", view.id);
                }
                CallStep::Update(CallUpdate::Accepted(_) | CallUpdate::Closed(_)) => {}
            }
        }
    }

    fn check(&self, request: &Request, text: Option<&str>, outcome: &Outcome, failures: u64) {
        let tally = &self.book.tally;
        match outcome {
            Outcome::Started(id) => assert!(!self.is_starting(*id), "{id} is not started"),
            Outcome::Ended(id) | Outcome::Declined(id, _) | Outcome::Cancelled(id) => {
                tally.count("ended");
                let over = self
                    .keepers
                    .look_at(*id, |keeper| keeper.ending().is_some());
                assert_eq!(over, Some(true), "{id} has not ended");
                self.book.told_ending(*id);
            }
            Outcome::Failed(id) => self.book.told_ending(*id),
            Outcome::Running(_, WhyRunning::Standby) => tally.count("standby over"),
            Outcome::Running(..) => tally.count("handed over"),
            Outcome::NotStarted(_, question, why) => {
                let sql = "SELECT count(*) FROM question WHERE id = ?";
                let durable = self.disk.count(sql, [question.to_string()]) == 1;
                let failed = self.disk.failures.load(Ordering::Relaxed) > 0;
                let promised = matches!(why, NotStarted::Held(_));
                assert!(durable || (failed && !promised), "{question} is no row");
                tally.count(match why {
                    NotStarted::Held(_) => "held",
                    NotStarted::Declined(_) => "declined",
                    NotStarted::Refused(_) => "refused",
                    NotStarted::Expired => "expired",
                    NotStarted::Withdrawn | NotStarted::Killed | NotStarted::NotStored => {
                        "withdrawn"
                    }
                });
            }
            Outcome::Done => {
                if let Request::Answer { question, .. } = request {
                    tally.count("answered");
                    // A question that could not be recorded has no row.
                    let sql = "SELECT count(*) FROM question WHERE id = ? AND closing IS NULL";
                    let open = self.disk.count(sql, [question.to_string()]) == 1;
                    let failed = self.disk.failures.load(Ordering::Relaxed) > failures;
                    assert!(!open || failed, "the answer to {question} is not durable");
                }
            }
            Outcome::Timer(timer, why) => {
                self.book
                    .told_timer(&self.disk, timer, *why == Why::Completed);
            }
            Outcome::Timers(timers) => {
                for timer in timers {
                    self.book.told_timer(&self.disk, timer, false);
                }
            }
            Outcome::Messages(messages, _) => self.book.told_messages(&self.disk, messages),
            Outcome::Refused(refusal) => {
                tally.count("refused");
                if *refusal == Refusal::NotRecorded {
                    tally.count("not recorded");
                }
                if let Some(text) = text {
                    self.book.refused(text);
                }
            }
            Outcome::TimersObserved(_) | Outcome::TimersMade(_) | Outcome::TimersCounted(_) => {
                panic!("{outcome:?}")
            }
        }
    }

    fn is_starting(&self, id: SessionId) -> bool {
        use super::keeper::Truth;
        let starting = |keeper: &super::keeper::Keeper| {
            matches!(keeper.truth, Truth::Starting { .. } | Truth::Failed)
        };
        self.keepers.look_at(id, starting).unwrap_or(true)
    }

    fn mono(&self) -> Mono {
        self.clock.now().mono
    }
}

async fn wait(time: Option<Duration>) {
    match time {
        Some(time) => pause(time).await,
        None => std::future::pending().await,
    }
}

/// Call about a session: no commit delays its answer.
fn session_plan(caller: Caller, request: Request, standby: Option<Millis>) -> Plan {
    Plan {
        caller,
        request,
        launch: None,
        text: None,
        answered_within: standby.map(|standby| standby.0 + LATE + 2),
    }
}

/// Call about timers, messages or questions.
fn record_plan(caller: Caller, request: Request, bound: Option<u64>) -> Plan {
    Plan {
        caller,
        request,
        launch: None,
        text: None,
        answered_within: bound.map(|bound| bound + COMMITS),
    }
}

fn held_launch(options: LaunchOptions) -> HeldLaunch {
    HeldLaunch {
        options,
        workspace: "/".into(),
        given: Vec::new(),
        settings: (SandboxMode::Off, NetworkMode::Off),
    }
}
