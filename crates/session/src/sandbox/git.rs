//! Protected paths of a workspace: what git, editors, agents and CI run by themselves.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::git_config::{in_workspace, named_paths};
use super::paths::{PROTECTED, PROTECTED_OF_GIT, PROTECTED_OF_MAIN_TREE, PROTECTED_OF_WORKTREE};
use super::plan::{Mode as Access, Plan};

/// Depth to which repositories inside the workspace are searched.
const DEPTH: usize = 2;
/// Depth to which submodules are searched in a git directory.
const MODULE_DEPTH: usize = 8;
/// Entries that are looked at in search of repositories, which takes about a millisecond.
const ENTRIES: usize = 2_000;
/// Protected paths that a sandbox can have; each is a mount.
pub const MOST_PROTECTED: usize = 1_000;

/// Protected paths of a workspace, relative to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// Existing files and folders that become read-only.
    pub paths: Vec<PathBuf>,
    /// Git directories outside the workspace that git uses in it.
    pub outside: OutsideGit,
    /// True if the search for repositories inside the workspace was not finished.
    pub is_incomplete: bool,
    /// Folders of the repositories in the workspace, other than itself.
    pub nested: Vec<PathBuf>,
    /// Git directories in the workspace.
    pub git_folders: Vec<PathBuf>,
    /// Git directories of the worktrees that are linked to those.
    pub linked: Vec<PathBuf>,
    /// Paths that configurations of git name and that do not exist.
    pub absent: Vec<PathBuf>,
}

/// Git directories outside a workspace that git uses in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OutsideGit {
    /// The one that commits are written to.
    pub worktree: Option<Worktree>,
    /// Those that can only be read. In a layered folder, commits would seem to succeed and be lost.
    pub read_only: Vec<PathBuf>,
}

/// Git directory of a linked worktree, a submodule, or a workspace whose git directory is elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Worktree {
    /// Git directory that all worktrees share.
    pub common: PathBuf,
    /// Git directory of this worktree: inside [`Worktree::common`] if it is a linked one, else the same.
    pub own: PathBuf,
}

impl OutsideGit {
    /// Finds them for the workspace of a plan.
    pub fn of(plan: &Plan) -> Self {
        let workspace = &plan.workspace.path;
        match (worktree(workspace), plan.mode) {
            (Some(worktree), Access::WorkspaceWrite) => OutsideGit {
                worktree: Some(worktree),
                read_only: Vec::new(),
            },
            (Some(worktree), Access::ReadOnly) => OutsideGit {
                worktree: None,
                read_only: vec![worktree.common],
            },
            (None, _) => OutsideGit {
                worktree: None,
                read_only: foreign(workspace),
            },
        }
    }
}

impl Protected {
    /// Protected paths of the workspace of a plan: those that exist, and that the plan does not permit to write.
    pub fn of(plan: &Plan) -> Self {
        // The search looks at thousands of folders.
        if !plan.writes_in_workspace() {
            return Protected {
                outside: OutsideGit::of(plan),
                ..Protected::default()
            };
        }
        let mut found = Protected::find(&plan.workspace.path);
        found.outside = OutsideGit::of(plan);
        found.add_named_by_git(&plan.workspace.path, &plan.home);
        found.paths.retain(|path| !plan.permits(path));
        found
    }

    /// Finds the protected paths that exist.
    fn find(workspace: &Path) -> Self {
        let mut found = Protected::default();
        found.add_names(workspace, Path::new(""), PROTECTED);
        let mut left = ENTRIES;
        let none = Path::new("");
        if let Ok(root) = open_folder(rustix::fs::CWD, workspace) {
            found.add_repository(workspace, root.as_fd(), none, none, &mut left);
            let depth = DEPTH - 1;
            found.add_repositories(workspace, root.as_fd(), none, depth, &mut left);
        }
        found
    }

    /// Adds paths of the workspace that configurations of git name: files that git includes, folders of hooks, programs.
    fn add_named_by_git(&mut self, root: &Path, home: &Path) {
        let own = self.git_folders.iter().map(|git| root.join(git));
        let own: Vec<PathBuf> = own.collect();
        let shared = self
            .outside
            .worktree
            .iter()
            .map(|worktree| &worktree.common);
        let folders = own.iter().chain(shared);
        let mut configs: Vec<(PathBuf, PathBuf)> = folders
            .flat_map(|git| {
                let tree = git.parent().filter(|tree| tree.starts_with(root));
                let tree = tree.unwrap_or(root).to_owned();
                ["config", "config.worktree"].map(|name| (git.join(name), tree.clone()))
            })
            .collect();
        for global in [".gitconfig", ".config/git/config"] {
            configs.push((home.join(global), root.to_owned()));
        }
        for (config, tree) in configs {
            let named = named_paths(&config);
            let folder = config.parent().unwrap_or(root);
            let included = named.included.iter().map(|path| (path, folder));
            let obeyed = named.obeyed.iter().map(|path| (path, tree.as_path()));
            for (path, base) in included.chain(obeyed) {
                let Some(path) = in_workspace(path, base, home, root) else {
                    continue;
                };
                let found = match fs::symlink_metadata(root.join(&path)) {
                    Ok(_) => &mut self.paths,
                    Err(_) => &mut self.absent,
                };
                if !found.contains(&path) {
                    found.push(path);
                }
            }
        }
    }

    fn add_names(&mut self, root: &Path, below: &Path, names: &[&str]) {
        for name in names {
            let path = below.join(name);
            if fs::symlink_metadata(root.join(&path)).is_ok() {
                self.paths.push(path);
            }
        }
    }

    /// Adds the repositories in a folder and below. `at` is `below`, opened: paths from there are short.
    fn add_repositories(
        &mut self,
        root: &Path,
        at: BorrowedFd<'_>,
        below: &Path,
        depth: usize,
        left: &mut usize,
    ) {
        let Ok(entries) = Dir::read_from(at) else {
            return;
        };
        for entry in entries.flatten() {
            let name = Path::new(OsStr::from_bytes(entry.file_name().to_bytes()));
            if [".", "..", ".git"].map(Path::new).contains(&name) {
                continue;
            }
            if *left == 0 {
                self.is_incomplete = true;
                return;
            }
            *left -= 1;
            let kind = match entry.file_type() {
                FileType::Unknown => kind_at(at, name),
                kind => Some(kind),
            };
            if kind == Some(FileType::Directory) {
                self.add_repository(root, at, name, below, left);
                if depth > 0
                    && let Ok(inner) = open_folder(at, name)
                {
                    let below = below.join(name);
                    self.add_repositories(root, inner.as_fd(), &below, depth - 1, left);
                }
            }
        }
    }

    /// Adds the repository in one folder, if there is one.
    fn add_repository(
        &mut self,
        root: &Path,
        at: BorrowedFd<'_>,
        name: &Path,
        below: &Path,
        left: &mut usize,
    ) {
        let kind = kind_at(at, &name.join(".git"));
        let tree = below.join(name);
        if kind.is_some() && !tree.as_os_str().is_empty() {
            // A link, which no mount protects, must not stop all commands of a workspace with many repositories.
            let folder = root.join(&tree);
            let is_link = |name: &str| {
                let mut parts = Path::new(name).ancestors();
                parts.any(|part| folder.join(part).is_symlink())
            };
            let names = PROTECTED.iter().filter(|name| !is_link(name));
            self.add_names(root, &tree, &names.copied().collect::<Vec<_>>());
            self.nested.push(tree);
        }
        match kind {
            Some(FileType::Directory) => {
                self.add_git_folder(root, &below.join(name).join(".git"), left);
            }
            // A link, or the file of a worktree or submodule, is protected itself.
            Some(_) => self.paths.push(below.join(name).join(".git")),
            None if is_bare_repository(at, name) => {
                self.add_git_folder(root, &below.join(name), left);
            }
            None => {}
        }
    }

    fn add_git_folder(&mut self, root: &Path, git: &Path, left: &mut usize) {
        self.add_names(root, git, &PROTECTED_OF_GIT);
        self.git_folders.push(git.to_owned());
        for worktree in self.folders(root, &git.join("worktrees"), left) {
            self.add_names(root, &worktree, &PROTECTED_OF_WORKTREE);
            self.linked.push(worktree);
        }
        self.add_modules(root, &git.join("modules"), MODULE_DEPTH, left);
    }

    /// Adds the git directories of submodules. The name of a submodule is its path by default, so they may be deep.
    fn add_modules(&mut self, root: &Path, below: &Path, depth: usize, left: &mut usize) {
        for folder in self.folders(root, below, left) {
            let is_file = |name: &str| root.join(&folder).join(name).is_file();
            match (is_file("HEAD") || is_file("config"), depth) {
                (true, _) => self.add_git_folder(root, &folder, left),
                (false, 0) => self.is_incomplete = true,
                (false, _) => self.add_modules(root, &folder, depth - 1, left),
            }
        }
    }

    /// Folders in a folder, if there is one.
    fn folders(&mut self, root: &Path, below: &Path, left: &mut usize) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(root.join(below)) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            if *left == 0 {
                self.is_incomplete = true;
                break;
            }
            *left -= 1;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(below.join(entry.file_name()));
            }
        }
        found
    }

    /// Makes what git would obey and does not exist yet, so that it can be protected: an empty folder of hooks, and an
    /// empty configuration of a worktree where git reads one. Nobody sees them: they are in the git directory.
    pub fn make_missing(&mut self, plan: &Plan) {
        for git in self.hidden_git_folders() {
            let folder = plan.workspace.path.join(&git);
            make_missing(&folder, &folder);
            for path in MADE_IN_GIT.map(|name| git.join(name)) {
                let is_wanted = !self.paths.contains(&path) && !plan.permits(&path);
                if is_wanted && fs::symlink_metadata(plan.workspace.path.join(&path)).is_ok() {
                    self.paths.push(path);
                }
            }
        }
        if let Some(worktree) = &self.outside.worktree {
            make_missing(&worktree.common, &worktree.common);
            make_missing(&worktree.own, &worktree.common);
        }
    }

    /// Git directories in the workspace in which a new file is not noticed by people.
    fn hidden_git_folders(&self) -> Vec<PathBuf> {
        let is_hidden = |git: &&PathBuf| git.components().any(|part| part.as_os_str() == ".git");
        self.git_folders.iter().filter(is_hidden).cloned().collect()
    }
}

/// True if git takes this folder for a repository without files: it obeys its configuration.
fn is_bare_repository(at: BorrowedFd<'_>, folder: &Path) -> bool {
    let is = |name: &str| kind_at(at, &folder.join(name)).is_some();
    is("HEAD") && is("objects") && is("refs")
}

/// Kind of a file, without following a link.
fn kind_at(at: BorrowedFd<'_>, path: &Path) -> Option<FileType> {
    let found = rustix::fs::statat(at, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(found.st_mode))
}

fn open_folder(at: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// Names that are made in a git directory if they do not exist.
const MADE_IN_GIT: [&str; 2] = ["hooks", "config.worktree"];

/// Makes names in a git directory that do not exist yet. `common`: git directory with the configuration. What this user
/// cannot make, a command cannot make either.
fn make_missing(git: &Path, common: &Path) {
    let [hooks, config] = MADE_IN_GIT.map(|name| git.join(name));
    // The umask of the keeper is strict, and others may use the repository too.
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    if git == common && fs::create_dir(&hooks).is_ok() {
        let _ = open(&hooks, 0o755);
    }
    let reads_worktree_config = || {
        let config = fs::read(common.join("config")).unwrap_or_default();
        let mut words = config.split(|byte| !byte.is_ascii_alphanumeric());
        words.any(|word| word.eq_ignore_ascii_case(b"worktreeconfig"))
    };
    if reads_worktree_config() && fs::File::create_new(&config).is_ok() {
        let _ = open(&config, 0o644);
    }
}

impl Worktree {
    /// True for a linked worktree: it has only a part of the git directory for itself.
    pub fn is_linked(&self) -> bool {
        self.own != self.common
    }

    /// Protected paths of the git directory, relative to it.
    pub fn protected(&self) -> Protected {
        let mut found = Protected::default();
        found.add_git_folder(&self.common, Path::new(""), &mut ENTRIES.clone());
        if self.is_linked() {
            found.add_names(&self.common, Path::new(""), &PROTECTED_OF_MAIN_TREE);
        }
        found
    }

    /// True for the part of the git directory that belongs to other worktrees.
    pub fn is_of_others(&self, path: &Path) -> bool {
        let all = self.common.join("worktrees");
        self.is_linked() && path.starts_with(all) && !path.starts_with(&self.own)
    }
}

/// Git directory outside the workspace that belongs to it. The workspace could name any folder, so the git directory must
/// name the workspace in turn.
fn worktree(workspace: &Path) -> Option<Worktree> {
    let own = named_git_folder(workspace)?;
    if own.starts_with(workspace) || workspace.starts_with(&own) {
        return None;
    }
    let Ok(back) = fs::read_to_string(own.join("gitdir")) else {
        let back = named_paths(&own.join("config")).worktree?;
        let is_back = own.join(back).canonicalize().ok()? == workspace;
        let common = own.clone();
        return (is_back && is_git_folder(&own)).then_some(Worktree { common, own });
    };
    if own.join(back.trim()).canonicalize().ok()? != workspace.join(".git") {
        return None;
    }
    let common = own.parent()?.parent()?.to_owned();
    (common_folder(&own)? == common && is_git_folder(&common)).then_some(Worktree { common, own })
}

/// Git directories outside the workspace that git finds from there, and that do not name it: that of a repository above it,
/// or one that the file `.git` leads to.
fn foreign(workspace: &Path) -> Vec<PathBuf> {
    let found = workspace.ancestors().find_map(|tree| {
        let own = match fs::symlink_metadata(tree.join(".git")).ok()?.is_dir() {
            true => tree.join(".git"),
            false => named_git_folder(tree)?,
        };
        let common = common_folder(&own).unwrap_or_else(|| own.clone());
        is_git_folder(&common).then(|| vec![common, own])
    });
    let mut found = found.unwrap_or_default();
    found.dedup_by(|own, common| own.starts_with(common));
    let touches = |git: &PathBuf| git.starts_with(workspace) || workspace.starts_with(git);
    found.retain(|git| !touches(git));
    found
}

/// Git directory that the file `.git` of a working tree names.
fn named_git_folder(tree: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(tree.join(".git")).ok()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    tree.join(named).canonicalize().ok()
}

/// Git directory that the git directory of a linked worktree shares with others.
fn common_folder(own: &Path) -> Option<PathBuf> {
    let said = fs::read_to_string(own.join("commondir")).ok()?;
    own.join(said.trim()).canonicalize().ok()
}

fn is_git_folder(folder: &Path) -> bool {
    folder.join("objects").is_dir() && folder.join("refs").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::plan::Folder;

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
            "sub/.vscode/tasks.json",
            "plain/.vscode/tasks.json",
            "a/b/.git/config",
            "a/b/.mcp.json",
            "a/b/c/.git/config",
        ] {
            touch(&root.join(file));
        }
        std::os::unix::fs::symlink("b", root.join("a/b/.claude")).unwrap();
        let mut found = Protected::find(root).paths;
        found.sort();
        let expected = [
            ".git/config",
            ".git/hooks",
            ".git/modules/sub/config",
            ".github/workflows",
            "a/b/.git/config",
            "a/b/.mcp.json",
            "sub/.git",
            "sub/.vscode",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn workspace_that_cannot_be_written_is_not_searched() {
        let folder = tempfile::tempdir().unwrap();
        touch(&folder.path().join(".git/config"));
        let workspace = Folder::resolve(folder.path()).unwrap();
        let mut plan = Plan::read_only(workspace);
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
        fs::write(own.join("gitdir"), "../../../../tree/.git\n").unwrap();
        assert!(worktree(&tree).is_some(), "relative to the git directory");
        fs::write(own.join("gitdir"), "/elsewhere/.git").unwrap();
        assert_eq!(worktree(&tree), None);
        assert_eq!(foreign(&tree), [base.join("main/.git")]);
    }

    #[test]
    fn git_directory_elsewhere_counts_only_if_its_configuration_names_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (tree, git) = (base.join("tree"), base.join("super/.git/modules/tree"));
        for made in ["objects", "refs"] {
            fs::create_dir_all(git.join(made)).unwrap();
        }
        fs::create_dir_all(tree.join("below")).unwrap();
        fs::write(tree.join(".git"), "gitdir: ../super/.git/modules/tree\n").unwrap();
        for config in ["", "[core]\n\tworktree = ../../../../other\n"] {
            fs::write(git.join("config"), config).unwrap();
            assert_eq!(worktree(&tree), None, "{config}");
        }
        assert_eq!(foreign(&tree), std::slice::from_ref(&git));
        fs::write(
            git.join("config"),
            "[core]\n\tworktree = ../../../../tree\n",
        )
        .unwrap();
        let (common, own) = (git.clone(), git.clone());
        assert_eq!(worktree(&tree), Some(Worktree { common, own }));
        assert_eq!(worktree(&tree.join("below")), None);
        assert_eq!(foreign(&tree.join("below")), [git]);
    }

    #[test]
    fn git_directory_above_the_workspace_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        for made in ["top/.git/objects", "top/.git/refs", "top/a/b/.git"] {
            fs::create_dir_all(base.join(made)).unwrap();
        }
        assert_eq!(foreign(&base.join("top/a")), [base.join("top/.git")]);
        assert_eq!(foreign(&base.join("top/a/b")), [base.join("top/.git")]);
        assert_eq!(foreign(&base.join("top")), [] as [PathBuf; 0]);
    }
}
