//! Paths that a command changes, as far as a rule is limited to some.

use alloc::vec::Vec;

use super::command::{Folder, Piece, SimpleCommand, Word};
use super::decide::Place;
use super::path::{is_above, is_same, is_within, normalized, with_parents};

/// Paths that a rule about deleting is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// The root directory, the home directory or the workspace itself.
    Roots,
    /// A directory above the workspace, everything in the workspace, or a path that could be the root directory.
    AboveWorkspace,
    /// The root directory, a home directory or a directory of the system.
    System,
    /// A part of the system or of the home directory that is not easily restored.
    Parts,
    /// A directory above the workspace.
    Above,
    /// The root directory, the home directory, the workspace itself or a directory above it, except as the last path: that is
    /// where the others go.
    Moved,
    /// Everything that `git clean` finds: it is given no paths, or one that is not below the workspace.
    Untracked,
}

/// Directories of the system, in the root directory.
const SYSTEM: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/sbin",
    "/srv", "/sys", "/usr", "/var",
];

/// Directories of the system in which each entry counts as a part of the system.
const PARENTS: [&str; 5] = ["/boot", "/etc", "/lib", "/usr", "/var/lib"];

/// Other parts of the system.
const PARTS: [&str; 5] = [
    "/usr/local/bin",
    "/usr/local/lib",
    "/var/lib",
    "/var/log",
    "/var/www",
];

/// Parts of a home directory with keys, settings or documents.
const HOME_PARTS: &[&str] = &[
    ".aws",
    ".config",
    ".gnupg",
    ".kube",
    ".local",
    ".local/share",
    ".ssh",
    "Desktop",
    "Documents",
    "Downloads",
    "Music",
    "Pictures",
    "Public",
    "Videos",
];

impl Targets {
    /// Returns whether the command deletes such a path.
    pub(super) fn hit(self, command: &SimpleCommand, place: &Place<'_>) -> bool {
        let is_option = |word: &Word| word.shown().starts_with('-');
        let arguments = command.arguments();
        if self == Targets::Untracked {
            let is_name = |word: &Word| word.text().as_deref() == Some("clean");
            let begin = arguments.iter().position(is_name).map_or(0, |at| at + 1);
            // The word behind `-e` or `--exclude` is no path.
            let is_value = |word: &Word| is_option(word) && word.shown().ends_with('e');
            let paths = arguments.windows(2).skip(begin.saturating_sub(1));
            let paths = paths.filter(|pair| !is_option(&pair[1]) && !is_value(&pair[0]));
            let mut paths = paths.map(|pair| &pair[1]).peekable();
            let is_all = |word: &Word| {
                let is_unknown = word.pieces.contains(&Piece::Unknown);
                is_unknown
                    || word.shown() == ":/"
                    || Targets::AboveWorkspace.is_hit_by(word, command, place)
            };
            return !matches!(command.folder, Folder::Known(_))
                || paths.peek().is_none()
                || paths.any(is_all);
        }
        let mut paths: Vec<&Word> = arguments.iter().filter(|word| !is_option(word)).collect();
        if self == Targets::Moved {
            paths.pop();
        }
        let mut paths = paths.into_iter();
        paths.any(|word| self.is_hit_by(word, command, place))
    }

    fn is_hit_by(self, word: &Word, command: &SimpleCommand, place: &Place<'_>) -> bool {
        let text = word.text_without_unknown(place.home);
        let vague = word.pieces.contains(&Piece::Unknown);
        let absolute = text.starts_with('/');
        if text.is_empty() || (vague && !word.has_text()) {
            return false;
        }
        match &command.folder {
            // The workspace is the repository, or a part of it.
            _ if word.pieces.contains(&Piece::Repository) => {
                self.is_hit_in(place.workspace, &text, vague, place)
            }
            Folder::Known(folder) => self.is_hit_in(folder, &text, vague, place),
            _ if absolute => self.is_hit_in("/", &text, vague, place),
            // It may be the workspace or a directory above it.
            Folder::Unknown => {
                let mut folders = with_parents(place.workspace);
                self == Targets::AboveWorkspace
                    && !vague
                    && folders.any(|folder| self.is_hit_in(folder, &text, vague, place))
            }
            Folder::Elsewhere => false,
        }
    }

    /// Returns whether a path is such a one in this directory. It is `vague` if a part of it is not known.
    fn is_hit_in(self, folder: &str, text: &str, vague: bool, place: &Place<'_>) -> bool {
        // Everything in a directory is as much as the directory; of a repository, so is everything hidden.
        let is_star = |part: &str| matches!(part, "*" | "." | "");
        let all = match text.trim_end_matches('/') {
            "" => None,
            "*" | ".*" => Some("."),
            // Everything in all directories of a directory is as much too.
            text if !text.starts_with('/')
                && text.ends_with('*')
                && text.split('/').all(is_star) =>
            {
                Some(".")
            }
            "/*" | "/.*" => Some("/"),
            text => text.strip_suffix("/*").or_else(|| text.strip_suffix("/.*")),
        };
        let everything = all.is_some();
        let path = normalized(all.unwrap_or(text), folder);
        // A pattern is as much as each path that it stands for.
        let is = |other: &str| is_same(&path, other);
        let is_entry = |above: &str| {
            let parent = path.rsplit_once('/').map(|(parent, _)| parent);
            parent.is_some_and(|parent| is_same(parent, above))
        };
        let is_root = path == "/" || path == place.home || path == place.workspace;
        match self {
            Targets::Roots => {
                let local = everything && path == place.workspace && path != "/";
                is_root && !vague && !local
            }
            Targets::AboveWorkspace => {
                let repository = [place.workspace, "/.git"].concat();
                let is_exact = is_within(place.workspace, &path) || is_root || path == repository;
                is_exact
                    || (!vague && is_above(&path, place.workspace))
                    || (!vague && (is(place.home) || is(&repository)))
            }
            Targets::Above => {
                let is_above_workspace =
                    is_within(place.workspace, &path) || is_above(&path, place.workspace);
                is_above_workspace && !vague && !is(place.workspace)
            }
            Targets::Moved => {
                (is_root || is_within(place.workspace, &path)) && !vague && !everything
            }
            Targets::Parts => {
                let in_home = |part: &&str| is(&[place.home, "/", part].concat());
                let is_part = PARTS.iter().any(|part| is(part))
                    || PARENTS.iter().any(|above| is_entry(above))
                    || HOME_PARTS.iter().any(in_home);
                is_part && !vague && !is_within(&path, place.workspace)
            }
            // `hit` looks at all paths together.
            Targets::Untracked => false,
            Targets::System => {
                let is_system = SYSTEM.iter().any(|folder| is(folder))
                    || path == "/"
                    || is(place.home)
                    || (is_entry("/home") && path != place.workspace);
                is_system && !vague
            }
        }
    }
}
