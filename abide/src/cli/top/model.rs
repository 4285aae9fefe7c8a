//! State of `abide top`, and the effect of each key on it. This file knows neither the terminal nor the
//! daemon, so that all of it can be unit-tested.

use serde_json::{Value, json};

use super::feed::Lists;
use super::key_decoder::Key;

/// Duration, in seconds, for which `p` pauses a timer.
const PAUSE_SECONDS: u64 = 600;
/// Most characters of the words of a no.
const BECAUSE_LIMIT: usize = 200;
/// Number of rows that a page key moves.
const PAGE_ROWS: usize = 10;

/// Section of the screen, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Questions,
    Sessions,
    Timers,
    Messages,
}

impl Section {
    /// All sections from top to bottom.
    pub const ALL: [Section; 4] = [
        Section::Questions,
        Section::Sessions,
        Section::Timers,
        Section::Messages,
    ];
}

/// Overlay that hides the sections or asks for confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    Help,
    /// Answers to a question about a command, with the rules that they add.
    Answers {
        question: Value,
    },
    /// Words of a no that are being typed.
    Because {
        question: String,
        words: String,
    },
    /// Confirmation of an action that cannot be undone.
    Confirm {
        ask: String,
        request: TopRequest,
    },
    /// End of a session's log, and the number of lines by which it is scrolled up.
    Log {
        session: String,
        pty: bool,
        lines: Vec<String>,
        scrolled: usize,
    },
}

/// Request to be sent to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopRequest {
    Answer {
        question: String,
        answer: String,
    },
    Kill {
        session: String,
    },
    Timer {
        timer: String,
        action: &'static str,
        body: Value,
    },
    Log {
        session: String,
        pty: bool,
    },
}

/// Effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    Nothing,
    Quit,
    Request(TopRequest),
    /// Attach to this session.
    Attach(String),
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
    pub section: Section,
    /// Selected row of each section.
    pub selected: [usize; 4],
    /// Overlay, if any.
    pub overlay: Option<Overlay>,
    /// Last notice in the footer; the next key clears it.
    pub notice: Option<String>,
}

impl Model {
    /// Initial state: the questions are selected if there are any.
    pub fn new(lists: Lists, now: u64) -> Self {
        let section = match lists.questions.is_empty() {
            true => Section::Sessions,
            false => Section::Questions,
        };
        Model {
            lists,
            read_at: now,
            now,
            section,
            selected: [0; 4],
            overlay: None,
            notice: None,
        }
    }

    pub fn rows(&self, section: Section) -> &[Value] {
        match section {
            Section::Questions => &self.lists.questions,
            Section::Sessions => &self.lists.sessions,
            Section::Timers => &self.lists.timers,
            Section::Messages => &self.lists.messages,
        }
    }

    /// Selected row of a section.
    pub fn row(&self, section: Section) -> usize {
        self.selected[section as usize].min(self.rows(section).len().saturating_sub(1))
    }

    fn id(&self, section: Section, field: &str) -> Option<String> {
        let row = self.rows(section).get(self.row(section))?;
        Some(row[field].as_str()?.to_owned())
    }

    /// Replaces the lists. Each selection follows its row by id.
    pub fn set_lists(&mut self, lists: Lists) {
        const IDS: [&str; 4] = ["question_id", "session_id", "timer_id", "message_id"];
        let before: Vec<Option<String>> = Section::ALL
            .iter()
            .map(|section| self.id(*section, IDS[*section as usize]))
            .collect();
        let first_question = self.lists.questions.is_empty() && !lists.questions.is_empty();
        self.lists = lists;
        self.read_at = self.now;
        for section in Section::ALL {
            let (place, id) = (section as usize, IDS[section as usize]);
            let found = before[place].as_ref().and_then(|before| {
                let rows = self.rows(section);
                rows.iter().position(|row| row[id].as_str() == Some(before))
            });
            self.selected[place] = found.unwrap_or_else(|| self.row(section));
        }
        if self.section == Section::Questions && self.lists.questions.is_empty() {
            self.section = Section::Sessions;
        }
        // A person is waited for; keys for other sections do nothing in this one.
        if first_question && self.overlay.is_none() {
            self.section = Section::Questions;
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
    pub fn set_log(&mut self, of: &str, new: Vec<String>) {
        if let Some(Overlay::Log { session, lines, .. }) = &mut self.overlay
            && session == of
        {
            *lines = new;
        }
    }

    /// Request to read the open log again.
    pub fn log_request(&self) -> Option<TopRequest> {
        match &self.overlay {
            Some(Overlay::Log { session, pty, .. }) => Some(TopRequest::Log {
                session: session.clone(),
                pty: *pty,
            }),
            _ => None,
        }
    }

    /// Applies a key and returns its effect.
    pub fn press(&mut self, key: Key) -> KeyEffect {
        self.notice = None;
        if key == Key::Interrupt {
            return KeyEffect::Quit;
        }
        match self.overlay.take() {
            Some(overlay) => self.press_overlay(overlay, key),
            None => self.press_list(key),
        }
    }

    fn press_overlay(&mut self, overlay: Overlay, key: Key) -> KeyEffect {
        match overlay {
            // Any key closes the help.
            Overlay::Help => KeyEffect::Nothing,
            Overlay::Answers { question } => self.press_answers(question, key),
            Overlay::Because { question, words } => self.press_because(question, words, key),
            Overlay::Confirm { request, .. } => match key {
                Key::Char('y' | 'Y') => KeyEffect::Request(request),
                _ => KeyEffect::Nothing,
            },
            Overlay::Log {
                session,
                pty,
                lines,
                scrolled,
            } => {
                let most = lines.len().saturating_sub(1);
                let scrolled = match key {
                    Key::Char('a') if pty => return KeyEffect::Attach(session),
                    Key::Escape | Key::Enter | Key::Char('q') => return KeyEffect::Nothing,
                    Key::Up | Key::Char('k') => scrolled + 1,
                    Key::Down | Key::Char('j') => scrolled.saturating_sub(1),
                    Key::PageUp => scrolled + PAGE_ROWS,
                    Key::PageDown | Key::Char(' ') => scrolled.saturating_sub(PAGE_ROWS),
                    Key::First => most,
                    Key::Last => 0,
                    _ => scrolled,
                };
                self.overlay = Some(Overlay::Log {
                    session,
                    pty,
                    lines,
                    scrolled: scrolled.min(most),
                });
                KeyEffect::Nothing
            }
        }
    }

    fn press_list(&mut self, key: Key) -> KeyEffect {
        match key {
            Key::Char('q') => return KeyEffect::Quit,
            Key::Char('?' | 'h') => self.overlay = Some(Overlay::Help),
            Key::Next => self.next_section(1),
            Key::Previous => self.next_section(Section::ALL.len() - 1),
            Key::Up | Key::Char('k') => self.select(|row| row.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select(|row| row + 1),
            Key::PageUp => self.select(|row| row.saturating_sub(PAGE_ROWS)),
            Key::PageDown => self.select(|row| row + PAGE_ROWS),
            Key::First | Key::Char('g') => self.select(|_| 0),
            Key::Last | Key::Char('G') => self.select(|_| usize::MAX),
            Key::Enter => return self.open(),
            Key::Char('y') => return self.answer("yes"),
            Key::Char('n') => return self.answer("no"),
            Key::Char('a') => return self.attach(),
            Key::Char('K' | 'x') => self.kill(),
            Key::Char('s') => self.stop(),
            Key::Char('p') => return self.timer("pause", json!({"pause_duration": PAUSE_SECONDS})),
            Key::Char('r') => return self.timer("resume", json!({})),
            Key::Escape | Key::Interrupt | Key::Backspace | Key::Char(_) => {}
        }
        KeyEffect::Nothing
    }

    fn next_section(&mut self, by: usize) {
        self.section = Section::ALL[(self.section as usize + by) % Section::ALL.len()];
    }

    fn select(&mut self, to: impl Fn(usize) -> usize) {
        let last = self.rows(self.section).len().saturating_sub(1);
        let row = to(self.row(self.section)).min(last);
        self.selected[self.section as usize] = row;
    }

    fn answer(&mut self, answer: &str) -> KeyEffect {
        let question = match self.section {
            Section::Questions => self.id(Section::Questions, "question_id"),
            _ => None,
        };
        match question {
            Some(question) => answered(question, answer),
            None => self.notify("select a question first (Tab)"),
        }
    }

    /// Handles a key while the answers to a question about a command are shown.
    fn press_answers(&mut self, question: Value, key: Key) -> KeyEffect {
        let id = question["question_id"].as_str().unwrap_or_default();
        let chosen = match key {
            Key::Escape | Key::Enter | Key::Char('q') => return KeyEffect::Nothing,
            Key::Char('y') => Some("yes"),
            Key::Char('n') => Some("no"),
            Key::Char('b') => {
                self.overlay = Some(Overlay::Because {
                    question: id.to_owned(),
                    words: String::new(),
                });
                return KeyEffect::Nothing;
            }
            Key::Char(digit) => {
                let place = digit.to_digit(10).and_then(|digit| digit.checked_sub(1));
                place.and_then(|place| answers(&question).get(place as usize).copied())
            }
            _ => None,
        };
        if let Some(chosen) = chosen {
            return answered(id.to_owned(), chosen);
        }
        self.overlay = Some(Overlay::Answers { question });
        KeyEffect::Nothing
    }

    /// Handles a key while the words of a no are typed.
    fn press_because(&mut self, question: String, mut words: String, key: Key) -> KeyEffect {
        match key {
            Key::Escape => return KeyEffect::Nothing,
            Key::Enter if !words.trim().is_empty() => {
                return answered(question, &format!("no, because {}", words.trim()));
            }
            Key::Backspace => drop(words.pop()),
            Key::Char(letter) if words.chars().count() < BECAUSE_LIMIT => words.push(letter),
            _ => {}
        }
        self.overlay = Some(Overlay::Because { question, words });
        KeyEffect::Nothing
    }

    fn attach(&mut self) -> KeyEffect {
        match self.session() {
            Some(session) if self.has_terminal(&session) => KeyEffect::Attach(session),
            Some(_) => self.notify("this session has no terminal; Enter shows its output"),
            None => self.notify("select a session first (Tab)"),
        }
    }

    fn has_terminal(&self, session: &str) -> bool {
        let mut known = self.lists.sessions.iter();
        known.any(|known| known["session_id"].as_str() == Some(session) && known["pty"] == true)
    }

    /// Opens the answers of a question about a command, or the log of a session.
    fn open(&mut self) -> KeyEffect {
        let questions = self.rows(Section::Questions);
        let question = questions.get(self.row(Section::Questions));
        match question.filter(|question| needs_words(question)) {
            Some(question) if self.section == Section::Questions => {
                let question = question.clone();
                self.overlay = Some(Overlay::Answers { question });
                KeyEffect::Nothing
            }
            _ => self.open_log(),
        }
    }

    /// Session of the selected row.
    fn session(&self) -> Option<String> {
        match self.section {
            Section::Questions | Section::Sessions => self.id(self.section, "session_id"),
            Section::Timers | Section::Messages => None,
        }
    }

    fn kill(&mut self) {
        match self.session() {
            Some(session) => {
                self.overlay = Some(Overlay::Confirm {
                    ask: format!("End {session} and everything it started?"),
                    request: TopRequest::Kill { session },
                });
            }
            None => drop(self.notify("select a session first (Tab)")),
        }
    }

    fn stop(&mut self) {
        match self.timer_request("stop", json!({})) {
            Some(request @ TopRequest::Timer { .. }) => {
                let timer = self.id(Section::Timers, "timer_id").unwrap_or_default();
                self.overlay = Some(Overlay::Confirm {
                    ask: format!("Stop {timer} for good? Nobody is notified."),
                    request,
                });
            }
            _ => drop(self.notify("select a timer first (Tab)")),
        }
    }

    fn timer_request(&self, action: &'static str, body: Value) -> Option<TopRequest> {
        let timer = self.id(Section::Timers, "timer_id")?;
        (self.section == Section::Timers).then_some(TopRequest::Timer {
            timer,
            action,
            body,
        })
    }

    fn timer(&mut self, action: &'static str, body: Value) -> KeyEffect {
        match self.timer_request(action, body) {
            Some(request) => KeyEffect::Request(request),
            None => self.notify("select a timer first (Tab)"),
        }
    }

    fn open_log(&mut self) -> KeyEffect {
        let Some(session) = self.session() else {
            return self.notify("select a session first (Tab)");
        };
        let pty = self.has_terminal(&session);
        self.overlay = Some(Overlay::Log {
            session: session.clone(),
            pty,
            lines: Vec::new(),
            scrolled: 0,
        });
        KeyEffect::Request(TopRequest::Log { session, pty })
    }

    fn notify(&mut self, what: &str) -> KeyEffect {
        self.notice = Some(what.to_owned());
        KeyEffect::Nothing
    }
}

fn answered(question: String, answer: &str) -> KeyEffect {
    let answer = answer.to_owned();
    KeyEffect::Request(TopRequest::Answer { question, answer })
}

/// True if the question is about a held command or a connection of a sandbox: a yes permits something.
pub fn needs_words(question: &Value) -> bool {
    matches!(question["about"].as_str(), Some("command" | "connection"))
}

/// Answers that a question about a command offers.
pub fn answers(question: &Value) -> Vec<&str> {
    let offers = question["held"]["answers"].as_array();
    let words = offers.into_iter().flatten();
    words.filter_map(|offer| offer["answer"].as_str()).collect()
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

    fn answer(answer: &str) -> KeyEffect {
        answered("question_a".to_owned(), answer)
    }

    #[test]
    fn question_is_answered_only_in_its_section() {
        let mut model = model();
        assert_eq!(model.press(Key::Char('y')), answer("yes"));
        assert_eq!(model.press(Key::Char('n')), answer("no"));
        model.press(Key::Next);
        assert_eq!(model.press(Key::Char('n')), KeyEffect::Nothing);
        assert!(model.notice.is_some());
    }

    #[test]
    fn question_about_a_command_has_all_its_answers() {
        let mut model = model();
        model.lists.questions[0]["about"] = json!("command");
        let offers =
            ["once", "this agent", "always here", "no"].map(|word| json!({"answer": word}));
        model.lists.questions[0]["held"] = json!({"answers": offers});
        for (keys, wish) in [
            ("3", answer("always here")),
            ("y", answer("yes")),
            ("n", answer("no")),
            ("9", KeyEffect::Nothing),
        ] {
            assert_eq!(model.press(Key::Enter), KeyEffect::Nothing);
            assert!(matches!(model.overlay, Some(Overlay::Answers { .. })));
            let key = Key::Char(keys.chars().next().unwrap());
            assert_eq!(model.press(key), wish);
            model.overlay = None;
        }
        model.press(Key::Enter);
        for key in "bnot todayx".chars() {
            assert_eq!(model.press(Key::Char(key)), KeyEffect::Nothing);
        }
        model.press(Key::Backspace);
        assert_eq!(model.press(Key::Enter), answer("no, because not today"));
    }

    #[test]
    fn cursor_moves_to_the_first_question() {
        let mut model = model();
        let lists = model.lists.clone();
        model.lists.questions.clear();
        model.section = Section::Timers;
        model.set_lists(lists.clone());
        assert_eq!(model.section, Section::Questions);
        // Not away from a confirmation.
        model.set_lists(Lists {
            questions: Vec::new(),
            ..lists.clone()
        });
        model.section = Section::Timers;
        model.press(Key::Char('s'));
        model.set_lists(lists);
        assert_eq!(model.section, Section::Timers);
        assert!(matches!(model.overlay, Some(Overlay::Confirm { .. })));
    }

    #[test]
    fn attach_needs_a_terminal() {
        let mut model = model();
        model.press(Key::Next);
        assert_eq!(
            model.press(Key::Char('a')),
            KeyEffect::Attach("session_a".into())
        );
        model.press(Key::Down);
        assert_eq!(model.press(Key::Char('a')), KeyEffect::Nothing);
        assert!(model.notice.is_some());
    }

    #[test]
    fn kill_and_stop_ask_for_confirmation() {
        let mut model = model();
        model.press(Key::Next);
        model.press(Key::Down);
        let kill = TopRequest::Kill {
            session: "session_b".into(),
        };
        for (key, wish) in [
            (Key::Enter, KeyEffect::Nothing),
            (Key::Char('n'), KeyEffect::Nothing),
            (Key::Escape, KeyEffect::Nothing),
            (Key::Char('y'), KeyEffect::Request(kill)),
        ] {
            assert_eq!(model.press(Key::Char('K')), KeyEffect::Nothing);
            assert!(matches!(model.overlay, Some(Overlay::Confirm { .. })));
            assert_eq!(model.press(key), wish);
            assert!(model.overlay.is_none());
        }
        model.press(Key::Next);
        assert_eq!(model.press(Key::Char('s')), KeyEffect::Nothing);
        assert!(matches!(
            model.press(Key::Char('y')),
            KeyEffect::Request(TopRequest::Timer { action: "stop", .. })
        ));
        assert!(matches!(
            model.press(Key::Char('p')),
            KeyEffect::Request(TopRequest::Timer {
                action: "pause",
                ..
            })
        ));
    }

    #[test]
    fn selection_follows_its_row_by_id() {
        let mut model = model();
        model.press(Key::Next);
        model.press(Key::Last);
        assert_eq!(model.row(Section::Sessions), 1);
        let mut lists = model.lists.clone();
        lists
            .sessions
            .insert(0, json!({"session_id": "session_new"}));
        lists.questions.clear();
        model.set_lists(lists.clone());
        assert_eq!(model.row(Section::Sessions), 2);
        lists.sessions.truncate(1);
        model.set_lists(lists);
        assert_eq!(model.row(Section::Sessions), 0);
    }

    #[test]
    fn log_overlay_scrolls_and_closes() {
        let mut model = model();
        assert!(matches!(
            model.press(Key::Enter),
            KeyEffect::Request(TopRequest::Log { pty: true, .. })
        ));
        model.set_log("session_a", vec!["x".into(); 30]);
        model.set_log("session_b", Vec::new());
        model.press(Key::PageUp);
        assert!(
            matches!(&model.overlay, Some(Overlay::Log { scrolled: 10, lines, .. }) if lines.len() == 30)
        );
        model.press(Key::Escape);
        assert!(model.overlay.is_none() && model.log_request().is_none());
        assert_eq!(model.press(Key::Char('q')), KeyEffect::Quit);
    }
}
