//! Tests that kill the daemon at every step, and keepers too. The prefix of a test name (`k14`) is the number of the
//! fault.

mod callers;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
mod damage;
mod database;
mod disk;
#[expect(dead_code, reason = "each test program uses a part")]
mod harness;
mod identity;
mod inside;
mod memory;
mod stopped;
mod unprivileged;

use std::io::{BufRead, Write};
use std::os::unix::net::UnixListener;

use abide_session::proc;
use common::process::Process;
use harness::{Abide, line_with, look_for, parent, pids_of, receive, wait_for_pid};
use serde_json::{Value, json};

/// Command that appends one line to `file`, so that the test can count its runs.
fn counting(abide: &Abide, file: &str) -> String {
    format!("echo ran >> {}; echo output", abide.path(file).display())
}

fn runs(abide: &Abide, file: &str) -> usize {
    std::fs::read_to_string(abide.path(file)).map_or(0, |text| text.lines().count())
}

/// Sends a call with an idempotency key to a daemon that crashes at `point`, then again to a healthy daemon.
fn crash_then_retry(point: &str) -> (Abide, Value) {
    let abide = Abide::new();
    abide.start_to_crash_at(point);
    let daemon = Process::on(abide.pid());
    let call = json!({"command": counting(&abide, "runs"), "idempotency_key": "once"});
    assert!(
        abide.try_post("/v1/tools/shell", &call).is_none(),
        "the daemon was to die at {point}"
    );
    daemon.wait_gone();
    abide.start();
    let answer = abide.post("/v1/tools/shell", &call);
    assert_eq!(answer.status, 200, "{}", answer.body);
    (abide, answer.body)
}

fn ran_once(abide: &Abide, result: &Value) {
    assert_eq!(runs(abide, "runs"), 1, "{result}");
    assert_eq!(result["status"], "SUCCESS", "{result}");
    assert_eq!(result["exit_code"], 0, "{result}");
    assert!(
        result["text"]
            .as_str()
            .unwrap_or_default()
            .contains("STDOUT:\noutput\n"),
        "{result}"
    );
}

#[test]
fn k1_daemon_killed_before_the_keeper_got_the_command() {
    let (abide, result) = crash_then_retry("session.pre_start");
    ran_once(&abide, &result);
}

#[test]
fn k2_k3_daemon_killed_after_the_keeper_got_the_command() {
    let (abide, result) = crash_then_retry("session.post_start");
    ran_once(&abide, &result);
}

/// The keeper got its command just before the daemon died, and is slow to record it.
#[test]
fn k2_k3_starting_command_is_recovered_by_the_next_daemon() {
    let abide = Abide::started();
    let call = json!({"command": counting(&abide, "runs"), "idempotency_key": "once"});
    let result = abide.post("/v1/tools/shell", &call).body;
    let session = result["session_id"].as_str().expect("an id");
    let folder = abide.path("sessions").join(session);
    let meta = abide_session::keeper_record::read_meta(&folder).expect("it is read");
    let keeper = meta.expect("a record").keeper.pid;
    let keeper = Process::if_alive(i32::try_from(keeper).expect("a pid"));
    abide.kill_daemon();
    // The real keeper removes its socket when it has noticed that the daemon is gone.
    if let Some(keeper) = keeper {
        keeper.wait_gone();
    }
    // A keeper writes its record before it answers the next daemon. The test plays a slow keeper that does so late.
    let (meta, aside) = (folder.join("meta"), abide.path("meta"));
    std::fs::rename(&meta, &aside).expect("a record");
    let slow = UnixListener::bind(folder.join("ctl")).expect("a keeper's socket");
    let keeper = std::thread::spawn(move || {
        let (mut stream, _) = slow.accept().expect("a daemon");
        std::fs::rename(&aside, &meta).expect("a record");
        stream.write_all(b"here").expect("it listens");
    });
    abide.start();
    let again = abide.post("/v1/tools/shell", &call).body;
    assert_eq!(again["session_id"], session, "{again}");
    ran_once(&abide, &again);
    keeper.join().expect("it was asked");
}

#[test]
fn k8_daemon_killed_before_the_result_was_sent() {
    let (abide, result) = crash_then_retry("reply.pre_send");
    ran_once(&abide, &result);
}

#[test]
fn k4_running_command_continues_and_loses_no_byte() {
    let abide = Abide::new();
    let (go, ready) = (abide.fifo("go"), abide.fifo("ready"));
    abide.start();
    let command = format!(
        "seq 1 20000; echo > {}; read _ < {}; seq 20001 40000; exit 7",
        ready.display(),
        go.display()
    );
    let call =
        json!({"command": command, "idempotency_key": "k4", "max_output": 1_000_000, "raw": true});
    let lost = abide.begin("/v1/tools/shell", &call);
    std::fs::read(&ready).expect("the command is halfway");
    abide.kill_daemon();
    assert!(receive(lost).is_none());
    abide.start();
    let again = abide.begin("/v1/tools/shell", &call);
    std::fs::write(&go, "\n").expect("the command goes on");
    let result = receive(again).expect("an answer").body;
    assert_eq!(result["exit_code"], 7, "{}", result["status"]);
    let expected: String = (1..=40_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(result["bytes_total"], expected.len());
    let text = result["text"].as_str().expect("text");
    assert!(
        text.contains(expected.trim_end()),
        "the output has a gap or a repetition"
    );
}

#[test]
fn k9_answer_whose_daemon_dies_after_it_was_stored_is_reported_as_taken() {
    let abide = Abide::new();
    abide.start_to_crash_at("question.close.post");
    let daemon = Process::on(abide.pid());
    let mut watching = abide.watch();
    let call = json!({"command": "sleep 999", "timeout": 0.2});
    let asking = abide.begin("/v1/tools/execute_command", &call);
    let asked = line_with(&mut watching, "question_id");
    let asked: Value = serde_json::from_str(&asked).expect("JSON");
    let question = asked["question_id"].as_str().expect("an id");
    let answered = abide.output(["answer", question, "no"]);
    daemon.wait_gone();
    drop(asking);
    assert!(answered.status.success(), "{answered:?}");
    let second = abide.output(["answer", question, "no"]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("already answered"), "{said}");
}

#[test]
fn k9_question_keeps_its_id_and_is_answered_once() {
    let abide = Abide::new();
    abide.start_to_crash_at("ask.pending");
    let daemon = Process::on(abide.pid());
    let watching = abide.watch();
    let command = format!("sleep 3141{}", std::process::id());
    let call = json!({"command": command, "timeout": 0.2, "idempotency_key": "k9"});
    let asking = abide.begin("/v1/tools/execute_command", &call);
    daemon.wait_gone();
    drop((watching, asking));
    abide.start();
    let open = abide.get("/v1/questions");
    let question = open["questions"][0]["question_id"]
        .as_str()
        .expect("it is still open")
        .to_owned();
    let _watching = abide.watch();
    let asking = abide.begin("/v1/tools/execute_command", &call);
    let answer = format!("/v1/questions/{question}/answer");
    let first = abide.post(&answer, &json!({"answer": "no"}));
    assert_eq!(first.status, 200, "{}", first.body);
    let second = abide.post(&answer, &json!({"answer": "yes"}));
    assert_eq!(second.status, 409, "{}", second.body);
    let result = receive(asking).expect("the call is answered").body;
    assert_eq!(result["end"], "idle_declined", "{result}");
    assert!(
        result["text"]
            .as_str()
            .unwrap_or_default()
            .contains("command execution timeout: no output for 200ms"),
        "{result}"
    );
    assert!(pids_of(&command).is_empty());
}

/// A session whose leader is `sleep`, with its processes.
struct Sleeper {
    session: String,
    line: String,
    child: Process,
    keeper: Process,
}

fn sleeper(abide: &Abide, mark: &str) -> Sleeper {
    let line = format!("sleep {mark}{}", std::process::id());
    // No person watches, so the call returns as soon as the idle limit is reached.
    let call = json!({"command": format!("exec {line}"), "timeout": 0.05});
    let result = abide.post("/v1/tools/execute_command", &call).body;
    assert_eq!(result["status"], "running", "{result}");
    let session = result["session_id"].as_str().expect("a session").to_owned();
    // The process may still be the shell that executes `sleep`.
    let pid = wait_for_pid(&line);
    Sleeper {
        session,
        line,
        child: Process::on(pid),
        keeper: Process::on(parent(pid)),
    }
}

impl Sleeper {
    fn is_lost_and_gone(&self, abide: &Abide, least: Option<f64>) {
        self.child.wait_gone();
        // A kill of a session that has ended is answered with its ending.
        abide.kill_session(&self.session);
        let view = abide.get(&format!("/v1/sessions/{}", self.session));
        assert_eq!(view["end"], "lost", "{view}");
        assert!(view["duration"].as_f64() >= least, "{view}");
        assert_eq!(view["exit_code"], Value::Null, "{view}");
        assert!(pids_of(&self.line).is_empty());
    }
}

#[test]
fn k14_killed_keeper_ends_its_tree_and_the_exit_is_unknown() {
    let abide = Abide::started();
    let sleeper = sleeper(&abide, "2718");
    sleeper.keeper.kill();
    // The exit status is unknown, but the command ran at least for its idle limit.
    sleeper.is_lost_and_gone(&abide, Some(0.05));
}

#[test]
fn k14_background_processes_end_with_their_keeper_and_the_fork_server() {
    let abide = Abide::started();
    let line = format!("sleep 1414{}", std::process::id());
    let call = json!({"command": format!("{line} & echo")});
    let result = abide.post("/v1/tools/shell", &call).body;
    if result["contained_by"] == "subreaper" {
        eprintln!("skipped: there are no control groups here");
        return;
    }
    let left = wait_for_pid(&line);
    let keeper = parent(left);
    let (left, fork_server) = (Process::on(left), Process::on(parent(keeper)));
    let keeper = Process::on(keeper);
    fork_server.kill();
    fork_server.wait_gone();
    keeper.kill();
    left.wait_gone();
}

/// C source of a library for `LD_PRELOAD`: while the file named by the variable `DEAD_FOLDER` exists, `chdir` to a
/// folder `dead` blocks, as on a file server that does not respond.
const DEAD_FOLDER: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int chdir(const char *path) {
    const char *mark = getenv("DEAD_FOLDER"), *name = strrchr(path, '/');
    while (mark && name && !strcmp(name, "/dead") && !access(mark, F_OK)) sleep(1);
    return syscall(SYS_chdir, path);
}
"#;

#[test]
fn k14_keeper_that_hangs_before_the_start_is_given_up() {
    let abide = Abide::new();
    std::fs::write(abide.path("config.toml"), "idle_keepers = 1\n").expect("a configuration");
    let mark = common::shim::start_on(&abide, DEAD_FOLDER, "DEAD_FOLDER");
    std::fs::write(mark, "").expect("a mark");
    let dead = abide.path("dead");
    std::fs::create_dir(&dead).expect("a folder");
    let keeper = look_for("a keeper that was made in advance", || {
        let fork_server = *proc::children(abide.pid()).first()?;
        proc::children(fork_server).first().copied()
    });
    let keeper = Process::on(keeper);
    let call = json!({"command": "echo ran", "cwd": dead, "timeout": 1});
    let result = abide.post("/v1/tools/shell", &call).body;
    assert_eq!(result["status"], "FATAL_ERROR", "{result}");
    let said = result["error"].as_str().unwrap_or_default();
    assert!(said.contains("does not answer"), "{result}");
    keeper.wait_gone();
    let call = json!({"command": "echo ran"});
    let next = abide.post("/v1/tools/shell", &call).body;
    assert_eq!(next["status"], "SUCCESS", "{next}");
}

#[test]
fn k15_killed_keeper_and_daemon_leave_no_process() {
    for keeper_first in [false, true] {
        let abide = Abide::started();
        let sleeper = sleeper(&abide, "1618");
        let daemon = Process::on(abide.pid());
        if keeper_first {
            sleeper.keeper.kill();
            daemon.kill();
        } else {
            daemon.kill();
            sleeper.keeper.kill();
        }
        daemon.wait_gone();
        abide.start();
        sleeper.is_lost_and_gone(&abide, Some(0.0));
    }
}

#[test]
fn s13_a_command_cannot_answer_its_own_question() {
    let abide = Abide::started();
    let mut watching = abide.watch();
    let answers = abide.path("answers");
    let script = format!(
        "read q < {}; ABIDE_DIR={} {} answer $q yes >{} 2>&1; echo $? >> {}; exec sleep 9999",
        abide.fifo("q").display(),
        abide.dir().display(),
        env!("CARGO_BIN_EXE_abide"),
        answers.display(),
        abide.fifo("done").display(),
    );
    let call = json!({"command": script, "timeout": 0.2});
    let asking = abide.begin("/v1/tools/execute_command", &call);
    let line = line_with(&mut watching, "question_");
    let asked: Value = serde_json::from_str(&line).expect("JSON");
    let question = asked["question_id"].as_str().expect("an id").to_owned();
    std::fs::write(abide.path("q"), format!("{question}\n")).expect("the command hears the id");
    let code = std::io::BufReader::new(std::fs::File::open(abide.path("done")).expect("a fifo"))
        .lines()
        .next()
        .expect("a line")
        .expect("a line");
    assert_ne!(code, "0");
    let said = std::fs::read_to_string(&answers).expect("what it was told");
    assert!(said.contains("only a person can"), "{said}");
    let answer = format!("/v1/questions/{question}/answer");
    let ours = abide.post(&answer, &json!({"answer": "no"}));
    assert_eq!(ours.status, 200, "{}", ours.body);
    receive(asking).expect("the call is answered");
}

#[test]
fn answers_and_changed_limits_survive_a_restart() {
    let abide = Abide::started();
    let mut watching = abide.watch();
    let quiet = |key: &str| json!({"command": "sleep 999", "timeout": 0.2, "idempotency_key": key});
    let first = abide.begin("/v1/tools/execute_command", &quiet("first"));
    let asked: Value =
        serde_json::from_str(&line_with(&mut watching, "question_")).expect("a question");
    let session = asked["session_id"].as_str().expect("an id").to_owned();
    let question = asked["question_id"].as_str().expect("an id");
    let answered = abide.post(
        &format!("/v1/questions/{question}/answer"),
        &json!({"answer": "yes", "quiet_for": 600}),
    );
    assert_eq!(answered.status, 200);
    let moved = abide.post(
        &format!("/v1/sessions/{session}/extend"),
        &json!({"timeout": 500}),
    );
    let limit = moved.body["timeout"].clone();
    assert!(limit.as_f64() >= Some(500.2), "{limit}");
    abide.kill_daemon();
    drop((watching, first));
    abide.start();
    let view = abide.get(&format!("/v1/sessions/{session}"));
    assert_eq!(view["timeout"], limit, "{view}");
    let mut watching = abide.watch();
    let _first = abide.begin("/v1/tools/execute_command", &quiet("first"));
    // The second session becomes idle after the first, about which no question may be asked.
    let _second = abide.begin("/v1/tools/execute_command", &quiet("second"));
    let asked: Value =
        serde_json::from_str(&line_with(&mut watching, "question_")).expect("a question");
    assert_ne!(asked["session_id"], session.as_str(), "{asked}");
}
