//! A session's log on disk: its format, its writer and its readers.
//!
//! The log is a row of segments in the directory `log`. A segment is two files named after the logical
//! offset of its first byte: the raw bytes in order of arrival, and an index of fixed-width entries that
//! record when each run of bytes arrived and from which stream. A byte exists for a reader once the index
//! covers it. The first segment is the head and is never deleted; behind it lie the newest tail segments.
//! Bytes that no index covers are a gap: the quota dropped them, or the disk refused them. Offsets never
//! change.

mod reader;
pub mod tail;
mod writer;

pub use reader::{CHUNK_LIMIT, Chunk, Log, Piece, Pieces};
pub use writer::{LogWriter, OutputRead, READ_SIZE};

/// Source of a chunk of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A terminal, which has only one output stream.
    Pty,
}

/// An index entry: a run of bytes that came from one stream at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Logical offset of its first byte.
    pub offset: u64,
    /// Wall time at which the first byte arrived.
    pub at_wall_ms: u64,
    /// Number of bytes.
    pub len: u32,
    /// Stream of the bytes.
    pub stream: Stream,
    /// Number of bytes before it that are not in the log.
    pub dropped: u64,
}

/// Size of an index entry on disk.
pub const ENTRY_SIZE: usize = 32;
/// Directory of the segments within a session's directory.
pub const LOG_FOLDER: &str = "log";

impl IndexEntry {
    /// Encodes the entry.
    pub fn to_bytes(self) -> [u8; ENTRY_SIZE] {
        let mut out = [0; ENTRY_SIZE];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..16].copy_from_slice(&self.at_wall_ms.to_le_bytes());
        out[16..24].copy_from_slice(&self.run_bytes());
        out[24..].copy_from_slice(&self.dropped.to_le_bytes());
        out
    }

    /// Offset after the last byte.
    pub fn end(self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// The part that changes when the entry grows: one aligned word, so a reader never sees it half written.
    fn run_bytes(self) -> [u8; 8] {
        let stream: u32 = match self.stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
            Stream::Pty => 2,
        };
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.len.to_le_bytes());
        out[4..].copy_from_slice(&stream.to_le_bytes());
        out
    }

    /// Decodes an entry. `None`: the bytes are no entry.
    pub fn from_bytes(bytes: &[u8; ENTRY_SIZE]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let (offset, run) = (word(0), word(16));
        let len = run as u32;
        offset.checked_add(u64::from(len))?;
        Some(IndexEntry {
            offset,
            at_wall_ms: word(8),
            len,
            dropped: word(24),
            stream: match run >> 32 {
                0 => Stream::Stdout,
                1 => Stream::Stderr,
                2 => Stream::Pty,
                _ => return None,
            },
        })
    }
}

/// File name of a segment's bytes.
pub fn data_name(base: u64) -> String {
    format!("{base:016x}")
}

/// File name of a segment's index.
pub fn index_name(base: u64) -> String {
    format!("{base:016x}.index")
}
