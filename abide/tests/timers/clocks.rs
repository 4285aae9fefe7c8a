//! Clocks that jump. The boot clock jumps with the kernel's own means: the next daemon runs in a time namespace. The
//! wall clock has no namespace, so a daemon whose wall clock is set reads it through a preloaded library.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::common::calendar::{Calendar, now};
use crate::harness::{Abide, look_for, receive};
use crate::{call, make};

/// Starts a daemon whose boot clock is ahead by this many seconds, in this boot or in another one. `None`: not
/// permitted on this machine.
fn start_at(abide: &Abide, ahead: i64, another_boot: bool) -> Option<()> {
    start_with(abide, ahead, another_boot, None)
}

/// The same, and the daemon has its own wall clock.
fn start_with(
    abide: &Abide,
    ahead: i64,
    another_boot: bool,
    calendar: Option<&Calendar>,
) -> Option<()> {
    let boot_id = abide.path("boot_id");
    fs::write(&boot_id, "0b8d6c1e-5a0f-4a59-9c57-2f9f6d1f8a11\n").expect("a file");
    let mount = match another_boot {
        true => format!(
            "mount --bind {} /proc/sys/kernel/random/boot_id && ",
            boot_id.display()
        ),
        false => String::new(),
    };
    let script = format!("{mount}exec {} status", env!("CARGO_BIN_EXE_abide"));
    let boot_time = ahead.to_string();
    let words = ["--mount", "--time", "--fork", "--boottime", &boot_time];
    let started: Output = unshare()
        .args(words)
        .args(["--", "sh", "-c", &script])
        .env("ABIDE_DIR", abide.dir())
        .envs(calendar.into_iter().flat_map(Calendar::variables))
        .output()
        .ok()?;
    if !started.status.success() {
        println!("not tried: {}", String::from_utf8_lossy(&started.stderr));
        return None;
    }
    Some(())
}

fn unshare() -> std::process::Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "there is no other daemon to start"
    )]
    std::process::Command::new("unshare")
}

fn mission(abide: &Abide, hours: f64) -> String {
    let arguments = json!({"total_duration": hours * 3_600.0, "mission": "later"});
    make(abide, &arguments)
}

fn read(abide: &Abide, id: &str) -> Value {
    let timer = call(abide, "read_timer", json!({"timer_id": id}));
    let time = |field: &str| timer[field].as_f64().expect("seconds");
    let sum = time("elapsed_time") + time("remaining_time");
    assert!((sum - time("total_duration")).abs() < 1e-6, "{timer}");
    timer
}

/// Reads a timer after a reboot. A machine of a fleet first makes sure that no copy of it has its identity.
fn read_after_reboot(abide: &Abide, id: &str) -> Value {
    look_for("the timer after the reboot", || {
        let arguments = json!({"timer_id": id});
        let answer = abide.try_post("/v1/tools/read_timer", &arguments)?;
        (answer.status == 200 && answer.body["remaining_time"].is_number()).then_some(())
    });
    read(abide, id)
}

fn remaining(timer: &Value) -> f64 {
    timer["remaining_time"].as_f64().expect("seconds")
}

#[test]
fn m11_m12_sleep_counts_whatever_the_wall_clock_says() {
    let abide = Abide::started();
    let (over, runs, paused) = (
        mission(&abide, 1.0),
        mission(&abide, 10.0),
        mission(&abide, 10.0),
    );
    let pause = json!({"timer_id": paused, "pause_duration": 9 * 3_600});
    call(&abide, "pause_timer", pause);
    abide.kill_daemon();
    // Eight hours have passed on the boot clock, and none on the wall clock.
    let Some(()) = start_at(&abide, 8 * 3_600, false) else {
        return;
    };
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"].as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!(told["messages"][0]["timer_id"], over, "{told}");
    let late = read(&abide, &over)["late"].as_f64().expect("seconds");
    assert!((7.0 * 3_600.0..7.1 * 3_600.0).contains(&late), "{late}");
    let left = remaining(&read(&abide, &runs));
    assert!((1.9 * 3_600.0..=2.0 * 3_600.0).contains(&left), "{left}");
    let timer = read(&abide, &paused);
    assert_eq!(timer["status"], "paused", "{timer}");
    assert!(remaining(&timer) > 9.9 * 3_600.0, "{timer}");
    abide.kill_daemon();
    // It is reported once.
    let Some(()) = start_at(&abide, 8 * 3_600, false) else {
        return;
    };
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "{none}");
}

const HOUR: f64 = 3_600.0;
/// The year 2200.
const FAR: i64 = 7_258_118_400;

#[test]
fn m11_setting_the_wall_clock_moves_no_timer() {
    let abide = Abide::new();
    let Some(calendar) = Calendar::new(&abide) else {
        return;
    };
    let standing_by = json!({"total_duration": 3_600, "reason": "standing by"});
    let standing_by = abide.begin("/v1/tools/timer", &standing_by);
    let (runs, paused) = (mission(&abide, 1.0), mission(&abide, 1.0));
    let pause = json!({"timer_id": paused, "pause_duration": 1_800});
    call(&abide, "pause_timer", pause);
    let made = read(&abide, &runs)["created_at"].clone();
    let done = mission(&abide, 0.000_01);
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"][0]["timer_id"], done, "{told}");

    for ahead in [7_200, -3_600, 10 - now(), FAR - now(), -7_200, 0] {
        calendar.set(&abide, ahead);
        let short = json!({"total_duration": 0.05, "reason": "now"});
        let short = call(&abide, "timer", short);
        assert_eq!(short["status"], "completed", "{ahead}: {short}");
        assert_eq!(short["elapsed_time"], 0.05, "{ahead}: {short}");
        let shown = (now() + ahead) * 1_000 - short["created_at"].as_i64().expect("a time");
        assert!(
            shown.abs() < 60_000,
            "{ahead}: the calendar counts: {short}"
        );
        let timer = read(&abide, &runs);
        assert_eq!(timer["status"], "running", "{ahead}: {timer}");
        assert!(remaining(&timer) > 0.9 * HOUR, "{ahead}: {timer}");
        assert_eq!(timer["created_at"], made, "{ahead}");
        let timer = read(&abide, &paused);
        assert_eq!(timer["status"], "paused", "{ahead}: {timer}");
        assert!(remaining(&timer) > 0.9 * HOUR, "{ahead}: {timer}");
        let told = call(&abide, "read_messages", json!({}));
        assert_eq!(told["messages"], json!([]), "{ahead}: {told}");
    }
    // Setting the clock while no timer runs moves nothing either.
    abide.kill_daemon();
    assert!(receive(standing_by).is_none(), "it stood by to the end");
    calendar.show(FAR - now());
    let again = abide
        .command(["status"])
        .envs(calendar.variables())
        .output();
    assert!(again.expect("abide runs").status.success());
    assert!(remaining(&read(&abide, &runs)) > 0.9 * HOUR);
    assert_eq!(read(&abide, &paused)["status"], "paused");
    let told = call(&abide, "read_messages", json!({}));
    assert_eq!(told["messages"], json!([]), "{told}");
}

#[test]
fn m11_m13_wall_clock_change_before_a_reboot_is_known_after_it() {
    let abide = Abide::new();
    let Some(calendar) = Calendar::new(&abide) else {
        return;
    };
    let runs = mission(&abide, 1.0);
    // Nobody calls, yet it is written down, since after a reboot there is only the calendar. A fleet has a time of its own.
    let journal = || {
        let found = fs::metadata(abide.path("abide.db-wal"));
        found.map_or(0, |found| found.len())
    };
    let before = journal();
    calendar.set(&abide, 3 * 3_600);
    look_for("the calendar in the journal", || {
        (abide.server.is_some() || journal() != before).then_some(())
    });
    // A later call is answered after all of it was recorded.
    read(&abide, &runs);
    abide.kill_daemon();
    let Some(()) = start_with(&abide, 0, true, Some(&calendar)) else {
        return;
    };
    let timer = read_after_reboot(&abide, &runs);
    assert_eq!(timer["status"], "running", "{timer}");
    assert!(
        (0.9 * HOUR..=HOUR + 1.0).contains(&remaining(&timer)),
        "{timer}"
    );
}

#[test]
fn wall_clock_that_is_briefly_far_ahead_removes_no_history() {
    let abide = Abide::new();
    // So little that only the last session fits.
    abide.configure("keep_bytes = 500000\n");
    let Some(calendar) = Calendar::new(&abide) else {
        return;
    };
    let ran = |command: &str| {
        let ran = call(&abide, "shell", json!({"command": command}));
        assert_eq!(ran["status"], "SUCCESS", "{ran}");
        ran["session_id"].as_str().expect("an id").to_owned()
    };
    let large = ran("head -c 1000000 /dev/zero");
    let small = ran("echo kept");
    abide.kill_daemon();
    calendar.show(FAR - now());
    let again = abide
        .command(["status"])
        .envs(calendar.variables())
        .output();
    assert!(again.expect("abide runs").status.success());
    // Sessions beyond the size limit are removed in the same step as those that are too old.
    let known = |id: &str| {
        let listed = abide.get("/v1/sessions?include_ended=true");
        let mut listed = listed["sessions"].as_array().expect("a list").iter();
        listed.any(|session| session["session_id"] == id)
    };
    look_for("the end of what is too large", || {
        (!known(&large)).then_some(())
    });
    assert!(known(&small), "it was thought to be old");
}

#[test]
fn m13_wall_clock_is_used_after_a_reboot() {
    let abide = Abide::started();
    let (soon, runs) = (mission(&abide, 0.000_1), mission(&abide, 1.0));
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"][0]["timer_id"], soon, "{told}");
    let made = read(&abide, &runs);
    abide.kill_daemon();
    // The machine has been up for only a few seconds and has another boot id.
    let uptime = fs::read_to_string("/proc/uptime").expect("an uptime");
    let uptime: f64 = uptime.split('.').next().unwrap().parse().expect("seconds");
    let Some(()) = start_at(&abide, 5 - uptime as i64, true) else {
        return;
    };
    let timer = read_after_reboot(&abide, &runs);
    assert_eq!(timer["status"], "running", "{timer}");
    let left = remaining(&timer);
    assert!((0.9 * 3_600.0..=3_600.0).contains(&left), "{timer}");
    assert_eq!(timer["created_at"], made["created_at"]);
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "nothing is told twice: {none}");
    // Standby works as before.
    let sooner = json!({"timer_id": runs, "total_duration": 0.05, "timeout_duration": 180});
    assert_eq!(call(&abide, "timer", sooner)["status"], "completed");
}

#[test]
fn condition_of_a_timer_that_came_due_without_a_daemon_is_looked_at() {
    let abide = Abide::started();
    let there = abide.path("there");
    let mission = |file: &std::path::Path| {
        let until = json!({"file": file});
        let arguments = json!({"total_duration": 3_600, "mission": "later", "until": until});
        make(&abide, &arguments)
    };
    let (met, missed) = (mission(&there), mission(&abide.path("absent")));
    abide.kill_daemon();
    fs::write(&there, "").expect("a file");
    let Some(()) = start_at(&abide, 8 * 3_600, false) else {
        return;
    };
    // The agent does not ask for the timers meanwhile.
    let over = |id: &str| {
        look_for("its completion", || {
            let timer = abide.get(&format!("/v1/timers/{id}"));
            (timer["status"] == "completed").then_some(timer)
        })
    };
    let timer = over(&met);
    assert_eq!(timer["completed_by"], "condition", "{timer}");
    assert!(timer["late"].as_f64() > Some(7.0 * 3_600.0), "{timer}");
    let timer = over(&missed);
    assert_eq!(timer["completed_by"], "time", "{timer}");
    let seen = timer["seen"].as_str().expect("a look");
    assert!(!seen.contains("not been looked at"), "{timer}");
}
