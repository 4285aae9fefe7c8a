//! A command that stops its own keeper does not escape its limits: the daemon kills it.

use abide_session::proc;
use serde_json::{Value, json};

use crate::common::fifo;
use crate::common::process::Process;
use crate::harness::{Abide, pids_of};
use crate::unprivileged::Unprivileged;

/// Stops the keeper, and before it the fork server, which would continue it.
const STOP: &str = "server=$(cut -d' ' -f4 /proc/$PPID/stat); kill -STOP $server $PPID";

/// Generous upper limit, below the time that a client waits.
const SOON: std::time::Duration = std::time::Duration::from_secs(20);

#[expect(
    clippy::disallowed_methods,
    reason = "the finding is that the answer does not come"
)]
fn soon<T>(act: impl FnOnce() -> T) -> T {
    let begun = std::time::Instant::now();
    let done = act();
    let took = begun.elapsed();
    assert!(took < SOON, "it took {took:?}");
    done
}

#[test]
fn command_that_stops_its_keeper_is_answered_like_any_other() {
    let abide = Abide::started();
    let call =
        json!({"command": "echo before; kill -STOP $PPID; echo after; exit 3", "timeout": 600});
    let told = soon(|| abide.post("/v1/tools/shell", &call).body);
    assert_eq!(told["exit_code"], 3, "{told}");
    let text = told["text"].as_str().expect("a text");
    assert!(text.contains("STDOUT:\nbefore\nafter\n"), "{text}");
}

#[test]
fn hard_limit_ends_a_command_that_stopped_its_keeper() {
    let abide = Abide::started();
    let sleep = format!("sleep 4001{}", std::process::id());
    let command = format!("echo before; {STOP}; echo after; setsid {sleep} & {sleep}");
    let call = json!({"command": command, "timeout": 1});
    let told = soon(|| abide.post("/v1/tools/shell", &call).body);
    is_timed_out(&told);
    assert!(pids_of(&sleep).is_empty());
    // The fork server continues too.
    for _ in 0..8 {
        let call = json!({"command": "true"});
        let told = soon(|| abide.post("/v1/tools/shell", &call).body);
        assert_eq!(told["status"], "SUCCESS", "{told}");
    }
}

#[test]
fn hard_limit_ends_a_command_that_stops_its_keeper_repeatedly() {
    let abide = Unprivileged::new();
    let sleep = format!("sleep 4002{}", std::process::id());
    let block = format!(
        "<tool name=\"shell\"><command><![CDATA[echo before; {STOP}; echo after; \
         setsid {sleep} & while :; do kill -STOP $PPID; done]]></command><timeout>1</timeout></tool>"
    );
    let told = soon(|| abide.call(&block));
    assert_eq!(told["contained_by"], "subreaper", "{told}");
    is_timed_out(&told);
    assert!(pids_of(&sleep).is_empty());
}

fn is_timed_out(told: &Value) {
    assert_eq!(told["status"], "TIMEOUT_ERROR", "{told}");
    assert_eq!(told["return_code"], -1, "{told}");
    assert_eq!(told["end"], "deadline", "{told}");
    let text = told["text"].as_str().expect("a text");
    assert!(text.contains("STDOUT:\nbefore\nafter\n"), "{text}");
}

#[test]
fn kill_ends_a_session_whose_keeper_was_stopped() {
    for plain in [false, true] {
        let (abide, user) = (Abide::new(), Unprivileged::new());
        let sleep = format!("sleep 4003{}", std::process::id());
        let pipe = |name: &str| {
            if plain {
                return user.fifo(name);
            }
            let path = abide.path(name);
            fifo::make(&path);
            path
        };
        // The keeper reports the start before it is stopped.
        let (started_pipe, stopped_pipe) = (pipe("started"), pipe("stopped"));
        let command = format!(
            "cat {}; echo before; {STOP}; echo > {}; {sleep}",
            started_pipe.display(),
            stopped_pipe.display()
        );
        let start = ["session", "start", "--no-pty", "--json", "--", &command];
        let out = |args: &[&str]| {
            let mut command = if plain {
                user.command(args)
            } else {
                abide.command(args)
            };
            let out = command.output().expect("abide runs");
            let json = serde_json::from_slice::<Value>(&out.stdout);
            json.unwrap_or_else(|_| panic!("{args:?}: {out:?}"))
        };
        let started = out(&start);
        let session = started["session_id"].as_str().expect("an id");
        std::fs::write(&started_pipe, "").expect("the command reads it");
        std::fs::read(&stopped_pipe).expect("its keeper is stopped");
        let ended = soon(|| out(&["session", "kill", "--json", session]));
        assert_eq!(ended["end"], "user", "{ended}");
        assert!(pids_of(&sleep).is_empty());
    }
}

#[test]
fn limit_of_a_stopped_keepers_session_holds_across_a_daemon_restart() {
    let abide = Abide::started();
    let sleep = format!("sleep 4004{}", std::process::id());
    let ready = abide.path("ready");
    fifo::make(&ready);
    let command = format!("{STOP}; echo > {}; {sleep}", ready.display());
    let call = json!({"command": command, "timeout": 3, "idempotency_key": "k"});
    let lost = abide.begin("/v1/tools/shell", &call);
    std::fs::read(&ready).expect("its keeper is stopped");
    abide.kill_daemon();
    drop(lost);
    abide.start();
    let told = soon(|| abide.post("/v1/tools/shell", &call).body);
    assert_eq!(told["status"], "TIMEOUT_ERROR", "{told}");
    assert_eq!(told["end"], "deadline", "{told}");
    assert!(pids_of(&sleep).is_empty());
}

#[test]
fn stopped_fork_server_exits_after_its_daemon_was_killed() {
    let abide = Abide::started();
    let done = abide
        .post("/v1/tools/shell", &json!({"command": "true"}))
        .body;
    assert_eq!(done["status"], "SUCCESS", "{done}");
    let pid = *proc::children(abide.pid()).first().expect("a fork server");
    let fork_server = Process::on(pid);
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is stopped");
    abide.kill_daemon();
    fork_server.wait_gone();
}

#[test]
fn keeper_that_cannot_be_continued_is_killed_and_the_ending_is_the_limits() {
    let Some(frozen) = Frozen::make() else {
        eprintln!("skipped: no freezer group of the first version");
        return;
    };
    let abide = Abide::started();
    let sleep = format!("sleep 4005{}", std::process::id());
    let call = json!({"command": format!("echo before; exec {sleep}"), "timeout": 3});
    let asking = abide.begin("/v1/tools/shell", &call);
    let keeper = crate::parent(crate::harness::wait_for_pid(&sleep));
    let keeper = (keeper, Process::on(keeper));
    frozen.take(keeper.0);
    let told = soon(|| crate::harness::receive(asking).expect("an answer").body);
    assert_eq!(told["status"], "TIMEOUT_ERROR", "{told}");
    assert_eq!(told["exit_code"], Value::Null, "{told}");
    assert!(pids_of(&sleep).is_empty());
    drop(frozen);
    keeper.1.wait_gone();
}

/// A control group whose processes are stopped.
struct Frozen(std::path::PathBuf);

impl Frozen {
    fn make() -> Option<Self> {
        let name = format!("abide-test-frozen-{}", std::process::id());
        let path = std::path::Path::new("/sys/fs/cgroup/freezer").join(name);
        std::fs::create_dir(&path).ok()?;
        std::fs::write(path.join("freezer.state"), "FROZEN").ok()?;
        Some(Frozen(path))
    }

    fn take(&self, pid: i32) {
        std::fs::write(self.0.join("tasks"), pid.to_string()).expect("it is moved");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        let tasks = std::fs::read_to_string(self.0.join("tasks")).unwrap_or_default();
        for task in tasks.lines() {
            let _ = std::fs::write("/sys/fs/cgroup/freezer/tasks", task);
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}
