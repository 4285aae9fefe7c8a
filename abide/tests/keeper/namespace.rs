//! Commands in their own pid namespace.

use abide_core::{Containment, End, Exit};
use abide_session::frame::{ContainmentChoice, FromKeeper, Launch, Size, Stdin, ToKeeper};
use abide_session::keeper_record::{self, RecordedEnding};
use abide_session::log::Stream;
use abide_session::tree;

use crate::harness::{ForkServer, Keeper, Ran, input, marked, wait_gone};

/// `None`: namespaces are not available here, and the command was refused with a reason.
fn start(
    fork_server: &ForkServer,
    command: &str,
    change: impl FnOnce(&mut Launch),
) -> Option<Keeper> {
    let mut keeper = fork_server.ready();
    let mut launch = keeper.shell(command);
    launch.containment = ContainmentChoice::PidNamespace;
    change(&mut launch);
    keeper.start(launch);
    match keeper.next() {
        FromKeeper::Started {
            contained_by, pid, ..
        } => {
            assert_eq!(contained_by, Containment::PidNamespace);
            keeper.leader = pid;
            Some(keeper)
        }
        FromKeeper::StartFailed(failure) if failure.errno == libc::EPERM => {
            let sentence = failure.sentence;
            assert!(sentence.contains("only root"), "{sentence}");
            eprintln!("skipped: {sentence}");
            None
        }
        other => panic!("{other:?}"),
    }
}

fn run(fork_server: &ForkServer, command: &str) -> Option<Ran> {
    Some(start(fork_server, command, |_| {})?.finish())
}

fn text(ran: &Ran, stream: Stream) -> String {
    String::from_utf8(ran.output(stream)).unwrap()
}

/// Final content of the record: the init process of a namespace may exit a moment after the command.
fn is_empty_and_closed(ran: &Ran) {
    match keeper_record::read_ending(&ran.folder).unwrap() {
        Some(RecordedEnding::Ended(ended)) => assert!(ended.empty && ended.closed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn codes_and_signals_are_passed_on() {
    let fork_server = ForkServer::new();
    for code in [0, 7, 137, 255] {
        let Some(ran) = run(&fork_server, &format!("exit {code}")) else {
            return;
        };
        assert_eq!(ran.exited.exit, Some(Exit::Code(code)));
        assert_eq!(ran.exited.end, End::Exited);
        is_empty_and_closed(&ran);
    }
    // The command is not the init process of its namespace, so that signals have their default effect.
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV] {
        let ran = run(&fork_server, &format!("kill -{signal} $$")).unwrap();
        assert_eq!(ran.exited.exit, Some(Exit::Signal(signal)));
        assert_eq!(ran.exited.end, End::Signaled);
    }
}

#[test]
fn command_sees_no_other_process_and_inherits_no_descriptor() {
    let fork_server = ForkServer::new();
    let Some(ran) = run(
        &fork_server,
        "for p in /proc/[0-9]*; do cat $p/comm 2>/dev/null; done; ls /proc/self/fd | wc -l; \
         ls -l /proc/1/fd 2>/dev/null | grep -c socket; id -u; grep ^Sig[BI] /proc/self/status",
    ) else {
        return;
    };
    let seen = text(&ran, Stream::Stdout);
    let lines: Vec<&str> = seen.lines().collect();
    let own = rustix::process::geteuid().as_raw().to_string();
    let expected = ["abide-init", "sh", "4", "0", own.as_str()];
    assert_eq!(lines[..expected.len()], expected, "{seen}");
    assert!(
        lines[5..]
            .iter()
            .all(|line| line.ends_with(&"0".repeat(16))),
        "{seen}"
    );
}

#[test]
fn failed_start_leaves_no_process() {
    let fork_server = ForkServer::new();
    if run(&fork_server, ":").is_none() {
        return;
    }
    let mut keeper = fork_server.ready();
    let mut launch = keeper.shell(":");
    launch.containment = ContainmentChoice::PidNamespace;
    launch.record.cwd = b"/nope".to_vec();
    keeper.start(launch);
    let (errno, sentence) = keeper.expect_failed();
    assert_eq!(errno, libc::ENOENT);
    assert!(sentence.starts_with("cannot enter the folder '/nope'"));
    assert_eq!(tree::members(&keeper.meta()), Vec::<i32>::new());
    let init = keeper.meta().init.unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{init}")).exists());
    keeper.send(&ToKeeper::Ack);
    while keeper.receive().is_some() {}
    wait_gone(keeper.pid);
}

#[test]
fn background_processes_keep_running_and_are_listed() {
    let fork_server = ForkServer::new();
    let Some(mut keeper) = start(
        &fork_server,
        "(trap '' TERM; setsid sh -c 'read line; echo LATE' <&3 &) 3<&0; echo FIRST",
        |launch| launch.stdin = Stdin::Open,
    ) else {
        return;
    };
    let exited = keeper.expect_exited();
    assert_eq!(exited.exit, Some(Exit::Code(0)));
    assert_eq!((exited.empty, exited.closed), (false, false));
    let left = tree::processes(&keeper.meta());
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].command.contains("read line"), "{left:?}");
    keeper.send(&input("go\n"));
    let ran = keeper.finish_after(exited);
    assert_eq!(text(&ran, Stream::Stdout), "FIRST\nLATE\n");
    is_empty_and_closed(&ran);
}

#[test]
fn deadline_kills_every_process() {
    let fork_server = ForkServer::new();
    for pty in [None, Some(Size { cols: 80, rows: 24 })] {
        let Some(mut keeper) = start(
            &fork_server,
            "trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & sleep 1000' &); \
             (sleep 1000 >/dev/null 2>&1 &); echo up; while :; do sleep 1000; done",
            |launch| launch.record.pty = pty,
        ) else {
            return;
        };
        keeper.expect_growth(2);
        keeper.send(&ToKeeper::Deadline { in_ms: 1 });
        let exited = keeper.expect_exited();
        assert_eq!(exited.end, End::Deadline);
        assert_eq!(exited.exit, Some(Exit::Signal(libc::SIGKILL)));
        let init = keeper.meta().init.unwrap();
        let ran = keeper.finish_after(exited);
        assert_eq!(marked(&ran.folder), Vec::<String>::new());
        wait_gone(init);
        let stream = match pty {
            Some(_) => Stream::Pty,
            None => Stream::Stdout,
        };
        assert_eq!(text(&ran, stream).trim_end(), "up");
    }
}

/// A privileged process can leave its control group, but not its namespace.
#[test]
fn c16_process_that_left_the_cgroup_is_killed_too() {
    let fork_server = ForkServer::new();
    let Some(group) = abide_session::cgroup::own_folder() else {
        return;
    };
    let procs = group.join("cgroup.procs");
    let Some(mut keeper) = start(
        &fork_server,
        &format!(
            "(setsid sh -c 'echo 0 > {}; echo left; sleep 1000' &); sleep 1000",
            procs.display()
        ),
        |_| {},
    ) else {
        return;
    };
    keeper.expect_growth(4);
    keeper.kill(End::Agent, 0);
    let ran = keeper.finish();
    assert_eq!(ran.exited.end, End::Agent);
    assert_eq!(marked(&ran.folder), Vec::<String>::new());
}

#[test]
fn sigterm_goes_to_the_command_and_not_to_init() {
    let fork_server = ForkServer::new();
    let Some(mut keeper) = start(
        &fork_server,
        "trap 'echo asked; exit 9' TERM; echo up; while :; do sleep 0.01; done",
        |_| {},
    ) else {
        return;
    };
    keeper.expect_growth(2);
    keeper.kill(End::User, 3_600_000);
    let ran = keeper.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Code(9)));
    assert_eq!(text(&ran, Stream::Stdout), "up\nasked\n");
}

#[test]
fn killed_keeper_ends_its_namespace() {
    let fork_server = ForkServer::with_env(&[("ABIDE_CRASH_AT", "io.mid")]);
    let Some(mut keeper) = start(
        &fork_server,
        "(setsid sleep 1000 &); sleep 1000 & echo; sleep 1000",
        // The start of a session with open input is reported at once, before it is lost.
        |launch| launch.stdin = Stdin::Open,
    ) else {
        return;
    };
    while keeper.receive().is_some() {}
    let meta = keeper.meta();
    wait_gone(meta.init.unwrap());
    let away = keeper.disconnect();
    assert_eq!(away.ending(), None);
    assert_eq!(marked(&away.folder), Vec::<String>::new());
    tree::end_orphans(&meta);
}
