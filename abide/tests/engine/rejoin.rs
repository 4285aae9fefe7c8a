//! `shell` and `execute_command` with `session_id`: wait again for a session whose earlier call returned before its end.

use abide::tools::Context;
use abide_api::{ErrorCode, ToolResult};
use abide_core::Millis;
use serde_json::{Value, json};

use super::{Engine, with_engine};

const TOOLS: [&str; 2] = ["shell", "execute_command"];

/// Calls as a client with a limit so short that the call returns before the command ends.
async fn hurried(engine: &Engine, tool: &str, arguments: Value) -> ToolResult {
    let context = Context {
        standby: Some(Millis(1)),
        ..engine.context()
    };
    engine.call_as(context, tool, arguments).await
}

#[test]
fn replayed_call_waits_only_for_the_rest_of_its_time() {
    with_engine(|engine| async move {
        let hour = Millis::from_secs(3_600);
        let start = json!({"action": "start", "command": "sleep 1000", "pty": false});
        let session = id(&engine.call("terminal_session", start).await);
        let replayed = |standby| Context {
            standby,
            waited: hour,
            ..engine.context()
        };
        for tool in TOOLS {
            let rejoin = json!({"session_id": session});
            let result = engine.call_as(replayed(Some(hour)), tool, rejoin).await;
            let cut = "no output in 1h (limit of this client)";
            assert!(result.text.contains(cut), "{}", result.text);
        }
        for standby in [None, Some(hour)] {
            let read = json!({"action": "read_output", "session_id": session, "until": "never", "timeout_seconds": 3600});
            let new = json!({"total_duration": 7200, "timeout_duration": 3600, "reason": "r"});
            let messages = json!({"timeout_seconds": 3600});
            for (tool, arguments, said) in [
                ("terminal_session", read, "No output available"),
                ("timer", new, "is still running"),
                ("read_messages", messages, "No messages came within 1h."),
            ] {
                let result = engine.call_as(replayed(standby), tool, arguments).await;
                assert!(result.text.contains(said), "{tool}: {}", result.text);
            }
        }
    });
}

fn id(result: &ToolResult) -> String {
    let fields = result.to_fields();
    fields["session_id"].as_str().expect("an id").to_owned()
}

/// Output in the text of a result.
fn output<'a>(tool: &str, result: &'a ToolResult) -> &'a str {
    let text = result.text.as_str();
    match tool {
        "shell" => {
            let (_, out) = text.split_once("\nSTDOUT:\n").expect("stdout");
            out.split_once("\nSTDERR:\n").expect("stderr").0
        }
        _ => text
            .rsplit_once('[')
            .expect("a last line")
            .0
            .trim_end_matches('\n'),
    }
}

#[test]
fn call_that_rejoins_returns_what_is_new_and_waits_for_the_end() {
    with_engine(|engine| async move {
        for tool in TOOLS {
            let fifo = engine.fifo(tool);
            let command = format!("exec 3< {}; cat <&3; exit 4", fifo.display());
            let opened = std::thread::spawn(move || std::fs::File::create(fifo));
            let first = hurried(&engine, tool, json!({"command": command})).await;
            assert_eq!(output(tool, &first), "", "{}", first.text);
            let session = id(&first);
            let next =
                format!("To wait for its end: {tool} {{\"session_id\": \"{session}\"}}, which");
            assert!(first.text.contains(&next), "{}", first.text);
            let mut fifo = opened.join().expect("opened").expect("a fifo");
            let mut write = move |text: &str| std::io::Write::write_all(&mut fifo, text.as_bytes());
            let rejoin = json!({"session_id": session, "raw": true});
            for (text, seen) in [
                ("one\ntwo\n", "one\ntwo"),
                ("thr", "thr"),
                // The rest of a line whose beginning was returned.
                ("ee\nfour\n", "ee\nfour"),
            ] {
                write(text).expect("written");
                engine
                    .wrote(&session, &format!("{}$", text.trim_end()))
                    .await;
                let result = hurried(&engine, tool, rejoin.clone()).await;
                assert_eq!(output(tool, &result).trim_end(), seen, "{}", result.text);
            }
            let nothing = hurried(&engine, tool, rejoin.clone()).await;
            assert_eq!(output(tool, &nothing), "", "{}", nothing.text);
            let cut = "; no output in 1ms (limit of this client). To wait";
            assert!(nothing.text.contains(cut), "{}", nothing.text);
            let now = "still running, now ";
            assert!(nothing.text.contains(now), "{}", nothing.text);
            let waiting = engine.call(tool, rejoin.clone());
            let ending = async move {
                write("five\n").expect("written");
                drop(write);
            };
            let (ended, ()) = tokio::join!(waiting, ending);
            assert_eq!(output(tool, &ended).trim_end(), "five", "{}", ended.text);
            assert_eq!(ended.to_fields()["exit_code"], 4);
            let read = json!({"action": "read_output", "session_id": session});
            let read = engine.call("terminal_session", read).await;
            assert!(
                read.text
                    .starts_with("No output available\n[exited with code 4")
            );
        }
    });
}

#[test]
fn read_output_continues_behind_the_output_of_a_call_that_was_handed_over() {
    with_engine(|engine| async move {
        for tool in TOOLS {
            let command = "echo told; read x < fifo; echo new; exec sleep 1000";
            let _fifo = engine.fifo("fifo");
            let first = hurried(&engine, tool, json!({"command": command})).await;
            let session = id(&first);
            engine.wrote(&session, "told").await;
            hurried(&engine, tool, json!({"session_id": session})).await;
            std::fs::write(engine.path("fifo"), "\n").expect("it goes on");
            let until = json!({"action": "read_output", "session_id": session,
                "until": "new", "timeout_seconds": 180});
            let read = engine.call("terminal_session", until).await;
            assert!(read.text.starts_with("[stdout] new\n"), "{}", read.text);
            // And in the other direction.
            let rest = hurried(&engine, tool, json!({"session_id": session})).await;
            assert_eq!(output(tool, &rest), "", "{}", rest.text);
            engine.kill(&session).await;
            std::fs::remove_file(engine.path("fifo")).expect("a fifo");
        }
    });
}

#[test]
fn what_background_processes_write_is_new_to_a_call_that_rejoins() {
    for (tool, empty) in [
        ("shell", "STDOUT:\n\nSTDERR"),
        ("execute_command", "[exited"),
    ] {
        with_engine(|engine| async move {
            let go = engine.fifo("go");
            let command = r"(cat go; echo la\te) & echo ear\ly";
            let first = engine.call(tool, json!({"command": command})).await;
            let rejoin = json!({"session_id": id(&first)});
            let nothing = engine.call(tool, rejoin.clone()).await;
            assert!(nothing.text.contains(empty), "{}", nothing.text);
            assert!(!nothing.text.contains("early\n"), "{}", nothing.text);
            std::fs::write(go, "").expect("the background process reads");
            let mut told = engine.call(tool, rejoin.clone()).await;
            while !told.text.contains("late\n") {
                told = engine.call(tool, rejoin.clone()).await;
            }
            assert_eq!(told.to_fields()["bytes_total"], "early\nlate\n".len());
        });
    }
}

#[test]
fn session_that_has_ended_is_rejoined_at_once() {
    with_engine(|engine| async move {
        for (tool, other) in TOOLS.iter().zip(TOOLS.iter().rev()) {
            let ran = json!({"command": "echo out; echo err >&2; exit 3"});
            let ran = engine.call(tool, ran).await;
            let session = id(&ran);
            engine.ended(&session).await;
            // The first call saw the end: the call that rejoins gets the whole result, as the tool writes it.
            let again = engine.call(tool, json!({"session_id": session})).await;
            assert_eq!(again.text, ran.text);
            let none = engine.call(other, json!({"session_id": session})).await;
            assert_eq!(output(other, &none), "", "{}", none.text);
            assert_eq!(none.to_fields()["exit_code"], 3);
        }
    });
}

#[test]
fn rejoined_shell_keeps_its_deadline() {
    with_engine(|engine| async move {
        let command = json!({"command": "echo up; exec sleep 1000", "timeout": 1});
        let first = hurried(&engine, "shell", command).await;
        assert_eq!(first.to_fields()["status"], "RUNNING");
        let rejoin = json!({"session_id": id(&first), "timeout": 900});
        let ended = engine.call("shell", rejoin).await;
        assert_eq!(ended.to_fields()["status"], "TIMEOUT_ERROR");
        let warning = "WARNING: Command timed out after 1s. Partial output captured.";
        assert!(ended.text.contains(warning), "{}", ended.text);
        let ignored = "WARNING: `timeout` was ignored: ";
        assert!(ended.text.contains(ignored), "{}", ended.text);
    });
}

#[test]
fn terminal_session_is_joined_until_its_end() {
    with_engine(|engine| async move {
        for tool in TOOLS {
            let fifo = engine.fifo(tool);
            let command = format!("read x < {}; echo got $x", fifo.display());
            let start = json!({"action": "start", "command": command});
            let session = id(&engine.call("terminal_session", start).await);
            let go = std::thread::spawn(move || std::fs::write(fifo, "abc\n"));
            let ended = engine.call(tool, json!({"session_id": session})).await;
            go.join().expect("written").expect("a fifo");
            assert!(output(tool, &ended).contains("got abc"), "{}", ended.text);
        }
    });
}

#[test]
fn command_and_session_id_exclude_each_other() {
    with_engine(|engine| async move {
        for (tool, empty) in [
            ("shell", "ERROR: Shell command cannot be empty."),
            ("execute_command", "ERROR: Command cannot be empty."),
        ] {
            for (arguments, refusal) in [
                (json!({"session_id": "", "command": ""}), empty),
                (
                    json!({"session_id": ""}),
                    "`session_id` must be the id of a session, or left out for a new `command`; got \"\".",
                ),
                (
                    json!({"command": "true", "session_id": "session_2rfb6nmq"}),
                    "`command` starts a command and `session_id` waits for one that was started; give one of them.",
                ),
                (
                    json!({"session_id": "session_2rfb6nmq", "cwd": "/"}),
                    "`cwd` goes with `command`; a session that `session_id` names was started already.",
                ),
            ] {
                assert_eq!(engine.refused(tool, arguments).await, refusal);
            }
            for unknown in ["session_2rfb6nmq", "../etc"] {
                // Some clients leave unused fields empty.
                let arguments = json!({"session_id": unknown, "command": "", "cwd": "", "env": {}, "stdin": ""});
                let result = engine.call(tool, arguments).await;
                assert_eq!(result.text, format!("Session '{unknown}' not found"));
                assert_eq!(result.error, Some(ErrorCode::NotFound));
            }
        }
    });
}
