//! `abide mcp`: what a client starts. It copies lines between its own standard input and output and
//! the daemon's socket, and ends with its client; sessions do not.
//!
//! A daemon may go away while calls are unanswered (killed, or replaced by a newer one). The front
//! then finds or starts the next, says again how the session with the client began and what has not
//! been answered, each request under its old number, and the client notices nothing. For this it
//! keeps the opening lines and the lines that wait for an answer, and nothing else.

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
/// Connections in a row that may break before they brought a single line.
const BREAKS: usize = 5;
/// At the end of input, how long the next of the answers that are about to come is waited for. A
/// client that is gone does not mind, and one that ends us is patient for longer; a pipe that was only
/// written to gets what it asked for, unless that takes long.
const LAST_ANSWERS: Duration = Duration::from_millis(1_500);
/// The same where the input is a file, behind which nobody can be gone: as long as it takes.
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
    /// What the client reads from.
    client: OwnedFd,
    output: Mutex<Output>,
    state: Mutex<State>,
    /// A request came while there was no connection, there is one again, or one was answered.
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

    /// Nothing more is asked for a client that does not read its answers, unless it has closed its end.
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
        // The daemon refuses it as no message, and must not take it for a control line of the front.
        if line.starts_with(control::PREFIX) {
            return self.client_says(&[b" ", line].concat());
        }
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
            match connect::connect(&self.paths, DaemonSocket::Mcp).and_then(|link| self.join(link))
            {
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

    /// Copies answers until the connection breaks. Whether the daemon has said anything.
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

    /// Waits until the daemon says something. Meanwhile the client gets what waits for it: one that does
    /// not read keeps nobody from being heard.
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

    /// The client has all answers.
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

    /// Notes a line from the daemon. What the client should see of it is put into `out`.
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

    /// The connection is gone. What it had asked the client will be asked again under another id, so
    /// the old question is taken away. A request that stops every daemon is answered here.
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

    /// The daemon cannot be reached: every unanswered request is refused.
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

    /// Whoever waits for the last answers ends the program: only when they have left.
    fn write_answers(&self, lines: &[u8]) {
        self.write_all(lines);
        self.wrote();
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().expect("no holder panics")
    }

    /// Whole lines only. Whoever has nothing to say does not wait for a client that reads slowly.
    fn write(&self, lines: &[u8]) {
        if !lines.is_empty() {
            self.write_all(lines);
        }
    }

    /// These and all before them. A client that no longer reads has gone.
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
