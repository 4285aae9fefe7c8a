//! `abide messages`.

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use super::args::Messages;
use super::client::Client;
use super::show;
use super::trouble::Trouble;
use crate::world::clock::{Clock, SystemClock};

pub async fn messages(client: Client, args: Messages) -> Result<u8, Trouble> {
    let path = format!("/v1/messages?unseen={}&limit={}", args.unseen, args.limit);
    if args.follow {
        let path = format!("{path}&follow=true");
        let mut answer = client.stream(Method::GET, &path, Bytes::new()).await?;
        while let Some(message) = answer.line().await? {
            print(&message, args.json.json);
        }
        return Ok(0);
    }
    let listed = client.get(&path).await?;
    if args.json.json {
        show::json(&listed);
        return Ok(0);
    }
    let all = listed["messages"].as_array().cloned().unwrap_or_default();
    if all.is_empty() {
        anstream::println!("No messages.");
    }
    for message in &all {
        print(message, false);
    }
    Ok(0)
}

fn print(message: &Value, as_json: bool) {
    if as_json {
        anstream::println!("{message}");
        return;
    }
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
    anstream::println!(
        "{bold}{}{bold:#} {faint}to {}, {age} ago, {seen}{faint:#}",
        text("message_id"),
        crate::door::digest::one_line(text("agent")),
    );
    if let Some(fault) = message["wake_fault"].as_str() {
        let (bad, tries) = (show::BAD, message["wake_attempts"].as_u64().unwrap_or(0));
        let fault = crate::door::digest::one_line(fault);
        anstream::println!("  {bad}not woken after {tries} tries: {fault}{bad:#}");
    }
    for line in text("text").lines() {
        anstream::println!("  {}", crate::door::digest::one_line(line));
    }
}
