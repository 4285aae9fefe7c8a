//! Questions answered from another process, and processes that may not answer them.

use crate::harness::{Abide, Pty, feed, text};

/// A run in a terminal whose question is open, and the id of the question. The command writes nothing before.
fn asked(abide: &Abide, command: &str) -> (Pty, String) {
    let mut pty = Pty::run(abide.command(["run", "--idle", "200ms", "--", command]));
    pty.wait_for("[Y/n] ");
    (pty, question(abide))
}

/// The same for a run that has written all its output.
fn asked_of(abide: &Abide, mut pty: Pty) -> (Pty, String) {
    abide.set_idle_limit("200ms");
    pty.wait_for("[Y/n] ");
    (pty, question(abide))
}

/// Id of the open question.
fn question(abide: &Abide) -> String {
    let open = abide.json(["answer", "--json"]);
    let id = open["questions"][0]["question_id"]
        .as_str()
        .expect("an open question");
    id.to_owned()
}

#[test]
fn answer_no_from_another_client_ends_the_command() {
    let abide = Abide::new();
    let (pty, id) = asked(&abide, "sleep 1000");
    let output = abide.output(["answer", &id, "no"]);
    assert!(output.status.success(), "{output:?}");
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(124), "{screen}");
    assert!(screen.contains("(the question is closed"), "{screen}");
    assert!(
        screen.contains("command execution timeout: no output for 200ms"),
        "{screen}"
    );
}

#[test]
fn answer_yes_continues_and_a_second_answer_is_refused() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let (mut pty, id) = asked(&abide, "cat go");
    let output = abide.output(["answer", &id, "yes"]);
    assert!(output.status.success(), "{output:?}");
    let late = abide.output(["answer", &id, "no"]);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    assert!(
        text(&late.stderr).contains("was already answered: yes"),
        "{late:?}"
    );
    pty.wait_for("(the question is closed");
    pty.wait_for("[Y/n] ");
    feed(&fifo, b"done\n");
    assert_eq!(pty.end().0.code(), Some(0));
}

#[test]
fn answer_to_a_withdrawn_question_is_refused() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let (mut pty, id) = asked(&abide, "cat go; cat go");
    feed(&fifo, b"alive\n");
    pty.wait_for("alive");
    let late = abide.output(["answer", &id, "no"]);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    assert!(text(&late.stderr).contains("withdrawn"), "{late:?}");
    feed(&fifo, b"");
    assert_eq!(pty.end().0.code(), Some(0));
}

/// Configuration without a control group for each session.
fn held_by_keepers_alone() -> Abide {
    Abide::with_config("containment = \"subreaper\"\n")
}

#[test]
fn s13_command_cannot_answer() {
    refused_from_inside(&Abide::new());
}

#[test]
fn s13_detached_command_cannot_answer() {
    refused_from_inside(&held_by_keepers_alone());
}

#[test]
fn s13_command_acts_as_its_agent_only() {
    acts_as_its_agent(&Abide::new());
}

#[test]
fn s13_detached_command_acts_as_its_agent_only() {
    acts_as_its_agent(&held_by_keepers_alone());
}

fn acts_as_its_agent(abide: &Abide) {
    let start = |agent: &str| {
        let started = abide.json(["session", "start", "--json", "--agent", agent, "--", "cat"]);
        started["session_id"].as_str().unwrap().to_owned()
    };
    let (own, other) = (start("ann"), start("bob"));
    let inside = |command: &str| {
        let command = command.replace("abide ", "\"$ABIDE\" ");
        abide.output(["run", "--agent", "ann", "--", &command])
    };
    let listed = inside("abide session list --json");
    let listed = text(&listed.stdout);
    assert!(
        listed.contains(&own) && !listed.contains(&other),
        "{listed}"
    );
    for command in ["read", "kill", "screen", "extend --idle 5m"] {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let refused = inside(&format!("abide session {verb} {other} {rest}"));
        let said = text(&refused.stderr);
        assert!(
            said.contains(&format!("Session '{other}' not found")),
            "{refused:?}"
        );
    }
    let refused = inside("abide stop");
    let said = text(&refused.stderr);
    assert!(
        said.contains("an agent cannot stop the daemon; only a person can"),
        "{refused:?}"
    );
    let sessions = abide.json(["session", "list", "--json"]);
    let sessions = sessions["sessions"].as_array().unwrap();
    let runs = |id: &str| {
        sessions
            .iter()
            .any(|one| one["session_id"] == id && one["status"] == "running")
    };
    assert!(runs(&own) && runs(&other), "{sessions:?}");
    // A session of its own agent may be ended.
    let killed = inside(&format!("abide session kill {own}"));
    assert_eq!(killed.status.code(), Some(0), "{killed:?}");
    abide.output(["session", "kill", &other]);
}

fn refused_from_inside(abide: &Abide) {
    let (pty, id) = asked(abide, "sleep 1000");
    let from_inside = [
        format!("\"$ABIDE\" answer {id} no"),
        format!("setsid --wait \"$ABIDE\" answer {id} no"),
        format!("(setsid sh -c '\"$ABIDE\" answer {id} no' & wait)"),
    ];
    for command in from_inside {
        let output = abide.output(["run", "--", &command]);
        let said = text(&output.stderr);
        assert!(
            said.contains("a command cannot answer a question; only a person can"),
            "{output:?}"
        );
    }
    assert_eq!(
        abide.json(["answer", "--json"])["questions"][0]["question_id"],
        id.as_str()
    );
    abide.output(["answer", &id, "no"]);
    assert_eq!(pty.end().0.code(), Some(124));
}

#[test]
fn condition_command_that_forks_twice_is_refused_an_answer_without_cgroup() {
    let abide = held_by_keepers_alone();
    abide.fifo("done");
    abide.fifo("go");
    let (pty, id) = asked(&abide, "sleep 1000");
    // The intermediate process has exited when the answer is sent.
    let answer = format!("read _ < go; \"$ABIDE\" answer {id} no 2>said; echo > done");
    std::fs::write(abide.path("answer"), answer).expect("a script");
    let twice = "(setsid sh answer &) & wait; echo > go; read _ < done";
    let waited = abide.output(["wait", "--for", "60s", "--command", twice]);
    assert!(waited.status.success(), "{waited:?}");
    let said = std::fs::read_to_string(abide.path("said")).expect("what it was told");
    assert!(said.contains("only a person can"), "{said}");
    abide.output(["answer", &id, "no"]);
    assert_eq!(pty.end().0.code(), Some(124));
}

#[test]
fn condition_command_cannot_answer() {
    let abide = Abide::new();
    let (pty, id) = asked(&abide, "sleep 1000");
    let condition = format!("! \"$ABIDE\" answer {id} no 2>said");
    let waited = abide.output(["wait", "--for", "60s", "--command", &condition]);
    assert!(waited.status.success(), "{waited:?}");
    let said = std::fs::read_to_string(abide.path("said")).expect("what it was told");
    assert!(said.contains("only a person can"), "{said}");
    abide.output(["answer", &id, "no"]);
    assert_eq!(pty.end().0.code(), Some(124));
}

#[test]
fn answer_to_an_unknown_question_is_not_found() {
    let abide = Abide::new();
    for id in ["question_00000000", "nonsense", "../stop"] {
        let output = abide.output(["answer", id, "yes"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(
        text(&abide.output(["answer"]).stdout),
        "No open questions.\n"
    );
}

#[test]
fn without_a_terminal_questions_are_listed() {
    let abide = Abide::new();
    let command = "printf '\\033]0;evil\\007last words'; sleep 1000";
    let mut pty = Pty::run(abide.command(["run", "--idle", "1h", "--", command]));
    pty.wait_for("last words");
    let (pty, id) = asked_of(&abide, pty);
    let output = abide.output(["answer"]);
    let shown = text(&output.stdout);
    assert!(
        shown.contains(&id) && shown.contains("last words"),
        "{shown}"
    );
    assert!(
        !shown.contains('\u{1b}') && !shown.contains('\u{7}'),
        "{shown:?}"
    );
    abide.output(["answer", &id, "no"]);
    pty.end();
}

#[test]
fn answer_follow_shows_questions_of_all_agents() {
    let abide = Abide::new();
    let mut person = Pty::run(abide.command(["answer", "--follow"]));
    person.wait_for("Waiting for questions");
    // The daemon has registered the person once it answers.
    let mut child = abide
        .command(["run", "--idle", "300ms", "--", "sleep 1000"])
        .spawn()
        .unwrap();
    person.wait_for("command: sleep 1000");
    person.wait_for("[Y/n] ");
    person.type_in(b"y\n");
    person.wait_for("Yes: continuing to wait.");
    person.wait_for("[Y/n] ");
    person.type_in(b"n\n");
    person.wait_for("No: the command is being ended.");
    assert_eq!(child.wait().unwrap().code(), Some(124));
}

#[test]
fn open_questions_are_asked_one_by_one() {
    let abide = Abide::new();
    let (pty, _) = asked(&abide, "sleep 1000");
    let mut person = Pty::run(abide.command(["answer"]));
    person.wait_for("[Y/n] ");
    person.type_in(b"n\n");
    let (status, screen) = person.end();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert_eq!(pty.end().0.code(), Some(124));
}

#[test]
fn answer_without_a_terminal_prints_commands_that_answer() {
    let abide = Abide::new();
    let (pty, id) = asked(&abide, "sleep 1000");
    let said = text(&abide.output(["answer"]).stdout);
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("  to end the command: abide "));
    let words = line.expect("a command").split(' ');
    assert_eq!(words.clone().nth(1), Some(id.as_str()), "{said}");
    let output = abide.output(words);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(pty.end().0.code(), Some(124));
    // The list says that a person declined, not which signal ended the command.
    let listed = text(&abide.output(["ps", "--all"]).stdout);
    assert!(listed.contains("declined by a person"), "{listed}");
}

#[test]
fn question_at_a_terminal_says_what_the_answers_do() {
    let abide = Abide::new();
    let (pty, id) = asked(&abide, "sleep 1000");
    assert!(abide.output(["answer", &id, "no"]).status.success());
    let (_, screen) = pty.end();
    let effect =
        "yes keeps waiting; no ends the command and all its processes\r\nContinue waiting? [Y/n] ";
    assert!(screen.contains(effect), "{screen}");
}

#[test]
fn shown_question_says_how_long_its_command_has_run_by_now() {
    let abide = Abide::new();
    let (_pty, id) = asked(&abide, "sleep 1000");
    let ran = || abide.json(["answer", "--json"])["questions"][0]["running_for"].as_f64();
    let before = ran().expect("seconds");
    let after = ran().expect("seconds");
    assert!(after > before, "{before} and {after}");
    assert!(abide.output(["answer", &id, "no"]).status.success());
}
