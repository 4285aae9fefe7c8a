//! MCP over standard input and output: the daemon's side of the connections of fronts.
//!
//! Every request is answered under its id, also one that cannot be decoded or reuses an id in use.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{Agent, Millis};
use tokio::net::UnixListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client;
use super::client_channel::Sink;
use super::control::{self, ControlLine};
use super::decode::{self, DecodeError};
use super::dispatch::Connection;
use super::front_hello::{self, FrontHello};
use super::front_writer::FrontWriter;
use super::in_flight::Forwarded;
use super::json_line::{MESSAGE_LIMIT, error_line};
use super::line_splitter::{LineSplitter, SplitLine};
use super::origin::Origin;
use super::outline::{BOM, MessageKind, Outline};
use super::round_codec::RoundCodec;
use super::server::Server;
use crate::listener::accept_own;
use abide_engine::Handle;
use abide_engine::clock::pause;
use abide_engine::peer::Peer;
use abide_engine::stream::Stream;
use abide_session::crash_point;

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;
/// Distance between the first ids of the daemon's own requests on two connections of a front. An answer to a
/// request of an earlier connection can thus never be taken for the answer to another one.
const IDS_PER_CONNECTION: i64 = 1_000_000;

const BATCH_REFUSED: &str = "batches are not supported; send each message on a line of its own";
const INVALID_ID: &str = "the id of a request must be text or a whole number";

/// Limit on fronts connected at once.
const FRONT_LIMIT: usize = 1_024;

/// Serves every front that connects. `codec` protects the state that clients carry between two rounds of a call.
pub async fn serve(listener: UnixListener, handle: Handle, codec: Arc<RoundCodec>) {
    let slots = Arc::new(Semaphore::new(FRONT_LIMIT));
    loop {
        let stream = accept_own(&listener).await;
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            tracing::warn!("{FRONT_LIMIT} fronts are connected already; one more was refused");
            continue;
        };
        let peer = Peer::of_socket(&stream);
        match stream.into_std().and_then(Stream::new) {
            Ok(stream) => drop(tokio::spawn(serve_connection(
                stream,
                peer,
                handle.clone(),
                codec.clone(),
                slot,
            ))),
            Err(e) => tracing::warn!("a front could not be served: {e}"),
        }
    }
}

/// Serves one connection, from its hello to its end.
async fn serve_connection(
    stream: Stream,
    peer: Peer,
    handle: Handle,
    codec: Arc<RoundCodec>,
    _slot: OwnedSemaphorePermit,
) {
    let Some((mut hello, opening)) = Opening::hello(stream).await else {
        tracing::debug!("a connection that did not say hello was closed");
        return;
    };
    hello.agent = handle.agent_called(&hello.agent).0.to_string();
    let _connection = handle.clients().add_connection(&hello.agent, &hello.front);
    if let Some(client) = client::behind_front(&hello) {
        let agent = Agent(hello.agent.as_str().into());
        handle.client_seen(&agent, client, Some(&hello.front));
    }
    let (agent, conversation) = (
        Agent(hello.agent.as_str().into()),
        client::conversation(&hello),
    );
    let origin = Arc::new(client::origin_of_front(hello.clone(), peer));
    let server = Server::new(handle, codec);
    server.join_conversation(&agent, &conversation).await;
    FrontConnection::new(&opening, &hello, server, origin)
        .run(opening)
        .await;
}

/// Connection of a front before MCP begins.
pub struct Opening {
    stream: Arc<Stream>,
    chunk: Box<[u8]>,
    lines: LineSplitter,
}

impl Opening {
    /// Reads the front's hello. `None`: the first line is no hello, or the connection ended before.
    pub async fn hello(stream: Stream) -> Option<(FrontHello, Self)> {
        let mut opening = Opening {
            stream: Arc::new(stream),
            chunk: vec![0; READ_BYTES].into(),
            lines: LineSplitter::new(front_hello::LINE_LIMIT),
        };
        let hello = loop {
            match opening.lines.next(false) {
                Some(SplitLine::Line(line)) => break FrontHello::read(line)?,
                Some(SplitLine::TooLong) => return None,
                None => opening.fill().await?,
            }
        };
        opening.lines.set_limit(MESSAGE_LIMIT);
        Some((hello, opening))
    }

    /// Reads more bytes. `None`: the connection has ended.
    async fn fill(&mut self) -> Option<()> {
        let count = self.stream.read(&mut self.chunk).await.ok()?;
        self.lines.put(&self.chunk[..count]);
        (count > 0).then_some(())
    }
}

/// Connection of one front, from its hello on.
struct FrontConnection {
    connection: Connection,
    origin: Arc<Origin>,
    writer: Arc<FrontWriter>,
    numbers: Numbers,
}

/// Numbers of requests, counted in the same way as the front counts them.
struct Numbers {
    /// Facts about the next request, if it is replayed.
    replayed: Option<Forwarded>,
    /// Number of the next other request.
    next: u64,
}

impl Numbers {
    fn take(&mut self) -> Forwarded {
        self.replayed.take().unwrap_or_else(|| {
            self.next += 1;
            Forwarded {
                ordinal: self.next - 1,
                age: Millis(0),
            }
        })
    }
}

impl FrontConnection {
    /// Accepts the connection of the front that sent this hello.
    fn new(opening: &Opening, hello: &FrontHello, server: Server, origin: Arc<Origin>) -> Self {
        let writer = FrontWriter::new(opening.stream.clone());
        writer.send_control(control::ACCEPTED);
        // Ids do not start at zero: the official TypeScript library takes the cancellation of request 0 for
        // one without an id, and would keep showing the question.
        let first = i64::from(hello.connection) * IDS_PER_CONNECTION + 1;
        FrontConnection {
            connection: Connection::new(server, Sink::Front(writer.clone()), first),
            origin,
            writer,
            numbers: Numbers {
                replayed: None,
                next: hello.next,
            },
        }
    }

    /// Serves the connection until it ends.
    async fn run(mut self, mut opening: Opening) {
        loop {
            while let Some(piece) = opening.lines.next(false) {
                match piece {
                    SplitLine::Line(line) if line.starts_with(control::PREFIX) => {
                        self.control(line)
                    }
                    SplitLine::Line(line) => {
                        crash_point("mcp.received");
                        self.line(line);
                    }
                    // A front answers such a line itself.
                    SplitLine::TooLong => return self.writer.close(),
                }
                // Yields to other tasks, however many lines arrive at once.
                tokio::task::coop::consume_budget().await;
            }
            if opening.fill().await.is_none() {
                return;
            }
        }
    }

    fn control(&mut self, line: &[u8]) {
        match ControlLine::read(line) {
            Some(ControlLine::Again(ordinal, age)) => {
                let age = Millis(age);
                self.numbers.replayed = Some(Forwarded { ordinal, age });
            }
            Some(ControlLine::Check(millis)) => {
                let writer = self.writer.clone();
                tokio::spawn(async move {
                    pause(Duration::from_millis(millis)).await;
                    writer.send_control(control::ALIVE);
                });
            }
            None => {}
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.strip_prefix(BOM).unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return;
        }
        let outline = Outline::of(line);
        let forwarded = (outline.kind() == MessageKind::Request).then(|| self.numbers.take());
        if has_invalid_id(&outline) {
            return self.refuse(&outline, -32600, INVALID_ID);
        }
        match decode::message(line, &outline) {
            Ok(message) => {
                let sink = Sink::Front(self.writer.clone());
                let taken = (self.connection).message(message, &self.origin, sink, forwarded);
                if let Err(in_use) = taken {
                    self.writer.send(&in_use.error());
                }
            }
            Err(DecodeError::DuplicateField(sentence)) => self.refuse(&outline, -32602, &sentence),
            Err(DecodeError::Invalid(fault)) if fault.is_data() && line.starts_with(b"[") => {
                self.refuse(&outline, -32600, BATCH_REFUSED);
            }
            Err(DecodeError::Invalid(fault)) => {
                let code = if fault.is_data() { -32600 } else { -32700 };
                let needs_answer =
                    matches!(outline.kind(), MessageKind::Request | MessageKind::Unknown);
                // A line that is not valid JSON may have been a request, so it is answered.
                if needs_answer || (outline.kind() == MessageKind::Notification && !fault.is_data())
                {
                    self.refuse(&outline, code, &format!("not a message of MCP: {fault}"));
                }
            }
        }
    }

    fn refuse(&self, outline: &Outline, code: i32, sentence: &str) {
        self.writer
            .send_line(error_line(outline.id.as_deref(), code, sentence));
    }
}

impl Drop for FrontConnection {
    fn drop(&mut self) {
        self.writer.lost.cancel();
    }
}

/// True if a request has an id that is neither a string nor a number.
fn has_invalid_id(outline: &Outline) -> bool {
    let method = outline.method.as_deref().unwrap_or_default();
    outline.has_invalid_id
        && outline.kind() == MessageKind::Notification
        && !method.starts_with("notifications/")
}
