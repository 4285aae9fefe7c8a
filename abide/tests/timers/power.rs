use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use abide_core::message::{self, About, MessageContent};
use abide_core::time::{Millis, Steady, Wall};
use abide_core::timer::{self, CompletedBy, Kind, Status};
use abide_core::{Agent, MessageId, Record, TimerId};
use abide_engine::store::{Sqlite, Store};
use serde_json::json;

use crate::common::process::Process;
use crate::common::shim::start_on;
use crate::harness::{Abide, look_for};
use crate::{call, id_of, refused};

/// A deterministic sequence of pseudo-random numbers.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }
}

fn made(number: u64) -> Record {
    Record::Timer(timer::Record::Created(timer::Created {
        number,
        id: TimerId::from_bits(number),
        agent: Agent("ann".into()),
        conversation: None,
        kind: Kind::Mission,
        purpose: format!(
            "mission {number} {}",
            "x".repeat((number % 7 * 300) as usize)
        )
        .into(),
        until: None,
        key: None,
        total: Millis(60_000),
        due: Steady(60_000 + number),
        standby: None,
        at: Wall(number),
    }))
}

/// The completion of a timer and its message, in one commit.
fn completed(number: u64) -> [Record; 2] {
    let (id, at) = (TimerId::from_bits(number), Wall(number + 60_000));
    let status = Status::Completed {
        by: CompletedBy::Time,
        late: Millis(0),
    };
    let ended = timer::Record::Ended(timer::Ended {
        number,
        id,
        status,
        total: Millis(60_000),
        remaining: Millis(0),
        stop_reason: None,
        seen: None,
        checked: at,
        at,
    });
    let posted = message::Record::Posted {
        number,
        id: MessageId::from_bits(number),
        agent: Agent("ann".into()),
        content: MessageContent {
            about: About::Timer(id),
            conversation: None,
            wakes: true,
        },
        reported_by_call: false,
        at,
    };
    [Record::Timer(ended), Record::Message(posted)]
}

/// Timers that run, and timers with a message.
type State = (BTreeSet<u64>, BTreeSet<u64>);

fn state(folder: &Path) -> State {
    let opened = Sqlite::open(&folder.join("abide.db"), 1).expect("it opens");
    let kept = opened.open.stored;
    let running = kept.timers.iter().map(|timer| timer.number);
    let told = kept.messages.iter().map(|message| message.number);
    (running.collect(), told.collect())
}

/// Writes commit after commit, and records the length of the journal and the state after each.
fn written(store: &dyn Store, folder: &Path, turns: u64, dice: &mut Dice) -> Vec<(u64, State)> {
    let journal = folder.join("abide.db-wal");
    let length = || fs::metadata(&journal).map_or(0, |found| found.len());
    let mut now: State = State::default();
    let mut moments = vec![(length(), now.clone())];
    for number in 0..turns {
        let mut records = vec![made(number)];
        now.0.insert(number);
        if dice.roll(3) == 0
            && let Some(&due) = now.0.first()
        {
            records.extend(completed(due));
            now.0.remove(&due);
            now.1.insert(due);
        }
        let done = store.commit(records).blocking_recv();
        done.expect("a writer").expect("a commit");
        moments.push((length(), now.clone()));
    }
    moments
}

/// Possible content of a disk after a power cut: everything that was synced, and any part of later writes in any
/// state.
fn cut(from: &Path, to: &Path, synced: u64, written: u64, dice: &mut Dice) {
    fs::copy(from.join("abide.db"), to.join("abide.db")).expect("a copy");
    let mut journal = fs::read(from.join("abide.db-wal")).expect("a journal");
    let kept = synced + dice.roll(written - synced + 1);
    journal.truncate(kept as usize);
    for sector in journal[synced as usize..].chunks_mut(512) {
        match dice.roll(4) {
            0 => sector.fill(0),
            1 => sector.iter_mut().for_each(|byte| *byte ^= 0x5a),
            _ => {}
        }
    }
    fs::write(to.join("abide.db-wal"), journal).expect("a journal");
}

fn power_cuts(cuts: usize, seed: u64) {
    let mut dice = Dice(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let live = folder.path().join("live");
    fs::create_dir(&live).expect("a folder");
    // The database stays open: closing it would remove the journal.
    let opened = Sqlite::open(&live.join("abide.db"), 1).expect("it opens");
    let moments = written(&*opened.store, &live, 100, &mut dice);
    assert!(
        moments.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "the journal was not restarted meanwhile"
    );
    for n in 0..cuts {
        let at = dice.roll(moments.len() as u64 - 1) as usize;
        let ((synced, before), (written, after)) = (&moments[at], &moments[at + 1]);
        let copy = folder.path().join(format!("cut{n}"));
        fs::create_dir(&copy).expect("a folder");
        cut(&live, &copy, *synced, *written, &mut dice);
        let found = state(&copy);
        assert!(
            found == *before || found == *after,
            "seed {seed}, cut {n} in turn {at}: {found:?} is neither {before:?} nor {after:?}"
        );
        fs::remove_dir_all(&copy).expect("a folder");
    }
}

#[test]
fn m1_g7_power_cut_keeps_acknowledged_commits_and_no_partial_one() {
    power_cuts(300, 0x9e37_79b9_7f4a_7c15);
}

#[test]
#[ignore = "many power cuts, for `make soak`"]
fn m1_g7_many_power_cuts() {
    let rounds = std::env::var("ABIDE_CUTS")
        .ok()
        .and_then(|n| n.parse().ok());
    for seed in 1..=rounds.unwrap_or(20_u64) {
        power_cuts(500, seed);
    }
}

/// Library for `LD_PRELOAD`: once the file exists, every sync fails.
const FAILING_DISK: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int broken(void) { const char *mark = getenv("BROKEN_DISK"); return mark && access(mark, F_OK) == 0; }
int fsync(int fd) { if (broken()) { errno = EIO; return -1; } return syscall(SYS_fsync, fd); }
int fdatasync(int fd) { if (broken()) { errno = EIO; return -1; } return syscall(SYS_fdatasync, fd); }
"#;

/// Once the file exists, the database cannot grow, with the error that the file names.
const FULL_DISK: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <fcntl.h>
static int full(int fd) {
    const char *mark = getenv("BROKEN_DISK");
    char link[64], path[4096], why = 0;
    int file = mark ? open(mark, O_RDONLY) : -1;
    if (file < 0) return 0;
    if (read(file, &why, 1) < 0) why = 0;
    close(file);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!strstr(path, "/abide.db")) return 0;
    return why == 'q' ? EDQUOT : ENOSPC;
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    int why = full(fd);
    if (why) { errno = why; return -1; }
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return pwrite64(fd, bytes, count, at); }
ssize_t write(int fd, const void *bytes, size_t count) {
    int why = full(fd);
    if (why) { errno = why; return -1; }
    return syscall(SYS_write, fd, bytes, count);
}
"#;

#[test]
fn m3_full_disk_refuses_changes_until_there_is_space() {
    full_disk_is_got_over("");
}

#[test]
fn m3_exhausted_quota_is_handled_like_a_full_disk() {
    full_disk_is_got_over("q");
}

fn full_disk_is_got_over(why: &str) {
    // Its file is what fails.
    let abide = Abide::on(None);
    let mark = start_on(&abide, FULL_DISK, "BROKEN_DISK");
    let pid = abide.pid();
    let start = json!({"action": "start", "command": "cat"});
    let session = call(&abide, "terminal_session", start)["session_id"].clone();
    let kept = id_of(&call(
        &abide,
        "timer",
        json!({"total_duration": 600, "mission": "keep"}),
    ));
    // The timer is due when nothing can be written any more, however slow the machine is.
    let due = id_of(&call(
        &abide,
        "timer",
        json!({"total_duration": 12, "mission": "due"}),
    ));
    fs::write(&mark, why).expect("a mark");
    for (tool, arguments) in [
        ("timer", json!({"total_duration": 600, "mission": "more"})),
        ("timer", json!({"total_duration": 600, "reason": "more"})),
        ("stop_timer", json!({"timer_id": kept})),
        (
            "pause_timer",
            json!({"timer_id": kept, "pause_duration": 60}),
        ),
        ("cancel_timer", json!({"timer_id": kept})),
    ] {
        let sentence = refused(&abide, tool, arguments);
        assert!(sentence.starts_with("storage_full: "), "{tool}: {sentence}");
    }
    let more = json!({"total_duration": 600, "mission": "more"});
    let answer = abide.post("/v1/timers", &more);
    assert_eq!(answer.status, 507, "{}", answer.body);
    let timer = call(&abide, "read_timer", json!({"timer_id": kept}));
    assert_eq!(timer["status"], "running", "nothing has changed: {timer}");
    let shell = call(&abide, "shell", json!({"command": "echo it works"}));
    assert_eq!(shell["status"], "SUCCESS", "{shell}");
    let kill = json!({"action": "kill", "session_id": session});
    assert_eq!(call(&abide, "terminal_session", kill)["gone"], true);
    let left = || call(&abide, "read_timer", json!({"timer_id": due}))["remaining_time"].as_f64();
    look_for("the time when it is due", || {
        (left().expect("it runs") == 0.0).then_some(())
    });
    fs::remove_file(&mark).expect("a mark");
    let mut told = Vec::new();
    while !told.contains(&json!(due)) {
        let messages = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
        let messages = messages["messages"].as_array().expect("messages").clone();
        assert!(!messages.is_empty(), "it was never told");
        told.extend(messages.iter().map(|message| message["timer_id"].clone()));
    }
    call(&abide, "timer", more);
    assert_eq!(abide.pid(), pid, "it is the same daemon");
    abide.kill_daemon();
    abide.start();
    let timers = call(&abide, "read_timer", json!({}));
    assert_eq!(
        timers["timers"].as_array().map(Vec::len),
        Some(2),
        "{timers}"
    );
}

#[test]
fn m2_commit_with_a_failed_sync_is_not_acknowledged() {
    // Its file is what fails.
    let abide = Abide::on(None);
    let mark = start_on(&abide, FAILING_DISK, "BROKEN_DISK");
    let arguments = |text: &str| json!({"total_duration": 600, "mission": text});
    let kept = id_of(&call(&abide, "timer", arguments("safe")));
    let daemon = Process::on(abide.pid());
    fs::write(&mark, "").expect("a mark");
    let answer = abide.try_post("/v1/tools/timer", &arguments("lost?"));
    let promised =
        answer.is_some_and(|answer| answer.status == 200 && answer.body["is_error"] != true);
    assert!(!promised, "nothing is promised that may not be on the disk");
    daemon.wait_gone();
    let log = fs::read_to_string(abide.path("daemon.log")).expect("a log");
    assert!(log.contains("the database failed"), "{log}");
    fs::remove_file(&mark).expect("a mark");
    abide.start();
    let timers = call(&abide, "read_timer", json!({}));
    let ids = timers["timers"].as_array().expect("a list");
    assert!(
        ids.iter().any(|timer| timer["timer_id"] == kept),
        "{timers}"
    );
}
