//! Files of a session that were damaged, removed or replaced, and limits of open files: readable data are returned,
//! errors are reported, and nothing is deleted.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use abide_session::{cgroup, proc};

use crate::common::fifo;
use crate::common::process::Process;
use crate::harness::{Abide, line_with, look_for, said_to};

/// Runs a command to its end and returns the id of its session.
fn ran(abide: &Abide, command: &str) -> String {
    let result = abide
        .post("/v1/tools/shell", &json!({"command": command}))
        .body;
    result["session_id"].as_str().expect("an id").to_owned()
}

fn folder(abide: &Abide, id: &str) -> PathBuf {
    abide.path("sessions").join(id)
}

/// Result of `terminal_session`; a daemon that hangs fails the test.
fn terminal(abide: &Abide, action: &str, id: &str, more: &str) -> Value {
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    let mut command = Command::new("timeout");
    command
        .args(["60", env!("CARGO_BIN_EXE_abide"), "call", "--json"])
        .env("ABIDE_DIR", abide.dir());
    let block = format!(
        "<tool name=\"terminal_session\"><action>{action}</action><session_id>{id}</session_id>{more}</tool>"
    );
    said_to(command, &block)
}

fn text(result: &Value) -> &str {
    result["text"].as_str().unwrap_or_default()
}

#[test]
fn session_goes_on_when_a_daemon_starts_on_a_copy_of_the_folder() {
    let (abide, copy) = (Abide::started(), Abide::new());
    let begun = abide.begin(
        "/v1/tools/terminal_session",
        &json!({"action": "start", "command": "cat", "pty": false}),
    );
    let id = abide.running();
    drop(begun);
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    let copied = Command::new("cp")
        .arg("-a")
        .args([abide.path("sessions"), copy.dir().to_owned()])
        .status();
    assert!(copied.expect("cp runs").success());
    copy.start();
    let listed = copy.get("/v1/sessions?include_ended=true");
    assert_eq!(listed["sessions"][0]["end"], "lost", "{listed}");
    abide.output(["session", "send", &id, "goes on"]);
    look_for("the line", || {
        let read = terminal(&abide, "read_output", &id, "<since>0</since>");
        text(&read).contains("goes on").then_some(())
    });
}

#[test]
fn read_output_answers_when_the_log_of_a_running_session_was_removed() {
    let abide = Abide::new();
    let started = abide.json(["session", "start", "--no-pty", "--json", "--", "cat"]);
    let id = started["session_id"].as_str().expect("an id");
    let send = |line: &str| abide.output(["session", "send", id, line]);
    send("before");
    let log = folder(&abide, id).join("log");
    look_for("a log", || log.exists().then_some(()));
    std::fs::remove_dir_all(&log).expect("a log");
    send("after");
    let read = terminal(
        &abide,
        "read_output",
        id,
        "<since>0</since><timeout_seconds>20</timeout_seconds>",
    );
    assert!(
        text(&read).contains("bytes are missing from the log"),
        "{read}"
    );
    assert!(read["bytes_dropped"].as_u64() > Some(0), "{read}");
    let other = abide.post("/v1/tools/shell", &json!({"command": "echo fine"}));
    assert_eq!(other.body["status"], "SUCCESS", "{}", other.body);
}

#[test]
fn terminal_answers_queries_after_its_log_could_not_be_read() {
    let abide = Abide::new();
    let go = abide.fifo("go");
    let command = "echo begun; cat go; cat go; stty raw -echo; printf '\\033[6n'; head -c 6 >/dev/null; \
                   stty cooked; echo answered";
    let started = abide.json(["session", "start", "--json", "--", command]);
    let id = started["session_id"].as_str().expect("an id");
    let until = |line: &str| {
        let waited = abide.output(["wait", "--session", id, "--output", line]);
        assert!(waited.status.success(), "{waited:?}");
    };
    until("begun");
    let (log, away) = (folder(&abide, id).join("log"), abide.path("away"));
    std::fs::rename(&log, &away).expect("a log");
    std::fs::write(&log, "").expect("no folder");
    std::fs::write(&go, "unread\n").expect("it reads");
    look_for("a warning", || {
        let said = std::fs::read_to_string(abide.path("daemon.log")).ok()?;
        said.contains("cannot be read").then_some(())
    });
    std::fs::remove_file(&log).expect("the file");
    std::fs::rename(&away, &log).expect("the log");
    std::fs::write(&go, "").expect("it reads");
    until("answered");
}

#[test]
fn shell_says_that_output_is_missing_when_its_log_was_removed() {
    let abide = Abide::started();
    let sessions = abide.path("sessions");
    let logs = format!("{}/*/log", sessions.display());
    let command = format!(
        "echo gone; until set -- {logs}/*.index && [ -e \"$1\" ]; do :; done; rm -r {logs}"
    );
    let result = abide
        .post("/v1/tools/shell", &json!({"command": command}))
        .body;
    assert_eq!(result["exit_code"], 0, "{result}");
    assert_eq!(result["bytes_dropped"], 5, "{result}");
    assert!(
        text(&result).contains("5 bytes of the output are missing"),
        "{result}"
    );
}

/// Damages the `meta` file of an ended session and asserts that its log can still be read.
fn damaged(damage: impl Fn(&Path)) -> (Abide, String) {
    let abide = Abide::started();
    let id = ran(&abide, "echo precious");
    abide.output(["stop"]);
    damage(&folder(&abide, &id).join("meta"));
    abide.start();
    let log = abide.output(["logs", &id]);
    assert_eq!(log.stdout, b"precious\n", "{log:?}");
    let listed = abide.json(["session", "list", "--all", "--json"]);
    let mut sessions = listed["sessions"].as_array().expect("a list").iter();
    let listed = sessions.find(|session| session["session_id"] == *id);
    let listed = listed.expect("it is listed");
    let says = listed["damaged"].as_str().unwrap_or_default();
    assert!(says.contains("its log is kept"), "{listed}");
    let read = abide.output(["session", "read", &id]);
    let read = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(read.contains("precious"), "{read}");
    let found = abide.output(["session", "search", &id, "preci"]);
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains("1:precious"), "{found}");
    (abide, id)
}

#[test]
fn a_session_with_a_flipped_byte_in_meta_keeps_its_log() {
    let (abide, id) = damaged(|meta| {
        let file = std::fs::File::options().write(true).open(meta);
        file.expect("a record")
            .write_all_at(b"#", 20)
            .expect("damage");
    });
    // The line of its ending is complete, so the ending is known.
    let session = abide.get(&format!("/v1/sessions/{id}"));
    assert_eq!(session["exit_code"], 0, "{session}");
}

#[test]
fn a_session_with_an_empty_meta_keeps_its_log_and_is_lost() {
    let (abide, id) = damaged(|meta| std::fs::write(meta, "").expect("damage"));
    let session = abide.get(&format!("/v1/sessions/{id}"));
    assert_eq!(session["end"], "lost", "{session}");
    assert_eq!(session["exit_code"], Value::Null, "{session}");
}

#[test]
fn a_session_with_a_cut_meta_keeps_its_log() {
    damaged(|meta| {
        let file = std::fs::File::options().write(true).open(meta);
        file.expect("a record").set_len(40).expect("damage");
    });
}

#[test]
fn a_session_without_meta_keeps_its_log() {
    damaged(|meta| std::fs::remove_file(meta).expect("damage"));
}

#[test]
fn a_session_with_a_meta_of_a_later_version_keeps_its_log() {
    damaged(|meta| {
        let text = std::fs::read_to_string(meta).expect("a record");
        let text = text.replacen("abide meta 1", "abide meta 9", 1);
        std::fs::write(meta, text).expect("damage");
    });
}

#[test]
fn a_session_with_a_huge_meta_keeps_its_log() {
    damaged(|meta| {
        let file = std::fs::File::options().write(true).open(meta);
        file.expect("a record").set_len(64 << 30).expect("damage");
    });
}

#[test]
fn session_with_a_fifo_as_meta_keeps_its_log_and_does_not_block() {
    damaged(|meta| {
        std::fs::remove_file(meta).expect("a record");
        fifo::make(meta);
    });
}

#[test]
fn damaged_session_is_removed_by_retention() {
    let (abide, id) = damaged(|meta| std::fs::write(meta, "").expect("damage"));
    abide.output(["stop"]);
    std::fs::write(abide.path("config.toml"), "keep_bytes = 0\n").expect("a configuration");
    abide.start();
    let folder = folder(&abide, &id);
    look_for("its removal", || (!folder.exists()).then_some(()));
}

#[test]
fn total_log_size_is_bounded_when_sessions_end_and_when_the_limit_changes() {
    let abide = Abide::new();
    std::fs::write(abide.path("config.toml"), "keep_bytes = 400000\n").expect("a configuration");
    abide.start();
    for _ in 0..8 {
        ran(&abide, "head -c 135000 /dev/zero");
    }
    look_for("the removal of the oldest", || {
        let listed = abide.get("/v1/sessions?include_ended=true");
        (listed["total"] == 2).then_some(())
    });
    let folders = std::fs::read_dir(abide.path("sessions"))
        .expect("sessions")
        .flatten();
    assert_eq!(
        folders
            .filter(|folder| folder.path().join("log").exists())
            .count(),
        2
    );
    std::fs::write(abide.path("config.toml"), "keep_bytes = 0\n").expect("a configuration");
    look_for("the removal of the others", || {
        // It uses the configuration, so the daemon reads the file again.
        abide.get("/v1/status");
        let listed = abide.get("/v1/sessions?include_ended=true");
        (listed["total"] == 0).then_some(())
    });
}

#[test]
fn log_that_is_being_downloaded_is_not_removed() {
    // More than the connection buffers, in several segments.
    const BYTES: usize = 6_000_000;
    let abide = Abide::new();
    abide.configure("log_quota = 8388608\n");
    abide.start();
    let read = ran(&abide, &format!("head -c {BYTES} /dev/zero"));
    let stream = UnixStream::connect(abide.path("run/http.sock")).expect("it listens");
    let mut stream = BufReader::new(stream);
    let request = format!("GET /v1/sessions/{read}/log/raw HTTP/1.0\r\nhost: abide\r\n\r\n");
    stream
        .get_mut()
        .write_all(request.as_bytes())
        .expect("it is sent");
    line_with(&mut stream, "200 OK");
    abide.configure("log_quota = 8388608\nkeep_bytes = 0\n");
    let other = folder(&abide, &ran(&abide, "echo other"));
    look_for("the removal of the other", || {
        (!other.exists()).then_some(())
    });
    while line_with(&mut stream, "\n") != "\r\n" {}
    let mut log = Vec::new();
    stream.read_to_end(&mut log).expect("a body");
    assert_eq!(log.len(), BYTES);
    let read = folder(&abide, &read);
    look_for("its removal", || (!read.exists()).then_some(()));
}

#[test]
fn killed_idle_keeper_leaves_no_directory_and_no_cgroup() {
    let abide = Abide::new();
    std::fs::write(abide.path("config.toml"), "idle_keepers = 1\n").expect("a configuration");
    abide.start();
    let unused = || {
        let folders = std::fs::read_dir(abide.path("sessions"))
            .expect("sessions")
            .flatten();
        let mut names = folders.map(|folder| folder.file_name().to_string_lossy().into_owned());
        names.next()
    };
    let session = look_for("an idle keeper", unused);
    let group = cgroup::own_folder().map(|own| own.join(format!("abide-{session}")));
    let children = |pid: i32| proc::children(pid);
    let keeper = look_for("its process", || {
        let fork_server = children(abide.pid()).into_iter().next()?;
        children(fork_server).into_iter().next()
    });
    look_for("its socket", || {
        folder(&abide, &session).join("ctl").exists().then_some(())
    });
    Process::on(keeper).kill();
    look_for("its end", || {
        (!folder(&abide, &session).exists()).then_some(())
    });
    assert!(!group.is_some_and(|group| group.exists()));
}

#[test]
fn keeper_without_a_command_leaves_no_files() {
    let abide = Abide::started();
    ran(&abide, "true");
    abide.kill_daemon();
    let unused = folder(&abide, "session_00000000");
    std::fs::create_dir(&unused).expect("a folder");
    std::fs::write(unused.join("meta"), "\n").expect("a record");
    abide.start();
    assert!(!unused.exists());
}

#[test]
fn fifo_in_place_of_a_session_file_does_not_block() {
    let abide = Abide::started();
    let id = ran(&abide, "echo one");
    let folder = folder(&abide, &id);
    let log = folder.join("log");
    for name in std::fs::read_dir(&log).expect("a log").flatten() {
        std::fs::remove_file(name.path()).expect("a segment");
        fifo::make(&name.path());
    }
    for name in ["daemon", "ending"] {
        let _ = std::fs::remove_file(folder.join(name));
        fifo::make(&folder.join(name));
    }
    let read = terminal(&abide, "read_output", &id, "");
    assert!(
        text(&read).contains("4 bytes are missing from the log"),
        "{read}"
    );
    abide.output(["stop"]);
    let read = terminal(&abide, "read_output", &id, "<since>0</since>");
    assert!(
        text(&read).contains("4 bytes are missing from the log"),
        "{read}"
    );
}

/// Sends a request over a connection that stays open.
fn ask(stream: &mut BufReader<UnixStream>, method: &str, path: &str, body: &str) -> Value {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: abide\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream
        .get_mut()
        .write_all(request.as_bytes())
        .expect("it is sent");
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a header");
        if line == "\r\n" {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

fn limit_files(pid: i32, most: u64) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process number");
    let what = rustix::process::Resource::Nofile;
    // The daemon has inherited the hard limit of this process.
    let limit = rustix::process::Rlimit {
        current: Some(most),
        maximum: rustix::process::getrlimit(what).maximum,
    };
    rustix::process::prlimit(Some(pid), what, limit).expect("its limit");
}

#[test]
fn m6_shell_reports_an_error_when_its_log_cannot_be_read() {
    let abide = Abide::started();
    // The keepers exist already, so the command itself can be run.
    ran(&abide, "true");
    let pid = abide.pid();
    let stream = UnixStream::connect(abide.path("run/http.sock")).expect("it listens");
    let mut stream = BufReader::new(stream);
    ask(&mut stream, "GET", "/v1/status", "");
    // Open files stay open; no other file can be opened.
    limit_files(pid, 0);
    let call = json!({"command": "printf 'preci%s' ous"});
    let result = ask(&mut stream, "POST", "/v1/tools/shell", &call.to_string());
    limit_files(pid, 1_024);
    let said = text(&result);
    assert!(said.contains("the output could not be read"), "{result}");
    assert_eq!(result["is_error"], true, "{result}");
    let error = result["error"].as_str().unwrap_or_default();
    assert!(error.contains("read_output"), "{result}");
    // The ending is still known, and the output is stored.
    assert_eq!(result["exit_code"], 0, "{result}");
    let id = result["session_id"].as_str().expect("an id");
    let read = terminal(&abide, "read_output", id, "");
    assert!(text(&read).contains("precious"), "{read}");
}
