//! The listener: its address, how it is reported, and which connections are accepted.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use crate::harness::{Abide, own_loopback};

#[test]
fn listener_is_on_loopback_and_its_files_are_private() {
    let abide = Abide::new();
    let address = abide.address();
    assert!(address.ip().is_loopback() && address.port() != 0);
    let status = abide.status();
    assert_eq!(status["http"]["address"], address.to_string());
    let shown = abide.output(["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&format!("http://{address}")), "{shown}");
    assert!(!shown.contains(&abide.token()), "{shown}");
    for file in ["abide/token", "abide/run/http.address"] {
        let mode = std::fs::metadata(abide.path(file)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let token = abide.token();
    assert_eq!(token.len(), 64);
    abide.output(["stop"]);
    assert!(!abide.path("abide/run/http.address").exists());
    abide.status();
    assert_eq!(abide.token(), token, "it is made once");
}

#[test]
fn listener_can_be_disabled() {
    let abide = Abide::with("http = \"off\"\n");
    assert_eq!(abide.status()["http"], Value::Null);
    assert!(!abide.path("abide/run/http.address").exists());
    assert!(!abide.path("abide/token").exists());
}

#[test]
fn port_in_use_does_not_stop_the_daemon() {
    let taken = TcpListener::bind((own_loopback(), 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let abide = Abide::with(&format!("http = \"{address}\"\n"));
    let status = abide.status();
    assert_eq!(status["http"]["address"], Value::Null);
    let error = status["http"]["error"].as_str().unwrap();
    assert!(error.contains(&address.to_string()), "{error}");
    drop(taken);
    abide.output(["stop"]);
    abide.status();
    assert_eq!(abide.address(), address);
}

#[test]
fn listening_beyond_loopback_needs_a_setting() {
    let abide = Abide::new();
    abide.output(["stop"]);
    let config = abide.path("abide/config.toml");
    std::fs::write(&config, "http = \"192.0.2.1:0\"\n").unwrap();
    let output = abide.output(["status"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("http_beyond_loopback"), "{said}");
    std::fs::write(config, "").unwrap();
}

#[test]
fn every_loopback_name_is_accepted() {
    let abide = Abide::new();
    let (port, token) = (abide.address().port(), abide.token());
    for name in ["127.0.0.1", "localhost", "[::1]"] {
        for origin in [
            "",
            "origin: http://127.0.0.1",
            "origin: http://localhost",
            "origin: http://[::1]",
        ] {
            let origin = match origin {
                "" => String::new(),
                origin => format!("{origin}:{port}\r\n"),
            };
            let request = format!(
                "GET /v1/status HTTP/1.1\r\nhost: {name}:{port}\r\nconnection: close\r\n\
                 authorization: bearer {token}\r\n{origin}\r\n"
            );
            let (status, answer) = abide.raw(request.as_bytes()).unwrap();
            assert_eq!(status, 200, "{request}\n{answer}");
            let head = answer.to_lowercase();
            assert!(head.contains("x-content-type-options: nosniff"), "{head}");
            assert!(head.contains("frame-ancestors 'none'"), "{head}");
        }
    }
}

#[test]
fn tool_call_acts_for_the_agent_of_the_header() {
    let abide = Abide::new();
    let call = json!({"command": "pwd"});
    let mine = abide.good("POST /v1/tools/shell", "", &call);
    assert_eq!(mine["status"], "SUCCESS", "{mine}");
    let headers = "abide-agent: other\r\nabide-root: /usr\r\n";
    let others = abide.good("POST /v1/tools/shell", headers, &call);
    assert!(
        others["text"].as_str().unwrap().contains("/usr"),
        "{others}"
    );
    let one = format!("GET /v1/sessions/{}", mine["session_id"].as_str().unwrap());
    assert_eq!(abide.good(&one, "", &Value::Null)["agent"], "default");
    assert_eq!(
        abide.ask(&one, "abide-agent: other\r\n", &Value::Null).0,
        404
    );
    let one = format!(
        "GET /v1/sessions/{}",
        others["session_id"].as_str().unwrap()
    );
    assert_eq!(
        abide.ask(&one, "", &Value::Null).0,
        404,
        "`default` is an agent too"
    );
    assert_eq!(
        abide.good(&one, "abide-person: true\r\n", &Value::Null)["agent"],
        "other"
    );
}

#[test]
fn input_accepts_bytes() {
    let abide = Abide::new();
    let run = json!({
        "command": "cat", "cwd": "/", "env": [["PATH", "/usr/bin:/bin"]], "stdin": "open", "key": "k",
    });
    let stream = abide.open("POST /v1/runs", "", &run.to_string());
    assert_eq!(stream.status, 200);
    // The response head shows that the session exists.
    let running = abide.running();
    let session = running[0]["session_id"].as_str().unwrap();
    let request = format!(
        "POST /v1/sessions/{session}/input?eof=true HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/octet-stream\r\ncontent-length: 6\r\n\r\nhello\n",
        abide.address(),
        abide.token()
    );
    let (status, answer) = abide.raw(request.as_bytes()).unwrap();
    assert_eq!(status, 200, "{answer}");
    assert!(stream.rest().contains("hello"));
}

#[test]
fn s5_slow_client_delays_no_other() {
    let abide = Abide::new();
    let (address, token) = (abide.address(), abide.token());
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let mut silent = abide.connect();
        silent
            .write_all(b"POST /v1/tools/shell HTTP/1.1\r\nhost")
            .unwrap();
        waiting.push(silent);
    }
    let mut half = abide.connect();
    let head = format!(
        "POST /v1/tools/shell HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    half.write_all(head.as_bytes()).unwrap();
    // A large response that is not read.
    let much = abide.shell("head -c 20000000 /dev/zero | tr '\\0' x");
    let log = format!(
        "GET /v1/sessions/{}/log",
        much["session_id"].as_str().unwrap()
    );
    let unread: Vec<_> = (0..10).map(|_| abide.open(&log, "", "")).collect();
    let quick = abide.shell("echo quick");
    assert_eq!(quick["status"], "SUCCESS", "{quick}");
    assert!(unread.iter().all(|answer| answer.status == 200));
}
