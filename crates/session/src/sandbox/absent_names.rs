//! Protected names that do not exist in a workspace: what does not exist cannot be mounted read-only, so the keeper refuses
//! the system call that would make it. Nothing is put in the place of such a name.
//!
//! The keeper reads a path from the memory of the command, and another thread could change it in between. Names that a
//! command has made all the same are reported at its end.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType};

use super::git::Protected;
use super::inside::{Inside, Place, identity};
use super::paths::{PROTECTED, PROTECTED_OF_GIT};
use super::plan::Plan;

/// Repositories of other kinds, which a command may make: only in those that exist are names protected.
const REPOSITORIES: [&str; 2] = [".hg", ".jj"];
/// A file that the supervision of the sandbox looks for, and ends the command.
const SUPERVISED: &str = "commondir";

/// Protected names of a workspace that did not exist when the session began.
#[derive(Default)]
pub(super) struct AbsentNames {
    root: PathBuf,
    /// Names, relative to the workspace.
    names: Vec<PathBuf>,
    inside: Option<Inside>,
}

/// Kind of a call that makes a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Making {
    /// Opens a file, which is made where links at the end of the path lead.
    Open,
    /// Makes a file or folder that is no link.
    File,
    /// Makes a symbolic link, or a hard link, which may be one to a symbolic link.
    Link,
    /// Renames a file or folder.
    Rename,
}

impl AbsentNames {
    /// Finds the names that do not exist, and that the plan does not permit to write. `init`: a process of the sandbox.
    pub fn of(plan: &Plan, protected: &Protected, init: i32) -> Self {
        if !plan.writes_in_workspace() {
            return AbsentNames::default();
        }
        let root = plan.workspace.path.clone();
        let exists = |path: &Path| fs::symlink_metadata(root.join(path)).is_ok();
        let names = PROTECTED.iter().map(PathBuf::from).filter(|name| {
            let repository = REPOSITORIES.iter().find(|folder| name.starts_with(folder));
            repository.is_none_or(|folder| exists(Path::new(folder)))
        });
        let of_git = protected.git_folders.iter().flat_map(|git| {
            let names = PROTECTED_OF_GIT.iter().filter(|name| **name != SUPERVISED);
            names.map(|name| git.join(name))
        });
        let is_absent = |path: &PathBuf| !exists(path) && !plan.permits(path);
        let names = names.chain(of_git).filter(is_absent).collect();
        AbsentNames {
            root,
            names,
            inside: Inside::of(init),
        }
    }

    /// Name that a call of the thread `tid`, which renames nothing, would make at a path.
    pub fn made(&self, call: Making, path: &Path, tid: u32) -> Option<PathBuf> {
        if call == Making::Open {
            let inside = self.inside.as_ref().filter(|_| !self.names.is_empty())?;
            return self.name_at(&inside.opened_place(path, tid)?);
        }
        let place = self.place_of_name(path, tid)?;
        // `mkdir -p` attempts every folder of a path.
        let name = self.name_at(&place).filter(|_| place.kind().is_none());
        name.or_else(|| {
            let mut below = self.below(&place).filter(|_| call == Making::Link);
            below.next().map(|(name, _)| name)
        })
    }

    /// Name that the thread `tid` would make by renaming `from` to a path: that itself, or one in a folder.
    pub fn renamed(&self, from: &Path, path: &Path, tid: u32) -> Option<PathBuf> {
        let place = self.place_of_name(path, tid)?;
        self.name_at(&place).or_else(|| {
            let from = self.inside.as_ref()?.place(from, tid)?;
            let is_link = from.kind() == Some(FileType::Symlink);
            let comes_with = |rest: &Path| {
                let path = Path::new(&from.name).join(rest);
                rustix::fs::statat(&from.folder, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            };
            let mut below = self.below(&place);
            below.find_map(|(name, rest)| (is_link || comes_with(&rest)).then_some(name))
        })
    }

    /// Place of a path, if a name or a folder of one is called like it: most paths are told apart without a system call.
    fn place_of_name(&self, path: &Path, tid: u32) -> Option<Place> {
        let last = path.file_name()?;
        let is_called = |name: &PathBuf| name.iter().any(|part| part == last);
        let is_one = self.names.iter().any(is_called);
        self.inside.as_ref().filter(|_| is_one)?.place(path, tid)
    }

    /// Name that has this place.
    fn name_at(&self, place: &Place) -> Option<PathBuf> {
        let name = self.names.iter().find(|name| self.is_at(name, place));
        name.map(|name| self.root.join(name))
    }

    /// Names that are below this place, with their paths from there.
    fn below(&self, place: &Place) -> impl Iterator<Item = (PathBuf, PathBuf)> {
        self.names.iter().filter_map(|name| {
            let mut folders = name.ancestors().skip(1);
            let folder = folders.find(|folder| self.is_at(folder, place))?;
            let rest = name.strip_prefix(folder).ok()?;
            Some((self.root.join(name), rest.to_owned()))
        })
    }

    /// Returns whether a path of the workspace has this place, by whatever way it was reached.
    fn is_at(&self, path: &Path, place: &Place) -> bool {
        let Some((folder, name)) = path.parent().zip(path.file_name()) else {
            return false;
        };
        let is_folder = || {
            let known = fs::metadata(self.root.join(folder)).ok()?;
            Some(identity(&place.folder).ok()? == (known.dev(), known.ino()))
        };
        name == place.name && is_folder() == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Folder, Mode, Network};
    use abide_core::SandboxedBy;
    use std::os::unix::fs::symlink;

    /// A workspace with a repository, in which this process stands for a command.
    fn absent_names(workspace: &Path) -> AbsentNames {
        fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
        fs::create_dir_all(workspace.join(".git/info")).unwrap();
        let plan = Plan {
            at_least: SandboxedBy::Namespaces,
            mode: Mode::WorkspaceWrite,
            network: Network::Off,
            workspace: Folder::resolve(workspace).unwrap(),
            home: "/nonexistent".into(),
            layers: "/nonexistent".into(),
            write: Vec::new(),
            hide: Vec::new(),
            own: Vec::new(),
            layer_bytes: None,
        };
        let own = std::process::id();
        AbsentNames::of(&plan, &Protected::of(&plan), own as i32)
    }

    #[test]
    fn names_are_found_by_whatever_path_they_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let absent = absent_names(&root);
        let tid = std::process::id();
        symlink(".", root.join("link")).unwrap();
        symlink(".mcp.json", root.join("dangling")).unwrap();
        symlink("link/dangling", root.join("twice")).unwrap();
        symlink("/proc/self/cwd", root.join("cwd")).unwrap();
        symlink(&root, outside.path().join("link")).unwrap();
        fs::create_dir_all(root.join("new")).unwrap();
        let opened = fs::File::open(&root).unwrap();
        let opened = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
        let own = format!("/proc/{tid}/root{}", root.display());
        let made = |call, path: &Path| {
            let made = absent.made(call, path, tid)?;
            Some(made.strip_prefix(&root).unwrap().to_owned())
        };
        for (path, expected) in [
            (root.join(".vscode"), ".vscode"),
            (root.join(".vscode/"), ".vscode"),
            (root.join("link/.mcp.json"), ".mcp.json"),
            (root.join("new/../.claude"), ".claude"),
            (root.join(".git/info/attributes"), ".git/info/attributes"),
            (outside.path().join("link/.vscode"), ".vscode"),
            (Path::new(&opened).join(".vscode"), ".vscode"),
            (Path::new(&own).join(".vscode"), ".vscode"),
        ] {
            for call in [Making::File, Making::Open, Making::Link] {
                assert_eq!(made(call, &path), Some(expected.into()), "{path:?}");
            }
        }
        for path in ["dangling", "link/dangling", "twice"] {
            let path = root.join(path);
            assert_eq!(made(Making::Open, &path), Some(".mcp.json".into()));
            assert_eq!(made(Making::File, &path), None);
        }
        for path in [
            ".git/hooks",
            ".git/commondir",
            ".hg/hgrc",
            ".github",
            "new/.vscode",
            "link/new/.vscode",
            "cwd/.vscode",
            "none/.vscode",
            "file",
        ] {
            for call in [Making::File, Making::Open] {
                assert_eq!(made(call, &root.join(path)), None, "{path:?}");
            }
        }
        let expected = Some(PathBuf::from(".github/workflows"));
        assert_eq!(made(Making::Link, &root.join(".github")), expected);
    }

    #[test]
    fn names_are_found_in_folders_that_are_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let absent = absent_names(&root);
        for made in ["new/workflows", "other"] {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        symlink(".", root.join("link")).unwrap();
        symlink("other", root.join("to-other")).unwrap();
        for (from, path, expected) in [
            ("new", ".github", Some(".github/workflows")),
            ("new", "link/.github", Some(".github/workflows")),
            ("link/new", ".github", Some(".github/workflows")),
            ("to-other", ".github", Some(".github/workflows")),
            ("other", ".vscode", Some(".vscode")),
            ("other", ".github", None),
            ("new", "old", None),
            ("none", ".github", None),
        ] {
            let (from, path) = (root.join(from), root.join(path));
            let made = absent.renamed(&from, &path, std::process::id());
            assert_eq!(made, expected.map(|name| root.join(name)), "{path:?}");
        }
    }
}
