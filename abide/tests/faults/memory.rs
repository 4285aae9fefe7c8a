//! Exhausted resources: the order in which the kernel kills processes, and pseudo-terminals.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::common::process::Process;
use crate::harness::{Abide, end_all};
use crate::unprivileged::is_root;

/// `oom_score_adj` of a process.
fn score(of: &str) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/{of}/oom_score_adj")).expect("a score");
    text.trim().parse().expect("a number")
}

/// Lowest `oom_score_adj` that a process with the value `from` may set here.
fn lowest(from: i32) -> i32 {
    let back = format!(
        "cd /proc/self; echo {from} > oom_score_adj; \
         (echo -500 > oom_score_adj) 2> /dev/null || (echo 0 > oom_score_adj) 2> /dev/null; \
         cat oom_score_adj"
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "a process whose share may be changed"
    )]
    let out = Command::new("sh").args(["-c", &back]).output();
    let out = String::from_utf8(out.expect("sh runs").stdout).expect("a number");
    out.trim().parse().expect("a number")
}

#[test]
fn m10_command_has_a_higher_oom_score_than_keeper_and_daemon() {
    const RAISED: i32 = 300;
    let kept = lowest(RAISED);
    let abide = Abide::new();
    for way in ["subreaper", "cgroup", "pid_namespace"] {
        let config = format!("containment = \"{way}\"\n");
        std::fs::write(abide.path("config.toml"), config).expect("a configuration");
        let raised = format!("echo {RAISED} > /proc/self/oom_score_adj; exec \"$0\" status");
        #[expect(
            clippy::disallowed_methods,
            reason = "the program under test, which goes first"
        )]
        let started = Command::new("sh")
            .args(["-c", &raised, env!("CARGO_BIN_EXE_abide")])
            .env("ABIDE_DIR", abide.path(""))
            .output();
        assert!(started.expect("sh runs").status.success());
        assert_eq!(score(&abide.pid().to_string()), kept);
        let look = "echo kept by $(cat /proc/$PPID/oom_score_adj); echo is $(cat /proc/self/oom_score_adj)";
        let told = abide
            .post("/v1/tools/shell", &json!({"command": look}))
            .body;
        assert!(abide.output(["stop"]).status.success());
        if told["return_code"] == -2 {
            eprintln!("skipped: {way} cannot be had here");
            continue;
        }
        let seen = told["text"].as_str().expect("its text");
        let wanted = match way {
            // The keeper is not visible from inside the namespace.
            "pid_namespace" => format!("\nis {RAISED}\n"),
            _ => format!("\nkept by {kept}\nis {RAISED}\n"),
        };
        assert!(seen.contains(&wanted), "{way}: {told}");
    }
}

#[test]
fn m7_exhausted_ptys_are_reported_and_pipes_still_work() {
    let abide = Abide::new();
    let system = "mount -t devpts -o newinstance,max=2,ptmxmode=666,mode=620 devpts /dev/pts && \
                  mount --bind /dev/pts/ptmx /dev/ptmx && echo made >&2 && exec \"$0\" serve";
    #[expect(
        clippy::disallowed_methods,
        reason = "terminals of its own for the program under test"
    )]
    let mut serving = Command::new("unshare");
    serving
        .args(["--mount", "sh", "-c", system, env!("CARGO_BIN_EXE_abide")])
        .env("ABIDE_DIR", abide.path(""))
        .stderr(Stdio::piped());
    let mut serving = serving.spawn().expect("unshare runs");
    let mut said = BufReader::new(serving.stderr.take().expect("what it says"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    if line.trim() != "made" {
        assert!(!is_root() || line.is_empty(), "{line}");
        eprintln!("skipped: no terminals of its own can be had here");
        serving.wait().expect("it ends");
        return;
    }
    while !line.contains("is ready") {
        line.clear();
        assert_ne!(said.read_line(&mut line).expect("a line"), 0, "it ends");
    }
    let start = |pty: bool| {
        let call = json!({"action": "start", "command": "sleep 1000", "pty": pty});
        abide.post("/v1/tools/terminal_session", &call).body
    };
    for _ in 0..2 {
        let told = start(true);
        assert!(told["session_id"].is_string(), "{told}");
    }
    let refused = start(true).to_string();
    assert!(
        refused.contains("pty_limit: all terminals of this system are in use"),
        "{refused}"
    );
    assert!(refused.contains("pty: false"), "{refused}");
    let told = start(false);
    assert!(told["session_id"].is_string(), "{told}");
    let daemon = Process::on(abide.pid());
    end_all(|args| abide.command(args));
    daemon.wait_gone();
    serving.wait().expect("it ends");
}
