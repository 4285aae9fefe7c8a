//! Rules of this repository that no compiler checks. Each failure says what to do.

mod documents;
mod faults;
mod guide;

use std::path::{Path, PathBuf};

/// Maximum number of lines of a file.
const LINES: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).expect("a text file");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources under {folder}");
    found
}

/// All lines of the sources under `folders` for which `is_wrong` is true.
fn wrong(folders: &[&str], is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, text) in folders.iter().flat_map(|folder| sources(folder)) {
        for (number, line) in text.lines().enumerate() {
            if is_wrong(line) {
                let path = path.strip_prefix(root()).unwrap_or(&path);
                lines.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    lines
}

fn none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}\n{}", found.join("\n"));
}

/// Directories with the sources and tests of all crates.
const ALL: [&str; 11] = [
    "crates/api/src",
    "crates/core/src",
    "crates/core/tests",
    "crates/output/src",
    "crates/output/tests",
    "crates/session/src",
    "crates/gate/src",
    "crates/gate/tests",
    "crates/engine/src",
    "abide/src",
    "abide/tests",
];

#[test]
fn no_file_is_longer_than_the_limit() {
    let long = ALL
        .iter()
        .flat_map(|folder| sources(folder))
        .filter(|(_, text)| text.lines().count() > LINES)
        .map(|(path, text)| format!("{}: {} lines", path.display(), text.lines().count()))
        .collect();
    none(long, "Split these by noun:");
}

#[test]
fn every_file_begins_with_a_comment() {
    let folders = [
        "crates/api/src",
        "crates/core/src",
        "crates/output/src",
        "crates/session/src",
        "crates/gate/src",
        "crates/engine/src",
        "abide/src",
    ];
    let silent = folders
        .iter()
        .flat_map(|folder| sources(folder))
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path.display().to_string())
        .collect();
    none(silent, "These do not say what they are for:");
}

#[test]
fn doc_comments_begin_with_a_noun_or_verb() {
    let refused = ["What", "How", "Whether", "Where", "It", "Its"];
    let begins = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("//!").or(line.strip_prefix("///"))?;
        text.split_whitespace().next().map(str::to_owned)
    };
    let mut found = Vec::new();
    let folders = [
        "crates/api/src",
        "crates/core/src",
        "crates/output/src",
        "crates/session/src",
        "crates/gate/src",
        "crates/engine/src",
        "abide/src",
    ];
    for (path, text) in folders.iter().flat_map(|folder| sources(folder)) {
        let mut before = None;
        for line in text.lines() {
            let first = begins(line);
            if before.is_none() && refused.iter().any(|word| first.as_deref() == Some(word)) {
                found.push(format!("{}: {}", path.display(), line.trim()));
            }
            before = first;
        }
    }
    none(found, "Begin with the noun or verb that says what it is:");
}

#[test]
fn every_lint_exception_has_a_reason() {
    let mark = ["#[", "allow("].concat();
    let inner = ["#![", "allow("].concat();
    let found = wrong(&ALL, |line| line.contains(&mark) || line.contains(&inner));
    none(found, "Use #[expect(.., reason = \"..\")]:");
}

#[test]
fn no_todo_is_left() {
    let marks = [
        ["to", "do!("].concat(),
        ["unimpl", "emented!("].concat(),
        ["FIX", "ME"].concat(),
    ];
    let found = wrong(&ALL, |line| marks.iter().any(|mark| line.contains(mark)));
    none(found, "Finish these:");
}

#[test]
fn no_channel_is_unbounded() {
    let mark = ["unbounded", "_channel"].concat();
    none(
        wrong(
            &["crates/gate/src", "crates/engine/src", "abide/src"],
            |line| line.contains(&mark),
        ),
        "Every queue has a named limit:",
    );
}

#[test]
fn only_keepers_start_commands_of_users() {
    // The daemon, the fork server, the probe of sandboxes, the `ssh` that carries a link, the browser of a person, a program
    // that is asked for its version, and `abide run`.
    let known = [
        "abide/src/daemon_process.rs",
        "keepers/fork_server.rs",
        "engine/src/sandbox_probe.rs",
        "machine_link/ssh.rs",
        "cli/open.rs",
        "cli/doctor/system.rs",
        "cli/doctor/hostile.rs",
    ];
    let mark = ["Command::", "new("].concat();
    let mut found = wrong(
        &["crates/gate/src", "crates/engine/src", "abide/src"],
        |line| line.contains(&mark),
    );
    found.retain(|line| !known.iter().any(|file| line.contains(file)));
    none(found, "Run these as sessions, as wakers and conditions do:");
}

#[test]
fn core_does_no_io() {
    let core = text_of("crates/core/src/lib.rs");
    assert!(core.contains("#![no_std]") && core.contains("#![forbid(unsafe_code)]"));
    let manifest = text_of("crates/core/Cargo.toml");
    assert!(
        !manifest.contains("[dependencies]"),
        "the core depends on nothing"
    );
}

#[test]
fn output_does_no_io_and_depends_on_no_workspace_crate() {
    assert!(text_of("crates/output/src/lib.rs").contains("#![forbid(unsafe_code)]"));
    let manifest = text_of("crates/output/Cargo.toml");
    assert!(
        !manifest.contains("path = "),
        "abide-output depends on no crate of this workspace"
    );
    let modules = ["fs", "io", "net", "os", "process", "thread", "time", "env"];
    let marks = modules.map(|module| format!("std::{module}"));
    let found = wrong(&["crates/output/src"], |line| {
        marks.iter().any(|mark| line.contains(mark))
    });
    none(
        found,
        "abide-output works on bytes; its callers do the I/O:",
    );
}

#[test]
fn api_and_session_depend_on_the_core_only() {
    for name in ["api", "session"] {
        let manifest = text_of(&format!("crates/{name}/Cargo.toml"));
        let ours: Vec<&str> = manifest
            .lines()
            .filter(|line| line.contains("path = "))
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(
            ours,
            ["abide-core"],
            "abide-{name} depends on abide-core and on no other crate of this workspace"
        );
    }
}

#[test]
fn api_gate_and_program_forbid_unsafe_code() {
    for file in [
        "crates/api/src/lib.rs",
        "crates/gate/src/lib.rs",
        "abide/src/lib.rs",
        "abide/src/main.rs",
    ] {
        assert!(text_of(file).contains("#![forbid(unsafe_code)]"), "{file}");
    }
}

#[test]
fn session_has_no_async_runtime() {
    let manifest = text_of("crates/session/Cargo.toml");
    assert!(
        !manifest.contains("tokio"),
        "a keeper is a process without an async runtime"
    );
}

#[test]
fn engine_knows_no_protocol() {
    let manifest = text_of("crates/engine/Cargo.toml");
    let protocols = ["rmcp", "axum", "clap"];
    let known: Vec<&str> = protocols
        .into_iter()
        .filter(|name| manifest.lines().any(|line| line.starts_with(name)))
        .collect();
    assert!(
        known.is_empty(),
        "MCP, HTTP and the command line are in the program: {known:?}"
    );
}

#[test]
fn the_core_does_not_know_the_interfaces() {
    let marks = ["json", "mcp", "http"];
    let mut found = wrong(&["crates/core/src"], |line| {
        let code = line
            .split("//")
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        marks.iter().any(|mark| code.contains(mark))
    });
    // Words of the commands that the built-in rules are about.
    found.retain(|line| !line.starts_with("crates/core/src/policy/builtin"));
    none(found, "A word of an interface in the core:");
}

/// Words that confused users, or that are less precise than the usual ones.
const REFUSED: [&str; 8] = [
    "anew",
    "mend",
    "lately",
    "whoever",
    "somebody",
    "put to you",
    "tells nobody",
    "makes no sense",
];

#[test]
fn strings_have_no_refused_words() {
    let is_refused = |line: &str| {
        let code = line.trim_start();
        let strings = code.split('"').skip(1).step_by(2);
        !code.starts_with("//")
            && strings
                .flat_map(|text| REFUSED.iter().map(move |word| (text, word)))
                .any(|(text, word)| contains_word(&text.to_lowercase(), word))
    };
    none(
        wrong(
            &[
                "crates/api/src",
                "crates/core/src",
                "crates/output/src",
                "crates/session/src",
                "crates/gate/src",
                "crates/engine/src",
                "abide/src",
            ],
            is_refused,
        ),
        "Say these in plain English (CONTRIBUTING.md):",
    );
}

/// Text of a file of the repository.
fn text_of(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("a file")
}

fn contains_word(text: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
    text.match_indices(word).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back())
            && !is_letter(text[at + word.len()..].chars().next())
    })
}
