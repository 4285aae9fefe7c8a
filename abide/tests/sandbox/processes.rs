//! Attacks 65 to 80: processes.

use crate::harness::as_each_user;

#[test]
fn processes_outside_cannot_be_touched() {
    as_each_user(|user| {
        let outside = std::process::id();
        let said = user.python(&format!(
            r#"
print("65", attempt(lambda: open("/proc/{outside}/mem")), call(101, 117, 16, {outside}, 0, 0))
print("67", attempt(lambda: os.kill({outside}, 0)), call(434, 434, {outside}, 0))
print("69", call(308, 268, os.open("/proc/self/ns/mnt", os.O_RDONLY), 0))
print("66", call(310, 270, os.getpid(), None, 0, None, 0, 0), call(311, 271, os.getpid(), None, 0, None, 0, 0))
print("66", call(438, 438, 0, 0, 0), call(312, 272, os.getpid(), os.getpid(), 0, 0, 0))
print("init", attempt(lambda: open("/proc/1/mem")), attempt(lambda: os.readlink("/proc/1/fd/0")), call(101, 117, 16, 1, 0, 0))
"#
        ));
        for line in [
            "65 ENOENT ESRCH",
            "67 ESRCH ESRCH",
            "69 EPERM",
            "66 EPERM EPERM",
            "init EACCES EACCES EPERM",
        ] {
            assert!(said.lines().any(|said| said == line), "{line}: {said}");
        }
    });
}

#[test]
fn killing_everything_kills_only_the_sandbox() {
    as_each_user(|user| {
        let before = user.outside("ps -e -o pid= | wc -l");
        let ran = user.run("kill -9 -1; echo survived");
        assert!(!ran.text.contains("still"), "67: {ran:?}");
        // The daemon and its keepers are still running.
        user.works("67", "sleep 100 & kill %1 && wait; true");
        assert!(!before.trim().is_empty());
    });
}

#[test]
fn a_process_inside_can_be_debugged() {
    as_each_user(|user| {
        let said = user.python(
            r#"
import signal
child = os.fork()
if child == 0:
    signal.pause()
print("66", call(101, 117, 16, child, 0, 0))
os.kill(child, signal.SIGKILL)
"#,
        );
        assert!(said.contains("66 ok"), "{said}");
    });
}

#[test]
fn control_group_and_terminals_cannot_be_changed() {
    as_each_user(|user| {
        let said = user.python(
            r#"
import fcntl, pty, glob
print("72", attempt(lambda: fcntl.ioctl(pty.openpty()[1], 0x5412, b"x")))
print("72", attempt(lambda: fcntl.ioctl(pty.openpty()[1], 0x541c, b"x")))
groups = [p for p in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:3]]
print("70", {attempt(lambda: open(p, "w").write("0")) for p in groups} <= {"EROFS", "EACCES"})
print("71", attempt(lambda: os.nice(-20)), attempt(lambda: open("/proc/self/oom_score_adj", "w").write("-1000")) )
print("73", [n for n in os.listdir("/dev/pts") if n != "ptmx"])
"#,
        );
        for line in ["72 EPERM", "70 True"] {
            assert!(said.lines().any(|said| said == line), "{line}: {said}");
        }
        assert!(
            !said.contains("72 ok") && !said.contains("71 ok ok"),
            "{said}"
        );
    });
}

#[test]
fn background_processes_end_with_a_killed_session() {
    as_each_user(|user| {
        let options = ["--sandbox", "workspace-write", "--timeout", "1s"];
        // No other test sleeps for the same time.
        let time = format!("1000.{}", std::process::id());
        let command = format!(
            "setsid bash -c 'sleep {time}; echo late > late' & (sleep {time} &); sleep {time}"
        );
        let ran = user.run_in(&options, &command);
        assert!(ran.code != 0, "75: {ran:?}");
        let left = user.outside(&format!(
            "ps -e -o args= | grep -c '[s]leep {time}$' || true"
        ));
        assert_eq!(left.trim(), "0", "75");
        assert!(!user.exists("work/late"));
    });
}

#[test]
fn leader_ends_by_sigterm_and_orphans_are_reaped() {
    as_each_user(|user| {
        // The command is not the first process of its pid namespace, which would ignore the signal.
        let ran = user.run("kill -TERM $$; echo survived");
        assert_eq!(ran.code, 143, "{ran:?}");
        let text = user.works(
            "75",
            "(true &) ; (true &); sleep 0.1; ps -e -o stat= | grep -c Z; true",
        );
        assert!(text.starts_with("0\n"), "{text}");
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn foreign_system_calls_are_killed() {
    as_each_user(|user| {
        let ran = user.run(
            "/usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39)'; echo code $?",
        );
        assert!(ran.text.contains("code 159"), "80: {ran:?}");
    });
}

#[test]
fn init_process_cannot_be_ended_or_replaced() {
    as_each_user(|user| {
        let said = user.python(
            r#"
import signal
print("76", *[attempt(lambda: os.kill(1, number)) for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)])
print("76", attempt(lambda: open("/proc/1/root/etc/x", "w")), attempt(lambda: os.setpgid(1, 1)))
print("68", call(434, 434, 2 ** 22 - 1, 0))
"#,
        );
        assert!(said.contains("76 EPERM EPERM EPERM"), "{said}");
        assert!(!said.contains("ok") && said.contains("68 ESRCH"), "{said}");
    });
}

#[test]
fn terminals_and_services_of_the_person_are_absent() {
    as_each_user(|user| {
        let said = user.run(
            "test -e /run/utmp -o -e /var/run/utmp -o -S /run/systemd/private -o -S /run/dbus/system_bus_socket; echo found $?; \
             ls /dev/pts; echo hello | wall; for program in 'systemctl --user start x' 'loginctl' 'tmux -L default ls' 'at now'; do \
             $program < /dev/null > /dev/null 2>&1 && echo \"$program works\"; done; true",
        );
        assert!(said.text.contains("found 1"), "74, 77: {said:?}");
        assert!(!said.text.contains("works"), "77: {said:?}");
    });
}

#[test]
fn harmless_settings_of_a_process_work() {
    as_each_user(|user| {
        let said = user.python(
            r#"
print("79", attempt(lambda: open("/proc/self/comm", "w").write("other")), attempt(lambda: open("/proc/self/oom_score_adj", "w").write("500")))
print("79", call(135, 92, 0x0040000), call(157, 167, 29, 1000, 0, 0, 0))
"#,
        );
        assert!(said.contains("79 ok ok\n79 ok ok"), "{said}");
    });
}

#[test]
fn crash_leaves_no_core_by_default() {
    as_each_user(|user| {
        let program = user.path("abide-program");
        let script = format!(
            "ulimit -c unlimited; {} run --sandbox workspace-write -- bash -c 'ulimit -Sc; kill -SEGV $$'",
            program.display()
        );
        let ran = user.command("/bin/bash").args(["-c", &script]).output();
        let said = String::from_utf8_lossy(&ran.expect("bash runs").stdout).into_owned();
        assert_eq!(said, "0\n", "85");
        assert_eq!(user.outside("ls"), "", "85");
    });
}
