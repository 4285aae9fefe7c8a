//! Error of a CLI command: one sentence, and the next step for the person.

use std::fmt;

use abide_output::sanitizer::Sanitizer;
use hyper::StatusCode;

use crate::client::ClientError;

/// Exit code for an error of abide itself, as opposed to one of the command it runs.
pub const EXIT_ABIDE_ERROR: u8 = 125;

/// Error of a CLI command.
#[derive(Debug)]
pub struct CliError {
    sentence: String,
    next: Option<String>,
    /// Exit code of the program.
    pub code: u8,
    /// True if the daemon went away in the middle of an answer, so that the request may be repeated.
    pub is_broken: bool,
}

impl CliError {
    /// Error with this sentence and exit code 1.
    pub fn new(sentence: impl Into<String>) -> Self {
        CliError {
            sentence: sentence.into(),
            next: None,
            code: 1,
            is_broken: false,
        }
    }

    /// The sentence, without the next step.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Adds the next step.
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Sets the exit code.
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may contain a path or a name from elsewhere: remove control sequences.
        let safe = |text: &str| Sanitizer::default().clean(text.as_bytes());
        write!(f, "abide: {}", safe(&self.sentence))?;
        if let Some(next) = &self.next {
            write!(f, "\n  {}", safe(next))?;
        }
        Ok(())
    }
}

impl From<std::io::Error> for CliError {
    fn from(fault: std::io::Error) -> Self {
        CliError::new(fault.to_string())
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused {
                status,
                detail,
                field,
                path,
                ..
            } => {
                let error = CliError::new(match &field {
                    Some(field) => in_cli_words(&detail, field),
                    None => detail,
                });
                match status {
                    // The same exit code as for a command line that cannot be parsed.
                    StatusCode::BAD_REQUEST => error.code(2),
                    StatusCode::NOT_FOUND if is_about_session(&path) => {
                        error.next("`abide ps --all` shows the sessions that exist")
                    }
                    _ => error,
                }
            }
            ClientError::Broken(why) => CliError {
                sentence: format!("the daemon stopped: {why}"),
                next: Some("run the command again; the daemon's log says why it stopped".into()),
                code: EXIT_ABIDE_ERROR,
                is_broken: true,
            },
            ClientError::NoDaemon(why) => CliError::new(why)
                .next("`abide serve` runs it in the foreground and shows the error")
                .code(EXIT_ABIDE_ERROR),
        }
    }
}

/// Returns `true` if a request with this path is about one session.
fn is_about_session(path: &str) -> bool {
    path.starts_with("/v1/sessions/") || path == "/v1/tools/terminal_session"
}

/// Fields of requests, and the words of the command line for them.
const CLI_WORDS: &[(&str, &str)] = &[
    ("total_duration", "TIME"),
    ("timeout_duration", "--standby"),
    ("pause_duration", "TIME"),
    ("inactivity_timeout", "--inactivity"),
    ("session_id", "SESSION"),
    ("timer_id", "TIMER"),
    ("max_lines", "--max-lines"),
    ("signal", "SIGNAL"),
    ("pattern", "PATTERN"),
    ("input", "TEXT"),
    ("keys", "--key"),
    ("for", "--for"),
    ("cols", "--cols"),
    ("rows", "--rows"),
    ("context", "--context"),
    ("timeout", "--timeout"),
    ("idle", "--idle"),
    ("until", "--until"),
];

/// Sentence of the daemon in which the field with the fault is named as on the command line.
fn in_cli_words(sentence: &str, field: &str) -> String {
    let known = CLI_WORDS.iter().find(|(name, _)| *name == field);
    let word = match (known, field.strip_prefix("until.")) {
        (Some((_, word)), _) => (*word).to_owned(),
        (None, Some(part)) => format!("`{part}` of --until"),
        (None, None) => return sentence.to_owned(),
    };
    sentence.replace(&format!("`{field}`"), &word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_as_on_the_command_line() {
        for (field, said, shown) in [
            (
                "cols",
                "`cols` must be 2 to 1000; got 0.",
                "--cols must be 2 to 1000; got 0.",
            ),
            (
                "until.all[1].url",
                "`until.all[1].url` must be x",
                "`all[1].url` of --until must be x",
            ),
            ("cwd", "`cwd` must be `cols`", "`cwd` must be `cols`"),
        ] {
            assert_eq!(in_cli_words(said, field), shown);
        }
    }

    #[test]
    fn unknown_session_comes_with_the_command_that_lists_them() {
        let refused = |path: &str, status: StatusCode| {
            CliError::from(ClientError::Refused {
                status,
                detail: "Session 'session_a' not found".into(),
                closing: None,
                field: None,
                path: path.into(),
            })
            .to_string()
        };
        let hint = "not found\n  `abide ps --all` shows the sessions that exist";
        for path in ["/v1/sessions/session_a/kill", "/v1/tools/terminal_session"] {
            assert!(refused(path, StatusCode::NOT_FOUND).ends_with(hint));
            assert!(refused(path, StatusCode::CONFLICT).ends_with("not found"));
        }
        assert!(refused("/v1/timers/timer_a", StatusCode::NOT_FOUND).ends_with("not found"));
    }

    #[test]
    fn control_sequences_are_removed_from_the_error() {
        let path = "/tmp/\u{1b}]52;c;QQ==\u{7}\u{9b}2J\u{202e}x";
        let error = CliError::new(format!("{path} is not a folder\nas said")).next(path);
        let shown = error.to_string();
        assert!(
            !shown.contains(|c: char| c.is_control() && c != '\n'),
            "{shown:?}"
        );
        assert!(
            shown.contains("x is not a folder\nas said\n  /tmp/"),
            "{shown:?}"
        );
    }
}
