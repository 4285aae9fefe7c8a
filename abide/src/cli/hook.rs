//! `abide messages --hook`: waits for messages on behalf of a client that starts a hook whenever its
//! agent ends a turn, and is woken by how the hook ends.

use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, Unanswered};
use super::trouble::Trouble;
use crate::lock;
use abide_engine::clients::ClientKind;
use abide_engine::clock::pause;
use abide_engine::config::Paths;

/// What wakes: the client shows its agent what stands on standard error.
const WAKE: u8 = 2;
/// How long one call waits; it is repeated.
const STANDBY: u64 = 3_600;
/// Before a daemon that went away is called again.
const BREATH: Duration = Duration::from_secs(1);

/// Waits until there are messages, tells them and wakes. Ends at once where none can come, or where
/// another hook of the same session waits already: one is started at the end of every turn.
pub async fn wait(paths: &Paths, agent: String) -> Result<u8, Trouble> {
    let said = said();
    let session = session_of(&said);
    let Some(_only) = lock::only_one(paths, &format!("hook-{session}"))? else {
        return Ok(0);
    };
    let client = Client::new(paths.clone(), Some(agent));
    let client = match said["session_id"].as_str() {
        Some(session) => client.in_conversation(&ClientKind::ClaudeCode.conversation(session)),
        None => client,
    };
    loop {
        if !may_come(&client).await? {
            return Ok(0);
        }
        let arguments = json!({"timeout_seconds": STANDBY});
        let read = client.post("/v1/tools/read_messages", &arguments).await;
        match read {
            Ok(read) if is_empty(&read["messages"]) => {}
            Ok(read) => {
                let text = read["text"].as_str().unwrap_or_default();
                writeln!(std::io::stderr(), "{text}")?;
                return Ok(WAKE);
            }
            Err(Unanswered::Broken(_)) => pause(BREATH).await,
            Err(other) => return Err(other.into()),
        }
    }
}

/// What the client says to its hook.
fn said() -> Value {
    let mut input = std::io::stdin();
    let mut text = String::new();
    if input.is_terminal() || input.read_to_string(&mut text).is_err() {
        return Value::Null;
    }
    serde_json::from_str(&text).unwrap_or_default()
}

/// The session's name, as it may stand in the name of a file.
fn session_of(said: &Value) -> String {
    let name = said["session_id"].as_str().unwrap_or("none");
    let plain = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-');
    plain.take(64).collect()
}

/// True if a message is there or something runs that could send one. Messages are asked for last: what ends
/// in between has sent its message by then.
async fn may_come(client: &Client) -> Result<bool, Trouble> {
    for (path, list) in [
        ("/v1/timers", "timers"),
        ("/v1/sessions", "sessions"),
        ("/v1/messages?unseen=true&limit=1", "messages"),
    ] {
        if !is_empty(&client.get(path).await?[list]) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}
