//! Init process of a sandbox: has its namespaces, builds it, then reaps orphans until the last process has ended.
//!
//! The init process runs no program and keeps its capabilities in the sandbox, so the command cannot trace it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use abide_core::{SandboxGap, Sandboxed, SandboxedBy};
use rustix::net::RecvFlags;
use rustix::pipe::PipeFlags;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::bubblewrap;
use super::build::{self, Built, Fault, Found, Named};
use super::entry::Entry;
use super::filter::Filter;
use super::gate::GateChannel;
use super::git::Protected;
use super::layers::WorkFolders;
use super::only_landlock;
use super::plan::{ASK_OUTSIDE, Mode, Network, Plan};
use super::sockets;
use crate::accelerator;
use crate::cgroup::SessionCgroup;
use crate::codec::Wire;
use crate::fd_passing;
use crate::fork_exec::{exit_now, fork_failure};
use crate::frame::StartFailure;
use crate::nsinit::{self, Namespace, fork_into_namespaces};
use crate::set_name;

/// Usual size of what the keeper finds, in bytes.
const FOUND_SIZE: usize = 8 << 10;
/// Longest report of the init process: a step and its cause.
const REPORT_LIMIT: usize = 8 << 10;

/// Mechanisms, the strongest first.
pub const MECHANISMS: [SandboxedBy; 3] = [
    SandboxedBy::Namespaces,
    SandboxedBy::Bubblewrap,
    SandboxedBy::Landlock,
];

/// A sandbox that was built and waits for its command. Dropping it ends and removes it.
pub(crate) struct Sandbox {
    /// The init process, if there are namespaces.
    pub namespace: Option<Namespace>,
    /// Mechanism and gaps, for results.
    pub sandboxed: Sandboxed,
    /// Parts that the command needs to enter it.
    pub entry: Entry,
    /// Channel to its network gate, which is not started yet.
    pub gate: Option<GateChannel>,
    /// Protected paths of the workspace when it was built.
    pub protected: Protected,
    /// Mount namespace of the sandbox. The kernel removes the mounts when this is closed, and not while the init process
    /// ends, for which the answer of a call waits.
    pub mounts: Option<OwnedFd>,
    /// Work folders of its layers, if it has any.
    pub work: Option<WorkFolders>,
}

/// Sentence of a sandbox that could not be built.
pub(crate) fn cannot(mode: Option<Mode>, why: &str, errno: i32) -> StartFailure {
    let mode = mode.map_or("off", Mode::as_str);
    StartFailure::now(
        errno,
        format!(
            "the sandbox `{mode}` cannot be enforced here: {why}. Nothing was run. `abide doctor` says what to do. {ASK_OUTSIDE}"
        ),
    )
}

/// Sandbox that could not be built by one mechanism.
#[derive(Debug)]
pub struct NotBuilt {
    /// The step that failed and its cause.
    why: String,
    errno: i32,
    /// True if this mechanism is not available here, whatever the plan is.
    is_unavailable: bool,
}

impl NotBuilt {
    /// A mechanism that is not available here, whatever the plan is.
    pub fn unavailable(why: impl Into<String>) -> Self {
        NotBuilt {
            why: why.into(),
            errno: 0,
            is_unavailable: true,
        }
    }

    /// A mechanism that is not available, because this step has failed.
    fn failed(step: &str, fault: &io::Error) -> Self {
        NotBuilt {
            errno: fault.raw_os_error().unwrap_or(0),
            ..NotBuilt::unavailable(format!("{step}: {fault}"))
        }
    }
}

impl std::fmt::Display for NotBuilt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl Sandbox {
    /// Builds the sandbox of a session by the strongest mechanism that works here. A weaker one is used only if the plan
    /// accepts it, and only if the stronger ones are not available at all.
    pub fn make(
        plan: &Plan,
        session: &str,
        cgroup: Option<&SessionCgroup>,
    ) -> Result<Self, StartFailure> {
        let (mut reasons, mut errno) = (Vec::new(), None);
        for by in MECHANISMS.into_iter().filter(|by| *by >= plan.at_least) {
            match Sandbox::by(by, plan, session, cgroup) {
                Ok(made) => return Ok(made),
                Err(not) if !not.is_unavailable => {
                    return Err(cannot(Some(plan.mode), &not.why, not.errno));
                }
                Err(not) => {
                    errno.get_or_insert(not.errno);
                    reasons.push(not.why);
                }
            }
        }
        let why = reasons.join("; ");
        Err(cannot(Some(plan.mode), &why, errno.unwrap_or_default()))
    }

    /// Builds the sandbox by this mechanism.
    pub fn by(
        by: SandboxedBy,
        plan: &Plan,
        session: &str,
        cgroup: Option<&SessionCgroup>,
    ) -> Result<Self, NotBuilt> {
        if accelerator::is_off(by.as_str()) {
            let why = format!("{} is switched off by ABIDE_OFF", by.as_str());
            return Err(NotBuilt::unavailable(why));
        }
        match by {
            SandboxedBy::Namespaces => Sandbox::by_namespaces(plan, session, cgroup, None),
            SandboxedBy::Bubblewrap => {
                let user = bubblewrap::user_namespace().map_err(|fault| NotBuilt {
                    why: fault.to_string(),
                    errno: fault.cause.raw_os_error().unwrap_or(0),
                    is_unavailable: fault.is_unavailable,
                })?;
                Sandbox::by_namespaces(plan, session, cgroup, Some(user))
            }
            SandboxedBy::Landlock | SandboxedBy::Off => only_landlock::make(plan),
        }
    }

    /// Builds the sandbox in namespaces. `user`: user namespace to which they belong, if it exists already.
    fn by_namespaces(
        plan: &Plan,
        session: &str,
        cgroup: Option<&SessionCgroup>,
        user: Option<OwnedFd>,
    ) -> Result<Self, NotBuilt> {
        let fail = NotBuilt::failed;
        let reports_connections = plan.network != Network::On;
        let filter = Filter::in_namespaces(reports_connections).ok_or_else(|| NotBuilt {
            why: "no system call filter for this processor".into(),
            errno: 0,
            is_unavailable: false,
        })?;
        let (mut to_init, to_keeper) =
            UnixStream::pair().map_err(|fault| fail("make a socket", &fault))?;
        let (held, keep_alive) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .map_err(|errno| fail("make a pipe", &errno.into()))?;
        let gate = (plan.network.gate().map(|_| GateChannel::make()).transpose())
            .map_err(|fault| fail("make a socket", &fault))?;
        let work = WorkFolders {
            layers: plan.layers.clone(),
            session: session.to_owned(),
        };
        let mut handle: RawFd = -1;
        let namespaces = namespaces(plan);
        let pid = match &user {
            None => fork_into_namespaces(namespaces, cgroup, &mut handle),
            Some(user) => bubblewrap::fork_into(user.as_fd(), namespaces, cgroup, &mut handle),
        };
        let pid = pid.map_err(|fault| match fault.raw_os_error() {
            Some(libc::EAGAIN) => NotBuilt {
                why: fork_failure("cannot make a process", &fault).sentence,
                errno: libc::EAGAIN,
                is_unavailable: false,
            },
            _ => fail("make namespaces", &fault),
        })?;
        if pid == 0 {
            drop(to_init);
            init(plan, session, gate.as_ref(), to_keeper, held.as_fd())
        }
        drop(to_keeper);
        // SAFETY: the kernel has written a new descriptor.
        let handle = unsafe { OwnedFd::from_raw_fd(handle) };
        let namespace = Namespace::of(pid, handle, keep_alive);
        if user.is_none() {
            write_maps(pid).map_err(|fault| fail("map the user", &fault))?;
        }
        // An init process that has failed does not read what follows; its report says why.
        let _ = to_init.write_all(&GO);
        let mut protected = Protected::of(plan);
        protected.make_missing(plan);
        let found = Found {
            protected: protected.paths.clone(),
            is_incomplete: protected.is_incomplete,
            hidden: build::hidden(plan),
            sockets: sockets::bound().map_err(|fault| NotBuilt {
                is_unavailable: false,
                ..fail("list the sockets of other programs", &fault)
            })?,
        };
        let mut bytes = Vec::new();
        found.put(&mut bytes);
        let _ = to_init.write_all(&bytes);
        let _ = to_init.shutdown(Shutdown::Write);
        let (gaps, ruleset) = await_build(&to_init)?;
        Ok(Sandbox {
            entry: Entry::new(Some((&namespace, namespaces)), ruleset, filter),
            protected,
            mounts: open_mounts(pid),
            namespace: Some(namespace),
            gate,
            sandboxed: Sandboxed {
                by: match user {
                    None => SandboxedBy::Namespaces,
                    Some(_) => SandboxedBy::Bubblewrap,
                },
                gaps,
            },
            work: Some(work),
        })
    }
}

/// Opens the mount namespace of a process.
fn open_mounts(pid: i32) -> Option<OwnedFd> {
    let file = fs::File::open(format!("/proc/{pid}/ns/mnt"));
    file.ok().map(OwnedFd::from)
}

fn namespaces(plan: &Plan) -> libc::c_int {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    match plan.network {
        Network::Off | Network::Allowlist(_) => always | libc::CLONE_NEWNET,
        Network::On => always,
    }
}

/// Maps every id to itself: all ids that this process has if it may, else its own.
fn write_maps(pid: i32) -> io::Result<()> {
    let own = |id: u32| format!("{id} {id} 1\n");
    let (user, group) = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let put = |name: &str, text: &str| fs::write(format!("/proc/{pid}/{name}"), text);
    if user == 0 && put("uid_map", &all_ids("uid_map")?).is_ok() {
        return put("gid_map", &all_ids("gid_map")?);
    }
    put("setgroups", "deny")?;
    put("uid_map", &own(user))?;
    put("gid_map", &own(group))
}

/// Map of all ids of this user namespace to themselves.
fn all_ids(name: &str) -> io::Result<String> {
    let own = fs::read_to_string(format!("/proc/self/{name}"))?;
    let lines = own.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (first, _, count) = (words.next()?, words.next()?, words.next()?);
        Some(format!("{first} {first} {count}\n"))
    });
    Ok(lines.collect())
}

/// First byte that the keeper sends to the init process: its user is mapped.
const GO: [u8; 1] = [1];

/// Main function of the init process.
fn init(
    plan: &Plan,
    session: &str,
    gate: Option<&GateChannel>,
    mut to_keeper: UnixStream,
    held: BorrowedFd<'_>,
) -> ! {
    set_name(c"abide-init");
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let step = || "hear from the keeper".to_owned();
    let begun = to_keeper.read_exact(&mut [0]).named(step);
    let built = begun.and_then(|()| {
        let found = || {
            let mut bytes = Vec::with_capacity(FOUND_SIZE);
            to_keeper.read_to_end(&mut bytes).named(step)?;
            let found = Found::take(&mut bytes.as_slice());
            found.map_err(|_| io::ErrorKind::UnexpectedEof).named(step)
        };
        build::build(plan, session, found, gate)
    });
    let sent = send(&to_keeper, built);
    drop(to_keeper);
    match sent {
        Ok(()) => nsinit::reap_until_empty(held),
        Err(_) => exit_now(1),
    }
}

/// Sends the result of building: the gaps and the Landlock rules, or the failed step.
fn send(to_keeper: &UnixStream, built: Result<Built, Fault>) -> io::Result<()> {
    let (bytes, ruleset) = match built {
        Ok(built) => {
            let mut bytes = vec![0];
            bytes.extend(built.gaps.iter().map(|gap| gap.code()));
            (bytes, built.ruleset)
        }
        Err(fault) => {
            let errno = fault.cause.raw_os_error().unwrap_or(0);
            let mut bytes = vec![1 + u8::from(fault.is_unavailable)];
            bytes.extend(errno.to_le_bytes());
            bytes.extend(fault.to_string().into_bytes());
            bytes.truncate(REPORT_LIMIT);
            (bytes, None)
        }
    };
    let passed = ruleset.as_ref().map(|fd| fd.as_fd());
    Ok(fd_passing::send(to_keeper, &bytes, passed.as_slice())?)
}

/// Waits until the init process has built the sandbox. Returns the gaps and the Landlock rules.
fn await_build(to_init: &UnixStream) -> Result<(Vec<SandboxGap>, Option<OwnedFd>), NotBuilt> {
    let failed = |fault| NotBuilt::failed("hear from the init process", &fault);
    let mut bytes = vec![0; REPORT_LIMIT];
    let received = fd_passing::receive(to_init, &mut bytes, RecvFlags::empty());
    let (count, mut ruleset) = received.map_err(|errno| failed(errno.into()))?;
    match &bytes[..count] {
        [0, gaps @ ..] => {
            let gaps = gaps.iter().filter_map(|code| SandboxGap::from_code(*code));
            Ok((gaps.collect(), ruleset.pop()))
        }
        [kind @ (1 | 2), a, b, c, d, why @ ..] => Err(NotBuilt {
            why: String::from_utf8_lossy(why).into_owned(),
            errno: i32::from_le_bytes([*a, *b, *c, *d]),
            is_unavailable: *kind == 2,
        }),
        _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
    }
}
