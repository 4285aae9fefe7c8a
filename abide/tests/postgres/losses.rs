//! Machines that are lost, stopped or cut off while others go on, with real processes. What must hold is in
//! [`completed_once`].

use crate::common::process::Process;
use harness::postgres::Server;
use harness::{Abide, look_for, receive};
use rustix::process::Signal;
use serde_json::json;

use super::fleet::{joined, machine, make_due, messages_about, over, owner_of};
use super::proxy::{Mode, Proxy};
use super::{at, commands_run, harness, made, made_at_last, make, stored};

/// Losses of [`f4_each_of_some_losses_delays_a_timer_and_doubles_nothing`]; `ABIDE_LOSSES` sets the number.
const LOSSES: usize = 1;

/// Waits for the end of a timer, which must be one completion with one message.
fn completed_once(server: &Server, id: &str) {
    assert_eq!(over(server, id).0, "completed");
    assert_eq!(messages_about(server, id), "1");
}

#[test]
fn f4_timer_that_is_due_soon_is_stored_together_with_the_fast_pace() {
    let server = Server::start();
    let (one, _two) = (machine(&server, "one"), machine(&server, "two"));
    look_for("the other machine", || {
        let known = one.get("/v1/machines");
        (known["machines"].as_array()?.len() == 2).then_some(())
    });
    // No heartbeat is written from now on.
    server.sql(
        "CREATE FUNCTION silence() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'silent'; END $$; \
         CREATE TRIGGER silence BEFORE UPDATE ON abide.machine FOR EACH ROW \
         WHEN (NEW.name = 'one' AND NEW.heartbeat <> OLD.heartbeat) EXECUTE FUNCTION silence()",
    );
    let pace = "SELECT pace FROM abide.machine WHERE name = 'one'";
    assert_eq!(server.sql(pace), "slow");
    made(&make(&one, "later"));
    assert_eq!(server.sql(pace), "slow");
    let id = make_due(&one, 3.0, None);
    assert_eq!(server.sql(pace), "fast");
    one.kill_daemon();
    completed_once(&server, &id);
    assert_eq!(owner_of(&server, "one"), "two");
}

#[test]
fn f21_machine_that_is_stopped_past_its_death_and_goes_on_completes_nothing_twice() {
    let server = Server::start();
    // A machine that was cut off would wait for an hour.
    let one = back_after(&server.url(), "one", 3_600);
    let _two = machine(&server, "two");
    let id = make_due(&one, 3.0, None);
    let daemon = Process::on(one.pid());
    daemon.send(Signal::STOP);
    completed_once(&server, &id);
    assert_eq!(owner_of(&server, "one"), "two");
    daemon.send(Signal::CONT);
    // Its own timer was due long ago: it must not tell it once more.
    let next = made_at_last(&one, "after the stop");
    joined(&server, "one");
    assert_eq!(owner_of(&server, "one"), "one");
    assert_eq!(messages_about(&server, &id), "1");
    assert_eq!(messages_about(&server, &next), "0");
    commands_run(&one);
}

#[test]
fn f15_timer_of_a_machine_without_the_database_completes_once() {
    timer_of_a_cut_machine_completes_once(Mode::Cut);
}

#[test]
fn f16_timer_of_a_machine_that_hears_no_answers_completes_once() {
    timer_of_a_cut_machine_completes_once(Mode::DropAnswers);
}

/// Daemon with this name at this address, started. It asks for its timers this many seconds after it was cut off.
fn back_after(url: &str, name: &str, seconds: u32) -> Abide {
    let abide = at(url);
    let config =
        format!("store = {url:?}\nmachine = {name:?}\n[fleet]\nreturn_after = {seconds}\n");
    std::fs::write(abide.path("config.toml"), config).expect("a configuration");
    abide.start();
    abide
}

fn timer_of_a_cut_machine_completes_once(mode: Mode) {
    let server = Server::start();
    let proxy = Proxy::to(server.socket());
    let one = back_after(&proxy.url(), "one", 1);
    joined(&server, "one");
    let _two = machine(&server, "two");
    let id = make_due(&one, 3.0, None);
    proxy.set(mode);
    // A machine whose requests arrive may complete it itself, without learning that.
    completed_once(&server, &id);
    commands_run(&one);
    proxy.set(Mode::Pass);
    made_at_last(&one, "connected again");
    joined(&server, "one");
    assert_eq!(messages_about(&server, &id), "1");
}

#[test]
fn f15_call_that_stands_by_is_told_that_another_machine_has_completed_its_timer() {
    let server = Server::start();
    let proxy = Proxy::to(server.socket());
    let one = back_after(&proxy.url(), "one", 1);
    joined(&server, "one");
    let _two = machine(&server, "two");
    let wait = json!({"total_duration": 3, "reason": "due soon"});
    let begun = one.begin("/v1/tools/timer", &wait);
    let id = look_for("the timer", || {
        Some(server.sql("SELECT id FROM abide.timer")).filter(|id| !id.is_empty())
    });
    proxy.set(Mode::Cut);
    assert_eq!(over(&server, &id).0, "completed");
    proxy.set(Mode::Pass);
    let told = receive(begun).expect("an answer");
    assert_eq!(told.body["status"], "completed", "{}", told.body);
}

#[test]
fn f20_machine_that_was_cut_off_says_why_it_makes_no_timers() {
    let server = Server::start();
    let proxy = Proxy::to(server.socket());
    let one = back_after(&proxy.url(), "one", 3_600);
    joined(&server, "one");
    let _two = machine(&server, "two");
    let id = make_due(&one, 3.0, None);
    proxy.set(Mode::Cut);
    completed_once(&server, &id);
    proxy.set(Mode::Pass);
    look_for("the reason", || {
        let refused = make(&one, "too soon").body;
        let why = refused["detail"].as_str()?;
        why.contains("was cut off, so machine two has its timers")
            .then_some(())
    });
}

#[test]
fn f34_machine_killed_while_it_asks_for_its_shard_leaves_one_owner() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let soon = make_due(&one, 2.0, None);
    let later = make_due(&one, 60.0, None);
    one.kill_daemon();
    completed_once(&server, &soon);
    for _ in 0..3 {
        one.start();
        one.kill_daemon();
    }
    one.start();
    joined(&server, "one");
    let stop = serde_json::json!({"timer_id": later, "reason": "known here"});
    look_for("a timer that can be stopped", || {
        let stopped = one.try_post("/v1/tools/stop_timer", &stop)?;
        (stopped.status == 200 && stopped.body["status"] == "stopped").then_some(())
    });
    assert_eq!(messages_about(&server, &soon), "1");
    made_at_last(&two, "as before");
}

#[test]
fn f4_each_of_some_losses_delays_a_timer_and_doubles_nothing() {
    let losses = std::env::var("ABIDE_LOSSES").ok();
    let losses = losses.map_or(LOSSES, |losses| losses.parse().expect("a number"));
    let server = Server::start();
    let machines: [Abide; 3] = ["one", "two", "three"].map(|name| machine(&server, name));
    for loss in 0..losses {
        let lost = &machines[loss % machines.len()];
        let ids: Vec<String> = (0..3).map(|_| make_due(lost, 1.5, None)).collect();
        lost.kill_daemon();
        for id in &ids {
            completed_once(&server, id);
        }
        lost.start();
        joined(&server, ["one", "two", "three"][loss % machines.len()]);
        made_at_last(lost, "back");
    }
    let early = "SELECT count(*) FROM abide.timer WHERE ended_ms < created_ms + total_ms";
    assert_eq!(server.sql(early), "0");
    let twice = "SELECT count(*) FROM (SELECT about FROM abide.message GROUP BY about HAVING count(*) > 1) AS twice";
    assert_eq!(server.sql(twice), "0");
}

#[test]
fn f12_timers_of_a_second_primary_are_written_to_the_one_that_stays() {
    let mut old = Server::start();
    let new = old.standby();
    let (left, right) = (Proxy::to(old.socket()), Proxy::to(old.socket()));
    let one = back_after(&left.url(), "one", 1);
    let two = back_after(&right.url(), "two", 1);
    joined(&old, "one");
    joined(&old, "two");
    let mut known = vec![
        made_at_last(&one, "of one, before"),
        made_at_last(&two, "of two, before"),
    ];
    look_for("both timers on the standby", || {
        let out = new.try_sql("SELECT count(*) FROM abide.timer");
        (String::from_utf8_lossy(&out.stdout).trim() == "2").then_some(())
    });
    // Both servers accept writes from now on, and each machine uses another one.
    new.sql("SELECT pg_promote()");
    right.redirect(new.socket());
    for n in 0..5 {
        known.push(made(&make(&one, &format!("of one, {n}"))));
        known.push(made_at_last(&two, &format!("of two, {n}")));
    }
    assert!(stored(&old).len() < known.len() && stored(&new).len() < known.len());
    let both = [&old, &new].map(|server| server.path("").display().to_string().replace('/', "%2F"));
    let person = at(&format!(
        "postgres://postgres@{}/postgres?schema=abide",
        both.join(",")
    ));
    let said = String::from_utf8_lossy(&person.output(["doctor"]).stdout).into_owned();
    assert!(said.contains("2 hosts of `store` accept writes"), "{said}");
    old.kill();
    left.redirect(new.socket());
    known.push(made_at_last(&one, "of one, after"));
    known.push(made_at_last(&two, "of two, after"));
    known.sort();
    assert_eq!(stored(&new), known);
    joined(&new, "one");
    joined(&new, "two");
}

#[test]
fn f12_timer_that_completes_on_both_primaries_is_marked_on_the_new_one() {
    let old = Server::start();
    let new = old.standby();
    let (left, right) = (Proxy::to(old.socket()), Proxy::to(old.socket()));
    let one = back_after(&left.url(), "one", 1);
    let _two = back_after(&right.url(), "two", 1);
    joined(&old, "one");
    joined(&old, "two");
    let id = make_due(&one, 12.0, None);
    look_for("the timer on the standby", || {
        let out = new.try_sql("SELECT count(*) FROM abide.timer");
        (String::from_utf8_lossy(&out.stdout).trim() == "1").then_some(())
    });
    new.sql("SELECT pg_promote()");
    right.redirect(new.socket());
    look_for("a new timeline", || {
        let noticed = "SELECT count(*) FROM abide.fleet WHERE went_back_ms > 0";
        (new.sql(noticed) == "1").then_some(())
    });
    // Nothing that is lost can have told it, since it is due later.
    let later = "SELECT count(*) FROM abide.timer, abide.fleet WHERE due_ms > went_back_ms";
    assert_eq!(new.sql(later), "1");
    let marked = "SELECT count(*) FROM abide.message WHERE told_ms IS NOT NULL";
    for (server, marks) in [(&old, "0"), (&new, "1")] {
        completed_once(server, &id);
        assert_eq!(server.sql(marked), marks);
    }
    assert_eq!(owner_of(&new, "one"), "two");
}

#[test]
fn f10_message_of_an_adopted_timer_is_marked_after_the_database_has_lost_commits() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let id = make_due(&one, 3.0, None);
    // A failover was seen after the timer was due, as if its machine had told it in commits that are lost.
    server.sql("UPDATE abide.fleet SET went_back_ms = (SELECT max(due_ms) + 1 FROM abide.timer)");
    one.kill_daemon();
    assert_eq!(over(&server, &id).0, "completed");
    assert_eq!(owner_of(&server, "one"), "two");
    let told = "SELECT count(*) FROM abide.message WHERE told_ms IS NOT NULL AND seen_ms IS NULL";
    assert_eq!(server.sql(told), "1");
    drop(two);
}

#[test]
fn f13_machine_goes_on_with_a_backup_that_has_no_row_of_what_it_changed_last() {
    let mut primary = Server::start();
    let backup = primary.standby();
    let proxy = Proxy::to(primary.socket());
    let one = back_after(&proxy.url(), "one", 1);
    joined(&primary, "one");
    let kept = made_at_last(&one, "in the backup");
    look_for("the first timer in the backup", || {
        let out = backup.try_sql("SELECT id FROM abide.timer");
        (String::from_utf8_lossy(&out.stdout).trim() == kept).then_some(())
    });
    backup.sql("ALTER SYSTEM SET primary_conninfo = ''");
    backup.sql("SELECT pg_reload_conf()");
    look_for("a backup that follows no more", || {
        (backup.sql("SELECT count(*) FROM pg_stat_wal_receiver") == "0").then_some(())
    });
    let due = make_due(&one, 0.2, None);
    completed_once(&primary, &due);
    // The next daemon does not have the commit that wrote the message.
    one.kill_daemon();
    one.start();
    joined(&primary, "one");
    look_for("a message that is told", || {
        let body = serde_json::json!({});
        one.try_post("/v1/tools/read_messages", &body)?;
        let told = "SELECT count(*) FROM abide.message WHERE seen_ms IS NOT NULL";
        (primary.sql(told) == "1").then_some(())
    });
    primary.kill();
    backup.sql("SELECT pg_promote()");
    // As if the numbers had been reserved after the backup, too.
    backup.sql("UPDATE abide.fleet SET next_number = 0");
    proxy.redirect(backup.socket());
    let after = made_at_last(&one, "after");
    let mut known = [kept, after];
    known.sort();
    assert_eq!(stored(&backup), known);
    let numbers = "SELECT count(*) FROM abide.fleet WHERE next_number > (SELECT max(number) FROM abide.timer)";
    assert_eq!(backup.sql(numbers), "1");
}

#[test]
fn f13_numbers_that_a_backup_gives_to_a_second_machine_are_replaced() {
    let server = Server::start();
    let one = machine(&server, "one");
    let mut known = vec![made_at_last(&one, "of one, before")];
    server.sql("UPDATE abide.fleet SET next_number = 0");
    let two = machine(&server, "two");
    known.push(made_at_last(&two, "of two"));
    known.push(made(&make(&one, "of one, after")));
    known.push(made(&make(&two, "of two, after")));
    known.sort();
    assert_eq!(stored(&server), known);
}
