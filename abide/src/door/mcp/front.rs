//! `abide mcp`: what a client starts. It copies lines between its own standard input and output and
//! the daemon's socket, and ends with its client; sessions do not.
//!
//! A daemon may go away while calls are unanswered (killed, or replaced by a newer one). The front
//! then finds or starts the next, says again how the session with the client began and what has not
//! been answered, each request under its old number, and the client notices nothing. For this it
//! keeps the opening lines and the lines that wait for an answer, and nothing else.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use memchr::memmem;
use rustix::event::PollFlags;
use serde_json::Value;

use super::batch::{self, Batches};
use super::hello::{Hello, RESENT};
use super::lines::{Lines, Piece, until};
use super::scan::{BOM, Kind, Outline, one_spelling};
use super::wire::{MESSAGE_LIMIT, TWICE, refusal};
use crate::config::Places;
use crate::daemon::life::{self, Door};
use crate::world::entropy;

/// Milliseconds to wait before each attempt to reach the daemon.
const ATTEMPTS: [u64; 7] = [0, 50, 100, 250, 500, 1_000, 2_000];
/// Connections in a row that may break before they brought a single line.
const BREAKS: usize = 5;
/// At the end of input, how long the next of the answers that are about to come is waited for. A
/// client that is gone does not mind, and one that ends us is patient for longer; a pipe that was only
/// written to gets what it asked for, unless that takes long.
const LAST_ANSWERS: Duration = Duration::from_millis(1_500);
/// The same where the input is a file, behind which nobody can be gone: as long as it takes.
const ALL_ANSWERS: Duration = Duration::from_secs(365 * 86_400);
/// Lines that want no answer and wait for the next connection.
const HELD: usize = 256;

/// Runs until the client closes its end.
pub fn front(places: &Places, agent: String) -> io::Result<()> {
    let front = Arc::new(Front {
        places: places.clone(),
        output: Mutex::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
        state: Mutex::new(State::new(introduction(agent)?)),
        changed: Condvar::new(),
    });
    let answers = front.clone();
    std::thread::Builder::new()
        .name("answers".into())
        .spawn(move || answers.bring_answers())?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    front.pass_on(input)
}

fn introduction(agent: String) -> io::Result<Hello> {
    Ok(Hello {
        front: format!("{:016x}{:016x}", entropy::bits(), entropy::bits()),
        pid: std::process::id(),
        cwd: std::env::current_dir()?,
        agent,
        env: std::env::vars_os().collect(),
        ..Hello::default()
    })
}

struct Front {
    places: Places,
    output: Mutex<File>,
    state: Mutex<State>,
    /// A request came while there was no connection, there is one again, or one was answered.
    changed: Condvar,
}

/// All that is kept.
struct State {
    hello: Hello,
    link: Option<UnixStream>,
    /// How this session began: `initialize`, and `notifications/initialized`.
    opening: Option<Line>,
    opened: Option<Vec<u8>>,
    /// Requests that wait for their answer, in their order.
    unanswered: Vec<Line>,
    /// Lines that want none and found no connection.
    held: Vec<Vec<u8>>,
    /// The daemon's own requests that the client has not answered.
    asked: Vec<Vec<u8>>,
    /// An answer that the client has had before.
    swallow: Option<Vec<u8>>,
    /// Whether the version that was agreed upon has batches.
    takes_batches: bool,
    /// Those that wait for their answers.
    batches: Batches,
    /// Answers are being written to the client.
    writing: bool,
}

/// A request as it came.
#[derive(Clone)]
struct Line {
    number: u64,
    id: Vec<u8>,
    bytes: Vec<u8>,
}

impl State {
    fn new(hello: Hello) -> Self {
        State {
            hello,
            link: None,
            opening: None,
            opened: None,
            unanswered: Vec::new(),
            held: Vec::new(),
            asked: Vec::new(),
            swallow: None,
            takes_batches: false,
            batches: Batches::default(),
            writing: false,
        }
    }

    /// Takes a line from the client and sends it on, or keeps it for the next connection.
    fn take(&mut self, outline: &Outline, line: &[u8]) {
        match outline.kind() {
            Kind::Request => {
                self.keep(outline, line);
                self.send(line);
            }
            Kind::Answer => {
                let is_it = |id: &Vec<u8>| Some(id) == outline.id.as_ref();
                // An answer to what was asked before a break concerns nobody any more.
                if let Some(at) = self.asked.iter().position(is_it) {
                    self.asked.swap_remove(at);
                    self.send_or_hold(line);
                }
            }
            Kind::Notification if outline.is("notifications/initialized") => {
                self.opened = Some(line.to_vec());
                self.send(line);
            }
            Kind::Notification if outline.is("notifications/cancelled") => {
                if self.send_or_hold(line) {
                    self.forget_cancelled(line);
                }
            }
            Kind::Notification | Kind::Unknown => drop(self.send_or_hold(line)),
        }
    }

    fn keep(&mut self, outline: &Outline, line: &[u8]) {
        let kept = Line {
            number: self.hello.next,
            id: outline.id.clone().unwrap_or_default(),
            bytes: line.to_vec(),
        };
        self.hello.next += 1;
        if outline.is("initialize") {
            self.opening = Some(kept.clone());
            self.opened = None;
        }
        self.unanswered.push(kept);
    }

    /// A cancelled request is not answered.
    fn forget_cancelled(&mut self, line: &[u8]) {
        if let Some(id) = cancelled_id(line) {
            self.unanswered.retain(|kept| kept.id != id);
            self.batches.forget(&id);
        }
    }

    /// Takes an answer from the daemon: what the client is to hear is put into `out`.
    fn answered(&mut self, id: &[u8], line: &[u8], out: &mut Vec<u8>) {
        if self.swallow.as_deref() == Some(id) {
            self.swallow = None;
            return;
        }
        if self
            .opening
            .as_ref()
            .is_some_and(|opening| opening.id == id)
        {
            self.takes_batches = agreed_version(line).as_deref() == Some(batch::VERSION);
        }
        self.forget_answered(id, line);
        self.tell(id, line, out);
        self.writing = true;
    }

    /// Of two requests under one id the daemon refuses the later, and the earlier goes on.
    fn forget_answered(&mut self, id: &[u8], line: &[u8]) {
        let mut same = (0..self.unanswered.len()).filter(|at| self.unanswered[*at].id == id);
        let Some(first) = same.next() else {
            return;
        };
        let refused = |_: &usize| memmem::find(line, TWICE.as_bytes()).is_some();
        let at = same.next_back().filter(refused).unwrap_or(first);
        self.unanswered.remove(at);
    }

    /// Puts an answer into `out`, alone or with the others of its batch.
    fn tell(&mut self, id: &[u8], line: &[u8], out: &mut Vec<u8>) {
        match self.batches.keep(id, line) {
            true => self.batches.finish(out),
            false => out.extend_from_slice(line),
        }
    }

    /// Whether the line has left. Where the connection turns out to be broken, the other thread hears
    /// of it too, and mends it.
    fn send(&mut self, line: &[u8]) -> bool {
        let sent = self
            .link
            .as_mut()
            .is_some_and(|link| link.write_all(line).is_ok());
        if !sent {
            self.link = None;
        }
        sent
    }

    fn send_or_hold(&mut self, line: &[u8]) -> bool {
        let sent = self.send(line);
        if !sent && self.held.len() < HELD {
            self.held.push(line.to_vec());
        }
        sent
    }

    /// Everything that a new connection has to hear, the hello first.
    fn catch_up(&mut self) -> Vec<u8> {
        let opening = self.opening.clone().filter(|opening| {
            // Unanswered, it is among the others already.
            self.unanswered
                .iter()
                .all(|kept| kept.number != opening.number)
        });
        self.swallow = opening.as_ref().map(|opening| opening.id.clone());
        let again = || opening.iter().chain(&self.unanswered);
        self.hello.resent = again().map(|line| line.number).collect();
        let mut said = self.hello.line();
        for line in again() {
            said.extend_from_slice(&line.bytes);
            if Some(line.number) == self.opening.as_ref().map(|opening| opening.number) {
                said.extend(self.opened.iter().flatten());
            }
        }
        for line in std::mem::take(&mut self.held) {
            said.extend_from_slice(&line);
            if Outline::of(&line).is("notifications/cancelled") {
                self.forget_cancelled(&line);
            }
        }
        self.hello.connection += 1;
        said
    }
}

/// The version in the answer to `initialize`.
fn agreed_version(line: &[u8]) -> Option<String> {
    let said: Value = serde_json::from_slice(line).ok()?;
    let version = said.get("result")?.get("protocolVersion")?;
    version.as_str().map(str::to_owned)
}

/// Which request a cancellation speaks of.
fn cancelled_id(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.strip_prefix(BOM).unwrap_or(line);
    let said: Value = serde_json::from_slice(line).ok()?;
    let id = said.get("params")?.get("requestId")?;
    one_spelling(serde_json::to_vec(id).ok()?)
}

impl Front {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    // ---- from the client to the daemon

    fn pass_on(&self, input: File) -> io::Result<()> {
        let mut lines = Lines::new(MESSAGE_LIMIT);
        loop {
            let more = lines.fill(&input)?;
            while let Some(piece) = lines.next(!more) {
                match piece {
                    Piece::Line(line) => self.client_says(line),
                    Piece::TooLong(outline) => {
                        self.write(&refusal(outline.id.as_deref(), -32600, &too_long()));
                    }
                }
            }
            if !more {
                let is_file = input.metadata().is_ok_and(|input| input.is_file());
                self.hear_last_answers(if is_file { ALL_ANSWERS } else { LAST_ANSWERS });
                return Ok(());
            }
        }
    }

    fn client_says(&self, line: &[u8]) {
        let mut out = Vec::new();
        let outline = Outline::of(line);
        let mut state = self.state();
        // What cannot be read is the daemon's to refuse.
        let batch = (batch::is_one(line) && state.takes_batches).then(|| batch::messages(line));
        match batch.flatten() {
            None => self.take(&mut state, &outline, line, &mut out),
            Some(messages) => self.take_all(&mut state, &messages, &mut out),
        }
        drop(state);
        self.write(&out);
    }

    fn take(&self, state: &mut State, outline: &Outline, line: &[u8], out: &mut Vec<u8>) {
        if outline.kind() == Kind::Request && state.unanswered.len() >= RESENT {
            let sentence = format!("{RESENT} requests wait for an answer already");
            let id = outline.id.as_deref();
            let refusal = refusal(id, -32603, &sentence);
            return state.tell(id.unwrap_or_default(), &refusal, out);
        }
        state.take(outline, line);
        if outline.kind() == Kind::Notification {
            state.batches.finish(out);
        }
        if state.link.is_none() && outline.kind() == Kind::Request {
            self.changed.notify_all();
        }
    }

    fn take_all(&self, state: &mut State, messages: &[Vec<u8>], out: &mut Vec<u8>) {
        if messages.is_empty() {
            return out.extend_from_slice(&refusal(None, -32600, "a batch must not be empty"));
        }
        if messages.len() > batch::MOST {
            let sentence = format!("a batch must hold at most {} messages", batch::MOST);
            return out.extend_from_slice(&refusal(None, -32600, &sentence));
        }
        let outlines: Vec<Outline> = messages.iter().map(|line| Outline::of(line)).collect();
        let requests = outlines.iter().filter(|o| o.kind() == Kind::Request);
        let waiting = requests.filter_map(|outline| outline.id.clone()).collect();
        let unknown = outlines.iter().filter(|o| o.kind() == Kind::Unknown);
        let refused = unknown.map(|_| refusal(None, -32600, "not a message of MCP"));
        state.batches.open(waiting, &refused.collect::<Vec<_>>());
        for (outline, line) in outlines.iter().zip(messages) {
            if outline.kind() != Kind::Unknown {
                self.take(state, outline, line, out);
            }
        }
        state.batches.finish(out);
    }

    /// Waits for as long as one answer follows another. While there is no daemon yet to answer, none can
    /// be late: it is started, or that is given up, which answers everything too.
    fn hear_last_answers(&self, patience: Duration) {
        let mut state = self.state();
        while !state.unanswered.is_empty() || state.writing {
            let before = (state.unanswered.len(), state.writing);
            let same = |state: &State| (state.unanswered.len(), state.writing) == before;
            if state.link.is_none() && !state.writing {
                let unlinked = |state: &mut State| state.link.is_none() && same(state);
                state = self
                    .changed
                    .wait_while(state, unlinked)
                    .expect("no holder panics");
                continue;
            }
            let quiet = |state: &mut State| (state.link.is_some() || state.writing) && same(state);
            let (next, waited) = self
                .changed
                .wait_timeout_while(state, patience, quiet)
                .expect("no holder panics");
            if waited.timed_out() {
                return;
            }
            state = next;
        }
    }

    // ---- from the daemon to the client

    /// Connects, brings answers until the connection breaks, and begins again where something waits
    /// for an answer. Where nothing does, it waits for the next request: a daemon that was stopped
    /// is not started again for nothing.
    fn bring_answers(&self) {
        let mut breaks = 0;
        loop {
            match self.connect(breaks) {
                Ok(link) => {
                    breaks = if self.bring(link) { 0 } else { breaks + 1 };
                    self.lost();
                    if breaks >= BREAKS {
                        breaks = 0;
                        self.give_up("it went away again and again while it was asked");
                    }
                }
                Err(e) => self.give_up(&e.to_string()),
            }
            let idle = |state: &mut State| state.unanswered.is_empty();
            drop(self.changed.wait_while(self.state(), idle));
        }
    }

    /// The more connections broke before, the later the first attempt.
    fn connect(&self, breaks: usize) -> io::Result<UnixStream> {
        let mut last = io::Error::from(io::ErrorKind::NotConnected);
        for wait in &ATTEMPTS[breaks.min(ATTEMPTS.len() - 1)..] {
            self.back_off(Duration::from_millis(*wait));
            match life::connect(&self.places, Door::Mcp).and_then(|link| self.join(link)) {
                Ok(link) => return Ok(link),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Lets the daemon know everything, and only then lets new lines through.
    fn join(&self, mut link: UnixStream) -> io::Result<UnixStream> {
        let theirs = link.try_clone()?;
        let mut state = self.state();
        let said = state.catch_up();
        link.write_all(&said)?;
        state.link = Some(link);
        // What waited for a request that was cancelled meanwhile waits no more.
        let mut out = Vec::new();
        state.batches.finish(&mut out);
        state.writing = !out.is_empty();
        drop(state);
        self.changed.notify_all();
        self.write_answers(&out);
        Ok(theirs)
    }

    fn back_off(&self, span: Duration) {
        if !span.is_zero() {
            let _ = self
                .changed
                .wait_timeout_while(self.state(), span, |_| true);
        }
    }

    /// Copies answers until the connection breaks. Whether there were any.
    fn bring(&self, link: UnixStream) -> bool {
        let mut lines = Lines::new(usize::MAX);
        let link = File::from(OwnedFd::from(link));
        let mut any = false;
        let mut out = Vec::new();
        // A read that waits in the kernel would also be woken whenever the daemon has taken a request.
        let awaited = |link: &File| until(link.as_fd(), PollFlags::IN).is_ok();
        while awaited(&link) && lines.fill(&link).unwrap_or(false) {
            while let Some(Piece::Line(line)) = lines.next(false) {
                any = true;
                self.daemon_says(line, &mut out);
            }
            self.write_answers(&out);
            out.clear();
        }
        any
    }

    /// Notes a line from the daemon. What the client should see of it is put into `out`.
    fn daemon_says(&self, line: &[u8], out: &mut Vec<u8>) {
        let outline = Outline::of_the_daemons(line);
        match (outline.kind(), outline.id) {
            (Kind::Answer, Some(id)) => return self.state().answered(&id, line, out),
            (Kind::Request, Some(id)) => self.state().asked.push(id),
            _ => {}
        }
        out.extend_from_slice(line);
    }

    /// The connection is gone. What it had asked the client will be asked again under another id, so
    /// the old question is taken away.
    fn lost(&self) {
        let asked = {
            let mut state = self.state();
            state.link = None;
            std::mem::take(&mut state.asked)
        };
        self.changed.notify_all();
        let mut out = Vec::new();
        for id in asked {
            out.extend_from_slice(
                br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#,
            );
            out.extend_from_slice(&id);
            out.extend_from_slice(b",\"reason\":\"the question will be asked again\"}}\n");
        }
        self.write(&out);
    }

    /// Nothing can be done about the daemon now: whoever waits is told.
    fn give_up(&self, why: &str) {
        let sentence = format!(
            "the abide daemon cannot be reached: {why}. Commands that run go on; `abide doctor` \
             says what to mend, and the next call tries again."
        );
        let mut out = Vec::new();
        {
            let mut state = self.state();
            state.held.clear();
            state.writing = true;
            for line in std::mem::take(&mut state.unanswered) {
                let refusal = refusal(Some(&line.id), -32603, &sentence);
                state.tell(&line.id, &refusal, &mut out);
            }
        }
        self.write_answers(&out);
    }

    /// Whoever waits for the last answers ends the program: only when they have left.
    fn write_answers(&self, lines: &[u8]) {
        self.write(lines);
        let mut state = self.state();
        if std::mem::take(&mut state.writing) {
            self.changed.notify_all();
        }
    }

    /// Whole lines only. A client that no longer reads has gone.
    fn write(&self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let mut output = self.output.lock().expect("no holder panics");
        if write_all(&mut output, lines).is_err() {
            std::process::exit(0);
        }
    }
}

fn too_long() -> String {
    format!("the message is longer than {MESSAGE_LIMIT} bytes")
}

/// Some clients hand over pipes that do not block.
fn write_all(output: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                until(output.as_fd(), PollFlags::OUT)?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(state: &mut State, line: &str) {
        state.take(
            &Outline::of(line.as_bytes()),
            format!("{line}\n").as_bytes(),
        );
    }

    /// What the next connection hears: the numbers in its hello, and the lines after it.
    fn heard(state: &mut State) -> (Vec<u64>, u64, Vec<String>) {
        let said = String::from_utf8(state.catch_up()).unwrap();
        let (hello, rest) = said.split_once('\n').unwrap();
        let hello = Hello::read(hello.as_bytes()).unwrap();
        (
            hello.resent,
            hello.next,
            rest.lines().map(String::from).collect(),
        )
    }

    fn state() -> State {
        State::new(Hello {
            front: "f".into(),
            cwd: "/".into(),
            ..Hello::default()
        })
    }

    const INITIALIZE: &str = r#"{"id":0,"method":"initialize"}"#;
    const INITIALIZED: &str = r#"{"method":"notifications/initialized"}"#;
    const CALL: &str = r#"{"id":1,"method":"tools/call"}"#;
    const OTHER: &str = r#"{"method":"tools/call","id":"two"}"#;

    #[test]
    fn says_again_what_was_not_answered_under_its_number() {
        let mut state = state();
        for line in [INITIALIZE, INITIALIZED, CALL, OTHER] {
            say(&mut state, line);
        }
        let all = vec![
            INITIALIZE.into(),
            INITIALIZED.into(),
            CALL.into(),
            OTHER.into(),
        ];
        assert_eq!(heard(&mut state), (vec![0, 1, 2], 3, all.clone()));
        assert_eq!(state.swallow, None, "the client waits for that answer");

        state.unanswered.retain(|kept| kept.id == b"\"two\"");
        let opening = vec![INITIALIZE.into(), INITIALIZED.into(), OTHER.into()];
        assert_eq!(heard(&mut state), (vec![0, 2], 3, opening));
        assert_eq!(
            state.swallow.as_deref(),
            Some(&b"0"[..]),
            "the client had that answer"
        );
    }

    #[test]
    fn a_generation_without_a_handshake_has_nothing_to_open_with() {
        let mut state = state();
        assert_eq!(heard(&mut state), (vec![], 0, vec![]));
        say(&mut state, OTHER);
        assert_eq!(heard(&mut state), (vec![0], 1, vec![OTHER.into()]));
    }

    #[test]
    fn a_cancellation_follows_the_request_it_means_and_then_both_are_forgotten() {
        let mut state = state();
        let cancelled = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
        for line in [CALL, OTHER, cancelled] {
            say(&mut state, line);
        }
        let said = vec![CALL.into(), OTHER.into(), cancelled.into()];
        assert_eq!(heard(&mut state), (vec![0, 1], 2, said));
        assert_eq!(heard(&mut state), (vec![1], 2, vec![OTHER.into()]));
    }

    #[test]
    fn answers_to_what_nobody_asks_any_more_are_dropped() {
        let mut state = state();
        state.asked.push(b"5".to_vec());
        say(&mut state, r#"{"id":4,"result":{}}"#);
        say(&mut state, r#"{"id":5,"result":{}}"#);
        say(&mut state, r#"{"id":5,"result":{}}"#);
        let (_, _, said) = heard(&mut state);
        assert_eq!(said, [r#"{"id":5,"result":{}}"#]);
    }
}
