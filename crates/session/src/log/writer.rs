//! The writer of a session's log.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{ENTRY_SIZE, IndexEntry, LOG_FOLDER, Stream, data_name, index_name};
use crate::clock::wall_ms;
use crate::crash::crash_point;

/// Chunks of one stream that arrive within this time share an index entry.
const COALESCE_MS: u64 = 10;
/// Number of tail segments that are kept, including the one being written.
const TAIL_SEGMENTS: usize = 12;
/// Minimum size of a segment, regardless of the quota.
const SEGMENT_MIN: u64 = 4 << 10;
/// Bytes read at once: the capacity of a pipe.
pub const READ_SIZE: usize = 64 << 10;

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
    /// Memory for bytes that are read, of which the system provides only what is used.
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
            buffer: Vec::new(),
        }
    }

    /// Number of bytes that arrived, including dropped ones.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Number of bytes that are not in the log.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Reads what `from` has, at most `max` bytes. Never blocks, and reads the bytes even if the disk refuses them,
    /// so that the child is never held up.
    pub fn take(&mut self, from: BorrowedFd<'_>, stream: Stream, max: usize) -> OutputRead {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.reserve_exact(READ_SIZE);
        let room = &mut buffer.spare_capacity_mut()[..max.min(READ_SIZE)];
        let taken = match rustix::io::read(from, room) {
            Ok(([], _)) => OutputRead::Closed,
            Ok((bytes, _)) => {
                self.append(bytes, stream);
                OutputRead::Bytes(bytes.len() as u64)
            }
            Err(Errno::AGAIN | Errno::INTR) => OutputRead::Nothing,
            // Reading a terminal that no process has open fails with EIO.
            Err(_) => OutputRead::Closed,
        };
        self.buffer = buffer;
        taken
    }

    /// Writes bytes into segments. Those that the disk refuses are counted as dropped.
    fn append(&mut self, mut bytes: &[u8], stream: Stream) {
        while !bytes.is_empty() {
            let (taken, kept) = self.write(bytes);
            crash_point("io.mid");
            if kept > 0 {
                self.add_to_index(kept as u64, stream);
            }
            if kept < taken {
                self.count_dropped((taken - kept) as u64);
            }
            bytes = &bytes[taken..];
        }
    }

    /// Writes as many bytes as fit into the segment. Returns their number, and the number of those that the disk took.
    fn write(&mut self, bytes: &[u8]) -> (usize, usize) {
        let end = self.end;
        let Ok(segment) = self.segment() else {
            return (bytes.len(), 0);
        };
        let taken = bytes.len().min(segment.room(end) as usize);
        match write_all(segment.data.as_fd(), &bytes[..taken], end - segment.base) {
            Ok(()) => (taken, taken),
            Err((_, kept)) => (taken, kept),
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

    /// Segment with space left.
    fn segment(&mut self) -> Result<&Segment, Errno> {
        let end = self.end;
        if (self.current.as_ref()).is_some_and(|segment| segment.room(end) == 0) {
            self.retire();
        }
        if self.current.is_none() {
            let limit = match end {
                0 => self.quota / 4,
                _ => self.quota / 16,
            };
            let segment = Segment::create(&self.folder, end, limit.max(SEGMENT_MIN))?;
            self.current = Some(segment);
        }
        self.current.as_ref().ok_or(Errno::BADF)
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
