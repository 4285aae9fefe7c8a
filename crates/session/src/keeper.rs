//! The keeper process: its begin in a fork of the fork server, and its event loop, one poll over everything that can
//! happen.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::clock::{POLL_RETRY, boot_ms, mono_ms, pause};
use super::connection::Connection;
use super::frame::{FromKeeper, StartFailure, ToKeeper, VERSION};
use super::keeper_record::{self, Meta, RecordedEnding};
use super::launch::{ContainmentChoice, Launch};
use super::nsinit::Namespace;
use super::resources::{ForkServerContext, Resources};
use super::run::{CommandRun, RunResources};
use super::sandbox::gate::Gate;
use super::sandbox::{self, Plan, RunSandbox, Sandbox};
use super::spawn::{self, SpawnContext};
use super::{FORK_SERVER_FD, crash_point, inherited_fd, peer_check, signals};
use abide_core::{Containment, Sandboxed};

/// Descriptor on which a keeper asks the fork server to start a network gate.
const GATE_STARTER_FD: RawFd = 4;
/// Pause before a keeper prepares for another session.
const RENEW_PAUSE: Duration = Duration::from_micros(150);

/// Runs a keeper in a fork of the fork server, for a session in this directory.
pub(super) fn run_keeper(
    folder: &Path,
    socket: OwnedFd,
    gate_starter: RawFd,
    context: &ForkServerContext,
) {
    let detached = detach_from_fork_server(socket, gate_starter);
    let Ok((socket, gate_starter)) = detached else {
        return;
    };
    let mut connection = Connection::new(socket);
    match Resources::make(folder, context.clone()) {
        Ok(resources) => {
            crash_point("keeper.pre_handshake");
            Keeper::new(resources, connection, gate_starter).serve();
        }
        Err(failure) => connection.send(&FromKeeper::StartFailed(failure)),
    }
}

/// Detaches a new keeper from the fork server and makes it a subreaper. Returns the socket of the daemon and that for
/// requests to start a gate, which are then the only descriptors beyond the standard three.
fn detach_from_fork_server(socket: OwnedFd, gate_starter: RawFd) -> io::Result<(OwnedFd, OwnedFd)> {
    super::set_name(c"abide-keeper");
    let _ = rustix::process::setsid();
    super::become_subreaper();
    // SAFETY: plain system calls in a process without threads. Both sockets are moved to fixed descriptors before all
    // others behind them are closed, and none of those is used afterwards.
    let sockets = unsafe {
        let moved = [
            (socket.as_raw_fd(), FORK_SERVER_FD),
            (gate_starter, GATE_STARTER_FD),
        ];
        for (from, to) in moved {
            // A descriptor that is in its place already must not be moved onto itself.
            if from != to && libc::dup3(from, to, libc::O_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        std::mem::forget(socket);
        inherited_fd::close_from(GATE_STARTER_FD + 1);
        (
            OwnedFd::from_raw_fd(FORK_SERVER_FD),
            OwnedFd::from_raw_fd(GATE_STARTER_FD),
        )
    };
    let flags = rustix::fs::OFlags::RDWR;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    rustix::process::chdir("/")?;
    signals::reset_and_block_all();
    Ok(sockets)
}

/// Stage of a session.
enum Stage {
    /// No command was started yet.
    Idle,
    /// The command was started, and runs or has ended.
    Run(Box<CommandRun>),
    /// The command could not be started.
    Failed(FromKeeper),
}

/// One session's keeper.
pub struct Keeper {
    resources: Resources,
    /// Socket on which the fork server is asked to start a network gate.
    gate_starter: OwnedFd,
    connection: Option<Connection>,
    /// A second connection while a daemon is connected, until it has sent a frame as a daemon does.
    candidate: Option<Connection>,
    stage: Stage,
    is_acked: bool,
}

/// Descriptor in the poll.
#[derive(Clone, Copy)]
enum Slot {
    Signal,
    Listener,
    Connection,
    Candidate,
    FirstStream,
    SecondStream,
    Input,
    Group,
    Refusal,
    Gate,
    GitWatch,
}

/// Output streams of a run, by their number.
const STREAMS: [Slot; 2] = [Slot::FirstStream, Slot::SecondStream];
/// Events of a connection after which it is read.
const INCOMING: PollFlags = PollFlags::IN.union(PollFlags::HUP).union(PollFlags::ERR);
/// Number of descriptors in the poll.
const SLOTS: usize = Slot::GitWatch as usize + 1;

/// Events that woke the loop, by slot.
struct Woken([PollFlags; SLOTS]);

impl Woken {
    fn events(&self, slot: Slot) -> PollFlags {
        self.0[slot as usize]
    }

    fn has(&self, slot: Slot) -> bool {
        !self.events(slot).is_empty()
    }
}

impl Keeper {
    /// A keeper without a session yet.
    pub fn new(resources: Resources, connection: Connection, gate_starter: OwnedFd) -> Self {
        let mut keeper = Keeper {
            resources,
            gate_starter,
            connection: Some(connection),
            candidate: None,
            stage: Stage::Idle,
            is_acked: false,
        };
        keeper.send_state();
        keeper
    }

    /// Serves until the session is over and the daemon has recorded it.
    pub fn serve(mut self) {
        while !self.is_done() {
            let woken = self.wait();
            self.turn(&woken);
        }
        let idle = matches!(self.stage, Stage::Idle);
        self.resources.session.leave(idle);
    }

    fn is_done(&self) -> bool {
        let is_released = self.connection.is_none() || self.is_acked;
        match &self.stage {
            Stage::Idle => self.connection.is_none(),
            Stage::Run(run) => run.is_over() && is_released,
            Stage::Failed(_) => is_released,
        }
    }

    fn wait(&self) -> Woken {
        let mut polled = vec![
            (Slot::Signal, self.resources.signals.as_fd(), PollFlags::IN),
            (
                Slot::Listener,
                self.resources.session.listener.as_fd(),
                PollFlags::IN,
            ),
        ];
        if let Some(connection) = &self.connection {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, connection.wants_out());
            polled.push((Slot::Connection, connection.fd(), flags));
        }
        if let Some(candidate) = &self.candidate {
            polled.push((Slot::Candidate, candidate.fd(), PollFlags::IN));
        }
        let mut timeout = None;
        if let Stage::Run(run) = &self.stage {
            let streams = run.open_streams();
            polled.extend(streams.map(|(at, fd)| (STREAMS[at], fd, PollFlags::IN)));
            let sandbox = run.own.sandbox.as_ref();
            let refusals = sandbox.and_then(RunSandbox::listener);
            let gate = sandbox.and_then(RunSandbox::gate_channel);
            let git_watch = sandbox.and_then(RunSandbox::git_watch);
            let others = [
                (Slot::Input, run.input.wants_out(), PollFlags::OUT),
                (Slot::Refusal, refusals, PollFlags::IN),
                (Slot::Gate, gate, PollFlags::IN),
                (Slot::GitWatch, git_watch, PollFlags::IN),
                (Slot::Group, run.group_events(), PollFlags::PRI),
            ];
            let open = others.into_iter();
            polled.extend(open.filter_map(|(slot, fd, flags)| Some((slot, fd?, flags))));
            timeout = run.next_alarm().map(|at| until(at, mono_ms()));
        }
        let mut fds: Vec<PollFd<'_>> = (polled.iter())
            .map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags))
            .collect();
        let mut woken = Woken([PollFlags::empty(); SLOTS]);
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return woken,
            // The kernel is out of memory: the keeper tries again, without spinning.
            Err(_) => {
                pause(POLL_RETRY);
                return woken;
            }
        }
        for ((slot, ..), fd) in polled.iter().zip(fds) {
            woken.0[*slot as usize] = fd.revents();
        }
        woken
    }

    fn turn(&mut self, woken: &Woken) {
        if let Stage::Run(run) = &mut self.stage {
            if let Some(sandbox) = &mut run.own.sandbox {
                if woken.has(Slot::Refusal) {
                    sandbox.handle_attempt(!woken.events(Slot::Refusal).contains(PollFlags::IN));
                }
                if woken.has(Slot::Gate) {
                    sandbox.read_gate();
                }
            }
            if woken.has(Slot::GitWatch) {
                run.check_git_watch();
            }
            for (at, slot) in STREAMS.into_iter().enumerate() {
                // Everything but a lone end of file is for a read to tell.
                if woken.events(slot) == PollFlags::HUP {
                    run.handle_stream_end(at);
                } else if woken.has(slot) {
                    run.read_output(at);
                }
            }
            if woken.has(Slot::Input) {
                run.write_input();
            }
        }
        // The reason for which the daemon has killed the tree must be known before the leader is reaped, which a
        // signal, the control group or an order to kill can cause.
        let may_reap = woken.has(Slot::Signal) || woken.has(Slot::Group);
        if may_reap || woken.events(Slot::Connection).intersects(INCOMING) {
            self.read_forced_end(may_reap && woken.has(Slot::Listener));
        }
        if woken.has(Slot::Signal) {
            self.handle_signals();
        }
        if let Stage::Run(run) = &mut self.stage {
            if woken.has(Slot::Group) {
                run.reap();
            }
            run.handle_alarms();
        }
        if woken.has(Slot::Candidate) {
            self.read_candidate();
        }
        if woken.has(Slot::Listener) {
            self.accept();
        }
        self.handle_connection(woken.events(Slot::Connection));
        self.send_new_facts();
        if self.connection.as_ref().is_some_and(Connection::is_broken) {
            self.connection = None;
        }
    }

    /// Reads why the daemon has ended the tree, which it may have done while this process was stopped. Its
    /// other frames are handled later, in order.
    fn read_forced_end(&mut self, called: bool) {
        if called {
            self.accept();
        }
        let (Some(connection), Stage::Run(run)) = (&mut self.connection, &mut self.stage) else {
            return;
        };
        while connection.receive() {}
        if let Some(end) = connection.forced() {
            run.handle_frame(ToKeeper::Forced { end });
        }
    }

    /// Records new facts, then sends them.
    fn send_new_facts(&mut self) {
        if let Stage::Run(run) = &mut self.stage {
            let frames = run.settle();
            if let Some(connection) = &mut self.connection {
                connection.send_all(&frames);
            }
        }
    }

    fn handle_signals(&mut self) {
        let terminate = self.resources.read_signals();
        match &mut self.stage {
            Stage::Run(run) => {
                run.reap();
                // The system shuts down, or a person ends the session.
                if terminate {
                    run.kill(abide_core::End::User, run.grace_ms);
                }
            }
            Stage::Idle | Stage::Failed(_) if terminate => self.connection = None,
            Stage::Idle | Stage::Failed(_) => {}
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::accept_with(&self.resources.session.listener, flags) else {
            return;
        };
        if !peer_check::may_command(&socket) {
            return;
        }
        // A daemon that loses its connection reports the session as lost, so a second connection does not
        // replace the first before it has sent a frame. If the daemon is gone, the next one is accepted.
        let candidate = Connection::new(socket);
        if self.is_disconnected() {
            self.change_over(candidate);
        } else {
            self.candidate = Some(candidate);
        }
    }

    /// Reads from the second connection; if it sends a valid frame, it replaces the daemon's.
    fn read_candidate(&mut self) {
        let Some(mut candidate) = self.candidate.take() else {
            return;
        };
        candidate.receive();
        match candidate.next() {
            Some(first) => {
                self.change_over(candidate);
                self.handle_frame(first);
            }
            None if candidate.is_broken() => {}
            None => self.candidate = Some(candidate),
        }
    }

    fn change_over(&mut self, next: Connection) {
        // Orders of the old connection still count, also those that were received and not carried out yet.
        self.handle_frames();
        while self.connection.as_mut().is_some_and(Connection::receive) {
            self.handle_frames();
        }
        self.connection = Some(next);
        self.send_state();
    }

    fn ready(&self) -> FromKeeper {
        FromKeeper::Ready {
            version: VERSION,
            contained_by: match &self.stage {
                Stage::Run(run) => run.own.contained_by,
                Stage::Idle | Stage::Failed(_) => self.resources.offers(),
            },
            pid: std::process::id(),
        }
    }

    /// Sends the keeper's state on a new connection.
    fn send_state(&mut self) {
        let ready = self.ready();
        send(&mut self.connection, &ready);
        match &mut self.stage {
            Stage::Idle => {}
            Stage::Run(run) => {
                for frame in run.state_frames() {
                    send(&mut self.connection, &frame);
                }
            }
            Stage::Failed(failed) => send(&mut self.connection, failed),
        }
    }

    fn handle_connection(&mut self, seen: PollFlags) {
        if let Some(connection) = &mut self.connection {
            if seen.contains(PollFlags::OUT) {
                connection.flush();
            }
            if seen.intersects(INCOMING) {
                connection.receive();
            }
        }
        self.handle_frames();
    }

    fn handle_frames(&mut self) {
        while let Some(frame) = self.connection.as_mut().and_then(Connection::next) {
            self.handle_frame(frame);
        }
    }

    fn is_disconnected(&self) -> bool {
        self.connection.as_ref().is_none_or(Connection::peer_closed)
    }

    fn handle_frame(&mut self, frame: ToKeeper) {
        // The client of a daemon that died repeats its call to the next one, which does not know of this
        // command. If the command were started only now, it would run twice.
        if matches!(frame, ToKeeper::Start(_)) && self.is_disconnected() {
            self.connection = None;
            return;
        }
        match (frame, &mut self.stage) {
            (ToKeeper::Hello, _) => {}
            (ToKeeper::Start(launch), Stage::Idle) => self.start(&launch),
            (ToKeeper::Ack, Stage::Run(_) | Stage::Failed(_)) => self.is_acked = true,
            (ToKeeper::Renew { folder }, Stage::Run(run)) if run.is_over() => self.renew(&folder),
            // There is no finished session to replace: the keeper disconnects, and the new session never begins.
            (ToKeeper::Renew { .. }, _) => self.connection = None,
            (frame, Stage::Run(run)) => run.handle_frame(frame),
            // A second start, or a request without a session: ignored.
            (_, Stage::Idle | Stage::Failed(_)) => {}
        }
    }

    /// Drops the session that has ended. The keeper is idle again.
    fn renew(&mut self, folder: &[u8]) {
        // This frame comes together with the start of another command, which needs the CPU more until it
        // runs.
        pause(RENEW_PAUSE);
        match self.resources.renew(Path::new(OsStr::from_bytes(folder))) {
            Ok(()) => {
                self.stage = Stage::Idle;
                // The daemon does not wait for this frame, so it is sent with the next one.
                let ready = self.ready();
                if let Some(connection) = &mut self.connection {
                    connection.queue(&ready);
                }
            }
            Err(failure) => {
                self.fail(failure);
                self.connection = None;
            }
        }
    }

    fn start(&mut self, launch: &Launch) {
        match self.start_run(launch) {
            Ok(run) => {
                self.stage = Stage::Run(Box::new(run));
                self.send_new_facts();
            }
            Err(failure) => {
                let ending = RecordedEnding::Failed(failure.clone());
                // The connection carries the failure too; the disk may be what failed.
                let _ = keeper_record::append(&self.resources.session.record, &ending.to_text());
                self.fail(failure);
            }
        }
    }

    fn fail(&mut self, failure: StartFailure) {
        let failed = FromKeeper::StartFailed(failure);
        send(&mut self.connection, &failed);
        self.stage = Stage::Failed(failed);
    }

    fn start_run(&mut self, launch: &Launch) -> Result<CommandRun, StartFailure> {
        let mut sandbox = self.prepare_sandbox(launch)?;
        let own_namespace = (sandbox.as_mut()).and_then(|(built, _)| built.namespace.take());
        let enters_namespaces = own_namespace.is_some();
        let (contained_by, namespace) = self.contain(launch.containment, own_namespace)?;
        // An unused cgroup is removed at the end, because the removal takes time.
        let cgroup = (self.resources.session.cgroup.as_ref())
            .filter(|_| contained_by != Containment::Subreaper);
        let launch = match &launch.sandbox {
            // Landlock alone does not layer the temporary folders.
            Some(plan) if !enters_namespaces => {
                Cow::Owned(launch.with_variable("TMPDIR", &sandbox::temporary_folder(plan)))
            }
            _ => Cow::Borrowed(launch),
        };
        let meta = Meta {
            launch: launch.record.clone(),
            contained_by,
            sandboxed: (sandbox.as_ref())
                .map_or(Sandboxed::OFF, |(_, sandbox)| sandbox.sandboxed.clone()),
            cgroup: cgroup.map(|cgroup| cgroup.path.as_os_str().as_bytes().to_vec()),
            init: namespace.as_ref().map(|space| space.pid as u32),
            keeper: self.resources.identity.clone(),
        };
        if let Some(cgroup) = cgroup {
            cgroup.limit_processes(launch.max_processes);
        }
        let oom = self.resources.oom_watch();
        // Before the start, because the command may stop this process right after it.
        let begun = (mono_ms(), boot_ms());
        keeper_record::write_first(&self.resources.session.record, &meta.to_text())
            .map_err(|fault| StartFailure::new("cannot write the session's folder", &fault))?;
        let context = SpawnContext {
            cgroup,
            namespace: namespace.as_ref().filter(|_| !enters_namespaces),
            sandbox: sandbox.as_ref().map(|(built, _)| &built.entry),
            terminals_of: (namespace.as_ref().filter(|_| enters_namespaces)).map(|space| space.pid),
            umask: self.resources.context.umask,
            oom_score: self.resources.context.oom_score,
        };
        let spawned = spawn::spawn(&launch, &context)?;
        let is_in_cgroup = cgroup.is_some();
        let own = RunResources {
            contained_by,
            cgroup: self.resources.session.cgroup.take_if(|_| is_in_cgroup),
            namespace,
            sandbox: sandbox.map(|(mut built, mut sandbox)| {
                sandbox.refusals.listen(built.entry.take_listener());
                sandbox
            }),
            oom,
            begun,
            record: Rc::clone(&self.resources.session.record),
            log_folder: Rc::clone(&self.resources.session.folder),
        };
        Ok(CommandRun::new(&launch, spawned, own))
    }

    /// Builds the sandbox of a command, if it gets one, starts its network gate and supervises it.
    fn prepare_sandbox(
        &self,
        launch: &Launch,
    ) -> Result<Option<(Sandbox, RunSandbox)>, StartFailure> {
        let Some(plan) = &launch.sandbox else {
            return Ok(None);
        };
        let cgroup = self.resources.session.cgroup.as_ref();
        let mut built = Sandbox::make(plan, &launch.record.session, cgroup)?;
        let gate = self.start_gate(plan, &mut built)?;
        let folder = Rc::clone(&self.resources.session.folder);
        let sandbox = RunSandbox::new(plan, &mut built, gate, folder);
        Ok(Some((built, sandbox)))
    }

    /// Starts the network gate of a sandbox, if it has one.
    fn start_gate(&self, plan: &Plan, built: &mut Sandbox) -> Result<Option<Gate>, StartFailure> {
        let (Some(channel), Some(wanted)) = (built.gate.take(), plan.network.gate()) else {
            return Ok(None);
        };
        let init = built.namespace.as_ref().map_or(0, |space| space.pid);
        let (folder, starter) = (self.resources.session.folder.as_fd(), &self.gate_starter);
        let started = channel.start(wanted, init, folder, starter.as_fd());
        started.map(Some).map_err(|fault| {
            let why = format!("start the network gate: {fault}");
            sandbox::cannot(Some(plan.mode), &why, fault.raw_os_error().unwrap_or(0))
        })
    }

    /// Chooses the containment of the tree. `sandbox`: pid namespace of its sandbox, which contains it already.
    fn contain(
        &self,
        wanted: ContainmentChoice,
        sandbox: Option<Namespace>,
    ) -> Result<(Containment, Option<Namespace>), StartFailure> {
        use ContainmentChoice::{Auto, Cgroup, PidNamespace, Subreaper};
        let cgroup = self.resources.session.cgroup.as_ref();
        match (sandbox, wanted, cgroup) {
            (Some(namespace), ..) => Ok((Containment::PidNamespace, Some(namespace))),
            (None, PidNamespace, _) => {
                Ok((Containment::PidNamespace, Some(Namespace::make(cgroup)?)))
            }
            (None, Auto | Cgroup, Some(_)) => Ok((Containment::Cgroup, None)),
            (None, Auto, None) | (None, Subreaper, _) => Ok((Containment::Subreaper, None)),
            (None, Cgroup, None) => Err(StartFailure::now(
                0,
                "cannot contain the command: no control group can be made here",
            )),
        }
    }
}

fn until(at: u64, now: u64) -> Timespec {
    let left = at.saturating_sub(now);
    Timespec {
        tv_sec: (left / 1_000) as i64,
        tv_nsec: ((left % 1_000) * 1_000_000) as i64,
    }
}

fn send(connection: &mut Option<Connection>, frame: &FromKeeper) {
    if let Some(connection) = connection {
        connection.send(frame);
    }
}
