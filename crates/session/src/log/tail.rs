//! The end of a session's log.

use std::io;
use std::path::Path;

use super::{Log, Piece};

/// Number of bytes at the end of the log that are searched for lines.
const REACH: u64 = 4 << 10;

/// Last line that is not empty. A line longer than `REACH` is cut at its front. If the log cannot be read, the error
/// is returned as the line.
pub fn last_line(folder: &Path) -> Vec<u8> {
    let (_, tail) = end_of(folder);
    let lines = tail.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines
        .rev()
        .find(|line| !line.trim_ascii().is_empty())
        .unwrap_or_default()
        .to_vec()
}

/// The last lines, at most `most`. A line of which only the end is within `REACH` is left out, unless it is the only
/// one.
pub fn last_lines(folder: &Path, most: usize) -> Vec<Vec<u8>> {
    let (whole, tail) = end_of(folder);
    let tail = tail.strip_suffix(b"\n").unwrap_or(&tail);
    if tail.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<&[u8]> = tail.split(|byte| *byte == b'\n').collect();
    if !whole && lines.len() > 1 {
        lines.remove(0);
    }
    let from = lines.len().saturating_sub(most);
    lines[from..].iter().map(|line| line.to_vec()).collect()
}

/// Last bytes of a log; the flag is true if they are the whole log.
fn end_of(folder: &Path) -> (bool, Vec<u8>) {
    let read = try_end_of(folder);
    read.unwrap_or_else(|fault| {
        (
            true,
            format!("[the log cannot be read: {fault}]").into_bytes(),
        )
    })
}

fn try_end_of(folder: &Path) -> io::Result<(bool, Vec<u8>)> {
    let log = Log::open(folder);
    let end = log.end()?;
    let from = end.saturating_sub(REACH);
    let mut pieces = log.pieces(from, None);
    let mut tail = Vec::new();
    while let Some(piece) = pieces.next_within(usize::MAX)? {
        if let Piece::Chunk(chunk) = piece {
            tail.extend_from_slice(&chunk.bytes);
        }
        if pieces.at() >= end {
            break;
        }
    }
    Ok((from == 0, tail))
}
