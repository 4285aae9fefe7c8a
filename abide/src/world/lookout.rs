//! A lookout over the processes of a session, for somebody who waits to hear of it. The files in which the
//! kernel tells of them are opened before anything happens, so that they have only to be read then. Each
//! tells of one process for ever, whoever gets its number.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::keeper::folder::Meta;
use crate::keeper::proc::{self, Stat};
use crate::keeper::tree;

/// Lookouts that hold files open at once. Beyond that they are opened when they are read.
const LOOKOUTS: usize = 16;
/// Processes of one session whose files are held open.
const PROCESSES: usize = 4;

static PLACES: Semaphore = Semaphore::const_new(LOOKOUTS);

/// What is held open of a session; at first nothing.
#[derive(Default)]
pub struct Lookout {
    place: Option<SemaphorePermit<'static>>,
    /// Lists whom the keeper has brought into the world, or taken in when their parents went.
    kin: Option<File>,
    group: Option<File>,
    processes: Vec<Process>,
}

/// The files of one process.
struct Process {
    pid: i32,
    stat: File,
    children: File,
    syscall: File,
    /// The folder of what it has open.
    open: File,
}

impl Process {
    fn open(pid: i32) -> io::Result<Self> {
        Ok(Process {
            pid,
            stat: File::open(proc::stat_path(pid))?,
            children: File::open(proc::children_path(pid))?,
            syscall: File::open(proc::syscall_path(pid, pid))?,
            open: File::options()
                .read(true)
                .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
                .open(format!("/proc/{pid}/fd"))?,
        })
    }
}

impl Lookout {
    /// Opens what will have to be read, where it is not open yet. Whoever comes later is found all the same.
    pub fn prepare(&mut self, meta: &Meta) {
        if self.place.is_some() {
            return;
        }
        self.place = PLACES.try_acquire().ok();
        if self.place.is_none() {
            return;
        }
        let keeper = meta.keeper.pid as i32;
        self.kin = File::open(proc::children_path(keeper)).ok();
        self.group = tree::group_of(meta).and_then(|group| open_group(group).ok());
        let mut seen = self.begin(meta).unwrap_or_default();
        // Without a group they are found as children of the keeper, which is looked at first then.
        if self.group.is_none() {
            seen.insert(0, keeper);
        }
        let mut next = 0;
        while let Some(&pid) = seen.get(next)
            && self.processes.len() < PROCESSES
        {
            next += 1;
            if let Ok(process) = Process::open(pid) {
                self.processes.push(process);
                add_new(&mut seen, self.children(pid, 1));
            }
        }
    }

    /// The living processes of the session with what the kernel says of each. It is one quick look, true
    /// of the moment only: whoever wants to be sure, or to act upon them, walks the tree instead.
    pub fn glance(&self, meta: &Meta) -> Vec<(i32, Stat)> {
        // A session is below its keeper, which is read sooner than a group. But that may keep another session
        // by now, unless one is there who was there before. Whoever loses their parent during the look, and
        // strangers whom somebody has put into the group, are left out.
        if let Some(kin) = self.kin.as_ref().and_then(|kin| proc::text_in(kin).ok()) {
            let (seen, known) = self.walk(meta, proc::numbers(&kin));
            if known {
                return seen;
            }
        }
        // A group that is gone was emptied.
        self.begin(meta)
            .map_or_else(|_| Vec::new(), |pids| self.walk(meta, pids).0)
    }

    /// These and whoever is below them, and whether one of them was there before.
    fn walk(&self, meta: &Meta, mut pids: Vec<i32>) -> (Vec<(i32, Stat)>, bool) {
        let mut seen = Vec::with_capacity(pids.len());
        let (mut next, mut known) = (0, false);
        while let Some(&pid) = pids.get(next) {
            next += 1;
            let held = self.held_stat(pid);
            known |= held.is_some();
            // What is held may have gone, and somebody else may have its number.
            if let Some(stat) = held.or_else(|| proc::stat(pid)) {
                add_new(&mut pids, self.children(pid, stat.threads));
                if Some(pid as u32) != meta.init {
                    seen.push((pid, stat));
                }
            }
        }
        (seen, known)
    }

    /// The call that a thread of a process is blocked in, as the kernel tells it.
    pub fn syscall(&self, pid: i32, thread: i32) -> Option<String> {
        let held = self.process(pid).filter(|_| pid == thread);
        let said = held.and_then(|held| proc::text_in(&held.syscall).ok());
        said.or_else(|| proc::text(proc::syscall_path(pid, thread)).ok())
    }

    /// What is known of a file that a process has open, without asking whoever keeps it: that may be a server
    /// that is gone.
    pub fn about_open(&self, pid: i32, fd: i32) -> Option<Statx> {
        let at_once = AtFlags::STATX_DONT_SYNC;
        let about = |folder: BorrowedFd<'_>, name: &str| {
            rustix::fs::statx(folder, name, at_once, StatxFlags::TYPE).ok()
        };
        let held = self.process(pid);
        held.and_then(|held| about(held.open.as_fd(), &fd.to_string()))
            .or_else(|| about(CWD, &format!("/proc/{pid}/fd/{fd}")))
    }

    /// Those with whom a look begins: all others are found below them.
    fn begin(&self, meta: &Meta) -> io::Result<Vec<i32>> {
        let listed = match (&self.group, tree::group_of(meta)) {
            (Some(group), _) => proc::text_in(group)?,
            (None, Some(group)) => proc::text_in(&open_group(group)?)?,
            (None, None) => String::new(),
        };
        let pids = proc::numbers(&listed);
        let keeper = meta.keeper.pid as i32;
        // Where the group knows somebody, whoever left it is found below those it knows.
        let stat = || self.held_stat(keeper).or_else(|| proc::stat(keeper));
        if pids.is_empty() && stat().is_some_and(|stat| stat.start_ticks == meta.keeper.start_ticks)
        {
            return Ok(self.children(keeper, 1));
        }
        Ok(pids)
    }

    fn process(&self, pid: i32) -> Option<&Process> {
        self.processes.iter().find(|held| held.pid == pid)
    }

    fn held_stat(&self, pid: i32) -> Option<Stat> {
        proc::stat_in(&self.process(pid)?.stat)
    }

    fn children(&self, pid: i32, threads: u32) -> Vec<i32> {
        let held = self.process(pid).filter(|_| threads == 1);
        held.and_then(|held| proc::text_in(&held.children).ok())
            .map_or_else(
                || proc::children_of(pid, threads),
                |text| proc::numbers(&text),
            )
    }
}

fn open_group(group: &std::path::Path) -> io::Result<File> {
    File::open(group.join("cgroup.procs"))
}

fn add_new(pids: &mut Vec<i32>, more: Vec<i32>) {
    for pid in more {
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
}
