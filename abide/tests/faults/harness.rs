//! Harness of the fault tests: a real daemon with its own directory, which the test calls over its socket and can
//! kill.

#[path = "../common/postgres.rs"]
pub mod postgres;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::cleanup::Cleanup;

/// Time limit: longer than any step takes, so that a hang becomes a failure.
const PATIENCE: Duration = Duration::from_secs(180);

pub struct Abide {
    _cleanup: Cleanup,
    pub dir: TempDir,
    /// Server of the database, if the tests run on PostgreSQL.
    pub server: Option<postgres::Server>,
}

/// An HTTP answer.
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Abide {
    pub fn new() -> Self {
        Abide::on(postgres::Server::if_chosen())
    }

    /// With a PostgreSQL server, or SQLite.
    pub fn on(server: Option<postgres::Server>) -> Self {
        let dir = private_folder();
        let abide = Abide {
            _cleanup: Cleanup::of(dir.path()),
            dir,
            server,
        };
        if abide.server.is_some() {
            abide.configure("");
        }
        abide
    }

    /// Writes the configuration. The store stays as it is.
    pub fn configure(&self, config: &str) {
        let store = self
            .server
            .as_ref()
            .map(|server| format!("store = {:?}\n", server.url()));
        let text = format!("{}{config}", store.unwrap_or_default());
        std::fs::write(self.path("config.toml"), text).expect("a configuration");
    }

    /// The real binary, with this directory as `ABIDE_DIR`.
    pub fn command<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
        command
            .args(args)
            .env("ABIDE_DIR", self.dir.path())
            .env_remove("ABIDE_CRASH_AT");
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("abide runs")
    }

    /// Starts a daemon that kills itself at `point`.
    pub fn start_to_crash_at(&self, point: &str) {
        let out = self
            .command(["status"])
            .env("ABIDE_CRASH_AT", point)
            .output()
            .expect("abide runs");
        assert!(out.status.success(), "{out:?}");
    }

    pub fn start(&self) {
        let out = self.run(&["status"]);
        assert!(out.status.success(), "{out:?}");
    }

    pub fn pid(&self) -> i32 {
        let out = self.run(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&out.stdout).expect("status is JSON");
        i32::try_from(status["daemon"]["pid"].as_i64().expect("a pid")).expect("a pid")
    }

    /// Kills the daemon and waits until the process has ended.
    pub fn kill_daemon(&self) {
        let handle = Handle::on(self.pid());
        handle.kill();
        handle.wait_gone();
    }

    fn connect(&self) -> UnixStream {
        self.try_connect().expect("the daemon listens")
    }

    fn try_connect(&self) -> std::io::Result<UnixStream> {
        let stream = UnixStream::connect(self.dir.path().join("run/http.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends a request; `None`: there is no daemon, or the daemon died before it answered.
    pub fn request(&self, method: &str, path: &str, body: &Value) -> Option<Answer> {
        let mut stream = self.try_connect().ok()?;
        try_send(&mut stream, method, path, body).ok()?;
        receive(stream)
    }

    pub fn post(&self, path: &str, body: &Value) -> Option<Answer> {
        self.request("POST", path, body)
    }

    pub fn get(&self, path: &str) -> Value {
        self.request("GET", path, &Value::Null)
            .expect("the daemon answers")
            .body
    }

    /// Sends a request. The caller reads the answer from the returned stream.
    pub fn begin(&self, path: &str, body: &Value) -> UnixStream {
        let mut stream = self.connect();
        send(&mut stream, "POST", path, body);
        stream
    }

    /// Subscribes to questions, one JSON object per line. While the stream is open, the daemon counts it as a person
    /// who watches.
    pub fn watch(&self) -> BufReader<UnixStream> {
        let mut stream = self.connect();
        send(
            &mut stream,
            "GET",
            "/v1/questions?follow=true",
            &Value::Null,
        );
        let mut stream = BufReader::new(stream);
        // The daemon counts a subscriber before it sends the response head.
        let answered = line_with(&mut stream, "HTTP/1.1");
        assert!(answered.contains("200"), "{answered}");
        stream
    }

    /// Id of a running session, as soon as there is one.
    pub fn running(&self) -> String {
        look_for("a session that runs", || {
            let listed = self.get("/v1/sessions");
            let mut sessions = listed["sessions"].as_array()?.iter();
            let running = sessions.find(|session| session["status"] == "running")?;
            running["session_id"].as_str().map(str::to_owned)
        })
    }

    /// Waits with `/v1/wait` until the condition holds.
    pub fn waits_until(&self, condition: &Value) {
        let body = serde_json::json!({"until": condition, "for": PATIENCE.as_secs()});
        let answer = self.post("/v1/wait", &body).expect("an answer").body;
        assert_eq!(answer["held"], true, "{condition}: {answer}");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Temporary directory with mode 0700, regardless of the umask.
pub fn private_folder() -> TempDir {
    let mut folder = tempfile::Builder::new();
    folder.permissions(PermissionsExt::from_mode(0o700));
    folder.tempdir().expect("a folder for the test")
}

/// Creates a named pipe.
pub fn fifo(path: &std::path::Path) {
    let (mode, kind) = (
        rustix::fs::Mode::from_raw_mode(0o600),
        rustix::fs::FileType::Fifo,
    );
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("a fifo");
}

/// Result of a tool for a block of text; `command` is `abide call`.
pub fn said_to(mut command: Command, block: &str) -> Value {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("abide runs");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(block.as_bytes()).expect("it reads");
    drop(stdin);
    let out = child.wait_with_output().expect("it ends");
    let told: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    told["result"].clone()
}

/// Kills every session, then stops the daemon.
pub fn end_all(command: impl Fn(&[&str]) -> Command) {
    let listed = command(&["session", "list", "--json"]).output();
    let listed = listed
        .ok()
        .and_then(|out| serde_json::from_slice(&out.stdout).ok());
    let listed: Value = listed.unwrap_or_default();
    for session in listed["sessions"].as_array().into_iter().flatten() {
        let id = session["session_id"].as_str().unwrap_or_default();
        let _ = command(&["session", "kill", id]).output();
    }
    let _ = command(&["stop"]).output();
}

fn send(stream: &mut UnixStream, method: &str, path: &str, body: &Value) {
    try_send(stream, method, path, body).expect("the request is sent");
}

fn try_send(
    stream: &mut UnixStream,
    method: &str,
    path: &str,
    body: &Value,
) -> std::io::Result<()> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    // One write, because the daemon may answer and close the connection before it has read the body.
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: abide\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())
}

pub fn receive(mut stream: UnixStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        body: serde_json::from_str(body).unwrap_or(Value::Null),
    })
}

/// Polls a state for which there is no event. After [`PATIENCE`] the test fails instead of hanging.
pub fn look_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    #[expect(
        clippy::disallowed_methods,
        reason = "a look in vain comes to an end, however long that takes"
    )]
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} never came");
        std::thread::yield_now();
    }
}

/// Next line of a stream that contains `wanted`.
pub fn line_with(stream: &mut impl BufRead, wanted: &str) -> String {
    loop {
        let mut line = String::new();
        let read = stream.read_line(&mut line).expect("the stream goes on");
        assert_ne!(read, 0, "the stream ended before {wanted:?}");
        if line.contains(wanted) {
            return line;
        }
    }
}

/// pidfd of a process, which never refers to another process, unlike a pid.
pub struct Handle(std::os::fd::OwnedFd);

impl Handle {
    pub fn on(pid: i32) -> Self {
        Handle::if_alive(pid).expect("the process lives")
    }

    /// Opens a process; `None`: it has already ended.
    pub fn if_alive(pid: i32) -> Option<Self> {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process number");
        let flags = rustix::process::PidfdFlags::empty();
        rustix::process::pidfd_open(pid, flags).ok().map(Handle)
    }

    pub fn kill(&self) {
        self.send("KILL");
    }

    pub fn send(&self, signal: &str) {
        use rustix::process::Signal;
        let signal = match signal {
            "HUP" => Signal::HUP,
            "INT" => Signal::INT,
            "TERM" => Signal::TERM,
            "KILL" => Signal::KILL,
            "USR2" => Signal::USR2,
            other => panic!("no signal {other}"),
        };
        rustix::process::pidfd_send_signal(&self.0, signal).expect("it can be sent");
    }

    /// Waits until the process has ended.
    pub fn wait_gone(&self) {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let patience = rustix::time::Timespec {
            tv_sec: PATIENCE.as_secs() as i64,
            tv_nsec: 0,
        };
        assert_eq!(
            poll(&mut fds, Some(&patience)).expect("poll works"),
            1,
            "it did not end"
        );
    }
}

/// Pid of the process with this command line, as soon as it exists.
pub fn comes_to_life(command_line: &str) -> i32 {
    look_for(command_line, || living(command_line).first().copied())
}

/// Processes whose command line is exactly this.
pub fn living(command_line: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let line: Vec<_> = line
            .split(|b| *b == 0)
            .map(String::from_utf8_lossy)
            .collect();
        if line.join(" ").trim_end() == command_line {
            found.push(pid);
        }
    }
    found
}
