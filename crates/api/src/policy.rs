//! Rules for commands, decisions about them, and refusals of sandboxes.

use abide_core::SessionId;
use abide_core::policy::Action;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Id;
use crate::words::words;

words! {
    /// Decision about a command: it is started, a person is asked first, or it is refused.
    PolicyDecision {
        Allow = "allow",
        Ask = "ask",
        Deny = "deny",
    } from Action;

    /// Origin of a rule: abide itself, the configuration file, or an answer of a person.
    RuleSource {
        BuiltIn = "built-in",
        Configuration = "configuration",
        Always = "always",
        ThisAgent = "this agent",
    };
}

impl From<PolicyDecision> for Action {
    fn from(decision: PolicyDecision) -> Self {
        match decision {
            PolicyDecision::Allow => Action::Allow,
            PolicyDecision::Ask => Action::Ask,
            PolicyDecision::Deny => Action::Deny,
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyRule {
    /// Name of the rule.
    pub name: String,
    /// Origin of the rule.
    pub source: RuleSource,
    /// Words that a command begins with; `*` is one word, `...` any words.
    pub run: Vec<String>,
    /// Words of which a command has at least one.
    pub with: Vec<String>,
    /// Decision about such a command.
    pub r#do: PolicyDecision,
    /// Reason.
    pub why: String,
    /// Command to use in its place.
    pub instead: Option<String>,
    /// Agents that the rule is for.
    pub agent: Option<String>,
    /// Folder that the rule is for.
    pub folder: Option<String>,
    /// True if only a person can say yes, not the client of the agent.
    pub person_only: bool,
}

/// Rules in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Policy")]
pub struct PolicyRules {
    /// Decision about commands that no rule names.
    pub otherwise: PolicyDecision,
    /// Decision about text that cannot be parsed.
    pub unparsed: PolicyDecision,
    /// Rules. Empty if `error` says why they cannot be used.
    pub rules: Vec<PolicyRule>,
    /// File of the rules that the answer `always` has written.
    pub always_file: String,
    /// Reason why the rules cannot be used: commands of agents are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A command line to be judged. Nothing is run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTest {
    /// The command line, as for `bash -c`.
    pub command: String,
    /// Agent that would run it. Default: `default`.
    pub agent: Option<String>,
    /// Working directory, which is the workspace too. Default: the home directory.
    pub cwd: Option<String>,
}

/// Decision about a command line that was not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyTested {
    /// The command line.
    pub command: String,
    /// The decision.
    pub decision: PolicyDecision,
    /// Name of the rule that decides.
    pub rule: Option<String>,
    /// Reason.
    pub why: Option<String>,
    /// Commands in the command line.
    pub parts: Vec<PolicyPart>,
    /// Answers that a person could give.
    pub answers: Vec<&'static str>,
}

/// One command of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyPart {
    /// The command.
    pub command: String,
    /// The decision about it.
    pub decision: PolicyDecision,
    /// Name of the rule that decides.
    pub rule: Option<String>,
}

/// A rule of "always" that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyRemoved {
    /// Name of the rule.
    pub removed: String,
}

/// One line of the audit log: a decision about a command of an agent, written before the act.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct AuditLine {
    /// Time, in Unix milliseconds.
    pub at: u64,
    /// `allow`, `ask`, `deny`, `broken` (the rules cannot be used), `answered`, `expired`, `withdrawn` (a held command),
    /// `removed` (a rule) or `refused` (by the sandbox of a command that has ended).
    pub event: String,
    /// Agent that wants to run the command.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub agent: String,
    /// Working directory.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub folder: String,
    /// Command line, with secrets masked.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub command: String,
    /// Commands in it, or what the sandbox refused.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub commands: Vec<String>,
    /// Host and port that the sandboxed command wanted to connect to, if the question was about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Name of the rule that decided. An `allow` without a rule and a reason: no rule is about the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Reason of the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Question that was asked or answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    /// Answer of the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Channel of the answer: `person` or `client`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Rules that the answer added.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub added: Vec<String>,
    /// Hash of the line before this one. Empty: this is the first line of the log.
    pub previous: String,
}

impl AuditLine {
    /// Returns whether a command was started because no rule is about it.
    pub fn is_unruled(&self) -> bool {
        self.event == "allow" && self.rule.is_none() && self.why.is_none()
    }
}

/// Decisions, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub struct AuditPage {
    /// Decisions of this page.
    pub entries: Vec<AuditLine>,
    /// `after` of the next page.
    pub next: Option<String>,
}

/// Check of the chain of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuditVerified {
    /// True if no line was changed, removed or inserted.
    pub intact: bool,
    /// First place where the chain is broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Number of lines.
    pub lines: u64,
    /// Lines whose writing was interrupted.
    pub interrupted: u64,
    /// Time of the first line, in Unix milliseconds.
    pub since: Option<u64>,
    /// SHA-256 hash of the last line. Kept elsewhere, it shows later whether the end of the log was removed.
    pub last: Option<String>,
}

/// Refusals of the sandbox of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SandboxRefusals {
    /// The session.
    pub session_id: Id<SessionId>,
    /// Agent of the session.
    pub agent: String,
    /// Command of the session.
    pub command: String,
    /// Time of its start, in Unix milliseconds.
    pub created_at: u64,
    /// `read-only` or `workspace-write`.
    pub mode: String,
    /// `off`, `allowlist` or `on`.
    pub network: String,
    /// Number of refused attempts.
    pub count: u64,
    /// Different things that were refused; the first ones, if there are many.
    pub refused: Vec<SandboxRefusal>,
    /// Names that the command has made in the workspace, and that other programs run or obey.
    pub planted: Vec<String>,
}

/// A refused thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SandboxRefusal {
    /// `write` for a path, `make` for a protected name that did not exist, `name` for a host and port, `address` for one that
    /// was given as a number, `udp` for one to which UDP was sent, `call` for a system call, `failed` for a host that is
    /// allowed and could not be reached.
    pub kind: String,
    /// The path, the host, or the system call with what to do instead.
    pub what: String,
}

/// Sessions in which a sandbox refused something, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Refusals")]
pub struct RefusalPage {
    /// Sessions of this page.
    pub sessions: Vec<SandboxRefusals>,
    /// `after` of the next page.
    pub next: Option<String>,
}
