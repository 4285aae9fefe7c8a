//! Seals of rows that make this machine run something: held commands, the answers to them, conditions, and clients that are
//! resumed. A seal is a message authentication code under a key of this machine. Other users who can write the database do
//! not have the key, so a row that they have added or changed is not used.

use std::path::Path;

use abide_core::{Agent, Conversation, QuestionId, SessionId};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::machine_link::KeyFault;
use crate::machine_link::key::{BYTES, read_or_make};
use crate::secret::constant_time_eq;

/// Key of the seals. `None`: only this machine's user can write the database, so its rows have no seals.
#[derive(Clone, Debug)]
pub(crate) struct RowSeal(Option<[u8; BYTES]>);

/// For a database whose rows have no seals.
pub(super) const UNSEALED: RowSeal = RowSeal(None);

/// Row that has a seal.
pub(super) enum SealedRow<'a> {
    /// Command that waits for an answer.
    Held(QuestionId, &'a str, &'a [u8]),
    /// Yes to a held command, which is started as this session.
    Approved(QuestionId, SessionId),
    /// Condition of the timer with this number, and the caller for whom it is looked at.
    Condition(u64, &'a Agent, Option<&'a Conversation>, &'a str),
    /// Clients of an agent and kind.
    Clients(&'a str, &'a str, &'a str),
}

impl RowSeal {
    /// Reads the key from this file, which is made if there is none.
    pub fn open(path: &Path) -> Result<Self, KeyFault> {
        Ok(RowSeal(Some(read_or_make(path)?)))
    }

    /// Seal of a row.
    pub(super) fn of(&self, row: &SealedRow<'_>) -> Option<Vec<u8>> {
        let mut seal =
            Hmac::<Sha256>::new_from_slice(self.0.as_ref()?).expect("any length is a key");
        for part in row.parts() {
            seal.update(&(part.len() as u64).to_le_bytes());
            seal.update(&part);
        }
        Some(seal.finalize().into_bytes().to_vec())
    }

    /// True if a row has its seal, or needs none.
    pub(super) fn is_valid(&self, row: &SealedRow<'_>, seal: Option<&[u8]>) -> bool {
        let is_valid = match self.of(row) {
            None => true,
            Some(own) => {
                seal.is_some_and(|seal| seal.len() == own.len() && constant_time_eq(&own, seal))
            }
        };
        if !is_valid {
            tracing::error!(
                "{} has no valid seal of this machine; it is not used",
                row.name()
            );
        }
        is_valid
    }
}

impl SealedRow<'_> {
    fn parts(&self) -> Vec<Vec<u8>> {
        let text = |text: &str| text.as_bytes().to_vec();
        match self {
            SealedRow::Held(question, command, launch) => vec![
                text("held"),
                text(&question.to_string()),
                text(command),
                launch.to_vec(),
            ],
            SealedRow::Approved(question, session) => vec![
                text("approved"),
                text(&question.to_string()),
                text(&session.to_string()),
            ],
            SealedRow::Condition(number, agent, conversation, condition) => vec![
                text("condition"),
                text(&number.to_string()),
                text(&agent.0),
                text(if conversation.is_some() { "in" } else { "" }),
                text(conversation.map_or("", |of| &of.0)),
                text(condition),
            ],
            SealedRow::Clients(agent, kind, facts) => {
                vec![text("clients"), text(agent), text(kind), text(facts)]
            }
        }
    }

    fn name(&self) -> String {
        match self {
            SealedRow::Held(question, ..) => format!("the held command of {question}"),
            SealedRow::Approved(question, _) => format!("the answer to {question}"),
            SealedRow::Condition(number, ..) => format!("the condition of timer number {number}"),
            SealedRow::Clients(agent, kind, _) => {
                format!("the list of {kind} clients of {agent:?}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seal_is_valid_only_for_the_row_and_the_key_that_it_was_made_for() {
        let folder = tempfile::tempdir().unwrap();
        let own = RowSeal::open(&folder.path().join("row-key")).unwrap();
        let other = RowSeal::open(&folder.path().join("other")).unwrap();
        let (agent, longer) = (Agent("a".into()), Agent("ab".into()));
        let conversation = Conversation("c".into());
        let row = SealedRow::Condition(1, &agent, None, "b");
        let seal = own.of(&row);
        let again = RowSeal::open(&folder.path().join("row-key")).unwrap();
        assert!(again.is_valid(&row, seal.as_deref()));
        assert!(!other.is_valid(&row, seal.as_deref()));
        for changed in [
            SealedRow::Condition(2, &agent, None, "b"),
            SealedRow::Condition(1, &longer, None, ""),
            SealedRow::Condition(1, &agent, Some(&conversation), "b"),
            SealedRow::Clients("1", "a", "b"),
        ] {
            assert!(
                !own.is_valid(&changed, seal.as_deref()),
                "{}",
                changed.name()
            );
        }
        assert!(!own.is_valid(&row, None));
        assert!(!own.is_valid(&row, seal.as_deref().map(|seal| &seal[1..])));
        assert!(UNSEALED.is_valid(&row, None));
    }
}
