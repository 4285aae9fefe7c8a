//! Requests that stop the daemon. A front replays the requests that a daemon left unanswered, so a request
//! that crashes the daemon, or makes it hang until it is killed, would be replayed to every daemon after it.
//!
//! After each replay the front asks the daemon to confirm a moment later ([`LIVENESS_DELAY`]) that it is alive. When
//! several daemons in a row went away without that confirmation, the requests in flight are suspected. A
//! suspected request is held back until the next daemon has confirmed that it is alive without it, and is
//! then replayed alone. A request that stops daemon after daemon in this way is given up. A daemon that is
//! killed for other reasons clears the suspicion: it confirms that it is alive with a request, or goes away
//! without having received it.

use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};

use super::control::ControlLine;
use super::front_state::{FrontState, PendingRequest};
use super::json_line::{answer_line, error_line};
use abide_engine::clock::SystemClock;
use abide_engine::entropy;

/// Time that a daemon must live with a replay, in milliseconds. The daemon measures it from the moment when
/// it has read the replay, so that the time is sufficient on a busy machine too. Fronts draw it at random:
/// otherwise, of two fronts that share a daemon, the same one would always be suspected when the other's
/// request stopped the daemon.
const LIVENESS_DELAY: Range<u64> = 250..750;
/// Daemons in a row that a request may stop before it is given up. All but the first [`SUSPECT_AFTER`] of them were
/// alive until the request was replayed to them alone. Daemons that are killed at random moments hardly ever
/// die so often in a row just then.
const STOP_LIMIT: u32 = 10;
/// Daemons in a row that a request may stop before it is suspected.
const SUSPECT_AFTER: u32 = 3;

/// State of an unanswered request with respect to replaying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayState {
    /// Sent, and the daemon has lived with it.
    Settled,
    /// Sent again over this connection, and the daemon has not yet confirmed that it is alive.
    Unconfirmed,
    /// Suspected, and not sent over this connection yet.
    Suspected,
}

/// Control line that asks the daemon to confirm that it is alive.
pub fn check_line() -> String {
    let spread = entropy::bits() % (LIVENESS_DELAY.end - LIVENESS_DELAY.start);
    ControlLine::Check(LIVENESS_DELAY.start + spread).line()
}

/// Line without the random time in it.
#[cfg(test)]
pub fn without_time(line: &str) -> &str {
    match line.starts_with("!") {
        true => line.rsplit_once(' ').map_or(line, |(words, _)| words),
        false => line,
    }
}

impl FrontState {
    /// Decides which requests are replayed at once: all that are not suspected.
    pub fn choose_replays(&mut self) {
        // Nothing can be replayed without the handshake, so the handshake is never held back.
        let opening = self.opening.as_ref().map(|opening| opening.number);
        for line in &mut self.unanswered {
            let suspected = line.stops >= SUSPECT_AFTER && Some(line.number) != opening;
            line.replay = match suspected {
                true => ReplayState::Suspected,
                false => ReplayState::Unconfirmed,
            };
        }
    }

    /// Notes that the daemon is alive with the replayed requests, and replays the next suspected one.
    pub fn daemon_alive(&mut self) {
        self.alive = true;
        for line in &mut self.unanswered {
            if line.replay == ReplayState::Unconfirmed {
                (line.replay, line.stops) = (ReplayState::Settled, 0);
            }
        }
        let is_suspected = |line: &&mut PendingRequest| line.replay == ReplayState::Suspected;
        if let Some(line) = self.unanswered.iter_mut().find(is_suspected) {
            line.replay = ReplayState::Unconfirmed;
            let mut lines = line.replayed(SystemClock.mono());
            lines.extend_from_slice(check_line().as_bytes());
            self.send(&lines);
        }
    }

    /// Notes that the connection is lost, and appends the answers to requests that are given up to `out`.
    pub fn connection_lost(&mut self, log: &Path, out: &mut Vec<u8>) {
        for line in &mut self.unanswered {
            match line.replay {
                ReplayState::Unconfirmed => line.stops += 1,
                // The daemon went away without having received this request.
                ReplayState::Suspected if !self.alive => line.stops = 0,
                ReplayState::Suspected | ReplayState::Settled => {}
            }
        }
        // A request that nobody waits for is not worth another daemon.
        (self.cancelled).retain_mut(|(request, _)| {
            request.stops += 1;
            request.stops < SUSPECT_AFTER
        });
        let too_often = |line: &mut PendingRequest| line.stops >= STOP_LIMIT;
        let given_up: Vec<PendingRequest> = self.unanswered.extract_if(.., too_often).collect();
        for line in given_up {
            let opens = |opening: &mut PendingRequest| opening.number == line.number;
            self.opening.take_if(opens);
            out.extend_from_slice(&line.given_up(log));
            self.writing = true;
        }
    }
}

impl PendingRequest {
    /// Answer to a request that stopped [`STOP_LIMIT`] daemons.
    fn given_up(&self, log: &Path) -> Vec<u8> {
        let request: Value = serde_json::from_slice(&self.bytes).unwrap_or_default();
        let params = &request["params"];
        let place = match params["arguments"]["session_id"].as_str() {
            Some(session) => format!("session '{session}' itself goes on"),
            None => "a command that it started goes on, and terminal_session list shows it".into(),
        };
        let sentence = format!(
            "The abide daemon stopped {STOP_LIMIT} times in a row while it worked on this call, so the call \
             was given up; {place}. Do not repeat this call unchanged. The reason may be in {}.",
            log.display()
        );
        if request["method"] != "tools/call" {
            return error_line(Some(&self.id), -32603, &sentence);
        }
        let mut result = json!({
            "content": [{"type": "text", "text": sentence}],
            "structuredContent": {"text": sentence},
            "isError": true,
        });
        if !params["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null() {
            result["resultType"] = "complete".into();
        }
        answer_line(&self.id, "result", &result)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::super::front_hello::FrontHello;
    use super::super::outline::Outline;
    use super::*;

    const INITIALIZE: &str = r#"{"id":0,"method":"initialize"}"#;
    const INITIALIZED: &str = r#"{"method":"notifications/initialized"}"#;
    const CALL: &str =
        r#"{"id":1,"method":"tools/call","params":{"arguments":{"session_id":"s1"}}}"#;
    const OTHER: &str = r#"{"method":"tools/call","id":"two"}"#;
    const PING: &str = r#"{"id":3,"method":"ping"}"#;
    const CHECK: &str = "!check";

    fn state(lines: &[&str]) -> FrontState {
        let mut state = FrontState::new(FrontHello {
            front: "f".into(),
            cwd: "/".into(),
            ..FrontHello::default()
        });
        for line in lines {
            let outline = Outline::of(line.as_bytes());
            state.take(&outline, format!("{line}\n").as_bytes());
        }
        state
    }

    /// Lines that the next daemon is sent after the hello.
    fn connect(state: &mut FrontState) -> Vec<String> {
        let lines = String::from_utf8(state.replay()).unwrap();
        let line = |line| without_time(line).to_owned();
        let lines = lines.lines().skip(1);
        let lines = lines.filter(|line| !line.starts_with("!again "));
        lines.map(line).collect()
    }

    /// Simulates the loss of the daemon; returns the lines that the client is sent.
    fn stop(state: &mut FrontState) -> String {
        let mut out = Vec::new();
        state.connection_lost(Path::new("the log"), &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Simulates losses of the daemon until all requests in flight are suspected.
    fn suspect(state: &mut FrontState) {
        for _ in 0..SUSPECT_AFTER {
            connect(state);
            assert_eq!(stop(state), "");
        }
    }

    /// Simulates the daemon's confirmation that it is alive; returns the lines that the daemon is sent then.
    fn survive(state: &mut FrontState) -> Vec<String> {
        let (ours, mut daemon) = UnixStream::pair().unwrap();
        state.link = Some(ours);
        state.daemon_alive();
        state.link = None;
        let mut lines = String::new();
        daemon.read_to_string(&mut lines).unwrap();
        let line = |line| without_time(line).to_owned();
        lines.lines().map(line).collect()
    }

    #[test]
    fn request_that_stops_every_daemon_is_given_up_alone() {
        let mut state = state(&[INITIALIZE, INITIALIZED, CALL, OTHER]);
        state.unanswered.remove(0);
        suspect(&mut state);
        let mut lines = String::new();
        for _ in SUSPECT_AFTER..STOP_LIMIT {
            assert_eq!(lines, "");
            assert_eq!(connect(&mut state), [INITIALIZE, INITIALIZED, CHECK]);
            assert_eq!(survive(&mut state), ["!again 1", CALL, CHECK]);
            lines = stop(&mut state);
        }
        let answer: Value = serde_json::from_str(&lines).unwrap();
        assert_eq!(answer["id"], 1);
        assert_eq!(answer["result"]["isError"], true);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("session 's1' itself goes on"), "{text}");
        connect(&mut state);
        assert_eq!(survive(&mut state), ["!again 2", OTHER, CHECK]);
        assert!(survive(&mut state).is_empty());
        assert_eq!(stop(&mut state), "");
        assert!(
            connect(&mut state).contains(&OTHER.into()),
            "it is not suspected any more"
        );
    }

    #[test]
    fn handshake_that_stops_every_daemon_is_given_up() {
        let mut state = state(&[INITIALIZE]);
        let mut lines = String::new();
        for _ in 0..STOP_LIMIT {
            assert_eq!(lines, "");
            assert_eq!(connect(&mut state), [INITIALIZE, CHECK]);
            lines = stop(&mut state);
        }
        assert!(
            lines.starts_with(r#"{"jsonrpc":"2.0","id":0,"error":"#),
            "{lines}"
        );
        assert_eq!(connect(&mut state), Vec::<String>::new());
    }

    #[test]
    fn suspected_requests_are_replayed_one_by_one_while_the_daemon_lives() {
        let mut state = state(&[CALL, OTHER, PING]);
        suspect(&mut state);
        assert_eq!(connect(&mut state), [CHECK]);
        for (number, line) in [(0, CALL), (1, OTHER), (2, PING)] {
            assert_eq!(
                survive(&mut state),
                [&format!("!again {number}"), line, CHECK]
            );
        }
        assert!(survive(&mut state).is_empty());
        assert_eq!(connect(&mut state), [CALL, OTHER, PING, CHECK]);
    }

    #[test]
    fn request_is_not_suspected_when_a_daemon_goes_away_without_it() {
        let mut state = state(&[CALL]);
        for _ in 0..STOP_LIMIT {
            suspect(&mut state);
            assert_eq!(connect(&mut state), [CHECK]);
            assert_eq!(stop(&mut state), "");
        }
        assert_eq!(connect(&mut state), [CALL, CHECK]);
    }

    #[test]
    fn request_is_not_suspected_when_a_daemon_lives_with_it() {
        let mut state = state(&[CALL]);
        for _ in 0..STOP_LIMIT {
            for _ in 1..SUSPECT_AFTER {
                connect(&mut state);
                assert_eq!(stop(&mut state), "");
            }
            connect(&mut state);
            assert!(survive(&mut state).is_empty());
            assert_eq!(stop(&mut state), "");
        }
        assert_eq!(connect(&mut state), [CALL, CHECK]);
    }
}
