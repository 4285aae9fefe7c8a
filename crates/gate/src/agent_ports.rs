//! Ports that other commands of the same agent have published: programs inside reach them on their own loopback, as they
//! would without sandboxes.
//!
//! The gate listens at these ports inside, and hands each connection over to the gate of the sandbox that has published the
//! port, as a descriptor. Dialling the port on the host instead could reach another program that has taken it since.
//! A port that a program inside binds is released before: its own server comes first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide_session::fd_passing;
use abide_session::sandbox::GATE_PORTS_SOCKET;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixDatagram};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::Gate;
use crate::clock;
use crate::publish::{Publication, admit};
use crate::tcp;

/// Ports of other sandboxes that programs inside reach at the same time.
pub const MAX_AGENT_PORTS: usize = 16;
/// Time for another gate to take a connection.
const HAND_OVER_DEADLINE: Duration = Duration::from_secs(10);
const BACKLOG: i32 = 128;

/// Session that has published each port.
pub type PublishedBy = BTreeMap<u16, String>;

/// Ports of other sandboxes, from the side of the one that connects.
#[derive(Default)]
pub struct AgentPorts {
    /// Folder with the directories of all sessions. `None`: the sandbox reaches no port of others.
    sessions: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    published: PublishedBy,
    listeners: HashMap<u16, JoinHandle<io::Result<()>>>,
    /// Ports that a program inside has bound while they were published.
    released: BTreeSet<u16>,
}

impl AgentPorts {
    /// Ports as they were when the sandbox was made.
    pub fn new(sessions: Option<PathBuf>, published: PublishedBy) -> Self {
        let state = State {
            published,
            ..State::default()
        };
        Self {
            sessions,
            state: Mutex::new(state),
        }
    }

    /// Ports at which the gate listens.
    pub async fn listening(&self) -> BTreeSet<u16> {
        let state = self.state.lock().await;
        state.listeners.keys().copied().collect()
    }

    /// Directory of the session that has published a port.
    async fn folder(&self, port: u16) -> Option<PathBuf> {
        let state = self.state.lock().await;
        let session = state.published.get(&port)?;
        Some(self.sessions.as_ref()?.join(session))
    }
}

impl Gate {
    /// Serves a listener that was opened before the command was started.
    pub async fn serve_agent_port(self: &Arc<Self>, port: u16, listener: TcpListener) {
        let mut state = self.agent_ports.state.lock().await;
        let task = tokio::spawn(tcp::serve(Arc::clone(self), listener));
        state.listeners.insert(port, task);
    }

    /// Follows the ports that other commands have published.
    pub async fn update_agent_ports(self: &Arc<Self>, published: PublishedBy) {
        if self.agent_ports.sessions.is_none() {
            return;
        }
        let mut state = self.agent_ports.state.lock().await;
        let State {
            listeners,
            released,
            ..
        } = &mut *state;
        released.retain(|port| published.contains_key(port));
        for (_, task) in listeners.extract_if(|port, _| !published.contains_key(port)) {
            close(task).await;
        }
        for port in published.keys() {
            let is_open = listeners.contains_key(port) || self.inside_ports.contains(port);
            let has_room = listeners.len() < MAX_AGENT_PORTS;
            if is_open || released.contains(port) || !has_room {
                continue;
            }
            // Where it fails, a program inside listens there itself.
            if let Ok(listener) = self.listen_inside(*port) {
                let task = tokio::spawn(tcp::serve(Arc::clone(self), listener));
                listeners.insert(*port, task);
            }
        }
        state.published = published;
    }

    /// Frees a port that a program inside is about to bind.
    pub async fn release_agent_port(&self, port: u16) {
        let mut state = self.agent_ports.state.lock().await;
        if state.published.contains_key(&port) {
            state.released.insert(port);
        }
        if let Some(task) = state.listeners.remove(&port) {
            close(task).await;
        }
    }

    /// Listens on the loopback of the sandbox, with a socket that was made inside it.
    fn listen_inside(&self, port: u16) -> io::Result<TcpListener> {
        // One that has listened stays bound and cannot be used again.
        let socket = self.dial_sockets.take_for_good();
        let socket = socket.ok_or(io::ErrorKind::QuotaExceeded)?;
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), port);
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if let Err(errno) = rustix::net::bind(&socket, &address) {
            self.dial_sockets.give_back(socket);
            return Err(errno.into());
        }
        rustix::net::listen(&socket, BACKLOG)?;
        TcpListener::from_std(socket.into())
    }

    /// Hands a connection of a program inside over to the sandbox that has published the port.
    pub async fn connect_agent_port(&self, port: u16, connection: &TcpStream) {
        let handed = match self.agent_ports.folder(port).await {
            Some(folder) => {
                let handed = hand_over(&folder, port, connection);
                clock::within(HAND_OVER_DEADLINE, handed).await
            }
            None => None,
        };
        if !matches!(handed, Some(Ok(()))) {
            tracing::debug!(?handed, port, "no sandbox takes the connection");
            tcp::reset(connection);
        }
    }
}

/// Ends the task of a listener. The port is free afterwards.
async fn close(task: JoinHandle<io::Result<()>>) {
    task.abort();
    let _ = task.await;
}

/// Sends a connection to the gate of the session with this directory.
async fn hand_over(folder: &Path, port: u16, connection: &TcpStream) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    // The path of a socket is limited to 108 bytes.
    let path = format!("/proc/self/fd/{}/{GATE_PORTS_SOCKET}", folder.as_raw_fd());
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    let message = port.to_string();
    let send = || {
        Ok(fd_passing::send(
            &socket,
            message.as_bytes(),
            &[connection.as_fd()],
        )?)
    };
    socket.async_io(Interest::WRITABLE, send).await
}

/// Takes connections that other gates hand over, to ports that this one has published.
pub async fn serve(gate: Arc<Gate>, socket: UnixDatagram) -> io::Result<()> {
    let mut text = [0; 16];
    loop {
        let receive = || {
            let received = fd_passing::receive(&socket, &mut text, RecvFlags::DONTWAIT);
            match received {
                Err(Errno::MSGSIZE) => Ok((0, Vec::new())),
                received => Ok(received?),
            }
        };
        let (length, descriptors) = socket.async_io(Interest::READABLE, receive).await?;
        let port = std::str::from_utf8(&text[..length]);
        let port = port.ok().and_then(|port| port.parse::<u16>().ok());
        let (Some(port), Some(connection)) = (port, descriptors.into_iter().next()) else {
            continue;
        };
        let connection = TcpStream::from_std(std::net::TcpStream::from(connection));
        let Ok(connection) = connection else {
            continue;
        };
        let publication = port_of(&gate, port);
        let Some(Publication::Published(address)) = publication else {
            tcp::reset(&connection);
            continue;
        };
        let Ok(slot) = Arc::clone(&gate.slots).acquire_owned().await else {
            return Ok(());
        };
        admit(&gate, connection, address, slot);
    }
}

fn port_of(gate: &Gate, port: u16) -> Option<Publication> {
    gate.publications.borrow().get(&port).cloned()
}
