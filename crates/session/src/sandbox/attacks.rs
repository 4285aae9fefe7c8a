//! Attacks on the sandbox that this process is in, for `abide doctor --hostile` and for tests. All are harmless where they
//! succeed: they touch only the files of their [`Scene`], and system calls get arguments that the kernel rejects.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use abide_core::SandboxGap;

/// Limit on a connection that is not answered.
const CONNECT: Duration = Duration::from_secs(2);
/// Address that is not assigned to any machine.
const NOWHERE: ([u8; 4], u16) = ([192, 0, 2, 1], 80);

/// Files, processes and sockets that the attacks aim at. The one who prepares it owns all of them.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The workspace, with a `.git` folder that has hooks and a configuration.
    pub workspace: PathBuf,
    /// Folder outside the workspace. It has a file for each attack that changes one, named by [`canary`].
    pub outside: PathBuf,
    /// File in the home folder, with the text [`CANARY`].
    pub in_home: PathBuf,
    /// Secrets of the user that exist. They are never read: only whether there is something is looked at.
    pub secrets: Vec<PathBuf>,
    /// State folder and sockets of abide.
    pub own: Vec<PathBuf>,
    /// A process outside.
    pub process: i32,
    /// A port on the loopback of the machine, with a listener.
    pub port: u16,
    /// True if the sandbox has the network of the machine.
    pub has_network: bool,
    /// True if the sandbox permits to write the workspace.
    pub can_write: bool,
    /// A unix socket outside, with a listener.
    pub socket: PathBuf,
    /// An abstract unix socket outside, with a listener.
    pub abstract_socket: String,
    /// Variable of the environment with a secret name, which the sandbox must not have.
    pub variable: String,
}

/// Text of the files that attacks try to change.
pub const CANARY: &str = "canary\n";

/// One attack, or something that must work.
pub struct Attack {
    /// Number of the attack. Its tests have the same number.
    pub number: u16,
    /// The attempt in words.
    pub what: &'static str,
    /// Kind of the right answer.
    pub expected: Expected,
    /// Gap of a weaker mechanism that permits it.
    pub gap: Option<SandboxGap>,
    /// True if only namespaces keep this promise.
    pub needs_namespaces: bool,
    attempt: fn(&Scene) -> Result<Attempt, Refused>,
}

/// Kind of the right answer to an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The attempt fails.
    Refused,
    /// The attempt may succeed, but nothing changes outside.
    Unchanged,
    /// The attempt succeeds: a sandbox that refuses everything is of no use.
    Works,
}

/// Outcome of an attempt that was not refused.
enum Attempt {
    /// Success, or a step further than the sandbox allows.
    Reached(String),
    /// Not applicable in this sandbox.
    NotApplicable(&'static str),
}

/// Reason for which an attempt failed.
struct Refused(String);

/// Outcome of an attack, seen from inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Refusal with its reason.
    Refused(String),
    /// Success, as far as the sandbox itself can tell.
    Reached(String),
    /// Not applicable in this sandbox.
    NotApplicable(String),
}

impl Attack {
    /// Makes the attempt.
    pub fn attempt(&self, scene: &Scene) -> Seen {
        match (self.attempt)(scene) {
            Err(Refused(why)) => Seen::Refused(why),
            Ok(Attempt::Reached(how)) => Seen::Reached(how),
            Ok(Attempt::NotApplicable(why)) => Seen::NotApplicable(why.into()),
        }
    }
}

/// File outside that the attack of this number tries to change.
pub fn canary(outside: &Path, number: u16) -> PathBuf {
    outside.join(format!("canary-{number}"))
}

type Tried = Result<Attempt, Refused>;

/// Makes an outcome of a result. Only these errors count as a refusal: another one shows that the kernel has begun.
fn tried<T>(result: io::Result<T>, refusals: &[i32]) -> Tried {
    match result {
        Ok(_) => Ok(Attempt::Reached("succeeded".into())),
        Err(fault) => match fault.raw_os_error() {
            Some(code) if refusals.contains(&code) => Err(Refused(fault.to_string())),
            _ => Ok(Attempt::Reached(fault.to_string())),
        },
    }
}

/// Outcome of several attempts: the first that is not refused.
fn each<T>(all: impl IntoIterator<Item = T>, attempt: impl Fn(T) -> Tried) -> Tried {
    let mut last = Refused("nothing is there".into());
    for one in all {
        match attempt(one) {
            Err(refused) => last = refused,
            reached => return reached,
        }
    }
    Err(last)
}

const FILE: [i32; 6] = [
    libc::EROFS,
    libc::EACCES,
    libc::EPERM,
    libc::ENOENT,
    libc::EXDEV,
    libc::EBUSY,
];
const CALL: [i32; 3] = [libc::EPERM, libc::ENOSYS, libc::EACCES];
const SOCKET: [i32; 7] = [
    libc::ECONNREFUSED,
    libc::ENOENT,
    libc::EACCES,
    libc::EPERM,
    libc::ENETUNREACH,
    libc::EAFNOSUPPORT,
    libc::ESOCKTNOSUPPORT,
];

fn append(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(b"attacked\n")
}

/// A system call. The arguments must be harmless, whatever the call does with them.
fn call(number: libc::c_long, args: [usize; 5]) -> io::Result<()> {
    let [a, b, c, d, e] = args;
    // SAFETY: callers pass no address but null or one of a text that lives longer than the call, so the kernel writes
    // nothing into this process.
    match unsafe { libc::syscall(number, a, b, c, d, e) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn text(text: &'static CStr) -> usize {
    text.as_ptr() as usize
}

const fn refused(number: u16, what: &'static str, attempt: fn(&Scene) -> Tried) -> Attack {
    Attack {
        number,
        what,
        expected: Expected::Refused,
        gap: None,
        needs_namespaces: false,
        attempt,
    }
}

const fn unchanged(number: u16, what: &'static str, attempt: fn(&Scene) -> Tried) -> Attack {
    Attack {
        expected: Expected::Unchanged,
        ..refused(number, what, attempt)
    }
}

const fn works(number: u16, what: &'static str, attempt: fn(&Scene) -> Tried) -> Attack {
    Attack {
        expected: Expected::Works,
        ..refused(number, what, attempt)
    }
}

const fn or_gap(attack: Attack, gap: SandboxGap) -> Attack {
    Attack {
        gap: Some(gap),
        ..attack
    }
}

const fn with_namespaces(attack: Attack) -> Attack {
    Attack {
        needs_namespaces: true,
        ..attack
    }
}

/// All attacks, in the order in which they are made.
pub const ATTACKS: &[Attack] = &[
    refused(1, "create a file in /usr, /etc and /opt", |_| {
        each(["/usr", "/etc", "/opt"], |folder| {
            let path = Path::new(folder).join(format!(".abide-hostile-{}", std::process::id()));
            let made = OpenOptions::new().write(true).create_new(true).open(&path);
            if made.is_ok() {
                let _ = fs::remove_file(&path);
            }
            tried(made, &FILE)
        })
    }),
    works(1, "create a file in the workspace", |scene| {
        if !scene.can_write {
            return Ok(Attempt::NotApplicable("the workspace is read-only"));
        }
        tried(fs::write(scene.workspace.join("made"), "made\n"), &FILE)
    }),
    unchanged(2, "change a file in the home folder", |scene| {
        tried(append(&scene.in_home), &FILE)
    }),
    unchanged(
        5,
        "write through a symbolic link in the workspace",
        |scene| {
            let link = scene.workspace.join("link");
            tried(
                symlink(canary(&scene.outside, 5), &link).and_then(|()| append(&link)),
                &FILE,
            )
        },
    ),
    unchanged(
        7,
        "write through a new hard link in the workspace",
        |scene| {
            let link = scene.workspace.join("hard-link");
            tried(
                fs::hard_link(canary(&scene.outside, 7), &link).and_then(|()| append(&link)),
                &FILE,
            )
        },
    ),
    unchanged(
        9,
        "rename a file of the workspace over one outside",
        |scene| {
            let own = scene.workspace.join("renamed");
            let renamed = fs::write(&own, "attacked\n")
                .and_then(|()| fs::rename(&own, canary(&scene.outside, 9)));
            tried(renamed, &FILE)
        },
    ),
    unchanged(11, "write through `..` from the workspace", |scene| {
        let name = canary(Path::new("../outside"), 11);
        tried(append(&scene.workspace.join(name)), &FILE)
    }),
    unchanged(13, "write through /proc/self/root", |scene| {
        let path = canary(&scene.outside, 13);
        let path = Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap_or(&path));
        tried(append(&path), &FILE)
    }),
    refused(16, "mount, remount and unmount", |_| {
        let none = text(c"none");
        let root = text(c"/");
        // The file system type does not exist, and `/` is no place that can be unmounted with these flags.
        each(
            [
                (libc::SYS_mount, [none, root, text(c"no-such-type"), 0, 0]),
                (
                    libc::SYS_umount2,
                    [text(c"/proc/self/no-mount"), 0, 0, 0, 0],
                ),
                (libc::SYS_open_tree, [usize::MAX, root, 0, 0, 0]),
                (libc::SYS_fsopen, [text(c"no-such-type"), 0, 0, 0, 0]),
            ],
            |(number, args)| tried(call(number, args), &CALL),
        )
    }),
    refused(18, "chroot and pivot_root", |_| {
        let root = text(c"/");
        each([libc::SYS_chroot, libc::SYS_pivot_root], |number| {
            tried(call(number, [root, root, 0, 0, 0]), &CALL)
        })
    }),
    refused(19, "open a file by its handle", |_| {
        tried(call(libc::SYS_open_by_handle_at, [0; 5]), &CALL)
    }),
    or_gap(
        unchanged(20, "change the mode of a file outside", |scene| {
            let path = canary(&scene.outside, 20);
            tried(
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)),
                &FILE,
            )
        }),
        SandboxGap::Metadata,
    ),
    refused(21, "set the setuid bit", |scene| {
        if !scene.can_write {
            return Ok(Attempt::NotApplicable("the workspace is read-only"));
        }
        let path = scene.workspace.join("setuid");
        let set = fs::write(&path, "")
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)));
        tried(set, &CALL)
    }),
    refused(22, "create a device file", |scene| {
        let path = scene.workspace.join("device");
        let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes());
        let path = path.unwrap_or_default();
        // SAFETY: the path ends with a zero byte. The device is `/dev/null`.
        let made =
            unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 3)) };
        let made = match made {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        tried(made, &FILE)
    }),
    refused(23, "open memory, kernel messages and KVM", |_| {
        each(
            ["/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/vda", "/dev/sda"],
            |path| tried(File::open(path), &FILE),
        )
    }),
    unchanged(25, "truncate a file outside", |scene| {
        let path = canary(&scene.outside, 25);
        let opened = OpenOptions::new().write(true).truncate(true).open(path);
        tried(opened, &FILE)
    }),
    or_gap(
        refused(31, "change a git hook and the git configuration", |scene| {
            each([".git/hooks/pre-commit", ".git/config"], |name| {
                tried(append(&scene.workspace.join(name)), &FILE)
            })
        }),
        SandboxGap::Protected,
    ),
    or_gap(
        refused(33, "rename the git folder", |scene| {
            let (git, moved) = (scene.workspace.join(".git"), scene.workspace.join("moved"));
            let renamed = fs::rename(&git, &moved);
            if renamed.is_ok() {
                let _ = fs::rename(&moved, &git);
            }
            tried(renamed, &FILE)
        }),
        SandboxGap::Protected,
    ),
    or_gap(
        with_namespaces(refused(
            41,
            "make configuration of editors, agents and CI that does not exist",
            make_absent_names,
        )),
        SandboxGap::AbsentNames,
    ),
    works(46, "write a Git object", |scene| {
        if !scene.can_write {
            return Ok(Attempt::NotApplicable("the workspace is read-only"));
        }
        tried(
            fs::write(scene.workspace.join(".git/objects/made"), ""),
            &FILE,
        )
    }),
    refused(51, "read keys, tokens and browser profiles", |scene| {
        contents(&scene.secrets)
    }),
    or_gap(
        refused(51, "list keys, tokens and browser profiles", |scene| {
            names(&scene.secrets)
        }),
        SandboxGap::Metadata,
    ),
    refused(
        56,
        "read a secret of the environment",
        |scene| match std::env::var_os(&scene.variable) {
            Some(_) => Ok(Attempt::Reached("the variable is there".into())),
            None => Err(Refused("the variable is not there".into())),
        },
    ),
    or_gap(
        refused(57, "read the environment of a process outside", |scene| {
            tried(fs::read(format!("/proc/{}/environ", scene.process)), &FILE)
        }),
        SandboxGap::Processes,
    ),
    or_gap(
        refused(58, "read the memory and the symbols of the kernel", |_| {
            let all = ["/proc/kcore", "/proc/kallsyms", "/proc/keys"];
            contents(&all.map(PathBuf::from))
        }),
        SandboxGap::Processes,
    ),
    refused(65, "trace a process outside", |scene| {
        const SEIZE: usize = 0x4206;
        let pid = scene.process as usize;
        let known = [libc::ESRCH, libc::EPERM, libc::EACCES];
        tried(call(libc::SYS_ptrace, [SEIZE, pid, 0, 0, 0]), &known)
    }),
    or_gap(
        refused(67, "signal a process outside", |scene| {
            let pid = scene.process as usize;
            tried(
                call(libc::SYS_kill, [pid, 0, 0, 0, 0]),
                &[libc::ESRCH, libc::EPERM],
            )
        }),
        SandboxGap::Processes,
    ),
    refused(69, "enter a namespace", |_| {
        let own = File::open("/proc/self/ns/mnt").map_err(|fault| Refused(fault.to_string()))?;
        let fd = own.as_raw_fd() as usize;
        tried(call(libc::SYS_setns, [fd, 0, 0, 0, 0]), &CALL)
    }),
    refused(81, "set up io_uring", |_| {
        tried(call(libc::SYS_io_uring_setup, [0; 5]), &CALL)
    }),
    refused(
        82,
        "load BPF and modules, trace events, enable swap",
        |_| {
            let nowhere = text(c"/nonexistent/abide");
            each(
                [
                    (libc::SYS_bpf, [9_999, 0, 0, 0, 0]),
                    (libc::SYS_perf_event_open, [0, 0, 0, 0, 0]),
                    (libc::SYS_swapon, [nowhere, 0, 0, 0, 0]),
                    (libc::SYS_init_module, [0, 0, 0, 0, 0]),
                    (libc::SYS_acct, [nowhere, 0, 0, 0, 0]),
                ],
                |(number, args)| tried(call(number, args), &CALL),
            )
        },
    ),
    refused(83, "use the kernel's key ring", |_| {
        each(
            [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key],
            |number| tried(call(number, [0; 5]), &CALL),
        )
    }),
    refused(84, "open kernel settings for writing", |_| {
        let all = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/sys/kernel/uevent_helper",
            "/proc/sysrq-trigger",
        ];
        each(all, |path| {
            tried(OpenOptions::new().write(true).open(path), &FILE)
        })
    }),
    refused(90, "make sockets of unusual families", |_| {
        each(
            [40, libc::AF_PACKET, 38, 44, libc::AF_BLUETOOTH],
            |family| {
                let family = family as usize;
                let kind = libc::SOCK_DGRAM as usize;
                tried(call(libc::SYS_socket, [family, kind, 0, 0, 0]), &SOCKET)
            },
        )
    }),
    with_namespaces(works(90, "make ordinary sockets", |_| {
        tried(TcpListener::bind(("127.0.0.1", 0)), &SOCKET)
    })),
    refused(91, "set the clock", |_| {
        tried(call(libc::SYS_clock_settime, [0; 5]), &CALL)
    }),
    or_gap(
        refused(98, "connect to an abstract unix socket outside", |scene| {
            let address = UnixAddr::from_abstract_name(&scene.abstract_socket);
            tried(
                address.and_then(|at| UnixStream::connect_addr(&at)),
                &SOCKET,
            )
        }),
        SandboxGap::AbstractSockets,
    ),
    refused(99, "connect to a unix socket outside", |scene| {
        tried(UnixStream::connect(&scene.socket), &SOCKET)
    }),
    refused(107, "connect to a server on this machine", |scene| {
        if scene.has_network {
            return Ok(Attempt::NotApplicable("`network` is \"on\""));
        }
        let address = SocketAddr::from(([127, 0, 0, 1], scene.port));
        tried(TcpStream::connect_timeout(&address, CONNECT), &SOCKET)
    }),
    refused(108, "connect to an address on the internet", |scene| {
        if scene.has_network {
            return Ok(Attempt::NotApplicable("`network` is \"on\""));
        }
        tried(
            TcpStream::connect_timeout(&NOWHERE.into(), CONNECT),
            &SOCKET,
        )
    }),
    with_namespaces(works(109, "connect to a server of its own", |_| {
        let own = TcpListener::bind(("127.0.0.1", 0)).and_then(|own| Ok((own.local_addr()?, own)));
        match own {
            Ok((address, _own)) => tried(TcpStream::connect_timeout(&address, CONNECT), &SOCKET),
            Err(fault) => Err(Refused(fault.to_string())),
        }
    })),
    refused(129, "read the files of abide", |scene| contents(&scene.own)),
    or_gap(
        refused(129, "list the files of abide", |scene| names(&scene.own)),
        SandboxGap::Metadata,
    ),
    unchanged(130, "change the files of abide", |scene| {
        each(scene.own.iter().filter(|path| path.is_dir()), |path| {
            let made = path.join(format!(".abide-hostile-{}", scene.process));
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&made);
            tried(file, &FILE)
        })
    }),
    // Last: it would change this process.
    refused(17, "make a user namespace", |_| {
        let flags = libc::CLONE_NEWUSER as usize;
        tried(call(libc::SYS_unshare, [flags, 0, 0, 0, 0]), &CALL)
    }),
];

/// Attempt to make protected names that do not exist, by several paths. What was made is removed.
fn make_absent_names(scene: &Scene) -> Tried {
    let path = |name: &str| scene.workspace.join(name);
    let by_link = |link: &str, to: &str, make: &dyn Fn(&Path) -> io::Result<()>| {
        let link = path(link);
        let made = symlink(to, &link).and_then(|()| make(&link));
        let _ = fs::remove_file(&link);
        made
    };
    let file = |path: &Path| fs::write(path, "");
    let folder = |path: &Path| fs::create_dir(path.join(".vscode"));
    let attempts: [&dyn Fn() -> io::Result<()>; 7] = [
        &|| fs::create_dir(path(".vscode")),
        &|| file(&path(".mcp.json")),
        &|| by_link("to-name", ".mcp.json", &file),
        &|| by_link("to-folder", ".", &folder),
        &|| {
            by_link("to-process", "/proc/self/cwd", &|link| {
                std::env::set_current_dir(&scene.workspace).and_then(|()| folder(link))
            })
        },
        &|| {
            let new = path("new");
            let renamed = fs::create_dir_all(new.join("workflows"))
                .and_then(|()| fs::rename(&new, path(".github")));
            let _ = fs::remove_dir_all(new);
            renamed
        },
        &|| symlink("elsewhere", path(".github")),
    ];
    each(attempts, |attempt| {
        let made = attempt();
        for name in [".vscode", ".mcp.json", ".github"].map(path) {
            let _ = fs::remove_file(&name).or_else(|_| fs::remove_dir_all(&name));
        }
        tried(made, &FILE)
    })
}

/// Attempt to read files, and the files in folders. Nothing of them is kept.
fn contents(paths: &[PathBuf]) -> Tried {
    attempt_each(paths, can_read, "can be read")
}

/// Attempt to list folders.
fn names(paths: &[PathBuf]) -> Tried {
    let has_names = |path: &Path| fs::read_dir(path).is_ok_and(|mut all| all.next().is_some());
    attempt_each(paths, has_names, "can be listed")
}

fn attempt_each(paths: &[PathBuf], is_open: impl Fn(&Path) -> bool, how: &str) -> Tried {
    if paths.is_empty() {
        return Ok(Attempt::NotApplicable("there are none"));
    }
    match paths.iter().find(|path| is_open(path)) {
        Some(path) => Ok(Attempt::Reached(format!("'{}' {how}", path.display()))),
        None => Err(Refused("they look empty".into())),
    }
}

/// True if a byte of this file, or of a file in this folder, can be read.
fn can_read(path: &Path) -> bool {
    let mut byte = [0];
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let mut files =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
            files.any(|file| can_read(&file.path()))
        }
        Ok(found) if found.is_file() => {
            File::open(path).is_ok_and(|mut file| file.read(&mut byte).is_ok_and(|read| read > 0))
        }
        _ => false,
    }
}
