//! Measurements, to be run by hand: `cargo test --release --test keeper measure -- --ignored
//! --nocapture --test-threads 1`.

use std::process::Command;
use std::time::Instant;

use abide::keeper::frame::{FromKeeper, Hold, ToKeeper};

use crate::harness::{Keeper, Nursery};

fn private_kb(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    text.lines()
        .filter(|line| line.starts_with("Private_Clean") || line.starts_with("Private_Dirty"))
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

#[test]
#[ignore = "a measurement"]
fn measure_memory_of_an_idle_keeper() {
    let nursery = Nursery::new();
    let spares: Vec<Keeper> = (0..3).map(|_| nursery.ready()).collect();
    println!("spare: {} kB private", private_kb(spares[0].pid));
    let mut keeper = nursery.ready();
    keeper.start(keeper.shell("echo up; exec sleep 1000"));
    keeper.expect_started();
    keeper.expect_growth(2);
    println!("running: {} kB private", private_kb(keeper.pid));
    keeper.say(&ToKeeper::Kill {
        end: abide_core::End::User,
        grace_ms: 0,
    });
    keeper.finish();
}

#[test]
#[ignore = "a measurement"]
fn measure_a_short_command() {
    const ROUNDS: usize = 200;
    let nursery = Nursery::new();
    for hold in [Hold::Auto, Hold::Subreaper] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let mut keeper = nursery.ready();
            let mut launch = keeper.shell("true");
            launch.containment = hold;
            let begun = Instant::now();
            keeper.start(launch);
            keeper.expect_started();
            let exited = keeper.expect_exited();
            times.push(begun.elapsed());
            keeper.wind_up(exited);
        }
        times.sort();
        println!("kept, {hold:?}: median {:?}", times[ROUNDS / 2]);
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        Command::new("/bin/sh")
            .args(["-c", "true"])
            .status()
            .unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    println!("plain spawn and wait: median {:?}", times[ROUNDS / 2]);
}

#[test]
#[ignore = "a measurement"]
fn measure_a_flood() {
    let nursery = Nursery::new();
    for _ in 0..5 {
        let mut keeper = nursery.ready();
        keeper.start(keeper.shell("exec head -c 100000000 /dev/zero"));
        let begun = Instant::now();
        keeper.expect_started();
        let exited = loop {
            if let FromKeeper::Exited(exited) = keeper.next() {
                break exited;
            }
        };
        println!("100 MB kept in {:?}", begun.elapsed());
        keeper.wind_up(exited);
    }
}
