//! `read_messages`, and the text of messages in all results.

use std::collections::HashMap;

use abide_api::arguments::ReadMessagesArgs;
use abide_api::{DeliveredMessage, Id, ReadMessagesResult, ToolOutput, ToolResult};
use abide_core::message::{About, ReturnedMessage};
use abide_core::request::Caller;
use abide_core::{Conversation, Millis, Request, SessionId, TimerId, limit};
use serde_json::{Map, Value};

use super::{BadInput, Context, report};
use abide_engine::Handle;
use abide_engine::clients::ClientKind;
use abide_engine::store::TimerRow;
use abide_engine::text::{message_text, timer_message};

/// Limit on messages that are appended to a result; the rest waits for the next result or for `read_messages`.
pub(super) const APPENDED: usize = 20;

/// Times that a call is repeated because another machine has told a message meanwhile.
const ATTEMPTS: usize = 4;

/// Arguments that the result depends on.
pub(super) struct ReadMessages {
    caller: Caller,
    /// Times that the call may still be repeated.
    attempts: usize,
    waited: Millis,
    /// Part of that wait that is left, if the call is replayed.
    left: Millis,
    /// The client's own limit, if it is shorter than the requested wait.
    client_limit: Option<Millis>,
}

pub(super) fn read(
    arguments: Map<String, Value>,
    context: &Context,
) -> Result<(Request, ReadMessages), BadInput> {
    let args = ReadMessagesArgs::read(arguments, "this tool")?;
    let asked = args.timeout_seconds.map(|time| time.0).unwrap_or_default();
    let client_limit = context.standby.filter(|limit| *limit < asked);
    let standby = client_limit.unwrap_or(asked);
    let read = ReadMessages {
        caller: context.caller(),
        attempts: ATTEMPTS,
        waited: standby,
        left: context.left_of(standby),
        client_limit,
    };
    Ok((read.request(), read))
}

impl ReadMessages {
    fn request(&self) -> Request {
        Request::ReadMessages {
            standby: self.left,
            most: limit::MESSAGES_AT_ONCE,
            known: Vec::new(),
        }
    }

    /// The same call, if it may be repeated.
    pub(super) fn again(&mut self) -> Option<(Caller, Request)> {
        self.attempts = self.attempts.checked_sub(1)?;
        Some((self.caller.clone(), self.request()))
    }

    pub(super) async fn result(
        &self,
        handle: &Handle,
        messages: &[ReturnedMessage],
        more: usize,
    ) -> ToolResult {
        let mut delivered = Vec::new();
        let waited = (self.client_limit).map_or_else(|| self.waited.to_string(), report::cut_at);
        let fault = handle.storage_fault();
        let text = match messages {
            [] if let Some(fault) = fault => format!("No messages can be read: {fault}."),
            [] if self.waited.0 > 0 => {
                format!("No messages came within {waited}. New ones are told with your next call.")
            }
            [] => "No messages.".into(),
            messages => {
                let (mut text, list) = text_and_fields(handle, messages).await;
                delivered = list;
                if more > 0 {
                    text.push_str(&format!("\n\n{more} more: call read_messages again."));
                }
                text
            }
        };
        let output = ReadMessagesResult {
            more,
            effective_timeout: self.client_limit.map(Into::into),
        };
        ToolResult {
            messages: Some(delivered),
            ..ToolResult::new(text, ToolOutput::ReadMessages(output))
        }
    }
}

/// Text and fields of messages. Messages whose content the caller already knows are left out.
pub(super) async fn text_and_fields(
    handle: &Handle,
    messages: &[ReturnedMessage],
) -> (String, Vec<DeliveredMessage>) {
    let timers = timers_of(handle, messages).await;
    let numbers: Vec<u64> = messages.iter().map(|message| message.number).collect();
    let made = handle.store_reader().messages_created(&numbers).await;
    let made = made.unwrap_or_default();
    let mut texts = Vec::new();
    let mut list = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        if message.known {
            continue;
        }
        let text = match message.about {
            About::Timer(id) => timer_message(id, timers.get(&id)),
            About::Session(_) | About::Question(_) => message_text(handle, message.about).await,
        };
        let made = made.get(n).copied().flatten();
        let (timer_id, session_id) = subject(message.about);
        list.push(DeliveredMessage {
            message_id: Id(message.id),
            timer_id,
            session_id,
            repeated: message.repeated,
            taken_over_from: message.taken_over.as_ref().map(|of| of.0.to_string()),
            created_at: made.map(|made| made.0),
            text: text.clone(),
        });
        let whose = message.taken_over.as_ref();
        let whose = whose.map_or_else(String::new, |of| format!("\n({})", taken_over(handle, of)));
        let again = if message.repeated {
            format!(
                "\n(Sent again as {}: you may have seen this before.)",
                message.id
            )
        } else {
            String::new()
        };
        texts.push(format!("{text}{whose}{again}"));
    }
    (texts.join("\n\n"), list)
}

/// Timer or session that a message is about.
pub(crate) fn subject(about: About) -> (Option<Id<TimerId>>, Option<Id<SessionId>>) {
    match about {
        About::Timer(id) => (Some(Id(id)), None),
        About::Session(id) => (None, Some(Id(id))),
        About::Question(_) => (None, None),
    }
}

/// Sentence that names the conversation to which a message originally belonged.
fn taken_over(handle: &Handle, of: &Conversation) -> String {
    let client = [ClientKind::ClaudeCode, ClientKind::Codex]
        .into_iter()
        .find_map(|kind| Some((kind, kind.session_of(of)?)));
    let Some((kind, session)) = client else {
        return "This message belongs to another conversation of this agent, whose client has \
                disconnected."
            .into();
    };
    let name = match kind {
        ClientKind::ClaudeCode => "Claude Code session",
        ClientKind::Codex => "Codex thread",
    };
    let place = handle.clients().folder_of(kind, session);
    let place = place.map_or_else(String::new, |folder| format!(" in {}", folder.display()));
    format!(
        "This message belongs to another conversation of this agent, {name} {session}{place}, which \
         is closed."
    )
}

/// Rows of the timers that messages are about.
async fn timers_of(handle: &Handle, messages: &[ReturnedMessage]) -> HashMap<TimerId, TimerRow> {
    let ids = messages.iter().filter_map(|message| match message.about {
        About::Timer(id) => Some(id),
        About::Session(_) | About::Question(_) => None,
    });
    let ids: Vec<TimerId> = ids.collect();
    let rows = handle.store_reader().timers_by_id(&ids).await;
    rows.unwrap_or_default()
        .into_iter()
        .flatten()
        .map(|row| (row.id, row))
        .collect()
}
