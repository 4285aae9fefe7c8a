//! Paths that the configuration of git names and that git reads or runs: files that it includes, folders of hooks, programs.

use std::fs;
use std::path::{Path, PathBuf};

use super::paths::without_dots;

/// Longest configuration that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Settings whose value is a path, or a command line with paths in it.
const SETTINGS: &[&str] = &[
    "alternaterefscommand",
    "askpass",
    "clean",
    "cmd",
    "command",
    "defaultkeycommand",
    "difffilter",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "gitproxy",
    "helper",
    "packobjectshook",
    "pager",
    "process",
    "program",
    "receivepack",
    "smudge",
    "sshcommand",
    "textconv",
    "uploadpack",
];

/// Paths that a file of configuration names. Relative ones are relative to the folder of the file if they are included, else
/// to the folder of the working tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedPaths {
    /// Files that it includes.
    pub included: Vec<String>,
    /// Folders of hooks and of templates, files of attributes, and words of commands that may be paths.
    pub obeyed: Vec<String>,
    /// Folder of the working tree, relative to the git directory.
    pub worktree: Option<String>,
}

/// Paths that a file of configuration names. None if it cannot be read.
pub fn named_paths(config: &Path) -> NamedPaths {
    let is_short = fs::metadata(config).is_ok_and(|found| found.len() <= LONGEST);
    let text = is_short.then(|| fs::read(config).ok()).flatten();
    parse(&String::from_utf8_lossy(&text.unwrap_or_default()))
}

fn parse(text: &str) -> NamedPaths {
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    let mut named = NamedPaths::default();
    let mut section = String::new();
    for line in text.lines() {
        let mut line = line.trim();
        if let Some((header, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let name = header.split([' ', '\t', '"', '.']).next();
            section = name.unwrap_or_default().to_ascii_lowercase();
            line = rest.trim();
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        // An alias, a helper, a way to update a submodule.
        let is_command = value.trim_start_matches('"').starts_with('!');
        match (section.as_str(), key.as_str()) {
            ("include" | "includeif", "path") => named.included.push(unquoted(value)),
            ("core", "worktree") => named.worktree = Some(unquoted(value)),
            ("core", "hookspath" | "attributesfile")
            | ("init", "templatedir")
            | ("difftool" | "mergetool" | "browser" | "man", "path") => {
                named.obeyed.push(unquoted(value));
            }
            (_, key) if is_command || section == "pager" || SETTINGS.contains(&key) => {
                named.obeyed.extend(words(value));
            }
            _ => {}
        }
    }
    named
}

/// Value without its quotes and without a comment behind it.
fn unquoted(value: &str) -> String {
    match value
        .strip_prefix('"')
        .and_then(|rest| rest.split_once('"'))
    {
        Some((inside, _)) => inside.to_owned(),
        None => value
            .split([';', '#'])
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned(),
    }
}

/// Words of a command line that may be paths.
fn words(value: &str) -> impl Iterator<Item = String> {
    let is_end = |c: char| c.is_whitespace() || "\"'!;&|()".contains(c);
    let words = value.split(is_end).filter(|word| word.contains(['/', '.']));
    words.map(str::to_owned)
}

/// Path that a configuration names, relative to the workspace, if it is or would be in there. `base`: folder to which a
/// relative path is relative.
pub fn in_workspace(named: &str, base: &Path, home: &Path, workspace: &Path) -> Option<PathBuf> {
    let path = match named.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => base.join(named),
    };
    // What does not exist is made in the nearest folder that does.
    let there = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    let real = without_dots(&there?);
    let inside = real.strip_prefix(workspace).ok()?;
    (!inside.as_os_str().is_empty()).then(|| inside.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_includes_hooks_and_programs_are_found() {
        let named = parse(
            "[user]\n\tname = src\n[include]\n\tpath = ../.gitconfig ; shared\n[includeIf \"gitdir:~/x/\"] path = \"a b\"\n\
             [core]\n\tbare = false\n\tworktree = ../../../sub\n\thooksPath = .githooks\n\tfsmonitor = ./watch.sh --fast\n[filter \"lfs\"]\n\
             \tclean = \"scripts/clean %f\"\n[alias]\n\tx = !sh -c 'tools/x.sh'\n\ty = commit -a\n[remote \"o\"]\n\turl = ./other\n\
             [pager]\n\tdiff = ./less\n[CORE]HOOKSPATH=b\\\nc\n\tattributesFile = attrs\n[diff]\n\texternal = ./differ -x\n\
             [difftool \"x\"]\n\tcmd = tools/show $LOCAL\n\tpath = tool\n[submodule \"s\"]\n\tupdate = !./update\n\tpath = s\n\
             [uploadpack]\n\tpackObjectsHook = ./pack\n[remote \"o\"]\n\tuploadpack = bin/up\n",
        );
        assert_eq!(named.included, ["../.gitconfig", "a b"]);
        assert_eq!(named.worktree.as_deref(), Some("../../../sub"));
        let obeyed = [
            ".githooks",
            "./watch.sh",
            "scripts/clean",
            "tools/x.sh",
            "./less",
            "bc",
            "attrs",
            "./differ",
            "tools/show",
            "tool",
            "./update",
            "./pack",
            "bin/up",
        ];
        assert_eq!(named.obeyed, obeyed);
    }

    #[test]
    fn paths_that_do_not_exist_are_found_behind_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("there")).unwrap();
        std::os::unix::fs::symlink("there", root.join("link")).unwrap();
        for (named, expected) in [
            ("there", Some("there")),
            ("link/a/b", Some("there/a/b")),
            ("there/../.githooks/", Some(".githooks")),
            ("a/../.githooks", Some(".githooks")),
            ("~/x", Some("there/x")),
            (".", None),
            ("..", None),
            ("../x", None),
            ("/etc/x", None),
        ] {
            let found = in_workspace(named, &root, &root.join("there"), &root);
            assert_eq!(found, expected.map(PathBuf::from), "{named}");
        }
    }
}
