//! System call filter of a sandbox: refuses what no ordinary command needs and what the mounts and namespaces do not
//! cover.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// Filters of one sandbox, to be installed in this order.
#[derive(Clone)]
pub struct Filters(pub Vec<BpfProgram>);

/// Filters of sandboxes with namespaces, compiled once.
static IN_NAMESPACES: LazyLock<Option<Filters>> = LazyLock::new(|| Filters::compile(&FAMILIES));
/// Filters that report attempts to write, and those that also report attempts to connect, compiled once.
static REPORTING: [LazyLock<Option<BpfProgram>>; 2] = [
    LazyLock::new(|| compile_reporting(false)),
    LazyLock::new(|| compile_reporting(true)),
];

/// Compiles the filters of sandboxes with namespaces. The fork server does it before it forks keepers, so that no command
/// waits for it.
pub fn compile_ahead() {
    LazyLock::force(&IN_NAMESPACES);
    REPORTING.iter().for_each(|filter| {
        LazyLock::force(filter);
    });
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

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
const IPPROTO_MPTCP: u64 = 262;
/// ioctls that type into a terminal. libc gives them another type with each C library.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
/// Families of sockets where namespaces or Landlock bound their use.
const FAMILIES: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// `personality` values that programs use: none, query, without address randomisation, 32-bit, old release.
const PERSONALITIES: [u64; 5] = [0, 0xffff_ffff, 0x004_0000, 0x0008, 0x002_0000];

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

impl Filters {
    /// Filters of a sandbox with namespaces. `None`: there are none for this machine's architecture.
    pub fn in_namespaces() -> Option<Self> {
        IN_NAMESPACES.clone()
    }

    /// Compiles the filters of a sandbox without namespaces. `None`: there are none for this machine's architecture.
    pub fn without_namespaces(families: &[libc::c_int]) -> Option<Self> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).ok()?;
        let mut filters = Filters::compile(families)?;
        let mut rules: Rules = SHARED.iter().map(|call| (*call, Vec::new())).collect();
        rules.insert(libc::SYS_prlimit64, vec![other_than(0, &[0])?]);
        filters.0.push(program(rules, &errno(libc::EPERM), arch)?);
        Some(filters)
    }

    /// Compiles the filters of this machine's architecture, with these families of sockets. `None`: there are none for
    /// it.
    fn compile(families: &[libc::c_int]) -> Option<Self> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).ok()?;
        let refused = program(refused(families)?, &errno(libc::EPERM), arch)?;
        let absent = ABSENT.iter().map(|call| (*call, Vec::new())).collect();
        let absent = program(absent, &errno(libc::ENOSYS), arch)?;
        let mut all = vec![refused, absent];
        all.extend(other_abi());
        Some(Filters(all))
    }
}

fn errno(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno.unsigned_abs())
}

/// Rules of one part of a program.
const RULES_OF_PART: usize = 6;

/// Compiles rules in parts, with a dispatch by the number of the system call in front of them. The kernel runs a program once
/// for each number when it is installed, and at every call whose arguments it looks at, so a call passes one part instead of
/// all rules.
fn program(rules: Rules, refusal: &SeccompAction, arch: TargetArch) -> Option<BpfProgram> {
    let rules: Vec<_> = rules.into_iter().collect();
    let mut parts: Vec<(u32, BpfProgram)> = Vec::new();
    for part in rules.chunks(RULES_OF_PART) {
        let (first, _) = part.first()?;
        let part = part.iter().cloned().collect();
        let filter = SeccompFilter::new(part, SeccompAction::Allow, refusal.clone(), arch);
        parts.push((u32::try_from(*first).ok()?, filter.ok()?.try_into().ok()?));
    }
    let mut program = vec![line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for place in (1..parts.len()).rev() {
        let below: usize = parts[..place].iter().map(|(_, part)| part.len()).sum();
        let rest_of_dispatch = 2 * (place - 1);
        let at_least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
        let jump = u32::try_from(rest_of_dispatch + below).ok()?;
        program.push(line(at_least, 0, 1, parts[place].0));
        program.push(line(libc::BPF_JMP | libc::BPF_JA, 0, 0, jump));
    }
    // Smaller numbers fall through to the first part: each part checks the architecture.
    program.extend(parts.into_iter().flat_map(|(_, part)| part));
    Some(program)
}

/// One instruction of a program.
fn line(code: u32, jt: u8, jf: u8, k: u32) -> seccompiler::sock_filter {
    seccompiler::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

fn refused(families: &[libc::c_int]) -> Option<Rules> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt] {
        rules.insert(call, Vec::new());
    }
    let flags: Option<Vec<_>> = NAMESPACES
        .iter()
        .map(|flag| has_bits(0, *flag as u64))
        .collect();
    rules.insert(libc::SYS_clone, flags.clone()?);
    rules.insert(libc::SYS_unshare, flags?);
    rules.insert(libc::SYS_socket, sockets(families)?);
    rules.insert(
        libc::SYS_socketpair,
        vec![other_than(0, &[libc::AF_UNIX as u64])?],
    );
    rules.insert(libc::SYS_personality, vec![other_than(0, &PERSONALITIES)?]);
    rules.insert(libc::SYS_ioctl, vec![is(1, TIOCSTI)?, is(1, TIOCLINUX)?]);
    let set_id = |at| Some(vec![has_bits(at, 0o4000)?, has_bits(at, 0o2000)?]);
    rules.insert(libc::SYS_fchmod, set_id(1)?);
    rules.insert(libc::SYS_fchmodat, set_id(2)?);
    rules.insert(SYS_FCHMODAT2, set_id(2)?);
    rules.insert(libc::SYS_mknodat, set_id(2)?);
    rules.insert(libc::SYS_openat, creates_set_id(2)?);
    #[cfg(target_arch = "x86_64")]
    {
        rules.insert(libc::SYS_chmod, set_id(1)?);
        rules.insert(libc::SYS_creat, set_id(1)?);
        rules.insert(libc::SYS_mknod, set_id(1)?);
        rules.insert(libc::SYS_open, creates_set_id(1)?);
    }
    Some(rules)
}

/// Opens that make a file which runs as its owner or group. `flags`: place of the flags, before that of the mode. The mode
/// is any number if no file is made.
fn creates_set_id(flags: u8) -> Option<Vec<SeccompRule>> {
    // O_TMPFILE has one bit beside O_DIRECTORY, by which directories are opened.
    const TMPFILE: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
    let mut rules = Vec::new();
    for makes in [libc::O_CREAT as u64, TMPFILE] {
        for bit in [0o4000, 0o2000] {
            let rule = SeccompRule::new(vec![
                condition(flags, Op::MaskedEq(makes), makes)?,
                condition(flags + 1, Op::MaskedEq(bit), bit)?,
            ]);
            rules.push(rule.ok()?);
        }
    }
    Some(rules)
}

const SYS_FCHMODAT2: i64 = 452;
/// libc does not name it for every architecture.
const SYS_KEXEC_FILE_LOAD: i64 = if cfg!(target_arch = "x86_64") {
    320
} else {
    294
};

/// Sockets of other families, raw sockets, and protocols that no other part of the sandbox would see.
fn sockets(families: &[libc::c_int]) -> Option<Vec<SeccompRule>> {
    let families: Vec<u64> = families.iter().map(|family| *family as u64).collect();
    let netlink = SeccompRule::new(vec![
        condition(0, Op::Eq, libc::AF_NETLINK as u64)?,
        condition(2, Op::Ne, libc::NETLINK_ROUTE as u64)?,
    ])
    .ok()?;
    let inet = [libc::AF_INET, libc::AF_INET6];
    let raw = inet.map(|family| {
        SeccompRule::new(vec![
            condition(0, Op::Eq, family as u64)?,
            condition(1, Op::MaskedEq(0xf), libc::SOCK_RAW as u64)?,
        ])
        .ok()
    });
    let mut rules = vec![other_than(0, &families)?, netlink];
    for rule in raw {
        rules.push(rule?);
    }
    for protocol in [IPPROTO_MPTCP, libc::IPPROTO_SCTP as u64] {
        let rule = SeccompRule::new(vec![
            condition(0, Op::Ne, libc::AF_NETLINK as u64)?,
            condition(2, Op::Eq, protocol)?,
        ]);
        rules.push(rule.ok()?);
    }
    Some(rules)
}

fn condition(argument: u8, operator: Op, value: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(argument, Len::Dword, operator, value).ok()
}

fn is(argument: u8, value: u64) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(argument, Op::Eq, value)?]).ok()
}

fn has_bits(argument: u8, bits: u64) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(argument, Op::MaskedEq(bits), bits)?]).ok()
}

fn other_than(argument: u8, values: &[u64]) -> Option<SeccompRule> {
    let conditions: Option<Vec<_>> = values
        .iter()
        .map(|value| condition(argument, Op::Ne, *value))
        .collect();
    SeccompRule::new(conditions?).ok()
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

/// Filter that reports attempts to write to a listener, and attempts to connect if wanted. `None`: this architecture is
/// not known.
pub fn reporting(connections: bool) -> Option<BpfProgram> {
    REPORTING[usize::from(connections)].clone()
}

fn compile_reporting(connections: bool) -> Option<BpfProgram> {
    // The compiler of filters does not know this action, so another one stands in its place.
    const PLACE: u32 = 1;
    const USER_NOTIF: u32 = 0x7fc0_0000;
    let arch = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    let opens = |at| -> Option<Vec<SeccompRule>> {
        [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC]
            .into_iter()
            .map(|flag| has_bits(at, flag as u64))
            .collect()
    };
    let mut rules: Rules = WRITES
        .iter()
        .map(|(call, ..)| (*call, Vec::new()))
        .collect();
    rules.insert(libc::SYS_openat, opens(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, opens(1)?);
    if connections {
        rules.insert(libc::SYS_connect, Vec::new());
    }
    let mut program = program(rules, &SeccompAction::Trace(PLACE), arch)?;
    let place = libc::SECCOMP_RET_TRACE | PLACE;
    let returns = (libc::BPF_RET | libc::BPF_K) as u16;
    for line in &mut program {
        if line.code == returns && line.k == place {
            line.k = USER_NOTIF;
        }
    }
    Some(program)
}

/// Kills a process that makes an x32 system call: the same architecture with other numbers, which the rules above
/// do not name.
#[cfg(target_arch = "x86_64")]
fn other_abi() -> Option<BpfProgram> {
    const X32: u32 = 0x4000_0000;
    Some(vec![
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        line(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ])
}

/// Other architectures have no second ABI of the same name.
#[cfg(not(target_arch = "x86_64"))]
fn other_abi() -> Option<BpfProgram> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of a program for a system call, as the kernel would compute it.
    fn run(program: &BpfProgram, arch: u32, call: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(call.to_ne_bytes());
        data.extend(arch.to_ne_bytes());
        data.extend(0_u64.to_ne_bytes());
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let line = &program[at];
            at += 1;
            let jumped = |holds: bool| usize::from(if holds { line.jt } else { line.jf });
            match u32::from(line.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    let word = &data[line.k as usize..][..4];
                    a = u32::from_ne_bytes(word.try_into().unwrap());
                }
                code if code == libc::BPF_JMP | libc::BPF_JA => at += line.k as usize,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += jumped(a == line.k);
                }
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                    at += jumped(a >= line.k);
                }
                code if code == libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K => {
                    at += jumped(a > line.k);
                }
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => a &= line.k,
                code if code == libc::BPF_RET | libc::BPF_K => return line.k,
                code => panic!("an instruction that no filter has: {code:#x}"),
            }
        }
    }

    const ARCH: u32 = if cfg!(target_arch = "x86_64") {
        0xc000_003e
    } else {
        0xc000_00b7
    };

    #[test]
    fn a_program_in_parts_decides_as_one_without_parts() {
        let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
        let refusal = errno(libc::EPERM);
        let rules = refused(&FAMILIES).unwrap();
        let whole = SeccompFilter::new(rules.clone(), SeccompAction::Allow, refusal.clone(), arch);
        let whole: BpfProgram = whole.unwrap().try_into().unwrap();
        let parts = program(rules, &refusal, arch).unwrap();
        let numbers = [
            0,
            0o2000,
            0o4000,
            2,
            16,
            0x40,
            0x5412,
            0x7e02_0000,
            u64::MAX,
        ];
        for call in 0..600 {
            for first in numbers {
                for second in numbers {
                    let arguments = [first, second, first, second, 0, 0];
                    let wanted = run(&whole, ARCH, call, arguments);
                    let found = run(&parts, ARCH, call, arguments);
                    assert_eq!(found, wanted, "system call {call} {arguments:?}");
                }
            }
            let foreign = run(&parts, 0x4000_0003, call, [0; 6]);
            assert_eq!(
                foreign,
                libc::SECCOMP_RET_KILL_PROCESS,
                "system call {call}"
            );
        }
    }

    #[test]
    fn filters_compile_within_the_kernels_limit() {
        let filters = Filters::compile(&FAMILIES).expect("this architecture is known");
        assert!(filters.0.len() >= 2);
        for program in filters.0 {
            assert!((1..=4_096).contains(&program.len()));
        }
    }
}
