//! Terminals of one machine that are attached from another.

use std::io::{BufReader, Read, Write};
use std::net::Shutdown;

use tungstenite::Message;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::Request;

use super::*;
use crate::common::home::PATIENCE;
use crate::terminal_page::TerminalPage;

fn connected(machine: &Abide) -> UnixStream {
    let stream = UnixStream::connect(machine.path("run/http.sock")).expect("the daemon listens");
    let limited = stream.set_read_timeout(Some(PATIENCE));
    limited.expect("a limit");
    stream
}

fn request(session: &str) -> Request {
    let url = format!("ws://abide/v1/sessions/{session}/terminal");
    url.into_client_request().expect("a request")
}

fn open(machine: &Abide, session: &str) -> TerminalPage<UnixStream> {
    TerminalPage::open(request(session), connected(machine))
}

const MAY_TYPE: &str = "[fleet]\ntype = [\"desk\"]\n";

#[test]
fn terminal_of_the_other_machine_takes_input_and_sizes_and_shows_output() {
    let pair = Pair::with(MAY_TYPE);
    let id = pair.cat();
    let mut page = open(&pair.desk, &id);
    let hello = page.until_event("hello");
    assert!(hello.get("read_only").is_none(), "{hello}");
    page.type_in("typed from the desk\r");
    page.until_painted("typed from the desk\r\ntyped from the desk");
    let size = json!({"type": "resize", "cols": 90, "rows": 25}).to_string();
    page.send(Message::Text(size.into()));
    let resized = page.until_event("resized");
    assert_eq!(
        (&resized["cols"], &resized["rows"]),
        (&json!(90), &json!(25))
    );
    assert_eq!(pair.build.kill_session(&id).status, 200);
    page.until_event("ended");
    page.until_closed();
}

#[test]
fn terminal_without_the_right_to_type_is_read_only_and_names_the_line_to_add() {
    let pair = Pair::with("");
    let id = pair.cat();
    let mut page = open(&pair.desk, &id);
    let hello = page.until_event("hello");
    let why = hello["read_only"].as_str().expect("a reason").to_owned();
    assert!(why.contains("`type = [\"desk\"]` below `[fleet]`"), "{why}");
    page.type_in("from the desk\r");
    let input = json!({"action": "send_input", "session_id": id, "input": "from home\n"});
    call(&pair.build, &input);
    page.until_painted("from home");
    let seen = String::from_utf8_lossy(&page.painted).into_owned();
    assert!(!seen.contains("from the desk"), "{seen}");
}

#[test]
fn right_that_is_taken_away_closes_the_terminal_at_the_next_key() {
    let pair = Pair::with(MAY_TYPE);
    let id = pair.cat();
    let mut page = open(&pair.desk, &id);
    page.until_event("hello");
    let path = pair.build.path("config.toml");
    let config = std::fs::read_to_string(&path).expect("it");
    std::fs::write(&path, config.replace(MAY_TYPE, "")).expect("a configuration");
    look_for("a refusal", || {
        let killed = (pair.desk).try_post(
            &format!("/v1/sessions/{id}/resize"),
            &json!({"cols": 80, "rows": 24}),
        );
        (killed?.status == 403).then_some(())
    });
    page.type_in("too late\r");
    page.until_closed();
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    assert!(!text(&call(&pair.build, &read)).contains("too late"));
}

/// Terminal whose client types without end and reads nothing.
struct Blocked {
    stream: UnixStream,
    typing: std::thread::JoinHandle<()>,
}

impl Blocked {
    fn open(machine: &Abide, session: &str) -> Self {
        let stream = connected(machine);
        let opened = tungstenite::client(request(session), stream.try_clone().expect("a copy"));
        let (mut terminal, _) = opened.expect("a terminal");
        let typing = std::thread::spawn(move || {
            let input = Message::Binary(vec![b'x'; 512 << 10].into());
            while terminal.send(input.clone()).is_ok() {}
        });
        Blocked { stream, typing }
    }
}

#[test]
fn f71_terminals_that_are_not_read_leave_their_machine_reachable() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\nrun = [\"desk\"]\n");
    // A program that does not read what is typed, and a client that does not read the echo.
    let sessions = [false, true].map(|pty| pair.started("sleep 600", pty));
    let blocked = sessions.map(|id| Blocked::open(&pair.desk, &id));
    // Longer than the silence after which a machine counts as not answering.
    let long = json!({"command": "sleep 8", "on": "build"});
    let ran = pair.desk.post("/v1/tools/shell", &long);
    assert_eq!(ran.body["status"], "SUCCESS", "{}", ran.body);
    for Blocked { stream, typing } in blocked {
        assert!(!typing.is_finished(), "a terminal was closed");
        stream.shutdown(Shutdown::Both).expect("it is open");
        typing.join().expect("it ends");
    }
}

/// Log of a session that is followed, behind the head of the response.
fn followed_log(machine: &Abide, id: &str) -> BufReader<UnixStream> {
    let mut stream = connected(machine);
    let request = format!("GET /v1/sessions/{id}/log?follow=true HTTP/1.1\r\nhost: abide\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut stream = BufReader::new(stream);
    assert!(harness::line_with(&mut stream, "HTTP/1.1").contains("200"));
    harness::line_with(&mut stream, "\r\n");
    stream
}

#[test]
fn revoked_machine_loses_its_terminal_and_the_log_that_it_follows() {
    let pair = Pair::with(MAY_TYPE);
    let id = pair.cat();
    let mut page = open(&pair.desk, &id);
    page.until_event("hello");
    let mut log = followed_log(&pair.desk, &id);
    let revoked = pair.build.output(["machine", "revoke", "desk"]);
    assert!(revoked.status.success(), "{revoked:?}");
    page.until_closed();
    let mut rest = Vec::new();
    let ended = log.read_to_end(&mut rest);
    assert!(ended.is_ok(), "{ended:?}");
    let refused = call(&pair.desk, &json!({"action": "screen", "session_id": id}));
    assert!(
        text(&refused).contains("machine desk was revoked"),
        "{}",
        refused.body
    );
}
