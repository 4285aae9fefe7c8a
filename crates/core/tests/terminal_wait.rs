//! Transcripts of the waiting rules of terminals. A line without indent is an event at the time in front of it, in
//! milliseconds; the indented line below it is the next step of the wait.

mod script;

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

/// The wait of one scenario.
struct Stage {
    wait: Option<TerminalWait>,
}

impl script::Stage for Stage {
    fn new() -> Self {
        Stage { wait: None }
    }

    fn happens(&mut self, line: &str) -> Result<String, String> {
        let wait = &mut self.wait;
        let words: Vec<&str> = line.split(' ').collect();
        let now = at(words[0]);
        let standby = |word: &str| Millis(word.parse().expect("milliseconds"));
        match words[1..] {
            ["start"] => *wait = Some(TerminalWait::start(now, None)),
            ["start", most] => *wait = Some(TerminalWait::start(now, Some(standby(most)))),
            ["input"] => *wait = Some(TerminalWait::input(now)),
            ["read", most] => *wait = Some(TerminalWait::read(now, standby(most), true)),
            ["read", most, "pipe"] => *wait = Some(TerminalWait::read(now, standby(most), false)),
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
                    _ => return Err("an unknown event".into()),
                }
            }
        }
        let wait = wait.as_ref().expect("a wait");
        Ok(format!("  > {}\n", shown(wait.next(now))))
    }
}

#[test]
fn waits_match_their_transcripts() {
    script::check::<Stage>("terminals", 15);
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
