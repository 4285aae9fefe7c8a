//! State of a session's processes right now: busy, sleeping, stopped, or waiting for input. Read from
//! `/proc`, never guessed from output.

use abide_core::{Millis, Mono};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};

use super::keeper_record::Meta;
use super::proc::{self, Stat};
use super::tree;

/// Activity of the processes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessActivity {
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
    pub doing: ProcessActivity,
    /// CPU time of the session so far, as [`cpu_ms`] counts it. Two samples give a rate.
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
        self.doing == ProcessActivity::WaitingForInput
    }
}

/// Two samples of a session's CPU time, from which its CPU use since its last output is computed.
#[derive(Clone, Copy, Debug)]
pub struct CpuSamples {
    /// The last sample before `quiet`.
    before: CpuSample,
    /// The first sample after the last output that was reported.
    quiet: CpuSample,
}

#[derive(Clone, Copy, Debug)]
struct CpuSample {
    at: Mono,
    cpu_ms: u64,
}

/// Minimum time over which CPU use is measured: the kernel counts in hundredths of a second.
const MIN_WINDOW: Millis = Millis(1_000);
/// Minimum time between two samples. Output that follows a sample sooner counts as if the sample had been taken after it.
const SAMPLE_INTERVAL: Millis = Millis(100);

impl CpuSamples {
    /// Samples of a session that began at this time.
    pub fn since(began: Mono) -> Self {
        let look = CpuSample {
            at: began,
            cpu_ms: 0,
        };
        CpuSamples {
            before: look,
            quiet: look,
        }
    }

    /// True if a sample taken at this time would be kept.
    pub fn wants_sample(&self, at: Mono, quiet_since: Mono) -> bool {
        quiet_since > self.quiet.at && at.since(self.quiet.at) >= SAMPLE_INTERVAL
    }

    /// Keeps a sample if it is the first since the last output, which was at `quiet_since`.
    pub fn add(&mut self, at: Mono, cpu_ms: u64, quiet_since: Mono) {
        if self.wants_sample(at, quiet_since) {
            self.before = self.quiet;
            self.quiet = CpuSample { at, cpu_ms };
        }
    }

    /// CPU use since the first sample after the last output, in percent of one CPU. If that sample is too recent, the
    /// one before it counts, which is then close to the last output as well: a session is sampled one idle limit after
    /// the output that the sample before it knew of.
    pub fn cpu_percent(&self, at: Mono, cpu_ms: u64) -> u32 {
        let from = match at.since(self.quiet.at) >= MIN_WINDOW {
            true => self.quiet,
            false => self.before,
        };
        let used = cpu_ms.saturating_sub(from.cpu_ms);
        (used * 100).checked_div(at.since(from.at).0).unwrap_or(0) as u32
    }
}

/// CPU time that a session has used, in milliseconds, with the processes that have ended: from its cgroup, or else
/// from its processes and the children they have waited for.
pub fn cpu_ms(meta: &Meta) -> u64 {
    group_cpu_ms(meta).unwrap_or_else(|| tree_cpu_ms(meta, &processes(meta)))
}

fn group_cpu_ms(meta: &Meta) -> Option<u64> {
    let counters = std::fs::read_to_string(tree::group_of(meta)?.join("cpu.stat")).ok()?;
    let mut lines = counters.lines();
    let used = lines.find_map(|line| line.strip_prefix("usage_usec "))?;
    used.trim().parse::<u64>().ok().map(|used| used / 1_000)
}

fn tree_cpu_ms(meta: &Meta, processes: &[(i32, Stat)]) -> u64 {
    // The keeper waits for processes that have lost their parent.
    let keeper = proc::stat(meta.keeper.pid as i32);
    let keeper = keeper.filter(|stat| stat.start_ticks == meta.keeper.start_ticks);
    let ended = keeper.map_or(0, |stat| stat.ended_children_ticks);
    let lives = processes.iter().map(|(_, stat)| stat);
    let ticks: u64 = lives
        .map(|stat| stat.cpu_ticks + stat.ended_children_ticks)
        .sum();
    (ended + ticks) * 1_000 / ticks_per_second()
}

/// Samples all processes of a session.
pub fn facts(meta: &Meta) -> Facts {
    // A session with a terminal gets its input through the terminal.
    let fed = match meta.launch.pty {
        Some(_) => InputPipe(None),
        None => InputPipe::of(meta.keeper.pid as i32),
    };
    let mut all = Facts {
        doing: ProcessActivity::Sleeping,
        cpu_ms: 0,
        processes: 0,
        memory: 0,
        only_input: false,
    };
    let page = page_size();
    let (mut busy, mut stopped) = (false, 0);
    let mut waiting = Waiting::No;
    let processes = processes(meta);
    all.cpu_ms = group_cpu_ms(meta).unwrap_or_else(|| tree_cpu_ms(meta, &processes));
    for (pid, stat) in processes {
        if stat.is_dead() {
            continue;
        }
        all.processes += 1;
        all.memory += stat.resident_pages * page;
        match stat.state {
            b'R' | b'D' => busy = true,
            b'T' | b't' => stopped += 1,
            b'S' => waiting = waiting.max(waits_for_input(pid, &stat, &fed)),
            _ => {}
        }
    }
    all.only_input = waiting == Waiting::ForThatAlone && !busy;
    all.doing = if waiting > Waiting::No {
        ProcessActivity::WaitingForInput
    } else if busy {
        ProcessActivity::Busy
    } else if stopped > 0 && stopped == all.processes {
        ProcessActivity::Stopped
    } else {
        ProcessActivity::Sleeping
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
        for child in proc::children(pid) {
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
        Some(group) => match std::fs::read_to_string(group.join("cgroup.procs")) {
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
        return proc::children(keeper);
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
        _ => proc::numbered(format!("/proc/{pid}/task")),
    };
    let alone = threads.len() == 1;
    let waits = threads.into_iter().map(|tid| {
        let text = std::fs::read_to_string(proc::syscall_path(pid, tid)).ok();
        let Some(call) = text.as_deref().and_then(Call::parse) else {
            return Waiting::No;
        };
        let watched = watched(pid, call);
        let typed = watched.iter();
        match typed.filter(|fd| typed_into(pid, **fd, stat, fed)).count() {
            0 => Waiting::No,
            all if all == watched.len() && alone && !call.has_time_limit() => Waiting::ForThatAlone,
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

    /// True if the call returns after some time without any event.
    fn has_time_limit(self) -> bool {
        let is_limit = |milliseconds: u64| milliseconds as i32 >= 0;
        let is_given = |pointer: u64| pointer != 0;
        match self.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => is_limit(self.args[2]),
            libc::SYS_ppoll => is_given(self.args[2]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => is_given(self.args[4]),
            libc::SYS_pselect6 => is_given(self.args[4]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => is_limit(self.args[3]),
            libc::SYS_epoll_pwait => is_limit(self.args[3]),
            libc::SYS_epoll_pwait2 => is_given(self.args[3]),
            _ => false,
        }
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
        // The kernel ignores entries with a negative descriptor.
        .filter(|fd| *fd >= 0)
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
    fn cpu_use_counts_from_the_first_sample_after_the_last_output() {
        let mut samples = CpuSamples::since(Mono(0));
        // Until the first sample, CPU use counts from the start.
        assert_eq!(samples.cpu_percent(Mono(2_000), 1_000), 50);
        // The session was busy until its last output at 9 s.
        samples.add(Mono(10_000), 9_000, Mono(9_000));
        assert_eq!(samples.cpu_percent(Mono(19_000), 9_000), 0);
        assert_eq!(samples.cpu_percent(Mono(19_000), 27_000), 200);
        // No output since then: the first sample stays.
        samples.add(Mono(19_000), 9_000, Mono(9_000));
        assert_eq!(samples.cpu_percent(Mono(20_000), 14_000), 50);
    }

    #[test]
    fn cpu_use_counts_from_the_sample_before_if_the_last_one_is_too_recent() {
        let mut samples = CpuSamples::since(Mono(0));
        samples.add(Mono(10_000), 9_000, Mono(9_500));
        // The last output came right after that sample; the next sample is taken just before the question.
        samples.add(Mono(19_500), 9_100, Mono(10_010));
        assert_eq!(samples.cpu_percent(Mono(20_000), 14_000), 50);
    }

    #[test]
    fn samples_are_not_taken_for_every_output() {
        let mut samples = CpuSamples::since(Mono(0));
        samples.add(Mono(10_000), 9_000, Mono(9_999));
        assert!(!samples.wants_sample(Mono(10_099), Mono(10_098)));
        assert!(samples.wants_sample(Mono(10_100), Mono(10_098)));
        assert!(!samples.wants_sample(Mono(20_000), Mono(9_999)));
    }

    #[test]
    fn calls_with_a_time_limit_are_recognised() {
        let forever = (-1_i32) as u32;
        for (number, arg, unlimited, limited) in [
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_poll, 2, u64::from(forever), 1_000),
            (libc::SYS_ppoll, 2, 0, 0x7ffd_0000),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_select, 4, 0, 0x7ffd_0000),
            (libc::SYS_pselect6, 4, 0, 0x7ffd_0000),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_epoll_wait, 3, u64::from(forever), 0),
            (libc::SYS_epoll_pwait, 3, u64::MAX, 1_000),
            (libc::SYS_epoll_pwait2, 3, 0, 0x7ffd_0000),
        ] {
            let mut args = [0; 6];
            args[arg] = unlimited;
            assert!(!Call { number, args }.has_time_limit(), "{number}");
            args[arg] = limited;
            assert!(Call { number, args }.has_time_limit(), "{number}");
        }
    }

    #[test]
    fn cpu_use_is_zero_if_no_time_has_passed() {
        let samples = CpuSamples::since(Mono(5));
        assert_eq!(samples.cpu_percent(Mono(5), 70), 0);
    }
}
