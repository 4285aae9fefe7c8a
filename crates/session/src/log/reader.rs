//! The reader of a session's log. It works while the keeper writes: it sees only bytes that the index
//! covers and takes no lock, so readers cost the writer nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::{ENTRY_SIZE, IndexEntry, LOG_FOLDER, Stream, data_name, index_name};
use crate::keeper_record::PLAIN;

/// Maximum size of a chunk.
pub const CHUNK_LIMIT: usize = 64 << 10;

/// A log that is read.
#[derive(Clone, Debug)]
pub struct Log {
    folder: Arc<Path>,
    written: u64,
}

/// Part of a log: output or a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Output.
    Chunk(Chunk),
    /// Bytes that were written but are not in the log.
    Gap {
        /// Offset of the first missing byte.
        from: u64,
        /// Offset after the last missing byte.
        to: u64,
    },
}

impl Piece {
    /// Offset of its first byte.
    pub fn offset(&self) -> u64 {
        match self {
            Piece::Chunk(chunk) => chunk.offset,
            Piece::Gap { from, .. } => *from,
        }
    }

    /// Output; `None`: a gap.
    pub fn chunk(&self) -> Option<&Chunk> {
        match self {
            Piece::Chunk(chunk) => Some(chunk),
            Piece::Gap { .. } => None,
        }
    }
}

/// Bytes that came from one stream at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Logical offset of the first byte.
    pub offset: u64,
    /// Wall time of arrival.
    pub at_wall_ms: u64,
    /// Stream of the bytes.
    pub stream: Stream,
    /// Number of bytes before it that are not in the log.
    pub dropped: u64,
    /// The bytes, unchanged.
    pub bytes: Vec<u8>,
}

impl Log {
    /// Opens the log of the session in this directory. There may be no output yet.
    pub fn open(session_folder: &Path) -> Self {
        Log {
            folder: session_folder.join(LOG_FOLDER).into(),
            written: 0,
        }
    }

    /// Sets the number of bytes that the session is known to have written. The keeper counts bytes after they are in
    /// the log, or after the disk refused them, so a byte below this number that is not in the log will never arrive.
    pub fn with_written(self, bytes: u64) -> Self {
        Log {
            written: self.written.max(bytes),
            ..self
        }
    }

    /// Offset after the last byte that can be read.
    pub fn end(&self) -> io::Result<u64> {
        Ok(self.last_entry()?.map_or(0, IndexEntry::end))
    }

    /// Wall time in milliseconds at which the last byte arrived; `None`: there is no output yet.
    pub fn last_at(&self) -> io::Result<Option<u64>> {
        Ok(self.last_entry()?.map(|entry| entry.at_wall_ms))
    }

    /// Number of bytes written, and number of those that are not in the log.
    pub fn extent(&self) -> io::Result<(u64, u64)> {
        let last = self.last_entry()?;
        let (end, dropped) = last.map_or((0, 0), |last| (last.end(), last.dropped));
        let total = end.max(self.written);
        Ok((total, dropped + (total - end)))
    }

    /// Wall time in milliseconds at which the first byte arrived; `None`: there is no output.
    pub fn first_at(&self) -> io::Result<Option<u64>> {
        let Some(first) = self.segments()?.first().copied() else {
            return Ok(None);
        };
        let entry = match self.segment(first)? {
            Some(segment) => segment.entry(0)?,
            None => None,
        };
        Ok(entry.map(|entry| entry.at_wall_ms))
    }

    fn last_entry(&self) -> io::Result<Option<IndexEntry>> {
        for base in self.segments()?.into_iter().rev() {
            if let Some(segment) = self.segment(base)?
                && let Some(last) = segment.count()?.checked_sub(1)
                && let Some(entry) = segment.entry(last)?
            {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Gaps in the log, in order.
    pub fn gaps(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut gaps = Vec::new();
        let mut all = self.pieces(0, None);
        while let Some(entry) = all.find()? {
            if entry.offset > all.at {
                gaps.push((all.at, entry.offset));
            }
            all.at = entry.end();
        }
        Ok(gaps)
    }

    /// Iterates over everything from `from` on, or only over the output of one stream. After the end, the iterator
    /// can be polled again, because there may be more output.
    pub fn pieces(&self, from: u64, only: Option<Stream>) -> Pieces {
        Pieces {
            log: self.clone(),
            at: from,
            end: u64::MAX,
            written: self.written,
            only,
            segment: None,
            entry: 0,
        }
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        let listing = match std::fs::read_dir(&self.folder) {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut bases = Vec::new();
        for item in listing {
            let name = item?.file_name();
            if let Some(base) = name.to_str().filter(|name| name.len() == 16)
                && let Ok(base) = u64::from_str_radix(base, 16)
            {
                bases.push(base);
            }
        }
        bases.sort_unstable();
        Ok(bases)
    }

    /// Opens a segment. `None`: the quota dropped it, it is just being created, or its files are not regular.
    fn segment(&self, base: u64) -> io::Result<Option<Segment>> {
        let open = |name: String| open_regular(&self.folder.join(name));
        Ok(match (open(data_name(base))?, open(index_name(base))?) {
            (Some(data), Some(index)) => Some(Segment { base, data, index }),
            _ => None,
        })
    }
}

/// Opens a file of a log. `None`: there is no regular file; the call never blocks on another kind.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    match File::options().read(true).custom_flags(PLAIN).open(path) {
        Ok(file) => Ok(Some(file).filter(is_regular)),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(fault) if is_link(&fault) => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file())
}

/// Returns whether opening failed because the last part of the path is a symbolic link or a socket.
fn is_link(fault: &io::Error) -> bool {
    matches!(fault.raw_os_error(), Some(libc::ELOOP | libc::ENXIO))
}

#[derive(Debug)]
struct Segment {
    base: u64,
    data: File,
    index: File,
}

impl Segment {
    fn count(&self) -> io::Result<u64> {
        Ok(self.index.metadata()?.len() / ENTRY_SIZE as u64)
    }

    fn entry(&self, number: u64) -> io::Result<Option<IndexEntry>> {
        let mut bytes = [0; ENTRY_SIZE];
        match self
            .index
            .read_exact_at(&mut bytes, number * ENTRY_SIZE as u64)
        {
            Ok(()) => Ok(Some(self.valid(&bytes))),
            Err(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Decodes an index entry. A damaged entry becomes one without bytes, which readers skip.
    fn valid(&self, bytes: &[u8; ENTRY_SIZE]) -> IndexEntry {
        let entry = IndexEntry::from_bytes(bytes).filter(|entry| entry.offset >= self.base);
        entry.unwrap_or(IndexEntry {
            offset: self.base,
            at_wall_ms: 0,
            len: 0,
            stream: Stream::Pty,
            dropped: 0,
        })
    }

    /// Reads from an offset in the data until `bytes` is full or the file ends. Returns the number of bytes.
    fn data_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match self.data.read_at(&mut bytes[read..], at + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(read)
    }

    /// Index of the first entry whose bytes reach beyond `at`.
    fn entry_at(&self, at: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.count()?);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? {
                Some(entry) if entry.end() <= at => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

/// Iterator over a log. It holds one segment open and at most one chunk in memory.
pub struct Pieces {
    log: Log,
    at: u64,
    end: u64,
    written: u64,
    only: Option<Stream>,
    segment: Option<Segment>,
    /// Number of the index entry to look at next.
    entry: u64,
}

impl Pieces {
    /// Offset of the next piece.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Sets the number of bytes that were written. The iterator ends there, even if more is known to have been written,
    /// and bytes before it that are not in the log are a gap.
    pub fn up_to(self, end: u64) -> Self {
        Pieces {
            end,
            written: end,
            ..self
        }
    }

    /// Raises the number of bytes that are known to have been written. Bytes below it that are not in the log are a
    /// gap.
    pub fn raise_written(&mut self, bytes: u64) {
        self.written = self.written.max(bytes);
    }

    /// Opens the files that hold the bytes from the current offset on, or will hold them, so that reading bytes that
    /// arrive later opens nothing.
    pub fn open_files(&mut self) -> io::Result<()> {
        self.find().map(drop)
    }

    /// Next piece, with at most `max` bytes; `None`: there is nothing more yet.
    pub fn next_within(&mut self, max: usize) -> io::Result<Option<Piece>> {
        let max = max.clamp(1, CHUNK_LIMIT) as u64;
        loop {
            let found = self.find()?;
            let offset = self.at;
            let Some(entry) = found else {
                return Ok((offset < self.written).then(|| self.gap(self.written)));
            };
            if entry.offset > offset {
                return Ok(Some(self.gap(entry.offset.min(self.end))));
            }
            if self.only.is_some_and(|only| only != entry.stream) {
                self.at = entry.end();
                continue;
            }
            let Some(segment) = &self.segment else {
                return Ok(None);
            };
            let mut bytes = vec![0; (entry.end() - offset).min(max) as usize];
            let read = segment.data_at(&mut bytes, offset - segment.base)?;
            if read == 0 {
                // After a power cut the index may have reached the disk without the bytes.
                return Ok(Some(self.gap(entry.end())));
            }
            bytes.truncate(read);
            self.at += read as u64;
            return Ok(Some(Piece::Chunk(Chunk {
                offset,
                at_wall_ms: entry.at_wall_ms,
                stream: entry.stream,
                dropped: entry.dropped,
                bytes,
            })));
        }
    }

    /// Bytes from the current offset on that are missing.
    fn gap(&mut self, to: u64) -> Piece {
        let from = std::mem::replace(&mut self.at, to);
        Piece::Gap { from, to }
    }

    /// First entry that has bytes at or beyond the current offset; its segment stays open.
    fn find(&mut self) -> io::Result<Option<IndexEntry>> {
        if self.at >= self.end {
            return Ok(None);
        }
        loop {
            if let Some(entry) = self.find_here()? {
                return Ok(Some(entry));
            }
            let Some(next) = self.beyond()? else {
                return Ok(None);
            };
            // A newer segment exists, so this one no longer grows: everything in it can be seen now.
            if let Some(entry) = self.find_here()? {
                return Ok(Some(entry));
            }
            self.entry = next.entry_at(self.at)?;
            self.segment = Some(next);
        }
    }

    fn find_here(&mut self) -> io::Result<Option<IndexEntry>> {
        let Some(segment) = &self.segment else {
            return Ok(None);
        };
        while let Some(entry) = segment.entry(self.entry)? {
            if entry.end() <= self.at {
                self.entry += 1;
                continue;
            }
            // The entry before may have grown until this one was begun.
            if entry.offset > self.at
                && self.entry > 0
                && let Some(before) = segment.entry(self.entry - 1)?
                && before.end() > self.at
            {
                self.entry -= 1;
                return Ok(Some(before));
            }
            return Ok(Some(entry));
        }
        // The last entry may still grow, so it is read again.
        self.entry = self.entry.saturating_sub(1);
        Ok(None)
    }

    /// Segment that holds the current offset, or the next existing one after a segment that was read to its end.
    fn beyond(&self) -> io::Result<Option<Segment>> {
        let bases = self.log.segments()?;
        let first = match &self.segment {
            Some(read) => bases.partition_point(|base| *base <= read.base),
            None => bases
                .partition_point(|base| *base <= self.at)
                .saturating_sub(1),
        };
        for base in &bases[first..] {
            if let Some(segment) = self.log.segment(*base)? {
                return Ok(Some(segment));
            }
        }
        Ok(None)
    }
}

impl Iterator for Pieces {
    type Item = io::Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_within(CHUNK_LIMIT).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::log::LogWriter;

    fn append(log: &mut LogWriter, stream: Stream, text: &str) {
        let (from, mut to) = io::pipe().unwrap();
        to.write_all(text.as_bytes()).unwrap();
        log.take(from.as_fd(), stream, text.len());
    }

    #[test]
    fn reading_up_to_an_offset_reports_no_gap_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = OwnedFd::from(File::open(folder.path()).unwrap());
        let mut writer = LogWriter::new(directory.into(), 1 << 30);
        append(&mut writer, Stream::Stdout, "begun ");
        append(&mut writer, Stream::Stderr, "four");
        append(&mut writer, Stream::Stdout, "ended\n");
        let log = Log::open(folder.path()).with_written(16);
        for only in [None, Some(Stream::Stdout), Some(Stream::Stderr)] {
            for end in 0..=16 {
                let mut pieces = log.pieces(0, only).up_to(end);
                assert!(
                    pieces.all(|piece| matches!(piece, Ok(Piece::Chunk(_)))),
                    "{only:?} up to {end}"
                );
            }
        }
    }

    #[test]
    fn gap_ends_where_reading_ends() {
        let folder = tempfile::tempdir().unwrap();
        let directory = OwnedFd::from(File::open(folder.path()).unwrap());
        let mut writer = LogWriter::new(directory.into(), 1 << 30);
        append(&mut writer, Stream::Stdout, "one\n");
        let gap = |written, end| {
            let log = Log::open(folder.path()).with_written(written);
            log.pieces(4, None).up_to(end).next()
        };
        for (written, end) in [(20, 10), (10, 10), (4, 10)] {
            let Some(Ok(Piece::Gap { from, to })) = gap(written, end) else {
                panic!("no gap of {written} up to {end}");
            };
            assert_eq!((from, to), (4, 10));
        }
        assert!(gap(20, 4).is_none());
    }
}
