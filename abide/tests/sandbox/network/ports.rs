//! Attacks 121 and 122: ports of the sandbox on the machine.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{PRELUDE, configure, python, said};
use crate::agents::{call, call_as, text};
use crate::harness::User;
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
        let killed = call(user, "terminal_session", &kill);
        assert!(!text(&killed).contains("3000"), "121: {killed}");
        let gone = user.outside(
            "for i in $(seq 100); do curl -so /dev/null http://127.0.0.1:3000/ || { echo gone; break; }; sleep 0.1; done",
        );
        assert_eq!(gone, "gone\n", "121");
    });
}

/// Starts a terminal session as the agent. Returns its id.
fn start(user: &User, command: &str) -> String {
    let start = json!({"action": "start", "command": command});
    let started = call(user, "terminal_session", &start);
    let id = field(&started, "session_id").as_str();
    id.unwrap_or_else(|| panic!("{started}")).to_owned()
}

/// Lines that a command of the agent has printed.
fn output(user: &User, agent: &str, command: &str) -> Vec<String> {
    let result = call_as(user, agent, "shell", &json!({"command": command}));
    said(&result).0
}

/// Output of a terminal session that waits for the Enter key.
fn entered(user: &User, session: &str) -> String {
    let send = json!({"action": "send_input", "session_id": session, "keys": ["enter"]});
    call(user, "terminal_session", &send);
    let read = json!({
        "action": "read_output", "session_id": session, "until": "over", "timeout_seconds": 60, "since": "0",
    });
    text(&call(user, "terminal_session", &read))
}

/// A server of the machine at port 3000, once the port is free.
const OF_THE_MACHINE: &str = r#"
import socket, time
while True:
    try: s = socket.create_server(("127.0.0.1", 3000)); break
    except OSError: time.sleep(0.05)
print("ready", flush=True)
while True:
    c = s.accept()[0]
    c.recv(1000)
    c.sendall(b"HTTP/1.0 200 OK\r\n\r\nof the machine\n")
    c.close()
"#;

#[test]
fn server_of_one_command_is_reached_by_other_commands_of_the_agent_only() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        user.write("work/index.html", "from inside\n");
        let curl = "curl -s -m 20 http://localhost:3000/ || echo failed";
        let waiting = format!("read line; {curl}; echo over");
        let (early, late) = (start(user, &waiting), start(user, &waiting));
        let server = start(user, "/usr/bin/python3 -m http.server 3000");
        let until = json!({"total_duration": 60, "reason": "a", "until": {"port": 3000}});
        call(user, "timer", &until);
        assert_eq!(output(user, "codex", curl), ["from inside"], "121");
        assert_eq!(output(user, "other", curl), ["failed"], "121");
        let said = entered(user, &early);
        assert!(
            said.contains("from inside"),
            "ran before the server: {said}"
        );
        let own = r#"
s = socket.create_server(("127.0.0.1", 3000))
c = connect("localhost", 3000)
c.sendall(b"to itself")
say(s.accept()[0].recv(100).decode())
"#;
        user.write("work/own.py", &format!("{PRELUDE}\n{own}"));
        let said = output(user, "codex", "/usr/bin/python3 own.py");
        assert_eq!(said, ["to itself"], "an own server comes first");

        let kill = json!({"action": "kill", "session_id": server});
        call(user, "terminal_session", &kill);
        let mut machine = user.command("/usr/bin/python3");
        machine.args(["-c", OF_THE_MACHINE]).stdout(Stdio::piped());
        let mut machine = machine.spawn().expect("a server");
        let mut ready = String::new();
        let lines = machine.stdout.as_mut().expect("output");
        BufReader::new(lines).read_line(&mut ready).expect("a line");
        assert_eq!(user.outside(curl), "of the machine\n");
        let said = entered(user, &late);
        assert!(!said.contains("of the machine"), "121: {said}");
        assert_eq!(output(user, "codex", curl), ["failed"], "121");
        machine.kill().expect("killed");
        machine.wait().expect("ended");
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
        let bind = "/usr/bin/python3 -c 'import socket; socket.socket().bind((\"\", 8443))'";
        let said = call(user, "shell", &json!({"command": bind}));
        let told = "call   bind 0.0.0.0:8443  `allow` or `host_ports` leads outside at this port";
        assert!(text(&said).contains(told), "122: {said}");
    });
}
