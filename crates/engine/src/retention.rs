//! Retention of ended sessions and old rows: by age, by bytes on disk and by number, so that there is always room for
//! new sessions. Only ended sessions are removed, the directory before the entry. The limits are enforced when
//! sessions end, when the configuration changes, and every hour.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use abide_core::time::{Boot, Wall};
use abide_core::{Event, Millis, Mono, Now, SessionId, limit};

use super::{Handle, refusals};
use crate::clock::{Clock, pause};
use crate::store::Store;
use abide_session::{crash_point, sandbox};

const FULL_SCAN_INTERVAL: Millis = Millis(3_600_000);
/// Delay after a session has ended, so that several are handled together.
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// Minimum time before an ended session is removed for lack of room: its last output may still be on the way to the
/// client.
const MIN_AGE: Millis = Millis(2_000);
/// Pause between two batches of old rows.
const PRUNE_PAUSE: Duration = Duration::from_millis(20);

/// Enforces the limits for as long as the daemon runs.
pub(super) async fn run(handle: Handle, clock: Arc<dyn Clock>, store: Arc<dyn Store>) {
    let mut trusted_clock = TrustedClock::default();
    let mut ended_sessions = EndedSessions::default();
    let mut next_round = Mono(0);
    let mut config_changes = handle.live_config().follow();
    loop {
        let at = clock.now();
        let full = at.mono >= next_round;
        // The sessions that are over in the first round have ended under earlier daemons.
        let since = (next_round > Mono(0)).then_some(at.mono);
        let reader = handle.clone();
        let scanned = tokio::task::spawn_blocking(move || {
            ended_sessions.update(&reader, since);
            let now = trusted_clock.now(at, ended_sessions.last_created);
            let (removed, held) = ended_sessions.make_room(&reader, now, at.mono);
            (ended_sessions, trusted_clock, now, removed, held)
        });
        let (now, removed, held);
        (ended_sessions, trusted_clock, now, removed, held) = match scanned.await {
            Ok(scanned) => scanned,
            Err(fault) => return tracing::error!("old sessions are no longer removed: {fault}"),
        };
        if !removed.is_empty() {
            tracing::info!("removed {} ended sessions", removed.len());
            handle
                .send_event(Event::Forgotten { sessions: removed })
                .await;
        }
        if full {
            let days = handle.config().keep_days.saturating_mul(DAY);
            prune_rows(&*store, now.0.saturating_sub(days)).await;
            handle.keepers().trim_pool();
            clean_layers(&handle, now).await;
            next_round = at.mono + FULL_SCAN_INTERVAL;
        }
        if handle.config().sandbox.limits_layers() {
            measure_layers(&handle).await;
        }
        let rest = Duration::from_millis(next_round.since(clock.now().mono).0);
        tokio::select! {
            () = pause(rest) => {}
            () = pause(Duration::from_millis(MIN_AGE.0)), if held => {}
            () = handle.published().ended() => pause(BATCH_DELAY).await,
            // Limits may be lower now.
            Ok(()) = config_changes.changed() => next_round = clock.now().mono,
        }
    }
}

/// Removes layers of sandboxes that were not used for long, and what killed keepers have left in them.
async fn clean_layers(handle: &Handle, now: Wall) {
    let handle = handle.clone();
    let cleaned = tokio::task::spawn_blocking(move || {
        let root = handle.paths().state.join(sandbox::OWN_LAYERS);
        let is_running = |session: &str| {
            let view = session
                .parse()
                .ok()
                .and_then(|id| handle.published().session(id));
            view.is_some_and(|view| view.is_alive())
        };
        // The published state is complete: sessions of a former daemon are taken up before this begins.
        let now = UNIX_EPOCH + Duration::from_millis(now.0);
        sandbox::clean_layers(&root, now, is_running)
    });
    match cleaned.await {
        Ok(Ok(removed)) if removed.is_empty() => {}
        Ok(Ok(removed)) => tracing::info!("removed unused layers: {}", removed.join(", ")),
        Ok(Err(fault)) => tracing::warn!("cannot clean the layers of sandboxes: {fault}"),
        Err(fault) => tracing::error!("layers are no longer cleaned: {fault}"),
    }
}

/// Measures the layers of sandboxes, since the kernel has no limit for them.
async fn measure_layers(handle: &Handle) {
    let root = handle.paths().state.join(sandbox::OWN_LAYERS);
    let measured = tokio::task::spawn_blocking(move || sandbox::measure_layers(&root));
    match measured.await {
        Ok(Ok(())) => {}
        Ok(Err(fault)) => tracing::warn!("cannot measure the layers of sandboxes: {fault}"),
        Err(fault) => tracing::error!("layers are no longer measured: {fault}"),
    }
}

/// Ended sessions, those that ended first at the beginning.
#[derive(Default)]
struct EndedSessions {
    by_age: BTreeMap<(Wall, SessionId), EndedSession>,
    /// Last time at which one of them was created.
    last_created: Option<Wall>,
}

struct EndedSession {
    /// Bytes on disk.
    bytes: u64,
    /// Time at which it was seen to have ended; `None`: it had ended when the daemon began.
    since: Option<Mono>,
}

impl EndedSessions {
    /// Adds the sessions that have ended since the last call, at `since`, and drops those that were removed, such as the
    /// earlier tries of a condition.
    fn update(&mut self, handle: &Handle, since: Option<Mono>) {
        let sessions = handle.published().sessions();
        // They are in the order of their ids.
        let is_kept = |id: &SessionId| sessions.binary_search_by_key(id, |view| view.id).is_ok();
        self.by_age.retain(|(_, id), _| is_kept(id));
        for view in &sessions {
            let Some(ended) = view.ended_at().filter(|_| !view.is_alive()) else {
                continue;
            };
            if let Entry::Vacant(place) = self.by_age.entry((ended, view.id)) {
                self.last_created = self.last_created.max(Some(view.state.created));
                refusals::audit(handle, view);
                let bytes = folder_size(&view.folder);
                place.insert(EndedSession { bytes, since });
            }
        }
    }

    /// Removes sessions beyond the limits. Returns them, and true if a session beyond the limits is in use.
    fn make_room(&mut self, handle: &Handle, now: Wall, at: Mono) -> (Vec<SessionId>, bool) {
        let config = handle.config();
        let bounds = Bounds {
            oldest: Wall(now.0.saturating_sub(config.keep_days.saturating_mul(DAY))),
            bytes: config.keep_bytes,
            count: limit::KEPT_SESSIONS,
        };
        let (surplus, held) = self.surplus(&bounds, at, |id| handle.published().is_in_use(id));
        let mut removed = Vec::new();
        for place in surplus {
            if remove(handle, place.1) {
                self.by_age.remove(&place);
                removed.push(place.1);
            }
        }
        (removed, held)
    }

    /// Sessions to remove at this time, and true if a session beyond the limits is in use.
    fn surplus(
        &self,
        bounds: &Bounds,
        at: Mono,
        in_use: impl Fn(SessionId) -> bool,
    ) -> (Vec<(Wall, SessionId)>, bool) {
        let mut total: u64 = self.by_age.values().map(|session| session.bytes).sum();
        let mut count = self.by_age.len();
        let (mut surplus, mut held) = (Vec::new(), false);
        for (place, EndedSession { bytes, since }) in &self.by_age {
            if place.0 >= bounds.oldest && total <= bounds.bytes && count <= bounds.count {
                break;
            }
            let just_ended = since.is_some_and(|since| at.since(since) < MIN_AGE);
            if just_ended || in_use(place.1) {
                held = true;
                continue;
            }
            total -= bytes;
            count -= 1;
            surplus.push(*place);
        }
        (surplus, held)
    }
}

/// Difference to the expected time after which the wall clock may have been set by mistake.
const MAX_JUMP: u64 = 7 * DAY;
/// Time after which such a wall clock is accepted.
const JUMP_ACCEPTED_AFTER: u64 = DAY;

/// Wall time for deciding what is old. A wall clock that was set ahead by mistake must not cause all sessions to be
/// removed, so it is not trusted at once.
#[derive(Clone, Default)]
struct TrustedClock {
    /// Last trusted wall time, with its boot time.
    last: Option<(Wall, Boot)>,
    /// Time since when the wall clock has been too far ahead.
    jumped_at: Option<Boot>,
}

impl TrustedClock {
    /// Current wall time, or, after a jump, the time that has passed since the last trusted reading. `newest` is a
    /// time at which the wall clock was right: a session was created then. The end of a session may be a reading of a
    /// clock that has jumped.
    fn now(&mut self, now: Now, newest: Option<Wall>) -> Wall {
        let expected = match self.last {
            Some((wall, at)) => Wall(wall.0 + now.boot.0.saturating_sub(at.0)),
            None => newest.unwrap_or(now.wall),
        };
        if now.wall.0 > expected.0.saturating_add(MAX_JUMP) {
            let since = *self.jumped_at.get_or_insert(now.boot);
            if now.boot.0.saturating_sub(since.0) < JUMP_ACCEPTED_AFTER {
                self.last.get_or_insert((expected, now.boot));
                return expected;
            }
        }
        self.jumped_at = None;
        self.last = Some((now.wall, now.boot));
        now.wall
    }
}

/// Removes old timers and seen messages, in batches so that calls get a turn.
async fn prune_rows(store: &dyn Store, before_ms: u64) {
    loop {
        match store.prune(before_ms).await {
            Ok(Ok(0)) | Err(_) => return,
            Ok(Ok(_)) => pause(PRUNE_PAUSE).await,
            Ok(Err(fault)) => {
                tracing::warn!("cannot remove old rows: {fault}");
                return;
            }
        }
    }
}

/// Removes the directory of a session. Returns true on success.
fn remove(handle: &Handle, id: SessionId) -> bool {
    crash_point("gc.mid");
    match handle.keepers().remove(id) {
        Ok(()) => true,
        // A person has deleted the session.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
        Err(e) => {
            tracing::warn!("cannot remove the folder of {id}: {e}");
            false
        }
    }
}

/// Bytes on disk: small files take far more than they contain.
fn folder_size(folder: &Path) -> u64 {
    let itself = std::fs::symlink_metadata(folder).map_or(0, |found| disk_usage(&found));
    let Ok(entries) = std::fs::read_dir(folder) else {
        return itself;
    };
    let within = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => folder_size(&entry.path()),
        Ok(found) => disk_usage(&found),
        Err(_) => 0,
    });
    itself + within.sum::<u64>()
}

fn disk_usage(found: &std::fs::Metadata) -> u64 {
    const BLOCK: u64 = 512;
    found.blocks() * BLOCK
}

const DAY: u64 = 86_400_000;

/// Limits: oldest time of an end, total bytes and number.
struct Bounds {
    oldest: Wall,
    bytes: u64,
    count: usize,
}

#[cfg(test)]
mod tests {
    use abide_core::session::Phase;
    use tokio::sync::mpsc;

    use super::*;
    use crate::SessionView;
    use crate::config::Config;
    use crate::handle::HandleParts;
    use crate::store::Sqlite;

    /// Ended sessions, each with number, time of its end and size.
    fn ended_sessions(sessions: &[(u64, u64, u64)]) -> EndedSessions {
        let mut ended_sessions = EndedSessions::default();
        for (bits, ended, bytes) in sessions {
            add(&mut ended_sessions, (*bits, *ended, *bytes), None);
        }
        ended_sessions
    }

    fn add(ended: &mut EndedSessions, (bits, at, bytes): (u64, u64, u64), since: Option<Mono>) {
        let place = (Wall(at), SessionId::from_bits(bits));
        ended.by_age.insert(place, EndedSession { bytes, since });
    }

    fn surplus(ended_sessions: &EndedSessions, bounds: &Bounds) -> (Vec<SessionId>, bool) {
        let (surplus, held) = ended_sessions.surplus(bounds, Mono(5), |_| false);
        (surplus.into_iter().map(|(_, id)| id).collect(), held)
    }

    const BOUNDS: Bounds = Bounds {
        oldest: Wall(0),
        bytes: 1 << 30,
        count: limit::KEPT_SESSIONS,
    };

    #[test]
    fn sessions_older_than_the_limit_are_removed() {
        let ended_sessions = ended_sessions(&[(1, 9 * DAY, 1), (2, 11 * DAY, 1)]);
        let bounds = Bounds {
            oldest: Wall(10 * DAY),
            ..BOUNDS
        };
        assert_eq!(
            surplus(&ended_sessions, &bounds).0,
            [SessionId::from_bits(1)]
        );
    }

    /// Handle on a daemon in which these sessions have ended, each with number, creation time and duration.
    fn handle(sessions: &[(u64, u64, u64)]) -> Handle {
        let folder = tempfile::tempdir().unwrap();
        let opened = Sqlite::open(&folder.path().join("abide.db"), 1).expect("a database");
        let parts = HandleParts::of_test(mpsc::channel(1).0, opened.reader, opened.store);
        let handle = Handle::new(mpsc::channel(1).0, parts, Config::default());
        for (bits, created, duration) in sessions {
            let id = SessionId::from_bits(*bits);
            let view = SessionView::of_test(id, Wall(*created), Phase::Starting);
            handle
                .published()
                .publish(view.ended_after(Millis(*duration)));
        }
        handle
    }

    #[tokio::test]
    async fn age_of_a_session_counts_from_its_end() {
        let handle = handle(&[(1, 0, 40 * DAY), (2, 9 * DAY, DAY)]);
        let mut ended_sessions = EndedSessions::default();
        ended_sessions.update(&handle, None);
        let bounds = Bounds {
            oldest: Wall(20 * DAY),
            ..BOUNDS
        };
        assert_eq!(
            surplus(&ended_sessions, &bounds).0,
            [SessionId::from_bits(2)]
        );
        assert_eq!(ended_sessions.last_created, Some(Wall(9 * DAY)));
    }

    #[tokio::test]
    async fn removed_sessions_do_not_count() {
        let handle = handle(&[(1, 0, 1), (2, 1, 1), (3, 2, 1)]);
        let mut ended_sessions = EndedSessions::default();
        ended_sessions.update(&handle, None);
        assert_eq!(ended_sessions.by_age.len(), 3);
        let bounds = Bounds { count: 2, ..BOUNDS };
        assert_eq!(
            surplus(&ended_sessions, &bounds).0,
            [SessionId::from_bits(1)]
        );
        handle.published().forget(SessionId::from_bits(3));
        ended_sessions.update(&handle, None);
        assert!(surplus(&ended_sessions, &bounds).0.is_empty());
    }

    #[tokio::test]
    async fn session_that_just_ended_is_not_removed() {
        let handle = handle(&[(1, 0, DAY)]);
        let mut ended_sessions = EndedSessions::default();
        ended_sessions.update(&handle, Some(Mono(5)));
        let bounds = Bounds {
            oldest: Wall(20 * DAY),
            ..BOUNDS
        };
        assert_eq!(surplus(&ended_sessions, &bounds), (Vec::new(), true));
    }

    #[test]
    fn newest_sessions_that_fit_are_kept() {
        let ended_sessions = ended_sessions(&[(1, 1, 60), (2, 2, 50), (3, 3, 40)]);
        let bounds = Bounds {
            bytes: 100,
            ..BOUNDS
        };
        assert_eq!(
            surplus(&ended_sessions, &bounds).0,
            [SessionId::from_bits(1)]
        );
    }

    #[test]
    fn just_ended_and_used_sessions_are_not_removed() {
        let mut ended_sessions = ended_sessions(&[(1, 1, 60), (2, 2, 50)]);
        add(&mut ended_sessions, (3, 3, 110), Some(Mono(5)));
        let bounds = Bounds {
            bytes: 100,
            ..BOUNDS
        };
        let both = [1, 2].map(SessionId::from_bits);
        assert_eq!(surplus(&ended_sessions, &bounds), (both.to_vec(), true));
        let (others, held) = ended_sessions.surplus(&bounds, Mono(5), |id| id == both[0]);
        assert_eq!((others, held), (vec![(Wall(2), both[1])], true));
    }

    #[test]
    fn sessions_beyond_the_maximum_number_are_removed() {
        let all: Vec<_> = (0..limit::SESSIONS as u64).map(|n| (n, n, 1)).collect();
        let (surplus, _) = surplus(&ended_sessions(&all), &BOUNDS);
        assert_eq!(surplus.len(), limit::SESSIONS - limit::KEPT_SESSIONS);
        assert!(surplus.contains(&SessionId::from_bits(0)), "the oldest go");
    }

    fn at(wall_days: u64, boot_hours: u64) -> Now {
        Now {
            wall: Wall(wall_days * DAY),
            boot: Boot(boot_hours * HOUR),
            ..Now::default()
        }
    }

    const HOUR: u64 = DAY / 24;

    #[test]
    fn wall_clock_jump_is_trusted_only_after_a_day() {
        let mut trusted_clock = TrustedClock::default();
        let newest = Some(Wall(99 * DAY));
        assert_eq!(trusted_clock.now(at(100, 1), newest), Wall(100 * DAY));
        // The wall clock is ten years ahead for a while.
        assert_eq!(trusted_clock.now(at(3_750, 2), newest).0, 100 * DAY + HOUR);
        assert_eq!(
            trusted_clock.now(at(3_750, 25), newest).0,
            100 * DAY + 24 * HOUR
        );
        assert_eq!(trusted_clock.now(at(101, 26), newest), Wall(101 * DAY));
        assert_eq!(trusted_clock.now(at(3_751, 27), newest).0, 101 * DAY + HOUR);
        // The wall clock stays ahead.
        assert_eq!(trusted_clock.now(at(3_752, 51), newest), Wall(3_752 * DAY));
        assert_eq!(trusted_clock.now(at(3_753, 75), newest), Wall(3_753 * DAY));
    }

    #[test]
    fn first_reading_is_compared_with_the_newest_session() {
        let newest = Some(Wall(99 * DAY));
        let mut trusted_clock = TrustedClock::default();
        assert_eq!(trusted_clock.now(at(3_750, 1), newest), Wall(99 * DAY));
        assert_eq!(trusted_clock.now(at(3_750, 2), newest).0, 99 * DAY + HOUR);
        assert_eq!(trusted_clock.now(at(3_751, 25), newest), Wall(3_751 * DAY));
        // Without sessions there is nothing to lose, and a wall clock that goes back removes nothing.
        let mut trusted_clock = TrustedClock::default();
        assert_eq!(trusted_clock.now(at(100, 1), None), Wall(100 * DAY));
        assert_eq!(trusted_clock.now(at(3, 1), None), Wall(3 * DAY));
    }

    #[test]
    fn small_files_count_with_their_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::create_dir(&log).unwrap();
        for name in ["meta", "log/0", "log/0.index"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        assert!(folder_size(folder.path()) >= 3 * 512);
    }
}
