//! Rules and decisions as people and programs see them.

use std::path::Path;

use abide_api::{
    AuditLine, AuditVerified, PolicyPart, PolicyRule, PolicyRules, PolicyTested, RuleSource,
};
use abide_core::Agent;
use abide_core::policy::{Action, Rule, Source};
use abide_engine::policy::audit::AuditLog;
use abide_engine::policy::{
    AcceptedSandbox, AllowedHost, BrokenPolicy, JudgedCommand, PolicyEvaluation, PolicyStore,
};

/// Rules in force, or the reason why they cannot be used.
pub(crate) fn rules(store: &PolicyStore) -> PolicyRules {
    let always_file = store.remembered_file().display().to_string();
    match store.policy() {
        Ok(policy) => {
            let granted = store.granted_rules();
            let hosts = store.remembered_hosts();
            let sandboxes = store.remembered_sandboxes();
            PolicyRules {
                otherwise: policy.otherwise.into(),
                unparsed: policy.unparsed.into(),
                rules: (policy.rules.iter().chain(&granted).map(rule))
                    .chain(hosts.iter().map(host_rule))
                    .chain(sandboxes.iter().map(sandbox_rule))
                    .collect(),
                always_file,
                error: None,
            }
        }
        Err(broken) => PolicyRules {
            otherwise: Action::Deny.into(),
            unparsed: Action::Deny.into(),
            rules: Vec::new(),
            always_file,
            error: Some(broken.to_string()),
        },
    }
}

fn rule(rule: &Rule) -> PolicyRule {
    PolicyRule {
        name: rule.name.clone(),
        source: match rule.source {
            Source::Builtin => RuleSource::BuiltIn,
            Source::Configured => RuleSource::Configuration,
            Source::Remembered => RuleSource::Always,
            Source::Granted(_) => RuleSource::ThisAgent,
        },
        run: rule.run.clone(),
        with: rule.with.clone(),
        r#do: rule.action.into(),
        why: rule.why.clone(),
        instead: rule.instead.clone(),
        agent: rule.agent.clone(),
        folder: rule.folders.first().cloned(),
        person_only: rule.person_only,
    }
}

/// Permission to connect, in the form of a rule.
fn host_rule(allowed: &AllowedHost) -> PolicyRule {
    PolicyRule {
        name: allowed.name.clone(),
        source: RuleSource::Always,
        run: vec!["(connection)".into(), allowed.host.clone()],
        with: Vec::new(),
        r#do: Action::Allow.into(),
        why: "a person allowed connections of sandboxed commands to it".into(),
        instead: None,
        agent: None,
        folder: Some(allowed.folder.clone()),
        person_only: false,
    }
}

/// Accepted weaker sandbox, in the form of a rule.
fn sandbox_rule(accepted: &AcceptedSandbox) -> PolicyRule {
    PolicyRule {
        name: accepted.name.clone(),
        source: RuleSource::Always,
        run: vec!["(sandbox)".into(), accepted.mechanism().as_str().into()],
        with: Vec::new(),
        r#do: Action::Allow.into(),
        why: "a person accepted it where this machine cannot enforce a stronger one".into(),
        instead: None,
        agent: Some(accepted.agent.clone()),
        folder: Some(accepted.folder.clone()),
        person_only: false,
    }
}

/// Judges a command line that is not run. The folder is the workspace too.
pub(crate) fn test(
    store: &PolicyStore,
    agent: &Agent,
    folder: &Path,
    command: &str,
) -> Result<PolicyEvaluation, BrokenPolicy> {
    store.judge(JudgedCommand {
        agent,
        conversation: None,
        folder,
        workspace: folder,
        command,
        env: &[],
        stdin: None,
    })
}

/// Result of the rules for a command line that was not run.
pub(crate) fn tested(command: &str, judged: &PolicyEvaluation) -> PolicyTested {
    let reason = judged.decision.reason.as_ref();
    let parts = judged.decision.parts.iter().map(|part| PolicyPart {
        command: part.command.clone(),
        decision: part.action.into(),
        rule: part.reason.as_ref().map(|reason| reason.name.clone()),
    });
    let answers = judged.offers.iter().map(|offer| offer.choice.as_str());
    PolicyTested {
        command: command.into(),
        decision: judged.decision.action.into(),
        rule: reason.map(|reason| reason.name.clone()),
        why: reason.map(|reason| reason.why.clone()),
        parts: parts.collect(),
        answers: answers.collect(),
    }
}

/// Removes a rule of "always" and records it. `false`: there is none of this name.
pub(crate) fn remove(store: &PolicyStore, audit: &AuditLog, name: &str) -> std::io::Result<bool> {
    let is_removed = store.remove(name)?;
    if is_removed {
        audit.append(AuditLine {
            event: "removed".into(),
            rule: Some(name.into()),
            by: Some("person".into()),
            ..AuditLine::default()
        });
    }
    Ok(is_removed)
}

/// Checks the chain of the audit log.
pub(crate) fn verify(audit: &AuditLog) -> AuditVerified {
    match audit.verify() {
        Ok(found) => AuditVerified {
            intact: true,
            error: None,
            lines: found.lines,
            interrupted: found.torn,
            since: found.since,
            last: Some(found.last).filter(|last| !last.is_empty()),
        },
        Err(fault) => AuditVerified {
            intact: false,
            error: Some(fault.to_string()),
            lines: 0,
            interrupted: 0,
            since: None,
            last: None,
        },
    }
}
