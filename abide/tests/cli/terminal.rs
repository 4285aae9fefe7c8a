//! `abide run` in a terminal: the question, Ctrl-C, keys and sizes.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Abide, Pty, feed, wait_for_line};

const CTRL_C: &[u8] = b"\x03";

fn pty(abide: &Abide, words: &[&str]) -> Pty {
    let mut command = abide.command(["run"].iter().chain(words));
    command.env("NO_COLOR", "1");
    Pty::run(command)
}

#[test]
fn question_is_on_its_own_lines_and_new_output_withdraws_it() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut pty = pty(
        &abide,
        &["--idle", "200ms", "--", "printf 'half a line'; cat go"],
    );
    pty.wait_for("half a line\r\nCommand has been idle for 200ms. Continue waiting?\r\n");
    pty.wait_for("command: printf 'half a line'; cat go");
    pty.wait_for("last output: half a line");
    pty.wait_for("\r\nContinue waiting? [Y/n] ");
    feed(&fifo, b"it lives\n");
    pty.wait_for("\r\n(new output: the question is withdrawn)\r\nit lives\r\n");
    let (status, _) = pty.end();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn answer_yes_continues_and_asks_again_later() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut pty = pty(&abide, &["--idle", "200ms", "--", "cat go"]);
    for answer in ["y\n", "\n", "what?\nYES\n"] {
        pty.wait_for("[Y/n] ");
        pty.type_in(answer.as_bytes());
    }
    pty.wait_for("Please answer y or n.");
    pty.wait_for("Command has been idle for 200ms.");
    pty.wait_for("[Y/n] ");
    feed(&fifo, b"done\n");
    pty.wait_for("\r\ndone\r\n");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(0), "{screen}");
}

#[test]
fn answer_no_ends_the_command() {
    let abide = Abide::new();
    let words = ["run", "--idle", "1s", "--", "echo begun; sleep 1000"];
    let mut command = abide.command(words);
    command.env_remove("NO_COLOR");
    let mut pty = Pty::run(command);
    pty.wait_for("begun\r\n\x1b[1mCommand has been idle for 1s. Continue waiting?\x1b[0m\r\n");
    pty.wait_for("[Y/n] ");
    pty.type_in(b"n\n");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(124), "{screen}");
    assert!(
        screen.contains("command execution timeout: no output for 1s"),
        "{screen}"
    );
}

#[test]
fn ctrl_c_at_the_question_ends_the_command() {
    let abide = Abide::new();
    let mut pty = pty(
        &abide,
        &["--idle", "200ms", "--", "trap '' INT; sleep 1000"],
    );
    pty.wait_for("[Y/n] ");
    pty.type_in(CTRL_C);
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(130), "{screen}");
    assert!(
        screen.contains("command execution cancelled by user"),
        "{screen}"
    );
}

const ASK_BEFORE_TOUCH: &str =
    "[[policy.rule]]\nrun = [\"touch\", \"...\"]\ndo = \"ask\"\nwhy = \"test\"\n";

#[test]
fn ctrl_c_at_the_question_about_a_held_command_declines_it() {
    let abide = Abide::with_config(ASK_BEFORE_TOUCH);
    for more in [&[][..], &["--pty"]] {
        let words = [&["--agent", "ann"], more, &["--", "touch made"]].concat();
        let mut pty = pty(&abide, &words);
        pty.wait_for("Allow this command?");
        pty.type_in(CTRL_C);
        let (status, screen) = pty.end();
        assert_eq!(status.code(), Some(130), "{screen}");
        let open = abide.json(["answer", "--json"]);
        assert_eq!(open["questions"], serde_json::json!([]), "{open}");
    }
    assert!(!abide.path("made").exists());
}

#[test]
fn sigterm_ends_a_run_whose_question_is_shown_elsewhere() {
    let abide = Abide::with_config(ASK_BEFORE_TOUCH);
    let mut top = Pty::run(abide.command(["top"]));
    top.resize(160, 40);
    top.wait_for("no questions");
    let mut run = abide.command(["run", "--agent", "ann", "--", "touch made"]);
    let mut run = run.stdin(Stdio::null()).spawn().expect("abide run");
    top.wait_for("Allow this command?");
    let pid = Pid::from_child(&run);
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(run.wait().expect("its end").code(), Some(143));
    top.type_in(b"q");
    top.wait_for_end();
}

#[test]
fn s14_input_before_the_question_is_no_answer() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut pty = pty(&abide, &["--idle", "1h", "--", "echo begun; cat go"]);
    pty.wait_for("begun\r\n");
    pty.type_in(b"n\n");
    // The terminal echoes the input.
    pty.wait_for("n\r\n");
    abide.set_idle_limit("200ms");
    pty.wait_for("[Y/n] ");
    feed(&fifo, b"alive\n");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(0), "{screen}");
}

#[test]
fn line_begun_before_the_question_does_not_share_its_line() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut pty = pty(&abide, &["--idle", "1h", "--", "echo begun; cat go"]);
    pty.wait_for("begun\r\n");
    pty.type_in(b"nn");
    pty.wait_for("nn");
    abide.set_idle_limit("200ms");
    pty.wait_for("\r\nCommand has been idle for 200ms. Continue waiting?\r\n");
    pty.wait_for("[Y/n] ");
    pty.type_in(b"y\n");
    pty.wait_for("[Y/n] ");
    feed(&fifo, b"alive\n");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(screen.contains("begun\r\nnn\r\nCommand has"), "{screen}");
}

#[test]
fn first_ctrl_c_goes_to_the_command() {
    let abide = Abide::new();
    let command = "trap 'echo caught; exit 5' INT; echo begun; while :; do sleep 0.1; done";
    let mut pty = pty(&abide, &["--", command]);
    pty.wait_for("begun");
    pty.type_in(CTRL_C);
    let (status, screen) = pty.end();
    assert!(screen.contains("caught"), "{screen}");
    assert_eq!(status.code(), Some(5), "{screen}");
}

#[test]
fn command_ended_by_ctrl_c_exits_with_130() {
    let abide = Abide::new();
    let mut pty = pty(&abide, &["--", "echo begun; exec sleep 1000"]);
    pty.wait_for("begun");
    pty.type_in(CTRL_C);
    assert_eq!(pty.end().0.code(), Some(130));
}

#[test]
fn second_ctrl_c_ends_the_tree() {
    let abide = Abide::new();
    let command = "trap 'echo ignored' INT TERM; echo begun; while :; do sleep 0.1; done";
    let mut pty = pty(&abide, &["--", command]);
    pty.wait_for("begun");
    pty.type_in(CTRL_C);
    pty.wait_for("ignored");
    pty.type_in(CTRL_C);
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(130), "{screen}");
    assert!(
        screen.contains("command execution cancelled by user"),
        "{screen}"
    );
    assert_eq!(
        abide.json(["session", "list", "--json"])["sessions"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn question_is_shown_at_the_controlling_terminal_behind_pipes() {
    let abide = Abide::new();
    let mut pty =
        Pty::run_with_stderr(abide.command(["run", "--idle", "200ms", "--", "sleep 1000"]));
    pty.wait_for("[Y/n] ");
    pty.type_in(b"no\n");
    assert_eq!(pty.end().0.code(), Some(124));
}

#[test]
fn command_without_pty_reads_end_of_file() {
    let abide = Abide::new();
    let pty = pty(&abide, &["--", "cat; echo end"]);
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(0));
    assert!(screen.ends_with("end\r\n"), "{screen}");
}

#[test]
fn pty_command_gets_keys_and_sizes() {
    let abide = Abide::new();
    // A shell that is about to read handles a signal only after the read.
    let script = "trap 'stty size; resized=1' WINCH; stty size; echo ready; read line; echo \"got $line\"; \
                  while [ -z \"$resized\" ]; do sleep 0.05; done; read line; [ \"$line\" = bye ] && exit 6";
    let command = abide.command(["run", "--pty", "--", script]);
    let mut pty = Pty::run(command);
    pty.wait_for("ready");
    pty.type_in(b"hello\r");
    pty.wait_for("got hello");
    pty.resize(91, 17);
    pty.wait_for("17 91");
    pty.type_in(b"bye\r");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(6), "{screen}");
}

#[test]
fn pty_command_gets_ctrl_c_as_a_key() {
    let abide = Abide::new();
    let mut pty = pty(
        &abide,
        &[
            "--pty",
            "--",
            "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done",
        ],
    );
    pty.wait_for("ready");
    pty.type_in(CTRL_C);
    pty.wait_for("caught");
    assert_eq!(pty.end().0.code(), Some(5));
}

#[test]
fn second_ctrl_c_ends_a_pty_command_that_reads_no_keys() {
    let abide = Abide::new();
    for command in [
        "trap '' INT TERM; echo ready; sleep 1000; sleep 1000",
        "trap 'echo ignored' INT TERM; echo ready; while :; do sleep 0.1; done",
    ] {
        let mut pty = pty(&abide, &["--pty", "--", command]);
        pty.wait_for("ready");
        pty.type_in(CTRL_C);
        pty.wait_for("^C");
        pty.type_in(CTRL_C);
        let (status, screen) = pty.end();
        assert_eq!(status.code(), Some(130), "{screen}");
        let said = "command execution cancelled by user";
        assert!(screen.contains(said), "{screen}");
    }
}

#[test]
fn pty_program_that_reads_keys_gets_every_ctrl_c() {
    let abide = Abide::new();
    let command = r"stty -icanon -isig -echo min 1; printf '\033[?1049hready';
        for i in 1 2 3; do head -c 1 | od -An -tx1; done; echo end";
    let mut pty = pty(&abide, &["--pty", "--", command]);
    pty.wait_for("ready");
    for _ in 0..3 {
        pty.type_in(CTRL_C);
        pty.wait_for("03");
    }
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(screen.contains("end"), "{screen}");
}

#[test]
fn single_key_answers_the_question_of_a_pty_command() {
    let abide = Abide::new();
    let mut pty = pty(
        &abide,
        &["--pty", "--idle", "300ms", "--", "printf ready; sleep 1000"],
    );
    pty.wait_for("ready\r\nCommand has been idle for 300ms. Continue waiting?\r\n");
    pty.wait_for("[Y/n] ");
    pty.type_in(b"y");
    pty.wait_for("[Y/n] ");
    pty.type_in(b"n");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(124), "{screen}");
}

#[test]
fn question_is_asked_again_by_the_next_daemon() {
    let abide = Abide::new();
    let mut pty = pty(&abide, &["--idle", "1h", "--", "echo begun; sleep 1000"]);
    pty.wait_for("begun\r\n");
    abide.set_idle_limit("200ms");
    pty.wait_for("[Y/n] ");
    let before = abide.json(["answer", "--json"])["questions"][0]["question_id"].clone();
    abide.kill_daemon();
    let mut watch = abide
        .command(["answer", "--follow", "--json"])
        .spawn()
        .unwrap();
    let again = wait_for_line(watch.stdout.as_mut().unwrap(), "\n");
    let again: serde_json::Value = serde_json::from_slice(&again).unwrap();
    assert_eq!(again["question_id"], before);
    watch.kill().unwrap();
    watch.wait().unwrap();
    pty.type_in(b"n\n");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(124), "{screen}");
    // Neither the output nor the question is shown twice.
    assert!(
        screen.starts_with("begun\r\n") && !screen.contains("\r\nbegun"),
        "{screen}"
    );
    assert_eq!(screen.matches("[Y/n]").count(), 1, "{screen}");
}

#[test]
fn answer_lost_with_its_daemon_is_given_to_the_next() {
    let abide = Abide::new();
    let mut first = abide.command(["status"]);
    first.env("ABIDE_CRASH_AT", "question.close.pre");
    assert!(first.output().unwrap().status.success());
    let mut pty = pty(&abide, &["--idle", "200ms", "--", "sleep 1000"]);
    pty.wait_for("[Y/n] ");
    pty.type_in(b"n\n");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(124), "{screen}");
    assert_eq!(screen.matches("[Y/n]").count(), 1, "{screen}");
}

#[test]
fn run_inside_a_session_asks_no_person() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let nested = "\"$ABIDE\" run --idle 100ms -- 'echo inner; cat go'";
    let mut pty = pty(&abide, &["--pty", "--", nested]);
    pty.wait_for("inner");
    assert!(abide.output(["run", "--", "sleep 0.4"]).status.success());
    feed(&fifo, b"done\n");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(!screen.contains("Continue waiting?"), "{screen}");
}

#[test]
fn ctrl_c_on_an_agents_command_counts_as_user() {
    let abide = Abide::new();
    let command = "trap 'echo ignored' INT TERM; echo begun; while :; do sleep 0.1; done";
    let mut pty = pty(&abide, &["--agent", "Jürgen", "--", command]);
    pty.wait_for("begun");
    pty.type_in(CTRL_C);
    pty.wait_for("ignored");
    pty.type_in(CTRL_C);
    assert_eq!(pty.end().0.code(), Some(130));
    let list = abide.json(["session", "list", "--all", "--json"]);
    assert_eq!(list["sessions"][0]["end"], "user", "{list}");
    assert_eq!(list["sessions"][0]["agent"], "Jürgen", "{list}");
}

#[test]
fn terminal_mode_is_restored() {
    let abide = Abide::new();
    let mut shell = abide.command(["run", "--pty", "--", "stty raw -echo; echo ready; read x"]);
    shell.env("TERM", "dumb");
    let mut pty = Pty::run(shell);
    pty.wait_for("ready");
    assert_ne!(pty.modes(), pty.modes_before);
    pty.type_in(b"x\n");
    pty.wait_for_end();
    assert_eq!(pty.modes(), pty.modes_before);
}

#[test]
fn control_sequences_of_a_call_are_sanitized() {
    let abide = Abide::new();
    let blocks = "<tool name=\"shell\"><command>echo \u{1b}]52;c;QQ==\u{7}end</command></tool>\
                  <tool name=\"shell\"><raw>true</raw>\
                  <command>printf 'raw \\033]52;c;QQ==\\007output'</command></tool>";
    std::fs::write(abide.path("text"), blocks).expect("a text");
    let (status, shown) = Pty::run(abide.command(["call", "text"])).end();
    assert_eq!(status.code(), Some(0), "{shown}");
    let command = "COMMAND: echo \\u{1b}]52;c;QQ==\\u{7}end\r\n";
    assert!(shown.contains(command), "{shown:?}");
    assert!(shown.contains("\nraw output\r\n"), "{shown:?}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}
