//! Changes in directories, reported by inotify. One queue serves all conditions, because a user may have few of them.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::async_fd;
use crate::clock::pause;
use crate::lock::lock;

/// Names that are created, removed or moved, and permissions that change. These events are rare, even in a busy
/// directory.
pub(super) const NAME_CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Name changes and writes.
pub(super) const ALL_CHANGES: WatchFlags = NAME_CHANGES
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE);

/// Inotify queue that is opened on first use.
#[derive(Clone, Default)]
pub(super) struct Watcher {
    queue: Arc<OnceLock<Option<Arc<Queue>>>>,
}

/// Open inotify queue.
struct Queue {
    fd: AsyncFd<OwnedFd>,
    watches: Mutex<Watches>,
}

/// Interests by watch descriptor.
#[derive(Default)]
struct Watches {
    interests: HashMap<i32, Vec<Interest>>,
    /// Number of watches being added, each of which may turn out to be an existing one.
    adding: usize,
}

/// Interest of one watch in a directory or file.
struct Interest {
    /// Name in the directory; `None`: every event counts.
    name: Option<OsString>,
    watch: Weak<Watch>,
}

/// Events after which other tasks get a turn: in a busy directory they never end.
const MAX_BATCH: usize = 128;
const BATCH_PAUSE: Duration = Duration::from_millis(1);

/// Watch on a directory or file, until it is dropped.
pub(super) struct Watch {
    queue: Arc<Queue>,
    descriptor: i32,
    changed: Arc<Notify>,
}

impl Watcher {
    /// Watches one name in a directory, or a file itself. `None`: the kernel refuses, and the caller has to poll.
    pub fn watch(
        &self,
        place: &Path,
        name: Option<OsString>,
        what: WatchFlags,
        changed: &Arc<Notify>,
    ) -> Option<Arc<Watch>> {
        let queue = self.queue.get_or_init(Queue::open).clone()?;
        // Other watches on the same inode may need more events.
        let flags = what | WatchFlags::MASK_ADD;
        queue.lock().adding += 1;
        // The path may contain a file system that does not answer, so no lock is held meanwhile.
        let added = inotify::add_watch(queue.fd.get_ref(), place, flags);
        let mut watches = queue.lock();
        watches.adding -= 1;
        let Ok(descriptor) = added else {
            queue.forget_unused(&mut watches);
            return None;
        };
        let watch = Arc::new(Watch {
            queue: queue.clone(),
            descriptor,
            changed: changed.clone(),
        });
        let interest = Interest {
            name,
            watch: Arc::downgrade(&watch),
        };
        let here = watches.interests.entry(descriptor).or_default();
        here.push(interest);
        queue.forget_unused(&mut watches);
        drop(watches);
        Some(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = self.queue.lock();
        let Some(others) = watches.interests.get_mut(&self.descriptor) else {
            return;
        };
        others.retain(|other| other.watch.strong_count() > 0);
        // A watch that may just be added again is kept until that is known.
        if others.is_empty() && watches.adding == 0 {
            self.queue.forget(&mut watches, self.descriptor);
        }
    }
}

impl Queue {
    fn open() -> Option<Arc<Self>> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let fd = async_fd::register(fd, tokio::io::Interest::READABLE).ok()?;
        let queue = Arc::new(Queue {
            fd,
            watches: Mutex::default(),
        });
        tokio::spawn(queue.clone().read());
        Some(queue)
    }

    fn lock(&self) -> MutexGuard<'_, Watches> {
        lock(&self.watches)
    }

    fn forget(&self, watches: &mut Watches, descriptor: i32) {
        watches.interests.remove(&descriptor);
        let _ = inotify::remove_watch(self.fd.get_ref(), descriptor);
    }

    /// Removes watches that are no longer used, unless one of them is just being added.
    fn forget_unused(&self, watches: &mut Watches) {
        if watches.adding > 0 {
            return;
        }
        let unused = watches.interests.iter().filter(|(_, who)| who.is_empty());
        let unused: Vec<i32> = unused.map(|(descriptor, _)| *descriptor).collect();
        for descriptor in unused {
            self.forget(watches, descriptor);
        }
    }

    async fn read(self: Arc<Self>) {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        loop {
            let Ok(mut ready) = self.fd.readable().await else {
                return;
            };
            let mut reader = inotify::Reader::new(self.fd.get_ref(), &mut buffer);
            let mut handled = 0;
            while let Ok(event) = reader.next() {
                self.changed(event.wd(), event.file_name(), event.events());
                handled += 1;
                if handled >= MAX_BATCH && reader.is_buffer_empty() {
                    break;
                }
            }
            if handled < MAX_BATCH {
                ready.clear_ready();
            } else {
                // There may be more events already, so readiness is not cleared.
                drop(ready);
                pause(BATCH_PAUSE).await;
            }
        }
    }

    fn changed(&self, descriptor: i32, name: Option<&CStr>, what: ReadFlags) {
        let name = name.map(|name| OsStr::from_bytes(name.to_bytes()));
        let mut watches = self.lock();
        let lost = what.contains(ReadFlags::QUEUE_OVERFLOW);
        let meant = |one: &&Interest| {
            lost || name.is_none() || one.name.is_none() || one.name.as_deref() == name
        };
        let here: Vec<Arc<Watch>> = match lost {
            true => watches
                .interests
                .values()
                .flatten()
                .filter_map(|one| one.watch.upgrade())
                .collect(),
            false => watches
                .interests
                .get(&descriptor)
                .into_iter()
                .flatten()
                .filter(meant)
                .filter_map(|one| one.watch.upgrade())
                .collect(),
        };
        if what.contains(ReadFlags::IGNORED) {
            watches.interests.remove(&descriptor);
        }
        // Dropping the last reference to a watch takes the lock.
        drop(watches);
        for watch in here {
            watch.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Number of files created before the first event is read, so that their events fill many buffers.
    const FILES: usize = 5_000;

    #[test]
    fn many_events_at_once_let_other_tasks_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let (watcher, changed) = (Watcher::default(), Arc::new(Notify::new()));
            let name = Some("last".into());
            let watch = watcher.watch(folder.path(), name, ALL_CHANGES, &changed);
            let _watch = watch.expect("a watch");
            for n in 0..FILES {
                std::fs::write(folder.path().join(n.to_string()), "").expect("a file");
            }
            std::fs::write(folder.path().join("last"), "").expect("a file");
            for _ in 0..4 {
                tokio::task::yield_now().await;
                let all_handled = changed.notified().now_or_never().is_some();
                assert!(
                    !all_handled,
                    "all events were handled before another task ran"
                );
            }
            changed.notified().await;
        });
    }
}
