//! Protected paths of a workspace: what git, editors, agents and CI run by themselves.

use std::fs;
use std::path::{Path, PathBuf};

use super::paths::{PROTECTED, PROTECTED_OF_GIT};
use super::plan::Plan;

/// Depth to which repositories inside the workspace are searched.
const DEPTH: usize = 2;
/// Entries that are looked at in search of repositories.
const ENTRIES: usize = 4_000;
/// Protected paths that a sandbox can have; each is a mount.
pub const MOST_PROTECTED: usize = 400;

/// Protected paths of a workspace, relative to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// Existing files and folders that become read-only.
    pub paths: Vec<PathBuf>,
    /// Git directory outside the workspace that its commits are written to.
    pub worktree: Option<Worktree>,
    /// True if the search for repositories inside the workspace was not finished.
    pub is_incomplete: bool,
}

/// Git directory of a linked worktree.
#[derive(Debug, PartialEq, Eq)]
pub struct Worktree {
    /// Git directory that all worktrees share.
    pub common: PathBuf,
    /// Git directory of this worktree, inside [`Worktree::common`].
    pub own: PathBuf,
}

impl Protected {
    /// Protected paths of the workspace of a plan: those that exist, and that the plan does not permit to write.
    pub fn of(plan: &Plan) -> Self {
        // The search looks at thousands of folders.
        if !plan.writes_in_workspace() {
            return Protected::default();
        }
        let mut found = Protected::find(&plan.workspace.path);
        found.paths.retain(|path| !plan.permits(path));
        found
    }

    /// Finds the protected paths that exist.
    fn find(workspace: &Path) -> Self {
        let mut found = Protected::default();
        found.add_names(workspace, Path::new(""), &PROTECTED);
        let mut left = ENTRIES;
        found.add_repositories(workspace, Path::new(""), DEPTH, &mut left);
        found.worktree = worktree(workspace);
        found
    }

    fn add_names(&mut self, root: &Path, below: &Path, names: &[&str]) {
        for name in names {
            let path = below.join(name);
            if fs::symlink_metadata(root.join(&path)).is_ok() {
                self.paths.push(path);
            }
        }
    }

    fn add_repositories(&mut self, root: &Path, below: &Path, depth: usize, left: &mut usize) {
        let git = below.join(".git");
        match fs::symlink_metadata(root.join(&git)) {
            Ok(found) if found.is_dir() => self.add_git_folder(root, &git),
            // A link, or the file of a worktree or submodule, is protected itself.
            Ok(_) => self.paths.push(git),
            Err(_) if is_bare_repository(&root.join(below)) => self.add_git_folder(root, below),
            Err(_) => {}
        }
        if depth == 0 {
            return;
        }
        let Ok(entries) = fs::read_dir(root.join(below)) else {
            return;
        };
        for entry in entries.flatten() {
            if *left == 0 {
                self.is_incomplete = true;
                return;
            }
            *left -= 1;
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && entry.file_name() != ".git" {
                self.add_repositories(root, &below.join(entry.file_name()), depth - 1, left);
            }
        }
    }

    fn add_git_folder(&mut self, root: &Path, git: &Path) {
        self.add_names(root, git, &PROTECTED_OF_GIT);
        let Ok(modules) = fs::read_dir(root.join(git).join("modules")) else {
            return;
        };
        for module in modules.flatten() {
            let module = git.join("modules").join(module.file_name());
            self.add_names(root, &module, &PROTECTED_OF_GIT);
        }
    }
}

/// True if git takes this folder for a repository without files: it obeys its configuration.
fn is_bare_repository(folder: &Path) -> bool {
    let is = |name: &str| fs::symlink_metadata(folder.join(name)).is_ok();
    is("HEAD") && is("objects") && is("refs")
}

/// Protected paths of a git directory outside the workspace, absolute.
pub fn protected_of_git(common: &Path) -> Vec<PathBuf> {
    let mut found = Protected::default();
    found.add_git_folder(common, Path::new(""));
    found
        .paths
        .into_iter()
        .map(|path| common.join(path))
        .collect()
}

/// Git directory of a linked worktree. The workspace could name any folder, so the git directory must name the
/// workspace in turn.
fn worktree(workspace: &Path) -> Option<Worktree> {
    let text = fs::read_to_string(workspace.join(".git")).ok()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    let own = workspace.join(named).canonicalize().ok()?;
    let back = fs::read_to_string(own.join("gitdir")).ok()?;
    let back = Path::new(back.trim()).canonicalize().ok()?;
    if back != workspace.join(".git") || own.starts_with(workspace) {
        return None;
    }
    let common = own.parent()?.parent()?.to_owned();
    let said = fs::read_to_string(own.join("commondir")).ok()?;
    let is_common = own.join(said.trim()).canonicalize().ok()? == common;
    let is_git = common.join("objects").is_dir() && common.join("refs").is_dir();
    (is_common && is_git).then_some(Worktree { common, own })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::plan::{Folder, Mode, Network};
    use abide_core::SandboxedBy;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn existing_names_of_workspace_and_nested_repositories_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for file in [
            ".git/hooks/a",
            ".git/config",
            ".git/modules/sub/config",
            ".github/workflows/ci.yml",
            "sub/.git",
            "a/b/.git/config",
            "a/b/c/.git/config",
        ] {
            touch(&root.join(file));
        }
        let mut found = Protected::find(root).paths;
        found.sort();
        let expected = [
            ".git/config",
            ".git/hooks",
            ".git/modules/sub/config",
            ".github/workflows",
            "a/b/.git/config",
            "sub/.git",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn workspace_that_cannot_be_written_is_not_searched() {
        let folder = tempfile::tempdir().unwrap();
        touch(&folder.path().join(".git/config"));
        let workspace = Folder::resolve(folder.path()).unwrap();
        let mut plan = Plan {
            at_least: SandboxedBy::Namespaces,
            mode: Mode::ReadOnly,
            network: Network::Off,
            write: Vec::new(),
            home: "/nonexistent".into(),
            layers: "/nonexistent".into(),
            hide: Vec::new(),
            own: Vec::new(),
            workspace,
        };
        assert_eq!(Protected::of(&plan), Protected::default());
        plan.write = vec![plan.workspace.path.clone()];
        let config = [PathBuf::from(".git/config")];
        assert_eq!(Protected::of(&plan).paths, config);
        plan.write = vec![plan.workspace.path.join(".git")];
        assert_eq!(Protected::of(&plan).paths, [] as [PathBuf; 0]);
    }

    #[test]
    fn p188_search_that_stops_early_says_so() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..ENTRIES {
            touch(&folder.path().join(name.to_string()));
        }
        assert!(!Protected::find(folder.path()).is_incomplete);
        touch(&folder.path().join("one-more"));
        assert!(Protected::find(folder.path()).is_incomplete);
    }

    #[test]
    fn worktree_counts_only_if_its_git_directory_names_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (tree, own) = (base.join("tree"), base.join("main/.git/worktrees/tree"));
        for made in ["tree", "main/.git/objects", "main/.git/refs"] {
            fs::create_dir_all(base.join(made)).unwrap();
        }
        fs::create_dir_all(&own).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        assert_eq!(worktree(&tree), None);
        fs::write(own.join("gitdir"), tree.join(".git").to_str().unwrap()).unwrap();
        let common = base.join("main/.git");
        assert_eq!(
            worktree(&tree),
            Some(Worktree {
                common,
                own: own.clone()
            })
        );
        fs::write(own.join("gitdir"), "/elsewhere/.git").unwrap();
        assert_eq!(worktree(&tree), None);
    }
}
