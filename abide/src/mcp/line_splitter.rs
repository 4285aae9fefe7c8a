//! Splitting of a byte stream (pipe or socket) into lines.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use memchr::memchr;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::outline::{Outline, Scanner};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Buffer that splits what is read into lines.
pub struct LineSplitter {
    limit: usize,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been returned as lines.
    used: usize,
    /// Bytes of `buffer` that have been searched for a newline.
    searched: usize,
    /// Scanner of a line over the limit whose end has not been seen.
    skipping: Option<Scanner>,
}

pub enum SplitLine<'a> {
    /// Line with its newline.
    Line(&'a [u8]),
    /// Outline of a line over the limit; the line itself was discarded.
    TooLong(Outline),
}

impl LineSplitter {
    /// Splitter for lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        LineSplitter {
            limit,
            buffer: Vec::with_capacity(READ_BYTES),
            used: 0,
            searched: 0,
            skipping: None,
        }
    }

    /// Changes the limit.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// True if a line over the limit has begun.
    pub fn is_skipping(&self) -> bool {
        self.skipping.is_some()
    }

    /// Appends bytes that the caller has read.
    pub fn put(&mut self, bytes: &[u8]) {
        self.drop_used();
        self.buffer.extend_from_slice(bytes);
    }

    fn drop_used(&mut self) {
        self.buffer.drain(..self.used);
        self.searched -= self.used;
        self.used = 0;
    }

    /// Reads once. Returns false at the end of input.
    pub fn fill(&mut self, from: &File) -> io::Result<bool> {
        self.drop_used();
        self.buffer.reserve(READ_BYTES);
        loop {
            match rustix::io::read(from, spare_capacity(&mut self.buffer)) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_ready(from.as_fd(), PollFlags::IN)?,
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Next line. At the `end` of input, the remaining bytes count as one.
    pub fn next(&mut self, end: bool) -> Option<SplitLine<'_>> {
        let from = self.used;
        match memchr(b'\n', &self.buffer[self.searched..]) {
            Some(at) => self.used = self.searched + at + 1,
            None if end && (from < self.buffer.len() || self.skipping.is_some()) => {
                self.buffer.push(b'\n');
                self.used = self.buffer.len();
            }
            None => {
                self.searched = self.buffer.len();
                if self.searched - from > self.limit || self.skipping.is_some() {
                    let scanner = self.skipping.get_or_insert_default();
                    scanner.feed(&self.buffer[from..]);
                    self.used = self.searched;
                }
                return None;
            }
        }
        self.searched = self.used;
        let line = &self.buffer[from..self.used];
        match self.skipping.take() {
            None if line.len() <= self.limit => Some(SplitLine::Line(line)),
            skipped => {
                let mut scanner = skipped.unwrap_or_default();
                scanner.feed(line);
                Some(SplitLine::TooLong(scanner.finish()))
            }
        }
    }
}

/// Waits until a file descriptor is ready.
pub fn wait_ready(fd: BorrowedFd<'_>, ready: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, ready)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lines_are_split_across_reads() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = File::from(OwnedFd::from(ours));
        let mut lines = LineSplitter::new(40);
        let mut lines_read = Vec::new();
        let long = format!(r#"{{"params":"{}","id":9,"method":"m"}}"#, "x".repeat(200));
        for piece in ["a\nb", "b\n\nc", &format!("\n{long}\nd"), "e"] {
            theirs.write_all(piece.as_bytes()).unwrap();
            assert!(lines.fill(&ours).unwrap());
            take_all(&mut lines, false, &mut lines_read);
        }
        drop(theirs);
        assert!(!lines.fill(&ours).unwrap());
        take_all(&mut lines, true, &mut lines_read);
        assert_eq!(
            lines_read,
            ["a\n", "bb\n", "\n", "c\n", "too long: 9", "de\n"]
        );
    }

    #[test]
    fn long_line_without_newline_is_reported_at_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = File::from(OwnedFd::from(ours));
        let mut lines = LineSplitter::new(10);
        let mut lines_read = Vec::new();
        theirs.write_all(br#"{"id":9,"method":"m"}"#).unwrap();
        drop(theirs);
        assert!(lines.fill(&ours).unwrap());
        take_all(&mut lines, false, &mut lines_read);
        assert!(lines_read.is_empty() && !lines.fill(&ours).unwrap());
        take_all(&mut lines, true, &mut lines_read);
        assert_eq!(lines_read, ["too long: 9"]);
    }

    fn take_all(lines: &mut LineSplitter, end: bool, lines_read: &mut Vec<String>) {
        while let Some(piece) = lines.next(end) {
            lines_read.push(match piece {
                SplitLine::Line(line) => String::from_utf8_lossy(line).into(),
                SplitLine::TooLong(outline) => {
                    format!(
                        "too long: {}",
                        String::from_utf8_lossy(&outline.id.unwrap_or_default())
                    )
                }
            });
        }
    }
}
