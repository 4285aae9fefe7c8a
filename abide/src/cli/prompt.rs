//! Question at a terminal, on its own lines. Only input typed after the question was shown counts as an answer.

use anstyle::Style;
use serde_json::Value;

use super::show;
use crate::cli::terminal::Terminal;
use abide_engine::config;

/// Answer of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Continue waiting.
    Yes,
    /// Stop waiting.
    No,
    /// Interrupt: end the command now.
    Interrupt,
}

/// Question that is shown and not answered yet.
pub struct Prompt {
    /// Question id.
    pub question: String,
    keys: bool,
    typed: Vec<u8>,
    ends: u32,
}

const ASK: &str = "Continue waiting? [Y/n] ";
/// Number of end-of-file reads after which the terminal counts as gone.
const END_LIMIT: u32 = 16;
/// Longest answer line, in bytes.
const ANSWER_LIMIT: usize = 1 << 10;

impl Prompt {
    /// Shows the question. With `keys` the terminal is in raw mode, and a single key answers.
    pub fn show(terminal: &Terminal, facts: &Value, keys: bool) -> Self {
        let text = facts["text"].as_str().unwrap_or_default();
        let prompt = Prompt {
            question: facts["question_id"].as_str().unwrap_or_default().to_owned(),
            keys,
            typed: Vec::new(),
            ends: 0,
        };
        let (question, rest) = text.split_once('\n').unwrap_or((text, ""));
        // Bold, to stand out from the command's output.
        let bold = match config::colour_enabled() {
            true => show::HEADING,
            false => Style::new(),
        };
        terminal.forget_typed();
        prompt.say(
            terminal,
            &format!("{bold}{question}{bold:#}\n{rest}\n{ASK}"),
        );
        prompt
    }

    /// Waits for an answer. Cancel safe: no input is lost if the future is dropped.
    pub async fn answer(&mut self, terminal: &Terminal) -> Said {
        loop {
            let mut room = [0; 256];
            match terminal.read(&mut room).await {
                Ok(0) if self.ends < END_LIMIT => {
                    self.ends += 1;
                    self.say(terminal, &format!("\n{ASK}"));
                }
                // The terminal is gone, so there will be no answer.
                Ok(0) | Err(_) => std::future::pending().await,
                Ok(read) => {
                    self.typed.extend_from_slice(&room[..read]);
                    if let Some(said) = self.judge(terminal) {
                        return said;
                    }
                }
            }
        }
    }

    fn judge(&mut self, terminal: &Terminal) -> Option<Said> {
        if self.keys {
            let said = std::mem::take(&mut self.typed).into_iter().find_map(key);
            if said.is_some() {
                self.say(terminal, "\n");
            }
            return said;
        }
        while let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.typed.drain(..=end).collect();
            if let Some(said) = word(&line) {
                return Some(said);
            }
            self.say(terminal, &format!("Please answer y or n. {ASK}"));
        }
        self.typed.truncate(ANSWER_LIMIT);
        None
    }

    /// Asks once more, because the answer was not delivered.
    pub fn ask_again(&self, terminal: &Terminal) {
        self.say(terminal, &format!("(the answer was not delivered) {ASK}"));
    }

    /// Withdraws the question and says why.
    pub fn withdraw(self, terminal: &Terminal, why: &str) {
        self.say(terminal, &format!("\n({why})\n"));
    }

    fn say(&self, terminal: &Terminal, text: &str) {
        let shown = if self.keys {
            text.replace('\n', "\r\n")
        } else {
            text.to_owned()
        };
        let _ = terminal.write(shown.as_bytes());
    }
}

fn word(line: &[u8]) -> Option<Said> {
    let line = String::from_utf8_lossy(line).trim().to_ascii_lowercase();
    match line.as_str() {
        "" | "y" | "yes" => Some(Said::Yes),
        "n" | "no" => Some(Said::No),
        _ => None,
    }
}

fn key(key: u8) -> Option<Said> {
    match key {
        b'y' | b'Y' | b'\r' | b'\n' => Some(Said::Yes),
        b'n' | b'N' => Some(Said::No),
        3 => Some(Said::Interrupt),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_is_an_answer() {
        assert_eq!(word(b"\n"), Some(Said::Yes));
        assert_eq!(word(b" Yes \n"), Some(Said::Yes));
        assert_eq!(word(b"NO\n"), Some(Said::No));
        assert_eq!(word(b"nope\n"), None);
        assert_eq!(word(b"\xff\n"), None);
        assert_eq!(key(b'x'), None);
        assert_eq!(key(3), Some(Said::Interrupt));
    }
}
