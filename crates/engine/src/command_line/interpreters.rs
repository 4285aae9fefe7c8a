//! Code for an interpreter that is in the command line: `python -c`, `perl -e`, `awk`. Of code that runs commands, every
//! text in quotes is taken for one; of code that deletes trees, for a path.

use abide_core::policy::{Piece, SimpleCommand, Word};

use super::wrapper::{joined, script, value_of, wrapped};
use super::{Input, NOT_SHELL, Reader, Scope, Unparsed};

/// Parts of the names of functions that run a command.
const RUNS_COMMANDS: [&str; 8] = [
    "system",
    "popen",
    "Popen",
    "exec",
    "spawn",
    "subprocess",
    "passthru",
    "getline",
];

/// Parts of the names of functions that delete a directory with its contents.
const DELETES_TREES: [&str; 5] = ["rmtree", "rmSync", "rm_r", "remove_tree", "rimraf"];

/// Interpreters that take code as an option, with its names.
const CODE_OPTIONS: [(&str, &[&str]); 9] = [
    ("python", &["-c"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("node", &["-e", "-p", "--eval", "--print"]),
    ("nodejs", &["-e", "-p", "--eval", "--print"]),
    ("bun", &["-e", "--eval"]),
    ("deno", &["eval"]),
    ("php", &["-r"]),
    ("lua", &["-e"]),
];

/// Code that a command gives to an interpreter. `None`: it is no interpreter, or its code is in a file.
fn code(command: &SimpleCommand, program: &str, input: &Input) -> Option<String> {
    let arguments = command.arguments();
    let is_operand = |word: &&Word| !word.shown().starts_with('-');
    if matches!(program, "awk" | "gawk" | "mawk") {
        let text = arguments.iter().find(is_operand)?;
        return Some(joined(std::slice::from_ref(text)));
    }
    let known = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (_, options) = CODE_OPTIONS.iter().find(|(name, _)| *name == known)?;
    if let Some(code) = value_of(command, options) {
        return Some(joined(&[code]));
    }
    match input {
        Input::Text(text) if !arguments.iter().any(|word| is_operand(&word)) => Some(text.clone()),
        Input::Text(_) | Input::None | Input::Files(_) | Input::Unknown => None,
    }
}

/// Adds the commands in the code of an interpreter.
pub(super) fn add_code(
    reader: &mut Reader,
    outer: &SimpleCommand,
    program: &str,
    input: &Input,
    scope: &Scope,
) -> Result<(), Unparsed> {
    let Some(code) = code(outer, program, input) else {
        return Ok(());
    };
    let mentions = |names: &[&str]| names.iter().any(|name| code.contains(name));
    let texts = quoted(&code);
    if mentions(&DELETES_TREES) {
        let paths = texts.iter().flatten().map(|path| path_word(path));
        let words = [Word::literal("rm"), Word::literal("-r")].into_iter();
        wrapped(
            reader,
            words.chain(paths).collect(),
            outer,
            Input::None,
            scope,
        )?;
    }
    let has_pipe = program.ends_with("awk") && code.contains('|');
    if mentions(&RUNS_COMMANDS) || code.contains('`') || has_pipe {
        for text in texts {
            let (count, changed) = (reader.commands.len(), reader.names_changed);
            match script(reader, &text.join(" "), scope.clone()) {
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

/// Texts in quotes. Those that only a comma separates, as in a list of words, are together.
fn quoted(code: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut between = String::new();
    let mut rest = code.chars();
    while let Some(c) = rest.next() {
        if !matches!(c, '\'' | '"' | '`') {
            between.push(c);
            continue;
        }
        let mut text = String::new();
        while let Some(inner) = rest.next() {
            match inner {
                '\\' => text.extend(rest.next()),
                end if end == c => break,
                other => text.push(other),
            }
        }
        let is_list = between
            .trim_matches(|c: char| c.is_whitespace() || c == '[')
            .eq(",");
        match found.last_mut() {
            Some(list) if is_list => list.push(text),
            _ => found.push(vec![text]),
        }
        between.clear();
    }
    found
}
