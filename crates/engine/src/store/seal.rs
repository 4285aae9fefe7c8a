//! Codes in rows that make this machine run something: held commands, the answers to them, conditions, and clients that
//! are resumed. Other users who can write the database do not have the key of these codes, so a row that they have added or
//! changed is not used.

use std::path::Path;

use abide_core::{Agent, Conversation, QuestionId, SessionId};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::machine_link::KeyFault;
use crate::machine_link::key::{BYTES, read_or_make};
use crate::secret::constant_time_eq;

/// Key of the codes. `None`: only this machine's user can write the database, so its rows have no codes.
#[derive(Clone, Debug)]
pub(crate) struct RowSeal(Option<[u8; BYTES]>);

/// Seal of a database that has no codes.
pub(super) const UNSEALED: RowSeal = RowSeal(None);

/// Row that has a code.
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
    /// Seal with the key in this file, which is made if there is none.
    pub fn open(path: &Path) -> Result<Self, KeyFault> {
        Ok(RowSeal(Some(read_or_make(path)?)))
    }

    /// Code of a row.
    pub(super) fn of(&self, row: &SealedRow<'_>) -> Option<Vec<u8>> {
        let mut code =
            Hmac::<Sha256>::new_from_slice(self.0.as_ref()?).expect("any length is a key");
        for part in row.parts() {
            code.update(&(part.len() as u64).to_le_bytes());
            code.update(&part);
        }
        Some(code.finalize().into_bytes().to_vec())
    }

    /// True if a row has its code, or needs none.
    pub(super) fn fits(&self, row: &SealedRow<'_>, seal: Option<&[u8]>) -> bool {
        let fits = match self.of(row) {
            None => true,
            Some(code) => {
                seal.is_some_and(|seal| seal.len() == code.len() && constant_time_eq(&code, seal))
            }
        };
        if !fits {
            tracing::error!(
                "{} has no valid code of this machine; it is not used",
                row.name()
            );
        }
        fits
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
    fn code_fits_only_the_row_and_the_key_that_it_was_made_for() {
        let folder = tempfile::tempdir().unwrap();
        let own = RowSeal::open(&folder.path().join("row-key")).unwrap();
        let other = RowSeal::open(&folder.path().join("other")).unwrap();
        let (agent, longer) = (Agent("a".into()), Agent("ab".into()));
        let conversation = Conversation("c".into());
        let row = SealedRow::Condition(1, &agent, None, "b");
        let code = own.of(&row);
        let again = RowSeal::open(&folder.path().join("row-key")).unwrap();
        assert!(again.fits(&row, code.as_deref()));
        assert!(!other.fits(&row, code.as_deref()));
        for changed in [
            SealedRow::Condition(2, &agent, None, "b"),
            SealedRow::Condition(1, &longer, None, ""),
            SealedRow::Condition(1, &agent, Some(&conversation), "b"),
            SealedRow::Clients("1", "a", "b"),
        ] {
            assert!(!own.fits(&changed, code.as_deref()), "{}", changed.name());
        }
        assert!(!own.fits(&row, None));
        assert!(!own.fits(&row, code.as_deref().map(|code| &code[1..])));
        assert!(UNSEALED.fits(&row, None));
    }
}
