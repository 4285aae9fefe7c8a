//! Shells: the script that one runs, as far as the text tells.

use abide_core::policy::{RunsCode, SimpleCommand, Word};

use super::wrapper::as_script;
use super::{Added, Input, Reader, Scope};

const SHELLS: [&str; 14] = [
    "sh", "bash", "rbash", "dash", "zsh", "ksh", "ksh93", "mksh", "lksh", "yash", "ash", "fish",
    "csh", "tcsh",
];

/// Files that are the standard input.
const INPUTS: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

/// Script that stands for one that the text does not tell: its program is unknown.
const UNKNOWN: &str = "${unknown}";

/// True for the shells that scripts are written for.
pub(super) fn is_shell(command: &SimpleCommand) -> bool {
    // `/proc/self/exe` is the shell that runs it.
    let is_own = || {
        let path = command.words.first().map(Word::shown);
        path.is_some_and(|path| path.starts_with("/proc/") && path.ends_with("/exe"))
    };
    let program = command.program();
    program.is_some_and(|program| SHELLS.contains(&program.as_str())) || is_own()
}

/// Origin of the script of a shell.
enum Script<'a> {
    /// This word, after `-c`, with the words behind it.
    Text(&'a Word, &'a [Word]),
    /// The standard input.
    Input,
    File(&'a Word),
}

/// Adds the commands that a shell runs.
pub(super) fn add_script(
    reader: &mut Reader,
    outer: &SimpleCommand,
    input: Input,
    scope: Scope,
) -> Added {
    let (found, is_known) = script_of(outer.arguments());
    if !is_known {
        reader.script(UNKNOWN, scope.clone())?;
    }
    match (found, input) {
        (Script::Text(word, arguments), _) => {
            // The first one is the name of the shell, `$0`.
            let parameters = arguments.iter().skip(1);
            let parameters = parameters.map(|word| reader.shell.resolved(word));
            reader.shell.parameters = Some(parameters.collect());
            reader.script(&as_script(word), scope)
        }
        (Script::Input, Input::Text(text)) => reader.script(&text, scope),
        (Script::Input, Input::Unknown) => reader.script(UNKNOWN, scope),
        (Script::Input, Input::None | Input::Files(_)) => Ok(()),
        (Script::File(file), input) => of_file(reader, file, input, scope),
    }
}

/// Adds the commands of a file that `source` runs.
pub(super) fn add_sourced(
    reader: &mut Reader,
    operands: &[Word],
    input: Input,
    scope: Scope,
) -> Added {
    match operands.first() {
        Some(file) => of_file(reader, file, input, scope),
        None => Ok(()),
    }
}

/// Commands of a script file, which the text shows only if it writes the file or if that is the standard input.
fn of_file(reader: &mut Reader, file: &Word, input: Input, scope: Scope) -> Added {
    if let Some(text) = reader.written_text(file, &reader.shell.folder) {
        return reader.script(&text, scope);
    }
    let is_input = |path: String| INPUTS.contains(&path.as_str());
    match (file.text(), input) {
        (Some(path), Input::Text(text)) if is_input(path.clone()) => reader.script(&text, scope),
        (Some(_), _) => Ok(()),
        (None, _) => reader.script(UNKNOWN, scope),
    }
}

/// Script among the arguments of a shell. `false`: a word before it is not known, and could be another one.
fn script_of(arguments: &[Word]) -> (Script<'_>, bool) {
    let mut words = arguments.iter();
    let (mut has_text, mut reads_input, mut is_known) = (false, false, true);
    let mut operand = None;
    while let Some(word) = words.next() {
        let Some(text) = word.text() else {
            match has_text {
                true => operand = Some(word),
                false if is_known => {
                    is_known = false;
                    continue;
                }
                false => continue,
            }
            break;
        };
        match text.as_str() {
            "--" | "-" => {
                operand = words.next();
                break;
            }
            "--rcfile" | "--init-file" => drop(words.next()),
            text if text.starts_with("--") => {}
            text if text.starts_with(['-', '+']) && text.len() > 1 => {
                let letters = &text[1..];
                if text.starts_with('-') {
                    has_text |= letters.contains('c');
                    reads_input |= letters.contains('s');
                }
                // Each of these letters takes a word.
                for _ in letters.matches(['o', 'O']) {
                    words.next();
                }
            }
            _ => {
                operand = Some(word);
                break;
            }
        }
    }
    let found = match (operand, has_text) {
        (Some(word), true) => Script::Text(word, words.as_slice()),
        (Some(file), false) if !reads_input => Script::File(file),
        _ => Script::Input,
    };
    (found, is_known)
}

/// Mark of a shell whose script is not in the text.
pub(super) fn runs_code(command: &SimpleCommand, has_input: bool) -> Option<RunsCode> {
    match script_of(command.arguments()).0 {
        Script::Text(..) => None,
        Script::File(_) => Some(RunsCode::Always),
        Script::Input => has_input.then_some(RunsCode::Always),
    }
}
