//! State of a front: the opening of its session with the client, the unanswered requests, and the questions
//! of the daemon. From it the front replays to the next daemon what the last one left unanswered.

use std::io::Write;
use std::os::unix::net::UnixStream;

use memchr::memmem;
use serde_json::Value;

use super::batch::{self, Batches};
use super::hello::Hello;
use super::scan::{BOM, Kind, Outline, one_spelling};
use super::trial::{self, Replay};
use super::wire::TWICE;

/// Limit on lines without an answer (notifications, responses) that are held for the next connection.
const HELD: usize = 256;

/// State that the two threads of a front share.
pub struct State {
    pub hello: Hello,
    pub link: Option<UnixStream>,
    /// The client's `initialize` request and, in `opened`, its `notifications/initialized`.
    pub opening: Option<Line>,
    opened: Option<Vec<u8>>,
    /// Requests that wait for their answer, in order of arrival.
    pub unanswered: Vec<Line>,
    /// Lines that need no answer and arrived while there was no connection.
    pub held: Vec<Vec<u8>>,
    /// Ids of the daemon's own requests that the client has not answered.
    pub asked: Vec<Vec<u8>>,
    /// Id of a replayed `initialize` whose answer the client has had before; the second answer is dropped.
    swallow: Option<Vec<u8>>,
    /// True if the agreed protocol version has batches.
    pub takes_batches: bool,
    /// Batches whose answers are not complete.
    pub batches: Batches,
    /// Answers are being written to the client.
    pub writing: bool,
    /// The daemon has confirmed over this connection that it survived the replayed requests.
    pub alive: bool,
}

/// Request as it arrived.
#[derive(Clone)]
pub struct Line {
    pub number: u64,
    /// JSON-RPC id in its normalised spelling.
    pub id: Vec<u8>,
    pub bytes: Vec<u8>,
    pub replay: Replay,
    /// Daemons in a row that went away soon after this request was replayed.
    pub stops: u32,
}

impl State {
    /// State of a front before its client has sent anything.
    pub fn new(hello: Hello) -> Self {
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
            alive: false,
        }
    }

    /// Takes a line from the client and sends it on, or holds it for the next connection.
    pub fn take(&mut self, outline: &Outline, line: &[u8]) {
        match outline.kind() {
            Kind::Request => {
                self.keep(outline, line);
                self.send(line);
            }
            Kind::Answer => {
                let is_it = |id: &Vec<u8>| Some(id) == outline.id.as_ref();
                // A response to a request of an earlier connection is dropped: the daemon that asked is gone.
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
            replay: Replay::Settled,
            stops: 0,
        };
        self.hello.next += 1;
        if outline.is("initialize") {
            self.opening = Some(kept.clone());
            self.opened = None;
        }
        self.unanswered.push(kept);
    }

    /// Forgets a request that the client has cancelled: it gets no answer.
    fn forget_cancelled(&mut self, line: &[u8]) {
        if let Some(id) = cancelled_id(line) {
            self.unanswered.retain(|kept| kept.id != id);
            self.batches.forget(&id);
        }
    }

    /// Takes an answer from the daemon, and appends to `out` what the client should see.
    pub fn answered(&mut self, id: &[u8], line: &[u8], out: &mut Vec<u8>) {
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

    /// Forgets the request that was answered. Of two unanswered requests under one id, the daemon refuses the
    /// later one, and the earlier one stays unanswered.
    fn forget_answered(&mut self, id: &[u8], line: &[u8]) {
        let mut same = (0..self.unanswered.len()).filter(|at| self.unanswered[*at].id == id);
        let Some(first) = same.next() else {
            return;
        };
        let refused = |_: &usize| memmem::find(line, TWICE.as_bytes()).is_some();
        let at = same.next_back().filter(refused).unwrap_or(first);
        self.unanswered.remove(at);
    }

    /// Appends an answer to `out`, alone or with the others of its batch.
    pub fn tell(&mut self, id: &[u8], line: &[u8], out: &mut Vec<u8>) {
        match self.batches.keep(id, line) {
            true => self.batches.finish(out),
            false => out.extend_from_slice(line),
        }
    }

    /// Sends a line; returns true if it was written. If the connection is broken, the reading thread notices
    /// that too and reconnects.
    pub fn send(&mut self, line: &[u8]) -> bool {
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

    /// Everything that a new connection must be sent, beginning with the hello line.
    pub fn catch_up(&mut self) -> Vec<u8> {
        self.choose_replays();
        let opening = self.opening.clone().filter(|opening| {
            // An unanswered `initialize` is among `unanswered` already.
            self.unanswered
                .iter()
                .all(|kept| kept.number != opening.number)
        });
        self.swallow = opening.as_ref().map(|opening| opening.id.clone());
        let sent = |line: &&Line| line.replay != Replay::Held;
        let again = || opening.iter().chain(&self.unanswered).filter(sent);
        self.hello.resent = again().map(|line| line.number).collect();
        let mut said = self.hello.line();
        for line in again() {
            said.extend_from_slice(&line.bytes);
            if Some(line.number) == self.opening.as_ref().map(|opening| opening.number) {
                said.extend(self.opened.iter().flatten());
            }
        }
        if !self.unanswered.is_empty() {
            said.extend_from_slice(trial::check().as_bytes());
        }
        for line in std::mem::take(&mut self.held) {
            said.extend_from_slice(&line);
            if Outline::of(&line).is("notifications/cancelled") {
                self.forget_cancelled(&line);
            }
        }
        self.hello.connection += 1;
        self.alive = false;
        said
    }

    /// Notes that the daemon has sent the client a request.
    pub fn ask(&mut self, id: Vec<u8>) {
        if !self.asked.contains(&id) {
            self.asked.push(id);
        }
    }
}

/// Protocol version in the answer to `initialize`.
fn agreed_version(line: &[u8]) -> Option<String> {
    let said: Value = serde_json::from_slice(line).ok()?;
    let version = said.get("result")?.get("protocolVersion")?;
    version.as_str().map(str::to_owned)
}

/// Id of the request that a cancellation names.
fn cancelled_id(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.strip_prefix(BOM).unwrap_or(line);
    let said: Value = serde_json::from_slice(line).ok()?;
    let id = said.get("params")?.get("requestId")?;
    one_spelling(serde_json::to_vec(id).ok()?)
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

    /// Numbers and lines that the next connection is sent: the resent numbers, the next number, and the lines
    /// after the hello.
    fn heard(state: &mut State) -> (Vec<u64>, u64, Vec<String>) {
        let said = String::from_utf8(state.catch_up()).unwrap();
        let (hello, rest) = said.split_once('\n').unwrap();
        let hello = Hello::read(hello.as_bytes()).unwrap();
        let line = |line: &str| trial::without_time(line).to_owned();
        (hello.resent, hello.next, rest.lines().map(line).collect())
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
            CHECK.into(),
        ];
        assert_eq!(heard(&mut state), (vec![0, 1, 2], 3, all.clone()));
        assert_eq!(state.swallow, None, "the client waits for that answer");

        state.unanswered.retain(|kept| kept.id == b"\"two\"");
        let opening = vec![
            INITIALIZE.into(),
            INITIALIZED.into(),
            OTHER.into(),
            CHECK.into(),
        ];
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
        assert_eq!(
            heard(&mut state),
            (vec![0], 1, vec![OTHER.into(), CHECK.into()])
        );
    }

    const CHECK: &str = "!check";
    #[test]
    fn a_cancellation_follows_the_request_it_means_and_then_both_are_forgotten() {
        let mut state = state();
        let cancelled = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
        for line in [CALL, OTHER, cancelled] {
            say(&mut state, line);
        }
        let said = vec![CALL.into(), OTHER.into(), CHECK.into(), cancelled.into()];
        assert_eq!(heard(&mut state), (vec![0, 1], 2, said));
        assert_eq!(
            heard(&mut state),
            (vec![1], 2, vec![OTHER.into(), CHECK.into()])
        );
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
