//! Policy at the tools: commands of agents are judged before they are started.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use abide_api::{AuditLine, ToolResult};
use abide_core::held::Approval;
use abide_core::policy::{Action, Choice, Reason};
use abide_core::{Agent, Asking, Conversation, Request, shorten};
use abide_engine::config::{self, NetworkMode, SandboxMode};
use abide_engine::policy::{
    BrokenPolicy, JudgedCommand, PolicyEvaluation, audit::Unrecorded, changes_commands,
    shown_rules, shown_sandbox,
};
use abide_engine::{BeyondSettings, Handle, HeldLaunch, LaunchOptions, Stdin};
use abide_output::mask::Mask;
use abide_output::printable::one_line;

use super::not_started::{refused, refused_by};
use super::{BadInput, Context};

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
                    Err(why) if !why.is_shortage() => unrecorded(&why),
                    // The start itself fails, or its result says so.
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
pub(super) const CORRECT_AUDIT: &str = "A person has to correct this, for example make room on the disk or change the permissions of the folder.";

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
