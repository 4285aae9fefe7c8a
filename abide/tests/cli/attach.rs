//! `abide session start`, `send`, `screen`, `search` and `attach`.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Abide, Pty, feed, text};

fn started(abide: &Abide, command: &str) -> String {
    let facts = abide.json(["session", "start", "--json", "--", command]);
    facts["session_id"].as_str().expect("an id").to_owned()
}

/// Output that an agent reads at the same time.
fn read(abide: &Abide, id: &str) -> Value {
    abide.json(["session", "screen", id, "--json"])
}

#[test]
fn session_commands_start_send_read_and_resize() {
    let abide = Abide::new();
    // A shell would print its prompt before or after the typed text, depending on timing.
    let shell = "while read -r line; do eval \"$line\"; done";
    let output = abide.output(["session", "start", "--", shell]);
    let said = text(&output.stdout);
    let id = said.split('\'').nth(1).expect("an id").to_owned();
    assert_eq!(said.trim(), format!("Session '{id}' started"));
    let sent = abide.output(["session", "send", &id, "echo six $((6*7))", "-k", "enter"]);
    assert!(sent.status.success(), "{sent:?}");
    // A shell that starts slowly has not answered yet.
    let answered = ["wait", "--session", &id, "--output", "six 42"];
    assert!(abide.output(answered).status.success());
    let screen = abide.output(["session", "screen", &id]);
    assert!(text(&screen.stdout).contains("six 42"), "{screen:?}");
    let found = abide.output(["session", "search", &id, "^six"]);
    assert!(found.status.success() && text(&found.stdout).contains(":six 42"));
    let none = abide.output(["session", "search", &id, "nowhere"]);
    assert_eq!(none.status.code(), Some(1));
    let bad = abide.output(["session", "search", &id, "a("]);
    assert!(text(&bad.stderr).contains("at character 2"), "{bad:?}");
    let resized = abide.output(["session", "resize", &id, "70", "20"]);
    assert!(text(&resized.stdout).contains("70 columns"), "{resized:?}");
    let unknown = abide.output(["session", "screen", "session_00000000"]);
    assert!(text(&unknown.stderr).contains("Session 'session_00000000' not found"));
}

#[test]
fn screen_of_a_session_without_a_terminal_names_the_command_that_shows_its_output() {
    let abide = Abide::new();
    assert!(abide.output(["run", "--", "echo x"]).status.success());
    let id = abide.newest();
    let screen = abide.output(["session", "screen", &id]);
    assert_eq!(screen.status.code(), Some(1), "{screen:?}");
    let said = text(&screen.stderr);
    let wanted = format!("Session '{id}' has no terminal");
    assert!(said.contains(&wanted), "{said}");
    assert!(said.contains(&format!("`abide logs {id}`")), "{said}");
}

#[test]
fn session_continues_after_detach() {
    let abide = Abide::new();
    let id = started(&abide, "printf 'before\\n'; stty -echo; cat -u");
    let mut pty = Pty::run(abide.command(["session", "attach", &id]));
    pty.wait_for("before");
    pty.type_in(b"typed by a person\r");
    pty.wait_for("typed by a person");
    let seen = read(&abide, &id);
    assert_eq!(seen["person_attached"], Value::Bool(true), "{seen}");
    let told = seen["text"].as_str().expect("text");
    assert!(
        told.contains("[a person is at this terminal too]"),
        "{told}"
    );
    assert!(told.contains("typed by a person"), "{told}");
    // An agent types, and the person sees it.
    abide.output(["session", "send", &id, "typed by an agent", "-k", "enter"]);
    pty.wait_for("typed by an agent");
    pty.type_in(b"\x1d");
    pty.wait_for("it is still running");
    pty.wait_for_end();
    assert_eq!(pty.modes(), pty.modes_before);
    let (status, _) = pty.end();
    assert!(status.success());
    let seen = read(&abide, &id);
    assert_eq!(seen["status"], "running");
    assert!(seen["person_attached"].is_null(), "{seen}");
}

#[test]
fn keys_typed_together_with_ctrl_bracket_reach_the_program() {
    let abide = Abide::new();
    let id = started(&abide, "echo ready; read -r line; echo got $line");
    let mut pty = Pty::run(abide.command(["session", "attach", &id]));
    pty.wait_for("ready");
    pty.wait_for("Ctrl-] detaches");
    pty.type_in(b"all of it\r\x1d");
    pty.wait_for("it is still running");
    pty.wait_for_end();
    let waited = abide.output(["wait", "--session", &id, "--output", "got all of it"]);
    assert!(waited.status.success(), "{waited:?}");
}

#[test]
fn attach_json_prints_the_session_after_detach() {
    let abide = Abide::new();
    let id = started(&abide, "echo ready; cat -u");
    for (typed, left) in [(&b"\x1d"[..], true), (b"\x04", false)] {
        let mut pty = Pty::run(abide.command(["session", "attach", &id, "--json"]));
        pty.wait_for("ready");
        pty.type_in(typed);
        pty.wait_for("\"left\"");
        pty.wait_for_end();
        let (status, shown) = pty.end();
        assert!(status.success());
        let (_, json) = shown.split_once("\x1b[?1049l{").expect("an object");
        let facts: Value = serde_json::from_str(&format!("{{{json}")).expect("JSON");
        assert_eq!(facts["left"], left, "{facts}");
        assert_eq!(facts["status"], if left { "running" } else { "exited" });
        assert_eq!(facts["session_id"], id);
    }
}

#[test]
fn c11_unsafe_sequences_are_filtered_unless_unfiltered_is_given() {
    let abide = Abide::new();
    let command = r"stty -echo; echo ready; read x; printf 'a\033]0;title\007\033]52;c;aGk=\007\033[6n\033[cb\n'; cat";
    for (flag, passes) in [(None, false), (Some("--unfiltered"), true)] {
        let id = started(&abide, command);
        let words = ["session", "attach", &id];
        let mut pty = Pty::run(abide.command(words.into_iter().chain(flag)));
        pty.wait_for("ready");
        pty.type_in(b"\r");
        pty.wait_for("b\r\n");
        let screen = pty.screen();
        assert_eq!(screen.contains("]0;title"), passes, "{screen:?}");
        assert_eq!(screen.contains("]52;"), passes, "{screen:?}");
        assert!(!screen.contains("[6n"), "{screen:?}");
        assert!(!screen.contains("\x1b[c"), "{screen:?}");
        pty.type_in(b"\x1d");
        pty.end();
    }
}

#[test]
fn session_terminal_is_resized_to_the_attached_one() {
    let abide = Abide::new();
    // A trap of bash would miss a second signal that arrives while it runs.
    let command = "stty -echo; echo ready; while :; do \
                   now=$(stty size); [ \"$now\" = \"$was\" ] || echo \"$now\"; was=$now; sleep 0.05; done";
    let id = started(&abide, command);
    let mut pty = Pty::run(abide.command(["session", "attach", &id]));
    pty.wait_for("ready");
    pty.resize(91, 27);
    pty.wait_for("27 91");
    let seen = read(&abide, &id);
    assert_eq!(
        (seen["cols"].as_u64(), seen["rows"].as_u64()),
        (Some(91), Some(27))
    );
    pty.type_in(b"\x1d");
    pty.end();
}

#[test]
fn attach_uses_the_alternate_screen_and_says_how_to_leave() {
    let abide = Abide::new();
    let command = "stty -echo; echo shell; read x; printf '\\033[?1049hinside'; read x; \
                   printf '\\033[?1049l'; echo back; cat -u";
    let id = started(&abide, command);
    let mut pty = Pty::run(abide.command(["attach", &id]));
    pty.wait_for("\x1b[?1049h");
    pty.wait_for(&format!("attached to {id}; Ctrl-] detaches"));
    pty.type_in(b"\r");
    pty.wait_for("inside");
    pty.type_in(b"\r");
    // The main screen of the program is drawn again, because the terminal does not have it.
    pty.wait_for_all(&["shell", "back"]);
    let screen = pty.screen();
    assert_eq!(screen.matches("\x1b[?1049h").count(), 1, "{screen:?}");
    assert!(!screen.contains("\x1b[?1049l"), "{screen:?}");
    pty.type_in(b"\x1d");
    pty.wait_for("\x1b[?1049l");
    pty.wait_for("it is still running");
    pty.end();
}

#[test]
fn attach_ends_when_the_session_ends() {
    let abide = Abide::new();
    let id = started(&abide, "read x; exit 5");
    let mut pty = Pty::run(abide.command(["session", "attach", &id]));
    pty.wait_for("\x1b[H");
    pty.type_in(b"\r");
    let (status, screen) = pty.end();
    assert!(status.success());
    assert!(screen.contains("exited with code 5"), "{screen:?}");
    let late = abide.output(["session", "attach", &id]);
    assert!(!late.status.success());
}

#[test]
fn attach_continues_when_the_daemon_is_killed() {
    let abide = Abide::new();
    let id = started(&abide, "stty -echo; echo ready; cat -u");
    let mut pty = Pty::run(abide.command(["session", "attach", &id]));
    pty.wait_for("ready");
    pty.type_in(b"one\r");
    pty.wait_for("one");
    abide.kill_daemon();
    pty.type_in(b"two\r");
    pty.wait_for("two");
    assert_eq!(pty.screen().matches("one").count(), 1);
    pty.type_in(b"\x1d");
    pty.end();
}

#[test]
fn screen_is_drawn_again_after_a_gap_in_the_log() {
    let abide = Abide::with_config("log_quota = 1048576\n");
    let (go, done) = (abide.fifo("go"), abide.fifo("done"));
    let flood = "head -c 20000000 /dev/zero | tr '\\0' x";
    let command =
        format!("stty -echo; echo ready; read x; echo begun; cat go; {flood}; echo >done; cat");
    let id = started(&abide, &command);
    let mut pty = Pty::run(abide.command(["attach", &id]));
    pty.wait_for("Ctrl-] detaches");
    pty.type_in(b"\r");
    pty.wait_for("begun");
    let pid = Pid::from_raw(pty.pid()).expect("a process");
    kill_process(pid, Signal::STOP).expect("a signal");
    feed(&go, b"");
    std::fs::read(done).expect("the end of the flood");
    kill_process(pid, Signal::CONT).expect("a signal");
    pty.wait_for("\x1b[H\x1b[2J");
    abide.output(["session", "send", &id, "typed later", "-k", "enter"]);
    pty.wait_for("typed later");
    pty.type_in(b"\x1d");
    pty.end();
}

#[test]
fn sigterm_during_attach_restores_the_terminal() {
    let abide = Abide::new();
    let id = started(&abide, "printf 'before\\n'; cat -u");
    for signal in [Signal::TERM, Signal::HUP] {
        let mut pty = Pty::run(abide.command(["session", "attach", &id]));
        pty.wait_for("before");
        assert_ne!(pty.modes(), pty.modes_before);
        let pid = Pid::from_raw(pty.pid()).expect("a process");
        kill_process(pid, signal).expect("a signal");
        pty.wait_for("it is still running");
        pty.wait_for_end();
        assert_eq!(pty.modes(), pty.modes_before);
    }
}

#[test]
fn attach_without_a_session_takes_the_only_terminal_or_lists_several() {
    let abide = Abide::new();
    let none = abide.output(["attach"]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    assert!(
        text(&none.stderr).contains("no terminal is running"),
        "{none:?}"
    );
    let id = started(&abide, "printf 'the only one\\n'; cat");
    let mut pty = Pty::run(abide.command(["attach"]));
    pty.wait_for("the only one");
    pty.type_in(b"\x1d");
    let (_, shown) = pty.end();
    assert!(shown.contains(&format!("detached from {id}")), "{shown}");
    let other = started(&abide, "cat");
    let several = abide.output(["attach"]);
    assert_eq!(several.status.code(), Some(2), "{several:?}");
    let listed = text(&several.stdout);
    assert!(listed.contains(&id) && listed.contains(&other), "{listed}");
}

#[test]
fn attach_says_who_ended_the_session() {
    let abide = Abide::new();
    let id = started(&abide, "printf 'begun\\n'; cat");
    let mut pty = Pty::run(abide.command(["attach", &id]));
    pty.wait_for("begun");
    assert!(abide.output(["kill", &id]).status.success());
    let (_, screen) = pty.end();
    assert!(screen.contains(": killed by a person]"), "{screen:?}");
}
