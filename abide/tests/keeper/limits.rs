//! Limits of the machine, processes that do not die, and pids that are reused.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use abide_core::{End, Exit};
use abide_session::frame::{ContainmentChoice, FromKeeper, ToKeeper};

use crate::harness::{ForkServer, Keeper, PATIENCE, marked};

/// A cgroup v1 group for this test; `None`: not available here.
struct Group(PathBuf);

impl Group {
    fn make(controller: &str, name: &str) -> Option<Self> {
        let own = format!("abide-test-{name}-{}", std::process::id());
        let path = Path::new("/sys/fs/cgroup").join(controller).join(own);
        match std::fs::create_dir(&path) {
            Ok(()) => Some(Group(path)),
            Err(fault) => {
                eprintln!("skipped: no {controller} group of the first version: {fault}");
                None
            }
        }
    }

    fn set(&self, name: &str, value: impl ToString) {
        std::fs::write(self.0.join(name), value.to_string()).unwrap();
    }

    /// The kernel may take a while to apply this.
    fn wait_for(&self, name: &str, value: &str) {
        let begun = Instant::now();
        loop {
            let is = std::fs::read_to_string(self.0.join(name)).unwrap();
            if is.trim() == value {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{name} is {is}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn m8_without_processes_a_start_fails_with_a_reason_and_a_kill_works() {
    let Some(group) = Group::make("pids", "m8") else {
        return;
    };
    let mut fork_server = ForkServer::in_group(&group.0);
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let mut running = fork_server
            .started_with("sleep 1000 & echo up; trap '' TERM; wait; wait", |launch| {
                launch.containment = hold
            });
        running.expect_growth(2);
        let mut keeper = fork_server.ready();
        // Below the current number: a process that exits makes no room for another.
        group.set("pids.max", 1);
        let mut launch = keeper.shell("echo never");
        launch.containment = hold;
        keeper.start(launch);
        let (errno, sentence) = keeper.expect_failed();
        assert_eq!(errno, libc::EAGAIN);
        assert!(
            sentence.contains("the limit on the number of processes is reached"),
            "{sentence}"
        );
        // No keeper can be forked either; the fork server reports that and continues.
        let mut unborn = fork_server.keeper();
        let (errno, sentence) = unborn.expect_failed();
        assert_eq!(errno, libc::EAGAIN);
        assert!(sentence.starts_with("cannot start a keeper"), "{sentence}");
        running.kill(End::Agent, 50);
        let ran = running.finish();
        assert_eq!(ran.exited.end, End::Agent);
        assert_eq!(marked(&ran.folder), Vec::<String>::new());
        group.set("pids.max", "max");
        keeper.send(&ToKeeper::Ack);
        while keeper.receive().is_some() {}
    }
    assert_eq!(fork_server.run("exit 6").exited.exit, Some(Exit::Code(6)));
    fork_server.close();
}

#[test]
fn m15_a_process_that_does_not_die_is_reported_until_it_does() {
    let Some(group) = Group::make("freezer", "m15") else {
        return;
    };
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started("echo up; exec sleep 1000");
    keeper.expect_growth(2);
    group.set("tasks", keeper.leader);
    group.set("freezer.state", "FROZEN");
    group.wait_for("freezer.state", "FROZEN");
    keeper.kill(End::Agent, 0);
    match keeper.next() {
        FromKeeper::KillPending { left: 1 } => {}
        other => panic!("{other:?}"),
    }
    // It is not reported as dead before it is.
    keeper.send(&ToKeeper::Look);
    assert!(matches!(keeper.next(), FromKeeper::Grew { .. }));
    group.set("freezer.state", "THAWED");
    let ran = keeper.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Signal(libc::SIGKILL)));
    assert_eq!(ran.exited.end, End::Agent);
}

/// A pid of the session is reused by an unrelated process, which is not killed.
#[test]
fn m16_process_with_a_reused_pid_is_not_killed() {
    let fork_server = ForkServer::new();
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let mut keeper = fork_server.started_with("sh -c 'echo $$'; echo; sleep 1000", |launch| {
            launch.containment = hold
        });
        let mut bytes = keeper.expect_growth(0);
        while !output(&keeper).ends_with("\n\n") {
            bytes = keeper.expect_growth(bytes);
        }
        let number: u32 = output(&keeper).trim().parse().unwrap();
        let stranger = Stranger::with(number);
        keeper.kill(End::Agent, 0);
        let ran = keeper.finish();
        assert_eq!(marked(&ran.folder), Vec::<String>::new());
        match stranger {
            Some(mut stranger) => assert!(stranger.0.try_wait().unwrap().is_none()),
            None => eprintln!("skipped: the number {number} could not be had"),
        }
    }
}

fn output(keeper: &Keeper) -> String {
    String::from_utf8(crate::harness::output(&keeper.folder, None)).unwrap()
}

struct Stranger(Child);

impl Stranger {
    /// A process with this pid; `None`: another process got it first, or pids cannot be chosen.
    fn with(number: u32) -> Option<Self> {
        let last = "/proc/sys/kernel/ns_last_pid";
        std::fs::write(last, (number - 1).to_string()).ok()?;
        let mut command = Command::new("sleep");
        let child = command.arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let stranger = Stranger(child);
        (stranger.0.id() == number).then_some(stranger)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn c4_many_processes_end_at_the_deadline() {
    let fork_server = ForkServer::new();
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let mut keeper = fork_server.started_with(
            "bomb() { [ $1 -gt 0 ] && { bomb $(($1-1)) & bomb $(($1-1)) & }; sleep 1000; }; bomb 7",
            |launch| {
                launch.containment = hold;
                launch.record.deadline_ms = Some(400);
            },
        );
        let exited = keeper.expect_exited();
        assert_eq!(exited.end, End::Deadline);
        let ran = keeper.finish_after(exited);
        assert_eq!(marked(&ran.folder), Vec::<String>::new());
    }
}
