//! `abide messages`: prints messages to agents, and sends one again.

use abide_api::{Delivery, Message, MessagePage};
use abide_output::printable::one_line;
use serde_json::json;

use super::args::{Hook, MessagesArgs, MessagesCommand};
use super::client::{Client, ClientError};
use super::error::CliError;
use super::reconnect::Reconnect;
use super::show::outln;
use super::{hook, show};
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config::{self, Paths};

/// Indentation of the reason of a failed delivery, in columns.
const INDENT: usize = 4;

pub async fn messages(paths: &Paths, args: MessagesArgs) -> Result<u8, CliError> {
    if let Some(Hook::ClaudeCode) = args.hook {
        let agent = args.agent.name().unwrap_or_else(config::agent_from_env);
        return hook::wait(paths, agent).await;
    }
    if let Some(MessagesCommand::Resend(resend)) = args.act {
        let path = format!("/v1/messages/{}/wake", super::check_id(&resend.message)?);
        let message: Message = super::person()?.post(&path, &json!({})).await?;
        let sentence = "Sending it again; `abide messages --deliveries` shows the result.";
        show::result(resend.json.json, &message, sentence);
        return Ok(0);
    }
    let path = format!("/v1/messages?unseen={}&limit={}", args.unseen, args.limit);
    let client = super::client(&args.agent)?;
    if args.follow {
        let mut follower = MessageFollower {
            last: newest(&client).await?,
            client,
            first: Some(path),
            json: args.json.json,
            deliveries: args.deliveries,
        };
        follower.follow().await?;
        return Ok(0);
    }
    let listed: MessagePage = client.get(&path).await?;
    if args.json.json {
        show::json(&listed);
        return Ok(0);
    }
    match &listed.trouble {
        Some(trouble) => outln!("{}", one_line(trouble)),
        None if listed.messages.is_empty() => outln!("No messages."),
        None => {}
    }
    // Newest last, next to the prompt.
    for message in listed.messages.iter().rev() {
        print(message, args.deliveries);
    }
    Ok(0)
}

/// Newest message. Those after it are new, even if the daemon goes away before it has sent any.
async fn newest(client: &Client) -> Result<Option<Message>, CliError> {
    let newest: MessagePage = client.get("/v1/messages?limit=1").await?;
    if let Some(trouble) = newest.trouble {
        return Err(CliError::new(one_line(&trouble)));
    }
    Ok(newest.messages.into_iter().next())
}

/// State of `--follow`.
struct MessageFollower {
    client: Client,
    /// Path of the first list, until it is printed.
    first: Option<String>,
    /// Newest message that is known.
    last: Option<Message>,
    json: bool,
    deliveries: bool,
}

impl MessageFollower {
    /// Prints messages, across restarts of the daemon.
    async fn follow(&mut self) -> Result<(), CliError> {
        let mut reconnect = Reconnect::new();
        loop {
            let before = self.last.clone();
            match self.print_all().await {
                Err(error)
                    if error.is_broken && reconnect.should_retry(before != self.last).await => {}
                done => return done,
            }
        }
    }

    /// Prints new messages after each event about one.
    async fn print_all(&mut self) -> Result<(), CliError> {
        let mut events = self.client.get_stream("/v1/events").await?;
        while let Some((name, _)) = events.event().await? {
            if matches!(name.as_str(), "hello" | "reset" | "message") {
                self.print_new().await?;
            }
        }
        Err(ClientError::ended_early().into())
    }

    async fn print_new(&mut self) -> Result<(), CliError> {
        let path = match (&self.first, &self.last) {
            (Some(first), _) => first.clone(),
            (None, Some(last)) => format!("/v1/messages?since={}", last.message_id.0),
            // There were no messages at the start, so all are new.
            (None, None) => "/v1/messages?limit=1000".into(),
        };
        let listed: MessagePage = self.client.get(&path).await?;
        self.first = None;
        for message in listed.messages.iter().rev() {
            match self.json {
                true => outln!("{}", serde_json::to_value(message).unwrap_or_default()),
                false => print(message, self.deliveries),
            }
        }
        // With --unseen, the first list may have older messages only.
        let last = self.last.as_ref().map_or(0, |last| last.created_at);
        let newest = listed.messages.into_iter().next();
        if let Some(newest) = newest.filter(|newest| newest.created_at >= last) {
            self.last = Some(newest);
        }
        Ok(())
    }
}

fn print(message: &Message, with_deliveries: bool) {
    let now = SystemClock.now().wall.0;
    let age = show::ago(now, message.created_at);
    let seen = match message.seen_at {
        Some(_) => "seen",
        None => "not seen yet",
    };
    let (bold, faint) = (show::HEADING, show::FAINT);
    outln!(
        "{bold}{}{bold:#} {faint}to {}, {age} ago, {seen}{faint:#}",
        message.message_id.0,
        one_line(&message.agent),
    );
    for delivery in &message.deliveries {
        let failed = !delivery.ok && delivery.fault.is_some();
        if failed || with_deliveries {
            print_delivery(delivery, now);
        }
    }
    for line in message.text.lines() {
        outln!("  {}", one_line(line));
    }
}

/// Prints a line such as `command claude: failed, tried 2 times, last 4m ago, again in 26m`, and the
/// reason below it.
fn print_delivery(delivery: &Delivery, now: u64) {
    let (waker, state) = (one_line(&delivery.waker), delivery.state.as_str());
    let tries = match delivery.attempts {
        0 if state == "given_up" => "not tried".into(),
        0 => "not tried yet".into(),
        1 => "tried once".into(),
        many => format!("tried {many} times"),
    };
    let last = delivery.at.map(|at| show::ago(now, at));
    let last = last.map_or(String::new(), |ago| format!(", last {ago} ago"));
    let fault = delivery.fault.as_deref().map(one_line);
    let next = delivery.next_at.map(|at| show::ago(at, now));
    let next = next.map_or(String::new(), |next| format!(", again in {next}"));
    let (colour, word, next) = match (state, &fault) {
        ("done", _) => (show::GOOD, "done", String::new()),
        ("seen", _) => (show::FAINT, "seen before", String::new()),
        ("given_up", _) => (show::BAD, "given up", String::new()),
        (_, Some(_)) => (show::BAD, "failed", next),
        (_, None) => (show::WARN, "waiting", next),
    };
    outln!("  {colour}{waker}: {word}{colour:#}, {tries}{last}{next}");
    for line in fault.iter().flat_map(|fault| show::wrapped(fault, INDENT)) {
        outln!("{:<INDENT$}{line}", "");
    }
}
