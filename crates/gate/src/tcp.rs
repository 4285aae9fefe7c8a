//! Connections that programs in the sandbox open: the local address of an accepted connection says which name or host
//! port was meant.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::Gate;
use crate::allowlist::HostName;
use crate::client_hello::{self, ClientHello, MAX_CLIENT_HELLO};
use crate::clock;
use crate::names;
use crate::outside::DialError;
use crate::questions::{NoPermission, Target};
use crate::refusals::Outcome;
use crate::relay;

/// Port on which a connection must begin with a TLS ClientHello for its name.
const TLS_PORT: u16 = 443;
/// Time for the ClientHello.
const CLIENT_HELLO_DEADLINE: Duration = Duration::from_secs(15);
/// Pause after a failed `accept`, which fails again at once while descriptors are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are taken from a connection before it is let through.
const MAX_EARLY: usize = MAX_CLIENT_HELLO;

/// Destination of a connection.
enum Meant {
    Name(HostName),
    HostPort,
    /// A port of the own loopback, which another command of the agent may have published.
    AgentPort,
    /// An address that stands for no name.
    Nothing,
}

/// Reason why a connection is closed before it is connected outside.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("not allowed")]
    NotAllowed,
    #[error(transparent)]
    NoPermission(#[from] NoPermission),
    #[error("TLS names another server, {0:?}")]
    OtherServerName(String),
    #[error("TLS without a server name")]
    NoServerName,
    /// Browsers send random bytes in this extension by default, which nobody can tell from a real one. A real one would
    /// reach every server of the same provider, so both are refused, and the text says how to start a browser without it.
    #[error(
        "TLS with an encrypted ClientHello, which hides the server name; Chromium sends none with --ssl-version-max=tls1.2"
    )]
    EncryptedClientHello,
    #[error("not TLS, which port 443 must carry")]
    NotTls,
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The program closed the connection before it said which server it wants.
    #[error("closed by the program")]
    Gone,
    /// The program closed the connection while it waited for a person.
    #[error("given up before a person answered")]
    GivenUp,
}

/// The next connection.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                clock::pause(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one listener inside the sandbox. One connection over the limit waits here, others in the backlog.
pub async fn serve(gate: Arc<Gate>, listener: TcpListener) -> io::Result<()> {
    loop {
        let stream = accept(&listener).await;
        let Ok(slot) = Arc::clone(&gate.slots).acquire_owned().await else {
            return Ok(());
        };
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            gate.connection(&stream).await;
            drop(slot);
        });
    }
}

/// Makes the close of a connection a reset, so that the other side takes it for a failure and not for an end.
pub fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

impl Gate {
    async fn connection(&self, inside: &TcpStream) {
        let Ok(meant) = inside.local_addr() else {
            return;
        };
        match self.meaning(meant) {
            Meant::Name(name) => {
                let target = Target {
                    name,
                    port: meant.port(),
                };
                if let Err(refused) = self.connect_name(inside, &target).await {
                    self.refuse(&target, &refused);
                    reset(inside);
                }
            }
            Meant::HostPort => match self.dialer.dial_host(meant.port()).await {
                Ok(outside) => self.join(inside, &outside).await,
                Err(error) => {
                    let reason = format!("cannot connect: {error}");
                    self.refusals
                        .record(Outcome::Failed, "127.0.0.1", Some(meant.port()), &reason);
                    reset(inside);
                }
            },
            Meant::AgentPort => self.connect_agent_port(meant.port(), inside).await,
            Meant::Nothing => reset(inside),
        }
    }

    fn meaning(&self, address: SocketAddr) -> Meant {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) if names::is_of_gate(ip) => {
                let name = self.names().name(ip).cloned();
                name.map_or(Meant::Nothing, Meant::Name)
            }
            ip if ip.is_loopback() && self.host_ports.contains(&address.port()) => Meant::HostPort,
            ip if ip.is_loopback() => Meant::AgentPort,
            _ => Meant::Nothing,
        }
    }

    /// Takes a connection to its name, and copies until it has ended.
    async fn connect_name(&self, inside: &TcpStream, target: &Target) -> Result<(), Refused> {
        let allowed = self.allow.allows(&target.name, target.port);
        if !allowed && !self.can_ask_about(&target.name) {
            return Err(Refused::NotAllowed);
        }
        let mut early = Vec::new();
        if target.port == TLS_PORT {
            check_server_name(inside, target, &mut early).await?;
        }
        if !allowed {
            tokio::select! {
                permission = self.questions.ask(target) => permission?,
                () = given_up(inside, target.port, &mut early) => return Err(Refused::GivenUp),
            }
        }
        let outside = self.dialer.dial(target).await?;
        if relay::write_all(&outside, &early).await.is_ok() {
            drop(early);
            self.join(inside, &outside).await;
        } else {
            reset(inside);
        }
        Ok(())
    }

    /// Moves bytes between two connections; if one fails, the other is reset.
    pub(crate) async fn join(&self, inside: &TcpStream, outside: &TcpStream) {
        if let Err(error) = relay::relay(inside, outside, &self.pipes).await {
            tracing::debug!(%error, "a connection ended early");
            reset(inside);
            reset(outside);
        }
    }

    fn refuse(&self, target: &Target, refused: &Refused) {
        let outcome = match refused {
            Refused::Gone => return,
            Refused::Dial(
                DialError::LookUp(_)
                | DialError::Connect(_)
                | DialError::Proxy(_)
                | DialError::Proxies(_),
            ) => Outcome::Failed,
            Refused::NotAllowed | Refused::NoPermission(_) | Refused::GivenUp => Outcome::Refused,
            Refused::OtherServerName(_)
            | Refused::NoServerName
            | Refused::EncryptedClientHello
            | Refused::NotTls
            | Refused::Dial(DialError::Forbidden(..)) => Outcome::Unreachable,
        };
        let reason = refused.to_string();
        self.refusals
            .record(outcome, target.name.as_str(), Some(target.port), &reason);
    }
}

/// Reads the ClientHello, which must name the target. The bytes are kept to be sent on.
async fn check_server_name(
    stream: &TcpStream,
    target: &Target,
    early: &mut Vec<u8>,
) -> Result<(), Refused> {
    let read = async {
        loop {
            match client_hello::read(early) {
                ClientHello::Incomplete => {
                    read_more(stream, early).await.map_err(|_| Refused::Gone)?
                }
                ClientHello::NotTls => return Err(Refused::NotTls),
                ClientHello::NoServerName => return Err(Refused::NoServerName),
                ClientHello::Encrypted => return Err(Refused::EncryptedClientHello),
                ClientHello::ServerName(name) => return Ok(name),
            }
        }
    };
    let name = clock::within(CLIENT_HELLO_DEADLINE, read)
        .await
        .unwrap_or(Err(Refused::NotTls))?;
    let text = String::from_utf8_lossy(&name);
    // A server name has no final dot; one with it could be read as another name.
    let same = !text.ends_with('.') && HostName::parse(&text).as_ref() == Some(&target.name);
    match same {
        true => Ok(()),
        false => Err(Refused::OtherServerName(text.chars().take(100).collect())),
    }
}

async fn read_more(stream: &TcpStream, early: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let room = (MAX_EARLY - early.len().min(MAX_EARLY)).clamp(1, buffer.len());
    match relay::read(stream, &mut buffer[..room]).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => {
            early.extend_from_slice(&buffer[..length]);
            Ok(())
        }
    }
}

/// Waits until the program gives up a connection that is held. Bytes it sends meanwhile are kept, up to a limit.
///
/// A program that was killed and one that has only ended its own direction look the same. The latter has sent its
/// request before, and does not speak TLS: then the connection is held on.
async fn given_up(stream: &TcpStream, port: u16, early: &mut Vec<u8>) {
    while early.len() < MAX_EARLY {
        match read_more(stream, early).await {
            Ok(()) => {}
            Err(error)
                if error.kind() == io::ErrorKind::UnexpectedEof
                    && port != TLS_PORT
                    && !early.is_empty() =>
            {
                break;
            }
            Err(_) => return,
        }
    }
    std::future::pending().await
}
