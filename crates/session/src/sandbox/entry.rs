//! Entry of a command into its sandbox, between clone and exec: makes system calls and nothing else, because the child
//! shares the memory of the keeper.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::bpf;
use super::filter::{Filter, NEW_LISTENER, SET_MODE_FILTER};
use crate::fd_passing;
use crate::nsinit::Namespace;

/// Parts of a sandbox that a command needs to enter it, prepared before the clone.
pub(crate) struct Entry {
    /// pidfd of the init process, and the namespaces to enter.
    namespaces: Option<(RawFd, libc::c_int)>,
    ruleset: Option<OwnedFd>,
    filter: Arc<Filter>,
    reports: Option<Reports>,
}

/// Socket through which the listener of a filter that reports goes to the keeper.
struct Reports {
    keeper: OwnedFd,
    child: OwnedFd,
}

/// `struct __user_cap_header_struct` of the kernel.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;
const CAPABILITY_VERSION: u32 = 0x2008_0522;
const LAST_CAPABILITY: libc::c_ulong = 63;
/// `SECBIT_NOROOT`, `SECBIT_NO_SETUID_FIXUP` and their locks: root gets no capabilities by executing a program.
const NO_ROOT: libc::c_ulong = 0b1111;

impl Entry {
    pub fn new(
        namespaces: Option<(&Namespace, libc::c_int)>,
        ruleset: Option<OwnedFd>,
        filter: Arc<Filter>,
    ) -> Self {
        Entry {
            namespaces: namespaces.map(|(of, flags)| (of.handle.as_raw_fd(), flags)),
            ruleset,
            filter,
            reports: Reports::prepare(),
        }
    }

    /// Listener of the filter that reports attempts to write, once the command has begun. `None`: the kernel allows none
    /// here.
    pub fn take_listener(&mut self) -> Option<OwnedFd> {
        let reports = self.reports.take()?;
        drop(reports.child);
        let received = fd_passing::receive(&reports.keeper, &mut [0], RecvFlags::DONTWAIT);
        let listener = received.ok()?.1.pop()?;
        HAD_LISTENER.store(true, Ordering::Relaxed);
        Some(listener)
    }

    /// Filter of the command.
    pub fn filter_rules(&self) -> Arc<Filter> {
        Arc::clone(&self.filter)
    }

    /// True if the command enters namespaces.
    pub fn has_namespaces(&self) -> bool {
        self.namespaces.is_some()
    }

    /// Enters the namespaces. The pid namespace holds for children only.
    pub fn join(&self) -> libc::c_int {
        match self.namespaces {
            // SAFETY: a plain system call on a descriptor that the keeper holds.
            Some((init, flags)) => unsafe { libc::setns(init, flags) },
            None => 0,
        }
    }

    /// Gives up all capabilities and the chance to get new ones, and enters the Landlock domain.
    pub fn give_up_rights(&self) -> libc::c_int {
        // SAFETY: plain system calls; the structures live on this stack.
        unsafe {
            libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT, 0, 0, 0);
            for capability in 0..=LAST_CAPABILITY {
                if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 {
                    break;
                }
            }
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
                0,
                0,
                0,
            );
            let header = CapabilityHeader {
                version: CAPABILITY_VERSION,
                pid: 0,
            };
            let none = [Capabilities::default(); 2];
            if libc::syscall(libc::SYS_capset, &header, none.as_ptr()) < 0 {
                return -1;
            }
            let mut left = [Capabilities {
                effective: 1,
                ..Capabilities::default()
            }; 2];
            if libc::syscall(libc::SYS_capget, &header, left.as_mut_ptr()) < 0 {
                return -1;
            }
            // Without a user namespace only root may change the bounding set; no_new_privs then has its effect.
            let bounded = libc::prctl(libc::PR_CAPBSET_READ, 0, 0, 0, 0) == 0;
            if left != none || (self.namespaces.is_some() && !bounded) {
                *libc::__errno_location() = libc::EPERM;
                return -1;
            }
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 {
                return -1;
            }
            match &self.ruleset {
                Some(rules) => {
                    let rules = rules.as_raw_fd();
                    libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) as libc::c_int
                }
                None => 0,
            }
        }
    }

    /// Installs the system call filter, and marks every descriptor but the standard ones to be closed. A kernel that allows no
    /// listener (WSL2 has one already) loses the record of refusals and nothing else.
    pub fn filter(&self) -> libc::c_int {
        // SAFETY: a plain system call.
        let closed =
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, CLOSE_RANGE_CLOEXEC) };
        if closed < 0 {
            return -1;
        }
        let listener = self.reports.as_ref().and_then(|reports| {
            let listener = install(&self.filter.reporting, NEW_LISTENER).ok()??;
            let _ = fd_passing::send(&reports.child, &[0], &[listener.as_fd()]);
            Some(listener)
        });
        match listener {
            // The program that is executed closes it.
            Some(listener) => {
                let _ = listener.into_raw_fd();
                0
            }
            None if install(&self.filter.plain, 0).is_ok() => 0,
            None => -1,
        }
    }
}

impl Reports {
    fn prepare() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (keeper, child) = pair.ok()?;
        Some(Reports { keeper, child })
    }
}

/// Installs a filter in this thread. Returns the listener that a flag asks for. The error is in `errno`.
fn install(filter: &bpf::Program, flags: libc::c_uint) -> Result<Option<OwnedFd>, ()> {
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: a plain system call, which copies the filter, and a new descriptor.
    unsafe {
        let result = libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &program);
        let listener = || OwnedFd::from_raw_fd(result as RawFd);
        match result {
            ..0 => Err(()),
            _ => Ok((flags & NEW_LISTENER != 0).then(listener)),
        }
    }
}

/// True if an earlier command of this keeper had a listener.
static HAD_LISTENER: AtomicBool = AtomicBool::new(false);

/// Returns whether the kernel notifies the keeper of system calls. If that is not known yet, it installs a filter that allows
/// all of them in this thread.
pub fn can_notify() -> bool {
    HAD_LISTENER.load(Ordering::Relaxed) || install(&bpf::allow_all(), NEW_LISTENER).is_ok()
}
