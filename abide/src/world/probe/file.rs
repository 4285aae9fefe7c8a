//! Whether a file is there, gone, other than it was, or has something in it. The kernel tells when
//! to look: at the file, at its folder, or at the nearest folder that is there already.

use std::fs::File as Open;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::Regex;
use tokio::sync::Notify;

use super::Slots;
use super::condition::{File, FileState, Fingerprint};
use super::inotify::{Watch, Watcher};
use crate::world::clock::pause;

/// Some file systems tell nothing; so often one looks in any case.
const UNTOLD: Duration = Duration::from_secs(5);
/// Where the kernel will not watch, one looks by oneself.
const UNWATCHED: Duration = Duration::from_millis(250);
/// A file that is written all the time is not read more often than this.
const SETTLE: Duration = Duration::from_millis(5);
/// A match is looked for in what came since the last look and so much before it.
const OVERLAP: u64 = 4 << 10;
/// So much is read at once.
const PAGE: usize = 256 << 10;

pub(super) async fn until_so(wanted: &File, watcher: &Watcher, slots: &Slots) -> String {
    let pattern = wanted
        .matches
        .as_deref()
        .and_then(|pattern| Regex::new(pattern).ok());
    let mut reading = Reading::default();
    let wanted = Arc::new(wanted.clone());
    let changed = Arc::new(Notify::new());
    loop {
        // Watch first and look then, so that nothing happens unseen between the two.
        let watches = watch(&wanted.path, watcher, &changed);
        let looked;
        (reading, looked) = look_aside(&wanted, &pattern, reading).await;
        match looked {
            Ok(seen) => {
                slots.say(seen.as_str());
                return seen;
            }
            Err(why) => slots.say(why),
        }
        let untold = if watches.is_empty() {
            UNWATCHED
        } else {
            UNTOLD
        };
        tokio::select! {
            () = changed.notified() => pause(SETTLE).await,
            () = pause(untold) => {}
        }
        drop(watches);
    }
}

/// Whether it is so at this moment.
pub(super) async fn holds_now(wanted: &File) -> bool {
    let pattern = wanted
        .matches
        .as_deref()
        .and_then(|pattern| Regex::new(pattern).ok());
    let wanted = Arc::new(wanted.clone());
    look_aside(&wanted, &pattern, Reading::default())
        .await
        .1
        .is_ok()
}

type Looked = (Reading, Result<String, String>);

/// A look that reads the file may take long, and is made on a thread of its own.
async fn look_aside(wanted: &Arc<File>, pattern: &Option<Regex>, mut reading: Reading) -> Looked {
    if pattern.is_none() {
        let looked = look(wanted, None, &mut reading);
        return (reading, looked);
    }
    let (wanted, pattern) = (wanted.clone(), pattern.clone());
    let looking = tokio::task::spawn_blocking(move || {
        let looked = look(&wanted, pattern.as_ref(), &mut reading);
        (reading, looked)
    });
    looking
        .await
        .unwrap_or_else(|e| (Reading::default(), Err(e.to_string())))
}

/// Watches the file where there is one, and the nearest folder for the next name on the way.
fn watch(path: &Path, watcher: &Watcher, changed: &Arc<Notify>) -> Vec<Arc<Watch>> {
    let mut watches: Vec<Arc<Watch>> = watcher.watch(path, None, changed).into_iter().collect();
    let mut child = path;
    while let Some(folder) = child.parent() {
        let name = child.file_name().map(ToOwned::to_owned);
        if let Some(watch) = watcher.watch(folder, name, changed) {
            watches.push(watch);
            break;
        }
        child = folder;
    }
    watches
}

/// One look: what was seen, or why that is not enough.
fn look(wanted: &File, pattern: Option<&Regex>, reading: &mut Reading) -> Result<String, String> {
    let path = wanted.path.display();
    let now = Fingerprint::of(&wanted.path);
    match (&wanted.is, now) {
        (FileState::Gone, None) => return Ok(format!("file {path} is gone")),
        (FileState::Gone, Some(_)) => return Err(format!("file {path} is still there")),
        (FileState::Present, None) => return Err(format!("file {path} is not there")),
        (FileState::Changed { from }, now) if *from == now => {
            return Err(format!("file {path} has not changed"));
        }
        (FileState::Changed { .. }, None) if pattern.is_some() => {
            return Err(format!("file {path} is not there"));
        }
        (FileState::Present, Some(_)) | (FileState::Changed { .. }, _) => {}
    }
    let Some(pattern) = pattern else {
        let how = match (&wanted.is, now) {
            (FileState::Changed { .. }, None) => "is gone",
            (FileState::Changed { .. }, Some(_)) => "has changed",
            _ => "is there",
        };
        return Ok(format!("file {path} {how}"));
    };
    match reading.find(&wanted.path, pattern) {
        Ok(Some(found)) => Ok(format!("file {path} has {found:?} in it")),
        Ok(None) => Err(format!(
            "file {path} is there, without a match in its {} bytes",
            reading.at
        )),
        Err(e) => Err(format!("file {path} cannot be read: {e}")),
    }
}

/// How far a file has been read. A file that is another one, or shorter, is read from its start.
#[derive(Default)]
struct Reading {
    inode: u64,
    at: u64,
}

impl Reading {
    fn find(&mut self, path: &Path, pattern: &Regex) -> std::io::Result<Option<String>> {
        let mut file = Open::open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(std::io::Error::other("it is not a plain file"));
        }
        if found.ino() != self.inode || found.len() < self.at {
            *self = Reading {
                inode: found.ino(),
                at: 0,
            };
        }
        let from = self.at.saturating_sub(OVERLAP);
        file.seek(SeekFrom::Start(from))?;
        self.at = from;
        let mut text = Vec::new();
        loop {
            let read = file.by_ref().take(PAGE as u64).read_to_end(&mut text)?;
            self.at += read as u64;
            if let Some(found) = pattern.find(&text) {
                return Ok(Some(String::from_utf8_lossy(found.as_bytes()).into_owned()));
            }
            if read == 0 {
                return Ok(None);
            }
            let keep = text.len().saturating_sub(OVERLAP as usize);
            text.drain(..keep);
        }
    }
}
