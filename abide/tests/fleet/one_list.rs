//! Search, timers and plain requests of one machine about another.

use super::*;

#[test]
fn request_to_a_machine_whose_daemon_was_started_again_is_answered() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let id = pair.cat();
    let input = format!("/v1/sessions/{id}/input");
    let typed = |line: &str| {
        pair.desk
            .post(&input, &json!({"typed": line}))
            .expect("an answer")
    };
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
    assert_eq!(signalled.expect("an answer").status, 200);
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
    let killed = (pair.build).post(&format!("/v1/sessions/{id}/kill"), &json!({}));
    assert_eq!(killed.expect("an answer").status, 200);
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
