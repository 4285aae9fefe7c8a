//! `abide schema`: the output of every command matches its schema.

use serde_json::{Value, json};

use crate::harness::{Abide, text};
use crate::shape::wrong;

/// Runs a command with `--json`, checks its output against its schema, and returns the last line.
#[track_caller]
fn check(abide: &Abide, command: &str, words: &[&str]) -> Value {
    let schema = abide.json(["schema"].into_iter().chain(command.split(' ')));
    let whole: Vec<&str> = command
        .split(' ')
        .chain(["--json"])
        .chain(words.iter().copied())
        .collect();
    let mut started = abide.command(&whole);
    let output = started.env("HOME", abide.path("home")).output().unwrap();
    let printed = text(&output.stdout);
    let mut last = Value::Null;
    for line in printed.lines() {
        last = serde_json::from_str(line).unwrap_or_else(|e| panic!("{whole:?}: {e}: {line}"));
        let found = wrong(&schema, &schema, &last, command);
        assert!(found.is_empty(), "{found:#?} in {last:#}");
    }
    assert!(!last.is_null(), "{whole:?} printed nothing: {output:?}");
    last
}

#[test]
fn session_commands_print_json_of_their_schema() {
    let abide = Abide::new();
    check(&abide, "run", &["--", "echo out; echo err >&2; exit 3"]);
    check(&abide, "run", &["--", "/nowhere/at/all", "x"]);
    let started = check(&abide, "session start", &["--", "cat"]);
    let id = started["session_id"].as_str().unwrap().to_owned();
    let id = id.as_str();
    check(&abide, "session send", &[id, "hello", "--key", "enter"]);
    check(&abide, "session screen", &[id]);
    check(&abide, "session search", &[id, "hel+o"]);
    check(&abide, "session resize", &[id, "100", "30"]);
    check(&abide, "session extend", &[id, "--timeout", "10m"]);
    check(&abide, "top", &[]);
    check(&abide, "session signal", &[id, "CONT"]);
    check(&abide, "session rename", &[id, "cat"]);
    check(&abide, "session kill", &["cat"]);
    check(&abide, "session list", &["--all"]);
    check(&abide, "session read", &[id]);
    check(&abide, "logs", &[id]);
    check(&abide, "ps", &["--all"]);
    check(&abide, "session rm", &[id, "--yes"]);
    check(&abide, "rerun", &["last"]);
    check(&abide, "rm", &["last", "--yes"]);
    check(&abide, "session start", &["--name", "again", "--", "cat"]);
    check(&abide, "kill", &["again"]);
}

#[test]
fn timer_and_message_commands_print_json_of_their_schema() {
    let abide = Abide::new();
    let made = check(&abide, "timer start", &["1h", "--mission", "later"]);
    let id = made["timer_id"].as_str().unwrap().to_owned();
    let id = id.as_str();
    check(&abide, "timer read", &[id]);
    check(&abide, "timer pause", &[id, "10m", "--reason", "lunch"]);
    check(&abide, "timer resume", &[id]);
    check(&abide, "timer cancel", &[id]);
    check(&abide, "timer list", &[]);
    check(&abide, "top", &[]);
    check(&abide, "timer stop", &[id, "--reason", "enough"]);
    check(
        &abide,
        "timer start",
        &[
            "1h",
            "--reason",
            "now",
            "--until",
            "{\"command\": \"true\"}",
        ],
    );
    check(&abide, "timer start", &["1ms", "--mission", "soon"]);
    check(&abide, "wait", &["--command", "true"]);
    let follow = abide
        .command(["messages", "--follow", "--json"])
        .spawn()
        .unwrap();
    let mut follow = follow;
    let line = crate::harness::wait_for_line(follow.stdout.as_mut().unwrap(), "\n");
    let schema = abide.json(["schema", "messages"]);
    let message: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(wrong(&schema, &schema, &message, "messages"), [""; 0]);
    follow.kill().unwrap();
    follow.wait().unwrap();
    check(&abide, "messages", &[]);
    check(&abide, "timer history", &[]);
    check(&abide, "timer stats", &[]);
}

#[test]
fn other_commands_print_json_of_their_schema() {
    let abide = Abide::new();
    check(&abide, "setup", &["codex"]);
    check(&abide, "setup", &["codex", "--yes"]);
    std::fs::create_dir(abide.path("home/.cursor")).unwrap();
    std::fs::write(abide.path("home/.cursor/mcp.json"), "{broken").unwrap();
    let failed = check(&abide, "setup", &["--print"]);
    assert_eq!(failed["client"], "cursor", "{failed}");
    check(&abide, "doctor", &[]);
    check(&abide, "status", &[]);
    check(&abide, "open", &[]);
    check(&abide, "answer", &[]);
    check(&abide, "doctor", &[]);
    std::fs::write(abide.path("call"), "<tool name=\"read_timer\"></tool>").unwrap();
    check(&abide, "call", &["call"]);
    check(&abide, "version", &[]);
    check(&abide, "stop", &[]);
    check(&abide, "stop", &[]);
}

#[test]
fn schema_prints_all_and_refuses_unknown_commands() {
    let abide = Abide::new();
    let all = abide.json(["schema"]);
    assert_eq!(all["status"]["type"], json!("object"));
    let output = abide.output(["schema", "serve"]);
    let said = text(&output.stderr);
    assert!(said.contains("'serve' prints no JSON: it is"), "{said}");
    let output = abide.output(["schema", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("session list"), "{output:?}");
    assert!(!abide.path("abide").exists());
}
