//! A session from its start to its last process: output, ending, remaining processes, deadlines. Works
//! without a daemon.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use abide_core::{Containment, End, Exit, Sandboxed};
use rustix::process::Signal;

use super::cgroup::SessionCgroup;
use super::child_input::ChildInput;
use super::clock::{boot_ms, mono_ms};
use super::crash::crash_point;
use super::frame::{Exited, FromKeeper, ToKeeper};
use super::keeper_record::{self, RecordedEnding};
use super::launch::{Launch, Size, Stdin};
use super::log::{LogWriter, OutputRead, READ_SIZE, Stream};
use super::nsinit::Namespace;
use super::proc;
use super::resources::OomWatch;
use super::sandbox::RunSandbox;
use super::spawn::{KeeperEnds, Pty, Spawned, winsize};
use super::tree;

/// Time for which output is awaited after the leader has ended.
const DRAIN_GRACE_MS: u64 = 20;
/// Delay of the `Started` frame, which is then sent together with the ending: most commands are short, and
/// the daemon is woken once instead of twice.
const STARTED_DELAY_MS: u64 = 3;
/// Interval between kills of a tree that does not end.
const KILL_RETRY_MS: u64 = 50;
/// Interval after the tree was reported not to die.
const KILL_SLOW_RETRY_MS: u64 = 1_000;
/// After this time a process that does not die is reported.
const KILL_PENDING_MS: u64 = 5_000;
/// Bytes read from one stream before the others have their turn.
const TURN_LIMIT: u64 = 4 << 20;
/// Bytes read from a terminal at the end of its leader.
const TERMINAL_REST: u64 = 1 << 20;

/// A session that was started.
pub struct CommandRun {
    pub own: RunResources,
    /// Input of the leader.
    pub input: ChildInput,
    /// Time between SIGTERM and SIGKILL.
    pub grace_ms: u32,
    root: i32,
    leader: i32,
    init_is_exiting: bool,
    has_outsiders: bool,
    log: LogWriter,
    streams: [Option<(OwnedFd, Stream)>; 2],
    pty: Option<Pty>,
    quiet_since: u64,
    deadline: Option<u64>,
    killing: Killing,
    kill_reason: Option<End>,
    state: State,
    tree_is_empty: bool,
    /// Log length at which the daemon wants a `Grew` frame.
    watch_beyond: Option<u64>,
    started_due: Option<u64>,
    notices: Vec<FromKeeper>,
}

/// Resources that a run takes over from its keeper.
pub struct RunResources {
    /// Containment of the tree.
    pub contained_by: Containment,
    /// cgroup of the tree.
    pub cgroup: Option<SessionCgroup>,
    /// Pid namespace of the tree.
    pub namespace: Option<Namespace>,
    /// Sandbox of the tree.
    pub sandbox: Option<RunSandbox>,
    /// Counter of OOM kills before the start.
    pub oom: OomWatch,
    /// Time before the start, on the monotonic and on the boot-time clock.
    pub begun: (u64, u64),
    /// The record file.
    pub record: Rc<OwnedFd>,
    /// Directory of the log.
    pub log_folder: Rc<OwnedFd>,
}

/// State of the leader.
enum State {
    Running,
    /// The leader has ended; output is awaited until then.
    Draining {
        ending: Exited,
        until: u64,
    },
    /// The ending is recorded, as are an empty tree and closed streams, then or later.
    Recorded {
        ending: Exited,
        is_emptied: bool,
        is_closed: bool,
    },
}

/// Progress of a kill.
enum Killing {
    No,
    /// SIGTERM was sent; SIGKILL follows at this time.
    Asked {
        until: u64,
    },
    /// SIGKILL was sent.
    Hard {
        since: u64,
        again: u64,
    },
    /// The tree was reported not to die; SIGKILL is repeated at this time.
    Reported {
        again: u64,
    },
}

impl CommandRun {
    pub(super) fn new(launch: &Launch, spawned: Spawned, own: RunResources) -> Self {
        let now = mono_ms();
        let KeeperEnds {
            streams,
            input,
            pty,
        } = spawned.ends;
        let mut input = ChildInput::new(input, pty.is_some());
        match &launch.stdin {
            Stdin::None if pty.is_none() => input.close(),
            Stdin::Bytes(bytes) => {
                input.push(bytes.clone(), None);
                input.close();
                input.flush();
            }
            Stdin::None | Stdin::Open => {}
        }
        let mut streams = streams.into_iter();
        CommandRun {
            input,
            grace_ms: launch.record.grace_ms,
            root: std::process::id() as i32,
            leader: spawned.leader,
            init_is_exiting: false,
            has_outsiders: false,
            log: LogWriter::new(own.log_folder.clone(), launch.record.log_quota),
            streams: [streams.next(), streams.next()],
            pty,
            quiet_since: now,
            deadline: launch
                .record
                .deadline_ms
                .map(|limit| own.begun.0.saturating_add(limit)),
            killing: Killing::No,
            kill_reason: None,
            state: State::Running,
            tree_is_empty: false,
            watch_beyond: None,
            started_due: Some(now + started_delay(launch)),
            notices: Vec::new(),
            own,
        }
    }

    fn started(&self) -> FromKeeper {
        FromKeeper::Started {
            pid: self.leader as u32,
            at_mono_ms: self.own.begun.0,
            contained_by: self.own.contained_by,
            sandboxed: (self.own.sandbox.as_ref())
                .map_or(Sandboxed::OFF, |sandbox| sandbox.sandboxed.clone()),
        }
    }

    /// Frames that describe the current state, for a newly connected daemon.
    pub fn state_frames(&mut self) -> Vec<FromKeeper> {
        self.watch_beyond = None;
        self.started_due = None;
        let mut frames = vec![self.started()];
        match &self.state {
            State::Running | State::Draining { .. } => frames.push(self.grew()),
            State::Recorded { ending, .. } => {
                frames.push(FromKeeper::Exited(*ending));
                if self.tree_is_empty && !ending.empty {
                    frames.push(FromKeeper::Emptied);
                }
                if self.streams_are_closed() && !ending.closed {
                    frames.push(FromKeeper::Closed);
                }
            }
        }
        frames.extend(self.retry_reported_kill());
        frames
    }

    /// True once the ending is recorded, the tree is empty and the streams are closed.
    pub fn is_over(&self) -> bool {
        matches!(
            self.state,
            State::Recorded {
                is_emptied: true,
                is_closed: true,
                ..
            }
        )
    }

    /// Streams that are open.
    pub fn open_streams(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let all = self.streams.iter().enumerate();
        all.filter_map(|(at, source)| source.as_ref().map(|(fd, _)| (at, fd.as_fd())))
    }

    /// `cgroup.events`, while the keeper waits for the cgroup to become empty.
    pub fn group_events(&self) -> Option<BorrowedFd<'_>> {
        let cgroup = self.own.cgroup.as_ref().filter(|_| self.has_outsiders)?;
        Some(cgroup.events.as_fd())
    }

    /// Time of the next deadline.
    pub fn next_alarm(&self) -> Option<u64> {
        let deadline = match self.state {
            State::Running => self.deadline,
            State::Draining { .. } | State::Recorded { .. } => None,
        };
        let drain = match self.state {
            State::Draining { until, .. } => Some(until),
            State::Running | State::Recorded { .. } => None,
        };
        let kill = match self.killing {
            Killing::No => None,
            Killing::Asked { until } => Some(until),
            Killing::Hard { again, .. } | Killing::Reported { again } => Some(again),
        };
        [
            deadline,
            drain,
            kill.filter(|_| !self.tree_is_empty),
            self.next_layer_check(),
            self.started_due,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Time of the next check of the layers of the sandbox.
    fn next_layer_check(&self) -> Option<u64> {
        let sandbox = self.own.sandbox.as_ref().filter(|_| !self.tree_is_empty)?;
        sandbox.supervision.next_layer_check()
    }

    /// Ends the tree if it has made what makes git look elsewhere for its configuration.
    pub fn check_git_watch(&mut self) {
        if self
            .own
            .sandbox
            .as_mut()
            .is_some_and(RunSandbox::check_git_watch)
        {
            self.kill(End::Sandbox, 0);
        }
    }

    /// Reads what a stream has.
    pub fn read_output(&mut self, at: usize) {
        let mut left = TURN_LIMIT;
        while left > 0 {
            match self.read_once(at, left) {
                OutputRead::Bytes(count) if count >= READ_SIZE as u64 => {
                    left = left.saturating_sub(count);
                }
                OutputRead::Bytes(_) | OutputRead::Nothing | OutputRead::Closed => return,
            }
        }
    }

    /// Handles a stream whose writers are gone and that is empty. The end of a terminal is only seen by
    /// reading.
    pub fn handle_stream_end(&mut self, at: usize) {
        match &self.streams[at] {
            Some((_, Stream::Pty)) => self.read_output(at),
            _ => self.streams[at] = None,
        }
    }

    fn read_once(&mut self, at: usize, max: u64) -> OutputRead {
        let Some((fd, stream)) = &self.streams[at] else {
            return OutputRead::Closed;
        };
        let taken = self.log.take(fd.as_fd(), *stream, max as usize);
        match taken {
            OutputRead::Bytes(_) => self.quiet_since = mono_ms(),
            OutputRead::Nothing => {}
            OutputRead::Closed => self.streams[at] = None,
        }
        taken
    }

    /// Reads what is in the pipes now, however much is written meanwhile.
    fn drain(&mut self) {
        for at in 0..self.streams.len() {
            // One more than there is: the last attempt tells whether the stream is closed.
            let mut left = match &self.streams[at] {
                None => continue,
                Some((_, Stream::Pty)) => TERMINAL_REST,
                Some((fd, _)) => rustix::io::ioctl_fionread(fd).unwrap_or(0) + 1,
            };
            while left > 0 {
                match self.read_once(at, TURN_LIMIT) {
                    OutputRead::Bytes(count) => left = left.saturating_sub(count),
                    OutputRead::Nothing | OutputRead::Closed => break,
                }
            }
        }
    }

    /// Writes queued input to the child.
    pub fn write_input(&mut self) {
        let bytes = self.input.flush();
        self.input_taken(bytes);
    }

    fn input_taken(&mut self, bytes: u64) {
        let dropped = self.input.take_dropped();
        if dropped > 0 {
            self.notices
                .push(FromKeeper::InputDropped { bytes: dropped });
        }
        if bytes > 0 {
            self.notices.push(FromKeeper::InputTaken { bytes });
        }
    }

    /// Carries out a frame of the daemon. Frames that begin or follow a run are handled by the keeper.
    pub fn handle_frame(&mut self, frame: ToKeeper) {
        match frame {
            ToKeeper::Hello | ToKeeper::Start(_) | ToKeeper::Ack | ToKeeper::Renew { .. } => {}
            ToKeeper::Kill { end, grace_ms } => self.kill(end, grace_ms),
            ToKeeper::Forced { end } => {
                if matches!(self.state, State::Running) {
                    self.kill_reason.get_or_insert(end);
                }
            }
            ToKeeper::Deadline { in_ms: 0 } => self.deadline = None,
            ToKeeper::Deadline { in_ms } => {
                self.deadline = Some(mono_ms().saturating_add(in_ms));
            }
            ToKeeper::Look => self.notices.push(self.grew()),
            ToKeeper::Watch { beyond } => self.watch_beyond = Some(beyond),
            ToKeeper::Input { bytes, once } => {
                let unwanted = self.input.push(bytes, once);
                self.input_taken(unwanted);
                self.write_input();
            }
            ToKeeper::CloseInput => {
                self.input.close();
                self.write_input();
            }
            ToKeeper::Resize { cols, rows } => {
                if let Some(pty) = &self.pty {
                    let size = winsize(Size { cols, rows });
                    let _ = rustix::termios::tcsetwinsize(&pty.master, size);
                }
            }
            ToKeeper::Signal { number, once } => {
                if once.is_none_or(|name| self.input.is_new(&name)) {
                    self.signal(number);
                }
            }
        }
    }

    fn signal(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else {
            return;
        };
        self.reap();
        let front = self.pty.as_ref().and_then(|pty| {
            let group = rustix::termios::tcgetpgrp(&pty.master).ok()?;
            Some(group.as_raw_nonzero().get())
        });
        tree::signal_group(self.root, front.unwrap_or(self.leader), signal);
    }

    fn grew(&self) -> FromKeeper {
        FromKeeper::Grew {
            bytes: self.log.end(),
            quiet_since_mono_ms: self.quiet_since,
        }
    }

    /// Ends the tree: SIGTERM, and SIGKILL after the grace. The first reason stays; a leader that has
    /// already ended keeps its ending.
    pub fn kill(&mut self, end: End, grace_ms: u32) {
        self.reap();
        if self.tree_is_empty {
            return;
        }
        if matches!(self.state, State::Running) {
            self.kill_reason.get_or_insert(end);
        }
        let until = mono_ms() + u64::from(grace_ms);
        match &mut self.killing {
            // The daemon that asks now may not have received the report.
            Killing::Hard { .. } | Killing::Reported { .. } => {
                let report = self.retry_reported_kill();
                self.notices.extend(report);
            }
            _ if grace_ms == 0 => self.kill_hard(),
            Killing::Asked { until: before } => *before = until.min(*before),
            Killing::No => {
                self.killing = Killing::Asked { until };
                let signals: &[Signal] = match self.pty {
                    Some(_) => &[Signal::TERM, Signal::HUP, Signal::CONT],
                    None => &[Signal::TERM, Signal::CONT],
                };
                tree::signal_all(self.root, self.own.cgroup.as_ref(), signals);
                crash_point("keeper.after_term");
            }
        }
    }

    fn kill_hard(&mut self) {
        let now = mono_ms();
        self.killing = Killing::Hard {
            since: now,
            again: now + KILL_RETRY_MS,
        };
        self.kill_tree();
    }

    /// Kills a tree again that was reported not to die. Returns the report, unless no process is left.
    fn retry_reported_kill(&self) -> Option<FromKeeper> {
        if self.tree_is_empty || !matches!(self.killing, Killing::Reported { .. }) {
            return None;
        }
        let left = self.kill_tree() as u32;
        (left > 0).then_some(FromKeeper::KillPending { left })
    }

    fn kill_tree(&self) -> usize {
        if let Some(namespace) = &self.own.namespace {
            namespace.kill();
        }
        tree::kill_all(self.root, self.own.cgroup.as_ref())
    }

    /// Handles deadlines that have passed.
    pub fn handle_alarms(&mut self) {
        let now = mono_ms();
        if matches!(self.state, State::Running) && self.deadline.is_some_and(|at| at <= now) {
            self.reap();
            if matches!(self.state, State::Running) {
                crash_point("keeper.at_deadline");
                self.deadline = None;
                self.kill_reason.get_or_insert(End::Deadline);
                self.kill_hard();
            }
        }
        if self.next_layer_check().is_some_and(|at| at <= now)
            && let Some(sandbox) = &mut self.own.sandbox
            && sandbox.check_layers(now)
        {
            self.kill(End::Sandbox, 0);
        }
        match self.killing {
            _ if self.tree_is_empty => {}
            Killing::Asked { until } if until <= now => self.kill_hard(),
            Killing::Hard { again, .. } | Killing::Reported { again } if again <= now => {
                self.kill_again(now);
            }
            Killing::No
            | Killing::Asked { .. }
            | Killing::Hard { .. }
            | Killing::Reported { .. } => {}
        }
    }

    fn kill_again(&mut self, now: u64) {
        self.reap();
        if self.tree_is_empty {
            return;
        }
        let left = self.kill_tree() as u32;
        match &mut self.killing {
            Killing::Hard { since, again } if now - *since < KILL_PENDING_MS || left == 0 => {
                *again = now + KILL_RETRY_MS;
            }
            Killing::Hard { .. } => {
                self.notices.push(FromKeeper::KillPending { left });
                let again = now + KILL_SLOW_RETRY_MS;
                self.killing = Killing::Reported { again };
            }
            Killing::Reported { again } => *again = now + KILL_SLOW_RETRY_MS,
            Killing::No | Killing::Asked { .. } => {}
        }
    }

    /// Reaps every child that has ended.
    pub fn reap(&mut self) {
        while let Some((pid, status)) = wait_any(&mut self.tree_is_empty) {
            if pid == self.leader && matches!(self.state, State::Running) {
                self.handle_leader_exit(exit_of(status));
            }
        }
        if self.tree_is_empty
            && let Some(cgroup) = &self.own.cgroup
        {
            // A process that is no descendant may have been moved into the cgroup.
            self.has_outsiders = cgroup.is_populated();
            self.tree_is_empty = !self.has_outsiders;
        }
    }

    fn was_killed_for_memory(&self, exit: Exit) -> bool {
        let killed = matches!(exit, Exit::Signal(libc::SIGKILL) | Exit::Code(137));
        killed && self.kill_reason.is_none() && self.own.oom.rose(self.own.cgroup.as_ref())
    }

    /// Reason of a kill by the daemon, which ends a tree whose deadline has passed while its keeper is stopped. The frame
    /// that tells the reason does not arrive if input that the keeper has not read fills the connection.
    fn killed_at_limit(&self, exit: Exit) -> Option<End> {
        let passed = self.deadline.is_some_and(|at| at <= mono_ms());
        (passed && exit == Exit::Signal(libc::SIGKILL)).then_some(End::Deadline)
    }

    fn handle_leader_exit(&mut self, exit: Exit) {
        let by_itself = match exit {
            _ if self.was_killed_for_memory(exit) => End::OutOfMemory,
            Exit::Code(_) => End::Exited,
            Exit::Signal(_) => End::Signaled,
        };
        let ending = Exited {
            exit: Some(exit),
            end: self
                .kill_reason
                .or_else(|| self.killed_at_limit(exit))
                .unwrap_or(by_itself),
            duration_ms: boot_ms().saturating_sub(self.own.begun.1),
            bytes: 0,
            dropped: 0,
            empty: false,
            closed: false,
        };
        // The terminal can be closed now.
        if let Some(pty) = self.pty.take() {
            drop(pty.slave);
        }
        if let Some(namespace) = &mut self.own.namespace {
            namespace.release();
            self.init_is_exiting = !proc::children(namespace.pid).into_iter().any(lives);
        }
        self.state = State::Draining {
            ending,
            until: mono_ms() + DRAIN_GRACE_MS,
        };
        self.drain();
    }

    fn streams_are_closed(&self) -> bool {
        self.streams.iter().all(Option::is_none)
    }

    /// Records the ending once it is certain, then returns the frames to send.
    pub fn settle(&mut self) -> Vec<FromKeeper> {
        let mut frames = std::mem::take(&mut self.notices);
        let has_drained =
            self.streams_are_closed() && (self.tree_is_empty || !self.init_is_exiting);
        if let State::Draining { ending, until } = &self.state
            && (has_drained || *until <= mono_ms())
        {
            let ending = Exited {
                bytes: self.log.end(),
                dropped: self.log.dropped(),
                empty: self.tree_is_empty,
                closed: self.streams_are_closed(),
                ..*ending
            };
            crash_point("exit.pre_record");
            self.own.sandbox.iter_mut().for_each(RunSandbox::record);
            let text = RecordedEnding::Ended(ending).to_text();
            let _ = keeper_record::append(&self.own.record, &text);
            // The daemon appends to the same file when the ending was received.
            let _ = keeper_record::share(&self.own.record);
            crash_point("exit.post_record");
            frames.push(FromKeeper::Exited(ending));
            self.state = State::Recorded {
                ending,
                is_emptied: ending.empty,
                is_closed: ending.closed,
            };
        }
        self.add_later_frames(&mut frames);
        if let Some(beyond) = self.watch_beyond
            && self.log.end() > beyond
        {
            self.watch_beyond = None;
            frames.push(self.grew());
        }
        if let Some(due) = self.started_due
            && (!frames.is_empty() || due <= mono_ms())
        {
            self.started_due = None;
            frames.insert(0, self.started());
        }
        frames
    }

    /// Records an empty tree and closed streams after the ending, and adds their frames.
    fn add_later_frames(&mut self, frames: &mut Vec<FromKeeper>) {
        let streams_are_closed = self.streams_are_closed();
        let State::Recorded {
            is_emptied,
            is_closed,
            ..
        } = &mut self.state
        else {
            return;
        };
        if self.tree_is_empty && !*is_emptied {
            *is_emptied = true;
            let _ = keeper_record::append(&self.own.record, keeper_record::EMPTIED);
            frames.push(FromKeeper::Emptied);
        }
        if streams_are_closed && !*is_closed {
            *is_closed = true;
            let line = keeper_record::closed_line(self.log.end(), self.log.dropped());
            let _ = keeper_record::append(&self.own.record, &line);
            frames.push(FromKeeper::Closed);
        }
    }
}

impl Drop for CommandRun {
    fn drop(&mut self) {
        if let Some(cgroup) = &self.own.cgroup {
            cgroup.remove();
        }
    }
}

/// Delay of the `Started` frame: none for a session with input, since its client waits for the start.
fn started_delay(launch: &Launch) -> u64 {
    match (launch.record.pty, &launch.stdin) {
        (None, Stdin::None | Stdin::Bytes(_)) => STARTED_DELAY_MS,
        (Some(_), _) | (None, Stdin::Open) => 0,
    }
}

/// Reaps the next child that has ended. Sets `none_left` when there is no child left.
fn wait_any(none_left: &mut bool) -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the status is valid for writing.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) };
    *none_left = pid < 0;
    (pid > 0).then_some((pid, status))
}

fn lives(pid: i32) -> bool {
    proc::stat(pid).is_some_and(|stat| stat.state != b'Z')
}

fn exit_of(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}
