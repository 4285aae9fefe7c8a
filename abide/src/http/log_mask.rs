//! Secrets in output that is sent to a model byte by byte. They are overwritten, so that offsets and lengths stay.

use abide_output::mask::Mask;
use abide_session::log::{Chunk, Piece, Stream};

/// Bytes of earlier output that are searched together with new output, for a secret that lies across both.
const CONTEXT: usize = 4 << 10;

/// Mask for the output of a session, with the last output of each stream.
pub struct LogMask {
    mask: Mask,
    before: [(Stream, Vec<u8>); 3],
}

impl LogMask {
    pub fn new(mask: Mask) -> Self {
        LogMask {
            mask,
            before: [Stream::Stdout, Stream::Stderr, Stream::Pty].map(|of| (of, Vec::new())),
        }
    }

    /// Overwrites the secrets in consecutive pieces of the log.
    pub fn apply(&mut self, pieces: &mut [Piece]) {
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

    fn chunk(stream: Stream, text: &str) -> Piece {
        Piece::Chunk(Chunk {
            offset: 0,
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

    #[test]
    fn secret_across_pieces_of_one_stream_is_overwritten() {
        let secrets = fingerprint_secrets([("DB_PASSWORD", "correct-horse")], || [7; 16]);
        let mut mask = LogMask::new(Mask::of(Arc::new(secrets)));
        let mut pieces = [
            chunk(Stream::Stdout, "a corr"),
            chunk(Stream::Stderr, "b"),
            chunk(Stream::Stdout, "ect-horse c corr"),
        ];
        mask.apply(&mut pieces);
        assert_eq!(text(&pieces), "a ****b********* c corr");
        let mut pieces = [chunk(Stream::Stdout, "ect-horse d")];
        mask.apply(&mut pieces);
        assert_eq!(text(&pieces), "********* d");
    }
}
