//! What the MCP library asks of a server: who it is, what tools and prompts it has, and to call one.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use abide_core::{Agent, Conversation};
use futures_util::FutureExt;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult,
    DiscoverResult, ErrorCode, Extensions, GetPromptRequestParams, GetPromptResponse,
    Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, RequestMetaObject,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{self, NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;

use super::call::{self, Answered};
use super::hello::Hello;
use super::news::{Level, Listener};
use super::other_questions::Shown;
use super::seal::Seal;
use super::slip::Slip;
use super::wire::Note;
use super::{client, news, prompt};
use crate::daemon::{Handle, Present};
use crate::door::tools;
use crate::world::peer::Peer;

/// How long a client may keep the lists: they change with the version only.
const FRESH_MS: u64 = 5 * 60 * 1_000;

/// One client's server.
#[derive(Clone)]
pub struct Server {
    pub(super) handle: Handle,
    pub(super) seal: Arc<Seal>,
    pub(super) shown: Arc<Shown>,
    /// `None`: every request over HTTP brings its own.
    origin: Option<Arc<Origin>>,
    level: Arc<Level>,
    /// Somebody brings its client messages already.
    listens: Arc<AtomicBool>,
    /// Its client, once the library knows it.
    client: Arc<OnceLock<Client>>,
    /// The conversations that speak over this connection.
    speaks: Arc<Speaks>,
}

/// The conversations that speak over one connection, each connected for as long as that lives.
#[derive(Default)]
pub struct Speaks(Mutex<VecDeque<(Agent, Conversation, Present)>>);

/// Conversations of one connection; the one that was heard first is forgotten.
const CONVERSATIONS: usize = 64;

impl Speaks {
    /// Whether this conversation of an agent is one of them.
    pub fn has(&self, agent: &Agent, conversation: &Conversation) -> bool {
        let all = self.0.lock().expect("no holder panics");
        all.iter()
            .any(|(whose, known, _)| whose == agent && known == conversation)
    }

    fn add(&self, agent: &Agent, conversation: &Conversation, present: Present) {
        let mut all = self.0.lock().expect("no holder panics");
        if all.len() == CONVERSATIONS {
            all.pop_front();
        }
        all.push_back((agent.clone(), conversation.clone(), present));
    }
}

/// A client as the library knows it.
struct Client {
    peer: service::Peer<RoleServer>,
    /// It has opened its session with a handshake, so its requests need not say of themselves what they are.
    shook_hands: bool,
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
    pub peer: Peer,
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
    pub fn of_a_front(hello: Hello, peer: Peer) -> Self {
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
        self.var(news::CHANNEL).is_some_and(|value| value == "1")
    }
}

impl Server {
    /// For the client of a front.
    pub fn of_a_front(handle: Handle, seal: Arc<Seal>, origin: Origin) -> Self {
        Server {
            handle,
            seal,
            origin: Some(Arc::new(origin)),
            level: Arc::default(),
            listens: Arc::default(),
            shown: Arc::default(),
            client: Arc::default(),
            speaks: Arc::default(),
        }
    }

    /// For a client whose requests come over HTTP, each with an [`Origin`] among its extensions.
    pub fn over_http(handle: Handle, seal: Arc<Seal>) -> Self {
        Server {
            handle,
            seal,
            origin: None,
            level: Arc::default(),
            listens: Arc::default(),
            shown: Arc::default(),
            client: Arc::default(),
            speaks: Arc::default(),
        }
    }

    /// Where this request comes from.
    pub(super) fn origin(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<Origin>, ErrorData> {
        let unknown = || ErrorData::internal_error("nobody knows where this call comes from", None);
        self.origin_of(&context.extensions).ok_or_else(unknown)
    }

    /// A conversation speaks over this connection, and is connected while that lives.
    pub(super) async fn speaks_in(&self, agent: &Agent, conversation: &Conversation) {
        if !self.speaks.has(agent, conversation) {
            let present = self.handle.connected(agent, conversation).await;
            self.speaks.add(agent, conversation, present);
        }
    }

    /// The library knows the client of this front.
    fn know(&self, peer: &service::Peer<RoleServer>, shook_hands: bool) {
        if self.origin.is_some() {
            self.client.get_or_init(|| Client {
                peer: peer.clone(),
                shook_hands,
            });
        }
    }

    /// The client, where the library has nothing to say to a call with this meta, in a session that was opened
    /// without a handshake or with one.
    pub(super) fn client_for(
        &self,
        meta: Option<&RequestMetaObject>,
        inline: bool,
    ) -> Option<service::Peer<RoleServer>> {
        let client = self.client.get()?;
        let plain = match meta.and_then(|meta| Some((meta, meta.protocol_version()?))) {
            None => client.shook_hands && !inline,
            Some((meta, version)) => {
                let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28);
                missing.is_empty() && self.supported_protocol_versions().contains(&version)
            }
        };
        plain.then(|| client.peer.clone())
    }

    /// Calls a tool. A panic is answered too: without this, its call would never be.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
        note: Option<Arc<Note>>,
    ) -> Result<Answered, ErrorData> {
        let called = call::run(self, request, context, note);
        let caught = AssertUnwindSafe(called).catch_unwind().await;
        caught.unwrap_or_else(|_| {
            let sentence = "the call failed inside abide; what it had started goes on, and the \
                daemon's log says more";
            Err(ErrorData::internal_error(sentence, None))
        })
    }

    fn origin_of(&self, extensions: &Extensions) -> Option<Arc<Origin>> {
        let brought = || {
            let parts = extensions.get::<axum::http::request::Parts>()?;
            parts.extensions.get::<Arc<Origin>>().cloned()
        };
        self.origin.clone().or_else(brought)
    }
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

    /// The older generations, in which a client can be told of messages at any time.
    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut answer = self.negotiate_initialize(&request)?;
        self.know(&context.peer, true);
        answer.capabilities.logging = Some(JsonObject::new());
        let origin = self.origin_of(&context.extensions);
        if origin.is_some_and(|origin| origin.has_channel()) {
            let channel = (news::CHANNEL_CAPABILITY.to_owned(), JsonObject::new());
            answer.capabilities.experimental = Some([channel].into());
        }
        Ok(answer)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Some(origin) = self.origin_of(&context.extensions)
            // However often a client says that it is ready, it hears of each message once.
            && !self.listens.swap(true, Ordering::Relaxed)
        {
            if let Some(conversation) = &origin.conversation {
                self.speaks_in(&origin.agent, conversation).await;
            }
            let listener = Listener {
                agent: origin.agent.clone(),
                peer: context.peer,
                level: self.level.clone(),
                channel: origin.has_channel(),
                speaks: Arc::downgrade(&self.speaks),
            };
            tokio::spawn(news::bring(self.handle.clone(), listener));
        }
    }

    #[expect(deprecated, reason = "clients of the older generations set it")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let level = serde_json::to_value(request.level).unwrap_or_default();
        self.level.set(&level);
        Ok(())
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let client = context.client_info().map(|client| client.name);
        let newest = newest_for(client.as_deref().unwrap_or_default());
        let versions = ProtocolVersion::known_up_to(&newest).to_vec();
        Ok(DiscoverResult::from_server_info(versions, self.get_info()))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let list = ListToolsResult::with_all_items(TOOLS.clone());
        Ok(match is_modern(&context) {
            true => list
                .with_ttl_ms(FRESH_MS)
                .with_cache_scope(CacheScope::Public),
            false => list,
        })
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let list = ListPromptsResult::with_all_items(prompt::list());
        Ok(match is_modern(&context) {
            true => list
                .with_ttl_ms(FRESH_MS)
                .with_cache_scope(CacheScope::Public),
            false => list,
        })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompt::get(&request).map(GetPromptResponse::from)
    }

    /// What has a name that is known, but cannot be read as what it names, is not unknown but wrong.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        let of_older = !is_modern(&context) && OLDER_METHODS.contains(&method.as_str());
        if !of_older && !METHODS.contains(&method.as_str()) {
            let sentence = format!("there is no method '{method}'");
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, sentence, None));
        }
        let sentence = format!("the params of {method} are not what it takes");
        Err(ErrorData::invalid_params(sentence, None))
    }

    /// A call that the library has something to say to, or that comes over HTTP.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.know(&context.peer, false);
        let note = context.extensions.get::<Arc<Note>>().cloned();
        let slip = slip(&context.extensions);
        let mut answered = self.call(request, context, note.clone()).await?;
        if let Some(receipt) = answered.receipt.take() {
            match (slip, note) {
                (Some(slip), _) => slip.leave(receipt),
                (None, Some(note)) => note.leave(receipt),
                (None, None) => {}
            }
        }
        Ok(answered.said.into())
    }
}

/// Where the receipt goes of a call that came over HTTP.
fn slip(extensions: &Extensions) -> Option<Arc<Slip>> {
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

/// Whether a request is of the generation without a handshake.
pub fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
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
