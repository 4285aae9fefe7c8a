//! Harness of the fault tests: a real daemon with its own directory, which the test calls over its socket and can
//! kill.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::home::{Home, PATIENCE};
pub use crate::common::postgres;

/// Time between the first looks at a state for which there is no event.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Limit on that time, which grows with the time that the state has not come: a look can be a program that is started.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// An abide of its own, whose folder is the state directory.
pub struct Abide {
    home: Home,
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

    /// The same, with a running daemon.
    pub fn started() -> Self {
        let abide = Abide::new();
        abide.start();
        abide
    }

    /// With a PostgreSQL server, or SQLite.
    pub fn on(server: Option<postgres::Server>) -> Self {
        let home = Home::of_state();
        let abide = Abide { home, server };
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

    fn connect(&self) -> UnixStream {
        self.try_connect().expect("the daemon listens")
    }

    fn try_connect(&self) -> std::io::Result<UnixStream> {
        let stream = UnixStream::connect(self.path("run/http.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends a request; `None`: there is no daemon, or the daemon died before it answered.
    pub fn request(&self, method: &str, path: &str, body: &Value) -> Option<Answer> {
        let mut stream = self.try_connect().ok()?;
        try_send(&mut stream, method, path, body).ok()?;
        receive(stream)
    }

    pub fn try_post(&self, path: &str, body: &Value) -> Option<Answer> {
        self.request("POST", path, body)
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.try_post(path, body).expect("the daemon answers")
    }

    pub fn kill_session(&self, id: &str) -> Answer {
        self.post(&format!("/v1/sessions/{id}/kill"), &json!({}))
    }

    pub fn get(&self, path: &str) -> Value {
        self.request("GET", path, &Value::Null)
            .expect("the daemon answers")
            .body
    }

    /// Calls a tool for an agent. The caller reads the answer from the returned stream.
    pub fn begin_for(&self, agent: &str, tool: &str, arguments: &Value) -> UnixStream {
        let mut stream = self.connect();
        let head = format!("POST /v1/tools/{tool} HTTP/1.1\r\nabide-agent: {agent}");
        write_request(&mut stream, &head, arguments).expect("the request is sent");
        stream
    }

    /// Calls a tool in a conversation of an agent.
    pub fn call_in(&self, who: [&str; 2], tool: &str, arguments: &Value) -> Option<Answer> {
        let [agent, conversation] = who;
        let mut stream = self.connect();
        let head = format!(
            "POST /v1/tools/{tool} HTTP/1.1\r\nabide-agent: {agent}\r\nabide-conversation: {conversation}"
        );
        write_request(&mut stream, &head, arguments).expect("the request is sent");
        receive(stream)
    }

    /// Sends a request. The caller reads the answer from the returned stream.
    pub fn begin(&self, path: &str, body: &Value) -> UnixStream {
        let mut stream = self.connect();
        send(&mut stream, "POST", path, body);
        stream
    }

    /// Subscribes to events. While the stream is open, the daemon counts it as a person who watches.
    pub fn watch(&self) -> BufReader<UnixStream> {
        let mut stream = self.connect();
        send(&mut stream, "GET", "/v1/events", &Value::Null);
        let mut stream = BufReader::new(stream);
        // The daemon counts a subscriber before it sends the response head.
        let answered = line_with(&mut stream, "HTTP/1.1");
        assert!(answered.contains("200"), "{answered}");
        stream
    }

    /// Subscribes to events, in the format of server-sent events.
    pub fn events(&self) -> BufReader<UnixStream> {
        let mut stream = self.connect();
        send(&mut stream, "GET", "/v1/events", &Value::Null);
        let mut stream = BufReader::new(stream);
        line_with(&mut stream, "event: hello");
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
        let body = json!({"until": condition, "for": PATIENCE.as_secs()});
        let answer = self.post("/v1/wait", &body).body;
        assert_eq!(answer["held"], true, "{condition}: {answer}");
    }
}

impl Deref for Abide {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
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
    write_request(stream, &format!("{method} {path} HTTP/1.1"), body)
}

fn write_request(stream: &mut UnixStream, head: &str, body: &Value) -> std::io::Result<()> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    // One write, because the daemon may answer and close the connection before it has read the body.
    let request = format!(
        "{head}\r\nhost: abide\r\nconnection: close\r\ncontent-type: application/json\r\n\
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
        let waited = begun.elapsed();
        assert!(waited < PATIENCE, "{what} never came");
        // Leaves the processor to what the test waits for.
        std::thread::park_timeout((waited / 20).clamp(MIN_PAUSE, MAX_PAUSE));
    }
}

/// Next line of a stream that contains `wanted`.
pub fn line_with(stream: &mut impl BufRead, wanted: &str) -> String {
    loop {
        let mut line = String::new();
        let read = stream.read_line(&mut line).expect("the stream goes on");
        assert_ne!(read, 0, "the stream ended before {wanted:?}");
        if line.contains(wanted) {
            return line.strip_prefix("data: ").unwrap_or(&line).to_owned();
        }
    }
}

/// Pid of the process with this command line, as soon as it exists.
pub fn wait_for_pid(command_line: &str) -> i32 {
    look_for(command_line, || pids_of(command_line).first().copied())
}

/// Processes whose command line is exactly this.
pub fn pids_of(command_line: &str) -> Vec<i32> {
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

/// Pid of the parent of a process.
pub fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its parent is known");
    let after_name = stat.rsplit(')').next();
    let parent = after_name.and_then(|rest| rest.split_whitespace().nth(1));
    parent
        .and_then(|parent| parent.parse().ok())
        .expect("a number")
}
