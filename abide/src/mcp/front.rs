//! `abide mcp`: the process that an MCP client starts. The front copies lines between its own standard input
//! and output and the daemon's socket, and exits with its client; sessions live on in the daemon.
//!
//! A daemon may go away while calls are unanswered (killed, or replaced by a newer one). The front then
//! connects to the next daemon, or starts one, and replays the opening of the MCP session and the unanswered
//! requests, each under its old number, so that the client notices nothing. For this the front keeps the
//! opening lines and the lines that wait for an answer, and nothing else.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::client_output::ClientOutput;
use super::control;
use super::front_hello::{FrontHello, UNANSWERED_LIMIT};
use super::front_state::FrontState;
use super::json_line::{ID_IN_USE, MESSAGE_LIMIT, error_line};
use super::line_splitter::{LineSplitter, SplitLine};
use super::outline::{MessageKind, Outline};
use crate::connect::{self, DaemonSocket};
use abide_engine::config::Paths;
use abide_engine::secret;

/// Milliseconds to wait before each attempt to reach the daemon.
const ATTEMPTS: [u64; 7] = [0, 50, 100, 250, 500, 1_000, 2_000];
/// Limit on connections in a row that break before the daemon has sent a line.
const BREAK_LIMIT: usize = 5;
/// Limit on attempts of a front without requests to reach the next daemon, and the milliseconds between two of them after the
/// first ones. Together about a minute; the pause is shorter than the time after which its conversation counts as ended.
const IDLE_ATTEMPTS: usize = 30;
const IDLE_PAUSE: u64 = 2_000;
/// Time to wait for each further answer at the end of input. A client that only wrote to a pipe and closed it
/// gets its answers unless they take long; a client that is gone loses nothing, and clients that terminate
/// the front wait longer than this.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Time to wait for each further answer if the input is a regular file, where the end of input does not mean
/// that the client is gone: practically unlimited.
const FILE_ANSWER_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);

/// Runs until the client closes its end.
pub fn front(paths: &Paths, agent: String) -> io::Result<()> {
    let front = Arc::new(Front {
        paths: paths.clone(),
        client: io::stdout().as_fd().try_clone_to_owned()?,
        output: Mutex::new(ClientOutput::new(
            io::stdout().as_fd().try_clone_to_owned()?,
        )),
        state: Mutex::new(FrontState::new(new_hello(agent)?)),
        changed: Condvar::new(),
    });
    let answers = front.clone();
    std::thread::Builder::new()
        .name("answers".into())
        .spawn(move || answers.forward_answers())?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    front.forward_input(input)
}

fn new_hello(agent: String) -> io::Result<FrontHello> {
    Ok(FrontHello {
        front: secret::random_hex::<16>(),
        cwd: std::env::current_dir()?,
        agent,
        env: std::env::vars_os().collect(),
        ..FrontHello::default()
    })
}

struct Front {
    paths: Paths,
    /// Standard output, for polling.
    client: OwnedFd,
    output: Mutex<ClientOutput>,
    state: Mutex<FrontState>,
    /// Signalled when a request arrives while there is no connection, when a connection is made, and when an
    /// answer has been written.
    changed: Condvar,
}

impl Front {
    fn state(&self) -> MutexGuard<'_, FrontState> {
        self.state.lock().expect("no holder panics")
    }

    // ---- from the client to the daemon

    fn forward_input(&self, input: File) -> io::Result<()> {
        let mut lines = LineSplitter::new(MESSAGE_LIMIT);
        loop {
            self.wait_for_room(&input)?;
            let more = lines.fill(&input)?;
            while let Some(piece) = lines.next(!more) {
                match piece {
                    SplitLine::Line(line) => self.take_client_line(line),
                    SplitLine::TooLong => {
                        let outline = lines.skip_line(&input)?;
                        self.write_all(&error_line(outline.id.as_deref(), -32600, &too_long()));
                    }
                }
            }
            if !more {
                let is_file = input.metadata().is_ok_and(|input| input.is_file());
                self.wait_for_last_answers(if is_file {
                    FILE_ANSWER_TIMEOUT
                } else {
                    ANSWER_TIMEOUT
                });
                return Ok(());
            }
        }
    }

    /// Blocks while the client does not read its answers, so that no more requests are forwarded for it.
    /// Returns also when the client has closed its end.
    fn wait_for_room(&self, input: &File) -> io::Result<()> {
        loop {
            let mut output = self.output();
            if !output.has_room() && output.write_some().is_err() {
                std::process::exit(0);
            }
            if output.has_room() {
                return Ok(());
            }
            drop(output);
            let mut fds = [
                PollFd::new(&self.client, PollFlags::OUT),
                PollFd::new(input, PollFlags::empty()),
            ];
            match poll(&mut fds, None) {
                Ok(_) if !fds[1].revents().is_empty() => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn take_client_line(&self, line: &[u8]) {
        // The added space keeps the daemon from taking a client's line for a control line of the front; the
        // daemon refuses the line as no valid message.
        if line.starts_with(control::PREFIX) {
            return self.take_client_line(&[b" ", line].concat());
        }
        let outline = Outline::of(line);
        let mut state = self.state();
        if outline.kind() == MessageKind::Request {
            let id = outline.id.as_deref();
            let refusal = if state.unanswered.len() >= UNANSWERED_LIMIT {
                let sentence = format!("{UNANSWERED_LIMIT} requests wait for an answer already");
                Some(error_line(id, -32603, &sentence))
            } else if state
                .unanswered
                .iter()
                .any(|request| Some(&*request.id) == id)
            {
                Some(error_line(id, -32600, ID_IN_USE))
            } else {
                None
            };
            if let Some(refusal) = refusal {
                drop(state);
                return self.write_all(&refusal);
            }
        }
        state.take(&outline, line);
        if state.link.is_none() && outline.kind() == MessageKind::Request {
            self.changed.notify_all();
        }
    }

    /// Waits as long as answers keep arriving within `timeout`. Without a connection there is no time limit:
    /// the other thread either connects or gives up, and giving up answers every request.
    fn wait_for_last_answers(&self, timeout: Duration) {
        let mut state = self.state();
        state.input_ended = true;
        while state.pending() > 0 || state.writing {
            let before = (state.pending(), state.writing);
            let same = |state: &FrontState| (state.pending(), state.writing) == before;
            if state.link.is_none() && !state.writing {
                let unlinked = |state: &mut FrontState| state.link.is_none() && same(state);
                state = self
                    .changed
                    .wait_while(state, unlinked)
                    .expect("no holder panics");
                continue;
            }
            let quiet =
                |state: &mut FrontState| (state.link.is_some() || state.writing) && same(state);
            let (next, waited) = self
                .changed
                .wait_timeout_while(state, timeout, quiet)
                .expect("no holder panics");
            if waited.timed_out() {
                return;
            }
            state = next;
        }
    }

    // ---- from the daemon to the client

    /// Connects, forwards answers until the connection breaks, and reconnects while requests are pending.
    /// With no pending request the thread connects to the next daemon that runs, so that the conversation does not end,
    /// or waits for a request: a daemon that was stopped is not restarted without need.
    fn forward_answers(&self) {
        let mut breaks = 0;
        let mut idle_attempts = 0;
        let mut found = None;
        loop {
            match found.take().map_or_else(|| self.connect(breaks), Ok) {
                Ok(link) => {
                    (breaks, idle_attempts) = match self.forward_from(link) {
                        true => (0, 0),
                        false => (breaks + 1, idle_attempts),
                    };
                    self.connection_lost();
                    if breaks >= BREAK_LIMIT {
                        breaks = 0;
                        self.give_up("it stopped several times in a row while it was called");
                    }
                }
                Err(e) => self.give_up(&e.to_string()),
            }
            while found.is_none() && idle_attempts < IDLE_ATTEMPTS && self.is_idle() {
                let pause = ATTEMPTS.get(idle_attempts).unwrap_or(&IDLE_PAUSE);
                idle_attempts += 1;
                found = self.connect_while_idle(Duration::from_millis(*pause));
            }
            if found.is_none() {
                let idle = |state: &mut FrontState| state.pending() == 0;
                drop(self.changed.wait_while(self.state(), idle));
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.state().pending() == 0
    }

    /// Waits, and connects to a daemon that runs then. `None`: there is none, or a request came.
    fn connect_while_idle(&self, pause: Duration) -> Option<UnixStream> {
        let idle = |state: &mut FrontState| state.pending() == 0;
        drop(self.changed.wait_timeout_while(self.state(), pause, idle));
        if !self.is_idle() {
            return None;
        }
        let link = connect::connect_current(&self.paths, DaemonSocket::Mcp);
        link.and_then(|link| self.replay_state(link)).ok()
    }

    /// Connects with retries and back-off. The more connections broke before, the longer the first delay.
    fn connect(&self, breaks: usize) -> io::Result<UnixStream> {
        let mut last = io::Error::from(io::ErrorKind::NotConnected);
        for wait in &ATTEMPTS[breaks.min(ATTEMPTS.len() - 1)..] {
            self.back_off(Duration::from_millis(*wait));
            match connect::connect(&self.paths, DaemonSocket::Mcp)
                .and_then(|link| self.replay_state(link))
            {
                Ok(link) => return Ok(link),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Replays the state to the daemon before any new line may use the connection: the lock is held meanwhile.
    fn replay_state(&self, mut link: UnixStream) -> io::Result<UnixStream> {
        let theirs = link.try_clone()?;
        let mut state = self.state();
        let lines = state.replay();
        link.write_all(&lines)?;
        state.link = Some(link);
        drop(state);
        self.changed.notify_all();
        Ok(theirs)
    }

    fn back_off(&self, delay: Duration) {
        if !delay.is_zero() {
            let _ = self
                .changed
                .wait_timeout_while(self.state(), delay, |_| true);
        }
    }

    /// Forwards answers until the connection breaks. Returns true if the daemon has sent anything.
    fn forward_from(&self, link: UnixStream) -> bool {
        let mut lines = LineSplitter::new(usize::MAX);
        let link = File::from(OwnedFd::from(link));
        let mut any = false;
        let mut out = Vec::new();
        while self.wait_readable(&link) && lines.fill(&link).unwrap_or(false) {
            while let Some(SplitLine::Line(line)) = lines.next(false) {
                any = true;
                if line.starts_with(control::PREFIX) {
                    self.control(line);
                    continue;
                }
                self.take_daemon_line(line, &mut out);
            }
            self.output().queue(&out);
            out.clear();
        }
        any
    }

    /// Waits until the daemon sends something, and meanwhile writes pending output to the client, so that a
    /// client that does not read blocks no other thread. Returns false if polling fails.
    fn wait_readable(&self, link: &File) -> bool {
        loop {
            let mut output = self.output();
            let Ok(waiting) = output.write_some() else {
                std::process::exit(0);
            };
            let room = output.has_room();
            drop(output);
            if !waiting {
                self.all_written();
            }
            let mut fds = Vec::with_capacity(2);
            if room {
                fds.push(PollFd::new(link, PollFlags::IN));
            }
            if waiting {
                fds.push(PollFd::new(&self.client, PollFlags::OUT));
            }
            if matches!(poll(&mut fds, None), Err(e) if e != Errno::INTR) {
                return false;
            }
            if room && !fds[0].revents().is_empty() {
                return true;
            }
        }
    }

    /// Notes that the client has all answers.
    fn all_written(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.writing) && state.input_ended {
            self.changed.notify_all();
        }
    }

    fn control(&self, line: &[u8]) {
        self.state().take_control(line);
        self.changed.notify_all();
    }

    /// Notes a line from the daemon, and appends to `out` what the client should see of it.
    fn take_daemon_line(&self, line: &[u8], out: &mut Vec<u8>) {
        let outline = Outline::of(line);
        let mut state = self.state();
        match (outline.kind(), outline.id) {
            (MessageKind::Response, Some(id)) => return state.answered(&id, line, out),
            (MessageKind::Request, Some(id)) => state.record_daemon_request(id),
            _ => {}
        }
        out.extend_from_slice(line);
    }

    /// Handles a lost connection. Questions that the daemon had asked the client are cancelled, because the
    /// next daemon asks them again under other ids. A request that stopped several daemons in a row is
    /// answered here with an error.
    fn connection_lost(&self) {
        let mut out = Vec::new();
        let mut state = self.state();
        state.link = None;
        state.connection_lost(&self.paths.daemon_log(), &mut out);
        let asked = std::mem::take(&mut state.daemon_requests);
        drop(state);
        for id in asked {
            out.extend_from_slice(
                br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#,
            );
            out.extend_from_slice(&id);
            out.extend_from_slice(b",\"reason\":\"the question will be asked again\"}}\n");
        }
        self.write_answers(&out);
    }

    /// Refuses every unanswered request because the daemon cannot be reached.
    fn give_up(&self, why: &str) {
        let sentence = format!(
            "the abide daemon cannot be reached: {why}. Running commands continue. Run \
             `abide doctor` to find the cause; the next call tries again."
        );
        let mut out = Vec::new();
        {
            let mut state = self.state();
            state.queued.clear();
            state.cancelled.clear();
            state.writing = true;
            for line in std::mem::take(&mut state.unanswered) {
                let refusal = error_line(Some(&line.id), -32603, &sentence);
                out.extend_from_slice(&refusal);
            }
        }
        self.write_answers(&out);
    }

    /// Writes answers, then clears `writing`: the thread that waits for the last answers ends the process,
    /// and must not do so before they are written.
    fn write_answers(&self, lines: &[u8]) {
        self.write_all(lines);
        self.all_written();
    }

    fn output(&self) -> MutexGuard<'_, ClientOutput> {
        self.output.lock().expect("no holder panics")
    }

    /// Writes all pending output and these lines. If the client no longer reads, the process exits.
    fn write_all(&self, lines: &[u8]) {
        let mut output = self.output();
        output.queue(lines);
        if output.write_all().is_err() {
            std::process::exit(0);
        }
    }
}

fn too_long() -> String {
    format!("the message is longer than {MESSAGE_LIMIT} bytes")
}
