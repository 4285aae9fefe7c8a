//! Timers, conditions and messages as an MCP client sees them.

use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Client, ERAS, Home, setup, setup_in, text};

#[test]
fn timer_completes_within_its_call_and_sends_no_message() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let result = client.call(
            "timer",
            json!({"total_duration": 0.2, "reason": "the build"}),
        );
        let facts = &result["structuredContent"];
        assert_eq!(facts["status"], "completed", "{result}");
        assert_eq!(facts["timeout"], false);
        assert_eq!(facts["text"], text(&result));
        let none = client.call("read_messages", json!({}));
        assert_eq!(text(&none), "No messages.");
    }
}

/// Starts a mission that completes when the file is made: after the call is answered, otherwise that answer would deliver
/// the message.
fn mission_until_a_file(home: &Home, client: &mut Client) -> (Value, PathBuf) {
    let due = home.path("due");
    let _ = std::fs::remove_file(&due);
    let until = json!({"file": due});
    let mission = json!({"total_duration": 3600, "mission": "look", "until": until});
    (client.call("timer", mission), due)
}

#[test]
fn completed_mission_is_delivered_with_the_next_result() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let (made, due) = mission_until_a_file(&home, &mut client);
        let told = "told with your next abide call";
        assert!(text(&made).contains(told), "{made}");
        std::fs::write(&due, "").expect("a file");
        let id = made["structuredContent"]["timer_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let mut told = String::new();
        for _ in 0..1_000 {
            let result = client.call("shell", json!({"command": "echo hello"}));
            if result["structuredContent"]["messages"].is_array() {
                told = text(&result).to_owned();
                break;
            }
        }
        let expected = format!(
            "[System] Timer '{id}' has completed.\nMission: look\nTotal duration: 3600 seconds"
        );
        assert!(told.contains("hello") && told.contains(&expected), "{told}");
        let after = client.call("shell", json!({"command": "echo again"}));
        assert!(!text(&after).contains("[System]"), "{after}");
    }
}

#[test]
fn completed_mission_is_delivered_with_a_refusal_of_bad_input() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let (_, due) = mission_until_a_file(&home, &mut client);
        std::fs::write(&due, "").expect("a file");
        let mut refused = Value::Null;
        for _ in 0..10_000 {
            refused = client.call("shell", json!({"command": 5}));
            assert_eq!(refused["isError"], true, "{refused}");
            if refused["structuredContent"]["messages"].is_array() {
                break;
            }
        }
        let said = text(&refused);
        assert!(
            said.starts_with("`command` must be text; got 5.\n\n[System] Timer '"),
            "{refused}"
        );
        assert!(said.contains("\nMission: look\n"), "{refused}");
        let after = client.call("shell", json!({"command": 5}));
        assert_eq!(text(&after), "`command` must be text; got 5.");
    }
}

#[test]
fn waiting_for_a_port_is_one_call() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let arguments =
            json!({"total_duration": 300, "reason": "server start", "until": {"port": port}});
        let result = client.call("timer", arguments);
        assert_eq!(
            result["structuredContent"]["completed_by"], "condition",
            "{result}"
        );
        assert_eq!(
            result["structuredContent"]["seen"],
            format!("port {port} is open")
        );
    }
}

#[test]
fn standby_is_limited_by_the_clients_timeout() {
    let home = Home::new();
    let env = [("ABIDE_CALL_LIMIT", "0.6")];
    for era in ERAS {
        let mut client = Client::start(&home, setup_in(era, &env));
        let result = client.call("timer", json!({"total_duration": 600, "reason": "r"}));
        let facts = &result["structuredContent"];
        assert_eq!(facts["timeout"], true, "{result}");
        assert_eq!(facts["status"], "running");
        assert_eq!(facts["effective_timeout"], 0.5);
        let cut = "\nThis call waited 500ms (limit of this client).\n";
        assert!(text(&result).contains(cut), "{result}");
        let id = facts["timer_id"].clone();
        let again = client.call("timer", json!({"timer_id": id}));
        assert_eq!(
            again["structuredContent"]["effective_timeout"], 0.5,
            "{again}"
        );
        let arguments = json!({"timer_id": id, "timeout_duration": 0.01});
        let short = client.call("timer", arguments);
        assert_eq!(short["structuredContent"]["timeout"], true, "{short}");
        assert!(
            short["structuredContent"]["effective_timeout"].is_null(),
            "{short}"
        );
        assert!(!text(&short).contains("limit of this client"), "{short}");
        let brief = client.call("timer", json!({"timer_id": id, "total_duration": 0.01}));
        assert_eq!(brief["structuredContent"]["status"], "completed", "{brief}");
        assert!(
            brief["structuredContent"]["effective_timeout"].is_null(),
            "{brief}"
        );
        let none = client.call("read_messages", json!({"timeout_seconds": 600}));
        assert_eq!(
            none["structuredContent"]["effective_timeout"], 0.5,
            "{none}"
        );
        assert!(
            text(&none).starts_with("No messages came within 500ms (limit of this client)."),
            "{none}"
        );
    }
}

#[test]
fn timer_is_kept_once_when_the_daemon_is_killed() {
    let home = Home::new();
    for (made, era) in ERAS.into_iter().enumerate() {
        let mut client = Client::start(&home, setup(era));
        let waiting = client.begin("timer", json!({"total_duration": 3, "reason": "r"}));
        let mut other = Client::start(&home, setup(era));
        for look in 1.. {
            assert!(look < 10_000, "the timer is never made");
            let listed = other.call("read_timer", json!({"include_ended": true}));
            let timers = listed["structuredContent"]["timers"]
                .as_array()
                .expect("a list")
                .len();
            assert!(timers <= made + 1, "{listed}");
            if timers == made + 1 {
                break;
            }
        }
        home.kill_daemon();
        let result = client.result(waiting);
        assert_eq!(
            result["structuredContent"]["status"], "completed",
            "{result}"
        );
        let listed = other.call("read_timer", json!({"include_ended": true}));
        let timers = listed["structuredContent"]["timers"]
            .as_array()
            .expect("a list");
        let these = timers
            .iter()
            .filter(|timer| timer["reason"] == "r" && timer["status"] == "running");
        assert_eq!(these.count(), 0, "{listed}");
    }
    let mut client = Client::start(&home, setup(ERAS[0]));
    let listed = client.call("read_timer", json!({"include_ended": true}));
    let timers = listed["structuredContent"]["timers"]
        .as_array()
        .expect("a list");
    assert_eq!(timers.len(), ERAS.len(), "one for each call: {listed}");
}
