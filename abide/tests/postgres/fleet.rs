//! Several daemons, each with a state folder of its own, on one schema.

use harness::postgres::Server;
use harness::{Abide, look_for};
use serde_json::{Value, json};

use super::messages::tool;
use super::{commands_run, harness, made, made_at_last, make, mission, stored};

/// Daemon with this name, started and joined.
pub fn machine(server: &Server, name: &str) -> Abide {
    let abide = named(server, name);
    abide.start();
    joined(server, name);
    abide
}

/// Daemon with this name, not started yet.
pub fn named(server: &Server, name: &str) -> Abide {
    let abide = Abide::on(None);
    let config = format!("store = {:?}\nmachine = {name:?}\n", server.url());
    std::fs::write(abide.path("config.toml"), config).expect("a configuration");
    abide
}

/// Waits until a machine owns its shard.
pub fn joined(server: &Server, name: &str) {
    look_for("a machine that has joined", || {
        let sql = format!(
            "SELECT count(*) FROM abide.machine AS m JOIN abide.shard AS s ON s.id = m.id AND s.owner = m.id \
             WHERE m.name = '{name}' AND m.standing = 'member' AND s.claim IS NOT NULL"
        );
        (server.sql(&sql) == "1").then_some(())
    });
}

/// Makes a timer that is due after some seconds. Returns its id.
pub fn make_due(abide: &Abide, seconds: f64, until: Option<Value>) -> String {
    let mut body = json!({"total_duration": seconds, "mission": "due soon"});
    if let Some(until) = until {
        body["until"] = until;
    }
    look_for("a timer that can be made", || {
        let answer = abide.try_post("/v1/timers", &body)?;
        (answer.status == 200).then(|| made(&answer))
    })
}

/// Waits until a timer is over. Returns its status, its observation and its delay in milliseconds.
pub fn over(server: &Server, id: &str) -> (String, String, i64) {
    look_for("the end of a timer", || {
        let row = server.sql(&format!(
            "SELECT status, coalesce(seen, ''), late_ms FROM abide.timer WHERE id = '{id}' AND ended_ms IS NOT NULL"
        ));
        let mut fields = row.split('|');
        let status = fields.next().filter(|status| !status.is_empty())?;
        let seen = fields.next()?.to_owned();
        Some((status.to_owned(), seen, fields.next()?.parse().ok()?))
    })
}

/// Number of messages about a timer.
pub fn messages_about(server: &Server, id: &str) -> String {
    server.sql(&format!(
        "SELECT count(*) FROM abide.message WHERE about = '{id}'"
    ))
}

/// Name of the machine that owns the shard of another one.
pub fn owner_of(server: &Server, name: &str) -> String {
    server.sql(&format!(
        "SELECT o.name FROM abide.shard AS s JOIN abide.machine AS m ON m.id = s.id \
         JOIN abide.machine AS o ON o.id = s.owner WHERE m.name = '{name}'"
    ))
}

#[test]
fn f4_timer_of_a_killed_machine_completes_once_on_another() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let id = make_due(&one, 2.0, None);
    one.kill_daemon();
    let (status, _, _) = over(&server, &id);
    assert_eq!(status, "completed");
    assert_eq!(owner_of(&server, "one"), "two");
    assert_eq!(messages_about(&server, &id), "1");
    commands_run(&two);
    let read = two.get("/v1/messages");
    let told = read["messages"].as_array().expect("messages").iter();
    assert_eq!(
        told.filter(|m| m.to_string().contains(&id)).count(),
        1,
        "{read}"
    );
}

#[test]
fn machine_that_dies_after_a_commit_has_promised_fast_heartbeats_in_it() {
    let server = Server::start();
    let (two, one) = (machine(&server, "two"), named(&server, "one"));
    one.start_to_crash_at("timer.create.post");
    joined(&server, "one");
    let body = json!({"total_duration": 3.0, "mission": "due soon"});
    look_for("a daemon that dies", || {
        one.try_post("/v1/timers", &body).is_none().then_some(())
    });
    let pace = "SELECT pace FROM abide.machine WHERE name = 'one'";
    assert_eq!(server.sql(pace), "fast");
    let [id] = &stored(&server)[..] else {
        panic!("one timer");
    };
    assert_eq!(over(&server, id).0, "completed");
    assert_eq!(owner_of(&server, "one"), "two");
    drop(two);
}

#[test]
fn f5_conditional_timer_of_a_killed_machine_completes_by_time_and_says_that_nobody_looked() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let file = two.path("appears");
    let id = make_due(&one, 4.0, Some(json!({"file": file})));
    one.kill_daemon();
    // The condition holds on this machine too, but it was about the other one.
    std::fs::write(&file, "x").expect("a file");
    let (status, seen, _) = over(&server, &id);
    assert_eq!(status, "completed");
    assert!(seen.contains("nobody looked since"), "{seen}");
    assert!(seen.contains("machine one is away"), "{seen}");
    let by = server.sql(&format!(
        "SELECT completed_by FROM abide.timer WHERE id = '{id}'"
    ));
    assert_eq!(by, "time");
}

#[test]
fn machine_that_comes_back_gets_its_timers_back() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let id = made(&make(&one, "kept"));
    // A timer that is due soon makes the other machine look soon.
    make_due(&one, 1.0, None);
    one.kill_daemon();
    look_for("an adoption", || {
        (owner_of(&server, "one") == "two").then_some(())
    });
    one.start();
    joined(&server, "one");
    let listed = look_for("the timer at home", || {
        let listed = one.get("/v1/timers");
        listed.to_string().contains(&id).then_some(listed)
    });
    assert_eq!(listed["timers"][0]["timer_id"], json!(id), "{listed}");
    let stopped = look_for("a timer that can be stopped", || {
        let stop = json!({"timer_id": id, "reason": "back"});
        let answer = one.try_post("/v1/tools/stop_timer", &stop)?;
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(stopped.status, 200);
    made(&make(&two, "on the other machine"));
    assert_eq!(over_status(&server, &id), "stopped");
}

fn over_status(server: &Server, id: &str) -> String {
    server.sql(&format!("SELECT status FROM abide.timer WHERE id = '{id}'"))
}

#[test]
fn stopped_machine_hands_over_and_gets_back_its_timers() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let id = make_due(&one, 8.0, None);
    one.output(["stop"]);
    let (status, _, _) = over(&server, &id);
    assert_eq!(status, "completed");
    assert_eq!(messages_about(&server, &id), "1");
    one.start();
    joined(&server, "one");
    made_at_last(&one, "back");
    made_at_last(&two, "still here");
}

#[test]
fn timer_of_a_machine_that_has_left_is_loaded_before_the_shard_of_the_machine_that_starts() {
    let server = Server::start();
    let mut machines = [machine(&server, "one"), machine(&server, "two")];
    // Shards are claimed in the order of their ids.
    let first = "SELECT name FROM abide.machine ORDER BY id LIMIT 1";
    if server.sql(first) == "two" {
        machines.reverse();
    }
    let [lower, higher] = machines;
    higher.output(["stop"]);
    let id = make_due(&lower, 5.0, None);
    lower.output(["stop"]);
    higher.start();
    assert_eq!(over(&server, &id).0, "completed");
    assert_eq!(messages_about(&server, &id), "1");
}

#[test]
fn f28_machine_that_was_forgotten_makes_timers_under_a_new_id() {
    let server = Server::start();
    let one = machine(&server, "one");
    let id = make_due(&one, 10.0, None);
    server.sql("UPDATE abide.machine SET standing = 'forgotten'");
    look_for("a timer of the new id", || {
        // The daemon starts again with its new id, so a call may reach none.
        let answer = one.try_post("/v1/timers", &mission("under a new id"))?;
        (answer.status == 200).then_some(())?;
        let shards = "SELECT count(DISTINCT shard) FROM abide.timer";
        (server.sql(shards) == "2").then_some(())
    });
    // The timers of the former id go on, as those of any machine that is gone.
    assert_eq!(over(&server, &id).0, "completed");
    joined(&server, "one");
}

#[test]
fn two_machines_make_a_thousand_timers_each_without_a_collision() {
    const TIMERS: usize = 1_000;
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let missions: Vec<Value> = (0..TIMERS)
        .map(|n| json!({"total_duration": 3600, "mission": format!("{n}")}))
        .collect();
    let body = json!({"timers": missions});
    std::thread::scope(|scope| {
        for abide in [&one, &two] {
            let body = &body;
            scope.spawn(move || {
                look_for("timers that can be made", || {
                    let answer = abide.try_post("/v1/timers", body)?;
                    (answer.status == 200).then_some(())
                });
            });
        }
    });
    let ids = stored(&server);
    assert_eq!(ids.len(), 2 * TIMERS);
    let each = "SELECT count(*) FROM abide.timer GROUP BY shard";
    assert_eq!(server.sql(each), format!("{TIMERS}\n{TIMERS}"));
}

#[test]
fn f28_copied_state_folder_is_another_machine() {
    let server = Server::start();
    let one = machine(&server, "one");
    let id = made(&make(&one, "kept"));
    let copy = Abide::on(None);
    for file in ["machine", "fleet-time"] {
        std::fs::copy(one.path(file), copy.path(file)).expect("a copy");
    }
    let config = format!("store = {:?}\n", server.url());
    std::fs::write(copy.path("config.toml"), config).expect("a configuration");
    copy.start();
    let other = made_at_last(&copy, "by the copy");
    let mut known = [id, other];
    known.sort();
    assert_eq!(stored(&server), known);
    assert_eq!(server.sql("SELECT count(*) FROM abide.machine"), "2");
    made(&make(&one, "as before"));
}

#[test]
fn f37_one_of_three_machines_adopts_a_killed_one() {
    let server = Server::start();
    let machines = ["one", "two", "three"].map(|name| machine(&server, name));
    let ids: Vec<String> = (0..5).map(|_| make_due(&machines[0], 8.0, None)).collect();
    machines[0].kill_daemon();
    for id in &ids {
        assert_eq!(over(&server, id).0, "completed");
        assert_eq!(messages_about(&server, id), "1");
    }
    assert_ne!(owner_of(&server, "one"), "one");
}

#[test]
fn f18_nobody_is_declared_dead_while_the_database_is_away() {
    let mut server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let id = make_due(&one, 6.0, None);
    server.stop();
    commands_run(&one);
    commands_run(&two);
    server.resume();
    let (status, _, _) = over(&server, &id);
    assert_eq!(status, "completed");
    assert_eq!(owner_of(&server, "one"), "one");
    assert_eq!(messages_about(&server, &id), "1");
}

#[test]
fn idempotency_key_makes_one_timer_also_of_machines_without_links() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let once = "<total_duration>3600</total_duration><mission>once</mission><idempotency_key>k</idempotency_key>";
    let made_on = |abide: &Abide| tool(abide, "ann", "timer", once);
    let first = look_for("a timer that can be made", || {
        made_on(&one)["timer_id"].as_str().map(str::to_owned)
    });
    assert_eq!(made_on(&one)["timer_id"], json!(first));
    let refused = look_for("a refusal for its key", || {
        let refused = made_on(&two)["text"].to_string();
        refused.contains("idempotency key").then_some(refused)
    });
    assert!(refused.contains("on another machine"), "{refused}");
    assert_eq!(stored(&server), [first]);
    made_at_last(&two, "another one");
}

#[test]
fn f67_old_sessions_of_a_machine_that_was_removed_are_deleted() {
    let server = Server::start();
    let one = machine(&server, "one");
    one.output(["stop"]);
    let row = |id: u32, standing: &str, written: &str| {
        format!(
            "INSERT INTO abide.machine (id, name, labels, version, boot, claim, standing, heartbeat, pace, written) \
             VALUES ({id}, 'm{id}', '', '0.1.0', '7', 7, '{standing}', 1, 'slow', {written}); \
             INSERT INTO abide.session (machine, id, boot, agent, command, state, facts, as_of) \
             VALUES ({id}, 's', '7', 'a', 'true', 'running', '{{}}', 0)"
        )
    };
    let now = "(extract(epoch FROM now()) * 1000)::bigint";
    server.sql(&row(7, "forgotten", "0"));
    server.sql(&row(8, "forgotten", now));
    server.sql(&row(9, "left", "0"));
    one.start();
    look_for("rows that are deleted", || {
        let rows = "SELECT string_agg(machine::text, ' ' ORDER BY machine) FROM abide.session";
        (server.sql(rows) == "8 9").then_some(())
    });
}

#[test]
fn heartbeat_is_one_statement() {
    let server = Server::with_settings(&["log_statement=all"]);
    let _one = machine(&server, "one");
    let heartbeat = || server.sql("SELECT heartbeat FROM abide.machine");
    let before = heartbeat();
    look_for("another heartbeat", || {
        (heartbeat() != before).then_some(())
    });
    let log = server.log();
    let beats: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("SET heartbeat"))
        .collect();
    assert!(!beats.is_empty());
    for beat in beats {
        // The server logs a text of several statements as it came, and not as one that it executes.
        let is_one = beat.contains(" execute ") && beat.contains(": WITH beaten AS (UPDATE");
        assert!(is_one, "{beat}");
    }
}
