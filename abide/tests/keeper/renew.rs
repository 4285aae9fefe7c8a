//! A keeper that has nothing left to keep keeps the next session.

use std::path::PathBuf;

use abide_core::{End, Exit};
use abide_session::folder::{self, EndingFile};
use abide_session::frame::ToKeeper;
use abide_session::log::Stream;
use abide_session::tree;

use crate::harness::{ForkServer, output, wait_gone};

#[test]
fn one_keeper_keeps_one_session_after_the_other() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    let pid = keeper.pid;
    let files = || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
        open.unwrap().count()
    };
    let (mut over, idle) = (Vec::new(), files());
    for code in 0..3 {
        keeper.start(keeper.shell(&format!("echo {code}; exit {code}")));
        if code > 0 {
            keeper.expect_ready();
            assert_eq!(keeper.pid, pid);
        }
        keeper.expect_started();
        let exited = keeper.expect_exited();
        assert_eq!(exited.exit, Some(Exit::Code(code)));
        assert!(exited.empty && exited.closed);
        over.push((code, keeper.folder.clone(), keeper.meta(), exited));
        keeper.renew(fork_server.new_folder());
        // When it is idle again, it has what it had as one before.
        while files() != idle {
            std::thread::yield_now();
        }
    }
    keeper.start(keeper.shell("sleep 1000"));
    keeper.expect_ready();
    keeper.expect_started();
    for (code, folder, meta, exited) in over {
        assert_eq!(
            output(&folder, Some(Stream::Stdout)),
            format!("{code}\n").into_bytes()
        );
        let ending = folder::read_ending(&folder).unwrap();
        assert_eq!(ending, Some(EndingFile::Ended(exited)));
        assert!(!folder.join("ctl").exists());
        assert!(
            meta.cgroup
                .is_none_or(|group| !PathBuf::from(String::from_utf8(group).unwrap()).exists())
        );
    }
    let mut again = keeper.again();
    again.expect_started();
    assert_eq!(again.pid, pid);
    again.say(&ToKeeper::Kill {
        end: End::User,
        grace_ms: 0,
    });
    again.finish();
}

#[test]
fn renewed_idle_keeper_leaves_nothing_when_it_is_released() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    keeper.start(keeper.shell("true"));
    keeper.expect_started();
    keeper.expect_exited();
    let first = keeper.folder.clone();
    keeper.renew(fork_server.new_folder());
    let away = keeper.hang_up();
    wait_gone(away.pid);
    assert!(!away.folder.exists());
    assert!(matches!(
        folder::read_ending(&first),
        Ok(Some(EndingFile::Ended(_)))
    ));
}

#[test]
fn the_processes_of_the_next_session_do_not_count_for_the_one_before() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    keeper.start(keeper.shell("true"));
    keeper.expect_started();
    keeper.expect_exited();
    let before = keeper.meta();
    keeper.renew(fork_server.new_folder());
    keeper.start(keeper.shell("sleep 1000"));
    keeper.expect_ready();
    keeper.expect_started();
    assert!(!tree::processes(&keeper.meta()).is_empty());
    // Where there are no groups a daemon renews no keeper.
    if before.cgroup.is_some() {
        assert_eq!(tree::processes(&before), []);
    }
    keeper.say(&ToKeeper::Kill {
        end: End::User,
        grace_ms: 0,
    });
    keeper.finish();
}

#[test]
fn a_keeper_that_still_keeps_something_does_not_take_up_another_session() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.ready();
    keeper.start(keeper.shell("sleep 1000 & exit 3"));
    keeper.expect_started();
    let exited = keeper.expect_exited();
    assert!(!exited.empty);
    let (first, next) = (keeper.folder.clone(), fork_server.new_folder());
    keeper.renew(next.clone());
    assert!(keeper.hear().is_none(), "it hangs up");
    assert!(!next.exists());
    keeper.folder = first;
    let mut again = keeper.again();
    again.expect_started();
    assert_eq!(again.expect_exited().exit, Some(Exit::Code(3)));
    again.say(&ToKeeper::Kill {
        end: End::User,
        grace_ms: 0,
    });
    again.wind_up(exited);
}
