//! Bytes between two connections, both ways, with half-close.
//!
//! Bytes are copied through a buffer. A direction that has moved much is handed to the kernel, which moves the bytes
//! through a pipe (`splice`) without copying them into this process. Pipes are few, because the kernel counts their memory
//! against the user and gives out small ones to all of the user's programs when there are many.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::clock;

/// Pipes of one gate at the same time.
pub const MAX_PIPES: usize = 16;

/// A connection on which no byte moves for this long is closed (at most twice this long).
const IDLE: Duration = Duration::from_secs(60 * 60);
/// Bytes that are copied at once, in each direction.
const BUFFER: usize = 64 * 1024;
/// Bytes after which a direction gets a pipe.
const MUCH: usize = 1024 * 1024;
/// Bytes that are moved through a pipe at once.
const PIPE_SIZE: usize = 256 * 1024;

/// Moves bytes until both sides have ended, one fails, or nothing moves any more. Each pipe takes a permit of `pipes`.
pub async fn relay(first: &TcpStream, second: &TcpStream, pipes: &Semaphore) -> io::Result<()> {
    let moved = AtomicBool::new(true);
    let both = async {
        let there = one_way(first, second, pipes, &moved);
        let back = one_way(second, first, pipes, &moved);
        tokio::try_join!(there, back).map(|_| ())
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

/// Moves bytes one way until the end, and passes the end on.
async fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    pipes: &Semaphore,
    moved: &AtomicBool,
) -> io::Result<()> {
    if !copy(from, to, MUCH, moved).await? {
        let ended = match pipes.try_acquire() {
            Ok(_permit) => splice(from, to, moved).await,
            Err(_) => copy(from, to, usize::MAX, moved).await.map(|_| ()),
        };
        ended?;
    }
    match rustix::net::shutdown(to, Shutdown::Write) {
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Copies until the end, or until so many bytes were copied. True at the end.
async fn copy(
    from: &TcpStream,
    to: &TcpStream,
    limit: usize,
    moved: &AtomicBool,
) -> io::Result<bool> {
    let mut buffer = vec![0; BUFFER];
    let mut count: usize = 0;
    while count < limit {
        let length = read(from, &mut buffer).await?;
        if length == 0 {
            return Ok(true);
        }
        moved.store(true, Ordering::Relaxed);
        write_all(to, &buffer[..length]).await?;
        moved.store(true, Ordering::Relaxed);
        count = count.saturating_add(length);
    }
    Ok(false)
}

/// Moves bytes through a pipe until the end.
async fn splice(from: &TcpStream, to: &TcpStream, moved: &AtomicBool) -> io::Result<()> {
    let (pipe_out, pipe_in) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // Refused when the user has many pipes; the default size is good enough then.
    let _ = rustix::pipe::fcntl_setpipe_size(&pipe_in, PIPE_SIZE);
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    let splice = |from: BorrowedFd<'_>, to: BorrowedFd<'_>, length| {
        rustix::pipe::splice(from, None, to, None, length, flags).map_err(io::Error::from)
    };
    loop {
        // The pipe is empty, so this waits for the connection only.
        let fill = || splice(from.as_fd(), pipe_in.as_fd(), PIPE_SIZE);
        let mut length = from.async_io(Interest::READABLE, fill).await?;
        if length == 0 {
            return Ok(());
        }
        while length > 0 {
            moved.store(true, Ordering::Relaxed);
            let drain = || splice(pipe_out.as_fd(), to.as_fd(), length);
            length -= to.async_io(Interest::WRITABLE, drain).await?;
        }
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
