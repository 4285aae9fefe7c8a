//! Endings of commands, and what is recorded about them.

use abide_core::{Containment, End, Exit};
use abide_session::frame::{ContainmentChoice, FromKeeper, ToKeeper};
use abide_session::keeper_record::{self, RecordedEnding};
use abide_session::log::Stream;

use crate::harness::{ForkServer, marked, wait_gone};

#[test]
fn exit_code_is_reported() {
    let fork_server = ForkServer::new();
    for code in [0, 1, 42, 137, 255] {
        let ran = fork_server.run(&format!("exit {code}"));
        assert_eq!(ran.exited.exit, Some(Exit::Code(code)));
        assert_eq!(ran.exited.end, End::Exited);
        assert!(ran.exited.empty && ran.exited.closed);
        assert_eq!(ran.exited.bytes, 0);
        assert!(!ran.folder.join("log").exists());
    }
}

#[test]
fn c15_signal_and_exit_code_are_distinguished() {
    let fork_server = ForkServer::new();
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGSEGV] {
        let ran = fork_server.run(&format!("kill -{signal} $$"));
        assert_eq!(ran.exited.exit, Some(Exit::Signal(signal)));
        assert_eq!(ran.exited.end, End::Signaled);
    }
}

#[test]
fn record_in_the_directory_matches_the_report() {
    let fork_server = ForkServer::new();
    let ran = fork_server.run("echo out; echo err >&2; exit 3");
    let ending = keeper_record::read_ending(&ran.folder).unwrap().unwrap();
    assert_eq!(ending, RecordedEnding::Ended(ran.exited));
    assert_eq!(ran.exited.bytes, 8);
    assert_eq!(ran.output(Stream::Stdout), b"out\n");
    assert_eq!(ran.output(Stream::Stderr), b"err\n");
    let meta = keeper_record::read_meta(&ran.folder).unwrap().unwrap();
    assert_eq!(meta.launch.command, b"echo out; echo err >&2; exit 3");
    let by_group = meta.contained_by == Containment::Cgroup;
    assert_eq!(by_group, meta.cgroup.is_some());
}

#[test]
fn c12_output_right_before_the_exit_is_complete() {
    let fork_server = ForkServer::new();
    for _ in 0..300 {
        let ran = fork_server.run("exec head -c 65536 /dev/zero");
        assert_eq!(ran.exited.bytes, 65_536);
        assert!(ran.exited.closed);
        assert_eq!(ran.output(Stream::Stdout).len(), 65_536);
    }
}

#[test]
fn deadline_kills_the_tree_and_keeps_the_output() {
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let fork_server = ForkServer::new();
        let mut keeper = fork_server.started_with(
            "trap '' TERM HUP; echo before; \
             setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & \
             (setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' & ) ; \
             (sleep 1000 >/dev/null 2>&1 &) ; \
             echo ready; while :; do sleep 1000; done",
            |launch| launch.containment = hold,
        );
        keeper.expect_growth(b"before\nready\n".len() as u64 - 1);
        keeper.send(&ToKeeper::Deadline { in_ms: 1 });
        let exited = keeper.expect_exited();
        assert_eq!(exited.end, End::Deadline);
        assert_eq!(exited.exit, Some(Exit::Signal(libc::SIGKILL)));
        let ran = keeper.finish_after(exited);
        assert_eq!(ran.output(Stream::Stdout), b"before\nready\n");
        assert_eq!(marked(&ran.folder), Vec::<String>::new());
    }
}

#[test]
fn c3_background_process_is_reported_at_once_and_keeps_running() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    let mut launch = keeper.shell("(read line; echo LATE) <&3 & echo FIRST");
    let fifo = keeper.folder.with_extension("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    launch.argv[2] = format!(
        "exec 3<>{}; (read line <&3; echo LATE) & echo FIRST",
        fifo.display()
    )
    .into_bytes();
    keeper.start(launch);
    keeper.expect_started();
    let exited = keeper.expect_exited();
    assert_eq!(exited.exit, Some(Exit::Code(0)));
    assert_eq!(
        (exited.bytes, exited.empty, exited.closed),
        (6, false, false)
    );
    let left = abide_session::tree::processes(&keeper.meta());
    assert_eq!(left.len(), 1, "{left:?}");
    std::fs::write(&fifo, b"go\n").unwrap();
    let ran = keeper.finish_after(exited);
    assert_eq!(ran.output(Stream::Stdout), b"FIRST\nLATE\n");
    match keeper_record::read_ending(&ran.folder).unwrap() {
        Some(RecordedEnding::Ended(ended)) => {
            assert!(ended.empty && ended.closed);
            assert_eq!(ended.bytes, 11);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn c1_process_that_ignores_sigterm_gets_sigkill() {
    let fork_server = ForkServer::new();
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let mut keeper = fork_server.started_with(
            "trap '' TERM INT HUP; echo up; while :; do sleep 1000; done",
            |launch| launch.containment = hold,
        );
        keeper.expect_growth(0);
        keeper.kill(End::Agent, 50);
        let ran = keeper.finish();
        assert_eq!(ran.exited.exit, Some(Exit::Signal(libc::SIGKILL)));
        assert_eq!(ran.exited.end, End::Agent);
        assert!(marked(&ran.folder).is_empty());
    }
}

#[test]
fn c2_kill_continues_after_the_leader_has_exited() {
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let fork_server = ForkServer::new();
        let mut keeper = fork_server.started_with(
            "trap 'exit 7' TERM; (trap '' TERM; echo deaf; while :; do sleep 1000; done) & wait",
            |launch| launch.containment = hold,
        );
        keeper.expect_growth(4);
        keeper.kill(End::Agent, 3_600_000);
        let exited = keeper.expect_exited();
        assert_eq!(exited.end, End::Agent);
        assert_eq!(exited.exit, Some(Exit::Code(7)));
        // The leader has exited by itself; the grace of the other process is over now.
        keeper.kill(End::Agent, 1);
        let ran = keeper.finish_after(exited);
        assert_eq!(marked(&ran.folder), Vec::<String>::new());
    }
}

#[test]
fn a_kill_after_the_leader_has_ended_does_not_change_its_ending() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started("sleep 1000 & exit 5");
    let exited = keeper.expect_exited();
    keeper.kill(End::User, 0);
    let ran = keeper.finish_after(exited);
    match keeper_record::read_ending(&ran.folder).unwrap() {
        Some(RecordedEnding::Ended(ended)) => {
            assert_eq!((ended.end, ended.exit), (End::Exited, Some(Exit::Code(5))));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn c5_a_stopped_child_is_killed() {
    let fork_server = ForkServer::new();
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let mut keeper = fork_server.started_with("echo up; kill -STOP $$; sleep 1000", |launch| {
            launch.containment = hold
        });
        keeper.expect_growth(2);
        keeper.kill(End::User, 0);
        let ran = keeper.finish();
        assert_eq!(ran.exited.end, End::User);
        assert_eq!(ran.exited.exit, Some(Exit::Signal(libc::SIGKILL)));
    }
}

#[test]
fn a_deadline_can_be_moved_and_removed() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started_with("read line; exit 0", |launch| {
        launch.stdin = abide_session::frame::Stdin::Open;
        launch.record.deadline_ms = Some(3_600_000);
    });
    keeper.send_together(&[
        ToKeeper::Deadline { in_ms: 1 },
        ToKeeper::Deadline { in_ms: 0 },
        ToKeeper::Look,
    ]);
    assert!(matches!(keeper.next(), FromKeeper::Grew { bytes: 0, .. }));
    keeper.send(&ToKeeper::Deadline { in_ms: 50 });
    let ran = keeper.finish();
    assert_eq!(ran.exited.end, End::Deadline);
}

#[test]
fn idle_keeper_leaves_nothing_when_it_is_released() {
    let mut fork_server = ForkServer::new();
    let keeper = fork_server.ready();
    assert!(keeper.folder.join("ctl").exists());
    let folder = keeper.folder.clone();
    let away = keeper.disconnect();
    wait_gone(away.pid);
    assert!(!folder.exists());
    fork_server.close();
}

#[test]
fn a_keeper_outlives_a_fork_server_that_is_killed() {
    let mut fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    fork_server.kill();
    keeper.start(keeper.shell("exit 9"));
    keeper.expect_started();
    assert_eq!(keeper.finish().exited.exit, Some(Exit::Code(9)));
}

#[test]
fn k14_fork_server_kills_the_tree_of_a_killed_keeper() {
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let mut fork_server = ForkServer::new();
        let mut keeper = fork_server.started_with(
            "(setsid sleep 1000 &); (trap '' TERM; exec sleep 1000) & setsid sleep 1000 & \
             kill -STOP $!; (while :; do (sleep 1000 &) ; sleep 0.01; done) & \
             echo up; exec sleep 1000",
            |launch| launch.containment = hold,
        );
        keeper.expect_growth(0);
        let pid = rustix::process::Pid::from_raw(keeper.pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // The keeper exits once no process is left.
        fork_server.close();
        assert!(marked(&keeper.folder).is_empty());
    }
}

#[test]
fn c4_a_tree_that_keeps_forking_is_emptied() {
    let fork_server = ForkServer::new();
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let mut keeper = fork_server.ready();
        // Each process starts its successor in a new session and exits; many at once.
        let hop = "hop() { (setsid sh -c \"$1\" _ \"$1\" &) ; }; hop \"$1\"";
        let mut launch = keeper.shell(
            "i=0; while [ $i -lt 40 ]; do sh -c \"$HOP\" _ \"$HOP\" & i=$((i+1)); done; \
             echo up; while :; do sleep 1000 & sleep 0.001; done",
        );
        launch.env.push((b"HOP".to_vec(), hop.into()));
        launch.containment = hold;
        keeper.start(launch);
        keeper.expect_started();
        keeper.expect_growth(2);
        keeper.kill(End::Agent, 0);
        let exited = keeper.expect_exited();
        assert_eq!(exited.end, End::Agent);
        let ran = keeper.finish_after(exited);
        assert_eq!(marked(&ran.folder), Vec::<String>::new());
    }
}

#[test]
fn m17_many_orphans_leave_no_zombie() {
    let fork_server = ForkServer::new();
    let ran = fork_server.run("i=0; while [ $i -lt 2000 ]; do (: &); i=$((i+1)); done");
    assert_eq!(ran.exited.exit, Some(Exit::Code(0)));
    assert_eq!(marked(&ran.folder), Vec::<String>::new());
}

#[test]
fn m9_oom_kill_is_reported_as_such() {
    let group = std::path::Path::new("/sys/fs/cgroup/memory/abide-test-oom");
    let made = std::fs::create_dir(group).is_ok()
        && std::fs::write(group.join("memory.limit_in_bytes"), "30M").is_ok();
    if !made {
        let _ = std::fs::remove_dir(group);
        eprintln!("skipped: no memory group of the first version can be made here");
        return;
    }
    let mut fork_server = ForkServer::in_group(group);
    let ran = fork_server.run("exec tail /dev/zero");
    let own = fork_server.run("kill -9 $$");
    fork_server.close();
    let _ = std::fs::remove_dir(group);
    assert_eq!(ran.exited.exit, Some(Exit::Signal(libc::SIGKILL)));
    assert_eq!(ran.exited.end, End::OutOfMemory);
    assert_eq!(own.exited.end, End::Signaled);
}
