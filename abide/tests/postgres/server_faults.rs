//! A server that runs out of something, collides, or is kept from cleaning up.

use harness::postgres::Server;
use harness::{Abide, look_for};
use serde_json::json;

use super::{at, commands_run, harness, made, made_at_last, make, mission, on, refused};
use super::{server, stored, trouble};

fn doctor(abide: &Abide) -> String {
    let out = abide.output(["doctor"]);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn f33_interrupted_migration_leaves_nothing_of_it() {
    let mut server = Server::start();
    // The migration stops in its middle.
    server.sql(
        "CREATE FUNCTION halt() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF to_regclass('abide.timer') IS NOT NULL THEN PERFORM pg_sleep(600); END IF; END $$; \
         CREATE EVENT TRIGGER halt ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION halt()",
    );
    let abide = at(&server.url());
    std::thread::scope(|scope| {
        scope.spawn(|| abide.start());
        look_for("a migration that has stopped", || {
            let halted = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
            (server.sql(halted) == "1").then_some(())
        });
        server.kill();
    });
    commands_run(&abide);
    server.resume();
    let left = "SELECT count(*) FROM pg_tables WHERE schemaname = 'abide' AND tablename <> 'fleet'";
    assert_eq!(server.sql(left), "0");
    server.sql("DROP EVENT TRIGGER halt");
    let id = look_for("a timer that can be made", || {
        // The daemon starts again when the database is there, so a call may reach none.
        let answer = abide.try_post("/v1/timers", &mission("after"))?;
        (answer.status == 200).then(|| made(&answer))
    });
    assert_eq!(stored(&server), [id]);
}

#[test]
fn f38_server_without_free_connections_is_used_by_those_that_have_one() {
    let settings = ["max_connections=12", "superuser_reserved_connections=0"];
    let server = Server::with_settings(&settings);
    let (first, second) = (at(&server.url()), at(&server.url()));
    first.start();
    let mut known = vec![made_at_last(&first, "before")];
    let mut others: Vec<_> = (0..20).map(|_| server.idle_session("")).collect();
    look_for("a server without free connections", || {
        (!server.try_sql("SELECT 1").status.success()).then_some(())
    });
    known.push(made(&make(&first, "over a connection that is kept")));
    second.start();
    let sentence = refused(&make(&second, "refused"));
    assert!(sentence.contains("(53300)"), "{sentence}");
    assert!(
        sentence.contains("a pooler in transaction mode"),
        "{sentence}"
    );
    commands_run(&second);
    let said = doctor(&second);
    assert!(said.contains("a pooler in transaction mode"), "{said}");
    for other in &mut others {
        other.kill().expect("psql");
        other.wait().expect("psql ends");
    }
    known.push(look_for("a timer that can be made", || {
        let answer = second.try_post("/v1/timers", &mission("after"))?;
        (answer.status == 200).then(|| made(&answer))
    }));
    known.sort();
    assert_eq!(stored(&server), known);
}

/// Has the next inserts of timers fail with this code, so many times.
fn fail(server: &Server, code: &str, times: u32) {
    server.sql(&format!(
        "DROP SEQUENCE IF EXISTS tries; CREATE SEQUENCE tries; \
         CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('public.tries') <= {times} THEN RAISE EXCEPTION 'collided' USING ERRCODE = '{code}'; END IF; \
         RETURN NEW; END $$; \
         CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON abide.timer FOR EACH ROW EXECUTE FUNCTION fail()"
    ));
}

#[test]
fn f44_collision_with_another_transaction_is_repeated() {
    let mut abide = on(Server::start());
    abide.start();
    let mut known = vec![made(&make(&abide, "before"))];
    for code in ["40001", "40P01", "55P03"] {
        fail(server(&mut abide), code, 3);
        known.push(made(&make(&abide, code)));
        let tries = server(&mut abide).sql("SELECT last_value FROM tries");
        assert_eq!(tries, "4", "{code}");
    }
    // One that collides for ever is refused, and nothing of it is there.
    fail(server(&mut abide), "40001", 1_000);
    let sentence = refused(&make(&abide, "collides"));
    assert!(sentence.contains("(40001)"), "{sentence}");
    commands_run(&abide);
    known.sort();
    assert_eq!(stored(server(&mut abide)), known);
    assert_eq!(trouble(&abide), None);
}

#[test]
fn f44_daemons_on_a_serializable_server_make_all_their_timers() {
    const TIMERS: usize = 30;
    let server = Server::with_settings(&["default_transaction_isolation=serializable"]);
    let daemons = [(); 3].map(|()| at(&server.url()));
    let mut known: Vec<String> = std::thread::scope(|scope| {
        let makers = daemons.each_ref().map(|abide| {
            scope.spawn(|| {
                abide.start();
                let each = (0..TIMERS).map(|n| made_at_last(abide, &format!("{n}")));
                each.collect::<Vec<_>>()
            })
        });
        let made = makers.map(|maker| maker.join().expect("timers"));
        made.into_iter().flatten().collect()
    });
    known.sort();
    assert_eq!(stored(&server), known);
    let owners = "SELECT count(*) FROM abide.shard WHERE owner = id";
    assert_eq!(server.sql(owners), "3", "no machine was taken for dead");
}

/// Text that the server cannot compress.
fn incompressible(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let digits = (0..500).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!("{:08x}", state >> 32)
    });
    digits.collect()
}

#[test]
fn f45_full_disk_of_the_server_refuses_timers_until_there_is_room() {
    let Some(small) = Server::on_small_disk(128) else {
        return;
    };
    let mut abide = on(small);
    abide.start();
    let mut known = vec![made(&make(&abide, "before"))];
    // The journal has room, so that the tables are what cannot grow.
    server(&mut abide).sql("SELECT pg_switch_wal()");
    server(&mut abide).sql("CHECKPOINT");
    let ballast = server(&mut abide).path("data/ballast");
    // The server runs both commands, because it alone sees its disk.
    let run = |line: &str| format!("COPY (SELECT 1) TO PROGRAM '{line} || true'");
    let ballast = ballast.display();
    server(&mut abide).sql(&run(&format!("cat /dev/zero > {ballast}")));
    let mut seed = 0;
    let sentence = look_for("a refusal", || {
        seed += 1;
        let answer = make(&abide, &incompressible(seed));
        if answer.status == 200 {
            known.push(made(&answer));
            return None;
        }
        Some(refused(&answer))
    });
    assert!(sentence.contains("(53100)"), "{sentence}");
    assert!(sentence.contains("the disk of the server"), "{sentence}");
    commands_run(&abide);
    server(&mut abide).sql(&run(&format!("rm {ballast}")));
    known.push(made_at_last(&abide, &incompressible(0)));
    known.sort();
    assert_eq!(stored(server(&mut abide)), known);
}

#[test]
fn f51_timers_write_no_versions_of_shared_rows_while_a_report_keeps_them() {
    let mut abide = on(Server::start());
    abide.start();
    made(&make(&abide, "before"));
    let report = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM abide.timer;";
    let mut report = server(&mut abide).idle_session(report);
    look_for("a report", || {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' \
                    AND backend_xmin IS NOT NULL";
        (server(&mut abide).sql(open) == "1").then_some(())
    });
    // A version of a row has a place of its own.
    let versions = "SELECT 'shard', ctid::text FROM abide.shard UNION ALL SELECT 'fleet', ctid::text FROM abide.fleet";
    let before = server(&mut abide).sql(versions);
    for n in 0..100 {
        made(&make(&abide, &format!("{n}")));
    }
    assert_eq!(server(&mut abide).sql(versions), before);
    // A transaction that is so young is worth no word.
    assert!(!doctor(&abide).contains("a transaction is open"));
    report.kill().expect("psql runs");
    report.wait().expect("psql ends");
}

#[test]
fn f52_server_without_autovacuum_works_and_is_reported() {
    let mut abide = on(Server::with_settings(&["autovacuum=off"]));
    abide.start();
    let id = made(&make(&abide, "as before"));
    assert_eq!(stored(server(&mut abide)), [id]);
    let said = doctor(&abide);
    assert!(said.contains("`autovacuum` is off"), "{said}");
}

#[test]
fn command_is_held_only_while_its_question_can_be_stored() {
    const ASKS: &str = "[[policy.rule]]\nrun = [\"touch\"]\ndo = \"ask\"\nwhy = \"makes a file\"\n";
    let mut abide = on(Server::start());
    abide.configure(ASKS);
    abide.start();
    made(&make(&abide, "before"));
    let shell = |abide: &Abide| {
        let command = json!({"command": "touch made"});
        let answer = abide.call_in(["ann", "c"], "shell", &command);
        answer.expect("an answer").body
    };
    let open = |abide: &Abide| abide.get("/v1/questions")["questions"].clone();
    server(&mut abide).kill();
    let refused = shell(&abide);
    assert_eq!(refused["status"], "refused", "{refused}");
    let text = refused["text"].as_str().expect("a text");
    for part in [
        "cannot be stored",
        "cannot be reached since",
        "Nothing was run",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(open(&abide), json!([]));
    server(&mut abide).resume();
    let held = look_for("a command that is held", || {
        let answer = shell(&abide);
        (answer["status"] == "held").then_some(answer)
    });
    abide.kill_daemon();
    abide.start();
    let open = look_for("the question", || {
        let open = open(&abide);
        (open != json!([])).then_some(open)
    });
    assert_eq!(open[0]["question_id"], held["question_id"], "{open}");
    assert_eq!(open.as_array().map(Vec::len), Some(1), "{open}");
}
