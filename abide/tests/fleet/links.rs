//! Calls over links.

use super::*;

#[test]
fn output_of_a_session_on_the_other_machine_is_read() {
    let pair = Pair::with("");
    let id = pair.cat();
    call(
        &pair.build,
        &json!({"action": "send_input", "session_id": id, "input": "hello over there\n"}),
    );
    let read = call(
        &pair.desk,
        &json!({"action": "read_output", "session_id": id, "since": "0"}),
    );
    assert_eq!(read.status, 200, "{}", read.body);
    assert!(text(&read).contains("hello over there"), "{}", read.body);
    assert_eq!(read.body["machine"], "build", "{}", read.body);
    assert!(read.body["as_of"].is_u64(), "{}", read.body);
    let lines = pair.desk.get(&format!("/v1/sessions/{id}/lines"));
    assert!(lines.to_string().contains("hello over there"), "{lines}");
    assert_eq!(lines["machine"], "build", "{lines}");
}

#[test]
fn session_of_the_other_machine_is_listed_with_its_machine() {
    let pair = Pair::with("");
    let id = pair.cat();
    let list = pair.desk.get("/v1/sessions");
    let listed = &list["sessions"][0];
    assert_eq!(listed["session_id"], json!(id), "{list}");
    assert_eq!(listed["machine"], "build", "{list}");
    assert_eq!(listed["status"], "running", "{list}");
    let list = call(&pair.desk, &json!({"action": "list"}));
    assert!(text(&list).contains("on machine build"), "{}", list.body);
    let here = pair.build.get("/v1/sessions");
    assert!(here["sessions"][0].get("machine").is_none(), "{here}");
}

#[test]
fn f59_input_without_the_right_is_refused_with_the_line_to_add() {
    let pair = Pair::with("");
    let id = pair.cat();
    let input = json!({"action": "send_input", "session_id": id, "input": "x\n"});
    let refused = call(&pair.desk, &input);
    let said = text(&refused);
    assert!(
        said.contains("`type = [\"desk\"]` below `[fleet]`"),
        "{}",
        refused.body
    );
    assert_eq!(pair.desk.kill_session(&id).status, 403);
    let read = call(
        &pair.build,
        &json!({"action": "read_output", "session_id": id, "since": "0"}),
    );
    assert!(!text(&read).contains('x'), "{}", read.body);
}

#[test]
fn input_and_kill_with_the_right_are_carried_out() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let id = pair.cat();
    let sent = call(
        &pair.desk,
        &json!({"action": "send_input", "session_id": id, "input": "typed\n"}),
    );
    assert!(text(&sent).contains("typed"), "{}", sent.body);
    let killed = pair.desk.kill_session(&id);
    assert_eq!(killed.status, 200, "{}", killed.body);
    assert_eq!(killed.body["machine"], "build", "{}", killed.body);
}

#[test]
fn f59_command_with_on_runs_there_only_with_the_right() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let file = pair.build.path("ran");
    let command = format!("echo once >> {}; cat {}", file.display(), file.display());
    let shell = |on: &str| {
        let body = json!({"command": command, "on": on});
        pair.desk.post("/v1/tools/shell", &body)
    };
    let refused = shell("build");
    assert!(
        text(&refused).contains("`run = [\"desk\"]`"),
        "{}",
        refused.body
    );
    assert!(!file.exists());
    let unknown = shell("nowhere");
    assert!(text(&unknown).contains("'nowhere'"), "{}", unknown.body);
    assert!(text(&unknown).contains("`on`"), "{}", unknown.body);
    let again = json!({"session_id": "session_00000000", "on": "build"});
    let refused = pair.desk.post("/v1/tools/shell", &again);
    assert!(text(&refused).contains("`on` is only"), "{}", refused.body);
    let listed = call(&pair.desk, &json!({"action": "list", "on": "build"}));
    assert!(text(&listed).contains("`on` is only"), "{}", listed.body);
    let config = std::fs::read_to_string(pair.build.path("config.toml")).expect("it");
    let config = format!("{config}run = [\"desk\"]\n");
    std::fs::write(pair.build.path("config.toml"), config).expect("a configuration");
    for (times, on) in [(1, "build"), (2, "gpu")] {
        let ran = shell(on);
        assert_eq!(ran.body["status"], "SUCCESS", "{}", ran.body);
        let file = std::fs::read_to_string(&file).expect("it");
        assert_eq!(file.lines().count(), times, "{file}");
    }
    let here = shell("desk");
    assert!(here.body.get("machine").is_none(), "{}", here.body);
}

#[test]
fn question_of_the_other_machine_is_in_the_list_and_the_first_answer_counts() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let (begun, question) = pair.asked_on_build();
    let path = answer_path(&question);
    let answered = pair.desk.post(&path, &json!({"answer": "no"}));
    assert_eq!(answered.status, 200, "{}", answered.body);
    let second = pair.build.post(&path, &json!({"answer": "yes"}));
    assert_eq!(second.status, 409);
    let ended = harness::receive(begun).expect("an answer");
    assert!(text(&ended).contains("no output for 1s"), "{}", ended.body);
}

#[test]
fn killed_session_is_listed_as_ended_by_the_machine_that_killed_it() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let id = pair.cat();
    assert_eq!(pair.desk.kill_session(&id).status, 200);
    let running = pair.desk.get("/v1/sessions");
    assert_eq!(running["sessions"], json!([]), "{running}");
    let all = pair.desk.get("/v1/sessions?include_ended=true");
    assert_eq!(all["sessions"][0]["session_id"], json!(id), "{all}");
    assert_eq!(all["sessions"][0]["status"], "exited", "{all}");
}

#[test]
fn list_has_the_last_known_sessions_while_the_database_is_away() {
    let mut pair = Pair::with("");
    let id = pair.cat();
    let before = pair.desk.get("/v1/sessions");
    assert_eq!(before["sessions"][0]["session_id"], json!(id), "{before}");
    let as_of = before["sessions"][0]["as_of"].as_u64();
    look_for("a later heartbeat", || {
        let known = pair.desk.get("/v1/machines");
        let mut known = known["machines"].as_array()?.iter();
        let build = known.find(|machine| machine["name"] == "build")?;
        (build["as_of"].as_u64() > as_of).then_some(())
    });
    pair.desk.server.as_mut().expect("a server").stop();
    let listed = pair.desk.get("/v1/sessions");
    assert_eq!(listed["sessions"][0]["session_id"], json!(id), "{listed}");
    assert_eq!(listed["sessions"][0]["machine"], "build", "{listed}");
    // The list was read then; the session may have ended since.
    assert_eq!(listed["sessions"][0]["as_of"].as_u64(), as_of, "{listed}");
    let lost = pair.desk.output(["machine", "lost", "build"]);
    let said = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert!(said.contains("the database cannot be reached"), "{said}");
    pair.desk.server.as_mut().expect("a server").resume();
}

#[test]
fn session_started_with_on_is_found_by_the_next_call() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\nrun = [\"desk\"]\n");
    let start =
        json!({"action": "start", "command": "cat", "on": "build", "inactivity_timeout": 0});
    let started = call(&pair.desk, &start);
    let id = started.body["session_id"].as_str().expect("an id");
    let input = json!({"action": "send_input", "session_id": id, "input": "found\n"});
    let sent = call(&pair.desk, &input);
    assert!(text(&sent).contains("found"), "{}", sent.body);
}

#[test]
fn last_a_name_and_a_prefix_stand_for_a_session_of_the_other_machine() {
    let pair = Pair::with("");
    let id = pair.cat();
    let renamed = pair.build.output(["session", "rename", &id, "parser"]);
    assert!(renamed.status.success(), "{renamed:?}");
    let sql = format!("SELECT name FROM abide.session WHERE id = '{id}'");
    look_for("the name in the directory", || {
        (pair.server().sql(&sql) == "parser").then_some(())
    });
    let prefix = &id["session_".len()..][..7];
    for word in ["last", "parser", prefix] {
        let known = pair.desk.get(&format!("/v1/ids?kind=session&word={word}"));
        assert_eq!(known["ids"][0]["id"], json!(id), "{word}: {known}");
        assert_eq!(known["total"], 1, "{word}: {known}");
    }
    let shown = pair.desk.output(["complete", "--", "kill", "par"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("parser\ton build: cat"), "{shown}");
    let screen = pair.desk.output(["session", "screen", "last"]);
    assert!(screen.status.success(), "{screen:?}");
}

/// Records the links that are opened on the server of this pair.
fn record_links(pair: &Pair) {
    pair.server().sql(
        "CREATE TABLE opened (link text); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO public.opened VALUES (NEW.link); RETURN NEW; END $$; \
         CREATE TRIGGER note BEFORE INSERT ON abide.frame FOR EACH ROW WHEN (NEW.seq = 0 AND NEW.link LIKE '%>') \
         EXECUTE FUNCTION note()",
    );
}

#[test]
fn calls_to_one_machine_use_one_link_until_its_daemon_is_another() {
    let pair = Pair::with("");
    let id = pair.cat();
    record_links(&pair);
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    for _ in 0..5 {
        assert_eq!(call(&pair.desk, &read).status, 200);
    }
    let opened = || pair.server().sql("SELECT count(DISTINCT link) FROM opened");
    assert_eq!(opened(), "1");
    let claim = "SELECT claim FROM abide.machine WHERE name = 'build'";
    let before = pair.server().sql(claim);
    pair.build.kill_daemon();
    pair.build.start();
    look_for("the next daemon in its row", || {
        (pair.server().sql(claim) != before).then_some(())
    });
    look_for("an answer of the next daemon", || {
        (call(&pair.desk, &read).body["machine"] == "build").then_some(())
    });
    assert_ne!(opened(), "1");
}
