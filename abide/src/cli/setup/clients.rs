//! Clients that can be set up: the location and format of their configuration files, and the entry for abide.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::jsonc::{self, EditError};
use super::launcher::Launcher;
use super::toml;
use crate::cli::args::ClientName;
use crate::cli::doctor::system;
use crate::cli::replace_file;
use abide_engine::config::{clients, home};

/// Name of the entry for abide in the clients' files.
pub const NAME: &str = "abide";

/// Time-out for tool calls, in seconds, for clients that have such a setting and would otherwise give
/// up after minutes. abide gets the same limit and answers before it.
const CALL_TIMEOUT: u64 = 3_600;

/// Entry that tells a client to start abide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// Path of the program.
    pub command: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Environment variables to set in addition to those that the client passes on.
    pub env: Vec<(String, String)>,
    /// Time-out for a tool call, in seconds.
    pub call_limit: Option<u64>,
    /// Set if the client calls the tools of abide without asking the person each time.
    pub without_approval: bool,
}

impl ServerEntry {
    /// Environment variables of abide that must not be set in the entry: one that is left from an
    /// earlier setup would select another abide instance.
    pub fn stale_variables(&self) -> impl Iterator<Item = &'static str> {
        let expected = |name: &str| self.env.iter().any(|(set, _)| set == name);
        clients::OWN_VARIABLES
            .into_iter()
            .filter(move |name| !expected(name))
    }
}

/// Format of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFormat {
    /// JSON, with an object of this name, such as `mcpServers`, that contains the servers.
    Json(&'static str),
    /// The same of Gemini CLI, whose entries have the time-out for a call and say if the client trusts the server.
    Gemini(&'static str),
    /// TOML file of Codex.
    Codex,
}

/// Entry for abide that a client's file has.
pub struct FoundServer {
    /// Path of the program.
    pub command: Option<String>,
    /// Arguments; `None` if one of them is no text.
    pub args: Option<Vec<String>>,
    /// Set if the client calls the tools without asking each time.
    pub without_approval: bool,
}

impl ClientName {
    /// Name on the command line, which is also the default agent name.
    pub fn word(self) -> &'static str {
        match self {
            ClientName::ClaudeCode => "claude-code",
            ClientName::Codex => "codex",
            ClientName::Cursor => "cursor",
            ClientName::Vscode => "vscode",
            ClientName::Gemini => "gemini",
        }
    }

    /// Product name.
    pub fn title(self) -> &'static str {
        match self {
            ClientName::ClaudeCode => "Claude Code",
            ClientName::Codex => "Codex",
            ClientName::Cursor => "Cursor",
            ClientName::Vscode => "Visual Studio Code",
            ClientName::Gemini => "Gemini CLI",
        }
    }

    /// All clients.
    pub const ALL: [ClientName; 5] = [
        ClientName::ClaudeCode,
        ClientName::Codex,
        ClientName::Cursor,
        ClientName::Vscode,
        ClientName::Gemini,
    ];

    /// Path of the configuration file: of the user, or of the project in this directory.
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

    /// Agent that an earlier setup has written to the file.
    pub fn agent_of_setup(self, project: Option<&Path>) -> Option<String> {
        // A file that cannot be read or parsed is reported when it is read for the change.
        let text = replace_file::read(&self.file(project)).ok().flatten()?;
        self.format().agent_of_setup(&text).ok().flatten()
    }

    /// Format of the configuration file.
    pub fn format(self) -> ConfigFormat {
        match self {
            ClientName::ClaudeCode | ClientName::Cursor => ConfigFormat::Json("mcpServers"),
            ClientName::Vscode => ConfigFormat::Json("servers"),
            ClientName::Gemini => ConfigFormat::Gemini("mcpServers"),
            ClientName::Codex => ConfigFormat::Codex,
        }
    }

    /// Kind of waker that resumes the client's last session, if there is one.
    pub fn waker(self) -> Option<&'static str> {
        match self {
            ClientName::ClaudeCode => Some("claude_code"),
            ClientName::Codex => Some("codex"),
            ClientName::Cursor | ClientName::Vscode | ClientName::Gemini => None,
        }
    }

    /// Question to the person whether commands run in a sandbox.
    pub fn sandbox_question(self) -> String {
        let title = self.title();
        format!(
            "Run the commands of {title} in a sandbox? Without one they have all your rights, even if {title} has a sandbox for \
             its own tools. In the sandbox they can change only the folder that {title} works in; what they write to your home or \
             temporary folders is kept apart, where only they see it. They do not see your keys and tokens. They have no network, \
             so `npm install` fails, until you add `network = \"on\"` to the entry that is shown below."
        )
    }

    /// Question to the person whether abide may wake the client, with what it can cost. `None`: the client has no waker.
    pub fn waker_question(self) -> Option<String> {
        let terms = self.waker_terms()?;
        Some(format!(
            "May abide start a turn of {} when a timer completes or a command ends after the agent has finished? {terms} If you \
             say no, the agent is told the next time it calls abide.",
            self.title()
        ))
    }

    /// Sentence about options for which the client has no setting. `None`: it has one for each that is given.
    pub fn without_setting(self, approve: bool, waker: bool) -> Option<String> {
        let options = [
            ("--approve", approve && self.approval_question().is_none()),
            ("--waker", waker && self.waker().is_none()),
        ];
        let ignored = options.into_iter().filter(|(_, ignored)| *ignored);
        let ignored: Vec<&str> = ignored.map(|(option, _)| option).collect();
        (!ignored.is_empty()).then(|| {
            let (title, ignored) = (self.title(), ignored.join(" and "));
            format!("{title} has no setting for {ignored}")
        })
    }

    /// Effect and cost of the waker.
    pub fn waker_terms(self) -> Option<&'static str> {
        match self {
            ClientName::ClaudeCode => Some(
                "You pay for such a turn as for any other. In a closed session it is started with `claude -p --resume`, at most 12 times an hour.",
            ),
            ClientName::Codex => Some(
                "You pay for such a turn as for any other. In a closed thread it is started with `codex exec resume`, at most 12 times an hour.",
            ),
            ClientName::Cursor | ClientName::Vscode | ClientName::Gemini => None,
        }
    }

    /// Further step for the person in the client, if there is one.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            ClientName::Vscode => Some("In VS Code, `MCP: List Servers` shows and starts it."),
            ClientName::Gemini => Some("Gemini CLI starts servers only in trusted folders."),
            ClientName::ClaudeCode | ClientName::Codex | ClientName::Cursor => None,
        }
    }

    /// Time-out for a call that is written to the client's file.
    fn call_limit(self) -> Option<u64> {
        // Claude Code waits while it receives progress notifications; Cursor and Visual Studio Code
        // have no such setting.
        matches!(self, ClientName::Codex | ClientName::Gemini).then_some(CALL_TIMEOUT)
    }

    /// Entry for the client's file. A project file is shared with other people, so it contains nothing
    /// specific to this machine.
    pub fn server(
        self,
        launcher: &Launcher,
        agent: &str,
        project: bool,
        without_approval: bool,
    ) -> ServerEntry {
        let mut env = if project {
            Vec::new()
        } else {
            clients::own_variables()
        };
        let call_limit = self.call_limit();
        if let Some(limit) = call_limit {
            env.push(("ABIDE_CALL_LIMIT".into(), limit.to_string()));
        }
        let (command, mut args) = match project && !launcher.is_package_runner() {
            true => (NAME.to_owned(), Vec::new()),
            false => (launcher.command.clone(), launcher.args.clone()),
        };
        args.extend(["mcp", "--agent", agent].map(str::to_owned));
        ServerEntry {
            command,
            args,
            env,
            call_limit,
            without_approval,
        }
    }

    /// Program of the client, and a folder or file that it makes when it runs for the first time.
    fn traces(self) -> (&'static str, PathBuf) {
        let folder = |file: PathBuf| file.parent().map_or_else(PathBuf::new, Path::to_owned);
        match self {
            ClientName::ClaudeCode => ("claude", claude_folder()),
            ClientName::Codex => ("codex", folder(clients::codex())),
            ClientName::Cursor => ("cursor", folder(clients::cursor())),
            ClientName::Vscode => ("code", folder(clients::vscode())),
            ClientName::Gemini => ("gemini", folder(clients::gemini())),
        }
    }

    /// Sentence if there is no sign of the client on this machine.
    pub fn missing(self) -> Option<String> {
        let (program, folder) = self.traces();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_known = folder.exists()
            || self.file(None).exists()
            || system::program(program, &path).is_some();
        (!is_known).then(|| {
            format!(
                "{} was not found on this machine: there is no program `{program}` and no {}.",
                self.title(),
                folder.display()
            )
        })
    }

    /// Question to the person whether the client may call the tools of abide without asking each time. `None`: the client
    /// has no setting for it.
    pub fn approval_question(self) -> Option<String> {
        let has_setting = match self {
            ClientName::ClaudeCode | ClientName::Codex | ClientName::Gemini => true,
            ClientName::Cursor | ClientName::Vscode => false,
        };
        has_setting.then(|| {
            format!(
                "May {} call the tools of abide without asking you each time? The rules of abide still ask before \
                 force-pushes, publishing, sudo and the like (`abide policy list`).",
                self.title()
            )
        })
    }

    /// Returns `true` if the client asks its user before each call, or if its files cannot be read.
    pub fn asks_now(self, project: Option<&Path>) -> bool {
        let servers = replace_file::read(&self.file(project)).ok().flatten();
        let asks = self.asks_before_calls(&servers.unwrap_or_default(), project);
        asks.unwrap_or(true)
    }

    /// Returns `true` if the client asks its user before each call of a tool that can run a command. `servers` is the
    /// text of its file with the entry for abide, of the user or of `project`.
    pub fn asks_before_calls(
        self,
        servers: &str,
        project: Option<&Path>,
    ) -> Result<bool, EditError> {
        if self.approval_question().is_none() {
            return Ok(false);
        }
        let Some(file) = self.permission_file(project) else {
            let found = self.format().server(servers)?;
            return Ok(!found.is_some_and(|found| found.without_approval));
        };
        let permissions = replace_file::read(&file).ok().flatten();
        Ok(!has_permission(&permissions.unwrap_or_default())?)
    }

    /// File with the permissions of the client, if it is another one than that of its servers.
    pub fn permission_file(self, project: Option<&Path>) -> Option<PathBuf> {
        let folder = match (self, project) {
            (ClientName::ClaudeCode, None) => claude_folder(),
            (ClientName::ClaudeCode, Some(project)) => project.join(".claude"),
            _ => return None,
        };
        Some(folder.join("settings.json"))
    }
}

/// Folder with the settings of Claude Code.
fn claude_folder() -> PathBuf {
    let folder = std::env::var_os("CLAUDE_CONFIG_DIR").filter(|folder| !folder.is_empty());
    folder.map_or_else(|| home().join(".claude"), PathBuf::from)
}

/// Permission of Claude Code that covers all tools of abide.
const CLAUDE_PERMISSION: &str = "mcp__abide";
/// Place of the permissions in its file.
const ALLOWED: [&str; 2] = ["permissions", "allow"];

/// Permissions that a file of Claude Code has.
fn permissions(text: &str) -> Result<Vec<Value>, EditError> {
    match jsonc::get(text, &ALLOWED)? {
        None => Ok(Vec::new()),
        Some(Value::Array(all)) => Ok(all),
        Some(_) => Err(EditError("`permissions.allow` is not a list".into())),
    }
}

/// Returns `true` if Claude Code may call the tools of abide.
pub fn has_permission(text: &str) -> Result<bool, EditError> {
    Ok(permissions(text)?.contains(&CLAUDE_PERMISSION.into()))
}

/// Text with the permission for abide.
pub fn add_permission(text: &str) -> Result<String, EditError> {
    let mut all = permissions(text)?;
    if all.contains(&CLAUDE_PERMISSION.into()) {
        return Ok(text.to_owned());
    }
    all.push(CLAUDE_PERMISSION.into());
    jsonc::set(text, &ALLOWED, all.into())
}

/// Text without the permission for abide.
pub fn remove_permission(text: &str) -> Result<String, EditError> {
    let mut all = permissions(text)?;
    all.retain(|known| *known != CLAUDE_PERMISSION);
    if !all.is_empty() {
        return jsonc::set(text, &ALLOWED, all.into());
    }
    let rest = jsonc::remove(text, &ALLOWED)?;
    let is_empty =
        jsonc::get(&rest, &ALLOWED[..1])?.is_some_and(|all| all == serde_json::json!({}));
    match is_empty {
        true => jsonc::remove(&rest, &ALLOWED[..1]),
        false => Ok(rest),
    }
}

impl ConfigFormat {
    /// Entry for abide.
    pub fn server(self, text: &str) -> Result<Option<FoundServer>, EditError> {
        let (ConfigFormat::Json(key) | ConfigFormat::Gemini(key)) = self else {
            return toml::server(text, NAME);
        };
        let found = jsonc::get(text, &[key, NAME])?;
        Ok(found.map(|found| FoundServer {
            command: found["command"].as_str().map(str::to_owned),
            args: serde_json::from_value(found["args"].clone()).ok(),
            without_approval: found["trust"] == true,
        }))
    }

    /// Agent of the entry for abide, if the entry has the arguments that setup writes.
    pub fn agent_of_setup(self, text: &str) -> Result<Option<String>, EditError> {
        let Some(found) = self.server(text)? else {
            return Ok(None);
        };
        let args = found.args.unwrap_or_default();
        let Some((before, [mcp, option, agent])) = args.split_last_chunk() else {
            return Ok(None);
        };
        let launcher = Launcher {
            command: found.command.unwrap_or_default(),
            args: before.to_vec(),
        };
        let is_ours = mcp == "mcp" && option == "--agent" && launcher.starts_abide();
        Ok(is_ours.then(|| agent.clone()))
    }

    /// Text with the entry for abide.
    pub fn add(self, text: &str, server: &ServerEntry) -> Result<String, EditError> {
        let (key, fields) = match self {
            ConfigFormat::Json(key) => (key, server.json_fields(false)),
            ConfigFormat::Gemini(key) => (key, server.json_fields(true)),
            ConfigFormat::Codex => return toml::add_server(text, NAME, server),
        };
        match jsonc::get(text, &[key, NAME])? {
            Some(Value::Object(found)) if found.contains_key("command") => {
                server.amend_json(text, key, &found, fields)
            }
            _ => jsonc::set_object(text, &[key, NAME], fields),
        }
    }

    /// Text without the entry for abide, or with the entry that `before` had.
    pub fn remove(self, text: &str, before: Option<&str>) -> Result<String, EditError> {
        let (ConfigFormat::Json(key) | ConfigFormat::Gemini(key)) = self else {
            return toml::remove_server(text, NAME, before);
        };
        let old = |path: &[&str]| match before {
            Some(before) => jsonc::get(before, path),
            None => Ok(None),
        };
        if let Some(entry) = old(&[key, NAME])? {
            return jsonc::set(text, &[key, NAME], entry);
        }
        let rest = jsonc::remove(text, &[key, NAME])?;
        let empty = jsonc::get(&rest, &[key])?.is_some_and(|all| all == serde_json::json!({}));
        if empty && old(&[key])?.is_none() {
            return jsonc::remove(&rest, &[key]);
        }
        Ok(rest)
    }
}

impl ServerEntry {
    /// Fields of the entry in a JSON file, in the conventional order.
    fn json_fields(&self, of_gemini: bool) -> Vec<(&'static str, Value)> {
        let mut fields = Vec::new();
        if !of_gemini {
            fields.push(("type", "stdio".into()));
        }
        fields.push(("command", self.command.as_str().into()));
        fields.push(("args", self.args.clone().into()));
        if !self.env.is_empty() {
            let env: Map<_, _> = (self.env.iter())
                .map(|(name, text)| (name.clone(), text.as_str().into()))
                .collect();
            fields.push(("env", env.into()));
        }
        if let Some(limit) = self.call_limit.filter(|_| of_gemini) {
            fields.push(("timeout", (limit * 1_000).into()));
        }
        if self.without_approval && of_gemini {
            fields.push(("trust", true.into()));
        }
        fields
    }

    /// Updates an existing entry of a JSON file; fields that the person has added are kept.
    fn amend_json(
        &self,
        text: &str,
        key: &str,
        found: &Map<String, Value>,
        fields: Vec<(&'static str, Value)>,
    ) -> Result<String, EditError> {
        let mut text = text.to_owned();
        for (name, value) in fields {
            if name != "env" && found.get(name) != Some(&value) {
                text = jsonc::set(&text, &[key, NAME, name], value)?;
            }
        }
        let old = |name: &str| found.get("env").and_then(|env| env.get(name)?.as_str());
        for name in self.stale_variables() {
            if old(name).is_some() {
                text = jsonc::remove(&text, &[key, NAME, "env", name])?;
            }
        }
        for (name, value) in &self.env {
            if old(name) != Some(value) {
                text = jsonc::set(&text, &[key, NAME, "env", name], value.as_str().into())?;
            }
        }
        Ok(text)
    }
}
