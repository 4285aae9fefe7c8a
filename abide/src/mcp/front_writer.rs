//! Writer of the daemon for one connection of a front.
//!
//! A client that reads slowly slows down its own calls only. While too much is unsent ([`BACKLOG_LIMIT`]), no call
//! of this client begins and no answer is rendered for it; its commands keep running.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Buf, BytesMut};
use rmcp::model::ServerJsonRpcMessage;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::json_line::encode;
use abide_engine::stream::Stream;
use abide_session::crash_point;

/// Unsent bytes from which on no further answer is rendered.
const BACKLOG_LIMIT: usize = 4 << 20;
/// Limit on answers of one connection that are rendered at the same time.
const RENDER_LIMIT: usize = 8;
/// Unsent bytes from which on the connection is closed. Answers wait long before that, and a front stops reading from a
/// client that does not read, so only a connection that does not behave like a front is closed.
const UNSENT_LIMIT: usize = 64 << 20;

/// Writer of one connection. A line is written at once if the socket has room; the rest follows in order.
pub struct FrontWriter {
    stream: Arc<Stream>,
    unsent: Mutex<BytesMut>,
    permits: Arc<Semaphore>,
    /// Notified when the unsent bytes fall below [`BACKLOG_LIMIT`].
    drained: Notify,
    /// Cancelled when the connection is lost.
    pub lost: CancellationToken,
}

/// Permit to render one answer, held until the answer is pushed.
pub type RenderPermit = OwnedSemaphorePermit;

impl FrontWriter {
    /// Writer of this connection.
    pub fn new(stream: Arc<Stream>) -> Arc<Self> {
        Arc::new(FrontWriter {
            stream,
            unsent: Mutex::default(),
            permits: Arc::new(Semaphore::new(RENDER_LIMIT)),
            drained: Notify::new(),
            lost: CancellationToken::new(),
        })
    }

    /// True if another answer may be rendered now.
    pub fn has_room(&self) -> bool {
        self.unsent().len() < BACKLOG_LIMIT
    }

    /// Waits until another answer may be rendered. `false`: the connection is lost.
    pub async fn wait_for_room(&self) -> bool {
        loop {
            let mut drained = pin!(self.drained.notified());
            drained.as_mut().enable();
            if self.has_room() {
                return true;
            }
            tokio::select! {
                () = drained => {}
                () = self.lost.cancelled() => return false,
            }
        }
    }

    /// Waits for a permit to render an answer. `None`: the connection is lost.
    pub async fn render_permit(&self) -> Option<RenderPermit> {
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        self.wait_for_room().await.then_some(permit)
    }

    fn unsent(&self) -> MutexGuard<'_, BytesMut> {
        self.unsent.lock().expect("no holder panics")
    }

    /// Sends a message. `false`: the connection is lost.
    pub fn send(self: &Arc<Self>, message: &ServerJsonRpcMessage) -> bool {
        let sent = encode(message).is_ok_and(|line| self.send_line(line));
        if !sent {
            self.close();
        }
        sent
    }

    /// Sends an encoded message. `false`: the connection is lost.
    pub fn send_line(self: &Arc<Self>, line: Vec<u8>) -> bool {
        crash_point("mcp.answer");
        let sent = self.push(line).is_ok();
        crash_point("mcp.sent");
        sent
    }

    /// Closes the connection for both sides.
    pub fn close(&self) {
        self.lost.cancel();
        self.stream.close();
    }

    pub fn send_control(self: &Arc<Self>, line: &str) {
        // The task that reads the connection notices if it is broken.
        let _ = self.push(line.into());
    }

    fn push(self: &Arc<Self>, mut line: Vec<u8>) -> io::Result<()> {
        let mut unsent = self.unsent();
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

    /// Writes the unsent bytes. If writing fails, the connection is closed, so that the front reconnects and
    /// replays its unanswered requests.
    async fn flush(self: Arc<Self>) {
        while self.stream.writable().await.is_ok() {
            let mut unsent = self.unsent();
            let Ok(sent) = self.stream.write_now(&unsent) else {
                break;
            };
            let before = unsent.len();
            unsent.advance(sent);
            let left = unsent.len();
            if before >= BACKLOG_LIMIT && left < BACKLOG_LIMIT {
                self.drained.notify_waiters();
            }
            if left == 0 {
                // The memory of a backlog is released.
                *unsent = BytesMut::new();
                return;
            }
        }
        self.close();
    }
}
