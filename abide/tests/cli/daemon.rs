//! Life of the daemon as the command line sees it: started by the first command, killed, stopped.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::thread::JoinHandle;

use crate::harness::{Abide, feed, text, wait_for_line};

#[test]
fn s23_concurrent_commands_start_one_daemon() {
    let abide = Abide::new();
    let racers: Vec<_> = (0..8)
        .map(|_| abide.command(["status", "--json"]).spawn().unwrap())
        .collect();
    let pids: BTreeSet<i64> = racers
        .into_iter()
        .map(|racer| {
            let output = racer.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            status["daemon"]["pid"].as_i64().unwrap()
        })
        .collect();
    assert_eq!(pids.len(), 1, "{pids:?}");
}

#[test]
fn same_state_directory_finds_the_same_daemon() {
    let abide = Abide::new();
    let pid = abide.pid();
    for runtime in [Some("elsewhere"), None] {
        let mut status = abide.command(["status", "--json"]);
        status
            .env_remove("ABIDE_DIR")
            .env_remove("XDG_RUNTIME_DIR")
            .env("XDG_STATE_HOME", abide.path(""));
        if let Some(runtime) = runtime {
            std::fs::create_dir(abide.path(runtime)).unwrap();
            status.env("XDG_RUNTIME_DIR", abide.path(runtime));
        }
        let output = status.output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(status["daemon"]["pid"], pid, "{runtime:?}: {output:?}");
    }
}

#[test]
fn debug_log_follows_a_call_and_its_session() {
    let abide = Abide::new();
    let text = "<tool name=\"shell\"><command>true</command></tool>";
    std::fs::write(abide.path("text"), text).unwrap();
    let mut call = abide.command(["call", "text"]);
    let called = call.env("ABIDE_LOG", "debug").output().unwrap();
    assert!(called.status.success(), "{called:?}");
    abide.output(["stop"]);
    let log = std::fs::read_to_string(abide.path("abide/daemon.log")).unwrap();
    let line = |parts: [&str; 2]| {
        let has = |line: &&str| parts.iter().all(|part| line.contains(part));
        let found = log.lines().find(has);
        found.unwrap_or_else(|| panic!("no {parts:?}: {log}"))
    };
    let sent = line(["call{tool=\"shell\"", "sent to the engine"]);
    let number = sent.rsplit("call=").next().unwrap();
    let started = line(["started session=session_", "agent=default"]);
    let mut words = started.split_whitespace();
    let session = words.rfind(|word| word.starts_with("session="));
    line([&format!("answered call={number}"), session.unwrap()]);
}

#[test]
fn commands_do_not_inherit_variables_of_the_service_manager() {
    let abide = Abide::new();
    let names = [
        "NOTIFY_SOCKET",
        "LISTEN_PID",
        "LISTEN_FDS",
        "LISTEN_FDNAMES",
    ];
    let mut status = abide.command(["status"]);
    let started = status.envs(names.map(|name| (name, "1"))).output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let call = "<tool name=\"shell\"><command>env</command></tool>";
    std::fs::write(abide.path("text"), call).unwrap();
    let called = abide.json(["call", "--json", "text"]);
    let env = called["result"]["text"].as_str().unwrap();
    assert!(env.contains("STATUS: SUCCESS"), "{env}");
    for name in names {
        assert!(!env.contains(name), "{env}");
    }
}

#[test]
fn commands_run_with_every_accelerator_switched_off() {
    let abide = Abide::new();
    let off = "keeper_pool, ext4_placement,repeat_fast_path,prepared_statements";
    let run = |words: &[&str], off: &str| {
        let mut command = abide.command(words);
        command.env("ABIDE_OFF", off).output().unwrap()
    };
    let output = run(&["run", "--", "echo", "hello"], off);
    assert_eq!(text(&output.stdout), "hello\n", "{output:?}");
    let timer = run(&["timer", "start", "1h", "--mission", "m"], off);
    assert!(timer.status.success(), "{timer:?}");
    assert!(run(&["stop"], off).status.success());
    let refused = run(&["status"], "keeper_pol");
    let sentence = "ABIDE_OFF names 'keeper_pol'; it can switch off keeper_pool, ext4_placement, ";
    assert!(text(&refused.stderr).contains(sentence), "{refused:?}");
}

#[test]
fn too_long_socket_path_is_an_error() {
    let abide = Abide::new();
    let deep = abide.path(&"d".repeat(250)).join("e".repeat(250));
    private_folder(&deep);
    let mut status = abide.command(["status"]);
    let output = status.env("ABIDE_DIR", &deep).output().unwrap();
    let complaint = text(&output.stderr);
    assert!(!output.status.success(), "{complaint}");
    assert!(
        complaint.contains("a shorter path by ABIDE_DIR"),
        "{complaint}"
    );
    assert!(!complaint.contains("damaged"), "{complaint}");
}

#[test]
fn status_counts_sessions_and_questions() {
    let abide = Abide::new();
    abide.output(["run", "--", "true"]);
    let status = abide.json(["status", "--json"]);
    assert_eq!(status["daemon"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["daemon"]["started_at"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(
        status["sessions"],
        serde_json::json!({"running": 0, "background": 0, "ended": 1})
    );
    assert_eq!(status["questions"]["open"], 0);
    let shown = text(&abide.output(["status"]).stdout);
    assert!(shown.contains("0 running, 1 ended"), "{shown}");
    abide.output(["run", "--", "sleep 1000 &"]);
    let shown = text(&abide.output(["status"]).stdout);
    assert!(
        shown.contains("0 running, 1 in the background, 1 ended"),
        "{shown}"
    );
    let listed = abide.json(["session", "list", "--json"]);
    let left = listed["sessions"][0]["session_id"].as_str().unwrap();
    abide.output(["session", "kill", left]);
}

#[test]
fn s30_stop_leaves_sessions_running() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut child = abide
        .command(["run", "--", "echo begun; cat go; exit 3"])
        .spawn()
        .unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "begun\n");
    let before = abide.pid();
    assert!(abide.output(["stop"]).status.success());
    assert_ne!(abide.pid(), before);
    feed(&fifo, b"on\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "on\n", "{output:?}");
    assert_eq!(output.status.code(), Some(3));
}

/// A directory without a daemon, in which the test can act as one.
fn with_a_place_to_listen() -> Abide {
    let abide = Abide::new();
    private_folder(&abide.path("abide/run"));
    abide
}

/// Creates a directory and its parents with mode 0700, regardless of the umask.
fn private_folder(path: &Path) {
    let mut folder = std::fs::DirBuilder::new();
    folder.mode(0o700).recursive(true).create(path).unwrap();
}

/// A dying daemon closes its connections one by one, and may still be listening after it has closed the first one.
#[test]
fn request_is_retried_when_a_dying_daemon_refuses_twice() {
    use rustix::event::{PollFd, PollFlags, poll};
    let abide = with_a_place_to_listen();
    let dying = UnixListener::bind(abide.socket()).unwrap();
    let dying = std::thread::spawn(move || {
        drop(dying.accept().unwrap());
        // The daemon is back.
        poll(&mut [PollFd::new(&dying, PollFlags::IN)], None).unwrap();
    });
    let output = abide.output(["status", "--json"]);
    dying.join().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A daemon that receives a request while it stops says so and exits.
#[test]
fn run_during_a_stop_is_served_by_the_next_daemon() {
    let abide = with_a_place_to_listen();
    let socket = abide.socket();
    let stopping = UnixListener::bind(&socket).unwrap();
    let stopping = std::thread::spawn(move || {
        let (mut asked, _) = stopping.accept().unwrap();
        whole_head(&mut asked);
        std::fs::remove_file(socket).unwrap();
        drop(stopping);
        let body = r#"{"detail": "the daemon is stopping"}"#;
        let length = body.len();
        write!(
            asked,
            "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
    });
    let output = abide.output(["run", "--", "echo hello"]);
    stopping.join().unwrap();
    assert_eq!(text(&output.stdout), "hello\n", "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn file_change_between_two_daemons_is_detected() {
    for words in [
        &["wait", "--for", "60s", "--file", "ü", "--is", "changed"][..],
        &[
            "timer",
            "start",
            "60s",
            "--reason",
            "r",
            "--until",
            r#"{"any": [{"port": 1}, {"file": "ü", "is": "changed"}]}"#,
        ],
    ] {
        let abide = with_a_place_to_listen();
        let file = abide.path("ü");
        std::fs::write(&file, "before").unwrap();
        let socket = abide.socket();
        let dying = UnixListener::bind(&socket).unwrap();
        let dying = std::thread::spawn(move || {
            let (mut asked, _) = dying.accept().unwrap();
            whole_head(&mut asked);
            std::fs::remove_file(socket).unwrap();
            drop(dying);
            std::fs::write(&file, "and after").unwrap();
        });
        let output = abide.output(words);
        dying.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = text(&output.stdout);
        assert!(said.contains("ü has changed"), "{output:?}");
    }
}

/// Fields of the body that the first `abide run` sent.
const FIRST_FIELDS: [&str; 11] = [
    "command", "argv", "cwd", "env", "stdin", "pty", "timeout", "idle", "key", "terminal", "from",
];

#[test]
fn requests_have_no_fields_that_an_older_daemon_refuses() {
    let abide = with_a_place_to_listen();
    let older = UnixListener::bind(abide.socket()).unwrap();
    let older = std::thread::spawn(move || {
        let (mut asked, _) = older.accept().unwrap();
        let head = whole_head(&mut asked);
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        asked.read_exact(&mut body).unwrap();
        let answer = r#"{"detail": "not today"}"#;
        write!(
            asked,
            "HTTP/1.1 409 Conflict\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        )
        .unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (head, body)
    });
    let output = abide.output(["run", "--", "echo hello"]);
    assert!(text(&output.stderr).contains("not today"), "{output:?}");
    let (head, body) = older.join().unwrap();
    for field in body.as_object().unwrap().keys() {
        assert!(FIRST_FIELDS.contains(&field.as_str()), "{field} is new");
    }
    // Unknown fields are skipped.
    assert!(head.contains("\r\nabide-inherited-limits: {"), "{head}");
}

/// Reads to the end of the request head: an answer in the middle of it resets the connection.
fn whole_head(asked: &mut UnixStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        asked.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

/// Acts as a daemon of an earlier version for this number of requests. It may refuse to be stopped.
fn older_daemon(abide: &Abide, most: usize, goes: bool) -> JoinHandle<Vec<String>> {
    let lock = File::create(abide.path("abide/run/lock")).unwrap();
    lock.lock().unwrap();
    std::fs::write(abide.path("abide/run/version"), "0.0.9").unwrap();
    let socket = abide.socket();
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let mut asked_for = Vec::new();
        while asked_for.len() < most {
            let (mut asked, _) = listener.accept().unwrap();
            let head = whole_head(&mut asked);
            let words: Vec<&str> = head.split(' ').take(2).collect();
            let what = words.join(" ");
            let stop = what == "POST /v1/stop";
            if stop && goes {
                std::fs::remove_file(&socket).unwrap();
            }
            let refused = stop && !goes;
            let status = if refused { "403 Forbidden" } else { "200 OK" };
            let body = r#"{"daemon": {"version": "0.0.9"}}"#;
            asked_for.push(what);
            write!(
                asked,
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
        drop(lock);
        asked_for
    })
}

#[test]
fn newer_client_replaces_an_older_daemon() {
    let abide = with_a_place_to_listen();
    let older = older_daemon(&abide, 2, true);
    let output = abide.output(["run", "--", "echo hello"]);
    assert_eq!(text(&output.stdout), "hello\n", "{output:?}");
    assert_eq!(older.join().unwrap(), ["GET /v1/status", "POST /v1/stop"]);
    let status = abide.json(["status", "--json"]);
    assert_eq!(status["daemon"]["version"], env!("CARGO_PKG_VERSION"));
    // From now on there is no daemon to replace.
    let pid = &status["daemon"]["pid"];
    assert_eq!(*pid, abide.pid());
}

#[test]
fn older_daemon_that_exits_first_is_replaced() {
    let abide = with_a_place_to_listen();
    let older = older_daemon(&abide, 1, true);
    let output = abide.output(["run", "--", "echo hello"]);
    assert_eq!(text(&output.stdout), "hello\n", "{output:?}");
    assert_eq!(older.join().unwrap(), ["GET /v1/status"]);
}

#[test]
fn older_daemon_that_does_not_stop_is_still_used() {
    let abide = with_a_place_to_listen();
    let older = older_daemon(&abide, 3, false);
    let status = abide.json(["status", "--json"]);
    assert_eq!(status["daemon"]["version"], "0.0.9");
    let asked_for = older.join().unwrap();
    let wanted = ["GET /v1/status", "POST /v1/stop", "GET /v1/status"];
    assert_eq!(asked_for, wanted);
    std::fs::remove_file(abide.socket()).unwrap();
}

#[test]
fn long_daemon_log_is_rotated() {
    let abide = with_a_place_to_listen();
    let log = abide.path("abide/daemon.log");
    let long = "x".repeat(2 << 20);
    std::fs::write(&log, &long).unwrap();
    abide.pid();
    let old = std::fs::read_to_string(abide.path("abide/daemon.log.old")).unwrap();
    assert!(old == long, "{} bytes", old.len());
    assert!(std::fs::metadata(&log).unwrap().len() < 1 << 20);
}

#[test]
fn stop_without_a_daemon_succeeds() {
    let abide = Abide::new();
    assert_eq!(abide.json(["stop", "--json"])["stopped"], false);
    abide.output(["status"]);
    assert_eq!(abide.json(["stop", "--json"])["stopped"], true);
    assert_eq!(abide.json(["stop", "--json"])["stopped"], false);
}

#[test]
fn run_survives_a_killed_daemon() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let command = "seq 1 200000; echo half; cat go; seq 200001 400000; exit 9";
    let mut child = abide.command(["run", "--", command]).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut seen = wait_for_line(&mut out, "half\n");
    abide.kill_daemon();
    feed(&fifo, b"go\n");
    std::io::Read::read_to_end(&mut out, &mut seen).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    let first: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    let second: String = (200_001..=400_000).map(|n| format!("{n}\n")).collect();
    assert!(
        text(&seen) == format!("{first}half\ngo\n{second}"),
        "{} bytes",
        seen.len()
    );
}

#[test]
fn output_is_complete_when_the_daemon_is_killed_repeatedly() {
    let abide = Abide::new();
    let mut child = abide
        .command(["run", "--", "seq 1 2000000"])
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut seen = wait_for_line(&mut out, "\n1000\n");
    for mark in ["\n200000\n", "\n900000\n"] {
        abide.kill_daemon();
        seen.extend(wait_for_line(&mut out, mark));
    }
    std::io::Read::read_to_end(&mut out, &mut seen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let wanted: String = (1..=2_000_000).map(|n| format!("{n}\n")).collect();
    assert!(
        seen == wanted.as_bytes(),
        "{} of {} bytes",
        seen.len(),
        wanted.len()
    );
}

#[test]
fn s11_state_directory_writable_by_others_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    type Prepare = fn(&Path);
    fn folder(path: &Path, mode: u32) {
        std::fs::create_dir_all(path).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    const LINK: &str = "a link is not accepted";
    let mut cases: Vec<(&str, Prepare, &str)> = vec![
        ("", |dir| folder(dir, 0o777), "run chmod 700"),
        ("", |dir| folder(dir, 0o770), "run chmod 700"),
        ("", |dir| folder(dir, 0o702), "run chmod 700"),
        ("", |dir| symlink("/tmp", dir).unwrap(), LINK),
        ("", |dir| symlink("nowhere", dir).unwrap(), LINK),
        ("", |dir| std::fs::write(dir, "").unwrap(), "not a folder"),
        ("/run", |run| folder(run, 0o777), "run chmod 700"),
        ("/run", |run| folder(run, 0o710), "run chmod 700"),
        ("/run", |run| folder(run, 0o701), "run chmod 700"),
        ("/run", |run| symlink("/tmp", run).unwrap(), LINK),
        ("/sessions", |all| folder(all, 0o755), "run chmod 700"),
        ("/sessions", |all| symlink("/tmp", all).unwrap(), LINK),
    ];
    let given_away: Prepare = |path| {
        folder(path, 0o700);
        chown(path, Some(65_534), None).unwrap();
    };
    // On some systems root cannot do this either.
    let can_give_away = || chown(Abide::new().path(""), Some(65_534), None).is_ok();
    if rustix::process::geteuid().is_root() && can_give_away() {
        cases.extend(["", "/run", "/sessions"].map(|of| (of, given_away, "another user")));
    }
    for (of, prepare, complaint) in cases {
        let abide = Abide::new();
        if !of.is_empty() {
            folder(&abide.path("abide"), 0o700);
        }
        let path = abide.path(&format!("abide{of}"));
        prepare(&path);
        let output = abide.output(["run", "--", "true"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{of}: {said}");
        assert!(said.contains(complaint), "{of}: {said}");
        assert!(said.contains(&path.display().to_string()), "{of}: {said}");
        assert!(!abide.socket().exists(), "{of}: nobody listens");
    }
}

#[test]
fn invalid_configuration_is_reported() {
    let abide = Abide::with_config("nonsense = 1\n");
    let output = abide.output(["run", "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("nonsense"), "{output:?}");
}

#[test]
fn daemon_raises_its_descriptor_limit_and_commands_keep_theirs() {
    let abide = Abide::new();
    let mut command = abide.command(["run", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn"]);
    let few = |limit: u64| rustix::process::Rlimit {
        current: Some(limit),
        maximum: Some(2_000),
    };
    // SAFETY: only one system call is made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let set = rustix::process::setrlimit(rustix::process::Resource::Nofile, few(300));
            set.map_err(std::io::Error::from)
        });
    }
    let output = command.output().expect("abide runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "300\n2000\n");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", abide.pid())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let numbers: Vec<&str> = files.unwrap().split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["2000", "2000"]);
}

#[test]
fn directories_with_names_that_are_not_unicode_work() {
    let abide = Abide::new();
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff");
    std::fs::create_dir(abide.path("").join(odd)).expect("a folder");
    let output = |words: &[&str]| {
        let mut command = abide.command(words);
        command.current_dir(abide.path("").join(odd));
        command.env("ABIDE_DIR", abide.path("").join(odd).join("state"));
        command.env("HOME", abide.path("").join(odd));
        command.env_remove("CODEX_HOME");
        command.output().expect("abide runs")
    };
    let ran = output(&["run", "--", "echo hello"]);
    assert_eq!(text(&ran.stdout), "hello\n", "{ran:?}");
    let status = output(&["status", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    let state = told["places"]["state"].as_str().expect("a path");
    assert!(state.ends_with("odd \u{fffd}/state"), "{told}");
    let setup = output(&["setup", "codex", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&setup.stdout).expect("JSON");
    assert_eq!(told["client"], "codex");
    let waited = output(&["wait", "--file", "x", "--for", "1ms"]);
    assert_eq!(waited.status.code(), Some(2), "{waited:?}");
    assert!(text(&waited.stderr).contains("is not UTF-8"), "{waited:?}");
    let stopped = output(&["stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
}
