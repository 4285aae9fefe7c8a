//! Commands that cannot be started, and the environment of those that can.

use std::os::unix::fs::PermissionsExt;

use abide_core::{Containment, Exit};
use abide_session::frame::{ContainmentChoice, FromKeeper, Launch, ToKeeper};
use abide_session::keeper_record::{self, RecordedEnding};
use abide_session::log::Stream;

use crate::harness::{ForkServer, wait_gone};

fn refused(fork_server: &ForkServer, change: impl Fn(&mut Launch)) -> (i32, String) {
    let mut keeper = fork_server.ready();
    let mut launch = keeper.shell("echo never");
    change(&mut launch);
    keeper.start(launch);
    let failure = keeper.expect_failure();
    let ending = keeper_record::read_ending(&keeper.folder).unwrap();
    assert_eq!(ending, Some(RecordedEnding::Failed(failure.clone())));
    keeper.send(&ToKeeper::Ack);
    while keeper.receive().is_some() {}
    wait_gone(keeper.pid);
    assert!(!keeper.folder.join("ctl").exists());
    (failure.errno, failure.sentence)
}

#[test]
fn m20_failed_start_names_the_step() {
    let fork_server = ForkServer::new();
    let scratch = tempfile::tempdir().unwrap();
    let (errno, sentence) = refused(&fork_server, |launch| launch.record.cwd = b"/nope".to_vec());
    assert_eq!(errno, libc::ENOENT);
    assert_eq!(
        sentence,
        "cannot enter the folder '/nope': No such file or directory (os error 2)"
    );
    let (_, sentence) = refused(&fork_server, |launch| {
        launch.record.cwd = b"/etc/passwd".to_vec()
    });
    assert_eq!(
        sentence,
        "cannot enter the folder '/etc/passwd': Not a directory (os error 20)"
    );
    let (_, sentence) = refused(&fork_server, |launch| {
        launch.argv[0] = b"/no/shell".to_vec()
    });
    assert_eq!(
        sentence,
        "cannot run '/no/shell': No such file or directory (os error 2)"
    );
    let (_, sentence) = refused(&fork_server, |launch| {
        launch.argv[0] = b"no-such-thing".to_vec()
    });
    assert_eq!(
        sentence,
        "cannot run 'no-such-thing': No such file or directory (os error 2)"
    );
    let text = scratch.path().join("text");
    std::fs::write(&text, b"not a program").unwrap();
    let argv = vec![text.as_os_str().as_encoded_bytes().to_vec()];
    let (errno, _) = refused(&fork_server, |launch| launch.argv = argv.clone());
    assert_eq!(errno, libc::EACCES);
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (errno, _) = refused(&fork_server, |launch| launch.argv = argv.clone());
    assert_eq!(errno, libc::ENOEXEC);
    let (errno, sentence) = refused(&fork_server, |launch| launch.argv[2] = vec![b'x'; 8 << 20]);
    assert_eq!(errno, libc::E2BIG);
    assert!(sentence.contains("put long text into a file"), "{sentence}");
    let (errno, _) = refused(&fork_server, |launch| launch.argv[2] = b"a\0b".to_vec());
    assert_eq!(errno, libc::EINVAL);
    let (errno, _) = refused(&fork_server, |launch| launch.argv.clear());
    assert_eq!(errno, libc::EINVAL);
}

#[test]
fn directory_that_cannot_be_created_is_reported() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.keeper_at("/proc/none/session_00000000".into());
    let (errno, sentence) = keeper.expect_failed();
    assert_eq!(errno, libc::ENOENT);
    assert!(
        sentence.contains("/proc/none/session_00000000"),
        "{sentence}"
    );
    assert_eq!(keeper.receive(), None);
}

#[test]
fn a_folder_may_have_a_long_name() {
    let fork_server = ForkServer::new();
    let scratch = tempfile::tempdir().unwrap();
    let deep = scratch.path().join("d".repeat(200)).join("e".repeat(200));
    std::fs::create_dir_all(&deep).unwrap();
    let mut keeper = fork_server.keeper_at(deep.join("session_longnam0"));
    keeper.expect_ready();
    keeper.start(keeper.shell("echo far"));
    let mut keeper = keeper.again();
    keeper.expect_started();
    assert_eq!(keeper.finish().output(Stream::Stdout), b"far\n");
}

#[test]
fn child_inherits_no_descriptor_of_its_keeper() {
    let fork_server = ForkServer::new();
    let keeper = fork_server.started(
        "ls /proc/self/fd | tr '\\n' ' '; umask; pwd; \
         grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status | tr -d '\\t\\n'; echo; \
         ps -o sid= -p $$ | tr -d ' '; echo $$; env | sort",
    );
    let ran = keeper.finish();
    let text = String::from_utf8(ran.output(Stream::Stdout)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // The fourth descriptor is the directory that is being listed.
    assert!(lines[0].starts_with("0 1 2 3 "), "{text}");
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = own.lines().find_map(|line| line.strip_prefix("Umask:\t"));
    assert!(
        !lines[0].contains("4 ") && lines[0].ends_with(mask.unwrap()),
        "{text}"
    );
    assert_eq!(lines[1], "/");
    let none = "0000000000000000";
    assert!(
        lines[2].starts_with(&format!("SigBlk:{none}SigIgn:{none}")),
        "{text}"
    );
    assert_eq!(lines[3], lines[4]);
    assert!(
        text.contains("ABIDE_TEST_MARK=") && !text.contains("CARGO"),
        "{text}"
    );
}

#[test]
fn containment_can_be_chosen() {
    let fork_server = ForkServer::new();
    for (hold, expected) in [
        (ContainmentChoice::Cgroup, Containment::Cgroup),
        (ContainmentChoice::Subreaper, Containment::Subreaper),
    ] {
        let mut keeper = fork_server.ready();
        let mut launch = keeper.shell("cat /proc/self/cgroup | grep ^0::");
        launch.containment = hold;
        keeper.start(launch);
        match keeper.next() {
            FromKeeper::Started { contained_by, .. } => assert_eq!(contained_by, expected),
            FromKeeper::StartFailed(failure)
                if failure
                    .sentence
                    .ends_with("no control group can be made here") =>
            {
                eprintln!("skipped: {}", failure.sentence);
                continue;
            }
            other => panic!("{other:?}"),
        }
        let ran = keeper.finish();
        let text = String::from_utf8(ran.output(Stream::Stdout)).unwrap();
        assert_eq!(
            text.contains("/abide-session_"),
            hold == ContainmentChoice::Cgroup,
            "{text}"
        );
        assert_eq!(ran.exited.exit, Some(Exit::Code(0)));
    }
}
