//! Sockets of a network gate, opened inside the new network namespace before the capabilities are lost.
//!
//! [`open_sockets`] brings up `lo`, makes 198.18.0.0/15 local, and opens every socket that the gate needs. [`send`] hands
//! the sockets to the gate over a socket that the process inherited. The caller closes its copies and drops its
//! capabilities afterwards; a program inside can then neither open these ports nor change routes.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::fd_passing;

/// Port of the DNS sockets.
pub const DNS_PORT: u16 = 53;
/// Connections from outside into the sandbox, and ports of other sandboxes that are listened at, at the same time.
pub const DIAL_SOCKETS: usize = 64;
/// Ports of the allowlist and of the host together. With all other sockets they fit into the 253 descriptors that one
/// message can carry.
pub const MAX_PORTS: usize = 128;

const BACKLOG: i32 = 128;
/// Index of `lo`, which is the first device of every network namespace.
const LOOPBACK: u32 = 1;

/// A step that failed. Nothing must be run then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupError {
    /// Name of the step.
    pub step: &'static str,
    /// Reason from the kernel.
    pub errno: Errno,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network gate: {}: {}", self.step, self.errno)
    }
}

impl std::error::Error for SetupError {}

fn at(step: &'static str) -> impl Fn(Errno) -> SetupError {
    move |errno| SetupError { step, errno }
}

/// Prepares the network of the namespace that the calling process is in, and opens all sockets. `ports` are those of
/// the allowlist, `host_ports` those of the host or of other sandboxes that programs inside may reach; a port may be in both. The sockets
/// have no order: the gate asks the kernel what each of them is.
pub fn open_sockets(ports: &[u16], host_ports: &[u16]) -> Result<Vec<OwnedFd>, SetupError> {
    if ports.len() + host_ports.len() > MAX_PORTS {
        return Err(at("find room for the ports")(Errno::TOOBIG));
    }
    let route = netlink_socket().map_err(at("open a netlink socket"))?;
    bring_up_loopback(&route).map_err(at("bring up lo"))?;
    add_address(&route).map_err(at("add an address to lo"))?;
    add_local_route(&route).map_err(at("add the route of 198.18.0.0/15"))?;

    let mut sockets = Vec::new();
    let dns = SocketAddrV4::new(Ipv4Addr::LOCALHOST, DNS_PORT);
    sockets.push(udp(dns).map_err(at("bind UDP port 53"))?);
    sockets.push(listener(dns).map_err(at("bind TCP port 53"))?);
    for port in ports {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port);
        sockets.push(listener(any).map_err(at("listen on a port of the allowlist"))?);
    }
    // The listener of the allowlist takes connections to 127.0.0.1 too.
    for port in host_ports.iter().filter(|port| !ports.contains(port)) {
        let loopback = SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port);
        sockets.push(listener(loopback).map_err(at("listen on a port of the host"))?);
    }
    for _ in 0..DIAL_SOCKETS {
        // Without IPv6 in the kernel no port of the sandbox is published.
        match socket(AddressFamily::INET6, SocketType::STREAM) {
            Ok(socket) => sockets.push(socket),
            Err(Errno::AFNOSUPPORT) => break,
            Err(errno) => return Err(at("open a socket for published ports")(errno)),
        }
    }
    Ok(sockets)
}

/// Sends the sockets to the gate, which is at the other end of `channel`.
pub fn send(channel: BorrowedFd<'_>, sockets: &[OwnedFd]) -> Result<(), SetupError> {
    let borrowed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    fd_passing::send(channel, b"sockets", &borrowed).map_err(at("send the sockets"))
}

fn socket(family: AddressFamily, kind: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

fn udp(address: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn listener(address: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM)?;
    // A program that binds the port after it was released does not meet connections that are left.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn netlink_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    sockopt::set_socket_timeout(
        &socket,
        sockopt::Timeout::Recv,
        Some(std::time::Duration::from_secs(5)),
    )?;
    Ok(socket)
}

// Numbers of linux/netlink.h, linux/rtnetlink.h and linux/if.h.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;

/// Starts the loopback interface of the calling process's network namespace.
pub fn start_loopback() -> Result<(), Errno> {
    bring_up_loopback(&netlink_socket()?)
}

fn bring_up_loopback(route: &OwnedFd) -> Result<(), Errno> {
    let mut request = Request::new(RTM_NEWLINK, 0);
    request.bytes(&[AF_UNSPEC, 0, 0, 0]); // family, padding, type
    request.bytes(&LOOPBACK.to_ne_bytes());
    request.bytes(&IFF_UP.to_ne_bytes()); // flags
    request.bytes(&IFF_UP.to_ne_bytes()); // flags that change
    request.exchange(route)
}

/// `ip addr add 192.0.0.8/32 dev lo`, the dummy address of RFC 7600. Programs that look names up with `AI_ADDRCONFIG` find
/// none on a machine that has no other address than 127.0.0.1.
fn add_address(route: &OwnedFd) -> Result<(), Errno> {
    let mut request = Request::new(RTM_NEWADDR, NLM_F_CREATE);
    request.bytes(&[AF_INET, 32, 0, RT_SCOPE_HOST]); // family, bits, flags, scope
    request.bytes(&LOOPBACK.to_ne_bytes());
    request.attribute(IFA_LOCAL, [192, 0, 0, 8]);
    request.attribute(IFA_ADDRESS, [192, 0, 0, 8]);
    request.exchange(route)
}

/// `ip route add local 198.18.0.0/15 dev lo`
fn add_local_route(route: &OwnedFd) -> Result<(), Errno> {
    let mut request = Request::new(RTM_NEWROUTE, NLM_F_CREATE);
    // family, bits of the destination and of the source, type of service, table, origin, scope, type
    request.bytes(&[
        AF_INET,
        15,
        0,
        0,
        RT_TABLE_LOCAL,
        RTPROT_BOOT,
        RT_SCOPE_HOST,
        RTN_LOCAL,
    ]);
    request.bytes(&0u32.to_ne_bytes()); // flags
    request.attribute(RTA_DST, [198, 18, 0, 0]);
    request.attribute(RTA_OIF, LOOPBACK.to_ne_bytes());
    request.exchange(route)
}

/// A netlink request under construction.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16) -> Self {
        let mut request = Self(Vec::new());
        request.bytes(&[0; 4]); // length, filled in when the request is sent
        request.bytes(&kind.to_ne_bytes());
        request.bytes(&(NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        request.bytes(&[0; 8]); // sequence number and sender
        request
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn attribute(&mut self, kind: u16, value: [u8; 4]) {
        self.bytes(&8u16.to_ne_bytes());
        self.bytes(&kind.to_ne_bytes());
        self.bytes(&value);
    }

    /// Sends the request and waits for its acknowledgement.
    fn exchange(mut self, route: &OwnedFd) -> Result<(), Errno> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        rustix::net::send(route, &self.0, SendFlags::empty())?;
        let mut reply = [0; 256];
        let (length, _) = rustix::net::recv(route, &mut reply, RecvFlags::empty())?;
        // Header of 16 bytes, then the negative error number.
        let kind = u16::from_ne_bytes([reply[4], reply[5]]);
        let error = i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
        match (kind, error) {
            (NLMSG_ERROR, 0) if length >= 20 => Ok(()),
            (NLMSG_ERROR, error) if length >= 20 => Err(Errno::from_raw_os_error(-error)),
            _ => Err(Errno::BADMSG),
        }
    }
}
