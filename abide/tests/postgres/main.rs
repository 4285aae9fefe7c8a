//! Faults of a PostgreSQL server under a real daemon. The prefix of a test name is the number of the fault in the list
//! of faults of fleets.

mod access;
mod clocks;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
mod fleet;
#[path = "../faults/harness.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod harness;
mod losses;
mod messages;
mod pooler;
#[expect(dead_code, reason = "each test program uses a part")]
mod proxy;
mod server_faults;

use std::path::Path;

use harness::postgres::Server;
use harness::{Abide, Answer, look_for, receive};
use proxy::{Mode, Proxy};
use serde_json::{Value, json};

/// Daemon on this server, not started yet.
fn on(server: Server) -> Abide {
    Abide::on(Some(server))
}

/// Daemon without a server of its own, on this address.
fn at(url: &str) -> Abide {
    let abide = Abide::on(None);
    let config = format!("store = {url:?}\n");
    std::fs::write(abide.path("config.toml"), config).expect("a configuration");
    abide
}

fn server(abide: &mut Abide) -> &mut Server {
    abide.server.as_mut().expect("a server")
}

fn mission(text: &str) -> Value {
    json!({"total_duration": 3600, "mission": text})
}

fn make(abide: &Abide, text: &str) -> Answer {
    abide.post("/v1/timers", &mission(text))
}

/// Id of a timer that must be made.
fn made(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body["timer_id"].as_str().expect("an id").to_owned()
}

/// Sentence of a refusal.
fn refused(answer: &Answer) -> String {
    assert_ne!(answer.status, 200, "{}", answer.body);
    answer.body["detail"]
        .as_str()
        .expect("a sentence")
        .to_owned()
}

/// Makes a timer, again and again until the database can be written.
fn made_at_last(abide: &Abide, text: &str) -> String {
    look_for("a timer that can be made", || {
        let answer = make(abide, text);
        (answer.status == 200).then(|| made(&answer))
    })
}

fn commands_run(abide: &Abide) {
    let answer = abide.post("/v1/tools/shell", &json!({"command": "echo works"}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(
        answer.body["text"].to_string().contains("works"),
        "{}",
        answer.body
    );
}

fn trouble(abide: &Abide) -> Option<String> {
    let status = abide.output(["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    status["database"]["trouble"].as_str().map(str::to_owned)
}

/// Ids of all timers in the database, in order.
fn stored(server: &Server) -> Vec<String> {
    let ids = server.sql("SELECT id FROM abide.timer ORDER BY id");
    ids.lines().map(str::to_owned).collect()
}

#[test]
fn timer_survives_a_restart_of_the_daemon() {
    let abide = on(Server::start());
    abide.start();
    let id = made(&make(&abide, "kept"));
    abide.kill_daemon();
    abide.start();
    let listed = abide.get("/v1/timers");
    assert_eq!(listed["timers"][0]["timer_id"], json!(id), "{listed}");
    assert_eq!(listed["total"], 1);
    assert_eq!(trouble(&abide), None);
    assert!(
        !Path::new(&abide.path("abide.db")).exists(),
        "there is no second store"
    );
    let doctor = abide.output(["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("PostgreSQL at"), "{doctor}");
}

#[test]
fn new_timer_is_one_statement_and_is_answered_without_a_read() {
    let abide = on(Server::with_settings(&["log_statement=all"]));
    abide.start();
    made_at_last(&abide, "first");
    let log = || abide.server.as_ref().expect("a server").log();
    let before = log().len();
    let mut keyed = mission("deploy the build");
    keyed["idempotency_key"] = json!("once");
    keyed["until"] = json!({"file": "/nonexistent"});
    let answer = abide.post("/v1/timers", &keyed);
    let log = log();
    let statements = log[before..].lines().filter(|line| line.contains(" LOG: "));
    let about_timers: Vec<_> = statements.filter(|line| line.contains("timer")).collect();
    assert_eq!(about_timers.len(), 1, "{about_timers:#?}");
    // The answer has what a read of the row would say.
    let id = made(&answer);
    let read = abide.get(&format!("/v1/timers/{id}"));
    let same = [
        "timer_type",
        "agent",
        "mission",
        "status",
        "total_duration",
        "created_at",
        "until",
        "standing_by",
        "timeout_duration",
    ];
    for field in same {
        assert_eq!(answer.body[field], read[field], "{field}: {read}");
    }
    // A repeated call is answered about the timer that exists.
    assert_eq!(made(&abide.post("/v1/timers", &keyed)), id);
}

#[test]
fn condition_of_a_row_without_a_valid_code_is_not_looked_at_and_ends_the_wait() {
    let abide = on(Server::start());
    abide.start();
    let (later, never) = (abide.path("later"), abide.path("never"));
    let command = format!("test -e {} && touch {}", later.display(), never.display());
    let until = json!({"command": command});
    let mut condition = mission("deploy");
    condition["until"] = until;
    let id = made(&abide.post("/v1/timers", &condition));
    abide.kill_daemon();
    let forged = "UPDATE abide.timer SET condition = replace(condition, 'later', 'config.toml')";
    abide.server.as_ref().expect("a server").sql(forged);
    abide.start();
    let timer = look_for("the end of the timer", || {
        let timer = abide.get(&format!("/v1/timers/{id}"));
        (timer["status"] == "completed").then_some(timer)
    });
    assert_eq!(timer["completed_by"], "impossible", "{timer}");
    let said = abide.post("/v1/tools/read_messages", &json!({})).body["text"].to_string();
    assert!(said.contains("no valid seal of this machine"), "{said}");
    assert!(!never.exists());
}

#[test]
fn missing_database_refuses_timers_until_it_is_there() {
    let mut abide = on(Server::start());
    server(&mut abide).stop();
    abide.start();
    commands_run(&abide);
    let sentence = refused(&make(&abide, "too early"));
    assert!(sentence.contains("the database at"), "{sentence}");
    assert!(sentence.contains("cannot be used"), "{sentence}");
    assert!(trouble(&abide).is_some_and(|said| said.contains("cannot be used")));
    let doctor = abide.output(["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("cannot be used"), "{doctor}");
    server(&mut abide).resume();
    let id = look_for("a timer that can be made", || {
        // The daemon starts again when the database is there, so a call may reach none.
        let answer = abide.try_post("/v1/timers", &mission("in time"))?;
        (answer.status == 200).then(|| made(&answer))
    });
    assert_eq!(stored(server(&mut abide)), [id]);
    assert_eq!(trouble(&abide), None);
}

#[test]
fn call_whose_daemon_starts_again_for_the_database_is_told_its_session() {
    let mut abide = on(Server::start());
    server(&mut abide).stop();
    abide.start();
    let begun = abide.begin("/v1/tools/shell", &json!({"command": "sleep 600"}));
    let id = abide.running();
    server(&mut abide).resume();
    let told = receive(begun).expect("an answer");
    assert_eq!(told.body["status"], "RUNNING", "{}", told.body);
    assert_eq!(told.body["session_id"], json!(id), "{}", told.body);
    look_for("the end of the session", || {
        let killed = abide.try_post(&format!("/v1/sessions/{id}/kill"), &json!({}))?;
        (killed.status == 200).then_some(())
    });
}

#[test]
fn f6_killed_server_loses_and_repeats_nothing() {
    const ROUNDS: usize = 5;
    let mut abide = on(Server::start());
    abide.start();
    let mut known = Vec::new();
    for round in 0..ROUNDS {
        let calls: Vec<_> = (0..20)
            .map(|n| abide.begin("/v1/timers", &mission(&format!("{round} {n}"))))
            .collect();
        server(&mut abide).kill();
        commands_run(&abide);
        server(&mut abide).resume();
        // A call is answered after its outcome is known: it was made, or there is nothing of it.
        for call in calls {
            let answer = receive(call).expect("an answer");
            if answer.status == 200 {
                known.push(made(&answer));
            }
        }
        known.push(made_at_last(&abide, "after"));
    }
    known.sort();
    assert_eq!(stored(server(&mut abide)), known);
    assert_eq!(abide.get("/v1/timers")["total"], json!(known.len()));
}

#[test]
fn f7_restarted_server_is_used_again() {
    let mut abide = on(Server::start());
    abide.start();
    let first = made(&make(&abide, "before"));
    server(&mut abide).stop();
    let sentence = look_for("a refusal", || {
        let answer = make(&abide, "meanwhile");
        (answer.status != 200).then(|| refused(&answer))
    });
    assert!(sentence.contains("cannot be reached since"), "{sentence}");
    commands_run(&abide);
    assert!(trouble(&abide).is_some_and(|said| said.contains("cannot be reached since")));
    let read = abide.post("/v1/tools/read_messages", &json!({}));
    let read = read.body["text"].to_string();
    assert!(
        read.contains("No messages can be read: the database at"),
        "{read}"
    );
    server(&mut abide).resume();
    let second = made_at_last(&abide, "after");
    assert_eq!(trouble(&abide), None);
    let mut known = [first, second];
    known.sort();
    assert_eq!(stored(server(&mut abide)), known);
}

#[test]
fn f9_commits_that_a_failover_lost_are_written_again() {
    let mut primary = Server::start();
    let mut standby = primary.standby();
    let proxy = Proxy::to(primary.socket());
    let abide = at(&proxy.url());
    abide.start();
    let mut known = vec![made(&make(&abide, "before"))];
    let first = known[0].clone();
    look_for("the first timer on the standby", || {
        let out = standby.try_sql("SELECT id FROM abide.timer");
        String::from_utf8_lossy(&out.stdout)
            .contains(&first)
            .then_some(())
    });
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    look_for("a standby that follows no more", || {
        (standby.sql("SELECT count(*) FROM pg_stat_wal_receiver") == "0").then_some(())
    });
    for n in 0..10 {
        known.push(made(&make(&abide, &format!("lost {n}"))));
    }
    let stop = json!({"timer_id": known[1], "reason": "enough"});
    let stopped = abide.post("/v1/tools/stop_timer", &stop);
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    primary.kill();
    standby.sql("SELECT pg_promote()");
    assert_eq!(stored(&standby).len(), 1, "the others are lost");
    proxy.redirect(standby.socket());
    known.push(made_at_last(&abide, "after"));
    known.sort();
    assert_eq!(stored(&standby), known);
    let status = "SELECT count(*) FROM abide.timer WHERE status = 'stopped'";
    assert_eq!(standby.sql(status), "1");
    drop(abide);
    standby.stop();
}

#[test]
fn f14_read_only_standby_is_not_used() {
    let primary = Server::start();
    let standby = primary.standby();
    let abide = at(&standby.url());
    abide.start();
    let sentence = refused(&make(&abide, "on a standby"));
    assert!(sentence.contains("cannot be used"), "{sentence}");
    commands_run(&abide);
}

#[test]
fn f16_commit_without_an_answer_is_settled() {
    commit_is_settled_after(Mode::DropAnswers);
}

#[test]
fn f48_commit_that_did_not_arrive_is_settled() {
    commit_is_settled_after(Mode::Silent);
}

fn commit_is_settled_after(mode: Mode) {
    let primary = Server::start();
    let proxy = Proxy::to(primary.socket());
    let abide = at(&proxy.url());
    abide.start();
    let first = made(&make(&abide, "before"));
    proxy.set(mode);
    let unknown = abide.begin("/v1/timers", &mission("unknown"));
    proxy.wait_for_swallowed();
    commands_run(&abide);
    // While it is not known what became of it, other timers are refused.
    let sentence = look_for("a refusal", || {
        let answer = make(&abide, "refused");
        (answer.status != 200).then(|| refused(&answer))
    });
    assert!(sentence.contains("cannot be reached since"), "{sentence}");
    proxy.set(Mode::Pass);
    let second = made(&receive(unknown).expect("an answer"));
    let mut known = [first, second];
    known.sort();
    assert_eq!(
        stored(&primary),
        known,
        "once, and nothing of the refused one"
    );
}

#[test]
fn f48_call_whose_outcome_stays_unknown_is_told_so_and_repeated_with_its_key() {
    let primary = Server::start();
    let proxy = Proxy::to(primary.socket());
    let abide = at(&proxy.url());
    abide.start();
    let first = made(&make(&abide, "before"));
    let keyed = json!({"total_duration": 3600, "mission": "once", "idempotency_key": "once"});
    proxy.set(Mode::DropAnswers);
    let unknown = abide.begin("/v1/timers", &keyed);
    // The database is not back before the call is answered.
    let unknown = receive(unknown).expect("an answer");
    assert_eq!(unknown.status, 504, "{}", unknown.body);
    assert_eq!(unknown.body["type"], "urn:abide:problem:outcome-unknown");
    assert!(refused(&unknown).contains("same `idempotency_key`"));
    proxy.set(Mode::Pass);
    let second = look_for("the timer of the key", || {
        let again = abide.try_post("/v1/timers", &keyed)?;
        (again.status == 200).then(|| made(&again))
    });
    let mut known = [first, second];
    known.sort();
    assert_eq!(stored(&primary), known);
}

/// A machine that has left has the shard: it cannot object, and the shard is claimed again.
const TAKEN_OVER: &str = "INSERT INTO abide.machine (id, name, labels, version, boot, claim, standing, heartbeat, pace, written) \
     VALUES (7, 'other', '', '0.1.0', '7', 7, 'left', 1, 'slow', 0); \
     UPDATE abide.fleet SET members = members + 1; \
     UPDATE abide.shard SET owner = 7, epoch = epoch + 1, claim = 7";

#[test]
fn f21_daemon_that_is_not_the_owner_writes_nothing() {
    let mut abide = on(Server::start());
    abide.start();
    let first = made(&make(&abide, "before"));
    server(&mut abide).sql(TAKEN_OVER);
    let sentence = refused(&make(&abide, "late"));
    assert!(sentence.contains("another machine"), "{sentence}");
    commands_run(&abide);
    let second = made_at_last(&abide, "later");
    let mut known = [first, second];
    known.sort();
    assert_eq!(stored(server(&mut abide)), known);
}

#[test]
fn f21_commit_that_another_machine_has_fenced_leaves_no_trouble_behind() {
    let primary = Server::start();
    let proxy = Proxy::to(primary.socket());
    let abide = at(&proxy.url());
    abide.start();
    let first = made(&make(&abide, "before"));
    proxy.set(Mode::Silent);
    let unknown = abide.begin("/v1/timers", &mission("unknown"));
    proxy.wait_for_swallowed();
    // It counts as alive until its heartbeat has stood still for some looks.
    primary.sql(&TAKEN_OVER.replace("'left'", "'member'"));
    proxy.set(Mode::Pass);
    let sentence = refused(&receive(unknown).expect("an answer"));
    assert!(sentence.contains("another machine"), "{sentence}");
    let second = made_at_last(&abide, "later");
    assert_eq!(trouble(&abide), None);
    let mut known = [first, second];
    known.sort();
    assert_eq!(stored(&primary), known);
}

#[test]
fn f21_timer_whose_row_is_of_another_shard_is_not_changed() {
    let mut abide = on(Server::start());
    abide.start();
    let ids = ["first", "second"].map(|text| made(&make(&abide, text)));
    let home = server(&mut abide).sql("SELECT id FROM abide.shard");
    server(&mut abide).sql(&format!(
        "UPDATE abide.timer SET shard = 7 WHERE id = '{}'",
        ids[0]
    ));
    let stop = |id: &str| json!({"timer_id": id, "reason": "enough"});
    let refused = abide.post("/v1/tools/stop_timer", &stop(&ids[0]));
    assert!(refused.body.to_string().contains("another machine"));
    let stopped = abide.post("/v1/tools/stop_timer", &stop(&ids[1]));
    assert_eq!(stopped.body["status"], "stopped", "{}", stopped.body);
    let ended = "SELECT id FROM abide.timer WHERE ended_ms IS NOT NULL";
    assert_eq!(server(&mut abide).sql(ended), ids[1]);
    server(&mut abide).sql(&format!("UPDATE abide.timer SET shard = {home}"));
    let stopped = abide.post("/v1/tools/stop_timer", &stop(&ids[0]));
    assert_eq!(stopped.body["status"], "stopped", "{}", stopped.body);
}

#[test]
fn f31_newer_schema_is_refused_and_left_alone() {
    let mut abide = on(Server::start());
    abide.start();
    let first = made(&make(&abide, "before"));
    abide.output(["stop"]);
    server(&mut abide).sql("UPDATE abide.fleet SET version = 999");
    abide.start();
    let sentence = refused(&make(&abide, "too new"));
    assert!(sentence.contains("newer abide"), "{sentence}");
    assert!(sentence.contains("version 999"), "{sentence}");
    commands_run(&abide);
    assert_eq!(stored(server(&mut abide)), [first]);
}

#[test]
fn f32_two_daemons_that_create_the_schema_at_once_do_not_collide() {
    let server = Server::start();
    let (one, two) = (at(&server.url()), at(&server.url()));
    std::thread::scope(|scope| {
        scope.spawn(|| one.start());
        scope.spawn(|| two.start());
    });
    let mut known = [made_at_last(&one, "one"), made_at_last(&two, "two")];
    known.sort();
    assert_eq!(stored(&server), known);
    let machines =
        "SELECT count(*), count(DISTINCT name) FROM abide.machine WHERE standing = 'member'";
    assert_eq!(server.sql(machines), "2|2");
    drop((one, two));
}

#[test]
fn f43_lock_that_is_not_free_in_time_refuses_the_timer() {
    let mut abide = on(Server::start());
    abide.start();
    let first = made(&make(&abide, "before"));
    let lock = "BEGIN; LOCK TABLE abide.timer; SELECT pg_sleep(600)";
    let mut session = server(&mut abide).session(lock);
    look_for("a lock", || {
        let locks = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted \
                     AND relation = 'abide.timer'::regclass";
        (server(&mut abide).sql(locks) == "1").then_some(())
    });
    let sentence = refused(&make(&abide, "locked"));
    assert!(sentence.contains("may be locked"), "{sentence}");
    commands_run(&abide);
    server(&mut abide).sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' \
         AND pid <> pg_backend_pid()",
    );
    let _ = session.wait();
    let second = made_at_last(&abide, "free");
    let mut known = [first, second];
    known.sort();
    assert_eq!(stored(server(&mut abide)), known);
}

#[test]
fn f70_text_with_a_zero_byte_is_stored() {
    let mut abide = on(Server::start());
    abide.start();
    let answer = make(&abide, "a\0b");
    if answer.status == 200 {
        let text = server(&mut abide).sql("SELECT purpose FROM abide.timer");
        assert_eq!(text, "a\u{fffd}b");
    }
    made(&make(&abide, "after"));
}

#[test]
fn text_with_quotes_and_backslashes_is_stored_as_it_is() {
    let mut abide = on(Server::with_settings(&["standard_conforming_strings=off"]));
    abide.start();
    let text = "it's \\'; DROP TABLE timer; -- $1 \\x41 E'\\\\' é";
    let id = made(&make(&abide, text));
    made(&make(&abide, text));
    let stored = server(&mut abide).sql(&format!(
        "SELECT purpose FROM abide.timer WHERE id = '{id}'"
    ));
    assert_eq!(stored, text);
    let listed = abide.get("/v1/timers");
    assert_eq!(listed["timers"][0]["mission"], json!(text), "{listed}");
}
