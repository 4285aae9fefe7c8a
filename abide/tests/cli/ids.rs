//! Ids typed by their beginning, by name or as `last`, their completion, and names of sessions.

use std::process::Stdio;

use crate::harness::{Abide, Pty, feed, text};

/// Starts a command that keeps running, and returns its session.
fn start(abide: &Abide, name: &str, command: &str) -> String {
    let words = ["session", "start", "--json", "--no-pty", "--name", name];
    let started = abide.json(words.into_iter().chain(["--", command]));
    started["session_id"].as_str().expect("an id").to_owned()
}

fn stdout(abide: &Abide, words: &[&str]) -> String {
    let output = abide.output(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    text(&output.stdout)
}

#[test]
fn session_is_found_by_name_prefix_and_last() {
    let abide = Abide::new();
    abide.output(["run", "--name", "build", "--", "echo first"]);
    abide.output(["run", "--", "echo second"]);
    let list = abide.json(["ps", "--all", "--json"]);
    let id = |at: usize| {
        list["sessions"][at]["session_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (second, first) = (id(0), id(1));
    assert_eq!(list["sessions"][1]["name"], "build");
    assert!(list["sessions"][0].get("name").is_none(), "{list}");
    assert_eq!(stdout(&abide, &["logs", "build"]), "first\n");
    assert_eq!(stdout(&abide, &["logs", "last"]), "second\n");
    assert_eq!(
        stdout(&abide, &["session", "read", &first[..15]]),
        "first\n"
    );
    let suffix = second.strip_prefix("session_").unwrap();
    assert_eq!(stdout(&abide, &["logs", &suffix[..7]]), "second\n");
    let waited = stdout(&abide, &["wait", "--session", "build", "--for", "1m"]);
    assert!(waited.contains("exited"), "{waited}");
    let table = stdout(&abide, &["ps", "--all"]);
    assert!(table.lines().next().unwrap().contains("NAME"), "{table}");
    // A name refers to the newest session with that name.
    abide.output(["run", "--name", "build", "--", "echo third"]);
    assert_eq!(stdout(&abide, &["logs", "build"]), "third\n");
}

#[test]
fn ambiguous_and_unknown_words_are_one_sentence() {
    let abide = Abide::new();
    for _ in 0..2 {
        abide.output(["run", "--", "echo same"]);
    }
    let output = abide.output(["logs", "session_"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.starts_with("abide: 'session_' matches 2 sessions: session_")
            && said.contains("(echo same), session_")
            && said.contains("type more of the id"),
        "{said}"
    );
    let output = abide.output(["kill", "nothing"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("no session is called 'nothing'"), "{said}");
    assert!(said.contains("`abide ps --all` shows the ids"), "{said}");
    for word in ["../../etc", "a b", "", "\u{1b}]0;x\u{7}"] {
        let output = abide.output(["kill", word]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("is not a session"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    for (words, sentence, next) in [
        (
            ["timer", "read", "last"],
            "there is no timer",
            "abide timer start",
        ),
        (
            ["answer", "last", "yes"],
            "there is no open question",
            "abide answer --follow",
        ),
    ] {
        let output = abide.output(words);
        let said = text(&output.stderr);
        assert!(said.contains(sentence) && said.contains(next), "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn timer_and_question_are_found_by_prefix_and_last() {
    let abide = Abide::new();
    let made = abide.json(["timer", "start", "1h", "--mission", "later", "--json"]);
    let timer = made["timer_id"].as_str().unwrap();
    let read = |word: &str| abide.json(["timer", "read", word, "--json"])["timer_id"].clone();
    assert_eq!(read("last"), timer);
    assert_eq!(read(&timer[..12]), timer);
    stdout(
        &abide,
        &["timer", "stop", timer.strip_prefix("timer_").unwrap()],
    );
    // An ended timer is still found.
    assert_eq!(read("last"), timer);
    let mut run = abide.command(["run", "--idle", "1s", "--", "sleep 1000"]);
    let run = run.spawn().expect("a run");
    let mut follow = abide.command(["answer", "--follow", "--json"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().expect("a follower");
    let mut byte = [0];
    std::io::Read::read_exact(follow.stdout.as_mut().unwrap(), &mut byte).expect("a question");
    follow.kill().expect("it runs");
    follow.wait().expect("it ran");
    let listed = stdout(&abide, &["answer"]);
    let folder = abide.path("").canonicalize().unwrap();
    let owner = format!("agent default in {}", folder.display());
    assert!(listed.contains(&owner), "{listed}");
    let answered = stdout(&abide, &["answer", "last", "no"]);
    assert!(answered.starts_with("No: "), "{answered}");
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(124));
}

#[test]
fn name_survives_a_crash_of_the_daemon() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let session = start(&abide, "first", "cat go");
    abide.kill_daemon();
    let of = |word: &str| abide.json(["ps", "--json"])["sessions"][0][word].clone();
    assert_eq!(of("name"), "first");
    let said = stdout(&abide, &["session", "rename", "first", "Übung-2"]);
    assert_eq!(said, format!("{session} is now called Übung-2.\n"));
    abide.kill_daemon();
    assert_eq!(of("name"), "Übung-2");
    feed(&fifo, b"done\n");
    stdout(&abide, &["wait", "--session", "Übung-2", "--for", "1m"]);
    assert_eq!(stdout(&abide, &["logs", "Übung-2"]), "done\n");
    stdout(&abide, &["session", "rename", "last"]);
    abide.kill_daemon();
    let list = abide.json(["ps", "--all", "--json"]);
    assert!(list["sessions"][0].get("name").is_none(), "{list}");
    for wrong in ["last", "a b", "session_x", "-x"] {
        let output = abide.output(["session", "rename", &session, "--", wrong]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("a name "), "{output:?}");
    }
}

#[test]
fn completion_offers_ids_and_names_and_starts_no_daemon() {
    let abide = Abide::new();
    assert_eq!(stdout(&abide, &["complete", "--", "kill", ""]), "");
    assert!(!abide.path("abide").exists());
    let session = start(&abide, "dev", "sleep 1000");
    let made = abide.json(["timer", "start", "1h", "--mission", "later", "--json"]);
    let timer = made["timer_id"].as_str().unwrap();
    assert_eq!(
        stdout(&abide, &["complete", "--", "kill", ""]),
        format!("dev\tsleep 1000\n{session}\tsleep 1000\n")
    );
    assert_eq!(
        stdout(&abide, &["complete", "--", "logs", "--follow", "d"]),
        "dev\tsleep 1000\n"
    );
    assert_eq!(
        stdout(&abide, &["complete", "--", "timer", "stop", "timer"]),
        format!("{timer}\tlater\n")
    );
    // A command is offered the sessions that it can do something with.
    abide.output(["run", "--name", "done", "--", "true"]);
    let begins = |command: &str| {
        let offered = stdout(&abide, &["complete", "--", command, "d"]);
        let words = offered.lines().map(|line| line.split('\t').next().unwrap());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(begins("logs"), ["done", "dev"]);
    assert_eq!(begins("kill"), ["dev"]);
    assert_eq!(begins("attach"), ["dev"]);
    assert_eq!(begins("rm"), ["done"]);
    // Anything else may stand there, such as a file.
    let other = abide.output(["complete", "--", "run", "d"]);
    assert_eq!((other.status.code(), &*other.stdout), (Some(1), &b""[..]));
}

#[test]
fn bash_completes_ids_of_the_running_daemon() {
    let abide = Abide::new();
    let session = start(&abide, "dev", "sleep 1000");
    let script = abide.path("completions");
    std::fs::write(&script, abide.output(["completions", "bash"]).stdout).unwrap();
    let bash = format!(
        ". {}; set -- {}; COMP_WORDS=($1 kill ''); COMP_CWORD=2; _abide_with_ids $1 '' kill; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        env!("CARGO_BIN_EXE_abide")
    );
    let shown = stdout(&abide, &["run", "--", "bash", "-c", &bash]);
    let words: Vec<&str> = shown.lines().collect();
    assert!(
        words.contains(&"dev") && words.contains(&&*session),
        "{shown}"
    );
    assert!(words.contains(&"--json") && !shown.contains('<'), "{shown}");
}

/// `PATH` in which `abide` is the program under test.
fn path_with_abide() -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_abide"));
    let folder = program.parent().expect("a folder").display();
    format!("{folder}:{}", std::env::var("PATH").unwrap_or_default())
}

#[test]
fn fish_completes_ids_and_words_without_files() {
    let abide = Abide::new();
    let session = start(&abide, "dev", "sleep 1000");
    let script = abide.path("completions");
    std::fs::write(&script, abide.output(["completions", "fish"]).stdout).unwrap();
    let complete = |line: &str| {
        let fish = format!("source {}; complete -C '{line}'", script.display());
        let mut command = abide.command(["run", "--", "fish", "--no-config", "-c", &fish]);
        let output = command.env("PATH", path_with_abide()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    for line in ["abide kill ", "abide wait --session "] {
        let shown = complete(line);
        let mut words = shown
            .lines()
            .filter(|word| !word.contains("fish --no-config"));
        assert_eq!(words.next(), Some("dev\tsleep 1000"), "{shown}");
        assert_eq!(
            words.next(),
            Some(&*format!("{session}\tsleep 1000")),
            "{shown}"
        );
        assert_eq!(words.next(), None, "{shown}");
    }
    assert_eq!(complete("abide setup cod"), "codex\tCodex\n");
    assert_eq!(complete("abide timer stop "), "");
    assert!(complete("abide run ./").contains("completions"));
}

#[test]
fn zsh_completes_ids_of_the_running_daemon() {
    let abide = Abide::new();
    start(&abide, "development", "sleep 1000");
    std::fs::create_dir(abide.path("functions")).unwrap();
    let script = abide.output(["completions", "zsh"]).stdout;
    std::fs::write(abide.path("functions/_abide"), script).unwrap();
    let mut command = abide.command(["run", "--pty", "--", "zsh", "-f", "-i"]);
    command.env("PATH", path_with_abide());
    let mut pty = Pty::run(command);
    pty.type_in(b"PS1='ready'; fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; PS1='set''-up> '\n");
    pty.wait_for("set-up> ");
    for begin in ["abide kill dev", "abide wait --session dev"] {
        pty.type_in(format!("{begin}\t").as_bytes());
        pty.wait_for("elopment");
        pty.type_in(b"\x15");
    }
    pty.type_in(b"exit\n");
    assert!(pty.end().0.success());
}
