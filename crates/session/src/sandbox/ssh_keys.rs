//! Keys that the settings of SSH name, wherever they are. They are hidden like the keys in `~/.ssh`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::paths;

/// Levels of included files, as many as `ssh` accepts.
const INCLUDE_DEPTH: usize = 16;
/// Most paths that are named; what follows is not hidden.
const MAX_PATHS: usize = 1_024;

/// Files that `~/.ssh/config` and the files that it includes name: keys, certificates and the included files themselves.
pub fn named_by_settings(home: &Path) -> Vec<PathBuf> {
    let mut named = Vec::new();
    let config = home.join(paths::SSH).join("config");
    read_settings(&config, home, INCLUDE_DEPTH, &mut named);
    named
}

fn read_settings(file: &Path, home: &Path, depth: usize, named: &mut Vec<PathBuf>) {
    let Ok(text) = fs::read(file) else {
        return;
    };
    for line in String::from_utf8_lossy(&text).lines() {
        let Some((key, value)) = line.trim().split_once([' ', '\t', '=']) else {
            continue;
        };
        let is_include = key.eq_ignore_ascii_case("include");
        let names_file = ["identityfile", "certificatefile"]
            .iter()
            .any(|known| key.eq_ignore_ascii_case(known));
        if !is_include && !names_file {
            continue;
        }
        let value = value.trim_start_matches([' ', '\t', '=']).trim_end();
        let values = match is_include && !value.contains('"') {
            true => value.split_ascii_whitespace().collect(),
            false => vec![value.trim_matches('"')],
        };
        for value in values {
            let found = expand(&pattern(value, home));
            for path in found {
                // A setting that names a folder above the home folder would hide everything.
                if home.starts_with(&path) || named.contains(&path) || named.len() >= MAX_PATHS {
                    continue;
                }
                named.push(path.clone());
                if is_include && depth > 0 {
                    read_settings(&path, home, depth - 1, named);
                }
            }
        }
    }
}

/// Path of a setting, with `*` in place of each token that depends on the connection.
fn pattern(value: &str, home: &Path) -> PathBuf {
    let home_text = home.to_string_lossy();
    let mut path = String::new();
    let mut rest = value;
    if let Some(below) = rest.strip_prefix("~/") {
        path.push_str(&home_text);
        path.push('/');
        rest = below;
    }
    while let Some(at) = rest.find(['%', '$']) {
        path.push_str(&rest[..at]);
        let token = &rest[at..];
        rest = if let Some(after) = token.strip_prefix("%%") {
            path.push('%');
            after
        } else if let Some(after) = token.strip_prefix("%d") {
            path.push_str(&home_text);
            after
        } else if let Some(after) = token.strip_prefix("${HOME}") {
            path.push_str(&home_text);
            after
        } else if let Some((_, after)) = token
            .strip_prefix("${")
            .and_then(|name| name.split_once('}'))
        {
            path.push('*');
            after
        } else if token.starts_with('%') {
            path.push('*');
            token
                .chars()
                .nth(1)
                .map_or("", |c| &token[1 + c.len_utf8()..])
        } else {
            path.push('$');
            &token[1..]
        };
    }
    path.push_str(rest);
    home.join(paths::SSH).join(path)
}

/// Paths that match; the path itself if it has no wildcard.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let wildcard = match part {
            Component::Normal(name) => Some(name.as_bytes()),
            _ => None,
        };
        match wildcard.filter(|name| name.contains(&b'*') || name.contains(&b'?')) {
            None => found.iter_mut().for_each(|path| path.push(part)),
            Some(wildcard) => {
                let folders = std::mem::take(&mut found);
                let entries = folders
                    .iter()
                    .filter_map(|folder| fs::read_dir(folder).ok());
                let entries = entries.flatten().flatten();
                let matching =
                    entries.filter(|entry| matches(wildcard, entry.file_name().as_bytes()));
                found.extend(matching.map(|entry| entry.path()).take(MAX_PATHS));
            }
        }
    }
    found
}

/// Returns whether a name matches a pattern of `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // Last `*` and the begin of the name behind what it stands for.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match &mut star {
                None => return false,
                Some((star, taken)) => {
                    *taken += 1;
                    (at, in_name) = (*star + 1, *taken);
                }
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_behind_tokens_variables_and_included_files_are_named() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        for folder in [".ssh/conf.d", "keys/build.example", "more"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        let config = "Host *\n  IdentityFile ~/keys/a\n  IdentityFile=%d/keys/b\n\tidentityfile \"${HOME}/keys/c d\"\n\
            CertificateFile work.pub\nIdentityFile ~/keys/%h/id\nInclude conf.d/*.conf ~/more/one\n\
            IdentityFile ~/\nIdentityFile /\nIdentityFile none\nUser me\n";
        for (name, text) in [
            (".ssh/config", config),
            (
                ".ssh/conf.d/x.conf",
                "IdentityFile /srv/x\nInclude x.conf\n",
            ),
            (".ssh/conf.d/skipped", "IdentityFile /srv/skipped\n"),
            ("more/one", "Include ~/more/one\nIdentityFile /srv/one\n"),
            ("keys/build.example/id", ""),
        ] {
            fs::write(home.join(name), text).unwrap();
        }
        let named = named_by_settings(home);
        for expected in [
            home.join("keys/a"),
            home.join("keys/b"),
            home.join("keys/c d"),
            home.join("keys/build.example/id"),
            home.join(".ssh/work.pub"),
            home.join(".ssh/conf.d/x.conf"),
            home.join("more/one"),
            "/srv/x".into(),
            "/srv/one".into(),
        ] {
            assert!(
                named.contains(&expected),
                "{expected:?} is not in {named:?}"
            );
        }
        assert!(
            !named.iter().any(|path| home.starts_with(path)),
            "{named:?}"
        );
        assert!(!named.contains(&"/srv/skipped".into()), "{named:?}");
    }

    #[test]
    fn names_match_wildcards() {
        for (pattern, name, expected) in [
            ("*.key", "a.key", true),
            ("*.key", "a.keys", false),
            ("a*b*c", "a-b-b-c", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
