//! One attempt to wake an agent. A program that is run for it is a session like any other: it cannot pass for a
//! person, and its output can be read. A daemon that was killed during an attempt makes it again with the same
//! idempotency key and joins that session. The key is the last message with its number of attempts, so if a further
//! message came meanwhile, the program runs a second time.

use std::path::PathBuf;
use std::sync::Arc;

use abide_core::request::Caller;
use abide_core::session::Phase;
use abide_core::wait::Asking;
use abide_core::wake::OWNER;
use abide_core::{Agent, Key, Millis, Outcome, Request, Run, SessionId};
use abide_output::printable::one_line;

use super::{clients, webhook};
use crate::config::{self, WakerConfig, WakerKind};
use crate::text::message_text;
use crate::web::Web;
use crate::{Handle, LaunchOptions};
use abide_session::log::tail;

/// Running time after which a command has accepted the message and works on it.
const ACCEPTED_AFTER: Millis = Millis::from_secs(10);
/// Time limit of a wake-up.
const DEADLINE: Millis = Millis::from_secs(6 * 3_600);
/// Messages whose text one wake-up contains; it says how many more there are.
const MAX_MESSAGES_SHOWN: usize = 20;

/// Variables that tell a client that it runs inside a session of another client. The daemon may have been started
/// there; the woken client was not.
const REMOVED_VARIABLES: [&str; 8] = [
    "ABIDE_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_PROJECT_DIR",
];

pub(super) struct Attempt {
    /// Index of the waker in the configuration.
    pub index: usize,
    pub agent: Agent,
    /// Client session to wake, if it is known.
    pub conversation: Option<String>,
    /// Messages, with the number of earlier attempts.
    messages: Vec<(u64, u64)>,
}

/// Reason why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WakeFault {
    /// The next attempt may succeed.
    Retry(String),
    /// An attempt may succeed after this time.
    RetryAfter(String, Millis),
    /// The waker is no longer wanted.
    Disabled(String),
}

impl WakeFault {
    /// Reason, and the time before which no attempt is to be made.
    pub fn into_parts(self) -> (String, Option<Millis>) {
        match self {
            WakeFault::Retry(why) | WakeFault::Disabled(why) => (why, None),
            WakeFault::RetryAfter(why, pause) => (why, Some(pause)),
        }
    }
}

/// Command that wakes an agent.
pub(super) struct WakeCommand {
    pub argv: Vec<String>,
    /// Working directory, unless the configuration names one.
    pub cwd: Option<PathBuf>,
    /// Variables in addition to the daemon's own.
    pub env: Vec<(String, String)>,
    pub input: Option<String>,
}

impl Attempt {
    /// Attempt of the waker at `index` for `messages`, each with the number of earlier attempts.
    pub fn new(
        index: usize,
        agent: Agent,
        conversation: Option<String>,
        messages: Vec<(u64, u64)>,
    ) -> Self {
        Attempt {
            index,
            agent,
            conversation,
            messages,
        }
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.messages.iter().map(|(number, _)| *number).collect()
    }

    /// Makes the attempt at this wall time.
    pub async fn wake(
        &self,
        config: Option<&WakerConfig>,
        handle: &Handle,
        web: &Web,
        at_ms: u64,
    ) -> Result<(), WakeFault> {
        let gone = || WakeFault::Retry("it is no longer configured".into());
        let config = config.ok_or_else(gone)?;
        match &config.kind {
            WakerKind::Webhook(hook) => {
                for number in self.numbers() {
                    webhook::send(handle, web, hook, number, at_ms).await?;
                }
                Ok(())
            }
            WakerKind::ClaudeCode => clients::claude_code(self, config, handle).await,
            WakerKind::Codex => clients::codex(self, config, handle).await,
            WakerKind::Desktop => self.show_on_desktop(config, handle).await,
            WakerKind::Command(words) => {
                let text = self.text(handle).await;
                let fill = |word: &String| {
                    let word = word.replace("{agent}", &self.agent.0);
                    word.replace("{text}", &text)
                };
                let named = words.iter().any(|word| word.contains("{text}"));
                let command = WakeCommand {
                    argv: words.iter().map(fill).collect(),
                    cwd: None,
                    env: Vec::new(),
                    input: (!named).then(|| text.clone()),
                };
                self.run(command, config, handle).await
            }
        }
    }

    /// Text of all messages.
    pub async fn text(&self, handle: &Handle) -> String {
        let mut texts = Vec::new();
        for (number, _) in self.messages.iter().take(MAX_MESSAGES_SHOWN) {
            if let Ok(Some(row)) = handle.store_reader().message(*number).await {
                texts.push(message_text(handle, row.about).await);
            }
        }
        if let Some(more @ 1..) = self.messages.len().checked_sub(MAX_MESSAGES_SHOWN) {
            texts.push(format!("{more} more: call read_messages."));
        }
        texts.join("\n\n")
    }

    async fn show_on_desktop(
        &self,
        config: &WakerConfig,
        handle: &Handle,
    ) -> Result<(), WakeFault> {
        // Many desktops interpret the text as markup.
        let text = self.text(handle).await;
        let text = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let title = format!("abide: for {}", one_line(&self.agent.0));
        let argv = ["notify-send", "--app-name=abide", "--", &title, &text];
        let command = WakeCommand {
            argv: argv.map(str::to_owned).to_vec(),
            cwd: None,
            env: config::desktop_bus().into_iter().collect(),
            input: None,
        };
        let shown = self.run(command, config, handle).await;
        shown.map_err(|fault| {
            let (why, _) = fault.into_parts();
            WakeFault::Retry(format!(
                "cannot show a desktop notification: {why} (needs a running desktop and notify-send from the package libnotify-bin)"
            ))
        })
    }

    /// Runs a command as a session, and waits until it has succeeded.
    pub async fn run(
        &self,
        command: WakeCommand,
        config: &WakerConfig,
        handle: &Handle,
    ) -> Result<(), WakeFault> {
        let argv = command.argv;
        let (last, tries) = self.messages.last().copied().unwrap_or_default();
        let run = Run {
            command: argv.join(" ").into(),
            deadline: Some(DEADLINE),
            idle: None,
            inactivity: None,
            asking: Asking::Never,
            standby: Some(ACCEPTED_AFTER),
            detach: false,
            key: Some(Key(format!("wake:{}:{last}:{tries}", config.id()).into())),
            approval: None,
        };
        let mut env = config::environment();
        env.retain(|(name, _)| {
            !REMOVED_VARIABLES
                .iter()
                .any(|disabled_delivery| name == disabled_delivery)
        });
        env.retain(|(name, _)| !command.env.iter().any(|(new, _)| name == new.as_str()));
        env.extend(command.env.into_iter().map(|(n, v)| (n.into(), v.into())));
        env.push(("ABIDE_AGENT".into(), self.agent.0.as_ref().into()));
        let cwd = config
            .cwd
            .clone()
            .or(command.cwd.filter(|cwd| cwd.is_dir()));
        let cwd = cwd.unwrap_or_else(config::home);
        let launch = LaunchOptions {
            argv: Some(argv.iter().map(Into::into).collect()),
            ..LaunchOptions::plain(cwd, env, command.input, Arc::default())
        };
        let caller = Caller {
            agent: Some(Agent(OWNER.into())),
            conversation: None,
        };
        let pending = handle.call(caller, Request::Run(run), Some(launch)).await;
        match pending.done().await {
            Some(Outcome::Running(..)) => Ok(()),
            Some(Outcome::Ended(id) | Outcome::Failed(id)) => check_exit(handle, id, &argv[0]),
            _ => Err(WakeFault::Retry(format!("{} failed to start", argv[0]))),
        }
    }
}

/// Checks the exit of a command.
fn check_exit(handle: &Handle, id: SessionId, program: &str) -> Result<(), WakeFault> {
    let Some(view) = handle.published().session(id) else {
        return Err(WakeFault::Retry(format!("{program}: its session is gone")));
    };
    if let Phase::Failed { fault, .. } = &view.state.phase {
        return Err(WakeFault::Retry(fault.to_string()));
    }
    let exit = view.ending().and_then(|ending| ending.exit);
    match exit.map(|exit| exit.shell_code()) {
        Some(0) => Ok(()),
        Some(code) => {
            let said = String::from_utf8_lossy(&tail::last_line(&view.folder)).into_owned();
            let said = one_line(&said);
            Err(WakeFault::Retry(format!(
                "{program} exited with code {code}: {said} (all of it: abide logs {id})"
            )))
        }
        None => Err(WakeFault::Retry(format!(
            "{program}: its end was not observed"
        ))),
    }
}
