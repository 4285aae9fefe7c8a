//! State of a session's processes right now: busy, sleeping, stopped, or waiting for input. Read from
//! `/proc`, never guessed from output.

use abide_core::{Millis, Mono};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};

use super::folder::Meta;
use super::proc::{self, Stat};
use super::tree;

/// Activity of the processes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// At least one process runs or waits for the disk.
    Busy,
    /// All of them wait for something.
    Sleeping,
    /// All of them are stopped.
    Stopped,
    /// One of them waits for input from its terminal or from its session's input.
    WaitingForInput,
}

/// A sample of a session's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Activity of the processes.
    pub doing: Doing,
    /// CPU time of the processes that live now. Two samples give a rate.
    pub cpu_ms: u64,
    /// Number of processes.
    pub processes: u32,
    /// Resident memory in bytes; shared pages count for each process.
    pub memory: u64,
    /// One process waits for input and for nothing else, and none is busy: the session makes no progress
    /// until input arrives.
    pub only_input: bool,
}

impl Facts {
    /// True if a process waits for input.
    pub fn waiting_for_input(&self) -> bool {
        self.doing == Doing::WaitingForInput
    }

    /// CPU use since an `earlier` sample, in percent of one CPU.
    pub fn cpu_percent(&self, earlier: &Facts, passed_ms: u64) -> u32 {
        let used = self.cpu_ms.saturating_sub(earlier.cpu_ms);
        (used * 100).checked_div(passed_ms).unwrap_or(0) as u32
    }
}

/// The last two samples of a session's CPU time, from which its recent CPU use is computed.
#[derive(Clone, Copy, Debug)]
pub struct CpuSamples {
    older: CpuSample,
    newer: CpuSample,
}

#[derive(Clone, Copy, Debug)]
struct CpuSample {
    at: Mono,
    cpu_ms: u64,
}

/// Minimum distance of two samples: the kernel counts in hundredths of a second.
const MIN_DISTANCE: Millis = Millis(100);

impl CpuSamples {
    /// Samples of a session that began at this time.
    pub fn since(began: Mono) -> Self {
        let look = CpuSample {
            at: began,
            cpu_ms: 0,
        };
        CpuSamples {
            older: look,
            newer: look,
        }
    }

    /// CPU use since the last sample that is far enough away, in percent of one CPU.
    pub fn cpu_percent(&mut self, at: Mono, now: &Facts) -> u32 {
        if at.since(self.newer.at) >= MIN_DISTANCE {
            self.older = self.newer;
            self.newer = CpuSample {
                at,
                cpu_ms: now.cpu_ms,
            };
        }
        let used = now.cpu_ms.saturating_sub(self.older.cpu_ms);
        let passed = at.since(self.older.at).0;
        (used * 100).checked_div(passed).unwrap_or(0) as u32
    }
}

/// Samples all processes of a session.
pub fn facts(meta: &Meta) -> Facts {
    // A session with a terminal gets its input through the terminal.
    let fed = match meta.pty {
        Some(_) => InputPipe(None),
        None => InputPipe::of(meta.keeper.pid as i32),
    };
    let mut all = Facts {
        doing: Doing::Sleeping,
        cpu_ms: 0,
        processes: 0,
        memory: 0,
        only_input: false,
    };
    let page = page_size();
    let (mut busy, mut stopped) = (false, 0);
    let mut waiting = Waiting::No;
    for (pid, stat) in processes(meta) {
        if stat.is_dead() {
            continue;
        }
        all.processes += 1;
        all.memory += stat.resident_pages * page;
        all.cpu_ms += stat.cpu_ticks * 1_000 / ticks_per_second();
        match stat.state {
            b'R' | b'D' => busy = true,
            b'T' | b't' => stopped += 1,
            b'S' => waiting = waiting.max(waits_for_input(pid, &stat, &fed)),
            _ => {}
        }
    }
    all.only_input = waiting == Waiting::ForThatAlone && !busy;
    all.doing = if waiting > Waiting::No {
        Doing::WaitingForInput
    } else if busy {
        Doing::Busy
    } else if stopped > 0 && stopped == all.processes {
        Doing::Stopped
    } else {
        Doing::Sleeping
    };
    all
}

/// The living processes of a session, each with its `/proc/PID/stat`. One quick walk, which is a snapshot: code that
/// must be certain, or that signals processes, walks the tree with [`tree`] instead. The walk can miss a process that
/// loses its parent meanwhile, and a process that was moved into the cgroup from outside.
pub fn processes(meta: &Meta) -> Vec<(i32, Stat)> {
    let mut pids = roots(meta);
    let mut seen = Vec::with_capacity(pids.len());
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        next += 1;
        let Some(stat) = proc::stat(pid) else {
            continue;
        };
        for child in proc::children_of(pid, stat.threads) {
            if !pids.contains(&child) {
                pids.push(child);
            }
        }
        if Some(pid as u32) != meta.init {
            seen.push((pid, stat));
        }
    }
    seen
}

/// The processes at which the walk begins; all others are below them.
fn roots(meta: &Meta) -> Vec<i32> {
    let listed = match tree::group_of(meta) {
        Some(group) => match proc::text(group.join("cgroup.procs")) {
            Ok(listed) => listed,
            // The cgroup was emptied and removed.
            Err(_) => return Vec::new(),
        },
        None => String::new(),
    };
    let pids = proc::numbers(&listed);
    let keeper = meta.keeper.pid as i32;
    // A process that has left the cgroup is found below one that has not. If the cgroup is empty, the walk begins at
    // the children of the keeper, provided that its pid still belongs to the keeper.
    let is_keeper = |stat: Stat| stat.start_ticks == meta.keeper.start_ticks;
    if pids.is_empty() && proc::stat(keeper).is_some_and(is_keeper) {
        return proc::children_of(keeper, 1);
    }
    pids
}

/// The pipe that is the session's input, if there is one, as the target of its link in `/proc`.
struct InputPipe(Option<String>);

impl InputPipe {
    /// A keeper reads from all its pipes but one: the one it can write to is the session's input.
    fn of(keeper: i32) -> Self {
        let Ok(listing) = std::fs::read_dir(format!("/proc/{keeper}/fd")) else {
            return InputPipe(None);
        };
        InputPipe(listing.flatten().find_map(|item| {
            let target = link(&item.path())?;
            let number = item.file_name();
            let info = format!("/proc/{keeper}/fdinfo/{}", number.to_str()?);
            let info = std::fs::read_to_string(info).ok()?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
            let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
            let writes = flags & libc::O_ACCMODE == libc::O_WRONLY;
            (writes && target.starts_with("pipe:")).then_some(target)
        }))
    }
}

fn link(path: &std::path::Path) -> Option<String> {
    std::fs::read_link(path)
        .ok()?
        .into_os_string()
        .into_string()
        .ok()
}

/// A process's wait for input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Waiting {
    /// The process does not wait for input.
    No,
    /// Other events would wake the process too.
    AmongOthers,
    /// Only input would wake the process.
    ForThatAlone,
}

/// Checks whether a thread of the process is blocked in a system call on a descriptor that receives the session's
/// input.
fn waits_for_input(pid: i32, stat: &Stat, fed: &InputPipe) -> Waiting {
    let threads = match stat.threads {
        1 => vec![pid],
        _ => threads(pid),
    };
    let alone = threads.len() == 1;
    let waits = threads.into_iter().map(|tid| {
        let said = proc::text(proc::syscall_path(pid, tid)).ok();
        let Some(call) = said.as_deref().and_then(Call::parse) else {
            return Waiting::No;
        };
        let watched = watched(pid, call);
        let typed = watched.iter();
        match typed.filter(|fd| typed_into(pid, **fd, stat, fed)).count() {
            0 => Waiting::No,
            all if all == watched.len() && alone => Waiting::ForThatAlone,
            _ => Waiting::AmongOthers,
        }
    });
    waits.max().unwrap_or(Waiting::No)
}

fn typed_into(pid: i32, fd: i32, stat: &Stat, fed: &InputPipe) -> bool {
    // `STATX_DONT_SYNC`: the kernel answers from its cache, because the file may be on a server that does not
    // respond.
    let path = format!("/proc/{pid}/fd/{fd}");
    let cached = AtFlags::STATX_DONT_SYNC;
    let Ok(about) = rustix::fs::statx(CWD, &path, cached, StatxFlags::TYPE) else {
        return false;
    };
    match FileType::from_raw_mode(about.stx_mode.into()) {
        FileType::Fifo => fed.0.is_some() && fed.0 == link(path.as_ref()),
        // Only the foreground process group can read from the terminal; any other is stopped when it reads.
        FileType::CharacterDevice => {
            let own_terminal = stat.tty != 0 && stat.tpgid == stat.pgrp;
            own_terminal && (is_any_terminal(&about) || number(&about) == stat.tty as u32)
        }
        _ => false,
    }
}

/// True for `/dev/tty`, an alias of the controlling terminal of the process that opens it.
fn is_any_terminal(device: &Statx) -> bool {
    (device.stx_rdev_major, device.stx_rdev_minor) == (5, 0)
}

/// Device number in the encoding of the `tty_nr` field of `/proc/PID/stat`.
fn number(device: &Statx) -> u32 {
    let (major, minor) = (device.stx_rdev_major, device.stx_rdev_minor);
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

fn threads(pid: i32) -> Vec<i32> {
    let Ok(listing) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    listing
        .flatten()
        .filter_map(|item| item.file_name().to_str()?.parse().ok())
        .collect()
}

/// A system call that a thread is blocked in.
#[derive(Clone, Copy)]
struct Call {
    number: i64,
    args: [u64; 6],
}

impl Call {
    /// Parses `/proc/PID/syscall`. `None`: the thread runs, or is blocked outside of a system call.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut args = [0; 6];
        for arg in &mut args {
            *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Call { number, args })
    }
}

/// Maximum number of descriptors of one system call that are checked.
const WATCHED_LIMIT: usize = 1_024;

/// The descriptors whose input the call waits for.
fn watched(pid: i32, call: Call) -> Vec<i32> {
    let Call { number, args } = call;
    match number {
        libc::SYS_read | libc::SYS_readv => vec![args[0] as i32],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => polled(pid, args[0], args[1]),
        libc::SYS_ppoll => polled(pid, args[0], args[1]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => selected(pid, args[0], args[1]),
        libc::SYS_pselect6 => selected(pid, args[0], args[1]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => in_epoll(pid, args[0] as i32),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => in_epoll(pid, args[0] as i32),
        _ => Vec::new(),
    }
}

fn polled(pid: i32, at: u64, count: u64) -> Vec<i32> {
    let count = (count as usize).min(WATCHED_LIMIT);
    let Some(bytes) = memory(pid, at, count * size_of::<libc::pollfd>()) else {
        return Vec::new();
    };
    bytes
        .chunks_exact(size_of::<libc::pollfd>())
        .filter(|entry| i16::from_ne_bytes([entry[4], entry[5]]) & libc::POLLIN != 0)
        .map(|entry| i32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]))
        .collect()
}

fn selected(pid: i32, count: u64, at: u64) -> Vec<i32> {
    let count = (count as usize).min(WATCHED_LIMIT);
    if at == 0 {
        return Vec::new();
    }
    let Some(bits) = memory(pid, at, count.div_ceil(8)) else {
        return Vec::new();
    };
    (0..count)
        .filter(|fd| bits[fd / 8] & (1 << (fd % 8)) != 0)
        .map(|fd| fd as i32)
        .collect()
}

fn in_epoll(pid: i32, epoll: i32) -> Vec<i32> {
    let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{epoll}")).unwrap_or_default();
    info.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
            let fd = words.next()?.parse().ok()?;
            let mut rest = words.skip_while(|word| *word != "events:").skip(1);
            let events = i32::from_str_radix(rest.next()?, 16).ok()?;
            (events & libc::EPOLLIN != 0).then_some(fd)
        })
        .take(WATCHED_LIMIT)
        .collect()
}

fn memory(pid: i32, at: u64, len: usize) -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; len];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// Size of a page of memory in bytes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Kernel ticks per second, in which `/proc` counts CPU time.
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_busy_it_is_is_told_from_looks_that_are_apart() {
        let look = |cpu_ms| Facts {
            doing: Doing::Busy,
            cpu_ms,
            processes: 1,
            memory: 0,
            only_input: false,
        };
        let mut looks = CpuSamples::since(Mono(1_000));
        assert_eq!(looks.cpu_percent(Mono(1_000), &look(0)), 0);
        assert_eq!(looks.cpu_percent(Mono(1_050), &look(50)), 100);
        assert_eq!(looks.cpu_percent(Mono(2_000), &look(500)), 50);
        // A sample that is too close to the last one is compared with the one before.
        assert_eq!(looks.cpu_percent(Mono(2_003), &look(510)), 50);
        assert_eq!(looks.cpu_percent(Mono(3_000), &look(500)), 0);
        // The CPU time of a process that has ended is no longer counted.
        assert_eq!(looks.cpu_percent(Mono(4_000), &look(20)), 0);
        assert_eq!(looks.cpu_percent(Mono(5_000), &look(2_020)), 200);
    }
}
