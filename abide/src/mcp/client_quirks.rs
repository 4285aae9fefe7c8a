//! Clients that abide knows by their name, and what each of them does differently from the others. This is the one
//! place that looks at the name of a client.

use rmcp::model::ProtocolVersion;

use crate::tools::FormButtons;

/// Timeout of a client for a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTimeout {
    /// Seconds from the start of the call.
    Total(u64),
    /// Seconds without a message; a progress notification restarts the timeout.
    SinceProgress(u64),
}

/// Properties of a client.
#[derive(Debug)]
pub struct ClientQuirks {
    /// Beginning of its name, in lower case.
    name: &'static str,
    /// Timeout for a tool call.
    pub timeout: ClientTimeout,
    /// Timeout for a tool call over HTTP.
    pub http_timeout: ClientTimeout,
    /// Variable with its timeout in milliseconds, which the servers that it starts inherit.
    pub timeout_variable: Option<&'static str>,
    /// Shows a model the fields of a result and not its text. All fields would cost a model up to nine times the tokens
    /// of the text.
    pub shows_fields_only: bool,
    /// Keeps showing a request that was cancelled, and discards the person's answer.
    pub shows_cancelled_requests: bool,
    /// Labels of the buttons with which a person accepts or declines a request.
    pub buttons: FormButtons,
    /// Under an approval policy of "never", accepts or declines a request at once without asking a person.
    pub answers_without_a_person: bool,
    /// Shows a question that a call returned until it is answered.
    ///
    /// From 2026-07-28 on a call can ask only by returning. Claude Code then shows the question until it is
    /// answered, even if the command ended long ago, and its agent is blocked meanwhile: the server cannot
    /// withdraw the question. In the version before, Claude Code honours a withdrawal, and the call continues.
    keeps_returned_questions: bool,
}

impl ClientQuirks {
    /// Client that differs from others in its timeout only.
    const fn new(name: &'static str, timeout: ClientTimeout) -> Self {
        ClientQuirks {
            name,
            timeout,
            http_timeout: timeout,
            timeout_variable: None,
            shows_fields_only: false,
            shows_cancelled_requests: false,
            buttons: FormButtons {
                accept: "Accept",
                decline: "Decline",
            },
            answers_without_a_person: false,
            keeps_returned_questions: false,
        }
    }

    const fn codex(name: &'static str, timeout: ClientTimeout) -> Self {
        ClientQuirks {
            shows_fields_only: true,
            shows_cancelled_requests: true,
            buttons: FormButtons {
                accept: "Allow",
                decline: "Deny",
            },
            answers_without_a_person: true,
            ..ClientQuirks::new(name, timeout)
        }
    }

    /// Properties of the client with this name.
    pub fn of(client: &str) -> &'static Self {
        let name = client.to_lowercase();
        let mut clients = CLIENTS.iter();
        clients
            .find(|known| name.starts_with(known.name))
            .unwrap_or(&OTHERS)
    }

    /// Newest version of the protocol that the client is offered.
    pub fn newest_version(&self) -> ProtocolVersion {
        match self.keeps_returned_questions {
            true => ProtocolVersion::V_2025_11_25,
            false => ProtocolVersion::V_2026_07_28,
        }
    }
}

/// Timeout of most clients, and default of the official libraries.
const DEFAULT_TIMEOUT: ClientTimeout = ClientTimeout::Total(60);

/// Known clients. The first whose name fits counts.
static CLIENTS: [ClientQuirks; 8] = [
    ClientQuirks {
        http_timeout: ClientTimeout::SinceProgress(5 * 60),
        timeout_variable: Some("MCP_TOOL_TIMEOUT"),
        shows_fields_only: true,
        keeps_returned_questions: true,
        ..ClientQuirks::new("claude-code", ClientTimeout::SinceProgress(30 * 60))
    },
    ClientQuirks::codex("codex-mcp-client", ClientTimeout::Total(300)),
    ClientQuirks::codex("codex", DEFAULT_TIMEOUT),
    ClientQuirks::new("gemini-cli", ClientTimeout::Total(600)),
    ClientQuirks::new("goose", ClientTimeout::Total(300)),
    ClientQuirks::new("opencode", ClientTimeout::SinceProgress(60)),
    ClientQuirks::new("visual studio code", ClientTimeout::Total(300)),
    ClientQuirks::new("visual-studio-code", ClientTimeout::Total(300)),
];

/// All other clients.
static OTHERS: ClientQuirks = ClientQuirks::new("", DEFAULT_TIMEOUT);
