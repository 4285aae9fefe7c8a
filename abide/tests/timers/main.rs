//! Tests of timers, conditions and messages with a real daemon, which the tests can kill, and a real database. The
//! prefix of a test name is the number of the fault.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
#[path = "../faults/harness.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod harness;

mod clients;
mod clocks;
mod conditions;
mod conversations;
mod crashes;
mod faults;
mod impossible;
mod messages;
mod power;
mod recorded;
mod sink;
mod tools;
mod tries;
mod wakers;
mod webhooks;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::{Abide, Answer, look_for};
use serde_json::{Value, json};

/// Calls a tool, which must succeed.
fn call(abide: &Abide, tool: &str, arguments: Value) -> Value {
    let answer = abide.post(&format!("/v1/tools/{tool}"), &arguments);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// Calls a tool, which must refuse. Returns the sentence of the refusal.
fn refused(abide: &Abide, tool: &str, arguments: Value) -> String {
    let answer = abide.post(&format!("/v1/tools/{tool}"), &arguments);
    let Answer { status, body } = answer;
    let said = if status == 200 {
        assert_eq!(body["is_error"], true, "{body}");
        &body["text"]
    } else {
        assert_eq!(status, 400, "{body}");
        &body["detail"]
    };
    said.as_str().expect("a sentence").to_owned()
}

/// An abide with this configuration, not started yet.
fn configured(config: &str) -> Abide {
    let abide = Abide::new();
    abide.configure(config);
    abide
}

/// Waits with `/v1/wait` until a file has a complete line. Returns its content.
fn appears(abide: &Abide, name: &str) -> String {
    let path = abide.path(name);
    abide.waits_until(&json!({"file": path, "matches": "(?s)..*\\n"}));
    std::fs::read_to_string(path).expect("a file")
}

/// Newest message, as soon as `is_so` is true for its first delivery.
fn delivered(abide: &Abide, is_so: impl Fn(&Value) -> bool) -> Value {
    newest(abide, |message| is_so(&message["deliveries"][0]))
}

/// Newest message, as soon as `is_so` is true for it.
fn newest(abide: &Abide, is_so: impl Fn(&Value) -> bool) -> Value {
    look_for("a message that is as wanted", || {
        let message = abide.get("/v1/messages")["messages"][0].clone();
        is_so(&message).then_some(message)
    })
}

/// Waits until the newest message is recorded as seen, which happens after its delivery.
fn is_noted_as_seen(abide: &Abide) {
    newest(abide, |message| message["seen_at"].is_u64());
}

/// Returns whether the stream has bytes to read or was closed.
fn has_answered(stream: &UnixStream) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    let at_once = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).expect("poll works") > 0
}

/// Creates a timer over the HTTP interface. The answer of a tool would also deliver pending messages, even one about
/// this timer, which another reader should get.
fn make(abide: &Abide, arguments: &Value) -> String {
    let answer = abide.post("/v1/timers", arguments);
    assert_eq!(answer.status, 200, "{}", answer.body);
    id_of(&answer.body)
}

/// Creates a mission that is due almost at once.
fn mission(abide: &Abide, text: &str) -> String {
    make(abide, &json!({"total_duration": 0.05, "mission": text}))
}

/// Path of a file that the test creates with [`come_due`], to be used as the condition of a timer.
fn due(abide: &Abide, name: &str) -> PathBuf {
    abide.path(&format!("{name}.due"))
}

/// Creates the file that a timer waits for.
fn come_due(due: &Path) {
    std::fs::write(due, "").expect("a file");
}

/// Writes an executable file in another process: a file that is open for writing cannot be executed, and a child that
/// another test is starting could inherit the open descriptor from this process.
fn program(path: &Path, script: &str) {
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    let mut writer = Command::new("sh");
    let line = "cat > \"$1\" && chmod 755 \"$1\"";
    writer.args(["-c", line, "_"]).arg(path);
    let mut writer = writer.stdin(Stdio::piped()).spawn().expect("sh runs");
    let mut input = writer.stdin.take().expect("its input");
    std::io::Write::write_all(&mut input, script.as_bytes()).expect("it reads");
    drop(input);
    assert!(writer.wait().expect("it ends").success());
}

fn id_of(result: &Value) -> String {
    result["timer_id"].as_str().expect("a timer").to_owned()
}
