//! `abide relay`: copies bytes between the `ssh` of another machine and the daemon here. It knows nothing of what they say.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use abide_engine::config::Paths;

use super::error::CliError;
use crate::connect::{self, DaemonSocket};

/// Bytes that are copied at once, as many as a pipe holds.
const BUFFER: usize = 64 << 10;

/// Copies until the daemon closes the link, which it does when the other machine has.
pub fn relay(paths: &Paths) -> Result<(), CliError> {
    // Starts the daemon if there is none. One without a fleet secret has no socket for links.
    drop(connect::connect(paths, DaemonSocket::Http)?);
    let mut from_daemon = connect::connect_running(paths, DaemonSocket::Link).map_err(|_| {
        CliError::new("this machine has no links to others: it has no fleet secret")
            .next("`abide fleet join --help` says how to give it the secret")
    })?;
    let mut to_daemon = from_daemon.try_clone()?;
    // Not the standard streams themselves, which keep bytes back until a line is complete.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    std::thread::spawn(move || {
        let _ = copy(&mut input, &mut to_daemon);
        let _ = to_daemon.shutdown(Shutdown::Write);
    });
    match copy(&mut from_daemon, &mut output) {
        Err(fault) if fault.kind() != io::ErrorKind::BrokenPipe => Err(fault.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Copies to the end. Unlike `std::io::copy`, which calls splice: while that waits for a socket, it holds the lock of the pipe,
/// and sshd at the other end of the pipe hangs.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&buffer[..length])?,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) => return Err(fault),
        }
    }
}
