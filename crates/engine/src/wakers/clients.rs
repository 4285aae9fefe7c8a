//! Wakes MCP clients: an open session gets a message, a closed one is resumed.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::attempt::{Attempt, WakeCommand, WakeFault};
use crate::Handle;
use crate::clients::{Client, ClientKind};
use crate::clock::pause;
use crate::config::WakerConfig;
use crate::socket;

/// Time limit for an inbox to accept a message.
const INBOX_LIMIT: Duration = Duration::from_secs(5);

/// Wakes the session of Claude Code that the messages belong to: by its inbox while it is open, else by resuming it.
pub(super) async fn claude_code(
    attempt: &Attempt,
    config: &WakerConfig,
    handle: &Handle,
) -> Result<(), WakeFault> {
    let (client, live) = client(attempt, handle, ClientKind::ClaudeCode)?;
    let text = attempt.text(handle).await;
    let sent = match &client.inbox {
        Some(inbox) => send_to_inbox(inbox, &text).await.map_err(|e| e.to_string()),
        None => Err("this version of Claude Code has none".into()),
    };
    match sent {
        Ok(()) => Ok(()),
        // Two processes would write to one conversation.
        Err(why) if live => Err(WakeFault::Retry(format!(
            "session {} is open, but its inbox cannot be reached: {why}; the message comes with its next call or by a hook (abide messages --help)",
            client.session
        ))),
        Err(_) => {
            let argv = ["claude", "-p", "--resume", &client.session, &text];
            let command = command(&argv, client.clone());
            attempt.run(command, config, handle).await
        }
    }
}

/// Wakes a thread of Codex in the same way: by its queue while it is open, else by resuming it.
pub(super) async fn codex(
    attempt: &Attempt,
    config: &WakerConfig,
    handle: &Handle,
) -> Result<(), WakeFault> {
    let (client, live) = client(attempt, handle, ClientKind::Codex)?;
    let text = attempt.text(handle).await;
    let thread = client.session.clone();
    let argv: Vec<&str> = match live {
        true => vec!["codex", "queue", "--thread", &thread, "--message", &text],
        // The thread was started in this directory, so the check for a repository is not needed.
        false => vec![
            "codex",
            "exec",
            "resume",
            "--skip-git-repo-check",
            &thread,
            &text,
        ],
    };
    attempt.run(command(&argv, client), config, handle).await
}

/// Client of an attempt; the flag says if it is connected now.
fn client(
    attempt: &Attempt,
    handle: &Handle,
    kind: ClientKind,
) -> Result<(Client, bool), WakeFault> {
    let conversation = attempt.conversation.as_deref();
    let found = handle.clients().find(&attempt.agent.0, kind, conversation);
    found.ok_or_else(|| {
        let name = match kind {
            ClientKind::ClaudeCode => "Claude Code",
            ClientKind::Codex => "Codex",
        };
        WakeFault::Retry(match conversation {
            Some(session) => format!("{name} session {session} no longer exists"),
            None => format!(
                "no {name} has called abide as agent {} yet",
                attempt.agent.0
            ),
        })
    })
}

fn command(argv: &[&str], client: Client) -> WakeCommand {
    WakeCommand {
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        cwd: Some(client.cwd),
        env: client.env,
        // The text is an argument; a client that finds input too would add it to the prompt.
        input: None,
    }
}

/// Sends a message to the inbox of a session, as one line of JSON. There is no receipt: it was read when the message
/// is marked as seen.
async fn send_to_inbox(inbox: &Path, text: &str) -> io::Result<()> {
    let line = json!({"type": "user", "message": {"role": "user", "content": text}});
    let line = format!("{line}\n");
    let stream = socket::connect(inbox)?;
    stream.set_nonblocking(true)?;
    let mut stream = UnixStream::from_std(stream)?;
    let sending = async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await
    };
    tokio::select! {
        sent = sending => sent,
        () = pause(INBOX_LIMIT) => Err(io::ErrorKind::TimedOut.into()),
    }
}
