//! Choices of the person who runs `abide setup`: options of the command line, or answers at the terminal.

use std::io::{IsTerminal, Write};
use std::path::Path;

use crate::cli::args::{ClientName, SetupArgs, SetupSandbox};
use crate::cli::error::CliError;
use crate::cli::show::{self, outln};
use abide_api::SandboxMode;
use abide_engine::config::{Config, Paths, WakerKind, home};

/// Choices of the person beside the entry itself.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// Sandbox of the client's commands; `None`: it stays as it is.
    pub sandbox: Option<SetupSandbox>,
    /// The client calls the tools without asking each time.
    pub without_approval: bool,
    /// abide wakes the client for messages; `false`: a waker that is there stays.
    pub waker: bool,
}

impl Choices {
    /// Options of the command line; at a terminal, answers of the person to what no option decides.
    pub fn of(
        client: ClientName,
        args: &SetupArgs,
        paths: &Paths,
        agent: &str,
    ) -> Result<Self, CliError> {
        let mut choices = Choices {
            sandbox: args.sandbox,
            without_approval: args.approve,
            waker: args.waker && client.waker().is_some(),
        };
        if !is_asked(args) {
            return Ok(choices);
        }
        let config = Config::load(&paths.config).unwrap_or_default();
        let here = std::env::current_dir()?;
        let is_open = choices.sandbox.is_none() && is_sandbox_off(&config, agent, &here);
        if is_open && ask(&client.sandbox_question(), Default::No)? {
            choices.sandbox = Some(SetupSandbox::WorkspaceWrite);
        }
        if let Some(question) = client.approval_question() {
            let asks = client.asks_now(args.project.then_some(here.as_path()));
            choices.without_approval =
                choices.without_approval || !asks || ask(&question, Default::No)?;
        }
        let question = client.waker_question().filter(|_| !choices.waker);
        if let Some(question) = question.filter(|_| !has_waker(client, agent, &config)) {
            choices.waker = ask(&question, Default::No)?;
        }
        Ok(choices)
    }
}

/// Returns `true` if commands of this agent in this folder run without a sandbox.
pub fn is_sandbox_off(config: &Config, agent: &str, folder: &Path) -> bool {
    config.sandbox.of(agent, folder, &home()).mode() == SandboxMode::Off
}

/// Asks a question at the terminal.
pub fn ask(question: &str, default: Default) -> Result<bool, CliError> {
    let lines = show::wrapped(question, " [y/N]".len());
    write!(std::io::stdout(), "{} ", lines.join("\n"))?;
    let answer = read_answer(default);
    outln!("");
    answer
}

/// Answer that an empty line gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    Yes,
    No,
}

/// Shows the possible answers and reads one.
pub fn read_answer(default: Default) -> Result<bool, CliError> {
    let mut out = std::io::stdout();
    let answers = match default {
        Default::Yes => "[Y/n]",
        Default::No => "[y/N]",
    };
    write!(out, "{answers} ")?;
    out.flush()?;
    let mut answer = String::new();
    let is_closed = std::io::stdin().read_line(&mut answer)? == 0;
    Ok(match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => true,
        "" => default == Default::Yes && !is_closed,
        _ => false,
    })
}

/// Returns `true` if the configuration has a waker of this client for this agent.
fn has_waker(client: ClientName, agent: &str, config: &Config) -> bool {
    let is_of_client = |kind: &WakerKind| match client {
        ClientName::ClaudeCode => matches!(kind, WakerKind::ClaudeCode),
        ClientName::Codex => matches!(kind, WakerKind::Codex),
        ClientName::Cursor | ClientName::Vscode | ClientName::Gemini => false,
    };
    let mut wakers = config.wakers.iter();
    wakers.any(|waker| is_of_client(&waker.kind) && (waker.agent == "*" || waker.agent == agent))
}

/// Returns `true` if the choices are left to a person at the terminal.
pub fn is_asked(args: &SetupArgs) -> bool {
    !(args.yes || args.print || args.undo || args.json.json) && has_person()
}

/// Returns `true` if a person at a terminal can be asked.
pub fn has_person() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}
