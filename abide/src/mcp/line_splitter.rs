//! Splitting of a byte stream (pipe or socket) into lines.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd};

use memchr::memchr;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::outline::{BOM, Outline};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes of a line over the limit in which its id is looked for.
const OUTLINE_BYTES: u64 = 1 << 30;

/// Buffer that splits what is read into lines.
pub struct LineSplitter {
    limit: usize,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been returned as lines.
    used: usize,
    /// Bytes of `buffer` that have been searched for a newline.
    searched: usize,
}

pub enum SplitLine<'a> {
    /// Line with its newline.
    Line(&'a [u8]),
    /// A line over the limit has begun; [`LineSplitter::skip_line`] reads on behind it.
    TooLong,
}

impl LineSplitter {
    /// Splitter for lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        LineSplitter {
            limit,
            buffer: Vec::with_capacity(READ_BYTES),
            used: 0,
            searched: 0,
        }
    }

    /// Changes the limit.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
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
        let found = memchr(b'\n', &self.buffer[self.searched..]);
        let line_end = found.map_or(self.buffer.len(), |at| self.searched + at + 1);
        self.searched = line_end;
        if line_end - from > self.limit {
            self.searched = from;
            return Some(SplitLine::TooLong);
        }
        if found.is_none() && !(end && from < line_end) {
            return None;
        }
        if found.is_none() {
            self.buffer.push(b'\n');
            self.searched += 1;
        }
        self.used = self.searched;
        Some(SplitLine::Line(&self.buffer[from..self.used]))
    }

    /// Reads a line over the limit to its end, and keeps its outline only.
    pub fn skip_line(&mut self, from: &File) -> io::Result<Outline> {
        if self.buffer[self.used..].starts_with(BOM) {
            self.used += BOM.len();
        }
        let mut line = BufReader::new(LongLine {
            lines: self,
            from,
            has_ended: false,
        });
        let outline = Outline::read((&mut line).take(OUTLINE_BYTES));
        io::copy(&mut line, &mut io::sink())?;
        Ok(outline)
    }
}

/// Reader of one line, up to its newline.
struct LongLine<'a> {
    lines: &'a mut LineSplitter,
    from: &'a File,
    has_ended: bool,
}

impl Read for LongLine<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let lines = &mut *self.lines;
        if !self.has_ended && lines.used == lines.buffer.len() {
            self.has_ended = !lines.fill(self.from)?;
        }
        if self.has_ended {
            return Ok(0);
        }
        let rest = &lines.buffer[lines.used..];
        let mut part = &rest[..rest.len().min(into.len())];
        if let Some(at) = memchr(b'\n', part) {
            part = &part[..=at];
            self.has_ended = true;
        }
        into[..part.len()].copy_from_slice(part);
        lines.used += part.len();
        lines.searched = lines.used;
        Ok(part.len())
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
            take_all(&mut lines, &ours, false, &mut lines_read);
        }
        drop(theirs);
        assert!(!lines.fill(&ours).unwrap());
        take_all(&mut lines, &ours, true, &mut lines_read);
        assert_eq!(
            lines_read,
            ["a\n", "bb\n", "\n", "c\n", "too long: 9", "de\n"]
        );
    }

    #[test]
    fn long_line_without_newline_is_skipped_at_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = File::from(OwnedFd::from(ours));
        let mut lines = LineSplitter::new(10);
        let mut lines_read = Vec::new();
        theirs.write_all(br#"{"id":9,"method":"m"}"#).unwrap();
        drop(theirs);
        assert!(lines.fill(&ours).unwrap());
        take_all(&mut lines, &ours, false, &mut lines_read);
        assert_eq!(lines_read, ["too long: 9"]);
        assert!(!lines.fill(&ours).unwrap() && lines.next(true).is_none());
    }

    fn take_all(lines: &mut LineSplitter, from: &File, end: bool, lines_read: &mut Vec<String>) {
        loop {
            let line = match lines.next(end) {
                None => return,
                Some(SplitLine::Line(line)) => String::from_utf8_lossy(line).into(),
                Some(SplitLine::TooLong) => {
                    let id = lines.skip_line(from).unwrap().id.unwrap_or_default();
                    format!("too long: {}", String::from_utf8_lossy(&id))
                }
            };
            lines_read.push(line);
        }
    }
}
