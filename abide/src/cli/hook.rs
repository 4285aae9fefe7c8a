//! `abide messages --hook`: waits for messages on behalf of a client. The client starts the hook
//! whenever its agent ends a turn, and the exit code of the hook wakes the agent.

use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

use abide_api::{MessagePage, SessionPage, TimerPage};
use serde_json::{Value, json};

use super::client::{Client, ClientError, ToolResult};
use super::error::CliError;
use crate::lock;
use abide_engine::clients::ClientKind;
use abide_engine::clock::pause;
use abide_engine::config::Paths;

/// Exit code that wakes the agent: the client shows the agent the text on standard error.
const WAKE: u8 = 2;
/// Standby time of one call, in seconds; the call is repeated.
const STANDBY: u64 = 3_600;
/// Pause before a request to a daemon that went away is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Waits for messages, prints them and wakes the agent. Returns at once if no message can arrive, or if
/// another hook of the same session already waits: the client starts one at the end of every turn.
pub async fn wait(paths: &Paths, agent: String) -> Result<u8, CliError> {
    let input = hook_input();
    let session = session_name(&input);
    let Some(_lock) = lock::try_lock_file(paths, &format!("hook-{session}"))? else {
        return Ok(0);
    };
    let client = Client::new(paths.clone(), Some(agent));
    let client = match input["session_id"].as_str() {
        Some(session) => client.in_conversation(&ClientKind::ClaudeCode.conversation(session)),
        None => client,
    };
    loop {
        if !messages_possible(&client).await? {
            return Ok(0);
        }
        let arguments = json!({"timeout_seconds": STANDBY});
        let read = tokio::select! {
            read = client.post("/v1/tools/read_messages", &arguments) => read,
            change = change(&client) => {
                if change.is_err() {
                    pause(RETRY_PAUSE).await;
                }
                continue;
            }
        };
        match read {
            Ok(read) if has_no_messages(&read) => {}
            Ok(read) => {
                writeln!(std::io::stderr(), "{}", read.text)?;
                return Ok(WAKE);
            }
            Err(ClientError::Broken(_)) => pause(RETRY_PAUSE).await,
            Err(other) => return Err(other.into()),
        }
    }
}

/// Waits until a timer or session may have been the last that could send a message.
async fn change(client: &Client) -> Result<(), CliError> {
    let mut events = client.get_stream("/v1/events").await?;
    while let Some((name, _)) = events.event().await? {
        let is_change = matches!(
            name.as_str(),
            "hello" | "reset" | "session" | "timer" | "timers_changed"
        );
        if is_change && !messages_possible(client).await? {
            return Ok(());
        }
    }
    Err(ClientError::ended_early().into())
}

/// JSON input that the client passes to its hook; null without any.
fn hook_input() -> Value {
    let mut input = std::io::stdin();
    let mut text = String::new();
    if input.is_terminal() || input.read_to_string(&mut text).is_err() {
        return Value::Null;
    }
    serde_json::from_str(&text).unwrap_or_default()
}

/// Session name, reduced to characters that are safe in a file name.
fn session_name(input: &Value) -> String {
    let name = input["session_id"].as_str().unwrap_or("none");
    let plain = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-');
    plain.take(64).collect()
}

/// Returns `true` if there is a message, or a timer or session that could send one. Messages are
/// queried last: a timer or session that ends in between has sent its message by then.
async fn messages_possible(client: &Client) -> Result<bool, CliError> {
    let timers: TimerPage = client.get("/v1/timers?limit=1").await?;
    if !timers.timers.is_empty() {
        return Ok(true);
    }
    let sessions: SessionPage = client.get("/v1/sessions?limit=1").await?;
    if !sessions.sessions.is_empty() {
        return Ok(true);
    }
    let unseen: MessagePage = client.get("/v1/messages?unseen=true&limit=1").await?;
    Ok(!unseen.messages.is_empty())
}

fn has_no_messages(read: &ToolResult) -> bool {
    read.fact("messages").as_array().is_none_or(Vec::is_empty)
}
