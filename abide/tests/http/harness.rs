//! Harness of the HTTP tests: a separate abide for every test, and plain requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Deref;

use serde_json::{Value, json};

pub use crate::common::fifo::feed;
use crate::common::home::{Home, PATIENCE};

/// Header by which a client declares that a person uses it.
const PERSON: &str = "abide-person: true\r\n";

/// Loopback address that no other process on this machine uses, so that a port that was free stays free.
pub fn own_loopback() -> Ipv4Addr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, a | 0x40, b, c)
}

/// An abide of its own with a daemon that runs.
pub struct Abide(Home);

impl Deref for Abide {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.0
    }
}

impl Abide {
    pub fn new() -> Self {
        Self::with("")
    }

    /// Starts an abide with this configuration.
    pub fn with(config: &str) -> Self {
        let home = Home::with_config(config);
        home.start();
        Abide(home)
    }

    pub fn status(&self) -> Value {
        self.json(["status", "--json"])
    }

    pub fn token(&self) -> String {
        std::fs::read_to_string(self.path("abide/token")).expect("a token")
    }

    pub fn address(&self) -> SocketAddr {
        let address = std::fs::read_to_string(self.path("abide/run/http.address"));
        address.expect("an address").parse().expect("an address")
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("the daemon listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a limit on waiting");
        stream
    }

    /// Sends these bytes. Returns the status and the whole response; `None`: the daemon closed the connection without
    /// one.
    pub fn raw(&self, bytes: &[u8]) -> Option<(u16, String)> {
        let mut stream = self.connect();
        // A daemon that refuses the request early does not read the rest.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1)?.parse().expect("a status");
        Some((status, answer))
    }

    /// Sends a request with the token and waits for the head of the response.
    pub fn open(&self, line: &str, headers: &str, body: &str) -> Answer {
        Answer::begin(self.send(line, headers, body))
    }

    /// Sends a request with the token and with `headers`, each of which ends with CRLF.
    pub fn send(&self, line: &str, headers: &str, body: &str) -> TcpStream {
        let headers = format!("authorization: Bearer {}\r\n{headers}", self.token());
        self.send_bare(line, &headers, body)
    }

    /// Sends a request with these headers and without the token.
    pub fn send_bare(&self, line: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let (address, length) = (self.address(), body.len());
        let kind = match body {
            "" => "",
            _ => "content-type: application/json\r\n",
        };
        // In HTTP/1.0 a response ends with its connection, so there is no chunked encoding to parse.
        let request = format!(
            "{line} HTTP/1.0\r\nhost: {address}\r\n{kind}{headers}\
             content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it is taken");
        stream
    }

    pub fn ask(&self, line: &str, headers: &str, body: &Value) -> (u16, Value) {
        self.open(line, headers, &text_of(body)).whole()
    }

    /// Sends a request with these headers and without the token. Returns the status and the body.
    pub fn ask_bare(&self, line: &str, headers: &str, body: &Value) -> (u16, Value) {
        Answer::begin(self.send_bare(line, headers, &text_of(body))).whole()
    }

    /// Login code from the link of `abide open`, valid for one browser.
    pub fn code(&self) -> String {
        let offer = self.json(["open", "--print", "--json"]);
        let link = offer["url"].as_str().expect("a link");
        let (page, code) = link.split_once("#login=").expect("a code in it");
        assert_eq!(page, format!("http://{}/", self.address()));
        assert_eq!(offer["expires_in"], 60);
        code.to_owned()
    }

    /// Logs in like the page does. Returns the headers that a browser sends from then on.
    pub fn log_in(&self) -> String {
        let code = json!({"code": self.code()}).to_string();
        let origin = format!("origin: http://{}\r\n", self.address());
        let answer = Answer::begin(self.send_bare("POST /v1/login", &origin, &code));
        assert_eq!(answer.status, 204, "{:?}", answer.head);
        let cookie = answer.header("set-cookie").expect("a cookie");
        let (pair, rest) = cookie.split_once("; ").expect("its limits");
        assert_eq!(rest, "httponly; samesite=strict; path=/; max-age=2592000");
        format!("cookie: {pair}\r\n{origin}")
    }

    #[track_caller]
    pub fn good(&self, line: &str, headers: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(line, headers, body);
        assert_eq!(status, 200, "{line}: {answer}");
        answer
    }

    pub fn shell(&self, command: &str) -> Value {
        self.good("POST /v1/tools/shell", "", &json!({"command": command}))
    }

    /// Waits until a session has ended. Returns its view.
    pub fn ended(&self, session: &str) -> Value {
        let log = format!("GET /v1/sessions/{session}/log?follow=true");
        self.open(&log, PERSON, "").rest();
        let line = format!("GET /v1/sessions/{session}");
        let ended = self.good(&line, PERSON, &Value::Null);
        assert!(ended["end"].is_string(), "{ended}");
        ended
    }

    /// Waits until a session has written this many bytes.
    pub fn written(&self, session: &str, bytes: u64) {
        let log = format!("GET /v1/sessions/{session}/log?follow=true&to={bytes}");
        let length = self.open(&log, PERSON, "").rest().len() as u64;
        assert_eq!(length, bytes, "it ended before");
    }

    /// Waits until the session has written this many bytes, then sets its idle limit to one second. The bytes come
    /// first, so that later output cannot withdraw the question.
    pub fn set_idle_limit_after(&self, session: &str, bytes: u64) {
        self.written(session, bytes);
        let line = format!("POST /v1/sessions/{session}/extend");
        self.good(&line, PERSON, &json!({"idle": 1}));
    }

    /// Sessions that run.
    pub fn running(&self) -> Vec<Value> {
        let list = self.good("GET /v1/sessions", "", &Value::Null);
        list["sessions"].as_array().cloned().unwrap_or_default()
    }
}

/// Response whose head has been read.
pub struct Answer {
    pub status: u16,
    pub head: Vec<String>,
    body: BufReader<TcpStream>,
}

impl Answer {
    /// Reads the head.
    pub fn begin(stream: TcpStream) -> Self {
        let mut body = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            body.read_line(&mut line).expect("a head");
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_lowercase()),
            }
        }
        let status = head[0].split(' ').nth(1).expect("a status");
        Answer {
            status: status.parse().expect("a status"),
            head,
            body,
        }
    }

    /// Status and body; the body is parsed as JSON if possible.
    pub fn whole(self) -> (u16, Value) {
        let status = self.status;
        let text = self.rest();
        let json = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (status, json)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let named = format!("{name}: ");
        self.head.iter().find_map(|line| line.strip_prefix(&named))
    }

    /// Next line; empty at the end of the stream.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.body.read_until(b'\n', &mut line).expect("a line");
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Next message of an SSE stream.
    #[track_caller]
    pub fn event(&mut self) -> Value {
        loop {
            let line = self.line();
            assert_ne!(line, "", "the stream ended");
            let data = line.strip_prefix("data:").map(str::trim);
            if let Some(data) = data.filter(|data| !data.is_empty()) {
                return serde_json::from_str(data).expect("a message");
            }
        }
    }

    /// Next event of an SSE stream of abide: id, name and data.
    #[track_caller]
    pub fn next_event(&mut self) -> (String, String, Value) {
        let (mut id, mut name) = (String::new(), String::new());
        loop {
            let line = self.line();
            assert_ne!(line, "", "the stream ended");
            let line = line.trim_end();
            if let Some(given) = line.strip_prefix("id: ") {
                id = given.to_owned();
            } else if let Some(given) = line.strip_prefix("event: ") {
                name = given.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (id, name, serde_json::from_str(data).expect("JSON"));
            }
        }
    }

    /// Next event with this name for which `wanted` is true.
    #[track_caller]
    pub fn until(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> (String, Value) {
        loop {
            let (id, told, facts) = self.next_event();
            if told == name && wanted(&facts) {
                return (id, facts);
            }
        }
    }

    /// Rest of the body. Fails if the stream does not end.
    #[track_caller]
    pub fn rest(mut self) -> String {
        let mut rest = Vec::new();
        let read = self.body.read_to_end(&mut rest);
        let never = |fault: std::io::Error| fault.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!read.is_err_and(never), "it never ended");
        String::from_utf8_lossy(&rest).into_owned()
    }
}

fn text_of(body: &Value) -> String {
    match body {
        Value::Null => String::new(),
        body => body.to_string(),
    }
}
