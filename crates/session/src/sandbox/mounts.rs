//! Mounts by file descriptor: a tree is cloned or created detached, gets its attributes, and is attached last. No
//! path is looked up twice.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::plan::Plan;

/// Mount attributes.
pub type Attributes = MountAttrFlags;

/// `struct mount_attr` of the kernel.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Read-only, without setuid programs and devices.
pub fn read_only() -> Attributes {
    Attributes::MOUNT_ATTR_RDONLY | harmless()
}

/// Without setuid programs and devices.
pub fn harmless() -> Attributes {
    Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NODEV
}

impl MountAttr {
    fn setting(attributes: Attributes) -> Self {
        MountAttr {
            attr_set: attributes.bits().into(),
            ..MountAttr::default()
        }
    }
}

/// Sets attributes of a tree with all mounts in it.
pub fn set_attributes(tree: impl AsFd, attributes: Attributes) -> io::Result<()> {
    change(tree, c"", &MountAttr::setting(attributes))
}

/// Sets attributes of what is mounted at and below a path.
pub fn set_attributes_at(path: &Path, attributes: Attributes) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    change(CWD, &path, &MountAttr::setting(attributes))
}

/// Makes all mounts of this mount namespace private: nothing is mounted here or elsewhere because of the other.
pub fn make_private() -> io::Result<()> {
    let private = MountAttr {
        propagation: libc::MS_PRIVATE,
        ..MountAttr::default()
    };
    change(CWD, c"/", &private)
}

/// Makes everything that is mounted read-only.
pub fn make_all_read_only() -> io::Result<()> {
    change(CWD, c"/", &MountAttr::setting(read_only()))
}

fn change(at: impl AsFd, path: &std::ffi::CStr, wanted: &MountAttr) -> io::Result<()> {
    let flags = libc::AT_RECURSIVE | libc::AT_EMPTY_PATH;
    // SAFETY: the kernel reads a path that ends with a zero byte and a structure of the given size.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
            std::ptr::from_ref(wanted),
            size_of::<MountAttr>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a path without reading it.
pub fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens a path without reading it; a symbolic link at its end is opened itself.
pub fn open_path_itself(at: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

/// Opens a path that was allowed. A symbolic link in it could lead elsewhere than it did then, so none is followed.
pub fn open_allowed(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    opened.map_err(|errno| match errno {
        Errno::LOOP => io::Error::other(
            "a symbolic link has taken the place of the path that was allowed, or of a folder above it",
        ),
        errno => errno.into(),
    })
}

/// Clones what is mounted at and below an open path, detached.
pub fn clone_tree(of: impl AsFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(of, c"", flags)?)
}

/// Clones what is mounted at and below a path, detached.
pub fn clone_tree_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_NO_AUTOMOUNT;
    Ok(open_tree(CWD, path, flags)?)
}

/// Attaches a detached tree over a path. Symbolic links are followed.
pub fn attach_at(tree: impl AsFd, path: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    Ok(move_mount(tree, c"", CWD, path, flags)?)
}

/// Attaches a detached tree over an open path.
pub fn attach(tree: impl AsFd, over: impl AsFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, c"", over, c"", flags)?)
}

/// Creates a file system, detached.
pub fn create(
    kind: &str,
    options: &[(&str, &[u8])],
    attributes: Attributes,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        match value.is_empty() {
            true => fsconfig_set_flag(&context, *name)?,
            false => fsconfig_set_string(&context, *name, CString::new(*value)?)?,
        }
    }
    fsconfig_create(&context)?;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Path of an open file in `/proc`, for mount options: it has no characters that would have to be escaped.
pub fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Device and inode of an open path.
pub fn identity(fd: impl AsFd) -> io::Result<(u64, u64)> {
    let found = rustix::fs::fstat(fd)?;
    Ok((found.st_dev as _, found.st_ino as _))
}

/// Kind of an open path.
pub fn kind(fd: impl AsFd) -> io::Result<rustix::fs::FileType> {
    let found = rustix::fs::statat(fd, c"", AtFlags::EMPTY_PATH)?;
    Ok(rustix::fs::FileType::from_raw_mode(found.st_mode))
}

/// Mounts of this mount namespace, in order.
pub struct MountTable(Vec<Mount>);

struct Mount {
    /// Numbers of the device, as text.
    device: Vec<u8>,
    /// Folder of the file system that is mounted.
    root: PathBuf,
    /// Path at which it is mounted.
    place: PathBuf,
}

impl MountTable {
    pub fn read() -> Self {
        MountTable::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    fn parse(table: &[u8]) -> Self {
        let mounts = table.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut words = line.split(|byte| *byte == b' ').skip(2);
            let path = |word: &[u8]| PathBuf::from(OsStr::from_bytes(&unescaped(word)));
            Some(Mount {
                device: words.next()?.to_vec(),
                root: path(words.next()?),
                place: path(words.next()?),
            })
        });
        MountTable(mounts.collect())
    }

    /// Places at which something is mounted.
    pub fn places(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter().map(|mount| &mount.place)
    }

    /// Paths by which other mounts of the same file systems show these paths, or a part of them. Those that would take the
    /// workspace or the home folder with them are left out.
    pub fn other_paths<'a>(
        &self,
        paths: impl Iterator<Item = &'a PathBuf>,
        plan: &Plan,
    ) -> Vec<PathBuf> {
        let is_repeated = |mount: &Mount| {
            let same = self.0.iter().filter(|other| other.device == mount.device);
            same.count() > 1
        };
        let repeated: Vec<&Mount> = self.0.iter().filter(|mount| is_repeated(mount)).collect();
        let mut found = Vec::new();
        if repeated.is_empty() {
            return found;
        }
        for path in paths.filter_map(|path| path.canonicalize().ok()) {
            // Of several mounts at one place, the last one is seen.
            let around = self.0.iter().filter(|mount| path.starts_with(&mount.place));
            let Some(own) = around.max_by_key(|mount| mount.place.as_os_str().len()) else {
                continue;
            };
            let Ok(below) = path.strip_prefix(&own.place) else {
                continue;
            };
            let inner = own.root.join(below);
            for other in repeated.iter().filter(|other| other.device == own.device) {
                let place = match inner.strip_prefix(&other.root) {
                    Ok(rest) => other.place.join(rest),
                    Err(_) if other.root.starts_with(&inner) => other.place.clone(),
                    Err(_) => continue,
                };
                let holds = [&plan.workspace.path, &plan.home].map(|kept| kept.starts_with(&place));
                if place != path && holds == [false; 2] {
                    found.push(place);
                }
            }
        }
        found
    }
}

/// Decodes the octal escapes of `mountinfo`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_of_mountinfo_are_decoded() {
        assert_eq!(unescaped(br"/a\040b\134c\012"), b"/a b\\c\n");
        assert_eq!(unescaped(br"/plain"), b"/plain");
        assert_eq!(unescaped(br"/end\04"), br"/end\04");
    }

    #[test]
    fn paths_of_other_mounts_of_the_same_file_system_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(home.join("secret/inner")).unwrap();
        let root = home.strip_prefix("/").unwrap().display();
        let table = MountTable::parse(
            format!(
                "1 0 8:1 /sub / rw - ext4 /dev/a rw\n\
                 2 1 8:1 /sub/{root} /opt/alias rw - ext4 /dev/a rw\n\
                 3 1 8:1 /sub/{root}/secret/inner /opt/inner rw - ext4 /dev/a rw\n\
                 4 1 8:1 /sub/etc /opt/etc rw - ext4 /dev/a rw\n\
                 5 1 8:2 /sub /opt/device rw - ext4 /dev/b rw\n\
                 6 1 8:1 /sub/{root}/secret/inner /work rw - ext4 /dev/a rw\n"
            )
            .as_bytes(),
        );
        let workspace = crate::sandbox::Folder {
            path: "/work/folder".into(),
            device: 0,
            inode: 0,
        };
        let plan = Plan {
            home: home.clone(),
            ..Plan::read_only(workspace)
        };
        let hidden = [home.join("secret"), home.join("absent")];
        let found = table.other_paths(hidden.iter(), &plan);
        assert_eq!(
            found,
            ["/opt/alias/secret", "/opt/inner"].map(PathBuf::from)
        );
    }
}
