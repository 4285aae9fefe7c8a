//! Rule: words of a command, and what is done with a command that has them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::builtin::runs_others;
use super::command::{Folder, Piece, RunsCode, SimpleCommand, Word};
use super::decide::Place;
use super::names::Names;
use super::path::{expanded, matches_folder, normalized};
use super::pattern::{could_match, matches};
use super::targets::Targets;
use crate::id::{Conversation, settings_name};
use crate::words::words;

words! {
    /// Decision about a command, from the least to the most careful.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Action {
        /// Start the command.
        Allow = "allow",
        /// Ask a person first.
        Ask = "ask",
        /// Refuse the command.
        Deny = "deny",
    }
}

/// Origin of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Part of abide.
    Builtin,
    /// The configuration file.
    Configured,
    /// Answer `always` of a person.
    Remembered,
    /// Answer `this agent` of a person, for one conversation.
    Granted(Option<Conversation>),
}

/// Rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name by which the rule is shown and removed.
    pub name: String,
    /// First words of the command. `*` is one word, `...` any number of words.
    pub run: Vec<String>,
    /// Words of which the command must have one. Empty: none is needed.
    pub with: Vec<String>,
    /// Options, names for the first operand, pairs of words and variables of which the command must have none: with one of
    /// these it changes nothing. `--option=value` is also an option with its value behind it. Only for built-in rules.
    pub unless: Vec<String>,
    /// Variables that the command may set, as `NAME=value`. Only for rules that allow.
    pub env: Vec<String>,
    /// Decision.
    pub action: Action,
    /// Reason, for the person and the agent.
    pub why: String,
    /// Better command, for the agent.
    pub instead: Option<String>,
    /// Pattern of the names of agents. `None`: all agents.
    pub agent: Option<String>,
    /// Patterns of directories, of which one must match. Empty: all directories.
    pub folders: Vec<String>,
    /// The command has no words beside those of `run`. Only for rules that allow.
    pub exact: bool,
    /// Paths that the command deletes.
    pub targets: Option<Targets>,
    /// Only the page, a terminal or the command line can say yes, not the client of the agent.
    pub person_only: bool,
    /// Origin.
    pub source: Source,
}

impl Rule {
    /// Rule without conditions beside its words.
    pub fn new(name: &str, action: Action, run: &[&str]) -> Self {
        Rule {
            name: name.to_owned(),
            run: run.iter().map(|word| (*word).to_owned()).collect(),
            with: Vec::new(),
            unless: Vec::new(),
            env: Vec::new(),
            action,
            why: String::new(),
            instead: None,
            agent: None,
            folders: Vec::new(),
            exact: false,
            targets: None,
            person_only: false,
            source: Source::Configured,
        }
    }

    /// Rule as results and questions show it: `git push …`.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        for word in self.run.iter().filter(|word| *word != "...") {
            text.push_str(word);
            text.push(' ');
        }
        text.push('…');
        text
    }

    /// Rank among rules that match the same command: more words, then `with`, then a folder, then an agent, then the
    /// origin: what a person has written comes before what is built in.
    pub fn specificity(&self) -> (usize, usize, bool, bool, bool, bool) {
        let words = self.run.iter().filter(|word| *word != "...");
        let plain = words.clone().filter(|word| !word.contains('*')).count();
        (
            words.count(),
            plain,
            !self.with.is_empty(),
            !self.folders.is_empty(),
            self.agent.as_deref().is_some_and(|agent| agent != "*"),
            self.source != Source::Builtin,
        )
    }

    /// Returns whether this rule is about the command. A rule that asks or refuses is matched generously, a rule that
    /// allows only where the text leaves no doubt.
    pub fn matches(&self, command: &SimpleCommand, place: &Place<'_>) -> bool {
        if !self.is_for(command, place) {
            return false;
        }
        if self.action == Action::Allow {
            return !is_open_ended(command)
                && self.covers_variables(command)
                && self.has_exact_words(command, place)
                && self.has_exact_option(command);
        }
        self.may_have_words(command, place)
            && (self.with.is_empty() || self.may_have_option(command))
            && self
                .targets
                .is_none_or(|targets| targets.hit(command, place))
            && !self.is_trial(command)
    }

    /// Returns whether this rule holds for the agent and the directory of the command.
    fn is_for(&self, command: &SimpleCommand, place: &Place<'_>) -> bool {
        let agent = self.agent.as_deref();
        let names = [place.agent, settings_name(place.agent)];
        if !agent.is_none_or(|agent| names.iter().any(|name| matches(agent, name))) {
            return false;
        }
        if let Source::Granted(conversation) = &self.source
            && conversation.as_ref() != place.conversation
        {
            return false;
        }
        self.folders.is_empty()
            || match &command.folder {
                Folder::Known(folder) => self.matches_folder(folder, place),
                Folder::Unknown | Folder::Elsewhere => self.action != Action::Allow,
            }
    }

    fn matches_folder(&self, folder: &str, place: &Place<'_>) -> bool {
        let patterns = self.folders.iter();
        let mut patterns = patterns.map(|pattern| expanded(pattern, place.home));
        patterns.any(|pattern| matches_folder(&pattern, folder))
    }

    /// Words at exactly these places, all of them known.
    fn has_exact_words(&self, command: &SimpleCommand, place: &Place<'_>) -> bool {
        let run: Vec<&String> = self.run.iter().filter(|word| *word != "...").collect();
        let fits = match self.exact {
            true => run.len() == command.words.len(),
            false => run.len() <= command.words.len(),
        };
        fits && run
            .iter()
            .zip(&command.words)
            .enumerate()
            .all(|(at, (rule, word))| {
                let Some(text) = word.text() else {
                    return false;
                };
                matches(rule, &text) || (at > 0 && is_same_path(rule, word, command, place))
            })
    }

    fn has_exact_option(&self, command: &SimpleCommand) -> bool {
        let words = command.arguments().iter().filter_map(Word::text);
        let mut words = words.map(|text| self.with.iter().any(|with| matches(with, &text)));
        self.with.is_empty() || words.any(|found| found)
    }

    /// Returns whether a command certainly has a word with which it changes nothing, such as `--dry-run`, or runs with a
    /// variable to that effect.
    fn is_trial(&self, command: &SimpleCommand) -> bool {
        if self.unless.is_empty() || command.words.iter().any(Word::is_dynamic) {
            return false;
        }
        let words = command.arguments().iter().map_while(Word::text);
        let words: Vec<String> = words.take_while(|word| word != "--").collect();
        let is_operand = |word: &String| !word.starts_with('-');
        let first = words.iter().position(is_operand).unwrap_or(words.len());
        // `sudo x --help`: what is behind the program is for the program.
        let words = match self.run.first().is_some_and(|name| runs_others(name)) {
            true => &words[..first],
            false => &words[..],
        };
        let has_short = self.unless.iter().any(|word| word == "-n");
        // `git clean -ndx`: the letter among others without a value.
        let is_short = |word: &str| {
            let letters = word.strip_prefix('-').unwrap_or_default();
            letters.contains('n') && letters.chars().all(|letter| "dfnqvxX".contains(letter))
        };
        let is_given = |at: usize, unless: &String| {
            let (word, next) = (&words[at], words.get(at + 1));
            let is_pair = |(name, value): (&str, &str)| {
                word == name && next.is_some_and(|next| matches(value, next))
            };
            let is_place = unless.starts_with('-') || unless.contains('=') || at == first;
            let pair = unless.split_once([' ', '=']);
            (is_place && matches(unless, word)) || pair.is_some_and(is_pair)
        };
        let is_trial = |at: usize| {
            let mut unless = self.unless.iter();
            unless.any(|unless| is_given(at, unless)) || (has_short && is_short(&words[at]))
        };
        // `--dry-run=none` and `--no-dry-run` take it back, the latter also by its begin.
        let is_revoked = |at: usize| {
            let word = &words[at];
            let is_other = word.starts_with('-') && word.contains("dry") && !is_trial(at);
            is_other || word.starts_with("--no-d")
        };
        // The word behind an option may be its value.
        let is_free = |at: usize| match at.checked_sub(1).map(|before| (before, &words[before])) {
            Some((before, option)) if option.starts_with('-') && !option.contains('=') => {
                is_trial(before) || self.with.contains(option) || FLAGS.has(option)
            }
            _ => true,
        };
        let is_false = |at: usize| words.get(at + 1).is_some_and(|next| next == "false");
        let is_set = |(name, value): &(String, Word)| {
            let given = [name, "=", &value.text().unwrap_or_default()].concat();
            self.unless.iter().any(|unless| matches(unless, &given))
        };
        let places = 0..words.len();
        let has_word = || {
            !places.clone().any(is_revoked)
                && places
                    .clone()
                    .any(|at| is_trial(at) && is_free(at) && !is_false(at))
        };
        has_word() || command.assignments.iter().any(is_set)
    }

    fn covers_variables(&self, command: &SimpleCommand) -> bool {
        command.assignments.iter().all(|(name, value)| {
            let value = value.text().unwrap_or_default();
            let given = [name.as_str(), "=", value.as_str()].concat();
            self.env.contains(&given)
        })
    }

    /// Returns whether this rule, which asks or refuses, could be about the command when its unknown words are known: each
    /// of them could be any word that `is_named` in the text of the command line, and the root or home directory if the
    /// text `names_root`.
    pub fn could_match(
        &self,
        command: &SimpleCommand,
        place: &Place<'_>,
        is_named: &dyn Fn(&str) -> bool,
        names_root: bool,
    ) -> bool {
        let Some((program, rest)) = self.run.split_first() else {
            return false;
        };
        let arguments = command.arguments();
        let is_unknown = |word: &Word| word.is_dynamic() && !word.has_text();
        let has_unknown = arguments.iter().any(is_unknown);
        // A program that is not known could be any, so the rest of the rule must tell something.
        let tells = !rest.is_empty() || !self.with.is_empty() || self.targets.is_some();
        let is_program = match command.program_word() {
            Some(word) if is_unknown(&word) => tells,
            Some(_) => has_unknown && may_be_program(program, command),
            None => false,
        };
        let could_be = |name: &str, word: &Word| {
            could_match(name, word) || (is_unknown(word) && is_named(name))
        };
        let has_with = || {
            let is_given = |with: &String| {
                let is_option = with.starts_with('-') && self.has_option(with, arguments);
                is_option || arguments.iter().any(|word| could_be(with, word))
            };
            self.with.is_empty() || self.with.iter().any(is_given)
        };
        is_program
            && self.is_for(command, place)
            && self.has_words(rest, command, place, &could_be)
            && has_with()
            && self.targets.is_none_or(|targets| {
                let has = |word: &Word, piece| word.pieces.contains(&piece);
                let is_given = |word: &Word| {
                    is_unknown(word) && has(word, Piece::Unknown) && !has(word, Piece::Home)
                };
                targets.hit(command, place) || (names_root && arguments.iter().any(is_given))
            })
    }

    /// Words in this order. Options between them, and words that may be values of options, are skipped.
    fn may_have_words(&self, command: &SimpleCommand, place: &Place<'_>) -> bool {
        let Some((program, rest)) = self.run.split_first() else {
            return false;
        };
        may_be_program(program, command) && self.has_words(rest, command, place, &could_match)
    }

    /// The words of a rule behind its program.
    fn has_words(
        &self,
        rest: &[String],
        command: &SimpleCommand,
        place: &Place<'_>,
        could_be: &dyn Fn(&str, &Word) -> bool,
    ) -> bool {
        let arguments = command.arguments();
        let (options, names): (Vec<&String>, Vec<&String>) =
            rest.iter().partition(|word| word.starts_with('-'));
        if !options
            .iter()
            .all(|option| self.has_option(option, arguments))
        {
            return false;
        }
        let is_hit = |name: &str, word: &Word| {
            could_be(name, word) || is_same_path(name, word, command, place)
        };
        in_order(&names, arguments, &is_hit)
    }

    /// Returns whether an option is among the arguments. `rm` has several names for one option.
    fn has_option(&self, option: &str, arguments: &[Word]) -> bool {
        if self.run.first().is_none_or(|program| program != "rm") {
            return has_option(option, arguments);
        }
        let letters = match option {
            "--recursive" => "r",
            "--force" => "f",
            option => option.strip_prefix('-').unwrap_or_default(),
        };
        if !is_letters(letters) {
            return has_option(option, arguments);
        }
        letters.chars().all(|letter| {
            let has = |letter: char| arguments.iter().any(|word| has_letter(word, letter));
            match letter {
                'r' | 'R' => has('r') || has('R') || has_option("--recursive", arguments),
                'f' => has('f') || has_option("--force", arguments),
                other => has(other),
            }
        })
    }

    fn may_have_option(&self, command: &SimpleCommand) -> bool {
        let arguments = command.arguments();
        self.with.iter().any(|with| match with.starts_with('-') {
            true => self.has_option(with, arguments),
            false => arguments.iter().any(|word| could_match(with, word)),
        })
    }
}

/// Returns whether the arguments have these names in this order. A word that may be the value of an option is tried
/// both as one and as a name.
fn in_order(names: &[&String], arguments: &[Word], is_hit: &dyn Fn(&str, &Word) -> bool) -> bool {
    // `reached[at]`: the names so far are among the first `at` arguments, the last of them at their end.
    let mut reached = alloc::vec![false; arguments.len() + 1];
    reached[0] = true;
    let mut skips = false;
    for name in names {
        if *name == "..." {
            skips = true;
            continue;
        }
        let mut next = alloc::vec![false; arguments.len() + 1];
        let mut open = false;
        for (at, word) in arguments.iter().enumerate() {
            open |= reached[at];
            next[at + 1] = open && is_hit(name, word);
            open &= skips || is_skipped(arguments, at);
        }
        reached = next;
        skips = false;
    }
    reached.contains(&true)
}

/// Returns whether an argument does not stop the search for the next word of a rule: an option, the possible value of
/// one, or a word that is not known.
fn is_skipped(arguments: &[Word], at: usize) -> bool {
    let is_option = |word: &Word| word.shown().starts_with(['-', '+']);
    let follows_option = || {
        let before = at.checked_sub(1).and_then(|before| arguments.get(before));
        before.is_some_and(|word| is_option(word) && !word.shown().contains('='))
    };
    is_option(&arguments[at]) || !arguments[at].has_text() || follows_option()
}

fn may_be_program(rule: &str, command: &SimpleCommand) -> bool {
    let Some(word) = command.words.first() else {
        return false;
    };
    match command.program() {
        Some(name) => {
            let path = word.text().unwrap_or_default();
            matches(rule, &name) || matches(rule, &path)
        }
        None => {
            let name = command.program_word();
            let is_named = name.is_some_and(|name| could_match(rule, &name));
            rule != "*" && (could_match(rule, word) || is_named)
        }
    }
}

/// Returns whether an option is among the arguments. Short options may be in one word, in any order.
fn has_option(option: &str, arguments: &[Word]) -> bool {
    let letters = option.strip_prefix('-').filter(|rest| is_letters(rest));
    match letters {
        Some(letters) if !option.contains('*') => letters.chars().all(|letter| {
            let has_letter = |word: &Word| has_letter(word, letter);
            arguments.iter().any(has_letter)
        }),
        _ => arguments.iter().any(|word| {
            let name = word.shown();
            let name = name.split('=').next().unwrap_or_default();
            // Many programs take the begin of a long option for the whole.
            let is_begin = name.len() >= SHORTEST_BEGIN && option.starts_with(name);
            could_match(option, word) || matches(option, name) || is_begin
        }),
    }
}

/// Returns whether a word has this letter as a short option. A pattern such as `-r?` may have every letter.
fn has_letter(word: &Word, letter: char) -> bool {
    let given = word.shown();
    let Some(given) = given
        .strip_prefix('-')
        .filter(|rest| !rest.starts_with('-'))
    else {
        return false;
    };
    if word.pieces.contains(&Piece::Glob) {
        return true;
    }
    let end = match word.is_dynamic() {
        true => given.find(|c: char| !c.is_ascii_alphanumeric()),
        false => given.find('='),
    };
    let letters = &given[..end.unwrap_or(given.len())];
    is_letters(letters) && letters.contains(letter)
}

/// Options without a value that often stand before `--dry-run`.
const FLAGS: Names = Names(
    "--all --allow-dirty --atomic --clean --create-namespace --debug --force --force-conflicts
     --install --locked --no-ci --no-git-checks --no-verify --prune --quiet --server-side --tags
     --verbose --wait --workspaces --yes",
);

/// Bytes of the shortest begin of a long option that is taken for the option: `--` and two letters.
const SHORTEST_BEGIN: usize = 4;

fn is_letters(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Returns whether a word of a rule is a path, and the word of the command is the same one.
fn is_same_path(rule: &str, word: &Word, command: &SimpleCommand, place: &Place<'_>) -> bool {
    // Everything in a directory is as much as the directory.
    if rule == "." && word.pieces == [Piece::Glob] {
        return true;
    }
    let is_path = rule == "." || rule.starts_with(['/', '~']);
    let (true, Folder::Known(folder)) = (is_path, &command.folder) else {
        return false;
    };
    let rule = normalized(&expanded(rule, place.home), folder);
    path_of(word, place).is_some_and(|path| normalized(&path, folder) == rule)
}

/// Path in a word, if it is known but for the home directory.
fn path_of(word: &Word, place: &Place<'_>) -> Option<String> {
    let known = |piece: &Piece| matches!(piece, Piece::Text(_) | Piece::Home);
    let known = word.pieces.iter().all(known);
    known.then(|| word.text_without_unknown(place.home))
}

/// Returns whether a command does something that its words do not tell: a rule that allows the words does not cover
/// that.
fn is_open_ended(command: &SimpleCommand) -> bool {
    let writes = |word: &Word| {
        let harmless = ["/dev/null", "/dev/stdout", "/dev/stderr"];
        !word
            .text()
            .is_some_and(|path| harmless.contains(&path.as_str()))
    };
    command.names_changed
        || command.has_variables
        || command.hides_program
        || command.runs_code == Some(RunsCode::ByOption)
        || command.words.iter().any(Word::is_dynamic)
        || command
            .redirects
            .iter()
            .any(|redirect| redirect.writes && writes(&redirect.target))
}
