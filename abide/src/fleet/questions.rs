//! Open questions of other machines, for one inbox. Each machine that has some is asked; an answer is forwarded to it, and
//! its engine decides: the first one counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use abide_api::{ClosedQuestion, Id, QuestionDetails, QuestionEvent, QuestionPage};
use abide_core::fleet::MachineId;
use abide_core::{Agent, QuestionId};
use abide_engine::Handle;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::machine_link::OtherMachines;
use axum::body::Bytes;
use axum::http::Method;
use futures_util::future::join_all;
use http_body_util::Full;

use super::forward;

/// Machines that are asked for their questions at once.
const MAX_ASKED: usize = 64;

/// Questions of other machines that an agent may see; `None` is a person. A machine that does not answer is left out.
pub async fn questions(handle: &Handle, agent: Option<&Agent>) -> Vec<QuestionDetails> {
    let Some(machines) = handle.other_machines() else {
        return Vec::new();
    };
    let mut with_questions = machines.question_machines().await;
    with_questions.retain(|id| !machines.is_silent(*id));
    with_questions.truncate(MAX_ASKED);
    let asked = with_questions
        .into_iter()
        .map(|machine| questions_of(machines, machine, agent));
    join_all(asked)
        .await
        .into_iter()
        .flatten()
        .flatten()
        .collect()
}

/// Number of open questions of other machines that an agent may see, by their rows: no machine is asked.
pub async fn open_questions(handle: &Handle, agent: Option<&Agent>) -> usize {
    match handle.other_machines() {
        Some(machines) => machines.open_question_count(agent).await,
        None => 0,
    }
}

async fn questions_of(
    machines: &Arc<OtherMachines>,
    machine: MachineId,
    agent: Option<&Agent>,
) -> Option<Vec<QuestionDetails>> {
    let request = forward::request(Method::GET, "/v1/questions", agent, true);
    let request = request.body(Full::new(Bytes::new())).ok()?;
    let (known, response) = forward::send_whole(machines, machine, request).await.ok()?;
    let page: QuestionPage = serde_json::from_slice(response.body()).ok()?;
    let as_of = SystemClock.now().wall.0;
    let questions = page.questions.into_iter().map(|mut details| {
        details.question.machine = Some(known.name.clone());
        details.question.as_of = Some(as_of);
        details
    });
    Some(questions.collect())
}

/// Questions of other machines as one client knows them.
pub struct QuestionFollower {
    handle: Handle,
    known: BTreeMap<QuestionId, Known>,
}

/// Open question of another machine.
enum Known {
    /// Was told, and belongs to this agent.
    Told(Agent),
    /// Open by its row, but not listed by its machine at so many looks.
    Unlisted(u8),
}

/// Looks after which a question that its machine does not list is not asked for any more.
const MAX_LOOKS: u8 = 10;

impl QuestionFollower {
    /// Follower that knows no question yet: the first look finds all.
    pub fn new(handle: Handle) -> Self {
        QuestionFollower {
            handle,
            known: BTreeMap::new(),
        }
    }

    /// Questions that were asked or closed since the last look, with their agents. None if the database is away.
    pub async fn look(&mut self) -> Vec<(Agent, QuestionEvent)> {
        let Some(machines) = self.handle.other_machines() else {
            return Vec::new();
        };
        let Some(open) = machines.open_questions().await else {
            return Vec::new();
        };
        let open: BTreeSet<QuestionId> = open.into_iter().collect();
        let mut events = self.closed(&open).await;
        let mut is_wanted = false;
        for id in open {
            match self.known.entry(id).or_insert(Known::Unlisted(0)) {
                Known::Unlisted(looks) if *looks < MAX_LOOKS => {
                    *looks += 1;
                    is_wanted = true;
                }
                Known::Unlisted(_) | Known::Told(_) => {}
            }
        }
        if is_wanted {
            events.extend(self.asked().await);
        }
        events
    }

    async fn closed(&mut self, open: &BTreeSet<QuestionId>) -> Vec<(Agent, QuestionEvent)> {
        let gone = self.known.keys().filter(|id| !open.contains(id));
        let gone: Vec<QuestionId> = gone.copied().collect();
        let mut events = Vec::new();
        for id in gone {
            let Some(Known::Told(agent)) = self.known.remove(&id) else {
                continue;
            };
            let closed = self.handle.store_reader().closed_question(id).await;
            let closing = closed.ok().flatten().map(|closed| closed.closing.as_str());
            let event = QuestionEvent::Closed(ClosedQuestion {
                question_id: Id(id),
                closing: closing.unwrap_or_default().into(),
            });
            events.push((agent, event));
        }
        events
    }

    async fn asked(&mut self) -> Vec<(Agent, QuestionEvent)> {
        let mut events = Vec::new();
        for details in questions(&self.handle, None).await {
            let id = details.question.question_id.0;
            let agent = Agent(details.question.agent.as_str().into());
            let told = self.known.insert(id, Known::Told(agent.clone()));
            if !matches!(told, Some(Known::Told(_))) {
                events.push((agent, QuestionEvent::Open(Box::new(details))));
            }
        }
        events
    }
}
