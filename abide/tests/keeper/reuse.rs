//! A keeper whose session has ended is reused for the next session.

use std::path::PathBuf;

use abide_core::{End, Exit};
use abide_session::keeper_record::{self, RecordedEnding};
use abide_session::log::Stream;
use abide_session::tree;

use crate::harness::{ForkServer, output, wait_gone};

#[test]
fn keeper_is_reused_for_several_sessions() {
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
        // When it is idle again, it has the same descriptors as before.
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
        let ending = keeper_record::read_ending(&folder).unwrap();
        assert_eq!(ending, Some(RecordedEnding::Ended(exited)));
        assert!(!folder.join("ctl").exists());
        assert!(
            meta.cgroup
                .is_none_or(|group| !PathBuf::from(String::from_utf8(group).unwrap()).exists())
        );
    }
    let mut again = keeper.again();
    again.expect_started();
    assert_eq!(again.pid, pid);
    again.kill(End::User, 0);
    again.finish();
}

#[test]
fn renewed_idle_keeper_leaves_nothing_when_it_is_released() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started("true");
    keeper.expect_exited();
    let first = keeper.folder.clone();
    keeper.renew(fork_server.new_folder());
    let away = keeper.disconnect();
    wait_gone(away.pid);
    assert!(!away.folder.exists());
    assert!(matches!(
        keeper_record::read_ending(&first),
        Ok(Some(RecordedEnding::Ended(_)))
    ));
}

#[test]
fn processes_of_the_next_session_are_not_counted_for_the_last_one() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started("true");
    keeper.expect_exited();
    let before = keeper.meta();
    keeper.renew(fork_server.new_folder());
    keeper.start(keeper.shell("sleep 1000"));
    keeper.expect_ready();
    keeper.expect_started();
    assert!(!tree::processes(&keeper.meta()).is_empty());
    // Without control groups a daemon does not reuse keepers.
    if before.cgroup.is_some() {
        assert_eq!(tree::processes(&before), []);
    }
    keeper.kill(End::User, 0);
    keeper.finish();
}

#[test]
fn keeper_of_a_running_session_is_not_reused() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started("sleep 1000 & exit 3");
    let exited = keeper.expect_exited();
    assert!(!exited.empty);
    let (first, next) = (keeper.folder.clone(), fork_server.new_folder());
    keeper.renew(next.clone());
    assert!(keeper.receive().is_none(), "it hangs up");
    assert!(!next.exists());
    keeper.folder = first;
    let mut again = keeper.again();
    again.expect_started();
    assert_eq!(again.expect_exited().exit, Some(Exit::Code(3)));
    again.kill(End::User, 0);
    again.finish_after(exited);
}
