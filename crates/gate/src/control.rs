//! The socket on which the daemon follows one gate: JSON lines both ways.
//!
//! The daemon connects; the gate shows what there is now and then what changes, so a daemon that was restarted sees the
//! questions that are still open. Nothing is queued: each line is derived from the present state.
//!
//! To the daemon:
//! ```json
//! {"event":"question","id":1,"name":"example.org","port":443,"workspace":"/src"}
//! {"event":"withdrawn","id":1}
//! {"event":"published","port":3000}
//! {"event":"not_published","port":8080,"reason":"the port is in use"}
//! {"event":"unpublished","port":3000}
//! ```
//! From the daemon: `{"id":1,"answer":"yes"}`, where the answer is `yes`, `no` or `nobody`; `no` may come with
//! `"because":"words"`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::Gate;
use crate::clock;
use crate::publish::Publication;
use crate::questions::{Answer, Given};

/// Longest line that is read from the daemon.
const MAX_LINE: u64 = 16 * 1024;
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// A line to the daemon.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Question {
        id: u64,
        name: &'a str,
        port: u16,
        workspace: &'a str,
    },
    /// A question needs no answer any more: it was answered, or nothing waits for it.
    Withdrawn {
        id: u64,
    },
    Published {
        port: u16,
    },
    NotPublished {
        port: u16,
        reason: &'a str,
    },
    Unpublished {
        port: u16,
    },
}

/// A line from the daemon.
#[derive(Debug, Deserialize)]
struct Reply {
    id: u64,
    answer: Answer,
    /// Words of the person, after a no.
    #[serde(default)]
    because: Option<String>,
}

/// Serves daemons of the same user, one or several at a time.
pub async fn serve(gate: Arc<Gate>, listener: UnixListener) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a daemon");
                clock::pause(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if stream
            .peer_cred()
            .is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
        {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move {
                let error = follow(&gate, stream).await.err();
                tracing::debug!(?error, "the daemon is gone");
            });
        }
    }
}

async fn follow(gate: &Gate, stream: UnixStream) -> io::Result<()> {
    let _connected = gate.questions.daemon_connected();
    let (reader, writer) = stream.into_split();
    tokio::select! {
        result = show(gate, writer) => result,
        result = take_answers(gate, reader) => result,
    }
}

async fn take_answers(gate: &Gate, reader: OwnedReadHalf) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .await?;
        if !line.ends_with(b"\n") {
            return Ok(());
        }
        let Reply {
            id,
            answer,
            because,
        } = serde_json::from_slice(&line)?;
        let because = because.map(|words| words.into());
        if !gate.questions.answer(id, Given { answer, because }) {
            tracing::debug!(id, "an answer came for a question that is not open");
        }
    }
}

/// State that a daemon was shown.
#[derive(Default)]
struct Shown {
    questions: BTreeSet<u64>,
    ports: BTreeMap<u16, Publication>,
}

async fn show(gate: &Gate, mut writer: OwnedWriteHalf) -> io::Result<()> {
    let mut questions = gate.questions.changes();
    let mut ports = gate.publications.subscribe();
    let mut shown = Shown::default();
    loop {
        // Marked as seen before the state is read: a change in between is shown with the next turn at the latest.
        questions.mark_unchanged();
        ports.mark_unchanged();
        let lines = shown.catch_up(gate)?;
        writer.write_all(&lines).await?;
        tokio::select! {
            _ = questions.changed() => {}
            _ = ports.changed() => {}
        }
    }
}

impl Shown {
    /// Lines for all that has changed since the last call.
    fn catch_up(&mut self, gate: &Gate) -> io::Result<Vec<u8>> {
        let mut lines = Vec::new();
        let mut write = |line: Line<'_>| -> io::Result<()> {
            serde_json::to_writer(&mut lines, &line)?;
            lines.push(b'\n');
            Ok(())
        };
        let open = gate.questions.open();
        let ids: BTreeSet<u64> = open.iter().map(|question| question.id).collect();
        for id in self.questions.difference(&ids) {
            write(Line::Withdrawn { id: *id })?;
        }
        for question in open
            .iter()
            .filter(|question| !self.questions.contains(&question.id))
        {
            write(Line::Question {
                id: question.id,
                name: question.target.name.as_str(),
                port: question.target.port,
                workspace: &gate.workspace,
            })?;
        }
        self.questions = ids;

        let ports = gate.publications.borrow().clone();
        for port in self.ports.keys().filter(|port| !ports.contains_key(port)) {
            write(Line::Unpublished { port: *port })?;
        }
        for (port, publication) in &ports {
            if self.ports.get(port) != Some(publication) {
                write(match publication {
                    Publication::Published => Line::Published { port: *port },
                    Publication::Failed(reason) => Line::NotPublished {
                        port: *port,
                        reason,
                    },
                })?;
            }
        }
        self.ports = ports;
        Ok(lines)
    }
}
