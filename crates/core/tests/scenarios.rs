//! Transcripts: events, one per line, and the resulting effects of the engine.
//!
//! A scenario starts with `# title` and runs until the next one, in its own engine. A line without indent is an
//! event; the indented lines below it are its results: `>` an effect, `=` an answer to `show` or `alarm`. `UPDATE=1
//! cargo test -p abide-core --test scenarios` rewrites them; review the diff before you commit it.
//!
//! The call `3` has `s3` as the id of its session. Questions are `q1`, `q2` … in the order in which they appear.
//! `+61s` lets time pass, with a tick at each alarm on the way and at the end.

mod transcript;

use std::fs;
use std::path::PathBuf;

#[test]
fn scenarios_match_their_transcripts() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let update = std::env::var_os("UPDATE").is_some();
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the folder of scenarios")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let mut failures = String::new();
    let mut count = 0;
    for file in files {
        let written = fs::read_to_string(&file).expect("a scenario");
        let (played, scenarios) = transcript::play(&written, &file.display().to_string());
        count += scenarios;
        if update && played != written {
            fs::write(&file, &played).expect("a scenario to be written");
        } else if played != written {
            failures += &transcript::difference(&file.display().to_string(), &written, &played);
        }
    }
    assert!(count > 50, "only {count} scenarios were found");
    assert!(failures.is_empty(), "\n{failures}");
}
