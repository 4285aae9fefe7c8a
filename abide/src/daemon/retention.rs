//! What is kept of the past, and for how long: so many days, so many bytes of logs, whichever comes
//! first; and never so many that there would be no room for new ones. Only what has ended is ever removed,
//! and its folder goes before it is forgotten.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use abide_core::session::Phase;
use abide_core::time::{Boot, Wall};
use abide_core::{Event, Now, SessionId, limit};

use super::{Handle, SessionView};
use crate::keeper::crash_point;
use crate::world::clock::{Clock, pause};
use crate::world::store::Store;

/// How often the past is looked through.
const ROUND: Duration = Duration::from_secs(3_600);
/// How soon at the earliest it is looked through again where there are too many.
const SOON: Duration = Duration::from_secs(60);
/// Between two handfuls of old rows.
const BREATH: Duration = Duration::from_millis(20);

/// Looks through the past for as long as the daemon lives.
pub(super) async fn keep_tidy(handle: Handle, clock: Arc<dyn Clock>, store: Arc<dyn Store>) {
    let mut calendar = Calendar::default();
    loop {
        let mut ended = handle.board().sessions();
        let newest = ended.iter().map(|view| view.state.created).max();
        ended.retain(|view| is_over(view));
        let config = handle.config().clone();
        let now = calendar.believed(clock.now(), newest);
        let remover = handle.clone();
        let removed = tokio::task::spawn_blocking(move || {
            let past: Vec<Past> = ended.iter().map(|view| Past::of(view)).collect();
            let bounds = Bounds {
                days: config.keep_days,
                bytes: config.keep_bytes,
                count: limit::KEPT_SESSIONS,
            };
            let doomed = choose(past, now, &bounds);
            doomed
                .into_iter()
                .filter(|id| remove(&remover, *id))
                .collect::<Vec<_>>()
        })
        .await
        .unwrap_or_default();
        if !removed.is_empty() {
            tracing::info!("removed {} sessions of the past", removed.len());
            handle.tell(Event::Forgotten { sessions: removed }).await;
        }
        let before = now
            .0
            .saturating_sub(handle.config().keep_days.saturating_mul(DAY));
        forget_rows(&*store, before).await;
        handle.keepers().trim();
        pause(SOON).await;
        tokio::select! {
            () = pause(ROUND - SOON) => {}
            () = handle.board().crowded() => {}
        }
    }
}

/// A calendar that is so much further than it should be may have been set by mistake.
const LEAP: u64 = 7 * DAY;
/// It is believed all the same when it has stayed so for as long.
const PROBATION: u64 = DAY;

/// What day it is, for deciding what is old. One mistaken calendar must not take the whole past away, so
/// one that has leapt ahead is not believed at once.
#[derive(Default)]
struct Calendar {
    /// What was believed last, and when.
    last: Option<(Wall, Boot)>,
    /// Since when it has been too far ahead.
    leapt: Option<Boot>,
}

impl Calendar {
    /// The time by the calendar, or, where that has leapt, by what has passed since it was right; `newest` is
    /// when it is known to have been right before.
    fn believed(&mut self, now: Now, newest: Option<Wall>) -> Wall {
        let expected = match self.last {
            Some((wall, at)) => Wall(wall.0 + now.boot.0.saturating_sub(at.0)),
            None => newest.unwrap_or(now.wall),
        };
        if now.wall.0 > expected.0.saturating_add(LEAP) {
            let since = *self.leapt.get_or_insert(now.boot);
            if now.boot.0.saturating_sub(since.0) < PROBATION {
                self.last.get_or_insert((expected, now.boot));
                return expected;
            }
        }
        self.leapt = None;
        self.last = Some((now.wall, now.boot));
        now.wall
    }
}

/// Ended timers and seen messages of the past, a few at a time so that calls get their turn.
async fn forget_rows(store: &dyn Store, before_ms: u64) {
    loop {
        match store.tidy(before_ms).await {
            Ok(Ok(0)) | Err(_) => return,
            Ok(Ok(_)) => pause(BREATH).await,
            Ok(Err(fault)) => {
                tracing::warn!("cannot remove what is old: {fault}");
                return;
            }
        }
    }
}

fn is_over(view: &SessionView) -> bool {
    matches!(view.state.phase, Phase::Ended { .. } | Phase::Failed { .. })
}

fn remove(handle: &Handle, id: SessionId) -> bool {
    crash_point("gc.mid");
    match handle.keepers().remove(id) {
        Ok(()) => true,
        Err(e) => {
            tracing::warn!("cannot remove the folder of {id}: {e}");
            false
        }
    }
}

/// An ended session as retention sees it.
struct Past {
    id: SessionId,
    created: Wall,
    bytes: u64,
}

impl Past {
    fn of(view: &SessionView) -> Self {
        Past {
            id: view.id,
            created: view.state.created,
            bytes: size_of(&view.folder),
        }
    }
}

/// What it takes on the disk: of many small ones that is far more than they hold.
fn size_of(folder: &Path) -> u64 {
    let itself = std::fs::symlink_metadata(folder).map_or(0, |found| taken(&found));
    let Ok(entries) = std::fs::read_dir(folder) else {
        return itself;
    };
    let within = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size_of(&entry.path()),
        Ok(found) => taken(&found),
        Err(_) => 0,
    });
    itself + within.sum::<u64>()
}

fn taken(found: &std::fs::Metadata) -> u64 {
    const BLOCK: u64 = 512;
    found.blocks() * BLOCK
}

const DAY: u64 = 86_400_000;

/// How old the past may be, how large, and how many sessions of it there may be.
struct Bounds {
    days: u64,
    bytes: u64,
    count: usize,
}

/// The newest are kept as long as they are young enough and fit.
fn choose(mut past: Vec<Past>, now: Wall, bounds: &Bounds) -> Vec<SessionId> {
    past.sort_by_key(|past| std::cmp::Reverse(past.created));
    let mut kept = 0;
    past.into_iter()
        .enumerate()
        .filter(|(place, past)| {
            let old = now.0.saturating_sub(past.created.0) > bounds.days.saturating_mul(DAY);
            kept += past.bytes;
            old || kept > bounds.bytes || *place >= bounds.count
        })
        .map(|(_, past)| past.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(bits: u64, created: u64, bytes: u64) -> Past {
        Past {
            id: SessionId::from_bits(bits),
            created: Wall(created),
            bytes,
        }
    }

    const BOUNDS: Bounds = Bounds {
        days: 30,
        bytes: 1 << 30,
        count: limit::KEPT_SESSIONS,
    };

    #[test]
    fn the_old_goes_and_the_young_stays() {
        let now = Wall(40 * DAY);
        let all = vec![past(1, 9 * DAY, 1), past(2, 11 * DAY, 1)];
        let bounds = Bounds {
            bytes: 1_000,
            ..BOUNDS
        };
        assert_eq!(choose(all, now, &bounds), [SessionId::from_bits(1)]);
    }

    #[test]
    fn the_newest_are_kept_while_they_fit() {
        let now = Wall(DAY);
        let all = vec![past(1, 1, 60), past(2, 2, 50), past(3, 3, 40)];
        let bounds = Bounds {
            bytes: 100,
            ..BOUNDS
        };
        assert_eq!(choose(all, now, &bounds), [SessionId::from_bits(1)]);
    }

    #[test]
    fn there_are_never_so_many_that_no_new_one_could_be_started() {
        let now = Wall(DAY);
        let all: Vec<Past> = (0..limit::SESSIONS as u64).map(|n| past(n, n, 1)).collect();
        let doomed = choose(all, now, &BOUNDS);
        assert_eq!(doomed.len(), limit::SESSIONS - limit::KEPT_SESSIONS);
        assert!(doomed.contains(&SessionId::from_bits(0)), "the oldest go");
        const { assert!(limit::CROWD < limit::SESSIONS) };
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
    fn a_calendar_that_leaps_is_not_believed_before_it_has_lasted() {
        let mut calendar = Calendar::default();
        let newest = Some(Wall(99 * DAY));
        assert_eq!(calendar.believed(at(100, 1), newest), Wall(100 * DAY));
        // Ten years ahead, for a while.
        assert_eq!(calendar.believed(at(3_750, 2), newest).0, 100 * DAY + HOUR);
        assert_eq!(
            calendar.believed(at(3_750, 25), newest).0,
            100 * DAY + 24 * HOUR
        );
        assert_eq!(calendar.believed(at(101, 26), newest), Wall(101 * DAY));
        assert_eq!(calendar.believed(at(3_751, 27), newest).0, 101 * DAY + HOUR);
        // And then for good.
        assert_eq!(calendar.believed(at(3_752, 51), newest), Wall(3_752 * DAY));
        assert_eq!(calendar.believed(at(3_753, 75), newest), Wall(3_753 * DAY));
    }

    #[test]
    fn a_daemon_that_starts_goes_by_what_it_finds() {
        let newest = Some(Wall(99 * DAY));
        let mut calendar = Calendar::default();
        assert_eq!(calendar.believed(at(3_750, 1), newest), Wall(99 * DAY));
        assert_eq!(calendar.believed(at(3_750, 2), newest).0, 99 * DAY + HOUR);
        assert_eq!(calendar.believed(at(3_751, 25), newest), Wall(3_751 * DAY));
        // Where nothing is found there is nothing to lose, and a calendar that goes back takes nothing.
        let mut calendar = Calendar::default();
        assert_eq!(calendar.believed(at(100, 1), None), Wall(100 * DAY));
        assert_eq!(calendar.believed(at(3, 1), None), Wall(3 * DAY));
    }

    #[test]
    fn small_files_count_for_what_they_take() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::create_dir(&log).unwrap();
        for name in ["meta", "log/0", "log/0.index"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        assert!(size_of(folder.path()) >= 3 * 512);
    }
}
