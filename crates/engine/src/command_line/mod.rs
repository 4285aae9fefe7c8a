//! Reads a command line as shell text: which programs it would run, with which words. The decision about them is in
//! `abide_core::policy`.
//!
//! Nothing here runs anything or looks at files. Text that exceeds a limit or does not parse is reported as unparsed,
//! never as fewer commands.

mod braces;
mod containers;
mod control_flow;
mod deletes;
mod interpreters;
mod names;
mod programs;
mod quoted_code;
#[cfg(test)]
mod random_scripts;
mod runs_code;
mod shell;
mod shell_state;
mod sql;
mod values;
mod variables;
mod walk;
mod word;
mod wrapper;
mod written;

use std::ops::ControlFlow;

use abide_core::policy::{CommandLine, Folder, Names, Parsed, SimpleCommand, Word};
use tree_sitter::{ParseOptions, Parser, Tree};

use shell_state::ShellState;

/// Bytes of the longest command line that is parsed.
const MAX_BYTES: usize = 64 << 10;
/// Commands in one command line.
const MAX_COMMANDS: usize = 1_000;
/// Levels of nested constructs.
const MAX_LEVELS: usize = 64;
/// Levels of scripts in scripts, such as `sh -c "sh -c …"`.
const MAX_SCRIPTS: usize = 8;
/// Levels of scripts in which defaults and braces are put in their places: each level reads its script twice.
const MAX_EXPANDED: usize = 2;
/// Levels of defaults in defaults, such as `${X:-${Y:-z}}`, that are put in their places.
const MAX_DEFAULTS: usize = 4;
/// Rounds of the parser, of about 100 steps each. Bounds the time for text that is hard to parse to some milliseconds.
const MAX_ROUNDS: u32 = 6_000;

/// Reason why a text is not parsed.
type Unparsed = &'static str;

/// Result of adding the commands of a part of a command line.
type Added = Result<(), Unparsed>;

const TOO_LONG: Unparsed = "the command is too long to be parsed";
const HAS_NUL: Unparsed = "the command contains a NUL byte";
const NOT_SHELL: Unparsed = "the command cannot be parsed";
const TOO_MANY: Unparsed = "the command line has too many commands";
const TOO_DEEP: Unparsed = "the command is nested too deeply";

/// Names that belong to programs: each line has programs, a colon and their names.
struct NameTable(&'static str);

impl NameTable {
    /// Names of one program.
    fn of(&self, program: &str) -> impl Iterator<Item = &'static str> {
        let rows = self.0.lines().filter_map(|line| line.split_once(':'));
        let rows = rows.filter(move |(programs, _)| Names(programs).has(program));
        rows.flat_map(|(_, names)| Names(names).iter())
    }
}

/// Facts about a call that decide what its command line runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings<'a> {
    /// Directory in which it starts.
    pub folder: &'a str,
    /// Home directory of the user.
    pub home: &'a str,
    /// Variables that the call sets.
    pub env: &'a [(String, String)],
    /// Standard input that the call gives.
    pub stdin: Option<&'a str>,
}

/// Parses a command line.
pub fn parse(text: &str, surroundings: Surroundings<'_>) -> CommandLine {
    let mut shell = ShellState::new(Folder::Known(surroundings.folder.to_owned()));
    for (name, value) in surroundings.env {
        shell.set(name, &Word::literal(value));
    }
    let mut reader = Reader {
        home: surroundings.home.to_owned(),
        commands: Vec::new(),
        shell: shell.clone(),
        names_changed: false,
        written: Vec::new(),
        repeated: 0,
    };
    let stdin = surroundings.stdin.map(str::to_owned);
    let start = Scope {
        scripts: 0,
        input: stdin.map_or(Input::None, Input::Text),
    };
    let mut read = reader.variables(surroundings.env, &start);
    if read.is_ok() {
        read = reader.script(text, start.clone());
    }
    // The parser ends a word at a line continuation. Lines that are joined may also hide a command in a comment, so both count.
    if let (Ok(()), Some(joined)) = (&read, without_continuations(text)) {
        reader.shell = shell;
        read = reader.script(&joined, start);
    }
    let parsed = match read {
        Ok(()) => Parsed::Commands(reader.commands),
        Err(why) => Parsed::Unparsed(why),
    };
    CommandLine {
        text: text.to_owned(),
        parsed,
    }
}

/// Text without line continuations inside words. `None`: it has none.
fn without_continuations(text: &str) -> Option<String> {
    let is_blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
    let mut inside = text.match_indices("\\\n").filter(|(at, both)| {
        let before = text[..*at].chars().next_back();
        !is_blank(before) && !is_blank(text[at + both.len()..].chars().next())
    });
    inside.next()?;
    Some(text.replace("\\\n", ""))
}

/// Text with quotes around `/` in tests such as `[ -d / ]`, where the parser takes it for an operator. `None`: it has none.
fn quoted_roots(text: &str) -> Option<String> {
    // A quote inside `$'…'` would end it in another way.
    let is_test = !text.contains("$'") && (text.contains(" / ]") || text.contains("[ / "));
    is_test.then(|| text.replace(" / ]", " '/' ]").replace("[ / ", "[ '/' "))
}

/// Character that stands for a class of characters such as `[ab]`, which the parser does not read in all places.
const CLASS: char = '\u{e000}';

/// Text that the parser reads, for one that it does not: with `>|` for `<>`, and in words with `*` for `?` and `[!a]`, and
/// [`CLASS`] for other classes. `None`: it has none of these.
fn readable(text: &str) -> Option<String> {
    let text = quoted_roots(text).unwrap_or_else(|| text.to_owned());
    let opened = text.replace("<>", ">|");
    let mut out = String::new();
    let mut rest = opened.as_str();
    while let Some(c) = rest.chars().next() {
        let pattern = match c {
            '?' => Some(1),
            '[' => class_length(rest),
            _ => None,
        };
        let is_part = |c: char| c.is_alphanumeric() || "*/._-".contains(c);
        let is_in_word =
            |length: &usize| out.ends_with(is_part) || rest[*length..].starts_with(is_part);
        let length = pattern.filter(is_in_word);
        let is_any = rest.starts_with('?') || rest.starts_with("[!") || rest.starts_with("[^");
        out.push(match length {
            Some(_) if is_any => '*',
            Some(_) => CLASS,
            None => c,
        });
        rest = &rest[length.unwrap_or(c.len_utf8())..];
    }
    (out != text).then_some(out)
}

/// Length of the class of characters at the begin of a text, such as `[ab]`, `[!]x]` or `[[:lower:]]`. `None`: it is none that
/// is surely one, or the subscript of an assignment.
fn class_length(text: &str) -> Option<usize> {
    let mut at = 1;
    for first in [&['!', '^'][..], &[']']] {
        at += usize::from(text[at..].starts_with(first));
    }
    loop {
        let rest = &text[at..];
        if let Some(named) = rest.strip_prefix("[:") {
            at += "[:".len() + named.find(":]")? + ":]".len();
            continue;
        }
        match rest.chars().next()? {
            ']' => break,
            c if c.is_alphanumeric() || "!^-._,+@%".contains(c) => at += c.len_utf8(),
            _ => return None,
        }
    }
    let length = at + 1;
    let is_assignment = text[length..].starts_with(['=', '+']);
    (!is_assignment).then_some(length)
}

/// Collects the commands of a command line.
struct Reader {
    /// Home directory of the user, to which `cd` goes without a word.
    home: String,
    commands: Vec<SimpleCommand>,
    /// State of the shell that runs the next command.
    shell: ShellState,
    /// A command so far changes the meaning of names.
    names_changed: bool,
    /// Files that the commands so far write, with texts that are known.
    written: Vec<written::WrittenFile>,
    /// Bytes of the bodies of loops and functions that were read more than once.
    repeated: usize,
}

/// Place at which a script runs.
#[derive(Clone)]
struct Scope {
    /// Number of scripts around this one.
    scripts: usize,
    /// Standard input of the script.
    input: Input,
}

/// Returns whether a variable changes which program a name means, or makes programs run others.
pub fn changes_commands(name: &str) -> bool {
    names::changes_names(name) || values::is_command(name)
}

impl Reader {
    /// Adds the commands in variables that are set for the whole command line.
    fn variables(&mut self, env: &[(String, String)], scope: &Scope) -> Added {
        let mut names = env.iter().map(|(name, _)| name);
        self.names_changed |= names.any(|name| names::changes_names(name));
        let scope = Scope {
            scripts: scope.scripts + 1,
            input: Input::None,
        };
        values::add_all_variables(self, env, &scope)
    }

    /// Adds the commands of a script, which changes the state of the shell.
    fn script(&mut self, text: &str, scope: Scope) -> Added {
        if scope.scripts > MAX_SCRIPTS {
            return Err(TOO_DEEP);
        }
        let quoted;
        let (text, found) = match tree(text) {
            Err(NOT_SHELL) => {
                let (other, found) = readable_tree(text)?;
                quoted = other;
                // `sh <> file`: the file is also the input.
                if text.contains("<>") {
                    let input = text.replace("<>", "< ");
                    self.script_again(&input, scope.clone(), self.names_changed);
                }
                (quoted.as_str(), found)
            }
            found => (text, found?),
        };
        let names_changed = self.names_changed;
        let before = self.shell.clone();
        walk::walk(self, text, &found, scope.clone())?;
        let after = std::mem::replace(&mut self.shell, before);
        self.script_in_other_ways(text, &found, &scope, names_changed)?;
        self.shell = after;
        Ok(())
    }

    /// Adds the commands of a script that the parser does not see: in quotes, and by braces, blanks and defaults.
    fn script_in_other_ways(
        &mut self,
        text: &str,
        found: &Tree,
        scope: &Scope,
        names_changed: bool,
    ) -> Added {
        for hidden in quoted_code::scripts(text, found) {
            let inside = Scope {
                scripts: scope.scripts + 1,
                input: Input::None,
            };
            match hidden.is_possible {
                true => self.script_again(&hidden.text, inside, names_changed),
                false => self.child(|reader| reader.script(&hidden.text, inside))?,
            }
        }
        if scope.scripts < MAX_EXPANDED {
            let braces = braces::expanded(text, found).into_iter();
            let divided = variables::with_blanks(text);
            let shells = variables::with_shells(text, found);
            for expanded in braces.chain(divided).chain(shells) {
                self.script_again(&expanded, scope.clone(), names_changed);
            }
            self.script_with_defaults(text, found, scope, names_changed);
        }
        Ok(())
    }

    /// Reads something that runs in a shell of its own, and leaves the state of this one as it is.
    fn child(&mut self, read: impl FnOnce(&mut Self) -> Added) -> Added {
        let shell = self.shell.clone();
        let result = read(self);
        self.shell = shell;
        result
    }

    /// Removes those of the commands from this one on that were known before.
    fn keep_new(&mut self, first: usize) {
        for command in self.commands.split_off(first) {
            if !self.commands.contains(&command) {
                self.commands.push(command);
            }
        }
    }
    /// Adds the commands of a script that have the defaults of its expansions, such as `git push --force` for
    /// `git push ${X:---force}`.
    fn script_with_defaults(
        &mut self,
        text: &str,
        found: &Tree,
        scope: &Scope,
        names_changed: bool,
    ) {
        let Some(mut text) = variables::with_defaults(text, found) else {
            return;
        };
        let mut found = tree(&text);
        // A default may have an expansion with a default of its own.
        for _ in 1..MAX_DEFAULTS {
            let Ok(outer) = &found else { break };
            let Some(inner) = variables::with_defaults(&text, outer) else {
                break;
            };
            text = inner;
            found = tree(&text);
        }
        if found.is_err() {
            return;
        }
        let count = self.commands.len();
        self.script_again(&text, scope.clone(), names_changed);
        for command in &mut self.commands[count..] {
            command.from_default = true;
        }
    }

    /// Adds the commands of a script that were not found without the values of its variables. One that cannot be read adds
    /// none: the commands without the values count.
    fn script_again(&mut self, text: &str, scope: Scope, names_changed: bool) {
        let count = self.commands.len();
        let changed = std::mem::replace(&mut self.names_changed, names_changed);
        let read =
            tree(text).and_then(|tree| self.child(|reader| walk::walk(reader, text, &tree, scope)));
        self.names_changed |= changed;
        match read {
            Ok(()) => self.keep_new(count),
            Err(_) => self.commands.truncate(count),
        }
    }

    /// Adds a command, and the commands that it runs.
    fn add(&mut self, command: SimpleCommand, input: Input, scope: &Scope) -> Added {
        if self.commands.len() >= MAX_COMMANDS {
            return Err(TOO_MANY);
        }
        wrapper::add(self, command, input, scope)
    }
}

/// Standard input of a command, as far as the text tells.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Input {
    /// Not given.
    None,
    Text(String),
    /// Names of files, of which these stand for all.
    Files(Vec<Word>),
    /// Something that is known only when the command runs.
    Unknown,
}

/// Tree of a text that the parser does not read as it is, with the text that it reads.
fn readable_tree(text: &str) -> Result<(String, Tree), Unparsed> {
    let texts = [quoted_roots(text), readable(text)].into_iter().flatten();
    let mut trees = texts.filter_map(|text| tree(&text).ok().map(|tree| (text, tree)));
    trees.next().ok_or(NOT_SHELL)
}

fn tree(text: &str) -> Result<Tree, Unparsed> {
    if text.len() > MAX_BYTES {
        return Err(TOO_LONG);
    }
    if text.contains('\0') {
        return Err(HAS_NUL);
    }
    let mut parser = Parser::new();
    // A parser without a language parses nothing, so every text is unparsed.
    let _ = parser.set_language(&tree_sitter_bash::LANGUAGE.into());
    let mut rounds = 0;
    let mut count = |_: &tree_sitter::ParseState| {
        rounds += 1;
        match rounds > MAX_ROUNDS {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let options = ParseOptions::new().progress_callback(&mut count);
    let bytes = text.as_bytes();
    let mut rest = |at: usize, _| bytes.get(at..).unwrap_or_default();
    let tree = parser
        .parse_with_options(&mut rest, None, Some(options))
        .ok_or(NOT_SHELL)?;
    match tree.root_node().has_error() {
        true => Err(NOT_SHELL),
        false => Ok(tree),
    }
}

#[cfg(test)]
#[path = "../../tests/command_line/mod.rs"]
mod tests;
