//! Frames of a link, and the state of one end of it. Nothing here does I/O or reads a clock.
//!
//! A link is two streams of bytes between two machines, one in each direction. The bytes travel as numbered frames in
//! rows of the database. Rows may come twice or not at all, and may have been changed there: what is inside is
//! encrypted and authenticated, so that a changed frame ends the link and does no other harm.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

/// Largest frame in bytes, with its head.
pub const MAX_FRAME: usize = 64 << 10;
/// Bytes of the head: version, kind, and the newest number that the sender has taken.
const HEAD: usize = 10;
/// Largest number of bytes that one frame carries.
pub const MAX_PAYLOAD: usize = MAX_FRAME - HEAD;
/// Frames that may be under way in one direction, or wait for the reader of the stream.
pub const WINDOW: u64 = 16;
/// Frames that are taken before the sender is told so.
const ACK_EVERY: u64 = WINDOW / 2;
/// Version of the format.
const VERSION: u8 = 1;
/// Number of a frame that answers for a link which is not known. It is behind every other number.
pub const RESET_NUMBER: u64 = i64::MAX as u64;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// First frame of the machine that opens the link.
    Open,
    /// Bytes of the stream.
    Data,
    /// Only tells which frames were taken.
    Ack,
    /// Asks the other end to answer.
    Ping,
    /// End of the stream of the sender.
    End,
    /// The link is not known, or broken.
    Reset,
}

/// Frame of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    /// Number of frames of the other direction that the sender has taken.
    pub taken: u64,
    /// Bytes, in [`Kind::Open`] and [`Kind::Data`].
    pub payload: Bytes,
}

/// Fault of a frame or of the order of frames. The link cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The row is no frame of this version.
    #[error("a frame is malformed")]
    Malformed,
    /// A frame is missing.
    #[error("a frame is missing")]
    Missing,
    /// The other end acknowledges frames that were not sent, or sends more than the window allows.
    #[error("the other machine does not keep the rules of a link")]
    Rules,
    /// The other end does not know the link any more.
    #[error("the other machine has closed the link")]
    Reset,
}

impl Frame {
    /// Bytes of a row.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.payload.len());
        bytes.push(VERSION);
        bytes.push(match self.kind {
            Kind::Open => 0,
            Kind::Data => 1,
            Kind::Ack => 2,
            Kind::Ping => 3,
            Kind::End => 4,
            Kind::Reset => 5,
        });
        bytes.extend_from_slice(&self.taken.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Reads the bytes of a row.
    pub fn decode(bytes: &[u8]) -> Result<Self, Broken> {
        let (head, payload) = bytes.split_first_chunk::<HEAD>().ok_or(Broken::Malformed)?;
        let [version, kind, taken @ ..] = *head;
        if version != VERSION || bytes.len() > MAX_FRAME {
            return Err(Broken::Malformed);
        }
        let kind = match kind {
            0 => Kind::Open,
            1 => Kind::Data,
            2 => Kind::Ack,
            3 => Kind::Ping,
            4 => Kind::End,
            5 => Kind::Reset,
            _ => return Err(Broken::Malformed),
        };
        let carries = matches!(kind, Kind::Open | Kind::Data);
        if !carries && !payload.is_empty() {
            return Err(Broken::Malformed);
        }
        Ok(Frame {
            kind,
            taken: u64::from_be_bytes(taken),
            payload: Bytes::copy_from_slice(payload),
        })
    }

    /// Answer for a link that is not known.
    pub fn reset() -> Self {
        Frame {
            kind: Kind::Reset,
            taken: 0,
            payload: Bytes::new(),
        }
    }
}

/// One end of a link.
#[derive(Debug, Default)]
pub struct End {
    /// Number of the next frame to send.
    next_out: u64,
    /// Frames that the other end has taken.
    acknowledged: u64,
    /// Number of the next frame that arrives.
    next_in: u64,
    /// Bytes that the reader of the stream has not taken yet, with the numbers of their frames. A reader that stops
    /// holds up the bytes behind it only: everything else that arrives is handled, and pings are answered.
    unread: VecDeque<(u64, Bytes)>,
    /// Number of frames that were taken, as the other end knows it.
    told: u64,
    /// True if the other end has asked for an answer.
    asked: bool,
    /// True if the stream of the other end has ended.
    ended: bool,
}

impl End {
    /// True if a frame with bytes may be sent now.
    pub fn may_send(&self) -> bool {
        self.next_out.saturating_sub(self.acknowledged) < WINDOW
    }

    /// True if the other end has to be told which frames were taken.
    pub fn must_acknowledge(&self) -> bool {
        self.asked || self.taken().saturating_sub(self.told) >= ACK_EVERY
    }

    /// Number of frames that were taken, in order. One with bytes is taken when they were read.
    fn taken(&self) -> u64 {
        self.unread
            .front()
            .map_or(self.next_in, |(number, _)| *number)
    }

    /// Next bytes for the reader of the stream.
    pub fn unread(&self) -> Option<Bytes> {
        self.unread.front().map(|(_, bytes)| bytes.clone())
    }

    /// Notes that the reader has taken this many of the next bytes.
    pub fn read(&mut self, length: usize) {
        if let Some((_, bytes)) = self.unread.front_mut() {
            bytes.advance(length.min(bytes.len()));
            if bytes.is_empty() {
                self.unread.pop_front();
            }
        }
    }

    /// True if the stream of the other end has ended, and all of it was read.
    pub fn is_complete(&self) -> bool {
        self.ended && self.unread.is_empty()
    }

    /// Next frame to send, with its number.
    pub fn send(&mut self, kind: Kind, payload: Bytes) -> (u64, Frame) {
        let number = self.next_out;
        self.next_out += 1;
        let taken = self.taken();
        self.told = taken;
        self.asked = false;
        (
            number,
            Frame {
                kind,
                taken,
                payload,
            },
        )
    }

    /// Handles the frame with this number. One that has arrived before is ignored.
    pub fn arrived(&mut self, number: u64, frame: Frame) -> Result<(), Broken> {
        if frame.kind == Kind::Reset {
            return Err(Broken::Reset);
        }
        if number < self.next_in {
            return Ok(());
        }
        if number > self.next_in {
            return Err(Broken::Missing);
        }
        if frame.taken > self.next_out {
            return Err(Broken::Rules);
        }
        self.acknowledged = self.acknowledged.max(frame.taken);
        self.next_in += 1;
        match frame.kind {
            Kind::Open | Kind::Data if frame.payload.is_empty() => {}
            Kind::Open | Kind::Data if self.unread.len() as u64 >= WINDOW => {
                return Err(Broken::Rules);
            }
            Kind::Open | Kind::Data => self.unread.push_back((number, frame.payload)),
            Kind::Ping => self.asked = true,
            Kind::Ack => {}
            Kind::End => self.ended = true,
            Kind::Reset => return Err(Broken::Reset),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    /// Bytes that wait for the reader, all of which are read.
    fn read(end: &mut End) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = end.unread() {
            all.extend_from_slice(&bytes);
            end.read(bytes.len());
        }
        all
    }

    #[test]
    fn frames_in_order_give_the_bytes_and_a_repeated_one_gives_none() {
        let (mut near, mut far) = (End::default(), End::default());
        let (first, open) = near.send(Kind::Open, data("a"));
        let (second, more) = near.send(Kind::Data, data("b"));
        far.arrived(first, open.clone()).unwrap();
        far.arrived(first, open).unwrap();
        far.arrived(second, more).unwrap();
        assert_eq!(read(&mut far), b"ab");
    }

    #[test]
    fn missing_frame_breaks_the_link() {
        let (mut near, mut far) = (End::default(), End::default());
        near.send(Kind::Open, data("a"));
        let (second, more) = near.send(Kind::Data, data("b"));
        assert_eq!(far.arrived(second, more), Err(Broken::Missing));
    }

    /// Sends frames until the window is full, all of which arrive.
    fn fill(near: &mut End, far: &mut End) -> u64 {
        let mut sent = 0;
        while near.may_send() {
            let (number, frame) = near.send(Kind::Data, data("x"));
            far.arrived(number, frame).unwrap();
            sent += 1;
        }
        sent
    }

    #[test]
    fn full_window_stops_the_sender_until_frames_are_read() {
        let (mut near, mut far) = (End::default(), End::default());
        assert_eq!(fill(&mut near, &mut far), WINDOW);
        assert!(!far.must_acknowledge());
        assert_eq!(read(&mut far).len() as u64, WINDOW);
        assert!(far.must_acknowledge());
        let (number, ack) = far.send(Kind::Ack, Bytes::new());
        assert!(!far.must_acknowledge());
        near.arrived(number, ack).unwrap();
        assert!(near.may_send());
        assert!(!near.must_acknowledge());
    }

    #[test]
    fn bytes_that_are_not_read_give_no_room_for_more() {
        let (mut near, mut far) = (End::default(), End::default());
        fill(&mut near, &mut far);
        let (number, frame) = near.send(Kind::Data, data("x"));
        assert_eq!(far.arrived(number, frame), Err(Broken::Rules));
    }

    #[test]
    fn ping_is_answered_at_once_also_if_nothing_is_read() {
        let (mut near, mut far) = (End::default(), End::default());
        fill(&mut near, &mut far);
        for _ in 0..2 * WINDOW {
            let (number, ping) = near.send(Kind::Ping, Bytes::new());
            far.arrived(number, ping).unwrap();
            assert!(far.must_acknowledge());
            let (number, ack) = far.send(Kind::Ack, Bytes::new());
            near.arrived(number, ack).unwrap();
            assert!(!near.may_send());
        }
        read(&mut far);
        let (number, ack) = far.send(Kind::Ack, Bytes::new());
        near.arrived(number, ack).unwrap();
        assert!(near.may_send());
    }

    #[test]
    fn end_of_the_stream_comes_after_its_bytes() {
        let (mut near, mut far) = (End::default(), End::default());
        for (kind, bytes) in [(Kind::Open, data("a")), (Kind::End, Bytes::new())] {
            let (number, frame) = near.send(kind, bytes);
            far.arrived(number, frame).unwrap();
        }
        assert!(!far.is_complete());
        read(&mut far);
        assert!(far.is_complete());
    }

    #[test]
    fn acknowledgement_of_frames_that_were_not_sent_breaks_the_link() {
        let frame = Frame {
            kind: Kind::Ack,
            taken: 1,
            payload: Bytes::new(),
        };
        assert_eq!(End::default().arrived(0, frame), Err(Broken::Rules));
    }

    proptest! {
        #[test]
        fn random_bytes_are_a_frame_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert_eq!(frame.encode(), bytes);
            }
        }

        #[test]
        fn random_frames_never_give_a_byte_twice(
            frames in prop::collection::vec((0u64..4, 0u8..6, 0u64..3), 0..40)
        ) {
            let mut end = End::default();
            let mut arrived = 0;
            for (number, kind, acknowledged) in frames {
                let mut bytes = vec![VERSION, kind];
                bytes.extend_from_slice(&acknowledged.to_be_bytes());
                let Ok(frame) = Frame::decode(&bytes) else { continue };
                if end.arrived(number, frame).is_err() {
                    break;
                }
                if let Some(bytes) = end.unread() {
                    prop_assert!(number >= arrived);
                    arrived = number + 1;
                    end.read(bytes.len());
                }
            }
        }
    }

    #[test]
    fn frame_larger_than_the_limit_is_malformed() {
        let frame = Frame {
            kind: Kind::Data,
            taken: 3,
            payload: Bytes::from(vec![0; MAX_PAYLOAD]),
        };
        let mut bytes = frame.encode();
        assert_eq!(Frame::decode(&bytes), Ok(frame));
        bytes.push(0);
        assert_eq!(Frame::decode(&bytes), Err(Broken::Malformed));
    }
}
