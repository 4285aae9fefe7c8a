//! The client's own pipes in the daemon's hands: what the front lends, what comes back, and what a daemon
//! that dies in the midst of it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Client, ERAS, Home, LEGACY, Process, setup, text};

/// The places in which a daemon can die with a client in its hands.
const PLACES: [&str; 5] = [
    "loan.read",
    "loan.taken",
    "loan.staged",
    "loan.noted",
    "loan.given",
];

/// The pipes that a process holds.
fn pipes(pid: i32) -> Vec<String> {
    let listing = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    let links = listing
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let links = links.map(|link| link.to_string_lossy().into_owned());
    links.filter(|link| link.starts_with("pipe:")).collect()
}

/// Whether the daemon holds what the client writes to and what it reads from.
fn holds_both(home: &Home, client: &Client) -> bool {
    let daemons = pipes(home.daemon_pid().expect("a daemon runs"));
    let of_front = |fd: i32| std::fs::read_link(format!("/proc/{}/fd/{fd}", client.front()));
    let held = [0, 1].map(|fd| {
        let pipe = of_front(fd).expect("the front lives");
        daemons.contains(&pipe.to_string_lossy().into_owned())
    });
    assert_eq!(held[0], held[1], "both or none");
    held[0]
}

#[test]
fn the_daemon_holds_a_clients_pipes_and_lets_go_of_them() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        for _ in 0..3 {
            client.call("shell", json!({"command": "true"}));
        }
        assert!(holds_both(&home, &client), "{era:?}");
        client.close_input();
        assert!(client.ended().0);
    }
}

#[test]
fn versions_with_batches_are_left_to_the_front() {
    let home = Home::new();
    let mut client = Client::silent(&home, LEGACY);
    client.initialize("2025-03-26", false);
    for _ in 0..3 {
        client.call("shell", json!({"command": "true"}));
    }
    assert!(!holds_both(&home, &client));
}

#[test]
fn a_daemon_that_dies_with_a_clients_pipes_loses_and_doubles_nothing() {
    for place in PLACES {
        for nth in [1, 3] {
            let home = Home::dying(&format!("{place}:{nth}"));
            let mut client = Client::start(&home, LEGACY);
            for number in 0..4 {
                let command = format!("echo {number} >> ran; echo said {number}");
                let result = client.call("shell", json!({"command": command}));
                assert!(
                    text(&result).contains(&format!("said {number}\n")),
                    "{place}: {result}"
                );
            }
            client.close_input();
            let (_, more) = client.ended();
            assert_eq!(more, Vec::<Value>::new(), "{place}: nothing is said twice");
            let ran = std::fs::read_to_string(home.path("ran")).expect("they ran");
            assert_eq!(ran, "0\n1\n2\n3\n", "{place}");
        }
    }
}

#[test]
fn several_calls_in_a_daemons_hands_are_each_answered_once() {
    for place in PLACES {
        let home = Home::dying(&format!("{place}:5"));
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
        client.close_input();
        assert_eq!(
            client.ended().1,
            Vec::<Value>::new(),
            "{place}: nothing is said twice"
        );
    }
}

#[test]
fn long_and_odd_lines_come_back_to_the_front_and_the_client_is_lent_again() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    for size in [0, 5_000, 40_000, 100_000, 10] {
        let command = format!("echo said {size} # {}", "x".repeat(size));
        let result = client.call("shell", json!({"command": command}));
        assert!(text(&result).contains(&format!("said {size}\n")), "{size}");
        client.call("shell", json!({"command": "true"}));
        client.call("shell", json!({"command": "true"}));
        assert!(holds_both(&home, &client), "{size}");
    }
    client.write("!lend 0");
    client.write("!seen 9999 9999");
    client.write("nonsense");
    for _ in 0..3 {
        client.heard(|message| message["error"]["code"] == -32700);
    }
    assert_eq!(
        client.call("shell", json!({"command": "echo ok"}))["isError"],
        false
    );
}

/// Far more than fits into the memory that both share.
#[test]
fn a_long_conversation_is_kept_count_of() {
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

/// What cannot be given to the client waits in the daemon and the front, and all of it comes.
#[test]
fn a_client_that_reads_late_gets_everything() {
    let home = Home::new();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    for socket in [false, true] {
        let mut front = home.abide(&["mcp"]);
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
        let mut say = |message: Value| writeln!(input, "{message}").expect("it reads");
        let mut lines = BufReader::new(output).lines();
        let mut next = || lines.next().expect("an answer").expect("a line");
        say(
            json!({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "late", "version": "1"},
            }}),
        );
        assert!(next().contains("protocolVersion"));
        say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        for id in 0..3_000 {
            say(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
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

/// The daemon keeps nobody's pipe open behind a front that is gone.
#[test]
fn a_front_that_is_killed_leaves_its_client_at_the_end_of_its_input() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    client.call("shell", json!({"command": "true"}));
    Process::open(client.front()).expect("it lives").kill();
    let (success, rest) = client.ended();
    assert!(!success && rest.is_empty());
    let mut other = Client::start(&home, LEGACY);
    assert_eq!(
        other.call("shell", json!({"command": "true"}))["isError"],
        false
    );
}
