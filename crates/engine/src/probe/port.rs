//! Probe for a port that accepts connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::time::Duration;

use tokio::net::TcpStream;

use super::{Bounds, Impossible, Observations, OutOfBounds, ProbeContext, port_candidates};
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
    let name = display_name(host, port);
    let local = is_local(host);
    let mut backoff = context.services.active.begin(local, every_ms);
    let mut candidates = pin!(port_candidates::all_failed(port_candidates::follow(
        context, local
    )));
    let mut last = None;
    observations.set_if_empty(|| format!("port {name}: no answer yet"));
    loop {
        match open(host, port, context).await? {
            Ok(()) => {
                let seen = format!("port {name} is open");
                observations.set(seen.as_str());
                return Ok(seen);
            }
            Err(e) => {
                let why = format!("port {name}: {}", reason(&e));
                observations.set(why.as_str());
                // This attempt was the last one.
                if let Some(last) = last {
                    return Err(port_candidates::impossible(&why, &last));
                }
            }
        }
        tokio::select! {
            ended = &mut candidates => last = Some(ended),
            () = backoff.pause(false) => {}
        }
    }
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
pub(super) async fn open(
    host: Option<&str>,
    port: u16,
    context: ProbeContext<'_>,
) -> Result<io::Result<()>, OutOfBounds> {
    let bounds = context.bounds().await?;
    if let Some(bounds) = &bounds {
        bounds.check_host(host, port)?;
        if is_local(host) && !bounds.reaches_local(port) {
            return Ok(Err(not_opened()));
        }
    }
    Ok(connect(host, port, bounds.as_ref()).await)
}

/// Error of a connection to a port of this machine that no command of the agent has opened.
pub(super) fn not_opened() -> io::Error {
    io::Error::other("no command of this agent listens there")
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
        () = pause(ANSWER_LIMIT) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 3s")),
    }
}

/// Error text without the errno.
pub(super) fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        io::ErrorKind::TimedOut => "no answer within 3s".into(),
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
