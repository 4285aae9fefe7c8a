//! One try to wake an agent. Whatever is run for that is a session like any other, so nothing that is
//! woken can pass for a person, what it did can be read, and a crash in the middle never runs it twice.

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
use crate::{Handle, Launch, Stdin};
use abide_session::log::tail;

/// A command that has run for so long has taken the message and works on it.
const ACCEPTED_AFTER: Millis = Millis::from_secs(10);
/// The longest that a wake-up may run.
const DEADLINE: Millis = Millis::from_secs(6 * 3_600);
/// Messages whose words one wake-up brings; it says how many more there are.
const MAX_MESSAGES_SHOWN: usize = 20;

/// What tells a client that it runs inside another one's session. The daemon may have been started
/// there; what it wakes was not.
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

/// One try.
pub(super) struct Attempt {
    /// The waker's place in the configuration.
    pub place: usize,
    /// Who is woken.
    pub agent: Agent,
    /// In which conversation of its client, where that is known.
    pub conversation: Option<String>,
    /// For which messages, and how often that was tried before.
    messages: Vec<(u64, u64)>,
}

/// Why nobody was woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WakeFault {
    /// It may work the next time.
    Retry(String),
    /// It may work, but not before so long.
    RetryAfter(String, Millis),
    /// It is not wanted any more.
    Disabled(String),
}

impl WakeFault {
    /// What went wrong, and before when it is not to be tried again.
    pub fn into_parts(self) -> (String, Option<Millis>) {
        match self {
            WakeFault::Retry(why) | WakeFault::Disabled(why) => (why, None),
            WakeFault::RetryAfter(why, pause) => (why, Some(pause)),
        }
    }
}

/// What is run to wake an agent.
pub(super) struct WakeCommand {
    /// The words, as they are.
    pub argv: Vec<String>,
    /// Where, unless the configuration says so.
    pub cwd: Option<PathBuf>,
    /// Variables besides the daemon's own.
    pub env: Vec<(String, String)>,
    /// What it reads.
    pub input: Option<String>,
}

impl Attempt {
    /// By the waker at `place`, for `messages` and how often each was tried before.
    pub fn new(
        place: usize,
        agent: Agent,
        conversation: Option<String>,
        messages: Vec<(u64, u64)>,
    ) -> Self {
        Attempt {
            place,
            agent,
            conversation,
            messages,
        }
    }

    /// The messages' numbers.
    pub fn numbers(&self) -> Vec<u64> {
        self.messages.iter().map(|(number, _)| *number).collect()
    }

    /// Makes the try, at this time of the calendar.
    pub async fn wake(&self, handle: &Handle, web: &Web, at_ms: u64) -> Result<(), WakeFault> {
        let gone = || WakeFault::Retry("it is no longer configured".into());
        let config = handle.config().wakers.get(self.place).ok_or_else(gone)?;
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
                let text = self.text(handle);
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

    /// The words of all the messages.
    pub fn text(&self, handle: &Handle) -> String {
        let known =
            |(number, _): &(u64, u64)| handle.store_reader().message(*number).ok().flatten();
        let event = self
            .messages
            .iter()
            .take(MAX_MESSAGES_SHOWN)
            .filter_map(known);
        let mut texts: Vec<String> = event.map(|row| message_text(handle, row.about)).collect();
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
        // Many desktops read the text as markup.
        let text = self.text(handle);
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

    /// Runs something that wakes, as a session, and waits until it has worked.
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
        let launch = Launch {
            argv: Some(argv.iter().map(Into::into).collect()),
            cwd: cwd.unwrap_or_else(config::home),
            env,
            stdin: match command.input {
                Some(text) => Stdin::Bytes(text.into_bytes()),
                None => Stdin::None,
            },
            pty: None,
            inherited_limits: None,
            secrets: Arc::default(),
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

/// Whether a command that has ended did what it was to do.
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
