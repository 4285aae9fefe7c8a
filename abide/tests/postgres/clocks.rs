//! Wall clocks of machines that are wrong, or that are set while a timer is being made.

use harness::postgres::Server;
use harness::{Abide, look_for, receive};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::common::calendar::Calendar;
use super::fleet::{joined, make_due, messages_about, named, over, owner_of};
use super::proxy::{Mode, Proxy};
use super::{at, harness, made, made_at_last, make, mission, on, refused, server, stored};

const YEAR: i64 = 31_536_000;

/// Time since some point in the past, in milliseconds, on a clock that is not set.
fn monotonic() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}

/// Completion of a timer of another machine: once, not before its time, and not late by the difference of two clocks.
fn completed_in_time(server: &Server, id: &str, made_at: i64, total: i64) {
    let (status, _, late) = over(server, id);
    assert_eq!(status, "completed");
    assert!(monotonic() - made_at >= total, "early");
    assert!((0..120_000).contains(&late), "{late} ms late");
    assert_eq!(messages_about(server, id), "1");
}

#[test]
fn f24_wall_clocks_that_are_minutes_and_years_apart_move_no_timer() {
    let server = Server::start();
    let offsets = [
        ("one", 300),
        ("two", -300),
        ("three", YEAR),
        ("four", -YEAR),
    ];
    let machines = offsets.map(|(name, ahead)| {
        let abide = named(&server, name);
        let calendar = Calendar::ahead_by(&abide, ahead);
        joined(&server, name);
        (name, abide, calendar)
    });
    if machines.iter().any(|(_, _, calendar)| calendar.is_none()) {
        return;
    }
    for (name, abide, _) in &machines {
        // A call that waits for its timer is answered at the right time.
        let begun = monotonic();
        let wait = json!({"total_duration": 1, "reason": "waits"});
        let waited = look_for("a timer that can be made", || {
            let answer = abide.try_post("/v1/tools/timer", &wait)?;
            (answer.body["status"] == "completed").then_some(answer)
        });
        assert!(monotonic() - begun >= 1_000, "early on {name}");
        assert_eq!(waited.body["elapsed_time"], 1.0, "{}", waited.body);
    }
    // Machines whose clocks are two years apart take over each other's timers.
    for (name, lost, _) in [&machines[2], &machines[3]] {
        let made_at = monotonic();
        let id = make_due(lost, 3.0, None);
        lost.kill_daemon();
        completed_in_time(&server, &id, made_at, 3_000);
        assert_ne!(owner_of(&server, name), *name);
    }
    let alive = "SELECT count(*) FROM abide.shard AS s JOIN abide.machine AS m ON m.id = s.owner \
                 WHERE m.name IN ('one', 'two')";
    assert_eq!(server.sql(alive), "4");
}

#[test]
fn timer_is_refused_while_the_time_of_the_database_differs() {
    let mut abide = on(Server::start());
    abide.start();
    let mut known = vec![made_at_last(&abide, "before")];
    let sentence = look_for("a refusal", || {
        // The membership corrects the row within some seconds.
        let ahead = "UPDATE abide.fleet SET clock_ahead_ms = clock_ahead_ms - 60000";
        server(&mut abide).sql(ahead);
        let answer = make(&abide, "meanwhile");
        if answer.status != 200 {
            return Some(refused(&answer));
        }
        known.push(made(&answer));
        None
    });
    assert!(
        sentence.contains("clock of the database differs"),
        "{sentence}"
    );
    known.push(made_at_last(&abide, "after"));
    known.sort();
    assert_eq!(stored(server(&mut abide)), known);
}

fn remaining(abide: &Abide, id: &str) -> f64 {
    let read = json!({"timer_id": id});
    let read = abide.post("/v1/tools/read_timer", &read);
    read.body["remaining_time"].as_f64().expect("seconds")
}

#[test]
fn f69_wall_clock_that_is_set_while_a_timer_is_being_made_moves_no_timer() {
    let server = Server::start();
    let proxy = Proxy::to(server.socket());
    let abide = at(&proxy.url());
    let Some(calendar) = Calendar::ahead_by(&abide, 0) else {
        return;
    };
    let mut known = vec![made_at_last(&abide, "before")];
    for ahead in [YEAR, -YEAR, 300, -300] {
        let text = format!("made while the clock is set to {ahead}");
        proxy.set(Mode::Hold);
        let begun = abide.begin("/v1/timers", &mission(&text));
        proxy.wait_for_held(&text);
        calendar.set(&abide, ahead);
        proxy.set(Mode::Pass);
        known.push(made(&receive(begun).expect("an answer")));
        let wait = json!({"total_duration": 0.05, "reason": "now"});
        let waited = abide.post("/v1/tools/timer", &wait);
        assert_eq!(waited.body["status"], "completed", "{}", waited.body);
        for id in &known {
            let left = remaining(&abide, id);
            assert!((3_000.0..=3_600.0).contains(&left), "{ahead}: {left}");
        }
    }
}

#[test]
fn f24_row_that_is_old_only_by_the_clock_of_its_machine_is_not_removed() {
    let abide = on(Server::start());
    abide.start();
    let ended = ["by a wrong clock", "a year ago", "newest"].map(|text| {
        let id = made(&make(&abide, text));
        let stop = json!({"timer_id": id});
        assert_eq!(abide.post("/v1/tools/stop_timer", &stop).status, 200);
        id
    });
    abide.kill_daemon();
    let server = abide.server.as_ref().expect("a server");
    // Another machine, whose calendar was a year behind, has ended the first one while this one was away.
    let year = YEAR * 1_000;
    let [wrong, old, _] = &ended;
    server.sql(&format!(
        "UPDATE abide.timer SET ended_ms = ended_ms - {year} WHERE id IN ('{wrong}', '{old}'); \
         UPDATE abide.timer SET over_ms = over_ms - {year} WHERE id = '{old}'"
    ));
    abide.start();
    look_for("the removal of an old timer", || {
        (!stored(server).contains(old)).then_some(())
    });
    assert!(stored(server).contains(wrong));
}
