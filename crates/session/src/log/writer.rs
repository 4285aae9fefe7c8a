//! The writer of a session's log.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

use super::{ENTRY_SIZE, IndexEntry, LOG_FOLDER, Stream, data_name, index_name};
use crate::clock::wall_ms;
use crate::crash::crash_point;

/// Chunks of one stream that arrive within this time share an index entry.
const COALESCE_MS: u64 = 10;
/// Number of tail segments that are kept, including the one being written.
const TAIL_SEGMENTS: usize = 12;
/// Minimum size of a segment, regardless of the quota.
const SEGMENT_MIN: u64 = 4 << 10;
/// Buffer size if bytes cannot be spliced.
const READ_SIZE: usize = 16 << 10;
/// Buffer size for a flood of output. A flood is copied, which is faster than splicing it: the pipe reuses
/// its pages, and both ends find them in the CPU cache.
const FLOOD_READ_SIZE: usize = 256 << 10;

/// Result of one attempt to read output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRead {
    /// Number of bytes that were read and are in the log or counted as dropped.
    Bytes(u64),
    /// No bytes at the moment.
    Nothing,
    /// End of the stream.
    Closed,
}

/// Writer of the log of one session.
pub struct LogWriter {
    folder: Rc<OwnedFd>,
    quota: u64,
    end: u64,
    dropped: u64,
    current: Option<Segment>,
    tails: VecDeque<Past>,
    splices: bool,
    flooded: bool,
    buffer: Vec<u8>,
}

struct Segment {
    base: u64,
    limit: u64,
    data: OwnedFd,
    index: OwnedFd,
    indexed: u64,
    entries: u64,
    last: Option<IndexEntry>,
}

struct Past {
    base: u64,
    indexed: u64,
}

impl LogWriter {
    /// Writer for the log in a session's directory. Nothing is created before there is output.
    pub fn new(folder: Rc<OwnedFd>, quota: u64) -> Self {
        LogWriter {
            folder,
            quota,
            end: 0,
            dropped: 0,
            current: None,
            tails: VecDeque::new(),
            splices: true,
            flooded: false,
            buffer: Vec::new(),
        }
    }

    /// Number of bytes that arrived, including dropped ones.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Prepares for more output than a pipe usually holds.
    pub fn expect_flood(&mut self) {
        self.flooded = true;
        self.buffer.resize(FLOOD_READ_SIZE, 0);
    }

    /// Number of bytes that are not in the log.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Reads what `from` has, at most `max` bytes. Never blocks, and reads the bytes even if the disk refuses them,
    /// so that the child is never held up.
    pub fn take(&mut self, from: BorrowedFd<'_>, stream: Stream, max: usize) -> OutputRead {
        // A command that writes nothing leaves no log.
        if self.current.is_none()
            && stream != Stream::Pty
            && let Some(taken) = nothing_yet(from)
        {
            return taken;
        }
        let room = match self.room() {
            Ok(room) => room.min(max as u64) as usize,
            Err(_) => return self.discard(from, max),
        };
        let taken = if self.splices && !self.flooded && stream != Stream::Pty {
            self.splice(from, room)
        } else {
            self.copy(from, room)
        };
        match taken {
            Ok(0) => OutputRead::Closed,
            Ok(count) => {
                crash_point("io.mid");
                self.add_to_index(count as u64, stream);
                OutputRead::Bytes(count as u64)
            }
            Err(ReadFault::Input(Errno::AGAIN | Errno::INTR)) => OutputRead::Nothing,
            // Reading a terminal that no process has open fails with EIO.
            Err(ReadFault::Input(_)) => OutputRead::Closed,
            Err(ReadFault::Disk { read: 0, .. }) => self.discard(from, max),
            Err(ReadFault::Disk { read, kept }) => {
                if kept > 0 {
                    self.add_to_index(kept as u64, stream);
                }
                self.count_dropped((read - kept) as u64);
                OutputRead::Bytes(read as u64)
            }
        }
    }

    fn splice(&mut self, from: BorrowedFd<'_>, room: usize) -> Result<usize, ReadFault> {
        let Some(segment) = &self.current else {
            return Err(ReadFault::NOTHING_READ);
        };
        let mut at = self.end - segment.base;
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        match rustix::pipe::splice(from, None, &segment.data, Some(&mut at), room, flags) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN) => Err(ReadFault::Input(Errno::AGAIN)),
            Err(Errno::INTR) => Err(ReadFault::Input(Errno::INTR)),
            Err(Errno::INVAL) => {
                self.splices = false;
                self.copy(from, room)
            }
            Err(_) => Err(ReadFault::NOTHING_READ),
        }
    }

    fn copy(&mut self, from: BorrowedFd<'_>, room: usize) -> Result<usize, ReadFault> {
        let Some(segment) = &self.current else {
            return Err(ReadFault::NOTHING_READ);
        };
        if self.buffer.is_empty() {
            self.buffer.resize(READ_SIZE, 0);
        }
        let room = room.min(self.buffer.len());
        let read = rustix::io::read(from, &mut self.buffer[..room]).map_err(ReadFault::Input)?;
        let at = self.end - segment.base;
        write_all(segment.data.as_fd(), &self.buffer[..read], at)
            .map_err(|(_, kept)| ReadFault::Disk { read, kept })?;
        Ok(read)
    }

    /// Reads and drops bytes, because the child must not block when the disk is full or fails.
    fn discard(&mut self, from: BorrowedFd<'_>, max: usize) -> OutputRead {
        if self.buffer.is_empty() {
            self.buffer.resize(READ_SIZE, 0);
        }
        let max = max.min(self.buffer.len());
        match rustix::io::read(from, &mut self.buffer[..max]) {
            Ok(0) => OutputRead::Closed,
            Ok(count) => {
                self.count_dropped(count as u64);
                OutputRead::Bytes(count as u64)
            }
            Err(Errno::AGAIN | Errno::INTR) => OutputRead::Nothing,
            Err(_) => OutputRead::Closed,
        }
    }

    fn count_dropped(&mut self, count: u64) {
        self.end += count;
        self.dropped += count;
        if let Some(segment) = &mut self.current {
            segment.last = None;
        }
    }

    /// Adds bytes at the end of the segment to its index.
    fn add_to_index(&mut self, count: u64, stream: Stream) {
        let now = wall_ms();
        let dropped = self.dropped;
        let entered = match &mut self.current {
            Some(segment) => segment.enter((self.end, dropped), count, stream, now),
            None => Err(Errno::BADF),
        };
        match entered {
            Ok(()) => self.end += count,
            Err(_) => self.count_dropped(count),
        }
    }

    /// Makes sure that there is a segment with space left. Returns the number of bytes that fit.
    fn room(&mut self) -> Result<u64, Errno> {
        if let Some(segment) = &self.current {
            let room = segment.room(self.end);
            if room > 0 {
                return Ok(room);
            }
            self.retire();
        }
        let limit = match self.end {
            0 => self.quota / 4,
            _ => self.quota / 16,
        };
        let segment = Segment::create(&self.folder, self.end, limit.max(SEGMENT_MIN))?;
        let room = segment.room(self.end);
        self.current = Some(segment);
        Ok(room)
    }

    fn retire(&mut self) {
        let Some(segment) = self.current.take() else {
            return;
        };
        if segment.base == 0 {
            return;
        }
        self.tails.push_back(Past {
            base: segment.base,
            indexed: segment.indexed,
        });
        while self.tails.len() >= TAIL_SEGMENTS
            && let Some(oldest) = self.tails.pop_front()
        {
            for name in [index_name(oldest.base), data_name(oldest.base)] {
                let path = format!("{LOG_FOLDER}/{name}");
                let _ = rustix::fs::unlinkat(&self.folder, path, AtFlags::empty());
            }
            self.dropped += oldest.indexed;
        }
    }
}

/// State of an empty pipe; `None` if it is not empty.
fn nothing_yet(from: BorrowedFd<'_>) -> Option<OutputRead> {
    let mut fds = [PollFd::from_borrowed_fd(from, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec::default())).ok()?;
    let seen = fds[0].revents();
    if seen.contains(PollFlags::IN) {
        None
    } else if seen.contains(PollFlags::HUP) {
        Some(OutputRead::Closed)
    } else {
        Some(OutputRead::Nothing)
    }
}

enum ReadFault {
    /// Reading from the stream failed.
    Input(Errno),
    /// The disk did not take all bytes: `read` bytes were taken from the stream, `kept` of them are on the disk.
    Disk { read: usize, kept: usize },
}

impl ReadFault {
    /// The disk failed before anything was read from the stream.
    const NOTHING_READ: Self = ReadFault::Disk { read: 0, kept: 0 };
}

impl Segment {
    fn create(folder: &OwnedFd, base: u64, limit: u64) -> Result<Self, Errno> {
        let create = |name: String| {
            let path = format!("{LOG_FOLDER}/{name}");
            // The open must not block if something other than a regular file has this name.
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
            let flags = flags | OFlags::NONBLOCK | OFlags::NOFOLLOW;
            rustix::fs::openat(folder, path, flags, Mode::RUSR | Mode::WUSR)
        };
        let data = match create(data_name(base)) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(folder, LOG_FOLDER, Mode::RWXU)?;
                create(data_name(base))?
            }
            other => other?,
        };
        let index = create(index_name(base)).inspect_err(|_| {
            // The next attempt uses another name.
            let path = format!("{LOG_FOLDER}/{}", data_name(base));
            let _ = rustix::fs::unlinkat(folder, path, AtFlags::empty());
        })?;
        Ok(Segment {
            base,
            limit,
            data,
            index,
            indexed: 0,
            entries: 0,
            last: None,
        })
    }

    /// Bytes that fit into this segment. The index counts too, because the quota limits disk use and not output.
    fn room(&self, end: u64) -> u64 {
        let index = (self.entries + 1) * ENTRY_SIZE as u64;
        self.limit.saturating_sub(end - self.base + index)
    }

    fn enter(
        &mut self,
        (offset, dropped): (u64, u64),
        count: u64,
        stream: Stream,
        now: u64,
    ) -> Result<(), Errno> {
        let count = u32::try_from(count).map_err(|_| Errno::OVERFLOW)?;
        let grown = self.last.and_then(|last| {
            let recent =
                now.saturating_sub(last.at_wall_ms) < COALESCE_MS && now >= last.at_wall_ms;
            let len = last.len.checked_add(count)?;
            (recent && last.stream == stream).then_some(IndexEntry { len, ..last })
        });
        let entry = match grown {
            Some(entry) => {
                let at = (self.entries - 1) * ENTRY_SIZE as u64 + 16;
                write_all(self.index.as_fd(), &entry.run_bytes(), at)
                    .map_err(|(errno, _)| errno)?;
                entry
            }
            None => {
                let entry = IndexEntry {
                    offset,
                    at_wall_ms: now,
                    len: count,
                    stream,
                    dropped,
                };
                let at = self.entries * ENTRY_SIZE as u64;
                write_all(self.index.as_fd(), &entry.to_bytes(), at).map_err(|(errno, _)| errno)?;
                self.entries += 1;
                entry
            }
        };
        self.last = Some(entry);
        self.indexed += u64::from(count);
        Ok(())
    }
}

/// Writes all bytes. The error has the `errno` and the number of bytes that were written.
fn write_all(to: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<(), (Errno, usize)> {
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::pwrite(to, &bytes[written..], at + written as u64) {
            Ok(0) => return Err((Errno::NOSPC, written)),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err((errno, written)),
        }
    }
    Ok(())
}
