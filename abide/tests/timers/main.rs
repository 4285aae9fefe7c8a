//! Timers, conditions and messages through a real daemon with a real database, killed at will. Rows
//! carry the numbers under which the faults are known.

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
mod shim;
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

/// Calls a tool that must be taken up.
fn call(abide: &Abide, tool: &str, arguments: Value) -> Value {
    let answer = abide
        .post(&format!("/v1/tools/{tool}"), &arguments)
        .expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// Calls a tool that must be refused; the sentence.
fn refused(abide: &Abide, tool: &str, arguments: Value) -> String {
    let answer = abide
        .post(&format!("/v1/tools/{tool}"), &arguments)
        .expect("an answer");
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
    std::fs::write(abide.path("config.toml"), config).expect("a configuration");
    abide
}

/// Waits until a file has something in it; the daemon itself does the waiting.
fn appears(abide: &Abide, name: &str) -> String {
    let path = abide.path(name);
    abide.waits_until(&json!({"file": path, "matches": "(?s)..*\\n"}));
    std::fs::read_to_string(path).expect("a file")
}

/// The newest message, as soon as its first delivery is so.
fn delivered(abide: &Abide, is_so: impl Fn(&Value) -> bool) -> Value {
    newest(abide, |message| is_so(&message["deliveries"][0]))
}

/// The newest message, as soon as it is so.
fn newest(abide: &Abide, is_so: impl Fn(&Value) -> bool) -> Value {
    look_for("a message that is as wanted", || {
        let message = abide.get("/v1/messages")["messages"][0].clone();
        is_so(&message).then_some(message)
    })
}

/// Waits until it is written down that the newest message was seen, which is so after it was told.
fn is_noted_as_seen(abide: &Abide) {
    newest(abide, |message| message["seen_at"].is_u64());
}

/// Whether an answer has come that nobody has read yet, or never will.
fn has_answered(stream: &UnixStream) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    let at_once = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).expect("poll works") > 0
}

/// Makes a timer whose maker is told of nothing besides: the answer of a tool may bring the message along
/// that somebody else is to have, be it of this very timer.
fn make(abide: &Abide, arguments: &Value) -> String {
    let answer = abide.post("/v1/timers", arguments).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.body);
    id_of(&answer.body)
}

/// Makes a mission that is due at once.
fn mission(abide: &Abide, text: &str) -> String {
    make(abide, &json!({"total_duration": 0.05, "mission": text}))
}

/// What a timer may wait for that comes due when the test says so: a file, for [`come_due`].
fn due(abide: &Abide, name: &str) -> PathBuf {
    abide.path(&format!("{name}.due"))
}

/// Has that come which a timer waits for.
fn come_due(due: &Path) {
    std::fs::write(due, "").expect("a file");
}

/// Writes a program. Another process does so: what is open for writing cannot be run, and a child that
/// some other test is just starting would hold open what this one has.
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
