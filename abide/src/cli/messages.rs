//! `abide messages`: prints messages to agents, and sends one again.

use abide_output::printable::one_line;
use serde_json::{Value, json};

use super::args::{Hook, MessagesArgs, MessagesCommand};
use super::client::Client;
use super::error::CliError;
use super::reconnect::{self, LineHandler};
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
        let message = super::person()?.post(&path, &json!({})).await?;
        let sentence = "Sending it again; `abide messages --deliveries` shows the result.";
        show::result(resend.json.json, &message, sentence);
        return Ok(0);
    }
    let path = format!("/v1/messages?unseen={}&limit={}", args.unseen, args.limit);
    let client = super::client(&args.agent)?;
    if args.follow {
        let mut follower = MessageFollower {
            path: format!("{path}&follow=true"),
            last: newest(&client).await?,
            begun: false,
            json: args.json.json,
            deliveries: args.deliveries,
        };
        reconnect::follow(&client, &mut follower).await?;
        return Ok(0);
    }
    let listed = client.get(&path).await?;
    if args.json.json {
        show::json(&listed);
        return Ok(0);
    }
    let all = listed["messages"].as_array().cloned().unwrap_or_default();
    if all.is_empty() {
        outln!("No messages.");
    }
    // Newest last, next to the prompt.
    for message in all.iter().rev() {
        print(message, args.deliveries);
    }
    Ok(0)
}

/// Id of the newest message. Messages after it are new, even if the daemon goes away before it has sent any.
async fn newest(client: &Client) -> Result<Option<String>, CliError> {
    let newest = client.get("/v1/messages?limit=1").await?;
    let id = newest["messages"][0]["message_id"].as_str();
    Ok(id.map(str::to_owned))
}

/// State of `--follow`.
struct MessageFollower {
    /// Path of the first request, until a daemon has answered.
    path: String,
    /// Last message that was printed, or the newest message at the start.
    last: Option<String>,
    /// Set once a daemon has answered.
    begun: bool,
    json: bool,
    deliveries: bool,
}

impl LineHandler for MessageFollower {
    fn path(&self) -> String {
        match (&self.last, self.begun) {
            (_, false) => self.path.clone(),
            (Some(last), true) => format!("/v1/messages?follow=true&since={last}"),
            // There were no messages at the start, so all are new.
            (None, true) => "/v1/messages?follow=true&limit=1000".into(),
        }
    }

    fn connected(&mut self) {
        self.begun = true;
    }

    fn handle_line(&mut self, message: Value) -> Result<bool, CliError> {
        match self.json {
            true => outln!("{message}"),
            false => print(&message, self.deliveries),
        }
        self.last = message["message_id"].as_str().map(str::to_owned);
        Ok(true)
    }
}

fn print(message: &Value, with_deliveries: bool) {
    let now = SystemClock.now().wall.0;
    let text = |field: &str| message[field].as_str().unwrap_or_default();
    let moment = |field: &str| message[field].as_u64();
    let age = show::ago(now, moment("created_at").unwrap_or(now));
    let seen = if moment("seen_at").is_some() {
        "seen"
    } else {
        "not seen yet"
    };
    let (bold, faint) = (show::HEADING, show::FAINT);
    outln!(
        "{bold}{}{bold:#} {faint}to {}, {age} ago, {seen}{faint:#}",
        text("message_id"),
        one_line(text("agent")),
    );
    for delivery in message["deliveries"].as_array().into_iter().flatten() {
        let failed = delivery["ok"] == false && !delivery["fault"].is_null();
        if failed || with_deliveries {
            print_delivery(delivery, now);
        }
    }
    for line in text("text").lines() {
        outln!("  {}", one_line(line));
    }
}

/// Prints a line such as `command claude: failed, tried 2 times, last 4m ago, again in 26m`, and the
/// reason below it.
fn print_delivery(delivery: &Value, now: u64) {
    let waker = one_line(delivery["waker"].as_str().unwrap_or_default());
    let state = delivery["state"].as_str().unwrap_or_default();
    let tries = match delivery["attempts"].as_u64().unwrap_or(0) {
        0 if state == "given_up" => "not tried".into(),
        0 => "not tried yet".into(),
        1 => "tried once".into(),
        many => format!("tried {many} times"),
    };
    let last = delivery["at"].as_u64().map(|at| show::ago(now, at));
    let last = last.map_or(String::new(), |ago| format!(", last {ago} ago"));
    let fault = delivery["fault"].as_str().map(one_line);
    let next = delivery["next_at"].as_u64().map(|at| show::ago(at, now));
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
