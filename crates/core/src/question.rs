//! Questions for people.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use crate::held::HeldCommand;
use crate::held_connection::HeldConnection;
use crate::id::{Agent, Key, QuestionId, SessionId};
use crate::limit;
use crate::policy::Choice;
use crate::random::RandomSequence;
use crate::time::{Millis, Wall};

/// Open question. It is recorded before a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Subject of the question.
    pub subject: Subject,
    /// Time at which the question was opened.
    pub asked: Wall,
}

/// Subject of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A session is idle: wait longer?
    Idle {
        /// The session.
        session: SessionId,
        /// Idle time of the session when the question was opened (its idle limit).
        idle: Millis,
    },
    /// A command was not started yet: may it run?
    Command {
        /// Session that the command will be.
        session: SessionId,
        /// The command.
        held: Arc<HeldCommand>,
    },
    /// Connections of a sandbox wait: may they go on?
    Connection {
        /// The session.
        session: SessionId,
        /// The connections.
        connection: Arc<HeldConnection>,
    },
}

impl Question {
    /// Session that the question is about. That of a command that was not started does not exist yet.
    pub const fn session(&self) -> SessionId {
        match self.subject {
            Subject::Idle { session, .. }
            | Subject::Command { session, .. }
            | Subject::Connection { session, .. } => session,
        }
    }

    /// Idle time of a session that is idle.
    pub const fn idle(&self) -> Option<Millis> {
        match self.subject {
            Subject::Idle { idle, .. } => Some(idle),
            Subject::Command { .. } | Subject::Connection { .. } => None,
        }
    }

    /// Command that was not started yet.
    pub const fn held(&self) -> Option<&Arc<HeldCommand>> {
        match &self.subject {
            Subject::Idle { .. } | Subject::Connection { .. } => None,
            Subject::Command { held, .. } => Some(held),
        }
    }

    /// Connections that wait.
    pub const fn connection(&self) -> Option<&Arc<HeldConnection>> {
        match &self.subject {
            Subject::Idle { .. } | Subject::Command { .. } => None,
            Subject::Connection { connection, .. } => Some(connection),
        }
    }

    /// Answers that can be given, each with what it adds. Empty for an idle session: yes or no.
    pub fn offers(&self) -> &[(Choice, Arc<str>)] {
        match &self.subject {
            Subject::Idle { .. } => &[],
            Subject::Command { held, .. } => &held.approval.offers,
            Subject::Connection { connection, .. } => &connection.offers,
        }
    }
}

/// Answer of a person, as it is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Continue to wait, start the command, or let the connections go on.
    Yes,
    /// Give up: the tree is killed, the command is not started, or the connections are refused.
    No,
    /// A person said yes, but the rules or the settings have changed since the question and refuse the command.
    Refused,
}

/// Reason of the closing of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// A person answered.
    Answered(Answer),
    /// The question does not matter any more.
    Withdrawn,
    /// No person answered in time. Only questions about commands expire.
    Expired,
}

impl Closing {
    const ALL: [Closing; 5] = [
        Closing::Answered(Answer::Yes),
        Closing::Answered(Answer::No),
        Closing::Answered(Answer::Refused),
        Closing::Withdrawn,
        Closing::Expired,
    ];

    /// The word used in results and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Closing::Answered(Answer::Yes) => "yes",
            Closing::Answered(Answer::No) => "no",
            Closing::Answered(Answer::Refused) => "refused",
            Closing::Withdrawn => "withdrawn",
            Closing::Expired => "expired",
        }
    }

    /// Closing with this word.
    pub fn of_word(word: &str) -> Option<Self> {
        let mut all = Closing::ALL.into_iter();
        all.find(|closing| closing.as_str() == word)
    }
}

/// Question that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClosedQuestion {
    pub closing: Closing,
    pub owner: Option<Agent>,
    /// Idempotency key of the answer.
    pub key: Option<Key>,
}

impl ClosedQuestion {
    /// True if this is the answer that closed the question, which comes again.
    pub fn was_closed_by(&self, answer: Answer, key: Option<&Key>) -> bool {
        key.is_some() && self.key.as_ref() == key && self.closing == Closing::Answered(answer)
    }
}

/// Open questions, and the last closed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Questions {
    open: BTreeMap<QuestionId, Question>,
    closed: BTreeMap<QuestionId, ClosedQuestion>,
    /// Closed questions, oldest first.
    order: VecDeque<QuestionId>,
    ids: RandomSequence,
}

impl Questions {
    pub fn new(seed: u64) -> Self {
        Questions {
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            order: VecDeque::new(),
            ids: RandomSequence(seed),
        }
    }

    pub fn get(&self, id: QuestionId) -> Option<&Question> {
        self.open.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (QuestionId, &Question)> {
        self.open.iter().map(|(&id, state)| (id, state))
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn remembered(&self) -> usize {
        self.closed.len()
    }

    /// Question that was closed.
    pub fn closed(&self, id: QuestionId) -> Option<&ClosedQuestion> {
        self.closed.get(&id)
    }

    pub fn open(&mut self, state: Question) -> QuestionId {
        let id = self.next_id();
        self.open.insert(id, state);
        id
    }

    pub fn reopen(&mut self, id: QuestionId, state: Question) {
        self.open.insert(id, state);
    }

    /// Removes an open question and remembers its closing instead of the oldest one.
    pub fn close(&mut self, id: QuestionId, closed: ClosedQuestion) {
        if self.open.remove(&id).is_none() {
            return;
        }
        if self.order.len() == limit::CLOSED_QUESTIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.closed.remove(&oldest);
        }
        self.order.push_back(id);
        self.closed.insert(id, closed);
    }

    /// Next unused id of the sequence.
    fn next_id(&mut self) -> QuestionId {
        loop {
            let id = QuestionId::from_bits(self.ids.next());
            if !self.open.contains_key(&id) && !self.closed.contains_key(&id) {
                return id;
            }
        }
    }
}
