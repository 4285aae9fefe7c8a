//! The channel to the keeper, which is told that something was refused and asks for the list, and asks again at the end of
//! its command. It tells of connections at ports on which the gate does not listen, and of ports that the command binds.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use abide_session::sandbox::{GATE_BIND, GATE_LIST, GATE_NO_LISTENER, GATE_REFUSED, GATE_RELEASED};
use tokio::net::UnixStream;

use crate::Gate;
use crate::refusals::Outcome;

/// Answers the keeper until it closes its end.
pub async fn serve(gate: Arc<Gate>, channel: OwnedFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&channel, true)?;
    // Each read of such a socket returns one message, and each write sends one.
    let channel = UnixStream::from_std(channel.into())?;
    let mut request = [0; 64];
    loop {
        tokio::select! {
            () = gate.refusals.added() => {
                send(&channel, GATE_REFUSED).await?;
                continue;
            }
            readable = channel.readable() => readable?,
        }
        match channel.try_read(&mut request) {
            Ok(0) => return Ok(()),
            Ok(length) if request[..length] == *GATE_LIST => {
                let waiting = gate.questions.open();
                send(&channel, &gate.refusals.for_keeper(&waiting)).await?;
            }
            Ok(length) if request[..length].starts_with(GATE_BIND) => {
                let port = bound_port(&request[..length]);
                let port = port.ok_or(io::ErrorKind::InvalidData)?;
                gate.release_agent_port(port).await;
                send(&channel, GATE_RELEASED).await?;
            }
            Ok(length) => match address(&request[..length]) {
                Some(address) => gate.refuse_port(address),
                None => return Err(io::ErrorKind::InvalidData.into()),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Address of a connection at a port on which the gate does not listen.
fn address(request: &[u8]) -> Option<SocketAddrV4> {
    let text = std::str::from_utf8(request.strip_prefix(GATE_NO_LISTENER)?).ok()?;
    text.parse().ok()
}

/// Port that the command is about to bind.
fn bound_port(request: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(request.strip_prefix(GATE_BIND)?).ok()?;
    text.parse().ok()
}

impl Gate {
    /// Lists a connection to a name, at a port on which the gate does not listen.
    fn refuse_port(&self, address: SocketAddrV4) {
        let names = self.names();
        if let Some(name) = names.name(*address.ip()) {
            let reason = "this port is not allowed";
            let port = Some(address.port());
            (self.refusals).record(Outcome::Refused, name.as_str(), port, reason);
        }
    }
}

async fn send(channel: &UnixStream, message: &[u8]) -> io::Result<()> {
    loop {
        channel.writable().await?;
        match channel.try_write(message) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
