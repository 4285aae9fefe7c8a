//! Only a person may answer: a command with a reused pid, an unreadable process or a new parent is still recognised
//! as a command. The process tree is killed whatever happens to its keeper.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::common::fifo;
use crate::common::process::Process;
use crate::harness::{Abide, line_with, look_for, receive};
use crate::unprivileged::{Unprivileged, is_root};

/// Builds the program that calls the daemon for the tests.
pub fn speaker(folder: &Path) -> PathBuf {
    let program = folder.join("speaker");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/speaker.c");
    #[expect(
        clippy::disallowed_methods,
        reason = "the compiler that builds SQLite too"
    )]
    let mut compiler = Command::new("cc");
    let done = compiler.arg("-o").arg(&program).arg(source).status();
    assert!(done.expect("a compiler").success());
    program
}

/// A process that is killed at the end of the test.
struct Helper(Child);

impl Helper {
    /// Starts the process and waits for its first line; `None`: it exited without one.
    fn start(mut command: Command) -> Option<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut helper = Helper(child.expect("it runs"));
        let mut line = String::new();
        let out = helper.0.stdout.as_mut().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        (!line.is_empty()).then_some(helper)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn s13_command_whose_pid_was_reused_cannot_answer() {
    if !is_root() {
        eprintln!("skipped: only root chooses the number of a process");
        return;
    }
    let abide = Abide::started();
    let program = speaker(abide.dir());
    let mut watching = abide.watch();
    for name in ["number", "request", "answer"] {
        fifo::make(&abide.path(name));
    }
    let command = format!(
        "{} leave {} {} {} {}; exec sleep 9999",
        program.display(),
        abide.path("run/http.sock").display(),
        abide.path("number").display(),
        abide.path("request").display(),
        abide.path("answer").display(),
    );
    let call = json!({"command": command, "timeout": 0.2});
    let asking = abide.begin("/v1/tools/execute_command", &call);
    let number = std::fs::read_to_string(abide.path("number")).expect("its number");
    let number = number.trim();
    let asked: Value =
        serde_json::from_str(&line_with(&mut watching, "question_")).expect("a question");
    let question = asked["question_id"].as_str().expect("an id");
    look_for("the end of the one that connected", || {
        let gone = !Path::new(&format!("/proc/{number}")).exists();
        gone.then_some(())
    });
    #[expect(clippy::disallowed_methods, reason = "the program of this test")]
    let mut take = Command::new(&program);
    take.args(["take", number]);
    let Some(_stranger) = Helper::start(take) else {
        eprintln!("skipped: the number {number} could not be had");
        return;
    };
    let path = format!("/v1/questions/{question}/answer");
    let body = json!({"answer": "yes"}).to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: abide\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::fs::write(abide.path("request"), request).expect("it is read");
    let said = std::fs::read_to_string(abide.path("answer")).expect("an answer");
    assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
    let ours = abide.post(&path, &json!({"answer": "no"}));
    assert_eq!(ours.status, 200);
    receive(asking).expect("the call is answered");
}

/// A request for a login link on behalf of a person, in a file.
fn link_request(abide: &Unprivileged) -> (String, PathBuf) {
    let read = |name: &str| std::fs::read_to_string(abide.dir().join(name)).expect(name);
    let (address, token) = (read("run/http.address"), read("token"));
    let request = format!(
        "POST /v1/logins HTTP/1.0\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         abide-person: true\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    let path = abide.dir().join("request");
    std::fs::write(&path, request).expect("a request");
    abide.open_to_all(&path);
    let port = address.rsplit(':').next().expect("a port").to_owned();
    (port, path)
}

#[test]
fn s14_connection_parked_in_a_message_gets_no_login_while_an_unreadable_process_runs() {
    let abide = Unprivileged::new();
    drop(abide.daemon());
    let program = speaker(abide.dir());
    let hidden = Helper::start(abide.command_of(&program, &["hide"]));
    let _hidden = hidden.expect("a process that nobody can look into");
    let (port, request) = link_request(&abide);
    let line = format!("{} park {port} {}", program.display(), request.display());
    let ran = abide.json(&["run", "--json", "--", &line]);
    let said = ran["stdout"].as_str().expect("an answer");
    assert!(said.contains("403 Forbidden"), "{said}");
    assert!(!said.contains("#login="), "{said}");
}

/// A control group that only root may join.
struct Group(PathBuf);

impl Group {
    fn make() -> Option<Self> {
        let own = abide_session::cgroup::own_folder()?;
        let path = own.join(format!("abide-test-tunnel-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Group(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn process_in_a_cgroup_closed_to_commands_counts_as_a_person() {
    let Some(group) = Group::make().filter(|_| is_root()) else {
        eprintln!("skipped: no control group can be made that others cannot enter");
        return;
    };
    let abide = Unprivileged::new();
    drop(abide.daemon());
    let program = speaker(abide.dir());
    let (port, request) = link_request(&abide);
    #[expect(clippy::disallowed_methods, reason = "the program of this test")]
    let mut tunnel = Command::new(&program);
    tunnel.args(["tunnel", &port]).arg(&request);
    tunnel.arg(group.0.join("cgroup.procs"));
    let out = tunnel.output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("#login="), "{said}");
    // The same process in the control group of commands could be one of them.
    let words = ["tunnel", &port, &request.display().to_string()];
    let out = abide
        .command_of(&program, &words)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("403 Forbidden"), "{said}");
    assert!(said.contains("abide answer"), "{said}");
}

#[test]
fn s13_command_that_killed_its_keeper_and_the_fork_server_gets_no_login_link() {
    let abide = Unprivileged::new();
    drop(abide.daemon());
    let [ready, go, out] = ["ready", "go", "out"].map(|name| abide.fifo(name));
    // The environment does not identify it either.
    let script = format!(
        "env -i setsid sh -c 'echo $$ > {ready}; read keeper server < {go}; kill -9 $server $keeper; \
         while test \"$(cut -d\" \" -f4 /proc/$$/stat)\" = $keeper; do :; done; \
         ABIDE_DIR={dir} {dir}/abide open --print > {dir}/said 2>&1' & \
         echo $PPID > {out}; exec sleep 9999",
        ready = ready.display(),
        go = go.display(),
        out = out.display(),
        dir = abide.dir().display(),
    );
    abide.json(&["session", "start", "--no-pty", "--json", "--", &script]);
    let number = |path: &Path| -> i32 {
        let text = std::fs::read_to_string(path).expect("a number");
        text.trim().parse().expect("a number")
    };
    let attacker = Process::on(number(&ready));
    let keeper = number(&out);
    let server = crate::parent(keeper);
    std::fs::write(&go, format!("{keeper} {server}\n")).expect("it goes on");
    attacker.wait_gone();
    let said = std::fs::read_to_string(abide.dir().join("said")).unwrap_or_default();
    assert!(!said.contains("#login="), "{said}");
}
