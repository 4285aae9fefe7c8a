//! Decision about a command line: the most careful one over all commands in it.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::command::{CommandLine, Origin, Parsed, SimpleCommand, Word};
use super::pattern::{could_match, matches};
use super::rule::{Action, Rule};
use crate::id::Conversation;

/// Rules, and the decision about commands that no rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Rules. Their order does not matter.
    pub rules: Vec<Rule>,
    /// Decision about a command that no rule names.
    pub otherwise: Action,
    /// Decision about text that cannot be parsed, unless it names a program that a rule asks about or refuses.
    pub unparsed: Action,
}

/// Facts about a call that rules depend on.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Agent that calls.
    pub agent: &'a str,
    /// Conversation of the agent.
    pub conversation: Option<&'a Conversation>,
    /// Home directory.
    pub home: &'a str,
    /// Directory that the agent works in.
    pub workspace: &'a str,
}

/// Decision about a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Decision.
    pub action: Action,
    /// Reason. `None`: no rule is about this command line.
    pub reason: Option<Reason>,
    /// Decisions about the commands in it. Empty if it cannot be parsed.
    pub parts: Vec<Part>,
}

/// Decision about one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Command for people.
    pub command: String,
    /// Decision.
    pub action: Action,
    /// Reason. `None`: no rule is about it.
    pub reason: Option<Reason>,
}

/// Reason of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Command that decides.
    pub part: String,
    /// Name of the rule. Empty: the text itself is the reason.
    pub name: String,
    /// Rule as results show it.
    pub rule: String,
    /// Reason in words.
    pub why: String,
    /// Better command.
    pub instead: Option<String>,
    /// Only the page, a terminal or the command line can say yes.
    pub person_only: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            rules: super::builtin_rules(),
            otherwise: Action::Allow,
            unparsed: Action::Allow,
        }
    }
}

impl Policy {
    /// Decides about a command line.
    pub fn decide(&self, line: &CommandLine, place: &Place<'_>) -> Decision {
        let commands = match &line.parsed {
            Parsed::Commands(commands) => commands,
            Parsed::Unparsed(why) => {
                let (action, reason) = self.decide_unparsed(&line.text, why);
                return Decision {
                    action,
                    reason,
                    parts: Vec::new(),
                };
            }
        };
        let decide = |command| self.decide_command(command, &line.text, place);
        let parts: Vec<Part> = commands.iter().map(decide).collect();
        let mut first: Option<&Part> = None;
        for part in &parts {
            let more = |best: &Part| {
                (part.action, part.reason.is_some()) > (best.action, best.reason.is_some())
            };
            if first.is_none_or(more) {
                first = Some(part);
            }
        }
        Decision {
            action: first.map_or(self.otherwise, |part| part.action),
            reason: first.and_then(|part| part.reason.clone()),
            parts,
        }
    }

    /// Rule that decides about one command, if there is one.
    pub fn rule_for(&self, command: &SimpleCommand, place: &Place<'_>) -> Option<&Rule> {
        let matching = self.rules.iter();
        let matching: Vec<&Rule> = matching
            .filter(|rule| rule.matches(command, place))
            .collect();
        let all = matching.iter().copied();
        let deny = all.clone().find(|rule| rule.action == Action::Deny);
        // Between rules of the same rank, the more careful one.
        deny.or_else(|| all.max_by_key(|rule| (rule.specificity(), rule.action)))
    }

    fn decide_command(&self, command: &SimpleCommand, text: &str, place: &Place<'_>) -> Part {
        let shown = command.shown();
        if let Some(rule) = self.rule_for(command, place) {
            let reason = Reason {
                part: shown.clone(),
                name: rule.name.clone(),
                rule: rule.shown(),
                why: rule.why.clone(),
                instead: rule.instead.clone(),
                person_only: rule.person_only,
            };
            let action = match rule.action {
                Action::Deny if command.from_default => Action::Ask,
                action => action,
            };
            return Part {
                command: shown,
                action,
                reason: Some(reason),
            };
        }
        let doubt = match command.program() {
            Some(name) if !name.is_ascii() => {
                Some("the name of the program has characters that may look like others".to_owned())
            }
            _ => self.doubt(command, text, place),
        };
        let reason = doubt.map(|why| Reason::of_text(&shown, why));
        Part {
            command: shown,
            action: match reason {
                Some(_) => self.otherwise.max(Action::Ask),
                None => self.otherwise,
            },
            reason,
        }
    }

    /// Reason to ask about a command with words that are known only when it runs: it could be one that has a rule.
    fn doubt(&self, command: &SimpleCommand, text: &str, place: &Place<'_>) -> Option<String> {
        let program = &command.program_word()?;
        if command.hides_program {
            return Some("the text does not tell which program runs".to_owned());
        }
        if !command.words.iter().any(Word::is_dynamic) {
            return None;
        }
        // A short option stands in too many texts to tell something.
        let is_short = |name: &str| name.starts_with('-') && name.len() == 2;
        let is_named = |name: &str| !is_short(name) && names(text, name);
        let names_root = names_root(text, place.home);
        // `rm old; $CC a.c`: words of the text do not become values of variables of the environment.
        let is_variable = command.origin == Origin::Plain && !program.has_text();
        let is_bound =
            !is_variable || assigned_values(text).next().is_some() || binds_variables(text);
        let rule = self.careful_rules().find(|rule| {
            let could_be = rule
                .run
                .first()
                .is_some_and(|name| could_match(name, program));
            let is_told = || {
                let mut words = rule.run.iter().filter(|word| is_name(word)).peekable();
                let is_named = words.peek().is_some() && words.all(|name| is_named(name));
                let patterns = rule.run.iter().filter(|word| word.len() > 1);
                let mut patterns = patterns.filter(|word| word.contains('*'));
                let has_word =
                    |pattern: &String| text.split(is_between).any(|word| matches(pattern, word));
                is_named
                    && is_bound
                    && patterns.all(has_word)
                    && (rule.with.is_empty() || names_any(text, &rule.with))
            };
            (command.program().is_none() && (could_be || is_told()))
                || rule.could_match(command, place, &is_named, names_root)
        })?;
        let fault = match program.is_dynamic() {
            true => "the program is known only when the command runs",
            false => "its words are known only when the command runs",
        };
        Some(may_run(rule, fault))
    }

    fn decide_unparsed(&self, text: &str, fault: &str) -> (Action, Option<Reason>) {
        let named = self.careful_rules().find(|rule| {
            let program = rule.run.first();
            program.is_some_and(|program| is_name(program) && names(text, program))
        });
        let Some(rule) = named else {
            let reason =
                (self.unparsed != Action::Allow).then(|| Reason::of_text(text, fault.to_owned()));
            return (self.unparsed, reason);
        };
        let reason = Reason {
            name: rule.name.clone(),
            rule: rule.shown(),
            person_only: rule.person_only,
            ..Reason::of_text(text, may_run(rule, fault))
        };
        (self.unparsed.max(Action::Ask), Some(reason))
    }

    fn careful_rules(&self) -> impl Iterator<Item = &Rule> {
        let careful = |rule: &&Rule| rule.action != Action::Allow;
        self.rules.iter().filter(careful)
    }
}

impl Reason {
    fn of_text(part: &str, why: String) -> Self {
        Reason {
            part: part.to_owned(),
            name: String::new(),
            rule: String::new(),
            why,
            instead: None,
            person_only: false,
        }
    }
}

fn may_run(rule: &Rule, fault: &str) -> String {
    let program = rule.run.first().map_or("", String::as_str);
    alloc::format!("{fault}, and it may run {program}")
}

/// Returns whether a word of a rule is a name, and not an option or a pattern.
fn is_name(word: &str) -> bool {
    word != "..." && !word.contains('*') && !word.starts_with('-')
}

/// Characters between the words of a text, for a search that does not parse it.
fn is_between(c: char) -> bool {
    c.is_whitespace() || "'\";&|()=`{,}".contains(c)
}

/// Returns whether a text has the root or the home directory as a word that may become the value of a variable.
fn names_root(text: &str, home: &str) -> bool {
    let roots = ["/", "/*", "~", "$HOME", "HOME", home];
    let is_root = |word: &str| {
        // `${X:-/}`
        let default = word.split_once(":-").map(|(_, value)| value);
        roots.contains(&default.unwrap_or(word))
    };
    let is_default = |word: &str| word.contains(":-") && is_root(word);
    // `make -C / x; rm -r "$y"`: a word of another command reaches no variable unless the text binds one.
    assigned_values(text).any(|value| value.split(is_between).any(is_root))
        || text.split(is_between).any(is_default)
        || (text.split(is_between).any(is_root) && binds_variables(text))
}

/// Values of what looks like an assignment.
fn assigned_values(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || ";&".contains(c));
    let words = words.filter(|word| !word.starts_with('-'));
    words.filter_map(|word| word.split_once('=').map(|(_, value)| value))
}

/// Returns whether words of a text may become values of variables other than by an assignment.
fn binds_variables(text: &str) -> bool {
    let commands = [
        "for",
        "select",
        "read",
        "mapfile",
        "readarray",
        "set",
        "xargs",
    ];
    let signs = ["|", "`", "$(", "$@", "$*", "${@", "<<", "<("];
    let mut braces = text.match_indices('{');
    let is_digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let mut positions = text.split('$').skip(1);
    signs.iter().any(|sign| text.contains(sign))
        || positions.any(|rest| is_digit(rest.strip_prefix('{').unwrap_or(rest)))
        || text.contains("printf -v")
        || braces.any(|(at, _)| !text[..at].ends_with('$'))
        || text.split(is_between).any(|word| commands.contains(&word))
}

/// Returns whether a text has one of the options or patterns of a rule as a word.
fn names_any(text: &str, with: &[String]) -> bool {
    let is_given = |with: &String, word: &str| match with.strip_prefix('-') {
        Some(letter) if letter.len() == 1 => {
            let letters = word.strip_prefix('-').unwrap_or_default();
            !letters.starts_with('-') && letters.contains(letter)
        }
        _ => word.starts_with(with.as_str()) || matches(with, word),
    };
    let mut words = text.split(is_between);
    words.any(|word| with.iter().any(|with| is_given(with, word)))
}

/// Returns whether a text has this name as a word, also with quotes in it.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+');
    // `rails db:drop` has a name with a sign between words.
    let is_joined = !name.chars().all(is_part);
    let has = |text: &str| {
        let mut words = text.split(|c| !is_part(c));
        words.any(|word| word == name) || (is_joined && text.contains(name))
    };
    let is_quote = |c: char| matches!(c, '\'' | '"' | '\\');
    has(text) || (text.contains(is_quote) && has(&text.replace(is_quote, "")))
}
