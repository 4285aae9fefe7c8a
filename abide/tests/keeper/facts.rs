//! Facts that the kernel reports about a session, not derived from its output.

use std::time::Instant;

use abide_core::End;
use abide_session::facts::{ProcessActivity, facts};
use abide_session::frame::{Size, Stdin, ToKeeper};

use crate::harness::{ForkServer, Keeper, PATIENCE, input};

/// Polls until the session is in the wanted state: the kernel has no event for a process that falls asleep.
fn look_until(keeper: &Keeper, wanted: ProcessActivity) {
    let meta = keeper.meta();
    let begun = Instant::now();
    while facts(&meta).doing != wanted {
        let now = facts(&meta);
        assert!(begun.elapsed() < PATIENCE, "{now:?} instead of {wanted:?}");
        std::thread::yield_now();
    }
}

fn check(command: &str, pty: bool, stdin: Stdin, wanted: ProcessActivity) {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started_with(command, |launch| {
        launch.record.pty = pty.then_some(Size { cols: 80, rows: 24 });
        launch.stdin = stdin;
    });
    look_until(&keeper, wanted);
    if wanted != ProcessActivity::WaitingForInput {
        for _ in 0..50 {
            assert!(!facts(&keeper.meta()).waiting_for_input(), "{command}");
        }
    }
    keeper.kill(End::User, 0);
    keeper.finish();
}

#[test]
fn c6_blocked_read_from_the_terminal_is_detected() {
    check(
        "read line",
        true,
        Stdin::None,
        ProcessActivity::WaitingForInput,
    );
    check(
        "exec cat",
        true,
        Stdin::None,
        ProcessActivity::WaitingForInput,
    );
    check(
        "cat | grep x",
        true,
        Stdin::None,
        ProcessActivity::WaitingForInput,
    );
    check(
        "read line </dev/tty",
        true,
        Stdin::None,
        ProcessActivity::WaitingForInput,
    );
    check(
        "exec bash --norc -i",
        true,
        Stdin::None,
        ProcessActivity::WaitingForInput,
    );
}

#[test]
fn c6_blocked_read_from_stdin_is_detected() {
    check(
        "exec cat",
        false,
        Stdin::Open,
        ProcessActivity::WaitingForInput,
    );
    check(
        "cat | grep x",
        false,
        Stdin::Open,
        ProcessActivity::WaitingForInput,
    );
}

#[test]
fn c6_other_waits_are_not_taken_for_a_read() {
    check(
        "printf 'name? $ # > '; sleep 1000",
        true,
        Stdin::None,
        ProcessActivity::Sleeping,
    );
    check(
        "sleep 1000 | cat",
        true,
        Stdin::None,
        ProcessActivity::Sleeping,
    );
    check(
        "sleep 1000 | cat",
        false,
        Stdin::Open,
        ProcessActivity::Sleeping,
    );
    check(
        "while :; do :; done",
        true,
        Stdin::None,
        ProcessActivity::Busy,
    );
    check(
        "kill -STOP $$",
        false,
        Stdin::None,
        ProcessActivity::Stopped,
    );
}

#[test]
fn processes_that_come_and_go_are_counted() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server
        .started_with("read one; cat; read two; exec sleep 1000", |launch| {
            launch.record.pty = Some(Size { cols: 80, rows: 24 })
        });
    let meta = keeper.meta();
    let look_until = |doing, processes| {
        let begun = Instant::now();
        loop {
            let now = facts(&meta);
            if (now.doing, now.processes) == (doing, processes) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{now:?} instead of {doing:?}");
            std::thread::yield_now();
        }
    };
    look_until(ProcessActivity::WaitingForInput, 1);
    keeper.send(&input("\n"));
    look_until(ProcessActivity::WaitingForInput, 2);
    keeper.send(&input("\x04"));
    look_until(ProcessActivity::WaitingForInput, 1);
    keeper.send(&input("\n"));
    look_until(ProcessActivity::Sleeping, 1);
    keeper.kill(End::User, 0);
    keeper.finish();
    look_until(ProcessActivity::Sleeping, 0);
}

#[test]
fn cpu_time_of_ended_children_and_orphans_is_counted() {
    const SPIN: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
    let orphan = format!("(({SPIN}; echo end) &)");
    for command in [format!("({SPIN}); echo end"), orphan] {
        let fork_server = ForkServer::new();
        let mut keeper = fork_server.ready();
        let launch = keeper.shell(&format!("{command}; exec sleep 1000"));
        keeper.start(launch);
        keeper.expect_started();
        keeper.send(&ToKeeper::Watch { beyond: 0 });
        keeper.expect_growth(0);
        look_until(&keeper, ProcessActivity::Sleeping);
        let meta = keeper.meta();
        let begun = Instant::now();
        while facts(&meta).processes > 1 {
            assert!(begun.elapsed() < PATIENCE, "the child has not ended");
            std::thread::yield_now();
        }
        let used = facts(&meta).cpu_ms;
        assert!(used >= 50, "{used} ms: {command}");
        keeper.kill(End::User, 0);
        keeper.finish();
    }
}

#[test]
fn process_with_a_time_limit_is_woken_by_more_than_input() {
    for (timeout, only_input) in [("None", true), ("1000", false)] {
        let fork_server = ForkServer::new();
        let mut keeper = fork_server.ready();
        let select = format!("import select; select.select([0], [], [], {timeout})");
        let mut launch = keeper.shell(&format!("exec python3 -c '{select}'"));
        launch.record.pty = Some(Size { cols: 80, rows: 24 });
        keeper.start(launch);
        keeper.expect_started();
        look_until(&keeper, ProcessActivity::WaitingForInput);
        assert_eq!(facts(&keeper.meta()).only_input, only_input, "{timeout}");
        keeper.kill(End::User, 0);
        keeper.finish();
    }
}
