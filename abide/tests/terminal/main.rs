//! Tests of terminal sessions with real programs in real terminals, called like the interfaces call them.

mod actions;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
mod crash;
#[path = "../common/engine.rs"]
mod engine;
mod floods;
#[path = "../faults/harness.rs"]
#[expect(dead_code, reason = "these tests need only a part of it")]
mod harness;
mod inactivity;
mod programs;
mod reading;
mod recordings;

use std::cell::Cell;

use abide_api::ToolResult;
pub use engine::{Engine, with_engine};
use serde_json::{Map, Value, json};

impl Engine {
    pub async fn call(&self, arguments: Value) -> ToolResult {
        self.call_as(self.context(), "terminal_session", arguments)
            .await
    }

    /// Starts a session and returns its id.
    pub async fn start(&self, command: &str, more: Value) -> Session<'_> {
        let mut arguments = json!({"action": "start", "command": command});
        merge(&mut arguments, more);
        let started = self.call(arguments).await;
        assert!(!started.is_error(), "{}", started.text);
        let id = started.to_fields()["session_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        assert_eq!(
            started.text.lines().next(),
            Some(&*format!("Session '{id}' started"))
        );
        Session::new(self, id)
    }
}

/// A session under test.
pub struct Session<'a> {
    engine: &'a Engine,
    pub id: String,
    /// Nothing was read since the start.
    unread: Cell<bool>,
}

impl<'a> Session<'a> {
    pub fn new(engine: &'a Engine, id: String) -> Self {
        let unread = Cell::new(true);
        Session { engine, id, unread }
    }

    /// Acts on the session. The first read begins at the first line, which the start may have returned already.
    pub async fn act(&self, action: &str, more: Value) -> ToolResult {
        let mut arguments = json!({"action": action, "session_id": self.id});
        if self.unread.replace(false) && action == "read_output" {
            arguments["since"] = json!("0");
        }
        merge(&mut arguments, more);
        let result = self.engine.call(arguments).await;
        is_as_long_as_what_was_read(&result);
        result
    }

    /// Reads until a line matches the pattern; panics with the output if none does.
    pub async fn until(&self, pattern: &str) -> String {
        let wait = json!({"until": pattern, "timeout_seconds": 180, "max_lines": 1000});
        let read = self.act("read_output", wait).await;
        assert_eq!(
            read.to_fields()["matched"],
            json!(true),
            "{pattern}: {}",
            read.text
        );
        read.text
    }

    pub async fn send(&self, input: &str) -> ToolResult {
        self.act("send_input", json!({"input": input})).await
    }

    pub async fn keys(&self, keys: &[&str]) -> ToolResult {
        self.act("send_input", json!({"keys": keys})).await
    }

    /// Sends input and reads until the output contains `wanted`, however slow the program is.
    pub async fn answer(&self, input: &str, wanted: &str) -> String {
        let answer = self.send(input).await;
        match answer.text.contains(wanted) {
            true => answer.text,
            false => self.until(wanted).await,
        }
    }

    /// Screen, once it contains the text.
    pub async fn shows(&self, wanted: &str) -> ToolResult {
        self.looks(wanted, |seen| seen.text.contains(wanted)).await
    }

    /// Screen, once this field of the result is true.
    pub async fn has(&self, name: &str) -> ToolResult {
        self.looks(name, |seen| fact(seen, name) == json!(true))
            .await
    }

    async fn looks(&self, wanted: &str, is_so: impl Fn(&ToolResult) -> bool) -> ToolResult {
        let mut seen = self.act("screen", json!({})).await;
        for _ in 0..1_800 {
            if is_so(&seen) {
                return seen;
            }
            // The next output of the program ends this wait.
            self.act("read_output", json!({"timeout_seconds": 0.1}))
                .await;
            seen = self.act("screen", json!({})).await;
        }
        panic!("{wanted:?} is not to be seen:\n{}", seen.text);
    }

    /// Reads until the program has ended, whatever it writes until then.
    pub async fn end(&self) -> ToolResult {
        let wait = json!({"timeout_seconds": 180, "until": "no line matches this"});
        self.act("read_output", wait).await
    }

    pub async fn kill(&self) -> ToolResult {
        self.act("kill", json!({})).await
    }
}

/// Asserts that the reported length of the log is not below the cursor of the reader.
fn is_as_long_as_what_was_read(result: &ToolResult) {
    if let Some(cursor) = result.to_fields().get("cursor").and_then(Value::as_str) {
        let digits = cursor.bytes().take_while(u8::is_ascii_digit).count();
        let read: u64 = cursor[..digits].parse().expect("a cursor");
        let total = result.to_fields()["bytes_total"].as_u64();
        assert!(
            total >= Some(read),
            "{}: {:?}",
            result.text,
            result.to_fields()
        );
    }
}

pub fn merge(into: &mut Value, more: Value) {
    let (Value::Object(into), Value::Object(more)) = (into, more) else {
        panic!("both are objects")
    };
    into.extend(more);
}

/// Lines of a result without the lines in brackets at its end.
pub fn lines(result: &ToolResult) -> Vec<&str> {
    let lines = result.text.lines();
    lines
        .take_while(|line| !line.starts_with("[cursor: "))
        .collect()
}

pub fn fact(result: &ToolResult, name: &str) -> Value {
    let facts: &Map<String, Value> = &result.to_fields();
    facts.get(name).cloned().unwrap_or_default()
}
