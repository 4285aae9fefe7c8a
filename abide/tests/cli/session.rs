//! Sessions: list, read, kill, extend.

use std::os::unix::ffi::OsStringExt;

use crate::harness::{Abide, Pty, feed, text, wait_for_line};

#[test]
fn c11_session_list_escapes_control_sequences() {
    let abide = Abide::new();
    abide.output(["run", "--", ": '\u{1b}]0;evil\u{7}'; exit 4"]);
    abide.output(["run", "--", "true"]);
    let shown = text(&abide.output(["session", "list", "--all"]).stdout);
    assert!(shown.starts_with("SESSION"), "{shown}");
    assert!(
        shown.contains("exit code 4") && shown.contains("exit code 0"),
        "{shown}"
    );
    assert!(
        !shown.contains('\u{1b}') && !shown.contains('\u{7}'),
        "{shown:?}"
    );
    let running = text(&abide.output(["session", "list"]).stdout);
    assert!(running.starts_with("No sessions are running"), "{running}");
}

#[test]
fn session_that_failed_to_start_has_zero_duration() {
    let abide = Abide::new();
    let listed = || {
        let list = abide.json(["session", "list", "--all", "--json"]);
        list["sessions"].as_array().expect("sessions").clone()
    };
    abide.output(["run", "--", "true"]);
    let failed = abide.output(["run", "--json", "--", "/no/such/program", "x"]);
    let told: serde_json::Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(told["duration"], 0.0, "{told}");
    abide.output(["run", "--", "true"]);
    let [after, failed, before] = &listed()[..] else {
        panic!("three sessions were run");
    };
    let ended = failed["ended_at"].as_u64().expect("when it failed");
    assert!(before["ended_at"].as_u64().unwrap() <= ended, "{failed}");
    assert!(ended <= after["created_at"].as_u64().unwrap(), "{failed}");
    // The next daemon reports the same, however late it was started.
    abide.kill_daemon();
    let again = &listed()[1];
    assert_eq!(again["status"], "failed");
    assert_eq!(again["duration"], 0.0, "{again}");
    for field in ["ended_at", "last_activity"] {
        assert_eq!(again[field], ended, "{field}: {again}");
    }
    let id = again["session_id"].as_str().unwrap();
    let searched = abide.output(["session", "search", id, "x", "--json"]);
    let searched: serde_json::Value = serde_json::from_slice(&searched.stdout).unwrap();
    assert_eq!(searched["duration"], 0.0, "{searched}");
    let rows = text(&abide.output(["session", "list", "--all"]).stdout);
    let row = rows.lines().find(|row| row.contains(id)).unwrap();
    assert!(row.contains("failed to start"), "{row}");
}

#[test]
fn c11_logs_are_sanitized_unless_raw() {
    let abide = Abide::new();
    abide.output([
        "run",
        "--",
        r"printf '\033[31mred\033[0m\n\377\r\nend'; printf err >&2",
    ]);
    let id = abide.newest();
    let logs = |words: &[&str]| abide.output(["logs", &id].iter().chain(words)).stdout;
    assert_eq!(
        logs(&["--raw", "--stdout"]),
        b"\x1b[31mred\x1b[0m\n\xff\r\nend"
    );
    assert_eq!(text(&logs(&["--stdout"])), "red\n\u{FFFD}\nend");
    assert_eq!(logs(&["--raw", "--stderr"]), b"err");
    // The order of output on two streams is not guaranteed.
    let lines = text(&logs(&["--json", "--stdout"]));
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let from = (first["offset"].as_u64().unwrap() + 5).to_string();
    assert_eq!(logs(&["--raw", "--stdout", "--from", &from])[..3], *b"red");
    let lines = text(&logs(&["--json", "--stderr"]));
    let line: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
    assert_eq!(line["stream"], "stderr");
    assert_eq!(line["text"], "err");
    let listed = abide.json(["session", "list", "--all", "--json"]);
    let began = listed["sessions"][0]["created_at"].as_u64();
    assert!(line["time"].as_u64() >= began, "{line}: {listed}");
    let read = abide.output(["session", "read", &id, "--stderr"]).stdout;
    assert_eq!(read, b"err");
}

#[test]
fn logs_follow_ends_with_the_command() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut run = abide
        .command(["run", "--", "echo one; cat go"])
        .spawn()
        .unwrap();
    wait_for_line(run.stdout.as_mut().unwrap(), "one\n");
    let mut follow = abide
        .command(["logs", "--follow", &abide.newest()])
        .spawn()
        .unwrap();
    wait_for_line(follow.stdout.as_mut().unwrap(), "one\n");
    feed(&fifo, b"two\n");
    let output = follow.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "two\n");
    assert!(output.status.success());
    assert!(run.wait().unwrap().success());
}

#[test]
fn kill_ends_the_tree_and_the_run_reports_it() {
    let abide = Abide::new();
    let mut run = abide
        .command(["run", "--", "echo begun; sleep 1000 & sleep 1000"])
        .spawn()
        .unwrap();
    wait_for_line(run.stdout.as_mut().unwrap(), "begun\n");
    let killed = abide.json(["session", "kill", "--json", &abide.newest()]);
    assert_eq!(killed["status"], "exited");
    assert_eq!(killed["end"], "user");
    assert_eq!(killed["still_running"], serde_json::json!([]));
    let output = run.wait_with_output().unwrap();
    assert!(output.status.code().unwrap() > 128, "{output:?}");
    assert!(
        text(&output.stderr).contains("the command was killed by a person"),
        "{output:?}"
    );
}

#[test]
fn extend_moves_the_deadline() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut run = abide
        .command(["run", "--timeout", "30s", "--", "echo begun; cat go"])
        .spawn()
        .unwrap();
    wait_for_line(run.stdout.as_mut().unwrap(), "begun\n");
    let id = abide.newest();
    assert!(
        abide
            .output(["session", "extend", &id, "--timeout", "1h"])
            .status
            .success()
    );
    // Only after the first limit it can be seen that the limit was moved.
    assert!(abide.output(["run", "--", "sleep 30.2"]).status.success());
    feed(&fifo, b"still here\n");
    let output = run.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "still here\n", "{output:?}");
    let late = abide.output(["session", "extend", &id, "--timeout", "1h"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(text(&late.stderr).contains("has ended"), "{late:?}");
}

#[test]
fn unknown_session_is_not_found() {
    let abide = Abide::new();
    for words in [&["logs"][..], &["session", "read"], &["session", "kill"]] {
        let output = abide.output(words.iter().chain(&["session_00000000"]));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("Session 'session_00000000' not found"),
            "{said}"
        );
    }
}

#[test]
fn closed_output_pipe_is_no_error() {
    use std::process::Stdio;
    let abide = Abide::new();
    abide.output(["run", "--", "seq 1 100000"]);
    let id = abide.newest();
    for words in [
        &["session", "list", "--all"][..],
        &["logs", &id],
        &["tools"],
        &["completions", "zsh"],
    ] {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let output = abide
            .command(words)
            .stdout(Stdio::from(write))
            .output()
            .unwrap();
        assert_eq!(text(&output.stderr), "", "{words:?}: {output:?}");
    }
}

#[test]
fn s13_command_cannot_extend_its_own_limits() {
    let abide = Abide::new();
    let find =
        "id=$(\"$ABIDE\" session list --json | grep -o 'session_[a-z0-9]\\{8\\}' | head -n 1)";
    let tool = "<tool name=\"terminal_session\"><action>extend</action>\
                <session_id>'$id'</session_id><timeout>3600</timeout></tool>";
    for extend in [
        "\"$ABIDE\" session extend $id --timeout 1h".to_owned(),
        "setsid --wait \"$ABIDE\" session extend $id --idle 1h".to_owned(),
        format!("echo '{tool}' | \"$ABIDE\" call"),
    ] {
        let command = format!("{find}; {extend}");
        let output = abide.output(["run", "--timeout", "10m", "--", &command]);
        assert_eq!(output.status.code(), Some(1), "{extend}: {output:?}");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(
            said.contains("a command cannot change its own limits"),
            "{extend}: {said}"
        );
    }
}

#[test]
fn s13_command_cannot_extend_its_own_limits_over_http_or_mcp() {
    let abide = Abide::new();
    let over_http = r#"
        host=$(cat "$ABIDE_DIR/run/http.address") body='{"timeout":3600}'
        exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
        printf '%s\r\n' "POST /v1/sessions/$id/extend HTTP/1.0" "host: $host" 'content-type: application/json' \
            "authorization: Bearer $(cat "$ABIDE_DIR/token")" "content-length: ${#body}" '' >&3
        printf %s "$body" >&3
        cat <&3"#;
    let over_mcp = r#"
        cat > "$ABIDE_DIR/requests" <<END
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"terminal_session","arguments":{"action":"extend","timeout":3600,"session_id":"$id"}}}
END
        "$ABIDE" mcp < "$ABIDE_DIR/requests""#;
    for extend in [over_http, over_mcp] {
        let find =
            r#"id=$("$ABIDE" session list --json | grep -o 'session_[a-z0-9]\{8\}' | head -n 1)"#;
        let command = format!("{find}\n{extend}");
        let words = ["run", "--timeout", "10m", "--", "bash", "-c", &command];
        let output = abide.output(words);
        let said = text(&output.stdout);
        let wanted = "a command cannot change its own limits";
        assert!(said.contains(wanted), "{extend}: {output:?}");
    }
}

#[test]
fn arguments_of_session_start_must_be_unicode() {
    let abide = Abide::new();
    let word = std::ffi::OsString::from_vec(b"a\xffb".to_vec());
    let words = ["session", "start", "--", "echo"].map(std::ffi::OsString::from);
    let output = abide.output(words.into_iter().chain([word]));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("must be UTF-8"), "{output:?}");
    let all = abide.json(["session", "list", "--all", "--json"]);
    assert_eq!(all["sessions"], serde_json::json!([]));
}

#[test]
fn logs_are_cut_by_lines_and_time_and_stamped() {
    let abide = Abide::new();
    abide.output(["run", "--", "seq 1 20000; printf unfinished"]);
    let logs = |words: &[&str]| text(&abide.output(["logs", "last"].iter().chain(words)).stdout);
    assert_eq!(logs(&["--tail", "3"]), "19999\n20000\nunfinished");
    assert_eq!(logs(&["--tail", "0"]), "");
    // More lines than fit into the first part of the log that is read.
    let many = logs(&["--tail", "15001"]);
    assert!(many.starts_with("5001\n5002\n"), "{}", &many[..20]);
    assert_eq!(logs(&["--tail", "99999"]), logs(&[]));
    assert_eq!(logs(&["--since", "1h"]), logs(&[]));
    let stamped = logs(&["--tail", "2", "--timestamps"]);
    let lines: Vec<&str> = stamped.lines().collect();
    let [first, second] = lines[..] else {
        panic!("{stamped}");
    };
    for (line, end) in [(first, "Z 20000"), (second, "Z unfinished")] {
        assert!(line.starts_with("20") && line.ends_with(end), "{line}");
    }
}

#[test]
fn logs_since_leave_out_what_is_older() {
    let abide = Abide::new();
    assert!(abide.output(["run", "--", "echo old"]).status.success());
    let logs = text(&abide.output(["logs", "last", "--since", "1ms"]).stdout);
    assert_eq!(logs, "");
    let logs = text(&abide.output(["logs", "last", "--since", "100y"]).stdout);
    assert_eq!(logs, "old\n");
}

#[test]
fn rm_asks_and_deletes_ended_sessions_only() {
    let abide = Abide::new();
    abide.output(["run", "--name", "gone", "--", "echo x"]);
    let refused = abide.output(["rm", "gone"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(
        said.contains("nothing was deleted") && said.contains("--yes"),
        "{said}"
    );
    let mut pty = Pty::run(abide.command(["rm", "gone"]));
    pty.wait_for("(echo x) and its log of 2 bytes? [y/N] ");
    pty.type_in(b"n\r");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(1), "{screen}");
    assert_eq!(text(&abide.output(["logs", "gone"]).stdout), "x\n");
    let mut pty = Pty::run(abide.command(["session", "rm", "gone"]));
    pty.wait_for("[y/N] ");
    pty.type_in(b"y\r");
    let (status, screen) = pty.end();
    assert!(
        status.success() && screen.contains("are deleted"),
        "{screen}"
    );
    assert_eq!(abide.output(["logs", "gone"]).status.code(), Some(1));
    let started = abide.json(["session", "start", "--json", "--name", "runs", "--", "cat"]);
    let refused = abide.output(["rm", "runs", "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        text(&refused.stderr).contains("is still running"),
        "{refused:?}"
    );
    let killed = text(&abide.output(["kill", "runs"]).stdout);
    assert!(
        killed.starts_with(started["session_id"].as_str().unwrap()),
        "{killed}"
    );
}

#[test]
fn rerun_runs_the_same_command_in_the_same_folder() {
    let abide = Abide::new();
    std::fs::create_dir(abide.path("here")).unwrap();
    let words = ["run", "--name", "check", "--cwd", "here", "--", "sh", "-c"];
    abide.output(words.iter().chain(&["pwd; echo \"it's\"; exit 3"]));
    let again = abide.output(["rerun", "check"]);
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    let here = abide.path("here").canonicalize().unwrap();
    let said = text(&again.stdout);
    assert_eq!(said, format!("{}\nit's\n", here.display()));
    let list = abide.json(["ps", "--all", "--json"]);
    let named = list["sessions"].as_array().unwrap().iter();
    assert_eq!(
        named.filter(|session| session["name"] == "check").count(),
        2
    );
    assert_eq!(abide.output(["rerun", "nothing"]).status.code(), Some(125));
}

#[test]
fn kill_all_asks_at_a_terminal_and_needs_yes_elsewhere() {
    let abide = Abide::new();
    let none = abide.output(["kill", "--all"]);
    assert!(
        text(&none.stdout).contains("No sessions are running."),
        "{none:?}"
    );
    for name in ["one", "two"] {
        abide.json(["session", "start", "--json", "--name", name, "--", "cat"]);
    }
    let running = || {
        let list = abide.json(["ps", "--json"]);
        list["sessions"].as_array().expect("sessions").len()
    };
    let refused = abide.output(["kill", "--all"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--yes"), "{refused:?}");
    let mut pty = Pty::run(abide.command(["kill", "--all"]));
    pty.wait_for("End these 2 sessions with every process they started? [y/N]");
    pty.type_in(b"n\n");
    assert_eq!(pty.end().0.code(), Some(1));
    assert_eq!(running(), 2);
    let ended = abide.output(["kill", "--all", "--yes"]);
    assert_eq!(
        text(&ended.stdout).matches("has ended").count(),
        2,
        "{ended:?}"
    );
    assert_eq!(running(), 0);
    for words in [&["kill"][..], &["kill", "one", "--all"]] {
        assert_eq!(abide.output(words).status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn kill_of_an_ended_session_says_when_and_how_it_ended() {
    let abide = Abide::new();
    assert_eq!(abide.output(["run", "--", "exit 3"]).status.code(), Some(3));
    let id = abide.newest();
    let output = abide.output(["kill", &id]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(
        said.starts_with(&format!("{id} had already ended ")),
        "{said}"
    );
    assert!(said.ends_with(" ago: exit code 3.\n"), "{said}");
}

#[test]
fn ps_and_top_leave_out_checks_of_conditions() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut wait = abide
        .command(["wait", "--command", "cat go", "--for", "1h"])
        .spawn()
        .unwrap();
    let running = |words: &[&str]| {
        let listed = abide.json(words);
        listed["sessions"].as_array().expect("sessions").len()
    };
    while running(&["top", "--all", "--json"]) == 0 {
        assert_eq!(wait.try_wait().unwrap(), None);
    }
    assert_eq!(running(&["top", "--json"]), 0);
    assert_eq!(running(&["ps", "--json"]), 0);
    assert_eq!(running(&["ps", "--all", "--json"]), 1);
    feed(&fifo, b"");
    assert!(wait.wait().unwrap().success());
}
