use std::fs;

use serde_json::{Value, json};

use crate::harness::look_for;
use crate::{appears, call, configured, delivered, mission, newest, program};

#[test]
fn an_idle_agent_is_woken_with_the_message() {
    let config = r#"
        [[wakers]]
        agent = "default"
        command = ["sh", "-c", "echo \"$1\" > \"$ABIDE_DIR/woken\"; env > \"$ABIDE_DIR/env\"; cat > \"$ABIDE_DIR/none\"; echo end >> \"$ABIDE_DIR/none\"", "wake", "{agent}: {text}"]
        after = 0.05

        [[wakers]]
        agent = "default"
        command = ["sh", "-c", "cat > \"$ABIDE_DIR/input\"; echo >> \"$ABIDE_DIR/input\""]
        after = 0.05
    "#;
    let abide = configured(config);
    abide.start();
    let id = mission(&abide, "it's \"time\"; $(no)");
    let text = format!("[System] Timer '{id}' has completed.\nMission: it's \"time\"; $(no)");
    let woken = appears(&abide, "woken");
    let (agent, told) = woken.split_once(": ").expect("an agent");
    assert_eq!(abide_core::settings_name(agent), "default");
    assert!(told.starts_with(&text), "{woken}");
    // Without a placeholder in the arguments, the message is the input.
    assert!(appears(&abide, "input").starts_with(&text));
    assert_eq!(appears(&abide, "none"), "end\n");
    assert!(appears(&abide, "env").contains(&format!("ABIDE_AGENT={agent}\n")));
    let message = newest(&abide, |message| message["woken_at"].is_u64());
    assert_eq!(message["wake_fault"], Value::Null, "{message}");
    assert_eq!(message["seen_at"], Value::Null, "waking is not reading");
    let told = call(&abide, "read_messages", json!({}));
    assert_eq!(told["messages"][0]["timer_id"], id, "{told}");
    assert_eq!(told["messages"][0]["repeated"], true, "it may know it");
}

#[test]
fn s28_a_waker_that_fails_is_visible_and_tried_again_after_a_restart() {
    let config = r#"
        [[wakers]]
        command = ["sh", "-c", "echo try >> \"$ABIDE_DIR/tries\"; test -e \"$ABIDE_DIR/up\" || { echo the sink is down >&2; exit 3; }; echo ok > \"$ABIDE_DIR/woken\""]
        after = 0
    "#;
    let abide = configured(config);
    abide.start();
    mission(&abide, "m");
    let message = newest(&abide, |message| message["wake_fault"].is_string());
    let fault = message["wake_fault"].as_str().expect("a fault");
    assert!(
        fault.contains("code 3") && fault.contains("the sink is down"),
        "{fault}"
    );
    assert_eq!(message["woken_at"], Value::Null);
    fs::write(abide.path("up"), "").expect("a file");
    abide.kill_daemon();
    abide.start();
    appears(&abide, "woken");
    let tries = fs::read_to_string(abide.path("tries")).expect("tries");
    // A slow machine may have tried once more before the restart.
    assert!(tries.lines().count() >= 2, "{tries}");
}

#[test]
fn an_agent_that_reads_by_itself_is_not_woken() {
    let config = r#"
        [[wakers]]
        command = ["sh", "-c", "echo \"$1\" >> \"$ABIDE_DIR/woken\"", "wake", "{text}"]
        after = 10
    "#;
    let abide = configured(config);
    abide.start();
    mission(&abide, "read in time");
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"].as_array().map(Vec::len), Some(1), "{told}");
    // A later message wakes the agent; the first one would have done so before.
    mission(&abide, "left unread");
    let woken = appears(&abide, "woken");
    assert!(woken.contains("Mission: left unread"), "{woken}");
    assert!(!woken.contains("Mission: read in time"), "{woken}");
}

#[test]
fn message_over_the_budget_is_shown_as_waiting() {
    let config = r#"
        [[wakers]]
        command = ["sh", "-c", "echo woken >> \"$ABIDE_DIR/woken\""]
        after = 0
        most_per_hour = 1
    "#;
    let abide = configured(config);
    abide.start();
    mission(&abide, "first");
    let first = delivered(&abide, |delivery| delivery["ok"] == true);
    mission(&abide, "second");
    let second = delivered(&abide, |delivery| delivery["fault"].is_string());
    let delivery = &second["deliveries"][0];
    let fault = delivery["fault"].as_str().expect("a fault");
    assert!(
        fault.contains("held back") && fault.contains("most_per_hour"),
        "{fault}"
    );
    assert_eq!(delivery["state"], "waiting");
    assert_eq!(delivery["attempts"], 0);
    let hour = delivery["next_at"].as_u64().unwrap() - first["woken_at"].as_u64().unwrap();
    assert!((3_500_000..3_700_000).contains(&hour), "{delivery}");
    assert_eq!(appears(&abide, "woken"), "woken\n");
    // A person can send it now; an agent cannot.
    let id = second["message_id"].as_str().unwrap();
    let command =
        json!({"command": format!("{} messages resend {id}", env!("CARGO_BIN_EXE_abide"))});
    let refused = call(&abide, "shell", command);
    assert_eq!(refused["status"], "ERROR", "{refused}");
    assert!(
        refused["text"].as_str().unwrap().contains("only a person"),
        "{refused}"
    );
    let out = abide.output(["messages", "resend", id]);
    assert!(out.status.success(), "{out:?}");
    delivered(&abide, |delivery| delivery["ok"] == true);
    assert_eq!(appears(&abide, "woken"), "woken\nwoken\n");
    let out = abide.output(["messages", "--deliveries"]);
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(shown.contains("command sh: done, tried once"), "{shown}");
}

#[test]
fn a_message_without_a_waker_cannot_be_sent_again() {
    let abide = configured("");
    abide.start();
    mission(&abide, "m");
    let message = newest(&abide, Value::is_object);
    let message = message["message_id"].as_str().expect("an id");
    let answer = abide.post(&format!("/v1/messages/{message}/wake"), &json!({}));
    assert_eq!(answer.status, 409, "{}", answer.body);
    let detail = answer.body["detail"].as_str().unwrap();
    assert!(detail.contains("[[wakers]]"), "{detail}");
    let unknown = abide.post("/v1/messages/message_00000000/wake", &json!({}));
    assert_eq!(unknown.status, 404);
}

#[test]
fn desktop_notification_is_shown_or_the_missing_program_named() {
    let abide = configured("[[wakers]]\ndesktop = true\nafter = 0\n");
    let folder = abide.path("bin");
    fs::create_dir(&folder).expect("a folder");
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let out = abide.command(["status"]).env("PATH", path).output();
    assert!(out.expect("it runs").status.success());
    let notify = folder.join("notify-send");
    let there = std::path::Path::new("/usr/bin/notify-send").exists();
    if !there {
        mission(&abide, "first");
        let message = delivered(&abide, |delivery| delivery["fault"].is_string());
        let fault = message["deliveries"][0]["fault"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(fault.contains("libnotify-bin"), "{fault}");
    }
    // All at once, after the output of a possible second attempt for the first one.
    let script = "#!/bin/sh\nfor word; do echo \"<$word>\"; done > \"$ABIDE_DIR/draft$$\"\n\
        cat \"$ABIDE_DIR/draft$$\" >> \"$ABIDE_DIR/shown\"\n";
    program(&notify, script);
    mission(&abide, "a < b");
    let message = newest(&abide, |message| {
        let text = message["text"].as_str();
        text.is_some_and(|text| text.contains("a < b"))
    });
    let message = message["message_id"].as_str().expect("an id");
    // The waker may be in its backoff after a failure; a manual send does not wait for it.
    let out = abide.output(["messages", "resend", message]);
    assert!(out.status.success(), "{out:?}");
    // The text has no markup.
    let shown = abide.path("shown");
    abide.waits_until(&json!({"file": shown, "matches": "^Mission: a &lt; b$"}));
    let shown = fs::read_to_string(shown).expect("a file");
    assert!(shown.contains("<abide: for default"), "{shown}");
}

#[test]
fn message_waits_behind_any_number_of_others() {
    let abide = configured("");
    abide.start();
    let old = [
        "timer",
        "start",
        "50ms",
        "--mission",
        "m",
        "--agent",
        "woken",
    ];
    assert!(abide.output(old).status.success());
    newest(&abide, |message| message["agent"] == "woken");
    for _ in 0..2 {
        let timers = vec![json!({"mission": "another's", "total_duration": 0.001}); 500];
        let made = abide.post("/v1/timers", &json!({"timers": timers}));
        assert_eq!(made.status, 200);
    }
    look_for("that many messages", || {
        let all = abide.get("/v1/messages?limit=1000")["messages"].clone();
        let all = all.as_array()?;
        let others = all.iter().filter(|message| message["agent"] != "woken");
        (others.count() == 1_000).then_some(())
    });
    let config = r#"
        [[wakers]]
        agent = "woken"
        command = ["sh", "-c", "echo \"$1\" > \"$ABIDE_DIR/woken\"", "wake", "{text}"]
        after = 0
    "#;
    abide.configure(config);
    abide.kill_daemon();
    abide.start();
    assert!(appears(&abide, "woken").contains("Mission: m"));
}
