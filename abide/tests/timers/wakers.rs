use std::fs;

use serde_json::{Value, json};

use crate::harness::Abide;
use crate::{call, id_of};

fn configured(config: &str) -> Abide {
    let abide = Abide::new();
    fs::write(abide.path("config.toml"), config).expect("a configuration");
    abide
}

/// Waits until a file has something in it; the daemon itself does the waiting.
fn appears(abide: &Abide, name: &str) -> String {
    let path = abide.path(name);
    let body = json!({"until": {"file": path, "matches": "(?s)..*\\n"}, "for": 30});
    let answer = abide.post("/v1/wait", &body).expect("an answer").body;
    assert_eq!(answer["held"], true, "{name}: {answer}");
    fs::read_to_string(path).expect("a file")
}

#[test]
fn an_idle_agent_is_woken_with_the_message() {
    let config = r#"
        [[wakers]]
        agent = "default"
        command = ["sh", "-c", "echo \"$1\" > \"$ABIDE_DIR/woken\"; env > \"$ABIDE_DIR/env\"; cat > \"$ABIDE_DIR/input\"; echo >> \"$ABIDE_DIR/input\"", "wake", "{agent}: {text}"]
        after = 0.05
    "#;
    let abide = configured(config);
    abide.start();
    let made = call(
        &abide,
        "timer",
        json!({"total_duration": 0.1, "mission": "it's \"time\"; $(no)"}),
    );
    let id = id_of(&made);
    let text = format!("[System] Timer '{id}' has completed.\nMission: it's \"time\"; $(no)");
    assert!(appears(&abide, "woken").starts_with(&format!("default: {text}")));
    assert!(appears(&abide, "input").starts_with(&text));
    assert!(appears(&abide, "env").contains("ABIDE_AGENT=default\n"));
    let message = loop {
        let listed = abide.get("/v1/messages");
        if listed["messages"][0]["woken_at"].is_u64() {
            break listed["messages"][0].clone();
        }
    };
    assert_eq!(message["wake_fault"], Value::Null, "{message}");
    assert_eq!(message["seen_at"], Value::Null, "waking is not reading");
    let told = call(&abide, "read_messages", json!({}));
    assert_eq!(told["messages"][0]["timer_id"], id, "{told}");
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
    call(
        &abide,
        "timer",
        json!({"total_duration": 0.05, "mission": "m"}),
    );
    let message = loop {
        let listed = abide.get("/v1/messages");
        if listed["messages"][0]["wake_fault"].is_string() {
            break listed["messages"][0].clone();
        }
    };
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
    assert_eq!(tries.lines().count(), 2, "{tries}");
}

#[test]
fn an_agent_that_reads_by_itself_is_not_woken() {
    let config = r#"
        [[wakers]]
        command = ["sh", "-c", "echo woken > \"$ABIDE_DIR/woken\""]
        after = 0.5
    "#;
    let abide = configured(config);
    abide.start();
    call(
        &abide,
        "timer",
        json!({"total_duration": 0.05, "mission": "m"}),
    );
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 10}));
    assert_eq!(told["messages"].as_array().map(Vec::len), Some(1), "{told}");
    // Longer than the waker waits.
    call(&abide, "timer", json!({"total_duration": 1, "reason": "r"}));
    assert!(!abide.path("woken").exists());
}
