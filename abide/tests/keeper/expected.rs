//! A spare that was told to expect a command has the child for it already.

use abide::keeper::frame::{FromKeeper, Hold, Launch, Size, Stdin, ToKeeper};
use abide::keeper::proc;
use abide::world::log::Stream;
use abide_core::Exit;

use crate::harness::{Keeper, Nursery, wait_gone};

/// For longer than any test takes.
const EXPECT: ToKeeper = ToKeeper::Expect { for_ms: 600_000 };

/// The child that waits.
fn child_of(keeper: &Keeper) -> u32 {
    loop {
        if let [child] = proc::children(keeper.pid as i32)[..] {
            return child as u32;
        }
        std::thread::yield_now();
    }
}

fn expecting(nursery: &Nursery) -> (Keeper, u32) {
    let mut keeper = nursery.ready();
    keeper.say(&EXPECT);
    let child = child_of(&keeper);
    (keeper, child)
}

#[test]
fn the_child_becomes_the_command() {
    let nursery = Nursery::new();
    let (mut keeper, child) = expecting(&nursery);
    // Said again, it changes nothing.
    keeper.say(&EXPECT);
    keeper.start(keeper.shell("echo $$; exit 7"));
    keeper.expect_started();
    assert_eq!(keeper.leader, child);
    let ran = keeper.finish();
    assert_eq!(
        ran.output(Stream::Stdout),
        format!("{child}\n").into_bytes()
    );
    assert_eq!(ran.exited.exit, Some(Exit::Code(7)));
}

type Change = dyn Fn(&mut Launch);

#[test]
fn a_command_that_needs_something_else_gets_it() {
    let nursery = Nursery::new();
    let size = Size { cols: 80, rows: 24 };
    let others: [(&Change, Stream); 3] = [
        (&move |launch| launch.pty = Some(size), Stream::Pty),
        (
            &|launch| launch.stdin = Stdin::Bytes(b"in".to_vec()),
            Stream::Stdout,
        ),
        (
            &|launch| launch.containment = Hold::Subreaper,
            Stream::Stdout,
        ),
    ];
    for (change, stream) in others {
        let (mut keeper, child) = expecting(&nursery);
        let mut launch = keeper.shell("echo there");
        change(&mut launch);
        let grouped = launch.containment != Hold::Subreaper;
        keeper.start(launch);
        keeper.expect_started();
        let is_plain = stream == Stream::Stdout && !grouped;
        // Where there are no groups, there is no difference between those.
        if !is_plain || abide::keeper::cgroup::own_folder().is_some() {
            assert_ne!(keeper.leader, child);
            wait_gone(child);
        }
        let text = String::from_utf8(keeper.finish().output(stream)).unwrap();
        assert_eq!(text.trim_end(), "there");
    }
}

#[test]
fn a_child_that_was_killed_is_replaced() {
    let nursery = Nursery::new();
    let (mut keeper, child) = expecting(&nursery);
    // SAFETY: sends a signal to a process that this test has made.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
    while proc::stat(child as i32).is_some_and(|stat| stat.state != b'Z') {
        std::thread::yield_now();
    }
    keeper.start(keeper.shell("echo all the same"));
    keeper.expect_started();
    assert_ne!(keeper.leader, child);
    assert_eq!(keeper.finish().output(Stream::Stdout), b"all the same\n");
}

#[test]
fn nobody_is_left_behind_by_a_spare_that_goes() {
    let nursery = Nursery::new();
    let (keeper, child) = expecting(&nursery);
    let (pid, folder) = (keeper.pid, keeper.folder.clone());
    drop(keeper);
    wait_gone(child);
    wait_gone(pid);
    assert!(!folder.exists());
    // One that is killed cannot see to it, but the kernel does.
    let (keeper, child) = expecting(&nursery);
    // SAFETY: sends a signal to a process that this test has made.
    unsafe { libc::kill(keeper.pid as i32, libc::SIGKILL) };
    wait_gone(child);
}

#[test]
fn a_session_that_was_expected_leaves_a_spare_like_any_other() {
    let nursery = Nursery::new();
    let (mut keeper, _) = expecting(&nursery);
    keeper.start(keeper.shell("true"));
    keeper.expect_started();
    keeper.expect_exited();
    let folder = nursery.new_folder();
    keeper.say(&ToKeeper::Renew {
        folder: folder.as_os_str().as_encoded_bytes().to_vec(),
    });
    keeper.say(&EXPECT);
    let child = child_of(&keeper);
    keeper.folder = folder;
    keeper.start(keeper.shell("echo again"));
    assert!(matches!(keeper.next(), FromKeeper::Ready { .. }));
    keeper.expect_started();
    assert_eq!(keeper.leader, child);
    assert_eq!(keeper.finish().output(Stream::Stdout), b"again\n");
}
