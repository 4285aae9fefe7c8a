//! Probe for a port that accepts connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::net::TcpStream;

use super::reach::{Attempt, NOT_OPENED, until_reached};
use super::{Bounds, Impossible, Observations, OutOfBounds, ProbeContext};
use crate::clock::pause;
use crate::dns;

/// Time limit of one attempt.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Waits until the port accepts connections, or no session is left that could open it.
pub(super) async fn until_open(
    host: Option<&str>,
    port: u16,
    every_ms: Option<u64>,
    context: ProbeContext<'_>,
    observations: &Observations,
) -> Result<String, Impossible> {
    let name = format!("port {}", display_name(host, port));
    let attempt = || check(host, port, context);
    let local = is_local(host);
    until_reached(&name, local, every_ms, context, observations, attempt).await
}

/// Host and port for messages.
pub(super) fn display_name(host: Option<&str>, port: u16) -> String {
    host.map_or_else(|| port.to_string(), |host| format!("{host}:{port}"))
}

/// True if a host is this machine.
pub(super) fn is_local(host: Option<&str>) -> bool {
    let Some(host) = host else { return true };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// One attempt, if the owner of the condition may make it.
pub(super) async fn check(
    host: Option<&str>,
    port: u16,
    context: ProbeContext<'_>,
) -> Result<Attempt, OutOfBounds> {
    let bounds = context.bounds().await?;
    if let Some(bounds) = &bounds
        && !bounds.may_reach(host, port)?
    {
        return Ok(Attempt::NoAnswer(NOT_OPENED.to_owned()));
    }
    Ok(match connect(host, port, bounds.as_ref()).await {
        Ok(()) => Attempt::Holds("is open".to_owned()),
        Err(fault) => Attempt::NoAnswer(reason(&fault)),
    })
}

/// Connects. Without a host, or with the name `localhost`, either loopback address will do, even if only one is in the
/// hosts file.
async fn connect(host: Option<&str>, port: u16, bounds: Option<&Bounds>) -> io::Result<()> {
    match host.filter(|host| *host != "localhost") {
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let permits = |ip| bounds.is_none_or(|bounds| bounds.permits(host, port, ip));
            reach(dns::connect(host, port, &permits)).await.map(drop)
        }
        None => match reach(TcpStream::connect((Ipv4Addr::LOCALHOST, port))).await {
            Ok(_) => Ok(()),
            Err(refused) => reach(TcpStream::connect((Ipv6Addr::LOCALHOST, port)))
                .await
                .map(drop)
                .map_err(|_| refused),
        },
    }
}

/// Waits for a connection, and refuses one that leads to itself.
async fn reach(connected: impl Future<Output = io::Result<TcpStream>>) -> io::Result<TcpStream> {
    let stream = within(connected).await?;
    match is_self_connected(&stream) {
        true => Err(io::ErrorKind::ConnectionRefused.into()),
        false => Ok(stream),
    }
}

/// True if a connection leads to itself: if no process listens at a port, the kernel may assign that very port to the
/// connecting socket.
fn is_self_connected(stream: &TcpStream) -> bool {
    let own = stream.local_addr().ok();
    own.is_some() && own == stream.peer_addr().ok()
}

/// Applies the time limit of an attempt.
async fn within<T>(what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        done = what => done,
        () = pause(ANSWER_LIMIT) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Error text without the errno.
fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        io::ErrorKind::TimedOut => format!("no answer within {}s", ANSWER_LIMIT.as_secs()),
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    #[test]
    fn self_connected_socket_is_detected() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let any = (Ipv4Addr::LOCALHOST, 0).into();
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind(any).expect("a port");
            let own = socket.local_addr().expect("an address");
            let alone = socket.connect(own).await.expect("it meets itself");
            assert!(is_self_connected(&alone));
            let listener = TcpListener::bind(any).await.expect("a port");
            let there = listener.local_addr().expect("an address");
            let stream = reach(TcpStream::connect(there)).await.expect("a listener");
            assert!(!is_self_connected(&stream));
        });
    }
}
