//! State of `abide top`, and the effect of each key on it. This file knows neither the terminal nor the
//! daemon, so that all of it can be unit-tested.

use abide_api::{QuestionAbout, QuestionDetails, SessionPulse};
use abide_core::{QuestionId, SessionId, TimerId};

use super::feed::Lists;
use super::key_decoder::Key;
use crate::cli::prompt::offers;

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
#[derive(Clone, Debug, PartialEq)]
pub enum Overlay {
    Help,
    /// Answers to a question about a command, with the rules that they add.
    Answers {
        question: Box<QuestionDetails>,
    },
    /// Words of a no that are being typed.
    Because {
        question: QuestionId,
        words: String,
    },
    /// Confirmation of an action that cannot be undone.
    Confirm {
        ask: String,
        request: TopRequest,
    },
    /// End of a session's log, and the number of lines by which it is scrolled up.
    Log {
        session: SessionId,
        pty: bool,
        lines: Vec<String>,
        scrolled: usize,
    },
}

/// Request to be sent to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopRequest {
    Answer {
        question: QuestionId,
        answer: String,
    },
    Kill {
        session: SessionId,
    },
    Timer {
        timer: TimerId,
        act: TimerAct,
    },
    Log {
        session: SessionId,
        pty: bool,
    },
}

/// Act on a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerAct {
    Stop,
    Pause,
    Resume,
}

/// Effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    Nothing,
    Quit,
    Request(TopRequest),
    /// Attach to this session.
    Attach(SessionId),
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
        let section = match lists.top.questions.is_empty() {
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

    /// Number of rows of a section.
    pub fn len(&self, section: Section) -> usize {
        let top = &self.lists.top;
        match section {
            Section::Questions => top.questions.len(),
            Section::Sessions => top.sessions.len(),
            Section::Timers => top.timers.len(),
            Section::Messages => top.messages.len(),
        }
    }

    /// Selected row of a section.
    pub fn row(&self, section: Section) -> usize {
        self.selected[section as usize].min(self.len(section).saturating_sub(1))
    }

    /// Id of a row, as text.
    fn id(&self, section: Section, row: usize) -> Option<String> {
        let top = &self.lists.top;
        Some(match section {
            Section::Questions => top.questions.get(row)?.question.question_id.0.to_string(),
            Section::Sessions => top.sessions.get(row)?.summary.session_id.0.to_string(),
            Section::Timers => top.timers.get(row)?.timer.timer_id.0.to_string(),
            Section::Messages => top.messages.get(row)?.message_id.0.to_string(),
        })
    }

    /// Selected question.
    pub fn question(&self) -> Option<&QuestionDetails> {
        let row = self.row(Section::Questions);
        self.lists.top.questions.get(row)
    }

    /// Replaces the lists. Each selection follows its row by id.
    pub fn set_lists(&mut self, lists: Lists) {
        let before = Section::ALL.map(|section| self.id(section, self.row(section)));
        let first_question = self.lists.top.questions.is_empty() && !lists.top.questions.is_empty();
        self.lists = lists;
        self.read_at = self.now;
        for section in Section::ALL {
            let place = section as usize;
            let found = (0..self.len(section)).find(|row| self.id(section, *row) == before[place]);
            self.selected[place] = found.unwrap_or_else(|| self.row(section));
        }
        if self.section == Section::Questions && self.lists.top.questions.is_empty() {
            self.section = Section::Sessions;
        }
        // A person is waited for; keys for other sections do nothing in this one.
        if first_question && self.overlay.is_none() {
            self.section = Section::Questions;
        }
    }

    /// Updates a session with its new output and resource usage.
    pub fn output(&mut self, output: SessionPulse) {
        let mut sessions = self.lists.top.sessions.iter_mut();
        if let Some(session) = sessions.find(|known| known.summary.session_id == output.session_id)
        {
            session.summary.bytes_total = output.bytes_total;
            session.last_activity = output.last_activity;
            session.live_activity = Some(output.live_activity);
        }
    }

    /// Shows the lines of a log that was requested, if that log is still open.
    pub fn set_log(&mut self, of: SessionId, new: Vec<String>) {
        if let Some(Overlay::Log { session, lines, .. }) = &mut self.overlay
            && *session == of
        {
            *lines = new;
        }
    }

    /// Request to read the open log again.
    pub fn log_request(&self) -> Option<TopRequest> {
        match &self.overlay {
            Some(Overlay::Log { session, pty, .. }) => Some(TopRequest::Log {
                session: *session,
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
            Key::Char('p') => {
                return self.timer_action(TimerAct::Pause);
            }
            Key::Char('r') => return self.timer_action(TimerAct::Resume),
            Key::Escape | Key::Interrupt | Key::Backspace | Key::Char(_) => {}
        }
        KeyEffect::Nothing
    }

    fn next_section(&mut self, by: usize) {
        self.section = Section::ALL[(self.section as usize + by) % Section::ALL.len()];
    }

    fn select(&mut self, to: impl Fn(usize) -> usize) {
        let last = self.len(self.section).saturating_sub(1);
        let row = to(self.row(self.section)).min(last);
        self.selected[self.section as usize] = row;
    }

    fn answer(&mut self, answer: &str) -> KeyEffect {
        match self.question() {
            Some(details) if self.section == Section::Questions => {
                answered(details.question.question_id.0, answer)
            }
            _ => self.notify("select a question first (Tab)"),
        }
    }

    /// Handles a key while the answers to a question about a command are shown.
    fn press_answers(&mut self, question: Box<QuestionDetails>, key: Key) -> KeyEffect {
        let id = question.question.question_id.0;
        let chosen = match key {
            Key::Escape | Key::Enter | Key::Char('q') => return KeyEffect::Nothing,
            Key::Char('y') => Some("yes"),
            Key::Char('n') => Some("no"),
            Key::Char('b') => {
                self.overlay = Some(Overlay::Because {
                    question: id,
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
            return answered(id, chosen);
        }
        self.overlay = Some(Overlay::Answers { question });
        KeyEffect::Nothing
    }

    /// Handles a key while the words of a no are typed.
    fn press_because(&mut self, question: QuestionId, mut words: String, key: Key) -> KeyEffect {
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
            Some(session) if self.has_terminal(session) => KeyEffect::Attach(session),
            Some(_) => self.notify("this session has no terminal; Enter shows its output"),
            None => self.notify("select a session first (Tab)"),
        }
    }

    fn has_terminal(&self, session: SessionId) -> bool {
        let mut known = self.lists.top.sessions.iter();
        known.any(|known| known.summary.session_id.0 == session && known.pty)
    }

    /// Opens the answers of a question about a command, or the log of a session.
    fn open(&mut self) -> KeyEffect {
        match self.question().filter(|question| is_permission(question)) {
            Some(question) if self.section == Section::Questions => {
                let question = Box::new(question.clone());
                self.overlay = Some(Overlay::Answers { question });
                KeyEffect::Nothing
            }
            _ => self.open_log(),
        }
    }

    /// Session of the selected row.
    fn session(&self) -> Option<SessionId> {
        let (top, row) = (&self.lists.top, self.row(self.section));
        let id = match self.section {
            Section::Questions => top.questions.get(row)?.question.session_id,
            Section::Sessions => top.sessions.get(row)?.summary.session_id,
            Section::Timers | Section::Messages => return None,
        };
        Some(id.0)
    }

    /// Timer of the selected row.
    fn timer(&self) -> Option<TimerId> {
        let row = self.row(Section::Timers);
        let timer = self.lists.top.timers.get(row)?.timer.timer_id.0;
        (self.section == Section::Timers).then_some(timer)
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
        match self.timer() {
            Some(timer) => {
                self.overlay = Some(Overlay::Confirm {
                    ask: format!("Stop {timer} for good? Nobody is notified."),
                    request: TopRequest::Timer {
                        timer,
                        act: TimerAct::Stop,
                    },
                });
            }
            None => drop(self.notify("select a timer first (Tab)")),
        }
    }

    fn timer_action(&mut self, act: TimerAct) -> KeyEffect {
        match self.timer() {
            Some(timer) => KeyEffect::Request(TopRequest::Timer { timer, act }),
            None => self.notify("select a timer first (Tab)"),
        }
    }

    fn open_log(&mut self) -> KeyEffect {
        let Some(session) = self.session() else {
            return self.notify("select a session first (Tab)");
        };
        let pty = self.has_terminal(session);
        self.overlay = Some(Overlay::Log {
            session,
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

fn answered(question: QuestionId, answer: &str) -> KeyEffect {
    let answer = answer.to_owned();
    KeyEffect::Request(TopRequest::Answer { question, answer })
}

/// True if the question is about a held command or a connection of a sandbox: a yes permits something.
pub fn is_permission(question: &QuestionDetails) -> bool {
    question.question.about != QuestionAbout::Idle
}

/// Answers that a question about a command offers.
pub fn answers(details: &QuestionDetails) -> Vec<&str> {
    let offers = offers(&details.question).unwrap_or_default().iter();
    offers.map(|offer| offer.answer.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use abide_api::cli::Top;
    use serde_json::json;

    use super::*;
    use crate::cli::sample;
    use crate::cli::top::feed::Totals;

    fn session(number: u64) -> SessionId {
        SessionId::from_bits(number)
    }

    fn model() -> Model {
        let lists = Lists {
            top: Top {
                questions: vec![sample::question(json!({}))],
                sessions: vec![
                    sample::session(json!({"pty": true})),
                    sample::session(json!({"session_id": session(1).to_string(), "pty": false})),
                ],
                timers: vec![sample::timer(json!({}))],
                ..sample::top()
            },
            totals: Totals::default(),
        };
        Model::new(lists, 0)
    }

    fn answer(answer: &str) -> KeyEffect {
        answered(QuestionId::from_bits(0), answer)
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
        let offers = ["once", "this agent", "always here", "no"].map(|word| (word, ""));
        model.lists.top.questions = vec![sample::held_question(&offers)];
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
        model.lists.top.questions.clear();
        model.section = Section::Timers;
        model.set_lists(lists.clone());
        assert_eq!(model.section, Section::Questions);
        // Not away from a confirmation.
        let mut without = lists.clone();
        without.top.questions.clear();
        model.set_lists(without);
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
        assert_eq!(model.press(Key::Char('a')), KeyEffect::Attach(session(0)));
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
            session: session(1),
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
            KeyEffect::Request(TopRequest::Timer {
                act: TimerAct::Stop,
                ..
            })
        ));
        assert!(matches!(
            model.press(Key::Char('p')),
            KeyEffect::Request(TopRequest::Timer {
                act: TimerAct::Pause,
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
        let new = sample::session(json!({"session_id": "session_00000009"}));
        lists.top.sessions.insert(0, new);
        lists.top.questions.clear();
        model.set_lists(lists.clone());
        assert_eq!(model.row(Section::Sessions), 2);
        lists.top.sessions.truncate(1);
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
        model.set_log(session(0), vec!["x".into(); 30]);
        model.set_log(session(1), Vec::new());
        model.press(Key::PageUp);
        assert!(
            matches!(&model.overlay, Some(Overlay::Log { scrolled: 10, lines, .. }) if lines.len() == 30)
        );
        model.press(Key::Escape);
        assert!(model.overlay.is_none() && model.log_request().is_none());
        assert_eq!(model.press(Key::Char('q')), KeyEffect::Quit);
    }
}
