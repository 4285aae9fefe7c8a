//! Record of what a sandbox has refused, for results. The kernel reports every attempt to write, and to connect where
//! the network is not simply on (seccomp user notification); the keeper compares it with the plan and lets the call continue,
//! unless it would make or change a protected name that no mount protects (`protected_names`).
//! Paths and addresses are read from the memory of the command, so the record is a hint for people and models, never a
//! permission. Refused names come from the gate.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, Mode as Permissions, OFlags};

use super::filter::Filter;
use super::gate::{Gate, Listed};
use super::git::{OutsideGit, Protected, Worktree};
use super::inside::NamedFile;
use super::notification::{self, Notification, Verdict};
use super::paths::without_dots;
use super::plan::{GatePlan, Mode, Network, Plan};
use super::protected_names::{Change, ProtectedNames, RefusedChange};
use super::refusal_record::{FILE, RefusalKind};
use super::refused_calls;
use super::stored_layers::free_bytes;
use super::supervision::Violation;
use super::{layers, only_landlock};

/// File of the record while it is written.
const NEW_FILE: &str = "refused.new";

/// Different refusals that are kept; all are counted.
const MOST_KEPT: usize = 20;
/// End of the path of an open file that was removed.
const GONE: &[u8] = b" (deleted)";
/// First port that needs no privileges.
const FIRST_FREE_PORT: u16 = 1_024;
/// Free bytes below which the disk of the layers counts as full.
const FULL: u64 = 1 << 20;
/// Names in the workspace that are protected, and paths that can be written.
pub(crate) struct Watched {
    plan: Plan,
    protected: Vec<PathBuf>,
    /// Landlock rules alone cannot protect a part of a folder that can be written.
    has_protection: bool,
    writable: Vec<PathBuf>,
    /// Git directories in layered folders that are read-only, and protected paths of the one that commits are written to.
    read_only: Vec<PathBuf>,
    /// Git directory outside the workspace that commits are written to.
    worktree: Option<Worktree>,
    names: ProtectedNames,
}

/// Refusals of one session.
pub(crate) struct Refusals {
    watched: Watched,
    filter: Arc<Filter>,
    listener: Option<OwnedFd>,
    /// Paths that the command attempted to write or make.
    kept: Vec<Counted<(RefusalKind, PathBuf)>>,
    /// Direct addresses, which no sandbox with a gate reaches, and those to which UDP was sent.
    addresses: Vec<Counted<(RefusalKind, SocketAddr)>>,
    /// Texts about system calls that the filter has refused.
    calls: Vec<Counted<String>>,
    count: u64,
    /// True if the command may have made files: it attempted to, or attempts are not reported.
    may_have_made: bool,
    /// Address that stands for a name, with a port on which the network gate does not listen, which was just connected to.
    pub no_listener: Option<SocketAddr>,
    /// Act for which the sandbox has ended its command.
    pub violation: Option<Violation>,
}

/// A refusal, and how often it happened.
struct Counted<T> {
    what: T,
    times: u64,
}

/// Counts a refusal. `true`: it is new, and has room.
fn count<T: PartialEq>(what: T, list: &mut Vec<Counted<T>>) -> bool {
    if let Some(known) = list.iter_mut().find(|known| known.what == what) {
        known.times += 1;
        return false;
    }
    let has_room = list.len() < MOST_KEPT;
    list.extend(has_room.then_some(Counted { what, times: 1 }));
    has_room
}

impl Watched {
    /// Records the state of the workspace before the command runs. `init`: the init process of the sandbox, if it has
    /// namespaces.
    pub fn new(plan: &Plan, init: Option<i32>, protected: Protected) -> Self {
        let Some(init) = init else {
            return Watched {
                plan: plan.clone(),
                protected: protected.paths,
                has_protection: false,
                writable: only_landlock::writable(plan),
                read_only: Vec::new(),
                worktree: None,
                names: ProtectedNames::none(),
            };
        };
        let names = ProtectedNames::of(plan, &protected, init);
        let mut writable: Vec<PathBuf> = ["/proc", "/dev", "/run", "/var/run"]
            .map(PathBuf::from)
            .to_vec();
        writable.extend(layers::layered(plan));
        writable.extend(plan.write.iter().cloned());
        let OutsideGit {
            worktree,
            mut read_only,
        } = protected.outside;
        if plan.mode == Mode::WorkspaceWrite {
            writable.push(plan.workspace.path.clone());
        }
        if let Some(worktree) = &worktree {
            writable.push(worktree.common.clone());
            let kept = worktree.protected().paths;
            read_only.extend(kept.iter().map(|path| worktree.common.join(path)));
        }
        Watched {
            plan: plan.clone(),
            protected: protected.paths,
            has_protection: true,
            writable,
            read_only,
            worktree,
            names,
        }
    }

    /// Kind of the refusal to write this path. `None`: the plan permits it.
    fn refusal(&self, path: &Path) -> Option<RefusalKind> {
        let root = &self.plan.workspace.path;
        let is_below = |root: &PathBuf| path.starts_with(root);
        let in_workspace = path.strip_prefix(root).ok();
        let is_protected = |inside: &Path| {
            let is_named = || self.protected.iter().any(|name| inside.starts_with(name));
            self.has_protection && is_named() && !self.plan.permits(inside)
        };
        let is_of_others = |worktree: &Worktree| worktree.is_of_others(path);
        let is_kept_git =
            self.read_only.iter().any(is_below) || self.worktree.as_ref().is_some_and(is_of_others);
        if in_workspace.is_some_and(is_protected) || is_kept_git {
            return Some(RefusalKind::Protected);
        }
        let is_kept = in_workspace.is_some() && self.plan.mode == Mode::ReadOnly;
        let is_written = || self.plan.write.iter().any(is_below);
        let is_refused = (is_kept && !is_written()) || !self.writable.iter().any(is_below);
        is_refused.then_some(RefusalKind::Write)
    }

    /// True if a path is protected or has a protected path in it, so that it cannot be renamed.
    fn is_pinned(&self, path: &Path) -> bool {
        let inside = path.strip_prefix(&self.plan.workspace.path).ok();
        let mut protected = self.protected.iter().filter(|_| self.has_protection);
        let touches = |name: &Path, path: &Path| name.starts_with(path) || path.starts_with(name);
        inside.is_some_and(|inside| protected.any(|name| touches(name, inside)))
            || self.read_only.iter().any(|kept| touches(kept, path))
    }

    /// True if this user could write the path outside the sandbox: else no permission would help. What does not exist is
    /// made in the nearest folder that does.
    fn could_write(&self, path: &Path) -> bool {
        let there = path.ancestors().find(|path| path.exists());
        path.starts_with(&self.plan.workspace.path)
            || there.is_some_and(|path| rustix::fs::access(path, Access::WRITE_OK).is_ok())
    }

    /// Refusal to change the file to which a path really leads. `None`: the plan permits it.
    fn refused_file(
        &self,
        path: PathBuf,
        file: Option<&NamedFile>,
    ) -> Option<(RefusalKind, PathBuf)> {
        // An open file may have no path.
        let known = file.filter(|file| {
            let is_path =
                file.path.is_absolute() && !file.path.as_os_str().as_bytes().ends_with(GONE);
            is_path && (!self.has_protection || file.is_read_only())
        });
        let real = match (file, known) {
            (_, Some(known)) => known.path.clone(),
            // The kernel writes it.
            (Some(_), None) if self.has_protection => return None,
            _ => path,
        };
        Some((self.refusal(&real)?, real))
    }

    /// Text about a TCP port that cannot be bound.
    fn refused_bind(&self, address: &SocketAddr) -> Option<String> {
        let (ip, port) = (address.ip(), address.port());
        let is_root = rustix::process::getuid().is_root();
        if port < FIRST_FREE_PORT {
            return (is_root && self.has_protection).then(|| {
                format!("bind {address}  a port below {FIRST_FREE_PORT} cannot be listened at; use another one")
            });
        }
        let gate = self.plan.network.gate()?;
        let is_v4 = ip.is_ipv4() || ip.is_unspecified();
        let is_loopback = ip.is_loopback() || ip.is_unspecified();
        let is_taken = gate.ports.contains(&port) && is_v4
            || gate.host_ports.contains(&port) && is_v4 && is_loopback;
        is_taken.then(|| {
            format!("bind {address}  `allow` or `host_ports` leads outside at this port; use another one")
        })
    }

    /// Refusal of a call that would make or change a protected name.
    fn refused_change(
        &self,
        seen: &Notification,
        path: &Path,
        file: Option<&NamedFile>,
    ) -> Option<RefusedChange> {
        let (names, tid) = (&self.names, seen.pid);
        match seen.change()? {
            Change::Rename => {
                let from = seen.old_path()?;
                let refused = names.renamed(&from, path, tid);
                refused.or_else(|| seen.exchanges().then(|| names.renamed(path, &from, tid))?)
            }
            Change::Link => {
                // By another name of the same file it could be written.
                let source = seen.old_path().and_then(|from| {
                    let change = match seen.follows_source() {
                        true => Change::Write,
                        false => Change::WriteItself,
                    };
                    names.changed(change, &from, tid)
                });
                source.or_else(|| names.changed_file(Change::Link, file?))
            }
            change => names.changed_file(change, file?),
        }
    }

    /// Names that programs outside obey, which the command has made.
    fn planted(&self) -> Vec<PathBuf> {
        let mut now = Protected::of(&self.plan).paths;
        now.retain(|path| !self.protected.contains(path));
        now.truncate(MOST_KEPT);
        now
    }
}

impl Refusals {
    pub fn new(watched: Watched, filter: Arc<Filter>) -> Self {
        Refusals {
            watched,
            filter,
            may_have_made: true,
            listener: None,
            kept: Vec::new(),
            addresses: Vec::new(),
            calls: Vec::new(),
            count: 0,
            no_listener: None,
            violation: None,
        }
    }

    /// Listens to the attempts of a command that was started, if the kernel reports them.
    pub fn listen(&mut self, listener: Option<OwnedFd>) {
        if let Some(listener) = &listener {
            notification::prepare(listener.as_fd());
        }
        self.may_have_made = listener.is_none();
        self.listener = listener;
    }

    /// Descriptor that becomes readable when the command attempts to write.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Stops listening: no process is left that could be reported.
    pub fn close(&mut self) {
        self.listener = None;
    }

    /// Handles one attempt. `true`: it is one of the refusals that are kept, and new.
    pub fn handle(&mut self, gate: Option<&mut Gate>) -> bool {
        let listener = self.listener.as_ref().map(AsFd::as_fd);
        let Some((listener, seen)) =
            listener.and_then(|listener| Some((listener, Notification::receive(listener)?)))
        else {
            return false;
        };
        if self.filter.refuses(seen.number, seen.args) {
            let told = refused_calls::told(&seen);
            let is_valid = seen.answer(listener, Verdict::Fail(libc::EPERM));
            return is_valid && told.is_some_and(|text| self.keep_call(text));
        }
        if let Some(address) = seen.bound() {
            if let Some(gate) = gate {
                gate.release(address.port());
            }
            let is_valid = seen.answer(listener, Verdict::Continue);
            let text = self.watched.refused_bind(&address);
            return is_valid && text.is_some_and(|text| self.keep_call(text));
        }
        let path = seen.path();
        let of_root = (path.as_ref()).and_then(|path| refused_calls::of_root(&seen, path));
        let follows = seen.follows_links();
        let file =
            (path.as_ref()).and_then(|path| self.watched.names.file(path, seen.pid, follows));
        let is_rename = seen.change() == Some(Change::Rename);
        let from = is_rename.then(|| seen.old_path()).flatten();
        let address = seen.address();
        let refused = (path.as_ref())
            .and_then(|path| self.watched.refused_change(&seen, path, file.as_ref()));
        let verdict = match refused {
            Some(_) => Verdict::Fail(libc::EROFS),
            None => Verdict::Continue,
        };
        let is_valid = seen.answer(listener, verdict);
        self.may_have_made |= refused.is_none() && seen.makes();
        if !is_valid {
            return false;
        }
        if let Some(refused) = refused {
            self.count += 1;
            return match refused {
                RefusedChange::Made(path) => self.keep(RefusalKind::Make, path),
                RefusedChange::Changed(path) => self.keep(RefusalKind::Protected, path),
            };
        }
        let written =
            path.and_then(|path| self.refused_path(&seen, without_dots(&path), file.as_ref()));
        let moved = || {
            let from = without_dots(&from?);
            let is_pinned = self.watched.is_pinned(&from);
            is_pinned.then_some((RefusalKind::Protected, from))
        };
        if let Some((kind, path)) = written.or_else(moved) {
            self.count += 1;
            return self.keep(kind, path);
        }
        if let Some(text) = of_root {
            return self.keep_call(text);
        }
        address.is_some_and(|address| self.keep_address(address, seen.sends()))
    }

    /// Path that the command attempted to write, if the plan refuses it.
    fn refused_path(
        &self,
        seen: &Notification,
        path: PathBuf,
        file: Option<&NamedFile>,
    ) -> Option<(RefusalKind, PathBuf)> {
        let (kind, path) = self.watched.refused_file(path, file)?;
        // `mkdir -p` attempts every folder of a path; one that exists is not refused.
        let is_there = seen.makes_folder() && path.is_dir();
        let kind = match (kind, seen.change()) {
            (RefusalKind::Write, Some(Change::Remove)) => RefusalKind::Remove,
            _ => kind,
        };
        let changed = match kind {
            RefusalKind::Remove if std::fs::symlink_metadata(&path).is_err() => return None,
            RefusalKind::Remove => path.parent().unwrap_or(&path),
            _ => &path,
        };
        (!is_there && self.watched.could_write(changed)).then_some((kind, path))
    }

    /// Keeps an address that the command attempted to connect to, or sends UDP to, if the plan refuses it. `true`: it is
    /// new.
    fn keep_address(&mut self, address: SocketAddr, is_udp: bool) -> bool {
        let network = &self.watched.plan.network;
        let is_off = *network == Network::Off;
        if is_udp && !is_off {
            let is_refused = is_direct(&address) || stands_for_name(&address);
            self.count += u64::from(is_refused);
            return is_refused && count((RefusalKind::Udp, address), &mut self.addresses);
        }
        let has_listener = |gate: &GatePlan| gate.ports.contains(&address.port());
        if stands_for_name(&address) && network.gate().is_some_and(|gate| !has_listener(gate)) {
            self.no_listener = Some(address);
            return false;
        }
        let Some(address) = refused_address(address, is_off) else {
            return false;
        };
        let refusal = (RefusalKind::Address, address);
        // A program tries several servers to look up one name.
        if address == LOOK_UP && self.addresses.iter().any(|known| known.what == refusal) {
            return false;
        }
        self.count += 1;
        count(refusal, &mut self.addresses)
    }

    /// Keeps a text about a system call that was refused. `true`: it is new.
    fn keep_call(&mut self, text: String) -> bool {
        self.count += 1;
        count(text, &mut self.calls)
    }

    /// Keeps a refusal. `false`: it is known, or there are too many.
    fn keep(&mut self, kind: RefusalKind, path: PathBuf) -> bool {
        count((kind, path), &mut self.kept)
    }

    /// Writes the record into the session's directory, if there is something to tell. Names that the command has made are
    /// looked for at its end only. `of_gate`: refusals of the network gate.
    pub fn record(&self, folder: BorrowedFd<'_>, is_end: bool, of_gate: &Listed) -> io::Result<()> {
        let planted = match is_end && self.may_have_made {
            true => self.watched.planted(),
            false => Vec::new(),
        };
        let is_full = is_end && layers_are_full(&self.watched.plan.layers);
        let is_silent = self.count == 0 && planted.is_empty() && of_gate.lines.is_empty();
        if is_silent && !is_full && self.violation.is_none() {
            return Ok(());
        }
        let Plan { mode, network, .. } = &self.watched.plan;
        let count = self.count + of_gate.count;
        let mut text = format!("{} {} {count}\n", mode.as_str(), network.as_str()).into_bytes();
        text.extend_from_slice(&of_gate.lines);
        for Counted { what, times } in &self.addresses {
            let (kind, address) = what;
            kind.append(*times, address.to_string().as_bytes(), &mut text);
        }
        for Counted { what, times } in &self.calls {
            RefusalKind::Call.append(*times, what.as_bytes(), &mut text);
        }
        for Counted { what, times } in &self.kept {
            let (kind, path) = what;
            kind.append(*times, path.as_os_str().as_bytes(), &mut text);
        }
        let mut append = |kind: RefusalKind, path: &Path| {
            kind.append(1, path.as_os_str().as_bytes(), &mut text);
        };
        (planted.iter()).for_each(|path| append(RefusalKind::Planted, path));
        if is_full {
            append(RefusalKind::Full, &self.watched.plan.layers);
        }
        match &self.violation {
            Some(Violation::Layers { bytes, limit }) => {
                RefusalKind::Limit.append(1, format!("{bytes} {limit}").as_bytes(), &mut text);
            }
            Some(Violation::GitFile(path)) => append(RefusalKind::Removed, path),
            None => {}
        }
        // Replaced whole: the daemon may read it at any time.
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, NEW_FILE, flags, Permissions::from_raw_mode(0o600))?;
        io::Write::write_all(&mut std::fs::File::from(file), &text)?;
        Ok(rustix::fs::renameat(folder, NEW_FILE, folder, FILE)?)
    }
}

/// True if the disk of the layers has no room left: writes to the home and temporary folders have failed or soon will.
fn layers_are_full(layers: &Path) -> bool {
    let has_files = |found: rustix::fs::StatVfs| found.f_files == 0 || found.f_favail > 0;
    free_bytes(layers).is_some_and(|free| free < FULL)
        || rustix::fs::statvfs(layers).is_ok_and(|found| !has_files(found))
}

/// Stands for all name servers in a sandbox without network.
const LOOK_UP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 53);

/// Address for the record, if the sandbox refuses it. Without network, a name server may also be on loopback.
fn refused_address(address: SocketAddr, is_off: bool) -> Option<SocketAddr> {
    if is_off && address.port() == LOOK_UP.port() {
        return Some(LOOK_UP);
    }
    is_direct(&address).then_some(address)
}

/// True for an address outside the sandbox that stands for no name. Port 0 connects to nothing.
fn is_direct(address: &SocketAddr) -> bool {
    let ip = address.ip();
    let is_own = ip.is_loopback() || ip.is_unspecified();
    !(is_own || stands_for_name(address) || address.port() == 0)
}

/// True for an address of the network gate that stands for a name.
fn stands_for_name(address: &SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(ip) if ip.octets()[0] == 198 && ip.octets()[1] & !1 == 18)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Folder;

    #[test]
    fn paths_outside_and_protected_names_are_refused() {
        let workspace = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(workspace.path().join(".git/hooks")).unwrap();
        let plan = Plan {
            mode: Mode::WorkspaceWrite,
            write: vec!["/cache".into()],
            ..Plan::read_only(Folder::resolve(workspace.path()).unwrap())
        };
        let root = plan.workspace.path.clone();
        let watched = |init| Watched::new(&plan, init, Protected::of(&plan));
        let only_landlock = watched(None);
        let own = std::process::id();
        let watched = watched(Some(own as i32));
        for (path, is_refused) in [
            ("/etc/x".into(), true),
            // Temporary folders are not layered, and parts of the workspace are not protected.
            ("/tmp/x".into(), true),
            ("/proc/self/oom_score_adj".into(), true),
            ("/nonexistent/tmp/private/x".into(), false),
            ("/dev/null".into(), false),
            (root.join(".git/hooks/pre-commit"), false),
            (root.join("file"), false),
        ] {
            let refusal = only_landlock.refusal(&path);
            assert_eq!(
                refusal,
                is_refused.then_some(RefusalKind::Write),
                "{path:?}"
            );
        }
        let refusal = |path: &Path| watched.refusal(path);
        assert_eq!(refusal(Path::new("/etc/x")), Some(RefusalKind::Write));
        let hook = refusal(&root.join(".git/hooks/pre-commit"));
        assert_eq!(hook, Some(RefusalKind::Protected));
        for fine in [
            root.join("file"),
            "/cache/x".into(),
            "/dev/null".into(),
            "/tmp/x".into(),
        ] {
            assert_eq!(refusal(&fine), None, "{}", fine.display());
        }
        std::fs::create_dir(root.join(".vscode")).unwrap();
        assert_eq!(watched.planted(), [PathBuf::from(".vscode")]);
        assert_eq!(without_dots(Path::new("/a/./b/../c")), Path::new("/a/c"));
    }

    #[test]
    fn direct_addresses_are_those_that_stand_for_no_name() {
        for (text, expected) in [
            ("1.1.1.1:443", true),
            ("[2606:4700::1111]:443", true),
            ("198.18.0.7:443", false),
            ("198.19.255.255:443", false),
            ("198.20.0.0:443", true),
            ("127.0.0.1:80", false),
            ("[::1]:80", false),
            ("0.0.0.0:80", false),
            ("8.8.8.8:0", false),
        ] {
            assert_eq!(is_direct(&text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn all_name_servers_are_one_refusal_without_network() {
        for (text, is_off, expected) in [
            ("10.0.0.2:53", true, Some(LOOK_UP)),
            ("127.0.0.53:53", true, Some(LOOK_UP)),
            ("127.0.0.53:53", false, None),
            ("127.0.0.1:80", true, None),
            ("1.1.1.1:443", true, Some("1.1.1.1:443".parse().unwrap())),
        ] {
            let refused = refused_address(text.parse().unwrap(), is_off);
            assert_eq!(refused, expected, "{text}");
        }
    }
}
