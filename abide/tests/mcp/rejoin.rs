//! A command that outlives the limit of its client: calls that wait for it again.

use std::io::Write;

use serde_json::{Value, json};

use crate::harness::*;

/// Limit of a client whose calls are handed over after five sixths of it.
const LIMIT: [(&str, &str); 1] = [("ABIDE_CALL_LIMIT", "0.6")];
const HANDED_OVER_AFTER: f64 = 0.5;

/// A named pipe whose lines the command prints, and the command.
fn printer(home: &Home, name: &str) -> (std::fs::File, String) {
    let path = Fifo::new(home, name).path().to_string();
    let command = format!("while read line; do echo \"$line\"; done < {path}");
    // Opened for reading too, so that opening does not block until the command opens it.
    let pipe = std::fs::File::options().read(true).write(true).open(&path);
    (pipe.expect("a fifo"), command)
}

fn session(result: &Value) -> Value {
    result["structuredContent"]["session_id"].clone()
}

#[test]
fn chatty_command_costs_one_call_per_limit_and_repeats_nothing() {
    for era in ERAS {
        for tool in ["shell", "execute_command"] {
            let home = Home::new();
            let mut client = Client::start(&home, setup_in(era, &LIMIT));
            let fifo = Fifo::new(&home, "fifo");
            let command = format!(
                "echo $$ > {}; n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.05; done",
                fifo.path()
            );
            #[expect(clippy::disallowed_methods, reason = "the time is what is tested")]
            let began = std::time::Instant::now();
            let id = client.begin(tool, json!({"command": command, "raw": true}));
            let process = fifo.read_process();
            let mut result = client.result(id);
            let rejoin = json!({"session_id": session(&result), "raw": true});
            let mut told = text(&result).to_owned();
            for _ in 0..3 {
                result = client.call(tool, rejoin.clone());
                told.push('\n');
                told.push_str(text(&result));
            }
            let waited = began.elapsed().as_secs_f64();
            assert!(waited >= 4.0 * HANDED_OVER_AFTER, "4 calls in {waited} s");
            process.kill();
            while !matches!(&result["structuredContent"]["signal"], Value::Number(_)) {
                result = client.call(tool, rejoin.clone());
                told.push('\n');
                told.push_str(text(&result));
            }
            let ticks = told.lines().filter_map(|line| line.strip_prefix("tick "));
            let ticks: Vec<usize> = ticks.map(|tick| tick.parse().expect("a number")).collect();
            let all: Vec<usize> = (1..=ticks.len()).collect();
            assert_eq!(ticks, all, "every line once: {told}");
            assert!(ticks.len() > 3, "{told}");
        }
    }
}

#[test]
fn cancelling_a_call_that_rejoined_ends_the_command() {
    for tool in ["shell", "execute_command"] {
        let home = Home::new();
        let mut client = Client::start(&home, setup_in(Era::Legacy, &LIMIT));
        let fifo = Fifo::new(&home, "fifo");
        let command = format!("echo $$ > {}; exec sleep 1000", fifo.path());
        let id = client.begin(tool, json!({"command": command}));
        let process = fifo.read_process();
        let first = client.result(id);
        // A cancellation right before the limit of the client is treated as its timeout.
        let mut other = Client::start(&home, setup(Era::Legacy));
        let id = other.begin(tool, json!({"session_id": session(&first)}));
        let params = json!({"requestId": id, "reason": "User requested cancellation"});
        other.notify("notifications/cancelled", params);
        process.wait_gone();
    }
}

#[test]
fn call_that_rejoined_is_replayed_to_the_next_daemon_without_repeating_output() {
    let home = Home::new();
    let mut client = Client::start(&home, setup_in(Era::Legacy, &[("ABIDE_CALL_LIMIT", "2")]));
    let (mut pipe, command) = printer(&home, "pipe");
    writeln!(pipe, "one").expect("written");
    let first = client.call("execute_command", json!({"command": command}));
    assert!(
        text(&first).starts_with("one\n[still running, now "),
        "{first}"
    );
    let rejoin = json!({"session_id": session(&first)});
    // The read cursor is stored after the answer was sent: a daemon that dies before that repeats output.
    let name = session(&first);
    let stored = home.path(&format!(
        "abide/sessions/{}/daemon",
        name.as_str().expect("an id")
    ));
    while std::fs::read(&stored).unwrap_or_default().is_empty() {
        std::thread::yield_now();
    }
    let id = client.begin("execute_command", rejoin.clone());
    home.kill_daemon();
    writeln!(pipe, "two").expect("written");
    drop(pipe);
    let mut told = text(&client.result(id)).to_owned();
    while !told.contains("[exited with code 0") {
        told.push_str(text(&client.call("execute_command", rejoin.clone())));
    }
    assert_eq!(told.matches("two\n").count(), 1, "{told}");
    assert!(!told.contains("one"), "{told}");
}
