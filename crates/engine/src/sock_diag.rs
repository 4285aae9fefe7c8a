//! Information about a single socket from the kernel's `sock_diag` interface.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
/// Lengths of the headers of an answer.
const NLMSG_HEADER: usize = 16;
const UNIX_DIAG_MSG: usize = 16;
const INET_DIAG_MSG: usize = 72;
/// Offset of the peer's port in an answer.
const INET_DIAG_DPORT: std::ops::Range<usize> = 6..8;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// Cookie that matches any socket.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Inode of the socket at the other end of a connected unix socket. `None`: the kernel does not say.
pub fn unix_peer(socket: impl AsFd) -> Option<u32> {
    let inode = u32::try_from(rustix::fs::fstat(&socket).ok()?.st_ino).ok()?;
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(inode.to_ne_bytes());
    request.extend(UDIAG_SHOW_PEER.to_ne_bytes());
    request.extend(NO_COOKIE);
    let answer = ask(&request)?;
    let value = attribute(answer.get(UNIX_DIAG_MSG..)?, UNIX_DIAG_PEER)?;
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

/// Id (inode) of the cgroup v2 directory in which the TCP socket from the first to the second address was created.
/// `None`: the kernel does not say.
pub fn tcp_creator_group(from: SocketAddr, to: SocketAddr) -> Option<u64> {
    let family = if from.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut request = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(from.port().to_be_bytes());
    request.extend(to.port().to_be_bytes());
    request.extend(octets(from));
    request.extend(octets(to));
    request.extend(0_u32.to_ne_bytes());
    request.extend(NO_COOKIE);
    let answer = ask(&request)?;
    // Without such a connection, the kernel returns the listening socket.
    (answer.get(INET_DIAG_DPORT)? == to.port().to_be_bytes()).then_some(())?;
    let value = attribute(answer.get(INET_DIAG_MSG..)?, INET_DIAG_CGROUP_ID)?;
    Some(u64::from_ne_bytes(value.try_into().ok()?))
}

fn octets(address: SocketAddr) -> [u8; 16] {
    let mut all = [0; 16];
    match address {
        SocketAddr::V4(v4) => all[..4].copy_from_slice(&v4.ip().octets()),
        SocketAddr::V6(v6) => all = v6.ip().octets(),
    }
    all
}

/// Sends one request and returns the body of its answer. `None` on any error.
fn ask(body: &[u8]) -> Option<Vec<u8>> {
    let socket = open()?;
    let length = NLMSG_HEADER + body.len();
    let mut request = Vec::with_capacity(length);
    request.extend(u32::try_from(length).ok()?.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    rustix::net::send(&socket, &request, SendFlags::empty()).ok()?;
    let mut answer = vec![0; 8 << 10];
    let (length, _) = rustix::net::recv(&socket, &mut *answer, RecvFlags::empty()).ok()?;
    answer.truncate(length);
    let said = u32::from_ne_bytes(answer.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    (kind == SOCK_DIAG_BY_FAMILY).then_some(())?;
    Some(answer.get(NLMSG_HEADER..said)?.to_vec())
}

fn open() -> Option<OwnedFd> {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, protocol).ok()?;
    // The kernel answers within the call; the timeout is for one that does not.
    let timeout = Some(std::time::Duration::from_secs(1));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout).ok()?;
    Some(socket)
}

/// Value of the first attribute of this kind.
fn attribute(mut all: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(all.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(all.get(2..4)?.try_into().ok()?);
        let value = all.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        all = all.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn unix_peer_returns_inode_of_the_other_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let Some(found) = unix_peer(&ours) else {
            eprintln!("skipped: this kernel has no unix_diag");
            return;
        };
        assert_eq!(u64::from(found), rustix::fs::fstat(&theirs).unwrap().st_ino);
    }

    #[test]
    fn tcp_creator_group_returns_group_of_creating_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let (Some(found), Some(own)) = (
            tcp_creator_group(from, to),
            abide_session::cgroup::own_folder(),
        ) else {
            eprintln!("skipped: this kernel does not tell");
            return;
        };
        assert_eq!(found, std::fs::metadata(own).unwrap().ino());
        assert_eq!(tcp_creator_group(to, "127.0.0.1:1".parse().unwrap()), None);
    }

    #[test]
    fn attribute_skips_others_and_rejects_truncated_ones() {
        let all = [5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 2, 0, 1, 2, 3, 4];
        assert_eq!(attribute(&all, 2), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&all, 3), None);
        assert_eq!(attribute(&all[..14], 2), None);
        assert_eq!(attribute(&[0; 8], 2), None);
    }
}
