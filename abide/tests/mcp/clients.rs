//! The official clients. `tests/clients/run` installs them and sets their path.

use std::process::Command;

use crate::harness::Home;

/// Path of the installation.
const INSTALLED: &str = "ABIDE_TEST_CLIENTS";

fn drive(program: &str, driver: &str) {
    let Some(installed) = std::env::var_os(INSTALLED) else {
        eprintln!("skipped: {INSTALLED} is not set; abide/tests/clients/run installs the clients");
        return;
    };
    let home = Home::new();
    let installed = std::path::PathBuf::from(installed);
    #[expect(clippy::disallowed_methods, reason = "a real client")]
    let mut command = Command::new(match program {
        "python" => installed.join("py/bin/python"),
        other => other.into(),
    });
    let out = command
        .arg(installed.join(driver))
        .env("ABIDE", env!("CARGO_BIN_EXE_abide"))
        .env("ABIDE_DIR", home.path("abide"))
        .env("WORK", home.path("."))
        .output()
        .expect("the client runs");
    let said = String::from_utf8_lossy(&out.stdout);
    let wrong = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{driver} failed\n{said}\n{wrong}");
    assert!(
        said.contains("all is well"),
        "{driver} said\n{said}\n{wrong}"
    );
}

#[test]
fn typescript_sdk_1() {
    drive("node", "sdk1.mjs");
}

#[test]
fn typescript_client_2() {
    drive("node", "client2.mjs");
}

#[test]
fn typescript_client_2_waits() {
    drive("node", "waiting.mjs");
}

#[test]
fn python_2() {
    drive("python", "python2.py");
}
