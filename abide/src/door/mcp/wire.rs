//! The socket between a front and the daemon, as the MCP library wants it: whole messages in, whole
//! messages out.
//!
//! It does what the library's own reader leaves undone: a request that cannot be decoded, or comes under
//! an id that is in use, is answered under its id, a message that is too long is skipped and answered, a
//! cancellation's reason is put where the cancelled call finds it before it hears that it was cancelled,
//! and a call learns at once that its connection is lost.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, ready};
use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::Either;
use memchr::memchr;
use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, GetExtensions, GetMeta, JsonRpcMessage, JsonRpcRequest,
    RequestId, ServerNotification,
};
use rmcp::service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::calls::{self, Back, Calls};
use super::control::{self, Control};
use super::decode::{self, Unread};
use super::hello::Hello;
use super::out::{Out, Turn};
use super::scan::{Kind, Outline, Scanner};
use super::sender::{self, Sender};
use super::server::Server;
use crate::door::tools::Receipt;
use crate::keeper::crash_point;
use crate::world::clock::pause;
use crate::world::stream::Stream;

/// Longest message a client may send.
pub const MESSAGE_LIMIT: usize = 8 << 20;
/// How much is read at once.
const READ: usize = 16 << 10;
/// The daemon's own requests are numbered from here on for each connection of a front, so that an
/// answer to one that was asked before a break can never pass for the answer to another.
const IDS_PER_CONNECTION: i64 = 1_000_000;

const BATCH: &str = "a batch is not taken; send each message on a line of its own";
/// Said of a request whose id is in use.
pub const TWICE: &str =
    "a request under this id has not been answered yet; give each an id of its own";
const INITIALIZE: &str =
    "initialize takes protocolVersion, capabilities and clientInfo, which has a name and a version";
const TOO_EARLY: &str = "no session is open: say initialize first, or name io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities in the _meta of each request";
const NO_ID: &str = "the id of a request must be text or a whole number";

/// What a call knows of the message that brought it.
pub struct Note {
    /// The number of this request among all that its front has ever passed on, where there is one.
    /// It stays the same when the front says it again.
    pub ordinal: Option<u64>,
    /// Set, with the reason given, before the call hears that it was cancelled.
    cancelled: OnceLock<Option<String>>,
    /// The connection is lost.
    pub lost: CancellationToken,
    id: RequestId,
    receipts: Receipts,
    /// Where the answer goes, where it goes to a front.
    out: Option<Arc<Out>>,
}

/// What is to be said when the answer to a request has left. Those of a lost connection are dropped
/// with it.
pub type Receipts = Arc<Mutex<HashMap<RequestId, Receipt>>>;

impl Note {
    /// On the request `id`, which came over a connection whose end `lost` tells.
    pub fn new(
        ordinal: Option<u64>,
        id: RequestId,
        lost: CancellationToken,
        receipts: Receipts,
    ) -> Self {
        Note {
            ordinal,
            cancelled: OnceLock::new(),
            lost,
            id,
            receipts,
            out: None,
        }
    }

    /// The answer goes this way.
    fn answered_by(mut self, out: Arc<Out>) -> Self {
        self.out = Some(out);
        self
    }

    /// Waits until the client has read enough for another answer. `false`: the connection is lost.
    pub async fn room(&self) -> bool {
        let Some(out) = self.out.as_ref().filter(|out| !out.has_room()) else {
            return true;
        };
        tokio::select! {
            () = out.room() => true,
            () = self.lost.cancelled() => false,
        }
    }

    /// Waits for the turn to render the answer. `None`: no turn is needed.
    pub async fn turn(&self) -> Option<Turn> {
        match &self.out {
            Some(out) => out.turn().await,
            None => None,
        }
    }

    /// The client cancels the call, giving this reason. The first one counts.
    pub fn cancel(&self, reason: Option<String>) {
        let _ = self.cancelled.set(reason);
    }

    /// Leaves a receipt to be signed when the answer has left.
    pub fn leave(&self, receipt: Receipt) {
        let mut receipts = self.receipts.lock().expect("no holder panics");
        receipts.insert(self.id.clone(), receipt);
    }

    /// Where the client has cancelled the call: the reason it gave, if any.
    pub fn cancelled(&self) -> Option<Option<&str>> {
        self.cancelled.get().map(Option::as_deref)
    }
}

/// One connection.
pub struct Wire {
    stream: Arc<Stream>,
    /// Where bytes arrive.
    chunk: Box<[u8]>,
    read: BytesMut,
    /// Bytes of `read` that hold no newline.
    searched: usize,
    /// A message that is too long, while its end has not been seen.
    skipping: Option<Scanner>,
    out: Arc<Out>,
    numbers: Numbers,
    /// Who makes the calls that need not go through the library.
    server: Option<Server>,
    calls: Arc<Calls>,
    receipts: Receipts,
    first_id: i64,
    /// Whether the library has taken up a session. Before that, it wants nothing but requests.
    open: bool,
    /// Whether it has done so without a handshake: then each request says of itself what it is.
    inline: bool,
    lost: CancellationToken,
}

/// A message from a client.
type Asked = RxJsonRpcMessage<RoleServer>;

/// Numbers requests as their front does.
#[derive(Debug)]
struct Numbers {
    resent: VecDeque<u64>,
    next: u64,
}

impl Numbers {
    fn take(&mut self) -> u64 {
        self.resent.pop_front().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// Reads the front's hello. What was read beyond it is the beginning of MCP.
pub async fn hello(stream: &Stream) -> Option<(Hello, BytesMut)> {
    let mut read = BytesMut::with_capacity(READ);
    let mut chunk = vec![0; READ];
    let mut searched = 0;
    loop {
        if let Some(at) = memchr(b'\n', &read[searched..]) {
            let line = read.split_to(searched + at + 1);
            return Hello::read(&line).map(|hello| (hello, read));
        }
        searched = read.len();
        if searched > super::hello::LIMIT || receive(stream, &mut chunk, &mut read).await? == 0 {
            return None;
        }
    }
}

/// Some more bytes; none at the end. `None`: the connection is broken. Nothing is lost where this is
/// given up before its end.
async fn receive(stream: &Stream, chunk: &mut [u8], into: &mut BytesMut) -> Option<usize> {
    let count = stream.read(chunk).await.ok()?;
    into.extend_from_slice(&chunk[..count]);
    Some(count)
}

impl Wire {
    /// A connection whose front has said hello.
    pub fn new(stream: Stream, read: BytesMut, hello: &Hello) -> Self {
        let stream = Arc::new(stream);
        let out = Out::new(stream.clone());
        out.tell_front(control::ACCEPTED);
        Wire {
            out,
            stream,
            chunk: vec![0; READ].into(),
            read,
            searched: 0,
            skipping: None,
            numbers: Numbers {
                resent: hello.resent.iter().copied().collect(),
                next: hello.next,
            },
            server: None,
            calls: Arc::default(),
            receipts: Receipts::default(),
            // Not from nought: the official library for TypeScript takes the cancellation of a request
            // numbered 0 for one that names none, and the question would stay on the screen.
            first_id: i64::from(hello.connection) * IDS_PER_CONNECTION + 1,
            open: false,
            inline: false,
            lost: CancellationToken::new(),
        }
    }

    /// The calls that it brings are made by this server.
    pub fn served_by(mut self, server: Server) -> Self {
        self.server = Some(server);
        self
    }

    /// The next whole line. `None`: there will be no more.
    async fn line(&mut self) -> Option<BytesMut> {
        loop {
            if let Some(at) = memchr(b'\n', &self.read[self.searched..]) {
                let line = self.read.split_to(self.searched + at + 1);
                self.searched = 0;
                if line.starts_with(control::PREFIX) {
                    self.control(&line);
                    continue;
                }
                crash_point("mcp.received");
                match self.skipping.take() {
                    None if line.len() <= MESSAGE_LIMIT => return Some(line),
                    skipped => self.skipped(skipped.unwrap_or_default(), &line),
                }
                continue;
            }
            self.searched = self.read.len();
            if self.searched > MESSAGE_LIMIT || self.skipping.is_some() {
                let scanner = self.skipping.get_or_insert_default();
                scanner.feed(&self.read);
                self.read.clear();
                self.searched = 0;
            }
            if receive(&self.stream, &mut self.chunk, &mut self.read).await? == 0 {
                return None;
            }
        }
    }

    fn control(&mut self, line: &[u8]) {
        match Control::read(line) {
            Some(Control::Again(number)) => self.numbers.resent.push_back(number),
            Some(Control::Check(millis)) => {
                let out = self.out.clone();
                tokio::spawn(async move {
                    pause(Duration::from_millis(millis)).await;
                    out.tell_front(control::ALIVE);
                });
            }
            None => {}
        }
    }

    /// A message that is too long has ended.
    fn skipped(&mut self, mut scanner: Scanner, rest: &[u8]) {
        scanner.feed(rest);
        let outline = scanner.finish();
        if outline.kind() == Kind::Request {
            self.numbers.take();
        }
        let sentence = format!("the message is longer than {MESSAGE_LIMIT} bytes");
        self.refuse(&outline, -32600, &sentence);
    }

    /// The message in a line, where the library should see one.
    fn message(&mut self, line: &[u8]) -> Option<Asked> {
        let line = line
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(line)
            .trim_ascii();
        if line.is_empty() {
            return None;
        }
        if let Some(call) = decode::plain_call(line) {
            let ordinal = self.numbers.take();
            return self.read(call, Some(ordinal), || Outline::of(line));
        }
        let outline = Outline::of(line);
        let ordinal = (outline.kind() == Kind::Request).then(|| self.numbers.take());
        if is_nameless(&outline, line) {
            self.refuse(&outline, -32600, NO_ID);
            return None;
        }
        match decode::message(line, &outline) {
            Ok(message) => self.read(message, ordinal, || outline),
            Err(Unread::Twice(sentence)) => {
                self.refuse(&outline, -32602, &sentence);
                None
            }
            Err(Unread::Fault(fault)) if fault.is_data() && line.starts_with(b"[") => {
                self.refuse(&outline, -32600, BATCH);
                None
            }
            Err(Unread::Fault(fault)) => {
                let code = if fault.is_data() { -32600 } else { -32700 };
                let asks = matches!(outline.kind(), Kind::Request | Kind::Unknown);
                // What is not JSON may have meant to ask.
                if asks || (outline.kind() == Kind::Notification && !fault.is_data()) {
                    self.refuse(&outline, code, &format!("not a message of MCP: {fault}"));
                }
                None
            }
        }
    }

    fn read(
        &mut self,
        message: Asked,
        ordinal: Option<u64>,
        outline: impl FnOnce() -> Outline,
    ) -> Option<Asked> {
        match self.objection(&message) {
            None => self.known(message, ordinal),
            Some((code, sentence)) => {
                self.refuse(&outline(), code, sentence);
                None
            }
        }
    }

    /// Why a message that can be read is not passed on all the same: of two requests under one id the
    /// library would answer the last only, and of what comes too early it says what nobody understands.
    fn objection(&self, message: &Asked) -> Option<(i32, &'static str)> {
        let JsonRpcMessage::Request(asked) = message else {
            return None;
        };
        if self.calls.is_open(&asked.id) {
            return Some((-32600, TWICE));
        }
        match &asked.request {
            request if self.open || opens(request) => None,
            ClientRequest::DiscoverRequest(_) | ClientRequest::PingRequest(_) => None,
            ClientRequest::CustomRequest(wrong) if wrong.method == "initialize" => {
                Some((-32602, INITIALIZE))
            }
            _ => Some((-32602, TOO_EARLY)),
        }
    }

    /// Notes what a message means for the calls under way, and passes it on.
    fn known(&mut self, mut message: Asked, ordinal: Option<u64>) -> Option<Asked> {
        match &mut message {
            JsonRpcMessage::Request(_) => {}
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.calls.cancel(id, cancelled.params.reason.clone());
                }
            }
            JsonRpcMessage::Response(answer) => answer.id = self.our_id(&answer.id)?,
            JsonRpcMessage::Error(error) => error.id = Some(self.our_id(error.id.as_ref()?)?),
        }
        match message {
            JsonRpcMessage::Request(asked) => self.asked(asked, ordinal),
            told => self.open.then_some(told),
        }
    }

    /// A request. The call of a tool is made here, where the library has nothing to say to it.
    fn asked(
        &mut self,
        mut asked: JsonRpcRequest<ClientRequest>,
        ordinal: Option<u64>,
    ) -> Option<Asked> {
        let (lost, receipts) = (self.lost.clone(), self.receipts.clone());
        let note = Note::new(ordinal, asked.id.clone(), lost, receipts);
        let note = Arc::new(note.answered_by(self.out.clone()));
        if !self.open && opens(&asked.request) {
            self.open = true;
            self.inline = !matches!(asked.request, ClientRequest::InitializeRequest(_));
        }
        if let (ClientRequest::CallToolRequest(call), Some(server)) =
            (&mut asked.request, &self.server)
            && let Some(client) = server.client_for(call.extensions.get(), self.inline)
        {
            let context = RequestContext::new(asked.id, client);
            calls::make(server.clone(), call, context, note, self.back());
            return None;
        }
        self.calls.open(asked.id.clone(), &note, None);
        asked.request.extensions_mut().insert(note);
        Some(JsonRpcMessage::Request(asked))
    }

    /// The way back for a call that is made here.
    fn back(&self) -> Back {
        Back {
            calls: self.calls.clone(),
            out: self.out.clone(),
        }
    }

    /// The library's own number of one of its requests. `None`: it was asked before a break, or never.
    fn our_id(&self, id: &RequestId) -> Option<RequestId> {
        let RequestId::Number(number) = id else {
            return None;
        };
        let number = number.checked_sub(self.first_id)?;
        (0..IDS_PER_CONNECTION)
            .contains(&number)
            .then_some(RequestId::Number(number))
    }

    fn their_id(&self, id: &mut RequestId) {
        if let RequestId::Number(number) = id {
            *number = *number % IDS_PER_CONNECTION + self.first_id;
        }
    }

    fn refuse(&self, outline: &Outline, code: i32, sentence: &str) {
        let line = refusal(outline.id.as_deref(), code, sentence);
        let _ = self.out.push(line);
    }

    /// What a message needs to leave.
    fn sender(&self) -> Sender {
        Sender {
            out: self.out.clone(),
            calls: self.calls.clone(),
            receipts: self.receipts.clone(),
            lost: self.lost.clone(),
        }
    }
}

pub(super) fn line_of(message: &impl Serialize) -> io::Result<Vec<u8>> {
    // Most lines are no longer, so that they need not be moved while they grow.
    let mut line = Vec::with_capacity(1 << 10);
    serde_json::to_writer(&mut line, message)?;
    line.push(b'\n');
    Ok(line)
}

/// The line that answers a request with an error.
pub fn refusal(id: Option<&[u8]>, code: i32, sentence: &str) -> Vec<u8> {
    let error = serde_json::json!({"code": code, "message": sentence});
    answer(id.unwrap_or(b"null"), "error", &error)
}

/// The line that answers a request with this field.
pub fn answer(id: &[u8], field: &str, value: &Value) -> Vec<u8> {
    let mut line = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    line.extend_from_slice(id);
    line.extend_from_slice(format!(",\"{field}\":{value}}}\n").as_bytes());
    line
}

/// Whether a message has an id that is none, such as `null`, and asks for something all the same.
fn is_nameless(outline: &Outline, line: &[u8]) -> bool {
    let method = outline.method.as_deref().unwrap_or_default();
    if outline.kind() != Kind::Notification || method.starts_with(b"notifications/") {
        return false;
    }
    let is_none = |id: &Value| !id.is_string() && !id.is_number();
    let fields = serde_json::from_slice::<HashMap<Cow<'_, str>, Value>>(line);
    fields.is_ok_and(|fields| fields.get("id").is_some_and(is_none))
}

/// Whether the library takes up a session with this request.
fn opens(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::DiscoverRequest(_) | ClientRequest::PingRequest(_) => false,
        other => other.get_meta().protocol_version().is_some(),
    }
}

impl Transport<RoleServer> for Wire {
    type Error = io::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &mut item {
            JsonRpcMessage::Request(asked) => self.their_id(&mut asked.id),
            JsonRpcMessage::Notification(told) => {
                if let ServerNotification::CancelledNotification(cancelled) = &mut told.notification
                    && let Some(id) = &mut cancelled.params.request_id
                {
                    self.their_id(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        match item {
            _ if self.out.has_room() => Either::Left(ready(self.sender().send(&item))),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                Either::Right(self.sender().send_later(item))
            }
            JsonRpcMessage::Notification(told) if sender::is_dispensable(&told.notification) => {
                Either::Left(ready(Ok(())))
            }
            JsonRpcMessage::Notification(_) | JsonRpcMessage::Request(_) => {
                Either::Left(ready(self.sender().send(&item)))
            }
        }
    }

    async fn receive(&mut self) -> Option<Asked> {
        loop {
            let Some(line) = self.line().await else {
                self.lost.cancel();
                return None;
            };
            if let Some(message) = self.message(&line) {
                return Some(message);
            }
            // However much is said at once, what was said before has its turn.
            tokio::task::coop::consume_budget().await;
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.lost.cancel();
        Ok(())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.lost.cancel();
    }
}
