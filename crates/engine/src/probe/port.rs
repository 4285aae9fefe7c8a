//! Whether somebody listens at a port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::time::Duration;

use tokio::net::TcpStream;

use super::{Search, Slots, openers};
use crate::clock::pause;
use crate::dns;

/// A try that has heard nothing by then has failed.
const TRY: Duration = Duration::from_secs(3);

pub(super) async fn until_open(
    host: Option<&str>,
    port: u16,
    search: Search<'_>,
    slots: &Slots,
) -> Result<String, String> {
    let name = named(host, port);
    let near = is_near(host);
    let mut steps = search.tools.pace.begin(near);
    let mut openers = pin!(openers::gone(openers::of(search, near)));
    let mut hopeless = None;
    slots.begin(|| format!("port {name}: no answer yet"));
    loop {
        match open(host, port).await {
            Ok(()) => {
                let seen = format!("port {name} is open");
                slots.say(seen.as_str());
                return Ok(seen);
            }
            Err(e) => {
                let why = format!("port {name}: {}", reason(&e));
                slots.say(why.as_str());
                // This look was the last one.
                if let Some(gone) = hopeless {
                    return Err(format!("{why}. {gone}"));
                }
            }
        }
        tokio::select! {
            gone = &mut openers => hopeless = Some(gone),
            () = steps.pause() => {}
        }
    }
}

pub(super) fn named(host: Option<&str>, port: u16) -> String {
    host.map_or_else(|| port.to_string(), |host| format!("{host}:{port}"))
}

/// Whether a host is this machine.
pub(super) fn is_near(host: Option<&str>) -> bool {
    let Some(host) = host else { return true };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// One look. Without a host, or under this machine's own name, either of its own addresses will do,
/// even where only one is written down for that name.
pub(super) async fn open(host: Option<&str>, port: u16) -> io::Result<()> {
    match host.filter(|host| *host != "localhost") {
        Some(host) => connect(host, port).await.map(drop),
        None => match reach(TcpStream::connect((Ipv4Addr::LOCALHOST, port))).await {
            Ok(_) => Ok(()),
            Err(refused) => reach(TcpStream::connect((Ipv6Addr::LOCALHOST, port)))
                .await
                .map(drop)
                .map_err(|_| refused),
        },
    }
}

pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    reach(dns::connect(host, port)).await
}

async fn reach(connected: impl Future<Output = io::Result<TcpStream>>) -> io::Result<TcpStream> {
    let stream = within(connected).await?;
    match leads_to_itself(&stream) {
        true => Err(io::ErrorKind::ConnectionRefused.into()),
        false => Ok(stream),
    }
}

/// Where nobody listens at a port, the system may lend that very port to whoever looks there, who then
/// meets nobody but itself.
fn leads_to_itself(stream: &TcpStream) -> bool {
    let own = stream.local_addr().ok();
    own.is_some() && own == stream.peer_addr().ok()
}

async fn within<T>(what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        done = what => done,
        () = pause(TRY) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 3s")),
    }
}

/// What went wrong, without the number that the system has for it.
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
    fn whoever_meets_itself_has_met_nobody() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let any = (Ipv4Addr::LOCALHOST, 0).into();
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind(any).expect("a port");
            let own = socket.local_addr().expect("an address");
            let alone = socket.connect(own).await.expect("it meets itself");
            assert!(leads_to_itself(&alone));
            let listener = TcpListener::bind(any).await.expect("a port");
            let there = listener.local_addr().expect("an address");
            let stream = reach(TcpStream::connect(there)).await.expect("a listener");
            assert!(!leads_to_itself(&stream));
        });
    }
}
