//! Sandbox without namespaces, where the machine forbids them: Landlock rules and a system call filter alone.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use abide_core::{SandboxGap, Sandboxed, SandboxedBy};

use super::entry::Entry;
use super::filter::Filter;
use super::git::Protected;
use super::init::{NotBuilt, Sandbox};
use super::layers::make_private_folder;
use super::mounts::{self, MountTable};
use super::paths;
use super::plan::{Mode, Network, Plan};
use super::{rules, ssh_keys};

/// Oldest version of Landlock that is accepted: before it, any file could be truncated.
const OLDEST: i32 = 3;

/// Devices that can be read and written. All others cannot: root could read a whole disk, and below `/dev/pts` are the
/// terminals of the user, with what is typed there.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Folder for temporary files of a sandbox whose temporary folders are not layered.
pub fn temporary_folder(plan: &Plan) -> PathBuf {
    plan.layers.join("tmp").join("private")
}

/// Makes the sandbox.
pub fn make(plan: &Plan) -> Result<Sandbox, NotBuilt> {
    let not = |why: &str| NotBuilt::unavailable(why);
    let failed = |what: &str, fault: &dyn std::fmt::Display| {
        NotBuilt::unavailable(format!("{what}: {fault}"))
    };
    let version = rules::version();
    if version < OLDEST {
        return Err(NotBuilt::unavailable(format!(
            "Landlock is too old here (version {version} of at least {OLDEST})"
        )));
    }
    // Unix sockets of other programs cannot be told apart from its own ones, so it can make none.
    let families: &[libc::c_int] = match plan.network {
        Network::Allowlist(_) => {
            return Err(not(
                "a network allowlist needs namespaces; set `sandbox.network` to \"off\" or \"on\"",
            ));
        }
        Network::Off => &[libc::AF_NETLINK],
        Network::On => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
    };
    let filter = Filter::without_namespaces(families)
        .ok_or_else(|| not("no system call filter for this processor"))?;
    let temporary = temporary_folder(plan);
    make_private_folder(&temporary).map_err(|fault| failed("make a temporary folder", &fault))?;
    let ruleset = rules::strict_ruleset(&hidden(plan), &open_writable(plan)?)
        .map_err(|fault| failed("make the Landlock rules", &fault))?;
    let ruleset = ruleset.ok_or_else(|| not("Landlock is switched off here"))?;
    Ok(Sandbox {
        namespace: None,
        sandboxed: Sandboxed {
            by: SandboxedBy::Landlock,
            gaps: gaps(plan.mode),
        },
        gate: None,
        protected: Protected::of(plan),
        mounts: None,
        work: None,
        entry: Entry::new(None, Some(ruleset), filter),
    })
}

/// Promises of a sandbox that Landlock alone does not keep.
pub fn gaps(mode: Mode) -> Vec<SandboxGap> {
    match mode {
        Mode::ReadOnly => vec![
            SandboxGap::Layers,
            SandboxGap::Metadata,
            SandboxGap::Processes,
        ],
        Mode::WorkspaceWrite => {
            vec![
                SandboxGap::Layers,
                SandboxGap::Protected,
                SandboxGap::Metadata,
                SandboxGap::Processes,
            ]
        }
    }
}

/// Paths that can be written.
pub fn writable(plan: &Plan) -> Vec<PathBuf> {
    let mut writable: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
    writable.push(temporary_folder(plan));
    writable.extend(plan.write.iter().cloned());
    if plan.mode == Mode::WorkspaceWrite {
        writable.push(plan.workspace.path.clone());
    }
    writable
}

/// Opens the paths that can be written. Each is opened once: what is checked is what is allowed.
fn open_writable(plan: &Plan) -> Result<Vec<OwnedFd>, NotBuilt> {
    let devices = DEVICES.iter().map(Path::new);
    let mut opened: Vec<OwnedFd> = devices
        .filter_map(|path| mounts::open_path(path).ok())
        .collect();
    let not = |path: &Path, why: &dyn std::fmt::Display| {
        NotBuilt::unavailable(format!("open '{}': {why}", path.display()))
    };
    let temporary = temporary_folder(plan);
    opened.push(mounts::open_path(&temporary).map_err(|fault| not(&temporary, &fault))?);
    for path in &plan.write {
        match mounts::open_allowed(path) {
            Ok(fd) => opened.push(fd),
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => {}
            Err(fault) => return Err(not(path, &fault)),
        }
    }
    if plan.mode == Mode::WorkspaceWrite {
        let wanted = &plan.workspace;
        let fd = mounts::open_path(&wanted.path).map_err(|fault| not(&wanted.path, &fault))?;
        let found = mounts::identity(&fd).map_err(|fault| not(&wanted.path, &fault))?;
        if found != (wanted.device, wanted.inode) {
            return Err(not(&wanted.path, &"it is no longer the same folder"));
        }
        opened.push(fd);
    }
    Ok(opened)
}

/// Paths that cannot be read, with what symbolic links in their place lead to.
fn hidden(plan: &Plan) -> Vec<PathBuf> {
    let mut all = paths::hidden_in_home(&plan.home);
    all.extend(ssh_keys::named_by_settings(&plan.home));
    all.extend(paths::hidden_of_system(&plan.workspace.path));
    all.push("/dev".into());
    all.extend(plan.hide.iter().chain(&plan.own).cloned());
    all.extend(paths::may_hold_token(&plan.home));
    let targets: Vec<PathBuf> = all
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let others = MountTable::read().other_paths(targets.iter(), plan);
    all.extend(targets);
    all.extend(others);
    all
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::super::plan::Folder;
    use super::*;

    /// Plan that allows to write in `granted` and in the workspace `work`.
    fn plan(root: &Path) -> Plan {
        let path = root.join("work");
        for folder in [&path, &root.join("granted"), &root.join("outside")] {
            fs::create_dir(folder).unwrap();
        }
        let found = fs::metadata(&path).unwrap();
        let workspace = Folder {
            path,
            device: found.dev(),
            inode: found.ino(),
        };
        let plan = Plan {
            mode: Mode::WorkspaceWrite,
            write: vec![root.join("granted"), root.join("none")],
            layers: root.join("layers"),
            ..Plan::read_only(workspace)
        };
        fs::create_dir_all(temporary_folder(&plan)).unwrap();
        plan
    }

    #[test]
    fn path_that_is_exchanged_after_it_was_opened_stays_the_one_that_is_allowed() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let plan = plan(root.path());
        let opened = open_writable(&plan).unwrap_or_else(|not| panic!("{not}"));
        let granted = fs::metadata(at("granted")).unwrap().ino();
        fs::rename(at("granted"), at("moved")).unwrap();
        symlink(at("outside"), at("granted")).unwrap();
        let outside = fs::metadata(at("outside")).unwrap().ino();
        let inodes: Vec<u64> = (opened.iter())
            .map(|fd| mounts::identity(fd).unwrap().1)
            .collect();
        assert!(inodes.contains(&granted), "{inodes:?}");
        assert!(!inodes.contains(&outside), "{inodes:?}");
        let refused = open_writable(&plan).err().map(|not| not.to_string());
        assert!(refused.is_some_and(|why| why.contains("a symbolic link")));
    }

    #[test]
    fn workspace_that_is_another_folder_by_now_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let plan = plan(root.path());
        fs::remove_dir(&plan.workspace.path).unwrap();
        symlink(root.path().join("outside"), &plan.workspace.path).unwrap();
        let refused = open_writable(&plan).err().map(|not| not.to_string());
        let expected = "it is no longer the same folder";
        assert!(refused.is_some_and(|why| why.contains(expected)));
    }
}
