//! The screens of all sessions that have a terminal, kept up to date as output comes.
//!
//! A few that are in use are held ready; the others are folded small, or not even built until
//! somebody looks or the program writes again. Whatever a program asks its terminal is answered from
//! here while it runs. What was written before this daemon came is never answered: whoever asked has
//! stopped waiting.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use abide_core::SessionId;
use tokio::sync::broadcast;

use super::clock::pause;
use super::keepers::Keepers;
use super::screen::{Folded, Modes, Screen, Size, Skim, Snapshot};
use super::secret;
use abide_session::folder;
use abide_session::log::{Log, Piece};
use abide_session::pts;

/// Screens held ready at once.
const AWAKE: usize = 32;
/// Of output that is more than this, only the end is painted; the rest is looked through for what
/// stays in force.
const PAINTED: u64 = 1 << 20;
/// Cells that may be touched on the spot, on the daemon's own thread; more on another one. A sequence
/// of two bytes can touch every cell of the screen.
const ON_THE_SPOT: u64 = 2 << 20;
/// The size of a terminal of which none is known.
const SIZE: Size = Size {
    cols: 120,
    rows: 40,
};
/// How long after it came output is painted. A program that asks its terminal something waits longer.
const MOMENT: Duration = Duration::from_millis(2);
/// Changes of size that may wait to be heard of.
const RESIZED: usize = 64;
/// Where the last size is written down, in a session's folder.
const SIZE_FILE: &str = "size";

/// All screens of one daemon.
pub struct Screens {
    keepers: Arc<Keepers>,
    kept: Mutex<HashMap<SessionId, Arc<Mutex<Live>>>>,
    /// Those that are held ready, the one used last at the end.
    awake: Mutex<VecDeque<SessionId>>,
    resized: broadcast::Sender<(SessionId, Size)>,
}

/// The screen of one session.
struct Live {
    folder: PathBuf,
    size: Size,
    /// How far the screen is true.
    at: u64,
    /// Where the output begins that comes live.
    live_from: u64,
    skim: Skim,
    state: State,
}

enum State {
    Unbuilt,
    Folded(Folded),
    Awake(Box<Screen>),
}

impl Screens {
    /// Screens for the sessions of these keepers.
    pub fn new(keepers: Arc<Keepers>) -> Arc<Self> {
        Arc::new(Screens {
            keepers,
            kept: Mutex::default(),
            awake: Mutex::default(),
            resized: broadcast::channel(RESIZED).0,
        })
    }

    /// Keeps the screen of a session that runs, from now on. `fresh`: it has only just been started.
    pub fn keep(self: &Arc<Self>, id: SessionId, fresh: bool) {
        let mut kept = self.kept.lock().expect("no holder panics");
        if kept.contains_key(&id) {
            return;
        }
        let mut live = Live::new(self.keepers.folder(id));
        live.live_from = if fresh { 0 } else { live.end().unwrap_or(0) };
        let from = live.live_from;
        let live = Arc::new(Mutex::new(live));
        kept.insert(id, live.clone());
        tokio::spawn(attend(self.clone(), id, live, from));
    }

    /// What is to be seen of a session now, or was at its end.
    pub async fn snapshot(self: &Arc<Self>, id: SessionId) -> io::Result<Snapshot> {
        self.look(id, |live| live.screen().snapshot()).await
    }

    /// How a session's program wants to be talked to.
    pub async fn modes(self: &Arc<Self>, id: SessionId) -> io::Result<Modes> {
        self.look(id, |live| live.screen().modes()).await
    }

    /// The bytes that paint a session's screen on an empty terminal, its size, and the offset in the
    /// log from which to go on.
    pub async fn paint(self: &Arc<Self>, id: SessionId) -> io::Result<(Folded, u64)> {
        self.look(id, |live| (live.fold(), live.at)).await
    }

    /// The terminal has so many columns and rows from now on; those that are not given stay. Its size is
    /// written down, so that a later daemon knows it.
    pub async fn resize(
        self: &Arc<Self>,
        id: SessionId,
        (cols, rows): (Option<u16>, Option<u16>),
    ) -> io::Result<Size> {
        let (size, changed) = self
            .look(id, move |live| {
                let size = Size {
                    cols: cols.unwrap_or(live.size.cols),
                    rows: rows.unwrap_or(live.size.rows),
                }
                .clamped();
                let changed = live.size != size;
                live.size = size;
                live.screen().resize(size);
                let words = format!("{} {}", size.cols, size.rows);
                secret::write(&live.folder.join(SIZE_FILE), &words)?;
                Ok::<_, io::Error>((size, changed))
            })
            .await??;
        if changed {
            let _ = self.resized.send((id, size));
        }
        Ok(size)
    }

    /// Hears of terminals that get another size.
    pub fn resized(&self) -> broadcast::Receiver<(SessionId, Size)> {
        self.resized.subscribe()
    }

    /// Brings a screen up to date and looks at it.
    async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        id: SessionId,
        see: impl FnOnce(&mut Live) -> T + Send + 'static,
    ) -> io::Result<T> {
        let live = self
            .kept
            .lock()
            .expect("no holder panics")
            .get(&id)
            .cloned();
        let live = live.unwrap_or_else(|| {
            // It has ended, so nothing comes live any more.
            let mut live = Live::new(self.keepers.folder(id));
            live.live_from = u64::MAX;
            Arc::new(Mutex::new(live))
        });
        let on_the_spot = match try_lock(&live) {
            Some(held) => held.is_soon_painted(held.end()?),
            // It is being painted.
            None => false,
        };
        let screens = self.clone();
        let work = move || {
            let mut held = lock(&live);
            let end = held.end()?;
            screens.catch_up(id, &mut held, end)?;
            let seen = see(&mut held);
            drop(held);
            screens.used(id);
            Ok(seen)
        };
        if on_the_spot {
            return work();
        }
        tokio::task::spawn_blocking(work)
            .await
            .map_err(io::Error::other)?
    }

    /// Paints what has come, which is at least up to `end`, and answers what it asks. A terminal that
    /// gathers lines has been asked by nobody who waits, as by a file that was printed: the answer would
    /// stand in the next line that somebody types.
    fn catch_up(&self, id: SessionId, live: &mut Live, end: u64) -> io::Result<u64> {
        let folder = live.folder.clone();
        live.catch_up(end, |replies| {
            let meta = folder::read_meta(&folder).ok().flatten();
            if !meta.is_some_and(|meta| pts::gathers_lines(&meta)) {
                self.keepers.answer(id, replies);
            }
        })
    }

    /// A screen was used: it is held ready, and the one that was not used for longest is folded.
    fn used(&self, id: SessionId) {
        let mut awake = self.awake.lock().expect("no holder panics");
        awake.retain(|other| *other != id);
        awake.push_back(id);
        let idle = (awake.len() > AWAKE).then(|| awake.pop_front()).flatten();
        drop(awake);
        let idle = idle.and_then(|id| {
            let kept = self.kept.lock().expect("no holder panics");
            kept.get(&id).cloned()
        });
        // One that is just being painted is used, and comes back.
        if let Some(mut idle) = idle.as_deref().and_then(try_lock) {
            idle.fold();
        }
    }

    fn forget(&self, id: SessionId) {
        self.kept.lock().expect("no holder panics").remove(&id);
        let mut awake = self.awake.lock().expect("no holder panics");
        awake.retain(|other| *other != id);
    }
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    live.lock().expect("no holder panics")
}

/// The same for whoever must not wait: to paint much takes a while.
fn try_lock(live: &Mutex<Live>) -> Option<MutexGuard<'_, Live>> {
    match live.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(_)) => panic!("no holder panics"),
    }
}

/// Follows a session's output for as long as it runs.
async fn attend(screens: Arc<Screens>, id: SessionId, live: Arc<Mutex<Live>>, mut at: u64) {
    if let Some(mut follower) = screens.keepers.follow(id) {
        loop {
            let progress = follower.beyond(at).await;
            at = at.max(progress.bytes);
            if progress.ended {
                break;
            }
            // Whoever waits to read this comes first, and what comes in a burst is painted at once.
            pause(MOMENT).await;
            let on_the_spot = try_lock(&live).is_some_and(|held| held.is_soon_painted(at));
            let (screens, live) = (screens.clone(), live.clone());
            let work = move || {
                let painted = screens.catch_up(id, &mut lock(&live), at);
                screens.used(id);
                painted
            };
            let painted = if on_the_spot {
                work()
            } else {
                let work = tokio::task::spawn_blocking(work).await;
                work.unwrap_or_else(|fault| Err(io::Error::other(fault)))
            };
            if let Err(fault) = painted {
                tracing::warn!("the log of {id} cannot be read: {fault}");
                break;
            }
        }
    }
    screens.forget(id);
}

impl Live {
    fn new(folder: PathBuf) -> Self {
        Live {
            size: size_of(&folder),
            folder,
            at: 0,
            live_from: 0,
            skim: Skim::default(),
            state: State::Unbuilt,
        }
    }

    fn end(&self) -> io::Result<u64> {
        Log::open(&self.folder).end()
    }

    /// Whether little work is left to paint what has come up to `end`, whatever it is.
    fn is_soon_painted(&self, end: u64) -> bool {
        let cells = u64::from(self.size.cols) * u64::from(self.size.rows);
        end.saturating_sub(self.at).saturating_mul(cells) <= ON_THE_SPOT
    }

    /// The screen, ready.
    fn screen(&mut self) -> &mut Screen {
        if !matches!(self.state, State::Awake(_)) {
            let screen = match &self.state {
                State::Folded(folded) => folded.unfold(),
                State::Unbuilt | State::Awake(_) => Screen::new(self.size),
            };
            self.state = State::Awake(Box::new(screen));
        }
        match &mut self.state {
            State::Awake(screen) => screen,
            State::Unbuilt | State::Folded(_) => unreachable!("it has just been made ready"),
        }
    }

    /// Folds the screen; it stays what it is.
    fn fold(&mut self) -> Folded {
        let folded = match std::mem::replace(&mut self.state, State::Unbuilt) {
            State::Unbuilt => Folded::empty(self.size),
            State::Folded(folded) => folded,
            State::Awake(screen) => screen.fold(),
        };
        self.state = State::Folded(folded.clone());
        folded
    }

    fn catch_up(&mut self, end: u64, mut answer: impl FnMut(&[u8])) -> io::Result<u64> {
        if end <= self.at {
            return Ok(self.at);
        }
        let painted_from = end.saturating_sub(PAINTED);
        let mut pieces = Log::open(&self.folder).pieces(self.at, None).known_to(end);
        while let Some(piece) = pieces.next_within(usize::MAX)? {
            if let Piece::Chunk(chunk) = piece {
                let to = chunk.offset + chunk.bytes.len() as u64;
                if to <= painted_from {
                    self.skimmed(&chunk.bytes);
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

    fn skimmed(&mut self, bytes: &[u8]) {
        let mut skim = std::mem::take(&mut self.skim);
        let screen = self.screen();
        skim.pass(bytes, |lasting| screen.replay(lasting));
        self.skim = skim;
    }
}

/// The size a session's terminal has, as far as is written down.
fn size_of(folder: &Path) -> Size {
    let resized = folder::read(&folder.join(SIZE_FILE)).ok().flatten();
    let resized = resized.and_then(|text| {
        let text = String::from_utf8(text).ok()?;
        let (cols, rows) = text.split_once(' ')?;
        Some(Size {
            cols: cols.parse().ok()?,
            rows: rows.parse().ok()?,
        })
    });
    let first = || {
        let meta = folder::read_meta(folder).ok().flatten()?;
        meta.pty.map(|size| Size {
            cols: size.cols,
            rows: size.rows,
        })
    };
    resized.or_else(first).unwrap_or(SIZE).clamped()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn only_a_few_bytes_are_painted_on_the_daemons_own_thread() {
        let folder = tempfile::tempdir().unwrap();
        let mut live = Live::new(folder.path().to_owned());
        assert!(live.is_soon_painted(200));
        assert!(!live.is_soon_painted(1 << 10));
        live.size = Size {
            cols: Size::MOST_COLS,
            rows: Size::MOST_ROWS,
        };
        assert!(live.is_soon_painted(0));
        assert!(!live.is_soon_painted(8));
    }

    #[test]
    fn a_screen_that_is_being_painted_holds_up_only_who_looks_at_it() {
        let folder = tempfile::tempdir().unwrap();
        let (events, _heard) = mpsc::channel(1);
        let keepers = Keepers::new(folder.path().to_owned(), "abide".into(), 0, events);
        let screens = Screens::new(keepers);
        let id = SessionId::from_bits(1);
        let live = Arc::new(Mutex::new(Live::new(folder.path().join(id.to_string()))));
        let mut kept = screens.kept.lock().unwrap();
        kept.insert(id, live.clone());
        drop(kept);
        let (begun, has_begun) = std_mpsc::channel();
        let (painted, is_painted) = std_mpsc::channel::<()>();
        let painter = std::thread::spawn(move || {
            let painting = lock(&live);
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
            // It looks by now, and somebody else has a turn all the same.
            tokio::task::yield_now().await;
            painted.send(()).unwrap();
            assert_eq!(looking.await.unwrap().unwrap().title, None);
        });
        painter.join().unwrap();
    }
}
