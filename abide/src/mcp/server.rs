//! Answers to every method of MCP, for one client. Fronts come through `dispatch`, HTTP through the library.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use abide_core::{Agent, Conversation};
use futures_util::FutureExt;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult,
    DiscoverResult, ErrorCode, Extensions, GetPromptRequestParams, GetPromptResponse,
    Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
    Tool, ToolAnnotations,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;

use super::ack_on_body_end::AckOnBodyEnd;
use super::call::{self, Answered, CallContext};
use super::hello::Hello;
use super::in_flight::InFlight;
use super::message_notifications::{self, CHANNEL, CHANNEL_CAPABILITY, Level, Listener};
use super::other_questions::Shown;
use super::peer::Peer;
use super::seal::Seal;
use super::{client, prompt};
use crate::tools;
use abide_engine::peer;
use abide_engine::{ConversationGuard, Handle};

/// How long a client may keep the lists: they change with the version only.
const FRESH_MS: u64 = 5 * 60 * 1_000;

/// One client's server.
#[derive(Clone)]
pub struct Server {
    pub(super) handle: Handle,
    pub(super) seal: Arc<Seal>,
    pub(super) shown: Arc<Shown>,
    level: Arc<Level>,
    /// Somebody brings its client messages already.
    listens: Arc<AtomicBool>,
    /// The conversations that speak over this connection.
    speaks: Arc<Speaks>,
}

/// The conversations that speak over one connection, each connected for as long as that lives.
#[derive(Default)]
pub struct Speaks(Mutex<VecDeque<(Agent, Conversation, ConversationGuard)>>);

/// Conversations of one connection; the one that was heard first is forgotten.
const CONVERSATIONS: usize = 64;

impl Speaks {
    /// Whether this conversation of an agent is one of them.
    pub fn has(&self, agent: &Agent, conversation: &Conversation) -> bool {
        let all = self.0.lock().expect("no holder panics");
        all.iter()
            .any(|(whose, known, _)| whose == agent && known == conversation)
    }

    fn add(&self, agent: &Agent, conversation: &Conversation, present: ConversationGuard) {
        let mut all = self.0.lock().expect("no holder panics");
        if all.len() == CONVERSATIONS {
            all.pop_front();
        }
        all.push_back((agent.clone(), conversation.clone(), present));
    }
}

/// Where a client's calls come from.
#[derive(Debug)]
pub struct Origin {
    /// By what way.
    pub way: Way,
    /// On whose behalf.
    pub agent: Agent,
    /// In which conversation, unless a call says otherwise.
    pub conversation: Option<Conversation>,
    /// The agent's root folder.
    pub root: PathBuf,
    /// What commands inherit.
    pub env: Arc<[(OsString, OsString)]>,
    /// Who is at the other end.
    pub peer: peer::Peer,
}

/// How a client reaches the daemon.
#[derive(Debug)]
pub enum Way {
    /// Through the front of this name.
    Front(String),
    /// Over HTTP.
    Http,
}

impl Origin {
    /// The front that said this hello, at whose end is `peer`.
    pub fn of_a_front(hello: Hello, peer: peer::Peer) -> Self {
        Origin {
            conversation: Some(client::conversation(&hello)),
            way: Way::Front(hello.front),
            agent: Agent(hello.agent.into()),
            root: hello.cwd,
            env: hello.env.into(),
            peer,
        }
    }
}

impl Origin {
    /// One variable of the client's environment, where that is known.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        if matches!(self.way, Way::Http) {
            return None;
        }
        let (_, value) = self.env.iter().find(|(key, _)| key == name)?;
        Some(value)
    }
}

impl Origin {
    /// Whether its client listens to a channel.
    fn has_channel(&self) -> bool {
        self.var(CHANNEL).is_some_and(|value| value == "1")
    }
}

impl Server {
    /// For one client.
    pub fn new(handle: Handle, seal: Arc<Seal>) -> Self {
        Server {
            handle,
            seal,
            level: Arc::default(),
            listens: Arc::default(),
            shown: Arc::default(),
            speaks: Arc::default(),
        }
    }

    /// A conversation speaks over this connection, and is connected while that lives.
    pub(super) async fn speaks_in(&self, agent: &Agent, conversation: &Conversation) {
        if !self.speaks.has(agent, conversation) {
            let present = self.handle.connect_conversation(agent, conversation).await;
            self.speaks.add(agent, conversation, present);
        }
    }

    /// Calls a tool. A panic is answered too: without this, its call would never be.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: CallContext,
    ) -> Result<Answered, ErrorData> {
        let called = call::run(self, request, context);
        let caught = AssertUnwindSafe(called).catch_unwind().await;
        caught.unwrap_or_else(|_| {
            let sentence = "the call failed inside abide; what it had started goes on, and the \
                daemon's log says more";
            Err(ErrorData::internal_error(sentence, None))
        })
    }

    /// Answers `initialize`: the older generations, in which a client can be told of messages at any time.
    pub(super) fn initialize_result(
        &self,
        request: &InitializeRequestParams,
        origin: &Origin,
    ) -> Result<InitializeResult, ErrorData> {
        let mut answer = self.negotiate_initialize(request)?;
        answer.capabilities.logging = Some(JsonObject::new());
        if origin.has_channel() {
            let channel = (CHANNEL_CAPABILITY.to_owned(), JsonObject::new());
            answer.capabilities.experimental = Some([channel].into());
        }
        Ok(answer)
    }

    /// The client is ready: it is told of messages from now on, once however often it says so.
    pub(super) async fn initialized(&self, origin: &Origin, peer: Peer) {
        if self.listens.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(conversation) = &origin.conversation {
            self.speaks_in(&origin.agent, conversation).await;
        }
        let listener = Listener {
            agent: origin.agent.clone(),
            peer,
            level: self.level.clone(),
            channel: origin.has_channel(),
            speaks: Arc::downgrade(&self.speaks),
        };
        tokio::spawn(message_notifications::bring(self.handle.clone(), listener));
    }

    /// Takes `logging/setLevel`.
    #[expect(deprecated, reason = "clients of the older generations set it")]
    pub(super) fn set_log_level(&self, request: &rmcp::model::SetLevelRequestParams) {
        let level = serde_json::to_value(request.level).unwrap_or_default();
        self.level.set(&level);
    }

    /// Answers `server/discover` of the client of this name.
    pub(super) fn discover_result(&self, client: &str) -> DiscoverResult {
        let versions = ProtocolVersion::known_up_to(&newest_for(client)).to_vec();
        DiscoverResult::from_server_info(versions, self.get_info())
    }

    /// Answers `tools/list`.
    pub(super) fn tools(modern: bool) -> ListToolsResult {
        let list = ListToolsResult::with_all_items(TOOLS.clone());
        match modern {
            true => list
                .with_ttl_ms(FRESH_MS)
                .with_cache_scope(CacheScope::Public),
            false => list,
        }
    }

    /// Answers `prompts/list`.
    pub(super) fn prompts(modern: bool) -> ListPromptsResult {
        let list = ListPromptsResult::with_all_items(prompt::list());
        match modern {
            true => list
                .with_ttl_ms(FRESH_MS)
                .with_cache_scope(CacheScope::Public),
            false => list,
        }
    }

    /// Answers a request that is not decoded as one that is known: its method is unknown, or its params are
    /// wrong.
    pub(super) fn not_decoded(method: &str, modern: bool) -> ErrorData {
        let is_older = !modern && OLDER_METHODS.contains(&method);
        if !is_older && !METHODS.contains(&method) {
            let sentence = format!("there is no method '{method}'");
            return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, sentence, None);
        }
        let sentence = format!("the params of {method} are not what it takes");
        ErrorData::invalid_params(sentence, None)
    }
}

/// Where a request over HTTP comes from.
fn origin_of(extensions: &Extensions) -> Result<Arc<Origin>, ErrorData> {
    let parts = extensions.get::<axum::http::request::Parts>();
    let origin = parts.and_then(|parts| parts.extensions.get::<Arc<Origin>>());
    let unknown = || ErrorData::internal_error("nobody knows where this call comes from", None);
    origin.cloned().ok_or_else(unknown)
}

fn is_modern_request(context: &RequestContext<RoleServer>) -> bool {
    is_modern(context.protocol_version().as_ref())
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .build();
        let abide = Implementation::new("abide", env!("CARGO_PKG_VERSION")).with_title("abide");
        ServerConfig::new(capabilities)
            .with_server_info(abide)
            .with_instructions(prompt::INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let origin = origin_of(&context.extensions)?;
        context.peer.set_peer_info(request.clone());
        self.initialize_result(&request, &origin)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Ok(origin) = origin_of(&context.extensions) {
            self.initialized(&origin, Peer::Http(context.peer)).await;
        }
    }

    #[expect(deprecated, reason = "clients of the older generations set it")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.set_log_level(&request);
        Ok(())
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let client = context.client_info().map(|client| client.name);
        Ok(self.discover_result(client.as_deref().unwrap_or_default()))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(Server::tools(is_modern_request(&context)))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(Server::prompts(is_modern_request(&context)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompt::get(&request).map(GetPromptResponse::from)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let modern = is_modern_request(&context);
        Err(Server::not_decoded(&request.method, modern))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let ack = ack_of(&context.extensions);
        let name = context.client_info().map(|client| client.name);
        let client = call::Client::new(
            name.unwrap_or_default(),
            context.client_capabilities(),
            is_modern_request(&context),
        );
        let context = CallContext {
            origin: origin_of(&context.extensions)?,
            client,
            in_flight: context.extensions.get::<Arc<InFlight>>().cloned(),
            peer: Peer::Http(context.peer),
            meta: context.meta,
            cancelled: context.ct,
        };
        let mut answered = self.call(request, context).await?;
        if let (Some(ack), Some(receipt)) = (ack, answered.receipt.take()) {
            ack.put(receipt);
        }
        Ok(answered.said.into())
    }
}

/// Where the receipt goes of a call that came over HTTP.
fn ack_of(extensions: &Extensions) -> Option<Arc<AckOnBodyEnd>> {
    let parts = extensions.get::<axum::http::request::Parts>()?;
    parts.extensions.get().cloned()
}

/// The methods that take params which can be wrong.
const METHODS: [&str; 4] = ["tools/list", "tools/call", "prompts/list", "prompts/get"];
/// Those that the generation without a handshake does not have.
const OLDER_METHODS: [&str; 2] = ["initialize", "logging/setLevel"];

/// The newest version that a client is offered.
///
/// From 2026-07-28 on a call can ask only by returning. Claude Code then shows the question until it is
/// answered, even where the command has long ended, and its agent stands still for as long: nobody can
/// take the question back. Of the version before it takes questions back, and the call goes on.
fn newest_for(client: &str) -> ProtocolVersion {
    match client {
        "claude-code" => ProtocolVersion::V_2025_11_25,
        _ => ProtocolVersion::V_2026_07_28,
    }
}

/// Whether a version is of the generation without a handshake.
pub fn is_modern(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| !version.has_initialize())
}

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| tools::all().iter().map(published).collect());

fn published(tool: &tools::Described) -> Tool {
    let annotations = ToolAnnotations::with_title(tool.title)
        .read_only(tool.power.read_only())
        .destructive(tool.power.destructive())
        .idempotent(tool.power.idempotent())
        .open_world(tool.power.open_world());
    let mut published = Tool::new(tool.name, tool.description, object((tool.input)()));
    published.title = Some(tool.title.into());
    published.output_schema = Some(Arc::new(object((tool.output)())));
    published.annotations = Some(annotations);
    published
}

fn object(schema: Value) -> JsonObject {
    match schema {
        Value::Object(schema) => schema,
        other => unreachable!("a tool's schema is an object, not {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_published_whole() {
        let listed: Vec<&str> = TOOLS.iter().map(|tool| tool.name.as_ref()).collect();
        let known: Vec<&str> = tools::all().iter().map(|tool| tool.name).collect();
        assert_eq!(listed, known);
        for tool in TOOLS.iter() {
            let schema = tool.output_schema.as_ref().expect("an output schema");
            assert_eq!(schema["type"], "object");
            assert_eq!(tool.input_schema["type"], "object");
            assert!(tool.name.len() < 64);
        }
    }
}
