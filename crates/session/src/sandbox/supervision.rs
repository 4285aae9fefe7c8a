//! Supervision of a sandbox while its processes run, for what the kernel cannot refuse: layers that become too large, and a
//! file that changes where git looks for its configuration. Both end the command.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::git::Protected;
use super::plan::Plan;
use super::stored_layers;
use crate::clock::mono_ms;

/// Interval of checks of the free space of the disk, in milliseconds.
const CHECK_MS: u64 = 1_000;
/// Checks after which the layers are measured in any case: another program may free what the command writes.
const CHECKS: u32 = 60;
/// Part of the time that measuring may take: one in ten.
const MEASURING: u64 = 10;
/// File that makes git take its configuration and its hooks from another folder. Git makes it only for linked worktrees.
const COMMONDIR: &str = "commondir";

/// Supervision of one sandbox.
pub(crate) struct Supervision {
    layers: Option<LayerLimit>,
    git: Option<GitWatch>,
}

/// Act for which a sandbox ends its command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// The layers take more bytes than they may.
    Layers { bytes: u64, limit: u64 },
    /// This file was made in a git directory, and is removed.
    GitFile(PathBuf),
}

impl Supervision {
    /// Supervises a sandbox with namespaces from now on, before its command runs.
    pub fn new(plan: &Plan, protected: &Protected) -> Self {
        let git = GitWatch::new(plan, protected);
        Supervision {
            git: (!git.folders.is_empty()).then_some(git),
            ..Supervision::of_layers(plan)
        }
    }

    /// Supervises a sandbox that protects no path.
    pub fn of_layers(plan: &Plan) -> Self {
        Supervision {
            layers: plan.layer_bytes.map(|limit| LayerLimit {
                layers: plan.layers.clone(),
                limit,
                bytes: u64::MAX,
                free: 0,
                checks: 0,
                next: mono_ms() + CHECK_MS,
            }),
            git: None,
        }
    }

    /// Descriptor of the watch over git directories, readable when a file was made in one.
    pub fn git_watch(&self) -> Option<BorrowedFd<'_>> {
        self.git.as_ref()?.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Time of the next check of the layers.
    pub fn next_layer_check(&self) -> Option<u64> {
        self.layers.as_ref().map(|layers| layers.next)
    }

    /// Checks the size of the layers, if it is time to.
    pub fn check_layers(&mut self, now: u64) -> Option<Violation> {
        let layers = self.layers.as_mut().filter(|layers| layers.next <= now)?;
        let bytes = layers.exceeded()?;
        let limit = layers.limit;
        self.layers = None;
        Some(Violation::Layers { bytes, limit })
    }

    /// Removes what makes git look elsewhere, if it was made.
    pub fn check_git_watch(&self) -> Option<Violation> {
        self.git
            .as_ref()?
            .remove_commondirs()
            .map(Violation::GitFile)
    }
}

/// Limit of the bytes of layers.
struct LayerLimit {
    layers: PathBuf,
    limit: u64,
    /// Bytes when they were measured.
    bytes: u64,
    /// Free bytes of the disk at that time.
    free: u64,
    checks: u32,
    next: u64,
}

impl LayerLimit {
    /// Bytes of the layers, if they are more than the limit. They are measured only if the disk has become fuller by as much
    /// as is left of the limit, and every minute.
    fn exceeded(&mut self) -> Option<u64> {
        let begun = mono_ms();
        let free = stored_layers::free_bytes(&self.layers).unwrap_or(0);
        let most = self.bytes.saturating_add(self.free.saturating_sub(free));
        self.checks += 1;
        if most > self.limit || self.checks > CHECKS {
            self.bytes = stored_layers::size(&self.layers);
            self.free = free;
            self.checks = 0;
        }
        let now = mono_ms();
        self.next = now + CHECK_MS.max((now - begun) * MEASURING);
        (self.bytes > self.limit).then_some(self.bytes)
    }
}

/// Watch over git directories. Without inotify, of which a user has a limited number, they are looked at when the command
/// has ended.
struct GitWatch {
    folders: Vec<PathBuf>,
    inotify: Option<OwnedFd>,
}

impl GitWatch {
    fn new(plan: &Plan, protected: &Protected) -> Self {
        let root = &plan.workspace.path;
        let outside = protected.outside.worktree.iter();
        let outside = outside.map(|worktree| worktree.common.clone());
        let folders = protected.git_folders.iter().map(|git| root.join(git));
        // A file that is there already is read-only.
        let folders = folders.chain(outside).filter(|git| !has_commondir(git));
        let folders: Vec<PathBuf> = folders.collect();
        let watch = || {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            for folder in &folders {
                let made = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
                inotify::add_watch(&inotify, folder, made).ok()?;
            }
            Some(inotify)
        };
        GitWatch {
            inotify: (!folders.is_empty()).then(watch).flatten(),
            folders,
        }
    }

    /// Removes `commondir` from all git directories, and returns one path of it.
    fn remove_commondirs(&self) -> Option<PathBuf> {
        if let Some(inotify) = &self.inotify {
            // The folders are looked at in any case: a queue of events may overflow.
            let _ = rustix::io::read(inotify, &mut [0_u8; 4_096]);
        }
        let mut made = None;
        for folder in self.folders.iter().filter(|folder| has_commondir(folder)) {
            let path = folder.join(COMMONDIR);
            if fs::remove_file(&path).is_err() {
                // A folder of this name, or a git directory that the command has closed behind it.
                let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
            made = Some(path);
        }
        made
    }
}

fn has_commondir(git: &Path) -> bool {
    fs::symlink_metadata(git.join(COMMONDIR)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_above_their_limit_are_measured_when_the_disk_has_become_fuller() {
        let layers = tempfile::tempdir().unwrap();
        let mut limit = LayerLimit {
            layers: layers.path().to_owned(),
            limit: 100_000,
            bytes: u64::MAX,
            free: 0,
            checks: 0,
            next: 0,
        };
        assert_eq!(limit.exceeded(), None);
        assert_eq!(limit.bytes, 0);
        fs::write(layers.path().join("file"), vec![1; 200_000]).unwrap();
        fs::File::open(layers.path().join("file"))
            .unwrap()
            .sync_all()
            .unwrap();
        limit.free = u64::MAX;
        assert!(limit.exceeded().is_some_and(|bytes| bytes >= 200_000));
    }
}
