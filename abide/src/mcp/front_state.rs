//! State of a front: the opening of its session with the client, the unanswered requests, and the questions
//! of the daemon. From it the front replays to the next daemon what the last one left unanswered.

use std::io::Write;
use std::os::unix::net::UnixStream;

use abide_core::time::Mono;
use abide_engine::clock::SystemClock;
use serde_json::Value;

use super::control::{self, ControlLine};
use super::front_hello::FrontHello;
use super::outline::{BOM, MessageKind, Outline, normalize_id};
use super::replay_suspects::{self, ReplayState};

/// Limit on lines without an answer (notifications, responses) that are held for the next connection.
const QUEUE_LIMIT: usize = 256;

/// State that the two threads of a front share.
pub struct FrontState {
    pub hello: FrontHello,
    pub link: Option<UnixStream>,
    /// The client's `initialize` request and, in `initialized`, its `notifications/initialized`.
    pub opening: Option<PendingRequest>,
    initialized: Option<Vec<u8>>,
    /// Requests that wait for their answer, in order of arrival.
    pub unanswered: Vec<PendingRequest>,
    /// Cancelled requests, each with its cancellation, which the daemon has not confirmed yet.
    pub cancelled: Vec<(PendingRequest, Vec<u8>)>,
    /// Lines that need no answer and arrived while there was no connection.
    pub queued: Vec<Vec<u8>>,
    /// Ids of the daemon's own requests that the client has not answered.
    pub daemon_requests: Vec<Vec<u8>>,
    /// Id of a replayed `initialize` whose answer the client has had before; the second answer is dropped.
    ignored_answer: Option<Vec<u8>>,
    /// Answers are being written to the client.
    pub writing: bool,
    /// The client sends nothing more, and waits for the last answers.
    pub input_ended: bool,
    /// The daemon has confirmed over this connection that it survived the replayed requests.
    pub alive: bool,
}

/// Request as it arrived.
#[derive(Clone)]
pub struct PendingRequest {
    pub number: u64,
    /// JSON-RPC id in its normalised spelling.
    pub id: Vec<u8>,
    pub bytes: Vec<u8>,
    pub replay: ReplayState,
    /// Daemons in a row that went away soon after this request was replayed.
    pub stops: u32,
    /// Time of arrival. The limits of the call count from here, also if it is replayed.
    pub arrived: Mono,
}

impl PendingRequest {
    /// The request as it is sent again: behind a control line with its number, and the time since it arrived.
    pub fn replayed(&self, now: Mono) -> Vec<u8> {
        let again = ControlLine::Again(self.number, now.since(self.arrived).0);
        [again.line().as_bytes(), &self.bytes].concat()
    }
}

impl FrontState {
    /// State of a front before its client has sent anything.
    pub fn new(hello: FrontHello) -> Self {
        FrontState {
            hello,
            link: None,
            opening: None,
            initialized: None,
            unanswered: Vec::new(),
            cancelled: Vec::new(),
            queued: Vec::new(),
            daemon_requests: Vec::new(),
            ignored_answer: None,
            writing: false,
            input_ended: false,
            alive: false,
        }
    }

    /// Takes a line from the client and sends it on, or holds it for the next connection.
    pub fn take(&mut self, outline: &Outline, line: &[u8]) {
        match outline.kind() {
            MessageKind::Request => {
                self.record(outline, line);
                self.send(line);
            }
            MessageKind::Response => {
                let is_same = |id: &Vec<u8>| Some(id) == outline.id.as_ref();
                // A response to a request of an earlier connection is dropped: the daemon that asked is gone.
                if let Some(at) = self.daemon_requests.iter().position(is_same) {
                    self.daemon_requests.swap_remove(at);
                    self.send_or_queue(line);
                }
            }
            MessageKind::Notification if outline.is("notifications/initialized") => {
                self.initialized = Some(line.to_vec());
                self.send(line);
            }
            MessageKind::Notification if outline.is("notifications/cancelled") => {
                self.send(line);
                self.cancel(line);
            }
            MessageKind::Notification | MessageKind::Unknown => drop(self.send_or_queue(line)),
        }
    }

    fn record(&mut self, outline: &Outline, line: &[u8]) {
        let request = PendingRequest {
            number: self.hello.next,
            id: outline.id.clone().unwrap_or_default(),
            bytes: line.to_vec(),
            replay: ReplayState::Settled,
            stops: 0,
            arrived: SystemClock.mono(),
        };
        self.hello.next += 1;
        if outline.is("initialize") {
            self.opening = Some(request.clone());
            self.initialized = None;
        }
        self.unanswered.push(request);
    }

    /// Takes a cancellation: its request gets no answer. Both are kept until the daemon confirms, since it may be gone
    /// before it reads what was sent.
    fn cancel(&mut self, line: &[u8]) {
        let Some(id) = cancelled_id(line) else {
            return;
        };
        let opening = self.opening.as_ref().map(|opening| opening.number);
        for request in self.unanswered.extract_if(.., |request| request.id == id) {
            if Some(request.number) != opening && self.cancelled.len() < QUEUE_LIMIT {
                self.cancelled.push((request, line.to_vec()));
            }
        }
    }

    /// Takes a control line of the daemon.
    pub fn take_control(&mut self, line: &[u8]) {
        if line == control::ALIVE.as_bytes() {
            return self.daemon_alive();
        }
        let number = line.strip_prefix(control::CANCELLED.as_bytes());
        let number =
            number.and_then(|number| str::from_utf8(number).ok()?.trim().parse::<u64>().ok());
        if let Some(number) = number {
            self.forget_cancelled(|request| request.number == number);
        }
    }

    fn forget_cancelled(&mut self, is_done: impl Fn(&PendingRequest) -> bool) {
        self.cancelled.retain(|(request, _)| !is_done(request));
    }

    /// Number of requests for which a daemon is needed.
    pub fn pending(&self) -> usize {
        self.unanswered.len() + self.cancelled.len()
    }

    /// Takes an answer from the daemon, and appends to `out` what the client should see.
    pub fn answered(&mut self, id: &[u8], line: &[u8], out: &mut Vec<u8>) {
        if self.ignored_answer.as_deref() == Some(id) {
            self.ignored_answer = None;
            return;
        }
        self.unanswered.retain(|request| request.id != id);
        self.forget_cancelled(|request| request.id == id);
        out.extend_from_slice(line);
        self.writing = true;
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

    fn send_or_queue(&mut self, line: &[u8]) -> bool {
        let sent = self.send(line);
        if !sent && self.queued.len() < QUEUE_LIMIT {
            self.queued.push(line.to_vec());
        }
        sent
    }

    /// Everything that a new connection must be sent, beginning with the hello line.
    pub fn replay(&mut self) -> Vec<u8> {
        self.choose_replays();
        let opening = self.opening.clone().filter(|opening| {
            // An unanswered `initialize` is among `unanswered` already.
            self.unanswered
                .iter()
                .all(|request| request.number != opening.number)
        });
        self.ignored_answer = opening.as_ref().map(|opening| opening.id.clone());
        let sent = |line: &&PendingRequest| line.replay != ReplayState::Suspected;
        let unanswered = || self.unanswered.iter().filter(sent);
        let replayed = || {
            let cancelled = self.cancelled.iter().map(|(request, _)| request);
            opening.iter().chain(unanswered()).chain(cancelled)
        };
        let now = SystemClock.mono();
        let mut lines = self.hello.line();
        for line in replayed() {
            lines.extend(line.replayed(now));
            if Some(line.number) == self.opening.as_ref().map(|opening| opening.number) {
                lines.extend(self.initialized.iter().flatten());
            }
        }
        if !self.unanswered.is_empty() {
            lines.extend_from_slice(replay_suspects::check_line().as_bytes());
        }
        lines.extend(self.cancelled.iter().flat_map(|(_, line)| line));
        lines.extend(std::mem::take(&mut self.queued).into_iter().flatten());
        self.hello.connection += 1;
        self.alive = false;
        lines
    }

    /// Notes that the daemon has sent the client a request.
    pub fn record_daemon_request(&mut self, id: Vec<u8>) {
        if !self.daemon_requests.contains(&id) {
            self.daemon_requests.push(id);
        }
    }
}

/// Id of the request that a cancellation names.
fn cancelled_id(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.strip_prefix(BOM).unwrap_or(line);
    let message: Value = serde_json::from_slice(line).ok()?;
    let id = message.get("params")?.get("requestId")?;
    normalize_id(&id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send_line(state: &mut FrontState, line: &str) {
        state.take(
            &Outline::of(line.as_bytes()),
            format!("{line}\n").as_bytes(),
        );
    }

    /// Numbers and lines that the next connection is sent: the resent numbers, the next number, and the lines
    /// after the hello.
    fn replayed(state: &mut FrontState) -> (Vec<u64>, u64, Vec<String>) {
        let lines = String::from_utf8(state.replay()).unwrap();
        let (hello, rest) = lines.split_once('\n').unwrap();
        let hello = FrontHello::read(hello.as_bytes()).unwrap();
        let (again, rest): (Vec<&str>, Vec<&str>) =
            rest.lines().partition(|line| line.starts_with("!again "));
        let number = |line: &&str| line.split(' ').nth(1).unwrap().parse().unwrap();
        let line = |line: &&str| replay_suspects::without_time(line).to_owned();
        (
            again.iter().map(number).collect(),
            hello.next,
            rest.iter().map(line).collect(),
        )
    }

    fn state() -> FrontState {
        FrontState::new(FrontHello {
            front: "f".into(),
            cwd: "/".into(),
            ..FrontHello::default()
        })
    }

    const INITIALIZE: &str = r#"{"id":0,"method":"initialize"}"#;
    const INITIALIZED: &str = r#"{"method":"notifications/initialized"}"#;
    const CALL: &str = r#"{"id":1,"method":"tools/call"}"#;
    const OTHER: &str = r#"{"method":"tools/call","id":"two"}"#;

    #[test]
    fn unanswered_requests_are_replayed_under_their_numbers() {
        let mut state = state();
        for line in [INITIALIZE, INITIALIZED, CALL, OTHER] {
            send_line(&mut state, line);
        }
        let all = vec![
            INITIALIZE.into(),
            INITIALIZED.into(),
            CALL.into(),
            OTHER.into(),
            CHECK.into(),
        ];
        assert_eq!(replayed(&mut state), (vec![0, 1, 2], 3, all.clone()));
        assert_eq!(
            state.ignored_answer, None,
            "the client waits for that answer"
        );

        state.unanswered.retain(|request| request.id == b"\"two\"");
        let opening = vec![
            INITIALIZE.into(),
            INITIALIZED.into(),
            OTHER.into(),
            CHECK.into(),
        ];
        assert_eq!(replayed(&mut state), (vec![0, 2], 3, opening));
        assert_eq!(
            state.ignored_answer.as_deref(),
            Some(&b"0"[..]),
            "the client had that answer"
        );
    }

    #[test]
    fn without_a_handshake_only_requests_are_replayed() {
        let mut state = state();
        assert_eq!(replayed(&mut state), (vec![], 0, vec![]));
        send_line(&mut state, OTHER);
        assert_eq!(
            replayed(&mut state),
            (vec![0], 1, vec![OTHER.into(), CHECK.into()])
        );
    }

    const CHECK: &str = "!check";
    #[test]
    fn cancellation_is_replayed_after_its_request_until_it_is_confirmed() {
        let mut state = state();
        // The connection takes the lines, but the daemon is gone before it reads them.
        let (ours, _daemon) = UnixStream::pair().unwrap();
        state.link = Some(ours);
        let cancelled = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
        for line in [CALL, OTHER, cancelled] {
            send_line(&mut state, line);
        }
        let lines = vec![OTHER.into(), CALL.into(), CHECK.into(), cancelled.into()];
        assert_eq!(replayed(&mut state), (vec![1, 0], 2, lines.clone()));
        // The daemon was gone before it read them again.
        assert_eq!(replayed(&mut state), (vec![1, 0], 2, lines));
        state.take_control(b"!cancelled 0\n");
        assert_eq!(
            replayed(&mut state),
            (vec![1], 2, vec![OTHER.into(), CHECK.into()])
        );
    }

    #[test]
    fn replayed_requests_keep_their_age() {
        let mut state = state();
        send_line(&mut state, CALL);
        state.unanswered[0].arrived = Mono(0);
        let lines = String::from_utf8(state.replay()).unwrap();
        let again = lines.lines().nth(1).unwrap();
        let age = again.strip_prefix("!again 0 ").unwrap();
        assert!(age.parse::<u64>().unwrap() > 0);
    }

    #[test]
    fn confirmed_cancellation_is_not_replayed() {
        let mut state = state();
        for line in [CALL, OTHER] {
            send_line(&mut state, line);
        }
        send_line(
            &mut state,
            r#"{"method":"notifications/cancelled","params":{"requestId":"two"}}"#,
        );
        for line in ["!cancelled\n", "!cancelled x\n", "!cancelled 0\n"] {
            state.take_control(line.as_bytes());
            assert_eq!(state.pending(), 2, "{line}");
        }
        state.take_control(b"!cancelled 1\n");
        let lines = vec![CALL.into(), CHECK.into()];
        assert_eq!(replayed(&mut state), (vec![0], 2, lines));
    }

    #[test]
    fn answers_to_unknown_daemon_requests_are_dropped() {
        let mut state = state();
        state.daemon_requests.push(b"5".to_vec());
        send_line(&mut state, r#"{"id":4,"result":{}}"#);
        send_line(&mut state, r#"{"id":5,"result":{}}"#);
        send_line(&mut state, r#"{"id":5,"result":{}}"#);
        let (_, _, lines) = replayed(&mut state);
        assert_eq!(lines, [r#"{"id":5,"result":{}}"#]);
    }
}
