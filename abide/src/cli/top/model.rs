//! State of `abide top`, and the effect of each key on it. This file knows neither the terminal nor the
//! daemon, so that all of it can be unit-tested.

use serde_json::{Value, json};

use super::feed::Lists;
use super::keys::Key;

/// Duration, in seconds, for which `p` pauses a timer.
const PAUSE: u64 = 600;
/// Number of rows that a page key moves.
const PAGE: usize = 10;

/// Section of the screen, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Questions,
    Sessions,
    Timers,
    Messages,
}

impl Part {
    /// All sections from top to bottom.
    pub const ALL: [Part; 4] = [
        Part::Questions,
        Part::Sessions,
        Part::Timers,
        Part::Messages,
    ];
}

/// Overlay that hides the sections or asks for confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    Help,
    /// Confirmation of an action that cannot be undone.
    Sure {
        ask: String,
        deed: Deed,
    },
    /// End of a session's log, and the number of lines by which it is scrolled up.
    Log {
        session: String,
        pty: bool,
        lines: Vec<String>,
        up: usize,
    },
}

/// Request to be sent to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    Answer {
        question: String,
        yes: bool,
    },
    Kill {
        session: String,
    },
    Timer {
        timer: String,
        act: &'static str,
        body: Value,
    },
    Log {
        session: String,
        pty: bool,
    },
}

/// Effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    Quit,
    Act(Deed),
}

/// State of the screen.
pub struct Model {
    /// Lists as last read from the daemon.
    pub lists: Lists,
    /// Time at which the lists were read, in Unix milliseconds.
    pub read_at: u64,
    /// Current time, in Unix milliseconds.
    pub now: u64,
    /// Selected section, which receives the keys.
    pub part: Part,
    /// Selected row of each section.
    pub chosen: [usize; 4],
    /// Overlay, if any.
    pub over: Option<Over>,
    /// Last notice in the footer; the next key clears it.
    pub notice: Option<String>,
}

impl Model {
    /// Initial state: the questions are selected if there are any.
    pub fn new(lists: Lists, now: u64) -> Self {
        let part = match lists.questions.is_empty() {
            true => Part::Sessions,
            false => Part::Questions,
        };
        Model {
            lists,
            read_at: now,
            now,
            part,
            chosen: [0; 4],
            over: None,
            notice: None,
        }
    }

    /// Rows of a section.
    pub fn rows(&self, part: Part) -> &[Value] {
        match part {
            Part::Questions => &self.lists.questions,
            Part::Sessions => &self.lists.sessions,
            Part::Timers => &self.lists.timers,
            Part::Messages => &self.lists.messages,
        }
    }

    /// Selected row of a section.
    pub fn row(&self, part: Part) -> usize {
        self.chosen[part as usize].min(self.rows(part).len().saturating_sub(1))
    }

    fn id(&self, part: Part, field: &str) -> Option<String> {
        let row = self.rows(part).get(self.row(part))?;
        Some(row[field].as_str()?.to_owned())
    }

    /// Replaces the lists. Each selection follows its row by id.
    pub fn take(&mut self, lists: Lists) {
        const IDS: [&str; 4] = ["question_id", "session_id", "timer_id", "message_id"];
        let before: Vec<Option<String>> = Part::ALL
            .iter()
            .map(|part| self.id(*part, IDS[*part as usize]))
            .collect();
        self.lists = lists;
        self.read_at = self.now;
        for part in Part::ALL {
            let (place, id) = (part as usize, IDS[part as usize]);
            let found = before[place].as_ref().and_then(|before| {
                let rows = self.rows(part);
                rows.iter().position(|row| row[id].as_str() == Some(before))
            });
            self.chosen[place] = found.unwrap_or_else(|| self.row(part));
        }
        if self.part == Part::Questions && self.lists.questions.is_empty() {
            self.part = Part::Sessions;
        }
    }

    /// Updates a session with its new output and resource usage.
    pub fn output(&mut self, output: &Value) {
        let session = self
            .lists
            .sessions
            .iter_mut()
            .find(|session| session["session_id"] == output["session_id"]);
        let Some(session) = session else {
            return;
        };
        for field in [
            "tail",
            "cpu",
            "memory",
            "bytes_total",
            "last_activity",
            "waiting_for_input",
        ] {
            if let Some(new) = output.get(field) {
                session[field] = new.clone();
            }
        }
    }

    /// Shows the lines of a log that was requested, if that log is still open.
    pub fn log_came(&mut self, of: &str, new: Vec<String>) {
        if let Some(Over::Log { session, lines, .. }) = &mut self.over
            && session == of
        {
            *lines = new;
        }
    }

    /// Request to read the open log again.
    pub fn log_wanted(&self) -> Option<Deed> {
        match &self.over {
            Some(Over::Log { session, pty, .. }) => Some(Deed::Log {
                session: session.clone(),
                pty: *pty,
            }),
            _ => None,
        }
    }

    /// Applies a key and returns its effect.
    pub fn press(&mut self, key: Key) -> Wish {
        self.notice = None;
        if key == Key::Interrupt {
            return Wish::Quit;
        }
        match self.over.take() {
            Some(over) => self.press_over(over, key),
            None => self.press_list(key),
        }
    }

    fn press_over(&mut self, over: Over, key: Key) -> Wish {
        match over {
            // Any key closes the help.
            Over::Help => Wish::Nothing,
            Over::Sure { deed, .. } => match key {
                Key::Char('y' | 'Y') => Wish::Act(deed),
                _ => Wish::Nothing,
            },
            Over::Log {
                session,
                pty,
                lines,
                up,
            } => {
                let most = lines.len().saturating_sub(1);
                let up = match key {
                    Key::Escape | Key::Enter | Key::Char('q') => return Wish::Nothing,
                    Key::Up | Key::Char('k') => up + 1,
                    Key::Down | Key::Char('j') => up.saturating_sub(1),
                    Key::PageUp => up + PAGE,
                    Key::PageDown | Key::Char(' ') => up.saturating_sub(PAGE),
                    Key::First => most,
                    Key::Last => 0,
                    _ => up,
                };
                self.over = Some(Over::Log {
                    session,
                    pty,
                    lines,
                    up: up.min(most),
                });
                Wish::Nothing
            }
        }
    }

    fn press_list(&mut self, key: Key) -> Wish {
        match key {
            Key::Char('q') => return Wish::Quit,
            Key::Char('?' | 'h') => self.over = Some(Over::Help),
            Key::Next => self.turn(1),
            Key::Previous => self.turn(Part::ALL.len() - 1),
            Key::Up | Key::Char('k') => self.choose(|row| row.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.choose(|row| row + 1),
            Key::PageUp => self.choose(|row| row.saturating_sub(PAGE)),
            Key::PageDown => self.choose(|row| row + PAGE),
            Key::First | Key::Char('g') => self.choose(|_| 0),
            Key::Last | Key::Char('G') => self.choose(|_| usize::MAX),
            Key::Enter => return self.look(),
            Key::Char('y') => return self.answer(true),
            Key::Char('n') => return self.answer(false),
            Key::Char('K' | 'x') => self.kill(),
            Key::Char('s') => self.stop(),
            Key::Char('p') => return self.timer("pause", json!({"pause_duration": PAUSE})),
            Key::Char('r') => return self.timer("resume", json!({})),
            Key::Escape | Key::Interrupt | Key::Char(_) => {}
        }
        Wish::Nothing
    }

    fn turn(&mut self, by: usize) {
        self.part = Part::ALL[(self.part as usize + by) % Part::ALL.len()];
    }

    fn choose(&mut self, to: impl Fn(usize) -> usize) {
        let last = self.rows(self.part).len().saturating_sub(1);
        let row = to(self.row(self.part)).min(last);
        self.chosen[self.part as usize] = row;
    }

    fn answer(&mut self, yes: bool) -> Wish {
        let question = match self.part {
            Part::Questions => self.id(Part::Questions, "question_id"),
            _ => None,
        };
        match question {
            Some(question) => Wish::Act(Deed::Answer { question, yes }),
            None => self.say("select a question first (Tab)"),
        }
    }

    /// Session of the selected row.
    fn session(&self) -> Option<String> {
        match self.part {
            Part::Questions | Part::Sessions => self.id(self.part, "session_id"),
            Part::Timers | Part::Messages => None,
        }
    }

    fn kill(&mut self) {
        match self.session() {
            Some(session) => {
                self.over = Some(Over::Sure {
                    ask: format!("End {session} and everything it started?"),
                    deed: Deed::Kill { session },
                });
            }
            None => drop(self.say("select a session first (Tab)")),
        }
    }

    fn stop(&mut self) {
        match self.wish("stop", json!({})) {
            Some(deed @ Deed::Timer { .. }) => {
                let timer = self.id(Part::Timers, "timer_id").unwrap_or_default();
                self.over = Some(Over::Sure {
                    ask: format!("Stop {timer} for good? Nobody is notified."),
                    deed,
                });
            }
            _ => drop(self.say("select a timer first (Tab)")),
        }
    }

    fn wish(&self, act: &'static str, body: Value) -> Option<Deed> {
        let timer = self.id(Part::Timers, "timer_id")?;
        (self.part == Part::Timers).then_some(Deed::Timer { timer, act, body })
    }

    fn timer(&mut self, act: &'static str, body: Value) -> Wish {
        match self.wish(act, body) {
            Some(deed) => Wish::Act(deed),
            None => self.say("select a timer first (Tab)"),
        }
    }

    fn look(&mut self) -> Wish {
        let Some(session) = self.session() else {
            return self.say("select a session first (Tab)");
        };
        let known = self.lists.sessions.iter();
        let pty = known
            .filter(|known| known["session_id"].as_str() == Some(&session))
            .any(|known| known["pty"] == true);
        self.over = Some(Over::Log {
            session: session.clone(),
            pty,
            lines: Vec::new(),
            up: 0,
        });
        Wish::Act(Deed::Log { session, pty })
    }

    fn say(&mut self, what: &str) -> Wish {
        self.notice = Some(what.to_owned());
        Wish::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let lists = Lists {
            questions: vec![json!({"question_id": "question_a", "session_id": "session_a"})],
            sessions: vec![
                json!({"session_id": "session_a", "pty": true}),
                json!({"session_id": "session_b", "pty": false}),
            ],
            timers: vec![json!({"timer_id": "timer_a"})],
            ..Lists::default()
        };
        Model::new(lists, 0)
    }

    fn answer(yes: bool) -> Wish {
        let question = "question_a".to_owned();
        Wish::Act(Deed::Answer { question, yes })
    }

    #[test]
    fn a_question_is_answered_only_where_it_is_chosen() {
        let mut model = model();
        assert_eq!(model.press(Key::Char('y')), answer(true));
        assert_eq!(model.press(Key::Char('n')), answer(false));
        model.press(Key::Next);
        assert_eq!(model.press(Key::Char('n')), Wish::Nothing);
        assert!(model.notice.is_some());
    }

    #[test]
    fn what_cannot_be_taken_back_is_asked_first() {
        let mut model = model();
        model.press(Key::Next);
        model.press(Key::Down);
        let kill = Deed::Kill {
            session: "session_b".into(),
        };
        for (key, wish) in [
            (Key::Enter, Wish::Nothing),
            (Key::Char('n'), Wish::Nothing),
            (Key::Escape, Wish::Nothing),
            (Key::Char('y'), Wish::Act(kill)),
        ] {
            assert_eq!(model.press(Key::Char('K')), Wish::Nothing);
            assert!(matches!(model.over, Some(Over::Sure { .. })));
            assert_eq!(model.press(key), wish);
            assert!(model.over.is_none());
        }
        model.press(Key::Next);
        assert_eq!(model.press(Key::Char('s')), Wish::Nothing);
        assert!(matches!(
            model.press(Key::Char('y')),
            Wish::Act(Deed::Timer { act: "stop", .. })
        ));
        assert!(matches!(
            model.press(Key::Char('p')),
            Wish::Act(Deed::Timer { act: "pause", .. })
        ));
    }

    #[test]
    fn the_chosen_row_stays_chosen() {
        let mut model = model();
        model.press(Key::Next);
        model.press(Key::Last);
        assert_eq!(model.row(Part::Sessions), 1);
        let mut lists = model.lists.clone();
        lists
            .sessions
            .insert(0, json!({"session_id": "session_new"}));
        lists.questions.clear();
        model.take(lists.clone());
        assert_eq!(model.row(Part::Sessions), 2);
        lists.sessions.truncate(1);
        model.take(lists);
        assert_eq!(model.row(Part::Sessions), 0);
    }

    #[test]
    fn the_log_is_scrolled_and_left() {
        let mut model = model();
        assert!(matches!(
            model.press(Key::Enter),
            Wish::Act(Deed::Log { pty: true, .. })
        ));
        model.log_came("session_a", vec!["x".into(); 30]);
        model.log_came("session_b", Vec::new());
        model.press(Key::PageUp);
        assert!(matches!(&model.over, Some(Over::Log { up: 10, lines, .. }) if lines.len() == 30));
        model.press(Key::Escape);
        assert!(model.over.is_none() && model.log_wanted().is_none());
        assert_eq!(model.press(Key::Char('q')), Wish::Quit);
    }
}
