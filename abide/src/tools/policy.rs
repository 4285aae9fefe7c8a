//! Policy at the tools: commands of agents are judged before they are started, and answers of people are carried out.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use abide_api::{AuditLine, ToolResult};
use abide_core::held::Approval;
use abide_core::policy::{Action, Choice, Reason};
use abide_core::request::Caller;
use abide_core::{
    Agent, Answer, Asking, Closing, Conversation, Key, Millis, Outcome, QuestionId, Refusal,
    Request, shorten,
};
use abide_engine::config::{self, NetworkMode, SandboxMode};
use abide_engine::policy::{
    BrokenPolicy, JudgedCommand, PolicyEvaluation, audit::Unrecorded, changes_commands,
    shown_rules, shown_sandbox,
};
use abide_engine::store::{ClosedQuestion, closing_word};
use abide_engine::{BeyondSettings, Handle, HeldLaunch, LaunchOptions, QuestionView, Stdin};
use abide_output::mask::Mask;
use abide_output::printable::one_line;

use super::not_started::{refused, refused_by};
use super::{BadInput, Context, approved, equal_connections};

/// Longest reason of a person for a no, in characters.
const BECAUSE_CHARS: usize = 2_000;

/// Characters of a command that no rule is about in the audit log. Its session has all of it.
const UNRULED_CHARS: usize = 1_000;

/// Decision of the policy about a command of an agent.
pub(crate) enum StartDecision {
    /// The command may be started.
    Start,
    /// A person has to approve it first.
    Approve(Arc<Approval>),
    /// The command is refused.
    Refused(Box<ToolResult>),
}

/// Caller of a command that is judged.
pub(crate) struct CommandCaller<'a> {
    pub agent: &'a Agent,
    pub conversation: Option<&'a Conversation>,
    pub workspace: &'a Path,
    /// Variables that the caller itself has. Others in a launch are given by the call.
    pub inherited: &'a [(OsString, OsString)],
    /// Way in which the call reaches a person.
    pub asking: Asking,
}

/// Judges the command of a tool call. A person's own commands are not judged.
pub(crate) fn judge(
    handle: &Handle,
    context: &Context,
    command: &str,
    launch: &LaunchOptions,
) -> StartDecision {
    if context.is_person {
        return StartDecision::Start;
    }
    let caller = CommandCaller {
        agent: &context.agent,
        conversation: context.conversation.as_ref(),
        workspace: &context.root,
        inherited: &context.env,
        asking: context.asking,
    };
    caller.judge(handle, command, launch)
}

/// Judges the command of a condition. It runs again and again, so nobody can be asked about it.
pub(crate) fn judge_condition(
    handle: &Handle,
    context: &Context,
    command: &str,
    folder: &Path,
) -> Result<(), BadInput> {
    let launch = LaunchOptions::plain(folder.to_owned(), Vec::new(), None, Arc::default());
    match judge(handle, context, command, &launch) {
        StartDecision::Start => Ok(()),
        StartDecision::Refused(result) => Err(BadInput::new(result.text)),
        StartDecision::Approve(approval) => Err(BadInput::new(format!(
            "REFUSED: {} (rule: {}). Nothing was run: the command of a condition runs without a person, so it must not \
             need an answer.",
            approval.why, approval.rule
        ))),
    }
}

impl CommandCaller<'_> {
    /// Result of the rules for a command. `given`: the variables that the call has given.
    pub fn evaluate(
        &self,
        handle: &Handle,
        command: &str,
        launch: &LaunchOptions,
        given: &[(OsString, OsString)],
    ) -> Result<PolicyEvaluation, BrokenPolicy> {
        let stdin = match &launch.stdin {
            Stdin::Bytes(bytes) => Some(String::from_utf8_lossy(bytes)),
            Stdin::None | Stdin::Open => None,
        };
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        let env = given.iter();
        let env = env.filter(|(name, _)| name.to_str().is_some_and(changes_commands));
        let env: Vec<_> = env.map(|(name, value)| (text(name), text(value))).collect();
        handle.policy().judge(JudgedCommand {
            agent: self.agent,
            conversation: self.conversation,
            folder: &launch.cwd,
            workspace: self.workspace,
            command,
            env: &env,
            stdin: stdin.as_deref(),
        })
    }

    /// Sandbox and network that the settings permit the agent now.
    pub fn settings(&self, handle: &Handle) -> (SandboxMode, NetworkMode) {
        let (config, home) = (handle.config(), config::home());
        let settings = config.sandbox.of(&self.agent.0, self.workspace, &home);
        (settings.mode(), settings.network())
    }

    pub fn judge(&self, handle: &Handle, command: &str, launch: &LaunchOptions) -> StartDecision {
        let given = self.given(launch);
        let judged = self.evaluate(handle, command, launch, &given);
        let entry = |event: &str| self.audit_line(command, launch, event);
        // The file may be about to switch a sandbox on.
        if let Some(fault) = handle.live_config().fault() {
            return unusable(handle, entry("broken"), "configuration", fault.to_string());
        }
        let judged = match judged {
            Ok(judged) => judged,
            Err(broken) => {
                return unusable(handle, entry("broken"), "policy", broken.to_string());
            }
        };
        let (action, reason) = (judged.decision.action, judged.decision.reason.as_ref());
        let unnamed = otherwise(command, action);
        if let Some(more) = &launch.beyond_settings
            && action != Action::Deny
        {
            let line = AuditLine {
                why: Some(more.why.clone()),
                ..entry(Action::Ask.as_str())
            };
            if let Err(why) = handle.audit().record(line) {
                return unrecorded(&why);
            }
            let reason = beyond_settings(command, &more.why, reason);
            let offers = self.offers_beyond_settings(more);
            return self.approve(self.held(handle, launch, given), &reason, offers);
        }
        let reason = match (reason, action) {
            (None, Action::Allow) => {
                let mut started = entry(action.as_str());
                started.command = shorten(&started.command, UNRULED_CHARS);
                return match handle.audit().record(started) {
                    Err(why) if !why.is_full_disk() => unrecorded(&why),
                    // On a full disk the start itself fails, and says so.
                    _ => StartDecision::Start,
                };
            }
            (None, Action::Ask | Action::Deny) => &unnamed,
            (Some(reason), _) => reason,
        };
        let mask = Mask::of(launch.secrets.clone());
        let line = AuditLine {
            rule: Some(reason.name.clone()).filter(|name| !name.is_empty()),
            why: Some(reason.why.clone()),
            commands: judged
                .commands()
                .into_iter()
                .map(|part| mask.apply(part))
                .collect(),
            ..entry(action.as_str())
        };
        if let Err(why) = handle.audit().record(line)
            && action != Action::Deny
        {
            return unrecorded(&why);
        }
        match action {
            Action::Allow => StartDecision::Start,
            Action::Deny => StartDecision::Refused(Box::new(refused_by(reason))),
            Action::Ask => {
                let offers = judged.offers.iter();
                let offers = offers.map(|offer| (offer.choice, shown_rules(&offer.rules).into()));
                self.approve(self.held(handle, launch, given), reason, offers.collect())
            }
        }
    }

    /// Line of the audit log about a command, masked.
    fn audit_line(&self, command: &str, launch: &LaunchOptions, event: &str) -> AuditLine {
        let mask = Mask::of(launch.secrets.clone());
        AuditLine {
            event: event.into(),
            agent: self.agent.0.to_string(),
            folder: mask.apply(launch.cwd.to_string_lossy().into_owned()),
            command: mask.apply(command.to_owned()),
            ..AuditLine::default()
        }
    }

    /// Variables of a launch that the call has given.
    fn given(&self, launch: &LaunchOptions) -> Vec<(OsString, OsString)> {
        let given = launch.env.iter();
        let given = given.filter(|variable| !self.inherited.contains(variable));
        given.cloned().collect()
    }

    /// Answers about a command whose sandbox permits more than the settings. No rule can grant what it asks for, but a weaker
    /// sandbox can be accepted for longer.
    fn offers_beyond_settings(&self, beyond: &BeyondSettings) -> Vec<(Choice, Arc<str>)> {
        let nothing = Arc::<str>::default();
        let mut offers = vec![(Choice::Once, nothing.clone())];
        // A rule is written as text.
        if let (Some(by), Some(_)) = (beyond.weaker, self.workspace.to_str()) {
            let adds: Arc<str> = shown_sandbox(by, self.agent, self.workspace).into();
            offers.push((Choice::ThisAgent, adds.clone()));
            offers.push((Choice::AlwaysHere, adds));
        }
        offers.push((Choice::No, nothing));
        offers
    }

    fn held(
        &self,
        handle: &Handle,
        launch: &LaunchOptions,
        given: Vec<(OsString, OsString)>,
    ) -> HeldLaunch {
        HeldLaunch {
            options: launch.clone(),
            workspace: self.workspace.to_owned(),
            given,
            settings: self.settings(handle),
        }
    }

    fn approve(
        &self,
        held: HeldLaunch,
        reason: &Reason,
        offers: Vec<(Choice, Arc<str>)>,
    ) -> StartDecision {
        StartDecision::Approve(Arc::new(Approval {
            launch: held.to_bytes().into(),
            asking: match self.asking {
                Asking::Never => Asking::Elsewhere,
                asking => asking,
            },
            folder: held.options.cwd.to_string_lossy().into(),
            part: reason.part.as_str().into(),
            rule: reason.rule.as_str().into(),
            why: reason.why.as_str().into(),
            offers,
            person_only: reason.person_only,
        }))
    }
}

/// Reason of a question about a command that asks for more than its sandbox permits, besides the one of a rule.
fn beyond_settings(command: &str, more: &str, rule: Option<&Reason>) -> Reason {
    let also = rule.map_or_else(String::new, |rule| format!("{}; ", rule.why));
    Reason {
        part: command.into(),
        name: String::new(),
        rule: rule.map(|rule| rule.rule.clone()).unwrap_or_default(),
        why: format!("{also}{more}"),
        instead: None,
        person_only: rule.is_some_and(|rule| rule.person_only),
    }
}

/// Reason of a decision about commands that no rule names.
fn otherwise(command: &str, action: Action) -> Reason {
    let word = match action {
        Action::Deny => "the configuration refuses commands that no rule names",
        Action::Allow | Action::Ask => "the configuration asks before commands that no rule names",
    };
    Reason {
        part: command.into(),
        name: String::new(),
        rule: "otherwise".into(),
        why: word.into(),
        instead: None,
        person_only: false,
    }
}

/// Refusal because the decision about a command cannot be recorded.
fn unrecorded(why: &Unrecorded) -> StartDecision {
    let sentence = format!(
        "REFUSED: {}. Nothing was run. {CORRECT_AUDIT}",
        one_line(&why.to_string())
    );
    StartDecision::Refused(Box::new(refused(sentence, None)))
}

/// Next step when the audit log cannot be written.
const CORRECT_AUDIT: &str =
    "A person has to make room on the disk, or correct the permissions of the folder.";

/// Refusal because a file that decides about commands cannot be used.
fn unusable(handle: &Handle, line: AuditLine, what: &str, why: String) -> StartDecision {
    let sentence = format!(
        "REFUSED: the {what} cannot be used: {}. Nothing was run. A person has to correct the file.",
        one_line(&why)
    );
    handle.audit().append(AuditLine {
        why: Some(why),
        ..line
    });
    StartDecision::Refused(Box::new(refused(sentence, None)))
}

/// Answer of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenAnswer {
    pub choice: Choice,
    /// Words for the agent, after a no.
    pub because: Option<String>,
    /// After a yes about an idle session: time during which it is not asked about again.
    pub quiet_for: Option<Millis>,
    /// Idempotency key: the same answer under the same key is taken once, and not refused when it comes again.
    pub key: Option<String>,
}

impl GivenAnswer {
    /// Answer in words: `yes` is `once`, and `no, because …` has the reason in it.
    pub fn parse(words: &str) -> Option<Self> {
        let words = words.trim();
        let lower = words.to_lowercase();
        let (choice, because) = match lower.as_str() {
            "yes" => (Choice::Once, None),
            word => match Choice::ALL
                .into_iter()
                .find(|choice| choice.as_str() == word)
            {
                Some(choice) => (choice, None),
                None => {
                    let rest = lower
                        .strip_prefix("no, because")
                        .or_else(|| lower.strip_prefix("no because"))?;
                    let from = words.len() - rest.len();
                    let because = words.get(from..)?.trim();
                    (
                        Choice::No,
                        Some(because.to_owned()).filter(|words| !words.is_empty()),
                    )
                }
            },
        };
        Some(GivenAnswer {
            choice,
            because,
            quiet_for: None,
            key: None,
        })
    }

    fn answer(&self) -> Answer {
        match self.choice {
            Choice::No => Answer::No,
            Choice::Once | Choice::ThisAgent | Choice::AlwaysHere | Choice::Always => Answer::Yes,
        }
    }

    /// True if this is the answer that closed the question.
    pub fn has_closed(&self, closed: &ClosedQuestion) -> bool {
        let word = closing_word(Closing::Answered(self.answer()));
        self.key.is_some() && self.key == closed.key && closed.closing == word
    }

    /// Success, unless the answer adds a rule: a daemon that has taken it and is gone may not have written that.
    pub fn check_rule(&self) -> Result<(), AnswerFault> {
        match self.choice {
            Choice::Once | Choice::No => Ok(()),
            Choice::ThisAgent | Choice::AlwaysHere | Choice::Always => {
                Err(AnswerFault::NotRemembered(RULE_UNKNOWN.into()))
            }
        }
    }
}

/// Sentence about an answer whose rule is written after it counts, if the daemon that has taken it is gone.
const RULE_UNKNOWN: &str =
    "the answer counts, but its rule may be missing; `abide policy list` shows the rules";

/// Fault of an answer that was not taken, or only in part.
pub(crate) enum AnswerFault {
    /// The question does not have this answer.
    NotOffered(String),
    /// The engine refused the answer.
    Refused(Refusal),
    /// A yes to a command that the rules or the settings refuse by now, for this reason.
    NotPermitted(String),
    /// The answer could not be recorded, so it was not taken.
    NotRecorded(String),
    /// The answer counts, but its rule could not be written.
    NotRemembered(String),
    /// The daemon is stopping.
    Stopping,
}

/// Result of an answer that the engine has refused. An earlier daemon may have closed the question, perhaps with this
/// very answer, which comes again because nobody was told.
async fn answer_refused(
    handle: &Handle,
    refusal: Refusal,
    given: &GivenAnswer,
) -> Result<(), AnswerFault> {
    let Refusal::QuestionNotFound(id) = refusal else {
        return Err(AnswerFault::Refused(refusal));
    };
    let closed = handle.store_reader().closed_question(id).await;
    let closed = closed.ok().flatten();
    if let Some(closed) = &closed
        && given.has_closed(closed)
    {
        return given.check_rule();
    }
    let closing = match closed.as_ref().map(|closed| closed.closing.as_str()) {
        Some("yes") => Closing::Answered(Answer::Yes),
        Some("no") => Closing::Answered(Answer::No),
        Some("refused") => Closing::Answered(Answer::Refused),
        Some("expired") => Closing::Expired,
        Some("withdrawn") => Closing::Withdrawn,
        _ => return Err(AnswerFault::Refused(refusal)),
    };
    Err(AnswerFault::Refused(Refusal::QuestionClosed(id, closing)))
}

/// Lets a call that waits for a held command show its question, also if its tool asks no other questions.
pub(crate) fn show_held_question(handle: &Handle, context: &Context, request: &mut Request) {
    if let Request::Join {
        session, asking, ..
    } = request
    {
        let open = handle.published().questions();
        let mut held = open
            .iter()
            .filter(|question| question.state.held().is_some());
        if held.any(|question| question.state.session() == *session) {
            *asking = context.asking;
        }
    }
}

/// Gives the answer of a person to the engine, and keeps the rules that it adds. `by` is the channel of the answer. Both are
/// done to the end, also if the caller goes away meanwhile.
pub(crate) async fn answer(
    handle: &Handle,
    caller: Caller,
    question: QuestionId,
    given: GivenAnswer,
    by: &'static str,
) -> Result<(), AnswerFault> {
    let handle = handle.clone();
    let answered =
        tokio::spawn(async move { answer_now(&handle, caller, question, given, by).await });
    answered.await.unwrap_or(Err(AnswerFault::Stopping))
}

async fn answer_now(
    handle: &Handle,
    caller: Caller,
    question: QuestionId,
    given: GivenAnswer,
    by: &str,
) -> Result<(), AnswerFault> {
    let view = handle.published().question(question);
    let mut adds = None;
    if let Some(view) = &view {
        let offers = view.state.offers();
        match offers.iter().find(|(choice, _)| *choice == given.choice) {
            Some((_, text)) => adds = Some(text.clone()),
            // An idle session: yes or no.
            None if offers.is_empty() && matches!(given.choice, Choice::Once | Choice::No) => {}
            None if offers.is_empty() => {
                return Err(AnswerFault::NotOffered("yes, no".into()));
            }
            None => {
                let known: Vec<&str> = offers.iter().map(|(choice, _)| choice.as_str()).collect();
                return Err(AnswerFault::NotOffered(known.join(", ")));
            }
        }
        if let Some(adds) = &adds {
            let recorded = audit_answer(handle, view, &given, adds, by);
            // A no takes effect all the same.
            if let (Err(why), Answer::Yes) = (recorded, given.answer()) {
                return Err(AnswerFault::NotRecorded(format!(
                    "{why}. The question stays open. {CORRECT_AUDIT}"
                )));
            }
        }
    }
    let held = view.as_ref().and_then(|view| view.state.held());
    let refused = held.filter(|_| given.answer() == Answer::Yes);
    let refused = refused.and_then(|held| approved::refusal(handle, question, held));
    let because = refused.as_ref().or(given.because.as_ref());
    let request = Request::Answer {
        question,
        answer: match refused {
            Some(_) => Answer::Refused,
            None => given.answer(),
        },
        quiet_for: given.quiet_for,
        because: because.map(|words| shorten(words, BECAUSE_CHARS).into()),
        key: given.key.as_deref().map(|key| Key(key.into())),
    };
    let asker = caller.clone();
    let pending = handle.call(caller, request, None).await;
    match pending.done().await {
        None => return Err(AnswerFault::Stopping),
        Some(Outcome::Refused(refusal)) => return answer_refused(handle, refusal, &given).await,
        Some(_) => {}
    }
    if let Some(why) = refused {
        return Err(AnswerFault::NotPermitted(why));
    }
    if let (Some(view), Some(adds)) = (view, adds) {
        remember(handle, &view, given.choice, &adds)?;
        if view.state.connection().is_some() {
            equal_connections::allow(handle, &asker, by).await;
        }
    }
    Ok(())
}

/// Writes the answer to a question into the audit log.
pub(super) fn audit_answer(
    handle: &Handle,
    question: &QuestionView,
    given: &GivenAnswer,
    adds: &str,
    by: &str,
) -> Result<(), Unrecorded> {
    let state = &question.state;
    let held = state.held();
    let connection = state.connection();
    let secrets = match held {
        Some(held) => HeldLaunch::secrets_of(held),
        None => handle.secrets(state.session()),
    };
    handle.audit().record(AuditLine {
        event: "answered".into(),
        agent: question.agent.0.to_string(),
        folder: (held.map(|held| held.approval.folder.to_string()))
            .or_else(|| connection.map(|connection| connection.folder.to_string()))
            .unwrap_or_default(),
        command: Mask::of(secrets).apply(question.command.to_string()),
        connection: connection.map(|connection| format!("{}:{}", connection.name, connection.port)),
        question_id: Some(question.id.to_string()),
        answer: Some(given.choice.as_str().into()),
        why: given.because.clone(),
        by: Some(by.into()),
        added: Some(adds.to_owned())
            .filter(|text| !text.is_empty())
            .into_iter()
            .collect(),
        ..AuditLine::default()
    })
}

/// Keeps what an answer adds: rules, or a name of the allowlist.
fn remember(
    handle: &Handle,
    question: &QuestionView,
    choice: Choice,
    adds: &str,
) -> Result<(), AnswerFault> {
    let (kept, what) = match (question.state.held(), question.state.connection()) {
        (Some(held), _) if !adds.is_empty() => {
            let conversation = held.conversation.as_ref();
            let kept = handle.policy().remember_text(choice, adds, conversation);
            (kept, "the command is started, but the rule")
        }
        (_, Some(connection)) => {
            let session = handle.published().session(question.state.session());
            let conversation = session.and_then(|view| view.state.conversation.clone());
            let host = format!("{}:{}", connection.name, connection.port);
            let kept = handle.policy().remember_host(
                choice,
                &host,
                &question.agent,
                conversation.as_ref(),
                Path::new(&*connection.folder),
            );
            (kept, "the connection continues, but the name")
        }
        _ => return Ok(()),
    };
    kept.map_err(|fault| {
        AnswerFault::NotRemembered(format!("{what} could not be written: {fault}"))
    })
}
