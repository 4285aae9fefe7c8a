//! Bytes between two connections, both ways, with half-close.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::Shutdown;
use tokio::net::TcpStream;

use crate::clock;

/// A connection on which no byte moves for this long is closed (at most twice this long).
const IDLE: Duration = Duration::from_secs(60 * 60);
/// Bytes that are read at once, in each direction.
const BUFFER: usize = 64 * 1024;

/// Copies until both sides have ended, one fails, or nothing moves any more.
pub async fn relay(first: &TcpStream, second: &TcpStream) -> io::Result<()> {
    let moved = AtomicBool::new(true);
    let both = async {
        tokio::try_join!(copy(first, second, &moved), copy(second, first, &moved)).map(|_| ())
    };
    let idle = async {
        while moved.swap(false, Ordering::Relaxed) {
            clock::pause(IDLE).await;
        }
    };
    tokio::select! {
        result = both => result,
        () = idle => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Copies one way until the end, and passes the end on.
async fn copy(from: &TcpStream, to: &TcpStream, moved: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = read(from, &mut buffer).await?;
        if length == 0 {
            break;
        }
        moved.store(true, Ordering::Relaxed);
        write_all(to, &buffer[..length]).await?;
        moved.store(true, Ordering::Relaxed);
    }
    match rustix::net::shutdown(to, Shutdown::Write) {
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads what there is, at least one byte unless the other side has ended.
pub async fn read(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// Writes all bytes.
pub async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
