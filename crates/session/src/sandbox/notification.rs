//! A system call of a sandbox that the kernel reports (seccomp user notification), and the answer of the keeper.
//!
//! Numbers come from registers and are certain. Paths and addresses are read from the memory of the command, which can
//! change them afterwards.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::filter::path_arguments;
use super::protected_names::Change;

/// Longest path that is kept, in bytes.
const PATH_LIMIT: usize = 4_096;
/// Size of `struct sockaddr_in6`, in bytes.
const SOCKET_ADDRESS: usize = 28;
const NOTIF_RECV: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const NOTIF_SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const NOTIF_SET_FLAGS: libc::Ioctl = 0x4008_2104_u32 as libc::Ioctl;
const CONTINUE: u32 = 1;
/// The keeper and the command wake each other on the same core, since one of the two always waits.
const SYNC_WAKE_UP: u64 = 1;

/// `struct seccomp_notif` of the kernel.
#[repr(C)]
#[derive(Default)]
pub(super) struct Notification {
    id: u64,
    /// Thread that makes the call.
    pub pid: u32,
    flags: u32,
    /// Number of the call.
    pub number: i32,
    arch: u32,
    instruction_pointer: u64,
    /// Arguments of the call.
    pub args: [u64; 6],
}

/// `struct seccomp_notif_resp` of the kernel.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Answer of the keeper to a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Left to the kernel, which may refuse it.
    Continue,
    /// Failure with this error.
    Fail(i32),
}

/// Prepares a listener.
pub(super) fn prepare(listener: BorrowedFd<'_>) {
    // SAFETY: the kernel takes the number itself. Before Linux 6.6 it refuses, and notifications take longer.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

impl Notification {
    /// Takes the next call from a listener.
    pub fn receive(listener: BorrowedFd<'_>) -> Option<Self> {
        let mut seen = Notification::default();
        // SAFETY: the kernel writes one structure of this size.
        let received = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV, &mut seen) };
        (received == 0).then_some(seen)
    }

    /// Answers the call. `false`: its process has ended since, and may have given its number to another.
    pub fn answer(&self, listener: BorrowedFd<'_>, verdict: Verdict) -> bool {
        let (error, flags) = match verdict {
            Verdict::Continue => (0, CONTINUE),
            Verdict::Fail(errno) => (-errno, 0),
        };
        let answer = Response {
            id: self.id,
            value: 0,
            error,
            flags,
        };
        // SAFETY: the kernel reads one structure of this size.
        unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND, &answer) == 0 }
    }

    /// User and group to which a call gives a file; `u32::MAX`: they stay.
    pub fn new_owner(&self) -> Option<(u32, u32)> {
        let first = match i64::from(self.number) {
            libc::SYS_fchownat => 2,
            libc::SYS_fchown => 1,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown | libc::SYS_lchown => 1,
            _ => return None,
        };
        Some((self.args[first] as u32, self.args[first + 1] as u32))
    }

    /// Mode and device of the file that a call makes.
    pub fn new_node(&self) -> Option<(u32, u64)> {
        let first = match i64::from(self.number) {
            libc::SYS_mknodat => 2,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mknod => 1,
            _ => return None,
        };
        Some((self.args[first] as u32, self.args[first + 1]))
    }

    /// True for a call that changes the file to which links at the end of its path lead.
    pub fn follows_links(&self) -> bool {
        if let Some(change) = self.change() {
            return change == Change::Write;
        }
        match i64::from(self.number) {
            libc::SYS_lsetxattr => false,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown => false,
            libc::SYS_fchownat => self.args[4] & libc::AT_SYMLINK_NOFOLLOW as u64 == 0,
            _ => true,
        }
    }

    /// Kind of a call that changes a path.
    pub fn change(&self) -> Option<Change> {
        if let Some(flags) = self.open_flags() {
            let is_new = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
            return Some(match flags & libc::O_NOFOLLOW != 0 {
                _ if is_new => Change::Make,
                true => Change::WriteItself,
                false => Change::Write,
            });
        }
        match i64::from(self.number) {
            libc::SYS_truncate => Some(Change::Write),
            libc::SYS_mkdirat | libc::SYS_mknodat => Some(Change::Make),
            libc::SYS_linkat | libc::SYS_symlinkat => Some(Change::Link),
            libc::SYS_unlinkat => Some(Change::Remove),
            libc::SYS_renameat2 => Some(Change::Rename),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mkdir | libc::SYS_mknod => Some(Change::Make),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link | libc::SYS_symlink => Some(Change::Link),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink | libc::SYS_rmdir => Some(Change::Remove),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename | libc::SYS_renameat => Some(Change::Rename),
            _ => None,
        }
    }

    /// Flags of a call that opens a file.
    fn open_flags(&self) -> Option<i32> {
        match i64::from(self.number) {
            libc::SYS_openat => Some(self.args[2] as i32),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => Some(self.args[1] as i32),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => Some(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC),
            _ => None,
        }
    }

    /// True for a call that can make a file or folder.
    pub fn makes(&self) -> bool {
        match self.change() {
            Some(Change::Make | Change::Link | Change::Rename) => true,
            Some(Change::Write | Change::WriteItself) => self
                .open_flags()
                .is_some_and(|flags| flags & libc::O_CREAT != 0),
            Some(Change::Remove) | None => false,
        }
    }

    /// True for a call that makes a hard link to the file to which a link leads.
    pub fn follows_source(&self) -> bool {
        let follows = self.args[4] & libc::AT_SYMLINK_FOLLOW as u64 != 0;
        i64::from(self.number) == libc::SYS_linkat && follows
    }

    /// True for a call that exchanges two files.
    pub fn exchanges(&self) -> bool {
        let is_exchange = self.args[4] & u64::from(libc::RENAME_EXCHANGE) != 0;
        i64::from(self.number) == libc::SYS_renameat2 && is_exchange
    }

    pub fn makes_folder(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if i64::from(self.number) == libc::SYS_mkdir {
            return true;
        }
        i64::from(self.number) == libc::SYS_mkdirat
    }

    /// Absolute path that a system call names, or of the open file that it changes.
    pub fn path(&self) -> Option<PathBuf> {
        if i64::from(self.number) == libc::SYS_fchown {
            return self.open_path(0);
        }
        let (folder, at) = path_arguments(self.number.into())?;
        self.path_at(folder, at)
    }

    /// Path of the open file at the place `at` of the arguments.
    pub fn open_path(&self, at: usize) -> Option<PathBuf> {
        let fd = self.args[at] as i32;
        std::fs::read_link(format!("/proc/{}/fd/{fd}", self.pid)).ok()
    }

    /// Absolute path that a call renames or makes a hard link to.
    pub fn old_path(&self) -> Option<PathBuf> {
        match i64::from(self.number) {
            libc::SYS_renameat2 | libc::SYS_linkat => self.path_at(Some(0), 1),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_renameat => self.path_at(Some(0), 1),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename | libc::SYS_link => self.path_at(None, 0),
            _ => None,
        }
    }

    /// Absolute path among the arguments of a call, at the place `at`, from the descriptor at the place `folder`.
    fn path_at(&self, folder: Option<usize>, at: usize) -> Option<PathBuf> {
        let text = read_text(self.pid, self.args[at])?;
        let base = match folder {
            _ if text.is_absolute() => PathBuf::from("/"),
            Some(at) if self.args[at] as i32 != libc::AT_FDCWD => self.open_path(at)?,
            _ => std::fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()?,
        };
        Some(base.join(text))
    }

    /// True for a call that sends a message to an address, as programs use UDP.
    pub fn sends(&self) -> bool {
        let is_connecting = self.args[3] & libc::MSG_FASTOPEN as u64 != 0;
        i64::from(self.number) == libc::SYS_sendto && !is_connecting
    }

    /// Address to which a call connects or sends.
    pub fn address(&self) -> Option<SocketAddr> {
        let place = match i64::from(self.number) {
            libc::SYS_connect => 1,
            libc::SYS_sendto => 4,
            _ => return None,
        };
        self.address_at(place)
    }

    /// Address of a TCP port that a call binds.
    pub fn bound(&self) -> Option<SocketAddr> {
        let address = match i64::from(self.number) {
            libc::SYS_bind => self.address_at(1)?,
            _ => return None,
        };
        (address.port() != 0 && self.is_tcp(0)).then_some(address)
    }

    /// True if the descriptor at the place `at` of the arguments is a TCP socket, or that is not known.
    fn is_tcp(&self, at: usize) -> bool {
        let path = format!("/proc/{}/fd/{}", self.pid, self.args[at] as i32);
        let mut name = [0_u8; 16];
        rustix::fs::getxattr(path, "system.sockprotoname", &mut name)
            .map_or(true, |_| name.starts_with(b"TCP"))
    }

    /// Internet address among the arguments of a call, at the place `at`.
    fn address_at(&self, at: usize) -> Option<SocketAddr> {
        let mut bytes = read_memory(self.pid, self.args[at], SOCKET_ADDRESS)?;
        bytes.resize(SOCKET_ADDRESS, 0);
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let ip: IpAddr = match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
            libc::AF_INET => <[u8; 4]>::try_from(&bytes[4..8]).ok()?.into(),
            libc::AF_INET6 => <[u8; 16]>::try_from(&bytes[8..24]).ok()?.into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip.to_canonical(), port))
    }
}

/// Text in the memory of a process, up to its zero byte.
fn read_text(pid: u32, address: u64) -> Option<PathBuf> {
    let mut bytes = read_memory(pid, address, PATH_LIMIT)?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    Some(std::ffi::OsString::from_vec(bytes).into())
}

/// Bytes in the memory of a process, at most so many.
fn read_memory(pid: u32, address: u64, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; limit];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes into `bytes`, at most as many as it has, and checks the address in the other process.
    let count = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
    let count = usize::try_from(count).ok()?;
    bytes.truncate(count);
    Some(bytes)
}
