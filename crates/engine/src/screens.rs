//! The screens of all sessions with a terminal, updated as output arrives.
//!
//! A few that are in use are expanded; the others are compact, or not built until they are read or the program
//! writes. Queries of a program to its terminal are answered from here while it runs. Output from before this daemon
//! is never answered: the program has stopped waiting.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use abide_core::{SessionId, limit};
use tokio::sync::broadcast;

use super::clock::pause;
use super::keepers::Keepers;
use super::screen::{CompactScreen, ModeScanner, Modes, Screen, Size, Snapshot};
use crate::lock::lock;
use abide_session::daemon_record::DaemonRecord;
use abide_session::frame;
use abide_session::keeper_record;
use abide_session::log::{Log, Piece};
use abide_session::pts;

/// Maximum of expanded screens.
const MAX_EXPANDED: usize = 32;
/// Bytes at the end of long output that are painted; the rest is only scanned for lasting modes.
const MAX_PAINTED: u64 = 1 << 20;
/// Size of a terminal if none is known.
const DEFAULT_SIZE: Size = Size {
    cols: limit::COLS_DEFAULT,
    rows: limit::ROWS_DEFAULT,
};
/// Delay before new output is painted. A program that queries its terminal waits longer.
const PAINT_DELAY: Duration = Duration::from_millis(2);
/// Delay after output could not be read.
const READ_RETRY: Duration = Duration::from_secs(1);
/// Changes of size that a receiver may lag behind.
const RESIZE_QUEUE: usize = 64;

/// All screens of one daemon.
pub struct Screens {
    keepers: Arc<Keepers>,
    tracked: Mutex<HashMap<SessionId, Arc<Mutex<SessionScreen>>>>,
    /// Sessions with an expanded screen, the one used last at the end.
    expanded: Mutex<VecDeque<SessionId>>,
    resized: broadcast::Sender<(SessionId, Size)>,
}

struct SessionScreen {
    folder: PathBuf,
    size: Size,
    /// Log offset up to which the screen is painted.
    at: u64,
    /// Log offset from which output is live.
    live_from: u64,
    mode_scanner: ModeScanner,
    state: State,
}

/// Form in which a screen is kept.
enum State {
    Unbuilt,
    Compact(CompactScreen),
    Expanded(Box<Screen>),
}

impl Screens {
    /// Screens of the sessions of these keepers.
    pub fn new(keepers: Arc<Keepers>) -> Arc<Self> {
        Arc::new(Screens {
            keepers,
            tracked: Mutex::default(),
            expanded: Mutex::default(),
            resized: broadcast::channel(RESIZE_QUEUE).0,
        })
    }

    /// Tracks the screen of a running session. `fresh`: the session has only just been started.
    pub fn track(self: &Arc<Self>, id: SessionId, fresh: bool) {
        let mut tracked = lock(&self.tracked);
        if tracked.contains_key(&id) {
            return;
        }
        let mut session = SessionScreen::new(self.keepers.folder(id));
        session.live_from = if fresh {
            0
        } else {
            Log::open(&session.folder).end().unwrap_or(0)
        };
        let from = session.live_from;
        let session = Arc::new(Mutex::new(session));
        tracked.insert(id, session.clone());
        tokio::spawn(follow_output(self.clone(), id, session, from));
    }

    /// Content of a session's screen, now or at its end.
    pub async fn snapshot(self: &Arc<Self>, id: SessionId) -> io::Result<Snapshot> {
        self.with_screen(id, |session| session.screen().snapshot())
            .await
    }

    /// Modes of a session's terminal.
    pub async fn modes(self: &Arc<Self>, id: SessionId) -> io::Result<Modes> {
        self.with_screen(id, |session| session.screen().modes())
            .await
    }

    /// Compact screen of a session, and the log offset from which to continue.
    pub async fn paint(self: &Arc<Self>, id: SessionId) -> io::Result<(CompactScreen, u64)> {
        self.with_screen(id, |session| (session.compact(), session.at))
            .await
    }

    /// Changes the size of a terminal; columns or rows that are `None` stay. The size is written to the session's
    /// directory, so that a later daemon knows it.
    pub async fn resize(
        self: &Arc<Self>,
        id: SessionId,
        (cols, rows): (Option<u16>, Option<u16>),
    ) -> io::Result<Size> {
        let record = self.keepers.record(id);
        let (size, changed) = self
            .with_screen(id, move |session| {
                let size = Size {
                    cols: cols.unwrap_or(session.size.cols),
                    rows: rows.unwrap_or(session.size.rows),
                }
                .clamped();
                let changed = session.size != size;
                session.size = size;
                session.screen().resize(size);
                let Size { cols, rows } = size;
                record.set_size(frame::Size { cols, rows })?;
                Ok::<_, io::Error>((size, changed))
            })
            .await??;
        if changed {
            let _ = self.resized.send((id, size));
        }
        Ok(size)
    }

    /// Receiver of changes of size.
    pub fn resized(&self) -> broadcast::Receiver<(SessionId, Size)> {
        self.resized.subscribe()
    }

    /// Updates a screen and reads from it.
    async fn with_screen<T: Send + 'static>(
        self: &Arc<Self>,
        id: SessionId,
        read: impl FnOnce(&mut SessionScreen) -> T + Send + 'static,
    ) -> io::Result<T> {
        let session = lock(&self.tracked).get(&id).cloned();
        let session = session.unwrap_or_else(|| {
            // The session has ended, so no output is live.
            let mut session = SessionScreen::new(self.keepers.folder(id));
            session.live_from = u64::MAX;
            Arc::new(Mutex::new(session))
        });
        let screens = self.clone();
        // A sequence of two bytes can change every cell of the screen, so painting may take a while.
        let work = tokio::task::spawn_blocking(move || {
            let mut held = lock(&session);
            let end = Log::open(&held.folder).end()?;
            screens.catch_up(id, &mut held, end)?;
            let result = read(&mut held);
            drop(held);
            screens.mark_used(id);
            Ok(result)
        });
        work.await.map_err(io::Error::other)?
    }

    /// Paints the output up to `end` at least, and replies to its queries. A terminal in canonical mode gets no
    /// reply: no program waits for it, as when a file was printed, and the reply would end up in the next line that
    /// is typed.
    fn catch_up(&self, id: SessionId, session: &mut SessionScreen, end: u64) -> io::Result<u64> {
        let folder = session.folder.clone();
        session.catch_up(end, |replies| {
            let meta = keeper_record::read_meta(&folder).ok().flatten();
            if !meta.is_some_and(|meta| pts::is_canonical(&meta)) {
                self.keepers.send_reply(id, replies);
            }
        })
    }

    /// Marks a screen as used: it stays expanded, and the one that was not used for longest is compacted.
    fn mark_used(&self, id: SessionId) {
        let mut expanded = lock(&self.expanded);
        expanded.retain(|other| *other != id);
        expanded.push_back(id);
        let idle = (expanded.len() > MAX_EXPANDED)
            .then(|| expanded.pop_front())
            .flatten();
        drop(expanded);
        let idle = idle.and_then(|id| {
            let tracked = lock(&self.tracked);
            tracked.get(&id).cloned()
        });
        // A screen that is being painted is in use, and will be added again.
        if let Some(mut idle) = idle.as_deref().and_then(try_lock) {
            idle.compact();
        }
    }

    fn forget(&self, id: SessionId) {
        lock(&self.tracked).remove(&id);
        let mut expanded = lock(&self.expanded);
        expanded.retain(|other| *other != id);
    }
}

/// Locks without waiting, because painting may take a while.
fn try_lock(session: &Mutex<SessionScreen>) -> Option<MutexGuard<'_, SessionScreen>> {
    match session.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(_)) => panic!("no holder panics"),
    }
}

/// Follows a session's output until it ends.
async fn follow_output(
    screens: Arc<Screens>,
    id: SessionId,
    session: Arc<Mutex<SessionScreen>>,
    mut at: u64,
) {
    if let Some(mut follower) = screens.keepers.follow(id) {
        loop {
            let progress = follower.wait_beyond(at).await;
            at = at.max(progress.bytes);
            if progress.ended {
                break;
            }
            // Readers of this output run first, and a burst is painted at once.
            pause(PAINT_DELAY).await;
            let (all, own) = (screens.clone(), session.clone());
            let work = tokio::task::spawn_blocking(move || {
                let painted = all.catch_up(id, &mut lock(&own), at);
                all.mark_used(id);
                painted
            });
            let painted = work
                .await
                .unwrap_or_else(|fault| Err(io::Error::other(fault)));
            if let Err(fault) = painted {
                tracing::warn!("the log of {id} cannot be read: {fault}");
                pause(READ_RETRY).await;
                at = lock(&session).at;
            }
        }
    }
    screens.forget(id);
}

impl SessionScreen {
    fn new(folder: PathBuf) -> Self {
        SessionScreen {
            size: size_of(&folder),
            folder,
            at: 0,
            live_from: 0,
            mode_scanner: ModeScanner::default(),
            state: State::Unbuilt,
        }
    }

    /// Expanded screen.
    fn screen(&mut self) -> &mut Screen {
        if !matches!(self.state, State::Expanded(_)) {
            let screen = match &self.state {
                State::Compact(compact) => compact.expand(),
                State::Unbuilt | State::Expanded(_) => Screen::new(self.size),
            };
            self.state = State::Expanded(Box::new(screen));
        }
        match &mut self.state {
            State::Expanded(screen) => screen,
            State::Unbuilt | State::Compact(_) => unreachable!("it has just been made ready"),
        }
    }

    /// Compacts the screen in place.
    fn compact(&mut self) -> CompactScreen {
        let compact = match std::mem::replace(&mut self.state, State::Unbuilt) {
            State::Unbuilt => CompactScreen::empty(self.size),
            State::Compact(compact) => compact,
            State::Expanded(screen) => screen.compact(),
        };
        self.state = State::Compact(compact.clone());
        compact
    }

    fn catch_up(&mut self, end: u64, mut answer: impl FnMut(&[u8])) -> io::Result<u64> {
        if end <= self.at {
            return Ok(self.at);
        }
        let painted_from = end.saturating_sub(MAX_PAINTED);
        let mut pieces = Log::open(&self.folder).pieces(self.at, None).up_to(end);
        while let Some(piece) = pieces.next_within(usize::MAX)? {
            if let Piece::Chunk(chunk) = piece {
                let to = chunk.offset + chunk.bytes.len() as u64;
                if to <= painted_from {
                    self.scan_modes(&chunk.bytes);
                } else {
                    let before = self.live_from.saturating_sub(chunk.offset);
                    let before = usize::try_from(before).unwrap_or(usize::MAX);
                    let (old, new) = chunk.bytes.split_at(before.min(chunk.bytes.len()));
                    self.screen().replay(old);
                    let replies = self.screen().feed(new);
                    if !replies.is_empty() {
                        answer(&replies);
                    }
                }
            }
            self.at = pieces.at();
        }
        Ok(self.at)
    }

    fn scan_modes(&mut self, bytes: &[u8]) {
        let mut mode_scanner = std::mem::take(&mut self.mode_scanner);
        let screen = self.screen();
        mode_scanner.pass(bytes, |lasting| screen.replay(lasting));
        self.mode_scanner = mode_scanner;
    }
}

/// Size of a session's terminal, from its directory.
fn size_of(folder: &Path) -> Size {
    let resized = DaemonRecord::read(folder).size;
    let first = || keeper_record::read_meta(folder).ok().flatten()?.launch.pty;
    let size = resized.or_else(first).map(|size| Size {
        cols: size.cols,
        rows: size.rows,
    });
    size.unwrap_or(DEFAULT_SIZE).clamped()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn screen_being_painted_blocks_only_its_own_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let (events, _heard) = mpsc::channel(1);
        let keepers = Keepers::new(folder.path().to_owned(), "abide".into(), 0, events);
        let screens = Screens::new(keepers);
        let id = SessionId::from_bits(1);
        let session = Arc::new(Mutex::new(SessionScreen::new(
            folder.path().join(id.to_string()),
        )));
        let mut tracked = screens.tracked.lock().unwrap();
        tracked.insert(id, session.clone());
        drop(tracked);
        let (begun, has_begun) = std_mpsc::channel();
        let (painted, is_painted) = std_mpsc::channel::<()>();
        let painter = std::thread::spawn(move || {
            let painting = lock(&session);
            begun.send(()).unwrap();
            is_painted.recv().unwrap();
            drop(painting);
        });
        has_begun.recv().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let looking = tokio::spawn(async move { screens.snapshot(id).await });
            // The snapshot waits by now, and this task runs anyway.
            tokio::task::yield_now().await;
            painted.send(()).unwrap();
            assert_eq!(looking.await.unwrap().unwrap().title, None);
        });
        painter.join().unwrap();
    }
}
