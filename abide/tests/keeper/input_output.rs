//! Input, terminals, and reports of output.

use abide_core::{End, Exit};
use abide_session::frame::{
    ContainmentChoice, FromKeeper, INPUT_WINDOW, InputKey, Size, Stdin, ToKeeper,
};
use abide_session::log::Stream;

use crate::harness::{ForkServer, input, output, signal};

#[test]
fn initial_input_is_complete_and_followed_by_end_of_file() {
    let fork_server = ForkServer::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let keeper = fork_server.started_with("exec cat", |launch| {
        launch.stdin = Stdin::Bytes(bytes.clone())
    });
    let ran = keeper.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Code(0)));
    assert!(ran.output(Stream::Stdout) == bytes);
}

#[test]
fn stdin_without_input_is_at_end_of_file() {
    let fork_server = ForkServer::new();
    let ran = fork_server.run("cat; echo done");
    assert_eq!(ran.output(Stream::Stdout), b"done\n");
}

#[test]
fn open_input_flows_until_it_is_closed() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.fed("exec cat");
    keeper.send(&input("one\n"));
    keeper.expect_growth(3);
    keeper.send(&input("two\n"));
    keeper.send(&ToKeeper::CloseInput);
    let ran = keeper.finish();
    assert_eq!(ran.output(Stream::Stdout), b"one\ntwo\n");
}

#[test]
fn input_with_the_same_key_is_written_once() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.fed("exec cat");
    let named = |key: &str, from: u64, text: &str| ToKeeper::Input {
        bytes: text.into(),
        once: Some(InputKey {
            key: key.into(),
            from,
        }),
    };
    keeper.send(&named("a", 0, "one\n"));
    keeper.send(&named("b", 0, "two\n"));
    // The next daemon may split it at other positions.
    let mut again = keeper.again();
    again.expect_started();
    again.send_together(&[
        named("a", 0, "on"),
        named("a", 2, "e\nmore\n"),
        named("b", 0, "two\n"),
        named("c", 0, "three\n"),
        input("four\n"),
        ToKeeper::CloseInput,
    ]);
    let ran = again.finish();
    assert_eq!(ran.output(Stream::Stdout), b"one\ntwo\nmore\nthree\nfour\n");
}

#[test]
fn unread_input_blocks_only_further_input() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.fed("sleep 1000");
    keeper.send(&input(vec![b'x'; INPUT_WINDOW]));
    match keeper.next() {
        FromKeeper::InputTaken { bytes } => assert!(bytes < INPUT_WINDOW as u64),
        other => panic!("{other:?}"),
    }
    keeper.kill(End::User, 0);
    assert_eq!(keeper.finish().exited.end, End::User);
}

#[test]
fn kill_does_not_wait_for_unread_input() {
    let fork_server = ForkServer::new();
    for given in [Stdin::Open, Stdin::Bytes(vec![b'x'; 2 * INPUT_WINDOW])] {
        let mut keeper = fork_server.started_with("sleep 1000", |launch| launch.stdin = given);
        // Each daemon may send as much as the one before.
        for _ in 0..3 {
            keeper = keeper.again();
            keeper.expect_started();
            keeper.send(&input(vec![b'x'; INPUT_WINDOW]));
        }
        keeper.kill(End::User, 0);
        assert_eq!(keeper.finish().exited.end, End::User);
    }
}

#[test]
fn child_that_closes_its_stdin_keeps_running() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started_with(
        "exec <&-; trap 'exit 6' USR1; echo closed; while :; do sleep 0.01; done",
        |launch| launch.stdin = Stdin::Open,
    );
    keeper.expect_growth(6);
    keeper.send(&input("late\n"));
    match keeper.next() {
        FromKeeper::InputDropped { bytes: 5 } => {}
        other => panic!("{other:?}"),
    }
    match keeper.next() {
        FromKeeper::InputTaken { bytes: 5 } => {}
        other => panic!("{other:?}"),
    }
    keeper.send(&signal(libc::SIGUSR1));
    assert_eq!(keeper.finish().exited.exit, Some(Exit::Code(6)));
}

#[test]
fn look_is_answered_at_once_and_watch_once() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.fed("exec cat");
    keeper.send(&ToKeeper::Look);
    let FromKeeper::Grew {
        bytes: 0,
        quiet_since_mono_ms: start,
    } = keeper.next()
    else {
        panic!("a look was not answered");
    };
    keeper.send(&ToKeeper::Watch { beyond: 3 });
    keeper.send(&input("abc"));
    keeper.send(&ToKeeper::Look);
    let mut looked = Vec::new();
    while looked.is_empty() {
        match keeper.next() {
            FromKeeper::InputTaken { .. } => {}
            FromKeeper::Grew { bytes, .. } => looked.push(bytes),
            other => panic!("{other:?}"),
        }
    }
    assert!(looked[0] <= 3);
    keeper.send(&input("d"));
    let quiet = loop {
        match keeper.next() {
            FromKeeper::Grew {
                bytes: 4,
                quiet_since_mono_ms,
            } => break quiet_since_mono_ms,
            FromKeeper::InputTaken { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(quiet >= start);
    keeper.send(&input("e"));
    keeper.send(&ToKeeper::CloseInput);
    let exited = loop {
        match keeper.next() {
            FromKeeper::InputTaken { .. } => {}
            FromKeeper::Exited(exited) => break exited,
            other => panic!("told twice: {other:?}"),
        }
    };
    assert_eq!(keeper.finish_after(exited).exited.bytes, 5);
}

#[test]
fn a_signal_reaches_the_leaders_group() {
    let fork_server = ForkServer::new();
    let mut keeper =
        fork_server.started("trap 'exit 8' USR1; echo up; while :; do sleep 0.01; done");
    keeper.expect_growth(2);
    keeper.send(&signal(libc::SIGUSR1));
    let ran = keeper.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Code(8)));
    assert_eq!(ran.exited.end, End::Exited);
}

#[test]
fn signal_with_the_same_key_is_sent_once() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    // Messages of the shell about processes that the signal killed are ignored.
    let script = "exec 2>/dev/null; trap 'echo one' USR1; trap 'exit 8' USR2; echo up; \
        while :; do sleep 0.01; done";
    keeper.start(keeper.shell(script));
    keeper.expect_started();
    let up = keeper.expect_growth(2);
    let named = |number, name: &str| ToKeeper::Signal {
        number,
        once: Some(name.as_bytes().to_vec()),
    };
    keeper.send(&named(libc::SIGUSR1, "a"));
    keeper.expect_growth(up + 3);
    keeper.send(&named(libc::SIGUSR1, "a"));
    keeper.send(&named(libc::SIGUSR2, "b"));
    let ran = keeper.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Code(8)));
    assert_eq!(ran.exited.bytes, b"up\none\n".len() as u64);
}

#[test]
fn a_terminal_echoes_and_has_a_size() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started_with(
        "stty size; read a; stty size; read b; echo \"<$b>\"",
        |launch| {
            launch.record.pty = Some(Size {
                cols: 120,
                rows: 40,
            });
        },
    );
    let seen = keeper.expect_growth(b"40 120\r\n".len() as u64 - 1);
    keeper.send(&ToKeeper::Resize {
        cols: 100,
        rows: 30,
    });
    keeper.send(&input("x\n"));
    keeper.expect_growth(seen + b"x\r\n30 100\r\n".len() as u64 - 1);
    keeper.send(&input("y\n"));
    let ran = keeper.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Code(0)));
    assert!(ran.exited.closed);
    assert_eq!(
        String::from_utf8(ran.output(Stream::Pty)).unwrap(),
        "40 120\r\nx\r\n30 100\r\ny\r\n<y>\r\n"
    );
}

#[test]
fn a_terminal_ends_its_input_and_interrupts() {
    let fork_server = ForkServer::new();
    let size = Some(Size { cols: 80, rows: 24 });
    let mut keeper = fork_server.started_with("exec cat", |launch| launch.record.pty = size);
    keeper.send(&input("hi\n"));
    keeper.expect_growth(7);
    keeper.send(&ToKeeper::CloseInput);
    let ran = keeper.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Code(0)));
    assert_eq!(ran.output(Stream::Pty), b"hi\r\nhi\r\n");

    for interrupt in [
        input([3]),
        ToKeeper::Signal {
            number: libc::SIGINT,
            once: None,
        },
    ] {
        let mut keeper = fork_server.started_with("echo up; exec sleep 1000", |launch| {
            launch.record.pty = size
        });
        keeper.expect_growth(3);
        keeper.send(&interrupt);
        let ran = keeper.finish();
        assert_eq!(ran.exited.exit, Some(Exit::Signal(libc::SIGINT)));
        assert_eq!(ran.exited.end, End::Signaled);
    }
}

#[test]
fn last_output_of_a_terminal_is_complete() {
    let fork_server = ForkServer::new();
    for _ in 0..50 {
        let keeper = fork_server
            .started_with("stty -opost; exec head -c 20000 /dev/zero", |launch| {
                launch.record.pty = Some(Size { cols: 80, rows: 24 })
            });
        let ran = keeper.finish();
        assert_eq!(ran.exited.bytes, 20_000);
        assert_eq!(output(&ran.folder, None).len(), 20_000);
    }
}

#[test]
fn signal_reaches_children_of_a_process_that_it_kills() {
    let fork_server = ForkServer::new();
    // A parent may or may not have exited when its children are examined.
    for hold in [ContainmentChoice::Auto, ContainmentChoice::Subreaper].repeat(20) {
        let mut keeper = fork_server
            .started_with("sh -c 'echo ready; exec sleep 1000'; :", |launch| {
                launch.containment = hold
            });
        keeper.expect_growth(5);
        keeper.send(&signal(libc::SIGTERM));
        let ran = keeper.finish();
        assert_eq!(ran.exited.exit, Some(Exit::Signal(libc::SIGTERM)));
        assert_eq!(ran.output(Stream::Stdout), b"ready\n");
    }
}

#[test]
fn kill_sends_sigterm_to_children_of_a_process_that_it_kills() {
    let fork_server = ForkServer::new();
    for _ in 0..20 {
        let mut keeper = fork_server.ready();
        let child = "trap \"echo asked; exit\" TERM; echo ready; while :; do sleep 0.01; done";
        let mut launch = keeper.shell(&format!("sh -c '{child}'; :"));
        launch.containment = ContainmentChoice::Subreaper;
        keeper.start(launch);
        keeper.expect_started();
        keeper.expect_growth(5);
        keeper.kill(End::Agent, 60_000);
        let ran = keeper.finish();
        assert_eq!(ran.exited.end, End::Agent);
        assert_eq!(ran.output(Stream::Stdout), b"ready\nasked\n");
    }
}
