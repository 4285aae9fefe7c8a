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

use super::batch;
use super::control;
use super::front_state::State;
use super::hello::{Hello, RESENT};
use super::lines::{Lines, Piece};
use super::pending::Output;
use super::scan::{Kind, Outline};
use super::wire::{MESSAGE_LIMIT, refusal};
use crate::connect::{self, DaemonSocket};
use abide_engine::config::Paths;
use abide_engine::entropy;

/// Milliseconds to wait before each attempt to reach the daemon.
const ATTEMPTS: [u64; 7] = [0, 50, 100, 250, 500, 1_000, 2_000];
/// Limit on connections in a row that break before the daemon has sent a line.
const BREAKS: usize = 5;
/// Time to wait for each further answer at the end of input. A client that only wrote to a pipe and closed it
/// gets its answers unless they take long; a client that is gone loses nothing, and clients that terminate
/// the front wait longer than this.
const LAST_ANSWERS: Duration = Duration::from_millis(1_500);
/// Time to wait for each further answer if the input is a regular file, where the end of input does not mean
/// that the client is gone: practically unlimited.
const ALL_ANSWERS: Duration = Duration::from_secs(365 * 86_400);

/// Runs until the client closes its end.
pub fn front(paths: &Paths, agent: String) -> io::Result<()> {
    let front = Arc::new(Front {
        paths: paths.clone(),
        client: io::stdout().as_fd().try_clone_to_owned()?,
        output: Mutex::new(Output::new(io::stdout().as_fd().try_clone_to_owned()?)),
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
    paths: Paths,
    /// Standard output, for polling.
    client: OwnedFd,
    output: Mutex<Output>,
    state: Mutex<State>,
    /// Signalled when a request arrives while there is no connection, when a connection is made, and when an
    /// answer has been written.
    changed: Condvar,
}

impl Front {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    // ---- from the client to the daemon

    fn pass_on(&self, input: File) -> io::Result<()> {
        let mut lines = Lines::new(MESSAGE_LIMIT);
        loop {
            self.wait_for_room(&input)?;
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
            let mut asked = [
                PollFd::new(&self.client, PollFlags::OUT),
                PollFd::new(input, PollFlags::empty()),
            ];
            match poll(&mut asked, None) {
                Ok(_) if !asked[1].revents().is_empty() => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn client_says(&self, line: &[u8]) {
        // The added space keeps the daemon from taking a client's line for a control line of the front; the
        // daemon refuses the line as no valid message.
        if line.starts_with(control::PREFIX) {
            return self.client_says(&[b" ", line].concat());
        }
        let mut out = Vec::new();
        let outline = Outline::of(line);
        let mut state = self.state();
        // A batch that cannot be parsed is forwarded as a single line; the daemon refuses it.
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
        if let Some(sentence) = batch::objection(messages) {
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

    /// Waits as long as answers keep arriving within `patience`. Without a connection there is no time limit:
    /// the other thread either connects or gives up, and giving up answers every request.
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

    /// Connects, forwards answers until the connection breaks, and reconnects while requests are unanswered.
    /// With no unanswered request the thread waits for the next one: a daemon that was stopped is not
    /// restarted without need.
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

    /// Connects with retries and back-off. The more connections broke before, the longer the first delay.
    fn connect(&self, breaks: usize) -> io::Result<UnixStream> {
        let mut last = io::Error::from(io::ErrorKind::NotConnected);
        for wait in &ATTEMPTS[breaks.min(ATTEMPTS.len() - 1)..] {
            self.back_off(Duration::from_millis(*wait));
            match connect::connect(&self.paths, DaemonSocket::Mcp).and_then(|link| self.join(link))
            {
                Ok(link) => return Ok(link),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Replays the state to the daemon before any new line may use the connection: the lock is held meanwhile.
    fn join(&self, mut link: UnixStream) -> io::Result<UnixStream> {
        let theirs = link.try_clone()?;
        let mut state = self.state();
        let said = state.catch_up();
        link.write_all(&said)?;
        state.link = Some(link);
        // Replaying forgets requests that were cancelled meanwhile, which may complete a batch.
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

    /// Forwards answers until the connection breaks. Returns true if the daemon has sent anything.
    fn bring(&self, link: UnixStream) -> bool {
        let mut lines = Lines::new(usize::MAX);
        let link = File::from(OwnedFd::from(link));
        let mut any = false;
        let mut out = Vec::new();
        while self.awaited(&link) && lines.fill(&link).unwrap_or(false) {
            while let Some(Piece::Line(line)) = lines.next(false) {
                any = true;
                if line.starts_with(control::PREFIX) {
                    self.control(line);
                    continue;
                }
                self.daemon_says(line, &mut out);
            }
            self.output().queue(&out);
            out.clear();
        }
        any
    }

    /// Waits until the daemon sends something, and meanwhile writes pending output to the client, so that a
    /// client that does not read blocks no other thread. Returns false if polling fails.
    fn awaited(&self, link: &File) -> bool {
        loop {
            let mut output = self.output();
            let Ok(waiting) = output.write_some() else {
                std::process::exit(0);
            };
            let room = output.has_room();
            drop(output);
            if !waiting {
                self.wrote();
            }
            let mut asked = Vec::with_capacity(2);
            if room {
                asked.push(PollFd::new(link, PollFlags::IN));
            }
            if waiting {
                asked.push(PollFd::new(&self.client, PollFlags::OUT));
            }
            if matches!(poll(&mut asked, None), Err(e) if e != Errno::INTR) {
                return false;
            }
            if room && !asked[0].revents().is_empty() {
                return true;
            }
        }
    }

    /// Notes that the client has all answers.
    fn wrote(&self) {
        if std::mem::take(&mut self.state().writing) {
            self.changed.notify_all();
        }
    }

    fn control(&self, line: &[u8]) {
        if line == control::ALIVE.as_bytes() {
            self.state().survived();
        }
    }

    /// Notes a line from the daemon, and appends to `out` what the client should see of it.
    fn daemon_says(&self, line: &[u8], out: &mut Vec<u8>) {
        let outline = Outline::of_the_daemons(line);
        let mut state = self.state();
        match (outline.kind(), outline.id) {
            (Kind::Answer, Some(id)) => return state.answered(&id, line, out),
            (Kind::Request, Some(id)) => state.ask(id),
            _ => {}
        }
        out.extend_from_slice(line);
    }

    /// Handles a lost connection. Questions that the daemon had asked the client are cancelled, because the
    /// next daemon asks them again under other ids. A request that stopped several daemons in a row is
    /// answered here with an error.
    fn lost(&self) {
        let mut out = Vec::new();
        let mut state = self.state();
        state.link = None;
        state.stopped(&self.paths.daemon_log(), &mut out);
        let asked = std::mem::take(&mut state.asked);
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
            state.held.clear();
            state.writing = true;
            for line in std::mem::take(&mut state.unanswered) {
                let refusal = refusal(Some(&line.id), -32603, &sentence);
                state.tell(&line.id, &refusal, &mut out);
            }
        }
        self.write_answers(&out);
    }

    /// Writes answers, then clears `writing`: the thread that waits for the last answers ends the process,
    /// and must not do so before they are written.
    fn write_answers(&self, lines: &[u8]) {
        self.write_all(lines);
        self.wrote();
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().expect("no holder panics")
    }

    /// Writes whole lines. With nothing to write it returns at once, without waiting for a client that reads slowly.
    fn write(&self, lines: &[u8]) {
        if !lines.is_empty() {
            self.write_all(lines);
        }
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
