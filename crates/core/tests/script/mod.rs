//! Files of transcripts, for all languages of transcripts.
//!
//! A scenario starts with `# title` and runs until the next one, in its own stage. A line without indent is an event; the
//! indented lines below it are its results. `UPDATE=1` rewrites the results; review the diff before you commit it.

use std::fs;
use std::path::PathBuf;

/// State of one scenario.
pub trait Stage {
    fn new() -> Self;

    /// Carries out an event and returns its results, each on a line.
    fn happens(&mut self, line: &str) -> Result<String, String>;
}

/// Runs all transcripts in a folder of the tests, and compares them with their results. At least `least` scenarios must be
/// found.
pub fn check<S: Stage>(folder: &str, least: usize) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let update = std::env::var_os("UPDATE").is_some();
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the folder of transcripts")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let mut failures = String::new();
    let mut count = 0;
    for file in files {
        let written = fs::read_to_string(&file).expect("a transcript");
        let name = file.display().to_string();
        let played = play::<S>(&written, &name);
        count += played.lines().filter(|line| line.starts_with("# ")).count();
        if update && played != written {
            fs::write(&file, &played).expect("a transcript to be written");
        } else if played != written {
            failures += &difference(&name, &written, &played);
        }
    }
    assert!(count > least, "only {count} scenarios were found");
    assert!(failures.is_empty(), "\n{failures}");
}

/// Runs a file. Returns it with the actual results.
fn play<S: Stage>(text: &str, file: &str) -> String {
    let mut out = String::new();
    let mut stage = S::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("  >") || line.starts_with("  =") {
            continue;
        }
        out += line;
        out.push('\n');
        if line.starts_with("# ") {
            stage = S::new();
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let told = stage.happens(line);
        out += &told.unwrap_or_else(|why| panic!("{file}:{}: {why}: {line}", number + 1));
    }
    out
}

/// Both versions of the first lines that differ, with the lines before.
fn difference(file: &str, written: &str, played: &str) -> String {
    let same = (written.lines().zip(played.lines()))
        .take_while(|(a, b)| a == b)
        .count();
    let mut out = format!("{file}:{}\n", same + 1);
    let from = same.saturating_sub(6);
    for line in written.lines().skip(from).take(same - from) {
        out += &format!("    {line}\n");
    }
    for line in written.lines().skip(same).take(5) {
        out += &format!("  - {line}\n");
    }
    for line in played.lines().skip(same).take(5) {
        out += &format!("  + {line}\n");
    }
    out
}
