//! Connection to one keeper: writes frames without a task in between, and turns received frames into events.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use abide_core::session::Ending;
use abide_core::{Containment, End, Event, Millis, Mono, SessionId, Wall};
use rustix::process::Signal;
use tokio::sync::{Notify, Semaphore, watch};

use super::{Keepers, failed_keeper, start_error, starting};
use crate::clock::SystemClock;
use crate::lock::lock;
use crate::seams::KeeperControl;
use crate::stream::Stream;
use abide_session::crash_point;
use abide_session::frame::{FromKeeper, INPUT_WINDOW, InputKey, StartFailure, ToKeeper};
use abide_session::proc::{self, ProcessHandle};

/// Bytes read from a keeper at once; its frames are small.
const READ_SIZE: usize = 4 << 10;

/// Connection to the keeper of one session.
pub(super) struct KeeperConnection {
    stream: Arc<Stream>,
    out: Mutex<Outgoing>,
    unsent_added: Notify,
    /// Lowest log length that a reader waits to be exceeded: the keeper watches one at a time. Readers of greater
    /// lengths ask again whenever the log has grown.
    watched: Mutex<Option<u64>>,
    progress: watch::Sender<LogProgress>,
    credit: Semaphore,
    /// Bytes of input that reached no process.
    dropped_input: AtomicU64,
    /// Pid of the keeper; 0 until it has sent it.
    pid: AtomicU32,
    start_state: Mutex<StartState>,
    /// Notified on each frame of the keeper.
    pub frame_received: Notify,
    /// Reason, if the daemon has ended the session itself.
    pub forced_end: Mutex<Option<End>>,
}

/// Upper bound of the time that a keeper needs to become idle again.
const REUSE_TIME: Millis = Millis(3);

/// State of the start of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartState {
    /// The keeper has no command.
    Idle,
    /// The start has not been reported yet.
    Pending,
    /// The start has succeeded or failed.
    Reported,
    /// The daemon has stopped waiting for the start.
    Abandoned,
}

/// Outgoing bytes of a connection.
struct Outgoing {
    unsent: Vec<u8>,
    /// Frames that are sent with the next one, or on [`KeeperConnection::send_queued`].
    queued: Vec<u8>,
    /// Time at which it was made, or its reuse began. An idle keeper sends no frame when it is ready, because that would wake
    /// the daemon for nothing.
    reused_at: Mono,
    /// The keeper belongs to another session now: no frame of this one may reach it.
    reused: bool,
}

impl Outgoing {
    fn new() -> Self {
        Outgoing {
            unsent: Vec::new(),
            queued: Vec::new(),
            reused_at: SystemClock.mono(),
            reused: false,
        }
    }
}

/// Length of a session's log and its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogProgress {
    /// Bytes written so far.
    pub bytes: u64,
    /// The leader has ended and all its output is counted.
    pub ended: bool,
    /// Nothing will ever be added.
    pub closed: bool,
}

impl KeeperConnection {
    pub fn new(stream: Stream) -> Self {
        KeeperConnection::with_stream(Arc::new(stream))
    }

    fn with_stream(stream: Arc<Stream>) -> Self {
        KeeperConnection {
            stream,
            out: Mutex::new(Outgoing::new()),
            unsent_added: Notify::new(),
            watched: Mutex::default(),
            progress: watch::channel(LogProgress::default()).0,
            credit: Semaphore::new(INPUT_WINDOW),
            dropped_input: AtomicU64::new(0),
            pid: AtomicU32::new(0),
            start_state: Mutex::new(StartState::Idle),
            frame_received: Notify::new(),
            forced_end: Mutex::default(),
        }
    }

    /// Kills a keeper whose command should have started by now. The keeper may be stopped, so it gets
    /// SIGKILL.
    pub fn abandon_start(&self) {
        if !self.end_start(StartState::Abandoned) {
            return;
        }
        let pid = self.pid.load(Ordering::Relaxed).cast_signed();
        // While the connection is open, the process at its other end is alive and its pid is not reused.
        if let Some(process) = ProcessHandle::open(pid).filter(|_| !self.stream.is_closed()) {
            process.signal(Signal::KILL);
        }
        self.close();
    }

    /// True if the keeper is ready to start a command.
    pub fn is_ready(&self, now: Mono) -> bool {
        let out = self.outgoing();
        self.pid.load(Ordering::Relaxed) != 0
            && out.queued.is_empty()
            && now.since(out.reused_at) >= REUSE_TIME
    }

    /// True if the keeper is not forked yet, or the process that starts the command is runnable and waits for a CPU,
    /// as happens when very many commands start at once.
    pub fn may_still_start(&self) -> bool {
        match self.pid.load(Ordering::Relaxed).cast_signed() {
            0 => true,
            keeper => {
                let mut starters = proc::children(keeper);
                starters.push(keeper);
                let runs = |pid: &i32| proc::stat(*pid).is_some_and(|stat| stat.state == b'R');
                starters.iter().any(runs)
            }
        }
    }

    /// Notes that the keeper has a command.
    pub fn begin_start(&self) {
        *lock(&self.start_state) = StartState::Pending;
    }

    /// True if the keeper has no command.
    pub fn is_idle(&self) -> bool {
        *lock(&self.start_state) == StartState::Idle
    }

    /// True from the start of the command until it was reported.
    pub fn is_starting(&self) -> bool {
        *lock(&self.start_state) == StartState::Pending
    }

    fn is_abandoned(&self) -> bool {
        *lock(&self.start_state) == StartState::Abandoned
    }

    /// Ends the start in this state. Returns false if it has ended before.
    fn end_start(&self, end: StartState) -> bool {
        let mut state = lock(&self.start_state);
        let was_pending = *state == StartState::Pending;
        if was_pending {
            *state = end;
        }
        was_pending
    }

    /// Sends a frame: at once if the socket has room, else as soon as it has.
    pub fn send(&self, frame: &ToKeeper) {
        let mut out = self.outgoing();
        if !out.reused {
            self.write(&mut out, |unsent| frame.encode(unsent));
        }
    }

    /// Queues a frame until the next one is sent, or until [`KeeperConnection::send_queued`].
    pub fn queue(&self, frame: &ToKeeper) {
        let mut out = self.outgoing();
        frame.encode(&mut out.queued);
    }

    /// Sends the queued frames.
    pub fn send_queued(&self) {
        let mut out = self.outgoing();
        if !out.queued.is_empty() {
            out.reused_at = SystemClock.mono();
            self.write(&mut out, |_| ());
        }
    }

    fn write(&self, out: &mut Outgoing, what: impl FnOnce(&mut Vec<u8>)) {
        let idle = out.unsent.is_empty();
        out.unsent.append(&mut out.queued);
        what(&mut out.unsent);
        if idle {
            if let Ok(written) = self.stream.write_now(&out.unsent) {
                out.unsent.drain(..written);
            }
            if !out.unsent.is_empty() {
                self.unsent_added.notify_one();
            }
        }
    }

    /// Connection over the same socket for the next session of the keeper. `None`: frames of this session are still
    /// unsent.
    pub fn reuse(&self) -> Option<KeeperConnection> {
        let mut out = self.outgoing();
        out.reused = out.unsent.is_empty();
        out.reused.then(|| {
            let connection = KeeperConnection::with_stream(self.stream.clone());
            let pid = self.pid.load(Ordering::Relaxed);
            connection.pid.store(pid, Ordering::Relaxed);
            connection
        })
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        lock(&self.out)
    }

    pub fn close(&self) {
        self.stream.close();
    }

    /// Marks the end of this session: no more frames in either direction.
    fn end(&self) {
        self.credit.close();
        self.progress.send_modify(|progress| {
            progress.ended = true;
            progress.closed = true;
        });
    }

    /// Asks the keeper to report when the log is longer than `beyond`.
    pub fn watch(&self, beyond: u64) {
        let mut watched = lock(&self.watched);
        if watched.is_none_or(|lowest| beyond < lowest) {
            *watched = Some(beyond);
            self.send(&ToKeeper::Watch { beyond });
        }
    }

    pub async fn input(&self, bytes: &[u8], mut once: Option<InputKey>) -> io::Result<()> {
        for part in bytes.chunks(INPUT_WINDOW / 4) {
            let room = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let permit = self
                .credit
                .acquire_many(room)
                .await
                .map_err(|_| io::ErrorKind::BrokenPipe)?;
            permit.forget();
            self.send(&ToKeeper::Input {
                bytes: part.to_vec(),
                once: once.clone(),
            });
            if let Some(once) = &mut once {
                once.from += part.len() as u64;
            }
            crash_point("input.post_send");
        }
        Ok(())
    }

    /// Waits until no input is on the way to the command.
    pub async fn input_taken(&self) {
        // An error means that the session has ended.
        let _ = self.credit.acquire_many(INPUT_WINDOW as u32).await;
    }

    /// Number of bytes of input that reached no process.
    pub fn dropped_input(&self) -> u64 {
        self.dropped_input.load(Ordering::Relaxed)
    }

    /// Sends input if all of it can be sent at once.
    pub fn send_reply(&self, bytes: &[u8]) {
        let room = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Ok(permit) = self.credit.try_acquire_many(room) {
            permit.forget();
            self.send(&ToKeeper::Input {
                bytes: bytes.to_vec(),
                once: None,
            });
        }
    }

    fn grew(&self, bytes: u64) {
        let mut watched = lock(&self.watched);
        *watched = watched.filter(|beyond| *beyond >= bytes);
        if let Some(beyond) = *watched {
            self.send(&ToKeeper::Watch { beyond });
        }
        drop(watched);
        self.progress
            .send_modify(|progress| progress.bytes = progress.bytes.max(bytes));
    }

    /// Writes the bytes that did not fit before.
    async fn flush(&self) -> io::Result<()> {
        loop {
            self.unsent_added.notified().await;
            loop {
                self.stream.writable().await?;
                let mut out = self.outgoing();
                let written = self.stream.write_now(&out.unsent)?;
                out.unsent.drain(..written);
                if out.unsent.is_empty() {
                    break;
                }
            }
        }
    }
}

/// Follows the length of one session's log.
pub struct Follower {
    connection: Arc<KeeperConnection>,
    progress: watch::Receiver<LogProgress>,
}

impl Follower {
    /// Follower from now on.
    pub(super) fn new(connection: Arc<KeeperConnection>) -> Self {
        let progress = connection.progress.subscribe();
        Follower {
            connection,
            progress,
        }
    }

    /// Waits until the log is longer than `offset`, the leader has ended, or the keeper is gone.
    pub async fn wait_beyond(&mut self, offset: u64) -> LogProgress {
        self.until(offset, |progress| progress.ended).await
    }

    /// Waits until the log is longer than `offset`, or is closed: processes that the leader left behind may go on
    /// writing.
    pub async fn wait_beyond_after_exit(&mut self, offset: u64) -> LogProgress {
        self.until(offset, |progress| progress.closed).await
    }

    async fn until(&mut self, offset: u64, has_ended: fn(&LogProgress) -> bool) -> LogProgress {
        let now = *self.progress.borrow_and_update();
        if now.bytes > offset || has_ended(&now) {
            return now;
        }
        loop {
            self.connection.watch(offset);
            if self.progress.changed().await.is_err() {
                let last = *self.progress.borrow();
                return LogProgress {
                    ended: true,
                    closed: true,
                    ..last
                };
            }
            let now = *self.progress.borrow_and_update();
            if now.bytes > offset || has_ended(&now) {
                return now;
            }
        }
    }
}

/// Reads the frames of a keeper until it exits, and turns them into events. A keeper that this daemon made
/// (`made_here`) serves one session after the other.
pub(super) async fn read_connection(
    keepers: Arc<Keepers>,
    mut id: SessionId,
    connection: Arc<KeeperConnection>,
    made_here: bool,
) {
    let mut task = KeeperTask::new(connection, made_here);
    loop {
        let (connection, next) = (task.connection.clone(), task.read_frames(&keepers, id));
        let next = tokio::select! {
            biased;
            () = keepers.shutdown.cancelled() => return,
            next = next => next.ok().flatten(),
            _ = connection.flush() => None,
        };
        connection.end();
        keepers.forget(id);
        match next {
            Some((next, connection)) => {
                (id, task.connection, task.life) = (next, connection, Lifecycle::default());
            }
            None if connection.is_abandoned() && !task.life.has_started() => {
                keepers.drop_idle(id);
                return starting::record_abandoned_start(&keepers, id).await;
            }
            None => return failed_keeper::keeper_gone(&keepers, id, &connection, task.life).await,
        }
    }
}

/// State of the present session, as the keeper has reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lifecycle {
    /// The keeper is not ready yet: its frames are about the previous session.
    #[default]
    Preparing,
    /// The keeper can start a command, or is about to.
    Ready,
    /// The command runs.
    Started,
    /// The leader has ended, or could not be started.
    Ended {
        /// True if no process of the tree is left.
        empty: bool,
    },
}

impl Lifecycle {
    /// True if the start has succeeded or failed.
    pub fn has_started(self) -> bool {
        matches!(self, Lifecycle::Started | Lifecycle::Ended { .. })
    }

    fn has_ended(self) -> bool {
        matches!(self, Lifecycle::Ended { .. })
    }
}

/// State of the task that reads the frames of one keeper.
struct KeeperTask {
    connection: Arc<KeeperConnection>,
    life: Lifecycle,
    made_here: bool,
    inbox: Vec<u8>,
}

impl KeeperTask {
    fn new(connection: Arc<KeeperConnection>, made_here: bool) -> Self {
        KeeperTask {
            connection,
            life: Lifecycle::default(),
            made_here,
            inbox: Vec::new(),
        }
    }

    /// Reads frames until the keeper exits or is reused: then returns the next session and its connection.
    async fn read_frames(
        &mut self,
        keepers: &Arc<Keepers>,
        id: SessionId,
    ) -> io::Result<Option<(SessionId, Arc<KeeperConnection>)>> {
        let mut chunk = [0; READ_SIZE];
        loop {
            while let Some(frame) =
                FromKeeper::take_from(&mut self.inbox).map_err(|_| io::ErrorKind::InvalidData)?
            {
                let had_ended = self.life.has_ended();
                let is_complete =
                    matches!(&frame, FromKeeper::Exited(exited) if exited.empty && exited.closed);
                self.connection.frame_received.notify_waiters();
                if let Some(event) = to_event(keepers, id, &self.connection, &mut self.life, frame)
                {
                    if matches!(event, Event::Started { .. }) && keepers.is_sandboxed(id) {
                        keepers.follow_gate(id, !self.made_here);
                    }
                    if matches!(event, Event::OutputGrew { .. }) && self.inbox.is_empty() {
                        // Readers that wait for the bytes run before the engine.
                        tokio::task::yield_now().await;
                    }
                    let _ = keepers.events.send(event).await;
                }
                if self.life.has_ended() && !had_ended {
                    // Calls that wait for the ending run first.
                    tokio::task::yield_now().await;
                    if let Some(next) = self.release_keeper(keepers, id, is_complete) {
                        return Ok(Some(next));
                    }
                }
            }
            let count = self.connection.stream.read(&mut chunk).await?;
            match count {
                0 => return Ok(None),
                count => self.inbox.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Releases the keeper after its session has ended: it becomes idle, or may exit. `is_complete`: the tree is empty and
    /// the log is closed.
    fn release_keeper(
        &self,
        keepers: &Arc<Keepers>,
        id: SessionId,
        is_complete: bool,
    ) -> Option<(SessionId, Arc<KeeperConnection>)> {
        // Without a control group the keeper itself holds the tree together, so it must not serve a second session. The
        // processes of a sandbox end with its init process, which the keeper has reaped. Another keeper with a pid
        // namespace has moved into it.
        let clean = match keepers.contained_by(id) {
            Some(Containment::Cgroup) => true,
            Some(Containment::PidNamespace) => keepers.is_sandboxed(id),
            Some(Containment::Subreaper) | None => false,
        };
        if self.made_here && is_complete && clean {
            let next = keepers.reuse(&self.connection);
            if next.is_some() {
                return next;
            }
        }
        self.connection.send(&ToKeeper::Ack);
        None
    }
}

/// Translates a frame into an event of the core.
fn to_event(
    keepers: &Keepers,
    session: SessionId,
    connection: &KeeperConnection,
    life: &mut Lifecycle,
    frame: FromKeeper,
) -> Option<Event> {
    match frame {
        FromKeeper::Ready {
            contained_by, pid, ..
        } => {
            keepers.set_containment(session, contained_by);
            connection.pid.store(pid, Ordering::Relaxed);
            if *life == Lifecycle::Preparing {
                *life = Lifecycle::Ready;
            }
            None
        }
        FromKeeper::StartFailed(StartFailure {
            errno,
            sentence,
            at_wall_ms,
        }) => {
            if *life == Lifecycle::Preparing {
                tracing::warn!("cannot start a keeper: {sentence}");
            }
            connection.end_start(StartState::Reported);
            keepers.starting.remove(session);
            *life = Lifecycle::Ended { empty: true };
            Some(Event::StartFailed {
                session,
                fault: sentence.into(),
                error: start_error(errno),
                at: Wall(at_wall_ms),
            })
        }
        _ if *life == Lifecycle::Preparing => None,
        FromKeeper::Started {
            contained_by,
            sandboxed,
            ..
        } => {
            keepers.set_containment(session, contained_by);
            keepers.set_sandbox(session, sandboxed);
            connection.end_start(StartState::Reported);
            keepers.starting.remove(session);
            if *life == Lifecycle::Ready {
                *life = Lifecycle::Started;
            }
            Some(Event::Started { session })
        }
        FromKeeper::Grew {
            bytes,
            quiet_since_mono_ms,
        } => {
            connection.grew(bytes);
            Some(Event::OutputGrew {
                session,
                bytes,
                quiet_since: Mono(quiet_since_mono_ms),
            })
        }
        FromKeeper::Exited(exited) => {
            *life = Lifecycle::Ended {
                empty: exited.empty,
            };
            connection.progress.send_modify(|progress| {
                progress.bytes = progress.bytes.max(exited.bytes);
                progress.ended = true;
                progress.closed |= exited.closed;
            });
            Some(Event::Exited {
                session,
                ending: Ending::from(&exited),
                empty: exited.empty,
            })
        }
        FromKeeper::Emptied => {
            *life = Lifecycle::Ended { empty: true };
            Some(Event::Emptied { session })
        }
        FromKeeper::Closed => {
            connection
                .progress
                .send_modify(|progress| progress.closed = true);
            None
        }
        FromKeeper::InputTaken { bytes } => {
            connection
                .credit
                .add_permits(usize::try_from(bytes).unwrap_or(0));
            None
        }
        FromKeeper::InputDropped { bytes } => {
            connection.dropped_input.fetch_add(bytes, Ordering::Relaxed);
            None
        }
        FromKeeper::KillPending { left } => {
            tracing::warn!(
                "{left} processes of {session} survive SIGKILL; its keeper keeps trying"
            );
            Some(Event::SurvivesKill { session })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Lengths that the keeper at the other end is asked to watch.
    fn watched(keeper: &mut UnixStream) -> Vec<u64> {
        let mut bytes = [0; READ_SIZE];
        let length = keeper.read(&mut bytes).unwrap_or_default();
        let mut inbox = bytes[..length].to_vec();
        let frames = std::iter::from_fn(|| ToKeeper::take_from(&mut inbox).unwrap());
        let lengths = frames.map(|frame| match frame {
            ToKeeper::Watch { beyond } => beyond,
            other => panic!("{other:?}"),
        });
        lengths.collect()
    }

    #[tokio::test]
    async fn keeper_is_asked_only_for_a_lower_length() {
        let (ours, mut keeper) = UnixStream::pair().unwrap();
        keeper.set_nonblocking(true).unwrap();
        let connection = KeeperConnection::new(Stream::new(ours).unwrap());
        (7..1_000).for_each(|beyond| connection.watch(beyond));
        connection.watch(7);
        assert_eq!(watched(&mut keeper), [7]);
        connection.watch(3);
        assert_eq!(watched(&mut keeper), [3]);
        connection.grew(4);
        assert!(watched(&mut keeper).is_empty());
        connection.watch(7);
        assert_eq!(watched(&mut keeper), [7]);
    }

    #[tokio::test]
    async fn reader_of_a_greater_length_asks_again_after_each_report() {
        let (ours, mut keeper) = UnixStream::pair().unwrap();
        keeper.set_nonblocking(true).unwrap();
        let connection = Arc::new(KeeperConnection::new(Stream::new(ours).unwrap()));
        let mut near = Follower::new(connection.clone());
        let mut far = Follower::new(connection.clone());
        let (near, far) = (near.wait_beyond(3), far.wait_beyond(9));
        let reports = async {
            tokio::task::yield_now().await;
            assert_eq!(watched(&mut keeper), [3]);
            connection.grew(5);
            while *connection.watched.lock().unwrap() != Some(9) {
                tokio::task::yield_now().await;
            }
            assert_eq!(watched(&mut keeper), [9]);
            connection.grew(10);
        };
        let (near, far, ()) = tokio::join!(near, far, reports);
        assert_eq!((near.bytes, far.bytes), (5, 10));
    }
}
