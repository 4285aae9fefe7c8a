//! Commands for people, and machines that are forged, revoked or gone.

use std::process::{Output, Stdio};

use super::*;

fn said(out: &Output) -> String {
    let both = [out.stdout.as_slice(), &out.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Runs a command with this text on its standard input.
fn with_input(machine: &Abide, args: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut command = machine.command(args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("abide runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

#[test]
fn init_and_join_make_a_fleet_and_another_secret_is_refused() {
    let server = Server::start();
    let url = server.url();
    let (desk, build) = (Abide::on(None), Abide::on(None));
    std::fs::write(desk.path("config.toml"), "# mine\nmachine = \"desk\"\n").expect("it");
    std::fs::write(build.path("config.toml"), "machine = \"build\"\n").expect("it");
    let made = desk.output(["fleet", "init", &url]);
    assert!(made.status.success(), "{}", said(&made));
    assert!(said(&made).contains("fleet-secret"), "{}", said(&made));
    let secret = std::fs::read_to_string(desk.path("fleet-secret")).expect("a secret");
    assert!(!said(&made).contains(secret.trim()));
    let config = std::fs::read_to_string(desk.path("config.toml")).expect("it");
    assert!(config.starts_with("# mine\n"), "{config}");
    desk.start();
    look_for("a key in the row", || {
        let keys = server.sql("SELECT count(*) FROM abide.machine WHERE mac IS NOT NULL");
        (keys == "1").then_some(())
    });
    let other = with_input(&build, &["fleet", "join", &url], SECRET);
    assert!(!other.status.success());
    assert!(
        said(&other).contains("is not the one of the fleet"),
        "{}",
        said(&other)
    );
    assert!(!build.path("fleet-secret").exists());
    let joined = with_input(&build, &["fleet", "join", &url], &secret);
    assert!(joined.status.success(), "{}", said(&joined));
    let again = desk.output(["fleet", "init", &url]);
    assert!(
        said(&again).contains("in a fleet already"),
        "{}",
        said(&again)
    );
    // The desk learns of the other machine at a heartbeat of its own.
    for (machine, other) in [(&build, "desk"), (&desk, "build")] {
        look_for("both machines in the list", || {
            let listed = said(&machine.output(["machine", "list"]));
            let both = listed.contains(other) && listed.contains("alive");
            (both && listed.contains("here")).then_some(())
        });
    }
    let stored = server.sql("SELECT * FROM abide.machine");
    assert!(!stored.contains(secret.trim()));
    assert!(!said(&joined).contains("has the name"), "{}", said(&joined));
    let second = Abide::on(None);
    std::fs::write(second.path("config.toml"), "machine = \"desk\"\n").expect("it");
    let joined = with_input(&second, &["fleet", "join", &url], &secret);
    let told = "Another machine of the fleet has the name desk, so this one is called desk-";
    assert!(said(&joined).contains(told), "{}", said(&joined));
    let left = build.output(["fleet", "leave"]);
    assert!(left.status.success(), "{}", said(&left));
    assert_eq!(
        server.sql("SELECT standing FROM abide.machine WHERE name = 'build'"),
        "left"
    );
    assert!(said(&build.output(["fleet", "status"])).contains("not in a fleet"));
}

#[test]
fn f60_forged_machine_row_gives_no_right() {
    let pair = Pair::with("[fleet]\ntype = [\"*\"]\nrun = [\"*\"]\n");
    // A machine with another secret, whose row says that it is the desk.
    let thief = Abide::on(None);
    let url = pair.server().url();
    let config = format!("store = {url:?}\nmachine = \"thief\"\n");
    std::fs::write(thief.path("config.toml"), config).expect("a configuration");
    // A new machine with another secret would not join, so it gets that later.
    thief.start();
    look_for("the thief as a member", || {
        let rows = "SELECT count(*) FROM abide.machine WHERE name = 'thief'";
        (pair.server().sql(rows) == "1").then_some(())
    });
    thief.output(["stop"]);
    give_secret(&thief, &SECRET.replace('3', "4"));
    thief.start();
    let id = pair.cat();
    look_for("the row of the thief", || {
        let rows = pair.server().sql(
            "UPDATE abide.machine SET name = 'robbed' WHERE name = 'desk'; UPDATE abide.machine SET name = 'desk', \
             mac = (SELECT mac FROM abide.machine WHERE name = 'robbed') WHERE name = 'thief' RETURNING 1",
        );
        (rows == "1").then_some(())
    });
    let input = json!({"action": "send_input", "session_id": id, "input": "stolen\n"});
    let refused = call(&thief, &input);
    assert_eq!(refused.body["is_error"], true, "{}", refused.body);
    let read = call(
        &pair.build,
        &json!({"action": "read_output", "session_id": id, "since": "0"}),
    );
    assert!(!text(&read).contains("stolen"), "{}", read.body);
}

#[test]
fn f60_machine_that_is_renamed_in_the_database_takes_its_own_name_again() {
    let pair = Pair::with("[fleet]\ntype = [\"office\"]\n");
    let id = pair.cat();
    let rows = |name: &str| format!("SELECT count(*) FROM abide.machine WHERE name = '{name}'");
    (pair.server()).sql("UPDATE abide.machine SET name = 'office' WHERE name = 'desk'");
    look_for("its own name", || {
        (pair.server().sql(&rows("desk")) == "1").then_some(())
    });
    pair.wait_known();
    let input = json!({"action": "send_input", "session_id": id, "input": "stolen\n"});
    let refused = call(&pair.desk, &input);
    assert_eq!(refused.body["is_error"], true, "{}", refused.body);
    assert_eq!(pair.server().sql(&rows("office")), "0");
}

#[test]
fn f60_row_that_cannot_be_read_does_not_stop_the_fleet() {
    let pair = Pair::with("");
    pair.server().sql(
        "INSERT INTO abide.machine (id, name, labels, version, boot, claim, standing, heartbeat, pace, written) \
         VALUES (1, 'odd', '', '0', 'x', 1, 'member', 1, 'slow', 0); \
         INSERT INTO abide.shard (id, owner, epoch) VALUES (1, 1, -1); \
         UPDATE abide.fleet SET members = members + 1",
    );
    pair.desk.kill_daemon();
    pair.desk.start();
    let timer = json!({"total_duration": 3600, "mission": "as ever"});
    look_for("a timer that can be made", || {
        (pair.desk.try_post("/v1/timers", &timer)?.status == 200).then_some(())
    });
    let log = std::fs::read_to_string(pair.desk.path("daemon.log")).expect("a log");
    for row in ["row 1 of `machine`", "row 1 of `shard`"] {
        assert_eq!(log.matches(row).count(), 1, "{log}");
    }
}

#[test]
fn f60_rows_that_others_change_in_the_database_run_nothing() {
    let server = Server::start();
    let url = server.url();
    let desk = Abide::on(Some(server));
    let rule = "[[policy.rule]]\nrun = [\"touch\"]\ndo = \"ask\"\nwhy = \"makes a file\"\n";
    let config = format!("store = {url:?}\n{rule}");
    std::fs::write(desk.path("config.toml"), config).expect("a configuration");
    desk.start();
    let hold = |name: &str| {
        let command = format!("touch {}", desk.path(name).display());
        look_for("a question", || {
            let held = desk.call_in(["ann", "c"], "shell", &json!({"command": command}))?;
            held.body["question_id"].as_str().map(str::to_owned)
        })
    };
    let (answered, changed, kept) = (hold("answered"), hold("changed"), hold("kept"));
    let until = json!({"command": "false"});
    let timer = json!({"total_duration": 3600, "mission": "later", "until": until});
    assert_eq!(desk.post("/v1/timers", &timer).status, 200);
    let rows = desk.server.as_ref().expect("a server").sql(&format!(
        "UPDATE abide.question SET closing = 'yes', closed_ms = 1 WHERE id = '{answered}'; \
         UPDATE abide.question SET command = replace(command, 'touch', 'mkdir') WHERE id = '{changed}'; \
         UPDATE abide.timer SET condition = replace(condition, 'false', 'mkdir {}') RETURNING 1",
        desk.path("condition").display()
    ));
    assert_eq!(rows, "1");
    desk.kill_daemon();
    desk.start();
    let open = desk.get("/v1/questions");
    let open = open["questions"].as_array().expect("questions");
    let ids: Vec<&str> = (open.iter().filter_map(|one| one["question_id"].as_str())).collect();
    assert_eq!(ids, [kept.as_str()]);
    let yes = desk.post(&answer_path(&json!(kept)), &json!({"answer": "once"}));
    assert_eq!(yes.status, 200, "{}", yes.body);
    look_for("the file", || desk.path("kept").exists().then_some(()));
    let log = std::fs::read_to_string(desk.path("daemon.log")).expect("a log");
    assert_eq!(
        log.matches("valid seal of this machine; it is not used")
            .count(),
        3,
        "{log}"
    );
    for name in ["answered", "changed", "condition"] {
        assert!(!desk.path(name).exists(), "{name}");
    }
}

#[test]
fn f62_key_of_a_revoked_machine_is_remembered_though_it_never_called() {
    let pair = Pair::with("");
    let id = pair.cat();
    pair.server().sql(
        "UPDATE abide.machine SET standing = 'revoked' WHERE name = 'desk'; \
         UPDATE abide.fleet SET members = members + 1",
    );
    let keys = pair.build.path("revoked-keys");
    look_for("the key", || keys.exists().then_some(()));
    pair.server()
        .sql("UPDATE abide.machine SET standing = 'member' WHERE name = 'desk'");
    let read = json!({"action": "screen", "session_id": id});
    let refused = call(&pair.desk, &read);
    assert_eq!(refused.body["is_error"], true, "{}", refused.body);
}

#[test]
fn revoked_machine_does_not_join_again_and_says_how_it_can() {
    let pair = Pair::with("");
    let revoked = pair.build.output(["machine", "revoke", "desk"]);
    assert!(revoked.status.success(), "{}", said(&revoked));
    let left = pair.desk.output(["fleet", "leave"]);
    assert!(left.status.success(), "{}", said(&left));
    let url = pair.server().url();
    let refused = with_input(&pair.desk, &["fleet", "join", &url], SECRET);
    assert!(!refused.status.success(), "{}", said(&refused));
    assert!(said(&refused).contains("was revoked"), "{}", said(&refused));
    let state = pair.desk.path("machine");
    std::fs::remove_file(state).expect("an id");
    std::fs::remove_file(pair.desk.path("machine-key")).expect("a key");
    let joined = with_input(&pair.desk, &["fleet", "join", &url], SECRET);
    assert!(joined.status.success(), "{}", said(&joined));
    pair.wait_vouched_for(3);
}

#[test]
fn configuration_with_a_password_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let server = Server::start();
    let machine = Abide::on(None);
    let config = machine.path("config.toml");
    std::fs::write(&config, "").expect("a configuration");
    std::fs::set_permissions(&config, PermissionsExt::from_mode(0o644)).expect("permissions");
    let url = server.url_as("postgres:guess");
    let made = machine.output(["fleet", "init", &url]);
    assert!(made.status.success(), "{}", said(&made));
    assert!(said(&made).contains("Only you can read"), "{}", said(&made));
    let found = std::fs::metadata(&config).expect("a configuration");
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
}

#[test]
fn label_that_a_command_of_an_agent_sets_changes_nothing() {
    let pair = Pair::with("");
    let config = pair.build.path("config.toml");
    let before = std::fs::read_to_string(&config).expect("a configuration");
    let command = format!(
        "ABIDE_DIR={} {} machine label other",
        pair.build.dir().display(),
        env!("CARGO_BIN_EXE_abide")
    );
    let ran = pair
        .build
        .post("/v1/tools/shell", &json!({"command": command}));
    assert_ne!(ran.body["exit_code"], 0, "{}", ran.body);
    let after = std::fs::read_to_string(&config).expect("a configuration");
    assert_eq!(after, before);
}

#[test]
fn f62_revoked_machine_has_no_right_also_if_the_row_is_changed_back() {
    let pair = Pair::with("");
    let id = pair.cat();
    let read = json!({"action": "screen", "session_id": id});
    assert_eq!(call(&pair.desk, &read).body["is_error"], false);
    let revoked = pair.build.output(["machine", "revoke", "desk"]);
    assert!(revoked.status.success(), "{}", said(&revoked));
    let refused = call(&pair.desk, &read);
    assert_eq!(refused.body["is_error"], true, "{}", refused.body);
    pair.server()
        .sql("UPDATE abide.machine SET standing = 'member' WHERE name = 'desk'");
    let refused = call(&pair.desk, &read);
    assert_eq!(refused.body["is_error"], true, "{}", refused.body);
}

#[test]
fn f68_daemon_with_another_secret_does_not_join_and_another_schema_is_another_fleet() {
    let pair = Pair::with("");
    let url = pair.server().url();
    let other = Abide::on(None);
    give_secret(&other, &SECRET.replace('3', "4"));
    let configure = |url: &str| {
        let config = format!("store = {url:?}\nmachine = \"other\"\n");
        std::fs::write(other.path("config.toml"), config).expect("a configuration");
    };
    configure(&url);
    other.start();
    let timer = json!({"total_duration": 3600, "mission": "by mistake"});
    let refused = look_for("a refusal that names the secret", || {
        let refused = other.try_post("/v1/timers", &timer)?;
        let says = refused.body["detail"].as_str()?.to_owned();
        (refused.status != 200 && says.contains("secret")).then_some(says)
    });
    assert!(refused.contains("is not the one of the fleet"), "{refused}");
    assert!(refused.contains("another schema"), "{refused}");
    let members = "SELECT count(*) FROM abide.machine";
    assert_eq!(pair.server().sql(members), "2");
    let ran = other.post("/v1/tools/shell", &json!({"command": "true"}));
    assert_eq!(ran.body["status"], "SUCCESS");
    other.output(["stop"]);
    configure(&url.replace("schema=abide", "schema=other"));
    other.start();
    look_for("a timer that can be made", || {
        (other.try_post("/v1/timers", &timer)?.status == 200).then_some(())
    });
    let count = |schema: &str| {
        let sql = format!(
            "SELECT count(*) FROM {schema}.machine UNION ALL SELECT count(*) FROM {schema}.timer"
        );
        pair.server().sql(&sql)
    };
    assert_eq!(count("other"), "1\n1");
    assert_eq!(count("abide"), "2\n0");
}

#[test]
fn killed_machine_is_unreachable_and_answers_when_it_is_back() {
    let pair = Pair::with("");
    let id = pair.cat();
    let begun = pair.desk.begin(
        "/v1/tools/terminal_session",
        &json!({"action": "read_output", "session_id": id, "timeout_seconds": 600}),
    );
    look_for("the link", || {
        let frames = pair.server().sql("SELECT count(*) FROM abide.frame");
        (frames == "0").then_some(())
    });
    pair.build.kill_daemon();
    let answer = harness::receive(begun).expect("an answer");
    assert!(
        text(&answer).contains("build cannot be reached"),
        "{}",
        answer.body
    );
    assert_eq!(answer.body["session_id"], json!(id), "{}", answer.body);
    assert_eq!(answer.body["machine"], "build", "{}", answer.body);
    assert!(answer.body["as_of"].is_u64(), "{}", answer.body);
    let listed = pair.desk.get("/v1/sessions");
    assert_eq!(listed["sessions"][0]["status"], "unreachable", "{listed}");
    assert!(listed["sessions"][0]["as_of"].is_u64(), "{listed}");
    let lost = pair.desk.output(["machine", "lost", "build"]);
    assert!(lost.status.success(), "{}", said(&lost));
    let listed = said(&pair.desk.output(["machine", "list"]));
    assert!(listed.contains("unreachable, lost"), "{listed}");
    look_for("the session as lost", || {
        let listed = pair.desk.get("/v1/sessions?include_ended=true");
        let session = &listed["sessions"][0];
        (session["status"] == "lost" && session["exit_code"].is_null()).then_some(())
    });
    let read = call(&pair.desk, &json!({"action": "screen", "session_id": id}));
    assert_eq!(read.body["status"], "lost", "{}", read.body);
    assert_eq!(read.body["end"], "lost", "{}", read.body);
    assert!(
        text(&read).contains("a person has said so"),
        "{}",
        read.body
    );
    pair.build.start();
    look_for("an answer", || {
        let read = call(&pair.desk, &json!({"action": "screen", "session_id": id}));
        (read.body["is_error"] == false).then_some(())
    });
    look_for("the session as running", || {
        let listed = pair.desk.get("/v1/sessions");
        (listed["sessions"][0]["status"] == "running").then_some(())
    });
}
