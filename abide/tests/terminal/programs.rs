//! Real programs behave as in any other terminal.

use serde_json::json;

use crate::{fact, with_engine};

#[test]
fn joiners_stay_on_the_screen_and_misleading_characters_are_escaped() {
    with_engine(async |engine| {
        let family = "👩\u{200d}👧";
        let text = format!("{family} می\u{200c}خواهم a\u{202e}b done");
        let command = format!("printf '%s\\n' '{text}'; exec sleep 1000");
        let session = engine.start(&command, json!({})).await;
        let seen = session.shows("done").await;
        let shown = text.replace('\u{202e}', "\\u{202e}");
        assert!(seen.text.starts_with(&shown), "{}", seen.text);
        assert_eq!(fact(&seen, "screen")[0], shown);
        session.kill().await;
    });
}

#[test]
fn python_reads_input_and_prints() {
    with_engine(|engine| async move {
        let session = engine.start("python3 -q -i", json!({})).await;
        session.until(">>> ").await;
        session.answer("21 * 2\n", "42").await;
        let double = "def double(x):\n    return 2 * x\n\nprint(double(50))\n";
        session.answer(double, "100").await;
        session.has("waiting_for_input").await;
        session.keys(&["ctrl-d"]).await;
        let end = session.end().await;
        assert_eq!(fact(&end, "exit_code"), json!(0), "{}", end.text);
    });
}

#[test]
fn interrupted_program_ends_with_its_own_exit_code() {
    with_engine(|engine| async move {
        let session = engine.start("python3 -q -i", json!({})).await;
        session.until(">>> $").await;
        // Python handles an interrupt once it waits for a key, not in the moment before.
        session.has("waiting_for_input").await;
        session.keys(&["ctrl-c"]).await;
        session.shows("KeyboardInterrupt").await;
        session.send("raise SystemExit(3)\n").await;
        let end = session.end().await;
        assert_eq!(fact(&end, "exit_code"), json!(3), "{}", end.text);
        assert_eq!(fact(&end, "end"), json!("exited"), "{}", end.text);
    });
}

#[test]
fn lines_typed_ahead_reach_the_programs_that_a_shell_starts() {
    with_engine(|engine| async move {
        let session = engine.start("bash --norc --noprofile", json!({})).await;
        session.until("[#$] $").await;
        session.has("waiting_for_input").await;
        let lines = "read first\nhello\necho \"got $first\"\n\
                     python3 -c 'print(input() * 2)'\nab\necho last one\n";
        session.send(lines).await;
        session.shows("\ngot hello").await;
        session.shows("\nabab").await;
        session.shows("\nlast one").await;
        session.kill().await;
    });
}

#[test]
fn node_reads_input_and_prints() {
    with_engine(|engine| async move {
        let session = engine.start("node -i", json!({})).await;
        session.until("> $").await;
        session.send("6 * 7\n").await;
        session.shows("42").await;
        session.send(".exit\n").await;
        let end = session.end().await;
        assert_eq!(fact(&end, "exit_code"), json!(0), "{}", end.text);
    });
}

#[test]
fn vim_shows_its_screen_and_saves_typed_text() {
    with_engine(|engine| async move {
        let session = engine
            .start("vim -u NONE -N note.txt", json!({"cols": 80, "rows": 24}))
            .await;
        let seen = session.shows("note.txt").await;
        assert_eq!(fact(&seen, "alternate_screen"), json!(true));
        let typed = session.send("ihello wörld").await;
        assert!(
            typed.text.ends_with("; full-screen program]"),
            "{}",
            typed.text
        );
        session.keys(&["esc"]).await;
        let seen = session.shows("hello wörld").await;
        assert_eq!(fact(&seen, "cursor_row"), json!(1), "{}", seen.text);
        session.send(":wq\n").await;
        let end = session.end().await;
        assert_eq!(fact(&end, "exit_code"), json!(0), "{}", end.text);
        let written = std::fs::read_to_string(engine.path("note.txt")).unwrap();
        assert_eq!(written, "hello wörld\n");
    });
}

#[test]
fn less_is_paged_with_keys() {
    with_engine(|engine| async move {
        let session = engine
            .start("seq 1 500 | less", json!({"cols": 80, "rows": 10}))
            .await;
        let seen = session.shows("9\n").await;
        assert!(seen.text.starts_with("1\n2\n"), "{}", seen.text);
        session.keys(&["page-down"]).await;
        session.shows("18\n").await;
        session.keys(&["G"]).await;
        session.shows("500\n").await;
        session.keys(&["q"]).await;
        let end = session.end().await;
        assert_eq!(fact(&end, "exit_code"), json!(0), "{}", end.text);
    });
}

#[test]
fn top_paints_its_table() {
    with_engine(|engine| async move {
        let session = engine
            .start("top -d 1", json!({"cols": 100, "rows": 30}))
            .await;
        let seen = session.shows("PID USER").await;
        assert!(seen.text.contains("load average"), "{}", seen.text);
        session.keys(&["q"]).await;
        let end = session.end().await;
        assert_eq!(fact(&end, "exit_code"), json!(0), "{}", end.text);
    });
}

#[test]
fn htop_shows_its_screen_and_takes_function_keys() {
    with_engine(|engine| async move {
        // Its settings are stored in the directory of the test, not in the home directory of the user.
        let env = json!({"HTOPRC": engine.path("htoprc")});
        let session = engine
            .start("htop", json!({"cols": 100, "rows": 30, "env": env}))
            .await;
        let seen = session.shows("F10Quit").await;
        assert!(seen.text.contains("Load average"), "{}", seen.text);
        assert_eq!(fact(&seen, "alternate_screen"), json!(true));
        session.keys(&["f3"]).await;
        session.shows("Search:").await;
        session.send("no such program").await;
        session.shows("Search: no such program").await;
        session.keys(&["esc"]).await;
        session.shows("F10Quit").await;
        session.keys(&["f10"]).await;
        let end = session.end().await;
        assert_eq!(fact(&end, "exit_code"), json!(0), "{}", end.text);
    });
}

#[test]
fn psql_runs_queries_and_ctrl_c_cancels_one() {
    with_engine(|engine| async move {
        // The server runs in its own session. It refuses to run as root, and its directory must belong to its user.
        let folder = tempfile::TempDir::new().expect("a folder for the database");
        let place = folder.path().display();
        let serve = format!(
            r#"cd {place} || exit
as=
if [ "$(id -u)" = 0 ]; then
  chown postgres . && as='setpriv --reuid=postgres --regid=postgres --init-groups'
fi
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
$as initdb --username=postgres --auth=trust --no-sync --pgdata=data >made.log &&
exec $as postgres -D data -k {place} -c listen_addresses= -c fsync=off"#
        );
        let server = engine.start(&serve, json!({})).await;
        server.until("ready to accept connections").await;

        let talk = format!("exec psql --no-psqlrc --host={place} --username=postgres");
        let session = engine.start(&talk, json!({})).await;
        session.until("postgres=# ").await;
        session.send("select 6 * 7\n").await;
        session.shows("postgres-#").await;
        session.send("as answer;\n").await;
        session.shows("     42\n").await;
        // The notice comes from the server, so the query is running when it appears.
        session
            .send("do $$ begin raise notice 'begun'; perform pg_sleep(1000); end $$;\n")
            .await;
        session.shows("NOTICE:  begun").await;
        session.keys(&["ctrl-c"]).await;
        session
            .shows("canceling statement due to user request")
            .await;
        session.send("\\q\n").await;
        let end = session.end().await;
        assert_eq!(fact(&end, "exit_code"), json!(0), "{}", end.text);
        server.kill().await;
    });
}

#[test]
fn typed_password_is_not_shown() {
    with_engine(|engine| async move {
        let command = "python3 -c 'import getpass; print(len(getpass.getpass()))'";
        let session = engine.start(command, json!({})).await;
        session.until("Password: ").await;
        let answer = session.send("opensesame\n").await;
        assert!(!answer.text.contains("opensesame"), "{}", answer.text);
        if !answer.text.contains("10") {
            session.until("^10$").await;
        }
        let screen = session.act("screen", json!({})).await;
        assert!(!screen.text.contains("opensesame"), "{}", screen.text);
    });
}

#[test]
fn terminal_query_is_answered_once() {
    with_engine(|engine| async move {
        // Reads the answer to a cursor query byte by byte, then prints it and any other input.
        let command = r#"python3 -c '
import sys, termios, tty, select
old = termios.tcgetattr(0); tty.setraw(0)
sys.stdout.write("ab\x1b[6n\x1b[c"); sys.stdout.flush()
got = b""
while select.select([0], [], [], 180)[0]:
    got += __import__("os").read(0, 100)
    if got.endswith(b"c"): break
termios.tcsetattr(0, termios.TCSADRAIN, old)
print(); print(repr(got)); print("ready"); input()
'"#;
        let session = engine.start(command, json!({})).await;
        let text = session.until("ready").await;
        assert!(text.contains(r"b'\x1b[1;3R\x1b[?6c'"), "{text}");
        // Reading the screen sends nothing to the program.
        session.act("screen", json!({})).await;
        let quiet = session
            .act("read_output", json!({"timeout_seconds": 0.3}))
            .await;
        assert_eq!(quiet.text, "No output available");
        session.kill().await;
    });
}

#[test]
fn query_without_a_reader_leaves_no_answer_in_the_input() {
    with_engine(|engine| async move {
        let command = r#"printf 'shown\033[6n\033[c\033]11;?\007\n'; read line; echo "got<$line>""#;
        let session = engine.start(command, json!({})).await;
        session.until("shown").await;
        // The emulator has processed the queries now.
        session.shows("shown").await;
        let answered = session.send("hello\n").await;
        let text = match answered.text.contains("got<") {
            true => answered.text,
            false => session.until("got<").await,
        };
        assert!(text.contains("got<hello>"), "{text}");
    });
}

#[test]
fn large_input_is_written_as_fast_as_the_program_reads() {
    with_engine(|engine| async move {
        let session = engine
            .start("stty -echo; echo ready; exec cat > pasted", json!({}))
            .await;
        session.until("ready").await;
        let line = "0123456789abcdef".repeat(8);
        let mut sent = String::new();
        for part in 0..10 {
            let text: String = (0..8_000).map(|n| format!("{part} {n} {line}\n")).collect();
            let result = session.send(&text).await;
            assert!(!result.is_error(), "{}", result.text);
            sent.push_str(&text);
        }
        assert!(sent.len() > 10_000_000);
        session.keys(&["ctrl-d"]).await;
        let end = session
            .act("read_output", json!({"timeout_seconds": 180}))
            .await;
        assert_eq!(fact(&end, "exit_code"), json!(0), "{}", end.text);
        let written = std::fs::read_to_string(engine.path("pasted")).unwrap();
        assert!(
            written == sent,
            "{} of {} bytes arrived",
            written.len(),
            sent.len()
        );
    });
}

#[test]
fn unread_input_is_reported() {
    with_engine(|engine| async move {
        let session = engine
            .start("stty raw -echo; echo ready; exec sleep 1000", json!({}))
            .await;
        session.until("ready").await;
        let result = session.send(&"x".repeat(2_000_000)).await;
        assert!(
            result.is_error() && result.text.contains("does not read its input"),
            "{}",
            result.text
        );
        session.kill().await;
    });
}

#[test]
fn each_line_of_input_is_typed_though_the_program_knows_bracketed_paste() {
    with_engine(|engine| async move {
        // A bash that runs a command line does not pass PS1 on.
        let shell = "env PS1='ready> ' bash --norc --noprofile -i";
        let session = engine.start(shell, json!({})).await;
        session.until("ready> ").await;
        session.send("bind 'set enable-bracketed-paste on'\n").await;
        session.has("bracketed_paste").await;
        // What is pasted runs only after a line end behind it.
        session
            .send("for i in 1 2 3\ndo\necho n$i\ndone\nfalse")
            .await;
        session.shows("n3").await;
        session.kill().await;
    });
}
