//! The clients that can be set up: where each keeps its servers, and what it is told about abide.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::{Map, Value};

use super::jsonc::{self, Fault};
use super::toml;
use crate::cli::args::ClientName;
use abide_engine::config::clients;

/// What abide is called in the clients' files.
pub const NAME: &str = "abide";

/// Seconds that a client is told to wait for a call, where it has such a setting and would otherwise
/// give up after minutes. abide is told the same, and answers before.
const CALL_LIMIT: u64 = 3_600;

/// How abide is started by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The program.
    pub command: String,
    /// Its words.
    pub args: Vec<String>,
    /// Variables besides those that the client hands on.
    pub env: Vec<(String, String)>,
    /// Seconds that a call may take.
    pub call_limit: Option<u64>,
}

impl Server {
    /// The variables of abide's own that are not set for it: with one from an earlier time it would serve
    /// another abide.
    pub fn unwanted(&self) -> impl Iterator<Item = &'static str> {
        let wanted = |name: &str| self.env.iter().any(|(set, _)| set == name);
        clients::OWN_VARIABLES
            .into_iter()
            .filter(move |name| !wanted(name))
    }
}

/// In which words a client's file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON: a member of this name holds the servers.
    Json {
        /// `mcpServers`, or another word for it.
        key: &'static str,
        /// Whether the kind of server is said.
        typed: bool,
        /// Whether the limit on a call is said, in milliseconds.
        limit: bool,
    },
    /// Codex's TOML.
    Codex,
}

impl ClientName {
    /// As it is typed, which is also the agent that it is by default.
    pub fn word(self) -> &'static str {
        match self {
            ClientName::ClaudeCode => "claude-code",
            ClientName::Codex => "codex",
            ClientName::Cursor => "cursor",
            ClientName::Vscode => "vscode",
            ClientName::Gemini => "gemini",
        }
    }

    /// As its makers write it.
    pub fn title(self) -> &'static str {
        match self {
            ClientName::ClaudeCode => "Claude Code",
            ClientName::Codex => "Codex",
            ClientName::Cursor => "Cursor",
            ClientName::Vscode => "Visual Studio Code",
            ClientName::Gemini => "Gemini CLI",
        }
    }

    /// All of them.
    pub const ALL: [ClientName; 5] = [
        ClientName::ClaudeCode,
        ClientName::Codex,
        ClientName::Cursor,
        ClientName::Vscode,
        ClientName::Gemini,
    ];

    /// Its file: of the user, or of the project in this folder.
    pub fn file(self, project: Option<&Path>) -> PathBuf {
        match (self, project) {
            (ClientName::ClaudeCode, None) => clients::claude_code(),
            (ClientName::Codex, None) => clients::codex(),
            (ClientName::Cursor, None) => clients::cursor(),
            (ClientName::Vscode, None) => clients::vscode(),
            (ClientName::Gemini, None) => clients::gemini(),
            (ClientName::ClaudeCode, Some(folder)) => folder.join(".mcp.json"),
            (ClientName::Codex, Some(folder)) => folder.join(".codex/config.toml"),
            (ClientName::Cursor, Some(folder)) => folder.join(".cursor/mcp.json"),
            (ClientName::Vscode, Some(folder)) => folder.join(".vscode/mcp.json"),
            (ClientName::Gemini, Some(folder)) => folder.join(".gemini/settings.json"),
        }
    }

    /// What its file looks like.
    pub fn form(self) -> Form {
        let json = |key, typed, limit| Form::Json { key, typed, limit };
        match self {
            ClientName::ClaudeCode | ClientName::Cursor => json("mcpServers", true, false),
            ClientName::Vscode => json("servers", true, false),
            ClientName::Gemini => json("mcpServers", false, true),
            ClientName::Codex => Form::Codex,
        }
    }

    /// The kind of waker that brings its last session back to work, where there is one.
    pub fn waker(self) -> Option<&'static str> {
        match self {
            ClientName::ClaudeCode => Some("claude_code"),
            ClientName::Codex => Some("codex"),
            ClientName::Cursor | ClientName::Vscode | ClientName::Gemini => None,
        }
    }

    /// What the waker that is written does, and what that can cost.
    pub fn waker_note(self) -> Option<&'static str> {
        match self {
            ClientName::ClaudeCode => Some(
                "When a timer completes that the agent asked to be woken by, a closed session is continued with `claude -p --resume`. Each such turn is billed like any other; at most 12 per hour.",
            ),
            ClientName::Codex => Some(
                "The waker continues a closed thread with `codex exec resume` when a timer completes that \
                 its agent asked to be woken by. Each such turn is billed like any other; there are at \
                 most 12 an hour.",
            ),
            ClientName::Cursor | ClientName::Vscode | ClientName::Gemini => None,
        }
    }

    /// What else a person has to do in the client, where there is something.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            ClientName::ClaudeCode => Some(
                "To skip approval of each call, add to ~/.claude/settings.json: \
                 \"permissions\": {\"allow\": [\"mcp__abide\"]}",
            ),
            ClientName::Codex => Some(
                "To skip approval of each call, add under [mcp_servers.abide]: \
                 default_tools_approval_mode = \"approve\"",
            ),
            ClientName::Gemini => Some(
                "Gemini CLI starts servers only in trusted folders. To skip approval of each call, add to the entry: \"trust\": true",
            ),
            ClientName::Vscode => Some("In VS Code, `MCP: List Servers` shows and starts it."),
            ClientName::Cursor => None,
        }
    }

    /// The limit on a call that it is told.
    fn call_limit(self) -> Option<u64> {
        // Claude Code waits for as long as it hears of progress; the others know no such setting.
        matches!(self, ClientName::Codex | ClientName::Gemini).then_some(CALL_LIMIT)
    }

    /// What it is told to start. Others work on a project too, so nothing of this machine is in its
    /// file.
    pub fn server(self, program: &str, agent: &str, project: bool) -> Server {
        let mut env = if project {
            Vec::new()
        } else {
            clients::own_variables()
        };
        let call_limit = self.call_limit();
        if let Some(limit) = call_limit {
            env.push(("ABIDE_CALL_LIMIT".into(), limit.to_string()));
        }
        Server {
            command: if project { NAME.into() } else { program.into() },
            args: vec!["mcp".into(), "--agent".into(), agent.into()],
            env,
            call_limit,
        }
    }
}

impl Form {
    /// Whether abide is set up in this text.
    pub fn has_server(self, text: &str) -> Result<bool, Fault> {
        match self {
            Form::Json { key, .. } => Ok(jsonc::get(text, &[key, NAME])?.is_some()),
            Form::Codex => toml::has_server(text, NAME),
        }
    }

    /// The program that this text starts as abide.
    pub fn command(self, text: &str) -> Result<Option<String>, Fault> {
        match self {
            Form::Json { key, .. } => {
                let command = jsonc::get(text, &[key, NAME, "command"])?;
                Ok(command.and_then(|command| Some(command.as_str()?.to_owned())))
            }
            Form::Codex => toml::command_of(text, NAME),
        }
    }

    /// Whether abide is set up in this text with the words that are written here.
    pub fn has_own(self, text: &str) -> Result<bool, Fault> {
        let command = self.command(text)?.unwrap_or_default();
        let args = match self {
            Form::Json { key, .. } => {
                let args = jsonc::get(text, &[key, NAME, "args"])?;
                args.and_then(|args| serde_json::from_value(args).ok())
            }
            Form::Codex => toml::args_of(text, NAME)?,
        };
        let args: Vec<String> = args.unwrap_or_default();
        let ours = matches!(&args[..], [mcp, agent, _] if mcp == "mcp" && agent == "--agent");
        Ok(ours && Path::new(&command).file_name() == Some(OsStr::new(NAME)))
    }

    /// The text with abide.
    pub fn add(self, text: &str, server: &Server) -> Result<String, Fault> {
        match self {
            Form::Json { key, typed, limit } => {
                let entry = Entry {
                    server,
                    typed,
                    limit,
                };
                match jsonc::get(text, &[key, NAME])? {
                    Some(Value::Object(found)) if found.contains_key("command") => {
                        entry.amend(text, key, &found)
                    }
                    _ => jsonc::set(text, &[key, NAME], &entry),
                }
            }
            Form::Codex => toml::add_server(text, NAME, server),
        }
    }

    /// The text without abide; where `before` had another one, with that.
    pub fn take_out(self, text: &str, before: Option<&str>) -> Result<String, Fault> {
        let Form::Json { key, .. } = self else {
            return toml::take_out_server(text, NAME, before);
        };
        let old = |path: &[&str]| match before {
            Some(before) => jsonc::get(before, path),
            None => Ok(None),
        };
        if let Some(entry) = old(&[key, NAME])? {
            return jsonc::set(text, &[key, NAME], &entry);
        }
        let rest = jsonc::remove(text, &[key, NAME])?;
        let empty = jsonc::get(&rest, &[key])?.is_some_and(|all| all == serde_json::json!({}));
        if empty && old(&[key])?.is_none() {
            return jsonc::remove(&rest, &[key]);
        }
        Ok(rest)
    }
}

/// A server as JSON files have it, in the order that people write it in.
struct Entry<'a> {
    server: &'a Server,
    typed: bool,
    limit: bool,
}

impl Entry<'_> {
    /// Sets what is ours in an entry that is there; what somebody has set in it besides stays.
    fn amend(&self, text: &str, key: &str, found: &Map<String, Value>) -> Result<String, Fault> {
        let wanted = serde_json::to_value(self).map_err(|fault| Fault(fault.to_string()))?;
        let mut text = text.to_owned();
        for (name, value) in wanted.as_object().into_iter().flatten() {
            if name != "env" && found.get(name) != Some(value) {
                text = jsonc::set(&text, &[key, NAME, name], value)?;
            }
        }
        let old = |name: &str| found.get("env").and_then(|env| env.get(name)?.as_str());
        for name in self.server.unwanted() {
            if old(name).is_some() {
                text = jsonc::remove(&text, &[key, NAME, "env", name])?;
            }
        }
        for (name, value) in &self.server.env {
            if old(name) != Some(value) {
                text = jsonc::set(&text, &[key, NAME, "env", name], value)?;
            }
        }
        Ok(text)
    }
}

impl Serialize for Entry<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        if self.typed {
            map.serialize_entry("type", "stdio")?;
        }
        map.serialize_entry("command", &self.server.command)?;
        map.serialize_entry("args", &self.server.args)?;
        if !self.server.env.is_empty() {
            let env: Map<_, _> = self
                .server
                .env
                .iter()
                .map(|(name, text)| (name.clone(), text.as_str().into()))
                .collect();
            map.serialize_entry("env", &env)?;
        }
        if let Some(limit) = self.server.call_limit.filter(|_| self.limit) {
            map.serialize_entry("timeout", &(limit * 1_000))?;
        }
        map.end()
    }
}
