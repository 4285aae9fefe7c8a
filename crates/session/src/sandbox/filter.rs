//! System call filter of a sandbox: refuses what no ordinary command needs and what the mounts and namespaces do not
//! cover.

use std::sync::{Arc, LazyLock};

use super::bpf::{Program, Rule, Rules, Test, compile, decided};

/// Operation of `seccomp` that installs a filter.
pub const SET_MODE_FILTER: libc::c_uint = 1;
/// Flag of it that makes a listener of the filter.
pub const NEW_LISTENER: libc::c_uint = 1 << 3;

/// Filter of one sandbox.
pub struct Filter {
    pub plain: Program,
    /// The same one with a listener: it reports what the other one refuses, attempts to write, and attempts to connect and to
    /// bind a port if wanted.
    pub reporting: Program,
    /// Rules of the plain one, by which the keeper refuses what is reported.
    rules: Rules,
}

/// Filters of sandboxes with namespaces, without and with reports of connections, compiled once.
static IN_NAMESPACES: [LazyLock<Option<Arc<Filter>>>; 2] = [
    LazyLock::new(|| Filter::compile(refused(&FAMILIES), false)),
    LazyLock::new(|| Filter::compile(refused(&FAMILIES), true)),
];

/// Compiles the filters of sandboxes with namespaces. The fork server does it before it forks keepers, so that no command
/// waits for it.
pub fn compile_ahead() {
    for filter in &IN_NAMESPACES {
        LazyLock::force(filter);
    }
}

/// Flags of `clone` and `unshare` that make a namespace.
const NAMESPACES: [libc::c_int; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    CLONE_NEWTIME,
];
const CLONE_NEWTIME: libc::c_int = 0x80;
const IPPROTO_MPTCP: u32 = 262;
/// ioctls that type into a terminal. libc gives them another type with each C library.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
/// Families of sockets where namespaces or Landlock bound their use.
const FAMILIES: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// `personality` values that programs use: none, query, without address randomisation, 32-bit, old release.
const PERSONALITIES: [u32; 5] = [0, 0xffff_ffff, 0x004_0000, 0x0008, 0x002_0000];

/// System calls that fail with `EPERM`, whatever their arguments.
const REFUSED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_kexec_load,
    SYS_KEXEC_FILE_LOAD,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_fanotify_init,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
];

/// System calls that do not exist for the sandbox. `clone3` and `openat2` hide their flags from a filter, so programs fall
/// back to `clone` and `openat`.
const ABSENT: [i64; 5] = [
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// System calls on memory, queues and semaphores of System V. Landlock does not see them, and without a namespace of its own
/// a sandbox would share them with all processes of the user.
const SHARED: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
];

impl Filter {
    /// Filter of a sandbox with namespaces. `None`: there is none for this machine's architecture.
    pub fn in_namespaces(reports_connections: bool) -> Option<Arc<Self>> {
        IN_NAMESPACES[usize::from(reports_connections)].clone()
    }

    /// Compiles the filter of a sandbox without namespaces. `None`: there is none for this machine's architecture.
    pub fn without_namespaces(families: &[libc::c_int]) -> Option<Arc<Self>> {
        let mut rules = refused(families);
        for call in SHARED {
            add(&mut rules, *call, vec![], REFUSE);
        }
        add(
            &mut rules,
            libc::SYS_prlimit64,
            vec![Test::NoneOf(0, vec![0])],
            REFUSE,
        );
        Filter::compile(rules, false)
    }

    /// Returns whether the filter refuses a call that it reports. The keeper must not let it continue.
    pub fn refuses(&self, call: i32, arguments: [u64; 6]) -> bool {
        decided(&self.rules, call as u32, arguments) == REFUSE
    }

    /// Compiles rules that refuse into both programs.
    fn compile(rules: Rules, reports_connections: bool) -> Option<Arc<Self>> {
        let mut reporting = rules.clone();
        for rule in reporting.values_mut().flatten() {
            if rule.then == REFUSE {
                rule.then = REPORT;
            }
        }
        for (call, ..) in WRITES {
            let tests = match *call {
                libc::SYS_openat => vec![writes(2)],
                #[cfg(target_arch = "x86_64")]
                libc::SYS_open => vec![writes(1)],
                _ => vec![],
            };
            add(&mut reporting, *call, tests, REPORT);
        }
        add(&mut reporting, libc::SYS_fchown, vec![], REPORT);
        if reports_connections {
            add(&mut reporting, libc::SYS_connect, vec![], REPORT);
            add(&mut reporting, libc::SYS_bind, vec![], REPORT);
            // With an address: a send on a connection has none.
            let has_address = vec![Test::NoneOf(4, vec![0])];
            add(&mut reporting, libc::SYS_sendto, has_address, REPORT);
        }
        Some(Arc::new(Filter {
            plain: compile(&rules)?,
            reporting: compile(&reporting)?,
            rules,
        }))
    }
}

const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const ABSENT_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
/// Error of a second listener.
const BUSY: u32 = libc::SECCOMP_RET_ERRNO | libc::EBUSY as u32;
const REPORT: u32 = libc::SECCOMP_RET_USER_NOTIF;

/// Adds a rule behind those that a call has.
fn add(rules: &mut Rules, call: i64, tests: Vec<Test>, then: u32) {
    let call = u32::try_from(call).expect("numbers of system calls are small");
    let rule = Rule { tests, then };
    rules.entry(call).or_default().push(rule);
}

/// Rules that refuse what no ordinary command needs, in sandboxes with these families of sockets.
fn refused(families: &[libc::c_int]) -> Rules {
    let mut rules = Rules::new();
    let mut refuse = |call, tests| add(&mut rules, call, tests, REFUSE);
    for call in REFUSED {
        refuse(*call, vec![]);
    }
    let namespaces = NAMESPACES.iter().fold(0, |all, flag| all | *flag as u32);
    refuse(libc::SYS_clone, vec![Test::AnyBit(0, namespaces)]);
    refuse(libc::SYS_unshare, vec![Test::AnyBit(0, namespaces)]);
    for tests in sockets(families) {
        refuse(libc::SYS_socket, tests);
    }
    refuse(
        libc::SYS_socketpair,
        vec![Test::NoneOf(0, vec![libc::AF_UNIX as u32])],
    );
    refuse(
        libc::SYS_personality,
        vec![Test::NoneOf(0, PERSONALITIES.into())],
    );
    refuse(
        libc::SYS_ioctl,
        vec![Test::OneOf(1, vec![TIOCSTI, TIOCLINUX])],
    );
    for (call, mode, flags) in MODES {
        let mut tests: Vec<Test> = flags.map(makes_file).into_iter().collect();
        tests.push(sets_id(*mode));
        refuse(*call, tests);
    }
    #[cfg(target_arch = "x86_64")]
    {
        for call in [libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt] {
            refuse(call, vec![]);
        }
    }
    for call in ABSENT {
        add(&mut rules, call, vec![], ABSENT_CALL);
    }
    // A listener of the command would answer in place of the keeper once the keeper is gone.
    let listens = vec![
        Test::OneOf(0, vec![SET_MODE_FILTER]),
        Test::AnyBit(1, NEW_LISTENER),
    ];
    add(&mut rules, libc::SYS_seccomp, listens, BUSY);
    rules
}

/// A mode by which a file runs as its owner or group.
fn sets_id(mode: u32) -> Test {
    Test::AnyBit(mode, 0o6000)
}

/// Flags of an open that makes a file. The mode is any number if none is made.
fn makes_file(flags: u32) -> Test {
    // O_TMPFILE has one bit beside O_DIRECTORY, by which directories are opened.
    const TMPFILE: libc::c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;
    Test::AnyBit(flags, (libc::O_CREAT | TMPFILE) as u32)
}

/// Flags of an open to write.
fn writes(flags: u32) -> Test {
    let any = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
    Test::AnyBit(flags, any as u32)
}

/// Sockets of other families, raw sockets, and protocols that no other part of the sandbox would see.
fn sockets(families: &[libc::c_int]) -> [Vec<Test>; 4] {
    let netlink = libc::AF_NETLINK as u32;
    let inet = vec![libc::AF_INET as u32, libc::AF_INET6 as u32];
    let protocols = vec![IPPROTO_MPTCP, libc::IPPROTO_SCTP as u32];
    [
        vec![Test::NoneOf(
            0,
            families.iter().map(|family| *family as u32).collect(),
        )],
        vec![
            Test::OneOf(0, vec![netlink]),
            Test::NoneOf(2, vec![libc::NETLINK_ROUTE as u32]),
        ],
        vec![
            Test::OneOf(0, inet),
            Test::Bits(1, 0xf, libc::SOCK_RAW as u32),
        ],
        vec![Test::NoneOf(0, vec![netlink]), Test::OneOf(2, protocols)],
    ]
}

const SYS_FCHMODAT2: i64 = 452;
/// libc does not name it for every architecture.
const SYS_KEXEC_FILE_LOAD: i64 = if cfg!(target_arch = "x86_64") {
    320
} else {
    294
};

/// System calls that give a mode to a file, with the places of the mode, and of the flags if it counts only where they make
/// a file, among their arguments.
const MODES: &[(i64, u32, Option<u32>)] = &[
    (libc::SYS_fchmod, 1, None),
    (libc::SYS_fchmodat, 2, None),
    (SYS_FCHMODAT2, 2, None),
    (libc::SYS_mknodat, 2, None),
    (libc::SYS_openat, 3, Some(2)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2, Some(1)),
];

/// True for a system call that gives a mode to a file.
pub fn gives_mode(call: i64) -> bool {
    MODES.iter().any(|(number, ..)| *number == call)
}

/// System calls that change a path, with the places of the folder's descriptor, if it has one, and of the path among
/// their arguments.
const WRITES: &[(i64, Option<usize>, usize)] = &[
    (libc::SYS_openat, Some(0), 1),
    (libc::SYS_mkdirat, Some(0), 1),
    (libc::SYS_unlinkat, Some(0), 1),
    (libc::SYS_renameat2, Some(2), 3),
    (libc::SYS_linkat, Some(2), 3),
    (libc::SYS_symlinkat, Some(1), 2),
    (libc::SYS_mknodat, Some(0), 1),
    (libc::SYS_truncate, None, 0),
    (libc::SYS_fchmodat, Some(0), 1),
    (SYS_FCHMODAT2, Some(0), 1),
    (libc::SYS_fchownat, Some(0), 1),
    (libc::SYS_setxattr, None, 0),
    (libc::SYS_lsetxattr, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, None, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_renameat, Some(2), 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, None, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, None, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, None, 0),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, None, 0),
];

/// Places of the folder's descriptor and of the path among the arguments of a system call that changes a path.
pub fn path_arguments(call: i64) -> Option<(Option<usize>, usize)> {
    let found = WRITES.iter().find(|(number, ..)| *number == call);
    found.map(|(_, folder, path)| (*folder, *path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile_within_the_kernels_limit() {
        for filter in &IN_NAMESPACES {
            let filter = filter.as_ref().expect("this architecture is known");
            for program in [&filter.plain, &filter.reporting] {
                assert!((1..=4_096).contains(&program.len()), "{}", program.len());
            }
        }
    }
}
