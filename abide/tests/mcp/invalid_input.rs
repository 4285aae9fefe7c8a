//! Invalid messages from a client.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Client, ERAS, Fifo, Home, LEGACY, MODERN, setup, text};

fn works(client: &mut Client) {
    let result = client.call("shell", json!({"command": "echo fine"}));
    assert!(text(&result).contains("STDOUT:\nfine\n"), "{result}");
}

#[test]
fn s6_invalid_lines_are_answered_with_errors() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        for (line, code) in [
            ("garbage", -32700),
            ("{\"jsonrpc\":\"2.0\",", -32700),
            ("[]", -32600),
            (
                "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
                -32600,
            ),
            ("42", -32600),
            ("{}", -32600),
        ] {
            client.write(line);
            let error =
                client.receive(|message| message["id"].is_null() && message["error"].is_object());
            assert_eq!(error["error"]["code"], code, "{line}: {error}");
        }
        client.write("");
        client.write("   \r");
        works(&mut client);
    }
}

#[test]
fn s6_undecodable_request_is_answered_under_its_id() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    client.write(&format!(
        r#"{{"jsonrpc":"2.0","method":"tools/call","params":{deep},"id":"deep"}}"#
    ));
    let error = client.receive(|message| message["id"] == "deep");
    assert_eq!(error["error"]["code"], -32700, "{error}");
    client.write(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":7},"id":"odd"}"#);
    let error = client.receive(|message| message["id"] == "odd");
    assert_eq!(error["error"]["code"], -32602, "{error}");
    client.write(r#"{"jsonrpc":"2.0","method":"tools/cull","params":{"name":7},"id":"new"}"#);
    let error = client.receive(|message| message["id"] == "new");
    assert_eq!(error["error"]["code"], -32601, "{error}");
    client.write(r#"{"jsonrpc":"2.0","method":"tools/list","id":1.5}"#);
    client.receive(|message| message["id"] == 1.5 && message["error"].is_object());
    for (id, rest) in [("number", r#","method":7"#), ("neither", "")] {
        client.write(&format!(r#"{{"jsonrpc":"2.0","id":"{id}"{rest}}}"#));
        let error = client.receive(|message| message["id"] == id);
        assert_eq!(error["error"]["code"], -32600, "{error}");
    }
    works(&mut client);
}

#[test]
fn s6_request_with_an_id_in_use_is_refused() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let fifo = Fifo::new(&home, &format!("begun-{era:?}"));
        let command = format!("echo one; echo begun > {}; sleep 1000", fifo.path());
        let id = client.begin("shell", json!({"command": command}));
        fifo.read();
        client.forget_id();
        let again = client.begin("shell", json!({"command": "echo again >> runs"}));
        assert_eq!(again, id);
        let error = client.receive(|message| message["id"] == id && message["error"].is_object());
        assert_eq!(error["error"]["code"], -32600, "{error}");
        assert_eq!(home.lines("runs"), 0);
        works(&mut client);
        let running = client.call("terminal_session", json!({"action": "list"}));
        let session = &running["structuredContent"]["sessions"][0]["session_id"];
        client.call(
            "terminal_session",
            json!({"action": "kill", "session_id": session}),
        );
        assert!(text(&client.result(id)).contains("STDOUT:\none\n"));
    }
}

#[test]
fn request_before_initialize_is_refused() {
    let home = Home::new();
    let mut client = Client::silent(&home, LEGACY);
    for (line, said) in [
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#,
            "send initialize first",
        ),
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#,
            "initialize takes protocolVersion, capabilities and clientInfo",
        ),
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"initialize"}"#,
            "initialize takes",
        ),
    ] {
        client.write(line);
        let error = client.receive(|message| message["id"] == "a");
        assert_eq!(error["error"]["code"], -32602, "{error}");
        let sentence = error["error"]["message"].as_str().expect("a sentence");
        assert!(sentence.contains(said), "{sentence}");
    }
    client.initialize("2025-06-18", false);
    works(&mut client);
}

#[test]
fn s6_request_with_an_invalid_id_is_answered() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    for id in ["null", "{\"a\":1}", "[1]", "true"] {
        client.write(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#
        ));
        let error =
            client.receive(|message| message["id"].is_null() && message["error"].is_object());
        assert_eq!(error["error"]["code"], -32600, "{id}: {error}");
    }
    let long = "x".repeat(1_000);
    client.write(&format!(
        r#"{{"jsonrpc":"2.0","id":"{long}","method":"tools/list"}}"#
    ));
    client.receive(|message| message["id"] == long.as_str() && message["result"].is_object());
    // A notification is accepted whatever other fields it has.
    client.write(r#"{"jsonrpc":"2.0","id":null,"method":"notifications/made_up"}"#);
    works(&mut client);
}

#[test]
fn s7_too_long_message_is_answered_under_its_id() {
    let home = Home::new();
    for setup in [LEGACY, MODERN] {
        let mut client = Client::start(&home, setup);
        let long = "x".repeat(9 << 20);
        let id = client.begin("shell", json!({"command": "true", "stdin": long}));
        let error = client.answer(id);
        assert_eq!(error["error"]["code"], -32600, "{error}");
        works(&mut client);
    }
}

#[test]
fn large_messages_pass_both_ways() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let long = "y".repeat(900_000);
    let arguments = json!({"command": "cat", "stdin": long, "raw": true, "max_output": 1_000_000});
    let result = client.call("shell", arguments);
    assert!(
        text(&result).contains(&long),
        "{} bytes came back",
        text(&result).len()
    );
}

#[test]
fn unexpected_notifications_and_responses_are_ignored() {
    let home = Home::new();
    let mut client = Client::silent(&home, LEGACY);
    client.notify("notifications/cancelled", json!({"requestId": 99}));
    client.notify("notifications/made_up", json!({}));
    client.write(r#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept"}}"#);
    client.initialize("2025-11-25", true);
    client.write(r#"{"jsonrpc":"2.0","id":5,"result":{"action":"accept"}}"#);
    client.write(r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#);
    client.notify(
        "notifications/cancelled",
        json!({"requestId": 12345, "reason": "?"}),
    );
    client.notify("notifications/cancelled", json!({}));
    client.notify("notifications/made_up", json!({}));
    works(&mut client);
}

#[test]
fn connection_without_hello_is_closed() {
    let home = Home::new();
    works(&mut Client::start(&home, LEGACY));
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let long = "z".repeat(2 << 20);
    for said in [
        "nonsense\n",
        &format!("{initialize}\n"),
        "{\"abide\":99}\n",
        &long,
    ] {
        let mut socket = UnixStream::connect(home.path("abide/run/mcp.sock")).expect("it listens");
        socket
            .set_read_timeout(Some(Duration::from_secs(180)))
            .expect("a timeout");
        // The front may close before everything is written.
        let _ = socket.write_all(said.as_bytes());
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
    works(&mut Client::start(&home, LEGACY));
}

#[test]
fn duplicate_field_runs_nothing() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    client.write(
        r#"{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"shell","arguments":{"command":"echo a >> runs","command":"echo b >> runs"}}}"#,
    );
    let error = client.receive(|message| message["id"] == "two");
    assert_eq!(error["error"]["code"], -32602, "{error}");
    assert_eq!(
        error["error"]["message"],
        "the field 'command' is given twice"
    );
    works(&mut client);
    assert_eq!(home.lines("runs"), 0);
}

#[test]
fn repeated_initialized_gets_each_notification_once() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    client.notify("notifications/initialized", json!({}));
    for mission in ["one", "two"] {
        // The timer completes after the call that created it was answered; otherwise that answer would deliver the
        // message.
        let due = home.path(mission);
        let until = json!({"file": due});
        let timer = json!({"total_duration": 3600, "mission": mission, "until": until});
        client.call("timer", timer);
        std::fs::write(&due, "").expect("a file");
        let told = client.notified("notifications/message");
        let text = told["data"]["text"].as_str().expect("a text");
        assert!(text.contains(&format!("Mission: {mission}")), "{told}");
    }
}

#[test]
fn lines_with_bom_crlf_and_blanks_are_accepted() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let list = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/list"}}"#);
    client.write(&format!("\u{feff}{}\r", list("marked")));
    client.receive(|message| message["id"] == "marked" && message["result"].is_object());
    client.write(&format!("  {}\t", list("spaced")));
    client.receive(|message| message["id"] == "spaced" && message["result"].is_object());
    let (first, second) = (list("halves"), list("next"));
    client.write_part(&first[..20]);
    client.write_part(&format!("{}\n{}", &first[20..], &second[..9]));
    client.receive(|message| message["id"] == "halves" && message["result"].is_object());
    client.write(&second[9..]);
    client.receive(|message| message["id"] == "next" && message["result"].is_object());
    works(&mut client);
}
