//! Code for an interpreter that is in the command line: `python -c`, `perl -e`, `awk`. A text in quotes behind the name of a
//! function that runs commands is taken for one, behind one that deletes trees for a path.

use abide_core::policy::{Piece, SimpleCommand, Word};

use super::wrapper::{as_script, joined, option_values, script, wrapped};
use super::{Added, Input, NOT_SHELL, NameTable, Names, Reader, Scope};

/// Functions that run a command; also those that begin with `exec` or `spawn`.
const RUNS_COMMANDS: Names =
    Names("system popen Popen run call check_call check_output getoutput passthru shell_exec");

/// Functions that delete a directory with its contents.
const DELETES_TREES: [&str; 6] = ["rmtree", "rmSync", "rm_r", "rm_rf", "remove_tree", "rimraf"];

/// Expressions for the directory in which the interpreter runs.
const WORKING_DIRECTORY: [&str; 4] = ["os.getcwd()", "Path.cwd()", "process.cwd()", "Dir.pwd"];

/// Interpreters that take code as an option, with its names.
const CODE_OPTIONS: NameTable = NameTable(
    "python pypy ipython guile: -c
    perl: -e -E
    ruby lua luajit Rscript raku gnuplot: -e
    node nodejs tsx ts-node: -e -p --eval --print
    bun: -e --eval
    deno: eval
    php: -r -B -R -E
    julia: -e -E --eval --print",
);

/// Code that a command gives to an interpreter. `None`: it is no interpreter, or its code is in a file that the command
/// line does not write.
fn code(reader: &Reader, command: &SimpleCommand, program: &str, input: &Input) -> Option<String> {
    let arguments = command.arguments();
    let is_operand = |word: &&Word| !word.shown().starts_with('-');
    if is_awk(program) {
        // A word before the code may be the value of an option.
        let texts = arguments.iter();
        let texts: Vec<String> = texts.map(as_script).collect();
        return Some(texts.join("\n"));
    }
    let known = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let options: Vec<&str> = CODE_OPTIONS.of(known).collect();
    if options.is_empty() {
        return None;
    }
    let codes = option_values(command, &options).into_iter();
    let codes: Vec<String> = codes.map(|(code, _)| joined(&[code])).collect();
    if !codes.is_empty() {
        return Some(codes.join("\n"));
    }
    let mut files = arguments.iter();
    if let Some(code) = files.find_map(|file| reader.written_text(file, &command.folder)) {
        return Some(code);
    }
    match input {
        Input::Text(text) if !arguments.iter().any(|word| is_operand(&word)) => Some(text.clone()),
        Input::Text(_) | Input::None | Input::Files(_) | Input::Unknown => None,
    }
}

/// True for the programs that read code of awk.
pub(super) fn is_awk(program: &str) -> bool {
    ["awk", "gawk", "mawk", "nawk", "original-awk"].contains(&program)
}

/// Adds the commands in the code that a command gives to an interpreter.
pub(super) fn add_code(
    reader: &mut Reader,
    outer: &SimpleCommand,
    program: &str,
    input: &Input,
    scope: &Scope,
) -> Added {
    match code(reader, outer, program, input) {
        Some(code) => add_text(reader, outer, program, &code, scope),
        None => Ok(()),
    }
}

/// Adds the commands of a file that the command line writes and runs as a program.
pub(super) fn add_written(
    reader: &mut Reader,
    outer: &SimpleCommand,
    text: &str,
    scope: &Scope,
) -> Added {
    let first = text.trim_start().lines().next().unwrap_or_default();
    let mut names = first.strip_prefix("#!").unwrap_or_default();
    names = names.trim();
    let name = names.rsplit(['/', ' ']).find(|name| !name.starts_with('-'));
    let name = name.unwrap_or_default();
    let known = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match CODE_OPTIONS.of(known).next().is_some() {
        true => add_text(reader, outer, name, text, scope),
        false => script(reader, text, scope.clone()),
    }
}

/// Adds the commands in the code of an interpreter.
fn add_text(
    reader: &mut Reader,
    outer: &SimpleCommand,
    program: &str,
    code: &str,
    scope: &Scope,
) -> Added {
    let code = WORKING_DIRECTORY
        .iter()
        .fold(code.to_owned(), |code, name| code.replace(name, "'.'"));
    for quoted in quoted(&code) {
        if quoted.is_behind(|name| DELETES_TREES.contains(&name)) {
            let paths = quoted.texts.iter().map(|path| path_word(path));
            let words = [Word::literal("rm"), Word::literal("-r")].into_iter();
            let words = words.chain(paths).collect();
            wrapped(reader, words, outer, Input::None, scope)?;
        }
        if quoted.runs_command(program) || quoted.is_run_by_name(&code) {
            let (count, changed) = (reader.commands.len(), reader.names_changed);
            match script(reader, &quoted.texts.join(" "), scope.clone()) {
                // Text of another kind.
                Err(NOT_SHELL) => reader.commands.truncate(count),
                result => result?,
            }
            reader.names_changed = changed;
        }
    }
    Ok(())
}

fn path_word(path: &str) -> Word {
    match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Word {
            pieces: vec![Piece::Home, Piece::Text(rest.to_owned())],
        },
        _ => Word::literal(path),
    }
}

/// Texts in quotes with nothing but commas between them, as in a list of words.
struct Quoted {
    /// Code before them in the same statement.
    before: String,
    quote: char,
    texts: Vec<String>,
    /// A pipe follows the last of them.
    is_piped: bool,
}

impl Quoted {
    /// Returns whether a name in the code before the texts is such a one.
    fn is_behind(&self, is_such: impl Fn(&str) -> bool) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        self.before.split(|c| !is_part(c)).any(is_such)
    }

    fn runs_command(&self, program: &str) -> bool {
        let is_pipe = program.ends_with("awk") && (self.is_piped || self.before.contains('|'));
        let is_backquoted = self.quote == '`' && ["perl", "ruby", "php"].contains(&program);
        let is_execute = |name: &str| program.starts_with("lua") && name == "execute";
        is_pipe || is_backquoted || self.is_behind(runs_commands) || self.is_behind(is_execute)
    }

    /// Returns whether the texts are the value of a variable that a function which runs commands is given.
    fn is_run_by_name(&self, code: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let assigned = self.before.trim_end_matches([' ', '[', '(']);
        let Some(assigned) = assigned.strip_suffix('=') else {
            return false;
        };
        let Some(name) = assigned.trim_end().rsplit(|c| !is_part(c)).next() else {
            return false;
        };
        !name.is_empty()
            && code.split([';', '\n']).any(|statement| {
                let mut names = statement.split(|c| !is_part(c));
                names.any(runs_commands) && names.any(|used| used == name)
            })
    }
}

/// Returns whether a function runs a command.
fn runs_commands(name: &str) -> bool {
    let begins = ["exec", "spawn"]
        .iter()
        .any(|begin| name.starts_with(begin));
    RUNS_COMMANDS.has(name) || (begins && name != "execute")
}

fn quoted(code: &str) -> Vec<Quoted> {
    let mut found: Vec<Quoted> = Vec::new();
    let mut before = String::new();
    let mut rest = code.chars();
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' | '`' => {}
            // A line that ends in the middle of a call goes on.
            '\n' if before.trim_end().ends_with(['(', '[', ',']) => continue,
            ';' | '\n' => {
                before.clear();
                before.push(';');
                continue;
            }
            c => {
                before.push(c);
                continue;
            }
        }
        let mut text = String::new();
        while let Some(inner) = rest.next() {
            match inner {
                '\\' => text.extend(rest.next()),
                end if end == c => break,
                other => text.push(other),
            }
        }
        let between = before.trim_matches(|c: char| c.is_whitespace() || c == '[');
        let behind = rest.as_str().trim_start();
        let is_piped = behind.starts_with('|') && !behind.starts_with("||");
        match found.last_mut() {
            Some(list) if matches!(between, "" | ",") => {
                list.texts.push(text);
                list.is_piped = is_piped;
            }
            _ => found.push(Quoted {
                before: before.clone(),
                quote: c,
                texts: vec![text],
                is_piped,
            }),
        }
        before.clear();
    }
    found
}
