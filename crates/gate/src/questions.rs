//! Questions about names that no rule knows. A connection waits while its question is open; connections to the same
//! name and port share one question; a question that nothing waits for any more is withdrawn.
//!
//! This module knows no protocol: `control` shows open questions to the daemon and brings its answers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::allowlist::HostName;
use crate::clock;

/// Time that a connection waits for an answer while a daemon is connected. Without a daemon it waits on.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// The same while no person can be reached: one may look at the questions.
pub const NOBODY_DEADLINE: Duration = Duration::from_secs(10);

/// Questions that are open at the same time.
pub const MAX_QUESTIONS: usize = 16;

/// Connections that wait for answers at the same time.
pub const MAX_HELD: usize = 64;

/// Name and port of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Name that was looked up inside.
    pub name: HostName,
    /// Port that was connected to.
    pub port: u16,
}

/// Answer to a question. A yes and a no hold until the session ends: programs open many connections to one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The connections go on.
    Yes,
    /// The connections are refused.
    No,
    /// No person can be reached now. The question stays open for [`NOBODY_DEADLINE`]; the next connection asks again.
    Nobody,
}

/// An answer with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The answer.
    pub answer: Answer,
    /// Words of the person, after a no.
    pub because: Option<Arc<str>>,
}

impl From<Answer> for Given {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            because: None,
        }
    }
}

/// Reason why a connection got no yes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPermission {
    /// The person said no.
    #[error("the question was answered \"no\"{}", said(.0.as_deref()))]
    AnsweredNo(Option<Arc<str>>),
    /// No person could be asked.
    #[error("nobody could be asked")]
    NobodyToAsk,
    /// The deadline passed.
    #[error("the question was not answered within {}s", ANSWER_DEADLINE.as_secs())]
    NotAnswered,
    /// [`MAX_QUESTIONS`] or [`MAX_HELD`] is reached.
    #[error("too many questions are open")]
    TooManyQuestions,
}

/// A question as the daemon is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestion {
    /// Number within this session.
    pub id: u64,
    /// Subject of the question.
    pub target: Target,
}

#[derive(Debug)]
struct Waited {
    target: Target,
    connections: usize,
    answer: watch::Sender<Option<Given>>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<u64, Waited>,
    last_id: u64,
    /// Answers that hold until the session ends.
    remembered: HashMap<Target, Given>,
}

/// All questions of one session.
#[derive(Debug, Default)]
pub struct Questions {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// Number of connected daemons.
    daemons: watch::Sender<usize>,
}

impl Questions {
    /// Waits for permission to connect. Dropping the future withdraws the question unless others wait for it.
    pub async fn ask(&self, target: &Target) -> Result<(), NoPermission> {
        let mut waiting = match self.join(target)? {
            Joined::Answered(answer) => return permission(answer),
            Joined::Waiting(waiting) => waiting,
        };
        let mut daemons = self.daemons.subscribe();
        loop {
            let connected = *daemons.borrow_and_update() > 0;
            let is_unseen = (waiting.answer.borrow_and_update().as_ref())
                .is_some_and(|given| given.answer == Answer::Nobody);
            let (limit, unanswered) = match is_unseen {
                true => (NOBODY_DEADLINE, NoPermission::NobodyToAsk),
                false => (ANSWER_DEADLINE, NoPermission::NotAnswered),
            };
            let deadline = async {
                match connected {
                    true => clock::pause(limit).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = waiting.answer.changed() => {}
                // The deadline starts again with each daemon that can show the question.
                _ = daemons.changed() => continue,
                () = deadline => return Err(unanswered),
            }
            let given = waiting.answer.borrow().clone();
            match given.unwrap_or(Answer::No.into()) {
                given if given.answer == Answer::Nobody => {}
                given => return permission(given),
            }
        }
    }

    /// Brings an answer. False if there is no such question (any more).
    pub fn answer(&self, id: u64, given: Given) -> bool {
        let mut state = self.lock();
        if given.answer == Answer::Nobody {
            let question = state.open.get(&id);
            return question.is_some_and(|question| {
                question.answer.send_replace(Some(given));
                true
            });
        }
        let Some(question) = state.open.remove(&id) else {
            return false;
        };
        state.remembered.insert(question.target, given.clone());
        drop(state);
        question.answer.send_replace(Some(given));
        self.changed.send_replace(());
        true
    }

    /// Open questions, oldest first.
    pub fn open(&self) -> Vec<OpenQuestion> {
        let state = self.lock();
        let questions = state.open.iter().map(|(id, question)| OpenQuestion {
            id: *id,
            target: question.target.clone(),
        });
        questions.collect()
    }

    /// A receiver that is told of each change.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Counts a daemon as connected until the result is dropped.
    pub fn daemon_connected(&self) -> DaemonConnected<'_> {
        self.daemons.send_modify(|count| *count += 1);
        DaemonConnected(self)
    }

    fn join(&self, target: &Target) -> Result<Joined<'_>, NoPermission> {
        let mut state = self.lock();
        if let Some(answer) = state.remembered.get(target) {
            return Ok(Joined::Answered(answer.clone()));
        }
        let held: usize = state
            .open
            .values()
            .map(|question| question.connections)
            .sum();
        if held >= MAX_HELD {
            return Err(NoPermission::TooManyQuestions);
        }
        let same = |entry: &(&u64, &Waited)| entry.1.target == *target;
        let id = match state.open.iter().find(same) {
            Some((id, _)) => *id,
            None if state.open.len() >= MAX_QUESTIONS => {
                return Err(NoPermission::TooManyQuestions);
            }
            None => {
                state.last_id += 1;
                state.last_id
            }
        };
        let question = state.open.entry(id).or_insert_with(|| Waited {
            target: target.clone(),
            connections: 0,
            answer: watch::Sender::new(None),
        });
        question.connections += 1;
        let answer = question.answer.subscribe();
        drop(state);
        self.changed.send_replace(());
        Ok(Joined::Waiting(Waiting {
            questions: self,
            id,
            answer,
        }))
    }

    fn leave(&self, id: u64) {
        let mut state = self.lock();
        let Some(question) = state.open.get_mut(&id) else {
            return;
        };
        question.connections -= 1;
        if question.connections == 0 {
            state.open.remove(&id);
            drop(state);
            self.changed.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn permission(given: Given) -> Result<(), NoPermission> {
    match given.answer {
        Answer::Yes => Ok(()),
        Answer::No => Err(NoPermission::AnsweredNo(given.because)),
        Answer::Nobody => Err(NoPermission::NobodyToAsk),
    }
}

fn said(because: Option<&str>) -> String {
    because.map_or_else(String::new, |words| format!(": {words}"))
}

enum Joined<'a> {
    Answered(Given),
    Waiting(Waiting<'a>),
}

/// One connection that waits. Leaves the question when it is dropped.
struct Waiting<'a> {
    questions: &'a Questions,
    id: u64,
    answer: watch::Receiver<Option<Given>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.questions.leave(self.id);
    }
}

/// A connected daemon, which can show questions to a person.
pub struct DaemonConnected<'a>(&'a Questions);

impl Drop for DaemonConnected<'_> {
    fn drop(&mut self) {
        self.0.daemons.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str) -> Target {
        Target {
            name: HostName::parse(name).expect("a host name"),
            port: 443,
        }
    }

    type Held = tokio::task::JoinHandle<Result<(), NoPermission>>;

    fn hold(questions: &Arc<Questions>, name: &str) -> Held {
        let (questions, target) = (Arc::clone(questions), target(name));
        tokio::spawn(async move { questions.ask(&target).await })
    }

    /// Runs every task that can run.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn g124_five_connections_share_one_question() {
        let questions = Arc::new(Questions::default());
        let held: Vec<Held> = (0..5).map(|_| hold(&questions, "new.example")).collect();
        settle().await;
        let open = questions.open();
        assert_eq!(open.len(), 1);
        assert!(questions.answer(open[0].id, Answer::Yes.into()));
        for held in held {
            assert_eq!(held.await.expect("no panic"), Ok(()));
        }
        assert!(questions.open().is_empty());
        assert!(
            !questions.answer(open[0].id, Answer::No.into()),
            "answered already"
        );
    }

    #[tokio::test]
    async fn g124_question_is_withdrawn_when_the_last_connection_leaves() {
        let questions = Arc::new(Questions::default());
        let first = hold(&questions, "new.example");
        let second = hold(&questions, "new.example");
        settle().await;
        first.abort();
        settle().await;
        assert_eq!(questions.open().len(), 1);
        second.abort();
        settle().await;
        assert!(questions.open().is_empty());
    }

    #[tokio::test]
    async fn g125_yes_holds_for_this_session() {
        let questions = Arc::new(Questions::default());
        let held = hold(&questions, "new.example");
        settle().await;
        questions.answer(questions.open()[0].id, Answer::Yes.into());
        assert_eq!(held.await.expect("no panic"), Ok(()));
        let again = hold(&questions, "new.example");
        settle().await;
        assert!(questions.open().is_empty() && again.is_finished());
        let other = Questions::default();
        assert!(
            other.lock().remembered.is_empty(),
            "no other session profits"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connection_waits_a_moment_for_a_person_who_cannot_be_reached() {
        let questions = Arc::new(Questions::default());
        let _daemon = questions.daemon_connected();
        let held = hold(&questions, "new.example");
        settle().await;
        questions.answer(questions.open()[0].id, Answer::Nobody.into());
        clock::pause(NOBODY_DEADLINE / 2).await;
        assert_eq!(questions.open().len(), 1, "it can still be answered");
        let nobody = Err(NoPermission::NobodyToAsk);
        assert_eq!(held.await.expect("no panic"), nobody);
        assert!(questions.open().is_empty());

        let held = hold(&questions, "new.example");
        settle().await;
        let id = questions.open()[0].id;
        for answer in [Answer::Nobody, Answer::Yes] {
            assert!(questions.answer(id, answer.into()), "asks again");
            settle().await;
        }
        assert_eq!(held.await.expect("no panic"), Ok(()));
    }

    #[tokio::test]
    async fn no_holds_for_the_session() {
        let questions = Arc::new(Questions::default());
        let held = hold(&questions, "new.example");
        settle().await;
        let because: Option<Arc<str>> = Some("not today".into());
        let given = Given {
            answer: Answer::No,
            because: because.clone(),
        };
        questions.answer(questions.open()[0].id, given);
        let no = NoPermission::AnsweredNo(because);
        assert_eq!(
            no.to_string(),
            "the question was answered \"no\": not today"
        );
        assert_eq!(held.await.expect("no panic"), Err(no.clone()));
        let again = hold(&questions, "new.example");
        assert_eq!(again.await.expect("no panic"), Err(no));
    }

    #[tokio::test(start_paused = true)]
    async fn g126_deadline_counts_only_while_a_daemon_is_connected() {
        let questions = Arc::new(Questions::default());
        let held = hold(&questions, "new.example");
        clock::pause(ANSWER_DEADLINE * 100).await;
        assert!(!held.is_finished(), "no daemon: the connection waits");

        let daemon = questions.daemon_connected();
        clock::pause(ANSWER_DEADLINE / 2).await;
        drop(daemon);
        clock::pause(ANSWER_DEADLINE * 100).await;
        assert!(!held.is_finished(), "the daemon is away again");

        let _daemon = questions.daemon_connected();
        assert_eq!(
            held.await.expect("no panic"),
            Err(NoPermission::NotAnswered)
        );
        assert!(questions.open().is_empty());
    }

    #[tokio::test]
    async fn g123_open_questions_and_held_connections_are_bounded() {
        let questions = Arc::new(Questions::default());
        let held: Vec<Held> = (0..MAX_QUESTIONS)
            .map(|number| hold(&questions, &format!("n{number}.example")))
            .collect();
        settle().await;
        let over = hold(&questions, "over.example");
        assert_eq!(
            over.await.expect("no panic"),
            Err(NoPermission::TooManyQuestions)
        );
        let more: Vec<Held> = (MAX_QUESTIONS..MAX_HELD)
            .map(|_| hold(&questions, "n0.example"))
            .collect();
        settle().await;
        let over = hold(&questions, "n0.example");
        assert_eq!(
            over.await.expect("no panic"),
            Err(NoPermission::TooManyQuestions)
        );
        assert!(held.iter().chain(&more).all(|held| !held.is_finished()));
    }
}
