//! Output of the front that the client has not read yet.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::line_splitter::wait_ready;

/// Bytes that a pipe with any free space accepts without blocking the writer (`PIPE_BUF`).
const CHUNK: usize = 4_096;
/// Pending bytes from which on the front reads nothing more from the daemon or the client.
const BUFFER_LIMIT: usize = 16 << 20;

/// The client's end of the pipe, and the bytes that are pending for it.
pub struct ClientOutput {
    file: File,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been written.
    written: usize,
}

impl ClientOutput {
    /// Output without pending bytes.
    pub fn new(file: OwnedFd) -> Self {
        ClientOutput {
            file: File::from(file),
            buffer: Vec::new(),
            written: 0,
        }
    }

    /// Appends whole lines to the pending bytes.
    pub fn queue(&mut self, lines: &[u8]) {
        // The written part is dropped, because a client that never drains the buffer must not make it grow forever.
        if self.written > self.buffer.len() / 2 {
            self.buffer.drain(..self.written);
            self.written = 0;
        }
        self.buffer.extend_from_slice(lines);
    }

    /// True if more may be queued.
    pub fn has_room(&self) -> bool {
        self.buffer.len() - self.written < BUFFER_LIMIT
    }

    /// Writes as much as is possible without blocking. Returns true if bytes are still pending.
    pub fn write_some(&mut self) -> io::Result<bool> {
        while self.written < self.buffer.len() {
            let now = Timespec::default();
            let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
            match poll(&mut fds, Some(&now)) {
                Ok(0) => return Ok(true),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let end = self.buffer.len().min(self.written + CHUNK);
            match self.write(end) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                other => other?,
            }
        }
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_LIMIT / 16);
        self.written = 0;
        Ok(false)
    }

    /// Writes everything and blocks until that is done.
    pub fn write_all(&mut self) -> io::Result<()> {
        while self.written < self.buffer.len() {
            match self.write(self.buffer.len()) {
                // Some clients pass non-blocking pipes.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    wait_ready(self.file.as_fd(), PollFlags::OUT)?;
                }
                other => other?,
            }
        }
        self.buffer.clear();
        self.written = 0;
        Ok(())
    }

    fn write(&mut self, end: usize) -> io::Result<()> {
        match self.file.write(&self.buffer[self.written..end]) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                self.written += count;
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn slow_reader_gets_all_output_without_blocking_the_writer() {
        let (mut read, write) = std::io::pipe().unwrap();
        let mut output = ClientOutput::new(write.into());
        let line: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        output.queue(&line);
        assert!(output.write_some().unwrap());
        let reader = std::thread::spawn(move || {
            let mut lines_read = Vec::new();
            read.read_to_end(&mut lines_read).unwrap();
            lines_read
        });
        output.write_all().unwrap();
        output.queue(b"more");
        while output.write_some().unwrap() {
            wait_ready(output.file.as_fd(), PollFlags::OUT).unwrap();
        }
        drop(output);
        assert_eq!(reader.join().unwrap(), [&line[..], b"more"].concat());
    }

    #[test]
    fn buffer_that_is_never_drained_stays_bounded() {
        let (mut read, write) = std::io::pipe().unwrap();
        let mut output = ClientOutput::new(write.into());
        output.queue(&[b'x'; 1 << 20]);
        for _ in 0..100 {
            output.queue(&[b'x'; CHUNK]);
            assert!(output.write_some().unwrap());
            read.read_exact(&mut [0; CHUNK]).unwrap();
            assert!(output.buffer.len() <= 3 << 20);
        }
        let mut lines_read = vec![0; 1 << 20];
        for _ in 0..20 {
            output.queue(&lines_read);
            let mut left = lines_read.len();
            while left > 0 {
                assert!(output.write_some().unwrap());
                left -= read.read(&mut lines_read[..left]).unwrap();
            }
            assert!(output.buffer.len() <= 4 << 20, "{}", output.buffer.len());
        }
    }
}
