//! Keepers whose daemon goes away, and keepers that die at the worst moment.

use std::io::{Read, Write};

use abide_core::{End, Exit};
use abide_session::frame::{ContainmentChoice, FromKeeper, Launch, Stdin, ToKeeper};
use abide_session::keeper_record;
use abide_session::log::Stream;

use crate::harness::{ForkServer, Keeper, input, marked, output, wait_gone};

/// Launch with open input: its start is reported at once, before any other event.
fn with_open_input(launch: Launch) -> Launch {
    Launch {
        stdin: Stdin::Open,
        ..launch
    }
}

#[test]
fn k3_a_keeper_is_found_again_by_its_socket() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    let mut launch = keeper.shell("read line; echo $line; exit 4");
    launch.stdin = Stdin::Open;
    keeper.start(launch);
    let mut again = keeper.again();
    again.expect_started();
    assert!(matches!(again.next(), FromKeeper::Grew { bytes: 0, .. }));
    // The newer connection has replaced the older one.
    keeper.expect_started();
    assert_eq!(keeper.receive(), None);
    again.send(&input("hello\n"));
    let ran = again.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Code(4)));
    assert_eq!(ran.output(Stream::Stdout), b"hello\n");
}

#[test]
fn k3_connection_without_a_handshake_replaces_no_daemon() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.fed("read line; echo $line");
    for said in ["", "GET / HTTP/1.1\r\n\r\n", "\x05\0\0\0"] {
        let mut stray = keeper.call();
        stray.write_all(said.as_bytes()).unwrap();
        stray.shutdown(std::net::Shutdown::Write).unwrap();
        // Its frames are read to the end, and it receives nothing.
        let mut told = Vec::new();
        let _ = stray.read_to_end(&mut told);
        assert_eq!(told, b"", "{said:?}");
    }
    // A connection that stays open and sends nothing does not block others either.
    let _silent = keeper.call();
    keeper.send(&input("hello\n"));
    let ran = keeper.finish();
    assert_eq!(ran.output(Stream::Stdout), b"hello\n");
}

#[test]
fn k2_command_of_a_gone_daemon_is_not_started() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    let ran = keeper.folder.with_extension("ran");
    let pid = rustix::process::Pid::from_raw(keeper.pid as i32).unwrap();
    // The keeper receives the command when no daemon is left to receive its report. The fork server is stopped too,
    // because it continues a stopped keeper.
    fork_server.signal(rustix::process::Signal::STOP);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    keeper.start(keeper.shell(&format!("echo > {}", ran.display())));
    let away = keeper.disconnect();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    fork_server.signal(rustix::process::Signal::CONT);
    wait_gone(away.pid);
    assert!(!ran.exists() && !away.folder.exists());
}

#[test]
fn k4_no_byte_is_lost_or_repeated_across_daemons() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started("seq 1 2000000");
    for _ in 0..20 {
        let mut next = keeper.again();
        next.expect_started();
        keeper = next;
        match keeper.next() {
            FromKeeper::Grew { .. } => {}
            FromKeeper::Exited(_) => break,
            other => panic!("{other:?}"),
        }
    }
    let away = keeper.disconnect();
    let ended = away.ended();
    let expected: String = (1..=2_000_000).map(|line| format!("{line}\n")).collect();
    assert_eq!(ended.bytes, expected.len() as u64);
    assert!(output(&away.folder, Some(Stream::Stdout)) == expected.as_bytes());
}

#[test]
fn k5_deadline_is_enforced_without_a_daemon() {
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let fork_server = ForkServer::new();
        let mut keeper = fork_server.ready();
        let mut launch = keeper
            .shell("trap '' TERM; (setsid sleep 1000 &); echo up; while :; do sleep 1000; done");
        launch.record.deadline_ms = Some(3_600_000);
        launch.containment = hold;
        keeper.start(launch);
        keeper.expect_started();
        keeper.expect_growth(2);
        keeper.send(&ToKeeper::Deadline { in_ms: 100 });
        let away = keeper.disconnect();
        let ended = away.ended();
        assert_eq!(ended.end, End::Deadline);
        assert!(ended.empty && ended.closed);
        assert_eq!(marked(&away.folder), Vec::<String>::new());
        assert_eq!(output(&away.folder, None), b"up\n");
    }
}

#[test]
fn k6_escalation_is_finished_without_a_daemon() {
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper] {
        let fork_server = ForkServer::new();
        let mut keeper = fork_server.started_with(
            "trap 'echo asked' TERM; echo up; while :; do sleep 0.01; done",
            |launch| launch.containment = hold,
        );
        keeper.expect_growth(2);
        keeper.kill(End::User, 3_600_000);
        keeper.expect_growth(b"up\nasked\n".len() as u64 - 1);
        // The process has received the signal and stays; its grace ends soon after the daemon is gone.
        keeper.kill(End::User, 100);
        let away = keeper.disconnect();
        let ended = away.ended();
        assert_eq!(ended.end, End::User);
        assert_eq!(ended.exit, Some(Exit::Signal(libc::SIGKILL)));
        assert_eq!(output(&away.folder, Some(Stream::Stdout)), b"up\nasked\n");
        assert_eq!(marked(&away.folder), Vec::<String>::new());
    }
}

#[test]
fn k7_unwritten_ending_is_reported_as_unknown() {
    let fork_server = ForkServer::with_env(&[("ABIDE_CRASH_AT", "exit.pre_record")]);
    let mut keeper = fork_server.ready();
    keeper.start(with_open_input(keeper.shell("echo kept; exit 3")));
    keeper.expect_started();
    assert_eq!(keeper.receive(), None);
    let away = keeper.disconnect();
    assert_eq!(away.ending(), None);
    assert_eq!(output(&away.folder, None), b"kept\n");
}

#[test]
fn k7_ending_is_written_before_it_is_reported() {
    let fork_server = ForkServer::with_env(&[("ABIDE_CRASH_AT", "exit.post_record")]);
    let mut keeper = fork_server.ready();
    keeper.start(with_open_input(keeper.shell("exit 3")));
    keeper.expect_started();
    assert_eq!(keeper.receive(), None);
    assert_eq!(keeper.disconnect().ended().exit, Some(Exit::Code(3)));
}

#[test]
fn k14_tree_of_a_killed_keeper_is_killed_through_its_cgroup() {
    let fork_server = ForkServer::with_env(&[("ABIDE_CRASH_AT", "io.mid")]);
    let mut keeper = fork_server.ready();
    keeper.start(with_open_input(
        keeper.shell("(setsid sleep 1000 &); exec 1>&2; echo; sleep 1000"),
    ));
    keeper.expect_started();
    assert_eq!(keeper.receive(), None);
    tree_of_a_dead_keeper_is_ended(keeper);
}

/// Ends the tree of a keeper that died without an ending, as a daemon does. No process is left.
fn tree_of_a_dead_keeper_is_ended(keeper: Keeper) {
    let (meta, leader) = (keeper.meta(), keeper.leader);
    let away = keeper.disconnect();
    assert_eq!(away.ending(), None);
    abide_session::tree::end_orphans(&meta);
    wait_gone(leader);
    for process in abide_session::tree::processes(&meta) {
        wait_gone(process.pid);
    }
    abide_session::tree::end_orphans(&meta);
    // Without a control group, the fork server kills them a moment later.
    while meta.cgroup.is_none() && !marked(&away.folder).is_empty() {}
    assert_eq!(marked(&away.folder), Vec::<String>::new());
}

/// A keeper dies while it kills its tree: the remaining processes are killed through the control group.
#[test]
fn k14_keeper_killed_during_a_kill_leaves_no_process() {
    for point in ["keeper.at_deadline", "keeper.after_term"] {
        let fork_server = ForkServer::with_env(&[("ABIDE_CRASH_AT", point)]);
        let mut keeper =
            fork_server.started("trap '' TERM; (setsid sleep 1000 &); echo up; sleep 1000");
        keeper.expect_growth(2);
        keeper.send(&match point {
            "keeper.at_deadline" => ToKeeper::Deadline { in_ms: 1 },
            _ => ToKeeper::Kill {
                end: End::User,
                grace_ms: 3_600_000,
            },
        });
        while keeper.receive().is_some() {}
        tree_of_a_dead_keeper_is_ended(keeper);
    }
}

#[test]
fn keeper_killed_before_the_handshake_sends_no_frame() {
    let fork_server = ForkServer::with_env(&[("ABIDE_CRASH_AT", "keeper.pre_handshake")]);
    assert_eq!(fork_server.keeper().receive(), None);
}

#[test]
fn truncated_record_counts_as_absent() {
    let fork_server = ForkServer::new();
    let ran = fork_server.run("exit 1");
    let path = ran.folder.join("meta");
    let whole = std::fs::read(&path).unwrap();
    let ending_at = whole
        .windows(12)
        .position(|window| window == b"abide ending");
    let closing = b"checksum=00000000\n".len() + b"emptied=1\n".len();
    for cut in 0..whole.len() - closing {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let meta = keeper_record::read_meta(&ran.folder).unwrap();
        assert_eq!(meta.is_some(), cut >= ending_at.unwrap(), "cut at {cut}");
        let ending = keeper_record::read_ending(&ran.folder).unwrap();
        assert!(ending.is_none(), "cut at {cut}");
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(keeper_record::read_meta(&ran.folder).unwrap().is_some());
    assert!(keeper_record::read_ending(&ran.folder).unwrap().is_some());
}
