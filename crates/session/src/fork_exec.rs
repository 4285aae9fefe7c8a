//! From a plan to a running program: the clone, and every step of the child up to `exec`.
//!
//! The child borrows this process's memory until it executes, and this process stands still
//! meanwhile. So nothing is copied, and a step that fails is simply noted in the plan.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::fs::{Mode, OFlags, Timespec};

use super::cgroup::Leaf;
use super::launch::ResourceLimit;
use super::spawn::Failure;
use super::{mark, oom};

/// What the child needs between its birth and `exec`, made ready before: it may not allocate.
pub(super) struct Plan {
    /// Where the program may lie.
    pub paths: Vec<CString>,
    /// Its arguments.
    pub argv: Pointers,
    /// Its environment.
    pub env: Pointers,
    /// Its folder.
    pub cwd: CString,
    /// Its mask for new files.
    pub umask: libc::mode_t,
    /// What it may use at most, where that is not what the keeper may.
    pub limits: Vec<ResourceLimit>,
    /// Its limit on file locks, by which it is known.
    pub mark: u64,
    /// Its share in want of memory, where it is not the keeper's own.
    pub oom_score: Option<&'static CStr>,
    /// Its standard input, output and error.
    pub streams: [RawFd; 3],
    /// Whether those are its terminal.
    pub terminal: bool,
    /// A process whose mounts it shares.
    pub mounts_of: Option<RawFd>,
    /// The list of its group's processes, where it has to enter by itself.
    pub enter: Option<OwnedFd>,
    /// The step that failed, and the system's number.
    pub fault: Cell<Option<(Step, i32)>>,
}

/// Strings and the null-ended row of pointers to them.
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
    Session,
    Terminal,
    Streams,
    Folder,
    Run,
}

/// Brings the plan to life in its control group. Returns once the program was executed, or once the
/// child has given up and noted why. Where the kernel is too old, or a filter forbids the call, the
/// child enters the group by itself.
pub(super) fn clone_and_exec(plan: &mut Plan, leaf: Option<&Leaf>) -> Result<i32, Failure> {
    let group = leaf.map(|leaf| leaf.folder.as_raw_fd());
    let pid = match retry_on_eagain(|| clone_into(plan, group)) {
        Err(fault) if matches!(fault.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            if let Some(leaf) = leaf {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let procs = rustix::fs::openat(&leaf.folder, "cgroup.procs", flags, Mode::empty())
                    .map_err(|errno| Failure::new("cannot enter the group", &errno.into()))?;
                plan.enter = Some(procs);
            }
            retry_on_eagain(|| clone_without_clone3(plan))
        }
        other => other,
    };
    pid.map_err(|fault| fork_failure("cannot start a process", &fault))
}

/// How often a process is tried for where there is none to be had, and how long apart.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// Processes may be about to end, so a limit that is reached is tried against a few times.
pub(super) fn retry_on_eagain<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(fault) if fault.raw_os_error() == Some(libc::EAGAIN) => pause(PAUSE),
            other => return other,
        }
    }
    attempt()
}

/// Does nothing for so long.
pub(super) fn pause(time: Duration) {
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: time.subsec_nanos().into(),
    };
    let mut nothing: [PollFd<'_>; 0] = [];
    let _ = rustix::event::poll(&mut nothing, Some(&time));
}

/// Says which limit stands in the way, as far as the system does.
pub(super) fn fork_failure(what: &str, fault: &io::Error) -> Failure {
    match fault.raw_os_error() {
        Some(libc::EAGAIN) => Failure {
            errno: libc::EAGAIN,
            sentence: format!(
                "{what}: the limit on the number of processes is reached \
                 (pids.max of a control group, ulimit -u, or kernel.pid_max)"
            ),
        },
        _ => Failure::new(what, fault),
    }
}

/// As the kernel has it.
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

fn clone_into(plan: &Plan, group: Option<RawFd>) -> io::Result<i32> {
    let args = CloneArgs {
        flags: (libc::CLONE_VM | libc::CLONE_VFORK) as u64 | group.map_or(0, |_| CLONE_INTO_CGROUP),
        exit_signal: libc::SIGCHLD as u64,
        cgroup: group.unwrap_or(0) as u64,
        ..CloneArgs::default()
    };
    // SAFETY: the child runs below this frame on the same stack, while this process stands still; it
    // changes no memory but that and the plan's note, and does not return.
    match unsafe { clone3(&args, become_command, std::ptr::from_ref(plan).cast()) } {
        pid @ 0.. => Ok(pid as i32),
        errno => Err(io::Error::from_raw_os_error(-errno as i32)),
    }
}

type ChildMain = extern "C" fn(*const libc::c_void) -> !;

/// A clone whose child goes into `main` on the stack of this process. The library has no such call:
/// in the child, nothing may return through a frame that the parent still uses.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(args: &CloneArgs, main: ChildMain, with: *const libc::c_void) -> i64 {
    let result;
    // SAFETY: as the caller promises. What the system call changes is declared.
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

/// The same for this processor.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(args: &CloneArgs, main: ChildMain, with: *const libc::c_void) -> i64 {
    let result;
    // SAFETY: as the caller promises. What the system call changes is declared.
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

/// Not known for this processor: the way for old kernels is taken.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: &CloneArgs, _: ChildMain, _: *const libc::c_void) -> i64 {
    -i64::from(libc::ENOSYS)
}

/// What the child may use of a stack that is made for it.
const CHILD_STACK: usize = 64 << 10;

/// The call that every kernel has.
fn clone_without_clone3(plan: &Plan) -> io::Result<i32> {
    extern "C" fn main(plan: *mut libc::c_void) -> libc::c_int {
        become_command(plan)
    }
    let mut stack = vec![0_u128; CHILD_STACK / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is aligned and outlives the child's use of it, since this process stands
    // still; the child changes no other memory but the plan's note.
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

/// The child's way from birth to `exec`. Makes system calls and nothing else.
extern "C" fn become_command(plan: *const libc::c_void) -> ! {
    // SAFETY: the plan outlives the child's use of it. Plain system calls on descriptors and strings
    // that the plan keeps alive.
    unsafe {
        let plan = &*plan.cast::<Plan>();
        // The keeper's end would leave the leader to nobody.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::umask(plan.umask);
        if let Some(score) = plan.oom_score {
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
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, null_mut());
        plan.check(Step::Folder, libc::chdir(plan.cwd.as_ptr()));
        plan.limits.iter().for_each(bind);
        mark::set(plan.mark);
        let mut errno = libc::ENOENT;
        for path in &plan.paths {
            libc::execve(path.as_ptr(), plan.argv.row.as_ptr(), plan.env.row.as_ptr());
            match *libc::__errno_location() {
                libc::ENOENT | libc::ENOTDIR => {}
                // Found, but not to be run: look further, and say so if nothing else is found.
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

/// Binds this process to what whoever started it is bound to, or to what the keeper is where that is
/// less. What the kernel does not know, or does not allow, stays as it is.
fn bind(bound: &ResourceLimit) {
    // The mark is the session's own, also where another session asked for this one.
    if bound.resource == libc::RLIMIT_LOCKS {
        return;
    }
    // SAFETY: plain system calls about this very process, on structures that live here.
    unsafe {
        let mut now: libc::rlimit = std::mem::zeroed();
        let none = std::ptr::null();
        if libc::prlimit(0, bound.resource, none, &mut now) < 0 {
            return;
        }
        let hard = bound.hard.min(now.rlim_max);
        let then = libc::rlimit {
            rlim_cur: bound.soft.min(hard),
            rlim_max: hard,
        };
        libc::prlimit(0, bound.resource, &then, std::ptr::null_mut());
    }
}

impl Plan {
    fn check(&self, step: Step, result: i32) {
        if result < 0 {
            // SAFETY: reads the number of the call that has just failed.
            self.give_up(step, unsafe { *libc::__errno_location() })
        }
    }

    fn give_up(&self, step: Step, errno: i32) -> ! {
        self.fault.set(Some((step, errno)));
        // SAFETY: runs nothing of the parent's.
        unsafe { libc::_exit(127) }
    }
}
