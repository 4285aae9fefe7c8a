//! Probe for a file: exists, is gone, has changed, or contains a match. The kernel reports changes by inotify: of the
//! file and of every directory on its path, through symbolic links too.

use std::fs::{Metadata, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::Regex;
use rustix::fs::OFlags;
use tokio::sync::Notify;

use super::condition::{File, FileState, Fingerprint};
use super::inotify::{ALL_CHANGES, NAME_CHANGES, Watch, Watcher};
use super::pattern::{OVERLAP, Window};
use super::{
    Bounds, Impossible, Observation, Observations, OutOfBounds, ProbeContext, ProbeServices,
};
use crate::clock::pause;

/// Interval of checks while the file is watched: some file systems report no changes.
const WATCHED_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of checks if the kernel cannot watch the file.
const UNWATCHED_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum time between two reads of a file that is written all the time.
const SETTLE: Duration = Duration::from_millis(5);
/// Maximum of symbolic links that are followed, as in the kernel.
const MAX_SYMLINKS: usize = 40;
/// Largest file that is read from its start at every check: it may have been rewritten in place, with a match before the
/// position. Of a larger one only what was appended is read.
const REREAD_LIMIT: u64 = 1 << 20;
/// Bytes read at once.
const READ_SIZE: u64 = 256 << 10;

/// Waits until the file is in the requested state, or must not be looked at.
pub(super) async fn until_holds(
    condition: &File,
    context: ProbeContext<'_>,
    observations: &Observations,
) -> Result<String, Impossible> {
    let services = context.services;
    observations.set_if_empty(|| {
        format!(
            "file {} has not been looked at yet",
            condition.path.display()
        )
    });
    let mut probe = FileProbe::of(condition);
    let changed = Arc::new(Notify::new());
    loop {
        let (watcher, notify) = (services.watcher.clone(), changed.clone());
        let bounds = context.bounds().await?;
        let observed;
        (probe, observed) = run_blocking(services, probe, move |probe| {
            // Watch first, then check, so that no change is missed in between. Existing watches stay.
            let watches = std::mem::take(&mut probe.watches);
            probe.watches = watches.renewed(&probe.condition.path, &watcher, &notify);
            probe.now(bounds.as_ref())
        })
        .await;
        match observed? {
            Observation::Holds(seen) => {
                observations.set(seen.as_str());
                return Ok(seen);
            }
            Observation::NotYet(why) => observations.set(why),
        }
        let interval = if probe.watches.nearest {
            WATCHED_INTERVAL
        } else {
            UNWATCHED_INTERVAL
        };
        tokio::select! {
            () = changed.notified() => pause(SETTLE).await,
            () = pause(interval) => {}
        }
    }
}

pub(super) async fn holds_now(condition: &File, context: ProbeContext<'_>) -> bool {
    let Ok(bounds) = context.bounds().await else {
        return false;
    };
    let probe = FileProbe::of(condition);
    let look = move |probe: &mut FileProbe| probe.now(bounds.as_ref());
    let (_, observed) = run_blocking(context.services, probe, look).await;
    observed.is_ok_and(|observed| observed.holds())
}

/// Result of one check of a file.
type CheckResult = Result<Observation, OutOfBounds>;

/// Repeated checks of one file.
struct FileProbe {
    condition: File,
    position: ReadPosition,
    watches: Watches,
}

impl FileProbe {
    fn of(condition: &File) -> Self {
        FileProbe {
            condition: condition.clone(),
            position: ReadPosition::default(),
            watches: Watches::default(),
        }
    }

    fn now(&mut self, bounds: Option<&Bounds>) -> Result<Observation, OutOfBounds> {
        let path = &self.condition.path;
        let opened = match bounds.map(|bounds| bounds.open(path)).transpose()? {
            None => Ok(Some(None)),
            Some(found) => found.map(|file| file.map(Some)),
        };
        // Within bounds only the file that was opened is read.
        let read_path = match &opened {
            Ok(Some(Some(pinned))) => &pinned.path,
            _ => path,
        };
        let now = match &opened {
            Ok(Some(_)) => Fingerprint::of(read_path),
            Ok(None) => Ok(None),
            Err(fault) => Err(std::io::Error::new(fault.kind(), fault.to_string())),
        };
        let position = &mut self.position;
        Ok(probe(&self.condition, read_path, now, position))
    }
}

/// Runs a check on a thread of its own: a file on a network file system may block for long, or for ever.
async fn run_blocking(
    services: &ProbeServices,
    mut probe: FileProbe,
    act: impl FnOnce(&mut FileProbe) -> CheckResult + Send + 'static,
) -> (FileProbe, CheckResult) {
    let checking = services.run_blocking(move || {
        let observed = act(&mut probe);
        (probe, observed)
    });
    checking.await
}

/// Inotify watches for one file.
#[derive(Default)]
struct Watches {
    all: Vec<Arc<Watch>>,
    /// True if the file, or the nearest existing directory on its path, is watched.
    nearest: bool,
}

impl Watches {
    /// Watches the file if it exists, and every directory on its path for the next name: each may be created, removed
    /// or moved. Symbolic links are followed, even to targets that do not exist. From the root down: a name that
    /// appears before its directory is watched is found by the check, a later one is reported.
    fn renewed(self, path: &Path, watcher: &Watcher, changed: &Arc<Notify>) -> Self {
        let mut renewed = Watches::default();
        let mut paths = Vec::from([path.to_owned()]);
        let mut links = 0;
        while let Some(path) = paths.pop() {
            let mut ancestors: Vec<&Path> = path.ancestors().collect();
            while let Some(folder) = ancestors.pop() {
                let next = ancestors.last().copied();
                let Some((next, name)) = next.and_then(|next| Some((next, next.file_name()?)))
                else {
                    continue;
                };
                let is_nearest = next == path || !next.exists();
                let what = match is_nearest {
                    true => ALL_CHANGES,
                    // A directory further up matters only when it is removed or moved.
                    false => NAME_CHANGES,
                };
                let watch = watcher.watch(folder, Some(name.to_owned()), what, changed);
                renewed.nearest |= watch.is_some() && is_nearest;
                renewed.take(watch);
                if let Some(target) = symlink_target(next).filter(|_| links < MAX_SYMLINKS) {
                    links += 1;
                    paths.push(folder.join(target));
                }
            }
        }
        let itself = watcher.watch(path, None, ALL_CHANGES, changed);
        renewed.nearest |= itself.is_some();
        renewed.take(itself);
        renewed
    }

    fn take(&mut self, watch: Option<Arc<Watch>>) {
        self.all.extend(watch);
    }
}

/// Target of a symbolic link.
fn symlink_target(path: &Path) -> Option<PathBuf> {
    std::fs::read_link(path).ok()
}

/// Compares the state of a file with the condition. `at`: path by which it is read.
fn probe(
    condition: &File,
    at: &Path,
    now: std::io::Result<Option<Fingerprint>>,
    position: &mut ReadPosition,
) -> Observation {
    use Observation::{Holds, NotYet};
    let path = condition.path.display();
    let now = match now {
        Ok(now) => now,
        Err(e) => return NotYet(format!("file {path} cannot be looked at: {e}")),
    };
    let how = match (&condition.is, now) {
        (FileState::Gone, None) => return Holds(format!("file {path} is gone")),
        (FileState::Gone, Some(_)) => return NotYet(format!("file {path} is still there")),
        (FileState::Present, None) => return NotYet(format!("file {path} is not there")),
        (FileState::Changed { from }, now) if *from == now => {
            return NotYet(format!("file {path} has not changed"));
        }
        (FileState::Changed { .. }, None) if condition.matches.is_some() => {
            return NotYet(format!("file {path} is not there"));
        }
        (FileState::Changed { .. }, None) => "is gone",
        (FileState::Changed { .. }, Some(_)) => "has changed",
        (FileState::Present, Some(_)) => "is there",
    };
    let Some(pattern) = &condition.matches else {
        return Holds(format!("file {path} {how}"));
    };
    match position.find(at, pattern) {
        Ok(Some(found)) => Holds(format!("file {path} has {found:?} in it")),
        Ok(None) => NotYet(format!(
            "file {path} is there, without a match in its {} bytes",
            position.at
        )),
        Err(e) => NotYet(format!("file {path} cannot be read: {e}")),
    }
}

/// Opens a plain file. Nothing else is opened, because to open a named pipe waits for a writer, and to open a device may
/// change it; without blocking, because something else can take the place of the file after it was looked at.
fn open_plain(path: &Path) -> std::io::Result<(std::fs::File, Metadata)> {
    let is_plain = |found: Metadata| match found.is_file() {
        true => Ok(found),
        false => Err(std::io::Error::other("it is not a plain file")),
    };
    is_plain(std::fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags.bits() as i32);
    let file = file.open(path)?;
    let found = is_plain(file.metadata()?)?;
    Ok((file, found))
}

/// Position up to which a file has been read. A replaced or truncated file is read from its start.
#[derive(Default)]
struct ReadPosition {
    inode: u64,
    at: u64,
}

impl ReadPosition {
    fn find(&mut self, path: &Path, pattern: &Regex) -> std::io::Result<Option<String>> {
        let (mut file, found) = open_plain(path)?;
        if found.ino() != self.inode || found.len() < self.at {
            *self = ReadPosition {
                inode: found.ino(),
                at: 0,
            };
        }
        let from = match self.at {
            0..=REREAD_LIMIT => 0,
            // One byte more, which tells if a line begins after it.
            at => at - (OVERLAP as u64 + 1),
        };
        file.seek(SeekFrom::Start(from))?;
        self.at = from;
        let mut window = match from {
            0 => Window::default(),
            _ => Window::cut(),
        };
        loop {
            let more = file.by_ref().take(READ_SIZE).read_to_end(window.end())?;
            self.at += more as u64;
            let found = window.find(pattern);
            if found.is_some() || more == 0 {
                return Ok(found);
            }
            window.slide();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::Pattern;
    use super::*;
    use rustix::fs::FileType;
    use std::fs;

    #[test]
    fn unreadable_path_is_not_reported_as_gone() {
        let root = tempfile::tempdir().expect("a folder");
        let turning = root.path().join("turning");
        std::os::unix::fs::symlink("turning", &turning).expect("a link to itself");
        for (path, seen) in [
            (turning, "cannot be looked at"),
            (root.path().join("none"), "is gone"),
        ] {
            let (is, matches) = (FileState::Gone, None);
            let condition = File { path, is, matches };
            let observed = FileProbe::of(&condition).now(None).expect("no bounds");
            let (Observation::Holds(said) | Observation::NotYet(said)) = observed;
            assert!(said.contains(seen), "{said}");
        }
    }

    #[test]
    fn named_pipe_is_refused_without_waiting_for_a_writer() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).expect("a pipe");
        let pattern = Pattern::compile("x").expect("a pattern");
        let refused = ReadPosition::default().find(&path, &pattern);
        let said = refused.expect_err("it cannot be read").to_string();
        assert_eq!(said, "it is not a plain file");
    }

    #[test]
    fn match_in_a_file_that_was_rewritten_in_place_is_found() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("status");
        let pattern = Pattern::compile("^state: ready$").expect("a pattern");
        let mut position = ReadPosition::default();
        let mut find = |state: &str, bytes: usize| {
            let text = format!("state: {state}\n{}\n", "x".repeat(bytes));
            fs::write(&path, text).expect("a file");
            position.find(&path, &pattern).expect("a file").is_some()
        };
        assert!(!find("waits", 100_000));
        assert!(find("ready", 100_000), "same size");
        assert!(!find("waits", 100_000));
        assert!(find("ready", 2 << 20), "larger");
    }

    /// Makes a change, and waits until the kernel reports it; no check is made in between.
    fn wait_for_report(path: &Path, change: impl FnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let (watcher, changed) = (Watcher::default(), Arc::new(Notify::new()));
            let watches = Watches::default().renewed(path, &watcher, &changed);
            assert!(watches.nearest, "{}", path.display());
            change();
            changed.notified().await;
        });
    }

    #[test]
    fn moved_directory_on_the_path_is_reported() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b")).expect("folders");
        fs::write(at("a/b/file"), "").expect("a file");
        wait_for_report(&at("a/b/file"), || {
            fs::rename(at("a"), at("c")).expect("moved")
        });
        wait_for_report(&at("a/b/file"), || {
            fs::rename(at("c"), at("a")).expect("moved back")
        });
        wait_for_report(&at("new/deep/file"), || {
            fs::create_dir(at("new")).expect("a folder")
        });
    }

    #[test]
    fn missing_target_of_symbolic_link_is_watched() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("real/old")).expect("folders");
        std::os::unix::fs::symlink("real/target", at("link")).expect("a link");
        wait_for_report(&at("link"), || {
            fs::write(at("real/target"), "").expect("a file")
        });
        std::os::unix::fs::symlink("old", at("real/current")).expect("a link");
        std::os::unix::fs::symlink(at("real/current"), at("way")).expect("a link");
        fs::write(at("real/old/log"), "").expect("a file");
        wait_for_report(&at("way/log"), || {
            fs::remove_file(at("real/current")).expect("gone")
        });
    }
}
