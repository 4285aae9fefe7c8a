//! Resources of a keeper that are created before there is a command: directory, control socket, signalfd, cgroup.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use abide_core::Containment;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::cgroup::{self, SessionCgroup};
use super::folder::{self, CTL, KeeperIdentity, META};
use super::serve::unlink_ctl;
use super::spawn::Failure;
use super::{oom, proc, signals};

/// Properties that all keepers of a fork server share, determined once.
#[derive(Clone)]
pub struct ForkServerContext {
    /// umask of commands.
    pub umask: libc::mode_t,
    /// `oom_score_adj` of commands, if it differs from the keepers'.
    pub oom_score: Option<&'static CStr>,
    /// The cgroup below which sessions get their own.
    pub cgroup_parent: Option<PathBuf>,
    /// Counter of OOM kills in the cgroup that sessions inherit.
    pub oom_file: Option<PathBuf>,
    /// Boot id of the machine.
    pub boot_id: String,
}

/// Resources of one keeper.
pub struct Resources {
    /// signalfd.
    pub signals: OwnedFd,
    /// Identity of this process.
    pub identity: KeeperIdentity,
    pub context: ForkServerContext,
    pub session: SessionResources,
    /// Counter of OOM kills in the cgroup that sessions inherit.
    oom_file: Option<Rc<File>>,
}

/// Resources of the session that a keeper serves or will serve.
pub struct SessionResources {
    /// The session's directory.
    pub folder: Rc<OwnedFd>,
    /// Control socket, to which daemons connect.
    pub listener: OwnedFd,
    /// The session's cgroup.
    pub cgroup: Option<SessionCgroup>,
    /// The record file: command and ending.
    pub record: Rc<OwnedFd>,
    path: PathBuf,
}

/// Creates the directory of a session.
fn make_folder(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Creates the cgroup of the session in a directory, if that is possible.
fn cgroup(cgroup_parent: Option<&Path>, path: &Path) -> Option<SessionCgroup> {
    SessionCgroup::make(cgroup_parent?, path.file_name()?.to_str()?).ok()
}

/// Number of OOM kills before the command ran.
pub struct OomWatch {
    file: Option<Rc<File>>,
    before: u64,
}

impl OomWatch {
    /// True if the kernel has killed a process for lack of memory since, in the session's own cgroup or in
    /// the inherited one.
    pub fn rose(&self, cgroup: Option<&SessionCgroup>) -> bool {
        let own = cgroup.and_then(SessionCgroup::oom_kills).unwrap_or(0);
        let inherited = self.file.as_deref().and_then(cgroup::oom_kills);
        let inherited = inherited.unwrap_or(0);
        own > 0 || inherited > self.before
    }
}

impl ForkServerContext {
    /// Determines the context of this process.
    pub fn new(umask: libc::mode_t) -> Self {
        ForkServerContext {
            umask,
            oom_score: oom::lower_score(),
            cgroup_parent: cgroup::own_folder(),
            oom_file: cgroup::oom_file(),
            boot_id: boot_id(),
        }
    }
}

/// Boot id of the machine.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim_end().to_owned())
        .unwrap_or_default()
}

impl Resources {
    /// Creates the directory and everything that does not need a command.
    pub fn make(path: &Path, context: ForkServerContext) -> Result<Self, Failure> {
        let session = SessionResources::make(path, &context)?;
        let signals = signals::open_signalfd(&[libc::SIGCHLD, libc::SIGTERM])
            .map_err(|fault| Failure::new("cannot see signals", &fault))?;
        Ok(Resources {
            signals,
            identity: identity(&context),
            oom_file: (context.oom_file.as_ref())
                .and_then(|path| Some(Rc::new(File::open(path).ok()?))),
            context,
            session,
        })
    }

    /// Moves to another directory, once the session is over and its record is complete. The cgroup is not reused,
    /// because its processes may have changed its settings.
    pub fn renew(&mut self, path: &Path) -> Result<(), Failure> {
        let next = SessionResources::make(path, &self.context)?;
        std::mem::replace(&mut self.session, next).leave(false);
        Ok(())
    }

    /// Containment that a command would get.
    pub fn offers(&self) -> Containment {
        match self.session.cgroup {
            Some(_) => Containment::Cgroup,
            None => Containment::Subreaper,
        }
    }

    /// Reads the counter of OOM kills.
    pub fn oom_watch(&self) -> OomWatch {
        let file = self.oom_file.clone();
        let before = file.as_deref().and_then(cgroup::oom_kills).unwrap_or(0);
        OomWatch { file, before }
    }

    /// Reads the pending signals. True if one of them is SIGTERM.
    pub fn read_signals(&self) -> bool {
        signals::read_signalfd(&self.signals, libc::SIGTERM)
    }
}

impl SessionResources {
    fn make(path: &Path, context: &ForkServerContext) -> Result<Self, Failure> {
        let no_folder = |fault: io::Error| {
            let shown = path.display();
            Failure::new(
                format_args!("cannot make the session's folder '{shown}'"),
                &fault,
            )
        };
        let folder = make_folder(path).map_err(no_folder)?;
        let record = folder::create(&folder, META).map_err(no_folder)?;
        unlink_ctl(&folder);
        let listener = listen(&folder, CTL).map_err(no_folder)?;
        Ok(SessionResources {
            folder: Rc::new(folder),
            listener,
            cgroup: cgroup(context.cgroup_parent.as_deref(), path),
            record: Rc::new(record),
            path: path.to_owned(),
        })
    }

    /// Removes what only a living keeper needs, and the whole directory if the keeper was idle.
    pub fn leave(self, idle: bool) {
        unlink_ctl(&self.folder);
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
        if idle {
            let _ = rustix::fs::unlinkat(&self.folder, META, AtFlags::empty());
            let _ = rustix::fs::rmdir(&self.path);
        }
    }
}

fn identity(context: &ForkServerContext) -> KeeperIdentity {
    let pid = std::process::id();
    KeeperIdentity {
        pid,
        start_ticks: proc::stat(pid as i32).map_or(0, |stat| stat.start_ticks),
        boot_id: context.boot_id.clone(),
    }
}

/// Binds a socket for single messages in a session's directory.
pub(super) fn bind_datagrams(folder: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    bind(folder, name, SocketType::DGRAM)
}

/// Listens on a socket in a session's directory.
pub(super) fn listen(folder: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let socket = bind(folder, name, SocketType::STREAM)?;
    rustix::net::listen(&socket, 4)?;
    Ok(socket)
}

/// Binds a socket in a session's directory. The path goes through the directory's descriptor, because a socket's
/// path is limited to 108 bytes.
fn bind(folder: impl AsFd, name: &str, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    let path = format!("/proc/self/fd/{}/{name}", folder.as_fd().as_raw_fd());
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
