//! Logs of real programs and their digests, byte for byte.
//!
//! After an intended change, `BLESS=1 cargo test -p abide-output --test digest golden` rewrites the expected texts; review
//! the diff before you commit it.

use std::path::PathBuf;

use super::usual;

#[test]
fn digests_of_real_logs_match_golden_files() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/digest/logs");
    let bless = std::env::var_os("BLESS").is_some();
    let mut logs: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    assert!(logs.len() >= 15, "logs are missing in {}", folder.display());
    let mut wrong = Vec::new();
    for log in logs {
        let text = usual(std::fs::read(&log).unwrap()).text;
        let golden = log.with_extension("txt");
        if bless {
            std::fs::write(&golden, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if text != expected {
            wrong.push(format!("{}:\n{text}\n", log.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
