//! Faults of links, and of questions that travel over them. Tests have the numbers of the list of faults of fleets.

use super::proxy::{Mode, Proxy};
use super::*;
use crate::common::process::Process;

#[test]
fn f57_answer_while_the_machine_is_away_is_not_taken() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let (begun, question) = pair.asked_on_build();
    let path = answer_path(&question);
    pair.build.kill_daemon();
    drop(begun);
    let refused = pair.desk.post(&path, &json!({"answer": "no"}));
    assert_ne!(refused.status, 200, "{}", refused.body);
    assert!(
        refused.body["detail"]
            .to_string()
            .contains("build cannot be reached"),
        "{}",
        refused.body
    );
    // Nothing was decided without the machine of the session.
    let taken = "SELECT count(*) FROM abide.question WHERE closing IS NOT NULL";
    assert_eq!(pair.server().sql(taken), "0");
    // The question is either asked again there under its id, or closed because another one has replaced it.
    pair.build.start();
    let open = format!(
        "SELECT count(*) FROM abide.question WHERE closing IS NULL AND id = {}",
        question.to_string().replace('"', "'")
    );
    look_for("the question at home, or its end", || {
        let listed = pair.build.get("/v1/questions");
        let mut listed = listed["questions"].as_array()?.iter();
        let is_asked = listed.any(|listed| listed["question_id"] == question);
        (is_asked || pair.server().sql(&open) == "0").then_some(())
    });
}

#[test]
fn f56_of_two_answers_at_once_one_counts() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let (begun, question) = pair.asked_on_build();
    let path = answer_path(&question);
    let statuses = std::thread::scope(|scope| {
        let answers = [(&pair.desk, "yes"), (&pair.build, "no")].map(|(machine, word)| {
            let path = &path;
            scope.spawn(move || machine.post(path, &json!({"answer": word})).status)
        });
        answers.map(|answer| answer.join().expect("an answer"))
    });
    let mut sorted = statuses;
    sorted.sort_unstable();
    assert_eq!(sorted, [200, 409]);
    drop(begun);
}

/// Has every frame of the links that are open now changed on its way.
fn alter_open_links(pair: &Pair) {
    pair.server().sql(
        "CREATE TABLE fresh AS SELECT ''::text AS link WHERE false; \
         CREATE FUNCTION alter_frame() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF NEW.seq = 0 AND NEW.link LIKE '%>' THEN INSERT INTO public.fresh VALUES (left(NEW.link, 32)); END IF; \
         IF NOT EXISTS (SELECT 1 FROM public.fresh AS f WHERE f.link = left(NEW.link, 32)) AND length(NEW.bytes) > 10 THEN \
         NEW.bytes := set_byte(NEW.bytes, length(NEW.bytes) - 1, 255 - get_byte(NEW.bytes, length(NEW.bytes) - 1)); \
         END IF; RETURN NEW; END $$; \
         CREATE TRIGGER alter_frame BEFORE INSERT ON abide.frame FOR EACH ROW EXECUTE FUNCTION alter_frame()",
    );
}

#[test]
fn f61_altered_frame_ends_the_link_and_the_next_call_has_a_new_one() {
    let pair = Pair::with("");
    let id = pair.cat();
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    assert_eq!(call(&pair.desk, &read).body["machine"], "build");
    alter_open_links(&pair);
    let answer = call(&pair.desk, &read);
    assert_eq!(answer.body["machine"], "build", "{}", answer.body);
    assert_eq!(answer.body["is_error"], false, "{}", answer.body);
}

/// Starts a daemon in a network of its own, without an address.
fn start_without_network(machine: &Abide) {
    let status = machine.command(["status"]);
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    let mut command = std::process::Command::new("unshare");
    command.arg(match rustix::process::geteuid().is_root() {
        true => "-n",
        false => "-rn",
    });
    command.arg(status.get_program()).args(status.get_args());
    for (name, value) in status.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let started = command.output().expect("unshare runs");
    assert!(started.status.success(), "{started:?}");
}

fn network(machine: &Abide) -> std::path::PathBuf {
    let pid = machine.daemon_pid().expect("a daemon");
    std::fs::read_link(format!("/proc/{pid}/ns/net")).expect("a namespace")
}

#[test]
fn f17_machines_without_a_network_between_them_call_each_other_through_the_database() {
    let server = Server::start();
    let url = server.url();
    let pair = Pair::started_by(server, &url, "", start_without_network);
    assert_ne!(network(&pair.desk), network(&pair.build));
    let id = pair.cat();
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    let answer = call(&pair.desk, &read);
    assert_eq!(answer.body["machine"], "build", "{}", answer.body);
    assert_eq!(answer.body["is_error"], false, "{}", answer.body);
}

#[test]
fn f17_machine_that_is_alive_but_gets_no_frames_cannot_be_reached() {
    let pair = Pair::with("");
    let id = pair.cat();
    pair.server().sql(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
         CREATE TRIGGER swallow BEFORE INSERT ON abide.frame FOR EACH ROW EXECUTE FUNCTION swallow()",
    );
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    let refused = call(&pair.desk, &read);
    let said = text(&refused);
    assert!(said.contains("build cannot be reached"), "{}", refused.body);
    let listed = pair.desk.get("/v1/sessions");
    assert_eq!(listed["sessions"][0]["session_id"], json!(id), "{listed}");
    assert!(listed["sessions"][0]["as_of"].is_u64(), "{listed}");
    pair.server().sql("DROP TRIGGER swallow ON abide.frame");
    look_for("an answer", || {
        let answer = call(&pair.desk, &read);
        (answer.body["machine"] == "build").then_some(())
    });
}

#[test]
fn f15_command_for_another_machine_is_refused_while_the_database_is_away() {
    let mut pair = Pair::with("[fleet]\nrun = [\"desk\"]\n");
    pair.desk.server.as_mut().expect("a server").stop();
    let on = |machine: &str| json!({"command": "echo works", "on": machine});
    let refused = pair.desk.post("/v1/tools/shell", &on("build"));
    assert_eq!(refused.status, 200, "{}", refused.body);
    assert_eq!(
        text(&refused),
        "the database cannot be reached, so machine build cannot be called; sessions here are not affected"
    );
    let ran = pair.desk.post("/v1/tools/shell", &on("desk"));
    assert_eq!(ran.body["status"], "SUCCESS", "{}", ran.body);
}

#[test]
fn f18_lists_of_machines_say_that_the_database_is_away_also_after_a_start() {
    let mut pair = Pair::with("");
    pair.desk.server.as_mut().expect("a server").stop();
    let said = |args: [&str; 2]| {
        let out = pair.desk.output(args);
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let listed = look_for("the reason in the list", || {
        let listed = said(["machine", "list"]);
        listed.starts_with("the database").then_some(listed)
    });
    assert!(listed.contains("build"), "{listed}");
    pair.desk.kill_daemon();
    pair.desk.start();
    for args in [["machine", "list"], ["fleet", "status"]] {
        let said = said(args);
        assert!(said.starts_with("the database at"), "{said}");
        assert!(!said.contains("in no fleet"), "{said}");
    }
    let asked = pair.desk.output(["answer"]);
    let asked = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(
        asked.contains("Open questions of other machines are not known."),
        "{asked}"
    );
}

#[test]
fn f50_calls_and_timers_go_on_while_every_notification_fails() {
    let server = Server::start();
    let proxy = Proxy::to(server.socket());
    let pair = Pair::started_by(server, &proxy.url(), "", |machine| machine.start());
    let id = pair.cat();
    proxy.set(Mode::RefuseNotify);
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    let answer = call(&pair.desk, &read);
    assert_eq!(answer.body["machine"], "build", "{}", answer.body);
    let soon = json!({"total_duration": 0.2, "reason": "soon"});
    for machine in [&pair.desk, &pair.build] {
        let waited = machine.post("/v1/tools/timer", &soon);
        assert_eq!(waited.body["status"], "completed", "{}", waited.body);
    }
    let refused = pair.server().log().matches("NOTIFX").count();
    assert!(refused > 0, "no notification was sent");
}

#[test]
fn f58_command_whose_link_breaks_after_it_began_runs_once_and_is_answered() {
    let pair = Pair::with("[fleet]\nrun = [\"desk\"]\n");
    let (file, go) = (pair.build.path("ran"), pair.build.fifo("go"));
    let command = format!(
        "echo once >> {}; read line < {}; echo finished",
        file.display(),
        go.display()
    );
    let body = json!({"command": command, "on": "build"});
    let begun = pair.desk.begin("/v1/tools/shell", &body);
    look_for("the command", || file.exists().then_some(()));
    // The answer is changed on its way, so the link ends.
    alter_open_links(&pair);
    std::fs::write(&go, "go\n").expect("the command reads");
    let answer = harness::receive(begun).expect("an answer");
    assert_eq!(answer.body["status"], "SUCCESS", "{}", answer.body);
    assert!(text(&answer).contains("finished"), "{}", answer.body);
    assert_eq!(pair.build.lines("ran"), 1);
}

#[test]
fn f72_answer_whose_link_breaks_after_it_was_taken_is_reported_as_taken() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let (begun, question) = pair.asked_on_build();
    // The first frame from `build` after the answer is stored is changed on its way, so the link ends.
    pair.server().sql(
        "CREATE TABLE altered AS SELECT ''::text AS link WHERE false; \
         CREATE FUNCTION alter_frame() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF NEW.link LIKE '%<' AND length(NEW.bytes) > 10 AND NOT EXISTS (SELECT 1 FROM public.altered) \
         AND EXISTS (SELECT 1 FROM abide.question WHERE closing IS NOT NULL) THEN \
         INSERT INTO public.altered VALUES (NEW.link); \
         NEW.bytes := set_byte(NEW.bytes, length(NEW.bytes) - 1, 255 - get_byte(NEW.bytes, length(NEW.bytes) - 1)); \
         END IF; RETURN NEW; END $$; \
         CREATE TRIGGER alter_frame BEFORE INSERT ON abide.frame FOR EACH ROW EXECUTE FUNCTION alter_frame()",
    );
    let path = answer_path(&question);
    let answered = pair.desk.post(&path, &json!({"answer": "no"}));
    assert_eq!(
        pair.server().sql("SELECT count(*) FROM public.altered"),
        "1"
    );
    assert_eq!(answered.status, 200, "{}", answered.body);
    assert_eq!(answered.body["answer"], "no", "{}", answered.body);
    assert_eq!(answered.body["about"], "idle", "{}", answered.body);
    let second = pair.desk.post(&path, &json!({"answer": "no"}));
    assert_eq!(second.status, 409, "{}", second.body);
    drop(begun);
}

#[test]
fn f72_answer_whose_machine_is_lost_after_it_was_taken_is_reported_as_taken() {
    let server = Server::start();
    let url = server.url();
    let rights = "[fleet]\ntype = [\"desk\"]\n";
    let pair = Pair::started_by(server, &url, rights, |machine| {
        machine.start_to_crash_at("question.close.post");
    });
    let daemon = Process::on(pair.build.daemon_pid().expect("a daemon"));
    let (begun, question) = pair.asked_on_build();
    let answered = pair
        .desk
        .post(&answer_path(&question), &json!({"answer": "no"}));
    daemon.wait_gone();
    drop(begun);
    assert_eq!(answered.status, 200, "{}", answered.body);
    assert_eq!(answered.body["answer"], "no", "{}", answered.body);
}

#[test]
fn f53_timer_that_is_stopped_elsewhere_while_it_completes_has_one_end() {
    const TIMERS: usize = 12;
    let pair = Pair::with("");
    let make = |seconds: f64| {
        let body = json!({"total_duration": seconds, "mission": "due"});
        look_for("a timer that can be made", || {
            let answer = pair.build.try_post("/v1/timers", &body)?;
            answer.body["timer_id"].as_str().map(str::to_owned)
        })
    };
    // They become due while the calls that stop them are on their way; the first before, the last never.
    let mut ids = vec![make(0.1)];
    ids.extend((0..TIMERS).map(|n| make(1.0 + n as f64 * 0.03)));
    ids.push(make(3_600.0));
    let facts = |id: &str| {
        pair.server().sql(&format!(
            "SELECT status, (SELECT count(*) FROM abide.message WHERE about = '{id}') FROM abide.timer WHERE id = '{id}'"
        ))
    };
    for completed in &ids[..2] {
        look_for("a completed timer", || {
            facts(completed).starts_with("completed").then_some(())
        });
    }
    let stop = json!({"reason": "enough"});
    let told: Vec<(u16, Value)> = (ids.iter())
        .map(|id| {
            let stopped = pair.desk.post(&format!("/v1/timers/{id}/stop"), &stop);
            (stopped.status, stopped.body)
        })
        .collect();
    for (id, (status, body)) in ids.iter().zip(&told) {
        let expected = match *status {
            200 => "stopped|0",
            _ => "completed|1",
        };
        let found = look_for("its end", || {
            let found = facts(id);
            (found != "running|0").then_some(found)
        });
        assert_eq!(found, expected, "{status} {body}");
    }
    assert_ne!(told[0].0, 200, "{}", told[0].1);
    assert!(told[0].1.to_string().contains("completed"), "{}", told[0].1);
    assert_eq!(told[TIMERS + 1].0, 200, "{}", told[TIMERS + 1].1);
}
