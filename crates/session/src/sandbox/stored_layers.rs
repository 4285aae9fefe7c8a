//! Layers of agents on disk: their size, their age, and their removal. A layer is removed after 30 days without a sandbox
//! that uses it. A work folder of a sandbox whose keeper was killed is removed too.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Time after which layers that no sandbox uses are removed.
pub const UNUSED_FOR: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Begin of the name of a work folder; the id of the session follows.
pub(super) const WORK: &str = "work.";
/// Name of an empty work folder that no sandbox uses.
pub(super) const SPARE: &str = "spare";

/// File in the folder of an agent with the size of its layers when they were last measured, in bytes.
const SIZE: &str = "size";

/// Layers of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLayers {
    /// Name of the folder.
    pub name: String,
    /// Folder with one layer for each layered folder.
    pub path: PathBuf,
    /// Bytes on disk.
    pub bytes: u64,
    /// Time at which a sandbox was last made or ended.
    pub used: SystemTime,
    /// Sessions whose sandboxes use them, or did until their keeper was killed.
    pub sessions: Vec<String>,
}

/// Layers of all agents, by name.
pub fn stored_layers(root: &Path) -> io::Result<Vec<StoredLayers>> {
    let mut all = Vec::new();
    for path in folders(root)? {
        let layers = folders(&path)?;
        let mut found = StoredLayers {
            name: file_name(&path),
            bytes: 0,
            used: fs::metadata(&path)?.modified()?,
            sessions: Vec::new(),
            path,
        };
        for layer in layers {
            found.bytes += size(&layer);
            // Every sandbox renames a folder in it, at its begin and at its end.
            found.used = found.used.max(fs::metadata(&layer)?.modified()?);
            for inner in folders(&layer)? {
                if let Some(session) = file_name(&inner).strip_prefix(WORK) {
                    found.sessions.push(session.to_owned());
                }
            }
        }
        found.sessions.sort();
        found.sessions.dedup();
        all.push(found);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Measures the layers of all agents, and notes their sizes for [`measured_size`]. Walks all files.
pub fn measure_layers(root: &Path) -> io::Result<()> {
    for layers in stored_layers(root)? {
        let (new, noted) = (layers.path.join("size.new"), layers.path.join(SIZE));
        // The time of the last use does not change by this.
        let used = fs::metadata(&layers.path)?.modified()?;
        fs::write(&new, layers.bytes.to_string())?;
        fs::rename(new, noted)?;
        fs::File::open(&layers.path)?.set_modified(used)?;
    }
    Ok(())
}

/// Size of the layers of an agent when they were last measured, in bytes.
pub fn measured_size(layers: &Path) -> Option<u64> {
    let noted = fs::read_to_string(layers.join(SIZE)).ok()?;
    noted.parse().ok()
}

/// Removes what is left of sandboxes that have ended, and layers that were not used for long. Returns the names of the
/// agents' folders that it has removed.
pub fn clean_layers(
    root: &Path,
    now: SystemTime,
    is_running: impl Fn(&str) -> bool,
) -> io::Result<Vec<String>> {
    let mut removed = Vec::new();
    for path in folders(root)? {
        let mut used = fs::metadata(&path)?.modified()?;
        let mut is_used = false;
        for layer in folders(&path)? {
            used = used.max(fs::metadata(&layer)?.modified()?);
            for inner in folders(&layer)? {
                match file_name(&inner).strip_prefix(WORK) {
                    Some(session) if is_running(session) => is_used = true,
                    Some(_) => {
                        remove_folder(&inner)?;
                        // Nobody has used it: this is no use either.
                        let _ = fs::File::open(&layer).and_then(|opened| opened.set_modified(used));
                    }
                    None => {}
                }
            }
        }
        let is_old = now.duration_since(used).is_ok_and(|age| age > UNUSED_FOR);
        if is_old && !is_used {
            remove_folder(&path)?;
            removed.push(file_name(&path));
        }
    }
    Ok(removed)
}

/// Removes a folder of layers. The caller knows that no sandbox uses it.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    open_up(path);
    fs::remove_dir_all(path)
}

/// Makes all folders below this one writable: programs make read-only ones, and the kernel some without permissions.
fn open_up(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for inner in folders(path).unwrap_or_default() {
        open_up(&inner);
    }
}

/// Free bytes of the disk of a folder.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Bytes on disk of everything below a folder, as far as it can be read.
pub(super) fn size(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else {
        return 0;
    };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(of_entry).sum()
}

/// Folders in a folder, without following links. None if it does not exist.
fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        // A folder that the kernel has made without permissions.
        Err(fault) if fault.kind() == io::ErrorKind::PermissionDenied => return Ok(Vec::new()),
        Err(fault) => return Err(fault),
    };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(entries
        .flatten()
        .filter(is_folder)
        .map(|entry| entry.path())
        .collect())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(root: &Path, session: &str) {
        let layer = root.join("agent-a/home");
        fs::create_dir_all(layer.join("upper/read-only")).unwrap();
        fs::write(layer.join("upper/read-only/file"), vec![0; 8_192]).unwrap();
        fs::create_dir_all(layer.join(format!("work.{session}/work"))).unwrap();
        for closed in ["upper/read-only", &format!("work.{session}/work")] {
            fs::set_permissions(layer.join(closed), fs::Permissions::from_mode(0o555)).unwrap();
        }
    }

    #[test]
    fn sizes_and_sessions_of_layers_are_listed() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(stored_layers(&root.path().join("none")).unwrap(), []);
        layers(root.path(), "one");
        let all = stored_layers(root.path()).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].name, "agent-a");
        assert!(all[0].bytes >= 8_192);
        assert_eq!(all[0].sessions, ["one"]);
        remove_folder(&all[0].path).unwrap();
        assert_eq!(stored_layers(root.path()).unwrap(), []);
    }

    #[test]
    fn work_folders_of_ended_sandboxes_and_old_layers_are_removed() {
        let root = tempfile::tempdir().unwrap();
        layers(root.path(), "runs");
        layers(root.path(), "killed");
        let now = std::fs::metadata(root.path()).unwrap().modified().unwrap();
        let clean = |now| clean_layers(root.path(), now, |session| session == "runs").unwrap();
        assert!(clean(now).is_empty());
        let layer = root.path().join("agent-a/home");
        assert!(layer.join("work.runs").exists() && !layer.join("work.killed").exists());
        let later = now + UNUSED_FOR + Duration::from_secs(60);
        assert!(clean(later).is_empty(), "a session uses it");
        let gone = clean_layers(root.path(), now, |_| false).unwrap();
        assert!(
            gone.is_empty() && layer.join("upper").exists(),
            "it is not old"
        );
        let gone = clean_layers(root.path(), later, |_| false).unwrap();
        assert_eq!(gone, ["agent-a"]);
        assert!(!root.path().join("agent-a").exists());
    }
}
