//! Power cuts at any moment of a daemon's life, including checkpoints of the journal. Writes and syncs are recorded;
//! from the record, disks are built as a power cut may leave them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use abide_core::TimerId;
use abide_core::message::About;
use abide_engine::store::Sqlite;
use serde_json::{Value, json};

use crate::call;
use crate::common::shim::start_on;
use crate::harness::Abide;
use crate::power::Dice;

/// Records each write to the database before it is done, and each sync after it is done, with the length of the
/// record when the sync began: later writes of another thread may not be part of it.
const RECORDING_DISK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
enum { WRITTEN, CUT, SYNCED };
static int which(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return -1;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    if (!name) return -1;
    return strcmp(name, "/abide.db") == 0 ? 0 : strcmp(name, "/abide.db-wal") == 0 ? 1 : -1;
}
static void note(uint64_t kind, int file, uint64_t at, const void *bytes, uint64_t length) {
    const char *record = getenv("RECORD");
    int fd = record ? open(record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    uint64_t head[4] = {kind, file, at, length};
    struct iovec parts[2] = {{head, sizeof head}, {(void *)bytes, bytes ? length : 0}};
    if (syscall(SYS_writev, fd, parts, 2) < 0) abort();
    close(fd);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    int file = which(fd);
    if (file >= 0) note(WRITTEN, file, at, bytes, count);
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return pwrite64(fd, bytes, count, at); }
ssize_t write(int fd, const void *bytes, size_t count) {
    int file = which(fd);
    if (file >= 0) note(WRITTEN, file, lseek(fd, 0, SEEK_CUR), bytes, count);
    return syscall(SYS_write, fd, bytes, count);
}
int ftruncate64(int fd, off64_t length) {
    int file = which(fd);
    if (file >= 0) note(CUT, file, length, 0, 0);
    return syscall(SYS_ftruncate, fd, length);
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }
static int synced(int fd, long call) {
    const char *record = getenv("RECORD");
    struct stat before = {0};
    int file = which(fd);
    if (record && file >= 0) stat(record, &before);
    int done = syscall(call, fd);
    if (done == 0 && file >= 0) note(SYNCED, file, before.st_size, 0, 0);
    return done;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
"#;

/// Size of an atomic write of a disk.
const SECTOR: usize = 512;

enum What {
    Written(usize, Vec<u8>),
    Cut(usize),
    /// Sync of everything that was in the record when it had this length.
    Synced(u64),
}

/// Operation on the database or its journal.
struct Done {
    file: usize,
    what: What,
    /// Length of the record including this operation.
    upto: u64,
}

fn read_record(path: &Path) -> Vec<Done> {
    let bytes = fs::read(path).expect("a record");
    let mut done = Vec::new();
    let mut at = 0;
    while at + 32 <= bytes.len() {
        let number = |n: usize| {
            let start = at + n * 8;
            let word = bytes[start..start + 8].try_into().expect("eight bytes");
            usize::try_from(u64::from_ne_bytes(word)).expect("a number")
        };
        let (kind, file, place, length) = (number(0), number(1), number(2), number(3));
        at += 32;
        if at + length > bytes.len() {
            // The entry is still being written.
            break;
        }
        let what = match kind {
            0 => What::Written(place, bytes[at..at + length].to_vec()),
            1 => What::Cut(place),
            _ => What::Synced(place as u64),
        };
        at += length;
        let upto = at as u64;
        done.push(Done { file, what, upto });
    }
    done
}

/// Database and journal as synced to the disk, and the operations since then.
#[derive(Default)]
struct Disk<'a> {
    certain: [Vec<u8>; 2],
    since: [Vec<&'a Done>; 2],
}

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

impl<'a> Disk<'a> {
    fn take(&mut self, done: &'a Done) {
        let (certain, since) = (&mut self.certain[done.file], &mut self.since[done.file]);
        let What::Synced(with) = done.what else {
            since.push(done);
            return;
        };
        for done in since.extract_if(.., |done| done.upto <= with) {
            match &done.what {
                What::Written(at, bytes) => put(certain, *at, bytes),
                What::Cut(length) => certain.resize(*length, 0),
                What::Synced(_) => {}
            }
        }
    }

    /// Power cut: each sector that was not synced has its old content, its new content, or half of each.
    fn cut(&self, folder: &Path, dice: &mut Dice) {
        for (n, name) in ["abide.db", "abide.db-wal"].iter().enumerate() {
            let mut file = self.certain[n].clone();
            for done in &self.since[n] {
                match &done.what {
                    What::Written(at, bytes) => {
                        for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
                            let kept = match dice.roll(4) {
                                0 => 0,
                                1 => dice.roll(bytes.len() as u64) as usize,
                                _ => bytes.len(),
                            };
                            if kept > 0 {
                                put(&mut file, at + sector * SECTOR, &bytes[..kept]);
                            }
                        }
                    }
                    What::Cut(length) if dice.roll(2) == 0 => file.resize(*length, 0),
                    What::Cut(_) | What::Synced(_) => {}
                }
            }
            fs::write(folder.join(name), file).expect("a file");
        }
    }
}

/// Confirmed facts about one timer, each with the length of the record at that time.
#[derive(Default)]
struct Promised {
    /// Its creation was confirmed.
    made: u64,
    /// Its stop was requested, and confirmed.
    stopping: Option<u64>,
    stopped: Option<u64>,
    /// It may have completed.
    short: bool,
    /// It was reported by a call that began then.
    told: Option<u64>,
}

/// A client and a daemon whose disk is recorded.
struct Life {
    abide: Abide,
    promised: BTreeMap<String, Promised>,
}

impl Life {
    fn recorded(&self) -> u64 {
        fs::metadata(self.abide.path("mark")).map_or(0, |found| found.len())
    }

    /// Sends a call and records the facts in its answer.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let began = self.recorded();
        let answer = call(&self.abide, tool, arguments);
        for message in answer["messages"].as_array().into_iter().flatten() {
            let timer = message["timer_id"].as_str().expect("a timer");
            // A short timer may be reported by the answer of the call that created it.
            let promised = self.promised.entry(timer.to_owned()).or_default();
            assert!(promised.told.replace(began).is_none(), "{timer} twice");
        }
        answer
    }

    fn make(&mut self, n: u64, short: bool) -> String {
        let seconds = if short { 0.001 } else { 600.0 };
        let text = "x".repeat((n * 7_919 % 16_000) as usize + 1);
        let arguments = json!({"total_duration": seconds, "mission": text});
        let id = crate::id_of(&self.call("timer", arguments));
        let made = self.recorded();
        let promised = self.promised.entry(id.clone()).or_default();
        (promised.made, promised.short) = (made, short);
        id
    }

    fn stop(&mut self, id: &str) {
        let began = self.recorded();
        self.call("stop_timer", json!({"timer_id": id}));
        let ended = self.recorded();
        let promised = self.promised.get_mut(id).expect("one of ours");
        (promised.stopping, promised.stopped) = (Some(began), Some(ended));
    }
}

/// Content of a disk: running timers, and timers with an unseen message.
fn found(folder: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let opened = Sqlite::open(&folder.join("abide.db"), 1).expect("it opens");
    let (ids, kept) = (opened.state.id_permutation, &opened.open.stored);
    let id = |number| TimerId::from_bits(ids.to_bits(number)).to_string();
    let runs = kept.timers.iter().map(|timer| id(timer.number)).collect();
    let mut told = BTreeSet::new();
    for message in &kept.messages {
        if let About::Timer(timer) = message.about {
            assert!(
                told.insert(timer.to_string()),
                "two messages about one timer"
            );
        }
    }
    (runs, told)
}

/// Checks the facts that were confirmed when the record had this length.
fn holds(promised: &BTreeMap<String, Promised>, length: u64, folder: &Path) -> Result<(), String> {
    let (runs, told) = found(folder);
    for (id, promised) in promised {
        if promised.made > length {
            continue;
        }
        let (runs, told) = (runs.contains(id), told.contains(id));
        let is = |moment: Option<u64>| moment.is_some_and(|moment| moment <= length);
        let right = match promised.short {
            // The timer runs, or there is one message about it, which may have been seen.
            true => runs != told || (!runs && is(promised.told)),
            false if is(promised.stopped) => !runs && !told,
            false => (runs || is(promised.stopping)) && !told,
        };
        if !right {
            return Err(format!("{id}: runs: {runs}, told: {told}"));
        }
    }
    Ok(())
}

/// Returns whether there was a checkpoint after the sync that created the database.
fn was_brought(done: &[Done]) -> bool {
    let synced = done
        .iter()
        .filter(|done| done.file == 0 && matches!(done.what, What::Synced(_)));
    synced.count() >= 2
}

fn power_cuts(cuts: usize, seed: u64) {
    // Its file is what fails.
    let abide = Abide::on(None);
    start_on(&abide, RECORDING_DISK, "RECORD");
    let promised = BTreeMap::new();
    let mut life = Life { abide, promised };
    let mut dice = Dice(seed);
    let mut running = Vec::new();
    // SQLite makes a checkpoint with the commit that reaches a thousand pages.
    let mut n = 0;
    while n < 600 || n % 50 != 0 || !was_brought(&read_record(&life.abide.path("mark"))) {
        let short = dice.roll(4) == 0;
        let id = life.make(n, short);
        if !short {
            running.push(id);
        }
        if dice.roll(8) == 0 && !running.is_empty() {
            let any = dice.roll(running.len() as u64) as usize;
            life.stop(&running.swap_remove(any));
        }
        n += 1;
    }
    life.abide.kill_daemon();
    let done = read_record(&life.abide.path("mark"));

    let first = life.promised.values().map(|promised| promised.made).min();
    let first = first.expect("a promise");
    let begin = done.iter().position(|done| done.upto >= first);
    let begin = begin.expect("it was recorded");
    let mut moments: Vec<usize> = (0..cuts)
        .map(|_| begin + dice.roll((done.len() - begin) as u64) as usize)
        .collect();
    moments.sort_unstable();
    let folder = tempfile::tempdir().expect("a folder");
    let mut disk = Disk::default();
    let mut taken = 0;
    for (n, moment) in moments.into_iter().enumerate() {
        for done in &done[taken..=moment] {
            disk.take(done);
        }
        taken = moment + 1;
        // Each has its own directory, since a database may be closed a moment later.
        let folder = folder.path().join(n.to_string());
        fs::create_dir(&folder).expect("a folder");
        disk.cut(&folder, &mut dice);
        if let Err(why) = holds(&life.promised, done[moment].upto, &folder) {
            panic!("seed {seed}, cut after {moment} of {}: {why}", done.len());
        }
        fs::remove_dir_all(&folder).expect("a folder");
    }
}

#[test]
fn m1_g7_power_cut_at_any_moment_of_a_daemons_life() {
    power_cuts(60, 0x9e37_79b9_7f4a_7c15);
}

#[test]
#[ignore = "many power cuts, for `make soak`"]
fn m1_g7_power_cuts_in_many_lives() {
    let lives = std::env::var("ABIDE_CUTS")
        .ok()
        .and_then(|n| n.parse().ok());
    for seed in 1..=lives.unwrap_or(20_u64) {
        power_cuts(500, seed);
        eprintln!("life {seed}: 500 cuts, nothing lost and nothing doubled");
    }
}
