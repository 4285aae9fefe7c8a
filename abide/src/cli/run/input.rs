//! Input for the command: this program's standard input, or keys typed at its terminal.

use std::io::Read;

use abide_api::WrittenBytes;
use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

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

/// Forwards input until it ends or the session no longer accepts it. If a daemon dies before it has started the command,
/// the next one starts it in another session; `session` is then set to its id.
pub async fn forward(
    client: Client,
    mut session: watch::Receiver<String>,
    source: Source,
) -> Result<(), ClientError> {
    match source {
        Source::Stdin => loop {
            let chunk = tokio::task::spawn_blocking(read).await;
            let chunk = chunk.unwrap_or_default();
            let last = chunk.is_empty();
            send(&client, &mut session, chunk, last).await?;
            if last {
                return Ok(());
            }
        },
        Source::Keys(mut keys) => {
            while let Some(typed) = keys.recv().await {
                send(&client, &mut session, typed, false).await?;
            }
            Ok(())
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

async fn send(
    client: &Client,
    session: &mut watch::Receiver<String>,
    chunk: Bytes,
    last: bool,
) -> Result<(), ClientError> {
    loop {
        let id = session.borrow_and_update().clone();
        let path = format!("/v1/sessions/{id}/input?eof={last}");
        match client.post_bytes(&path, chunk.clone()).await {
            Err(ClientError::Refused {
                status: StatusCode::NOT_FOUND,
                ..
            }) if session.changed().await.is_ok() => {}
            sent => return sent.map(|_: WrittenBytes| ()),
        }
    }
}
