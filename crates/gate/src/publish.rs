//! Ports of the sandbox on the host: a port that a program inside listens on is published on the host's loopback under
//! the same number, if it is free there.
//!
//! Connections into the sandbox use sockets that were made inside it before the command was started, because a socket
//! stays in the network namespace it was made in. Such a socket is disconnected after use and used again.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_session::sandbox::gate_sockets::DIAL_SOCKETS;
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use crate::Gate;
use crate::clock;
use crate::tcp;

/// Interval at which the sockets of the sandbox are listed, after its start and after a change. The kernel has no event
/// for a socket that begins to listen.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);
/// Interval that is reached within half a minute without a change: an idle session costs little.
const LAST_INTERVAL: Duration = Duration::from_secs(2);
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Ports that are published at the same time.
const MAX_PUBLISHED: usize = 64;
/// Bytes of a table of sockets that are read.
const MAX_TABLE: u64 = 1 << 20;
/// State `LISTEN` in a table of sockets.
const LISTEN: &str = "0A";

/// State of a port that a program in the sandbox listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Reachable on the host's 127.0.0.1 under the same number. This is its address inside.
    Published(SocketAddr),
    /// Not reachable, for this reason.
    Failed(&'static str),
}

/// Ports by number.
pub type Publications = BTreeMap<u16, Publication>;

/// Looks at the sockets of the sandbox again and again, and publishes its ports.
pub async fn serve(gate: Arc<Gate>, pid: u32) -> io::Result<()> {
    let mut listeners = Listeners::default();
    let (mut before, mut interval) = (BTreeMap::new(), FIRST_INTERVAL);
    loop {
        let of_others = gate.agent_ports.listening().await;
        let mut ports = listening_ports(pid)?;
        ports.retain(|port, _| !of_others.contains(port));
        listeners.update(&gate, &ports);
        interval = match ports == before {
            true => (interval + interval / 8).min(LAST_INTERVAL),
            false => FIRST_INTERVAL,
        };
        before = ports;
        clock::pause(interval).await;
    }
}

/// Listeners on the host, each served by a task that connects to this address.
#[derive(Default)]
struct Listeners(HashMap<u16, (SocketAddr, JoinHandle<()>)>);

impl Listeners {
    /// Publishes new ports, and again tries those that could not be published before: the port may be free by now.
    fn update(&mut self, gate: &Arc<Gate>, ports: &BTreeMap<u16, IpAddr>) {
        let mut publications = gate.publications.borrow().clone();
        publications.retain(|port, _| ports.contains_key(port));
        for (port, ip) in ports {
            let has_room = publications.contains_key(port) || publications.len() < MAX_PUBLISHED;
            if self.0.contains_key(port) || !has_room || gate.inside_ports.contains(port) {
                continue;
            }
            let address = SocketAddr::new(*ip, *port);
            let publication = match bind(gate, *port) {
                Ok(listener) => {
                    let task = tokio::spawn(serve_port(Arc::clone(gate), listener, address));
                    self.0.insert(*port, (address, task));
                    Publication::Published(address)
                }
                Err(reason) => Publication::Failed(reason),
            };
            publications.insert(*port, publication);
        }
        // Afterwards: the listener of an aborted task is closed later, and a port with a new address is bound again in
        // the next round.
        self.0.retain(|port, (address, task)| {
            let is_open = ports.get(port) == Some(&address.ip());
            if !is_open {
                publications.remove(port);
                task.abort();
            }
            is_open
        });
        gate.publications.send_if_modified(|shown| {
            let changed = *shown != publications;
            *shown = publications;
            changed
        });
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for (_, task) in self.0.values() {
            task.abort();
        }
    }
}

fn bind(gate: &Gate, port: u16) -> Result<TcpListener, &'static str> {
    if gate.never_publish.contains(&port) {
        return Err("the port is reserved on this machine");
    }
    let bound = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    });
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use on this machine",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges on this machine",
        _ => "the port cannot be opened on this machine",
    })
}

async fn serve_port(gate: Arc<Gate>, listener: TcpListener, address: SocketAddr) {
    loop {
        let outside = tcp::accept(&listener).await;
        let Ok(slot) = Arc::clone(&gate.slots).acquire_owned().await else {
            return;
        };
        admit(&gate, outside, address, slot);
    }
}

/// Takes a connection to an address inside the sandbox.
pub(crate) fn admit(
    gate: &Arc<Gate>,
    outside: TcpStream,
    address: SocketAddr,
    slot: OwnedSemaphorePermit,
) {
    let gate = Arc::clone(gate);
    tokio::spawn(async move {
        if let Err(error) = into_sandbox(&gate, &outside, address).await {
            tracing::debug!(%error, %address, "cannot connect into the sandbox");
            tcp::reset(&outside);
        }
        drop(slot);
    });
}

async fn into_sandbox(gate: &Gate, outside: &TcpStream, address: SocketAddr) -> io::Result<()> {
    let socket = gate
        .dial_sockets
        .take()
        .ok_or(io::ErrorKind::QuotaExceeded)?;
    let inside = TcpStream::from_std(std::net::TcpStream::from(socket))?;
    let result = connect(&inside, address).await;
    if result.is_ok() {
        gate.join(&inside, outside).await;
    }
    gate.dial_sockets.give_back(inside.into_std()?.into());
    result
}

async fn connect(socket: &TcpStream, address: SocketAddr) -> io::Result<()> {
    // The sockets are IPv6 sockets, which reach IPv4 addresses in their mapped form.
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    match rustix::net::connect(socket, &SocketAddr::new(ip.into(), address.port())) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    // The socket was registered while it was unconnected and therefore looks writable; wait for the new event.
    let connected = async {
        loop {
            socket.writable().await?;
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
            match socket.peer_addr() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    let again = || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) };
                    let _ = socket.try_io(tokio::io::Interest::WRITABLE, again);
                }
                Err(error) => return Err(error),
            }
        }
    };
    clock::within(CONNECT_DEADLINE, connected)
        .await
        .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

/// Unconnected TCP sockets that were made inside the sandbox.
#[derive(Debug, Default)]
pub struct DialSockets(Mutex<Vec<OwnedFd>>);

impl DialSockets {
    /// A pool of these sockets.
    pub fn new(sockets: Vec<OwnedFd>) -> Self {
        Self(Mutex::new(sockets))
    }

    /// Takes a socket that does not come back. Half of them are kept for connections.
    pub(crate) fn take_for_good(&self) -> Option<OwnedFd> {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match sockets.len() > DIAL_SOCKETS / 2 {
            true => sockets.pop(),
            false => None,
        }
    }

    fn take(&self) -> Option<OwnedFd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(crate) fn give_back(&self, socket: OwnedFd) {
        if rustix::net::connect_unspec(&socket).is_ok() {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(socket);
        }
    }
}

/// Ports on which programs of the sandbox listen, with the loopback address to reach each.
fn listening_ports(pid: u32) -> io::Result<BTreeMap<u16, IpAddr>> {
    let mut ports = BTreeMap::new();
    // IPv4 last: it replaces the entry of the same port.
    for table in ["tcp6", "tcp"] {
        let path = format!("/proc/{pid}/net/{table}");
        let mut text = String::new();
        match std::fs::File::open(path) {
            Ok(file) => io::Read::read_to_string(&mut io::Read::take(file, MAX_TABLE), &mut text)?,
            Err(error) if table == "tcp6" && error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        ports.extend(text.lines().filter_map(listening));
    }
    Ok(ports)
}

/// Port and address of a line that is about a listening socket.
fn listening(line: &str) -> Option<(u16, IpAddr)> {
    let mut fields = line.split_ascii_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| -> Option<u32> {
        // Each word is printed as a number of this machine; its bytes are in network order.
        let digits = address.get(index * 8..index * 8 + 8)?;
        Some(u32::from_be(u32::from_str_radix(digits, 16).ok()?))
    };
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::from_bits(word(0)?).into(),
        32 => {
            let high = u64::from(word(0)?) << 32 | u64::from(word(1)?);
            let low = u64::from(word(2)?) << 32 | u64::from(word(3)?);
            Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical()
        }
        _ => return None,
    };
    let reachable = match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Some((port, reachable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g121_listening_sockets_are_found_in_the_tables() {
        let v4 =
            "   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1";
        let any =
            "   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1";
        let open =
            "   2: 0100007F:0BB8 0100007F:9C40 01 00000000:00000000 00:00000000 00000000 0 0 1 1";
        let v6 = "   0: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 0";
        let v6_any = "   0: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A 0";
        let mapped = "   0: 0000000000000000FFFF00000100007F:0BB8 00000000000000000000000000000000:0000 0A 0";
        let localhost: IpAddr = Ipv4Addr::LOCALHOST.into();
        let localhost6: IpAddr = Ipv6Addr::LOCALHOST.into();
        assert_eq!(listening(v4), Some((3000, localhost)));
        assert_eq!(listening(any), Some((8080, localhost)));
        assert_eq!(listening(open), None);
        assert_eq!(listening(v6), Some((3000, localhost6)));
        assert_eq!(listening(v6_any), Some((3000, localhost6)));
        assert_eq!(listening(mapped), Some((3000, localhost)));
        for line in [
            "",
            "  sl  local_address rem_address   st",
            "0: x:y z 0A",
            "0: 01:0BB8 0 0A",
        ] {
            assert_eq!(listening(line), None, "{line}");
        }
    }
}
