//! Landlock domain of a sandbox: a second boundary behind the mounts, and the only one against abstract sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::FileType;

use super::mounts;

/// Newest version whose rights are used. Older kernels enforce those that they know.
const NEWEST: ABI = ABI::V6;

/// Rights to write. Devices are left out, because the devices of a sandbox are all harmless.
fn writes() -> landlock::BitFlags<AccessFs> {
    AccessFs::from_write(NEWEST) & !AccessFs::IoctlDev
}

/// Rule set that allows to write below these paths only, to connect to abstract sockets of the sandbox only and to
/// signal its processes only. `None`: the kernel has no Landlock.
pub fn ruleset(writable: &[PathBuf]) -> Result<Option<OwnedFd>, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writes())?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for path in writable {
        let Ok(fd) = PathFd::new(path) else {
            continue;
        };
        let rights = match path.is_dir() {
            true => writes(),
            false => writes() & AccessFs::from_file(NEWEST),
        };
        rules = rules.add_rule(PathBeneath::new(fd, rights))?;
    }
    Ok(rules.into())
}

/// Rule set that is the only wall: reading everything but hidden paths, writing below these open paths only.
pub fn strict_ruleset(
    hidden: &[PathBuf],
    writable: &[OwnedFd],
) -> Result<Option<OwnedFd>, RulesetError> {
    let all = AccessFs::from_all(NEWEST) & !AccessFs::IoctlDev;
    let reads = AccessFs::ReadFile | AccessFs::Execute;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let mut readable = Vec::new();
    add_readable(Path::new("/"), hidden, &mut readable);
    let listed = [(PathBuf::from("/"), AccessFs::ReadDir.into())];
    let readable = readable.into_iter().map(|path| (path, reads));
    for (path, rights) in listed.into_iter().chain(readable) {
        if let Ok(fd) = PathFd::new(&path) {
            rules = allowing(rules, fd, rights)?;
        }
    }
    for fd in writable {
        rules = allowing(rules, fd, writes() | reads)?;
    }
    Ok(rules.into())
}

/// Rule set that also allows this at and below an open path.
fn allowing(
    rules: RulesetCreated,
    fd: impl AsFd,
    rights: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let is_folder = mounts::kind(&fd).is_ok_and(|kind| kind == FileType::Directory);
    let rights = match is_folder {
        true => rights,
        false => rights & AccessFs::from_file(NEWEST),
    };
    match rights.is_empty() {
        true => Ok(rules),
        false => rules.add_rule(PathBeneath::new(fd, rights)),
    }
}

/// Adds the paths at and below a folder that hold nothing hidden, as few as possible. Rules can only permit, so the way
/// to a hidden path is permitted step by step around it.
fn add_readable(folder: &Path, hidden: &[PathBuf], found: &mut Vec<PathBuf>) {
    if hidden.iter().any(|hidden| folder == hidden) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(folder)) {
        found.push(folder.to_owned());
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        // What a link leads to is permitted where it is.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            add_readable(&entry.path(), hidden, found);
        }
    }
}

/// Version of Landlock that this kernel has; 0 if it has none.
pub fn version() -> i32 {
    const VERSION_FLAG: u32 = 1;
    // SAFETY: with this flag the kernel reads no memory.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            VERSION_FLAG,
        )
    };
    i32::try_from(version).unwrap_or(0).max(0)
}

/// Path that exists.
pub fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_around_a_hidden_path_is_readable() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for made in ["a/b/secret", "a/b/plain", "c/d"] {
            std::fs::create_dir_all(root.join(made)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a/b/secret"), root.join("link")).unwrap();
        let mut found = Vec::new();
        add_readable(root, &[root.join("a/b/secret")], &mut found);
        found.sort();
        assert_eq!(found, [root.join("a/b/plain"), root.join("c")]);
    }
}
