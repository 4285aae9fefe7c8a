//! Frame format of streamed output: `u8 kind | u32 length, little endian | payload`. Output is sent as
//! raw bytes; facts about it are sent as JSON or as little-endian integers.

use abide_api::{Id, Question, RunAccepted};
use abide_core::QuestionId;
pub use abide_session::log::Stream;
use bytes::{BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Media type of a body of frames.
pub const MEDIA_TYPE: &str = "application/vnd.abide.frames";
/// Longest payload, in bytes.
pub const PAYLOAD_LIMIT: usize = 1 << 20;
const HEAD: usize = 5;

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Session that the request created or joined.
    Accepted(RunAccepted),
    Output(Stream, Bytes),
    /// Log offset of the output that follows.
    Offset(u64),
    /// Arrival time of the output that follows, in Unix milliseconds.
    Time(u64),
    /// Number of bytes that are missing from the log here.
    Gap(u64),
    /// A question for a person.
    Question(Box<Question>),
    /// The question was answered or withdrawn.
    Closed(QuestionId),
    /// Outcome of a run, or end of followed output; always the last frame.
    Ended(Value),
}

/// Error: the bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid frame in the stream")]
pub struct InvalidFrame;

impl Frame {
    /// Encodes the frame.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode_to(&mut out);
        out.freeze()
    }

    /// Appends the encoded frame to `out`.
    pub fn encode_to(&self, out: &mut BytesMut) {
        match self {
            Frame::Accepted(accepted) => write_json(out, 1, accepted),
            Frame::Output(Stream::Stdout, bytes) => write_frame(out, 2, bytes),
            Frame::Output(Stream::Stderr, bytes) => write_frame(out, 3, bytes),
            Frame::Output(Stream::Pty, bytes) => write_frame(out, 4, bytes),
            Frame::Offset(offset) => write_frame(out, 5, &offset.to_le_bytes()),
            Frame::Question(question) => write_json(out, 6, question),
            Frame::Closed(id) => write_json(
                out,
                7,
                &ClosedQuestion {
                    question_id: Id(*id),
                },
            ),
            Frame::Ended(facts) => write_json(out, 8, facts),
            Frame::Gap(bytes) => write_frame(out, 9, &bytes.to_le_bytes()),
            Frame::Time(at) => write_frame(out, 10, &at.to_le_bytes()),
        }
    }

    /// Decodes the next frame and removes it from `arrived`; `None` if it is incomplete. Frames of an
    /// unknown kind are skipped, so that an older reader understands a newer writer.
    pub fn take_from(arrived: &mut BytesMut) -> Result<Option<Self>, InvalidFrame> {
        loop {
            let Some(head) = arrived.first_chunk::<HEAD>() else {
                return Ok(None);
            };
            let kind = head[0];
            let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if length > PAYLOAD_LIMIT {
                return Err(InvalidFrame);
            }
            if arrived.len() < HEAD + length {
                return Ok(None);
            }
            let payload = arrived.split_to(HEAD + length).split_off(HEAD).freeze();
            if let Some(frame) = Self::decode(kind, payload)? {
                return Ok(Some(frame));
            }
        }
    }

    fn decode(kind: u8, payload: Bytes) -> Result<Option<Self>, InvalidFrame> {
        Ok(Some(match kind {
            1 => Frame::Accepted(from_json(&payload)?),
            2 => Frame::Output(Stream::Stdout, payload),
            3 => Frame::Output(Stream::Stderr, payload),
            4 => Frame::Output(Stream::Pty, payload),
            5 => Frame::Offset(number(&payload)?),
            6 => Frame::Question(from_json(&payload)?),
            7 => Frame::Closed(from_json::<ClosedQuestion>(&payload)?.question_id.0),
            8 => Frame::Ended(from_json(&payload)?),
            9 => Frame::Gap(number(&payload)?),
            10 => Frame::Time(number(&payload)?),
            _ => return Ok(None),
        }))
    }
}

fn write_frame(out: &mut BytesMut, kind: u8, payload: &[u8]) {
    out.reserve(HEAD + payload.len());
    out.put_u8(kind);
    out.put_u32_le(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    out.put_slice(payload);
}

fn write_json(out: &mut BytesMut, kind: u8, payload: &impl Serialize) {
    write_frame(out, kind, &serde_json::to_vec(payload).unwrap_or_default());
}

fn from_json<T: DeserializeOwned>(payload: &[u8]) -> Result<T, InvalidFrame> {
    serde_json::from_slice(payload).map_err(|_| InvalidFrame)
}

fn number(payload: &[u8]) -> Result<u64, InvalidFrame> {
    payload
        .try_into()
        .map(u64::from_le_bytes)
        .map_err(|_| InvalidFrame)
}

/// Payload of [`Frame::Closed`].
#[derive(Deserialize, Serialize)]
struct ClosedQuestion {
    question_id: Id<QuestionId>,
}

#[cfg(test)]
mod tests {
    use abide_core::SessionId;
    use serde_json::json;

    use super::*;

    fn all() -> Vec<Frame> {
        vec![
            Frame::Accepted(RunAccepted {
                session_id: Id(SessionId::from_bits(7)),
                from: 40,
            }),
            Frame::Offset(1 << 40),
            Frame::Time(1_794_760_093_076),
            Frame::Output(Stream::Stdout, Bytes::from_static(b"a\0\xff")),
            Frame::Output(Stream::Stderr, Bytes::new()),
            Frame::Output(Stream::Pty, Bytes::from_static(b"\x1b[1m")),
            Frame::Gap(7),
            Frame::Closed(QuestionId::from_bits(7)),
            Frame::Ended(json!({"exit_code": 0})),
        ]
    }

    #[test]
    fn frames_decode_from_single_bytes() {
        let mut arrived = BytesMut::new();
        let mut seen = Vec::new();
        for byte in all().iter().flat_map(Frame::encode) {
            arrived.put_u8(byte);
            while let Some(frame) = Frame::take_from(&mut arrived).unwrap() {
                seen.push(frame);
            }
        }
        assert_eq!(seen, all());
        assert!(arrived.is_empty());
    }

    #[test]
    fn unknown_frame_kind_is_skipped() {
        let mut arrived = BytesMut::from(&b"\xc8\x02\0\0\0hi"[..]);
        arrived.extend_from_slice(&Frame::Offset(3).encode());
        assert_eq!(Frame::take_from(&mut arrived), Ok(Some(Frame::Offset(3))));
    }

    #[test]
    fn invalid_frame_length_is_an_error() {
        let mut arrived = BytesMut::from(&b"\x02\xff\xff\xff\xff"[..]);
        assert_eq!(Frame::take_from(&mut arrived), Err(InvalidFrame));
        let mut arrived = BytesMut::from(&b"\x05\x01\0\0\0x"[..]);
        assert_eq!(Frame::take_from(&mut arrived), Err(InvalidFrame));
    }
}
