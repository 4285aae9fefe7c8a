//! The end of a session's log.

use std::path::Path;

use super::log::{Log, Piece};

/// How far back a last line is looked for.
const REACH: u64 = 4 << 10;

/// The last line with anything in it, as bytes; a longer one than the reach is cut at its front.
pub fn last_line(folder: &Path) -> Vec<u8> {
    let log = Log::open(folder);
    let Ok(end) = log.end() else {
        return Vec::new();
    };
    let mut pieces = log.pieces(end.saturating_sub(REACH), None);
    let mut tail = Vec::new();
    while let Ok(Some(piece)) = pieces.next_within(usize::MAX) {
        if let Piece::Chunk(chunk) = piece {
            tail.extend_from_slice(&chunk.bytes);
        }
        if pieces.at() >= end {
            break;
        }
    }
    let lines = tail.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines
        .rev()
        .find(|line| !line.trim_ascii().is_empty())
        .unwrap_or_default()
        .to_vec()
}
