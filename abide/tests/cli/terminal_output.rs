//! Output of `abide run` in a terminal: colours are passed on, sequences that change the terminal or make it answer
//! are not.

use crate::harness::{Abide, Pty};

/// Command that prints text and colours between sequences that a terminal obeys or answers.
const HOSTILE: &str = concat!(
    r"printf 'begin\033]0;title\007\033]52;c;aGk=\007\033[c\033[6n\033]11;?\033\\'; ",
    r"printf '\033P$qm\033\\\033_x\033\\\033^x\033\\\033Xx\033\\\005'; ",
    r"printf '\033[31mred\033[0m\r\033[2K\033[1A\033[?25l50%%\033[?25h end\n'"
);
/// Output as the terminal shows it.
const SHOWN: &str =
    "begin\u{1b}[31mred\u{1b}[0m\r\u{1b}[2K\u{1b}[1A\u{1b}[?25l50%\u{1b}[?25h end\r\n";

fn pty(abide: &Abide, words: &[&str]) -> Pty {
    let mut command = abide.command(["run"].iter().chain(words));
    command.env("NO_COLOR", "1");
    Pty::run(command)
}

#[test]
fn titles_clipboard_and_queries_do_not_reach_the_terminal_of_abide_run() {
    let abide = Abide::new();
    let to_stderr = format!("{{ {HOSTILE}; }} >&2");
    for command in [HOSTILE, &to_stderr] {
        let (status, screen) = pty(&abide, &["--", command]).end();
        assert_eq!(status.code(), Some(0));
        assert_eq!(screen, SHOWN, "{command}");
    }
}

#[test]
fn unfiltered_run_may_set_title_and_clipboard_but_not_query_the_terminal() {
    let abide = Abide::new();
    let (_, screen) = pty(&abide, &["--unfiltered", "--", HOSTILE]).end();
    assert!(
        screen.contains("\u{1b}]0;title\u{7}\u{1b}]52;c;aGk=\u{7}"),
        "{screen:?}"
    );
    assert!(!screen.contains("\u{1b}[6n"), "{screen:?}");
}

#[test]
fn run_in_a_pipe_writes_every_byte() {
    let abide = Abide::new();
    let piped = abide.output(["run", "--", HOSTILE]).stdout;
    assert!(piped.starts_with(b"begin\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[c\x1b[6n"));
    assert!(piped.ends_with(b"\x05\x1b[31mred\x1b[0m\r\x1b[2K\x1b[1A\x1b[?25l50%\x1b[?25h end\n"));
}
