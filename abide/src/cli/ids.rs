//! Ids as people type them: whole, by a unique beginning, by name, or `last`. The daemon knows which ids a word may
//! stand for.

use std::str::FromStr;

use abide_api::{KnownId, KnownIds};
use abide_core::{QuestionId, SessionId, TimerId};
use abide_output::printable::one_line;

use super::client::Client;
use super::error::CliError;
use crate::http::IdKind;
use crate::http::query_text::encoded;

/// Candidates that are listed for an ambiguous word.
const LISTED: usize = 5;

impl IdKind {
    /// Command that lists what has ids of this kind.
    fn list(self) -> &'static str {
        match self {
            IdKind::Session => "abide ps --all",
            IdKind::Timer => "abide timer list",
            IdKind::Question => "abide answer",
        }
    }

    /// Error if there is nothing that `last` could stand for.
    fn none(self) -> CliError {
        match self {
            IdKind::Session => {
                CliError::new("there is no session").next("`abide run -- COMMAND` starts one")
            }
            IdKind::Timer => CliError::new("there is no timer")
                .next("`abide timer start 10m --reason TEXT` starts one"),
            IdKind::Question => CliError::new("there is no open question")
                .next("`abide answer --follow` waits for questions and asks you here"),
        }
    }

    fn is_whole(self, word: &str) -> bool {
        match self {
            IdKind::Session => SessionId::from_str(word).is_ok(),
            IdKind::Timer => TimerId::from_str(word).is_ok(),
            IdKind::Question => QuestionId::from_str(word).is_ok(),
        }
    }
}

/// Id of the session that a word stands for.
pub async fn session(client: &Client, word: &str) -> Result<String, CliError> {
    resolve(client, IdKind::Session, word).await
}

/// Id of the timer that a word stands for.
pub async fn timer(client: &Client, word: &str) -> Result<String, CliError> {
    resolve(client, IdKind::Timer, word).await
}

/// Id of the question that a word stands for.
pub async fn question(client: &Client, word: &str) -> Result<String, CliError> {
    resolve(client, IdKind::Question, word).await
}

async fn resolve(client: &Client, kind: IdKind, word: &str) -> Result<String, CliError> {
    // A whole id needs no request, and is refused by the command itself if nothing has it.
    if kind.is_whole(word) {
        return Ok(word.to_owned());
    }
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if word.is_empty() || !word.chars().all(plain) {
        let shown = one_line(word);
        return Err(CliError::new(format!("'{shown}' is not a {kind}"))
            .next(format!("`{}` shows the ids", kind.list())));
    }
    let path = format!("/v1/ids?kind={kind}&word={}", encoded(word));
    let known: KnownIds = client.get(&path).await?;
    match &known.ids[..] {
        [] if word == "last" => Err(kind.none()),
        [] => Err(CliError::new(format!("no {kind} is called '{word}'"))
            .next(format!("`{}` shows the ids", kind.list()))),
        [one] => Ok(one.id.clone()),
        _ => Err(ambiguous(kind, word, &known)),
    }
}

/// Error that lists what a word may stand for.
fn ambiguous(kind: IdKind, word: &str, known: &KnownIds) -> CliError {
    let candidate = |known: &KnownId| {
        let (id, about) = (one_line(&known.id), one_line(&known.about));
        match &known.name {
            Some(name) => format!("{id} ({}: {about})", one_line(name)),
            None => format!("{id} ({about})"),
        }
    };
    let total = known.total;
    let mut listed: Vec<String> = known.ids.iter().take(LISTED).map(candidate).collect();
    match total.saturating_sub(listed.len()) {
        0 => {}
        1 => listed.push("1 other".to_owned()),
        others => listed.push(format!("{others} others")),
    }
    CliError::new(format!(
        "'{word}' matches {total} {kind}s: {}",
        listed.join(", ")
    ))
    .next("type more of the id")
    .code(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_word_lists_some_candidates_and_counts_the_rest() {
        let known = |n| KnownId {
            id: format!("session_k000000{n}"),
            name: None,
            about: "make".into(),
            ended: false,
        };
        let known = KnownIds {
            ids: (0..8).map(known).collect(),
            total: 8,
        };
        let said = ambiguous(IdKind::Session, "k", &known).to_string();
        assert!(
            said.starts_with("abide: 'k' matches 8 sessions: session_k0000000 (make), "),
            "{said}"
        );
        assert!(said.contains(", 3 others\n"), "{said}");
    }
}
