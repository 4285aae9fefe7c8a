//! Events: everything that can happen. The core has no other input.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::fleet::ShardId;
use crate::held::HeldCommand;
use crate::held_connection::HeldConnection;
use crate::id::{Agent, CallId, Conversation, QuestionId, SessionId, TimerId};
use crate::message::StoredMessage;
use crate::question::Question;
use crate::record::{LoadedShard, StoredRows, StoredState};
use crate::request::{Caller, Request};
use crate::session::{Ending, Session, StartError};
use crate::time::{Mono, Steady, Wall};
use crate::timer::Observation;

/// Input of [`Engine::step`](crate::Engine::step).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Event {
    /// An interface received a call.
    Called {
        /// Id of the call until it is answered.
        call: CallId,
        caller: Caller,
        /// Unused id for the session that the call starts, if it is a call that can start one.
        reserved: Option<SessionId>,
        /// Content of the call.
        request: Request,
    },
    /// The connection of the call broke, or its client timed out, so the answer has no reader. Ends the wait, never
    /// the session.
    CallerGone { call: CallId },
    /// An answer that was to report the ending of a session to its owner (`tells_owner` in
    /// [`Effect::Reply`](crate::Effect::Reply)) could not be handed over, because its caller had left in the same
    /// moment.
    AnswerLost { session: SessionId },
    /// A person interrupted the call, which kills the session.
    Interrupted { call: CallId },
    /// The client of the call cannot reach a person after all.
    PersonUnreachable { call: CallId },
    /// Number of people who watch through the page or the command line and could answer a question.
    Watchers {
        /// New number.
        count: u32,
    },
    /// The keeper has started the command.
    Started { session: SessionId },
    /// The keeper could not start the command.
    StartFailed {
        session: SessionId,
        /// Step that failed, as one sentence.
        fault: Arc<str>,
        /// Kind of the error.
        error: StartError,
        /// Time of the failure.
        at: Wall,
    },
    /// Answer to [`Effect::QueryOutput`](crate::Effect::QueryOutput) and to
    /// [`Effect::WatchOutput`](crate::Effect::WatchOutput).
    OutputGrew {
        session: SessionId,
        /// Number of bytes so far.
        bytes: u64,
        /// Time of the last output, or of the start.
        quiet_since: Mono,
    },
    /// The leader has ended, and its output is in the log.
    Exited {
        session: SessionId,
        /// Ending of the leader.
        ending: Ending,
        /// The tree is empty.
        empty: bool,
    },
    /// Connections of a session's sandbox wait for a person.
    ConnectionHeld {
        session: SessionId,
        connection: Arc<HeldConnection>,
    },
    /// Nothing waits any more for an answer about connections.
    ConnectionReleased {
        session: SessionId,
        /// Number of the question at the network gate. `None`: the gate has ended.
        number: Option<u64>,
    },
    /// Ports that the network gate of a session publishes have changed.
    PortsChanged { session: SessionId },
    /// The last process of the tree is gone. Never comes before [`Exited`](Event::Exited) of the
    /// leader.
    Emptied { session: SessionId },
    /// Processes of the tree survive SIGKILL. The keeper continues to try, but no call waits for that.
    SurvivesKill { session: SessionId },
    /// At start: a session from before, as its directory and its keeper describe it.
    SessionFound {
        session: SessionId,
        state: Box<Session>,
        /// Deadline, as far as it is known without the keeper.
        deadline: Option<Mono>,
        /// True if the owner knows of its ending, or there is none to tell.
        ending_told: bool,
    },
    /// At start: a question that was open.
    Reopened {
        question: QuestionId,
        /// Content of the question.
        state: Question,
    },
    /// After the start: a question of this machine that was open when another machine had its shard.
    QuestionLoaded {
        question: QuestionId,
        /// Content of the question.
        state: Question,
    },
    /// At start, after [`Recovered`](Event::Recovered): a person has approved this command, and it may not have been
    /// started.
    Approved {
        question: QuestionId,
        /// Session of the command.
        session: SessionId,
        held: Arc<HeldCommand>,
        /// Reason why the rules or the settings refuse the command by now.
        refused: Option<Arc<str>>,
    },
    /// At start: everything from before was passed. Questions about sessions that are gone are withdrawn
    /// now.
    Recovered,
    /// Sessions whose directories were removed by retention.
    Forgotten { sessions: Vec<SessionId> },
    /// Timers and messages from the database: once at start, before any call.
    StateLoaded(Box<(StoredState, StoredRows)>),
    /// This machine owns a shard of the fleet from now on, and has read it.
    ShardLoaded(Box<LoadedShard>),
    /// Another machine owns a shard that was loaded.
    ShardDropped {
        shard: ShardId,
        /// True if this machine has made it.
        is_home: bool,
    },
    /// Messages of other machines for agents that are connected here. They belong to this machine from now on.
    MessagesTaken { messages: Vec<StoredMessage> },
    /// A session of another machine is lost, and no machine tells its owner of that.
    LostElsewhere { session: SessionId, agent: Agent },
    /// Another machine has taken these messages, because their agent is connected there.
    MessagesGone { numbers: Vec<u64> },
    /// Deadlines as the database has them, after the fleet time has changed. Those in memory may be too early.
    DeadlinesRead {
        /// Numbers of timers and their deadlines.
        deadlines: Vec<(u64, Steady)>,
    },
    /// Numbers for new timers and messages, which no other machine uses.
    NumbersReserved {
        /// The numbers.
        block: Range<u64>,
    },
    /// Another machine uses the numbers that were reserved before, because the database had lost commits.
    NumbersReplaced {
        /// Numbers for new timers and messages from now on.
        block: Range<u64>,
    },
    /// The time of the fleet has changed.
    FleetTimeSet {
        /// Fleet time minus boot time.
        boot_offset: i64,
    },
    /// The condition of a timer holds.
    ConditionHeld {
        timer: TimerId,
        /// Observation by which it holds.
        seen: Observation,
    },
    /// The condition of a timer can no longer hold.
    ConditionImpossible {
        timer: TimerId,
        /// Reason.
        why: Observation,
    },
    /// The answer to a call has been sent, and with it the messages in it.
    Delivered { call: CallId },
    /// A waker has delivered these messages to their agent, which may have read them.
    Woken {
        /// Owner of the messages.
        agent: Agent,
        /// Numbers of the messages.
        messages: Vec<u64>,
    },
    /// A connection of a conversation was opened. A conversation may have several.
    Connected {
        /// Agent of the conversation.
        agent: Agent,
        conversation: Conversation,
    },
    /// A connection of a conversation was closed.
    Disconnected {
        /// Agent of the conversation.
        agent: Agent,
        conversation: Conversation,
    },
    /// These conversations of an agent, and no others, can be resumed by a waker when they are closed.
    Resumable {
        /// Agent of the conversations.
        agent: Agent,
        conversations: Vec<Conversation>,
    },
    /// Time has passed; the earliest alarm may be due.
    Tick,
}
