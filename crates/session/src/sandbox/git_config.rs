//! Paths that the configuration of git names and that git reads or runs: files that it includes, folders of hooks, programs.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest configuration that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Settings whose value is a path, or a command line with paths in it.
const SETTINGS: &[&str] = &[
    "askpass",
    "attributesfile",
    "clean",
    "command",
    "driver",
    "editor",
    "fsmonitor",
    "gitproxy",
    "helper",
    "hookspath",
    "pager",
    "process",
    "program",
    "smudge",
    "sshcommand",
    "templatedir",
    "textconv",
];

/// Paths that a file of configuration names. Relative ones are relative to the folder of the file if they are included, else
/// to the folder of the working tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedPaths {
    /// Files that it includes.
    pub included: Vec<String>,
    /// Folders of hooks, and words of commands that may be paths.
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
        let is_alias = section == "alias" && value.trim_start_matches('"').starts_with('!');
        match (section.as_str(), key.as_str()) {
            ("include" | "includeif", "path") => named.included.push(unquoted(value)),
            ("core", "worktree") => named.worktree = Some(unquoted(value)),
            ("core", "hookspath") => named.obeyed.push(unquoted(value)),
            (_, key) if is_alias || section == "pager" || SETTINGS.contains(&key) => {
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

/// Path that a configuration names, relative to the workspace, if it is in there. `base`: folder to which a relative path is
/// relative.
pub fn in_workspace(named: &str, base: &Path, home: &Path, workspace: &Path) -> Option<PathBuf> {
    let path = match named.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => base.join(named),
    };
    let real = path.canonicalize().ok()?;
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
             [pager]\n\tdiff = ./less\n[CORE]HOOKSPATH=b\\\nc\n",
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
        ];
        assert_eq!(named.obeyed, obeyed);
    }
}
