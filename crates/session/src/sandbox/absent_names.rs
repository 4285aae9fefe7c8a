//! Protected names that do not exist in a workspace: what does not exist cannot be mounted read-only, so the keeper refuses
//! the system call that would make it. Nothing is put in the place of such a name.
//!
//! The keeper reads a path from the memory of the command, and another thread could change it in between. Names that a
//! command has made all the same are reported at its end.

use std::fs;
use std::path::{Path, PathBuf};

use super::git::Protected;
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
}

impl AbsentNames {
    /// Finds the names that do not exist, and that the plan does not permit to write.
    pub fn of(plan: &Plan, protected: &Protected) -> Self {
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
        AbsentNames { root, names }
    }

    /// Returns whether a path that is about to be made is such a name, or below one. `path` may have links in it.
    pub fn has(&self, path: &Path) -> bool {
        let Some((folder, name)) = path.parent().zip(path.file_name()) else {
            return false;
        };
        let is_name = |path: &Path| {
            let inside = path.strip_prefix(&self.root);
            inside.is_ok_and(|inside| self.names.iter().any(|name| inside.starts_with(name)))
        };
        // Links are followed only where the last part of the path is that of a name.
        let may_be = || (self.names.iter()).any(|known| known.file_name() == Some(name));
        let is_link_to = || match folder.starts_with("/proc") {
            // Leads elsewhere for the keeper.
            true => true,
            false => fs::canonicalize(folder).is_ok_and(|folder| is_name(&folder.join(name))),
        };
        is_name(path) || (may_be() && is_link_to())
    }

    /// Returns whether `from`, a folder that is about to be renamed to `path`, has such a name in it.
    pub fn comes_with(&self, from: &Path, path: &Path) -> bool {
        let inside = path.strip_prefix(&self.root).ok();
        let inside = inside.filter(|inside| !inside.as_os_str().is_empty());
        inside.is_some_and(|inside| {
            let below = self
                .names
                .iter()
                .filter_map(|name| name.strip_prefix(inside).ok());
            let mut below = below.filter(|below| !below.as_os_str().is_empty());
            below.any(|below| fs::symlink_metadata(from.join(below)).is_ok())
        })
    }
}
