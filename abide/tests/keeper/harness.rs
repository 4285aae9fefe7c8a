//! Harness of the keeper tests: a fork server for each test and a synchronous connection to its keepers. Every wait
//! is for an event; the timeout only turns a hang into a failure.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use abide_core::End;
use abide_session::frame::{
    ContainmentChoice, Exited, FromKeeper, Launch, LaunchRecord, StartFailure, Stdin, ToKeeper,
};
use abide_session::keeper_record::{self, Meta, RecordedEnding};
use abide_session::log::{Log, Piece, Stream};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags};

pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct ForkServer {
    child: Child,
    socket: Option<OwnedFd>,
    folder: tempfile::TempDir,
    sessions: RefCell<Vec<String>>,
}

impl ForkServer {
    /// Sends a signal to the fork server.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the fork server runs");
    }

    pub fn new() -> Self {
        Self::with_env(&[])
    }

    pub fn with_env(env: &[(&str, &str)]) -> Self {
        Self::build(env, None, None)
    }

    /// Starts it with a limit of the file size: a write beyond the limit fails, as on a full disk.
    pub fn with_file_limit(bytes: u64) -> Self {
        Self::build(&[], Some(bytes), None)
    }

    /// Starts it in this cgroup, with all its keepers.
    pub fn in_group(group: &Path) -> Self {
        Self::build(&[], None, Some(group))
    }

    fn build(env: &[(&str, &str)], file_limit: Option<u64>, group: Option<&Path>) -> Self {
        let procs = group.map(|group| std::fs::File::create(group.join("cgroup.procs")).unwrap());
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
        command.arg("keeper").stdin(Stdio::null());
        command.envs(env.iter().copied());
        let fd = theirs.as_raw_fd();
        // SAFETY: only system calls that move descriptors and set a signal action, a limit and a cgroup run between
        // fork and exec.
        unsafe {
            command.pre_exec(move || {
                // The process that starts a daemon may ignore SIGCHLD, and the fork server inherits that.
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                // Before descriptors are moved: `procs` may be descriptor 3, which `dup2` replaces.
                if let Some(procs) = &procs {
                    libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1);
                }
                let moved = match fd {
                    3 => libc::fcntl(3, libc::F_SETFD, 0),
                    _ => libc::dup2(fd, 3),
                };
                if let Some(bytes) = file_limit {
                    let limit = libc::rlimit {
                        rlim_cur: bytes,
                        rlim_max: bytes,
                    };
                    libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
                }
                match moved {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                }
            });
        }
        ForkServer {
            child: command.spawn().unwrap(),
            socket: Some(ours),
            folder: tempfile::tempdir().unwrap(),
            sessions: RefCell::default(),
        }
    }

    /// Closes the socket of the fork server and waits until it has exited, which it does after its last keeper.
    pub fn close(&mut self) {
        self.socket = None;
        self.child.wait().unwrap();
    }

    /// Kills the fork server, but no keeper.
    pub fn kill(&mut self) {
        self.socket = None;
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Keeper with the directory of a new session.
    pub fn keeper(&self) -> Keeper {
        self.keeper_at(self.new_folder())
    }

    /// Path of the directory of a new session.
    pub fn new_folder(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        let bits = u64::from(std::process::id()) << 20 | count;
        let id = abide_core::SessionId::from_bits(bits).to_string();
        self.sessions.borrow_mut().push(id.clone());
        self.folder.path().join(id)
    }

    pub fn keeper_at(&self, folder: PathBuf) -> Keeper {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let fds = [theirs.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let path = folder.as_os_str().as_encoded_bytes();
        rustix::net::sendmsg(
            self.socket.as_ref().unwrap(),
            &[std::io::IoSlice::new(path)],
            &mut ancillary,
            SendFlags::empty(),
        )
        .unwrap();
        drop(theirs);
        Keeper::over(ours, folder)
    }

    /// Keeper that has sent `Ready`.
    pub fn ready(&self) -> Keeper {
        let mut keeper = self.keeper();
        keeper.expect_ready();
        keeper
    }

    /// Keeper that has started a shell command.
    pub fn started(&self, command: impl AsRef<str>) -> Keeper {
        self.started_with(command, |_| ())
    }

    /// Keeper that has started a shell command, which `change` prepares.
    pub fn started_with(
        &self,
        command: impl AsRef<str>,
        change: impl FnOnce(&mut Launch),
    ) -> Keeper {
        let mut keeper = self.ready();
        let mut launch = keeper.shell(command.as_ref());
        change(&mut launch);
        keeper.start(launch);
        keeper.expect_started();
        keeper
    }

    /// Keeper that has started a shell command with open input.
    pub fn fed(&self, command: &str) -> Keeper {
        self.started_with(command, |launch| launch.stdin = Stdin::Open)
    }

    /// Runs a shell command to its end.
    pub fn run(&self, command: &str) -> Ran {
        self.started(command).finish()
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        self.kill();
        // A keeper that was killed could not remove its cgroup.
        let Some(group) = abide_session::cgroup::own_folder() else {
            return;
        };
        for session in self.sessions.take() {
            let _ = std::fs::remove_dir(group.join(format!("abide-{session}")));
        }
    }
}

pub struct Keeper {
    pub folder: PathBuf,
    pub pid: u32,
    pub leader: u32,
    stream: UnixStream,
    buffer: Vec<u8>,
}

/// Ending of a session, and its directory.
pub struct Ran {
    pub exited: Exited,
    pub folder: PathBuf,
}

impl Ran {
    pub fn output(&self, stream: Stream) -> Vec<u8> {
        output(&self.folder, Some(stream))
    }
}

/// All bytes of a log in order. Panics if there is a gap.
pub fn output(folder: &Path, only: Option<Stream>) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in Log::open(folder).pieces(0, only) {
        match piece.unwrap() {
            Piece::Chunk(chunk) => all.extend_from_slice(&chunk.bytes),
            Piece::Gap { from, to } => panic!("bytes {from} to {to} are missing"),
        }
    }
    all
}

impl Keeper {
    fn over(stream: UnixStream, folder: PathBuf) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Keeper {
            folder,
            pid: 0,
            leader: 0,
            stream,
            buffer: Vec::new(),
        }
    }

    /// Opens a new connection to the same keeper; the old one may stay open.
    pub fn again(&self) -> Keeper {
        let mut keeper = Keeper::over(self.call(), self.folder.clone());
        keeper.send(&ToKeeper::Hello);
        keeper.expect_ready();
        assert_eq!(keeper.pid, self.pid);
        keeper
    }

    /// Opens a connection to the same keeper without sending a frame.
    pub fn call(&self) -> UnixStream {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.folder, flags, rustix::fs::Mode::empty()).unwrap();
        let path = format!("/proc/self/fd/{}/ctl", folder.as_raw_fd());
        UnixStream::connect(path).unwrap()
    }

    /// Closes the connection, and returns what is needed to find the keeper again.
    pub fn disconnect(self) -> DisconnectedKeeper {
        DisconnectedKeeper {
            folder: self.folder,
            pid: self.pid,
        }
    }

    pub fn shell(&self, command: &str) -> Launch {
        let session = self.folder.file_name().unwrap().to_str().unwrap();
        Launch {
            record: LaunchRecord {
                session: session.into(),
                agent: "default".into(),
                command: command.into(),
                cwd: b"/".to_vec(),
                log_quota: 256 << 20,
                created_wall_ms: 1,
                grace_ms: 2_000,
                ..LaunchRecord::default()
            },
            argv: ["/bin/sh", "-c", command].map(Into::into).to_vec(),
            env: vec![
                (b"PATH".to_vec(), b"/usr/bin:/bin:/usr/sbin:/sbin".to_vec()),
                (b"ABIDE_TEST_MARK".to_vec(), session.into()),
            ],
            stdin: Stdin::None,
            containment: ContainmentChoice::Auto,
            max_processes: 0,
            inherited: None,
            sandbox: None,
        }
    }

    pub fn send(&mut self, frame: &ToKeeper) {
        self.send_together(std::slice::from_ref(frame));
    }

    /// Requests the end of the tree, with this grace.
    pub fn kill(&mut self, end: End, grace_ms: u32) {
        self.send(&ToKeeper::Kill { end, grace_ms });
    }

    /// Sends several frames in one write, so that the keeper receives them together.
    pub fn send_together(&mut self, frames: &[ToKeeper]) {
        let mut wire = Vec::new();
        for frame in frames {
            frame.encode(&mut wire);
        }
        self.stream.write_all(&wire).unwrap();
    }

    pub fn start(&mut self, launch: Launch) {
        self.send(&ToKeeper::Start(Box::new(launch)));
    }

    /// Next frame; `None`: the keeper has closed the connection.
    pub fn receive(&mut self) -> Option<FromKeeper> {
        loop {
            if let Some(frame) = FromKeeper::take_from(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(fault) if fault.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(fault) => panic!("nothing was received: {fault}"),
            }
        }
    }

    pub fn next(&mut self) -> FromKeeper {
        self.receive().expect("the keeper hung up")
    }

    pub fn expect_ready(&mut self) {
        match self.next() {
            FromKeeper::Ready {
                version: 1, pid, ..
            } => self.pid = pid,
            other => panic!("expected Ready, received {other:?}"),
        }
    }

    pub fn expect_started(&mut self) {
        match self.next() {
            FromKeeper::Started { pid, .. } => self.leader = pid,
            other => panic!("expected Started, received {other:?}"),
        }
    }

    pub fn expect_failed(&mut self) -> (i32, String) {
        let failure = self.expect_failure();
        (failure.errno, failure.sentence)
    }

    /// Expects `StartFailed`.
    pub fn expect_failure(&mut self) -> StartFailure {
        match self.next() {
            FromKeeper::StartFailed(failure) => failure,
            other => panic!("expected StartFailed, received {other:?}"),
        }
    }

    /// Waits for `Exited` and skips frames that may come at any time.
    pub fn expect_exited(&mut self) -> Exited {
        loop {
            match self.next() {
                FromKeeper::Exited(exited) => return exited,
                note if is_by_the_way(&note) => {}
                other => panic!("expected Exited, received {other:?}"),
            }
        }
    }

    /// Reassigns the keeper to a session in another directory.
    pub fn renew(&mut self, folder: PathBuf) {
        let path = folder.as_os_str().as_encoded_bytes().to_vec();
        self.send(&ToKeeper::Renew { folder: path });
        self.folder = folder;
    }

    /// Waits until there are more than `beyond` bytes of output.
    pub fn expect_growth(&mut self, beyond: u64) -> u64 {
        self.send(&ToKeeper::Watch { beyond });
        loop {
            match self.next() {
                FromKeeper::Grew { bytes, .. } if bytes > beyond => return bytes,
                FromKeeper::Grew { .. }
                | FromKeeper::InputTaken { .. }
                | FromKeeper::InputDropped { .. } => {}
                other => panic!("expected Grew, received {other:?}"),
            }
        }
    }

    /// Reads all frames, acknowledges the ending and waits until the keeper has exited.
    pub fn finish(mut self) -> Ran {
        let exited = self.expect_exited();
        self.finish_after(exited)
    }

    pub fn finish_after(mut self, exited: Exited) -> Ran {
        let (mut empty, mut closed) = (exited.empty, exited.closed);
        while !(empty && closed) {
            match self.next() {
                FromKeeper::Emptied => empty = true,
                FromKeeper::Closed => closed = true,
                note if is_by_the_way(&note) => {}
                other => panic!("expected the rest, received {other:?}"),
            }
        }
        self.send(&ToKeeper::Ack);
        while self.receive().is_some() {}
        wait_gone(self.pid);
        assert!(!self.folder.join("ctl").exists());
        if let Some(group) = self.meta().cgroup {
            assert!(!PathBuf::from(String::from_utf8(group).unwrap()).exists());
        }
        Ran {
            exited,
            folder: self.folder,
        }
    }

    pub fn meta(&self) -> Meta {
        keeper_record::read_meta(&self.folder).unwrap().unwrap()
    }
}

/// Returns whether a frame may come at any time. `KillPending` is among them, because on a busy machine many killed
/// processes take a while to end.
fn is_by_the_way(frame: &FromKeeper) -> bool {
    matches!(
        frame,
        FromKeeper::Grew { .. }
            | FromKeeper::InputTaken { .. }
            | FromKeeper::InputDropped { .. }
            | FromKeeper::KillPending { .. }
    )
}

pub struct DisconnectedKeeper {
    pub folder: PathBuf,
    pub pid: u32,
}

impl DisconnectedKeeper {
    /// Ending in the directory, after the keeper has exited.
    pub fn ending(&self) -> Option<RecordedEnding> {
        wait_gone(self.pid);
        keeper_record::read_ending(&self.folder).unwrap()
    }

    pub fn ended(&self) -> Exited {
        match self.ending() {
            Some(RecordedEnding::Ended(exited)) => exited,
            other => panic!("expected an ending, found {other:?}"),
        }
    }
}

/// Waits until the process has ended. A zombie counts, because the test is not its parent.
pub fn wait_gone(pid: u32) {
    let pid = Pid::from_raw(pid as i32).unwrap();
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let timeout = rustix::fs::Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(&handle, PollFlags::IN)];
    assert_eq!(
        rustix::event::poll(&mut fds, Some(&timeout)),
        Ok(1),
        "{pid:?} lives on"
    );
}

/// `stat` lines of all living processes whose environment has the mark of the session.
pub fn marked(folder: &Path) -> Vec<String> {
    let mark = format!(
        "ABIDE_TEST_MARK={}",
        folder.file_name().unwrap().to_str().unwrap()
    );
    let mut found = Vec::new();
    for item in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(env) = std::fs::read(item.path().join("environ")) else {
            continue;
        };
        if env
            .split(|byte| *byte == 0)
            .any(|entry| entry == mark.as_bytes())
        {
            found.push(std::fs::read_to_string(item.path().join("stat")).unwrap_or_default());
        }
    }
    found
}

pub fn input(bytes: impl Into<Vec<u8>>) -> ToKeeper {
    ToKeeper::Input {
        bytes: bytes.into(),
        once: None,
    }
}

pub fn signal(number: i32) -> ToKeeper {
    ToKeeper::Signal { number, once: None }
}
