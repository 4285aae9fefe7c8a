//! Changes in folders, from the kernel. One queue serves all conditions, since a user may have few.

use std::collections::HashMap;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// Names that come and go, and rights that change. This is told seldom, even of a busy folder.
pub(super) const COMING_AND_GOING: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// That, and what is written.
pub(super) const EVERYTHING: WatchFlags = COMING_AND_GOING
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE);

#[derive(Default)]
pub(super) struct Watcher {
    queue: OnceLock<Option<Arc<Queue>>>,
}

struct Queue {
    fd: AsyncFd<OwnedFd>,
    watches: Mutex<HashMap<i32, Vec<Weak<Watch>>>>,
}

/// A place that is watched, for as long as this lives.
pub(super) struct Watch {
    queue: Arc<Queue>,
    descriptor: i32,
    /// Only what happens under this name matters; `None`: everything does.
    name: Option<OsString>,
    changed: Arc<Notify>,
}

impl Watcher {
    /// Watches a folder for what happens to one name, or a file itself. `None`: the kernel will not,
    /// and one has to look by oneself.
    pub fn watch(
        &self,
        place: &Path,
        name: Option<OsString>,
        what: WatchFlags,
        changed: &Arc<Notify>,
    ) -> Option<Arc<Watch>> {
        let queue = self.queue.get_or_init(Queue::open).clone()?;
        // Others may watch the same place for more.
        let flags = what | WatchFlags::MASK_ADD;
        let mut watches = queue.watches.lock().expect("no holder panics");
        let descriptor = inotify::add_watch(queue.fd.get_ref(), place, flags).ok()?;
        let watch = Arc::new(Watch {
            queue: queue.clone(),
            descriptor,
            name,
            changed: changed.clone(),
        });
        watches
            .entry(descriptor)
            .or_default()
            .push(Arc::downgrade(&watch));
        drop(watches);
        Some(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = self.queue.watches.lock().expect("no holder panics");
        let Some(others) = watches.get_mut(&self.descriptor) else {
            return;
        };
        others.retain(|other| other.strong_count() > 0);
        if others.is_empty() {
            watches.remove(&self.descriptor);
            let _ = inotify::remove_watch(self.queue.fd.get_ref(), self.descriptor);
        }
    }
}

impl Queue {
    fn open() -> Option<Arc<Self>> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        // SAFETY: the descriptor is ours alone and stays open for as long as it is registered.
        let fd = unsafe { AsyncFd::register(fd).ok()? };
        let queue = Arc::new(Queue {
            fd,
            watches: Mutex::default(),
        });
        tokio::spawn(queue.clone().read());
        Some(queue)
    }

    async fn read(self: Arc<Self>) {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        loop {
            let Ok(mut ready) = self.fd.readable().await else {
                return;
            };
            let mut reader = inotify::Reader::new(self.fd.get_ref(), &mut buffer);
            while let Ok(event) = reader.next() {
                let name = event.file_name();
                let name = name.map(|n| OsString::from_vec(n.to_bytes().to_vec()));
                self.changed(event.wd(), name, event.events());
            }
            ready.clear_ready();
        }
    }

    fn changed(&self, descriptor: i32, name: Option<OsString>, what: ReadFlags) {
        let mut watches = self.watches.lock().expect("no holder panics");
        let lost = what.contains(ReadFlags::QUEUE_OVERFLOW);
        let here: Vec<Arc<Watch>> = match lost {
            true => watches
                .values()
                .flatten()
                .filter_map(Weak::upgrade)
                .collect(),
            false => watches
                .get(&descriptor)
                .into_iter()
                .flatten()
                .filter_map(Weak::upgrade)
                .collect(),
        };
        if what.contains(ReadFlags::IGNORED) {
            watches.remove(&descriptor);
        }
        // The last holder of a watch takes the lock when it lets go.
        drop(watches);
        for watch in here {
            if lost || name.is_none() || watch.name.is_none() || watch.name == name {
                watch.changed.notify_one();
            }
        }
    }
}
