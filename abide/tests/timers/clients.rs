use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::harness::{Abide, look_for};
use crate::{appears, come_due, configured, delivered, due, newest, program};

/// A minimal MCP client of `abide mcp`.
pub struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Response of the server to the handshake.
    opening: Value,
    calls: u64,
}

impl Client {
    pub fn start(abide: &Abide, env: &[(&str, &str)]) -> Self {
        let mut child = abide
            .command(["mcp"])
            .envs(env.iter().copied())
            .env("PATH", path(abide))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("abide runs");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut client = Client {
            child,
            input: input.expect("its input"),
            output: BufReader::new(output.expect("its output")),
            opening: Value::Null,
            calls: 0,
        };
        let claude = env
            .iter()
            .any(|(name, _)| *name == "CLAUDE_CODE_SESSION_ID");
        let name = if claude { "claude-code" } else { "a-client" };
        let client_info = json!({"name": name, "version": "1"});
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": client_info
        });
        client.opening = client.ask(json!({"id": 0, "method": "initialize", "params": params}));
        client.send(json!({"method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        writeln!(self.input, "{message}").expect("the front listens");
    }

    fn ask(&mut self, message: Value) -> Value {
        let id = message["id"].clone();
        self.send(message);
        loop {
            let received = self.receive();
            if received["id"] == id {
                return received["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).expect("a line"), 0);
        serde_json::from_str(&line).expect("JSON")
    }

    /// Creates a mission whose condition [`come_due`] fulfils. Its message comes after the answer, which does not
    /// contain it.
    pub fn mission(&mut self, abide: &Abide, text: &str, meta: Value) -> PathBuf {
        let due = due(abide, text);
        let arguments = json!({"total_duration": 600, "mission": text, "until": {"file": due}});
        let params = json!({"name": "timer", "arguments": arguments, "_meta": meta});
        let result = self.ask(json!({"id": 1, "method": "tools/call", "params": params}));
        assert_ne!(result["isError"], true, "{result}");
        due
    }

    /// Calls a tool and returns its result.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.call_with(tool, arguments, json!({}))
    }

    /// The same with other parameters of the call.
    pub fn call_with(&mut self, tool: &str, arguments: Value, meta: Value) -> Value {
        let request = self.request(tool, arguments, meta);
        self.ask(request)
    }

    /// Calls a tool without waiting for its result.
    pub fn begin(&mut self, tool: &str, arguments: Value) {
        let request = self.request(tool, arguments, json!({}));
        self.send(request);
    }

    fn request(&mut self, tool: &str, arguments: Value, meta: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        self.calls += 1;
        json!({"id": 1_000 + self.calls, "method": "tools/call", "params": params})
    }

    pub fn leave(mut self) {
        drop(self.input);
        let mut rest = String::new();
        let _ = self.output.read_to_string(&mut rest);
        self.child.wait().expect("it ends");
    }
}

fn path(abide: &Abide) -> String {
    format!("{}:/usr/bin:/bin", abide.path("bin").display())
}

/// A program that prints its arguments and its working directory.
pub fn stand_in(abide: &Abide, name: &str) {
    fs::create_dir_all(abide.path("bin")).expect("a folder");
    let script = "#!/bin/sh\n{ for word; do echo \"<$word>\"; done; pwd; env | grep ^CLAUDE; } \
        > \"$ABIDE_DIR/draft\"\nmv \"$ABIDE_DIR/draft\" \"$ABIDE_DIR/called\"\n";
    program(&abide.path("bin").join(name), script);
}

#[test]
fn open_claude_code_session_gets_the_message_in_its_inbox() {
    let abide = configured("[[wakers]]\nclaude_code = true\nafter = 0\n");
    let inbox = abide.path("inbox.sock");
    let listener = UnixListener::bind(&inbox).expect("an inbox");
    let session = [
        ("CLAUDE_CODE_SESSION_ID", "c0ffee"),
        ("CLAUDE_CODE_MESSAGING_SOCKET", inbox.to_str().unwrap()),
    ];
    let mut client = Client::start(&abide, &session);
    come_due(&client.mission(&abide, "go on", json!({})));
    let (mut stream, _) = listener.accept().expect("a message");
    let mut line = String::new();
    stream.read_to_string(&mut line).expect("a line");
    let said: Value = serde_json::from_str(&line).expect("one line of JSON");
    assert_eq!(said["type"], "user", "{said}");
    let content = said["message"]["content"].as_str().expect("a text");
    assert!(content.contains("Mission: go on"), "{content}");
    let message = delivered(&abide, |delivery| delivery["ok"] == true);
    assert_eq!(message["seen_at"], Value::Null, "there is no receipt");
    client.leave();
}

#[test]
fn session_that_created_the_timer_is_woken() {
    let abide = configured("[[wakers]]\nclaude_code = true\nafter = 0\n");
    let sessions: Vec<(UnixListener, Client)> = ["first", "second"]
        .into_iter()
        .map(|name| {
            let inbox = abide.path(&format!("{name}.sock"));
            let listener = UnixListener::bind(&inbox).expect("an inbox");
            let session = [
                ("CLAUDE_CODE_SESSION_ID", name),
                ("CLAUDE_CODE_MESSAGING_SOCKET", inbox.to_str().unwrap()),
            ];
            (listener, Client::start(&abide, &session))
        })
        .collect();
    // The first client calls a daemon that the second has called later.
    for (n, (listener, mut client)) in sessions.into_iter().enumerate() {
        come_due(&client.mission(&abide, &format!("mission {n}"), json!({})));
        let (mut stream, _) = listener.accept().expect("a message");
        let mut line = String::new();
        stream.read_to_string(&mut line).expect("a line");
        assert!(line.contains(&format!("Mission: mission {n}")), "{line}");
        client.leave();
    }
}

#[test]
fn closed_claude_code_session_is_resumed_even_after_a_restart() {
    let abide = configured("[[wakers]]\nclaude_code = true\nafter = 0\n");
    stand_in(&abide, "claude");
    let project = abide.path("project");
    fs::create_dir(&project).expect("a project");
    let session = [
        ("CLAUDE_CODE_SESSION_ID", "c0ffee"),
        ("CLAUDE_CODE_MESSAGING_SOCKET", "/nowhere/inbox.sock"),
        ("CLAUDE_PROJECT_DIR", project.to_str().unwrap()),
        ("CLAUDECODE", "1"),
    ];
    let mut client = Client::start(&abide, &session);
    let due = client.mission(&abide, "go on", json!({}));
    client.leave();
    abide.kill_daemon();
    // The next daemon is started by a process that knows nothing of this.
    abide.start();
    come_due(&due);
    let called = appears(&abide, "called");
    let words: Vec<&str> = called.lines().collect();
    assert_eq!(words[..3], ["<-p>", "<--resume>", "<c0ffee>"], "{called}");
    assert!(words[3].starts_with("<[System] Timer"), "{called}");
    assert!(
        called.contains(&format!("{}\n", project.display())),
        "{called}"
    );
    assert!(
        !called.contains("CLAUDE"),
        "not inside another session: {called}"
    );
    delivered(&abide, |delivery| delivery["ok"] == true);
}

#[test]
fn open_session_without_an_inbox_is_not_resumed_a_second_time() {
    let abide = configured("[[wakers]]\nclaude_code = true\nafter = 0\n");
    stand_in(&abide, "claude");
    let mut client = Client::start(&abide, &[("CLAUDE_CODE_SESSION_ID", "c0ffee")]);
    come_due(&client.mission(&abide, "go on", json!({})));
    let message = delivered(&abide, |delivery| delivery["fault"].is_string());
    let fault = message["deliveries"][0]["fault"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(fault.contains("session c0ffee is open"), "{fault}");
    assert!(!abide.path("called").exists());
    client.leave();
}

#[test]
fn open_codex_thread_is_queued_and_a_closed_one_resumed() {
    let abide = configured("[[wakers]]\ncodex = true\nafter = 0\n");
    stand_in(&abide, "codex");
    let mut client = Client::start(&abide, &[]);
    let meta = json!({"threadId": "0199-a"});
    come_due(&client.mission(&abide, "first", meta.clone()));
    let called = appears(&abide, "called");
    let words: Vec<&str> = called.lines().collect();
    assert_eq!(
        words[..4],
        ["<queue>", "<--thread>", "<0199-a>", "<--message>"]
    );
    fs::remove_file(abide.path("called")).expect("it was called");
    let due = client.mission(&abide, "second", meta);
    client.leave();
    come_due(&due);
    let called = appears(&abide, "called");
    let words: Vec<&str> = called.lines().collect();
    assert_eq!(words[..2], ["<exec>", "<resume>"], "{called}");
    assert!(words.contains(&"<0199-a>"), "{called}");
}

#[test]
fn unknown_client_is_reported() {
    let abide = configured("[[wakers]]\ncodex = true\nafter = 0\n");
    abide.start();
    crate::mission(&abide, "m");
    let message = delivered(&abide, |delivery| delivery["fault"].is_string());
    let fault = message["deliveries"][0]["fault"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        fault.contains("no Codex has called abide as agent default"),
        "{fault}"
    );
}

pub fn hook(abide: &Abide, session: &str) -> Child {
    let mut child = abide
        .command(["messages", "--hook", "claude-code"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("abide runs");
    let said = json!({"session_id": session, "hook_event_name": "Stop"});
    let mut input = child.stdin.take().expect("its input");
    write!(input, "{said}").expect("it listens");
    child
}

#[test]
fn hook_waits_for_the_message_and_exits_with_it() {
    let abide = configured("");
    abide.start();
    let out = hook(&abide, "s").wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(0), "there is nothing to wait for");
    let due = due(&abide, "go on");
    let arguments = json!({"total_duration": 600, "mission": "go on", "until": {"file": due}});
    let id = crate::id_of(&crate::call(&abide, "timer", arguments));
    let mut waiting = hook(&abide, "s");
    // One at a time: the others exit at once, as soon as the first one is registered.
    let lock = abide.path("run/hook-s");
    look_for("the hook's place", || {
        assert_eq!(waiting.try_wait().expect("it was started"), None);
        let holder = fs::read_to_string(&lock).unwrap_or_default();
        (holder == waiting.id().to_string()).then_some(())
    });
    let second = hook(&abide, "s").wait_with_output().expect("it ends");
    assert_eq!(second.status.code(), Some(0), "{second:?}");
    come_due(&due);
    let out = waiting.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        said.starts_with(&format!("[System] Timer '{id}' has completed.")),
        "{said}"
    );
    let none = crate::call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "the hook has told it");
}

#[test]
fn hook_ends_when_the_last_timer_is_stopped() {
    let abide = configured("");
    abide.start();
    let id = crate::make(&abide, &json!({"total_duration": 600, "mission": "go on"}));
    let mut waiting = hook(&abide, "s");
    let lock = abide.path("run/hook-s");
    look_for("the hook's place", || {
        assert_eq!(waiting.try_wait().expect("it was started"), None);
        let holder = fs::read_to_string(&lock).unwrap_or_default();
        (holder == waiting.id().to_string()).then_some(())
    });
    crate::call(&abide, "stop_timer", json!({"timer_id": id}));
    let out = waiting.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(0), "{out:?}");
}

/// Next notification of a client.
fn told(client: &mut Client, method: &str) -> Value {
    loop {
        let received = client.receive();
        if received["method"] == method {
            return received["params"].clone();
        }
    }
}

#[test]
fn idle_front_connects_to_the_next_daemon_and_starts_none() {
    let abide = configured("");
    let mut client = Client::start(&abide, &[]);
    let due = client.mission(&abide, "go on", json!({}));
    let front = client.child.id();
    let is_connected = || {
        let files = fs::read_dir(format!("/proc/{front}/fd")).expect("its open files");
        let mut targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        targets.any(|target| target.to_string_lossy().starts_with("socket:"))
    };
    abide.kill_daemon();
    look_for("the loss", || (!is_connected()).then_some(()));
    let none = abide.request("GET", "/v1/timers", &Value::Null);
    assert!(none.is_none(), "the front started a daemon");
    abide.start();
    look_for("the connection", || is_connected().then_some(()));
    come_due(&due);
    let received = told(&mut client, "notifications/message");
    let text = received["data"]["text"].as_str().expect("a text");
    assert!(text.contains("Mission: go on"), "{received}");
}

#[test]
fn notification_does_not_mark_a_message_as_seen() {
    let abide = configured("");
    let mut client = Client::start(&abide, &[]);
    let capabilities = client.opening["capabilities"].clone();
    assert_eq!(capabilities["logging"], json!({}), "{capabilities}");
    assert_eq!(capabilities["experimental"], Value::Null, "{capabilities}");
    come_due(&client.mission(&abide, "go on", json!({})));
    let received = told(&mut client, "notifications/message");
    assert_eq!(
        (&received["level"], &received["logger"]),
        (&json!("notice"), &json!("abide"))
    );
    let text = received["data"]["text"].as_str().expect("a text");
    assert!(text.contains("Mission: go on"), "{received}");
    let timer = &received["data"]["timer"];
    assert_eq!(timer["timer_type"], "mission", "{received}");
    assert_eq!(timer["mission"], "go on", "{received}");
    assert!(timer["elapsed_time"].is_number(), "{received}");
    let listed = abide.get("/v1/messages");
    assert_eq!(
        listed["messages"][0]["message_id"],
        received["data"]["message_id"]
    );
    assert_eq!(listed["messages"][0]["seen_at"], Value::Null);
    let params = json!({"name": "read_messages", "arguments": {}});
    let read = client.ask(json!({"id": 2, "method": "tools/call", "params": params}));
    let message = &read["structuredContent"]["messages"][0];
    assert_eq!(
        message["message_id"], received["data"]["message_id"],
        "{read}"
    );
    assert_eq!(message["repeated"], false, "{read}");
    // A client that subscribes only to errors is not notified.
    let params = json!({"level": "error"});
    client.ask(json!({"id": 3, "method": "logging/setLevel", "params": params}));
    come_due(&client.mission(&abide, "unheard", json!({})));
    newest(&abide, |message| {
        let text = message["text"].as_str();
        text.is_some_and(|text| text.contains("Mission: unheard"))
    });
    let params = json!({"name": "read_messages", "arguments": {}});
    client.send(json!({"id": 4, "method": "tools/call", "params": params}));
    loop {
        let received = client.receive();
        assert_ne!(received["method"], "notifications/message", "{received}");
        if received["id"] == 4 {
            break;
        }
    }
    client.leave();
}

#[test]
fn channel_is_opened_on_request() {
    let abide = configured("");
    let mut client = Client::start(&abide, &[("ABIDE_CHANNEL", "1")]);
    let experimental = client.opening["capabilities"]["experimental"].clone();
    assert_eq!(experimental, json!({"claude/channel": {}}));
    come_due(&client.mission(&abide, "go on", json!({})));
    let received = told(&mut client, "notifications/claude/channel");
    let text = received["content"].as_str().expect("a text");
    assert!(text.contains("Mission: go on"), "{received}");
    assert!(received["meta"]["message_id"].is_string(), "{received}");
    client.leave();
}
