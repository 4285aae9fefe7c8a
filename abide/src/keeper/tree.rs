//! All processes of a session: finding them, signalling them, proving that they are gone.
//!
//! Whoever is left by its parent comes back to the keeper, so everything a session started is a
//! descendant of its keeper. A process is only ever signalled through a handle on it, and only after
//! it was seen to belong to the tree while held.

use std::collections::HashSet;
use std::path::Path;

use rustix::process::Signal;

use super::cgroup::Leaf;
use super::folder::Meta;
use super::proc::{self, Held, Stat};

/// A process of a session, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its arguments as one line.
    pub command: String,
}

/// The living processes of the session, parents first. Empty where its keeper is gone and it has no
/// control group.
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

/// The numbers of the living processes of the session, parents first.
pub fn members(meta: &Meta) -> Vec<i32> {
    let mut pids = Vec::new();
    let keeper = meta.keeper.pid as i32;
    if proc::stat(keeper).is_some_and(|stat| stat.start_ticks == meta.keeper.start_ticks) {
        walk(keeper, |held, _| pids.push(held.pid));
    }
    match leaf_of(meta) {
        Some(leaf) => {
            for pid in leaf.processes() {
                if !pids.contains(&pid) {
                    pids.push(pid);
                }
            }
        }
        // A group that is gone was emptied: its keeper may keep another session by now.
        None if meta.cgroup.is_some() => pids.clear(),
        None => {}
    }
    pids.retain(|pid| Some(*pid as u32) != meta.init);
    pids
}

/// Ends what is left of a session whose keeper is gone, as far as its control group holds it.
/// Whether nothing is left.
pub fn end_orphans(meta: &Meta) -> bool {
    let Some(leaf) = leaf_of(meta) else {
        return false;
    };
    let killed = leaf.kill().is_ok();
    leaf.remove();
    killed && !leaf.populated()
}

fn leaf_of(meta: &Meta) -> Option<Leaf> {
    Leaf::open(group_of(meta)?).ok()
}

/// The control group that holds the session, where it has one.
pub fn group_of(meta: &Meta) -> Option<&Path> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(meta.cgroup.as_deref()?);
    Some(Path::new(path))
}

/// Calls `each` for every living descendant of `root`, parents before their children. Returns how
/// many there were.
pub(super) fn walk(root: i32, mut each: impl FnMut(&Held, &Stat)) -> usize {
    let Some(top) = proc::stat(root) else {
        return 0;
    };
    let mut known = HashSet::from([root]);
    let mut parents = vec![(root, top.start_ticks)];
    while let Some((parent, start_ticks)) = parents.pop() {
        let Some(parent) = Held::open(parent).filter(|held| began(held, start_ticks)) else {
            continue;
        };
        for pid in proc::children(parent.pid) {
            if known.contains(&pid) {
                continue;
            }
            let Some(held) = Held::open(pid) else {
                continue;
            };
            let Some(stat) = proc::stat(pid) else {
                continue;
            };
            // The number may have gone to a stranger after it was listed, and so may its parent's;
            // while both live the numbers are theirs. Whoever was left meanwhile is `root`'s child.
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

fn began(held: &Held, start_ticks: u64) -> bool {
    proc::stat(held.pid).is_some_and(|stat| stat.start_ticks == start_ticks) && held.lives()
}

/// Sends a signal to the whole tree below `root`. Returns how many processes there were.
pub(super) fn signal_all(root: i32, leaf: Option<&Leaf>, signals: &[Signal]) -> usize {
    let mut seen = signal_below(root, signals, |_| true);
    if let Some(leaf) = leaf {
        for pid in leaf.processes() {
            if !seen.contains(&pid)
                && let Some(held) = Held::open(pid)
                && leaf.holds(pid)
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

/// Sends a signal to those below `root` that are in the process group.
pub(super) fn signal_group(root: i32, group: i32, signal: Signal) {
    signal_below(root, &[signal], |stat| stat.pgrp == group);
}

/// Sends signals to those below `root` who are meant, and tells who they were. All are found before the
/// first hears of it: a parent that dies of it leaves its children where the walk has been already.
fn signal_below(root: i32, signals: &[Signal], meant: impl Fn(&Stat) -> bool) -> HashSet<i32> {
    let mut found = Vec::new();
    walk(root, |held, stat| {
        if meant(stat) {
            found.push((held.pid, stat.start_ticks));
        }
    });
    for (pid, start_ticks) in &found {
        if let Some(held) = Held::open(*pid).filter(|held| began(held, *start_ticks)) {
            for signal in signals {
                held.signal(*signal);
            }
        }
    }
    found.into_iter().map(|(pid, _)| pid).collect()
}

/// How often a tree that forks is looked at again before it is killed as far as it is known.
const STOP_PASSES: usize = 16;

/// Kills the whole tree below `root`. Whoever escapes this pass comes back to the keeper when its
/// parent dies, and is met by the next. Returns how many processes there were.
pub(super) fn kill_all(root: i32, leaf: Option<&Leaf>) -> usize {
    if let Some(leaf) = leaf
        && leaf.kill().is_ok()
    {
        return signal_all(root, Some(leaf), &[Signal::KILL]);
    }
    // What is stopped cannot fork: once a pass meets nobody new, everybody is known.
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
    signal_all(root, leaf, &[Signal::KILL])
}
