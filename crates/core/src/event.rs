//! Everything that can happen. The core learns of the world in no other way.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{Agent, CallId, Conversation, QuestionId, SessionId, TimerId};
use crate::question::Question;
use crate::record::StoredState;
use crate::request::{Caller, Request};
use crate::session::{Ending, Session};
use crate::time::{Mono, Wall};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A door received a call. `spare` are ids that a new session and a new question may take.
    Called {
        /// Names the call until it is answered.
        call: CallId,
        /// Who calls.
        caller: Caller,
        /// An unused id, for the session that this call may start.
        spare: SessionId,
        /// What it asks for.
        request: Request,
    },
    /// The call's connection broke, or its client's time ran out: nobody listens for the answer.
    /// Ends the wait, never the session.
    CallerGone {
        /// Which call.
        call: CallId,
    },
    /// A person interrupted the call: the session is ended with it.
    Interrupted {
        /// Which call.
        call: CallId,
    },
    /// The call's own way to a person turned out to lead nowhere.
    NobodyThere {
        /// Which call.
        call: CallId,
    },
    /// How many people watch through the page or the command line right now and could answer.
    Watchers {
        /// The new count.
        count: u32,
    },
    /// The keeper has started the command.
    Started {
        /// Which session.
        session: SessionId,
    },
    /// The keeper could not start it.
    StartFailed {
        /// Which session.
        session: SessionId,
        /// The failing step, as one sentence.
        fault: Arc<str>,
        /// When it failed.
        at: Wall,
    },
    /// The answer to [`Effect::Look`](crate::Effect::Look) and to
    /// [`Effect::Watch`](crate::Effect::Watch).
    Grew {
        /// Which session.
        session: SessionId,
        /// All bytes so far.
        bytes: u64,
        /// When the last of them came (or the start).
        quiet_since: Mono,
    },
    /// The leader has ended and its output is in the log.
    Exited {
        /// Which session.
        session: SessionId,
        /// How.
        ending: Ending,
        /// Whether anything of the tree is left.
        empty: bool,
    },
    /// The last process of the tree is gone. Never comes before the leader's
    /// [`Exited`](Event::Exited).
    Emptied {
        /// Which session.
        session: SessionId,
    },
    /// Some of the tree outlives being killed. Its keeper goes on trying, but nobody is to wait for that.
    Undying {
        /// Which session.
        session: SessionId,
    },
    /// At start: a session found again, as far as its folder and its keeper tell.
    Found {
        /// Which session.
        session: SessionId,
        /// What is known of it.
        state: Session,
        /// When its hard limit is reached, as far as is known without its keeper.
        deadline: Option<Mono>,
    },
    /// At start: a question that was open.
    Reopened {
        /// Which question.
        question: QuestionId,
        /// What it asked.
        state: Question,
    },
    /// At start: everything that was kept has been told. Questions about sessions that are gone are
    /// withdrawn now.
    Recovered,
    /// At start, after everything else: this session has ended, and nobody has heard of it yet.
    Unheard {
        /// Which session.
        session: SessionId,
    },
    /// Sessions whose folders were removed by retention.
    Forgotten {
        /// Which.
        sessions: Vec<SessionId>,
    },
    /// Timers and messages from the database: once at start, before any call.
    StateLoaded(Box<StoredState>),
    /// What a timer waited for holds.
    Held {
        /// Which timer.
        timer: TimerId,
        /// What was seen, as one sentence.
        seen: Arc<str>,
    },
    /// What a timer waits for can no longer come.
    ConditionImpossible {
        /// Which timer.
        timer: TimerId,
        /// Why, in words for its agent.
        why: Arc<str>,
    },
    /// The answer to a call has been sent, and with it every message that it told.
    Delivered {
        /// Which call.
        call: CallId,
    },
    /// A waker has brought these messages to their agent, which may have read them there.
    Woken {
        /// Whose they are.
        agent: Agent,
        /// Their numbers.
        messages: Vec<u64>,
    },
    /// A connection of a conversation has opened. It may have several.
    Connected {
        /// Whose it is.
        agent: Agent,
        /// Which.
        conversation: Conversation,
    },
    /// One of its connections has ended.
    Disconnected {
        /// Whose it is.
        agent: Agent,
        /// Which.
        conversation: Conversation,
    },
    /// These conversations of an agent can be resumed by a waker when they are closed, and no others.
    Resumable {
        /// Whose they are.
        agent: Agent,
        /// Which.
        conversations: Vec<Conversation>,
    },
    /// Time has passed; the earliest alarm may be due.
    Tick,
}
