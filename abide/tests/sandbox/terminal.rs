//! Terminals of commands in a sandbox.

use serde_json::{Value, json};

use crate::agents::{call, text};
use crate::harness::{User, as_each_user};

const SANDBOXED: &str = "[sandbox]\nmode = \"workspace-write\"\n";

/// Starts a terminal session. Returns its id.
fn start(user: &User, command: &str) -> String {
    user.write("state/config.toml", SANDBOXED);
    let start = json!({"action": "start", "command": command});
    let started = call(user, "terminal_session", &start);
    assert_eq!(started["result"]["sandboxed_by"], "namespaces", "{started}");
    let id = started["result"]["session_id"].as_str();
    id.unwrap_or_else(|| panic!("{started}")).to_owned()
}

/// All output of a session once it says this.
fn read_until(user: &User, session: &str, until: &str) -> String {
    let read = json!({
        "action": "read_output", "session_id": session, "until": until, "timeout_seconds": 60, "since": "0",
    });
    let result: Value = call(user, "terminal_session", &read);
    text(&result)
}

#[test]
fn terminal_has_a_path_inside_that_can_be_opened() {
    as_each_user(|user| {
        let command = r#"tty; /usr/bin/python3 -c 'import os; print("name", os.ttyname(0))'; echo opened > "$(tty)";
            echo controlling > /dev/tty; script -qec 'echo inner $(tty)' /dev/null; stty size; ls /dev/pts; echo do''ne; exec cat"#;
        let session = start(user, command);
        let said = read_until(user, &session, "^done");
        for expected in [
            r"/dev/pts/0\n",
            r"name /dev/pts/0\n",
            r"opened\n",
            r"controlling\n",
            r"inner /dev/pts/1\n",
            r"40 120\n",
        ] {
            assert!(said.contains(expected), "{expected}: {said}");
        }
        let send = json!({"action": "send_input", "session_id": session, "input": "typed", "keys": ["enter"]});
        call(user, "terminal_session", &send);
        read_until(user, &session, "typed");
        user.abide(&["session", "kill", &session]);
    });
}

#[test]
fn query_of_a_terminal_that_reads_lines_gets_no_reply() {
    as_each_user(|user| {
        let command = r#"printf 'shown\033[6n\033[c\n'; read line; echo "got<$line>""#;
        let session = start(user, command);
        read_until(user, &session, "shown");
        let screen = json!({"action": "screen", "session_id": session});
        call(user, "terminal_session", &screen);
        let send = json!({"action": "send_input", "session_id": session, "input": "mine", "keys": ["enter"]});
        call(user, "terminal_session", &send);
        let said = read_until(user, &session, "got<");
        assert!(said.contains("got<mine>"), "{said}");
    });
}
