//! Commands that a person must approve: the question, the calls that wait for its answer, and the start.
//!
//! The command has the id of its session from the beginning, so a command is started at most once, also by another
//! daemon. The start waits for the commit of the answer.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::people::Given;
use super::{Alarm, Engine, Step};
use crate::effect::{Effect, Update};
use crate::held::{self, Approval, HeldCommand, NotStarted, WhyHeld};
use crate::id::{Agent, CallId, Conversation, Key, QuestionId, SessionId};
use crate::limit;
use crate::message::{self, About};
use crate::question::{Answer, ClosedQuestion, Closing, Question, Subject};
use crate::record::Record;
use crate::request::{Refusal, Run};
use crate::session::Session;
use crate::time::{Millis, Mono, Wall};
use crate::wait::{Asking, AwaitedAnswer, Outcome, Wait};

/// Command that will not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    question: QuestionId,
    agent: Agent,
    why: NotStarted,
}

impl Engine {
    /// Opens a question about a command, or joins the one that is open about an equal command of the same
    /// conversation. `wait` is the wait for its session.
    pub(super) fn hold(
        &mut self,
        step: &mut Step<'_>,
        wait: Wait,
        agent: Agent,
        conversation: Option<Conversation>,
        run: Run,
        approval: Arc<Approval>,
    ) -> Result<(), Refusal> {
        self.has_room_to_wait()?;
        let asking = approval.asking;
        let equal = self.equal_question(&agent, &conversation, &run, &approval);
        let (question, session) = match equal {
            Some((question, session)) => {
                if let Some(key) = run.key {
                    self.add_key(step, question, key);
                }
                (question, session)
            }
            None => {
                self.may_ask(step.now.mono, &agent)?;
                let held = HeldCommand {
                    agent,
                    conversation,
                    started_by: run.started_by(),
                    command: run.command,
                    deadline: run.deadline,
                    idle: run.idle,
                    inactivity: run.inactivity,
                    keys: run.key.into_iter().collect(),
                    approval,
                };
                (self.ask_about(step, wait.session, held), wait.session)
            }
        };
        self.join_question(step, question, asking, false, Wait { session, ..wait })
    }

    /// Open question about the command of the same agent under the key of this call. Launch data does not have to be
    /// equal: the fingerprints of secrets in it differ each time.
    pub(super) fn held_under_key(
        &self,
        agent: &Agent,
        run: &Run,
    ) -> Result<Option<(QuestionId, SessionId)>, Refusal> {
        let Some(key) = &run.key else {
            return Ok(None);
        };
        let name = key.name();
        for (session, question) in &self.held {
            let Some(held) = self.questions.get(*question).and_then(Question::held) else {
                continue;
            };
            if held.agent == *agent && held.keys.iter().any(|known| known.name() == name) {
                return match key.repeats(&held.keys, &held.command, &run.command) {
                    true => Ok(Some((*question, *session))),
                    false => Err(Refusal::KeyReused(name)),
                };
            }
        }
        Ok(None)
    }

    /// Open question about the same command with the same launch data and limits, of the same conversation or of one
    /// that is not connected any more: a client that was restarted asks under another name.
    fn equal_question(
        &self,
        agent: &Agent,
        conversation: &Option<Conversation>,
        run: &Run,
        approval: &Approval,
    ) -> Option<(QuestionId, SessionId)> {
        self.held.iter().find_map(|(session, question)| {
            let held = self.questions.get(*question)?.held()?;
            let equal = held.command == run.command
                && held.approval.launch == approval.launch
                && (held.deadline, held.idle, held.inactivity)
                    == (run.deadline, run.idle, run.inactivity);
            let is_elsewhere = |of: &Conversation| {
                conversation.as_ref() != Some(of) && self.conversations.is_connected(agent, of)
            };
            let own = held.agent == *agent && !held.conversation.as_ref().is_some_and(is_elsewhere);
            (own && equal).then_some((*question, *session))
        })
    }

    /// Command of a session that waits for the answer of a person.
    pub(super) fn held_command(&self, session: SessionId) -> Option<&HeldCommand> {
        let question = self.questions.get(*self.held.get(&session)?)?;
        question.held().map(Arc::as_ref)
    }

    /// Refuses a question if there are too many, of this agent or of all.
    fn may_ask(&mut self, now: Mono, agent: &Agent) -> Result<(), Refusal> {
        if self.held.len() >= limit::HELD_COMMANDS {
            let limit = limit::HELD_COMMANDS;
            return Err(Refusal::TooMany(format!(
                "too many commands wait for the answer of a person (limit {limit}); nothing was run"
            )));
        }
        let is_recent = |at: &Mono| now.since(*at) < limit::QUESTION_TIME;
        self.recently_asked.retain(|_, times| {
            times.retain(is_recent);
            !times.is_empty()
        });
        let times = self.recently_asked.entry(agent.clone()).or_default();
        if times.len() >= limit::QUESTIONS_PER_AGENT {
            let limit = limit::QUESTIONS_PER_AGENT;
            return Err(Refusal::TooMany(format!(
                "this agent has asked {limit} questions within a minute; nothing was run. Wait for answers, or do \
                 something that needs none"
            )));
        }
        times.push_back(now);
        Ok(())
    }

    fn ask_about(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        held: HeldCommand,
    ) -> QuestionId {
        let asked = step.now.wall;
        let subject = Subject::Command {
            session,
            held: Arc::new(held),
        };
        let state = Question { subject, asked };
        let question = self.questions.open(state.clone());
        self.held.insert(session, question);
        self.set_expiry(step, question, asked);
        self.record_with_retry(step, Record::Asked { question, state });
        step.push(Effect::Ask { question });
        question
    }

    /// Adds the key of another call that wants the command. Of too many, the keys of the first call and of the last ones
    /// stay: those of calls in between were answered long ago.
    fn add_key(&mut self, step: &mut Step<'_>, question: QuestionId, key: Key) {
        let Some(mut state) = self.questions.get(question).cloned() else {
            return;
        };
        if let Subject::Command { held, .. } = &mut state.subject {
            let keys = &mut Arc::make_mut(held).keys;
            if keys.len() == limit::KEYS_PER_COMMAND {
                keys.remove(1);
            }
            keys.push(key);
        }
        self.questions.reopen(question, state.clone());
        step.push(Effect::Record(Record::Asked { question, state }));
    }

    fn set_expiry(&mut self, step: &Step<'_>, question: QuestionId, asked: Wall) {
        let passed = step.now.wall.0.saturating_sub(asked.0);
        let left = Millis(limit::HELD_TIME.0.saturating_sub(passed));
        let alarm = Alarm::Expired(question);
        self.alarms.insert((step.now.mono + left, alarm));
    }

    /// Lets a call wait for the answer, or answers it at once if no person can be asked and it does not wait for one.
    fn wait_for_answer(&mut self, step: &mut Step<'_>, answer: AwaitedAnswer, wait: Wait) {
        let (call, question, limit) = (wait.call, answer.question, answer.until);
        let answer = AwaitedAnswer {
            until: wait.until.map_or(limit, |until| until.min(limit)),
            ..answer
        };
        self.begin_wait(Wait {
            answer: Some(answer),
            ..wait
        });
        if answer.asking.reaches_a_person() {
            let update = Update::Asked(question);
            step.push(Effect::Tell { call, update });
        }
        self.release_if_stranded(step, question);
    }

    /// Waits for a command by the id of its session. After the answer this is a wait for the session.
    pub(super) fn join_held(
        &mut self,
        step: &mut Step<'_>,
        caller: &Option<Agent>,
        wait: Wait,
    ) -> Result<(), Refusal> {
        let own = |agent: &Agent| caller.as_ref().is_none_or(|caller| caller == agent);
        let (call, session, asking) = (wait.call, wait.session, wait.asking);
        if let Some(question) = self.held.get(&session).copied() {
            let held = self.questions.get(question).and_then(Question::held);
            if held.is_some_and(|held| own(&held.agent)) {
                return self.join_question(step, question, asking, true, wait);
            }
        }
        if let Some(refused) = self.not_started.get(&session).filter(|r| own(&r.agent)) {
            step.reply(
                call,
                Outcome::NotStarted(session, refused.question, refused.why.clone()),
            );
            return Ok(());
        }
        match self.session(session).filter(|session| own(&session.agent)) {
            Some(_) => self.wait_for(step, wait),
            None => Err(Refusal::SessionNotFound(session)),
        }
    }

    /// Lets a call wait for the answer to an open question about a command.
    pub(super) fn join_question(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        asking: Asking,
        waits_unasked: bool,
        wait: Wait,
    ) -> Result<(), Refusal> {
        let held = self.questions.get(question).and_then(Question::held);
        let Some(held) = held else {
            return Err(Refusal::SessionNotFound(wait.session));
        };
        let asking = match held.approval.person_only {
            true => Asking::Elsewhere,
            false => asking,
        };
        let limit = held.deadline.or(held.idle);
        let answer = AwaitedAnswer {
            question,
            asking,
            until: step.now.mono + limit.unwrap_or(limit::DEADLINE_DEFAULT),
            waits_unasked,
        };
        self.has_room_to_wait()?;
        self.wait_for_answer(step, answer, wait);
        Ok(())
    }

    /// Tells the calls that wait for the answer of a question and can show it.
    pub(super) fn tell_held(&self, step: &mut Step<'_>, question: QuestionId, update: Update) {
        for (wait, _) in self
            .waits_for_answer(question)
            .filter(|(_, answer)| answer.asking.reaches_a_person())
        {
            let call = wait.call;
            step.push(Effect::Tell { call, update });
        }
    }

    /// Carries out the answer of a person about a command.
    pub(super) fn command_answered(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        session: SessionId,
        held: Arc<HeldCommand>,
        given: Given,
    ) -> Result<(), Refusal> {
        let (closing, because) = (Closing::Answered(given.answer), given.because);
        match given.answer {
            Answer::Yes => {
                self.has_room_to_run(session)?;
                self.close_under(step, question, closing, given.key);
                self.record_held(step, question, held::Record::Approved { session });
                if !self.has_held_wait(question, true) {
                    self.post_answer(step, question, &held);
                }
                self.start_held(step, question, session, held);
            }
            Answer::No | Answer::Refused => {
                self.close_under(step, question, closing, given.key);
                let record = held::Record::Declined {
                    because: because.clone(),
                };
                self.record_held(step, question, record);
                let why = match given.answer {
                    Answer::Refused => NotStarted::Refused(because.unwrap_or_default()),
                    Answer::Yes | Answer::No => NotStarted::Declined(because),
                };
                self.refuse_held(step, question, session, &held, why);
            }
        }
        Ok(())
    }

    fn record_held(&mut self, step: &mut Step<'_>, question: QuestionId, record: held::Record) {
        self.record_with_retry(step, Record::Held { question, record });
    }

    fn has_held_wait(&self, question: QuestionId, for_owner: bool) -> bool {
        let mut waits = self.waits_for_answer(question);
        waits.any(|(wait, _)| wait.for_owner || !for_owner)
    }

    /// Posts a message about what became of a command that no call waits for.
    fn post_answer(&mut self, step: &mut Step<'_>, question: QuestionId, held: &HeldCommand) {
        let content = message::MessageContent {
            about: About::Question(question),
            conversation: held.conversation.clone(),
            wakes: true,
        };
        self.post_with_retry(step, held.agent.clone(), content);
    }

    /// Starts an approved command. The calls that wait for the answer wait for its session from now on.
    fn start_held(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        id: SessionId,
        held: Arc<HeldCommand>,
    ) {
        self.forget_held(id, question);
        let session = Session {
            started_by: held.started_by,
            idle: held.idle,
            inactivity: held.inactivity,
            ..Session::starting(
                held.agent.clone(),
                held.conversation.clone(),
                held.command.clone(),
                keys_of(question, &held),
                step.now.wall,
            )
        };
        self.keep_starting(step, id, session, held.deadline);
        self.approved.insert(id, question);
        let mut calls = Vec::new();
        for call in self.held_calls(question) {
            if let Some(wait) = self.end_wait(step, call) {
                let answer = None;
                self.begin_wait(Wait { answer, ..wait });
                calls.push(call);
            }
        }
        step.push(Effect::StartHeld {
            session: id,
            held,
            calls,
        });
    }

    /// Answers the calls that wait for a command that will not be started, or posts a message if there is none.
    fn refuse_held(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        session: SessionId,
        held: &HeldCommand,
        why: NotStarted,
    ) {
        self.forget_held(session, question);
        if self.not_started_order.len() == limit::CLOSED_QUESTIONS
            && let Some(oldest) = self.not_started_order.pop_front()
        {
            self.not_started.remove(&oldest);
        }
        let refused = Refused {
            question,
            agent: held.agent.clone(),
            why: why.clone(),
        };
        self.not_started.insert(session, refused);
        self.not_started_order.push_back(session);
        let told = self.has_held_wait(question, true);
        for call in self.held_calls(question) {
            self.reply_held(step, call, why.clone());
        }
        if !told && why.tells_owner() {
            self.post_answer(step, question, held);
        }
    }

    fn forget_held(&mut self, session: SessionId, question: QuestionId) {
        self.held.remove(&session);
        let expiry = Alarm::Expired(question);
        self.alarms.retain(|(_, alarm)| *alarm != expiry);
    }

    fn held_calls(&self, question: QuestionId) -> Vec<CallId> {
        let waits = self.waits_for_answer(question);
        waits.map(|(wait, _)| wait.call).collect()
    }

    /// Calls that wait for the answer to a question.
    fn waits_for_answer(
        &self,
        question: QuestionId,
    ) -> impl Iterator<Item = (&Wait, AwaitedAnswer)> {
        let waits = self.waits.values();
        let waits = waits.filter_map(|wait| Some((wait, wait.answer?)));
        waits.filter(move |(_, answer)| answer.question == question)
    }

    /// Answers a call that waits for the answer of a person.
    pub(super) fn reply_held(&mut self, step: &mut Step<'_>, call: CallId, why: NotStarted) {
        if let Some(wait) = self.end_wait(step, call)
            && let Some(question) = wait.question()
        {
            step.reply(call, Outcome::NotStarted(wait.session, question, why));
        }
    }

    /// Answers all calls that wait for an answer that no person can give now.
    pub(super) fn release_stranded_held(&mut self, step: &mut Step<'_>) {
        let waits = self.waits.values();
        let questions: BTreeSet<QuestionId> = waits.filter_map(Wait::question).collect();
        for question in questions {
            self.release_if_stranded(step, question);
        }
    }

    /// Answers the calls that wait for an answer, if no person can give it now, but for those that wait all the same. The
    /// question stays open.
    pub(super) fn release_if_stranded(&mut self, step: &mut Step<'_>, question: QuestionId) {
        let is_here =
            (self.waits_for_answer(question)).any(|(_, answer)| answer.asking.reaches_a_person());
        if self.watchers > 0 || is_here {
            return;
        }
        if self.page_is_expected(step) {
            return;
        }
        let unable = (self.waits_for_answer(question)).filter(|(_, answer)| !answer.waits_unasked);
        let calls: Vec<CallId> = unable.map(|(wait, _)| wait.call).collect();
        for call in calls {
            self.reply_unanswered(step, call, question, WhyHeld::NobodyToAsk);
        }
    }

    /// Answers a call without the answer of a person. The question stays open for a day, which the call may be told only
    /// of a question that is stored: another is withdrawn when no call waits for it any more.
    pub(super) fn reply_unanswered(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        question: QuestionId,
        why: WhyHeld,
    ) {
        let why = match self.is_unstored(question) {
            true => NotStarted::NotStored,
            false => NotStarted::Held(why),
        };
        self.reply_held(step, call, why);
        self.withdraw_unstored(step, question);
    }

    /// Changes the answers of failed commits that promise to keep a question which the database does not have.
    pub(super) fn refuse_unstored(&mut self, step: &mut Step<'_>) {
        let mut unstored = BTreeSet::new();
        for effect in step.effects.iter_mut() {
            if let Effect::Reply { outcome, .. } = effect
                && let Outcome::NotStarted(_, question, why @ NotStarted::Held(_)) = outcome
                && (self.is_unstored(*question)
                    || (self.uncommitted_events.iter()).any(|event| event.asks(*question)))
            {
                *why = NotStarted::NotStored;
                unstored.insert(*question);
            }
        }
        for question in unstored {
            self.withdraw_unstored(step, question);
        }
    }

    /// Withdraws a question that could not be stored and for which no call waits. Nothing of it is recorded.
    fn withdraw_unstored(&mut self, step: &mut Step<'_>, question: QuestionId) {
        if !self.is_unstored(question) || self.has_held_wait(question, false) {
            return;
        }
        let Some(state) = self.questions.get(question).cloned() else {
            return;
        };
        let Some(held) = state.held() else {
            return;
        };
        let closing = Closing::Withdrawn;
        self.events_to_retry.retain(|event| !event.asks(question));
        let closed = ClosedQuestion {
            closing,
            owner: Some(held.agent.clone()),
            key: None,
        };
        self.questions.close(question, closed);
        step.push(Effect::Close { question, closing });
        self.refuse_held(step, question, state.session(), held, NotStarted::NotStored);
    }

    /// Withdraws the question of a call that a person interrupted, unless another call waits for it.
    pub(super) fn withdraw_held(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        question: QuestionId,
    ) {
        self.reply_held(step, call, NotStarted::Withdrawn);
        if !self.has_held_wait(question, false) {
            self.end_question(step, question, Closing::Withdrawn, NotStarted::Withdrawn);
        }
    }

    /// Withdraws the question about a command that its agent does not want any more, or that a person kills, of which the
    /// agent is told. `false`: no command of this session waits for an answer.
    pub(super) fn kill_held(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: &Option<Agent>,
        session: SessionId,
    ) -> bool {
        let question = self.held.get(&session).copied();
        let held = self.held_command(session).cloned();
        let own = |held: &HeldCommand| caller.as_ref().is_none_or(|me| *me == held.agent);
        let Some((question, held)) = question.zip(held.filter(own)) else {
            return false;
        };
        let is_told = caller.is_some() || self.has_held_wait(question, true);
        self.end_question(step, question, Closing::Withdrawn, NotStarted::Killed);
        if !is_told {
            self.post_answer(step, question, &held);
        }
        step.reply(
            call,
            Outcome::NotStarted(session, question, NotStarted::Killed),
        );
        true
    }

    /// Handles that no person answered in time.
    pub(super) fn held_expired(&mut self, step: &mut Step<'_>, question: QuestionId) {
        self.end_question(step, question, Closing::Expired, NotStarted::Expired);
    }

    fn end_question(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        closing: Closing,
        why: NotStarted,
    ) {
        let Some(state) = self.questions.get(question).cloned() else {
            return;
        };
        if let Some(held) = state.held() {
            self.close(step, question, closing);
            self.refuse_held(step, question, state.session(), held, why);
        }
    }

    /// Asks the question of an earlier daemon again. If its answer was carried out and not recorded, the session is
    /// there.
    pub(super) fn held_recovered(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        session: SessionId,
        held: &HeldCommand,
    ) {
        if self.was_started(question, session, held) {
            self.close(step, question, Closing::Answered(Answer::Yes));
            self.record_held(step, question, held::Record::Started);
            return;
        }
        let asked = self.questions.get(question).map(|state| state.asked);
        self.held.insert(session, question);
        // A page that showed the question to a person connects again.
        self.page_expected_until = step.now.mono + limit::PAGE_RELOAD;
        self.set_expiry(step, question, asked.unwrap_or(step.now.wall));
        step.push(Effect::Ask { question });
    }

    /// Starts a command that was approved before the restart, unless it was started or is refused by now.
    pub(super) fn approved_before(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        session: SessionId,
        held: Arc<HeldCommand>,
        refused: Option<Arc<str>>,
    ) {
        match refused {
            _ if self.was_started(question, session, &held) => {
                self.record_held(step, question, held::Record::Started);
            }
            None => self.start_held(step, question, session, held),
            Some(because) => {
                let why = NotStarted::Refused(because.clone());
                self.record_held(step, question, held::Record::Refused { because });
                self.refuse_held(step, question, session, &held, why);
            }
        }
    }

    fn was_started(&self, question: QuestionId, session: SessionId, held: &HeldCommand) -> bool {
        let mut keys = keys_of(question, held).into_iter();
        keys.any(|key| {
            let name = (held.agent.clone(), key.name());
            self.session_by_key.contains_key(&name)
        }) || self.sessions.contains_key(&session)
    }

    /// Records that the command of a session was started, or could not be: it is not started again.
    pub(super) fn held_started(&mut self, step: &mut Step<'_>, session: SessionId) {
        if let Some(question) = self.approved.remove(&session) {
            self.record_held(step, question, held::Record::Started);
        }
    }
}

/// Keys of a command, or one of its own if its callers gave none.
fn keys_of(question: QuestionId, held: &HeldCommand) -> Vec<Key> {
    match held.keys.is_empty() {
        true => [Key(format!("held:{question}").into())].into(),
        false => held.keys.clone(),
    }
}
