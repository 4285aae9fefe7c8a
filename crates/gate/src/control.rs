//! The socket on which the daemon follows one gate: JSON lines both ways.
//!
//! The daemon connects; the gate shows what there is now and then what changes, so a daemon that was restarted sees the
//! questions that are still open. Nothing is queued: each line is derived from the present state.
//!
//! The lines are in `control_lines`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::Gate;
use crate::clock;
use crate::control_lines::{DaemonLine, GateLine, MAX_LINE};
use crate::publish::Publication;
use crate::questions::Given;

const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

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

async fn follow(gate: &Arc<Gate>, stream: UnixStream) -> io::Result<()> {
    let _connected = gate.questions.daemon_connected();
    let (reader, writer) = stream.into_split();
    tokio::select! {
        result = show(gate, writer) => result,
        result = take_lines(gate, reader) => result,
    }
}

async fn take_lines(gate: &Arc<Gate>, reader: OwnedReadHalf) -> io::Result<()> {
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
        match serde_json::from_slice(&line)? {
            DaemonLine::Answer {
                id,
                answer,
                because,
            } => {
                let because = because.map(|words| words.into_owned().into());
                if !gate.questions.answer(id, Given { answer, because }) {
                    tracing::debug!(id, "an answer came for a question that is not open");
                }
            }
            DaemonLine::AgentPorts { ports } => gate.update_agent_ports(ports).await,
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
        let mut write = |line: GateLine<'_>| -> io::Result<()> {
            serde_json::to_writer(&mut lines, &line)?;
            lines.push(b'\n');
            Ok(())
        };
        let open = gate.questions.open();
        let ids: BTreeSet<u64> = open.iter().map(|question| question.id).collect();
        for id in self.questions.difference(&ids) {
            write(GateLine::Withdrawn { id: *id })?;
        }
        for question in open
            .iter()
            .filter(|question| !self.questions.contains(&question.id))
        {
            write(GateLine::Question {
                id: question.id,
                name: question.target.name.as_str().into(),
                port: question.target.port,
                workspace: (&*gate.workspace).into(),
            })?;
        }
        self.questions = ids;

        let ports = gate.publications.borrow().clone();
        for port in self.ports.keys().filter(|port| !ports.contains_key(port)) {
            write(GateLine::Unpublished { port: *port })?;
        }
        for (port, publication) in &ports {
            if self.ports.get(port) != Some(publication) {
                write(match publication {
                    Publication::Published(_) => GateLine::Published { port: *port },
                    Publication::Failed(reason) => GateLine::NotPublished {
                        port: *port,
                        reason: (&**reason).into(),
                    },
                })?;
            }
        }
        self.ports = ports;
        Ok(lines)
    }
}
