//! Question at a terminal, on its own lines. Only input typed after the question was shown counts as an answer.

use std::io::{IsTerminal, Write};

use abide_api::{AnswerOffer, Question};
use abide_core::QuestionId;
use anstyle::Style;

use super::show;
use crate::cli::terminal::Terminal;
use crate::tools::{GivenAnswer, rules_added};
use abide_engine::config;

/// Answer of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptAnswer {
    /// Continue waiting.
    Yes,
    /// Stop waiting.
    No,
    /// Answer to a question about a command, in its words.
    Words(String),
    /// Interrupt: end the command now.
    Interrupt,
}

/// Question that is shown and not answered yet.
pub struct Prompt {
    pub question: QuestionId,
    raw_keys: bool,
    typed: Vec<u8>,
    eof_count: u32,
    /// Line at which the person answers.
    ask: String,
    /// Only explicit words are a yes.
    explicit: bool,
}

const ASK: &str = "Continue waiting? [Y/n] ";
/// Effect of the answers about an idle session.
const EFFECT: &str = "  yes keeps waiting; no ends the command and all its processes\n";
/// Number of end-of-file reads after which the terminal counts as gone.
const EOF_LIMIT: u32 = 16;
/// Longest answer line, in bytes.
const ANSWER_LIMIT: usize = 1 << 10;

impl Prompt {
    /// Shows the question. With `raw_keys` the terminal is in raw mode, and a single key answers.
    pub fn show(terminal: &Terminal, question: &Question, raw_keys: bool) -> Self {
        let prompt = Prompt {
            question: question.question_id.0,
            raw_keys,
            typed: Vec::new(),
            eof_count: 0,
            ask: ask_line(question, raw_keys),
            explicit: offers(question).is_some(),
        };
        let text = question.text.as_str();
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        // Bold, to stand out from the command's output.
        let bold = match config::colour_enabled() {
            true => show::HEADING,
            false => Style::new(),
        };
        let own_line = if terminal.discard_input() { "\n" } else { "" };
        let effect = if prompt.explicit { "" } else { EFFECT };
        prompt.write(
            terminal,
            &format!(
                "{own_line}{bold}{first}{bold:#}\n{rest}\n{effect}{}",
                prompt.ask
            ),
        );
        prompt
    }

    /// Waits for an answer. Cancel safe: no input is lost if the future is dropped.
    pub async fn answer(&mut self, terminal: &Terminal) -> PromptAnswer {
        loop {
            let mut room = [0; 256];
            match terminal.read(&mut room).await {
                Ok(0) if self.eof_count < EOF_LIMIT => {
                    self.eof_count += 1;
                    self.write(terminal, &format!("\n{}", self.ask));
                }
                // The terminal is gone, so there will be no answer.
                Ok(0) | Err(_) => std::future::pending().await,
                Ok(read) => {
                    self.typed.extend_from_slice(&room[..read]);
                    if let Some(answer) = self.parse_typed(terminal) {
                        return answer;
                    }
                }
            }
        }
    }

    fn parse_typed(&mut self, terminal: &Terminal) -> Option<PromptAnswer> {
        if self.raw_keys {
            let answer = std::mem::take(&mut self.typed)
                .into_iter()
                .filter(|key| !self.explicit || !matches!(key, b'\r' | b'\n'))
                .find_map(parse_key);
            if answer.is_some() {
                self.write(terminal, "\n");
            }
            return answer;
        }
        while let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.typed.drain(..=end).collect();
            let answer = match self.explicit {
                true => parse_words(&line),
                false => parse_line(&line),
            };
            if answer.is_some() {
                return answer;
            }
            let hint = match self.explicit {
                true => "Please answer in one of these words.",
                false => "Please answer y or n.",
            };
            self.write(terminal, &format!("{hint} {}", self.ask));
        }
        self.typed.truncate(ANSWER_LIMIT);
        None
    }

    /// Asks once more, because the answer was not delivered.
    pub fn ask_again(&self, terminal: &Terminal) {
        let ask = &self.ask;
        self.write(terminal, &format!("(the answer was not delivered) {ask}"));
    }

    /// Withdraws the question and says why.
    pub fn withdraw(self, terminal: &Terminal, why: &str) {
        self.write(terminal, &format!("\n({why})\n"));
    }

    fn write(&self, terminal: &Terminal, text: &str) {
        let shown = if self.raw_keys {
            text.replace('\n', "\r\n")
        } else {
            text.to_owned()
        };
        let _ = terminal.write(shown.as_bytes());
    }
}

/// Asks a person for a yes at the terminal. `None`: there is no terminal to ask at.
pub fn confirm(ask: &str) -> Option<bool> {
    let (stdin, stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return None;
    }
    let _ = write!(stderr.lock(), "{ask} [y/N] ");
    let mut line = String::new();
    let _ = stdin.read_line(&mut line);
    let answer = line.trim().to_lowercase();
    Some(matches!(answer.as_str(), "y" | "yes"))
}

/// Answers that a question about a held command or a connection of a sandbox offers: a yes permits something. `None`: it is
/// about an idle session.
pub fn offers(question: &Question) -> Option<&[AnswerOffer]> {
    question.held.as_ref().map(|held| &held.answers[..])
}

/// Line at which the person answers, with the rules that an answer would write.
fn ask_line(question: &Question, raw_keys: bool) -> String {
    match offers(question) {
        None => ASK.to_owned(),
        Some(_) if raw_keys => "Allow it once? [y/n] ".into(),
        Some(offers) => format!(
            "{}Answer: {}, or no, because …: ",
            all_rules_added(offers),
            words_of(offers)
        ),
    }
}

/// Answers that a question about a command or a connection has, and the rules that they add. `None`: it is about something
/// else.
pub fn offered_answers(question: &Question) -> Option<String> {
    let offers = offers(question)?;
    let (rules, words) = (all_rules_added(offers), words_of(offers));
    Some(format!("{rules}  answers: {words}, or \"no, because …\""))
}

/// Rules that answers add, a paragraph for each.
fn all_rules_added(offers: &[AnswerOffer]) -> String {
    let added = offers.iter();
    added
        .map(|offer| rules_added(&offer.answer, &offer.adds))
        .collect()
}

fn words_of(offers: &[AnswerOffer]) -> String {
    let words: Vec<&str> = offers.iter().map(|offer| offer.answer.as_str()).collect();
    words.join(", ")
}

fn parse_words(line: &[u8]) -> Option<PromptAnswer> {
    let line = String::from_utf8_lossy(line).trim().to_owned();
    match line.as_str() {
        "y" | "Y" => Some(PromptAnswer::Yes),
        "n" | "N" => Some(PromptAnswer::No),
        words => GivenAnswer::parse(words).map(|_| PromptAnswer::Words(words.to_owned())),
    }
}

fn parse_line(line: &[u8]) -> Option<PromptAnswer> {
    let line = String::from_utf8_lossy(line).trim().to_ascii_lowercase();
    match line.as_str() {
        "" | "y" | "yes" => Some(PromptAnswer::Yes),
        "n" | "no" => Some(PromptAnswer::No),
        _ => None,
    }
}

fn parse_key(key: u8) -> Option<PromptAnswer> {
    match key {
        b'y' | b'Y' | b'\r' | b'\n' => Some(PromptAnswer::Yes),
        b'n' | b'N' => Some(PromptAnswer::No),
        3 => Some(PromptAnswer::Interrupt),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sample;

    #[test]
    fn only_yes_no_and_interrupt_are_answers() {
        assert_eq!(parse_line(b"\n"), Some(PromptAnswer::Yes));
        assert_eq!(parse_line(b" Yes \n"), Some(PromptAnswer::Yes));
        assert_eq!(parse_line(b"NO\n"), Some(PromptAnswer::No));
        assert_eq!(parse_line(b"nope\n"), None);
        assert_eq!(parse_line(b"\xff\n"), None);
        assert_eq!(parse_key(b'x'), None);
        assert_eq!(parse_key(3), Some(PromptAnswer::Interrupt));
    }

    #[test]
    fn enter_permits_no_connection_and_no_command() {
        let mut question = sample::held_question(&[("once", ""), ("no", "")]).question;
        let line = "Answer: once, no, or no, because …: ";
        assert_eq!(ask_line(&question, false), line);
        assert_eq!(ask_line(&question, true), "Allow it once? [y/n] ");
        question.held = None;
        assert_eq!(ask_line(&question, false), ASK);
        assert_eq!(parse_words(b"\n"), None);
        assert_eq!(parse_words(b"n\n"), Some(PromptAnswer::No));
    }
}
