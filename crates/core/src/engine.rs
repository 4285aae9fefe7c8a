//! All sessions, waits and questions of one daemon, and the one function that changes them.
//!
//! [`Engine::step`] takes an event and returns effects. It never waits, reads a clock or does I/O, so two
//! engines that get the same events are in the same state.

mod calls;
mod connections;
mod ending_reports;
mod generations;
mod held;
mod idle;
mod inactivity;
mod keepers;
mod kill;
mod messages;
mod overdue;
mod people;
mod recovery;
mod session_state;
mod shards;
mod timers;
mod tries;
mod waits;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::conversation::Conversations;
use crate::effect::Effect;
use crate::event::Event;
use crate::id::{Agent, CallId, Key, QuestionId, SessionId};
use crate::message::Outbox;
use crate::question::{Question, Questions};
use crate::session::{Phase, Session};
use crate::time::{Boot, Mono, Now, Steady};
use crate::timer::{CompletedBy, StandbyCalls, Timers};
use crate::undo_log::UndoLog;
use crate::wait::{Outcome, Wait};
use generations::{UncommittedCall, UncommittedEvent};
use held::Refused;
use session_state::SessionState;
use shards::Adopted;

/// State of all sessions, timers, questions and messages of one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Owner of what people and agents without a name start.
    default_agent: Agent,
    alarms: BTreeSet<(Mono, Alarm)>,

    // Sessions, and calls that wait for them.
    sessions: BTreeMap<SessionId, SessionState>,
    /// Number of sessions whose leader runs or is being started.
    running: usize,
    /// By the names of the keys.
    session_by_key: BTreeMap<(Agent, Key), SessionId>,
    waits: BTreeMap<CallId, Wait>,
    /// Until then, calls that waited before the restart may reconnect.
    take_up_until: Mono,

    // People and their questions.
    questions: Questions,
    /// Questions about commands that were not started yet, by the session that the command will be.
    held: BTreeMap<SessionId, QuestionId>,
    /// Commands that a person has approved and whose start is not recorded yet.
    approved: BTreeMap<SessionId, QuestionId>,
    /// Commands that will not be started, and the reasons, for calls that ask later. The oldest are forgotten.
    not_started: BTreeMap<SessionId, Refused>,
    not_started_order: VecDeque<SessionId>,
    /// Times of the last questions about commands of each agent.
    recently_asked: BTreeMap<Agent, VecDeque<Mono>>,
    watchers: u32,
    /// Until then, a page that was there may come back, and calls wait for the answer of its person.
    page_expected_until: Mono,

    // Timers and messages.
    timers: Timers,
    standby_calls: StandbyCalls,
    outbox: Outbox,
    conversations: Conversations,
    adopted: Adopted,
    /// Fleet time until which the database may have lost commits.
    went_back: Steady,
    /// Messages of this step that no call or subscriber has got yet.
    posted: Vec<(Agent, u64)>,
    /// Messages that wait for the alarm with their number.
    delayed_messages: BTreeMap<u64, Agent>,

    // What is not durable yet.
    /// Calls about timers and messages whose answers depend on changes that are not durable yet.
    uncommitted_calls: UndoLog<UncommittedCall>,
    /// Events that arrive only once and whose records are not durable yet.
    uncommitted_events: UndoLog<UncommittedEvent>,
    /// Events that arrive only once and whose records could not be written: handled again from `retry_at` on.
    events_to_retry: Vec<UncommittedEvent>,
    retry_at: Steady,
}

/// Purpose of an alarm. The order of the variants decides between alarms of the same time: a standby ends before
/// idleness is handled, so that no question is asked for a call that is being answered, and before inactivity,
/// because the call counts as activity until its end. The order of the others does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Standby(CallId),
    Idle(SessionId),
    Inactive(SessionId),
    EndingOwed(SessionId),
    Overdue(SessionId),
    Expired(QuestionId),
    PageExpected,
    MessageDelay(u64),
}

/// One call of [`Engine::step`]: the time, and the effects so far.
struct Step<'a> {
    now: Now,
    effects: &'a mut Vec<Effect>,
}

impl Step<'_> {
    fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Answers a call. An answer that reports an ending goes through [`Engine::answer_ended_wait`].
    fn reply(&mut self, call: CallId, outcome: Outcome) {
        self.push(Effect::Reply {
            call,
            outcome,
            tells_owner: None,
        });
    }
}

/// Sizes of the tables of an [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Sessions known, ended ones included.
    pub sessions: usize,
    /// Sessions whose leader runs or is being started.
    pub running: usize,
    /// Calls that wait.
    pub waits: usize,
    /// Open questions.
    pub questions: usize,
    /// Closed questions still remembered.
    pub closed: usize,
    /// Alarms set.
    pub alarms: usize,
    /// Timers that have not ended.
    pub timers: usize,
    /// Calls that stand by on timers.
    pub standby_calls: usize,
    /// Messages that have not been seen.
    pub messages: usize,
}

impl Engine {
    /// Engine without sessions. The ids of its questions follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Engine {
            default_agent: Agent::default(),
            sessions: BTreeMap::new(),
            running: 0,
            session_by_key: BTreeMap::new(),
            waits: BTreeMap::new(),
            questions: Questions::new(seed),
            held: BTreeMap::new(),
            approved: BTreeMap::new(),
            not_started: BTreeMap::new(),
            not_started_order: VecDeque::new(),
            recently_asked: BTreeMap::new(),
            alarms: BTreeSet::new(),
            watchers: 0,
            page_expected_until: Mono::default(),
            take_up_until: Mono::default(),
            timers: Timers::default(),
            standby_calls: StandbyCalls::default(),
            outbox: Outbox::default(),
            conversations: Conversations::default(),
            adopted: Adopted::default(),
            went_back: Steady::default(),
            posted: Vec::new(),
            delayed_messages: BTreeMap::new(),
            uncommitted_calls: UndoLog::default(),
            uncommitted_events: UndoLog::default(),
            events_to_retry: Vec::new(),
            retry_at: Steady(0),
        }
    }

    /// The same engine on a machine of a fleet, where an agent without a name has one of its own.
    pub fn with_default_agent(self, default_agent: Agent) -> Self {
        Engine {
            default_agent,
            ..self
        }
    }

    /// True if machines share messages: then the agent without a name is another one on each.
    fn shares_messages(&self) -> bool {
        self.default_agent != Agent::default()
    }

    /// Handles one event and appends its effects, in the order in which the daemon must perform them.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        let first = effects.len();
        let step = &mut Step { now, effects };
        self.note_clock(step);
        match event {
            Event::Called {
                call,
                caller,
                reserved,
                request,
            } => self.called(step, call, caller, reserved, request),
            Event::CallerGone { call } => self.caller_gone(step, call),
            Event::AnswerLost { session } => self.answer_lost(step, session),
            Event::Interrupted { call } => self.interrupted(step, call),
            Event::PersonUnreachable { call } => self.person_unreachable(step, call),
            Event::Watchers { count } => self.watchers_are(step, count),
            Event::Started { session } => self.started(step, session),
            Event::StartFailed {
                session,
                fault,
                error,
                at,
            } => {
                self.start_failed(step, session, Phase::Failed { fault, error, at });
            }
            Event::OutputGrew {
                session,
                bytes,
                quiet_since,
            } => self.output_grew(step, session, bytes, quiet_since),
            Event::Exited {
                session,
                ending,
                empty,
            } => self.exited(step, session, ending, empty),
            Event::ConnectionHeld {
                session,
                connection,
            } => self.connection_held(step, session, connection),
            Event::ConnectionReleased { session, number } => {
                self.connection_released(step, session, number);
            }
            Event::PortsChanged { session } => self.ports_changed(step, session),
            Event::Emptied { session } => self.emptied(step, session),
            Event::SurvivesKill { session } => self.survives_kill(step, session),
            Event::SessionFound {
                session,
                state,
                deadline,
                ending_told,
            } => self.session_found(step, session, *state, deadline, ending_told),
            Event::Reopened { question, state } => self.reopened(question, state),
            Event::Recovered => self.recovered(step),
            Event::QuestionLoaded { question, state } => {
                self.question_loaded(step, question, state);
            }
            Event::Approved {
                question,
                session,
                held,
                refused,
            } => self.approved_before(step, question, session, held, refused),
            Event::Forgotten { sessions } => self.forgotten(step, &sessions),
            Event::StateLoaded(loaded) => self.state_loaded(step, loaded.0, loaded.1),
            Event::ShardLoaded(loaded) => self.shard_loaded(step, *loaded),
            Event::ShardDropped { shard, is_home } => self.shard_dropped(step, shard, is_home),
            Event::MessagesTaken { messages } => {
                self.adopted.messages_taken(&messages);
                self.messages_loaded(step, messages);
            }
            Event::LostElsewhere { session, agent } => {
                self.post_session_ended(step, agent, None, session);
            }
            Event::MessagesGone { numbers } => {
                self.outbox.unload(|number| numbers.contains(&number));
            }
            Event::DeadlinesRead { deadlines } => self.timers.postpone(&deadlines),
            Event::NumbersReserved { block } => {
                self.timers.add_numbers(block.clone());
                self.outbox.add_numbers(block);
            }
            Event::NumbersReplaced { block } => {
                self.timers.replace_numbers(block.clone());
                self.outbox.replace_numbers(block);
            }
            Event::FleetTimeSet { boot_offset } => self.timers.set_time(boot_offset),
            Event::ConditionHeld { timer, seen } => {
                self.condition_decided(step, timer, CompletedBy::Condition, seen);
            }
            Event::ConditionImpossible { timer, why } => {
                self.condition_decided(step, timer, CompletedBy::Impossible, why);
            }
            Event::Delivered { call } => self.delivered(step, call),
            Event::Woken { agent, messages } => self.woken(step, &agent, &messages),
            Event::Connected {
                agent,
                conversation,
            } => self.conversations.connected(agent, conversation),
            Event::Disconnected {
                agent,
                conversation,
            } => self.disconnected(step, agent, conversation),
            Event::Resumable {
                agent,
                conversations,
            } => self.conversations.resumable(agent, conversations),
            Event::Tick => self.tick(step),
        }
        self.deliver_posted(step);
        effects[first..].sort_by_key(Effect::rank);
    }

    /// Monotonic time at which the engine needs the next [`Event::Tick`] for sessions; see also
    /// [`next_boot_tick`](Engine::next_boot_tick).
    pub fn next_mono_tick(&self) -> Option<Mono> {
        self.alarms.first().map(|&(at, _)| at)
    }

    /// Boot time at which the engine needs the next [`Event::Tick`] for timers and messages. Boot time includes the time
    /// that the machine was suspended.
    pub fn next_boot_tick(&self) -> Option<Boot> {
        let alarms = [
            self.timers.alarm(),
            self.standby_calls.alarm(),
            self.outbox.alarm(),
            self.conversations.alarm(),
        ];
        let has_retry = !self.events_to_retry.is_empty() || self.timers.anchor_is_unsafe();
        let retry = has_retry.then_some(self.retry_at);
        let first = alarms.into_iter().flatten().chain(retry).min()?;
        Some(self.timers.boot(Steady(first.0 + 1)))
    }

    /// Session with this id.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id).map(|entry| &entry.session)
    }

    /// All sessions, ended ones included.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions
            .iter()
            .map(|(&id, entry)| (id, &entry.session))
    }

    /// Open question with this id.
    pub fn question(&self, id: QuestionId) -> Option<&Question> {
        self.questions.get(id)
    }

    /// All open questions.
    pub fn questions(&self) -> impl Iterator<Item = (QuestionId, &Question)> {
        self.questions.iter()
    }

    /// Open question about a session.
    pub fn open_question_of(&self, session: SessionId) -> Option<QuestionId> {
        self.sessions.get(&session)?.question()
    }

    /// Sizes of all tables.
    pub fn counts(&self) -> Counts {
        Counts {
            sessions: self.sessions.len(),
            running: self.running,
            waits: self.waits.len(),
            questions: self.questions.len(),
            closed: self.questions.remembered(),
            alarms: self.alarms.len(),
            timers: self.timers.len(),
            standby_calls: self.standby_calls.len(),
            messages: self.outbox.len(),
        }
    }

    /// Handles everything that is due. An alarm that is set again lies in the future, so the loop ends.
    fn tick(&mut self, step: &mut Step<'_>) {
        while let Some(&(at, alarm)) = self.alarms.first()
            && at <= step.now.mono
        {
            self.alarms.pop_first();
            match alarm {
                Alarm::Standby(call) => self.standby_over(step, call),
                Alarm::Idle(session) => self.idle_due(step, session),
                Alarm::Inactive(session) => self.inactivity_due(step, session),
                Alarm::EndingOwed(session) => self.ending_message_due(step, session),
                Alarm::Overdue(session) => self.overdue(step, session),
                Alarm::Expired(question) => self.held_expired(step, question),
                Alarm::PageExpected => self.release_all_stranded(step),
                Alarm::MessageDelay(message) => self.message_delay_over(message),
            }
        }
        self.retry_events(step);
        self.timers_due(step);
        // Before the standby of readers is checked: a call whose standby ends now still gets the messages of this
        // step.
        self.deliver_posted(step);
        self.deliver_released(step);
        self.readers_due(step);
    }
}
