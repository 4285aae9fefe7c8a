//! Calls that are replayed to one daemon after the other: those that crash each of them, and those that do not.

use serde_json::{Value, json};

use crate::harness::{Client, ERAS, Fifo, Home, LEGACY, is_error, setup, setup_in, text};

#[test]
fn call_that_stops_every_daemon_is_given_up_and_other_calls_go_on() {
    for era in ERAS {
        let home = Home::new();
        // Each daemon that the front of this client starts crashes when it starts a command.
        let env = [("ABIDE_CRASH_AT", "session.pre_start")];
        let mut client = Client::start(&home, setup_in(era, &env));
        let ready = home.path("ready");
        let until = json!({"file": ready});
        let wait = json!({"total_duration": 600, "reason": "a file", "until": until});
        let waiting = client.begin("timer", wait);
        let stopping = client.begin("shell", json!({"command": "echo ran >> ran"}));
        let listed = client.request("tools/list", json!({}));
        client.result(listed);
        let result = client.result(stopping);
        assert!(is_error(&result), "{result}");
        let said = "The abide daemon stopped 10 times in a row while it worked on this call";
        assert!(text(&result).starts_with(said), "{result}");
        assert_eq!(home.lines("ran"), 0, "it never started");
        std::fs::write(&ready, "").expect("a file");
        let result = client.result(waiting);
        let status = &result["structuredContent"]["status"];
        assert_eq!(status, "completed", "{era:?}: {result}");
        client.close_input();
        assert_eq!(client.ended().1, Vec::<Value>::new(), "nothing comes twice");
    }
}

#[test]
fn call_in_flight_survives_twenty_kills_of_the_daemon() {
    for era in ERAS {
        let home = Home::new();
        let mut client = Client::start(&home, setup(era));
        let (fifo, go) = (Fifo::new(&home, "fifo"), Fifo::new(&home, "go"));
        let command = format!(
            "echo run >> count; echo on > {}; cat {}; echo over",
            fifo.path(),
            go.path()
        );
        let id = client.begin("shell", json!({"command": command}));
        fifo.read();
        for _ in 0..20 {
            home.kill_daemon();
            // Whatever the front has replayed until then.
            let mut other = Client::start(&home, LEGACY);
            other.call("shell", json!({"command": "true"}));
        }
        std::fs::write(home.path("go"), "").expect("the command reads");
        let result = client.result(id);
        assert!(
            text(&result).contains("STDOUT:\nover\n"),
            "{era:?}: {result}"
        );
        assert_eq!(home.lines("count"), 1, "{era:?}");
    }
}
