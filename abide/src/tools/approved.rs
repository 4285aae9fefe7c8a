//! Command that a person allows: it is judged again before it is started, since rules and settings may have changed while it
//! was held.

use abide_api::AuditLine;
use abide_core::policy::Action;
use abide_core::{HeldCommand, QuestionId};
use abide_engine::config::{NetworkMode, SandboxMode};
use abide_engine::{Handle, HeldLaunch};
use abide_output::mask::Mask;
use abide_output::printable::one_line;

use super::not_started::by_rule;
use super::policy::CommandCaller;

/// Reason why a held command is not started although a person says yes, also written into the audit log. `None`: it may be
/// started.
pub fn refusal(handle: &Handle, question: QuestionId, held: &HeldCommand) -> Option<String> {
    // Damaged launch data starts nothing.
    let launch = HeldLaunch::from_bytes(&held.approval.launch)?;
    let (event, rule, why) = refused_now(handle, held, &launch)?;
    handle.audit().append(AuditLine {
        event: event.into(),
        agent: held.agent.0.to_string(),
        folder: held.approval.folder.to_string(),
        command: Mask::of(launch.options.secrets).apply(held.command.to_string()),
        question_id: Some(question.to_string()),
        rule,
        why: Some(why.clone()),
        ..AuditLine::default()
    });
    Some(why)
}

/// Event of the audit log, name of the rule and reason of a refusal.
fn refused_now(
    handle: &Handle,
    held: &HeldCommand,
    launch: &HeldLaunch,
) -> Option<(&'static str, Option<String>, String)> {
    let unusable = |what: &str, why: &str| {
        let why = one_line(why);
        Some(("broken", None, format!("the {what} cannot be used: {why}")))
    };
    if let Some(fault) = handle.live_config().fault() {
        return unusable("configuration", &fault);
    }
    let caller = CommandCaller {
        agent: &held.agent,
        conversation: held.conversation.as_ref(),
        workspace: &launch.workspace,
        inherited: &[],
        asking: held.approval.asking,
    };
    let evaluated = caller.evaluate(handle, &held.command, &launch.options, &launch.given);
    let decision = match evaluated {
        Ok(evaluation) => evaluation.decision,
        Err(broken) => return unusable("policy", &broken.to_string()),
    };
    if decision.action == Action::Deny {
        let reason = decision.reason;
        let why = reason.as_ref().map_or_else(
            || "the configuration refuses commands that no rule names".to_owned(),
            |reason| format!("{}{}", reason.why, by_rule(&reason.rule)),
        );
        let name = reason.map(|reason| reason.name);
        return Some(("deny", name.filter(|name| !name.is_empty()), why));
    }
    let settings = caller.settings(handle);
    permits_less(settings, launch.settings).then(|| {
        let mode = settings.0.as_str();
        let why = format!(
            "the sandbox of this agent, `{mode}`, permits less than when the command was held; run it again"
        );
        ("deny", None, why)
    })
}

/// Returns whether the settings permit less than others did.
fn permits_less(
    (mode, network): (SandboxMode, NetworkMode),
    (former_mode, former_network): (SandboxMode, NetworkMode),
) -> bool {
    // Without a sandbox nothing limits the network.
    let former_network = match former_mode {
        SandboxMode::Off => NetworkMode::On,
        SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite => former_network,
    };
    mode != SandboxMode::Off && (mode < former_mode || network < former_network)
}
