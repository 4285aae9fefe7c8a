//! The engine in a simulation with delays, duplicates, sleep, failed commits and crashes.
//!
//! `ABIDE_SEEDS=100000 cargo test -p abide-core --test sim` runs more simulations, `ABIDE_SEED=17 cargo test -p
//! abide-core --test sim -- --nocapture` runs one and prints its trace.

#[path = "sim/mod.rs"]
mod sim;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Default number of simulations.
const SEEDS: u64 = 3_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

#[test]
fn invariants_hold_in_every_simulation() {
    if let Some(seed) = number("ABIDE_SEED") {
        sim::play(seed, sim::Telling::Aloud);
        return;
    }
    let seeds = number("ABIDE_SEEDS").unwrap_or(SEEDS);
    let workers = thread::available_parallelism()
        .map_or(1, |n| n.get() as u64)
        .min(8);
    let total = thread::scope(|scope| {
        let hands: Vec<_> = (0..workers)
            .map(|hand| scope.spawn(move || play_share(hand, workers, seeds)))
            .collect();
        let mut total = sim::Tally::default();
        for hand in hands {
            let told = hand.join().expect("a worker");
            total.add(
                &told.unwrap_or_else(|seed| panic!("seed {seed}: ABIDE_SEED={seed} tells it")),
            );
        }
        total
    });
    println!("{seeds} seeds: {total:?}");
    if seeds >= 100 {
        total.saw_everything();
    }
}

/// Runs every `workers`-th simulation; the first one that violates an invariant is run again with its trace.
fn play_share(hand: u64, workers: u64, seeds: u64) -> Result<sim::Tally, u64> {
    let mut total = sim::Tally::default();
    for seed in (hand..seeds).step_by(workers as usize) {
        match catch_unwind(AssertUnwindSafe(|| sim::play(seed, sim::Telling::Not))) {
            Ok(tally) => total.add(&tally),
            Err(_) => {
                let _ = catch_unwind(AssertUnwindSafe(|| sim::play(seed, sim::Telling::AtTheEnd)));
                return Err(seed);
            }
        }
    }
    Ok(total)
}
