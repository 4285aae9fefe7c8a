//! The world outside the sandbox: real look-ups and connections, directly or through the proxy of the host.
//!
//! A name is looked up once for a connection, and the address that passed the check is the one that is dialled.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::address::{Forbidden, forbidden};
use crate::allowlist::{Allowlist, HostName};
use crate::clock;
use crate::proxy::{Proxies, Proxy, ProxyError};
use crate::questions::Target;

/// Time for one attempt to connect.
const CONNECT_DEADLINE: Duration = Duration::from_secs(15);
/// Time for a look-up, or for a proxy to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// Time after which the next address is tried beside those that have not answered.
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);
/// Addresses of one name that are tried.
const MAX_ATTEMPTS: usize = 4;
const MAX_PROXY_ANSWER: usize = 8 * 1024;
/// Names whose addresses wait for a connection.
const MAX_FOUND: usize = 256;
/// Time for which the addresses of a name wait for a connection.
const FOUND_KEPT: Duration = Duration::from_secs(60);

/// A future that a trait object returns.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Look-ups and connections outside the sandbox. Tests put a table in its place.
pub trait Outside: Send + Sync {
    /// Addresses of a name.
    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a, Vec<IpAddr>>;
    /// A connection to an address.
    fn connect(&self, address: SocketAddr) -> Pending<'_, TcpStream>;
    /// True for an address of this machine.
    fn is_own_address(&self, address: IpAddr) -> bool;
}

/// The host's own resolver and network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl Outside for Host {
    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a, Vec<IpAddr>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    fn connect(&self, address: SocketAddr) -> Pending<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }

    fn is_own_address(&self, address: IpAddr) -> bool {
        // The kernel sends to an own address from that address. Connecting a UDP socket sends nothing.
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let source = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect((address, 9))?;
            socket.local_addr()
        });
        source.is_ok_and(|source| source.ip() == address)
    }
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has only addresses that a sandbox must not reach.
    #[error("the name resolves to {0}, {1}")]
    Forbidden(IpAddr, &'static str),
    /// The look-up failed.
    #[error("the look-up failed: {0}")]
    LookUp(io::Error),
    /// No address could be connected to.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The proxy of the host did not connect.
    #[error("the proxy of this machine did not connect: {0}")]
    Proxy(io::Error),
    /// The proxy of the host cannot be used.
    #[error(transparent)]
    Proxies(ProxyError),
}

impl DialError {
    /// True if nothing is known about the name, because the look-up got no answer.
    pub fn is_without_answer(&self) -> bool {
        let DialError::LookUp(error) = self else {
            return false;
        };
        // The standard library has the code `EAI_AGAIN` of getaddrinfo only as its text, of glibc and of musl.
        let text = error.to_string();
        error.kind() == io::ErrorKind::TimedOut
            || text.contains("Temporary failure in name resolution")
            || text.contains("Try again")
    }
}

/// Opens connections to names.
pub struct Dialer {
    outside: Box<dyn Outside>,
    /// An error where the host's proxy cannot be used; nothing is dialled then.
    proxies: Result<Proxies, ProxyError>,
    /// Names that may have private addresses.
    private: Allowlist,
    /// Addresses of names that were looked up for a DNS answer. The next connection takes them.
    found: Mutex<HashMap<HostName, (Instant, Vec<IpAddr>)>>,
}

impl Dialer {
    /// A dialer that uses these proxies, and dials private addresses for the names of `private`.
    pub fn new(
        outside: Box<dyn Outside>,
        proxies: Result<Proxies, ProxyError>,
        private: Allowlist,
    ) -> Self {
        Self {
            outside,
            proxies,
            private,
            found: Mutex::default(),
        }
    }

    /// Looks up a name that is allowed, for its DNS answer. A name that a proxy looks up is left to the proxy.
    pub async fn look_up_ahead(&self, name: &HostName) -> Result<(), DialError> {
        let is_direct = |proxies: &Proxies| !proxies.may_serve(name);
        if !self.proxies.as_ref().is_ok_and(is_direct) {
            return Ok(());
        }
        let addresses = self.look_up(name.as_str()).await;
        let addresses = addresses.map_err(DialError::LookUp)?;
        let mut found = self.found();
        if found.len() >= MAX_FOUND {
            found.clear();
        }
        found.insert(name.clone(), (clock::now(), addresses));
        Ok(())
    }

    fn found(&self) -> MutexGuard<'_, HashMap<HostName, (Instant, Vec<IpAddr>)>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Addresses that were looked up a moment ago, for one connection.
    fn take_found(&self, name: &HostName) -> Option<Vec<IpAddr>> {
        let (at, addresses) = self.found().remove(name)?;
        (at.elapsed() < FOUND_KEPT).then_some(addresses)
    }

    /// A connection to a name that is allowed.
    pub async fn dial(&self, target: &Target) -> Result<TcpStream, DialError> {
        let proxies = self
            .proxies
            .as_ref()
            .map_err(|error| DialError::Proxies(*error))?;
        let stream = match proxies.find(target) {
            Some(proxy) => self
                .dial_through(proxy, target)
                .await
                .map_err(DialError::Proxy)?,
            None => {
                let found = match self.take_found(&target.name) {
                    Some(found) => found,
                    None => {
                        let found = self.look_up(target.name.as_str()).await;
                        found.map_err(DialError::LookUp)?
                    }
                };
                let allowed = self.permitted(target, found)?;
                self.connect(&allowed, target.port)
                    .await
                    .map_err(DialError::Connect)?
            }
        };
        // A connection that is quiet for long is kept open through routers, and noticed when the other side is gone.
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        Ok(stream)
    }

    /// A connection to a port of this machine.
    pub async fn dial_host(&self, port: u16) -> io::Result<TcpStream> {
        self.connect(
            &[Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            port,
        )
        .await
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = clock::within(ANSWER_DEADLINE, self.outside.look_up(name)).await;
        found.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The addresses that may be dialled, of one look-up.
    fn permitted(&self, target: &Target, found: Vec<IpAddr>) -> Result<Vec<IpAddr>, DialError> {
        let mut refused = None;
        let mut permitted = Vec::new();
        for address in found {
            let reason = match forbidden(address) {
                Some(Forbidden::Private) if self.private.allows(&target.name, target.port) => None,
                Some(Forbidden::Private) => Some("a private address"),
                Some(Forbidden::Local) => Some("an address of this machine or its network"),
                None => None,
            };
            let own = || {
                self.outside
                    .is_own_address(address)
                    .then_some("an address of this machine")
            };
            match reason.or_else(own) {
                None => permitted.push(address),
                Some(reason) => refused = Some((address, reason)),
            }
        }
        match refused {
            Some((address, reason)) if permitted.is_empty() => {
                Err(DialError::Forbidden(address, reason))
            }
            _ => Ok(permitted),
        }
    }

    async fn connect(&self, addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let mut addresses = by_turns(addresses);
        addresses.truncate(MAX_ATTEMPTS);
        let mut addresses = addresses.into_iter();
        let mut attempts = Vec::new();
        loop {
            match addresses.next() {
                Some(address) => attempts.push(self.attempt(SocketAddr::new(address, port))),
                None if attempts.is_empty() => return Err(failure),
                None => {}
            }
            let has_next = addresses.len() > 0;
            tokio::select! {
                ended = first_end(&mut attempts) => match ended {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failure = error,
                },
                () = clock::pause(NEXT_ATTEMPT), if has_next => {}
            }
        }
    }

    fn attempt(&self, address: SocketAddr) -> Pending<'_, TcpStream> {
        Box::pin(async move {
            let attempt = self.outside.connect(address);
            let ended = clock::within(CONNECT_DEADLINE, attempt).await;
            ended.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
        })
    }

    /// A tunnel through an HTTP proxy. The proxy looks the name up, so addresses are not checked here.
    async fn dial_through(&self, proxy: &Proxy, target: &Target) -> io::Result<TcpStream> {
        let addresses = match proxy.host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.look_up(&proxy.host).await?,
        };
        let mut stream = self.connect(&addresses, proxy.port).await?;
        let tunnel = async {
            stream.write_all(proxy.request(target).as_bytes()).await?;
            let mut answer = Vec::new();
            // Byte by byte: what comes after the header belongs to the tunnel.
            while !answer.ends_with(b"\r\n\r\n") {
                if answer.len() == MAX_PROXY_ANSWER {
                    return Err(io::Error::other("its answer is too long"));
                }
                answer.push(stream.read_u8().await?);
            }
            let line = answer
                .split(|byte| *byte == b'\r')
                .next()
                .unwrap_or_default();
            let line = String::from_utf8_lossy(line);
            let status = line.split(' ').nth(1).unwrap_or_default();
            match line.starts_with("HTTP/1.") && status.starts_with('2') {
                true => Ok(()),
                false => Err(io::Error::other(format!(
                    "it answered {:?}",
                    line.chars().take(100).collect::<String>()
                ))),
            }
        };
        match clock::within(ANSWER_DEADLINE, tunnel).await {
            Some(result) => result?,
            None => return Err(io::ErrorKind::TimedOut.into()),
        }
        Ok(stream)
    }
}

/// Addresses with both families by turns, so that one that does not work here leaves room for the other.
fn by_turns(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let is_first =
        |address: &&IpAddr| Some(address.is_ipv6()) == addresses.first().map(IpAddr::is_ipv6);
    let (first, second): (Vec<&IpAddr>, Vec<&IpAddr>) = addresses.iter().partition(is_first);
    let pairs = (0..first.len().max(second.len())).map(|at| [first.get(at), second.get(at)]);
    pairs.flatten().flatten().map(|address| **address).collect()
}

/// Result of the attempt that ends first, which is removed.
async fn first_end(attempts: &mut Vec<Pending<'_, TcpStream>>) -> io::Result<TcpStream> {
    std::future::poll_fn(|context| {
        let mut all = attempts.iter_mut().enumerate();
        let ended = all.find_map(|(at, attempt)| match attempt.as_mut().poll(context) {
            Poll::Ready(result) => Some((at, result)),
            Poll::Pending => None,
        });
        match ended {
            Some((at, result)) => {
                drop(attempts.remove(at));
                Poll::Ready(result)
            }
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv6 addresses fail or never answer, IPv4 addresses lead to a listener.
    struct BrokenV6 {
        server: SocketAddr,
        is_silent: bool,
    }

    impl Outside for BrokenV6 {
        fn look_up<'a>(&'a self, _: &'a str) -> Pending<'a, Vec<IpAddr>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }

        fn connect(&self, address: SocketAddr) -> Pending<'_, TcpStream> {
            match address {
                SocketAddr::V4(_) => Box::pin(TcpStream::connect(self.server)),
                SocketAddr::V6(_) if self.is_silent => Box::pin(std::future::pending()),
                SocketAddr::V6(_) => Box::pin(std::future::ready(Err(
                    io::ErrorKind::NetworkUnreachable.into(),
                ))),
            }
        }

        fn is_own_address(&self, _: IpAddr) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn ipv4_is_tried_though_many_ipv6_addresses_fail_or_are_silent() {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let server = listener.local_addr().expect("an address");
        let v6 = (1..=5).map(|last| Ipv6Addr::new(0x2606, 0, 0, 0, 0, 0, 0, last).into());
        let found: Vec<IpAddr> = v6.chain([Ipv4Addr::new(93, 184, 216, 34).into()]).collect();
        for is_silent in [false, true] {
            let outside = Box::new(BrokenV6 { server, is_silent });
            let dialer = Dialer::new(outside, Ok(Proxies::default()), Allowlist::default());
            let stream = dialer.connect(&found, 443).await.expect("a connection");
            assert_eq!(stream.peer_addr().expect("an address"), server);
        }
        let outside = Box::new(BrokenV6 {
            server,
            is_silent: false,
        });
        let dialer = Dialer::new(outside, Ok(Proxies::default()), Allowlist::default());
        let failure = dialer
            .connect(&found[..5], 443)
            .await
            .expect_err("no connection");
        assert_eq!(failure.kind(), io::ErrorKind::NetworkUnreachable);
    }

    #[test]
    fn g110_addresses_of_this_machine_are_recognised() {
        assert!(Host.is_own_address(Ipv4Addr::LOCALHOST.into()));
        assert!(!Host.is_own_address(Ipv4Addr::new(203, 0, 113, 1).into()));
    }
}
