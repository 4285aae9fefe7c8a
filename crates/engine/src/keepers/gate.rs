//! Network gates of sandboxes, from the daemon's side: their questions become events, answers go back, and the ports that
//! they publish are kept for views, and shown to the other gates of the agent. A gate outlives the daemon and shows the next one what is open.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::policy::Choice;
use abide_core::{ConnectionAnswer, Event, HeldConnection, SessionId};
use abide_gate::agent_ports::PublishedBy;
use abide_gate::control_lines::{DaemonLine, GateLine, MAX_LINE};
use abide_gate::questions::Answer;
use abide_session::folder;
use abide_session::sandbox::GATE_SOCKET;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::Keepers;
use crate::clock::pause;
use crate::lock::lock;
use crate::policy::shown_host;
use crate::socket;

/// Time after the start of a daemon for clients and people to come back, before the questions of gates are asked again.
const RECONNECT_GRACE: Duration = Duration::from_secs(5);
/// Lines that may be queued for one gate; it has fewer open questions.
const LINES: usize = 64;

/// State of a port that a command listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Reachable on this machine's 127.0.0.1.
    Published,
    /// Not reachable, for this reason.
    Failed(String),
}

/// Gates that the daemon follows.
#[derive(Default)]
pub(super) struct Gates(Mutex<GateTable>);

struct FollowedGate {
    /// Agent of the session, if its directory says.
    agent: Option<String>,
    lines: mpsc::Sender<String>,
    ports: BTreeMap<u16, PortState>,
    /// Ports of other sessions that the gate was shown last.
    shown: Option<PublishedBy>,
}

impl FollowedGate {
    /// Sends a line. A gate that is gone needs none.
    fn send(&self, line: &DaemonLine<'_>) {
        let line = serde_json::to_string(line).expect("numbers and text are JSON");
        let _ = self.lines.try_send(format!("{line}\n"));
    }
}

impl Gates {
    /// Ports that the gate of a session publishes, or could not.
    pub fn ports(&self, id: SessionId) -> BTreeMap<u16, PortState> {
        let gates = lock(&self.0);
        gates
            .get(&id)
            .map_or_else(BTreeMap::new, |gate| gate.ports.clone())
    }

    /// Sends an answer. A gate that is gone needs none.
    pub fn answer(&self, id: SessionId, number: u64, answer: &ConnectionAnswer) {
        let (answer, because) = match answer {
            ConnectionAnswer::Yes => (Answer::Yes, None),
            ConnectionAnswer::No(because) => (Answer::No, because.as_deref()),
            ConnectionAnswer::Nobody => (Answer::Nobody, None),
        };
        let line = DaemonLine::Answer {
            id: number,
            answer,
            because: because.map(Into::into),
        };
        let gates = lock(&self.0);
        if let Some(gate) = gates.get(&id) {
            gate.send(&line);
        }
    }

    /// Ports that the sessions of an agent have published, without those of this session.
    pub fn published_by(&self, agent: &str, except: SessionId) -> PublishedBy {
        published_by(&lock(&self.0), agent, except)
    }

    fn change_port(&self, id: SessionId, port: u16, state: Option<PortState>) {
        let mut gates = lock(&self.0);
        if let Some(gate) = gates.get_mut(&id) {
            match state {
                Some(state) => gate.ports.insert(port, state),
                None => gate.ports.remove(&port),
            };
        }
        show_ports(&mut gates);
    }

    fn insert(&self, id: SessionId, gate: FollowedGate) {
        let mut gates = lock(&self.0);
        gates.insert(id, gate);
        show_ports(&mut gates);
    }

    fn remove(&self, id: SessionId) {
        let mut gates = lock(&self.0);
        gates.remove(&id);
        show_ports(&mut gates);
    }
}

type GateTable = HashMap<SessionId, FollowedGate>;

fn published_by(gates: &GateTable, agent: &str, except: SessionId) -> PublishedBy {
    let is_other =
        |id: &SessionId, gate: &FollowedGate| *id != except && gate.agent.as_deref() == Some(agent);
    let others = gates.iter().filter(|(id, gate)| is_other(id, gate));
    let published = others.flat_map(|(id, gate)| {
        let ports = gate.ports.iter();
        let published = ports.filter(|(_, state)| **state == PortState::Published);
        published.map(|(port, _)| (*port, id.to_string()))
    });
    published.collect()
}

/// Shows each gate the ports that other sessions of its agent have published, if they have changed.
fn show_ports(gates: &mut GateTable) {
    let now: Vec<(SessionId, PublishedBy)> = gates
        .iter()
        .filter_map(|(id, gate)| Some((*id, published_by(gates, gate.agent.as_deref()?, *id))))
        .collect();
    for (id, ports) in now {
        let Some(gate) = gates.get_mut(&id) else {
            continue;
        };
        if gate.shown.as_ref() != Some(&ports) {
            gate.send(&DaemonLine::AgentPorts {
                ports: ports.clone(),
            });
            gate.shown = Some(ports);
        }
    }
}

impl Keepers {
    /// Follows the gate of a session that was started, if it has one, until the gate ends. `was_recovered`: an earlier
    /// daemon has started the session.
    pub(super) fn follow_gate(self: &Arc<Self>, id: SessionId, was_recovered: bool) {
        let path = self.folder(id).join(GATE_SOCKET);
        if !path.exists() {
            return;
        }
        let (lines, queue) = mpsc::channel(LINES);
        let meta = folder::read_meta(&self.folder(id)).ok().flatten();
        let gate = FollowedGate {
            agent: meta.map(|meta| meta.launch.agent),
            lines,
            ports: BTreeMap::new(),
            shown: None,
        };
        self.gates.insert(id, gate);
        let keepers = self.clone();
        tokio::spawn(async move {
            let followed = async {
                if was_recovered {
                    pause(RECONNECT_GRACE).await;
                }
                keepers.read_gate(id, &path, queue).await
            };
            let followed = tokio::select! {
                followed = followed => followed,
                () = keepers.shutdown.cancelled() => return,
            };
            if let Err(fault) = followed {
                tracing::debug!(%id, %fault, "the network gate is gone");
            }
            keepers.gates.remove(id);
            let number = None;
            let ended = Event::ConnectionReleased {
                session: id,
                number,
            };
            let _ = keepers.events.send(ended).await;
            let _ = keepers
                .events
                .send(Event::PortsChanged { session: id })
                .await;
        });
    }

    async fn read_gate(
        &self,
        id: SessionId,
        path: &Path,
        mut lines: mpsc::Receiver<String>,
    ) -> io::Result<()> {
        let stream = socket::connect(path)?;
        stream.set_nonblocking(true)?;
        let (reader, mut writer) = UnixStream::from_std(stream)?.into_split();
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        loop {
            let mut limited = (&mut reader).take(MAX_LINE);
            tokio::select! {
                // A line that is read in part stays in `line`.
                read = limited.read_until(b'\n', &mut line) => {
                    read?;
                    if !line.ends_with(b"\n") {
                        return Ok(());
                    }
                    let event = self.gate_event(id, serde_json::from_slice(&line)?);
                    line.clear();
                    let _ = self.events.send(event).await;
                }
                Some(line) = lines.recv() => writer.write_all(line.as_bytes()).await?,
            }
        }
    }

    fn gate_event(&self, session: SessionId, line: GateLine<'_>) -> Event {
        let (port, state) = match line {
            GateLine::Question {
                id,
                name,
                port,
                workspace,
            } => {
                let connection = Arc::new(held(id, &name, port, workspace.into_owned().into()));
                return Event::ConnectionHeld {
                    session,
                    connection,
                };
            }
            GateLine::Withdrawn { id } => {
                let number = Some(id);
                return Event::ConnectionReleased { session, number };
            }
            GateLine::Published { port } => (port, Some(PortState::Published)),
            GateLine::NotPublished { port, reason } => {
                (port, Some(PortState::Failed(reason.into_owned())))
            }
            GateLine::Unpublished { port } => (port, None),
        };
        self.gates.change_port(session, port, state);
        Event::PortsChanged { session }
    }
}

/// Connections that wait, with the answers that a person can give.
fn held(number: u64, name: &str, port: u16, workspace: PathBuf) -> HeldConnection {
    let entry = shown_host(&format!("{name}:{port}"), &workspace);
    HeldConnection {
        number,
        name: name.into(),
        port,
        folder: workspace.to_string_lossy().into(),
        offers: vec![
            (Choice::Once, "".into()),
            (Choice::ThisAgent, "".into()),
            (Choice::AlwaysHere, entry.into()),
            (Choice::No, "".into()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn always_here_shows_the_entry_that_it_writes() {
        let held = held(1, "example.org", 443, "/src".into());
        let (_, adds) = &held.offers[2];
        let expected = "[[allow]]\nhost = \"example.org:443\"\nfolder = \"/src\"\n";
        assert_eq!(&**adds, expected);
    }
}
