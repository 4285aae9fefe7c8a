//! `read_output`: every line once, as soon as it is complete, and again by cursor.

use std::time::Duration;

use abide_api::ToolResult;
use serde_json::json;

use crate::{Session, fact, lines, with_engine};

#[test]
fn lines_are_read_once_and_again_by_cursor() {
    with_engine(|engine| async move {
        let session = engine
            .start("printf 'a\\nb\\nc\\n'; sleep 100", json!({}))
            .await;
        let start = session.until("^c$").await;
        assert!(start.starts_with("a\nb\nc\n"), "{start}");
        let again = session
            .act("read_output", json!({"since": "0", "max_lines": 2}))
            .await;
        assert_eq!(lines(&again), ["a", "b"]);
        assert_eq!(fact(&again, "more"), json!(true));
        let cursor = fact(&again, "cursor");
        let rest = session.act("read_output", json!({"since": cursor})).await;
        assert_eq!(lines(&rest), ["c"]);
        let nothing = session.act("read_output", json!({})).await;
        assert_eq!(nothing.text, "No output available");
        session.kill().await;
    });
}

#[test]
fn number_that_is_no_cursor_is_refused() {
    with_engine(|engine| async move {
        let session = engine
            .start(
                "printf 'first\\nsecond\\nthird'; sleep 100",
                json!({"pty": false}),
            )
            .await;
        session.until("third").await;
        for since in ["2", "9", "14"] {
            let refused = session.act("read_output", json!({"since": since})).await;
            assert!(
                refused.text.contains("must be a cursor"),
                "{}",
                refused.text
            );
        }
        for (since, text) in [("6", "[stdout] second"), ("13", "[stdout] third")] {
            let read = session.act("read_output", json!({"since": since})).await;
            assert_eq!(lines(&read)[0], text);
            // Its own cursor is within the last line, and says so.
            let next = json!({"since": fact(&read, "cursor")});
            let nothing = session.act("read_output", next).await;
            assert_eq!(nothing.text, "No output available");
        }
        session.kill().await;
    });
}

#[test]
fn cursor_beyond_the_end_reads_from_the_end() {
    with_engine(|engine| async move {
        let session = engine
            .start(
                "echo one; read x; echo got $x; sleep 100",
                json!({"pty": false}),
            )
            .await;
        session.until("one").await;
        let beyond = json!({"since": "999999", "timeout_seconds": 0});
        let nothing = session.act("read_output", beyond).await;
        assert_eq!(nothing.text, "No output available");
        assert_eq!(fact(&nothing, "bytes_total"), json!(4));
        assert_eq!(fact(&nothing, "cursor"), json!("4"));
        // The following output is not skipped either.
        session.send("abc\n").await;
        let on = json!({"since": fact(&nothing, "cursor"), "until": "got", "timeout_seconds": 180});
        let next = session.act("read_output", on).await;
        assert_eq!(lines(&next), ["[stdout] got abc"]);
        session.kill().await;
    });
}

#[test]
fn read_output_answers_when_a_line_is_complete() {
    with_engine(|engine| async move {
        let session = engine
            .start("read x; echo got $x; sleep 100", json!({}))
            .await;
        let waiting = session.act(
            "read_output",
            json!({"timeout_seconds": 180, "until": "got"}),
        );
        let typing = async {
            abide_engine::clock::pause(Duration::from_millis(200)).await;
            session.send("abc\n").await
        };
        let (read, _) = tokio::join!(waiting, typing);
        assert!(read.text.contains("got abc"), "{}", read.text);
        session.kill().await;
    });
}

#[test]
fn stdout_and_stderr_are_separate_without_a_terminal() {
    with_engine(|engine| async move {
        let command = "echo out; echo err >&2; sleep 100";
        let session = engine.start(command, json!({"pty": false})).await;
        for (pattern, line) in [("out", "[stdout] out"), ("err", "[stderr] err")] {
            let wait = json!({"since": "0", "until": pattern, "timeout_seconds": 180});
            let read = session.act("read_output", wait).await;
            assert!(read.text.contains(line), "{}", read.text);
        }
        session.kill().await;
    });
}

#[test]
fn read_output_answers_when_the_process_exits() {
    with_engine(|engine| async move {
        let session = engine.start("sleep 0.3; exit 3", json!({})).await;
        let read = session
            .act("read_output", json!({"timeout_seconds": 180}))
            .await;
        let text = "No output available\n[exited with code 3 after ";
        assert!(read.text.starts_with(text), "{}", read.text);
        assert_eq!(fact(&read, "exit_code"), json!(3));
        assert_eq!(fact(&read, "status"), json!("exited"));
    });
}

#[test]
fn a_prompt_without_a_line_end_is_read_after_a_short_quiet() {
    with_engine(|engine| async move {
        let session = engine
            .start("printf 'name? '; read x; echo hello $x", json!({}))
            .await;
        let prompt = session
            .act("read_output", json!({"timeout_seconds": 180}))
            .await;
        assert_eq!(lines(&prompt), ["name? "]);
        session.has("waiting_for_input").await;
        session.answer("Ann\n", "hello Ann").await;
    });
}

#[test]
fn output_that_looks_like_a_prompt_does_not_count_as_waiting() {
    with_engine(|engine| async move {
        for prompt in ["$ ", "# ", "> ", "password: "] {
            let command = format!("printf '{prompt}'; sleep 100");
            let session = engine.start(&command, json!({})).await;
            let read = session
                .act("read_output", json!({"timeout_seconds": 180}))
                .await;
            assert_eq!(lines(&read), [prompt]);
            assert_eq!(fact(&read, "waiting_for_input"), json!(false), "{prompt}");
            session.kill().await;
        }
    });
}

#[test]
fn read_output_reports_processes_unless_it_ends_with_a_complete_line() {
    let facts = ["waiting_for_input", "cpu", "doing"];
    with_engine(|engine| async move {
        let session = engine
            .start(
                "read x; echo done; read y; printf 'more? '; read z",
                json!({}),
            )
            .await;
        let nothing = session.act("read_output", json!({})).await;
        assert_eq!(lines(&nothing), ["No output available"]);
        for name in facts {
            assert!(
                nothing.to_fields().contains_key(name),
                "{:?}",
                nothing.to_fields()
            );
        }
        let typed = session.send("\n").await;
        assert_eq!(lines(&typed), ["", "done"]);
        for name in facts {
            assert!(
                typed.to_fields().contains_key(name),
                "{:?}",
                typed.to_fields()
            );
        }
        let again = session.act("read_output", json!({"since": 0})).await;
        assert_eq!(lines(&again), ["", "done"]);
        for name in facts {
            assert!(
                !again.to_fields().contains_key(name),
                "{:?}",
                again.to_fields()
            );
        }
        session.send("\n").await;
        let wait = json!({"since": 0, "until": "more", "timeout_seconds": 180});
        let prompt = session.act("read_output", wait).await;
        assert_eq!(lines(&prompt), ["", "done", "", "more? "]);
        for name in facts {
            assert!(
                prompt.to_fields().contains_key(name),
                "{:?}",
                prompt.to_fields()
            );
        }
        session.kill().await;
    });
}

#[test]
fn read_output_reports_cpu() {
    with_engine(|engine| async move {
        let session = engine.start("printf up; sleep 100", json!({})).await;
        let read = session
            .act("read_output", json!({"timeout_seconds": 180}))
            .await;
        assert!(fact(&read, "cpu").is_u64(), "{:?}", read.to_fields());
        session.kill().await;
        let session = engine.start("while :; do :; done", json!({})).await;
        let busy = |seen: &ToolResult| fact(seen, "cpu").as_u64() > Some(0);
        session.looks("how busy it is", busy).await;
        session.kill().await;
    });
}

#[test]
fn progress_bar_is_shown_in_its_last_state_without_colours() {
    with_engine(|engine| async move {
        let command = r"printf '\033[32m 10%%\r 50%%\r100%%\033[0m\n'; sleep 100";
        let session = engine.start(command, json!({})).await;
        let text = session.until("100%").await;
        assert!(text.starts_with("100%\n"), "{text:?}");
        session.kill().await;
    });
}

#[test]
fn read_until_a_match_returns_the_last_of_many_lines() {
    with_engine(|engine| async move {
        let session = engine
            .start("seq 20000; echo DONE; sleep 100", json!({}))
            .await;
        let wait = json!({"until": "DONE", "timeout_seconds": 180, "max_lines": 3});
        let read = session.act("read_output", wait).await;
        assert!(read.text.contains("19998 earlier lines"), "{}", read.text);
        assert!(read.text.contains("19999\n20000\nDONE\n"), "{}", read.text);
        session.kill().await;
    });
}

#[test]
fn read_without_a_match_says_so() {
    with_engine(async |engine| {
        let session = engine
            .start("seq 3; exec sleep 1000", json!({"pty": false}))
            .await;
        session.until("3").await;
        let read = async |max_lines: u32| {
            let wait = json!({"since": "0", "until": "four", "timeout_seconds": 0.01,
                "max_lines": max_lines});
            session.act("read_output", wait).await.text
        };
        let all = "[stdout] 1\n[stdout] 2\n[stdout] 3\n[cursor: 6]\n[no match in 10ms]";
        assert_eq!(read(4).await, all);
        let first = "[stdout] 1\n[cursor: 2]\n[there is more to read]\n[no match in 10ms]";
        assert_eq!(read(1).await, first);
        session.kill().await;
    });
}

#[test]
fn c14_an_ended_session_can_still_be_read_and_searched() {
    with_engine(|engine| async move {
        let session = engine.start("echo one; echo two; exit 7", json!({})).await;
        session.until("two").await;
        session.end().await;
        let again = session.act("read_output", json!({"since": 0})).await;
        assert_eq!(lines(&again), ["one", "two"]);
        assert!(
            again.text.contains("\n[exited with code 7 after "),
            "{}",
            again.text
        );
        let found = session.act("search", json!({"pattern": "t.o"})).await;
        assert!(found.text.starts_with("2:two\n"), "{}", found.text);
        let screen = session.act("screen", json!({})).await;
        assert!(screen.text.starts_with("one\ntwo\n"), "{}", screen.text);
    });
}

#[test]
fn output_of_background_processes_is_counted() {
    with_engine(|engine| async move {
        let go = engine.fifo("go");
        let command = format!("(read _ < {}; echo LATE) & echo FIRST", go.display());
        let arguments = json!({"command": command});
        let ran = engine.call_as(engine.context(), "shell", arguments).await;
        let id = ran.to_fields()["session_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let session = Session::new(&engine, id);
        let first = session.act("read_output", json!({"since": 0})).await;
        assert_eq!(fact(&first, "bytes_total"), json!(6));
        // The waiting call is answered although the command has ended.
        let go = std::thread::spawn(move || std::fs::write(go, "\n").expect("it goes on"));
        session.until("LATE").await;
        go.join().expect("it went on");
        let both = session.act("read_output", json!({"since": 0})).await;
        assert_eq!(fact(&both, "bytes_total"), json!(11), "{}", both.text);
        session.kill().await;
    });
}

#[test]
fn start_returns_the_first_output() {
    with_engine(|engine| async move {
        for (command, wanted) in [
            ("printf 'name? '; read x", "\nname? "),
            ("echo one; echo two; read x", "\none\ntwo"),
            ("read x", ""),
        ] {
            for pty in [true, false] {
                let start = json!({"action": "start", "command": command, "pty": pty});
                let started = engine.call(start).await;
                let id = fact(&started, "session_id")
                    .as_str()
                    .expect("an id")
                    .to_owned();
                let prefix = if pty { "\n" } else { "\n[stdout] " };
                let wanted = wanted.replace('\n', prefix);
                assert_eq!(started.text, format!("Session '{id}' started{wanted}"));
                // It counts as read.
                let read = json!({"action": "read_output", "session_id": id});
                assert_eq!(engine.call(read).await.text, "No output available");
                engine
                    .call(json!({"action": "kill", "session_id": id}))
                    .await;
            }
        }
        let start = json!({"action": "start", "command": "echo gone; exit 5"});
        let ended = engine.call(start).await;
        let begin = " started\ngone\n[exited with code 5 after ";
        assert!(ended.text.contains(begin), "{}", ended.text);
        assert_eq!(fact(&ended, "exit_code"), json!(5));
    });
}

#[test]
fn read_of_a_terminal_returns_the_prompt_or_the_end_behind_a_line() {
    with_engine(|engine| async move {
        for (command, wanted) in [
            (
                "echo line; printf 'more? '; read y",
                "line\nmore? \n[cursor: ",
            ),
            (
                "echo line; exit 6",
                "line\n[cursor: 6]\n[exited with code 6 after ",
            ),
        ] {
            let go = engine.fifo("go");
            let command = format!("read x < {}; {command}", go.display());
            let session = engine.start(&command, json!({})).await;
            let goes = std::thread::spawn(move || std::fs::write(&go, "\n").map(|()| go));
            let wait = json!({"timeout_seconds": 180});
            let read = session.act("read_output", wait).await;
            let go = goes.join().expect("a thread").expect("a fifo");
            assert!(read.text.starts_with(wanted), "{}", read.text);
            std::fs::remove_file(go).expect("a fifo");
            session.kill().await;
        }
    });
}

#[test]
fn lines_read_with_since_are_not_unread() {
    with_engine(|engine| async move {
        let start = json!({"action": "start", "pty": false,
            "command": "read x; printf 'a\\nb\\nc\\n'; sleep 100"});
        let id = fact(&engine.call(start).await, "session_id");
        let other = {
            let mut context = engine.context();
            context.client = Some("other".into());
            context
        };
        let send = json!({"action": "send_input", "session_id": id, "input": "\n"});
        engine.call_as(other, "terminal_session", send).await;
        let read = |more| {
            let mut arguments = json!({"action": "read_output", "session_id": id});
            crate::merge(&mut arguments, more);
            engine.call(arguments)
        };
        let wait = json!({"since": "0", "until": "b", "timeout_seconds": 180});
        assert_eq!(lines(&read(wait).await), ["[stdout] a", "[stdout] b"]);
        let first = read(json!({"since": "0", "max_lines": 1})).await;
        assert_eq!(lines(&first), ["[stdout] a"]);
        assert_eq!(lines(&read(json!({})).await), ["[stdout] c"]);
        assert_eq!(read(json!({})).await.text, "No output available");
    });
}

#[test]
fn full_screen_program_is_answered_with_its_screen() {
    with_engine(|engine| async move {
        let command = r"printf '\033[?1049h\033[2J\033[HTITLE\033[3;1Hname: '; read x; \
            printf '\033[2J\033[HHELLO %s' $x; read y";
        let start = json!({"action": "start", "command": command, "cols": 80, "rows": 24});
        let started = engine.call(start).await;
        let id = fact(&started, "session_id")
            .as_str()
            .expect("an id")
            .to_owned();
        let screen = "TITLE\n\nname:\n[cursor at row 3, column 7; 80x24; full-screen program]";
        assert_eq!(started.text, format!("Session '{id}' started\n{screen}"));
        assert_eq!(fact(&started, "alternate_screen"), json!(true));
        let send = json!({"action": "send_input", "session_id": id, "input": "Ann\n"});
        let typed = engine.call(send).await;
        let screen = "HELLO Ann\n[cursor at row 1, column 10; 80x24; full-screen program]";
        assert_eq!(typed.text, screen);
        assert_eq!(fact(&typed, "alternate_screen"), json!(true));
        assert_eq!(fact(&typed, "sent"), json!(4));
        engine
            .call(json!({"action": "kill", "session_id": id}))
            .await;
    });
}

#[test]
fn program_that_reads_from_a_pipe_does_not_wait_at_a_terminal() {
    with_engine(|engine| async move {
        for (pty, doing) in [
            (false, "waiting for input"),
            (true, "waiting for input at its terminal"),
        ] {
            let start = json!({"action": "start", "command": "cat", "pty": pty});
            let started = engine.call(start).await;
            assert_eq!(fact(&started, "doing"), json!(doing), "{}", started.text);
            let id = fact(&started, "session_id");
            engine
                .call(json!({"action": "kill", "session_id": id}))
                .await;
        }
    });
}

/// As `top` does: the whole screen is painted again and again without an alternate screen.
#[test]
fn program_that_paints_the_whole_screen_is_answered_with_its_screen() {
    with_engine(|engine| async move {
        let command = r"printf '\033[?1h\033=\033[?25l\033[H\033[2Jone\033[1;1Htwo'; read -s x; \
            printf '\033[Hfour %s\nlast\033[J' $x; read -s y; printf '\033[?1l\033[?25h\n$ '; read z";
        let start = json!({"action": "start", "command": command, "cols": 80, "rows": 24});
        let started = engine.call(start).await;
        let id = fact(&started, "session_id");
        let screen = "two\n[cursor at row 1, column 4 (hidden); 80x24; full-screen program]";
        assert!(started.text.ends_with(screen), "{}", started.text);
        let send = json!({"action": "send_input", "session_id": id, "input": "Ann\n"});
        let typed = engine.call(send.clone()).await;
        let screen =
            "four Ann\nlast\n[cursor at row 2, column 5 (hidden); 80x24; full-screen program]";
        assert_eq!(typed.text, screen);
        // After it the terminal shows lines.
        let typed = engine.call(send).await;
        assert!(typed.text.contains("$ \n[cursor: "), "{}", typed.text);
        engine
            .call(json!({"action": "kill", "session_id": id}))
            .await;
    });
}

#[test]
fn equal_lines_are_one_line_with_a_count() {
    with_engine(|engine| async move {
        let command = "printf 'one\\n'; yes same | head -n 30; printf 'two\\n'";
        let start = json!({"action": "start", "command": command, "pty": false});
        let started = engine.call(start).await;
        let shown = "\n[stdout] one\n[stdout] same [×30]\n[stdout] two\n[exited";
        assert!(started.text.contains(shown), "{}", started.text);
        let id = fact(&started, "session_id");
        let read = json!({"action": "read_output", "session_id": id, "since": "0"});
        let read = engine.call(read).await;
        assert!(
            read.text.contains("\n[stdout] same [×30]\n"),
            "{}",
            read.text
        );
        assert_eq!(fact(&read, "lines"), json!(32));
        let search = json!({"action": "search", "session_id": id, "pattern": "same"});
        let found = engine.call(search).await;
        let text = "2:same [29 more like it, last in line 31]\n";
        assert!(found.text.starts_with(text), "{}", found.text);
        let line = json!({"line": 2, "match": true, "text": "same", "equal_lines": 29, "last_equal_line": 31});
        assert_eq!(fact(&found, "found")[0], line);
    });
}

#[test]
fn long_response_is_limited_in_bytes() {
    with_engine(|engine| async move {
        let command = "awk 'BEGIN { for (i = 0; i < 60; i++) printf \"%03000d\\n\", i }'";
        let start = json!({"action": "start", "command": command, "pty": false});
        let started = engine.call(start).await;
        let (_, shown) = started.text.split_once('\n').expect("lines");
        assert!(shown.len() < 40_000, "{} bytes", shown.len());
        assert!(shown.starts_with("[… "), "{}", &shown[..200]);
        assert!(shown.contains("read_output with since=\"0\" has them"));
        assert!(shown.contains("59\n[exited"), "{shown}");
    });
}
