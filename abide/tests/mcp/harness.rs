//! Harness of the MCP tests: a minimal client.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

pub use crate::common::home::Home;
use crate::common::home::PATIENCE;
pub use crate::common::process::Process;

/// Reading end of a named pipe to which a command writes.
pub struct Fifo(PathBuf);

impl Fifo {
    /// Creates a named pipe through which a command signals the test.
    pub fn new(home: &Home, name: &str) -> Self {
        Fifo(home.fifo(name))
    }

    /// Waits until a command has written to the pipe and closed it.
    pub fn read(&self) -> String {
        let said = std::fs::read_to_string(&self.0).expect("the fifo can be read");
        said.trim().to_string()
    }

    /// The process whose number a command has written.
    pub fn read_process(&self) -> Process {
        Process::on(self.read().parse().expect("a process number"))
    }

    pub fn path(&self) -> std::path::Display<'_> {
        self.0.display()
    }
}

/// Generation of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

pub const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// Capabilities and environment of a client.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub era: Era,
    /// Name in the client information.
    pub name: &'a str,
    pub asks: bool,
    pub env: &'a [(&'a str, &'a str)],
}

pub const LEGACY: Setup = Setup {
    era: Era::Legacy,
    name: "tests",
    asks: true,
    env: &[],
};
pub const MODERN: Setup = Setup {
    era: Era::Modern,
    ..LEGACY
};

pub fn setup(era: Era) -> Setup<'static> {
    Setup { era, ..LEGACY }
}

/// Setup with these variables in the environment.
pub fn setup_in<'a>(era: Era, env: &'a [(&'a str, &'a str)]) -> Setup<'a> {
    Setup { era, env, ..LEGACY }
}

/// Client of `abide mcp` over its pipes.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    unread: VecDeque<Value>,
    name: String,
    meta: Value,
    last_id: u64,
}

impl Client {
    pub fn start(home: &Home, setup: Setup<'_>) -> Self {
        let mut client = Client::silent(home, setup);
        if setup.era == Era::Legacy {
            client.initialize("2025-11-25", setup.asks);
        }
        client
    }

    /// Client that has not sent anything yet.
    pub fn silent(home: &Home, setup: Setup<'_>) -> Self {
        let mut child = home
            .command(["mcp"])
            .envs(setup.env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("abide mcp starts");
        let pipe = child.stdout.take().expect("a pipe");
        let (lines, output) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        let meta = match setup.era {
            Era::Legacy => json!({}),
            Era::Modern => json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": setup.name, "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": capabilities(setup.asks),
            }),
        };
        Client {
            input: child.stdin.take(),
            child,
            output,
            unread: VecDeque::new(),
            name: setup.name.into(),
            meta,
            last_id: 0,
        }
    }

    pub fn initialize(&mut self, version: &str, asks: bool) -> Value {
        let id = self.request(
            "initialize",
            json!({
                "protocolVersion": version,
                "capabilities": capabilities(asks),
                "clientInfo": {"name": self.name, "version": "1"},
            }),
        );
        let answer = self.answer(id);
        self.notify("notifications/initialized", json!({}));
        answer["result"].clone()
    }

    pub fn write(&mut self, line: &str) {
        self.write_part(line);
        self.write_part("\n");
    }

    /// Writes text that need not be a whole line.
    pub fn write_part(&mut self, part: &str) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(part.as_bytes()).expect("abide mcp reads");
    }

    pub fn send(&mut self, message: &Value) {
        self.write(&message.to_string());
    }

    pub fn request(&mut self, method: &str, mut params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let mut meta = self.meta.clone();
        if let Some(given) = params.get("_meta").and_then(Value::as_object) {
            for (name, value) in given {
                meta[name] = value.clone();
            }
        }
        if meta != json!({}) {
            params["_meta"] = meta;
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool and returns its result.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.begin(tool, arguments);
        self.result(id)
    }

    pub fn result(&mut self, id: u64) -> Value {
        let answer = self.answer(id);
        assert!(answer.get("result").is_some(), "no result: {answer}");
        answer["result"].clone()
    }

    /// Response to a request; messages that arrive before it are kept.
    pub fn answer(&mut self, id: u64) -> Value {
        self.receive(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Next elicitation request of the server.
    pub fn asked(&mut self) -> Value {
        self.receive(|message| message["method"] == "elicitation/create")
    }

    pub fn notified(&mut self, method: &str) -> Value {
        self.receive(|message| message["method"] == method)["params"].clone()
    }

    pub fn reply(&mut self, question: &Value, action: &str) {
        let result = json!({"action": action, "content": {}});
        self.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
    }

    /// First message for which `wanted` is true, already read or still to arrive.
    pub fn receive(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unread.iter().position(&wanted) {
            return self.unread.remove(at).expect("it is there");
        }
        loop {
            let line = self
                .output
                .recv_timeout(PATIENCE)
                .expect("abide mcp says something");
            let message: Value = serde_json::from_str(&line).expect("abide mcp speaks JSON");
            if wanted(&message) {
                return message;
            }
            self.unread.push_back(message);
        }
    }

    /// Returns whether such a message was read and not taken yet.
    pub fn has_received(&self, wanted: impl Fn(&Value) -> bool) -> bool {
        self.unread.iter().any(wanted)
    }

    /// Makes the next request reuse the id of the last one.
    pub fn forget_id(&mut self) {
        self.last_id -= 1;
    }

    /// Pid of the front (`abide mcp`).
    pub fn front(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for the end of the front. Returns whether it succeeded, and all remaining messages.
    pub fn ended(&mut self) -> (bool, Vec<Value>) {
        let status = self.child.wait().expect("it ends");
        let rest = self
            .output
            .iter()
            .filter_map(|line| serde_json::from_str(&line).ok());
        (status.success(), rest.collect())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

fn capabilities(asks: bool) -> Value {
    if asks {
        json!({"elicitation": {"form": {}}})
    } else {
        json!({})
    }
}

/// Text of a result. Asserts that the structured content has the same text.
pub fn text(result: &Value) -> &str {
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert_eq!(
        result["structuredContent"]["text"], text,
        "the fields have the text too"
    );
    text
}

pub fn is_error(result: &Value) -> bool {
    result["isError"] == true
}
