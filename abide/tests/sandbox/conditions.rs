//! Conditions of timers, which the daemon looks for outside the sandbox.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};

use crate::agents::{call, text};
use crate::harness::{User, as_each_user};
use crate::network::ports::free_port;
use crate::outside::with_outside;

const REFUSED: &str = "REFUSED: the condition must not";

/// Waits as an agent for a condition that holds or is refused.
fn wait(user: &User, until: &Value) -> String {
    let timer = json!({"total_duration": 60, "reason": "a test", "until": until});
    text(&call(user, "timer", &timer))
}

/// Waits until a condition that does not hold was looked at with this result.
fn looked_at(user: &User, until: &Value, expected: &str) {
    let mission = json!({"total_duration": 600, "mission": "a test", "until": until});
    let made = call(user, "timer", &mission);
    let timer = json!({"timer_id": made["result"]["timer_id"]});
    let mut last = String::new();
    for _ in 0..300 {
        last = text(&call(user, "read_timer", &timer));
        if last.contains(expected) {
            call(user, "cancel_timer", &timer);
            return;
        }
    }
    panic!("{until}: {last}");
}

#[test]
fn conditions_do_not_see_files_that_the_sandbox_hides() {
    as_each_user(|user| {
        let hidden = user.write("outside/hidden/x", "secret\n");
        let hidden = hidden.display().to_string();
        let config = format!(
            "[sandbox]\nmode = \"workspace-write\"\nnetwork = \"on\"\nhide = [\"{}\"]\n",
            user.path("outside/hidden").display()
        );
        user.write("state/config.toml", &config);
        user.write("home/.ssh/id_rsa", "secret\n");
        user.write("work/plain", "secret\n");
        user.outside("ln -s ~/.ssh/id_rsa key; ln -s ~/.ssh none; ln -s ~/.ssh/none missing");
        let state = user.path("state/config.toml").display().to_string();
        for path in [
            "~/.ssh/id_rsa",
            "key",
            "none/id_rsa",
            "none/x",
            "missing",
            &hidden,
            &state,
            "/proc/self/environ",
            "/run/x",
        ] {
            for until in [
                json!({"file": path, "matches": "."}),
                json!({"any": [{"port": 1}, {"file": path, "is": "gone"}]}),
            ] {
                let said = wait(user, &until);
                assert!(said.contains(REFUSED), "{path}: {said}");
            }
        }
        let said = wait(user, &json!({"file": "plain", "matches": "secret"}));
        assert!(said.contains("has \\\"secret\\\" in it"), "{said}");
        // A person may look at everything.
        let key = user.path("home/.ssh/id_rsa").display().to_string();
        let waited = user.abide(&["wait", "--for", "60s", "--file", &key]);
        assert_eq!(waited.code, 0, "{waited:?}");
    });
}

#[test]
fn condition_whose_file_becomes_a_hidden_one_ends_as_impossible() {
    as_each_user(|user| {
        let config = "[sandbox]\nmode = \"workspace-write\"\n";
        user.write("state/config.toml", config);
        user.write("home/.ssh/id_rsa", "secret\n");
        let until = json!({"file": "later", "matches": "secret"});
        let mission = json!({"total_duration": 600, "mission": "a test", "until": until});
        let made = call(user, "timer", &mission);
        let id = made["result"]["timer_id"].as_str().expect("an id");
        user.outside("ln -s ~/.ssh/id_rsa later");
        let said = text(&call(user, "timer", &json!({"timer_id": id})));
        assert!(said.contains("the condition must not look at"), "{said}");
        assert!(!said.contains("in it"), "{said}");
    });
}

#[test]
fn conditions_connect_no_further_than_commands() {
    as_each_user(|user| {
        let own = free_port();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let other = server.local_addr().expect("an address").port();
        let configure = |network: &str, more: &str| {
            let config = format!(
                "http = \"127.0.0.1:{own}\"\n[sandbox]\nmode = \"workspace-write\"\nnetwork = \"{network}\"\n{more}\n"
            );
            user.write("state/config.toml", &config);
        };
        let url = |host: &str, port: u16| json!({"url": format!("http://{host}:{port}/")});
        configure("off", "");
        for until in [json!({"port": other}), url("192.0.2.1", 80)] {
            let said = wait(user, &until);
            assert!(
                said.contains(REFUSED) && said.contains("no network"),
                "{said}"
            );
        }
        configure("on", "");
        for until in [json!({"port": own}), url("localhost", own)] {
            let said = wait(user, &until);
            assert!(said.contains("a port of abide itself"), "{said}");
        }
        let unspecified = json!({"port": format!("0.0.0.0:{own}")});
        looked_at(user, &unspecified, "must not connect to its address");
        let said = wait(user, &json!({"port": other}));
        assert!(said.contains("is open"), "{said}");
        configure("allowlist", "allow = [\"allowed.test\"]");
        for until in [
            json!({"port": "other.test:443"}),
            json!({"port": "allowed.test:22"}),
            url("other.test", 443),
            url("192.0.2.1", 443),
            json!({"port": own}),
        ] {
            let said = wait(user, &until);
            assert!(said.contains(REFUSED), "{until}: {said}");
        }
        looked_at(
            user,
            &json!({"port": other}),
            "no command of this agent listens there",
        );
        configure("allowlist", &format!("host_ports = [{other}]"));
        let said = wait(user, &json!({"port": other}));
        assert!(said.contains("is open"), "{said}");
    });
}

#[test]
fn condition_on_an_allowed_name_or_a_published_port_holds() {
    with_outside(|user, _| {
        let config = "[sandbox]\nmode = \"workspace-write\"\nnetwork = \"allowlist\"\nallow = [\"*.test\"]\n";
        user.write("state/config.toml", config);
        let said = wait(user, &json!({"port": "allowed.test:80"}));
        assert!(said.contains("is open"), "{said}");
        for name in [
            "loop.test",
            "private.test",
            "own.test",
            "zero.test",
            "mapped.test",
        ] {
            let url = json!({"url": format!("http://{name}/")});
            looked_at(user, &url, "must not connect to its address");
        }
        let serve = json!({"action": "start", "command": "/usr/bin/python3 -m http.server 3000"});
        let started = call(user, "terminal_session", &serve);
        let until = json!({"total_duration": 60, "reason": "a test", "until": {"port": 3000}});
        let said = text(&call(user, "timer", &until));
        assert!(said.contains("port 3000 is open"), "{said}");
        let kill = json!({"action": "kill", "session_id": started["result"]["session_id"]});
        call(user, "terminal_session", &kill);
    });
}
