//! Bounds of the conditions of an agent: the daemon looks for them, outside every sandbox, so it looks at no more than the
//! agent's commands could in theirs.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use abide_gate::address::{Forbidden, forbidden};
use abide_gate::allowlist::{Allowlist, HostName};
use abide_gate::outside::{Host, Outside};
use abide_session::sandbox::{HIDDEN_OF_SYS, Network, OWN_FOLDERS, Plan, all_hidden};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::port;
use crate::gate_plan::GateConfig;

/// Symbolic links that are followed at most, as in the kernel.
const MAX_SYMLINKS: usize = 40;

/// Reason why a condition must not be looked at, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutOfBounds(pub String);

/// Bounds of the conditions of one agent, now.
pub struct Bounds {
    /// Sandbox of the agent's commands.
    pub plan: Plan,
    /// Ports of the daemon.
    pub own_ports: Vec<u16>,
    /// Ports of this machine's loopback on which commands of the agent listen.
    pub published: Vec<u16>,
}

/// File opened with `O_PATH`, so that it cannot be exchanged for another one meanwhile.
pub(super) struct PinnedFile {
    /// Path that leads to this very file.
    pub path: PathBuf,
    _file: OwnedFd,
}

impl Bounds {
    /// Opens a file to look at it; `None`: it does not exist. What counts is the file to which the path really leads. A
    /// link such as `/proc/self/root` or `/proc/PID/fd/3` leads out of what paths tell, also to deleted files, so none is
    /// followed.
    pub(super) fn open(&self, path: &Path) -> Result<io::Result<Option<PinnedFile>>, OutOfBounds> {
        use io::ErrorKind::{NotADirectory, NotFound};
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
        let file = match opened.map_err(io::Error::from) {
            Ok(file) => file,
            Err(fault) if fault.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return Err(refused(
                    path,
                    "its path has a link of '/proc' that is no path, or too many links",
                ));
            }
            Err(fault) if matches!(fault.kind(), NotFound | NotADirectory) => {
                return self.check(path, &real_path(path)).map(|()| Ok(None));
            }
            Err(fault) => return self.check(path, &real_path(path)).map(|()| Err(fault)),
        };
        let opened = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let real = match std::fs::read_link(&opened) {
            Ok(real) => real,
            Err(fault) => return Ok(Err(fault)),
        };
        self.check(path, &real)?;
        Ok(Ok(Some(PinnedFile {
            path: opened,
            _file: file,
        })))
    }

    /// Checks the file to which a path really leads.
    fn check(&self, path: &Path, real: &Path) -> Result<(), OutOfBounds> {
        let refused = |why: String| Err(refused(path, &why));
        let mut hidden = all_hidden(&self.plan);
        hidden.extend(HIDDEN_OF_SYS.map(PathBuf::from));
        if let Some(hidden) = hidden.iter().find(|hidden| real.starts_with(hidden)) {
            return refused(format!(
                "the sandbox of this agent's commands hides '{}'",
                hidden.display()
            ));
        }
        let mut shown = self.plan.write.iter().chain([&self.plan.workspace.path]);
        let own = OWN_FOLDERS.iter().find(|own| real.starts_with(own));
        match own.filter(|_| !shown.any(|shown| real.starts_with(shown))) {
            Some(own) => refused(format!(
                "the sandbox of this agent's commands has a '{own}' of its own"
            )),
            None => Ok(()),
        }
    }

    /// Checks the host and port of a condition.
    pub(super) fn check_host(&self, host: Option<&str>, port: u16) -> Result<(), OutOfBounds> {
        let name = port::display_name(host, port);
        let refused = |why: &str| {
            Err(OutOfBounds(format!(
                "the condition must not connect to {name}: {why}."
            )))
        };
        let is_local = port::is_local(host);
        if is_local && self.own_ports.contains(&port) {
            return refused("that is a port of abide itself");
        }
        match &self.plan.network {
            Network::On => Ok(()),
            Network::Off => refused(
                "the sandbox of this agent's commands has no network, and what they listen on is reachable only inside it; \
                 wait for a line of output instead, with {\"session\": …, \"output\": …}",
            ),
            // A command may be about to listen there.
            Network::Allowlist(_) if is_local => Ok(()),
            Network::Allowlist(_) if self.allows(host.unwrap_or_default(), port) => Ok(()),
            Network::Allowlist(_) => {
                refused("the allowlist of this agent's sandbox does not have it")
            }
        }
    }

    /// Checks the host and port, and tells if a command of the agent could connect there now: on this machine, if one has
    /// opened the port.
    pub(super) fn may_reach(&self, host: Option<&str>, port: u16) -> Result<bool, OutOfBounds> {
        self.check_host(host, port)?;
        Ok(!port::is_local(host) || self.reaches_local(port))
    }

    /// True if a command of the agent could connect to a port of this machine.
    fn reaches_local(&self, port: u16) -> bool {
        match &self.plan.network {
            Network::On => true,
            Network::Off => false,
            Network::Allowlist(gate) => {
                gate.host_ports.contains(&port) || self.published.contains(&port)
            }
        }
    }

    /// True if a condition on this host may connect to this address of it.
    pub(super) fn permits(&self, host: &str, port: u16, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_here = address.is_loopback() || address.is_unspecified();
        match &self.plan.network {
            Network::Off => false,
            Network::On => !(is_here && self.own_ports.contains(&port)),
            Network::Allowlist(_) if port::is_local(Some(host)) => address.is_loopback(),
            Network::Allowlist(_) => match forbidden(address) {
                None => !Host.is_own_address(address),
                Some(Forbidden::Private) => {
                    let private = self.gate().private;
                    is_in(&private, host, port) && !Host.is_own_address(address)
                }
                Some(Forbidden::Local) => false,
            },
        }
    }

    fn allows(&self, host: &str, port: u16) -> bool {
        is_in(&self.gate().allow, host, port)
    }

    /// Configuration of the network gate, which allows nothing if there is none.
    fn gate(&self) -> GateConfig {
        let gate = self.plan.network.gate();
        gate.and_then(|gate| serde_json::from_slice(&gate.config).ok())
            .unwrap_or_default()
    }
}

/// Refusal to look at a path.
fn refused(path: &Path, why: &str) -> OutOfBounds {
    OutOfBounds(format!(
        "the condition must not look at '{}': {why}.",
        path.display()
    ))
}

/// True if patterns of names match this one.
fn is_in(patterns: &[String], host: &str, port: u16) -> bool {
    let patterns = Allowlist::parse(patterns);
    let name = HostName::parse(host);
    patterns.is_ok_and(|patterns| name.is_some_and(|name| patterns.allows(&name, port)))
}

/// Path of a file that may not exist, with symbolic links resolved, also one to a target that does not exist.
fn real_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        let real = |folder: &Path| Some((folder.to_owned(), folder.canonicalize().ok()?));
        let Some((folder, real)) = path.ancestors().find_map(real) else {
            return path;
        };
        let Ok(missing) = path.strip_prefix(&folder) else {
            return path;
        };
        let mut names = missing.components();
        let Some(next) = names.next() else {
            return real;
        };
        match std::fs::read_link(real.join(next)) {
            Ok(target) => path = real.join(target).join(names.as_path()),
            Err(_) => return real.join(missing),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use abide_session::sandbox::Folder;

    use super::*;

    #[test]
    fn links_of_proc_that_are_no_paths_are_refused() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name);
        let workspace = Folder {
            path: root.path().to_owned(),
            device: 0,
            inode: 0,
        };
        let bounds = Bounds {
            plan: Plan {
                hide: vec![at("hidden")],
                ..Plan::read_only(workspace)
            },
            own_ports: Vec::new(),
            published: Vec::new(),
        };
        std::fs::write(at("hidden"), "secret").expect("a file");
        std::fs::write(at("plain"), "").expect("a file");
        std::os::unix::fs::symlink("plain", at("link")).expect("a link");
        let open = std::fs::File::open(at("hidden")).expect("a file");
        std::fs::remove_file(at("hidden")).expect("removed");
        let deleted = format!("/proc/self/fd/{}", open.as_raw_fd());
        std::os::unix::fs::symlink(&deleted, at("way")).expect("a link");
        let outside = PathBuf::from(format!("/proc/self/root{}", at("plain").display()));
        for path in [PathBuf::from(deleted), at("way"), outside] {
            let refused = bounds.open(&path).err().map(|why| why.0);
            let why = refused.unwrap_or_else(|| panic!("{} was opened", path.display()));
            assert!(why.contains("a link of '/proc'"), "{why}");
        }
        for path in [at("plain"), at("link")] {
            let opened = bounds.open(&path).expect("no bound").expect("no fault");
            assert!(opened.is_some(), "{}", path.display());
        }
    }
}
