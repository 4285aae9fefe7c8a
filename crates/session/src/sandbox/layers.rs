//! Layered folders: the home folder and the temporary folders of a sandbox. Writes succeed and go to a folder of the
//! agent; nothing of the user's changes. Sockets of other programs cannot be reached through a layer.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use abide_core::SandboxGap;
use rustix::fs::{CWD, RenameFlags};

use super::build::{Fault, Named, attach};
use super::mounts::{self, MountTable};
use super::paths;
use super::plan::Plan;
use super::stored_layers::{SPARE, WORK};
use crate::ext4_placement;

/// Layered folders of one sandbox.
pub struct Layers {
    all: Vec<Layer>,
    /// Mounts inside a layered folder, which the layer would hide.
    inside: Vec<(PathBuf, OwnedFd)>,
}

/// One layered folder.
struct Layer {
    path: PathBuf,
    made: Made,
}

/// Way in which a folder was layered.
enum Made {
    /// By an overlay.
    Overlay(OwnedFd),
    /// Not at all: private folders stand in some places, the rest is read-only.
    Private(Vec<(PathBuf, OwnedFd)>),
}

impl Layers {
    pub fn make(plan: &Plan, session: &str, table: &MountTable) -> Result<Self, Fault> {
        let layered = layered(plan);
        let mut all = Vec::new();
        for path in &layered {
            let step = || format!("layer '{}'", path.display());
            let folder = plan.layers.join(name(path));
            let made = match overlay(path, &folder, session) {
                Ok(tree) => Made::Overlay(tree),
                Err(fault) if is_unsupported(&fault) => {
                    Made::Private(private(path, &folder, plan).named(step)?)
                }
                Err(fault) => return Err(fault).named(step),
            };
            let path = path.clone();
            all.push(Layer { path, made });
        }
        Ok(Layers {
            inside: mounts_inside(&layered, plan, table)?,
            all,
        })
    }

    /// Promises that layers could not keep.
    pub fn gaps(&self, plan: &Plan) -> Vec<SandboxGap> {
        let mut gaps: Vec<SandboxGap> = Vec::new();
        for layer in &self.all {
            let gap = match plan.home.starts_with(&layer.path) {
                true => SandboxGap::Layers,
                false => SandboxGap::TemporaryLayers,
            };
            if matches!(layer.made, Made::Private(_)) && !gaps.contains(&gap) {
                gaps.push(gap);
            }
        }
        gaps
    }

    /// Attaches all layers. Returns the paths that can be written.
    pub fn attach(self) -> Result<Vec<PathBuf>, Fault> {
        let mut writable = Vec::new();
        for layer in self.all {
            match layer.made {
                Made::Overlay(tree) => {
                    attach(tree, &layer.path)?;
                    writable.push(layer.path);
                }
                Made::Private(folders) => {
                    for (path, tree) in folders {
                        attach(tree, &path)?;
                        writable.push(path);
                    }
                }
            }
        }
        for (path, tree) in self.inside {
            // The folder below it may have been removed in the layer.
            if path.is_dir() {
                attach(tree, &path)?;
            }
        }
        Ok(writable)
    }
}

/// Folders to layer: the home folder and temporary folders, outer ones first.
pub fn layered(plan: &Plan) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = [plan.home.as_path()]
        .into_iter()
        .chain(paths::TEMPORARY.map(Path::new))
        .filter_map(|path| path.canonicalize().ok())
        .filter(|path| path.is_dir() && path.parent().is_some())
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Name of the folder of a layer: the path, in characters that no mount option needs to escape.
fn name(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => c,
        _ => '-',
    };
    text.trim_matches('/').chars().map(plain).collect()
}

/// Layers a folder. Each sandbox has a work folder of its own, because the kernel empties it. One is kept for the next
/// sandbox: to make a folder takes ten times as long as to rename one.
fn overlay(path: &Path, folder: &Path, session: &str) -> io::Result<OwnedFd> {
    let upper = folder.join("upper");
    let work = folder.join(format!("{WORK}{session}"));
    if !upper.exists() {
        make_private_folder(folder)?;
        // What the kernel makes in work folders comes and goes.
        ext4_placement::spread(folder);
        make_private_folder(&upper)?;
    }
    let lower = fs::metadata(path)?;
    if fs::metadata(&upper)?.mode() & 0o7777 != lower.mode() & 0o7777 {
        fs::set_permissions(&upper, fs::Permissions::from_mode(lower.mode() & 0o7777))?;
    }
    if fs::rename(folder.join(SPARE), &work).is_err() {
        make_private_folder(&work)?;
    }
    let opened = [path, &upper, &work].map(mounts::open_path);
    let [lower, upper, work] = opened;
    let [lower, upper, work] = [lower?, upper?, work?].map(|fd| (mounts::proc_path(&fd), fd));
    let options: [(&str, &[u8]); 6] = [
        ("lowerdir", lower.0.as_bytes()),
        ("upperdir", upper.0.as_bytes()),
        ("workdir", work.0.as_bytes()),
        ("userxattr", b""),
        ("volatile", b""),
        ("index", b"off"),
    ];
    mounts::create("overlay", &options, mounts::harmless())
}

pub fn make_private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// True if this kernel or file system cannot make the overlay.
fn is_unsupported(fault: &io::Error) -> bool {
    let codes = [libc::ENODEV, libc::EINVAL, libc::EPERM, libc::EOPNOTSUPP];
    fault
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

/// Private folders in the place of a layer: a temporary folder is replaced, a home folder keeps its caches.
fn private(path: &Path, folder: &Path, plan: &Plan) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let is_home = plan.home.starts_with(path);
    let places: Vec<PathBuf> = match is_home {
        true => paths::CACHES
            .iter()
            .map(|name| plan.home.join(name))
            .collect(),
        false => vec![path.to_owned()],
    };
    let mut made = Vec::new();
    for place in places.into_iter().filter(|place| place.is_dir()) {
        let source = folder.join("private").join(name(&place));
        make_private_folder(&source)?;
        let tree = mounts::clone_tree_at(&source)?;
        mounts::set_attributes(&tree, mounts::harmless())?;
        made.push((place, tree));
    }
    Ok(made)
}

/// Clones mounts inside layered folders, read-only.
fn mounts_inside(
    layered: &[PathBuf],
    plan: &Plan,
    table: &MountTable,
) -> Result<Vec<(PathBuf, OwnedFd)>, Fault> {
    let mut found: Vec<(PathBuf, OwnedFd)> = Vec::new();
    for place in table.places() {
        let is_inside = |root: &PathBuf| place.starts_with(root) && place != root;
        let is_known = found.iter().any(|(outer, _)| place.starts_with(outer));
        if !layered.iter().any(is_inside) || is_known || place.starts_with(&plan.workspace.path) {
            continue;
        }
        let step = || format!("mount '{}'", place.display());
        // A mount of another user, which this one cannot enter.
        let Ok(tree) = mounts::clone_tree_at(place) else {
            continue;
        };
        mounts::set_attributes(&tree, mounts::read_only()).named(step)?;
        found.push((place.clone(), tree));
    }
    Ok(found)
}

/// Work folders of the layers of one sandbox. Dropping it empties or removes them, so its processes must have ended and its
/// mounts be closed. The upper layers stay.
pub struct WorkFolders {
    pub layers: PathBuf,
    pub session: String,
}

impl Drop for WorkFolders {
    fn drop(&mut self) {
        let Ok(entries) = fs::read_dir(&self.layers) else {
            return;
        };
        for entry in entries.flatten() {
            let work = entry.path().join(format!("{WORK}{}", self.session));
            // The kernel makes folders without permissions in it.
            for made in ["work", "work/incompat", "work/incompat/volatile"] {
                let _ = fs::set_permissions(work.join(made), fs::Permissions::from_mode(0o700));
            }
            let spare = entry.path().join(SPARE);
            let kept = fs::remove_dir_all(work.join("work")).and_then(|()| {
                let flags = RenameFlags::NOREPLACE;
                Ok(rustix::fs::renameat_with(CWD, &work, CWD, &spare, flags)?)
            });
            if kept.is_err() {
                let _ = fs::remove_dir_all(work);
            }
        }
    }
}
