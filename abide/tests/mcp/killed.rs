//! A daemon or a front that is killed while it processes calls.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Client, Home, LEGACY, Process, text};

/// Crash points that a message passes in the daemon.
const PLACES: [&str; 3] = ["mcp.received", "mcp.answer", "mcp.sent"];

#[test]
fn calls_are_run_and_answered_once_when_the_daemon_is_killed() {
    for place in PLACES {
        for nth in [1, 3] {
            let home = Home::dying(&format!("{place}:{nth}"));
            let first = home.daemon_pid();
            let mut client = Client::start(&home, LEGACY);
            for number in 0..4 {
                let command = format!("echo {number} >> ran; echo said {number}");
                let result = client.call("shell", json!({"command": command}));
                assert!(
                    text(&result).contains(&format!("said {number}\n")),
                    "{place}: {result}"
                );
            }
            assert_ne!(home.daemon_pid(), first, "{place}: it was killed");
            client.close_input();
            let (_, more) = client.ended();
            assert_eq!(
                more,
                Vec::<Value>::new(),
                "{place}: nothing is answered twice"
            );
            let ran = std::fs::read_to_string(home.path("ran")).expect("they ran");
            assert_eq!(ran, "0\n1\n2\n3\n", "{place}");
        }
    }
}

#[test]
fn concurrent_calls_are_run_and_answered_once_when_the_daemon_is_killed() {
    for place in PLACES {
        let home = Home::dying(&format!("{place}:5"));
        let first = home.daemon_pid();
        let mut client = Client::start(&home, LEGACY);
        let begin = |number| {
            let command = format!("echo x >> ran{number}; echo said {number}");
            (client.begin("shell", json!({"command": command})), number)
        };
        let begun: BTreeMap<u64, i32> = (0..8).map(begin).collect();
        for (id, number) in begun {
            let result = client.result(id);
            assert!(
                text(&result).contains(&format!("said {number}\n")),
                "{place}: {result}"
            );
            assert_eq!(home.lines(&format!("ran{number}")), 1, "{place}");
        }
        assert_ne!(home.daemon_pid(), first, "{place}: it was killed");
        client.close_input();
        assert_eq!(
            client.ended().1,
            Vec::<Value>::new(),
            "{place}: nothing is answered twice"
        );
    }
}

#[test]
fn lines_of_the_client_are_never_taken_for_control_lines() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    for line in ["!again 0", "!check 0", "nonsense"] {
        client.write(line);
    }
    for _ in 0..3 {
        client.receive(|message| message["error"]["code"] == -32700);
    }
    assert_eq!(
        client.call("shell", json!({"command": "echo ok"}))["isError"],
        false
    );
}

#[test]
fn nothing_is_answered_again_after_a_long_conversation_and_a_killed_daemon() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    for _ in 0..1_500 {
        let id = client.request("ping", json!({}));
        client.result(id);
    }
    home.kill_daemon();
    let result = client.call("shell", json!({"command": "echo still here"}));
    assert!(text(&result).contains("still here"), "{result}");
    client.close_input();
    assert_eq!(
        client.ended().1,
        Vec::<Value>::new(),
        "nothing is answered again"
    );
}

#[test]
fn client_that_reads_late_gets_every_answer_once() {
    let home = Home::new();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    for socket in [false, true] {
        let mut front = home.command(["mcp"]);
        let (mut input, output): (Box<dyn Write>, Box<dyn Read>) = if socket {
            let theirs = theirs.try_clone().expect("a copy");
            front.stdin(OwnedFd::from(theirs.try_clone().expect("a copy")));
            front.stdout(OwnedFd::from(theirs));
            let copy = || ours.try_clone().expect("a copy");
            (Box::new(copy()), Box::new(copy()))
        } else {
            let (read, write) = std::io::pipe().expect("a pipe");
            let (back, answers) = std::io::pipe().expect("a pipe");
            front.stdin(Stdio::from(read)).stdout(Stdio::from(answers));
            (Box::new(write), Box::new(back))
        };
        let mut child = front.spawn().expect("abide mcp starts");
        drop(front);
        let mut send = |message: Value| writeln!(input, "{message}").expect("it reads");
        let mut lines = BufReader::new(output).lines();
        let mut next = || lines.next().expect("an answer").expect("a line");
        send(
            json!({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "late", "version": "1"},
            }}),
        );
        assert!(next().contains("protocolVersion"));
        send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        for id in 0..3_000 {
            send(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        }
        let answered: BTreeSet<u64> = (0..3_000)
            .map(|_| serde_json::from_str::<Value>(&next()).expect("a message"))
            .map(|answer| answer["id"].as_u64().expect("a number"))
            .collect();
        assert!(answered.into_iter().eq(0..3_000), "each of them once");
        child.kill().expect("it can be ended");
        child.wait().expect("it ends");
    }
}

#[test]
fn client_reads_end_of_file_when_its_front_is_killed() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    client.call("shell", json!({"command": "true"}));
    Process::if_alive(client.front()).expect("it lives").kill();
    let (success, rest) = client.ended();
    assert!(!success && rest.is_empty());
    let mut other = Client::start(&home, LEGACY);
    assert_eq!(
        other.call("shell", json!({"command": "true"}))["isError"],
        false
    );
}
