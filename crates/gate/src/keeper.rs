//! The channel to the keeper, which is told that something was refused and asks for the list, and asks again at the end of
//! its command.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use abide_session::sandbox::{GATE_LIST, GATE_REFUSED};
use tokio::net::UnixStream;

use crate::Gate;

/// Answers the keeper until it closes its end.
pub async fn serve(gate: Arc<Gate>, channel: OwnedFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&channel, true)?;
    // Each read of such a socket returns one message, and each write sends one.
    let channel = UnixStream::from_std(channel.into())?;
    let mut request = [0; 16];
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
                send(&channel, &gate.refusals.for_keeper()).await?;
            }
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
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
