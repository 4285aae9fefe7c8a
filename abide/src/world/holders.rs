//! Which processes of this machine hold the other end of a TCP connection. The kernel says which
//! socket it is; who has it open is found by looking.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The processes of our own user that have the end `theirs` of a connection to `ours` open. Empty
/// where that end is another user's, on another machine, or closed by now.
pub fn holders(theirs: SocketAddr, ours: SocketAddr) -> Vec<i32> {
    let owner = rustix::process::geteuid().as_raw();
    let Some(inode) = socket(Path::new("/proc/self/net"), theirs, ours, owner) else {
        return Vec::new();
    };
    having_open(Path::new("/proc"), inode)
}

/// The socket of `owner` between the two addresses, seen from the first.
fn socket(net: &Path, from: SocketAddr, to: SocketAddr, owner: u32) -> Option<u64> {
    let mut tables = Vec::new();
    if from.is_ipv4() {
        tables.push(("tcp", key(from), key(to)));
    }
    // A socket made for both families is in the table of the newer one, whatever it speaks.
    tables.push(("tcp6", key(mapped(from)), key(mapped(to))));
    tables.into_iter().find_map(|(table, from, to)| {
        let rows = std::fs::read_to_string(net.join(table)).ok()?;
        rows.lines().find_map(|row| {
            let mut fields = row.split_ascii_whitespace().skip(1);
            if fields.next()? != from || fields.next()? != to {
                return None;
            }
            let (uid, inode) = (fields.nth(4)?, fields.nth(1)?);
            let inode = inode.parse().ok().filter(|inode| *inode != 0)?;
            (uid.parse() == Ok(owner)).then_some(inode)
        })
    })
}

fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped(), address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// An address as the kernel's tables print it: words of the machine's own byte order.
fn key(address: SocketAddr) -> String {
    let words = |octets: &[u8]| -> String {
        octets
            .chunks_exact(4)
            .map(|word| {
                let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
                format!("{word:08X}")
            })
            .collect()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

/// The processes under `proc` that have this socket open, as far as they can be looked at.
fn having_open(proc: &Path, inode: u64) -> Vec<i32> {
    let name = format!("socket:[{inode}]");
    let has = |pid: i32| {
        let Ok(open) = std::fs::read_dir(proc.join(pid.to_string()).join("fd")) else {
            return false;
        };
        open.flatten().any(|file| {
            std::fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == name.as_str())
        })
    };
    let Ok(processes) = std::fs::read_dir(proc) else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter(|pid| has(*pid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn ends(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn whoever_holds_the_other_end_is_found() {
        let (client, server) = ends("127.0.0.1:0");
        let (theirs, ours) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(holders(theirs, ours), [me]);
        drop(client);
        assert!(holders(theirs, ours).is_empty(), "a closed end is nobody's");
    }

    #[test]
    fn another_users_socket_is_nobodys() {
        let (_client, server) = ends("127.0.0.1:0");
        let (theirs, ours) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        let net = Path::new("/proc/self/net");
        let owner = rustix::process::geteuid().as_raw();
        assert!(socket(net, theirs, ours, owner).is_some());
        assert_eq!(socket(net, theirs, ours, owner.wrapping_add(1)), None);
    }

    #[test]
    fn both_families_are_looked_through() {
        let net = tempfile::tempdir().unwrap();
        let key4 = key("127.0.0.1:256".parse().unwrap());
        let key6 = key("[::ffff:127.0.0.1]:256".parse().unwrap());
        assert_eq!(key4.len(), 13);
        assert!(key4.ends_with(":0100"), "{key4}");
        let row = |key: &str, inode: u64| {
            format!("head\n 0: {key} {key} 01 0:0 00:0 0 7 0 {inode} 1 0\n")
        };
        let at: SocketAddr = "127.0.0.1:256".parse().unwrap();
        std::fs::write(net.path().join("tcp6"), row(&key6, 5)).unwrap();
        assert_eq!(socket(net.path(), at, at, 7), Some(5));
        std::fs::write(net.path().join("tcp"), row(&key4, 4)).unwrap();
        assert_eq!(socket(net.path(), at, at, 7), Some(4));
        std::fs::write(net.path().join("tcp"), row(&key4, 0)).unwrap();
        assert_eq!(socket(net.path(), at, at, 7), Some(5), "0 is no socket");
    }
}
