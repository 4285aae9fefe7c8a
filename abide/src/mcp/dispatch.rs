//! MCP with the client of a front: one loop reads messages, one match answers requests.
//!
//! Tool calls run in tasks of their own; everything else is answered at once. A request that cannot be decoded,
//! is too long, or comes under an id that is in use is answered under its id.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientNotification, ClientRequest,
    CompleteResult, ErrorCode, GetMeta, GetPromptResponse, InitializeRequestParams, JsonRpcMessage,
    ListResourceTemplatesResult, ListResourcesResult, ProtocolVersion, RequestId,
    RequestMetaObject, ServerResult,
};
use rmcp::service::RxJsonRpcMessage;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;

use super::call::{self, CallContext};
use super::control::{self, Control};
use super::decode::{self, Unread};
use super::hello::{self, Hello};
use super::in_flight::{InFlight, InFlightTable};
use super::lines::{Lines, Piece};
use super::out::{Out, Turn};
use super::peer::{Outgoing, Peer};
use super::prompt;
use super::scan::{BOM, Kind, Outline};
use super::server::{Origin, Server, is_modern};
use super::wire::{MESSAGE_LIMIT, TWICE, refusal};
use crate::tools::Receipt;
use abide_engine::clock::pause;
use abide_engine::stream::Stream;
use abide_session::crash_point;

/// Bytes read at once.
const READ: usize = 16 << 10;
/// The daemon's own requests are numbered from a multiple of this for each connection of a front, so that an
/// answer to one that was asked before a break can never pass for the answer to another.
const IDS_PER_CONNECTION: i64 = 1_000_000;

const BATCH: &str = "a batch is not taken; send each message on a line of its own";
const INITIALIZE: &str =
    "initialize takes protocolVersion, capabilities and clientInfo, which has a name and a version";
const TOO_EARLY: &str = "no session is open: say initialize first, or name io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities in the _meta of each request";
const NO_ID: &str = "the id of a request must be text or a whole number";

/// Connection of a front, before MCP begins.
pub struct Opening {
    stream: Arc<Stream>,
    chunk: Box<[u8]>,
    lines: Lines,
}

impl Opening {
    /// Reads the front's hello. `None`: there is none.
    pub async fn hello(stream: Stream) -> Option<(Hello, Self)> {
        let mut opening = Opening {
            stream: Arc::new(stream),
            chunk: vec![0; READ].into(),
            lines: Lines::new(hello::LIMIT),
        };
        let hello = loop {
            match opening.lines.next(false) {
                Some(Piece::Line(line)) => break Hello::read(line)?,
                Some(Piece::TooLong(_)) => return None,
                None => {}
            }
            if opening.lines.is_skipping() {
                return None;
            }
            opening.fill().await?;
        };
        opening.lines.set_limit(MESSAGE_LIMIT);
        Some((hello, opening))
    }

    /// Reads some more. `None`: the connection has ended.
    async fn fill(&mut self) -> Option<()> {
        let count = self.stream.read(&mut self.chunk).await.ok()?;
        self.lines.put(&self.chunk[..count]);
        (count > 0).then_some(())
    }
}

/// State of one connection.
pub struct Dispatch {
    server: Server,
    origin: Arc<Origin>,
    session: Session,
    out: Arc<Out>,
    outgoing: Arc<Outgoing>,
    in_flight: Arc<InFlightTable>,
    numbers: Numbers,
}

/// How the client has opened its session.
enum Session {
    /// It has not.
    Closed,
    /// With `initialize`, answered with this version.
    Handshake(Box<InitializeRequestParams>),
    /// With a request that carries its own metadata, as every request then must.
    Inline,
}

/// Numbers requests as their front does.
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

/// The client, as a request and its session describe it.
struct Caller {
    /// Generation from 2026-07-28 on: results carry `resultType`, questions are returned.
    modern: bool,
    /// Whether methods that ended with 2025-11-25 are available.
    has_legacy_methods: bool,
    name: String,
    capabilities: Option<ClientCapabilities>,
}

type Answer = Result<ServerResult, ErrorData>;

impl Dispatch {
    /// Accepts the connection of the front that said this hello.
    pub fn new(opening: &Opening, hello: &Hello, server: Server, origin: Arc<Origin>) -> Self {
        let out = Out::new(opening.stream.clone());
        out.tell_front(control::ACCEPTED);
        // Not from zero: the official library for TypeScript takes the cancellation of request 0 for one
        // that names none, and the question would stay on the screen.
        let first = i64::from(hello.connection) * IDS_PER_CONNECTION + 1;
        Dispatch {
            server,
            origin,
            session: Session::Closed,
            outgoing: Outgoing::new(out.clone(), first),
            out,
            in_flight: Arc::default(),
            numbers: Numbers {
                resent: hello.resent.iter().copied().collect(),
                next: hello.next,
            },
        }
    }

    /// Serves the connection until it ends.
    pub async fn run(mut self, mut opening: Opening) {
        loop {
            while let Some(piece) = opening.lines.next(false) {
                self.piece(piece);
                // However much comes at once, other tasks have their turn.
                tokio::task::coop::consume_budget().await;
            }
            if opening.fill().await.is_none() {
                return;
            }
        }
    }

    fn piece(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Line(line) if line.starts_with(control::PREFIX) => self.control(line),
            Piece::Line(line) => {
                crash_point("mcp.received");
                self.line(line);
            }
            Piece::TooLong(outline) => {
                if outline.kind() == Kind::Request {
                    self.numbers.take();
                }
                let sentence = format!("the message is longer than {MESSAGE_LIMIT} bytes");
                self.refuse(&outline, -32600, &sentence);
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

    fn line(&mut self, line: &[u8]) {
        let line = line.strip_prefix(BOM).unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return;
        }
        if let Some(call) = decode::plain_call(line) {
            let ordinal = self.numbers.take();
            return self.message(call, Some(ordinal));
        }
        let outline = Outline::of(line);
        let ordinal = (outline.kind() == Kind::Request).then(|| self.numbers.take());
        if has_invalid_id(&outline, line) {
            return self.refuse(&outline, -32600, NO_ID);
        }
        match decode::message(line, &outline) {
            Ok(message) => self.message(message, ordinal),
            Err(Unread::Twice(sentence)) => self.refuse(&outline, -32602, &sentence),
            Err(Unread::Fault(fault)) if fault.is_data() && line.starts_with(b"[") => {
                self.refuse(&outline, -32600, BATCH);
            }
            Err(Unread::Fault(fault)) => {
                let code = if fault.is_data() { -32600 } else { -32700 };
                let asks = matches!(outline.kind(), Kind::Request | Kind::Unknown);
                // What is not JSON may have been a request.
                if asks || (outline.kind() == Kind::Notification && !fault.is_data()) {
                    self.refuse(&outline, code, &format!("not a message of MCP: {fault}"));
                }
            }
        }
    }

    fn message(&mut self, message: RxJsonRpcMessage<RoleServer>, ordinal: Option<u64>) {
        match message {
            JsonRpcMessage::Request(asked) => self.request(asked.id, asked.request, ordinal),
            JsonRpcMessage::Notification(told) => self.notification(told.notification),
            JsonRpcMessage::Response(answer) => {
                self.outgoing.answered(&answer.id, Some(answer.result));
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    self.outgoing.answered(id, None);
                }
            }
        }
    }

    fn notification(&mut self, notification: ClientNotification) {
        match notification {
            ClientNotification::CancelledNotification(cancelled) => {
                if let Some(id) = &cancelled.params.request_id {
                    self.in_flight.cancel(id, cancelled.params.reason);
                }
            }
            ClientNotification::InitializedNotification(_)
                if !matches!(self.session, Session::Closed) =>
            {
                let (server, origin) = (self.server.clone(), self.origin.clone());
                let peer = Peer::Stdio(self.outgoing.clone());
                tokio::spawn(async move { server.initialized(&origin, peer).await });
            }
            _ => {}
        }
    }

    fn request(&mut self, id: RequestId, mut request: ClientRequest, ordinal: Option<u64>) {
        if self.in_flight.contains(&id) {
            let error = ErrorData::invalid_request(TWICE, None);
            self.out.send(&JsonRpcMessage::error(error, Some(id)));
            return;
        }
        let reply = Reply {
            id,
            modern: false,
            request: Arc::new(InFlight::of_front(ordinal, &self.out)),
            in_flight: self.in_flight.clone(),
            out: self.out.clone(),
        };
        let meta = std::mem::take(request.get_meta_mut());
        if let ClientRequest::InitializeRequest(request) = request {
            return reply.answer(self.initialize(request.params));
        }
        match self.caller(&request, &meta) {
            Err(error) => reply.answer(Err(error)),
            Ok(caller) => {
                let modern = caller.modern;
                self.dispatch(request, meta, caller, Reply { modern, ..reply });
            }
        }
    }

    fn dispatch(
        &mut self,
        request: ClientRequest,
        meta: RequestMetaObject,
        caller: Caller,
        reply: Reply,
    ) {
        let modern = caller.modern;
        let answer = match request {
            ClientRequest::CallToolRequest(call) => {
                let context = CallContext {
                    origin: self.origin.clone(),
                    peer: Peer::Stdio(self.outgoing.clone()),
                    client: call::Client::new(caller.name, caller.capabilities, modern),
                    meta,
                    cancelled: reply.request.cancelled.clone(),
                    in_flight: Some(reply.request.clone()),
                };
                return reply.call(self.server.clone(), call.params, context);
            }
            ClientRequest::DiscoverRequest(_) => {
                let result = self.server.discover_result(&caller.name);
                Ok(ServerResult::DiscoverResult(result))
            }
            ClientRequest::PingRequest(_) if caller.has_legacy_methods => {
                Ok(ServerResult::empty(()))
            }
            ClientRequest::ListToolsRequest(_) => {
                Ok(ServerResult::ListToolsResult(Server::tools(modern)))
            }
            ClientRequest::ListPromptsRequest(_) => {
                Ok(ServerResult::ListPromptsResult(Server::prompts(modern)))
            }
            ClientRequest::GetPromptRequest(request) => {
                prompt::get(&request.params).map(|got| GetPromptResponse::from(got).into())
            }
            ClientRequest::SetLevelRequest(request) => {
                self.server.set_log_level(&request.params);
                Ok(ServerResult::empty(()))
            }
            // There are none, and some clients ask all the same.
            ClientRequest::ListResourcesRequest(_) => Ok(ServerResult::ListResourcesResult(
                ListResourcesResult::default(),
            )),
            ClientRequest::ListResourceTemplatesRequest(_) => {
                let none = ListResourceTemplatesResult::default();
                Ok(ServerResult::ListResourceTemplatesResult(none))
            }
            ClientRequest::CompleteRequest(_) => {
                Ok(ServerResult::CompleteResult(CompleteResult::default()))
            }
            ClientRequest::CustomRequest(request) => {
                Err(Server::not_decoded(&request.method, modern))
            }
            other => {
                let method = other.method().to_owned();
                Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
            }
        };
        reply.answer(answer);
    }

    fn initialize(&mut self, mut params: InitializeRequestParams) -> Answer {
        let result = self.server.initialize_result(&params, &self.origin)?;
        params.protocol_version = result.protocol_version.clone();
        if !matches!(self.session, Session::Inline) {
            self.session = Session::Handshake(Box::new(params));
        }
        Ok(ServerResult::InitializeResult(result))
    }

    /// Checks that a request may be made now and carries the metadata that its version requires. A first
    /// request with such metadata opens the session.
    fn caller(
        &mut self,
        request: &ClientRequest,
        meta: &RequestMetaObject,
    ) -> Result<Caller, ErrorData> {
        let version = meta.protocol_version();
        let is_discover = matches!(request, ClientRequest::DiscoverRequest(_));
        let is_closed = matches!(self.session, Session::Closed);
        if is_closed && matches!(request, ClientRequest::PingRequest(_)) {
            return Ok(Caller {
                modern: false,
                has_legacy_methods: true,
                name: String::new(),
                capabilities: None,
            });
        }
        if is_closed && version.is_none() && !is_discover {
            let sentence = match request.method() {
                "initialize" => INITIALIZE,
                _ => TOO_EARLY,
            };
            return Err(ErrorData::invalid_params(sentence, None));
        }
        let supported = self.server.supported_protocol_versions();
        if let Some(version) = version
            .as_ref()
            .filter(|version| !supported.contains(version))
        {
            let error = ErrorData::unsupported_protocol_version(version.clone(), &supported);
            return Err(error);
        }
        let handshake = match &self.session {
            Session::Handshake(handshake) => Some(handshake),
            Session::Closed | Session::Inline => None,
        };
        let needs_metadata = is_discover || handshake.is_none() || is_modern(version.as_ref());
        let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28);
        if needs_metadata && !missing.is_empty() {
            let sentence = format!(
                "request _meta is missing or has malformed required fields: {}",
                missing.join(", ")
            );
            return Err(ErrorData::invalid_params(sentence, None));
        }
        let agreed = || handshake.map(|handshake| handshake.protocol_version.clone());
        let version = version.or_else(agreed);
        let client = meta.client_info();
        let client = client.or_else(|| handshake.map(|handshake| handshake.client_info.clone()));
        let capabilities = meta.client_capabilities();
        let caller = Caller {
            modern: is_modern(version.as_ref()),
            has_legacy_methods: !needs_metadata && !is_modern(version.as_ref()),
            name: client.map(|client| client.name).unwrap_or_default(),
            capabilities: capabilities
                .or_else(|| handshake.map(|handshake| handshake.capabilities.clone())),
        };
        if is_closed && !is_discover {
            self.session = Session::Inline;
        }
        Ok(caller)
    }

    fn refuse(&self, outline: &Outline, code: i32, sentence: &str) {
        self.out
            .send_line(refusal(outline.id.as_deref(), code, sentence));
    }
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        self.out.lost.cancel();
    }
}

/// Way back of one request.
struct Reply {
    id: RequestId,
    modern: bool,
    request: Arc<InFlight>,
    in_flight: Arc<InFlightTable>,
    out: Arc<Out>,
}

impl Reply {
    /// Answers, as soon as the client has read enough of its earlier answers.
    fn answer(self, answer: Answer) {
        if self.out.has_room() {
            return self.send(answer, None, None);
        }
        self.in_flight.add(self.id.clone(), self.request.clone());
        tokio::spawn(self.finish(answer, None, None));
    }

    /// Runs a tool call and answers it.
    fn call(self, server: Server, params: CallToolRequestParams, context: CallContext) {
        self.in_flight.add(self.id.clone(), self.request.clone());
        tokio::spawn(async move {
            // A call of a client that does not read its answers begins when the client does.
            let begins = tokio::select! {
                biased;
                room = self.request.room() => room,
                () = self.request.cancelled.cancelled() => false,
            };
            if !begins {
                return;
            }
            match server.call(params, context).await {
                Err(error) => self.finish(Err(error), None, None).await,
                Ok(answered) => {
                    let response = CallToolResponse::from(answered.said);
                    self.finish(Ok(response.into()), answered.receipt, answered.turn)
                        .await;
                }
            }
        });
    }

    async fn finish(self, answer: Answer, receipt: Option<Receipt>, turn: Option<Turn>) {
        // On a lost connection the next daemon answers, to which the front replays the request.
        if !self.request.room().await || self.request.lost.is_cancelled() {
            return;
        }
        if self.in_flight.finish(&self.id, &self.request) {
            self.send(answer, receipt, turn);
        }
    }

    fn send(self, answer: Answer, receipt: Option<Receipt>, turn: Option<Turn>) {
        let message = match answer {
            Err(error) => JsonRpcMessage::error(error, Some(self.id)),
            Ok(mut result) => {
                match self.modern {
                    true => result.fill_missing_cache_hints(),
                    false => result.strip_result_type_for_legacy_peer(),
                }
                JsonRpcMessage::response(result, self.id)
            }
        };
        if self.out.send(&message) {
            receipt.into_iter().for_each(Receipt::delivered);
        }
        drop(turn);
    }
}

/// Whether a request has an id that is neither text nor a number.
fn has_invalid_id(outline: &Outline, line: &[u8]) -> bool {
    let method = outline.method.as_deref().unwrap_or_default();
    if outline.kind() != Kind::Notification || method.starts_with(b"notifications/") {
        return false;
    }
    let is_invalid = |id: &Value| !id.is_string() && !id.is_number();
    let fields = serde_json::from_slice::<HashMap<Cow<'_, str>, Value>>(line);
    fields.is_ok_and(|fields| fields.get("id").is_some_and(is_invalid))
}
