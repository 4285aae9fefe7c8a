//! Clocks that jump, as the kernel itself shows them: the next daemon lives in a time namespace, where
//! boot time is another. A calendar that is set is played in the core's transcripts, since there is
//! only one for the whole machine.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::harness::Abide;
use crate::{call, id_of};

/// Starts a daemon where boot time is ahead by so many seconds, in this boot or in another one. `None`:
/// this machine lets nobody do that.
fn start_at(abide: &Abide, ahead: i64, another_boot: bool) -> Option<()> {
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
        .env("ABIDE_DIR", abide.dir.path())
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
    id_of(&call(abide, "timer", arguments))
}

fn read(abide: &Abide, id: &str) -> Value {
    let timer = call(abide, "read_timer", json!({"timer_id": id}));
    let time = |field: &str| timer[field].as_f64().expect("seconds");
    let sum = time("elapsed_time") + time("remaining_time");
    assert!((sum - time("total_duration")).abs() < 1e-6, "{timer}");
    timer
}

fn remaining(timer: &Value) -> f64 {
    timer["remaining_time"].as_f64().expect("seconds")
}

#[test]
fn m11_m12_the_time_that_the_machine_slept_counts_whatever_the_calendar_says() {
    let abide = Abide::new();
    abide.start();
    let (over, runs, paused) = (
        mission(&abide, 1.0),
        mission(&abide, 10.0),
        mission(&abide, 10.0),
    );
    let pause = json!({"timer_id": paused, "pause_duration": 9 * 3_600});
    call(&abide, "pause_timer", pause);
    abide.kill_daemon();
    // Eight hours of boot time have passed, and none on the calendar.
    let Some(()) = start_at(&abide, 8 * 3_600, false) else {
        return;
    };
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 30}));
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
    // And it is told once.
    let Some(()) = start_at(&abide, 8 * 3_600, false) else {
        return;
    };
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "{none}");
}

#[test]
fn m13_after_a_reboot_the_calendar_counts() {
    let abide = Abide::new();
    abide.start();
    let (soon, runs) = (mission(&abide, 0.000_1), mission(&abide, 1.0));
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 30}));
    assert_eq!(told["messages"][0]["timer_id"], soon, "{told}");
    let made = read(&abide, &runs);
    abide.kill_daemon();
    // The machine has been up for a few seconds only, and calls its boot by another name.
    let uptime = fs::read_to_string("/proc/uptime").expect("an uptime");
    let uptime: f64 = uptime.split('.').next().unwrap().parse().expect("seconds");
    let Some(()) = start_at(&abide, 5 - uptime as i64, true) else {
        return;
    };
    let timer = read(&abide, &runs);
    assert_eq!(timer["status"], "running", "{timer}");
    let left = remaining(&timer);
    assert!((0.9 * 3_600.0..=3_600.0).contains(&left), "{timer}");
    assert_eq!(timer["created_at"], made["created_at"]);
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "nothing is told twice: {none}");
    // It is stood by on as before.
    let sooner = json!({"timer_id": runs, "total_duration": 0.05, "timeout_duration": 30});
    assert_eq!(call(&abide, "timer", sooner)["status"], "completed");
}
