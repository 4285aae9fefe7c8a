//! Answers that callers received, and the invariants that are checked with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use abide_core::message::{About, ReturnedMessage};
use abide_core::timer::{self, CompletedBy, Status};
use abide_core::{MessageId, Millis, Record, SessionId, TimerId};

use super::Tally;
use super::disk::Disk;

/// Counts that may be changed from anywhere.
#[derive(Default)]
pub struct SharedTally(Mutex<Tally>);

impl SharedTally {
    pub fn count(&self, what: &'static str) {
        self.with(|tally| tally.count(what));
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Tally) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub fn take(&self) -> Tally {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Everything that is known outside of the daemon.
#[derive(Default)]
pub struct Book {
    pub tally: SharedTally,
    /// True if events are printed.
    loud: bool,
    facts: Mutex<Facts>,
}

#[derive(Default)]
struct Facts {
    /// Times of calls that create a timer, by its text.
    asked: BTreeMap<String, u64>,
    /// The same by the id of the timer, once it is durable.
    made: BTreeMap<TimerId, u64>,
    /// Texts of timers whose creation was refused.
    refused: BTreeSet<String>,
    /// Timers that were reported to a caller.
    known: BTreeSet<TimerId>,
    ended: BTreeSet<TimerId>,
    /// Subjects that were reported to a caller, by an answer or a message.
    told: BTreeSet<About>,
    messages: BTreeSet<MessageId>,
    /// Sessions that a person approved.
    yes: BTreeSet<SessionId>,
}

impl Book {
    pub fn new(loud: bool) -> Self {
        Book {
            loud,
            ..Book::default()
        }
    }

    /// Prints an event.
    pub fn tell(&self, now: u64, line: impl FnOnce() -> String) {
        if self.loud {
            println!("{:>9} {}", now - 5_000_000, line());
        }
    }

    pub fn asks(&self, text: &str, now: u64) {
        let mut facts = self.facts.lock().unwrap();
        facts.asked.insert(text.to_owned(), now);
    }

    pub fn refused(&self, text: &str) {
        let mut facts = self.facts.lock().unwrap();
        facts.refused.insert(text.to_owned());
    }

    /// Checks a record that is durable now.
    pub fn recorded(&self, record: &Record, now: u64) {
        self.tell(now, || format!("durable: {record:?}"));
        let mut facts = self.facts.lock().unwrap();
        match record {
            Record::Timer(timer::Record::Created(timer::Created { id, purpose, .. })) => {
                let asked = facts.asked[&**purpose];
                let before = facts.made.insert(*id, asked);
                assert_eq!(before, None, "{id} was made twice");
            }
            Record::Timer(timer::Record::Ended(timer::Ended {
                id, status, total, ..
            })) => {
                assert!(facts.ended.insert(*id), "{id} ended twice");
                if let Status::Completed {
                    by: CompletedBy::Time,
                    ..
                } = status
                {
                    self.tally.count("completed");
                    let ran = Millis(now - facts.made[id]);
                    assert!(ran >= *total, "{id} came early: {ran} of {total}");
                }
            }
            _ => {}
        }
    }

    /// Checks the state of a timer in an answer.
    pub fn told_timer(&self, disk: &Disk, timer: &timer::Timer, completed: bool) {
        let id = timer.id.to_string();
        let rows = disk.count("SELECT count(*) FROM timer WHERE id = ?", [&id]);
        assert_eq!(rows, 1, "{id} was told of before it is durable");
        let final_rows = "SELECT count(*) FROM timer WHERE id = ? AND ended_ms IS NOT NULL";
        let over = disk.count(final_rows, [&id]);
        assert!(over == 1 || !timer.status.is_final(), "{id} is not over");
        let mut facts = self.facts.lock().unwrap();
        facts.known.insert(timer.id);
        if completed {
            let about = "SELECT count(*) FROM message WHERE about = ?";
            assert_eq!(disk.count(about, [&id]), 1, "no message about {id}");
            facts.told.insert(About::Timer(timer.id));
        }
    }

    /// Checks messages in an answer.
    pub fn told_messages(&self, disk: &Disk, messages: &[ReturnedMessage]) {
        for message in messages {
            let sql = "SELECT count(*) FROM message WHERE number = ? AND told_ms IS NOT NULL";
            let number = message.number.cast_signed();
            let durable = disk.count(sql, [number]);
            assert_eq!(durable, 1, "{message:?} was told before that is durable");
            let mut facts = self.facts.lock().unwrap();
            let told = facts.told.contains(&message.about);
            // The end of a session is also in the answer of every other call about it.
            let told = told && matches!(message.about, About::Timer(_));
            let again = !facts.messages.insert(message.id) || told;
            assert!(!again || message.repeated, "told twice: {message:?}");
            facts.told.insert(message.about);
            self.tally.count(match message.repeated {
                true => "message repeated",
                false => "message",
            });
        }
    }

    pub fn says_yes(&self, session: SessionId) {
        self.facts.lock().unwrap().yes.insert(session);
    }

    /// Checks that a person approved a command that must be approved.
    pub fn held_command_started(&self, session: SessionId) {
        self.tally.count("held command started");
        let approved = self.facts.lock().unwrap().yes.contains(&session);
        assert!(approved, "{session} was started, and no person said yes");
    }

    pub fn told_ending(&self, session: SessionId) {
        let mut facts = self.facts.lock().unwrap();
        facts.told.insert(About::Session(session));
    }

    pub fn has_told(&self, about: About) -> bool {
        self.facts.lock().unwrap().told.contains(&about)
    }

    /// Checks the database at the end, when everything has ended and every message was read.
    pub fn check_end(&self, disk: &Disk) {
        let none = |what: &str, sql: &str| assert_eq!(disk.count(sql, []), 0, "{what}");
        none(
            "a timer never ended",
            "SELECT count(*) FROM timer WHERE ended_ms IS NULL",
        );
        none(
            "a message was never seen",
            "SELECT count(*) FROM message WHERE seen_ms IS NULL",
        );
        none(
            "two timers under one key",
            "SELECT count(*) FROM (SELECT 1 FROM timer WHERE key IS NOT NULL GROUP BY agent, key HAVING count(*) > 1)",
        );
        none(
            "a completion without its one message",
            "SELECT count(*) FROM timer WHERE completed_by IS NOT NULL
             AND (SELECT count(*) FROM message WHERE about = timer.id) <> 1",
        );
        none(
            "the end of a session has two messages",
            "SELECT count(*) FROM (SELECT 1 FROM message WHERE about LIKE 'session_%' GROUP BY about HAVING count(*) > 1)",
        );
        none(
            "a question is open",
            "SELECT count(*) FROM question WHERE closing IS NULL",
        );
        let facts = self.facts.lock().unwrap();
        for text in &facts.refused {
            let rows = disk.count("SELECT count(*) FROM timer WHERE purpose = ?", [text]);
            assert_eq!(rows, 0, "the refused timer {text} exists");
        }
        for timer in &facts.ended {
            let id = timer.to_string();
            let completed = "SELECT count(*) FROM timer WHERE id = ? AND completed_by IS NOT NULL";
            let told = facts.told.contains(&About::Timer(*timer));
            assert!(
                told || disk.count(completed, [&id]) == 0,
                "{id} was told to nobody"
            );
        }
    }
}
