//! Arguments that only the daemon can check: folders, regular expressions and keys. All other checks are in
//! `abide_api::arguments`.

use std::path::{Path, PathBuf};

use abide_api::arguments::{self, BadInput, Env, FilledText, KeyText};
use abide_core::{Key, SessionId};
use abide_engine::Handle;
use abide_engine::search::Pattern;
use abide_output::printable::is_invisible;
use abide_session::codec::Wire;
use sha2::{Digest, Sha256};

use super::Context;

/// Reads a regular expression.
pub(super) fn pattern(field: &str, given: Option<String>) -> Result<Option<Pattern>, BadInput> {
    let Some(text) = given else {
        return Ok(None);
    };
    let pattern = Pattern::new(&text).map_err(|fault| {
        let given = shown_text(&text);
        BadInput::about(
            field,
            format!("must be a regular expression; got {given}: {fault}."),
        )
    })?;
    Ok(Some(pattern))
}

/// Working directory: relative to the agent's root folder, or to its home after `~`.
pub(super) fn folder(given: Option<FilledText>, context: &Context) -> PathBuf {
    given.map_or_else(
        || context.root.clone(),
        |FilledText(text)| full_path(&text, context),
    )
}

/// Absolute path: relative to the agent's root folder, or to its home after `~`.
pub(super) fn full_path(text: &str, context: &Context) -> PathBuf {
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = context.env.iter().find(|(name, _)| name == "HOME");
            let home = home.map_or(Path::new("/"), |(_, home)| Path::new(home));
            home.join(rest.trim_start_matches('/'))
        }
        _ => context.root.join(text),
    }
}

/// Idempotency key of a call: the caller's own, else that of the request.
pub(super) fn key(given: Option<KeyText>, context: &Context) -> Option<Key> {
    given
        .map(|key| format!("given:{}", key.0))
        .or_else(|| context.request_key.clone())
        .map(|key| Key(key.into()))
}

/// Key of a call that starts a command, with a fingerprint of what the call gives the command. Like a key, it is stored;
/// the key is part of it, so that equal secrets have different fingerprints.
pub(super) fn start_key(
    key: Option<Key>,
    cwd: Option<&FilledText>,
    env: Option<&Env>,
    stdin: Option<&str>,
) -> Option<Key> {
    let key = key?;
    let mut given = Vec::new();
    key.0.to_string().put(&mut given);
    cwd.map(|cwd| cwd.0.clone()).put(&mut given);
    let mut variables = env.map_or_else(Vec::new, |env| env.0.clone());
    variables.sort();
    variables.put(&mut given);
    stdin.unwrap_or_default().to_owned().put(&mut given);
    let mut fingerprint = [0; 8];
    fingerprint.copy_from_slice(&Sha256::digest(&given)[..8]);
    Some(key.with_fingerprint(u64::from_be_bytes(fingerprint)))
}

/// Session of a command that an earlier call of an agent with the same key and arguments has started, or that waits for the
/// answer of a person.
pub(super) fn started_before(
    handle: &Handle,
    context: &Context,
    key: Option<&Key>,
    command: &str,
) -> Option<SessionId> {
    let key = key.filter(|_| !context.is_person)?;
    let published = handle.published();
    published.session_under_key(&context.agent, key, command)
}

/// Given text, shortened for a sentence and without invisible characters.
pub(crate) fn shown_text(text: &str) -> String {
    escape_invisible(&arguments::shown_text(text))
}

/// Text in which invisible characters are replaced.
pub(crate) fn escape_invisible(text: &str) -> String {
    let visible = |c| match is_invisible(c) {
        true => '\u{FFFD}',
        false => c,
    };
    text.chars().map(visible).collect()
}
