//! HTTP on loopback: what a tool call costs beside a handler of the same library that does nothing,
//! and how soon an event has reached a hundred open pages. `cargo bench -p abide --bench http`.
//! Prints numbers and judges none; compare ratios within one run.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Json;
use axum::routing::post;
use serde_json::{Value, json};

/// Calls of each kind; they take turns.
const CALLS: usize = 4_000;
/// What a page asks with.
const UPGRADE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
/// Pages that are open at once, and events that each is sent.
const PAGES: usize = 100;
const EVENTS: usize = 50;
/// Says that this process is to be the bare server.
const BARE: &str = "bare-server";

fn main() {
    if std::env::args().any(|word| word == BARE) {
        return serve_bare();
    }
    let dir = tempfile::tempdir().expect("a folder");
    let abide = Abide::start(dir.path());
    let bare = Bare::start();
    calls(&abide, &bare);
    events(&abide, "open streams", "");
    events(&abide, "pages, WebSockets", UPGRADE);
}

#[expect(clippy::disallowed_methods, reason = "a bench measures")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the programs that are measured")]
fn program(path: &Path) -> Command {
    Command::new(path)
}

/// The least that the same library can do: a handler that answers an object of the same size.
fn serve_bare() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let answer = |Json(_): Json<Value>| async { Json(answer()) };
        let routes = axum::Router::new().route("/", post(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        axum::serve(listener, routes).await.expect("it serves");
    });
}

fn answer() -> Value {
    json!({"timers": [], "text": "No timers.", "is_error": false})
}

struct Bare {
    child: Child,
    address: SocketAddr,
}

impl Bare {
    fn start() -> Self {
        let me = std::env::current_exe().expect("this program");
        let mut command = program(&me);
        let mut child = command
            .arg(BARE)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let said = child.stdout.take().expect("its output");
        BufReader::new(said)
            .read_line(&mut line)
            .expect("an address");
        let address = line.trim().parse().expect("an address");
        Bare { child, address }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A daemon of its own.
struct Abide {
    dir: PathBuf,
    address: SocketAddr,
    token: String,
}

impl Abide {
    fn start(dir: &Path) -> Self {
        let dir = dir.join("abide");
        let mut private = std::fs::DirBuilder::new();
        private.mode(0o700).create(&dir).expect("a folder");
        Self::run(&dir, "status");
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("a file");
        Abide {
            address: read("run/http.address").parse().expect("an address"),
            token: read("token"),
            dir,
        }
    }

    fn run(dir: &Path, word: &str) {
        let mut command = program(Path::new(env!("CARGO_BIN_EXE_abide")));
        command
            .arg(word)
            .env("ABIDE_DIR", dir)
            .stdout(Stdio::null());
        assert!(command.status().expect("it runs").success());
    }

    fn headers(&self) -> String {
        format!("authorization: Bearer {}\r\n", self.token)
    }
}

impl Drop for Abide {
    fn drop(&mut self) {
        Self::run(&self.dir, "stop");
    }
}

/// A connection that is kept.
struct Line {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Line {
    fn new(address: SocketAddr, line: &str, headers: &str, body: &str) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("an option");
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nhost: {address}\r\n{headers}content-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        Line {
            stream: BufReader::new(stream),
            request: request.into_bytes(),
        }
    }

    fn send(&mut self) {
        let stream = self.stream.get_mut();
        stream.write_all(&self.request).expect("it is taken");
    }

    /// Reads an answer whose length is said.
    fn answer(&mut self) -> Vec<u8> {
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("a head");
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a number");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        body
    }

    fn call(&mut self) -> Duration {
        let began = now();
        self.send();
        self.answer();
        began.elapsed()
    }

    /// Reads on until an event of this name has come whole.
    fn until(&mut self, name: &str) {
        let wanted = format!("event: {name}\n").into_bytes();
        // Where each event is a message, bytes that are no text stand before its first line.
        let mut line = Vec::new();
        let mut found = false;
        while !(found && line == b"\n") {
            line.clear();
            let read = self.stream.read_until(b'\n', &mut line);
            assert_ne!(read.expect("an event"), 0, "there is more to come");
            found |= line == wanted;
        }
    }
}

fn calls(abide: &Abide, bare: &Bare) {
    let headers = abide.headers();
    let mut ours = Line::new(abide.address, "POST /v1/tools/read_timer", &headers, "{}");
    let mut least = Line::new(bare.address, "POST /", "", "{}");
    ours.call();
    least.call();
    let (mut call, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        call.push(ours.call());
        floor.push(least.call());
    }
    let (call, floor) = (Spread::of(call), Spread::of(floor));
    println!("read_timer over HTTP     {call}");
    println!("a bare axum handler      {floor}");
    let ratio = call.median.as_secs_f64() / floor.median.as_secs_f64();
    println!("ratio of medians         {ratio:.2}x");
}

fn events(abide: &Abide, how: &str, upgrade: &str) {
    let headers = format!("{}abide-person: true\r\n{upgrade}", abide.headers());
    let mut pages: Vec<Line> = (0..PAGES)
        .map(|_| Line::new(abide.address, "GET /v1/events", &headers, ""))
        .collect();
    for page in &mut pages {
        page.send();
        page.until("hello");
    }
    let mission = json!({"total_duration": 1_000, "mission": "later"}).to_string();
    let headers = abide.headers();
    let mut maker = Line::new(abide.address, "POST /v1/timers", &headers, &mission);
    let mut took = Vec::new();
    for _ in 0..EVENTS {
        let began = now();
        maker.send();
        for page in &mut pages {
            page.until("timer");
        }
        took.push(began.elapsed());
        maker.answer();
    }
    let spread = Spread::of(took);
    println!("to {PAGES} {how:<18}{spread}");
}

struct Spread {
    median: Duration,
    p99: Duration,
    most: Duration,
}

impl Spread {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
        Spread {
            median: at(0.5),
            p99: at(0.99),
            most: at(1.0),
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Spread { median, p99, most } = self;
        write!(
            f,
            "median {median:>9.1?}   p99 {p99:>9.1?}   most {most:>9.1?}"
        )
    }
}
