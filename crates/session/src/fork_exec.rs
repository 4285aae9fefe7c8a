//! Clone and exec: every step of the child up to `execve`.
//!
//! The child shares the memory of this process until it executes, and this process is suspended meanwhile
//! (`CLONE_VM | CLONE_VFORK`). So no page is copied, and the child reports a failed step by writing it into the plan.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::cgroup::SessionCgroup;
use super::clock::pause;
use super::frame::StartFailure;
use super::launch::ResourceLimit;
use super::sandbox::entry::Entry;
use super::{inherited_limits, mark, oom, signals};

/// Everything that the child needs between clone and exec, prepared before, because the child may not
/// allocate.
pub(super) struct ExecPlan<'a> {
    /// Candidate paths of the program.
    pub paths: Vec<CString>,
    /// Arguments.
    pub argv: Pointers,
    /// Environment.
    pub env: Pointers,
    /// Working directory.
    pub cwd: CString,
    /// umask.
    pub umask: libc::mode_t,
    /// Resource limits that differ from the keeper's.
    pub limits: Vec<ResourceLimit>,
    /// Hard limit of `RLIMIT_LOCKS`, by which the processes of a session are recognised.
    pub mark: u64,
    /// `oom_score_adj` of the child, if it differs from the keeper's.
    pub oom_score: Option<&'static CStr>,
    /// Standard input, output and error.
    pub streams: [RawFd; 3],
    /// True if the streams are a terminal, which becomes the controlling terminal.
    pub terminal: bool,
    /// pidfd of the process whose mount namespace the child enters.
    pub mounts_of: Option<RawFd>,
    /// Sandbox that the child enters.
    pub sandbox: Option<&'a Entry>,
    /// Pid of the command in a sandbox, which a process in between starts.
    pub leader: Cell<i32>,
    /// `cgroup.procs` of the session's cgroup, if the child has to enter it by itself.
    pub enter: Option<OwnedFd>,
    /// The failed step and its `errno`.
    pub fault: Cell<Option<(Step, i32)>>,
}

/// Strings and the null-terminated array of pointers to them.
pub(super) struct Pointers {
    _strings: Vec<CString>,
    row: Vec<*const libc::c_char>,
}

impl Pointers {
    pub fn new(strings: Vec<CString>) -> Self {
        let mut row: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        row.push(std::ptr::null());
        Pointers {
            _strings: strings,
            row,
        }
    }
}

/// The steps of the child, in order.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Enter,
    Mounts,
    Sandbox,
    Rights,
    Filter,
    Session,
    Terminal,
    Streams,
    Folder,
    Run,
}

/// Clones the child into its cgroup. Returns once the program was executed, or once the child has failed
/// and noted why. If the kernel is too old for `clone3`, or a seccomp filter forbids it, the child enters
/// the cgroup by itself.
pub(super) fn clone_and_exec(
    plan: &mut ExecPlan<'_>,
    cgroup: Option<&SessionCgroup>,
) -> Result<i32, StartFailure> {
    let cgroup_fd = cgroup.map(|cgroup| cgroup.folder.as_raw_fd());
    if plan.sandbox.is_some_and(Entry::has_namespaces) {
        return clone_into_sandbox(plan, cgroup_fd);
    }
    let pid = match retry_on_eagain(|| clone_into(plan, cgroup_fd)) {
        Err(fault) if matches!(fault.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            if let Some(cgroup) = cgroup {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let procs =
                    rustix::fs::openat(&cgroup.folder, "cgroup.procs", flags, Mode::empty())
                        .map_err(|errno| {
                            StartFailure::new("cannot enter the group", &errno.into())
                        })?;
                plan.enter = Some(procs);
            }
            retry_on_eagain(|| clone_without_clone3(plan))
        }
        other => other,
    };
    pid.map_err(|fault| fork_failure("cannot start a process", &fault))
}

/// Number of attempts to fork when the limit of processes is reached, and the pause between them.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// Repeats an attempt that fails with `EAGAIN` a few times: processes may be about to end.
pub(super) fn retry_on_eagain<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(fault) if fault.raw_os_error() == Some(libc::EAGAIN) => pause(PAUSE),
            other => return other,
        }
    }
    attempt()
}

/// Describes a failed fork, with the limit that was reached.
pub(super) fn fork_failure(what: &str, fault: &io::Error) -> StartFailure {
    match fault.raw_os_error() {
        Some(libc::EAGAIN) => StartFailure::now(
            libc::EAGAIN,
            format!(
                "{what}: the limit on the number of processes is reached \
                 (pids.max of a control group, ulimit -u, or kernel.pid_max)"
            ),
        ),
        _ => StartFailure::new(what, fault),
    }
}

/// `struct clone_args` of the kernel.
#[repr(C)]
#[derive(Default)]
pub(super) struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Clones a process that enters the sandbox and clones the command there: a pid namespace holds only for children. The
/// command becomes a child of this process nevertheless (`CLONE_PARENT`).
fn clone_into_sandbox(plan: &ExecPlan<'_>, cgroup_fd: Option<RawFd>) -> Result<i32, StartFailure> {
    let between = retry_on_eagain(|| clone_to(enter_sandbox, plan, cgroup_fd))
        .map_err(|fault| fork_failure("cannot start a process", &fault))?;
    super::spawn::reap(between);
    // The process in between has gained capabilities in the sandbox while it shared this memory, so the kernel has
    // made this process undumpable, and its files in /proc root's.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable);
    match (plan.leader.get(), plan.fault.get()) {
        (0, None) => Err(StartFailure::now(
            libc::EINTR,
            "cannot start the command: the process that enters the sandbox was killed",
        )),
        (leader, _) => Ok(leader),
    }
}

/// Main function of the process between the keeper and the command in a sandbox.
extern "C" fn enter_sandbox(plan: *const libc::c_void) -> ! {
    // SAFETY: the plan outlives this process's use of it. Plain system calls; the child runs below this frame while
    // this process is suspended.
    unsafe {
        let shared = &*plan.cast::<ExecPlan<'_>>();
        // Before the namespaces are entered: afterwards, /proc is another.
        if let Some(score) = shared.oom_score {
            oom::set_score(score);
        }
        if let Some(entry) = shared.sandbox {
            shared.check(Step::Sandbox, entry.join());
        }
        let args = CloneArgs {
            flags: (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT) as u64,
            ..CloneArgs::default()
        };
        match clone3(&args, become_command, plan) {
            pid @ 1.. => shared.leader.set(pid as i32),
            errno => shared.give_up(Step::Sandbox, -errno as i32),
        }
    }
    exit_now(0)
}

fn clone_into(plan: &ExecPlan<'_>, cgroup_fd: Option<RawFd>) -> io::Result<i32> {
    clone_to(become_command, plan, cgroup_fd)
}

fn clone_to(main: ChildMain, plan: &ExecPlan<'_>, cgroup_fd: Option<RawFd>) -> io::Result<i32> {
    let args = CloneArgs {
        flags: (libc::CLONE_VM | libc::CLONE_VFORK) as u64
            | cgroup_fd.map_or(0, |_| CLONE_INTO_CGROUP),
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup_fd.unwrap_or(0) as u64,
        ..CloneArgs::default()
    };
    // SAFETY: the child runs below this frame on the same stack while this process is suspended; it changes no other
    // memory than its stack and `plan.fault`, and does not return.
    match unsafe { clone3(&args, main, std::ptr::from_ref(plan).cast()) } {
        pid @ 0.. => Ok(pid as i32),
        errno => Err(io::Error::from_raw_os_error(-errno as i32)),
    }
}

type ChildMain = extern "C" fn(*const libc::c_void) -> !;

/// `clone3` whose child calls `main` on the stack of this process. libc has no such call: in the child,
/// nothing may return through a frame that the parent still uses.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(args: &CloneArgs, main: ChildMain, with: *const libc::c_void) -> i64 {
    let result;
    // SAFETY: as the caller promises. The registers that the system call changes are declared.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {with}",
            "call {main}",
            "ud2",
            "2:",
            main = in(reg) main,
            with = in(reg) with,
            inout("rax") libc::SYS_clone3 => result,
            in("rdi") args,
            in("rsi") size_of::<CloneArgs>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

/// `clone3` for aarch64.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(args: &CloneArgs, main: ChildMain, with: *const libc::c_void) -> i64 {
    let result;
    // SAFETY: as the caller promises. The registers that the system call changes are declared.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, {with}",
            "blr {main}",
            "brk 1",
            "2:",
            main = in(reg) main,
            with = in(reg) with,
            inout("x0") std::ptr::from_ref(args) => result,
            in("x1") size_of::<CloneArgs>(),
            in("x8") libc::SYS_clone3,
        );
    }
    result
}

/// Not implemented for this architecture: the caller falls back to `clone`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: &CloneArgs, _: ChildMain, _: *const libc::c_void) -> i64 {
    -i64::from(libc::ENOSYS)
}

/// Size of the child's stack.
const CHILD_STACK: usize = 64 << 10;

/// Clones with the older `clone` call, which every kernel has.
fn clone_without_clone3(plan: &ExecPlan<'_>) -> io::Result<i32> {
    extern "C" fn main(plan: *mut libc::c_void) -> libc::c_int {
        become_command(plan)
    }
    let mut stack = vec![0_u128; CHILD_STACK / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is aligned and outlives the child's use of it, since this process is suspended; the child
    // changes no other memory than its stack and `plan.fault`.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end;
        libc::clone(
            main,
            top.cast(),
            flags,
            std::ptr::from_ref(plan).cast_mut().cast(),
        )
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Runs the child's steps from clone to exec. Makes system calls and nothing else.
extern "C" fn become_command(plan: *const libc::c_void) -> ! {
    // SAFETY: the plan outlives the child's use of it. Plain system calls on descriptors and strings
    // that the plan keeps alive.
    unsafe {
        let plan = &*plan.cast::<ExecPlan<'_>>();
        // The leader must not outlive the keeper.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::umask(plan.umask);
        if let Some(score) = plan.oom_score
            && !plan.sandbox.is_some_and(Entry::has_namespaces)
        {
            oom::set_score(score);
        }
        if let Some(procs) = &plan.enter {
            let entered = libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1);
            plan.check(Step::Enter, entered as i32);
        }
        if let Some(process) = plan.mounts_of {
            plan.check(Step::Mounts, libc::setns(process, libc::CLONE_NEWNS));
        }
        plan.check(Step::Session, libc::setsid());
        if plan.terminal {
            let taken = libc::ioctl(plan.streams[0], libc::TIOCSCTTY, 0);
            plan.check(Step::Terminal, taken);
        }
        for (to, from) in plan.streams.into_iter().enumerate() {
            plan.check(Step::Streams, libc::dup2(from, to as RawFd));
        }
        signals::unblock_all();
        plan.check(Step::Folder, libc::chdir(plan.cwd.as_ptr()));
        plan.limits.iter().for_each(bind);
        mark::set(plan.mark);
        if let Some(entry) = plan.sandbox {
            plan.check(Step::Rights, entry.give_up_rights());
            // Changed credentials have cleared it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            plan.check(Step::Filter, entry.filter());
        }
        let mut errno = libc::ENOENT;
        for path in &plan.paths {
            libc::execve(path.as_ptr(), plan.argv.row.as_ptr(), plan.env.row.as_ptr());
            match *libc::__errno_location() {
                libc::ENOENT | libc::ENOTDIR => {}
                // Found but not executable: try the next path, and report this error if no other is found.
                libc::EACCES => errno = libc::EACCES,
                other => {
                    errno = other;
                    break;
                }
            }
        }
        plan.give_up(Step::Run, errno)
    }
}

/// Applies a resource limit, at most up to the keeper's own. A limit that the kernel does not know, or does
/// not allow, is left unchanged.
fn bind(bound: &ResourceLimit) {
    let resource = match inherited_limits::resource(bound.resource) {
        // The mark belongs to the session, so a limit inherited from another session must not replace it.
        None | Some(Resource::Locks) => return,
        Some(resource) => resource,
    };
    let unlimited = u64::MAX;
    let hard = bound
        .hard
        .min(getrlimit(resource).maximum.unwrap_or(unlimited));
    let limit = |value: u64| (value != unlimited).then_some(value);
    let new = Rlimit {
        current: limit(bound.soft.min(hard)),
        maximum: limit(hard),
    };
    let _ = setrlimit(resource, new);
}

impl ExecPlan<'_> {
    fn check(&self, step: Step, result: i32) {
        if result < 0 {
            let errno = io::Error::last_os_error().raw_os_error();
            self.give_up(step, errno.unwrap_or(libc::EIO))
        }
    }

    fn give_up(&self, step: Step, errno: i32) -> ! {
        self.fault.set(Some((step, errno)));
        exit_now(127)
    }
}

/// Exits without running any code that the parent has registered.
pub(super) fn exit_now(code: libc::c_int) -> ! {
    // SAFETY: ends this process and touches no memory.
    unsafe { libc::_exit(code) }
}
