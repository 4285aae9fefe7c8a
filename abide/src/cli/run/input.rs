//! Input for the command: this program's standard input, or keys typed at its terminal.

use std::io::Read;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::cli::client::{Client, ClientError};

/// Largest number of bytes sent in one request.
const CHUNK: usize = 64 << 10;

/// Source of the input.
pub enum Source {
    /// Standard input of this program, up to end of file.
    Stdin,
    /// Keys typed at the terminal.
    Keys(mpsc::Receiver<Bytes>),
}

/// Forwards input until it ends or the session no longer accepts it.
pub async fn forward(client: Client, session: String, source: Source) -> Result<(), ClientError> {
    match source {
        Source::Stdin => forward_stdin(&client, &session).await,
        Source::Keys(keys) => forward_keys(&client, &session, keys).await,
    }
}

async fn forward_stdin(client: &Client, session: &str) -> Result<(), ClientError> {
    loop {
        let chunk = tokio::task::spawn_blocking(read).await;
        let chunk = chunk.unwrap_or_default();
        let last = chunk.is_empty();
        send(client, session, chunk, last).await?;
        if last {
            return Ok(());
        }
    }
}

/// Reads the next chunk of standard input. A read error counts as end of file.
fn read() -> Bytes {
    let mut chunk = vec![0; CHUNK];
    let read = loop {
        match std::io::stdin().read(&mut chunk) {
            Err(fault) if fault.kind() == std::io::ErrorKind::Interrupted => {}
            read => break read.unwrap_or(0),
        }
    };
    chunk.truncate(read);
    Bytes::from(chunk)
}

async fn forward_keys(
    client: &Client,
    session: &str,
    mut keys: mpsc::Receiver<Bytes>,
) -> Result<(), ClientError> {
    while let Some(typed) = keys.recv().await {
        send(client, session, typed, false).await?;
    }
    Ok(())
}

async fn send(client: &Client, session: &str, chunk: Bytes, last: bool) -> Result<(), ClientError> {
    let path = format!("/v1/sessions/{session}/input?eof={last}");
    client.post_bytes(&path, chunk).await.map(drop)
}
