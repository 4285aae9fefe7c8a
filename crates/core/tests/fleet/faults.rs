//! Faults by their number in FAULTS.md, each in a world of its own. Random worlds mix them.

use abide_core::fleet::version::Version;
use abide_core::fleet::{Event, MachineId, ShardId, Standing};

use crate::random::{check_owners, rest};
use crate::world::{Link, Pause, Place, World};

const CUT: Link = Link {
    no_requests: true,
    no_answers: true,
    delay: 20,
};
const FINE: Link = Link {
    no_requests: false,
    no_answers: false,
    delay: 20,
};
const NO_ANSWERS: Link = Link {
    no_requests: false,
    no_answers: true,
    delay: 20,
};

/// Fleet that has run for a while.
fn fleet(machines: usize) -> World {
    let mut world = World::new(7, machines, None);
    world.run(20_000);
    world
}

fn owner(world: &World, home: Place) -> Option<Place> {
    let shard = ShardId(world.machines[home].id);
    let row = world.database.rows.shards.get(&shard)?;
    world
        .machines
        .iter()
        .position(|machine| machine.id == row.owner)
}

/// Kills the daemon of machine 0 at this time relative to a deadline, and starts it again, or not.
fn killed_at(offset: i64, again: bool) -> World {
    let mut world = fleet(3);
    world.make(0, 20_000);
    world.run(20_000_u64.saturating_add_signed(offset));
    if again {
        world.kill(0);
        world.run(500);
        world.start(0);
    } else {
        world.power_off(0);
    }
    rest(&mut world, 0);
    world
}

/// Number of tellings, and of those that are not marked.
fn told(world: &World) -> (usize, usize) {
    let all = world.truths.timers.values().flat_map(|truth| &truth.told);
    let told: Vec<_> = all.collect();
    let first = told.iter().filter(|(_, repeated)| !repeated).count();
    (told.len(), first)
}

#[test]
fn f1_killed_before_the_batch_left_completes_once() {
    for again in [true, false] {
        for offset in -40..0 {
            assert_eq!(told(&killed_at(offset, again)), (1, 1));
        }
    }
}

#[test]
fn f2_killed_after_the_batch_left_completes_once() {
    for again in [true, false] {
        for offset in 0..80 {
            let (all, _) = told(&killed_at(offset, again));
            assert!((1..=2).contains(&all), "told {all} times after {offset} ms");
        }
    }
}

#[test]
fn f3_killed_between_commit_and_telling_is_told_by_the_next_owner() {
    let untold = (0..120).filter(|offset| {
        let world = killed_at(*offset, false);
        let truth = world.truths.timers.values().next().expect("a timer");
        // Completed by the first owner, told by the next one.
        truth.completed[0] < truth.called + 21_000 && truth.told[0].0 > truth.called + 21_000
    });
    assert!(untold.count() > 0);
}

/// Longest delay of a timer by the loss of its machine, over many times of the loss.
fn worst_delay(has_bell: bool) -> u64 {
    let mut worst = 0;
    for total in [500, 4_000, 14_000, 16_000, 40_000] {
        for loss in (100..total + 300).step_by(499) {
            let mut world = fleet(4);
            world.has_bell = has_bell;
            world.make(0, total);
            world.run(loss);
            let lost_at = world.time;
            world.power_off(0);
            rest(&mut world, 0);
            worst = worst.max(world.truths.latest(lost_at));
        }
    }
    worst
}

#[test]
fn f4_power_loss_of_one_machine_delays_a_timer_by_5_s_at_most() {
    let worst = worst_delay(true);
    println!("at most {worst} ms late");
    assert!(worst <= 5_000, "{worst} ms");
}

#[test]
fn f49_without_notifications_the_next_look_finds_a_fast_machine() {
    let worst = worst_delay(false);
    println!("at most {worst} ms late");
    assert!(worst <= 10_000, "{worst} ms");
}

#[test]
fn f6_database_killed_at_commit_loses_and_doubles_nothing() {
    let mut unknown = 0;
    for offset in 0..60 {
        let mut world = fleet(2);
        world.make(0, 5_000);
        world.run(4_990 + offset);
        world.crash_database();
        world.run(2_000);
        world.start_database();
        rest(&mut world, 0);
        assert_eq!(
            told(&world),
            (1, 1),
            "{offset} {:?} {:?}",
            world.truths.timers,
            world.effects
        );
        unknown += world.counted("unknown");
    }
    assert!(unknown > 10, "{unknown}");
}

#[test]
fn f8_synchronous_failover_loses_and_doubles_nothing() {
    for offset in 0..60 {
        let mut world = fleet(2);
        world.make(0, 5_000);
        world.make(1, 30_000);
        world.run(4_990 + offset);
        world.crash_database();
        world.database.timeline += 1;
        world.run(3_000);
        world.start_database();
        rest(&mut world, 0);
        assert_eq!(told(&world).0, 2, "{offset} {:?}", world.truths.timers);
    }
}

#[test]
fn f9_lost_commits_are_written_again_while_their_owner_lives() {
    let mut world = fleet(3);
    for _ in 0..5 {
        world.make(0, 2_000);
        world.make(1, 60_000);
        world.run(1_000);
    }
    world.run(1_500);
    let before = world.database.rows.timers.len();
    world.promote(6);
    assert!(
        world.database.rows.timers.len() < before,
        "the replica has everything"
    );
    rest(&mut world, 0);
    assert_eq!(world.database.rows.timers.len(), before);
    assert_eq!(told(&world).0, 10);
}

#[test]
fn f10_completions_lost_with_their_owner_are_told_again_and_marked() {
    let mut world = fleet(3);
    world.make(0, 10_000);
    world.run(10_200);
    assert_eq!(told(&world), (1, 1));
    world.power_off(0);
    world.promote(3);
    rest(&mut world, 0);
    assert_eq!(told(&world), (2, 1));
}

#[test]
fn f11_a_lost_adoption_leaves_one_owner() {
    for behind in 0..12 {
        let mut world = fleet(3);
        world.make(0, 30_000);
        world.run(1_000);
        world.power_off(0);
        world.run(25_000);
        assert!(world.counted("adopted") > 0);
        world.promote(behind);
        rest(&mut world, 0);
        assert_eq!(told(&world).0, 1);
    }
}

#[test]
fn f13_restored_backup_is_filled_up_by_living_owners() {
    let mut world = fleet(3);
    world.run(60_000);
    for place in 0..3 {
        world.make(place, 3_000);
        world.make(place, 100_000);
    }
    world.run(50_000);
    world.promote(60);
    assert_eq!(world.database.rows.timers.len(), 0);
    rest(&mut world, 0);
    assert_eq!(world.database.rows.timers.len(), 6);
    assert_eq!(told(&world).0, 6);
}

#[test]
fn f15_machine_cut_from_the_database_is_adopted_and_gets_its_shard_back() {
    let mut world = fleet(3);
    world.make(0, 30_000);
    world.run(5_000);
    world.machines[0].link = CUT;
    world.run(40_000);
    assert_ne!(owner(&world, 0), Some(0));
    assert_eq!(told(&world), (1, 1));
    world.machines[0].link = FINE;
    rest(&mut world, 0);
    assert_eq!(owner(&world, 0), Some(0));
    assert_eq!(told(&world), (1, 1));
}

#[test]
fn f16_answers_that_do_not_arrive_double_nothing() {
    for silence in [3_000, 8_000, 30_000] {
        let mut world = fleet(3);
        world.make(0, 5_000);
        world.run(4_900);
        world.machines[0].link = NO_ANSWERS;
        world.run(silence);
        world.machines[0].link = FINE;
        rest(&mut world, 0);
        assert!(world.counted("unknown") > 0);
        let (all, first) = told(&world);
        assert!(first <= 1 && all <= 2, "{all} {first}");
    }
}

#[test]
fn f18_nobody_is_dead_while_the_database_is_away() {
    for outage in [2_000, 4_000, 14_000, 120_000] {
        let mut world = fleet(4);
        world.make(0, 30_000);
        world.make(1, 5_000);
        world.run(1_000);
        world.crash_database();
        world.run(outage);
        world.start_database();
        world.run(30_000);
        assert_eq!(world.counted("found dead"), 0, "after {outage} ms");
        rest(&mut world, 0);
        assert_eq!(told(&world), (2, 2));
    }
}

#[test]
fn f19_half_of_the_fleet_cut_off_is_adopted_by_the_other_half() {
    let mut world = fleet(6);
    for place in 0..6 {
        world.make(place, 40_000);
    }
    world.run(2_000);
    for place in 0..3 {
        world.machines[place].link = CUT;
    }
    world.run(60_000);
    assert_eq!(told(&world), (6, 6));
    rest(&mut world, 0);
    assert_eq!(told(&world), (6, 6));
}

#[test]
fn f20_flapping_network_causes_one_adoption() {
    let mut world = fleet(3);
    world.make(0, 20_000);
    for _ in 0..6 {
        world.machines[0].link = CUT;
        world.run(16_000);
        world.machines[0].link = FINE;
        world.run(20_000);
    }
    assert_eq!(world.counted("adopted"), 1);
    rest(&mut world, 0);
}

#[test]
fn f21_daemon_stopped_for_10_s_writes_nothing_late() {
    for offset in (0..200).step_by(7) {
        let mut world = fleet(3);
        world.make(0, 10_000);
        world.run(9_900 + offset);
        world.pause(0, Pause::Process);
        world.run(10_000);
        world.resume(0);
        rest(&mut world, 0);
        let (all, first) = told(&world);
        assert!(first <= 1 && all <= 2, "{all} {first}");
    }
}

#[test]
fn f21_machine_that_was_paused_has_its_shard_back_at_once_and_beats_fast() {
    for pause in [Pause::Process, Pause::Machine] {
        for offset in (0..6_000).step_by(93) {
            let mut world = fleet(3);
            world.make(0, 20_000);
            world.run(offset);
            world.pause(0, pause);
            world.run(40_000);
            assert_ne!(owner(&world, 0), Some(0), "{pause:?} at {offset}");
            world.resume(0);
            world.run(12_000);
            assert_eq!(owner(&world, 0), Some(0), "{pause:?} at {offset}");
            let daemon = world.machines[0].daemon.as_ref().expect("a daemon");
            assert!(daemon.member.may_beat_fast(world.boot(0)));
            world.make(0, 10_000);
            rest(&mut world, 0);
            assert_eq!(told(&world), (2, 2), "{pause:?} at {offset}");
        }
    }
}

#[test]
fn f22_paused_virtual_machine_takes_the_time_of_the_others() {
    let mut world = fleet(3);
    world.pause(0, Pause::Machine);
    world.run(3_600_000);
    world.resume(0);
    world.make(0, 10_000);
    world.run(90_000);
    let behind = |place: Place| {
        let clock = world.machines[place]
            .daemon
            .as_ref()
            .map(|d| d.member.clock());
        world.time
            - clock
                .and_then(|clock| clock.now(world.boot(place)))
                .expect("a time")
                .0
    };
    assert!(behind(0) < 1_000, "{} ms behind", behind(0));
    rest(&mut world, 0);
}

#[test]
fn f23_live_migration_of_two_seconds_changes_nothing() {
    let mut world = fleet(3);
    world.make(0, 60_000);
    world.pause(0, Pause::Machine);
    world.run(2_000);
    world.resume(0);
    rest(&mut world, 0);
    assert_eq!(world.counted("adopted"), 0);
    assert_eq!(world.counted("new identity"), 0);
}

/// Leap of the database clock: nothing is early, nothing is late, and fleet time is corrected.
fn leap(by: i64) {
    let mut world = fleet(3);
    for place in 0..3 {
        world.make(place, 30_000);
        world.make(place, 1_000);
    }
    world.run(500);
    world.leap(by);
    world.run(20_000);
    let wrong = world.database.clock_off - world.database.rows.fleet.clock_ahead;
    assert!(wrong.abs() < 1_000, "off by {wrong} ms");
    world.make(0, 5_000);
    rest(&mut world, 0);
    assert!(
        world.truths.latest(0) < 1_000,
        "{} ms late",
        world.truths.latest(0)
    );
    assert_eq!(world.counted("found dead"), 0);
}

#[test]
fn f25_database_clock_that_leaps_forward_is_corrected() {
    leap(300_000);
    leap(31_536_000_000);
}

#[test]
fn f26_database_clock_that_leaps_back_is_corrected() {
    leap(-300_000);
    leap(-31_536_000_000);
}

#[test]
fn f27_boot_clock_that_stands_still_or_leaps_follows_the_others() {
    for by in [-7_000, 7_000] {
        let mut world = fleet(3);
        world.boot_clock_leaps(0, by);
        world.run(40_000);
        let clock = world.machines[0]
            .daemon
            .as_ref()
            .map(|daemon| daemon.member.clock());
        let time = clock
            .and_then(|clock| clock.now(world.boot(0)))
            .expect("a time");
        assert!(
            world.time.abs_diff(time.0) < 1_000,
            "off by {}",
            world.time.abs_diff(time.0)
        );
        world.make(0, 5_000);
        rest(&mut world, 0);
    }
}

#[test]
fn f28_clone_takes_a_new_identity_and_the_original_goes_on() {
    let mut world = fleet(3);
    let id = world.machines[0].id;
    world.make(0, 30_000);
    let clone = world.clone_machine(0);
    rest(&mut world, 0);
    assert_eq!(world.machines[0].id, id);
    assert_ne!(world.machines[clone].id, id);
    assert_eq!(told(&world), (1, 1));
}

#[test]
fn f29_state_folder_without_a_lock_started_twice_is_a_clone() {
    let mut world = fleet(2);
    let id = world.machines[0].id;
    let second = world.add(MachineId(1));
    world.kill(second);
    world.machines[second].id = id;
    world.machines[second].boot = world.machines[0].boot;
    world.machines[second].is_locked = false;
    world.start(second);
    rest(&mut world, 0);
    assert_eq!(world.machines[0].id, id);
    assert_ne!(world.machines[second].id, id);
}

#[test]
fn f30_lost_state_folder_makes_a_new_machine() {
    let mut world = fleet(3);
    let old = world.machines[0].id;
    world.make(0, 30_000);
    world.run(1_000);
    world.kill(0);
    world.machines[0].id = MachineId(5);
    world.power_on(0);
    rest(&mut world, 0);
    assert_eq!(told(&world), (1, 1));
    assert_ne!(world.database.rows.shards[&ShardId(old)].owner, old);
}

#[test]
fn f31_daemon_that_is_too_old_does_not_join() {
    let mut world = World::new(3, 0, None);
    world.database.rows.fleet.oldest_writer = Version(0, 2, 0);
    world.add(MachineId(1));
    world.run(60_000);
    assert_eq!(world.counted("cannot join"), 1);
    assert!(world.database.rows.machines.is_empty());
}

#[test]
fn f34_daemon_killed_in_a_hand_back_leaves_one_owner() {
    for killed in [1, 2] {
        for offset in (0..400).step_by(20) {
            let mut world = fleet(3);
            world.make(0, 60_000);
            world.run(1_000);
            world.power_off(0);
            world.run(30_000);
            world.power_on(0);
            world.run(12_800 + offset);
            world.kill(killed);
            world.run(100);
            world.start(killed);
            rest(&mut world, 0);
            assert_eq!(told(&world), (1, 1));
        }
    }
}

#[test]
fn f35_adopter_that_dies_while_loading_is_adopted_with_both_shards() {
    let mut world = fleet(3);
    world.make(0, 20_000);
    world.run(1_000);
    world.power_off(0);
    while world.counted("adopted") == 0 {
        world.run(1);
    }
    let adopter = owner(&world, 0).expect("an owner");
    world.power_off(adopter);
    rest(&mut world, 0);
    assert_eq!(told(&world), (1, 1));
    let left = (0..3).find(|place| world.machines[*place].daemon.is_some());
    assert_eq!(owner(&world, 0), left);
    assert_eq!(owner(&world, adopter), left);
}

#[test]
fn f36_neighbours_lost_together_delay_a_timer_by_20_s_at_most() {
    let mut worst = 0;
    for lost in 2..6 {
        for phase in 0..10 {
            let mut world = fleet(6);
            world.run(phase * 510);
            let mut ring: Vec<Place> = (0..6).collect();
            ring.sort_by_key(|place| world.machines[*place].id);
            for place in &ring[..lost] {
                world.make(*place, 2_000 + phase * 3_000);
            }
            world.run(1_000);
            let lost_at = world.time;
            for place in &ring[..lost] {
                world.power_off(*place);
            }
            rest(&mut world, 0);
            worst = worst.max(world.truths.latest(lost_at));
        }
    }
    println!("at most {worst} ms late");
    assert!(worst <= 20_000, "{worst} ms");
}

#[test]
fn f37_of_two_adopters_one_wins() {
    for seed in 0..40 {
        let mut world = World::new(seed, 3, None);
        world.run(20_000);
        world.make(0, 10_000);
        // All three look fast, so both others find it at the same time.
        world.make(1, 20_000);
        world.make(2, 20_000);
        world.run(1_000);
        world.power_off(0);
        world.run(30_000);
        assert_eq!(world.counted("adopted"), 1);
        check_owners(&world);
    }
}

#[test]
fn f47_slow_database_kills_nobody() {
    let mut world = fleet(4);
    world.batch_time = 4_500;
    for place in 0..4 {
        world.machines[place].link.delay = 2_300;
        world.make(place, 10_000);
    }
    world.run(300_000);
    assert_eq!(world.counted("found dead"), 0);
    world.batch_time = 0;
    rest(&mut world, 0);
}

#[test]
fn f65_many_timers_of_a_dead_machine_complete_in_bounded_batches() {
    let mut world = fleet(2);
    for _ in 0..400 {
        world.make(0, 10_000);
    }
    world.run(5_000);
    world.power_off(0);
    rest(&mut world, 0);
    assert_eq!(told(&world), (400, 400));
}

#[test]
fn f67_forgotten_machine_is_adopted_at_once_and_takes_a_new_identity() {
    let mut world = fleet(3);
    let old = world.machines[0].id;
    world.make(0, 60_000);
    world.run(1_000);
    let row = world.database.rows.machines.get_mut(&old).expect("a row");
    row.standing = Standing::Forgotten;
    world.run(7_000);
    assert_ne!(world.machines[0].id, old);
    assert_ne!(world.database.rows.shards[&ShardId(old)].owner, old);
    rest(&mut world, 0);
    assert_eq!(told(&world), (1, 1));
}

#[test]
fn machine_that_leaves_is_adopted_without_waiting_for_silence() {
    let mut world = fleet(3);
    world.make(0, 60_000);
    world.run(1_000);
    world.step(0, Event::Leave);
    world.run(6_000);
    assert_ne!(owner(&world, 0), Some(0));
    world.kill(0);
    rest(&mut world, 0);
    assert_eq!(told(&world), (1, 1));
    assert_eq!(world.counted("found dead"), 0);
}

#[test]
fn idle_daemon_sends_one_statement_every_5_s() {
    let mut world = fleet(5);
    let before: Vec<u64> = world.machines.iter().map(|machine| machine.sent).collect();
    world.run(250_000);
    for (machine, before) in world.machines.iter().zip(before) {
        let sent = machine.sent - before;
        assert!((49..=51).contains(&sent), "{sent} in 250 s");
    }
}

#[test]
fn f62_revoked_machine_is_expelled_and_its_shard_adopted() {
    let mut world = fleet(3);
    let id = world.machines[0].id;
    world.make(0, 60_000);
    world.run(1_000);
    let row = world.database.rows.machines.get_mut(&id).expect("a row");
    row.standing = Standing::Revoked;
    world.run(12_000);
    assert_eq!(world.counted("expelled"), 1);
    assert_ne!(owner(&world, 0), Some(0));
    world.kill(0);
    rest(&mut world, 0);
    assert_eq!(told(&world), (1, 1));
}
