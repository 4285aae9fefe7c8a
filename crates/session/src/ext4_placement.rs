//! Placement of a new directory in a quiet block group of ext4.
//!
//! ext4 does not reuse the inode of a deleted file for some minutes, and creating a file scans all such inodes
//! of the block group one by one. In a block group where temporary files come and go, or where something was
//! built, a new file costs twenty times as much as elsewhere. A new directory is placed in the block group of
//! its parent, unless the parent has the flag `EXT4_TOPDIR_FL`, which marks the root of unrelated directories.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::accelerator::Accelerator;
use rustix::fs::{CWD, IFlags, RenameFlags};

/// Magic number of ext4 (also of ext2 and ext3, which behave the same).
const EXT4: rustix::fs::FsWord = 0xEF53;

/// Creates the directory with mode 0700 in a block group of its own, if it does not exist and is on ext4.
/// Otherwise this does nothing and the caller creates it in the ordinary way.
pub fn make(path: &Path) {
    let (Some(parent), false) = (path.parent(), path.exists()) else {
        return;
    };
    if Accelerator::Ext4Placement.is_on()
        && rustix::fs::statfs(parent).is_ok_and(|disk| disk.f_type == EXT4)
    {
        // If this fails, the caller creates the directory in the block group of its parent.
        let _ = make_in_root(parent, path);
    }
}

/// Has ext4 place each new directory in this one in a block group of its own. For directories in which others come and
/// go: the inodes of those that were deleted would slow down the next ones.
pub fn spread(folder: &Path) {
    if Accelerator::Ext4Placement.is_on()
        && rustix::fs::statfs(folder).is_ok_and(|disk| disk.f_type == EXT4)
    {
        // If this fails, new directories are in the block group of this one.
        let _ = mark(folder);
    }
}

/// The flag is set on a temporary directory, because other programs may use the parent.
fn make_in_root(parent: &Path, path: &Path) -> io::Result<()> {
    let random = || getrandom::u64().map(|bits| format!("{bits:016x}"));
    let (root_name, name) = (random()?, random()?);
    let root = parent.join(format!(".abide-{root_name}"));
    let mut private = std::fs::DirBuilder::new();
    private.mode(0o700).create(&root)?;
    // The name of the directory decides which block group ext4 tries first.
    let made = root.join(name);
    let moved = mark(&root)
        .and_then(|()| private.create(&made))
        .and_then(|()| {
            // If another process was faster, its directory stays.
            let moved = rustix::fs::renameat_with(CWD, &made, CWD, path, RenameFlags::NOREPLACE);
            moved.map_err(io::Error::from)
        });
    if moved.is_err() {
        let _ = std::fs::remove_dir(&made);
    }
    std::fs::remove_dir(&root)?;
    moved
}

fn mark(folder: &Path) -> io::Result<()> {
    let folder = File::open(folder)?;
    let flags = rustix::fs::ioctl_getflags(&folder)?;
    Ok(rustix::fs::ioctl_setflags(&folder, flags | IFlags::TOPDIR)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_folder_is_its_owners_alone_and_nothing_else_is_left() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("sessions");
        make(&path);
        if let Ok(found) = std::fs::metadata(&path) {
            assert_eq!(found.mode() & 0o777, 0o700);
        }
        let left: Vec<_> = std::fs::read_dir(scratch.path())
            .unwrap()
            .map(|item| item.unwrap().path())
            .collect();
        assert!(left.iter().all(|item| *item == path), "{left:?}");
    }

    #[test]
    fn spread_folder_has_the_flag_on_ext4() {
        let scratch = tempfile::tempdir().unwrap();
        spread(scratch.path());
        let folder = File::open(scratch.path()).unwrap();
        if rustix::fs::fstatfs(&folder).unwrap().f_type == EXT4 {
            let flags = rustix::fs::ioctl_getflags(&folder).unwrap();
            assert!(flags.contains(IFlags::TOPDIR), "{flags:?}");
        }
    }

    #[test]
    fn a_folder_that_is_there_stays_as_it_is() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("sessions");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("kept"), "x").unwrap();
        make(&path);
        make_in_root(scratch.path(), &path).unwrap_err();
        assert_eq!(std::fs::read_to_string(path.join("kept")).unwrap(), "x");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
