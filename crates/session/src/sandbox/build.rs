//! Building of a sandbox, in its init process: the mounts, the devices and the loopback.
//!
//! The init process is a copy of the keeper, which has one thread, so it may allocate. Everything that stays writable
//! is cloned first, then all that is mounted becomes read-only, then the clones are attached.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use abide_core::SandboxGap;
use rustix::fs::{FileType, Mode as Permissions};

use super::covers::Covers;
use super::entry;
use super::gate::GateChannel;
use super::gate_sockets;
use super::git::{MOST_PROTECTED, OutsideGit, Worktree};
use super::layers::Layers;
use super::mounts::{self, Attributes, MountTable};
use super::paths;
use super::plan::{GatePlan, Mode, Network, Plan};
use super::rules;
use super::sockets::MOST_SOCKETS;
use super::ssh_keys;
use crate::wire_struct;

/// A sandbox that was built.
pub struct Built {
    /// Promises that it does not keep.
    pub gaps: Vec<SandboxGap>,
    /// Landlock rules for the command.
    pub ruleset: Option<OwnedFd>,
}

/// A step that failed.
#[derive(Debug)]
pub struct Fault {
    /// The step.
    pub step: String,
    /// The cause.
    pub cause: io::Error,
    /// True if the kernel or its settings do not allow this mechanism, whatever the plan is.
    pub is_unavailable: bool,
}

impl Fault {
    pub fn refused(step: impl Into<String>, why: &str) -> Self {
        Fault {
            step: step.into(),
            cause: io::Error::other(why.to_owned()),
            is_unavailable: false,
        }
    }

    pub fn unavailable(self) -> Self {
        Fault {
            is_unavailable: true,
            ..self
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.cause)
    }
}

/// Adds the name of the step to an error.
pub trait Named<T> {
    fn named(self, step: impl FnOnce() -> String) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> Named<T> for Result<T, E> {
    fn named(self, step: impl FnOnce() -> String) -> Result<T, Fault> {
        self.map_err(|cause| Fault {
            step: step(),
            cause: cause.into(),
            is_unavailable: false,
        })
    }
}

/// Trees that were cloned or created before everything became read-only.
struct Trees {
    proc: OwnedFd,
    workspace: OwnedFd,
    write: Vec<(PathBuf, OwnedFd)>,
    git: OutsideGit,
    devices: Vec<(&'static str, OwnedFd)>,
    needed_of_run: Vec<(&'static str, OwnedFd)>,
    layers: Layers,
}

/// Facts about the machine and the workspace, which the keeper finds outside the namespaces.
pub struct Found {
    /// Protected paths of the workspace, relative to it.
    pub protected: Vec<PathBuf>,
    /// True if repositories may be missing among those that are protected.
    pub is_incomplete: bool,
    /// Paths to hide that exist. To look for them in a layer, which nobody has looked at yet, takes several times as long.
    pub hidden: Vec<PathBuf>,
    /// Sockets that are bound outside.
    pub sockets: Vec<PathBuf>,
}

wire_struct!(Found {
    protected,
    is_incomplete,
    hidden,
    sockets,
});

/// Builds the sandbox in the namespaces of this process. `found` waits for what the keeper finds meanwhile. `gate`: channel
/// to the network gate, if there is one.
pub fn build(
    plan: &Plan,
    session: &str,
    found: impl FnOnce() -> Result<Found, Fault>,
    gate: Option<&GateChannel>,
) -> Result<Built, Fault> {
    rustix::process::umask(Permissions::from_raw_mode(0o022));
    mounts::make_private()
        .named(|| "make the mounts private".into())
        .map_err(Fault::unavailable)?;
    let trees = Trees::make(plan, session)?;
    mounts::make_all_read_only().named(|| "make everything read-only".into())?;
    let mut gaps = trees.layers.gaps(plan);
    let found = found()?;
    let writable = assemble(plan, trees, &found)?;
    match (&plan.network, gate) {
        // A test can reach its own server.
        (Network::Off, _) => {
            gate_sockets::start_loopback().named(|| "start the loopback interface".into())?
        }
        (Network::Allowlist(wanted), Some(channel)) => open_gate(wanted, channel)?,
        (Network::Allowlist(_), None) => {
            return Err(Fault::refused("open the network gate", "it has no channel"));
        }
        (Network::On, _) => {}
    }
    prove()?;
    let ruleset = rules::ruleset(&writable)
        .map_err(|fault| Fault::refused("make the Landlock rules", &fault.to_string()))?;
    if found.is_incomplete && plan.mode == Mode::WorkspaceWrite {
        gaps.push(SandboxGap::NestedRepositories);
    }
    // The last step: the filter stays with this process.
    if plan.writes_in_workspace() && !entry::can_notify() {
        gaps.push(SandboxGap::AbsentNames);
    }
    if plan.network == Network::On && rules::version() < 6 {
        gaps.push(SandboxGap::AbstractSockets);
    }
    Ok(Built { gaps, ruleset })
}

impl Trees {
    fn make(plan: &Plan, session: &str) -> Result<Self, Fault> {
        let nothing = Attributes::MOUNT_ATTR_NOEXEC | mounts::harmless();
        let proc = mounts::create("proc", &[], nothing)
            .named(|| "make a /proc of its own".into())
            .map_err(Fault::unavailable)?;
        let attributes = match plan.mode {
            Mode::ReadOnly => mounts::read_only(),
            Mode::WorkspaceWrite => mounts::harmless(),
        };
        let workspace = workspace(plan, attributes)?;
        let git = OutsideGit::of(plan);
        let common = git.worktree.as_ref().map(|worktree| &worktree.common);
        let mut write = Vec::new();
        for path in plan.write.iter().chain(common) {
            if rules::exists(path) {
                write.push((path.clone(), writable_tree(path)?));
            }
        }
        let mut devices = Vec::new();
        for name in paths::DEVICES {
            let step = || format!("open '/dev/{name}'");
            let path = Path::new("/dev").join(name);
            devices.push((name, mounts::clone_tree_at(&path).named(step)?));
        }
        let mut needed_of_run = Vec::new();
        for path in paths::NEEDED_OF_RUN {
            if let Ok(tree) = mounts::clone_tree_at(Path::new(path)) {
                let step = || format!("open '{path}'");
                mounts::set_attributes(&tree, mounts::read_only()).named(step)?;
                needed_of_run.push((path, tree));
            }
        }
        Ok(Trees {
            proc,
            workspace,
            write,
            git,
            devices,
            needed_of_run,
            layers: Layers::make(plan, session, &MountTable::read())?,
        })
    }
}

/// Clones a tree and sets its attributes.
fn tree_at(
    path: &Path,
    attributes: Attributes,
    step: impl Fn() -> String,
) -> Result<OwnedFd, Fault> {
    let tree = mounts::clone_tree_at(path).named(&step)?;
    mounts::set_attributes(&tree, attributes).named(&step)?;
    Ok(tree)
}

/// Clones a tree that may be written.
fn writable_tree(path: &Path) -> Result<OwnedFd, Fault> {
    let step = || format!("open '{}'", path.display());
    let opened = mounts::open_allowed(path).named(step)?;
    let tree = mounts::clone_tree(opened).named(step)?;
    mounts::set_attributes(&tree, mounts::harmless()).named(step)?;
    Ok(tree)
}

/// Clones the workspace, and checks that it is still the folder that was resolved.
fn workspace(plan: &Plan, attributes: Attributes) -> Result<OwnedFd, Fault> {
    let wanted = &plan.workspace;
    let step = || format!("open the workspace '{}'", wanted.path.display());
    let tree = tree_at(&wanted.path, attributes, step)?;
    let found = mounts::identity(&tree).named(step)?;
    if found != (wanted.device, wanted.inode) {
        return Err(Fault::refused(step(), "it is no longer the same folder"));
    }
    Ok(tree)
}

/// Attaches everything. Returns the paths below which the command may write.
fn assemble(plan: &Plan, trees: Trees, found: &Found) -> Result<Vec<PathBuf>, Fault> {
    let Trees {
        proc,
        workspace,
        write,
        git,
        devices,
        needed_of_run,
        layers,
    } = trees;
    attach(proc, Path::new("/proc"))?;
    let covers = Covers::make(plan.network.gate().is_some())?;
    make_devices(devices)?;
    make_run(needed_of_run)?;
    let mut writable = vec![
        PathBuf::from("/proc"),
        PathBuf::from("/dev"),
        PathBuf::from("/run"),
    ];
    let layered = layers.attach()?;
    writable.extend_from_slice(&layered);
    let root = &plan.workspace.path;
    attach_making(workspace, root)?;
    let is_in_protected = |(path, _): &(PathBuf, OwnedFd)| {
        let mut all = found.protected.iter();
        all.any(|protected| path.starts_with(root.join(protected)))
    };
    let (in_protected, write): (Vec<_>, Vec<_>) = write.into_iter().partition(is_in_protected);
    for (path, tree) in write {
        // A file that is a mount could not be replaced by another.
        if plan.mode == Mode::ReadOnly || !path.starts_with(root) {
            attach_making(tree, &path)?;
            writable.push(path);
        }
    }
    if plan.writes_in_workspace() {
        protect(root, &found.protected)?;
    }
    if plan.mode == Mode::WorkspaceWrite {
        writable.push(root.clone());
        if let Some(worktree) = &git.worktree {
            protect_worktree(worktree)?;
        }
    }
    for path in &git.read_only {
        let is_below = |root: &PathBuf| path.starts_with(root);
        // The agent may have removed it in its layer.
        let is_seen = layered.iter().any(is_below) && rules::exists(path);
        if is_seen && !plan.write.iter().any(is_below) {
            freeze(path)?;
        }
    }
    for (path, tree) in in_protected {
        attach(tree, &path)?;
        writable.push(path);
    }
    hide(plan, &found.hidden, &covers)?;
    cover_sockets(plan, &writable, &found.sockets, &covers)?;
    for path in paths::READ_ONLY_OF_PROC.map(Path::new) {
        if rules::exists(path) {
            freeze(path)?;
        }
    }
    for path in paths::HIDDEN_OF_PROC.iter().chain(&paths::HIDDEN_OF_SYS) {
        covers.hide(Path::new(path))?;
    }
    if let Network::Allowlist(_) = plan.network {
        use_resolver(&covers)?;
        covers.leave_loopback()?;
    }
    Ok(writable)
}

/// Attaches a tree over a path.
pub fn attach(tree: impl AsFd, path: &Path) -> Result<(), Fault> {
    mounts::attach_at(tree, path).named(|| format!("mount '{}'", path.display()))
}

/// Attaches a tree over a path, which is made if a layer or an empty folder hides it.
fn attach_making(tree: OwnedFd, path: &Path) -> Result<(), Fault> {
    let step = || format!("mount '{}'", path.display());
    if !rules::exists(path) {
        match mounts::kind(&tree).named(step)? {
            FileType::Directory => fs::create_dir_all(path).named(step)?,
            _ => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                fs::create_dir_all(parent).named(step)?;
                drop(fs::File::create(path).named(step)?);
            }
        }
    }
    attach(tree, path)
}

/// Mounts a path over itself, read-only.
fn freeze(path: &Path) -> Result<(), Fault> {
    let step = || format!("protect '{}'", path.display());
    let tree = tree_at(path, Attributes::MOUNT_ATTR_RDONLY, step)?;
    attach(tree, path)
}

/// Makes `/dev`: harmless devices, and terminals and shared memory of its own.
fn make_devices(devices: Vec<(&'static str, OwnedFd)>) -> Result<(), Fault> {
    let step = || "make a /dev of its own".to_owned();
    let options: [(&str, &[u8]); 2] = [("mode", b"0755"), ("size", b"64k")];
    let attributes = Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NOEXEC;
    let dev = mounts::create("tmpfs", &options, attributes).named(step)?;
    let root = Path::new("/dev");
    attach(dev, root)?;
    for (name, device) in devices {
        let path = root.join(name);
        drop(fs::File::create(&path).named(step)?);
        attach(device, &path)?;
    }
    for (to, name) in [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
        ("tty", "console"),
    ] {
        symlink(to, root.join(name)).named(step)?;
    }
    let pts: [(&str, &[u8]); 3] = [
        ("newinstance", b""),
        ("ptmxmode", b"0666"),
        ("mode", b"0620"),
    ];
    let shm: [(&str, &[u8]); 1] = [("mode", b"1777")];
    for (name, kind, options) in [("pts", "devpts", &pts[..]), ("shm", "tmpfs", &shm[..])] {
        let step = || format!("make a /dev/{name} of its own");
        fs::create_dir(root.join(name)).named(step)?;
        let attributes = match kind {
            "tmpfs" => mounts::harmless(),
            _ => attributes,
        };
        let made = mounts::create(kind, options, attributes).named(step)?;
        attach(made, &root.join(name))?;
    }
    mounts::set_attributes_at(root, Attributes::MOUNT_ATTR_NOSUID).named(step)
}

/// Makes `/run`: empty, but for what programs need and what holds no sockets.
fn make_run(needed: Vec<(&'static str, OwnedFd)>) -> Result<(), Fault> {
    let step = || "make a /run of its own".to_owned();
    let options: [(&str, &[u8]); 2] = [("mode", b"0755"), ("size", b"256m")];
    for path in ["/run", "/var/run"].map(Path::new) {
        let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        if is_folder {
            let made = mounts::create("tmpfs", &options, mounts::harmless()).named(step)?;
            attach(made, path)?;
        }
    }
    let user = rustix::process::getuid().as_raw();
    let private = Path::new("/run/user").join(user.to_string());
    if Path::new("/run").is_dir() {
        fs::create_dir_all(&private).named(step)?;
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).named(step)?;
        fs::create_dir_all("/run/lock").named(step)?;
    }
    for (path, tree) in needed {
        attach_making(tree, Path::new(path))?;
    }
    Ok(())
}

/// Makes protected paths read-only. Every folder between the root and a protected path becomes a mount too, because a
/// folder that is no mount could be renamed, and another one put in its place.
fn protect(root: &Path, protected: &[PathBuf]) -> Result<(), Fault> {
    if protected.len() > MOST_PROTECTED {
        let why = format!("there are more than {MOST_PROTECTED}; use a smaller workspace");
        return Err(Fault::refused(
            "protect the repositories of the workspace",
            &why,
        ));
    }
    let mut pinned: Vec<PathBuf> = Vec::new();
    for relative in protected {
        let path = root.join(relative);
        let step = || format!("protect '{}'", path.display());
        let parents: Vec<&Path> = relative.ancestors().skip(1).collect();
        for parent in parents.into_iter().rev() {
            let place = root.join(parent);
            if parent.as_os_str().is_empty() || pinned.contains(&place) {
                continue;
            }
            let opened = open_itself(&place, step)?;
            let tree = mounts::clone_tree(&opened).named(step)?;
            mounts::attach(tree, opened).named(step)?;
            pinned.push(place);
        }
        let opened = open_itself(&path, step)?;
        let tree = mounts::clone_tree(&opened).named(step)?;
        mounts::set_attributes(&tree, Attributes::MOUNT_ATTR_RDONLY).named(step)?;
        mounts::attach(tree, opened).named(step)?;
    }
    Ok(())
}

/// Opens a path that must not be a symbolic link: a link cannot be a mount, so it could be replaced.
fn open_itself(path: &Path, step: impl Fn() -> String) -> Result<OwnedFd, Fault> {
    let opened = mounts::open_path_itself(rustix::fs::CWD, path).named(&step)?;
    match mounts::kind(&opened).named(&step)? {
        FileType::Symlink => Err(Fault::refused(
            step(),
            "it is a symbolic link, which cannot be protected; replace the link by what it leads to",
        )),
        _ => Ok(opened),
    }
}

/// Protects the git directory outside the workspace that its commits are written to. Of one that a worktree shares with
/// others, only the worktree's own part stays writable.
fn protect_worktree(worktree: &Worktree) -> Result<(), Fault> {
    let mut protected = worktree.protected().paths;
    if worktree.is_linked() {
        let all = worktree.common.join("worktrees");
        let step = || format!("protect '{}'", all.display());
        let own = mounts::clone_tree_at(&worktree.own).named(step)?;
        freeze(&all)?;
        attach(own, &worktree.own)?;
        for path in paths::PROTECTED_OF_WORKTREE.map(|name| worktree.own.join(name)) {
            if rules::exists(&path) {
                freeze(&path)?;
            }
        }
        // All worktrees are read-only already, as a whole.
        protected.retain(|path| !path.starts_with("worktrees"));
    }
    protect(&worktree.common, &protected)
}

/// Secrets and folders of abide itself that exist, by all paths that lead to them, except the folder of SSH keys itself.
pub fn hidden(plan: &Plan) -> Vec<PathBuf> {
    let mut all = paths::secrets_in_home(&plan.home);
    all.extend(paths::hidden_of_system(&plan.workspace.path));
    all.extend(plan.hide.iter().chain(&plan.own).cloned());
    all.extend(ssh_keys::named_by_settings(&plan.home));
    all.extend(paths::hidden_with_token(&plan.home));
    all.retain(|path| rules::exists(path));
    let keys = plan.home.join(paths::SSH);
    let others = MountTable::read().other_paths(all.iter().chain([&keys]), plan);
    all.extend(others);
    all
}

/// Paths that a sandbox of this plan hides, with what symbolic links in their place lead to.
pub fn all_hidden(plan: &Plan) -> Vec<PathBuf> {
    let mut all = hidden(plan);
    all.push(plan.home.join(paths::SSH));
    let targets = all.iter().filter_map(|path| path.canonicalize().ok());
    let targets: Vec<PathBuf> = targets.collect();
    all.extend(targets);
    all
}

/// Covers secrets and the folders of abide itself.
fn hide(plan: &Plan, hidden: &[PathBuf], covers: &Covers) -> Result<(), Fault> {
    hide_keys(plan, covers)?;
    hidden.iter().try_for_each(|path| covers.hide(path))
}

/// Covers the folder of SSH keys; its settings stay readable as copies.
fn hide_keys(plan: &Plan, covers: &Covers) -> Result<(), Fault> {
    let keys = plan.home.join(paths::SSH);
    let kept: Vec<(&str, Vec<u8>)> = paths::READABLE_OF_SSH
        .iter()
        .filter_map(|name| Some((*name, fs::read(keys.join(name)).ok()?)))
        .collect();
    if kept.is_empty() || !keys.is_dir() {
        return covers.hide(&keys);
    }
    let step = || format!("hide '{}'", keys.display());
    let options: [(&str, &[u8]); 2] = [("mode", b"0700"), ("size", b"16m")];
    let copy = mounts::create("tmpfs", &options, mounts::harmless()).named(step)?;
    for (name, text) in &kept {
        let flags =
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
        let mode = Permissions::from_raw_mode(0o600);
        let file = rustix::fs::openat(&copy, *name, flags, mode).named(step)?;
        io::Write::write_all(&mut fs::File::from(file), text).named(step)?;
    }
    mounts::set_attributes(&copy, mounts::read_only()).named(step)?;
    attach(copy, &keys)
}

/// Covers the sockets of other programs in folders that stay as they are. A layer kills sockets by itself.
fn cover_sockets(
    plan: &Plan,
    writable: &[PathBuf],
    sockets: &[PathBuf],
    covers: &Covers,
) -> Result<(), Fault> {
    let is_real = |path: &Path| {
        let is_real = |root: &&PathBuf| path.starts_with(root);
        let real = plan
            .write
            .iter()
            .chain([&plan.workspace.path])
            .find(is_real);
        real.is_some() || !writable.iter().any(|root| path.starts_with(root))
    };
    let visible: Vec<&PathBuf> = sockets
        .iter()
        .filter(|path| is_real(path) && is_socket(path))
        .collect();
    if visible.len() > MOST_SOCKETS {
        let why = format!("there are more than {MOST_SOCKETS} in visible folders");
        return Err(Fault::refused("cover the sockets of other programs", &why));
    }
    for path in visible {
        covers.hide(path)?;
    }
    Ok(())
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

const RESOLVER: &str = "/etc/resolv.conf";

/// Opens the sockets of the network gate and sends them to it.
fn open_gate(wanted: &GatePlan, channel: &GateChannel) -> Result<(), Fault> {
    let opened = channel.open_sockets(wanted);
    opened.map_err(|fault| Fault {
        step: format!("open the network gate: {}", fault.step),
        cause: fault.errno.into(),
        is_unavailable: false,
    })
}

/// Mounts the `resolv.conf` of the gate. A link to a file that only the machine's own /run has is followed, and the file
/// made. Without the file, C libraries ask 127.0.0.1 too.
fn use_resolver(covers: &Covers) -> Result<(), Fault> {
    let path = Path::new(RESOLVER);
    if path.exists() {
        return covers.name_gate(path);
    }
    let Ok(target) = fs::read_link(path) else {
        return Ok(());
    };
    let target = Path::new("/etc").join(target);
    match target.parent().map(fs::create_dir_all) {
        Some(Ok(())) if fs::File::create(&target).is_ok() => covers.name_gate(&target),
        _ => Ok(()),
    }
}

/// Tries to open files through which root could leave the sandbox. This process still has all capabilities in it.
fn prove() -> Result<(), Fault> {
    for path in paths::NEVER_WRITABLE {
        if fs::OpenOptions::new().write(true).open(path).is_ok() {
            let step = format!("prove that '{path}' cannot be written");
            return Err(Fault::refused(step, "it could be opened for writing"));
        }
    }
    Ok(())
}
