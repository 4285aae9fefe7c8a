//! Secrets in output that is sent to a model byte by byte. They are overwritten, so that offsets and lengths stay.

use abide_output::mask::Mask;
use abide_session::log::{Chunk, Piece, Stream};

/// Bytes of earlier output that are searched together with new output, for a secret that lies across both.
const CONTEXT: usize = 4 << 10;

/// Most output that is held, in bytes from its first to the begin of its last piece.
const HELD_LIMIT: u64 = 64 << 10;

/// Mask for the output of a session, with the last output of each stream.
pub struct LogMask {
    mask: Mask,
    before: [(Stream, Vec<u8>); 3],
    /// Output that may be the beginning of a secret, and what follows it.
    held: Vec<Piece>,
}

impl LogMask {
    pub fn new(mask: Mask) -> Self {
        LogMask {
            mask,
            before: [Stream::Stdout, Stream::Stderr, Stream::Pty].map(|of| (of, Vec::new())),
            held: Vec::new(),
        }
    }

    /// Offset of the first byte that is held.
    pub fn held_from(&self) -> Option<u64> {
        self.held.first().map(Piece::offset)
    }

    /// Takes consecutive pieces of the log, and returns them with their secrets overwritten. What may be the beginning of
    /// a secret is held until more is taken, unless these pieces are the last.
    pub fn apply(&mut self, pieces: Vec<Piece>, are_last: bool) -> Vec<Piece> {
        let mut ready = std::mem::take(&mut self.held);
        ready.extend(pieces);
        let end = ready.last().map_or(0, Piece::offset);
        if !are_last
            && let Some(offset) = self.unfinished_from(&ready)
            && end.saturating_sub(offset) < HELD_LIMIT
        {
            self.held = split_off(&mut ready, offset);
        }
        self.overwrite(&mut ready);
        ready
    }

    /// Offset in the log from which on output is held.
    fn unfinished_from(&self, pieces: &[Piece]) -> Option<u64> {
        if !self.mask.has_secrets() {
            return None;
        }
        let of_stream = self.before.iter().filter_map(|(stream, before)| {
            let chunks = || {
                let chunks = pieces.iter().filter_map(Piece::chunk);
                chunks.filter(|chunk| chunk.stream == *stream)
            };
            let mut output = before.clone();
            chunks().for_each(|chunk| output.extend_from_slice(&chunk.bytes));
            let mut at = self
                .mask
                .find_unfinished(&output)?
                .saturating_sub(before.len());
            let chunk = chunks().find(|chunk| {
                let is_here = at < chunk.bytes.len();
                at -= if is_here { 0 } else { chunk.bytes.len() };
                is_here
            })?;
            Some(chunk.offset + at as u64)
        });
        of_stream.min()
    }

    fn overwrite(&mut self, pieces: &mut [Piece]) {
        for (stream, before) in &mut self.before {
            let mut output = std::mem::take(before);
            let mut at = output.len();
            for chunk in chunks_of(pieces, *stream) {
                output.extend_from_slice(&chunk.bytes);
            }
            let context = output[output.len().saturating_sub(CONTEXT)..].to_vec();
            self.mask.overwrite(&mut output);
            for chunk in chunks_of(pieces, *stream) {
                let end = at + chunk.bytes.len();
                chunk.bytes.copy_from_slice(&output[at..end]);
                at = end;
            }
            *before = context;
        }
    }
}

/// Splits off the pieces from an offset on.
fn split_off(pieces: &mut Vec<Piece>, offset: u64) -> Vec<Piece> {
    let first = pieces.partition_point(|piece| piece.offset() < offset);
    let mut rest = pieces.split_off(first);
    if let Some(Piece::Chunk(last)) = pieces.last_mut()
        && offset < last.offset + last.bytes.len() as u64
    {
        let bytes = last.bytes.split_off((offset - last.offset) as usize);
        let chunk = Chunk {
            offset,
            bytes,
            ..*last
        };
        rest.insert(0, Piece::Chunk(chunk));
    }
    rest
}

fn chunks_of(pieces: &mut [Piece], stream: Stream) -> impl Iterator<Item = &mut Chunk> {
    pieces.iter_mut().filter_map(move |piece| match piece {
        Piece::Chunk(chunk) if chunk.stream == stream => Some(chunk),
        Piece::Chunk(_) | Piece::Gap { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use abide_output::mask::fingerprint_secrets;

    use super::*;

    fn chunk(offset: u64, stream: Stream, text: &str) -> Piece {
        Piece::Chunk(Chunk {
            offset,
            at_wall_ms: 0,
            stream,
            dropped: 0,
            bytes: text.into(),
        })
    }

    fn text(pieces: &[Piece]) -> String {
        let texts = pieces.iter().map(|piece| match piece {
            Piece::Chunk(chunk) => String::from_utf8_lossy(&chunk.bytes).into_owned(),
            Piece::Gap { .. } => "|".into(),
        });
        texts.collect()
    }

    fn mask() -> LogMask {
        let secrets = fingerprint_secrets([("DB_PASSWORD", "correct-horse")], || [7; 16]);
        LogMask::new(Mask::of(Arc::new(secrets)))
    }

    #[test]
    fn secret_across_pieces_of_one_stream_is_overwritten() {
        let mut mask = mask();
        let pieces = vec![
            chunk(0, Stream::Stdout, "a corr"),
            chunk(6, Stream::Stderr, "b"),
            chunk(7, Stream::Stdout, "ect-horse c corr"),
        ];
        assert_eq!(text(&mask.apply(pieces, false)), "a ****b********* c corr");
        // Four bytes may be the beginning of anything.
        let pieces = vec![chunk(23, Stream::Stdout, "ect-horse d")];
        assert_eq!(text(&mask.apply(pieces, false)), "********* d");
    }

    #[test]
    fn beginning_of_a_secret_is_held_until_the_rest_comes() {
        for (rest, shown) in [("rse c", "**********b*** c"), ("me c", "correct-hobme c")] {
            let mut mask = mask();
            let pieces = vec![
                chunk(0, Stream::Stdout, "a "),
                Piece::Gap { from: 2, to: 3 },
                chunk(3, Stream::Stdout, "correct-ho"),
                chunk(13, Stream::Stderr, "b"),
            ];
            assert_eq!(text(&mask.apply(pieces, false)), "a |");
            assert_eq!(mask.held_from(), Some(3));
            assert_eq!(text(&mask.apply(Vec::new(), false)), "");
            let pieces = vec![chunk(14, Stream::Stdout, rest)];
            let ready = mask.apply(pieces, false);
            assert_eq!(text(&ready), shown);
            assert_eq!((ready[0].offset(), mask.held_from()), (3, None));
        }
        let mut mask = mask();
        let pieces = vec![chunk(0, Stream::Pty, "correct-ho")];
        assert_eq!(text(&mask.apply(pieces, false)), "");
        assert_eq!(text(&mask.apply(Vec::new(), true)), "correct-ho");
    }
}
