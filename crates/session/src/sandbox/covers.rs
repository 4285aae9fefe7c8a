//! Files and a folder that are mounted over what a sandbox hides or replaces.
//!
//! They are in a file system that is mounted at `/dev`, where the sandbox's own `/dev` is then mounted over it: kernels
//! before 6.15 clone no part of a file system that is not mounted, and to unmount one takes long.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use super::build::{Fault, Named, attach};
use super::mounts;

/// Attempts to hide a path that another program replaces meanwhile.
const ATTEMPTS: u32 = 10;
const HOSTS: &str = "/etc/hosts";
const RESOLVER: &[u8] = b"nameserver 127.0.0.1\n";

/// An empty file and an empty folder, and with a network gate a `resolv.conf` that names it and an `/etc/hosts` beside it,
/// all read-only.
pub struct Covers {
    root: OwnedFd,
    file: OwnedFd,
    folder: OwnedFd,
}

impl Covers {
    /// Mounts them, before the sandbox's own `/dev`.
    pub fn make(has_gate: bool) -> Result<Self, Fault> {
        let step = || "make an empty folder".to_owned();
        let root = make_root(has_gate).named(step)?;
        attach(&root, Path::new("/dev"))?;
        let part = |name: &str| mounts::open_path_itself(root.as_fd(), Path::new(name));
        Ok(Covers {
            file: part("file").named(step)?,
            folder: part("folder").named(step)?,
            root,
        })
    }

    /// Hides a path, if it exists. A symbolic link is followed: what it leads to is hidden.
    pub fn hide(&self, path: &Path) -> Result<(), Fault> {
        let step = || format!("hide '{}'", path.display());
        let mut attempts = ATTEMPTS;
        loop {
            let over = match mounts::open_path(path) {
                Ok(over) => over,
                Err(fault) if is_absent(&fault) => return Ok(()),
                Err(fault) => return Err(fault).named(step),
            };
            let empty = match mounts::kind(&over).named(step)? {
                FileType::Directory => &self.folder,
                _ => &self.file,
            };
            let copy = mounts::clone_tree(empty).named(step)?;
            attempts -= 1;
            match mounts::attach(copy, over) {
                // It was removed just now, and another may be in its place.
                Err(fault) if attempts > 0 && is_absent(&fault) => {}
                attached => return attached.named(step),
            }
        }
    }

    /// Replaces a file by the `resolv.conf` that names the network gate.
    pub fn name_gate(&self, path: &Path) -> Result<(), Fault> {
        self.replace(path, "resolver")
    }

    /// Replaces `/etc/hosts` by its entries for the loopback: the gate resolves all other names.
    pub fn leave_loopback(&self) -> Result<(), Fault> {
        match Path::new(HOSTS).exists() {
            true => self.replace(Path::new(HOSTS), "hosts"),
            false => Ok(()),
        }
    }

    fn replace(&self, path: &Path, by: &str) -> Result<(), Fault> {
        let step = || format!("replace '{}'", path.display());
        let by = mounts::open_path_itself(self.root.as_fd(), Path::new(by)).named(step)?;
        attach(mounts::clone_tree(by).named(step)?, path)
    }
}

/// Entries of a file of hosts for the loopback, which a sandbox has too; with `localhost` and the name of the machine.
fn loopback_entries(hosts: &str, own: &str) -> String {
    let is_loopback = |line: &&str| {
        let address = line.split_whitespace().next();
        let address = address.and_then(|address| address.parse().ok());
        address.is_some_and(|address: IpAddr| address.is_loopback())
    };
    let mut kept: Vec<String> = hosts
        .lines()
        .filter(is_loopback)
        .map(str::to_owned)
        .collect();
    for name in ["localhost", own] {
        if !kept
            .iter()
            .any(|line| line.split_whitespace().any(|word| word == name))
        {
            kept.push(format!("127.0.0.1 {name}"));
        }
    }
    kept.join("\n") + "\n"
}

/// Makes the file system. Clones of its parts are read-only, because it is.
fn make_root(has_gate: bool) -> io::Result<OwnedFd> {
    let options: [(&str, &[u8]); 2] = [("mode", b"0755"), ("size", b"64m")];
    let root = mounts::create("tmpfs", &options, mounts::harmless())?;
    rustix::fs::mkdirat(&root, "folder", Mode::from_raw_mode(0o555))?;
    let make = |name: &str, text: &[u8]| {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&root, name, flags, Mode::from_raw_mode(0o444))?;
        io::Write::write_all(&mut fs::File::from(file), text)
    };
    make("file", b"")?;
    if has_gate {
        let text = |path| {
            fs::read(path).map_or_else(
                |_| String::new(),
                |text| String::from_utf8_lossy(&text).into_owned(),
            )
        };
        let hosts = loopback_entries(&text(HOSTS), text("/proc/sys/kernel/hostname").trim());
        make("resolver", RESOLVER)?;
        make("hosts", hosts.as_bytes())?;
    }
    mounts::set_attributes(&root, mounts::read_only())?;
    Ok(root)
}

/// True if a path cannot be reached in any case.
fn is_absent(fault: &io::Error) -> bool {
    let codes = [libc::ENOENT, libc::ENOTDIR, libc::EACCES, libc::ELOOP];
    fault
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_for_the_loopback_are_kept_and_own_names_added() {
        let hosts = "127.0.0.1\tlocalhost dev.test # mine\n::1 localhost\n10.0.0.5 git.corp.example box\n0.0.0.0 ads.example\n";
        let kept = "127.0.0.1\tlocalhost dev.test # mine\n::1 localhost\n127.0.0.1 box\n";
        assert_eq!(loopback_entries(hosts, "box"), kept);
        assert_eq!(
            loopback_entries("127.0.1.1 box\n", "box"),
            "127.0.1.1 box\n127.0.0.1 localhost\n"
        );
    }
}
