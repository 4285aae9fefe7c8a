//! Answers to the MCP methods for one client. `dispatch` decides which of them is called.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use abide_core::{Agent, Conversation};
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, DiscoverResult, ErrorCode, Implementation, InitializeRequestParams,
    InitializeResult, JsonObject, ListPromptsResult, ListToolsResult, ProtocolVersion,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use serde_json::Value;

use super::client_channel::ClientChannel;
use super::client_quirks::ClientQuirks;
use super::conversations::ConnectionConversations;
use super::message_notifications::{self, CHANNEL, CHANNEL_CAPABILITY, Listener, LogLevelFilter};
use super::origin::Origin;
use super::other_questions::ShownQuestions;
use super::round_codec::RoundCodec;
use crate::tools;
use abide_api::ToolName;
use abide_api::schema::without_descriptions;
use abide_engine::Handle;

/// Time, in milliseconds, for which a client may cache the lists; they change only with the version of abide.
const CACHE_MS: u64 = 5 * 60 * 1_000;

/// Server instructions: a short guide for agents to the tools.
const INSTRUCTIONS: &str = "\
Prefer abide to a built-in shell for commands that may take long, go quiet, need a terminal or must outlive the call.
- Ends in seconds: shell. Unknown duration: execute_command. REPL, server, ssh, editor: terminal_session.
- Wait for a port, URL, file, session or command: timer with `until`. Something to do later: timer with `mission`.
- Never poll and never `sleep`: one call waits. `running` means that the command continues: call the tool again with its session_id, not \
with the command.
- All output is kept: search it instead of running a command again.";

/// One client's server.
#[derive(Clone)]
pub struct Server {
    pub(super) handle: Handle,
    pub(super) codec: Arc<RoundCodec>,
    pub(super) shown_questions: Arc<ShownQuestions>,
    level: Arc<LogLevelFilter>,
    /// A task already sends message notifications to this client.
    notifies: Arc<AtomicBool>,
    /// Conversations that use this connection.
    conversations: Arc<ConnectionConversations>,
}

impl Server {
    /// Server for one client.
    pub fn new(handle: Handle, codec: Arc<RoundCodec>) -> Self {
        Server {
            handle,
            codec,
            level: Arc::default(),
            notifies: Arc::default(),
            shown_questions: Arc::default(),
            conversations: Arc::default(),
        }
    }

    /// Registers a conversation of this connection, which counts as connected while the connection lives.
    pub(super) async fn join_conversation(&self, agent: &Agent, conversation: &Conversation) {
        if !self.conversations.has(agent, conversation) {
            let guard = self.handle.connect_conversation(agent, conversation).await;
            self.conversations.add(agent, conversation, guard);
        }
    }

    fn config() -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(Default::default());
        // There are none, but a server that answers `prompts/list` must declare it.
        capabilities.prompts = Some(Default::default());
        let abide = Implementation::new("abide", env!("CARGO_PKG_VERSION")).with_title("abide");
        ServerConfig::new(capabilities)
            .with_server_info(abide)
            .with_instructions(INSTRUCTIONS)
    }

    /// Answers `initialize`, which exists in the versions up to 2025-11-25; in these a client can be notified
    /// of messages at any time. A client that asks for a version that is unknown or has no `initialize` gets
    /// the newest version that has it.
    pub(super) fn initialize_result(
        request: &InitializeRequestParams,
        origin: &Origin,
    ) -> InitializeResult {
        let mut answer = Server::config();
        let requested = &request.protocol_version;
        let is_known = ProtocolVersion::KNOWN_VERSIONS.contains(requested);
        answer.protocol_version = match is_known && requested.has_initialize() {
            true => requested.clone(),
            false => ProtocolVersion::LATEST_WITH_INITIALIZE,
        };
        answer.capabilities.logging = Some(JsonObject::new());
        if has_channel(origin) {
            let channel = (CHANNEL_CAPABILITY.to_owned(), JsonObject::new());
            answer.capabilities.experimental = Some([channel].into());
        }
        answer
    }

    /// Starts message notifications after the client has sent `notifications/initialized`, once per client.
    pub(super) async fn initialized(&self, origin: &Origin, client_channel: ClientChannel) {
        if self.notifies.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(conversation) = &origin.conversation {
            self.join_conversation(&origin.agent, conversation).await;
        }
        let listener = Listener {
            agent: origin.agent.clone(),
            client_channel,
            level: self.level.clone(),
            channel: has_channel(origin),
            conversations: Arc::downgrade(&self.conversations),
        };
        tokio::spawn(message_notifications::announce(
            self.handle.clone(),
            listener,
        ));
    }

    /// Handles `logging/setLevel`.
    #[expect(deprecated, reason = "clients of the older generations set it")]
    pub(super) fn set_log_level(&self, request: &rmcp::model::SetLevelRequestParams) {
        let level = serde_json::to_value(request.level).unwrap_or_default();
        self.level.set(&level);
    }

    /// Answers `server/discover` for the client of this name.
    pub(super) fn discover_result(client: &str) -> DiscoverResult {
        let versions =
            ProtocolVersion::known_up_to(&ClientQuirks::of(client).newest_version()).to_vec();
        DiscoverResult::from_server_info(versions, Server::config())
    }

    /// Answers `tools/list`.
    pub(super) fn tools(&self, modern: bool) -> ListToolsResult {
        let has_sandbox = self.handle.config().sandbox.is_used();
        let tools = tool_list(has_sandbox, self.handle.other_machines().is_some());
        let list = ListToolsResult::with_all_items(tools);
        match modern {
            true => list
                .with_ttl_ms(CACHE_MS)
                .with_cache_scope(CacheScope::Public),
            false => list,
        }
    }

    /// Answers `prompts/list`.
    pub(super) fn prompts(modern: bool) -> ListPromptsResult {
        let list = ListPromptsResult::default();
        match modern {
            true => list
                .with_ttl_ms(CACHE_MS)
                .with_cache_scope(CacheScope::Public),
            false => list,
        }
    }

    /// Error for a method that this version of the protocol does not have, or abide does not.
    pub(super) fn no_such_method(method: &str) -> ErrorData {
        let sentence = format!("there is no method '{}'", tools::shown(method));
        ErrorData::new(ErrorCode::METHOD_NOT_FOUND, sentence, None)
    }

    /// Error for a request that was not decoded as a known one: its method is unknown, or its params are invalid.
    pub(super) fn not_decoded(method: &str, params: Option<&Value>, modern: bool) -> ErrorData {
        let is_older = !modern && OLDER_METHODS.contains(&method);
        if !is_older && !METHODS.contains(&method) {
            return Server::no_such_method(method);
        }
        ErrorData::invalid_params(invalid_params(method, params.unwrap_or(&Value::Null)), None)
    }
}

/// True if the client listens to a Claude Code channel.
fn has_channel(origin: &Origin) -> bool {
    origin.var(CHANNEL).is_some_and(|value| value == "1")
}

/// Sentence about params that were not decoded. It names the first field that is wrong.
fn invalid_params(method: &str, params: &Value) -> String {
    let got = |value: &Value| match value {
        Value::Null => "nothing".into(),
        value => tools::shown(&value.to_string()),
    };
    let Value::Object(fields) = params else {
        return format!(
            "`params` of {method} must be an object; got {}",
            got(params)
        );
    };
    let field = |name: &str| fields.get(name).unwrap_or(&Value::Null);
    let has_name = matches!(method, "tools/call" | "prompts/get");
    if has_name && !field("name").is_string() {
        return format!("`name` must be text; got {}", got(field("name")));
    }
    for name in ["arguments", "_meta"] {
        if !field(name).is_object() && !field(name).is_null() {
            return format!("`{name}` must be an object; got {}", got(field(name)));
        }
    }
    format!("the params of {method} are invalid; got {}", got(params))
}

/// Methods whose params can be invalid.
const METHODS: [&str; 4] = ["tools/list", "tools/call", "prompts/list", "prompts/get"];
/// Methods that do not exist in the versions without a handshake.
const OLDER_METHODS: [&str; 2] = ["initialize", "logging/setLevel"];

/// True if a version has no handshake (from 2026-07-28 on).
pub fn is_modern(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| !version.has_initialize())
}

/// Tools of a machine. Without a sandbox they have no arguments about one, outside a fleet none about machines.
pub fn tool_list(has_sandbox: bool, in_fleet: bool) -> Vec<Tool> {
    let mut tools = match has_sandbox {
        true => SANDBOX_TOOLS.clone(),
        false => TOOLS.clone(),
    };
    if in_fleet {
        for (tool, listed) in ToolName::ALL.into_iter().zip(&mut tools) {
            tools::add_machine_argument(tool, Arc::make_mut(&mut listed.input_schema));
        }
    }
    tools
}

static SANDBOX_TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| published(true));
static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| published(false));

fn published(has_sandbox: bool) -> Vec<Tool> {
    let tools = tools::all().iter();
    tools.map(|tool| publish(tool, has_sandbox)).collect()
}

fn publish(tool: &tools::ToolDescription, has_sandbox: bool) -> Tool {
    let annotations = ToolAnnotations::with_title(tool.title)
        .read_only(tool.effect.read_only())
        .destructive(tool.effect.destructive())
        .idempotent(tool.effect.idempotent())
        .open_world(tool.effect.open_world());
    let mut published = Tool::new(
        tool.name.as_str(),
        tool.description(),
        object(tool.input_for_models(has_sandbox)),
    );
    published.title = Some(tool.title.into());
    published.output_schema = Some(Arc::new(object(without_descriptions((tool.output)()))));
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
    use serde_json::json;

    #[test]
    fn every_tool_is_listed_with_schemas() {
        let listed: Vec<&str> = TOOLS.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(listed, ToolName::ALL.map(ToolName::as_str));
        for tool in TOOLS.iter() {
            let schema = tool.output_schema.as_ref().expect("an output schema");
            assert_eq!(schema["type"], "object");
            assert_eq!(tool.input_schema["type"], "object");
            assert!(tool.name.len() < 64);
        }
    }

    #[test]
    fn invalid_params_name_the_field_and_what_was_given() {
        for (method, params, sentence) in [
            (
                "tools/call",
                Value::Null,
                "`params` of tools/call must be an object; got nothing",
            ),
            (
                "tools/call",
                json!({"arguments": {}}),
                "`name` must be text; got nothing",
            ),
            (
                "prompts/get",
                json!({"name": 7}),
                "`name` must be text; got 7",
            ),
            (
                "tools/call",
                json!({"name": "shell", "arguments": ["ls"]}),
                "`arguments` must be an object; got [\"ls\"]",
            ),
            (
                "tools/list",
                json!({"_meta": 1}),
                "`_meta` must be an object; got 1",
            ),
            (
                "tools/list",
                json!({"cursor": 1}),
                "the params of tools/list are invalid; got {\"cursor\":1}",
            ),
        ] {
            assert_eq!(invalid_params(method, &params), sentence);
        }
    }

    #[test]
    fn argument_on_is_added_to_the_tools_that_start_commands() {
        let tools = tool_list(false, true);
        let with_on = tools.iter().filter(|tool| {
            let fields = tool.input_schema.get("properties");
            fields.is_some_and(|fields| fields.get("on").is_some())
        });
        let with_on: Vec<&str> = with_on.map(|tool| tool.name.as_ref()).collect();
        assert_eq!(with_on, ["execute_command", "shell", "terminal_session"]);
        assert!(characters(&tools) <= characters(&TOOLS) + 300);
    }

    /// 7,700 characters are about 1,800 tokens of a current tokenizer.
    #[test]
    fn tools_and_instructions_cost_a_model_at_most_7700_characters() {
        let without = characters(&TOOLS);
        assert!(without <= 7_700, "{without} characters");
        let with = characters(&SANDBOX_TOOLS);
        assert!(with <= without + 800, "{with} characters with a sandbox");
        let listed = |tools: &[Tool]| serde_json::to_string(tools).expect("JSON");
        assert!(!listed(&TOOLS).contains("justification"));
        assert!(listed(&SANDBOX_TOOLS).contains("justification"));
    }

    fn characters(tools: &[Tool]) -> usize {
        let instructions = INSTRUCTIONS.chars().count();
        let tools = tools.iter().map(|tool| {
            let shown = serde_json::json!({
                "name": tool.name, "description": tool.description, "input_schema": tool.input_schema,
            });
            shown.to_string().chars().count()
        });
        instructions + tools.sum::<usize>()
    }
}
