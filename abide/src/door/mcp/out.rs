//! The way out of the daemon to one client: through its front, or, where the front has lent the client's
//! own output, straight to the client.
//!
//! A client that reads slowly slows down its own calls only. While too much is unsent ([`BACKLOG`]), no
//! call of this client begins and no answer is rendered for it; its commands run on meanwhile.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Buf, BytesMut};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::world::ledger::{Mark, Seen, Writer};
use crate::world::loan::{Gone, Output, WHOLE};
use crate::world::stream::Stream;

/// Unsent bytes from which on no further answer is made.
const BACKLOG: usize = 4 << 20;
/// Answers of one connection that are rendered at the same time.
const RENDERED: usize = 8;
/// Unsent bytes from which on the connection is closed. Answers wait long before, and a front stops reading
/// from a client that does not read, so this closes only connections that no front of ours has opened.
const UNSENT_LIMIT: usize = 64 << 20;

/// What a line is for whoever has to take up again what a daemon has left.
#[derive(Clone, Copy, Debug)]
pub enum Weight {
    /// Nothing follows from it.
    None,
    /// It is something to mark.
    Marked(Mark),
    /// The front has to read it.
    Front,
}

/// One connection's way out. A line leaves at once where there is room for it; the rest follows in order.
pub struct Out {
    stream: Arc<Stream>,
    state: Mutex<State>,
    turns: Arc<Semaphore>,
    /// Fewer bytes than [`BACKLOG`] are unsent again.
    drained: Notify,
}

/// Leave to render one answer, until the answer is pushed.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

#[derive(Default)]
struct State {
    unsent: BytesMut,
    /// Bytes of all lines that went to the front, or are about to.
    sent: u64,
    /// Those of them of which the front has said that they have left it.
    passed: u64,
    loan: Option<Lent>,
}

/// The client's output, and where is noted what went there.
struct Lent {
    output: Output,
    ledger: Writer,
    /// The front is seeing what is noted; nothing changes meanwhile.
    seeing: bool,
}

impl Out {
    /// Through a front.
    pub fn new(stream: Arc<Stream>) -> Arc<Self> {
        Arc::new(Out {
            stream,
            state: Mutex::default(),
            turns: Arc::new(Semaphore::new(RENDERED)),
            drained: Notify::new(),
        })
    }

    /// Whether another answer may be made now.
    pub fn has_room(&self) -> bool {
        self.state().unsent.len() < BACKLOG
    }

    /// Waits until another answer may be made. It never ends where the connection is lost.
    pub async fn room(&self) {
        loop {
            let mut drained = pin!(self.drained.notified());
            drained.as_mut().enable();
            if self.has_room() {
                return;
            }
            drained.await;
        }
    }

    /// Waits for the turn to render an answer. `None`: never.
    pub async fn turn(&self) -> Option<Turn> {
        let turn = self.turns.clone().acquire_owned().await.ok()?;
        self.room().await;
        Some(Turn(turn))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Says a line.
    pub fn push(self: &Arc<Self>, line: Vec<u8>, weight: Weight) -> io::Result<()> {
        let mut state = self.state();
        let line = match state.give(&line, weight) {
            Gone::Whole => return Ok(()),
            Gone::Not => line,
            Gone::Without(rest) => rest,
        };
        state.sent += line.len() as u64;
        self.send(&mut state, line)
    }

    /// Closes the connection for both sides.
    pub fn close(&self) {
        self.stream.close();
    }

    /// Says something to the front itself.
    pub fn tell_front(self: &Arc<Self>, line: &str) {
        let mut state = self.state();
        // A connection that is broken is noticed by whoever reads from it.
        let _ = self.send(&mut state, line.into());
    }

    fn send(self: &Arc<Self>, state: &mut State, mut line: Vec<u8>) -> io::Result<()> {
        let unsent = &mut state.unsent;
        if !unsent.is_empty() {
            if unsent.len() > UNSENT_LIMIT {
                return Err(io::Error::other("the client does not read its answers"));
            }
            unsent.extend_from_slice(&line);
            return Ok(());
        }
        let sent = self.stream.write_now(&line)?;
        if sent < line.len() {
            unsent.extend_from_slice(&line.split_off(sent));
            tokio::spawn(self.clone().flush());
        }
        Ok(())
    }

    async fn flush(self: Arc<Self>) {
        while self.stream.writable().await.is_ok() {
            let mut state = self.state();
            let Ok(sent) = self.stream.write_now(&state.unsent) else {
                return;
            };
            let before = state.unsent.len();
            state.unsent.advance(sent);
            let left = state.unsent.len();
            if before >= BACKLOG && left < BACKLOG {
                self.drained.notify_waiters();
            }
            if left == 0 {
                // The memory of a backlog is not kept.
                state.unsent = BytesMut::new();
                return;
            }
        }
    }

    // ---- the loan

    /// The client's output is lent. Of what was said before, so much has left the front.
    pub fn lent(&self, output: Output, ledger: Writer, passed: u64) {
        let mut state = self.state();
        state.passed = passed;
        state.loan = Some(Lent {
            output,
            ledger,
            seeing: false,
        });
    }

    /// So many bytes have left the front.
    pub fn passed(&self, bytes: u64) {
        self.state().passed = bytes;
    }

    /// The loan is over.
    pub fn end_loan(&self) {
        self.state().loan = None;
    }

    /// What is noted of the loan, where there is one.
    pub fn with_ledger<T>(&self, act: impl FnOnce(&mut Writer) -> T) -> Option<T> {
        let mut state = self.state();
        state.loan.as_mut().map(|loan| act(&mut loan.ledger))
    }

    /// Has the front see what is noted, so that there is room for more.
    pub fn show(self: &Arc<Self>) {
        let begun = self.state().loan.as_mut().is_some_and(|loan| {
            let begins = !loan.seeing;
            loan.seeing = true;
            begins
        });
        if begun {
            self.tell_front(super::lend::FOLD);
        }
    }

    /// Whether the front is seeing what is noted.
    pub fn is_seeing(&self) -> bool {
        self.state().loan.as_ref().is_some_and(|loan| loan.seeing)
    }

    /// The front has seen so much.
    pub fn seen(&self, seen: Seen) {
        if let Some(loan) = &mut self.state().loan
            && std::mem::take(&mut loan.seeing)
        {
            loan.ledger.turn(seen);
        }
    }
}

impl State {
    /// Gives the line to the client, where that is lent and nothing is on its way through the front.
    fn give(&mut self, line: &[u8], weight: Weight) -> Gone {
        let nothing_before = self.unsent.is_empty() && self.sent == self.passed;
        let Some(loan) = self.loan.as_mut().filter(|loan| !loan.seeing) else {
            return Gone::Not;
        };
        if !nothing_before || line.len() > WHOLE || !loan.ledger.can_mark() {
            return Gone::Not;
        }
        match weight {
            Weight::Front => Gone::Not,
            Weight::None if loan.output.tell(line) => Gone::Whole,
            Weight::None => Gone::Not,
            Weight::Marked(mark) => {
                let note = |ledger: &mut Writer| ledger.mark(mark);
                loan.output
                    .give(line, &mut loan.ledger, note, Writer::unmark)
            }
        }
    }
}
