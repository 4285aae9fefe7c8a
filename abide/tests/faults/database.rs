//! A database that is damaged, missing or read-only: every interface reports it, and commands still run.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

use serde_json::{Value, json};

use crate::common::home::private_folder;
use crate::common::process::Process;
use crate::harness::{Abide, pids_of, wait_for_pid};

const FILES: [&str; 3] = ["abide.db", "abide.db-wal", "abide.db-shm"];

/// The problem as reported by `abide status` and `abide doctor`, which must agree.
fn trouble(abide: &Abide) -> Option<String> {
    let status = abide.json(["status", "--json"]);
    let trouble = status["database"]["trouble"].as_str().map(str::to_owned);
    let doctor = abide.output(["doctor", "--json"]);
    let doctor: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let mut findings = doctor["findings"].as_array().expect("findings").iter();
    let found = findings.find(|finding| finding["topic"] == "database");
    let found = found.expect("it is looked at");
    assert_eq!(found["level"] == "trouble", trouble.is_some(), "{found}");
    trouble
}

fn makes_timer(abide: &Abide) -> Value {
    let timer = json!({"total_duration": 1_000, "mission": "later"});
    abide.post("/v1/tools/timer", &timer).body
}

fn runs_commands(abide: &Abide) {
    let result = abide.post("/v1/tools/shell", &json!({"command": "echo fine"}));
    assert_eq!(result.body["status"], "SUCCESS", "{}", result.body);
}

#[test]
fn s29_damaged_database_is_set_aside_and_reported_and_sessions_continue() {
    let abide = Abide::new();
    let line = format!("sleep 5772{}", std::process::id());
    let started = abide.output([
        "session",
        "start",
        "--no-pty",
        "--",
        &format!("exec {line}"),
    ]);
    assert!(started.status.success(), "{started:?}");
    wait_for_pid(&line);
    abide.output(["stop"]);
    let database = abide.path("abide.db");
    let mut bytes = std::fs::read(&database).expect("a database");
    bytes[..100].fill(0xff);
    std::fs::write(&database, &bytes).expect("damage");
    for beside in &FILES[1..] {
        let _ = std::fs::remove_file(abide.path(beside));
    }
    let doctor = abide.output(["doctor"]);
    assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
    let said = trouble(&abide).expect("it is said");
    assert!(
        said.contains("was damaged") && said.contains("set aside as"),
        "{said}"
    );
    let log = std::fs::read_to_string(abide.path("daemon.log")).expect("a log");
    assert_eq!(log.matches("was damaged").count(), 1, "{log}");
    let kept = std::fs::read_dir(abide.dir())
        .expect("a folder")
        .flatten()
        .any(|file| {
            let ours = file
                .file_name()
                .to_string_lossy()
                .starts_with("abide.db.damaged-");
            ours && std::fs::read(file.path()).is_ok_and(|kept| kept == bytes)
        });
    assert!(kept, "the damaged file is kept");
    runs_commands(&abide);
    assert_eq!(makes_timer(&abide)["status"], "running");
    assert_eq!(pids_of(&line).len(), 1);
    let listed = abide.output(["session", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains(&line), "{listed}");
}

#[test]
fn s29_lost_database_is_reported_once() {
    let abide = Abide::started();
    makes_timer(&abide);
    assert_eq!(trouble(&abide), None);
    abide.output(["stop"]);
    for file in FILES {
        let _ = std::fs::remove_file(abide.path(file));
    }
    let said = trouble(&abide).expect("it is said");
    assert!(said.contains("was lost"), "{said}");
    runs_commands(&abide);
    abide.output(["stop"]);
    assert_eq!(trouble(&abide), None);
}

#[test]
fn s29_damaged_journal_is_reported() {
    let abide = Abide::started();
    makes_timer(&abide);
    makes_timer(&abide);
    abide.kill_daemon();
    let journal = abide.path("abide.db-wal");
    let length = std::fs::metadata(&journal).expect("a journal").len();
    let file = std::fs::File::options()
        .write(true)
        .open(&journal)
        .expect("a journal");
    file.write_all_at(&[0xa5; 16], length - 64).expect("damage");
    let said = trouble(&abide).expect("it is said");
    assert!(said.contains("the journal of the database"), "{said}");
    runs_commands(&abide);
}

#[test]
fn s29_commands_run_without_a_database() {
    let abide = Abide::new();
    std::fs::create_dir(abide.path("abide.db")).expect("a folder in its place");
    let said = trouble(&abide).expect("it is said");
    assert!(said.contains("commands run"), "{said}");
    runs_commands(&abide);
    let refused = makes_timer(&abide);
    assert_eq!(refused["is_error"], true, "{refused}");
    let pid = abide.pid();
    assert!(Process::if_alive(pid).is_some());
}

#[test]
fn m8_failed_thread_start_is_not_reported_as_a_damaged_database() {
    let folder = private_folder();
    let user = rustix::fs::Uid::from_raw(54_321);
    if rustix::fs::chown(folder.path(), Some(user), None).is_err() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let parent = folder.path().parent().expect("a folder");
    let mode = std::fs::metadata(parent)
        .expect("a folder")
        .permissions()
        .mode();
    if mode & 0o001 == 0 {
        eprintln!("skipped: others cannot reach the folder");
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "54321",
        "--regid",
        "54321",
        "--clear-groups",
        "prlimit",
        "--nproc=1",
    ]);
    command.args([env!("CARGO_BIN_EXE_abide"), "serve"]);
    let out = command
        .env("ABIDE_DIR", folder.path())
        .output()
        .expect("setpriv runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "{said}");
    assert!(said.contains("thread"), "{said}");
    assert!(!said.contains("damaged"), "{said}");
}
