//! Files and a folder that are mounted over what a sandbox hides or replaces.
//!
//! They are in a file system that is mounted while the sandbox is built: kernels before 6.15 clone no part of a file system
//! that is not mounted. [`Covers::remove`] unmounts it before a command runs; the clones stay.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};

use super::build::{Fault, Named, attach};
use super::mounts;

/// Name of the place of the file system in the sandbox's own `/dev`.
const PLACE: &str = "covers";
/// Attempts to hide a path that another program replaces meanwhile.
const ATTEMPTS: u32 = 10;
const RESOLVER: &[u8] = b"nameserver 127.0.0.1\n";

/// An empty file, an empty folder and a `resolv.conf` that names the network gate, all read-only.
pub struct Covers {
    /// The sandbox's own `/dev`, which a plan may hide or replace.
    dev: OwnedFd,
    file: OwnedFd,
    folder: OwnedFd,
    resolver: OwnedFd,
}

impl Covers {
    /// Mounts them in the sandbox's own `/dev`, before anything that a plan names is mounted.
    pub fn make() -> Result<Self, Fault> {
        let step = || "make an empty folder".to_owned();
        let root = make_root().named(step)?;
        let dev = Path::new("/dev");
        let place = dev.join(PLACE);
        fs::create_dir(&place).named(step)?;
        attach(&root, &place)?;
        let part = |name: &str| mounts::open_path_itself(root.as_fd(), Path::new(name));
        Ok(Covers {
            dev: mounts::open_path(dev).named(step)?,
            file: part("file").named(step)?,
            folder: part("folder").named(step)?,
            resolver: part("resolver").named(step)?,
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
        let step = || format!("replace '{}'", path.display());
        attach(mounts::clone_tree(&self.resolver).named(step)?, path)
    }

    /// Unmounts the file system. What was hidden or replaced stays so.
    pub fn remove(self) -> Result<(), Fault> {
        let step = || format!("unmount '{PLACE}'");
        rustix::process::fchdir(&self.dev).named(step)?;
        unmount(PLACE, UnmountFlags::DETACH).named(step)?;
        rustix::process::chdir("/").named(step)?;
        rustix::fs::unlinkat(&self.dev, PLACE, AtFlags::REMOVEDIR).named(step)
    }
}

/// Makes the file system. Clones of its parts are read-only, because it is.
fn make_root() -> io::Result<OwnedFd> {
    let options: [(&str, &[u8]); 2] = [("mode", b"0755"), ("size", b"64k")];
    let root = mounts::create("tmpfs", &options, mounts::harmless())?;
    rustix::fs::mkdirat(&root, "folder", Mode::from_raw_mode(0o555))?;
    for (name, text) in [("file", &b""[..]), ("resolver", RESOLVER)] {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&root, name, flags, Mode::from_raw_mode(0o444))?;
        io::Write::write_all(&mut fs::File::from(file), text)?;
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
