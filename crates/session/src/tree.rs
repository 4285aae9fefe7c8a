//! The process tree of a session: find, signal, and prove that it is gone.
//!
//! The keeper is a subreaper, so every process that a session started is a descendant of its keeper; if the
//! keeper is gone, processes are found by their mark. A process is only signalled through a pidfd, and only
//! after it was seen to belong to the tree while the pidfd was open.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::cgroup::SessionCgroup;
use super::keeper_record::Meta;
use super::mark::{self, Mark};
use super::proc::{self, ProcessHandle, Stat};

/// A process of a session, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Pid.
    pub pid: u32,
    /// Arguments as one line.
    pub command: String,
}

/// The living processes of the session, parents first.
pub fn processes(meta: &Meta) -> Vec<Process> {
    members(meta)
        .into_iter()
        .filter_map(|pid| {
            Some(Process {
                pid: pid as u32,
                command: proc::command_line(pid)?,
            })
        })
        .collect()
}

/// Pids of the living processes of the session, parents first.
pub fn members(meta: &Meta) -> Vec<i32> {
    let mut pids = Vec::new();
    let keeper = meta.keeper.pid as i32;
    let kept = is_kept(meta);
    if kept {
        walk(keeper, |held, _| pids.push(held.pid));
    }
    match cgroup_of(meta) {
        Some(cgroup) => add_new(&mut pids, cgroup.processes()),
        // A cgroup that no longer exists was empty, and its keeper may serve another session by now.
        None if meta.cgroup.is_some() => pids.clear(),
        None if !kept => add_new(&mut pids, marked(meta)),
        None => {}
    }
    pids.retain(|pid| Some(*pid as u32) != meta.init);
    pids
}

fn add_new(pids: &mut Vec<i32>, more: Vec<i32>) {
    for pid in more {
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
}

/// True if the keeper of the session lives.
fn is_kept(meta: &Meta) -> bool {
    keeper(meta).is_some()
}

/// Opens the keeper of the session; `None` if it is gone.
pub fn keeper(meta: &Meta) -> Option<ProcessHandle> {
    let keeper = ProcessHandle::open(meta.keeper.pid as i32)?;
    began(&keeper, meta.keeper.start_ticks).then_some(keeper)
}

/// True if the keeper of the session lives and serves another folder than this one, which is a copy.
pub fn is_kept_elsewhere(meta: &Meta, path: &Path) -> bool {
    let (Some(keeper), Ok(own)) = (keeper(meta), std::fs::metadata(path)) else {
        return false;
    };
    let Ok(open) = std::fs::read_dir(format!("/proc/{}/fd", keeper.pid)) else {
        return false;
    };
    open.flatten().any(|open| {
        let is_named = |to: PathBuf| to.file_name() == path.file_name();
        let is_other = |found: Metadata| {
            found.is_dir() && (found.dev(), found.ino()) != (own.dev(), own.ino())
        };
        std::fs::read_link(open.path()).is_ok_and(is_named)
            && std::fs::metadata(open.path()).is_ok_and(is_other)
    })
}

/// All living processes with the mark of the session. A daemon that a command of the session started has the mark
/// too; it is left out, with everything that it has started.
fn marked(meta: &Meta) -> Vec<i32> {
    let Ok(id) = meta.launch.session.parse() else {
        return Vec::new();
    };
    if meta.keeper.boot_id != super::boot_id() {
        return Vec::new();
    }
    let wanted = Some(Mark::Session(id));
    let own = std::process::id() as i32;
    let is_marked = mark::of(own) == wanted;
    let is_ours = |pid: i32| {
        let mut line = std::iter::successors(Some(pid), |pid| Some(proc::stat(*pid)?.ppid));
        is_marked && line.any(|pid| pid == own)
    };
    let mut found = proc::all();
    found.retain(|pid| mark::of(*pid) == wanted && !is_ours(*pid));
    found.retain(|pid| proc::stat(*pid).is_some_and(|stat| !stat.is_dead()));
    found
}

/// Number of kills before a tree is reported not to die, and the wait between them.
const END_PASSES: usize = 20;
const END_WAIT: Duration = Duration::from_millis(50);

/// Kills all processes of a session whose keeper is gone. True if none is left.
pub fn end_orphans(meta: &Meta) -> bool {
    let cgroup = cgroup_of(meta);
    for _ in 0..END_PASSES {
        if let Some(cgroup) = &cgroup {
            let _ = cgroup.kill();
        }
        let left = stopped_survivors(meta, cgroup.as_ref());
        if left.is_empty() {
            if let Some(cgroup) = cgroup.filter(|_| !is_kept(meta)) {
                cgroup.remove();
            }
            return true;
        }
        for process in &left {
            process.signal(Signal::KILL);
        }
        proc::wait_for_end(&left, END_WAIT);
    }
    false
}

/// Removes the cgroup of a session that is known to be empty and whose keeper is gone.
pub fn discard_group(meta: &Meta) {
    if let Some(cgroup) = cgroup_of(meta) {
        cgroup.remove();
    }
}

/// Opens and stops all remaining processes: a stopped process cannot fork.
fn stopped_survivors(meta: &Meta, cgroup: Option<&SessionCgroup>) -> Vec<ProcessHandle> {
    let mut held: Vec<ProcessHandle> = Vec::new();
    for _ in 0..STOP_PASSES {
        let mut pids = marked(meta);
        match cgroup {
            Some(cgroup) => add_new(&mut pids, cgroup.processes()),
            None if is_kept(meta) && meta.cgroup.is_none() => {
                walk(meta.keeper.pid as i32, |held, _| pids.push(held.pid));
            }
            None => {}
        }
        let before = held.len();
        for pid in pids {
            if held.iter().any(|known| known.pid == pid) {
                continue;
            }
            // The pid may have been reused since it was listed.
            let is_its = |_: &ProcessHandle| belongs(meta, cgroup, pid);
            if let Some(process) = ProcessHandle::open(pid)
                .filter(is_its)
                .filter(ProcessHandle::lives)
            {
                process.signal(Signal::STOP);
                held.push(process);
            }
        }
        if held.len() == before {
            break;
        }
    }
    held.retain(ProcessHandle::lives);
    held
}

/// True if the process that has this pid now belongs to the session.
fn belongs(meta: &Meta, cgroup: Option<&SessionCgroup>, pid: i32) -> bool {
    let marked = match mark::of(pid) {
        Some(Mark::Session(id)) => id.to_string() == meta.launch.session,
        Some(Mark::Altered | Mark::None) | None => false,
    };
    let below = || {
        let keeper = meta.keeper.pid as i32;
        let line = std::iter::successors(Some(pid), |pid| Some(proc::stat(*pid)?.ppid));
        is_kept(meta) && line.skip(1).any(|pid| pid == keeper)
    };
    marked || cgroup.is_some_and(|cgroup| cgroup.holds(pid)) || cgroup.is_none() && below()
}

fn cgroup_of(meta: &Meta) -> Option<SessionCgroup> {
    SessionCgroup::open(group_of(meta)?).ok()
}

/// The cgroup of the session, if it has one.
pub fn group_of(meta: &Meta) -> Option<&Path> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(meta.cgroup.as_deref()?);
    Some(Path::new(path))
}

/// Calls `each` for every living descendant of `root`, parents before their children. Returns the number of
/// descendants.
pub(super) fn walk(root: i32, mut each: impl FnMut(&ProcessHandle, &Stat)) -> usize {
    let Some(top) = proc::stat(root) else {
        return 0;
    };
    let mut known = HashSet::from([root]);
    let mut parents = vec![(root, top.start_ticks)];
    while let Some((parent, start_ticks)) = parents.pop() {
        let Some(parent) = ProcessHandle::open(parent).filter(|held| began(held, start_ticks))
        else {
            continue;
        };
        for pid in proc::children(parent.pid) {
            if known.contains(&pid) {
                continue;
            }
            let Some(held) = ProcessHandle::open(pid) else {
                continue;
            };
            let Some(stat) = proc::stat(pid) else {
                continue;
            };
            // The pid may have been reused after it was listed, and so may its parent's; while both
            // processes live, their pids are valid. An orphan is a child of `root`.
            let ours = stat.ppid == root || (stat.ppid == parent.pid && parent.lives());
            if !ours || !held.lives() {
                continue;
            }
            known.insert(pid);
            parents.push((pid, stat.start_ticks));
            each(&held, &stat);
        }
    }
    known.len() - 1
}

fn began(held: &ProcessHandle, start_ticks: u64) -> bool {
    proc::stat(held.pid).is_some_and(|stat| stat.start_ticks == start_ticks) && held.lives()
}

/// Sends signals to the whole tree below `root`. Returns the number of processes.
pub(super) fn signal_all(root: i32, cgroup: Option<&SessionCgroup>, signals: &[Signal]) -> usize {
    let mut seen = signal_below(root, signals, |_| true);
    if let Some(cgroup) = cgroup {
        for pid in cgroup.processes() {
            if !seen.contains(&pid)
                && let Some(held) = ProcessHandle::open(pid)
                && cgroup.holds(pid)
                && held.lives()
            {
                seen.insert(pid);
                for signal in signals {
                    held.signal(*signal);
                }
            }
        }
    }
    seen.len()
}

/// Sends a signal to the descendants of `root` in the process group.
pub(super) fn signal_group(root: i32, group: i32, signal: Signal) {
    signal_below(root, &[signal], |stat| stat.pgrp == group);
}

/// Sends signals to the descendants of `root` that match, and returns their pids. All are found before the
/// first is signalled: a parent that dies leaves its children where the walk has been already.
fn signal_below(root: i32, signals: &[Signal], meant: impl Fn(&Stat) -> bool) -> HashSet<i32> {
    let mut found = Vec::new();
    walk(root, |held, stat| {
        if meant(stat) {
            found.push((held.pid, stat.start_ticks));
        }
    });
    for (pid, start_ticks) in &found {
        if let Some(held) = ProcessHandle::open(*pid).filter(|held| began(held, *start_ticks)) {
            for signal in signals {
                held.signal(*signal);
            }
        }
    }
    found.into_iter().map(|(pid, _)| pid).collect()
}

/// Number of passes over a tree that forks before it is killed as far as it is known.
const STOP_PASSES: usize = 16;

/// Kills the whole tree below `root`. A process that escapes this pass is reparented to the keeper when its
/// parent dies, and found by the next pass. Returns the number of processes.
pub(super) fn kill_all(root: i32, cgroup: Option<&SessionCgroup>) -> usize {
    if let Some(cgroup) = cgroup
        && cgroup.kill().is_ok()
    {
        return signal_all(root, Some(cgroup), &[Signal::KILL]);
    }
    // A stopped process cannot fork: once a pass finds no new process, all are known.
    let mut stopped = HashSet::new();
    for _ in 0..STOP_PASSES {
        let before = stopped.len();
        walk(root, |held, _| {
            if stopped.insert(held.pid) {
                held.signal(Signal::STOP);
            }
        });
        if stopped.len() == before {
            break;
        }
    }
    signal_all(root, cgroup, &[Signal::KILL])
}
