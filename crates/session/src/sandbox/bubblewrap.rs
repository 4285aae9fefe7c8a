//! User namespace from bubblewrap, on machines that let this program make one and not others: AppArmor of Ubuntu denies
//! most programs the rights that a new user namespace gives, and knows `bwrap` by its path.
//!
//! `bwrap` makes the user namespace and runs `cat` in it until the namespace was opened here. A process that enters it may
//! make all other namespaces, so the rest of the sandbox is built as without bubblewrap and has the same walls.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::build::{Fault, Named};
use crate::cgroup::SessionCgroup;
use crate::fork_exec::{CloneArgs, exit_now};
use crate::nsinit::fork_into_namespaces;
use crate::spawn;

/// Places of the program. It is not searched for in `PATH`, which can name folders that a command writes to.
const PROGRAMS: [&str; 3] = [
    "/usr/bin/bwrap",
    "/usr/local/bin/bwrap",
    "/run/current-system/sw/bin/bwrap",
];
/// Longest text that is read from it: a few numbers, or one line that says what failed.
const OUTPUT_LIMIT: u64 = 4 << 10;

/// User namespace in which this user is mapped to itself. Ends with its last process or descriptor.
pub fn user_namespace() -> Result<OwnedFd, Fault> {
    user_namespace_by(&PROGRAMS).map_err(Fault::unavailable)
}

fn user_namespace_by(programs: &[&str]) -> Result<OwnedFd, Fault> {
    let program = (programs.iter().map(Path::new).find(|path| path.exists()))
        .ok_or_else(|| Fault::refused("use bubblewrap", "it is not installed"))?;
    check(program)?;
    let step = || format!("start '{}'", program.display());
    let (info, to_info) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).named(step)?;
    // This process has one thread, so no other child inherits it.
    rustix::io::fcntl_setfd(&to_info, FdFlags::empty()).named(step)?;
    let started = start(program, to_info.as_raw_fd()).named(step);
    drop(to_info);
    let mut started = started?;
    let opened = open(&mut started, info).map_err(|cause| {
        let said = first_line(&mut started);
        Fault::refused("use bubblewrap", &said.unwrap_or(cause.to_string()))
    });
    // `cat` ends when its input is closed, and bubblewrap after it.
    drop(started.stdin.take());
    let _ = started.wait();
    opened
}

/// Refuses a program that others could have changed, and one with root's rights: its namespace would be root's.
fn check(program: &Path) -> Result<(), Fault> {
    let found = program
        .metadata()
        .named(|| format!("open '{}'", program.display()))?;
    let why = match found.mode() {
        mode if mode & 0o4000 != 0 => "is setuid",
        mode if mode & 0o022 != 0 || found.uid() != 0 => "can be changed by others than root",
        _ => return Ok(()),
    };
    let why = format!("'{}' {why}", program.display());
    Err(Fault::refused("use bubblewrap", &why))
}

fn start(program: &Path, info: RawFd) -> io::Result<Child> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the program makes the user namespace in which a command is started"
    )]
    let mut command = Command::new(program);
    command
        .args(["--unshare-user", "--cap-drop", "ALL", "--die-with-parent"])
        .args(["--dev-bind", "/", "/", "--info-fd", &info.to_string()])
        .args(["--", "cat"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/run/current-system/sw/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn()
}

/// Waits until `cat` runs, which proves that the namespace is complete, and opens its user namespace.
fn open(started: &mut Child, info: OwnedFd) -> io::Result<OwnedFd> {
    let mut text = String::new();
    let mut info = std::fs::File::from(info).take(OUTPUT_LIMIT);
    info.read_to_string(&mut text)?;
    let missing = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let pid = child_pid(&text).ok_or_else(missing)?;
    let (mut input, output) = started
        .stdin
        .as_ref()
        .zip(started.stdout.as_mut())
        .ok_or_else(missing)?;
    input.write_all(b"\n")?;
    output.read_exact(&mut [0])?;
    Ok(std::fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
}

/// Number after `"child-pid":`.
fn child_pid(info: &str) -> Option<i32> {
    let (_, after) = info.split_once("\"child-pid\"")?;
    let after = after.trim_start_matches([':', ' ']);
    let end = after.find(|digit: char| !digit.is_ascii_digit())?;
    after[..end].parse().ok()
}

/// First line that bubblewrap has written about a failure.
fn first_line(started: &mut Child) -> Option<String> {
    let _ = started.kill();
    let mut text = Vec::new();
    let said = started.stderr.take()?.take(OUTPUT_LIMIT);
    { said }.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Forks this process, which has one thread, into a user namespace, into new namespaces that belong to it and into the
/// control group of its session. Returns 0 in the child. `handle` becomes a pidfd of the child.
pub fn fork_into(
    user: BorrowedFd<'_>,
    namespaces: libc::c_int,
    cgroup: Option<&SessionCgroup>,
    handle: &mut RawFd,
) -> io::Result<i32> {
    let (report, to_report) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let mut of_between: RawFd = -1;
    let between = match fork_into_namespaces(0, cgroup, &mut of_between)? {
        // The process in between has this memory copied, and ends at once.
        0 => {
            let forked = enter_and_fork(user, namespaces);
            if let Ok(0) = forked {
                return Ok(0);
            }
            let number = forked.unwrap_or_else(|fault| -fault.raw_os_error().unwrap_or(libc::EIO));
            let _ = rustix::io::write(to_report, &number.to_ne_bytes());
            exit_now(0)
        }
        pid => pid,
    };
    // SAFETY: the kernel has written a new descriptor.
    drop(unsafe { OwnedFd::from_raw_fd(of_between) });
    drop(to_report);
    let mut number = [0; 4];
    let read = std::fs::File::from(report).read_exact(&mut number);
    spawn::reap(between);
    read?;
    match i32::from_ne_bytes(number) {
        pid @ 1.. => {
            // The child is not reaped yet, so the number is still its own.
            let pid_of_child = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
            let opened = rustix::process::pidfd_open(pid_of_child, PidfdFlags::empty())?;
            *handle = opened.into_raw_fd();
            Ok(pid)
        }
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

/// Enters the user namespace and forks a child of the parent of this process into the other namespaces.
fn enter_and_fork(user: BorrowedFd<'_>, namespaces: libc::c_int) -> io::Result<i32> {
    move_into_link_name_space(user, Some(LinkNameSpaceType::User))?;
    // The gained capabilities have made this process undumpable, and the keeper could not enter its child's namespaces.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let args = CloneArgs {
        flags: (namespaces & !libc::CLONE_NEWUSER | libc::CLONE_PARENT) as u64,
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM the child has a copy of all memory, as after a fork, and this process has one thread.
    match unsafe { libc::syscall(libc::SYS_clone3, &args, size_of::<CloneArgs>()) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn pid_is_read_from_the_information() {
        let info = "{\n    \"child-pid\": 26397,\n    \"ipc-namespace\": 4026532186\n}\n";
        assert_eq!(child_pid(info), Some(26397));
        assert_eq!(child_pid("{\n \"child-pid\": 7\n}"), Some(7));
        assert_eq!(child_pid("{}"), None);
        assert_eq!(child_pid("\"child-pid\": 12"), None);
    }

    #[test]
    fn missing_setuid_and_changeable_programs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bwrap");
        let refused = |says: &str| {
            let fault = user_namespace_by(&[path.to_str().unwrap()]).unwrap_err();
            assert!(fault.to_string().contains(says), "{fault}");
        };
        refused("not installed");
        std::fs::write(&path, "#!/bin/sh\necho no such luck >&2\n").unwrap();
        for (mode, says) in [(0o4755, "is setuid"), (0o777, "changed by others")] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            refused(says);
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        match rustix::process::getuid().is_root() {
            true => refused("no such luck"),
            false => refused("changed by others"),
        }
    }
}
