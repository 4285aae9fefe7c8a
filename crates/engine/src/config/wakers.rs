//! Settings in `[[wakers]]`: how agents are woken that do not read their messages.

use std::path::PathBuf;

use abide_core::wake::Rules;
use abide_core::{Conversation, Millis, settings_name};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{InvalidSetting, within};
use crate::clients::ClientKind;
use crate::secret;
use crate::web::Address;

/// One waker for one agent, or for all.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawWaker")]
pub struct WakerConfig {
    /// Agent to wake; `*`: every agent.
    pub agent: String,
    pub kind: WakerKind,
    /// Messages for which it wakes.
    pub wakes_for: WakesFor,
    /// Working directory of a command. Default: the client's directory if it is known, else the home directory.
    pub cwd: Option<PathBuf>,
    /// Seconds that a message waits to be read before the agent is woken.
    pub after: f64,
    /// Maximum of wake-ups per hour, so that no loop can use up an agent's quota.
    pub most_per_hour: usize,
}

/// Messages for which an agent is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakesFor {
    /// Messages that the agent waits for: of a mission timer, of a wait that it moved to the background, or about the answer
    /// to a held command. An open conversation gets the others too.
    Asked,
    /// All messages.
    All,
}

/// Kind of a waker.
#[derive(Clone, Debug, PartialEq)]
pub enum WakerKind {
    /// Command; `{text}` and `{agent}` are filled in. If no word contains `{text}`, the message is its input. It has
    /// succeeded with exit code 0, or if it still runs after ten seconds.
    Command(Vec<String>),
    /// Web server that gets every message, signed.
    Webhook(Webhook),
    /// Notification on the desktop, for a person.
    Desktop,
    /// Last session of Claude Code of the agent.
    ClaudeCode,
    /// Last thread of Codex of the agent.
    Codex,
}

/// Web server that gets every message.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// Address of the server.
    pub address: Address,
    /// Key that signs the messages.
    pub secret: Secret,
}

/// Signing key.
#[derive(Clone, PartialEq)]
pub enum Secret {
    /// Key in the configuration.
    Inline(Vec<u8>),
    /// File that contains the key.
    File(PathBuf),
}

/// Prints no key.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Secret::Inline(_) => f.write_str("Here"),
            Secret::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl Secret {
    /// Bytes of the key, or why they cannot be read.
    pub fn bytes(&self) -> Result<Vec<u8>, InvalidSetting> {
        match self {
            Secret::Inline(bytes) => Ok(bytes.clone()),
            Secret::File(path) => {
                let bad = |why: String| {
                    InvalidSetting(format!("`wakers.secret_file` {}: {why}", path.display()))
                };
                let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
                parse_secret(text.trim()).map_err(|e| bad(e.to_string()))
            }
        }
    }
}

/// Parses `whsec_` and base64, the format of Standard Webhooks.
fn parse_secret(text: &str) -> Result<Vec<u8>, InvalidSetting> {
    let bytes = text
        .strip_prefix("whsec_")
        .and_then(|code| BASE64_STANDARD.decode(code).ok());
    let bytes = bytes.ok_or("a secret is `whsec_` and base64")?;
    match bytes.len() {
        24..=64 => Ok(bytes),
        short => Err(InvalidSetting(format!(
            "a secret has 24 to 64 bytes, this one {short}; make one with: \
             echo \"whsec_$(openssl rand -base64 32)\""
        ))),
    }
}

/// Table as it is in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWaker {
    agent: Option<String>,
    command: Option<Vec<String>>,
    webhook: Option<String>,
    secret: Option<String>,
    secret_file: Option<PathBuf>,
    #[serde(default)]
    desktop: bool,
    #[serde(default)]
    claude_code: bool,
    #[serde(default)]
    codex: bool,
    cwd: Option<PathBuf>,
    after: Option<f64>,
    most_per_hour: Option<usize>,
    r#for: Option<WakesFor>,
}

impl TryFrom<RawWaker> for WakerConfig {
    type Error = InvalidSetting;

    fn try_from(mut raw: RawWaker) -> Result<Self, InvalidSetting> {
        let kind = raw.parse_kind()?;
        let after = raw.after.unwrap_or(2.0);
        within("wakers.after", after, 0.0..=86_400.0, " seconds")?;
        // Messages to a web server or a desktop cost nothing; the others start turns of a model that the user pays
        // for.
        let (default_per_hour, wakes_for) = match kind {
            WakerKind::Webhook(_) => (3_600, WakesFor::All),
            WakerKind::Desktop => (60, WakesFor::All),
            WakerKind::Command(_) | WakerKind::ClaudeCode | WakerKind::Codex => {
                (12, WakesFor::Asked)
            }
        };
        let most_per_hour = raw.most_per_hour.unwrap_or(default_per_hour);
        within("wakers.most_per_hour", most_per_hour, 1..=3_600, "")?;
        Ok(WakerConfig {
            agent: raw.agent.unwrap_or_else(|| "*".into()),
            kind,
            wakes_for: raw.r#for.unwrap_or(wakes_for),
            cwd: raw.cwd,
            after,
            most_per_hour,
        })
    }
}

impl RawWaker {
    fn parse_kind(&mut self) -> Result<WakerKind, InvalidSetting> {
        let mut kinds = Vec::new();
        if let Some(command) = self.command.take() {
            if command.first().is_none_or(String::is_empty) {
                return Err("`wakers.command` needs at least one word, the program to run".into());
            }
            kinds.push(WakerKind::Command(command));
        }
        if let Some(address) = self.webhook.take() {
            kinds.push(WakerKind::Webhook(self.parse_webhook(&address)?));
        }
        kinds.extend(self.desktop.then_some(WakerKind::Desktop));
        kinds.extend(self.claude_code.then_some(WakerKind::ClaudeCode));
        kinds.extend(self.codex.then_some(WakerKind::Codex));
        if self.secret.is_some() || self.secret_file.is_some() {
            return Err("`wakers.secret` and `wakers.secret_file` go with `webhook`".into());
        }
        match (kinds.pop(), kinds.is_empty()) {
            (Some(kind), true) => Ok(kind),
            _ => Err(
                "each of `[[wakers]]` needs exactly one of `command`, `webhook`, \
                 `desktop = true`, `claude_code = true` and `codex = true`"
                    .into(),
            ),
        }
    }

    fn parse_webhook(&mut self, address: &str) -> Result<Webhook, InvalidSetting> {
        let secret = match (self.secret.take(), self.secret_file.take()) {
            (Some(text), None) => {
                let read = parse_secret(&text)
                    .map_err(|why| InvalidSetting(format!("`wakers.secret`: {why}")));
                Secret::Inline(read?)
            }
            (None, Some(path)) => Secret::File(path),
            _ => {
                return Err(
                    "a webhook is signed: `wakers` needs either `secret` or `secret_file`".into(),
                );
            }
        };
        let address = Address::parse(address).ok_or_else(|| {
            InvalidSetting(format!(
                "`wakers.webhook` must be an address such as https://example.com/hook; got \
                 {address:?}"
            ))
        })?;
        Ok(Webhook { address, secret })
    }
}

impl WakerKind {
    /// True if the agent itself reads what is sent.
    pub const fn reaches_agent(&self) -> bool {
        match self {
            WakerKind::Command(_) | WakerKind::ClaudeCode | WakerKind::Codex => true,
            WakerKind::Webhook(_) | WakerKind::Desktop => false,
        }
    }

    /// Kind of client that it wakes.
    pub const fn client(&self) -> Option<ClientKind> {
        match self {
            WakerKind::ClaudeCode => Some(ClientKind::ClaudeCode),
            WakerKind::Codex => Some(ClientKind::Codex),
            WakerKind::Command(_) | WakerKind::Webhook(_) | WakerKind::Desktop => None,
        }
    }
}

impl WakerConfig {
    /// True if it wakes this agent.
    pub fn is_for(&self, agent: &str) -> bool {
        self.agent == "*" || self.agent == agent || self.agent == settings_name(agent)
    }

    /// True if it wakes this agent in this conversation for messages that the agent asked for.
    pub fn wakes(&self, agent: &str, conversation: Option<&Conversation>) -> bool {
        let kind = match (&self.kind, self.kind.client()) {
            (_, Some(kind)) => conversation.is_some_and(|of| kind.session_of(of).is_some()),
            (WakerKind::Command(_), None) => true,
            (_, None) => false,
        };
        kind && self.is_for(agent)
    }

    /// Limits of the waker.
    pub const fn rules(&self) -> Rules {
        Rules {
            after: Millis((self.after * 1_000.0) as u64),
            budget: self.most_per_hour,
            at_once: match self.kind {
                WakerKind::Webhook(_) => 1,
                WakerKind::Command(_)
                | WakerKind::Desktop
                | WakerKind::ClaudeCode
                | WakerKind::Codex => usize::MAX,
            },
        }
    }

    /// Name for lists of deliveries. Leaves out the path of a webhook, which may be a secret.
    pub fn name(&self) -> String {
        match &self.kind {
            WakerKind::Command(words) => format!("command {}", words[0]),
            WakerKind::Webhook(hook) => {
                let scheme = if hook.address.tls { "https" } else { "http" };
                format!("webhook {scheme}://{}", hook.address.authority())
            }
            WakerKind::Desktop => "desktop".into(),
            WakerKind::ClaudeCode => "claude_code".into(),
            WakerKind::Codex => "codex".into(),
        }
    }

    /// Id in the database. Changes with the agent or the target.
    pub fn id(&self) -> String {
        let digest = Sha256::digest(format!("{} {:?}", self.agent, self.kind).as_bytes());
        secret::hex(&digest[..8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<WakerConfig, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn wakers_that_start_a_turn_wake_for_asked_messages_by_default() {
        for (text, wakes_for) in [
            ("command = ['x']", WakesFor::Asked),
            ("claude_code = true", WakesFor::Asked),
            ("codex = true", WakesFor::Asked),
            ("codex = true\nfor = 'all'", WakesFor::All),
            ("desktop = true", WakesFor::All),
            ("desktop = true\nfor = 'asked'", WakesFor::Asked),
        ] {
            assert_eq!(read(text).expect(text).wakes_for, wakes_for, "{text}");
        }
        let refused = read("codex = true\nfor = 'everything'").expect_err("an unknown word");
        assert!(refused.contains("asked"), "{refused}");
    }

    #[test]
    fn client_waker_wakes_only_conversations_of_its_kind() {
        let claude = ClientKind::ClaudeCode.conversation("c0ffee");
        let front = Conversation("front:x".into());
        let waker = read("claude_code = true\nagent = 'a'").expect("a waker");
        assert!(waker.wakes("a", Some(&claude)));
        assert!(!waker.wakes("b", Some(&claude)));
        assert!(!waker.wakes("a", Some(&front)));
        assert!(!waker.wakes("a", None));
        let command = read("command = ['x']").expect("a waker");
        assert!(command.wakes("b", Some(&front)) && command.wakes("b", None));
        let desktop = read("desktop = true").expect("a waker");
        assert!(!desktop.wakes("a", Some(&claude)));
    }

    const SECRET: &str = "secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'";

    #[test]
    fn waker_with_no_kind_or_two_kinds_is_refused() {
        for (text, name, budget) in [
            ("command = ['claude', '-p']", "command claude", 12),
            ("desktop = true", "desktop", 60),
            ("claude_code = true", "claude_code", 12),
            ("codex = true\nagent = 'a'", "codex", 12),
        ] {
            let waker = read(text).expect(text);
            assert_eq!((waker.name().as_str(), waker.most_per_hour), (name, budget));
        }
        let hook = read(&format!("webhook = 'https://a.example/T0/x?y'\n{SECRET}")).unwrap();
        assert_eq!(hook.name(), "webhook https://a.example");
        assert_eq!(hook.most_per_hour, 3_600);
        for (text, said) in [
            ("", "exactly one of"),
            ("desktop = true\ncodex = true", "exactly one of"),
            ("command = []", "`wakers.command` needs"),
            ("webhook = 'https://a.example'", "either `secret`"),
            (
                "webhook = 'a.example'\nsecret_file = 'x'",
                "`wakers.webhook` must be",
            ),
            ("webhook = 'https://a'\nsecret = 'x'", "`whsec_` and base64"),
            (
                "webhook = 'https://a'\nsecret = 'whsec_AAAA'",
                "24 to 64 bytes",
            ),
            ("codex = true\nsecret_file = 'x'", "go with `webhook`"),
            ("desktop = true\nafter = -1", "`wakers.after`"),
            (
                "desktop = true\nmost_per_hour = 0",
                "`wakers.most_per_hour`",
            ),
            ("desktop = true\ncolour = 1", "colour"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }

    #[test]
    fn changed_target_changes_id_and_debug_prints_no_secret() {
        let one = read(&format!("webhook = 'https://a.example/1'\n{SECRET}")).unwrap();
        let other = read(&format!("webhook = 'https://a.example/2'\n{SECRET}")).unwrap();
        let patient = read(&format!(
            "webhook = 'https://a.example/1'\n{SECRET}\nafter = 9"
        ));
        assert_ne!(one.id(), other.id());
        assert_eq!(one.id(), patient.unwrap().id());
        assert!(!format!("{one:?}").contains("MfKQ"), "{one:?}");
    }
}
