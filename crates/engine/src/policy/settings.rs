//! Settings in `[policy]` of the configuration, and the rules that "always" has written, as TOML.

use std::path::Path;

use abide_api::PolicyDecision;
use abide_core::policy::{Action, Parsed, Place, Policy, Rule, Source, builtin_rules, normalized};
use abide_gate::allowlist::Pattern;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::hosts::AllowedHost;
use super::sandboxes::AcceptedSandbox;
use crate::command_line::{self, Surroundings};

/// Most rules of the configuration.
const MAX_RULES: usize = 1_000;

/// Reason why rules cannot be used, with the line of the file that it is about.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidRules {
    #[error("line {0}: {1}")]
    AtLine(usize, String),
    #[error("{0}")]
    Whole(String),
}

impl InvalidRules {
    /// Reason that is about what begins at this byte of the text.
    fn at(text: &str, begin: usize, why: String) -> Self {
        let before = text.as_bytes().iter().take(begin);
        InvalidRules::AtLine(1 + before.filter(|byte| **byte == b'\n').count(), why)
    }

    fn of(text: &str, fault: &toml::de::Error) -> Self {
        let why = fault.message().replace('\n', " ");
        match fault.span() {
            Some(span) => Self::at(text, span.start, why),
            None => InvalidRules::Whole(why),
        }
    }
}

/// The configuration, of which only `[policy]` is read here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawConfiguration {
    policy: RawPolicy,
}

/// `[policy]` of the configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPolicy {
    otherwise: Option<PolicyDecision>,
    unparsed: Option<PolicyDecision>,
    without: Vec<Spanned<String>>,
    rule: Vec<Spanned<RawRule>>,
}

/// The file of rules that "always" has written.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct RawRemembered {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rule: Vec<Spanned<RawRule>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allow: Vec<AllowedHost>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sandbox: Vec<AcceptedSandbox>,
}

/// Rules, host names and weaker sandboxes that "always" has written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Remembered {
    pub rules: Vec<Rule>,
    pub hosts: Vec<AllowedHost>,
    pub sandboxes: Vec<AcceptedSandbox>,
}

impl Remembered {
    /// Number of entries.
    pub fn count(&self) -> usize {
        self.rules.len() + self.hosts.len() + self.sandboxes.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum AnsweredBy {
    Anyone,
    Person,
}

/// One rule, as the file has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    run: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    with: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exact: bool,
    r#do: PolicyDecision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instead: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<AnsweredBy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    matches: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    matches_not: Vec<String>,
}

/// Policy of the `[policy]` table of a configuration file, with the built-in rules.
pub(super) fn read_configured(text: &str, home: &Path) -> Result<Policy, InvalidRules> {
    let file: RawConfiguration =
        toml::from_str(text).map_err(|fault| InvalidRules::of(text, &fault))?;
    let raw = file.policy;
    if let Some(first_beyond) = raw.rule.get(MAX_RULES) {
        let why = format!("there are more than {MAX_RULES} rules");
        return Err(InvalidRules::at(text, first_beyond.span().start, why));
    }
    let rules = checked_rules(text, raw.rule, "rule", Source::Configured, home)?;
    let mut builtin = builtin_rules();
    for name in &raw.without {
        if !builtin.iter().any(|rule| rule.name == *name.get_ref()) {
            let mut names: Vec<&str> = builtin.iter().map(|rule| rule.name.as_str()).collect();
            names.dedup();
            let why = format!(
                "`policy.without` names {:?}, which is no built-in rule; these are {}",
                name.get_ref(),
                names.join(", ")
            );
            return Err(InvalidRules::at(text, name.span().start, why));
        }
    }
    let without = |rule: &Rule| raw.without.iter().any(|name| *name.get_ref() == rule.name);
    let replaced = |rule: &Rule| rules.iter().any(|own| own.name == rule.name);
    builtin.retain(|rule| !without(rule) && !replaced(rule));
    builtin.extend(rules);
    Ok(Policy {
        rules: builtin,
        otherwise: raw.otherwise.map_or(Action::Allow, Action::from),
        unparsed: raw.unparsed.map_or(Action::Allow, Action::from),
    })
}

/// Entries that "always" has written.
pub(super) fn read_remembered(text: &str, home: &Path) -> Result<Remembered, InvalidRules> {
    let raw: RawRemembered =
        toml::from_str(text).map_err(|fault| InvalidRules::of(text, &fault))?;
    let rules = checked_rules(text, raw.rule, "always", Source::Remembered, home)?;
    for host in &raw.allow {
        Pattern::parse(&host.host).map_err(|fault| InvalidRules::Whole(fault.to_string()))?;
    }
    Ok(Remembered {
        rules,
        hosts: raw.allow,
        sandboxes: raw.sandbox,
    })
}

/// Rules of a file. Those without a name are called `unnamed` with their number.
fn checked_rules(
    text: &str,
    raw: Vec<Spanned<RawRule>>,
    unnamed: &str,
    source: Source,
    home: &Path,
) -> Result<Vec<Rule>, InvalidRules> {
    let rules = raw.into_iter().enumerate().map(|(at, rule)| {
        let begin = rule.span().start;
        let rule = rule.into_inner();
        let name = rule.name.clone();
        let name = name.unwrap_or_else(|| format!("{unnamed}-{}", at + 1));
        let shown = format!("rule {name:?}: ");
        checked(rule, name, source.clone(), home)
            .map_err(|why| InvalidRules::at(text, begin, shown + &why.to_string()))
    });
    rules.collect()
}

/// Text of the file of rules that "always" has written.
pub(super) fn write_remembered(remembered: &Remembered) -> String {
    let raw = RawRemembered {
        rule: remembered.rules.iter().map(spanned).collect(),
        allow: remembered.hosts.clone(),
        sandbox: remembered.sandboxes.clone(),
    };
    let rules = toml::to_string(&raw).unwrap_or_default();
    format!(
        "# Written by abide: answers \"always\" of a person. `abide policy remove NAME` removes a rule.\n\n{rules}"
    )
}

/// A host name as the file has it.
pub(super) fn shown_host(host: &AllowedHost) -> String {
    let raw = RawRemembered {
        allow: vec![host.clone()],
        ..RawRemembered::default()
    };
    toml::to_string(&raw).unwrap_or_default()
}

/// An accepted sandbox as the file has it.
pub(super) fn shown_sandbox(accepted: &AcceptedSandbox) -> String {
    let raw = RawRemembered {
        sandbox: vec![accepted.clone()],
        ..RawRemembered::default()
    };
    toml::to_string(&raw).unwrap_or_default()
}

/// Rules as their file has them.
pub(super) fn shown_rules(rules: &[Rule]) -> String {
    let raw = RawRemembered {
        rule: rules.iter().map(spanned).collect(),
        ..RawRemembered::default()
    };
    toml::to_string(&raw).unwrap_or_default()
}

/// Rule to be written. Its place in the file is not known yet.
fn spanned(rule: &Rule) -> Spanned<RawRule> {
    Spanned::new(0..0, raw_rule(rule))
}

fn raw_rule(rule: &Rule) -> RawRule {
    RawRule {
        name: (!rule.name.is_empty()).then(|| rule.name.clone()),
        run: rule.run.clone(),
        with: rule.with.clone(),
        env: rule.env.clone(),
        exact: rule.exact,
        r#do: rule.action.into(),
        why: (!rule.why.is_empty()).then(|| rule.why.clone()),
        instead: rule.instead.clone(),
        agent: rule.agent.clone(),
        folder: rule.folders.first().cloned(),
        by: rule.person_only.then_some(AnsweredBy::Person),
        matches: Vec::new(),
        matches_not: Vec::new(),
    }
}

/// Reason why a rule cannot be used.
#[derive(Debug, thiserror::Error)]
enum InvalidRule {
    #[error("`run` needs words, the name of a program first")]
    NoProgram,
    #[error("`env` goes with do = \"allow\" only")]
    EnvWithoutAllow,
    #[error("`exact` goes with do = \"allow\" only")]
    ExactWithoutAllow,
    #[error("`folder` must be an absolute path or begin with ~/; got {0:?}")]
    RelativeFolder(String),
    #[error("it does not match its example {0:?}")]
    Unmatched(String),
    #[error("it matches its example {0:?}")]
    Matched(String),
}

fn checked(raw: RawRule, name: String, source: Source, home: &Path) -> Result<Rule, InvalidRule> {
    let first = raw.run.first().map_or("", String::as_str);
    if first.is_empty() || first == "..." || raw.run.iter().any(String::is_empty) {
        return Err(InvalidRule::NoProgram);
    }
    if !raw.env.is_empty() && raw.r#do != PolicyDecision::Allow {
        return Err(InvalidRule::EnvWithoutAllow);
    }
    if raw.exact && raw.r#do != PolicyDecision::Allow {
        return Err(InvalidRule::ExactWithoutAllow);
    }
    let home_text = home.to_string_lossy().into_owned();
    let action = Action::from(raw.r#do);
    let rule = Rule {
        name,
        with: raw.with,
        env: raw.env,
        exact: raw.exact,
        why: raw.why.unwrap_or_else(|| default_reason(action).to_owned()),
        instead: raw.instead,
        agent: raw.agent,
        folders: match raw.folder {
            None => Vec::new(),
            Some(folder) => {
                folders(&folder, &home_text).ok_or(InvalidRule::RelativeFolder(folder))?
            }
        },
        person_only: raw.by == Some(AnsweredBy::Person),
        source,
        run: raw.run,
        ..Rule::new("", action, &[])
    };
    let is_about = |example: &&String| is_about(&rule, example, &home_text);
    if let Some(example) = raw.matches.iter().find(|example| !is_about(example)) {
        return Err(InvalidRule::Unmatched(example.clone()));
    }
    if let Some(example) = raw.matches_not.iter().find(is_about) {
        return Err(InvalidRule::Matched(example.clone()));
    }
    Ok(rule)
}

const fn default_reason(action: Action) -> &'static str {
    match action {
        Action::Allow => "the configuration allows it",
        Action::Ask => "the configuration asks before it",
        Action::Deny => "the configuration refuses it",
    }
}

/// Folder of a rule as it is written, and with its symbolic links resolved.
fn folders(given: &str, home: &str) -> Option<Vec<String>> {
    let absolute = match given.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        _ if given.starts_with('/') => given.to_owned(),
        _ => return None,
    };
    let written = normalized(&absolute, "/");
    let fixed = match written.find('*') {
        Some(star) => written[..star].rfind('/').unwrap_or(0),
        None => written.len(),
    };
    let (folder, rest) = written.split_at(fixed);
    let real = std::fs::canonicalize(if folder.is_empty() { "/" } else { folder });
    let real = real
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok());
    let real = real.map(|real| normalized(&format!("{real}{rest}"), "/"));
    let mut all = vec![written];
    all.extend(real.filter(|real| !all.contains(real)));
    Some(all)
}

/// True if a rule matches a command of the example, for any agent and folder.
fn is_about(rule: &Rule, example: &str, home: &str) -> bool {
    let mut rule = rule.clone();
    rule.folders.clear();
    rule.agent = None;
    let place = Place {
        agent: "",
        conversation: None,
        home,
        workspace: home,
    };
    let surroundings = Surroundings {
        folder: home,
        home,
        ..Surroundings::default()
    };
    match command_line::parse(example, surroundings).parsed {
        Parsed::Commands(commands) => commands.iter().any(|command| rule.matches(command, &place)),
        Parsed::Unparsed(_) => false,
    }
}
