//! Answers that a person can give to a question about a command, and the rules that `always` would write. A rule is
//! offered only if it would have answered the question.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::command::{CommandLine, Folder, Origin, Parsed, SimpleCommand, Word};
use super::decide::{Place, Policy};
use super::names::Names;
use super::rule::{Action, Rule, Source};
use crate::words::words;

words! {
    /// Answer to a question about a command.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Choice {
        /// Start this command.
        Once = "once",
        /// Start it, and such commands of this agent.
        ThisAgent = "this agent",
        /// Start it, and such commands in this directory.
        AlwaysHere = "always here",
        /// Start it, and such commands everywhere.
        Always = "always",
        /// Do not start it.
        No = "no",
    }
}

/// Answer that can be given, with the rules that it adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Answer.
    pub choice: Choice,
    /// Rules that the answer adds.
    pub rules: Vec<Rule>,
}

/// Programs whose arguments are programs or scripts: a rule on their words would allow everything.
const RUNNERS: Names = Names(
    "sh bash dash zsh ksh fish csh tcsh busybox eval exec source . command builtin trap python
     python2 python3 pypy3 node deno bun perl ruby php lua osascript awk gawk npx bunx uvx pipx env
     sudo su doas pkexec xargs parallel find ssh nohup setsid timeout nice watch flock script
     chroot unshare strace gdb run0 sudoedit runuser setpriv systemd-run nsenter gosu su-exec bwrap
     firejail tmux screen",
);

/// Number of words that name what a program does. All others: two, unless the second is an option.
const DEPTHS: &[(&str, usize)] = &[
    ("npm run", 3),
    ("yarn run", 3),
    ("pnpm run", 3),
    ("kubectl", 3),
    ("gh", 3),
    ("glab", 3),
    ("aws", 3),
    ("gcloud", 4),
    ("az", 4),
    ("docker compose", 3),
    ("docker", 2),
    ("git", 2),
    ("cargo", 2),
    ("ls", 1),
];

/// Answers to a question about this command line. `Once` and `No` are always possible.
pub fn offers(policy: &Policy, line: &CommandLine, place: &Place<'_>) -> Vec<Offer> {
    let mut all = vec![Offer {
        choice: Choice::Once,
        rules: Vec::new(),
    }];
    for choice in [Choice::ThisAgent, Choice::AlwaysHere, Choice::Always] {
        if let Some(rules) = proven_rules(policy, line, place, choice) {
            all.push(Offer { choice, rules });
        }
    }
    all.push(Offer {
        choice: Choice::No,
        rules: Vec::new(),
    });
    all
}

/// Rules that would have answered the question: a short one per command that asks, else one with all its words.
fn proven_rules(
    policy: &Policy,
    line: &CommandLine,
    place: &Place<'_>,
    choice: Choice,
) -> Option<Vec<Rule>> {
    let Parsed::Commands(commands) = &line.parsed else {
        return None;
    };
    if has_divided_word(&line.text) {
        return None;
    }
    let mut rules: Vec<Rule> = Vec::new();
    for command in commands {
        let ruled = policy.rule_for(command, place);
        if ruled.is_none_or(|rule| rule.action != Action::Ask) {
            continue;
        }
        let asked = ruled?;
        let mut proposals = proposals(command, commands, asked)?.into_iter();
        let rule = proposals.find_map(|rule| {
            let rule = limited(rule, command, place, choice)?;
            let mut with_rule = policy.clone();
            with_rule.rules.push(rule.clone());
            let ruled = with_rule.rule_for(command, place)?;
            (ruled.action == Action::Allow).then_some(rule)
        })?;
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    let mut proven = policy.clone();
    proven.rules.extend(rules.iter().cloned());
    let answered = proven.decide(line, place).action == Action::Allow;
    (answered && !rules.is_empty()).then_some(rules)
}

/// Returns whether a line continuation divides a word: the parts of such a word were read as commands too.
fn has_divided_word(text: &str) -> bool {
    let is_blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
    text.match_indices("\\\n").any(|(at, both)| {
        let behind = text[at + both.len()..].chars().next();
        !is_blank(text[..at].chars().next_back()) && !is_blank(behind)
    })
}

/// Rules that could answer a question about a command of a command line, the widest first.
fn proposals(command: &SimpleCommand, all: &[SimpleCommand], asked: &Rule) -> Option<Vec<Rule>> {
    let program = command.program()?;
    if program == "sudo" {
        return as_root(command, all).map(|rule| vec![rule]);
    }
    if RUNNERS.has(&program) || program.starts_with("python") {
        return None;
    }
    let words: Option<Vec<String>> = command.words.iter().map(Word::text).collect();
    let words = words?;
    let with: Vec<String> = (asked.with.iter())
        .filter(|with| words.iter().any(|word| word == *with))
        .cloned()
        .collect();
    let rule = |run: &[String], with: Vec<String>| {
        let env = command.assignments.iter().map(|(name, value)| {
            let value = value.text().unwrap_or_default();
            [name.as_str(), "=", value.as_str()].concat()
        });
        Rule {
            run: run.to_vec(),
            with,
            env: env.collect(),
            why: "a person allowed it".to_owned(),
            source: Source::Remembered,
            ..Rule::new("", Action::Allow, &[])
        }
    };
    // Words that name no subcommand would allow too much, as would those before the paths of a rule about paths.
    let depth = depth(&program, &words).filter(|_| asked.targets.is_none());
    let depth = depth.map(|depth| depth.max(asked.run.len()).min(words.len()));
    let is_named = |depth: &usize| !words[1..*depth].iter().any(|word| word.starts_with('-'));
    let short = depth
        .filter(is_named)
        .map(|depth| rule(&words[..depth], with));
    let whole = Rule {
        exact: true,
        ..rule(&words, Vec::new())
    };
    let rules = short.into_iter().chain([whole]);
    Some(rules.filter(is_literal).collect())
}

/// Returns whether a rule has no patterns, and no characters that would be shown in another way than they are.
fn is_literal(rule: &Rule) -> bool {
    let words = rule.run.iter().chain(&rule.with).chain(&rule.env);
    let mut words = words.filter(|word| word.contains(char::is_control));
    let is_pattern = |word: &String| word.contains('*') || word == "...";
    words.next().is_none() && !rule.run.iter().chain(&rule.with).any(is_pattern)
}

/// Rule for exactly this command as root: a program of the system that runs no other one, and options of `sudo` none.
fn as_root(command: &SimpleCommand, all: &[SimpleCommand]) -> Option<Rule> {
    let inner = command.arguments();
    let is_inner = |other: &&SimpleCommand| {
        other.origin == Origin::Wrapper("sudo".to_owned()) && other.words == inner
    };
    let program = inner.first()?.text()?;
    let inner = all.iter().find(is_inner)?;
    let name = inner.program()?;
    let is_plain = !program.starts_with('-') && (name == program || program.starts_with('/'));
    if !is_plain || inner.runs_code.is_some() || RUNNERS.has(&name) {
        return None;
    }
    let words: Option<Vec<String>> = command.words.iter().map(Word::text).collect();
    let words = words?;
    let is_pattern = words.iter().any(|word| word.contains('*') || word == "...");
    (!is_pattern && command.assignments.is_empty()).then(|| Rule {
        run: words,
        exact: true,
        why: "a person allowed it".to_owned(),
        source: Source::Remembered,
        ..Rule::new("", Action::Allow, &[])
    })
}

/// Rule that holds for the choice only.
fn limited(rule: Rule, command: &SimpleCommand, place: &Place<'_>, choice: Choice) -> Option<Rule> {
    match choice {
        // A name with a star would be taken as a pattern.
        Choice::ThisAgent => (!place.agent.contains('*')).then(|| Rule {
            agent: Some(place.agent.to_owned()),
            source: Source::Granted(place.conversation.cloned()),
            ..rule
        }),
        Choice::AlwaysHere => match &command.folder {
            Folder::Known(folder) if !folder.contains('*') => Some(Rule {
                folders: vec![folder.clone()],
                ..rule
            }),
            Folder::Known(_) | Folder::Unknown | Folder::Elsewhere => None,
        },
        // The same path elsewhere is another program.
        Choice::Always if is_relative(&rule) => None,
        Choice::Once | Choice::Always | Choice::No => Some(rule),
    }
}

fn is_relative(rule: &Rule) -> bool {
    let program = rule.run.first();
    program.is_some_and(|path| path.contains('/') && !path.starts_with('/'))
}

/// Number of words that name what a program does. `None`: only all of them do.
fn depth(program: &str, words: &[String]) -> Option<usize> {
    let second = words.get(1).map_or("", String::as_str);
    let both = [program, " ", second].concat();
    let known = DEPTHS
        .iter()
        .find(|(name, _)| *name == both || *name == program);
    match known {
        Some((_, depth)) => Some(*depth),
        None if second.is_empty() => Some(1),
        None if second.starts_with('-') => None,
        None => Some(2),
    }
}
