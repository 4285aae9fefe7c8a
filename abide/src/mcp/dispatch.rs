//! Server loop of MCP for both transports: takes a client's decoded messages and answers its requests.
//!
//! Tool calls run in tasks of their own; all other requests are answered at once.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::FutureExt;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, CompleteResult, GetMeta, InitializeRequestParams, JsonRpcMessage,
    ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, ProtocolVersion,
    RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerResult,
};

use tracing::Instrument;

use super::call::{self, CallContext};
use super::client_channel::{ClientChannel, OutgoingRequests, Sink};
use super::front_writer::RenderPermit;
use super::http::event_stream::PendingAnswer;
use super::in_flight::{Forwarded, InFlight, InFlightTable};
use super::json_line::ID_IN_USE;
use super::origin::Origin;
use super::server::{Server, is_modern};
use crate::tools::{self, Receipt};

const INITIALIZE: &str =
    "initialize takes protocolVersion, capabilities and clientInfo, which has a name and a version";
const NOT_INITIALIZED: &str = "no session is open: send initialize first, or name io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities in the _meta of each request";

/// State of the exchange with one client: over the connection of a front, in an HTTP session, or for a single
/// HTTP request without a session.
pub struct Connection {
    server: Server,
    handshake: Mutex<Handshake>,
    /// Destination of messages that belong to no request.
    sink: Sink,
    requests: Arc<OutgoingRequests>,
    in_flight: Arc<InFlightTable>,
}

/// State of the handshake.
enum Handshake {
    /// The client has sent no request yet.
    Pending,
    /// The client has sent `initialize`; `protocol_version` is the agreed version.
    Done(Box<InitializeRequestParams>),
    /// There is no handshake: the first request carried its own metadata, as every request then must.
    Omitted,
}

/// Error: a request under this id is not answered yet.
pub struct IdInUse(RequestId);

impl IdInUse {
    /// Answer to the second request under the id.
    pub fn error(self) -> ServerJsonRpcMessage {
        let error = ErrorData::invalid_request(ID_IN_USE, None);
        JsonRpcMessage::error(error, Some(self.0))
    }
}

/// Client as described by a request and its session.
struct ClientInfo {
    /// Version 2026-07-28 or later: results carry `resultType`, and questions are returned.
    modern: bool,
    /// Methods that were removed after 2025-11-25 are available.
    has_legacy_methods: bool,
    name: String,
    capabilities: Option<ClientCapabilities>,
}

type MethodResult = Result<ServerResult, ErrorData>;

impl Connection {
    /// Connection whose messages without a request go to `sink`. The daemon's own requests are numbered from
    /// `first_request` on.
    pub fn new(server: Server, sink: Sink, first_request: i64) -> Self {
        Self::with(Handshake::Pending, server, sink, first_request)
    }

    /// Connection for one request that carries its own metadata.
    pub fn for_one_request(server: Server, sink: Sink) -> Self {
        Self::with(Handshake::Omitted, server, sink, 1)
    }

    fn with(handshake: Handshake, server: Server, sink: Sink, first_request: i64) -> Self {
        Connection {
            server,
            handshake: Mutex::new(handshake),
            sink,
            requests: OutgoingRequests::new(first_request),
            in_flight: Arc::default(),
        }
    }

    fn handshake(&self) -> MutexGuard<'_, Handshake> {
        self.handshake.lock().expect("no holder panics")
    }

    /// True if all requests of the client are answered.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Takes a message from `origin`. The answer to a request goes to `sink`.
    pub fn message(
        &self,
        message: ClientJsonRpcMessage,
        origin: &Arc<Origin>,
        sink: Sink,
        forwarded: Option<Forwarded>,
    ) -> Result<(), IdInUse> {
        match message {
            JsonRpcMessage::Request(incoming) => {
                let request = Arc::new(InFlight::new(forwarded, sink));
                if !self.in_flight.add(incoming.id.clone(), request.clone()) {
                    return Err(IdInUse(incoming.id));
                }
                let reply = PendingReply {
                    id: incoming.id,
                    modern: false,
                    _pending: request.sink.expect_answer(),
                    request,
                    in_flight: self.in_flight.clone(),
                };
                self.request(incoming.request, origin, reply);
            }
            JsonRpcMessage::Notification(incoming) => {
                self.notification(incoming.notification, origin)
            }
            JsonRpcMessage::Response(answer) => {
                self.requests.answered(&answer.id, Some(answer.result));
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    self.requests.answered(id, None);
                }
            }
        }
        Ok(())
    }

    fn client_channel(&self, sink: &Sink) -> ClientChannel {
        ClientChannel::new(sink.clone(), self.requests.clone())
    }

    fn notification(&self, notification: ClientNotification, origin: &Arc<Origin>) {
        match notification {
            ClientNotification::CancelledNotification(cancelled) => {
                if let Some(id) = &cancelled.params.request_id {
                    self.in_flight.cancel(id, cancelled.params.reason);
                }
            }
            ClientNotification::InitializedNotification(_)
                if !matches!(*self.handshake(), Handshake::Pending) =>
            {
                let (server, origin) = (self.server.clone(), origin.clone());
                let channel = self.client_channel(&self.sink);
                tokio::spawn(async move { server.initialized(&origin, channel).await });
            }
            _ => {}
        }
    }

    fn request(&self, mut request: ClientRequest, origin: &Arc<Origin>, reply: PendingReply) {
        let meta = std::mem::take(request.get_meta_mut());
        if let ClientRequest::InitializeRequest(request) = request {
            return reply.answer(Ok(self.initialize(request.params, origin)));
        }
        match self.client_info(&request, &meta) {
            Err(error) => reply.answer(Err(error)),
            Ok(client_info) => {
                let modern = client_info.modern;
                let reply = PendingReply { modern, ..reply };
                self.dispatch(request, meta, client_info, origin, reply);
            }
        }
    }

    fn dispatch(
        &self,
        request: ClientRequest,
        meta: RequestMetaObject,
        client_info: ClientInfo,
        origin: &Arc<Origin>,
        reply: PendingReply,
    ) {
        let modern = client_info.modern;
        let answer = match request {
            ClientRequest::CallToolRequest(call) => {
                let context = CallContext {
                    origin: origin.clone(),
                    client_channel: self.client_channel(&reply.request.sink),
                    client: call::CallClient::new(
                        client_info.name,
                        client_info.capabilities,
                        modern,
                    ),
                    meta,
                    request: reply.request.clone(),
                };
                return reply.call(self.server.clone(), call.params, context);
            }
            ClientRequest::DiscoverRequest(_) => {
                let result = Server::discover_result(&client_info.name);
                Ok(ServerResult::DiscoverResult(result))
            }
            ClientRequest::PingRequest(_) if client_info.has_legacy_methods => {
                Ok(ServerResult::empty(()))
            }
            ClientRequest::ListToolsRequest(request) => only_page(request.params.as_ref())
                .map(|()| ServerResult::ListToolsResult(self.server.tools(modern))),
            ClientRequest::ListPromptsRequest(request) => only_page(request.params.as_ref())
                .map(|()| ServerResult::ListPromptsResult(Server::prompts(modern))),
            ClientRequest::GetPromptRequest(request) => {
                let name = tools::shown(&request.params.name);
                let sentence = format!("there is no prompt '{name}'");
                Err(ErrorData::invalid_params(sentence, None))
            }
            ClientRequest::SetLevelRequest(request) => {
                self.server.set_log_level(&request.params);
                Ok(ServerResult::empty(()))
            }
            // abide has no resources and completions, but some clients ask for them all the same.
            ClientRequest::ListResourcesRequest(request) => {
                let none = ListResourcesResult::default();
                only_page(request.params.as_ref()).map(|()| ServerResult::ListResourcesResult(none))
            }
            ClientRequest::ListResourceTemplatesRequest(request) => {
                let none = ListResourceTemplatesResult::default();
                only_page(request.params.as_ref())
                    .map(|()| ServerResult::ListResourceTemplatesResult(none))
            }
            ClientRequest::CompleteRequest(_) => {
                Ok(ServerResult::CompleteResult(CompleteResult::default()))
            }
            ClientRequest::CustomRequest(request) => {
                let params = request.params.as_ref();
                Err(Server::not_decoded(&request.method, params, modern))
            }
            other => Err(Server::no_such_method(other.method())),
        };
        reply.answer(answer);
    }

    fn initialize(&self, mut params: InitializeRequestParams, origin: &Origin) -> ServerResult {
        let result = Server::initialize_result(&params, origin);
        params.protocol_version = result.protocol_version.clone();
        let mut state = self.handshake();
        if !matches!(*state, Handshake::Omitted) {
            *state = Handshake::Done(Box::new(params));
        }
        ServerResult::InitializeResult(result)
    }

    /// Checks that a request is allowed now and carries the metadata that its version requires. A first
    /// request with such metadata opens the session.
    fn client_info(
        &self,
        request: &ClientRequest,
        meta: &RequestMetaObject,
    ) -> Result<ClientInfo, ErrorData> {
        let mut state = self.handshake();
        let version = meta.protocol_version();
        let is_discover = matches!(request, ClientRequest::DiscoverRequest(_));
        let is_pending = matches!(*state, Handshake::Pending);
        if is_pending && version.is_none() && matches!(request, ClientRequest::PingRequest(_)) {
            return Ok(ClientInfo {
                modern: false,
                has_legacy_methods: true,
                name: String::new(),
                capabilities: None,
            });
        }
        if is_pending && version.is_none() && !is_discover {
            let sentence = match request.method() {
                "initialize" => INITIALIZE,
                _ => NOT_INITIALIZED,
            };
            return Err(ErrorData::invalid_params(sentence, None));
        }
        let supported = ProtocolVersion::KNOWN_VERSIONS;
        let unsupported = |version: &&ProtocolVersion| !supported.contains(version);
        if let Some(version) = version.as_ref().filter(unsupported) {
            let error = ErrorData::unsupported_protocol_version(version.clone(), supported);
            return Err(error);
        }
        let handshake = match &*state {
            Handshake::Done(handshake) => Some(handshake),
            Handshake::Pending | Handshake::Omitted => None,
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
        let client_info = ClientInfo {
            modern: is_modern(version.as_ref()),
            has_legacy_methods: !needs_metadata && !is_modern(version.as_ref()),
            name: client.map(|client| client.name).unwrap_or_default(),
            capabilities: capabilities
                .or_else(|| handshake.map(|handshake| handshake.capabilities.clone())),
        };
        if is_pending && !is_discover {
            *state = Handshake::Omitted;
        }
        Ok(client_info)
    }
}

/// Pending answer to one request.
struct PendingReply {
    id: RequestId,
    modern: bool,
    request: Arc<InFlight>,
    in_flight: Arc<InFlightTable>,
    _pending: Option<PendingAnswer>,
}

impl PendingReply {
    /// Sends the answer, as soon as the client has read enough of its earlier answers.
    fn answer(self, answer: MethodResult) {
        match self.request.sink.has_room() {
            true => self.send(answer, None, None),
            false => drop(tokio::spawn(self.finish(answer, None, None))),
        }
    }

    /// Runs a tool call and answers it.
    fn call(self, server: Server, params: CallToolRequestParams, context: CallContext) {
        let (tool, agent) = (&params.name, &context.origin.agent.0);
        let span = tracing::debug_span!("call", %tool, %agent, request = ?self.id);
        tokio::spawn(self.run(server, params, context).instrument(span));
    }

    async fn run(self, server: Server, params: CallToolRequestParams, context: CallContext) {
        // If the client does not read its answers, its next call begins only when it has read some.
        let has_room = tokio::select! {
            biased;
            room = self.request.sink.wait_for_room() => room,
            () = self.request.cancelled.cancelled() => false,
        };
        if !has_room || self.request.is_unwanted_before_it_began(&params) {
            return;
        }
        // A panic is caught and answered: otherwise its call would never be answered.
        let called = AssertUnwindSafe(call::run(&server, params, context)).catch_unwind();
        let answered = called.await.unwrap_or_else(|_| {
            let sentence = "the call failed inside abide; what it had started goes on, and the \
                daemon's log says more";
            Err(ErrorData::internal_error(sentence, None))
        });
        match answered {
            Err(error) => self.finish(Err(error), None, None).await,
            Ok(answered) => {
                self.finish(
                    Ok(answered.response.into()),
                    answered.receipt,
                    answered.permit,
                )
                .await;
            }
        }
    }

    async fn finish(
        self,
        answer: MethodResult,
        receipt: Option<Receipt>,
        permit: Option<RenderPermit>,
    ) {
        if self.request.sink.wait_for_room().await {
            self.send(answer, receipt, permit);
        }
    }

    fn send(self, answer: MethodResult, receipt: Option<Receipt>, permit: Option<RenderPermit>) {
        let is_wanted = self.in_flight.finish(&self.id, &self.request);
        // On a lost connection no answer is sent: the front replays the request to the next daemon.
        if self.request.sink.lost().is_cancelled() {
            return;
        }
        if !is_wanted {
            return self.request.confirm_cancellation();
        }
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
        self.request.sink.send_answer(&message, receipt);
        drop(permit);
    }
}

/// Checks that a list is asked for from its beginning: each has one page, so no cursor was given out.
fn only_page(params: Option<&PaginatedRequestParams>) -> Result<(), ErrorData> {
    let cursor = params.and_then(|params| params.cursor.as_deref());
    match cursor.filter(|cursor| !cursor.is_empty()) {
        None => Ok(()),
        Some(cursor) => {
            let shown = tools::shown(cursor);
            let sentence =
                format!("`cursor` must be left out, because the list has one page; got {shown}");
            Err(ErrorData::invalid_params(sentence, None))
        }
    }
}
