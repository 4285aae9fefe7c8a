//! Measurements, to be run by hand: `cargo test --release --test keeper measure -- --ignored
//! --nocapture --test-threads 1`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

/// The same command under a keeper and from a plain program that captures its output, in turns, so
/// that a busy machine is equally busy for both.
#[test]
#[ignore = "a measurement"]
fn measure_a_short_command() {
    const ROUNDS: usize = 400;
    let nursery = Nursery::new();
    let holds = [Hold::Auto, Hold::Subreaper, Hold::PidNamespace];
    let mut kept = [const { Vec::new() }; 3];
    let mut plain = Vec::new();
    for _ in 0..ROUNDS {
        // Made before, as a daemon does it.
        let spares = holds.map(|_| nursery.ready());
        // Once for nothing, so that it is not the plain one that pays for their making.
        spawn_true();
        for ((hold, spare), times) in holds.into_iter().zip(spares).zip(&mut kept) {
            plain.push(spawn_true());
            times.extend(keep_true(spare, hold));
        }
    }
    let plain = quartiles(plain);
    println!("plain spawn, read and wait: {plain:?}");
    for (hold, times) in holds.into_iter().zip(kept) {
        if !times.is_empty() {
            let times = quartiles(times);
            let ratio = times[1].as_secs_f64() / plain[1].as_secs_f64();
            println!("kept, {hold:?}: {times:?}, median {ratio:.2} of plain");
        }
    }
}

/// From the start to the ending; `None`: it cannot be contained like that here.
fn keep_true(mut keeper: Keeper, hold: Hold) -> Option<Duration> {
    let mut launch = keeper.shell("true");
    launch.containment = hold;
    let begun = Instant::now();
    keeper.start(launch);
    match keeper.next() {
        FromKeeper::Started { .. } => {}
        _ => return None,
    }
    let exited = keeper.expect_exited();
    let took = begun.elapsed();
    keeper.wind_up(exited);
    Some(took)
}

fn spawn_true() -> Duration {
    let begun = Instant::now();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "true"]).stdin(Stdio::null());
    command.env_clear().env("PATH", "/usr/bin:/bin");
    assert!(command.output().unwrap().status.success());
    begun.elapsed()
}

/// A quarter of them is faster than the first, half than the second.
fn quartiles(mut times: Vec<Duration>) -> [Duration; 3] {
    times.sort();
    [1, 2, 3].map(|quarter| times[times.len() * quarter / 4])
}

/// From the order to kill to the last process being gone.
#[test]
#[ignore = "a measurement"]
fn measure_a_kill() {
    let many = |count: usize| {
        format!("i=0; while [ $i -lt {count} ]; do sleep 1000 & i=$((i+1)); done; echo up; wait")
    };
    // Each process starts its successor in a session of its own and leaves.
    let hop = "hop() { (setsid sh -c \"$1\" _ \"$1\" &) ; }; hop \"$1\"";
    let hoppers = "i=0; while [ $i -lt 50 ]; do sh -c \"$HOP\" _ \"$HOP\" & i=$((i+1)); done; \
                   echo up; sleep 1000";
    let nursery = Nursery::new();
    for hold in [Hold::Auto, Hold::Subreaper, Hold::PidNamespace] {
        for (name, command) in [
            ("100 processes", many(100)),
            ("1000 processes", many(1_000)),
            ("2000 processes", many(2_000)),
            ("50 hoppers", hoppers.into()),
        ] {
            let mut keeper = nursery.ready();
            let mut launch = keeper.shell(&command);
            launch.env.push((b"HOP".to_vec(), hop.into()));
            launch.containment = hold;
            keeper.start(launch);
            if !matches!(keeper.next(), FromKeeper::Started { .. }) {
                continue;
            }
            keeper.expect_growth(2);
            let begun = Instant::now();
            keeper.say(&ToKeeper::Kill {
                end: abide_core::End::User,
                grace_ms: 0,
            });
            let exited = keeper.expect_exited();
            let replied = begun.elapsed();
            let mut empty = exited.empty;
            while !empty {
                empty = keeper.next() == FromKeeper::Emptied;
            }
            println!(
                "{hold:?}, {name}: ended after {replied:?}, empty after {:?}",
                begun.elapsed()
            );
            keeper.say(&ToKeeper::Ack);
            while keeper.hear().is_some() {}
        }
    }
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
