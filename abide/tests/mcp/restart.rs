//! Restarts of clients and daemons.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Client, ERAS, Fifo, Home, LEGACY, Process, is_error, setup, text};

#[test]
fn call_survives_a_killed_daemon() {
    let home = Home::new();
    for era in ERAS {
        for tool in ["shell", "execute_command"] {
            let mut client = Client::start(&home, setup(era));
            let name = format!("{era:?}{tool}");
            let (fifo, go) = (
                Fifo::new(&home, &name),
                Fifo::new(&home, &format!("{name}.go")),
            );
            let (fifo_at, go_at) = (fifo.path(), go.path());
            let count = format!("{name}.count");
            let command =
                format!("echo run >> {count}; echo $$ > {fifo_at}; cat {go_at}; echo over; exit 3");
            let id = client.begin(tool, json!({"command": command}));
            let process = fifo.read_process();
            home.kill_daemon();
            assert!(process.is_alive(), "a daemon's end ends no command");
            std::fs::write(home.path(&format!("{name}.go")), "").expect("the command reads");
            let result = client.result(id);
            assert!(text(&result).contains("over"), "{result}");
            assert_eq!(result["structuredContent"]["exit_code"], 3, "{result}");
            assert_eq!(home.lines(&count), 1, "{name}");
        }
    }
}

#[test]
fn input_is_sent_once_when_the_daemon_dies() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let name = format!("{era:?}typed");
        let (fifo, go) = (
            Fifo::new(&home, &name),
            Fifo::new(&home, &format!("{name}.go")),
        );
        let (fifo_at, go_at) = (fifo.path(), go.path());
        // The command prints nothing, so that the call is still waiting.
        let command =
            format!("read a; echo $a > {fifo_at}; cat {go_at}; read b; echo $b > {fifo_at}");
        let start = json!({"action": "start", "command": command, "pty": false});
        let started = client.call("terminal_session", start);
        let session = started["structuredContent"]["session_id"].clone();
        let send =
            |input: &str| json!({"action": "send_input", "session_id": session, "input": input});
        let id = client.begin("terminal_session", send("one\n"));
        assert_eq!(fifo.read(), "one");
        home.kill_daemon();
        let result = client.result(id);
        assert!(!is_error(&result), "{result}");
        let id = client.begin("terminal_session", send("two\n"));
        std::fs::write(home.path(&format!("{name}.go")), "").expect("the program reads");
        assert_eq!(fifo.read(), "two");
        client.result(id);
    }
}

#[test]
fn signal_is_sent_once_when_the_daemon_dies() {
    let home = Home::dying("signal.post_send");
    let mut client = Client::start(&home, LEGACY);
    let fifo = Fifo::new(&home, "received");
    let said = fifo.path();
    let command = format!(
        "trap 'echo one > {said}' USR1; trap 'echo two > {said}' USR2; echo up > {said}; \
         while :; do sleep 0.01; done"
    );
    let start = json!({"action": "start", "command": command, "pty": false});
    let started = client.call("terminal_session", start);
    let session = started["structuredContent"]["session_id"].clone();
    assert_eq!(fifo.read(), "up");
    let send = |name: &str| json!({"action": "signal", "session_id": session, "signal": name});
    let id = client.begin("terminal_session", send("USR1"));
    assert_eq!(fifo.read(), "one");
    let result = client.result(id);
    assert!(text(&result).contains("Signal 10 sent"), "{result}");
    client.call("terminal_session", send("USR2"));
    assert_eq!(fifo.read(), "two");
}

#[test]
fn kill_done_by_a_dying_daemon_is_answered_as_done() {
    for (at, act, said) in [
        (
            "signal.post_send",
            json!({"action": "signal", "signal": "KILL"}),
            "Signal 9 sent",
        ),
        (
            "input.post_send",
            json!({"action": "send_input", "input": "over\n"}),
            "[stdout] over\n",
        ),
    ] {
        let home = Home::dying(at);
        let mut client = Client::start(&home, LEGACY);
        let start = json!({"action": "start", "command": "head -n 1", "pty": false});
        let started = client.call("terminal_session", start);
        let session = started["structuredContent"]["session_id"].clone();
        let mut act = act;
        act["session_id"] = session.clone();
        let wait = json!({"action": "read_output", "session_id": session, "timeout_seconds": 60});
        let result = client.call("terminal_session", act.clone());
        assert!(!is_error(&result), "{result}");
        assert!(text(&result).contains(said), "{result}");
        client.call("terminal_session", wait);
        let again = client.call("terminal_session", act);
        assert!(is_error(&again), "another call is another: {again}");
    }
}

#[test]
fn timer_action_done_by_a_dying_daemon_is_answered_as_done() {
    for (tool, at, said) in [
        ("stop_timer", "timer.stop.post", "was stopped"),
        ("cancel_timer", "timer.change.post", "was cancelled"),
        ("pause_timer", "timer.change.post", "was paused"),
        ("resume_timer", "timer.change.post:2", "was resumed"),
    ] {
        let home = Home::dying(at);
        let mut client = Client::start(&home, LEGACY);
        let made = json!({"total_duration": 3600, "mission": "later"});
        let made = client.call("timer", made);
        let id = made["structuredContent"]["timer_id"].clone();
        if tool == "resume_timer" {
            let pause = json!({"timer_id": id, "pause_duration": 1800});
            client.call("pause_timer", pause);
        }
        let mut act = json!({"timer_id": id, "reason": "enough"});
        if tool == "pause_timer" {
            act["pause_duration"] = json!(60);
        }
        let result = client.call(tool, act.clone());
        assert!(!is_error(&result), "{tool}: {result}");
        let words = text(&result);
        assert!(
            words.contains(said) && words.contains("Mission: later\nWhy: enough\n"),
            "{words}"
        );
        let again = client.call(tool, act);
        assert!(is_error(&again), "another call is another: {again}");
    }
}

#[test]
fn front_and_daemon_number_requests_alike_for_all_ids() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    for id in [
        format!("\"{}\"", "x".repeat(1_000)),
        "1.5".into(),
        "-7".into(),
        "18446744073709551616".into(),
        "null".into(),
        "1x".into(),
    ] {
        client.write(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#
        ));
    }
    client.write(&format!(
        r#"{{"jsonrpc":"2.0","id":"m","method":"{}"}}"#,
        "y".repeat(1_000)
    ));
    let unknown = client.receive(|message| message["id"] == "m");
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let (fifo, go) = (Fifo::new(&home, "runs"), Fifo::new(&home, "go"));
    let command = format!(
        "echo run >> ran; echo on > {}; cat {}",
        fifo.path(),
        go.path()
    );
    let id = client.begin("shell", json!({"command": command}));
    fifo.read();
    home.kill_daemon();
    std::fs::write(home.path("go"), "").expect("the command reads");
    let result = client.result(id);
    assert!(text(&result).contains("STATUS: SUCCESS"), "{result}");
    assert_eq!(home.lines("ran"), 1);
}

#[test]
fn duplicate_id_does_not_affect_the_first_request() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let (fifo, go) = (Fifo::new(&home, "runs"), Fifo::new(&home, "go"));
    let command = format!("echo on > {}; cat {}", fifo.path(), go.path());
    let id = client.begin("shell", json!({"command": command}));
    fifo.read();
    client.forget_id();
    client.begin("shell", json!({"command": "true"}));
    client.receive(|message| message["id"] == id && message["error"].is_object());
    home.kill_daemon();
    std::fs::write(home.path("go"), "over").expect("the command reads");
    assert!(text(&client.result(id)).contains("STDOUT:\nover"));
}

/// The daemon dies after an answer was sent: before or after its delivery is recorded.
#[test]
fn output_read_when_the_daemon_died_is_read_again() {
    let noted = |era| (era, "cursors.after_write", "No output available");
    let unnoted = |era| (era, "cursors.before_write", "[stdout] one\n");
    for (era, place, next) in ERAS.map(noted).into_iter().chain(ERAS.map(unnoted)) {
        let home = Home::dying(place);
        let mut client = Client::start(&home, setup(era));
        let command = "echo one; read line; echo $line";
        let start = json!({"action": "start", "command": command, "pty": false});
        let started = client.call("terminal_session", start);
        let session = started["structuredContent"]["session_id"].clone();
        assert!(text(&started).ends_with("\n[stdout] one"), "{started}");
        let at_once = json!({"action": "read_output", "session_id": session});
        let result = client.call("terminal_session", at_once);
        assert!(text(&result).starts_with(next), "{place}: {result}");
        let send = json!({"action": "send_input", "session_id": session, "input": "two\n"});
        client.call("terminal_session", send);
        // Waits for the rest of the output or for the end, whatever the answer already had.
        let rest = json!({"action": "read_output", "session_id": session, "timeout_seconds": 60});
        client.call("terminal_session", rest);
        let read = json!({"action": "read_output", "session_id": session, "since": "0"});
        let result = client.call("terminal_session", read);
        assert!(
            text(&result).starts_with("[stdout] one\n[stdout] two\n"),
            "{result}"
        );
    }
}

/// Lines that one read has taken are not returned by the other, although neither answer has arrived yet.
#[test]
fn two_concurrent_reads_get_different_lines() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let fifo = Fifo::new(&home, "lines");
    let command = format!("cat {}; exec sleep 1000", fifo.path());
    let start = json!({"action": "start", "command": command, "pty": false});
    let started = client.call("terminal_session", start);
    let session = &started["structuredContent"]["session_id"];
    std::fs::write(home.path("lines"), "one\ntwo\n").expect("the command reads");
    let both = json!({"session": session, "output": "two"});
    let both = json!({"total_duration": 180, "reason": "both lines", "until": both});
    client.call("timer", both);
    let read = json!({"action": "read_output", "session_id": session, "max_lines": 1});
    let reads = [1, 2].map(|_| client.begin("terminal_session", read.clone()));
    let mut told = reads.map(|id| text(&client.result(id)).lines().next().map(str::to_owned));
    told.sort();
    let wanted = ["[stdout] one", "[stdout] two"].map(|line| Some(line.to_owned()));
    assert_eq!(told, wanted);
}

#[test]
fn shell_reports_that_another_client_ended_the_command() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let begin = |client: &mut Client, name: &str| {
        let fifo = Fifo::new(&home, name);
        let command = format!("echo $$ > {}; exec sleep 1000", fifo.path());
        let id = client.begin("shell", json!({"command": command}));
        (id, fifo.read())
    };
    let (id, _) = begin(&mut client, "killed");
    let running = client.call("terminal_session", json!({"action": "list"}));
    let session = &running["structuredContent"]["sessions"][0]["session_id"];
    client.call(
        "terminal_session",
        json!({"action": "kill", "session_id": session}),
    );
    let result = client.result(id);
    let said = "\nWARNING: the command was ended by terminal_session kill";
    assert!(text(&result).ends_with(said), "{result}");

    let (id, pid) = begin(&mut client, "lost");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let keeper = parent.and_then(|parent| parent.trim().parse().ok());
    Process::if_alive(keeper.expect("a keeper"))
        .expect("it lives")
        .kill();
    let result = client.result(id);
    let said = "\nWARNING: nobody saw how the command ended";
    assert!(text(&result).contains(said), "{result}");
    let code = &result["structuredContent"]["return_code"];
    assert_eq!(code, &Value::Null, "{result}");
}

#[test]
fn concurrent_calls_survive_a_killed_daemon() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let mut ids = Vec::new();
    let mut fifos = Vec::new();
    for n in 0..5 {
        let fifo = Fifo::new(&home, &format!("fifo{n}"));
        let command = format!(
            "echo run >> count; echo $$ > {}; while ! test -e done; do sleep 0.05; done; echo {n}",
            fifo.path()
        );
        ids.push(client.begin("shell", json!({"command": command})));
        fifos.push(fifo);
    }
    for fifo in &fifos {
        fifo.read();
    }
    home.kill_daemon();
    kill_again_when_back(&home);
    std::fs::write(home.path("done"), "").expect("a file");
    for (n, id) in ids.into_iter().enumerate() {
        let result = client.result(id);
        assert!(
            text(&result).contains(&format!("STDOUT:\n{n}\n")),
            "{result}"
        );
    }
    assert_eq!(home.lines("count"), 5);
}

/// Waits until the daemon is back, with a call of another client, and kills it again.
fn kill_again_when_back(home: &Home) {
    Client::start(home, LEGACY).call("shell", json!({"command": "true"}));
    home.kill_daemon();
}

#[test]
fn open_question_is_asked_again_by_the_next_daemon() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let go = Fifo::new(&home, "go");
    let command = format!("echo run >> count; cat {}; echo over", go.path());
    let id = client.begin(
        "execute_command",
        json!({"command": command, "timeout": 0.3}),
    );
    let first = client.asked();
    home.kill_daemon();
    assert_eq!(
        client.notified("notifications/cancelled")["requestId"],
        first["id"]
    );
    let second = client.asked();
    assert_ne!(first["id"], second["id"]);
    // An answer to a question of the old daemon is ignored.
    client.reply(&first, "decline");
    client.reply(&second, "accept");
    std::fs::write(home.path("go"), "").expect("the command reads");
    let result = client.result(id);
    assert!(
        text(&result).starts_with("over\n[exited with code 0"),
        "{result}"
    );
    assert_eq!(home.lines("count"), 1);
}

#[test]
fn idle_front_reconnects_on_the_next_call() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        client.call("shell", json!({"command": "true"}));
        home.kill_daemon();
        let result = client.call("shell", json!({"command": "echo back"}));
        assert!(text(&result).contains("back"), "{result}");
    }
}

#[test]
fn cancellation_is_replayed_to_the_next_daemon() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let fifo = Fifo::new(&home, "fifo");
    let command = format!("echo $$ > {}; exec sleep 1000", fifo.path());
    let id = client.begin("execute_command", json!({"command": command}));
    let process = fifo.read_process();
    home.kill_daemon();
    client.notify(
        "notifications/cancelled",
        json!({"requestId": id, "reason": "stop"}),
    );
    process.wait_gone();
}

#[test]
fn cancellation_that_the_daemon_never_read_is_replayed() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let fifo = Fifo::new(&home, "fifo");
    let command = format!("echo $$ > {}; exec sleep 1000", fifo.path());
    let id = client.begin("execute_command", json!({"command": command}));
    let process = fifo.read_process();
    // A stopped daemon reads nothing, but its socket takes what the front writes.
    let daemon = Process::on(home.pid());
    daemon.send(Signal::STOP);
    client.notify(
        "notifications/cancelled",
        json!({"requestId": id, "reason": "stop"}),
    );
    daemon.kill();
    process.wait_gone();
}

#[test]
fn repeated_call_of_a_cancelled_one_is_told_so_by_the_next_daemon() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let fifo = Fifo::new(&home, "fifo");
    let command = format!("echo $$ > {}; exec sleep 1000", fifo.path());
    let arguments = json!({"command": command, "idempotency_key": "one"});
    let id = client.begin("execute_command", arguments.clone());
    let process = fifo.read_process();
    client.notify(
        "notifications/cancelled",
        json!({"requestId": id, "reason": "stop"}),
    );
    process.wait_gone();
    home.kill_daemon();
    let result = client.call("execute_command", arguments);
    let told = "command execution cancelled by user";
    assert!(text(&result).starts_with(told), "{result}");
}

#[test]
fn s1_front_exits_with_its_client_and_sessions_continue() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let fifo = Fifo::new(&home, &format!("{era:?}"));
        let command = format!("echo $$ > {}; exec sleep 1000", fifo.path());
        client.begin("shell", json!({"command": command}));
        let process = fifo.read_process();
        client.close_input();
        assert!(client.ended().0);
        assert!(process.is_alive(), "it did not wait for the command");
    }
}

#[test]
fn closed_input_pipe_gets_its_answers() {
    let home = Home::new();
    // No daemon runs yet: the call waits for its start, however long it takes.
    let mut client = Client::silent(&home, LEGACY);
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "printf", "version": "1"},
    });
    client.request("initialize", params);
    client.notify("notifications/initialized", json!({}));
    client.begin("read_timer", json!({}));
    client.close_input();
    let (_, said) = client.ended();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(text(&said[1]["result"]).contains("o timers"), "{said:?}");
}

/// The end of an input file does not mean that the client is gone, so even a late answer is written.
#[test]
fn input_file_gets_every_answer() {
    let home = Home::new();
    let requests = home.path("requests");
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a file", "version": "1"},
        },
    });
    let call = json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "shell", "arguments": {"command": "sleep 3; echo at last"}},
    });
    std::fs::write(&requests, format!("{initialize}\n{call}\n")).expect("a file");
    let mut front = home.command(["mcp"]);
    front.stdin(std::fs::File::open(&requests).expect("the file"));
    let said = front.output().expect("abide mcp runs").stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("at last"), "{said}");
}

#[test]
fn s2_reused_request_id_is_another_call() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let name = format!("{era:?}");
        for _ in 0..2 {
            let id = client.begin("shell", json!({"command": format!("echo run >> {name}")}));
            client.result(id);
            client.forget_id();
        }
        assert_eq!(home.lines(&name), 2);
    }
}

#[test]
fn agents_see_only_their_own_sessions() {
    let home = Home::new();
    let answers: Vec<Value> = ["one", "two"]
        .iter()
        .map(|agent| {
            let env = [("ABIDE_AGENT", *agent)];
            let mut client = Client::start(
                &home,
                crate::harness::Setup {
                    env: &env,
                    ..LEGACY
                },
            );
            let arguments = json!({"command": "echo run >> count", "idempotency_key": "same"});
            client.call("shell", arguments)
        })
        .collect();
    let ids = |at: usize| answers[at]["structuredContent"]["session_id"].clone();
    assert_ne!(ids(0), ids(1));
    assert_eq!(home.lines("count"), 2);
}

#[test]
fn two_clients_of_an_agent_have_separate_cursors() {
    let home = Home::new();
    for era in ERAS {
        let mut clients = [0, 1].map(|_| {
            let mut client = Client::start(&home, setup(era));
            client.call("terminal_session", json!({"action": "list"}));
            client
        });
        let start = json!({"action": "start", "pty": false, "command": "echo one; echo two; cat"});
        let started = clients[0].call("terminal_session", start);
        let session = started["structuredContent"]["session_id"].clone();
        let wait = json!({
            "action": "read_output",
            "session_id": session,
            "until": "two",
            "timeout_seconds": 180,
        });
        let read = json!({"action": "read_output", "session_id": session});
        // The start has returned both lines to the first client.
        let both = "[stdout] one\n[stdout] two";
        assert!(text(&started).ends_with(both), "{started}");
        let read_by_other = clients[1].call("terminal_session", wait);
        assert_eq!(text(&read_by_other), format!("{both}\n[cursor: 8]"));
        // The delivery is recorded before any other call is answered.
        clients[0].call("terminal_session", json!({"action": "list"}));
        home.kill_daemon();
        for client in &mut clients {
            let nothing = client.call("terminal_session", read.clone());
            assert_eq!(text(&nothing), "No output available");
        }
        // A later client is one more reader.
        let mut later = Client::start(&home, setup(era));
        let read_by_later = later.call("terminal_session", read.clone());
        assert_eq!(text(&read_by_later), format!("{both}\n[cursor: 8]"));
        // Once all are gone, the next client continues for them. The next daemon knows that they are gone.
        clients[0].call("terminal_session", json!({"action": "list"}));
        later.call("terminal_session", json!({"action": "list"}));
        drop((clients, later));
        home.kill_daemon();
        let mut next = Client::start(&home, setup(era));
        let nothing = next.call("terminal_session", read);
        assert_eq!(text(&nothing), "No output available");
        let mut later = next;
        later.call(
            "terminal_session",
            json!({"action": "kill", "session_id": session}),
        );
    }
}

#[test]
fn s24_calls_of_a_stopped_daemon_continue_in_the_next() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let name = format!("{era:?}");
        let (fifo, go) = (
            Fifo::new(&home, &name),
            Fifo::new(&home, &format!("{name}.go")),
        );
        let command = format!("echo $$ > {}; cat {}; echo over", fifo.path(), go.path());
        let id = client.begin("shell", json!({"command": command}));
        fifo.read();
        let stopped = home.command(["stop"]).output().expect("abide stop runs");
        assert!(stopped.status.success(), "{stopped:?}");
        std::fs::write(home.path(&format!("{name}.go")), "").expect("the command reads");
        assert!(text(&client.result(id)).contains("over"));
    }
}

#[test]
fn unreachable_daemon_is_explained() {
    let home = Home::new();
    std::fs::write(home.path("file"), "").expect("a file");
    let nowhere = home.path("file/abide");
    let env = [("ABIDE_DIR", nowhere.to_str().expect("a path"))];
    let setup = crate::harness::Setup {
        env: &env,
        ..crate::harness::MODERN
    };
    let mut client = Client::start(&home, setup);
    let id = client.begin("shell", json!({"command": "true"}));
    let error = client.answer(id)["error"].clone();
    let said = error["message"].as_str().expect("a sentence");
    assert!(
        said.starts_with("the abide daemon cannot be reached: "),
        "{said}"
    );
}
