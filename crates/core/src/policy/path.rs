//! Paths in rules and commands, compared by their text. Symbolic links are resolved by the daemon when it reads a rule.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Absolute path without `.`, `..`, repeated and trailing slashes. A relative path is below `folder`.
pub fn normalized(path: &str, folder: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let base = if path.starts_with('/') { "" } else { folder };
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return "/".to_owned();
    }
    let mut text = String::new();
    for part in parts {
        text.push('/');
        text.push_str(part);
    }
    text
}

/// Path with `~` replaced by the home directory.
pub(super) fn expanded(path: &str, home: &str) -> String {
    match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let mut text = home.to_owned();
            text.push_str(rest);
            text
        }
        _ => path.to_owned(),
    }
}

/// Returns whether `path` is `above` or in it. Both are normalized.
pub(super) fn is_within(path: &str, above: &str) -> bool {
    above == "/"
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether `folder` or a directory above it has a path of this pattern, in which `*` is any part of a name.
pub(super) fn matches_folder(pattern: &str, folder: &str) -> bool {
    let mut names = folder.split('/').filter(|name| !name.is_empty());
    pattern
        .split('/')
        .filter(|part| !part.is_empty())
        .all(|part| {
            names
                .next()
                .is_some_and(|name| super::pattern::matches(part, name))
        })
}

/// Returns whether a file name pattern, in which `*` is any part of a name, stands for `path` or a directory above it. Both
/// are normalized.
pub(super) fn is_above(pattern: &str, path: &str) -> bool {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    let mut parts = pattern.split('/').filter(|part| !part.is_empty());
    parts.all(|part| {
        names.next().is_some_and(|name| {
            // The shell finds hidden files only with a dot in the pattern.
            let is_found = part.starts_with('.') || !name.starts_with('.');
            is_found && super::pattern::matches(part, name)
        })
    })
}

/// Returns whether a file name pattern, in which `*` is any part of a name, stands for `path`. Both are normalized.
pub(super) fn is_same(pattern: &str, path: &str) -> bool {
    let depth = |path: &str| path.split('/').filter(|name| !name.is_empty()).count();
    depth(pattern) == depth(path) && is_above(pattern, path)
}

/// A directory and those above it, without the root directory.
pub(super) fn with_parents(folder: &str) -> impl Iterator<Item = &str> {
    let folders = core::iter::successors(Some(folder), |path| Some(path.rsplit_once('/')?.0));
    folders.filter(|path| !path.is_empty())
}
