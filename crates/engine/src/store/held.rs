//! Rows of questions about commands that were not started. The launch data, with the environment, is kept until the
//! question is decided and the command is started.

use std::sync::Arc;

use abide_core::held::{Approval, HeldCommand};
use abide_core::policy::Choice;
use abide_core::question::Closing;
use abide_core::session::StartedBy;
use abide_core::wait::Asking;
use abide_core::{Agent, Conversation, Key, Millis, QuestionId, SessionId};
use abide_output::secret_fingerprints::SecretFingerprints;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use super::query::Query;
use super::seal::{RowSeal, SealedRow};
use super::{RowScope, StoreFault};
use crate::HeldLaunch;

/// Command of a question, but for its launch data.
#[derive(Deserialize, Serialize)]
struct CommandRow {
    agent: String,
    conversation: Option<String>,
    /// Word of the cause of its start; none for an ordinary call.
    #[serde(default)]
    started_by: Option<String>,
    command: String,
    deadline_ms: Option<u64>,
    idle_ms: Option<u64>,
    inactivity_ms: Option<u64>,
    #[serde(default)]
    keys: Vec<String>,
    folder: String,
    part: String,
    rule: String,
    why: String,
    offers: Vec<(String, String)>,
    person_only: bool,
    /// Fingerprints of the secrets in its environment, which outlive the launch data: messages show the command later.
    #[serde(default)]
    secrets: String,
}

/// Question about a command, as messages tell it.
#[derive(Clone, Debug)]
pub struct CommandAnswer {
    pub session: String,
    pub command: String,
    pub closing: Closing,
    /// Words of the person, or the reason of the refusal.
    pub because: Option<String>,
    /// Fingerprints of the secrets in the environment of the command.
    pub secrets: Arc<SecretFingerprints>,
}

pub(super) fn text(held: &HeldCommand) -> String {
    let approval = &held.approval;
    let offers = approval.offers.iter();
    let row = CommandRow {
        agent: held.agent.0.to_string(),
        conversation: held.conversation.as_ref().map(|of| of.0.to_string()),
        started_by: held.started_by.name(),
        command: held.command.to_string(),
        deadline_ms: held.deadline.map(|limit| limit.0),
        idle_ms: held.idle.map(|limit| limit.0),
        inactivity_ms: held.inactivity.map(|limit| limit.0),
        keys: held.keys.iter().map(|key| key.0.to_string()).collect(),
        folder: approval.folder.to_string(),
        part: approval.part.to_string(),
        rule: approval.rule.to_string(),
        why: approval.why.to_string(),
        offers: offers
            .map(|(choice, rules)| (choice.as_str().to_owned(), rules.to_string()))
            .collect(),
        person_only: approval.person_only,
        secrets: BASE64_STANDARD.encode(HeldLaunch::secrets_of(held).to_bytes()),
    };
    serde_json::to_string(&row).unwrap_or_default()
}

/// Command of a row. `None`: the row is damaged.
pub(super) fn command(text: &str, launch: Vec<u8>) -> Option<HeldCommand> {
    let row: CommandRow = serde_json::from_str(text).ok()?;
    let offers = row.offers.into_iter();
    let offers =
        offers.filter_map(|(word, rules)| Some((Choice::of_word(&word)?, Arc::from(rules))));
    let approval = Approval {
        launch: launch.into(),
        // The call that could ask is gone.
        asking: Asking::Elsewhere,
        folder: row.folder.into(),
        part: row.part.into(),
        rule: row.rule.into(),
        why: row.why.into(),
        offers: offers.collect(),
        person_only: row.person_only,
    };
    Some(HeldCommand {
        agent: Agent(row.agent.into()),
        conversation: row.conversation.map(|of| Conversation(of.into())),
        started_by: StartedBy::from_name(row.started_by.as_deref()),
        command: row.command.into(),
        deadline: row.deadline_ms.map(Millis),
        idle: row.idle_ms.map(Millis),
        inactivity: row.inactivity_ms.map(Millis),
        keys: row.keys.into_iter().map(|key| Key(key.into())).collect(),
        approval: Arc::new(approval),
    })
}

/// Commands that a person has approved and whose start is not recorded.
pub(super) fn approved(
    db: &dyn Query,
    scope: RowScope,
    seal: &RowSeal,
) -> Result<Vec<(QuestionId, SessionId, HeldCommand)>, StoreFault> {
    let sql = format!(
        "SELECT id, session, command, launch, seal, approval_seal FROM question \
         WHERE closing = 'yes' AND launch IS NOT NULL{scope}"
    );
    let found = db.rows(&sql, &[], |row| {
        let (Ok(id), Ok(session)) = (row.str(0)?.parse(), row.str(1)?.parse()) else {
            return Ok(None);
        };
        let (text, launch) = (row.str(2)?, row.bytes(3)?.unwrap_or_default());
        let is_ours = seal.is_valid(&SealedRow::Held(id, text, launch), row.bytes(4)?)
            && seal.is_valid(&SealedRow::Approved(id, session), row.bytes(5)?);
        let held = command(text, launch.to_vec()).filter(|_| is_ours);
        Ok(held.map(|held| (id, session, held)))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Closing of a question about a command.
pub(super) fn answer(
    db: &dyn Query,
    question: QuestionId,
) -> Result<Option<CommandAnswer>, StoreFault> {
    let sql = "SELECT session, command, closing, because FROM question \
         WHERE id = ?1 AND closing IS NOT NULL AND command IS NOT NULL";
    let id = question.to_string();
    let answer = db.first(sql, &[id.as_str().into()], |row| {
        let Some(closing) = Closing::of_word(row.str(2)?) else {
            return Ok(None);
        };
        let command = serde_json::from_str::<CommandRow>(row.str(1)?).ok();
        let (command, secrets) = command.map_or_else(Default::default, |row| {
            let secrets = BASE64_STANDARD.decode(row.secrets).unwrap_or_default();
            (row.command, SecretFingerprints::from_bytes(&secrets))
        });
        Ok(Some(CommandAnswer {
            session: row.string(0)?,
            command,
            closing,
            because: row.opt_string(3)?,
            secrets: Arc::new(secrets),
        }))
    })?;
    Ok(answer.flatten())
}
