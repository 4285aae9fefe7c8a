//! Search, timers and plain requests of one machine about another.

use super::*;
use harness::line_with;

/// Session on `build` that writes these lines and waits, once the directory has it.
fn writes(pair: &Pair, lines: &str) -> String {
    let command = format!("printf '{lines}'; exec cat");
    let start = json!({"action": "start", "command": command, "inactivity_timeout": 0});
    let started = call(&pair.build, &start);
    let id = started.body["session_id"].as_str().expect("an id");
    pair.wait_listed(id);
    id.to_owned()
}

/// Numbers and machines of the lines of a page.
fn lines(page: &Value) -> Vec<(u64, Option<&str>)> {
    let lines = page["matches"].as_array().into_iter().flatten();
    lines
        .map(|line| (line["line"].as_u64().unwrap_or(0), line["machine"].as_str()))
        .collect()
}

#[test]
fn sessions_of_both_machines_are_listed_page_by_page() {
    let pair = Pair::with("");
    let mut started = vec![pair.cat(), pair.cat()];
    let here = (pair.desk).post("/v1/tools/shell", &json!({"command": "true"}));
    let here = here.body["session_id"].as_str().expect("an id");
    started.insert(1, here.to_owned());
    started.push(pair.cat());
    let mut after = String::new();
    let mut found = Vec::new();
    for _ in 0..4 {
        let path = format!("/v1/sessions?include_ended=true&limit=1{after}");
        let page = pair.desk.get(&path);
        assert_eq!(page["total"], 4, "{page}");
        let id = page["sessions"][0]["session_id"].as_str().expect("an id");
        found.push(id.to_owned());
        after = match page["next"].as_str() {
            Some(next) => format!("&after={next}"),
            None => break,
        };
    }
    found.sort();
    started.sort();
    assert_eq!(found, started);
}

#[test]
fn lists_have_what_is_known_and_say_so_while_the_database_is_away() {
    let mut pair = Pair::with("");
    for (machine, mission) in [(&pair.desk, "of the desk"), (&pair.build, "of the build")] {
        let timer = json!({"total_duration": 3600, "mission": mission});
        look_for("a timer that can be made", || {
            (machine.try_post("/v1/timers", &timer)?.status == 200).then_some(())
        });
    }
    assert_eq!(pair.desk.get("/v1/timers")["total"], 2);
    pair.desk.server.as_mut().expect("a server").stop();
    let away = "cannot be reached";
    let said = |value: &Value| value.as_str().is_some_and(|said| said.contains(away));
    let listed = look_for("the reason", || {
        let listed = pair.desk.get("/v1/timers");
        said(&listed["trouble"]).then_some(listed)
    });
    assert!(listed["as_of"].is_u64(), "{listed}");
    let timers = listed["timers"].as_array().expect("a list");
    let mut missions: Vec<_> = timers.iter().map(|timer| &timer["mission"]).collect();
    missions.sort_by_key(ToString::to_string);
    assert_eq!(missions, [&json!("of the build"), &json!("of the desk")]);
    for args in [
        ["timer", "list"],
        ["timer", "history"],
        ["top", "--json"],
        ["messages", "--json"],
    ] {
        let out = pair.desk.output(args);
        let told = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && told.contains(away), "{out:?}");
    }
    look_for("the reason in the list of sessions", || {
        text(&call(&pair.desk, &json!({"action": "list"})))
            .contains(away)
            .then_some(())
    });
    let read = pair.desk.post("/v1/tools/read_timer", &json!({}));
    assert!(text(&read).contains(away), "{}", read.body);
    assert!(text(&read).contains("of the desk"), "{}", read.body);
    let unknown = json!({"timer_id": "timer_00000000"});
    let read = pair.desk.post("/v1/tools/read_timer", &unknown);
    assert!(text(&read).contains(away), "{}", read.body);
    pair.desk.server.as_mut().expect("a server").resume();
}

#[test]
fn search_finds_lines_of_both_machines_page_by_page() {
    let pair = Pair::with("");
    let here = json!({"command": "echo needle one"});
    pair.desk.post("/v1/tools/shell", &here);
    let id = writes(&pair, "needle two\\nhay\\nneedle three\\n");
    look_for("the output", || {
        let found = pair.build.get("/v1/search?pattern=three");
        (lines(&found).len() == 1).then_some(())
    });
    let (own, other) = (None, Some("build"));
    let whole = pair.desk.get("/v1/search?pattern=needle");
    assert_eq!(lines(&whole), [(1, own), (1, other), (3, other)], "{whole}");
    assert_eq!(whole["matches"][1]["session_id"], json!(id), "{whole}");
    assert!(whole["next"].is_null(), "{whole}");
    let mut after = String::new();
    let mut found = Vec::new();
    for _ in 0..3 {
        let page = pair
            .desk
            .get(&format!("/v1/search?pattern=needle&limit=1{after}"));
        found.extend(lines(&page).iter().map(|line| line.0));
        after = match page["next"].as_str() {
            Some(next) => format!("&after={next}"),
            None => break,
        };
    }
    assert_eq!(found, [1, 1, 3]);
    let wrong = pair.desk.request(
        "GET",
        "/v1/search?pattern=x&after=nowhere/x:1",
        &Value::Null,
    );
    assert_eq!(wrong.expect("an answer").status, 400);
}

#[test]
fn search_names_a_machine_that_cannot_be_searched() {
    let pair = Pair::with("");
    pair.build.kill_daemon();
    look_for("the machine as unreachable", || {
        let known = pair.desk.get("/v1/machines").to_string();
        known.contains("unreachable").then_some(())
    });
    let page = pair.desk.get("/v1/search?pattern=needle");
    let why = page["unreachable"]["build"].as_str().unwrap_or_default();
    assert!(why.contains("build cannot be reached"), "{page}");
    pair.build.start();
}

#[test]
fn timer_of_the_other_machine_that_is_made_or_stopped_is_an_event() {
    let pair = Pair::with("");
    let mut events = pair.desk.events();
    // The first look at the other machines is over once their sessions are told.
    let id = pair.cat();
    line_with(&mut events, &id);
    let mission = json!({"mission": "later", "total_duration": 3600});
    let made = look_for("a timer that can be made", || {
        let made = pair.build.try_post("/v1/timers", &mission)?;
        made.body["timer_id"].as_str().map(str::to_owned)
    });
    line_with(&mut events, "event: timers_changed");
    let stop = format!("/v1/timers/{made}/stop");
    let stopped = pair.build.post(&stop, &json!({}));
    assert_eq!(stopped.status, 200);
    line_with(&mut events, "event: timers_changed");
}

#[test]
fn request_to_a_machine_whose_daemon_was_started_again_is_answered() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let id = pair.cat();
    let input = format!("/v1/sessions/{id}/input");
    let typed = |line: &str| pair.desk.post(&input, &json!({"typed": line}));
    // The link of this request is kept, and is not known to the next daemon.
    assert_eq!(typed("first").status, 200);
    pair.build.kill_daemon();
    pair.build.start();
    let second = typed("second");
    assert_eq!(second.status, 200, "{}", second.body);
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    let output = look_for("the input", || {
        let output = text(&call(&pair.build, &read)).to_owned();
        output.contains("second").then_some(output)
    });
    for line in ["first", "second"] {
        assert_eq!(output.matches(line).count(), 1, "{output}");
    }
    let signal = format!("/v1/sessions/{id}/signal");
    let signalled = pair.desk.post(&signal, &json!({"signal": "INT"}));
    assert_eq!(signalled.status, 200);
}

#[test]
fn followed_questions_have_those_of_the_other_machine() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let mut lines = pair.desk.watch();
    let (begun, question) = pair.asked_on_build();
    let asked = line_with(&mut lines, "\"state\":\"open\"");
    let asked: Value = serde_json::from_str(asked.trim()).expect("JSON");
    assert_eq!(asked["question_id"], question, "{asked}");
    assert_eq!(asked["machine"], "build", "{asked}");
    let answer = json!({"answer": "no"});
    let answered = pair.desk.post(&answer_path(&question), &answer);
    assert_eq!(answered.status, 200);
    let closed = line_with(&mut lines, "\"state\":\"closed\"");
    assert!(closed.contains("\"closing\":\"no\""), "{closed}");
    harness::receive(begun).expect("an answer");
}

#[test]
fn session_of_a_machine_that_is_gone_is_shown_as_it_was_known() {
    let pair = Pair::with("");
    let id = pair.cat();
    pair.build.kill_daemon();
    let path = format!("/v1/sessions/{id}");
    let session = look_for("the session as unreachable", || {
        let session = pair.desk.get(&path);
        (session["status"] == "unreachable").then_some(session)
    });
    assert_eq!(session["machine"], "build", "{session}");
    assert!(session["as_of"].is_u64(), "{session}");
    let lines = pair
        .desk
        .request("GET", &format!("{path}/lines"), &Value::Null);
    assert_eq!(lines.expect("an answer").status, 504);
    pair.build.start();
}

#[test]
fn killed_session_of_the_other_machine_is_listed_with_its_cause() {
    let pair = Pair::with("");
    let id = pair.cat();
    assert_eq!(pair.build.kill_session(&id).status, 200);
    look_for("the end in the list", || {
        let listed = pair.desk.get("/v1/sessions?include_ended=true");
        (listed["sessions"][0]["end"] == "user").then_some(())
    });
}

#[test]
fn secret_in_a_command_does_not_enter_the_directory() {
    let pair = Pair::with("");
    let secret = "q8Zr2LwT5nXc7VbM1kJh";
    let start = json!({"action": "start", "command": format!("echo {secret}; exec cat"),
        "env": {"API_TOKEN": secret}, "inactivity_timeout": 0});
    let started = call(&pair.build, &start);
    pair.wait_listed(started.body["session_id"].as_str().expect("an id"));
    let stored = pair.server().sql("SELECT command FROM abide.session");
    assert!(
        stored.contains("exec cat") && !stored.contains(secret),
        "{stored}"
    );
}

#[test]
fn session_start_with_on_runs_in_the_home_folder_of_that_machine() {
    let pair = Pair::with("[fleet]\nrun = [\"desk\"]\n");
    let started = pair
        .desk
        .output(["session", "start", "--on", "gpu", "--json", "--", "cat"]);
    assert!(started.status.success(), "{started:?}");
    let started: Value = serde_json::from_slice(&started.stdout).expect("JSON");
    assert_eq!(started["machine"], "build", "{started}");
    let id = started["session_id"].as_str().expect("an id");
    let there = pair.build.get(&format!("/v1/sessions/{id}"));
    assert_eq!(there["status"], "running", "{there}");
    let home = pair.build.output(["run", "--", "sh", "-c", "echo $HOME"]);
    let home = String::from_utf8_lossy(&home.stdout).into_owned();
    assert_eq!(there["cwd"], json!(home.trim()), "{there}");
}

/// Session in the list of a machine.
fn listed(machine: &Abide, id: &str) -> Option<Value> {
    let all = machine.get("/v1/sessions");
    let mut all = all["sessions"].as_array()?.iter();
    all.find(|session| session["session_id"] == id).cloned()
}

#[test]
fn last_output_of_a_session_elsewhere_stays_when_its_daemon_is_started_again() {
    let pair = Pair::with("");
    let id = writes(&pair, "x\\n");
    let last = |machine: &Abide| listed(machine, &id)?["last_activity"].as_u64();
    look_for("the output in both lists", || {
        let written = listed(&pair.desk, &id)?["bytes_total"].as_u64()? > 0;
        (written && last(&pair.desk) == last(&pair.build)).then_some(())
    });
    let before = last(&pair.desk);
    let written = format!("SELECT as_of FROM abide.session WHERE id = '{id}'");
    let first = pair.server().sql(&written);
    pair.build.kill_daemon();
    pair.build.start();
    look_for("the row of the next daemon", || {
        (pair.server().sql(&written) != first).then_some(())
    });
    assert_eq!(last(&pair.desk), before);
}

#[test]
fn session_in_the_background_elsewhere_is_listed_with_its_processes() {
    let pair = Pair::with("");
    let run = json!({"command": "sleep 6123 >/dev/null 2>&1 & echo started"});
    let ran = pair.build.post("/v1/tools/shell", &run);
    let id = ran.body["session_id"].as_str().expect("an id");
    look_for("the process", || {
        let session = listed(&pair.desk, id)?;
        (session["still_running"][0]["command"] == "sleep 6123").then_some(())
    });
    pair.build.kill_session(id);
    look_for("its end", || listed(&pair.desk, id).is_none().then_some(()));
}

#[test]
fn status_counts_the_questions_of_the_other_machine() {
    let pair = Pair::with("");
    let (begun, _) = pair.asked_on_build();
    let status = pair.desk.get("/v1/status");
    assert_eq!(status["questions"]["open"], 1, "{status}");
    drop(begun);
}

#[test]
fn session_of_the_other_machine_is_not_run_again_on_this_one() {
    let pair = Pair::with("");
    let id = pair.cat();
    let again = pair.desk.output(["rerun", &id]);
    assert_eq!(again.status.code(), Some(125), "{again:?}");
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains(&format!("{id} ran on build")), "{said}");
    assert!(said.contains("abide session start --on build"), "{said}");
}
