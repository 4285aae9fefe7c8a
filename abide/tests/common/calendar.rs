//! Wall clock of one daemon that a test can set. The wall clock has no namespace, so such a daemon reads it through a
//! preloaded library.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use super::home::Home;
use super::process::Process;
use super::shim;

/// Replaces the vDSO functions that read clocks. On request it triggers the timer that waits for the wall clock to be
/// set.
const CALENDAR: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#define NAME "__vdso_clock_gettime"
static const unsigned char JUMP[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
#define WHERE 2
#elif defined(__aarch64__)
#define NAME "__kernel_clock_gettime"
static const unsigned char JUMP[] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0};
#define WHERE 8
#else
#error "how one jumps here is not known"
#endif
static volatile int64_t *ahead;
static int told(clockid_t clock, struct timespec *at) {
    long done = syscall(SYS_clock_gettime, clock, at);
    if (done == 0 && clock == CLOCK_REALTIME) at->tv_sec += *ahead;
    return done;
}
static void was_set(int signal) {
    (void)signal;
    for (int fd = 0; fd < 256; fd++) {
        char path[64], facts[1024];
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        int open_facts = open(path, O_RDONLY | O_CLOEXEC);
        if (open_facts < 0) continue;
        ssize_t length = read(open_facts, facts, sizeof facts - 1);
        close(open_facts);
        facts[length < 0 ? 0 : length] = 0;
        if (!strstr(facts, "settime flags: 03")) continue;
        struct itimerspec at_once = {.it_value = {.tv_sec = 1}};
        timerfd_settime(fd, TFD_TIMER_ABSTIME, &at_once, 0);
    }
}
__attribute__((constructor)) static void stand_between(void) {
    const char *calendar = getenv("CALENDAR");
    int fd = calendar ? open(calendar, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    ahead = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    void *kernels = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
    char *code = kernels ? dlsym(kernels, NAME) : 0;
    if (!code || ahead == MAP_FAILED) return;
    uintptr_t page = sysconf(_SC_PAGESIZE), start = (uintptr_t)code & -page;
    if (mprotect((void *)start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC)) return;
    void *to = (void *)told;
    memcpy(code, JUMP, sizeof JUMP);
    memcpy(code + WHERE, &to, sizeof to);
    __builtin___clear_cache(code, code + sizeof JUMP);
    signal(SIGUSR2, was_set);
}
"#;

/// Time that a daemon may take to start, in seconds.
const TOLERANCE: u64 = 120;

/// Wall clock of a daemon, which can be set.
pub struct Calendar {
    shim: PathBuf,
    ahead: PathBuf,
}

impl Calendar {
    /// A wall clock that is an hour ahead, and a daemon that uses it. `None`: not permitted on this machine.
    pub fn new(abide: &Home) -> Option<Self> {
        Calendar::ahead_by(abide, 3_600)
    }

    /// The same with a wall clock that is ahead by this many seconds, or behind.
    pub fn ahead_by(abide: &Home, seconds: i64) -> Option<Self> {
        let shim = shim::built(abide, "calendar", CALENDAR)?;
        let ahead = abide.path("ahead");
        let calendar = Calendar { shim, ahead };
        calendar.show(seconds);
        let started = abide
            .command(["status", "--json"])
            .envs(calendar.variables())
            .output()
            .expect("abide runs");
        assert!(started.status.success(), "{started:?}");
        let status: Value = serde_json::from_slice(&started.stdout).expect("status is JSON");
        let began = status["daemon"]["started_at"].as_i64().expect("a time");
        if (began / 1_000 - now()).abs_diff(seconds) > TOLERANCE {
            println!("not tried: the calendar cannot be replaced here");
            return None;
        }
        Some(calendar)
    }

    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        let (shim, ahead) = (self.shim.clone(), self.ahead.clone());
        [("LD_PRELOAD", shim), ("CALENDAR", ahead)]
    }

    /// Sets the offset from the machine's wall clock, in seconds.
    pub fn show(&self, ahead: i64) {
        use std::os::unix::fs::FileExt;
        // Written in place: the daemon has the file mapped.
        let mut options = fs::File::options();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(&self.ahead).expect("a file");
        file.write_all_at(&ahead.to_ne_bytes(), 0)
            .expect("a number");
    }

    /// Sets the clock and notifies the daemon as the kernel would.
    pub fn set(&self, abide: &Home, ahead: i64) {
        self.show(ahead);
        let daemon = abide.daemon_pid().expect("a daemon");
        Process::on(daemon).send(Signal::USR2);
    }
}

/// Wall clock of the machine, in seconds.
pub fn now() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}
