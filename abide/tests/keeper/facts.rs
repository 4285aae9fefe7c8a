//! What the kernel says of a session: told apart by evidence, not by text.

use std::time::Instant;

use abide_core::End;
use abide_session::facts::{Doing, facts};
use abide_session::frame::{Size, Stdin, ToKeeper};

use crate::harness::{ForkServer, Keeper, PATIENCE};

/// Looks until the session does what is wanted: the kernel tells nobody when a process falls asleep.
fn look_until(keeper: &Keeper, wanted: Doing) {
    let meta = keeper.meta();
    let begun = Instant::now();
    while facts(&meta).doing != wanted {
        let now = facts(&meta);
        assert!(begun.elapsed() < PATIENCE, "{now:?} instead of {wanted:?}");
        std::thread::yield_now();
    }
}

fn check(command: &str, pty: bool, stdin: Stdin, wanted: Doing) {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    let mut launch = keeper.shell(command);
    launch.pty = pty.then_some(Size { cols: 80, rows: 24 });
    launch.stdin = stdin;
    keeper.start(launch);
    keeper.expect_started();
    look_until(&keeper, wanted);
    if wanted != Doing::WaitingForInput {
        for _ in 0..50 {
            assert!(!facts(&keeper.meta()).waiting_for_input(), "{command}");
        }
    }
    keeper.say(&ToKeeper::Kill {
        end: End::User,
        grace_ms: 0,
    });
    keeper.finish();
}

#[test]
fn c6_a_read_from_the_terminal_is_seen() {
    check("read line", true, Stdin::None, Doing::WaitingForInput);
    check("exec cat", true, Stdin::None, Doing::WaitingForInput);
    check("cat | grep x", true, Stdin::None, Doing::WaitingForInput);
    check(
        "read line </dev/tty",
        true,
        Stdin::None,
        Doing::WaitingForInput,
    );
    check(
        "exec bash --norc -i",
        true,
        Stdin::None,
        Doing::WaitingForInput,
    );
}

#[test]
fn c6_a_read_from_open_input_is_seen() {
    check("exec cat", false, Stdin::Open, Doing::WaitingForInput);
    check("cat | grep x", false, Stdin::Open, Doing::WaitingForInput);
}

#[test]
fn c6_other_waits_are_not_taken_for_it() {
    check(
        "printf 'name? $ # > '; sleep 1000",
        true,
        Stdin::None,
        Doing::Sleeping,
    );
    check("sleep 1000 | cat", true, Stdin::None, Doing::Sleeping);
    check("sleep 1000 | cat", false, Stdin::Open, Doing::Sleeping);
    check("while :; do :; done", true, Stdin::None, Doing::Busy);
    check("kill -STOP $$", false, Stdin::None, Doing::Stopped);
}

#[test]
fn processes_that_come_and_go_are_counted() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    let mut launch = keeper.shell("read one; cat; read two; exec sleep 1000");
    launch.pty = Some(Size { cols: 80, rows: 24 });
    keeper.start(launch);
    keeper.expect_started();
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
    let input = |bytes: &[u8]| ToKeeper::Input {
        bytes: bytes.to_vec(),
        once: None,
    };
    look_until(Doing::WaitingForInput, 1);
    keeper.say(&input(b"\n"));
    look_until(Doing::WaitingForInput, 2);
    keeper.say(&input(b"\x04"));
    look_until(Doing::WaitingForInput, 1);
    keeper.say(&input(b"\n"));
    look_until(Doing::Sleeping, 1);
    keeper.say(&ToKeeper::Kill {
        end: End::User,
        grace_ms: 0,
    });
    keeper.finish();
    look_until(Doing::Sleeping, 0);
}
