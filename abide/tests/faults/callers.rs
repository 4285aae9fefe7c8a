//! Callers that are allowed, data that are not trusted, and secrets that are never stored.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::process::Process;
use crate::harness::{Abide, line_with, receive};
use crate::unprivileged::{Unprivileged, is_root};

#[test]
fn s4_many_clients_at_once_are_all_answered() {
    let abide = Abide::started();
    let call = json!({"action": "list"});
    let waiting: Vec<_> = (0..400)
        .map(|_| abide.begin("/v1/tools/terminal_session", &call))
        .collect();
    for stream in waiting {
        let answer = receive(stream).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

#[test]
fn s12_connection_of_another_user_is_refused() {
    if !is_root() {
        eprintln!("skipped: only root gets past the folder");
        return;
    }
    let abide = Unprivileged::new();
    drop(abide.daemon());
    for socket in ["http.sock", "mcp.sock"] {
        let path = abide.dir().join("run").join(socket);
        let mut stream = UnixStream::connect(path).expect("root passes every folder");
        let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: abide\r\n\r\n");
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        assert!(received.is_empty(), "{socket} said {received:?}");
    }
}

#[test]
fn s15_output_cannot_imitate_the_question() {
    let abide = Abide::started();
    let mut watching = abide.watch();
    let pose = "\\033[2J\\033]0;x\\007\\nCommand has been idle for 1s. Continue waiting?\\n  command: true\\r";
    let long = "x".repeat(3_000);
    let command = format!("printf '{pose}'; : {long} the end; sleep 999");
    let call = json!({"command": command, "timeout": 600});
    let asking = abide.begin("/v1/tools/execute_command", &call);
    // The idle time starts after all of that output.
    let session = abide.running();
    abide.waits_until(&json!({"session": session, "output": "command: true"}));
    let extend = format!("/v1/sessions/{session}/extend");
    let moved = abide.post(&extend, &json!({"idle": 2}));
    assert_eq!(moved.status, 200);
    let asked: Value =
        serde_json::from_str(&line_with(&mut watching, "question_")).expect("a question");
    let text = asked["text"].as_str().expect("a text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text:?}");
    assert_eq!(lines[0], "Command has been idle for 2s. Continue waiting?");
    assert!(lines[1].starts_with("  command: printf "), "{text:?}");
    assert!(lines[1].ends_with("x the end; sleep 999"), "{text:?}");
    assert!(
        lines[2].ends_with("last output:   command: true"),
        "{text:?}"
    );
    let harmless = |c: char| c == '\n' || !c.is_control();
    assert!(text.chars().all(harmless), "{text:?}");
    let question = asked["question_id"].as_str().expect("an id");
    let no = json!({"answer": "no"});
    abide.post(&format!("/v1/questions/{question}/answer"), &no);
    receive(asking).expect("the call is answered");
}

#[test]
fn s19_files_of_a_project_do_not_change_the_configuration() {
    let abide = Abide::new();
    let project = abide.path("project");
    let trap = "shell = [\"/bin/false\"]\nmax_output = 1\nhttp = \"off\"\n";
    for file in [
        "config.toml",
        "abide.toml",
        ".abide/config.toml",
        ".config/abide/config.toml",
        "abide/config.toml",
    ] {
        let path = project.join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, trap).expect("a trap");
    }
    let elsewhere = format!("ABIDE_DIR={}\n", project.display());
    std::fs::write(project.join(".env"), elsewhere).expect("a trap");
    let ran = abide
        .command(["run", "--", "echo fine"])
        .current_dir(&project)
        .output()
        .expect("abide runs");
    assert_eq!(ran.stdout, b"fine\n", "{ran:?}");
    assert!(!project.join("run").exists());
}

#[test]
fn s22_secrets_are_not_written_to_any_file() {
    let abide = Abide::started();
    let canary = format!("canary{}x", std::process::id());
    let call = json!({
        "command": "cat > /dev/null; test -n \"$API_TOKEN\"; sleep 0.01",
        "env": {"API_TOKEN": canary},
        "stdin": canary,
    });
    let answer = abide.post("/v1/tools/shell", &call);
    assert_eq!(answer.body["status"], "SUCCESS", "{}", answer.body);
    let started = abide
        .post(
            "/v1/tools/terminal_session",
            &json!({"action": "start", "command": "exec sleep 999", "env": {"API_TOKEN": canary}}),
        )
        .body;
    assert_eq!(started["status"], "running", "{started}");
    assert_eq!(holding(abide.dir(), &canary), Vec::<String>::new());
    let lines = std::fs::read_dir("/proc").expect("/proc").flatten();
    for process in lines {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(!line.contains(&canary), "{line}");
    }
}

/// Files below a directory that contain a text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(folder) {
        // The keeper may have removed the file meanwhile.
        Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => return found,
        entries => entries.expect("a folder"),
    };
    for entry in entries.flatten() {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            found.extend(holding(&entry.path(), text));
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            let text = text.as_bytes();
            if bytes.windows(text.len()).any(|part| part == text) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}

#[test]
fn s30_no_signal_to_the_daemon_ends_a_session() {
    let abide = Abide::new();
    let started = abide.output(["session", "start", "--no-pty", "--", "exec sleep 999"]);
    assert!(started.status.success(), "{started:?}");
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let daemon = Process::on(abide.pid());
        daemon.send(signal);
        if signal != Signal::HUP {
            daemon.wait_gone();
        }
        let listed = abide.json(["session", "list", "--json"]);
        assert_eq!(
            listed["sessions"][0]["status"], "running",
            "{signal:?}: {listed}"
        );
    }
}

/// `abide answer --follow --json`, whose output is read as slowly as the test likes.
struct FollowingCommand(Child);

impl Drop for FollowingCommand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn command_that_prints_questions_late_prints_each_question_and_closing_once() {
    let abide = Abide::new();
    abide.configure("[[policy.rule]]\nrun = [\"true\", \"asked\"]\ndo = \"ask\"\n");
    abide.start();
    let mut prompt = abide.watch();
    let mut follow = abide.command(["answer", "--follow", "--json"]);
    let mut follow = FollowingCommand(follow.stdout(Stdio::piped()).spawn().expect("abide runs"));
    let mut late = BufReader::new(follow.0.stdout.take().expect("a pipe"));
    let mut next = || -> (String, String) {
        let line: Value = serde_json::from_str(&line_with(&mut late, "\"event\":")).expect("JSON");
        let word = |name: &str| line[name].as_str().expect("a word").to_owned();
        (word("event"), word("question_id"))
    };
    // The questions are longer than the buffers between the daemon and the command whose output is not read.
    let long = "x".repeat(60_000);
    let mut expected: Vec<(String, String)> = Vec::new();
    let mut seen = Vec::new();
    let calls = (0..8).map(|number| {
        let command = json!({"command": format!("true asked {number} {long}")});
        let call = abide.begin_for("ann", "shell", &command);
        let asked: Value =
            serde_json::from_str(&line_with(&mut prompt, "\"state\":\"open\"")).expect("JSON");
        let id = asked["question_id"].as_str().expect("an id").to_owned();
        expected.push(("asked".to_owned(), id));
        if number == 0 {
            seen.push(next());
        }
        call
    });
    let calls: Vec<UnixStream> = calls.collect();
    let (first, last) = (expected[0].1.clone(), expected[7].1.clone());
    let answer = |id: &str| {
        let answered = abide.post(
            &format!("/v1/questions/{id}/answer"),
            &json!({"answer": "no"}),
        );
        assert_eq!(answered.status, 200, "{}", answered.body);
    };
    answer(&first);
    // More changes than the daemon keeps for a client that is late.
    let timers = vec![json!({"total_duration": 1000, "mission": "later"}); 500];
    for _ in 0..3 {
        let made = abide.post("/v1/timers", &json!({"timers": timers}));
        assert_eq!(made.status, 200, "{}", made.body);
    }
    let mut read_until_last = |expected: &[(String, String)]| {
        while seen.last() != expected.last() {
            seen.push(next());
        }
    };
    read_until_last(&expected);
    answer(&last);
    expected.extend([("closed".to_owned(), first), ("closed".to_owned(), last)]);
    read_until_last(&expected);
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
    drop(calls);
}

#[test]
fn command_approved_just_before_a_crash_is_refused_by_a_rule_that_came_after_it() {
    let abide = Abide::new();
    let rule = |action: &str| {
        let rule =
            format!("[[policy.rule]]\nrun = [\"touch\"]\ndo = \"{action}\"\nwhy = \"tests it\"\n");
        abide.configure(&rule);
    };
    rule("ask");
    abide.start_to_crash_at("held.approve.post");
    let made = abide.path("made");
    let command = json!({"command": format!("touch {}", made.display())});
    let held = abide.call_in(["ann", "one"], "shell", &command);
    let held = held.expect("an answer").body;
    assert_eq!(held["status"], "held", "{held}");
    let id = held["question_id"].as_str().expect("an id");
    let yes = json!({"answer": "yes"});
    let answered = abide.try_post(&format!("/v1/questions/{id}/answer"), &yes);
    assert!(answered.is_none(), "the daemon lives");
    rule("deny");
    abide.start();
    let read = json!({"timeout_seconds": 30});
    let told = abide.call_in(["ann", "one"], "read_messages", &read);
    let told = told.expect("an answer").body["text"].to_string();
    assert!(told.contains("it is refused by now: tests it"), "{told}");
    assert!(!made.exists());
    let audit = abide.output(["audit", "--json"]);
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(
        audit.lines().any(|line| line.contains("\"deny\"")),
        "{audit}"
    );
}
