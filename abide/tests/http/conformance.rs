//! The official conformance suite. `tests/clients/run` installs it and sets its path.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::Abide;

/// Path of the installation.
const INSTALLED: &str = "ABIDE_TEST_CLIENTS";

fn conform(version: &str) {
    let Some(installed) = std::env::var_os(INSTALLED).map(PathBuf::from) else {
        eprintln!("skipped: {INSTALLED} is not set; abide/tests/clients/run installs the suite");
        return;
    };
    let abide = Abide::new();
    #[expect(clippy::disallowed_methods, reason = "a real client")]
    let mut suite = Command::new(installed.join("node_modules/.bin/node"));
    let out = suite
        .arg("--import")
        .arg(installed.join("token.mjs"))
        .arg(installed.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--suite", "all", "--spec-version", version])
        .args(["--url", &format!("http://{}/mcp", abide.address())])
        .arg("--expected-failures")
        .arg(installed.join("conformance.yaml"))
        .env("ABIDE_TOKEN", abide.token())
        .current_dir(abide.path("."))
        .output()
        .expect("the suite runs");
    let said = String::from_utf8_lossy(&out.stdout);
    let wrong = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}\n{wrong}");
    let total = said.lines().find(|line| line.starts_with("Total: "));
    println!("conformance with {version}: {}", total.expect("a summary"));
}

#[test]
fn conforms_to_2025_11_25() {
    conform("2025-11-25");
}

#[test]
fn conforms_to_2026_07_28() {
    conform("2026-07-28");
}
