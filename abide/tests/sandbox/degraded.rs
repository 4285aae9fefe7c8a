//! Attacks 185 and 189: parts of the kernel that are missing, and steps of the start that fail.

use crate::harness::{Ran, User, as_each_user};

/// Attempts that each wall of a sandbox holds off alone. Prints `breached` for each one that succeeds.
const ATTEMPTS: &str = "echo x > $ROOT/outside/x && echo breached; cat ~/.aws/credentials && echo breached; \
                        unshare -U true && echo breached; echo x > /proc/sys/kernel/core_pattern && echo breached; echo it-runs";

fn run(user: &User, program: &str, before: &[&str]) -> Ran {
    let options = "--sandbox workspace-write --network off";
    run_script(user, program, before, options, ATTEMPTS)
}

fn run_script(user: &User, program: &str, before: &[&str], options: &str, script: &str) -> Ran {
    let abide = user.path("abide-program");
    let abide = abide.display();
    let script =
        format!("{abide} run {options} -- /bin/bash -c '{script}'; {abide} stop > /dev/null");
    let ran = user
        .command(program)
        .args(before)
        .args(["/bin/bash", "-c", &script])
        .output()
        .expect("the program runs");
    Ran {
        code: ran.status.code().unwrap_or(-1),
        text: String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned(),
    }
}

/// A filter with a listener of its own, as that of WSL2: the kernel allows no second one as long as a process has the first,
/// so a child keeps it until the program ends.
const LISTENER: &str = r#"
import ctypes, os, platform, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]
allow = Filter(6, 0, 0, 0x7fff0000)
program = Program(1, ctypes.pointer(allow))
libc.prctl(38, 1, 0, 0, 0)
number = 277 if platform.machine() == "aarch64" else 317
assert libc.syscall(number, 1, 8, ctypes.byref(program)) >= 0, ctypes.get_errno()
if os.fork() == 0:
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    signal.pause()
os.execvp(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn p185_without_a_listener_only_the_record_of_refusals_is_missing_and_a_gap_is_named() {
    as_each_user(|user| {
        user.write("home/.aws/credentials", "horse");
        let script = user.write("listener.py", LISTENER);
        let script = script.to_str().expect("a path");
        let ran = run(user, "/usr/bin/python3", &[script]);
        assert!(ran.text.contains("it-runs"), "185: {ran:?}");
        assert!(!ran.text.contains("breached"), "185: {ran:?}");
        let gap = "protected names that do not exist in the workspace can be made";
        for (mode, is_named) in [("workspace-write", true), ("read-only", false)] {
            let options = format!("--json --sandbox {mode}");
            let ran = run_script(user, "/usr/bin/python3", &[script], &options, "true");
            assert_eq!(ran.text.contains(gap), is_named, "185: {mode}: {ran:?}");
        }
    });
}

#[test]
fn p185_without_an_overlay_the_home_folder_is_read_only_and_a_gap_is_named() {
    as_each_user(|user| {
        user.write("home/file", "kept\n");
        // An overlay cannot be the upper layer of another.
        let script = format!(
            "mkdir -p $ROOT/lower $ROOT/upper $ROOT/workdir && \
             mount -t overlay -o lowerdir=$ROOT/lower,upperdir=$ROOT/upper,workdir=$ROOT/workdir none $ROOT/state && \
             {0} run --json --sandbox workspace-write -- /bin/bash -c 'echo x > file && cat file; echo x > ~/file; echo x > ~/.cache/new'; \
             {0} stop > /dev/null",
            user.path("abide-program").display()
        );
        let ran = user.in_user_namespace(&script);
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert!(
            said.contains("the home folder is read-only instead of layered"),
            "185: {said}"
        );
        let temporary = "a temporary folder is private and begins empty instead of layered";
        assert!(said.contains(temporary), "185: {said}");
        assert!(said.contains("Read-only file system"), "185: {said}");
        assert_eq!(user.read("home/file"), "kept\n", "185");
        assert_eq!(user.read("work/file"), "x\n", "185");
    });
}

/// System calls by which a sandbox is built and entered. Each is made to fail in all processes.
const STEPS: [&str; 10] = [
    "setns",
    "capset",
    "landlock_restrict_self",
    "close_range",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsmount",
    "seccomp",
];

/// Options of strace that make a system call fail in all processes. `None`: nothing fails.
fn tracing(fault: Option<(&str, &str)>) -> Vec<String> {
    let (step, inject) = match fault {
        Some((step, fault)) => (step, format!("inject={step}:{fault}")),
        None => ("setns", "trace=setns".to_owned()),
    };
    let trace = format!("trace={step}");
    ["-f", "-o", "/dev/null", "-e", &trace, "-e", &inject]
        .map(str::to_owned)
        .to_vec()
}

#[test]
fn p189_command_is_not_started_less_guarded_when_a_step_fails() {
    if !std::path::Path::new("/usr/bin/strace").exists() {
        eprintln!("skipped: no strace; `make programs` installs it");
        return;
    }
    as_each_user(|user| {
        user.write("home/.aws/credentials", "horse");
        let run_traced = |fault| {
            let options = tracing(fault);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            // A step that is waited for in vain fails the test.
            run(
                user,
                "/usr/bin/timeout",
                &[&["60", "/usr/bin/strace"], &options[..]].concat(),
            )
        };
        let plain = run_traced(None);
        assert!(
            plain.code == 0 && plain.text.contains("it-runs") && !plain.text.contains("breached"),
            "{plain:?}"
        );
        for step in STEPS {
            for fault in ["error=EPERM", "signal=KILL"] {
                let ran = run_traced(Some((step, fault)));
                assert_eq!(ran.code, 0, "189: {step}: {fault}: {ran:?}");
                assert!(
                    !ran.text.contains("breached"),
                    "189: {step}: {fault}: {ran:?}"
                );
                assert!(
                    !ran.text.contains("it-runs"),
                    "189: {step}: {fault}: {ran:?}"
                );
                assert!(!user.exists("outside/x"), "189: {step}: {fault}");
            }
        }
    });
}
