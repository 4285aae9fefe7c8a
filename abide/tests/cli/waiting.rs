//! `abide timer`, `wait`, `messages` and `call`: exit codes, and output into a pipe.

use serde_json::{Value, json};

use crate::harness::{Abide, Pty, RunningCommand, text};

/// Runs a command that prints only its answer. Returns the exit code and the answer.
#[track_caller]
fn run(abide: &Abide, words: &[&str]) -> (i32, String) {
    let output = abide.output(words);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(out.is_empty() || err.is_empty(), "{words:?}: {output:?}");
    assert!(
        !out.contains('\u{1b}') && !err.contains('\u{1b}'),
        "{output:?}"
    );
    (output.status.code().expect("a code"), out + &err)
}

#[test]
fn timer_exit_code_is_its_status() {
    let abide = Abide::new();
    let (code, said) = run(&abide, &["timer", "start", "50ms", "--reason", "the build"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.ends_with("Total duration: 0.05 seconds\nElapsed time: 0.05 seconds\n"));
    let words = ["timer", "start", "1h", "--reason", "r", "--standby", "10ms"];
    assert_eq!(run(&abide, &words).0, 1);
    let (code, said) = run(&abide, &["timer", "start", "1h", "--mission", "later"]);
    assert_eq!(code, 0, "{said}");
    for words in [
        &["timer", "start", "0s", "--reason", "r"][..],
        &["timer", "start", "5s"],
        &["timer", "start", "5s", "--reason", "a", "--mission", "b"],
        &[
            "timer",
            "start",
            "5s",
            "--reason",
            "a",
            "--until",
            "{\"port\": 0}",
        ],
        &["timer", "start", "5s", "--reason", "a", "--until", "port"],
        &["timer", "history", "--limit", "0"],
        &["messages", "--limit", "0"],
        &["wait", "--port", "70000"],
        &["wait", "--file", "x", "--is", "there"],
        &["wait", "--session", "session_00000000"],
        &["wait"],
    ] {
        assert_eq!(run(&abide, words).0, 2, "{words:?}");
    }
    let unknown = run(&abide, &["timer", "read", "timer_00000000"]);
    assert_eq!(unknown.0, 1, "{}", unknown.1);
    let mut standing =
        RunningCommand::new(&abide, &["timer", "start", "1h", "--reason", "stopped"]);
    let id = loop {
        let listed = abide.json(["timer", "list", "--json"]);
        let all = listed["timers"].as_array().expect("timers").iter();
        if let Some(timer) = all.clone().find(|timer| timer["reason"] == "stopped") {
            break timer["timer_id"].as_str().expect("an id").to_owned();
        }
        let ended = standing.try_wait().expect("it was started");
        assert_eq!(ended, None, "it stands by until it is stopped");
    };
    assert_eq!(run(&abide, &["timer", "stop", &id]).0, 0);
    assert_eq!(run(&abide, &["timer", "stop", &id]).0, 1, "it has ended");
    let ended = standing.wait().expect("it ends");
    assert_eq!(ended.code(), Some(3), "{ended}");
    for unknown in ["timer_00000000", "nope"] {
        let (code, said) = run(&abide, &["timer", "wait", unknown]);
        assert_eq!(code, 2, "{said}");
    }
    let mission = &["timer", "start", "1h", "--mission", "paused"];
    assert_eq!(run(&abide, mission).0, 0);
    assert_eq!(run(&abide, &["timer", "pause", "last", "1h"]).0, 0);
    let (code, said) = run(&abide, &["timer", "wait", "last"]);
    assert_eq!(code, 3, "{said}");
}

#[test]
fn wait_exit_code_is_zero_if_the_condition_is_met() {
    let abide = Abide::new();
    let (code, said) = run(&abide, &["wait", "--command", "true", "--for", "60s"]);
    assert_eq!((code, said.as_str()), (0, "`true` exited with code 0\n"));
    let (code, said) = run(&abide, &["wait", "--file", "never", "--for", "1s"]);
    assert_eq!(code, 1);
    assert!(
        said.starts_with("abide: not met within 1s: file "),
        "{said}"
    );
    let output = abide.output(["wait", "--file", "never", "--for", "10ms", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let facts: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(facts["held"], false);
    for wrong in [["--session", "nope"], ["--session", ""], ["--file", ""]] {
        let (code, said) = run(&abide, &[&["wait"], &wrong[..]].concat());
        assert_eq!(code, 2, "{wrong:?}: {said}");
    }
}

#[test]
fn wait_shows_a_progress_bar_at_a_terminal() {
    let abide = Abide::new();
    let mut pty = Pty::run(abide.command(["wait", "--file", "done", "--for", "1h"]));
    pty.wait_for(" of 1h");
    std::fs::write(abide.path("done"), "").expect("a file");
    pty.wait_for("is there");
    assert!(pty.end().0.success());
}

#[test]
fn timer_list_reads_all_pages() {
    let abide = Abide::new();
    let one = json!({"total_duration": 3_600, "mission": "m"});
    for count in [1_000, 1] {
        crate::http::post(
            &abide,
            "/v1/timers",
            &json!({"timers": vec![one.clone(); count]}),
        );
    }
    for words in ["list", "read"] {
        let listed = abide.json(["timer", words, "--json"]);
        assert_eq!(listed["timers"].as_array().map(Vec::len), Some(1_001));
    }
}

#[test]
fn timer_text_names_cli_commands() {
    let abide = Abide::new();
    let made = abide.json(["timer", "start", "1h", "--mission", "later", "--json"]);
    let id = made["timer_id"].as_str().expect("an id");
    let (_, said) = run(&abide, &["timer", "pause", id, "10m"]);
    assert!(
        said.ends_with("or at once with `abide timer resume`.\n"),
        "{said}"
    );
    run(&abide, &["timer", "resume", id]);
    let (_, said) = run(&abide, &["timer", "cancel", id]);
    assert!(
        said.ends_with("a message comes when it completes.\n"),
        "{said}"
    );
    let (code, said) = run(&abide, &["timer", "read"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(id) && said.contains("running_background"),
        "{said}"
    );
}

#[test]
fn call_runs_all_blocks_or_none() {
    let abide = Abide::new();
    let call = |blocks: &str| {
        std::fs::write(abide.path("text"), blocks).expect("a file");
        run(&abide, &["call", "text"])
    };
    let shell =
        |command: &str| format!("<tool name=\"shell\">\n<command>{command}</command>\n</tool>\n");
    let (code, said) = call(&(shell("echo one") + "and then\n" + &shell("exit 3")));
    assert_eq!(code, 0, "an exit code is a result: {said}");
    let first = said.find("STDOUT:\none\n").expect("the first");
    assert!(
        said.find("RETURN_CODE: 3").expect("the second") > first,
        "{said}"
    );
    let (code, said) = call("and then\n<tool name=\"dance\"></tool>");
    assert_eq!(code, 2, "{said}");
    assert!(
        said.starts_with("abide: line 2: there is no tool 'dance'"),
        "{said}"
    );
    for (bad, line) in [
        ("<tool name=\"shell\">\n<colour>red</colour></tool>", 5),
        ("<tool name=\"shell\">\n<command>true</command>", 4),
        ("<tool name=\"tiner\"></tool>", 4),
    ] {
        let (code, said) = call(&(shell("touch ran") + bad));
        assert_eq!(code, 2, "{said}");
        assert!(said.starts_with(&format!("abide: line {line}: ")), "{said}");
        assert!(!abide.path("ran").exists(), "nothing was run");
    }
    let stop = "<tool name=\"stop_timer\"><timer_id>timer_00000000</timer_id></tool>";
    let (code, said) = call(stop);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("Timer 'timer_00000000' not found"), "{said}");
}

#[test]
fn call_passes_over_blocks_with_tools_of_another_host() {
    let abide = Abide::new();
    let calls = "<tool name=\"read_timer\"></tool>\n<tool name=\"attempt_completion\">\n\
        <result>done</result>\n</tool>\n";
    std::fs::write(abide.path("text"), calls).expect("a file");
    let called = abide.output(["call", "text"]);
    assert_eq!(called.status.code(), Some(1));
    let said = String::from_utf8_lossy(&called.stderr);
    assert!(
        said.starts_with("abide: not run: line 2: there is no tool"),
        "{said}"
    );
    let called = abide.output(["call", "--json", "text"]);
    assert_eq!(called.status.code(), Some(1));
    let printed = text(&called.stdout);
    let lines: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert_eq!(lines[0]["tool"], "attempt_completion");
    assert_eq!(lines[0]["line"], 2);
    assert_eq!(lines[0]["result"]["is_error"], true);
    assert_eq!(lines[1]["result"]["is_error"], false);
}

#[test]
fn closed_output_pipe_ends_commands_silently() {
    let abide = Abide::new();
    run(&abide, &["timer", "start", "10ms", "--reason", "r"]);
    run(&abide, &["timer", "start", "1h", "--mission", "later"]);
    for words in [
        &["timer", "stats"][..],
        &["timer", "history"],
        &["timer", "list"],
        &["messages"],
        &["wait", "--file", "/"],
        &["status"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = abide.command(words);
        let ended = command.stdout(writer).output().expect("it runs");
        assert_eq!(ended.status.code(), Some(141), "{words:?}: {ended:?}");
        assert!(ended.stderr.is_empty(), "{words:?}: {ended:?}");
        let full = std::fs::File::create("/dev/full").expect("a full disk");
        let mut command = abide.command(words);
        let ended = command.stdout(full).output().expect("it runs");
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let said = text(&ended.stderr);
        assert!(
            said.contains("cannot write the output"),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn interrupted_wait_says_that_the_timer_continues() {
    let abide = Abide::new();
    let mut pty = Pty::run(abide.command(["timer", "start", "1h", "--reason", "the build"]));
    pty.wait_for(" of 1h");
    pty.type_in(b"\x03");
    let (status, shown) = pty.end();
    assert_eq!(status.code(), Some(130), "{shown}");
    let (before, _) = shown
        .split_once(" continues. `abide timer read ")
        .expect("a line");
    let id = before.rsplit(['\r', '\n', 'K']).next().expect("an id");
    let listed = abide.json(["timer", "list", "--json"]);
    let timers = listed["timers"].as_array().expect("timers");
    assert_eq!(timers.len(), 1, "{listed}");
    assert_eq!(timers[0]["timer_id"], id);
    assert_eq!(timers[0]["status"], "running");
    for command in ["timer wait", "timer stop"] {
        let said = format!("`abide {command} {id}`");
        assert!(shown.contains(&said), "{shown}");
    }
}

#[test]
fn timer_wait_waits_for_a_timer_that_runs() {
    let abide = Abide::new();
    let made = abide.json(["timer", "start", "1h", "--mission", "later", "--json"]);
    let id = made["timer_id"].as_str().expect("an id");
    let (code, said) = run(&abide, &["timer", "wait", id, "--standby", "10ms"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.starts_with(&format!("Timer '{id}' is still running: ")),
        "{said}"
    );
    assert!(!said.contains("timer_id"), "{said}");
    let made = abide.json(["timer", "start", "1s", "--mission", "soon", "--json"]);
    let id = made["timer_id"].as_str().expect("an id");
    let (code, said) = run(&abide, &["timer", "wait", id]);
    assert_eq!(code, 0, "{said}");
}
