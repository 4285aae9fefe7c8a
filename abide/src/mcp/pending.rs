//! Output of the front that the client has not read yet.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::lines::until;

/// Bytes that a pipe with any free space accepts without blocking the writer (`PIPE_BUF`).
const PIECE: usize = 4_096;
/// Pending bytes from which on the front reads nothing more from the daemon or the client.
const MOST: usize = 16 << 20;

/// The client's end of the pipe, and the bytes that are pending for it.
pub struct Output {
    file: File,
    waiting: Vec<u8>,
    /// Bytes of `waiting` that have been written.
    written: usize,
}

impl Output {
    /// Output without pending bytes.
    pub fn new(file: OwnedFd) -> Self {
        Output {
            file: File::from(file),
            waiting: Vec::new(),
            written: 0,
        }
    }

    /// Appends whole lines to the pending bytes.
    pub fn queue(&mut self, lines: &[u8]) {
        // The written part is dropped, because a client that never drains the buffer must not make it grow forever.
        if self.written > self.waiting.len() / 2 {
            self.waiting.drain(..self.written);
            self.written = 0;
        }
        self.waiting.extend_from_slice(lines);
    }

    /// True if more may be queued.
    pub fn has_room(&self) -> bool {
        self.waiting.len() - self.written < MOST
    }

    /// Writes as much as is possible without blocking. Returns true if bytes are still pending.
    pub fn write_some(&mut self) -> io::Result<bool> {
        while self.written < self.waiting.len() {
            let now = Timespec::default();
            let mut asked = [PollFd::new(&self.file, PollFlags::OUT)];
            match poll(&mut asked, Some(&now)) {
                Ok(0) => return Ok(true),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let end = self.waiting.len().min(self.written + PIECE);
            match self.write(end) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                other => other?,
            }
        }
        self.waiting.clear();
        self.waiting.shrink_to(MOST / 16);
        self.written = 0;
        Ok(false)
    }

    /// Writes everything and blocks until that is done.
    pub fn write_all(&mut self) -> io::Result<()> {
        while self.written < self.waiting.len() {
            match self.write(self.waiting.len()) {
                // Some clients pass non-blocking pipes.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    until(self.file.as_fd(), PollFlags::OUT)?;
                }
                other => other?,
            }
        }
        self.waiting.clear();
        self.written = 0;
        Ok(())
    }

    fn write(&mut self, end: usize) -> io::Result<()> {
        match self.file.write(&self.waiting[self.written..end]) {
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
    fn a_reader_that_is_slow_holds_nobody_up_and_gets_all() {
        let (mut read, write) = std::io::pipe().unwrap();
        let mut output = Output::new(write.into());
        let line: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        output.queue(&line);
        assert!(output.write_some().unwrap());
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            read.read_to_end(&mut got).unwrap();
            got
        });
        output.write_all().unwrap();
        output.queue(b"more");
        while output.write_some().unwrap() {
            until(output.file.as_fd(), PollFlags::OUT).unwrap();
        }
        drop(output);
        assert_eq!(reader.join().unwrap(), [&line[..], b"more"].concat());
    }

    #[test]
    fn output_that_is_never_empty_stays_small() {
        let (mut read, write) = std::io::pipe().unwrap();
        let mut output = Output::new(write.into());
        output.queue(&[b'x'; 1 << 20]);
        for _ in 0..100 {
            output.queue(&[b'x'; PIECE]);
            assert!(output.write_some().unwrap());
            read.read_exact(&mut [0; PIECE]).unwrap();
            assert!(output.waiting.len() <= 3 << 20);
        }
        let mut got = vec![0; 1 << 20];
        for _ in 0..20 {
            output.queue(&got);
            let mut left = got.len();
            while left > 0 {
                assert!(output.write_some().unwrap());
                left -= read.read(&mut got[..left]).unwrap();
            }
            assert!(output.waiting.len() <= 4 << 20, "{}", output.waiting.len());
        }
    }
}
