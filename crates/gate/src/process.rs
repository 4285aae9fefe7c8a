//! The gate as a process: what it is given, what it serves, and when it ends.
//!
//! Two messages come over its channel, in either order: the sockets, from the first process of the sandbox, and the
//! configuration, from the keeper, with the unix sockets for the daemon and for other gates. If the other ends are closed before both
//! messages came, the gate ends with an error. Later the keeper asks over the channel what was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UdpSocket, UnixDatagram, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;

use crate::agent_ports::{self, AgentPorts, PublishedBy};
use crate::allowlist::{Allowlist, PatternError};
use crate::names::Names;
use crate::outside::{Dialer, Host, Outside};
use crate::proxy::Proxies;
use crate::publish::DialSockets;
use crate::questions::Questions;
use crate::refusals::{Listed, Refusals};
use crate::relay::MAX_PIPES;
use crate::{Gate, MAX_CONNECTIONS, clock, control, dns, keeper, publish, tcp};
use abide_session::fd_passing;
use abide_session::sandbox::GATE_READY;
use abide_session::sandbox::gate_sockets::DNS_PORT;

/// Longest configuration.
const MAX_CONFIG: usize = 64 * 1024;
/// Time for connections to pass on their last bytes after the sandbox has ended.
const DRAIN_GRACE: Duration = Duration::from_secs(2);
/// Time for the keeper to ask what was refused after the sandbox has ended.
const KEEPER_GRACE: Duration = Duration::from_secs(10);
/// Descriptors that the gate needs beside those of connections.
const OTHER_DESCRIPTORS: u64 = 300 + 2 * MAX_PIPES as u64;

/// Configuration of the gate of one session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Patterns of names and ports that are allowed.
    pub allow: Vec<String>,
    /// Patterns of names that may have private addresses.
    pub private: Vec<String>,
    /// Ask a person about names that no pattern matches; otherwise they do not exist.
    pub ask: bool,
    /// Workspace of the sandbox, which a question names.
    pub workspace: String,
    /// Ports of the host's loopback that programs inside may reach.
    pub host_ports: Vec<u16>,
    /// Publish ports that programs inside listen on.
    pub publish: bool,
    /// Ports that other commands of the agent have published.
    pub agent_ports: PublishedBy,
    /// Folder with the directories of all sessions. `None`: programs inside reach no port of other commands.
    pub sessions: Option<PathBuf>,
    /// Ports of the host that are never published, such as the daemon's own.
    pub never_publish: Vec<u16>,
    /// Copy all bytes through buffers, never through pipes: the off switch of `splice`.
    pub copy_only: bool,
    /// Variables of the caller's environment that name proxies. Without any, those of the gate's own environment count.
    pub proxy_variables: BTreeMap<String, String>,
}

/// Everything that a gate is given.
#[derive(Debug, Default)]
pub struct Received {
    /// First process of the sandbox, as the host numbers it.
    pub pid: u32,
    /// Configuration.
    pub config: Config,
    /// Sockets of the sandbox, and those for the daemon and for other gates.
    pub descriptors: Vec<OwnedFd>,
}

/// A failure that ends the gate.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A pattern is wrong.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The configuration is not valid JSON, or has unknown fields.
    #[error("the configuration of the network gate is not valid: {0}")]
    Config(serde_json::Error),
    /// The configuration does not begin with a process id.
    #[error("the configuration of the network gate names no process")]
    Pid,
    /// The system failed.
    #[error("the network gate cannot {0}: {1}")]
    System(&'static str, io::Error),
}

fn cannot<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> Fault {
    move |error| Fault::System(what, error.into())
}

/// Runs the gate of which `channel` is given, until its sandbox ends.
pub fn run(channel: OwnedFd) -> Result<(), Fault> {
    let received = receive(&channel)?;
    // Not a member of the keeper's process group: signals of a terminal are not for the gate.
    let _ = rustix::process::setsid();
    // Keeps no file system of the keeper's directory busy.
    let _ = rustix::process::chdir("/");
    let given = &received.config.proxy_variables;
    let proxies = match given.is_empty() {
        true => Proxies::from_environment(),
        false => Proxies::from_variables(|name| given.get(name).cloned()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(cannot("start its runtime"))?;
    runtime.block_on(serve(received, Some(channel), Box::new(Host), proxies))?;
    // A look-up that still runs in a thread must not keep the process alive.
    runtime.shutdown_background();
    Ok(())
}

/// Receives the configuration and all descriptors.
pub fn receive(channel: &OwnedFd) -> Result<Received, Fault> {
    let failed = cannot::<io::Error>("receive its sockets");
    let mut all = Received::default();
    let mut sockets_arrived = false;
    let mut text = vec![0; MAX_CONFIG];
    while all.pid == 0 || !sockets_arrived {
        let received = fd_passing::receive(channel, &mut text, RecvFlags::empty());
        let (length, received) = received.map_err(|errno| failed(errno.into()))?;
        match &text[..length] {
            [] => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            b"sockets" => sockets_arrived = true,
            text => (all.pid, all.config) = read_config(text)?,
        }
        all.descriptors.extend(received);
    }
    Ok(all)
}

/// Reads the configuration: the number of a process in the first line, then JSON.
fn read_config(text: &[u8]) -> Result<(u32, Config), Fault> {
    let mut parts = text.splitn(2, |byte| *byte == b'\n');
    let pid = parts.next().and_then(|pid| std::str::from_utf8(pid).ok());
    let pid = pid.and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0);
    let config = serde_json::from_slice(parts.next().unwrap_or_default());
    Ok((pid.ok_or(Fault::Pid)?, config.map_err(Fault::Config)?))
}

/// The sockets of a sandbox, by what each is for.
#[derive(Default)]
struct Sockets {
    dns_udp: Vec<UdpSocket>,
    dns_tcp: Vec<TcpListener>,
    listeners: Vec<TcpListener>,
    unconnected: Vec<OwnedFd>,
    control: Vec<UnixListener>,
    ports: Vec<UnixDatagram>,
}

impl Sockets {
    fn sort(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let mut sockets = Self::default();
        for descriptor in descriptors {
            rustix::io::ioctl_fionbio(&descriptor, true)?;
            let domain = sockopt::socket_domain(&descriptor)?;
            let kind = sockopt::socket_type(&descriptor)?;
            let listens = sockopt::socket_acceptconn(&descriptor)?;
            if domain == AddressFamily::UNIX && kind == SocketType::DGRAM {
                (sockets.ports).push(UnixDatagram::from_std(descriptor.into())?);
            } else if domain == AddressFamily::UNIX {
                sockets
                    .control
                    .push(UnixListener::from_std(descriptor.into())?);
            } else if kind == SocketType::DGRAM {
                sockets
                    .dns_udp
                    .push(UdpSocket::from_std(descriptor.into())?);
            } else if !listens {
                sockets.unconnected.push(descriptor);
            } else {
                let listener = TcpListener::from_std(descriptor.into())?;
                match listener.local_addr()?.port() {
                    DNS_PORT => sockets.dns_tcp.push(listener),
                    _ => sockets.listeners.push(listener),
                }
            }
        }
        Ok(sockets)
    }

    /// Takes out the listeners at ports of other sandboxes, which are at no other address than the loopback.
    fn take_agent_ports(&mut self, config: &Config) -> io::Result<Vec<(u16, TcpListener)>> {
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for listener in self.listeners.drain(..) {
            let address = listener.local_addr()?;
            let port = address.port();
            let is_of_host = config.host_ports.contains(&port);
            match address.ip().is_loopback() && !is_of_host {
                true => taken.push((port, listener)),
                false => kept.push(listener),
            }
        }
        self.listeners = kept;
        Ok(taken)
    }

    fn ports(&self) -> io::Result<BTreeSet<u16>> {
        let listeners = self.listeners.iter().chain(&self.dns_tcp);
        listeners
            .map(|listener| Ok(listener.local_addr()?.port()))
            .collect()
    }
}

/// Serves a sandbox until its first process has ended or SIGTERM comes, and returns what was refused. `keeper`: channel to
/// the keeper.
pub async fn serve(
    received: Received,
    keeper: Option<OwnedFd>,
    outside: Box<dyn Outside>,
    proxies: Result<Proxies, crate::proxy::ProxyError>,
) -> Result<Listed, Fault> {
    let Received {
        pid,
        config,
        descriptors,
    } = received;
    let mut sockets = Sockets::sort(descriptors).map_err(cannot("use its sockets"))?;
    let agent_listeners = (sockets.take_agent_ports(&config)).map_err(cannot("use its sockets"))?;
    let connections = raise_descriptor_limit();
    let gate = Arc::new(Gate {
        allow: Allowlist::parse(&config.allow)?,
        // Without a socket for the daemon a connection would wait for an answer that cannot come.
        ask: config.ask && !sockets.control.is_empty(),
        host_ports: config.host_ports.iter().copied().collect(),
        inside_ports: sockets.ports().map_err(cannot("use its sockets"))?,
        never_publish: config.never_publish.iter().copied().collect(),
        agent_ports: AgentPorts::new(config.sessions, config.agent_ports),
        names: Mutex::new(Names::default()),
        dialer: Dialer::new(outside, proxies, Allowlist::parse(&config.private)?),
        dial_sockets: DialSockets::new(std::mem::take(&mut sockets.unconnected)),
        slots: Arc::new(Semaphore::new(connections)),
        pipes: Semaphore::new(if config.copy_only { 0 } else { MAX_PIPES }),
        questions: Questions::default(),
        workspace: config.workspace,
        refusals: Refusals::default(),
        publications: watch::Sender::default(),
    });
    let ended = sandbox_end(pid).map_err(cannot("watch the sandbox"))?;
    let mut terminated = signal(SignalKind::terminate()).map_err(cannot("watch for SIGTERM"))?;

    if let Some(channel) = &keeper {
        // Before anything is served: a keeper that has not got this message knows that nothing was refused.
        rustix::net::send(channel, GATE_READY, SendFlags::NOSIGNAL)
            .map_err(cannot("tell the keeper that it is ready"))?;
    }
    let mut tasks = JoinSet::new();
    for socket in sockets.dns_udp {
        tasks.spawn(dns::serve_udp(Arc::clone(&gate), socket));
    }
    for listener in sockets.dns_tcp {
        tasks.spawn(dns::serve_tcp(Arc::clone(&gate), listener));
    }
    for listener in sockets.listeners {
        tasks.spawn(tcp::serve(Arc::clone(&gate), listener));
    }
    for (port, listener) in agent_listeners {
        gate.serve_agent_port(port, listener).await;
    }
    for socket in sockets.ports {
        tasks.spawn(agent_ports::serve(Arc::clone(&gate), socket));
    }
    for listener in sockets.control {
        tasks.spawn(control::serve(Arc::clone(&gate), listener));
    }
    if config.publish {
        tasks.spawn(publish::serve(Arc::clone(&gate), pid));
    }
    let keeper = keeper.map(|channel| tokio::spawn(keeper::serve(Arc::clone(&gate), channel)));

    tokio::select! {
        _ = ended => {
            // Every program inside is gone; its last bytes may still be on their way out.
            let all = Arc::clone(&gate.slots);
            let drained = all.acquire_many(connections as u32);
            let _ = clock::within(DRAIN_GRACE, drained).await;
        }
        _ = terminated.recv() => {}
    }
    tasks.shutdown().await;
    if let Some(keeper) = keeper {
        // The keeper asks what was refused, and closes its end.
        let _ = clock::within(KEEPER_GRACE, keeper).await;
    }
    Ok(gate.refusals.listed())
}

/// A receiver that is told when the process has ended.
fn sandbox_end(pid: u32) -> io::Result<oneshot::Receiver<()>> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("sandbox-end".to_owned())
        .spawn(move || {
            let mut events = [PollFd::new(&pidfd, PollFlags::IN)];
            while rustix::event::poll(&mut events, None) == Err(Errno::INTR) {}
            // The gate may have ended first.
            let _ = sender.send(());
        })?;
    Ok(receiver)
}

/// Allows as many descriptors as the hard limit does. Returns the number of connections for which they suffice.
fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    let wanted = OTHER_DESCRIPTORS + 2 * MAX_CONNECTIONS as u64;
    let limit = wanted.min(maximum.unwrap_or(u64::MAX));
    let raised = Rlimit {
        current: Some(limit),
        maximum,
    };
    let available = match current {
        Some(current) if current < limit => {
            rustix::process::setrlimit(Resource::Nofile, raised).map_or(current, |()| limit)
        }
        _ => wanted,
    };
    let connections = available.saturating_sub(OTHER_DESCRIPTORS) / 2;
    (connections as usize).clamp(8, MAX_CONNECTIONS)
}
