//! What front and daemon say to each other beside MCP, and the daemon's part of a loan.
//!
//! A front stands between its client and the daemon for one reason only: to take up again what a daemon
//! has left when it goes away. For as long as a daemon is there, a front that has nothing to do with a
//! line need not be woken for it. So it lends what its client writes to and reads from, and the daemon
//! notes in memory that both share what it took and what it answered. Whatever is out of the ordinary
//! (a batch, a very long line, the end) goes back to the front, which reads on where the daemon ended.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::BytesMut;
use memchr::memmem;

use super::batch;
use super::out::Out;
use crate::world::ledger::{Seen, Writer};
use crate::world::loan::{Input, Output, Stage};
use crate::world::stream::Stream;

/// How lines begin that are no message of MCP.
pub const ASIDE: &[u8] = b"!";
/// The daemon has read the hello, and takes loans.
pub const LENDS: &str = "!lends\n";
/// The daemon has not taken this one, and would not take another.
pub const REFUSE: &str = "!refuse\n";
/// The daemon gives a loan back.
pub const RETURN: &str = "!return\n";
/// The daemon wants the front to see what is noted.
pub const FOLD: &str = "!fold\n";

/// The daemon lives with what the front had said before it asked for this.
pub const ALIVE: &str = "!alive\n";

/// Longest line that a front says for itself.
const LONGEST: usize = 4_096;

/// What comes with a loan: input, output, memory, and both ends of the stage.
pub const HANDED: usize = 5;

/// What a front says to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// Its client's input and output come with this, the memory for the notes and the stage. So many bytes
    /// of the daemon's have left it.
    Lend(u64),
    /// So many have left it now.
    Passed(u64),
    /// It has seen so much of the notes.
    Seen(Seen),
    /// The request that follows is sent again, under this number.
    Again(u64),
    /// It wants to hear [`ALIVE`] when the daemon has lived for so many milliseconds with what came before this.
    Check(u64),
}

impl Aside {
    /// The line.
    pub fn line(self) -> String {
        match self {
            Aside::Lend(passed) => format!("!lend {passed}\n"),
            Aside::Passed(passed) => format!("!passed {passed}\n"),
            Aside::Seen(Seen { bytes, marks }) => format!("!seen {bytes} {marks}\n"),
            Aside::Again(number) => format!("!again {number}\n"),
            Aside::Check(millis) => format!("!check {millis}\n"),
        }
    }
}

/// Reads what a front says. `None`: it is not known here.
pub fn read(line: &[u8]) -> Option<Aside> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let word = words.next()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    match word {
        "!lend" => Some(Aside::Lend(number()?)),
        "!passed" => Some(Aside::Passed(number()?)),
        "!seen" => Some(Aside::Seen(Seen {
            bytes: usize::try_from(number()?).ok()?,
            marks: usize::try_from(number()?).ok()?,
        })),
        "!again" => Some(Aside::Again(number()?)),
        "!check" => Some(Aside::Check(number()?)),
        _ => None,
    }
}

/// Whether the front has to have a part in this: it puts batches together, and it keeps how a session
/// began. It takes it for granted that a line which may be one of these is one.
pub fn is_for_the_front(line: &[u8]) -> bool {
    batch::is_one(line) || holds_initialize(line)
}

fn holds_initialize(line: &[u8]) -> bool {
    const INITIALIZE: &[u8] = b"\"initialize\"";
    // To make ready for a quick search takes longer than to search a short line.
    match line.len() < 512 {
        true => line
            .windows(INITIALIZE.len())
            .any(|some| some == INITIALIZE),
        false => memmem::find(line, INITIALIZE).is_some(),
    }
}

/// A client's input, lent.
pub struct Loan {
    input: Input,
    /// What the front has said, up to the next end of a line.
    aside: BytesMut,
    chunk: [u8; 256],
}

/// What a loan brings.
pub enum Heard {
    /// Something from the client.
    Client,
    /// Lines from the front.
    Front(Vec<BytesMut>),
    /// No more from the client, or nothing that could be taken here.
    End,
    /// The connection to the front is gone.
    Lost,
}

impl Loan {
    /// Takes what the front has handed over: input, output and memory. `None`: it cannot be used.
    pub fn take(handed: Vec<OwnedFd>, out: &Arc<Out>, passed: u64) -> Option<Self> {
        let handed = <[OwnedFd; HANDED]>::try_from(handed).ok()?;
        let took = || -> io::Result<(Input, Output, Writer)> {
            let [input, output, memory, read, write] = handed;
            let output = Output::take(output, Stage::take(read, write)?)?;
            Ok((Input::take(input)?, output, Writer::open(&memory)?))
        };
        let (input, output, ledger) = took()
            .inspect_err(|e| tracing::debug!("what a front has lent cannot be used: {e}"))
            .ok()?;
        out.lent(output, ledger, passed);
        Some(Loan {
            input,
            aside: BytesMut::new(),
            chunk: [0; 256],
        })
    }

    /// Waits for more and puts it behind `read`. Nothing is lost where this is given up before its end.
    pub async fn hear(&mut self, front: &Stream, out: &Arc<Out>, read: &mut BytesMut) -> Heard {
        // The front reads no further from a client that does not read.
        if !out.has_room() && !out.is_seeing() {
            return Heard::End;
        }
        let full = out.with_ledger(|ledger| {
            let stuck = ledger.room() == 0 && ledger.is_all_needed();
            (stuck, ledger.is_nearly_full() && !ledger.is_all_needed())
        });
        match full {
            Some((true, _)) | None => return Heard::End,
            Some((false, true)) => out.show(),
            Some((false, false)) => {}
        }
        let take = |input: &Input| {
            let took = out.with_ledger(|ledger| {
                let count = ledger.read(|free| input.read_now(free), read)?;
                Ok((count, ledger.room() > 0))
            });
            took.unwrap_or(Ok((0, false)))
        };
        tokio::select! {
            biased;
            count = self.input.read(take), if !out.is_seeing() => match count {
                Ok(1..) => Heard::Client,
                Ok(0) | Err(_) => Heard::End,
            },
            count = front.read(&mut self.chunk) => match count {
                Ok(count @ 1..) if self.aside.len() <= LONGEST => {
                    self.aside.extend_from_slice(&self.chunk[..count]);
                    Heard::Front(self.lines())
                }
                Ok(_) | Err(_) => Heard::Lost,
            },
        }
    }

    /// The front has said this too. What of it are whole lines.
    pub fn put(&mut self, said: &[u8]) -> Vec<BytesMut> {
        self.aside.extend_from_slice(said);
        self.lines()
    }

    fn lines(&mut self) -> Vec<BytesMut> {
        let mut lines = Vec::new();
        while let Some(at) = memchr::memchr(b'\n', &self.aside) {
            lines.push(self.aside.split_to(at + 1));
        }
        lines
    }

    /// Ends it. What the front had begun to say is returned.
    pub fn give_back(self, out: &Out) -> BytesMut {
        out.end_loan();
        self.aside
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rmcp::model::JsonRpcMessage;
    use rmcp::transport::Transport;

    use super::*;
    use crate::door::mcp::hello::Hello;
    use crate::door::mcp::wire::Wire;
    use crate::world::ledger::Reader;
    use crate::world::stream::hand_over;

    const PING: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";

    #[tokio::test(flavor = "current_thread")]
    async fn what_a_front_says_behind_a_loan_is_no_word_of_its_clients() {
        let (ours, mut front) = UnixStream::pair().unwrap();
        let hello = Hello {
            lends: true,
            ..Hello::default()
        };
        let mut wire = Wire::new(Stream::new(ours).unwrap(), BytesMut::new(), &hello);
        let (input, mut client) = io::pipe().unwrap();
        let (_answers, output) = io::pipe().unwrap();
        let (_notes, memory) = Reader::create().unwrap();
        let stage = Stage::create().unwrap();
        let [read, write] = stage.ends();
        let handed = [input.as_fd(), output.as_fd(), memory.as_fd(), read, write];
        hand_over(&front, b"!lend 0\n!passed 0\n!pas", &handed).unwrap();
        client.write_all(PING).unwrap();
        let heard = wire.receive().await;
        assert!(matches!(heard, Some(JsonRpcMessage::Request(_))));

        // Nor does it say anything without an end.
        front.write_all(&[b'x'; 3 * LONGEST]).unwrap();
        assert!(wire.receive().await.is_none());
        drop(input);
        assert!(client.write_all(PING).is_err(), "its client is let go of");
        drop((wire, heard));
        let mut said = Vec::new();
        let _ = front.read_to_end(&mut said);
        assert_eq!(said, LENDS.as_bytes(), "nothing was refused");
    }

    #[test]
    fn what_a_front_says_is_read_as_it_was_meant() {
        let seen = Seen { bytes: 7, marks: 8 };
        for aside in [
            Aside::Lend(5),
            Aside::Passed(6),
            Aside::Seen(seen),
            Aside::Again(7),
            Aside::Check(8),
        ] {
            assert_eq!(read(aside.line().as_bytes()), Some(aside));
            assert!(aside.line().as_bytes().starts_with(ASIDE));
        }
        for odd in [
            "!",
            "!lend",
            "!lend x",
            "!seen 1",
            "!seen -1 2",
            "!other 1",
            "\u{0}",
        ] {
            assert_eq!(read(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn what_the_front_has_to_see_goes_back_to_it() {
        for (line, front) in [
            (r#"{"id":0,"method":"initialize"}"#, true),
            (r#" [{"id":0,"method":"ping"}]"#, true),
            (r#"{"method":"notifications/initialized"}"#, false),
            (r#"{"id":1,"method":"tools/call"}"#, false),
        ] {
            assert_eq!(is_for_the_front(line.as_bytes()), front, "{line}");
        }
    }
}
