//! The other actions, and refusals.

use std::os::unix::fs::PermissionsExt;

use abide::tools::Context;
use abide_core::Agent;
use abide_core::request::Caller;
use serde_json::json;

use crate::{fact, lines, with_engine};

#[test]
fn s9_an_unknown_or_hostile_id_is_not_found() {
    with_engine(|engine| async move {
        let long = "x".repeat(4_096);
        for id in [
            "session_00000000",
            "session_k3v9x2b",
            "../../etc/passwd",
            "session_../../x",
            "a\0b",
            "",
            &long,
            "session_k3v9x2b\u{441}",
        ] {
            for action in ["read_output", "screen", "kill", "list_nothing"] {
                if action == "list_nothing" {
                    continue;
                }
                let arguments = json!({"action": action, "session_id": id});
                let result = engine.call(arguments).await;
                assert!(result.is_error());
                assert!(result.text.starts_with("Session '"), "{}", result.text);
                assert!(result.text.ends_with("' not found"), "{}", result.text);
                assert!(result.text.len() < 400);
            }
        }
    });
}

#[test]
fn s10_another_agents_session_is_not_found() {
    with_engine(|engine| async move {
        let session = engine.start("cat", json!({})).await;
        let mut context = engine.context();
        context.agent = Agent("another".into());
        let arguments = json!({"action": "read_output", "session_id": session.id});
        let read = (engine.call_as(context.clone(), "terminal_session", arguments)).await;
        assert_eq!(read.text, format!("Session '{}' not found", session.id));
        let list = json!({"action": "list"});
        let list = engine.call_as(context, "terminal_session", list).await;
        assert_eq!(list.text, "No sessions");
        let own = engine.call(json!({"action": "list"})).await;
        assert!(own.text.contains(&session.id), "{}", own.text);
        session.kill().await;
    });
}

#[test]
fn long_list_is_shortened_and_says_so() {
    with_engine(|engine| async move {
        let lives = engine.start("cat", json!({})).await;
        for n in 0..101 {
            let command = format!("echo {n}");
            let ended = engine.start(&command, json!({"pty": false})).await;
            let wait = json!({"until": "^never$", "timeout_seconds": 180});
            ended.act("read_output", wait).await;
        }
        let listed = engine.call(json!({"action": "list", "include_ended": true}));
        let listed = listed.await;
        let lines: Vec<&str> = listed.text.lines().collect();
        assert_eq!(lines.len(), 101, "{}", listed.text);
        assert!(lines[0].contains(&lives.id), "what lives is there");
        let ended = "  ended (exited with code 0 after 0s)  age ";
        assert!(lines[1].contains(ended), "{}", lines[1]);
        let shows = |end: &str| lines.iter().any(|line| line.ends_with(end));
        assert!(shows("  echo 100") && !shows("  echo 0"), "{}", listed.text);
        assert_eq!(
            lines[100],
            "[2 more are not listed, the oldest; max_lines lists up to 10000]"
        );
        assert_eq!(listed.to_fields()["truncated"], json!(true));
        let all = json!({"action": "list", "include_ended": true, "max_lines": 102});
        let all = engine.call(all).await;
        assert_eq!(all.text.lines().count(), 102, "{}", all.text);
        assert_eq!(all.to_fields()["truncated"], json!(false));
        lives.kill().await;
    });
}

#[test]
fn read_of_a_quiet_session_is_its_last_activity() {
    with_engine(|engine| async move {
        let session = engine.start("exec sleep 1000", json!({})).await;
        let id = session.id.parse().expect("an id");
        let reading = engine.handle.keep_active(Caller::PERSON, id).await;
        let listed = engine.call(json!({"action": "list"})).await;
        let listed = &listed.to_fields()["sessions"][0];
        assert_eq!(listed["last_activity"], json!(0.0), "{listed}");
        assert_ne!(listed["age"], json!(0.0), "{listed}");
        drop(reading);
        session.kill().await;
    });
}

#[test]
fn every_running_session_is_listed() {
    with_engine(|engine| async move {
        let mut running = Vec::new();
        for _ in 0..102 {
            running.push(engine.start("cat", json!({"pty": false})).await);
        }
        let listed = engine.call(json!({"action": "list"})).await;
        for session in &running {
            assert!(listed.text.contains(&session.id), "{}", listed.text);
        }
        assert_eq!(listed.to_fields()["truncated"], json!(false));
        let few = json!({"action": "list", "max_lines": 2});
        let few = engine.call(few).await;
        assert_eq!(few.text.lines().count(), 3, "{}", few.text);
        for session in running {
            session.kill().await;
        }
    });
}

#[test]
fn invalid_arguments_are_refused_with_one_sentence() {
    with_engine(|engine| async move {
        for (arguments, part) in [
            (json!({}), "`action` must be one of start, read_output"),
            (json!({}), "got nothing."),
            (json!({"action": "fly"}), "got \"fly\""),
            (
                json!({"action": "start", "command": " "}),
                "cannot be empty",
            ),
            (
                json!({"action": "start", "command": "x", "cols": 1}),
                "`cols`",
            ),
            (
                json!({"action": "start", "command": "x", "speed": 1}),
                "`speed`",
            ),
            (json!({"action": "kill"}), "`session_id` is required"),
            (
                json!({"action": "kill", "session_id": "x", "command": "y"}),
                "`command` is not a field of action `kill`; the fields are action, session_id.",
            ),
            (
                json!({"action": "resize", "session_id": "x"}),
                "`cols` or `rows` is required",
            ),
            (
                json!({"action": "send_input", "session_id": "x"}),
                "`input` or `keys`",
            ),
            (
                json!({"action": "send_input", "session_id": "x", "keys": ["entre"]}),
                "'entre' is not a key",
            ),
            (
                json!({"action": "search", "session_id": "x", "pattern": "a("}),
                "unclosed group, at character 2",
            ),
            (
                json!({"action": "read_output", "session_id": "x", "until": "["}),
                "unclosed character class, at character 1",
            ),
            (
                json!({"action": "read_output", "session_id": "x", "timeout_seconds": -1}),
                "`timeout_seconds` must be a number of seconds from 0 to 100 years; got -1",
            ),
            (
                json!({"action": "read_output", "session_id": "x", "timeout_seconds": "1"}),
                "`timeout_seconds` must be a number of seconds from 0 to 100 years; got \"1\"",
            ),
            (
                json!({"action": "read_output", "session_id": "x", "since": "../x"}),
                "`since` must be a cursor",
            ),
            (
                json!({"action": "signal", "session_id": "x", "signal": "NOPE"}),
                "`signal` must be a name",
            ),
            (
                json!({"action": "extend", "session_id": "x"}),
                "nothing to move",
            ),
        ] {
            let sentence = engine.refused("terminal_session", arguments.clone()).await;
            assert!(sentence.contains(part), "{arguments}: {sentence}");
            assert!(!sentence.trim_end().contains('\n'), "{sentence}");
        }
    });
}

#[test]
fn a_kill_returns_when_the_whole_tree_is_gone() {
    with_engine(|engine| async move {
        let command = "trap '' TERM HUP; setsid sleep 1000 & (setsid sleep 1001 &); echo up; \
                       while :; do sleep 1; done";
        let session = engine.start(command, json!({})).await;
        session.until("up").await;
        let killed = session.kill().await;
        assert!(
            killed
                .text
                .starts_with(&format!("Session '{}' killed", session.id))
        );
        assert_eq!(fact(&killed, "end"), json!("agent"));
        assert!(fact(&killed, "contained_by").is_string());
        let again = session.kill().await;
        assert!(!again.is_error(), "{}", again.text);
        let late = session.send("x").await;
        assert!(
            late.is_error() && late.text.contains("has ended"),
            "{}",
            late.text
        );
    });
}

#[test]
fn text_of_an_ended_session_names_what_still_runs() {
    with_engine(|engine| async move {
        let command = "setsid sleep 61 >/dev/null 2>&1 </dev/null & sleep 0.1; echo begun";
        let arguments = json!({"action": "start", "command": command});
        let started = engine.call(arguments).await;
        let text = &started.text;
        assert!(text.contains("[exited with code 0"), "{text}");
        assert!(
            text.contains("still running in the background: sleep 61"),
            "{text}"
        );
        let id = fact(&started, "session_id");
        let kill = json!({"action": "kill", "session_id": id});
        let killed = engine.call(kill).await;
        assert!(!killed.text.contains("still running"), "{}", killed.text);
    });
}

#[test]
fn a_stopped_program_is_killed_too() {
    with_engine(|engine| async move {
        let session = engine.start("echo up; kill -STOP $$", json!({})).await;
        session.until("up").await;
        let killed = session.kill().await;
        assert_eq!(fact(&killed, "end"), json!("agent"));
    });
}

#[test]
fn program_gets_signals_and_sizes() {
    with_engine(|engine| async move {
        let command = "trap 'stty size' WINCH; trap 'echo hup' HUP; echo up; \
                       while :; do sleep 0.05; done";
        let session = engine.start(command, json!({"cols": 90, "rows": 20})).await;
        session.until("up").await;
        session
            .act("resize", json!({"cols": 100, "rows": 30}))
            .await;
        session.until("^30 100$").await;
        let screen = session.act("screen", json!({})).await;
        assert_eq!(
            (fact(&screen, "cols"), fact(&screen, "rows")),
            (json!(100), json!(30))
        );
        session.act("signal", json!({"signal": "HUP"})).await;
        session.until("^hup$").await;
        session.kill().await;
    });
}

#[test]
fn resize_keeps_dimensions_that_are_not_given() {
    with_engine(|engine| async move {
        let size = json!({"cols": 90, "rows": 20});
        let session = engine.start("sleep 100", size).await;
        let wider = session.act("resize", json!({"cols": 100})).await;
        assert_eq!(
            (fact(&wider, "cols"), fact(&wider, "rows")),
            (json!(100), json!(20))
        );
        let lower = session.act("resize", json!({"rows": 10})).await;
        assert_eq!(
            (fact(&lower, "cols"), fact(&lower, "rows")),
            (json!(100), json!(10))
        );
        session.kill().await;
    });
}

#[test]
fn search_shows_lines_with_numbers_and_context() {
    with_engine(|engine| async move {
        let session = engine
            .start("seq 1 50; echo END; sleep 100", json!({}))
            .await;
        session.until("END").await;
        let found = session
            .act("search", json!({"pattern": "^4[0-2]$", "context": 1}))
            .await;
        assert_eq!(
            found.text,
            "39-39\n40:40\n41:41\n42:42\n43-43\n[3 of 51 lines match]"
        );
        assert_eq!(fact(&found, "matches"), json!(3));
        let none = session.act("search", json!({"pattern": "nowhere"})).await;
        assert_eq!(none.text, "[no line of 51 matches]");
        session.kill().await;
    });
}

#[test]
fn a_hard_limit_can_be_moved() {
    with_engine(|engine| async move {
        let session = engine.start("sleep 1000", json!({})).await;
        let moved = session.act("extend", json!({"timeout": 0.2})).await;
        assert!(moved.text.contains("extended"), "{}", moved.text);
        let read = session
            .act("read_output", json!({"timeout_seconds": 180}))
            .await;
        assert_eq!(fact(&read, "end"), json!("deadline"), "{}", read.text);
    });
}

#[test]
fn failed_start_has_a_reason() {
    with_engine(|engine| async move {
        let arguments = json!({"action": "start", "command": "true", "cwd": "/nowhere/at/all"});
        let started = engine.call(arguments).await;
        assert!(started.is_error(), "{}", started.text);
        // The session exists, although its command could not be started, and can be read.
        assert_eq!(fact(&started, "status"), json!("failed"));
        assert_eq!(fact(&started, "error"), json!(started.text));
        let id = fact(&started, "session_id");
        let read = json!({"action": "read_output", "session_id": id});
        let read = engine.call(read).await;
        assert!(read.text.contains(&started.text), "{}", read.text);
        let kill = json!({"action": "kill", "session_id": id});
        let killed = engine.call(kill).await.text;
        assert!(
            killed.contains("had ended already\n[could not be run: "),
            "{killed}"
        );
        assert!(!killed.contains("process tree"), "{killed}");
    });
}

#[test]
fn a_secret_that_was_given_is_not_shown() {
    with_engine(|engine| async move {
        let env = json!({"env": {"API_TOKEN": "correct-horse-battery"}});
        let session = engine.start("echo $API_TOKEN; sleep 100", env).await;
        let read = session
            .act("read_output", json!({"timeout_seconds": 180}))
            .await;
        assert_eq!(lines(&read), ["[masked:API_TOKEN]"]);
        session.kill().await;
    });
}

#[test]
fn secret_that_goes_on_in_the_next_row_of_the_screen_is_masked() {
    with_engine(|engine| async move {
        let env = json!({"env": {"API_TOKEN": "correct-horse-battery"}, "cols": 40});
        let command = r#"printf '%033d%s\nup\n' 0 "$API_TOKEN"; sleep 100"#;
        let session = engine.start(command, env).await;
        let seen = session.shows("up").await;
        assert!(seen.text.contains("[masked"), "{}", seen.text);
        assert!(!seen.text.contains("battery"), "{}", seen.text);
        session.kill().await;
    });
}

#[test]
fn secret_in_the_title_of_a_terminal_is_masked() {
    with_engine(|engine| async move {
        let env = json!({"env": {"API_TOKEN": "correct-horse-battery"}});
        let command = r#"printf '\033]2;%s\007up\n' "$API_TOKEN"; sleep 100"#;
        let session = engine.start(command, env).await;
        let seen = session.shows("title: ").await;
        assert!(!seen.text.contains("correct"), "{}", seen.text);
        assert_eq!(fact(&seen, "title"), json!("[masked:API_TOKEN]"));
        session.kill().await;
    });
}

#[test]
fn s22_files_of_a_session_are_private_to_their_owner() {
    with_engine(|engine| async move {
        let session = engine.start("echo up; sleep 100", json!({})).await;
        session.until("up").await;
        session.act("resize", json!({"cols": 60})).await;
        session.act("extend", json!({"timeout": 100})).await;
        let id = session.id.parse().expect("an id");
        let view = engine.handle.published().session(id).expect("a session");
        let mut names = Vec::new();
        for file in std::fs::read_dir(&view.folder).expect("its folder") {
            let file = file.expect("a file");
            let mode = file.metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file:?}: {mode:o}");
            names.push(file.file_name());
        }
        assert!(names.contains(&"daemon".into()), "{names:?}");
        session.kill().await;
    });
}

#[test]
fn input_that_reaches_no_program_is_refused() {
    with_engine(|engine| async move {
        let closes = "exec 0<&-; echo up; exec sleep 1000";
        for command in [closes, "echo up; exec sleep 1000"] {
            let session = engine.start(command, json!({"pty": false})).await;
            session.until("up").await;
            if command != closes {
                session.keys(&["eof"]).await;
            }
            let refused = session.send("x\n").await;
            let sentence = "takes no input any more: what was sent has reached no program";
            assert!(refused.text.contains(sentence), "{}", refused.text);
            assert!(refused.is_error(), "{}", refused.text);
            session.kill().await;
        }
    });
}

#[test]
fn interrupt_key_without_a_terminal_is_refused() {
    with_engine(|engine| async move {
        let session = engine.start("exec cat", json!({"pty": false})).await;
        let refused = session.keys(&["ctrl-c"]).await;
        let sentence = "send the signal INT instead";
        assert!(refused.text.contains(sentence), "{}", refused.text);
        session.kill().await;
    });
}

#[test]
fn eof_closes_the_input_of_a_session_without_a_terminal() {
    with_engine(|engine| async move {
        for key in ["eof", "ctrl-d"] {
            for (pty, count) in [(false, "[stdout] 6"), (true, "6")] {
                let session = engine.start("wc -c", json!({"pty": pty})).await;
                let input = json!({"input": "12345\n", "keys": [key]});
                let mut counted = session.act("send_input", input).await.text;
                if !counted.contains("[exited with code 0") {
                    counted.push_str(&session.end().await.text);
                }
                assert!(
                    counted.lines().any(|line| line == count),
                    "{key}: {counted}"
                );
                assert!(counted.contains("[exited with code 0"), "{key}: {counted}");
            }
        }
        let session = engine.start("cat", json!({"pty": false})).await;
        let refused = session.keys(&["eof", "enter"]).await;
        assert!(
            refused.text.contains("must be the last key"),
            "{}",
            refused.text
        );
        session.kill().await;
    });
}

#[test]
fn replayed_input_is_not_typed_again() {
    with_engine(|engine| async move {
        let command = r"stty raw -echo; echo ready; head -c 3 | od -An -c; echo taken; \
                        head -c 1 | od -An -c; echo over";
        let session = engine.start(command, json!({})).await;
        session.until("ready").await;
        let context = || Context {
            request_key: Some("k".into()),
            ..engine.context()
        };
        let send = json!({"action": "send_input", "session_id": session.id, "input": "a\nb"});
        for _ in 0..2 {
            let sent = engine.call_as(context(), "terminal_session", send.clone());
            assert!(!sent.await.is_error());
            session.shows("taken").await;
        }
        let rest = session.answer("z", "over").await;
        assert!(rest.contains(" z"), "{rest}");
    });
}
