//! Transcripts of the waiting rules of terminals. A scenario starts with `# title`. A line without indent is an event
//! at the time in front of it, in milliseconds; the indented line below it is the next step of the wait. `UPDATE=1
//! cargo test -p abide-core --test terminal_wait` rewrites the steps; review the diff before you commit it.

use std::fs;
use std::path::PathBuf;

use abide_core::terminal_wait::{Next, TerminalWait, Unread};
use abide_core::{Millis, Mono};

/// Clock value at which the scenarios begin, so that output can be older.
const BEGIN: u64 = 1_000_000;

fn at(millis: &str) -> Mono {
    let millis: i64 = millis.parse().expect("milliseconds");
    Mono(BEGIN.checked_add_signed(millis).expect("a time"))
}

fn shown(next: Next) -> String {
    match next {
        Next::Return { partial_line: true } => "return all".into(),
        Next::Return {
            partial_line: false,
        } => "return complete lines".into(),
        Next::CheckProcesses => "look".into(),
        Next::WaitUntil(at) => format!("wait until {}", at.0 - BEGIN),
    }
}

/// Runs a file and returns it with the actual results.
fn play(text: &str) -> (String, usize) {
    let (mut out, mut scenarios, mut wait) = (String::new(), 0, None);
    for line in text.lines().filter(|line| !line.starts_with("  > ")) {
        out += line;
        out.push('\n');
        if line.is_empty() || line.starts_with('#') {
            scenarios += usize::from(line.starts_with('#'));
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let now = at(words[0]);
        let standby = |word: &str| Millis(word.parse().expect("milliseconds"));
        match words[1..] {
            ["start"] => wait = Some(TerminalWait::start(now, None)),
            ["start", most] => wait = Some(TerminalWait::start(now, Some(standby(most)))),
            ["input"] => wait = Some(TerminalWait::input(now)),
            ["read", most] => wait = Some(TerminalWait::read(now, standby(most), true)),
            ["read", most, "pipe"] => wait = Some(TerminalWait::read(now, standby(most), false)),
            _ => {
                let wait = wait.as_mut().expect("a wait");
                match words[1..] {
                    ["time"] => {}
                    ["echo"] => wait.output(now, Unread::Echo),
                    ["part"] => wait.output(now, Unread::PartialLine),
                    ["lines"] => wait.output(now, Unread::Lines),
                    ["lines", "of", old] => wait.output(at(old), Unread::Lines),
                    ["part", "of", old] => wait.output(at(old), Unread::PartialLine),
                    ["full"] => wait.output(now, Unread::Full),
                    ["waits", "for", "input"] => wait.processes_checked(true),
                    ["does", "other", "things"] => wait.processes_checked(false),
                    ["ended"] => wait.ended(),
                    _ => panic!("no such event: {line}"),
                }
            }
        }
        let wait = wait.as_ref().expect("a wait");
        out += &format!("  > {}\n", shown(wait.next(now)));
    }
    (out, scenarios)
}

#[test]
fn waits_match_their_transcripts() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/terminals");
    let update = std::env::var_os("UPDATE").is_some();
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the folder of scenarios") {
        let file = entry.expect("an entry").path();
        let written = fs::read_to_string(&file).expect("a scenario");
        let (played, scenarios) = play(&written);
        count += scenarios;
        if update {
            fs::write(&file, &played).expect("a scenario to be written");
        } else {
            assert_eq!(played, written, "{}", file.display());
        }
    }
    assert!(count > 15, "only {count} scenarios were found");
}

#[test]
fn every_wait_ends_when_time_passes() {
    let starts = [
        TerminalWait::start(Mono(BEGIN), None),
        TerminalWait::input(Mono(BEGIN)),
        TerminalWait::read(Mono(BEGIN), Millis(5_000), true),
        TerminalWait::read(Mono(BEGIN), Millis(5_000), false),
    ];
    let kinds = [
        Unread::Nothing,
        Unread::Echo,
        Unread::PartialLine,
        Unread::Lines,
    ];
    for wait in starts {
        for kind in kinds {
            let mut wait = wait.clone();
            let mut now = Mono(BEGIN);
            for step in 0.. {
                assert!(step < 10_000, "{kind:?} does not end");
                match wait.next(now) {
                    Next::Return { .. } => break,
                    Next::CheckProcesses => wait.processes_checked(false),
                    Next::WaitUntil(at) => {
                        assert!(at > now, "{kind:?}: a wait for the past");
                        now = at.min(now + Millis(7));
                        // A program with frequent output.
                        wait.output(now, kind);
                    }
                }
            }
            let took = now.since(Mono(BEGIN)).0;
            assert!(took <= 6_000, "{kind:?} took {took}");
        }
    }
}
