//! Attacks 121 and 122: ports of the sandbox on the machine.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};

use super::{configure, python};
use crate::agents::{call, text};
use crate::outside::with_outside;

/// A port that nothing uses now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

fn field<'a>(result: &'a Value, name: &str) -> &'a Value {
    &result["result"][name]
}

#[test]
fn server_in_the_sandbox_is_reachable_on_loopback_only_and_told() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        user.write("work/index.html", "from inside\n");
        let serve = json!({"action": "start", "command": "/usr/bin/python3 -m http.server 3000"});
        let started = call(user, "terminal_session", &serve);
        let id = field(&started, "session_id")
            .as_str()
            .expect("an id")
            .to_owned();
        user.outside("for i in $(seq 100); do curl -so /dev/null http://127.0.0.1:3000/ && break; sleep 0.1; done");
        assert_eq!(
            user.outside("curl -s http://127.0.0.1:3000/"),
            "from inside\n",
            "121"
        );
        let from_lan = user.outside("curl -s -m 3 http://93.184.216.1:3000/ || echo no");
        assert_eq!(from_lan, "no\n", "121");
        let read = json!({"action": "read_output", "session_id": id});
        let result = call(user, "terminal_session", &read);
        assert_eq!(field(&result, "ports"), &json!([3000]), "121: {result}");
        assert!(
            text(&result).contains("port 3000 of the command is reachable at 127.0.0.1:3000"),
            "{result}"
        );
        let kill = json!({"action": "kill", "session_id": id});
        call(user, "terminal_session", &kill);
        let gone = user.outside(
            "for i in $(seq 100); do curl -so /dev/null http://127.0.0.1:3000/ || { echo gone; break; }; sleep 0.1; done",
        );
        assert_eq!(gone, "gone\n", "121");
    });
}

#[test]
fn ports_of_the_gate_are_in_use_inside() {
    with_outside(|user, _| {
        configure(user, &["allowed.test:8443"], "");
        let lines = python(
            user,
            r#"
for port in [53, 80, 443, 22, 8443]:
    say(port, attempt(lambda: socket.socket().bind(("0.0.0.0", port))))
say(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("127.0.0.1", 53))))
say(attempt(lambda: socket.socket().bind(("0.0.0.0", 8080))))
"#,
        );
        let expected = [
            "53 EACCES",
            "80 EACCES",
            "443 EACCES",
            "22 EACCES",
            "8443 EADDRINUSE",
            "EACCES",
            "None",
        ];
        assert_eq!(lines, expected, "122");
    });
}
