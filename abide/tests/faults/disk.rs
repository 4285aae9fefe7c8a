//! Disks that are full or read-only. A small disk is mounted in a mount namespace of the test, which requires root or
//! user namespaces.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::home::private_folder;
use crate::harness::postgres::Server;
use crate::harness::{end_all, look_for, said_to};

/// A disk of 8 MiB with the directory of a daemon.
struct Disk {
    dir: TempDir,
    /// Process that holds the mount namespace; other processes enter it.
    holder: Child,
    as_root: bool,
}

impl Disk {
    /// `None`: mounting is not possible here.
    fn new(then: &str) -> Option<Self> {
        let dir = private_folder();
        let script = format!(
            "mount -t tmpfs -o size=8m,mode=700 tmpfs \"$1\" && {{ {then}; }} && echo there && exec cat"
        );
        [true, false]
            .into_iter()
            .find_map(|as_root| {
                let mut command = tool("unshare");
                command.arg(if as_root { "-m" } else { "-rm" });
                command.args(["sh", "-c", &script, "_"]).arg(dir.path());
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                command.stderr(Stdio::null());
                let mut holder = command.spawn().expect("unshare runs");
                let mut line = String::new();
                let said = holder.stdout.as_mut().expect("its output");
                BufReader::new(said).read_line(&mut line).expect("a line");
                if line == "there\n" {
                    return Some((holder, as_root));
                }
                holder.wait().expect("it has ended");
                None
            })
            .map(|(holder, as_root)| Disk {
                dir,
                holder,
                as_root,
            })
    }

    /// A program in the mount namespace of the disk.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = tool("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m"]);
        if !self.as_root {
            command.args(["-U", "--preserve-credentials"]);
        }
        command.arg(program).args(args);
        command.env("ABIDE_DIR", self.dir.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_abide"), args);
        command.output().expect("abide runs")
    }

    /// Result of a tool.
    fn call(&self, block: &str) -> Value {
        let command = self.command(env!("CARGO_BIN_EXE_abide"), &["call", "--json"]);
        said_to(command, block)
    }

    /// The same with a time limit: a daemon that hangs fails the test.
    fn call_within_a_minute(&self, block: &str) -> Value {
        let abide = env!("CARGO_BIN_EXE_abide");
        let command = self.command("timeout", &["60", abide, "call", "--json"]);
        said_to(command, block)
    }

    fn shell(&self, line: &str) {
        let script = format!("cd '{}'; {line}", self.dir.path().display());
        let _ = self.command("sh", &["-c", &script]).output();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        end_all(|args| self.command(env!("CARGO_BIN_EXE_abide"), args));
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

fn tool(name: &str) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    Command::new(name)
}

/// A disk, if one can be mounted.
fn disk(then: &str) -> Option<Disk> {
    let disk = Disk::new(then);
    if disk.is_none() {
        eprintln!("skipped: nothing can be mounted here");
    }
    disk
}

const TIMER: &str = "<tool name=\"timer\"><total_duration>100</total_duration>\
                     <mission>later</mission></tool>";
const SHELL: &str = "<tool name=\"shell\"><command>echo fine</command></tool>";

#[test]
fn m3_full_disk_refuses_changes_and_leaves_the_rest_unaffected() {
    let Some(disk) = disk("true") else {
        return;
    };
    let started = disk.run(&["session", "start", "--no-pty", "--json", "--", "cat"]);
    let started: Value = serde_json::from_slice(&started.stdout).expect("JSON");
    let session = started["session_id"].as_str().expect("an id");
    disk.shell("head -c 16m /dev/zero > fill");
    let refused = disk.call(TIMER);
    let said = refused["text"].as_str().unwrap_or_default();
    assert!(said.contains("storage_full"), "{refused}");
    let refused = disk.call(SHELL);
    assert_eq!(refused["status"], "FATAL_ERROR", "{refused}");
    assert_eq!(refused["return_code"], -2, "{refused}");
    let said = refused["error"].as_str().unwrap_or_default();
    assert!(said.contains("the disk is full"), "{refused}");
    let listed = disk.run(&["session", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains(session), "{listed}");
    let killed = disk.run(&["session", "kill", session]);
    assert!(killed.status.success(), "{killed:?}");
    disk.shell("rm fill");
    assert_eq!(disk.call(TIMER)["status"], "running");
    assert_eq!(disk.call(SHELL)["status"], "SUCCESS");
}

#[test]
fn m3_command_runs_after_space_is_freed() {
    let Some(disk) = disk("true") else {
        return;
    };
    assert_eq!(disk.call(SHELL)["status"], "SUCCESS");
    disk.shell("head -c 16m /dev/zero > fill");
    // More than the number of pre-forked keepers, so that the last ones need a new keeper.
    for _ in 0..8 {
        let refused = disk.call(SHELL);
        let said = refused["error"].as_str().unwrap_or_default();
        assert!(said.contains("the disk is full"), "{refused}");
    }
    disk.shell("rm fill");
    let first = disk.call(SHELL);
    assert_eq!(first["status"], "SUCCESS", "{first}");
}

#[test]
fn m3_space_for_the_ending_is_reserved_at_the_start() {
    let Some(disk) = disk("true") else {
        return;
    };
    let start = |words: usize| {
        let command = format!("exec cat # {}", "-".repeat(words));
        let started = disk.run(&["session", "start", "--no-pty", "--json", "--", &command]);
        let started: Value = serde_json::from_slice(&started.stdout).expect("JSON");
        started["session_id"].as_str().expect("an id").to_owned()
    };
    let length = |id: &str| {
        let count = disk.dir.path().join("sessions").join(id).join("meta");
        let count = disk.command("cat", &[count.to_str().expect("a path")]);
        let meta = { count }.output().expect("cat runs").stdout;
        let closing = meta.windows(10).position(|part| part == b"\nchecksum=");
        closing.expect("a record") + b"\nchecksum=00000000\n".len()
    };
    // The record fills a page except for a few bytes.
    let first = start(1);
    let second = start(2 * 4_096 - 40 - (length(&first) - 1));
    let left = 2 * 4_096 - length(&second);
    assert!((1..80).contains(&left), "{left} bytes are left of the page");
    disk.shell("head -c 16m /dev/zero > fill");
    let killed = disk.run(&["session", "kill", &second]);
    assert!(killed.status.success(), "{killed:?}");
    disk.run(&["stop"]);
    disk.shell("rm fill");
    let listed = disk.run(&["session", "list", "--all", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let mut sessions = listed["sessions"].as_array().expect("a list").iter();
    let found = sessions.find(|session| session["session_id"] == *second);
    assert_eq!(found.expect("it is known")["end"], "user", "{listed}");
}

#[test]
fn m4_output_lost_on_a_full_disk_is_counted_and_reported() {
    let Some(disk) = disk("true") else {
        return;
    };
    let flood = "<tool name=\"shell\"><command>head -c 20000000 /dev/zero; exit 3</command></tool>";
    let result = disk.call(flood);
    assert_eq!(result["exit_code"], 3, "{result}");
    assert_eq!(result["bytes_total"], 20_000_000, "{result}");
    assert!(result["bytes_dropped"].as_u64() > Some(0), "{result}");
    let said = result["text"].as_str().unwrap_or_default();
    assert!(said.contains("the disk did not take them"), "{said}");
}

/// A command that writes 100,000 bytes and a line end for each line of its input.
const WRITER: &str = "while read go; do head -c 100000 /dev/zero | tr '\\0' a; echo; done";

#[test]
fn m4_read_output_on_a_full_disk_reports_missing_output() {
    let Some(disk) = disk("true") else {
        return;
    };
    let started = disk.run(&["session", "start", "--no-pty", "--json", "--", WRITER]);
    let started: Value = serde_json::from_slice(&started.stdout).expect("JSON");
    let id = started["session_id"].as_str().expect("an id").to_owned();
    let write = || disk.run(&["session", "send", &id, "go\n"]);
    let read = format!(
        "<tool name=\"terminal_session\"><action>read_output</action><session_id>{id}</session_id>\
         <since>0</since></tool>"
    );
    let text = |result: &Value| result["text"].as_str().unwrap_or_default().to_owned();
    disk.shell("head -c 16m /dev/zero > fill");
    write();
    let missing = look_for("the missing bytes", || {
        let result = disk.call_within_a_minute(&read);
        text(&result)
            .contains("bytes are missing from the log")
            .then_some(result)
    });
    assert!(missing["bytes_dropped"].as_u64() > Some(0), "{missing}");
    assert_eq!(missing["status"], "running", "{missing}");
    // Other calls are answered; this one is answered once there is free space.
    let listed = disk.run(&["session", "list"]);
    assert!(listed.status.success(), "{listed:?}");
    disk.shell("rm fill");
    write();
    let kept = look_for("output that is kept again", || {
        let result = disk.call_within_a_minute(&read);
        text(&result).contains("aaaaaaaaaa").then_some(result)
    });
    assert!(kept["bytes_dropped"].as_u64() > Some(0), "{kept}");
    assert!(kept["bytes_dropped"].as_u64() < kept["bytes_total"].as_u64());
    assert_eq!(disk.call(SHELL)["status"], "SUCCESS");
}

#[test]
fn m5_read_only_disk_refuses_the_start_with_one_line() {
    let Some(disk) = disk("mount -o remount,ro \"$1\"") else {
        return;
    };
    let out = disk.run(&["status"]);
    assert_eq!(out.status.code(), Some(125), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("Read-only file system"), "{said}");
}

#[test]
fn f46_full_disk_here_leaves_timers_in_postgres_unaffected() {
    let server = Server::start();
    let Some(disk) = disk("true") else {
        return;
    };
    disk.shell(&format!(
        "echo 'store = \"{}\"' > config.toml",
        server.url()
    ));
    let made = |text: &str| {
        look_for("a timer that can be made", || {
            let made = disk.call(text);
            made["timer_id"].as_str().map(str::to_owned)
        })
    };
    let first = made(TIMER);
    disk.shell("head -c 100000000 /dev/zero > ballast");
    let second = made(TIMER);
    let soon =
        "<tool name=\"timer\"><total_duration>0.2</total_duration><mission>soon</mission></tool>";
    let third = made(soon);
    look_for("its completion", || {
        let ended = "SELECT id FROM abide.timer WHERE status = 'completed'";
        (server.sql(ended) == third).then_some(())
    });
    let mut known = [first, second, third];
    known.sort();
    let stored = server.sql("SELECT id FROM abide.timer ORDER BY id");
    assert_eq!(stored.lines().collect::<Vec<_>>(), known);
    disk.shell("rm ballast");
    let ran = disk.call(SHELL);
    assert_eq!(ran["status"], "SUCCESS", "{ran}");
}
