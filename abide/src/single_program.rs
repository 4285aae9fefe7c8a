//! Recognition of command lines that run a single program.
//!
//! A shell that waits for a single program at a terminal interferes: Ctrl-C is meant for the program and
//! reaches the shell too, which then reports that it was interrupted, however the program ended. So the shell
//! is told to `exec` the program.

use std::ffi::OsString;
use std::path::Path;

/// Shells whose `exec` is known to behave as needed.
const SHELLS: [&str; 6] = ["sh", "dash", "bash", "zsh", "ksh", "ash"];

/// Builtins and keywords of shells; a line that begins with one is not a single program.
const SHELL_WORDS: &[&str] = &[
    ".", ":", "[", "[[", "alias", "bg", "break", "builtin", "case", "cd", "command", "continue",
    "coproc", "declare", "disown", "echo", "enable", "eval", "exec", "exit", "export", "false",
    "fg", "for", "function", "getopts", "hash", "history", "if", "jobs", "kill", "let", "local",
    "printf", "pwd", "read", "readonly", "return", "select", "set", "shift", "source", "test",
    "time", "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias", "unset",
    "until", "wait", "while", "{",
];

/// Arguments that make the shell `exec` the program of this line. `None`: the line is more than a single
/// program, or the shell is unknown.
pub fn exec_argv(shell: &[String], line: &str) -> Option<Vec<OsString>> {
    let [program, .., option] = shell else {
        return None;
    };
    let name = Path::new(program).file_name()?.to_str()?;
    let known = SHELLS.contains(&name) && option == "-c";
    if !known || !is_one_program(line) {
        return None;
    }
    let mut words: Vec<OsString> = shell.iter().map(OsString::from).collect();
    words.push(format!("exec {}", line.trim_start()).into());
    Some(words)
}

/// True if a line consists of a program and its arguments only.
fn is_one_program(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+".contains(c);
    if first.is_empty() || !first.chars().all(plain) || SHELL_WORDS.contains(&first) {
        return false;
    }
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some('\''), _) => {}
            (_, '\\' | '`' | '$') => return false,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, c) if ";&|()<>{}!#\n".contains(c) => return false,
            (None, _) => {}
        }
    }
    quote.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(program: &str) -> Vec<String> {
        vec![program.into(), "-c".into()]
    }

    #[test]
    fn single_program_is_run_with_exec() {
        let sh = shell("/bin/sh");
        for line in [
            "python3 -i",
            "  psql -h localhost",
            "vim ~/notes.txt",
            "python3 -c 'print(1); print(\"$x\")'",
            "./run.sh \"a; b\" *.txt A=1",
        ] {
            let words = exec_argv(&sh, line).expect(line);
            assert_eq!(
                words[2].to_str(),
                Some(&*format!("exec {}", line.trim_start()))
            );
        }
    }

    #[test]
    fn other_command_lines_are_not_changed() {
        let sh = shell("/bin/sh");
        for line in [
            "",
            " ",
            "cd x",
            "echo hi",
            "true",
            "a; b",
            "a && b",
            "a | b",
            "a > b",
            "a &",
            "a\nb",
            "A=1 a",
            "$EDITOR x",
            "a $(b)",
            "a `b`",
            "a \"$(b)\"",
            "(a)",
            "{ a; }",
            "if a",
            "! a",
            "a 'b",
            "a \\",
            "a # b",
            "\"a b\" c",
        ] {
            assert_eq!(exec_argv(&sh, line), None, "{line}");
        }
        assert_eq!(exec_argv(&shell("/usr/bin/fish"), "vim"), None);
        assert_eq!(exec_argv(&["/bin/sh".into()], "vim"), None);
        assert_eq!(exec_argv(&["/bin/sh".into(), "-lc".into()], "vim"), None);
    }
}
