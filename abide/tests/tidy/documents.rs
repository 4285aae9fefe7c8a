//! Names in ARCHITECTURE.md and CONTRIBUTING.md: each file and each name in code style exists.

use std::collections::HashSet;
use std::process::Command;

use super::{none, root};

/// Prefixes that the documents shorten, and what they stand for.
const SHORTENED: [(&str, &str); 5] = [
    ("engine/", "crates/engine/src/"),
    ("tools/", "abide/src/tools/"),
    ("mcp/", "abide/src/mcp/"),
    ("http/", "abide/src/http/"),
    ("cli/", "abide/src/cli/"),
];

/// Names of other projects and of the kernel.
const FOREIGN: [&str; 3] = ["/proc", "vite", "eslint"];

/// Paths of all files of the repository, and all words of its sources.
fn files_and_words() -> (Vec<String>, HashSet<String>) {
    #[expect(
        clippy::disallowed_methods,
        reason = "only git knows which files belong to the repository"
    )]
    let mut git = Command::new("git");
    let listed = git.arg("ls-files").current_dir(root()).output();
    let listed = String::from_utf8(listed.expect("git runs").stdout).expect("paths are UTF-8");
    let files: Vec<String> = listed.lines().map(str::to_owned).collect();
    let endings = [".rs", ".ts", ".tsx", ".mjs", ".toml", "Makefile"];
    let is_source = |path: &&String| endings.iter().any(|ending| path.ends_with(ending));
    let mut words = HashSet::new();
    for path in files.iter().filter(is_source) {
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        let is_separator = |letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter);
        words.extend(text.split(is_separator).map(str::to_owned));
    }
    (files, words)
}

#[test]
fn names_in_the_documents_for_developers_exist() {
    let (files, words) = files_and_words();
    let is_path = |name: &str| {
        let full = SHORTENED.iter().find_map(|(short, full)| {
            let rest = name.strip_prefix(short)?;
            Some(format!("{full}{rest}"))
        });
        let name = full.as_deref().unwrap_or(name).trim_end_matches('/');
        let inner = format!("/{name}/");
        files
            .iter()
            .any(|path| format!("/{path}/").contains(&inner))
    };
    let is_word = |name: &str| {
        name.split("::")
            .all(|part| words.contains(part) || is_path(part))
    };
    let mut missing = Vec::new();
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(document)).expect("a document");
        // Every second part is between backticks. Only plain names and paths are checked.
        for name in text.split('`').skip(1).step_by(2) {
            let is_plain =
                |letter: char| letter.is_ascii_alphanumeric() || "_-./:".contains(letter);
            if name.chars().all(is_plain)
                && !FOREIGN.contains(&name)
                && !is_word(name)
                && !is_path(name)
            {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    none(missing, "These do not exist; correct the document:");
}
