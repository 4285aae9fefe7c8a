//! The same as an unprivileged user: without control groups, the process tree is found through subreapers. If the
//! tests run as root, the program drops its privileges.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::fifo;
use crate::common::home::private_folder;
use crate::common::process::Process;
use crate::harness::{end_all, pids_of, said_to, wait_for_pid};

/// User id of `nobody`.
const NOBODY: u32 = 65_534;

/// The program as an unprivileged user.
pub struct Unprivileged {
    dir: TempDir,
    program: PathBuf,
}

impl Unprivileged {
    pub fn new() -> Self {
        let dir = private_folder();
        let program = dir.path().join("abide");
        let built = env!("CARGO_BIN_EXE_abide");
        let for_all = |mode: u32| mode & 0o005 == 0o005;
        let is_for_all = std::fs::metadata(built).is_ok_and(|found| for_all(found.mode()));
        // The build directory and the program may not be readable for other users.
        if !is_for_all || std::fs::hard_link(built, &program).is_err() {
            copy(Path::new(built), &program);
            open_to_all(&program, 0o755);
        }
        if is_root() {
            std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
        }
        let config = dir.path().join("config.toml");
        // Some systems delegate control groups even to `nobody`.
        std::fs::write(&config, "containment = \"subreaper\"\n").expect("a configuration");
        open_to_all(&config, 0o644);
        Unprivileged { dir, program }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(&self.program, args)
    }

    /// The same, started through another program.
    pub fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut command = Command::new(program);
        command
            .args(args)
            .env("ABIDE_DIR", self.dir.path())
            .env("HOME", self.dir.path())
            .current_dir(self.dir.path());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let out = self.command(args).output().expect("abide runs");
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{args:?}: {out:?}"))
    }

    /// Result of a tool.
    pub fn call(&self, block: &str) -> Value {
        said_to(self.command(&["call", "--json"]), block)
    }

    pub fn daemon(&self) -> Process {
        let status = self.json(&["status", "--json"]);
        let pid = status["daemon"]["pid"].as_i64().expect("a pid");
        Process::on(i32::try_from(pid).expect("a pid"))
    }

    /// A named pipe through which a command reports its progress.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fifo::make(&path);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("chmod");
        path
    }

    /// Makes a file of the test readable for the unprivileged user.
    pub fn open_to_all(&self, path: &Path) {
        open_to_all(path, 0o644);
    }

    /// Copies a setuid-root program into the directory, if that is possible.
    fn rooted(&self) {
        let program = self.dir.path().join("rooted");
        copy(Path::new("/usr/bin/setpriv"), &program);
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("chmod");
    }

    /// A session with a family of processes that are running.
    fn family(&self, mark: &str) -> Family {
        let names = Names::new(mark);
        let ready = self.fifo(&format!("ready{mark}"));
        let line = format!(
            "{}; echo > {}; exec sleep {}",
            names.birth(),
            ready.display(),
            names.of(0)
        );
        let started = self.json(&["session", "start", "--no-pty", "--json", "--", &line]);
        assert_eq!(started["contained_by"], "subreaper", "{started}");
        std::fs::read(&ready).expect("the family is there");
        let members = names.members();
        assert_eq!(members.len(), KINDS, "{members:?}");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", names.leader())).expect("stat");
        let parent = stat.rsplit(')').next().expect("what follows its name");
        let parent = parent.split_whitespace().nth(1).expect("its parent");
        Family {
            session: started["session_id"].as_str().expect("an id").to_owned(),
            keeper: Process::on(parent.parse().expect("a number")),
            keeper_pid: parent.parse().expect("a number"),
            members: members.into_iter().map(Process::on).collect(),
            names,
        }
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        end_all(|args| self.command(args));
    }
}

/// Copies a program in another process: a file that is open for writing cannot be executed, and a child that another
/// test is starting could inherit the descriptor.
fn copy(from: &Path, to: &Path) {
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.expect("cp runs").success());
}

/// Makes a file accessible to other users, regardless of the umask.
fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
}

/// Returns whether the tests run as root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Number of kinds of descendants in a family.
const KINDS: usize = 7;

/// Names of the members of a family: no other process has such a command line.
struct Names(String);

impl Names {
    fn new(mark: &str) -> Self {
        Names(format!("{mark}{}", std::process::id()))
    }

    fn of(&self, kind: usize) -> String {
        format!("{}.{kind}", self.0)
    }

    /// A plain child, one in its own session, an orphan, one that ignores signals, one that is stopped, one without
    /// environment and streams that ignores signals, and one whose parent is stopped.
    fn birth(&self) -> String {
        let [a, b, c, d, e, f, g] = [1, 2, 3, 4, 5, 6, 7].map(|kind| self.of(kind));
        let deaf = "trap \"\" TERM HUP INT";
        format!(
            "sleep {a} & setsid sleep {b} & (setsid sleep {c} &); ({deaf}; exec sleep {d}) & \
             setsid sleep {e} & still=$!; ({deaf}; exec env -i setsid sleep {f} <&- >&- 2>&-) & \
             (sleep {g} & wait) & held=$!; \
             while test $(pgrep -fc \"^sleep {}[.][1-7]$\") -lt {KINDS}; do :; done; \
             kill -STOP $still $held",
            self.0
        )
    }

    fn members(&self) -> Vec<i32> {
        (1..=KINDS)
            .flat_map(|kind| pids_of(&format!("sleep {}", self.of(kind))))
            .collect()
    }

    fn leader(&self) -> i32 {
        // It reports that it is ready right before it executes this program.
        wait_for_pid(&format!("sleep {}", self.of(0)))
    }
}

struct Family {
    session: String,
    keeper: Process,
    keeper_pid: i32,
    members: Vec<Process>,
    names: Names,
}

impl Family {
    fn is_gone(&self) {
        for member in &self.members {
            member.wait_gone();
        }
        assert!(self.names.members().is_empty());
    }
}

#[test]
fn m19_deadline_kills_all_descendants() {
    let abide = Unprivileged::new();
    let names = Names::new("3001");
    let ready = abide.fifo("ready");
    let block = format!(
        "<tool name=\"shell\"><command><![CDATA[{}; echo all; echo > {}; sleep 999]]></command>\
         <timeout>600</timeout></tool>",
        names.birth(),
        ready.display()
    );
    let result = std::thread::scope(|scope| {
        let called = scope.spawn(|| abide.call(&block));
        std::fs::read(&ready).expect("the family is there");
        // The limit is set only now, however long the start took.
        let listed = abide.json(&["session", "list", "--json"]);
        let session = listed["sessions"][0]["session_id"].as_str().expect("an id");
        let moved = abide.call(&format!(
            "<tool name=\"terminal_session\"><action>extend</action>\
             <session_id>{session}</session_id><timeout>1</timeout></tool>"
        ));
        assert_ne!(moved["is_error"], true, "{moved}");
        called.join().expect("it is answered")
    });
    assert_eq!(result["status"], "TIMEOUT_ERROR", "{result}");
    assert_eq!(result["contained_by"], "subreaper", "{result}");
    assert_eq!(result["bytes_total"], 4, "{result}");
    assert!(names.members().is_empty());
}

#[test]
fn m19_background_processes_are_listed_and_can_be_killed() {
    let abide = Unprivileged::new();
    let names = Names::new("3002");
    let block = format!(
        "<tool name=\"shell\"><command><![CDATA[{}]]></command></tool>",
        names.birth()
    );
    let result = abide.call(&block);
    assert_eq!(result["status"], "SUCCESS", "{result}");
    let left = result["still_running"].as_array().expect("a list");
    for kind in 1..=KINDS {
        let line = format!("sleep {}", names.of(kind));
        let listed = left.iter().any(|process| process["command"] == line);
        assert!(listed, "{line} is not among {left:?}");
    }
    let session = result["session_id"].as_str().expect("an id");
    abide.json(&["session", "kill", "--json", session]);
    assert!(names.members().is_empty());
}

#[test]
fn m19_kill_leaves_no_process_with_and_without_a_daemon() {
    for daemon_dies in [false, true] {
        let abide = Unprivileged::new();
        let family = abide.family("3003");
        if daemon_dies {
            let daemon = abide.daemon();
            daemon.kill();
            daemon.wait_gone();
        }
        let ended = abide.json(&["session", "kill", "--json", &family.session]);
        assert_eq!(ended["end"], "user", "{ended}");
        assert!(family.names.members().is_empty());
    }
}

#[test]
fn k14_k15_killed_keeper_leaves_no_process_without_a_cgroup() {
    for daemon_dies in [false, true] {
        let abide = Unprivileged::new();
        let family = abide.family("3004");
        let daemon = abide.daemon();
        if daemon_dies {
            daemon.kill();
            daemon.wait_gone();
        }
        family.keeper.kill();
        family.is_gone();
        // A kill of a session that has ended is answered with its ending.
        let ended = abide.json(&["session", "kill", "--json", &family.session]);
        assert_eq!(ended["end"], "lost", "{ended}");
        assert_eq!(ended["exit_code"], Value::Null, "{ended}");
    }
}

#[test]
fn k14_tree_ends_when_its_keeper_and_the_fork_server_are_killed_together() {
    for daemon_dies in [false, true] {
        let abide = Unprivileged::new();
        let family = abide.family("3005");
        let daemon = abide.daemon();
        let server = crate::parent(family.keeper_pid);
        let server = Process::on(server);
        server.kill();
        family.keeper.kill();
        if daemon_dies {
            daemon.kill();
            daemon.wait_gone();
            drop(abide.daemon());
        }
        family.is_gone();
        let ended = abide.json(&["session", "kill", "--json", &family.session]);
        assert_eq!(ended["end"], "lost", "{ended}");
        assert_eq!(ended["exit_code"], Value::Null, "{ended}");
        let told = abide.call(&format!(
            "<tool name=\"terminal_session\"><action>kill</action><session_id>{}</session_id></tool>",
            family.session
        ));
        let text = told["text"].as_str().expect("a text");
        assert!(!text.contains("process tree is gone"), "{text}");
        assert!(text.contains("its keeper was killed"), "{text}");
    }
}

#[test]
fn m18_process_of_another_user_is_reported_as_still_running() {
    if !is_root() {
        eprintln!("skipped: only root can make a program that takes root's rights");
        return;
    }
    let abide = Unprivileged::new();
    abide.rooted();
    // Long enough for a slow machine to become root.
    let block = "<tool name=\"shell\"><command>echo begun; exec ./rooted --reuid=0 --regid=0 \
                 --clear-groups sleep 3018</command><timeout>15</timeout></tool>";
    let told = abide.call(block);
    if told["status"] == "ERROR" {
        eprintln!("skipped: nobody becomes root here: {told}");
        return;
    }
    assert_eq!(told["status"], "TIMEOUT_ERROR", "{told}");
    assert_eq!(told["return_code"], -1);
    let text = told["text"].as_str().expect("a text");
    assert!(text.contains("STDOUT:\nbegun\n"), "{text}");
    assert!(
        text.contains("cannot be ended: they belong to another user"),
        "{text}"
    );
    let left = &told["still_running"][0];
    assert_eq!(left["command"], "sleep 3018", "{told}");
    let rooted = Process::on(i32::try_from(left["pid"].as_i64().expect("a pid")).expect("a pid"));
    let session = told["session_id"].as_str().expect("an id");
    for _ in 0..2 {
        let out = abide.command(&["session", "kill", session]).output();
        let out = out.expect("abide runs");
        assert!(!out.status.success(), "{out:?}");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("cannot be ended"), "{said}");
        let stopped = abide.command(&["stop"]).output().expect("abide runs");
        assert!(stopped.status.success(), "{stopped:?}");
    }
    rooted.kill();
    rooted.wait_gone();
    let out = abide.command(&["session", "kill", session]).output();
    assert!(out.expect("abide runs").status.success());
}

#[test]
fn m18_terminal_session_does_not_wait_for_a_process_that_cannot_be_killed() {
    if !is_root() {
        eprintln!("skipped: only root can make a program that takes root's rights");
        return;
    }
    let abide = Unprivileged::new();
    abide.rooted();
    let sleep = format!("sleep 3019.{}", std::process::id());
    let line = format!("echo begun; exec ./rooted --reuid=0 --regid=0 --clear-groups {sleep}");
    let mut run = abide.command(&["run", "--", &line]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut run = run.expect("abide runs");
    let rooted = loop {
        if let Some(pid) = pids_of(&sleep).first() {
            break Process::on(*pid);
        }
        if run.try_wait().expect("it can be waited for").is_some() {
            let out = run.wait_with_output().expect("what it said");
            eprintln!("skipped: nobody becomes root here: {out:?}");
            return;
        }
        std::thread::yield_now();
    };
    let listed = abide.json(&["session", "list", "--json"]);
    let session = listed["sessions"][0]["session_id"].as_str().expect("an id");
    let killed = abide.command(&["session", "kill", session]).output();
    assert!(!killed.expect("abide runs").status.success());
    let out = run.wait_with_output().expect("what it said");
    assert_eq!(out.status.code(), Some(125), "{out:?}");
    assert_eq!(out.stdout, b"begun\n");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("cannot be ended"), "{said}");
    rooted.kill();
    rooted.wait_gone();
}

#[test]
fn s22_memory_of_the_daemon_is_not_readable() {
    let plain = Unprivileged::new();
    let pid = plain.json(&["status", "--json"])["daemon"]["pid"].clone();
    let ran = plain.json(&["run", "--json", "--", "cat /proc/self/environ > /dev/null"]);
    assert_eq!(
        ran["exit_code"], 0,
        "what it starts looks into itself: {ran}"
    );
    let line = format!("cat /proc/{pid}/environ");
    let ran = plain.json(&["run", "--json", "--", &line]);
    assert_eq!(ran["exit_code"], 1, "{ran}");
}

#[test]
fn m10_command_of_an_unprivileged_user_keeps_its_oom_score_adj() {
    let plain = Unprivileged::new();
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").expect("a score");
    let raised = 300.max(own.trim().parse::<i32>().expect("a number"));
    let start = format!("echo {raised} > /proc/self/oom_score_adj; exec ./abide status");
    let started = plain.command_of(Path::new("/bin/sh"), &["-c", &start]);
    assert!({ started }.output().expect("sh runs").status.success());
    let look = "cat /proc/self/oom_score_adj";
    let ran = plain.json(&["run", "--json", "--", look]);
    assert_eq!(ran["stdout"], format!("{raised}\n"), "{ran}");
    // Every other child of the daemon has it too.
    let seen = plain.dir().join("seen");
    let look = format!("{look} > {}", seen.display());
    let until = serde_json::json!({"command": look}).to_string();
    let waited = plain.command(&["wait", "--until", &until]).output();
    assert!(
        waited.as_ref().is_ok_and(|out| out.status.success()),
        "{waited:?}"
    );
    let seen = std::fs::read_to_string(seen).expect("it has run");
    assert_eq!(seen, format!("{raised}\n"));
}
