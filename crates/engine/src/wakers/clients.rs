//! Wakes the clients that agents speak through: a session that is open takes a message, one that was
//! closed is taken up again.

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

/// An inbox that has not taken a message by then is not one.
const INBOX_LIMIT: Duration = Duration::from_secs(5);

/// A session of Claude Code, of several the one that the messages come of: by its inbox while it is open, else it is taken up again.
pub(super) async fn claude_code(
    attempt: &Attempt,
    config: &WakerConfig,
    handle: &Handle,
) -> Result<(), WakeFault> {
    let (client, live) = client(attempt, handle, ClientKind::ClaudeCode)?;
    let text = attempt.text(handle);
    let sent = match &client.inbox {
        Some(inbox) => send_to_inbox(inbox, &text).await.map_err(|e| e.to_string()),
        None => Err("this version of Claude Code has none".into()),
    };
    match sent {
        Ok(()) => Ok(()),
        // Two processes would write one conversation.
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

/// A thread of Codex, chosen likewise: queued while it is open, else taken up again.
pub(super) async fn codex(
    attempt: &Attempt,
    config: &WakerConfig,
    handle: &Handle,
) -> Result<(), WakeFault> {
    let (client, live) = client(attempt, handle, ClientKind::Codex)?;
    let text = attempt.text(handle);
    let thread = client.session.clone();
    let argv: Vec<&str> = match live {
        true => vec!["codex", "queue", "--thread", &thread, "--message", &text],
        // The thread was begun there, so whether it is a repository has been settled.
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
        // The words have it; a client that finds input besides takes it for more of the prompt.
        input: None,
    }
}

/// Puts a message into a session's inbox, one line of JSON. There is no receipt: whether it was read
/// shows when the message is seen.
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
