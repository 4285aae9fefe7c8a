//! Simulations with random faults. A seed determines one simulation.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::checks::Sabotage;
use crate::random_numbers::Random;
use crate::world::{Link, Pause, World};

/// Worlds that are played when no number is given.
const SEEDS: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

/// Runs the seeds on all processors. Returns the counts, or the first seed that failed.
fn play_all(
    seeds: u64,
    play: fn(u64) -> BTreeMap<&'static str, u64>,
) -> BTreeMap<&'static str, u64> {
    let workers = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let share = |worker: u64| {
        let mut total = BTreeMap::new();
        for seed in (worker..seeds).step_by(workers as usize) {
            match catch_unwind(AssertUnwindSafe(|| play(seed))) {
                Ok(counts) => {
                    for (what, count) in counts {
                        *total.entry(what).or_insert(0) += count;
                    }
                }
                Err(_) => {
                    eprintln!("seed {seed} fails");
                    return Err(seed);
                }
            }
        }
        Ok(total)
    };
    thread::scope(|scope| {
        let share = &share;
        let shares: Vec<_> = (0..workers)
            .map(|w| scope.spawn(move || share(w)))
            .collect();
        let mut total = BTreeMap::new();
        for done in shares {
            match done.join().expect("a worker") {
                Ok(counts) => {
                    for (what, count) in counts {
                        *total.entry(what).or_insert(0) += count;
                    }
                }
                Err(seed) => panic!("seed {seed} fails: ABIDE_SEED={seed} prints it"),
            }
        }
        total
    })
}

#[test]
fn invariants_hold_with_random_faults() {
    if let Some(seed) = number("ABIDE_SEED") {
        play(seed, None, true);
        return;
    }
    let seeds = number("ABIDE_SEEDS").unwrap_or(SEEDS);
    let counts = play_all(seeds, |seed| play(seed, None, false));
    println!("{seeds} worlds: {counts:?}");
    for what in [
        "adopted",
        "new identity",
        "unknown",
        "fenced",
        "time set",
        "found alive",
        "dropped",
    ] {
        assert!(
            counts.contains_key(what),
            "it never came to `{what}`: {counts:?}"
        );
    }
}

/// Checks that fail in worlds in which a rule is broken on purpose.
fn failures(sabotage: Sabotage) -> impl Iterator<Item = String> {
    (0..400).filter_map(move |seed| {
        let failure = catch_unwind(AssertUnwindSafe(|| play(seed, Some(sabotage), false))).err()?;
        let text = failure.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| failure.downcast_ref::<&str>().copied())?;
        let check = text.split("CHECK ").nth(1)?;
        check.split(':').next().map(Into::into)
    })
}

#[test]
fn every_check_notices_the_rule_that_it_guards() {
    let broken = [
        (Sabotage::NoFence, "owner"),
        (Sabotage::NoTimeCheck, "early"),
        (Sabotage::DatabaseTime, "early"),
        (Sabotage::NoMark, "told"),
        (Sabotage::ForgetNewest, "lost"),
        (Sabotage::RefuseUnknown, "refused"),
        (Sabotage::NoAdoption, "over"),
    ];
    for (sabotage, check) in broken {
        let is_noticed = failures(sabotage).any(|failed| failed == check);
        assert!(is_noticed, "no world fails `{check}` with {sabotage:?}");
    }
}

/// Machines that are lost one at a time in fleets without other faults, each with timers that are due before, at and
/// after its loss. Returns the number of losses.
fn lose_machines(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut dice = Random::new(seed ^ 0x105e);
    let machines = 2 + dice.below(5) as usize;
    let mut world = World::new(seed, machines, None);
    world.run(20_000);
    world.aloud = number("ABIDE_ALOUD").is_some();
    for _ in 0..10 {
        let place = dice.below(machines as u64) as usize;
        for _ in 0..1 + dice.below(4) {
            let total = one_of(&mut dice, &[500, 16_000, 40_000]);
            world.make(place, 1 + dice.below(total));
        }
        let lead = one_of(&mut dice, &[100, 3_000, 30_000]);
        world.run(150 + dice.below(lead));
        let lost = world.time;
        world.power_off(place);
        world.run(70_000);
        let late = world.truths.latest(lost);
        world.say(|| format!("late {late} {:?}", world.truths.timers));
        assert!(
            late <= 5_000,
            "CHECK late: {late} ms after the loss of a machine"
        );
        world.truths.check_rest(&world.database.rows);
        world.truths.timers.clear();
        world.power_on(place);
        world.run(20_000 + dice.below(5_000));
        check_owners(&world);
    }
    world.effects
}

#[test]
fn losses_of_one_machine_delay_no_timer_by_more_than_5_s() {
    if let Some(seed) = number("ABIDE_SEED") {
        lose_machines(seed);
        return;
    }
    let losses = number("ABIDE_LOSSES").unwrap_or(1_000);
    let counts = play_all(losses.div_ceil(10), lose_machines);
    println!("{counts:?}");
    assert!(
        counts
            .get("machine lost")
            .is_some_and(|lost| *lost >= losses)
    );
}

fn one_of<T: Clone>(dice: &mut Random, from: &[T]) -> T {
    dice.pick(from).expect("one of them")
}

/// Faults of one world. Few kinds at a time find more than all at once.
#[derive(Clone, Copy, Debug)]
struct Kinds {
    crashes: bool,
    pauses: bool,
    links: bool,
    database: bool,
    loses_commits: bool,
    leaps: bool,
    clones: bool,
}

pub fn play(seed: u64, sabotage: Option<Sabotage>, aloud: bool) -> BTreeMap<&'static str, u64> {
    let mut dice = Random::new(seed ^ 0x5eed);
    let kinds = Kinds {
        crashes: dice.chance(60),
        pauses: dice.chance(40),
        links: dice.chance(60),
        database: dice.chance(40),
        loses_commits: dice.chance(30),
        leaps: dice.chance(30),
        clones: dice.chance(15),
    };
    let machines = 2 + dice.below(4) as usize;
    let mut world = World::new(seed, machines, sabotage);
    world.aloud = aloud;
    world.say(|| format!("{machines} machines, {kinds:?}"));
    world.slow_batches = if dice.chance(30) { 10 } else { 0 };
    world.has_bell = dice.chance(50);
    world.losses = if dice.chance(30) { 3 } else { 0 };
    world.run(20_000);
    let mut stood = 0;
    let mut last_leap = 0;
    for _ in 0..10 + dice.below(25) {
        let place = dice.below(world.machines.len() as u64) as usize;
        match dice.below(17) {
            0..=5 => {
                let total = one_of(&mut dice, &[3_000, 20_000, 60_000]);
                let total = 1 + dice.below(total);
                world.make(place, total);
            }
            6 if kinds.crashes => world.kill(place),
            7 if kinds.crashes => world.power_off(place),
            8..=9 if kinds.crashes => restart(&mut world, place, dice.chance(50)),
            10 if kinds.pauses => {
                let pause = one_of(&mut dice, &[Pause::Process, Pause::Machine]);
                world.pause(place, pause);
            }
            11..=12 if kinds.links || kinds.pauses => {
                world.resume(place);
                world.machines[place].link = Link {
                    no_requests: kinds.links && dice.chance(30),
                    no_answers: kinds.links && dice.chance(30),
                    delay: one_of(&mut dice, &[5, 50, 700]),
                };
                world.excuse_clock();
            }
            13 if kinds.database => {
                if world.is_up {
                    world.crash_database();
                } else {
                    world.start_database();
                }
            }
            14 if kinds.loses_commits => world.promote(dice.below(15) as usize),
            15 if kinds.leaps && world.time > last_leap + 10_000 => {
                last_leap = world.time;
                let by = one_of(&mut dice, &[5_000, 300_000, 31_536_000_000]);
                world.leap(if dice.chance(50) { by } else { -by });
            }
            16 if kinds.clones && world.machines.len() < 8 => {
                world.clone_machine(place);
            }
            _ => {}
        }
        let longest = one_of(&mut dice, &[200, 2_000, 12_000]);
        let time = 1 + dice.below(longest);
        stood += time;
        world.run(time);
    }
    world.slow_batches = 0;
    world.losses = 0;
    rest(&mut world, if kinds.pauses { stood } else { 0 });
    world.effects
}

fn restart(world: &mut World, place: usize, reboot: bool) {
    let machine = &world.machines[place];
    if machine.daemon.is_some() {
        return;
    }
    if reboot || machine.boot == 0 {
        world.power_on(place);
    } else {
        world.start(place);
    }
}

/// Ends all faults. Then every timer ends, and daemons and database agree on the owners.
pub fn rest(world: &mut World, longer: u64) {
    world.say(|| "rest".into());
    if !world.is_up {
        world.start_database();
    }
    for place in 0..world.machines.len() {
        world.resume(place);
        world.machines[place].link = Link {
            delay: 20,
            ..Link::default()
        };
    }
    if world
        .machines
        .iter()
        .all(|machine| machine.daemon.is_none())
    {
        world.power_on(0);
    }
    world.run(180_000 + longer);
    for place in 0..world.machines.len() {
        world.say(|| world.describe(place));
    }
    world.truths.check_rest(&world.database.rows);
    check_owners(world);
}

pub fn check_owners(world: &World) {
    let mut believed = BTreeMap::new();
    for machine in &world.machines {
        for (shard, epoch) in machine
            .daemon
            .iter()
            .flat_map(|daemon| daemon.member.owned())
        {
            let before = believed.insert(shard, (machine.id, epoch));
            assert!(before.is_none(), "CHECK owners: two own {shard:?}");
        }
    }
    let rows = world.database.rows.shards.values();
    let rows: BTreeMap<_, _> = rows.map(|row| (row.id, (row.owner, row.epoch))).collect();
    assert_eq!(believed, rows, "CHECK owners: daemons and database differ");
    for machine in &world.machines {
        let home = abide_core::fleet::ShardId(machine.id);
        if machine.daemon.is_some() {
            assert_eq!(
                rows.get(&home).map(|row| row.0),
                Some(machine.id),
                "CHECK owners: not handed back"
            );
        }
    }
}
