//! Protected names that no mount protects: what does not exist cannot be mounted read-only, and the kernel removes a mount
//! when another program outside replaces or removes the file below it. The keeper refuses system calls that would make or
//! change such a name. Nothing is put in the place of a name.
//!
//! The keeper reads a path from the memory of the command, and another thread could change it in between. Names that a
//! command has made all the same are reported at its end.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::git::Protected;
use super::inside::{Inside, NamedFile};
use super::paths::{PROTECTED, PROTECTED_OF_GIT, PROTECTED_OF_MAIN_TREE, PROTECTED_OF_WORKTREE};
use super::plan::{Mode, Plan};

/// Repositories of other kinds, which a command may make: only in those that exist are names protected.
const REPOSITORIES: [&str; 2] = [".hg", ".jj"];
/// A file that the supervision of the sandbox looks for, and ends the command.
const SUPERVISED: &str = "commondir";

/// Protected names of a workspace and of its git directory, existing or not.
#[derive(Default)]
pub(super) struct ProtectedNames {
    names: HashSet<PathBuf>,
    /// Paths that the plan permits to write all the same.
    permitted: Vec<PathBuf>,
    inside: Option<Inside>,
}

/// Kind of a call that changes a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Opens a file to write it, or truncates it, where links at the end of the path lead.
    Write,
    /// The same, without following a link at the end of the path.
    WriteItself,
    /// Makes a file or folder that is no link, and fails if there is one.
    Make,
    /// Makes a symbolic link, or a hard link, which may be one to a symbolic link.
    Link,
    /// Removes a file or folder.
    Remove,
    /// Renames a file or folder.
    Rename,
}

/// Change of a protected name that is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RefusedChange {
    /// The name would be made.
    Made(PathBuf),
    /// A file at or below the name would be changed.
    Changed(PathBuf),
}

impl ProtectedNames {
    /// Finds the names that the plan does not permit to write. `init`: a process of the sandbox.
    pub fn of(plan: &Plan, protected: &Protected, init: i32) -> Self {
        ProtectedNames {
            inside: Inside::of(init),
            ..ProtectedNames::known(plan, protected)
        }
    }

    fn known(plan: &Plan, protected: &Protected) -> Self {
        if !plan.writes_in_workspace() {
            return ProtectedNames::default();
        }
        let root = &plan.workspace.path;
        let of_tree = |tree: PathBuf| -> Vec<PathBuf> {
            let names = PROTECTED.iter().filter(|name| {
                let mut repositories = REPOSITORIES.iter();
                let repository = repositories.find(|folder| Path::new(name).starts_with(folder));
                repository.is_none_or(|folder| fs::symlink_metadata(tree.join(folder)).is_ok())
            });
            names.map(|name| tree.join(name)).collect()
        };
        let of_git = |git: &Path| {
            let names = PROTECTED_OF_GIT.iter().filter(|name| **name != SUPERVISED);
            let names: Vec<PathBuf> = names.map(|name| git.join(name)).collect();
            names
        };
        let nested = protected.nested.iter().map(|tree| root.join(tree));
        let trees = nested.chain([root.clone()]);
        let mut names: HashSet<PathBuf> = trees.flat_map(of_tree).collect();
        let found = protected.paths.iter().chain(&protected.absent);
        names.extend(found.map(|path| root.join(path)));
        for git in &protected.git_folders {
            names.extend(of_git(&root.join(git)));
        }
        let of_linked = |base: &Path, linked: &Path| {
            let own = base.join(linked);
            PROTECTED_OF_WORKTREE.map(|name| own.join(name))
        };
        for linked in &protected.linked {
            names.extend(of_linked(root, linked));
        }
        if let Some(worktree) = &protected.outside.worktree {
            let common = &worktree.common;
            names.extend(of_git(common));
            if worktree.is_linked() {
                names.extend(PROTECTED_OF_MAIN_TREE.map(|name| common.join(name)));
            }
            let found = worktree.protected();
            names.extend(found.paths.iter().map(|path| common.join(path)));
            for linked in found.linked.iter().chain([&worktree.own]) {
                names.extend(of_linked(common, linked));
            }
        }
        let is_permitted = |path: &Path| {
            let inside = path.strip_prefix(root);
            inside.is_ok_and(|inside| plan.permits(inside))
        };
        names.retain(|name| !is_permitted(name));
        let permitted = plan.write.iter().filter(|path| is_permitted(path));
        ProtectedNames {
            names,
            permitted: permitted.cloned().collect(),
            inside: None,
        }
    }

    /// No names, in a sandbox whose processes see the paths of this one.
    pub fn none() -> Self {
        ProtectedNames {
            inside: Inside::of(std::process::id() as i32),
            ..ProtectedNames::default()
        }
    }

    /// File that a call of the thread `tid` is about, whether protected or not.
    pub fn file(&self, path: &Path, tid: u32, follows: bool) -> Option<NamedFile> {
        self.inside.as_ref()?.find(path, tid, follows)
    }

    /// Protected name that a call of the thread `tid`, which renames nothing, would change at a path.
    pub fn changed(&self, change: Change, path: &Path, tid: u32) -> Option<RefusedChange> {
        self.changed_file(change, &self.find(path, tid, change == Change::Write)?)
    }

    /// The same at a file that was found already.
    pub fn changed_file(&self, change: Change, file: &NamedFile) -> Option<RefusedChange> {
        let is_there = file.kind.is_some();
        match change {
            // `mkdir -p` attempts every folder of a path.
            Change::Make | Change::Link if is_there => None,
            Change::Link => {
                let below = || self.below(&file.path).next();
                self.refused(file)
                    .or_else(|| below().map(|(name, _)| RefusedChange::Made(name.to_owned())))
            }
            _ => self.refused(file),
        }
    }

    /// Name that the thread `tid` would change by renaming `from` to a path: one of the two, or one in a folder.
    pub fn renamed(&self, from: &Path, path: &Path, tid: u32) -> Option<RefusedChange> {
        let from = self.find(from, tid, false)?;
        // What does not exist cannot be renamed.
        from.kind?;
        let to = self.find(path, tid, false)?;
        let either = self.refused(&to).or_else(|| self.refused(&from));
        either.or_else(|| {
            let is_link = from.kind == Some(FileType::Symlink);
            let mut made = self.below(&to.path);
            let made = made.find(|(_, rest)| is_link || from.has(rest));
            if let Some((name, _)) = made {
                return Some(RefusedChange::Made(name.to_owned()));
            }
            let mut moved = self.below(&from.path);
            let (name, _) = moved.find(|(_, rest)| from.has(rest) && !from.is_mount())?;
            Some(RefusedChange::Changed(name.to_owned()))
        })
    }

    fn find(&self, path: &Path, tid: u32, follows: bool) -> Option<NamedFile> {
        let inside = self.inside.as_ref().filter(|_| !self.names.is_empty())?;
        inside.find(path, tid, follows)
    }

    /// Refusal to change a file, if it is protected and the kernel does not refuse it by itself.
    fn refused(&self, file: &NamedFile) -> Option<RefusedChange> {
        let path = &file.path;
        let name = path.ancestors().find(|path| self.names.contains(*path))?;
        let is_permitted = self.permitted.iter().any(|named| path.starts_with(named));
        (!is_permitted && !file.is_read_only()).then(|| match file.kind {
            None if name == path => RefusedChange::Made(path.clone()),
            _ => RefusedChange::Changed(path.clone()),
        })
    }

    /// Names that are below this path, with their paths from there.
    fn below(&self, path: &Path) -> impl Iterator<Item = (&Path, &Path)> {
        self.names.iter().filter_map(move |name| {
            let rest = name.strip_prefix(path).ok()?;
            (!rest.as_os_str().is_empty()).then_some((name.as_path(), rest))
        })
    }
}

/// True if a plan permits to write a path really, with all that is below it.
pub fn writes_already(plan: &Plan, path: &Path) -> bool {
    let root = &plan.workspace.path;
    let mut writable = plan.write.iter();
    let is_writable = writable.any(|named| path.starts_with(named));
    if !path.starts_with(root) {
        return is_writable;
    }
    let is_open = is_writable || plan.mode == Mode::WorkspaceWrite;
    let protected = ProtectedNames::known(plan, &Protected::of(plan)).names;
    // A yes to the whole workspace leaves its protected names as they are.
    let touches = |name: &PathBuf| path.starts_with(name) || name.starts_with(path) && path != root;
    is_open && !protected.iter().any(touches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Folder;
    use std::os::unix::fs::symlink;

    /// A workspace with a repository, in which this process stands for a command.
    fn protected_names(workspace: &Path) -> ProtectedNames {
        fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
        fs::create_dir_all(workspace.join(".git/info")).unwrap();
        let plan = Plan {
            mode: Mode::WorkspaceWrite,
            ..Plan::read_only(Folder::resolve(workspace).unwrap())
        };
        let own = std::process::id();
        ProtectedNames::of(&plan, &Protected::of(&plan), own as i32)
    }

    #[test]
    fn names_are_found_by_whatever_path_they_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let names = protected_names(&root);
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
        let made = |change, path: &Path| match names.changed(change, path, tid)? {
            RefusedChange::Made(made) => Some(made.strip_prefix(&root).unwrap().to_owned()),
            RefusedChange::Changed(changed) => panic!("{changed:?} exists"),
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
            for call in [Change::Make, Change::Write, Change::Link] {
                assert_eq!(made(call, &path), Some(expected.into()), "{path:?}");
            }
        }
        for path in ["dangling", "link/dangling", "twice"] {
            let path = root.join(path);
            assert_eq!(made(Change::Write, &path), Some(".mcp.json".into()));
            assert_eq!(made(Change::Make, &path), None);
        }
        for path in [
            ".git/commondir",
            ".hg/hgrc",
            ".github",
            "new/.vscode",
            "link/new/.vscode",
            "cwd/.vscode",
            "none/.vscode",
            "file",
        ] {
            for call in [Change::Make, Change::Write] {
                assert_eq!(made(call, &root.join(path)), None, "{path:?}");
            }
        }
        let expected = Some(PathBuf::from(".github/workflows"));
        assert_eq!(made(Change::Link, &root.join(".github")), expected);
    }

    #[test]
    fn names_are_found_in_folders_that_are_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let names = protected_names(&root);
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
            let made = names.renamed(&from, &path, std::process::id());
            let expected = expected.map(|name| RefusedChange::Made(root.join(name)));
            assert_eq!(made, expected, "{path:?}");
        }
    }

    #[test]
    fn existing_names_that_no_mount_protects_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".vscode")).unwrap();
        fs::write(root.join(".vscode/tasks.json"), "").unwrap();
        let names = protected_names(&root);
        fs::write(root.join(".mcp.json"), "made outside").unwrap();
        fs::write(root.join("plain"), "").unwrap();
        symlink(".vscode/tasks.json", root.join("link")).unwrap();
        let tid = std::process::id();
        let opened = fs::File::open(root.join(".mcp.json")).unwrap();
        let opened = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
        let changed = |name: &str| Some(RefusedChange::Changed(root.join(name)));
        for (change, path, expected) in [
            (Change::Write, ".mcp.json", ".mcp.json"),
            (Change::Write, &*opened, ".mcp.json"),
            (Change::WriteItself, ".mcp.json", ".mcp.json"),
            (Change::Remove, ".mcp.json", ".mcp.json"),
            (Change::Write, "link", ".vscode/tasks.json"),
            (Change::Remove, ".vscode/tasks.json", ".vscode/tasks.json"),
        ] {
            let found = names.changed(change, &root.join(path), tid);
            assert_eq!(found, changed(expected), "{change:?} {path}");
        }
        let new = changed(".vscode/new");
        assert_eq!(
            names.changed(Change::Make, &root.join(".vscode/new"), tid),
            new
        );
        for (change, path) in [
            (Change::Make, ".vscode"),
            (Change::Remove, "link"),
            (Change::Write, "plain"),
        ] {
            let found = names.changed(change, &root.join(path), tid);
            assert_eq!(found, None, "{change:?} {path}");
        }
        for (from, to, expected) in [
            (".mcp.json", "x", ".mcp.json"),
            ("plain", ".vscode/tasks.json", ".vscode/tasks.json"),
            (".git", "x", ".git/hooks"),
        ] {
            let found = names.renamed(&root.join(from), &root.join(to), tid);
            assert_eq!(found, changed(expected), "{from} {to}");
        }
        assert_eq!(
            names.renamed(&root.join("plain"), &root.join("y"), tid),
            None
        );
    }
}
