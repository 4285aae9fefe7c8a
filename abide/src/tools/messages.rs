//! `read_messages`, and the words of messages wherever they are told.

use std::collections::HashMap;

use abide_core::message::{About, Told};
use abide_core::{Conversation, Millis, Request, TimerId, limit};
use serde_json::{Map, Value, json};

use super::timer::secs;
use super::{Args, BadInput, Context, ToolResult, report};
use abide_engine::Handle;
use abide_engine::clients::ClientKind;
use abide_engine::store::TimerRow;
use abide_engine::text::{message_text, timer_message};

pub(super) const FIELDS: &str = "timeout_seconds";

/// Messages that are appended to a result; the rest waits for the next, or for `read_messages`.
pub(super) const APPENDED: usize = 20;

/// What the result needs to know of the arguments.
pub(super) struct ReadMessages {
    waited: Millis,
    /// The client's own limit, where it is shorter than what was asked for.
    fitted: Option<Millis>,
}

pub(super) fn read(
    arguments: Map<String, Value>,
    context: &Context,
) -> Result<(Request, ReadMessages), BadInput> {
    let mut args = Args::new(arguments);
    let asked = args.patience("timeout_seconds")?.unwrap_or_default();
    args.finish(FIELDS)?;
    let fitted = context.standby.filter(|limit| *limit < asked);
    let standby = fitted.unwrap_or(asked);
    let most = limit::MESSAGES_AT_ONCE;
    Ok((
        Request::ReadMessages {
            standby,
            most,
            known: Vec::new(),
        },
        ReadMessages {
            waited: standby,
            fitted,
        },
    ))
}

impl ReadMessages {
    pub(super) fn result(&self, handle: &Handle, messages: &[Told], more: usize) -> ToolResult {
        let mut facts = Map::new();
        facts.insert("more".into(), json!(more));
        if let Some(fitted) = self.fitted {
            facts.insert("effective_timeout".into(), secs(fitted));
        }
        let waited = (self.fitted).map_or_else(|| self.waited.to_string(), report::cut_at);
        let text = match messages {
            [] if self.waited.0 > 0 => {
                format!("No messages came within {waited}. New ones are told with your next call.")
            }
            [] => "No messages.".into(),
            messages => {
                let (mut text, list) = told(handle, messages);
                facts.insert("messages".into(), list);
                if more > 0 {
                    text.push_str(&format!("\n\n{more} more: call read_messages again."));
                }
                text
            }
        };
        facts.entry("messages").or_insert_with(|| json!([]));
        ToolResult {
            text,
            facts,
            is_error: false,
        }
        .sealed()
    }
}

/// The words of some messages, and the same as fields. What the caller knows already is left out.
pub(super) fn told(handle: &Handle, messages: &[Told]) -> (String, Value) {
    let timers = timers_by_id(handle, messages);
    let numbers: Vec<u64> = messages.iter().map(|message| message.number).collect();
    let made = handle
        .store_reader()
        .messages_created(&numbers)
        .unwrap_or_default();
    let mut texts = Vec::new();
    let mut list = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        if message.known {
            continue;
        }
        let text = match message.about {
            About::Timer(id) => timer_message(id, timers.get(&id)),
            About::Session(_) => message_text(handle, message.about),
        };
        let made = made.get(n).copied().flatten();
        let mut fields = Map::new();
        fields.insert("message_id".into(), json!(message.id.to_string()));
        match message.about {
            About::Timer(timer) => fields.insert("timer_id".into(), json!(timer.to_string())),
            About::Session(id) => fields.insert("session_id".into(), json!(id.to_string())),
        };
        fields.insert("repeated".into(), json!(message.repeated));
        fields.insert("created_at".into(), json!(made.map(|made| made.0)));
        fields.insert("text".into(), json!(text.as_str()));
        if let Some(of) = &message.taken_over {
            fields.insert("taken_over_from".into(), json!(of.0.as_ref()));
        }
        list.push(Value::Object(fields));
        let whose = message.taken_over.as_ref();
        let whose = whose.map_or_else(String::new, |of| format!("\n({})", taken_over(handle, of)));
        let again = if message.repeated {
            format!(
                "\n(Told again as {}: you may have seen this before.)",
                message.id
            )
        } else {
            String::new()
        };
        texts.push(format!("{text}{whose}{again}"));
    }
    (texts.join("\n\n"), Value::Array(list))
}

/// Says whose a message was that another conversation is told.
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

/// The timers that some messages are about.
fn timers_by_id(handle: &Handle, messages: &[Told]) -> HashMap<TimerId, TimerRow> {
    let ids = messages.iter().filter_map(|message| match message.about {
        About::Timer(id) => Some(id),
        About::Session(_) => None,
    });
    let ids: Vec<TimerId> = ids.collect();
    let rows = handle.store_reader().timers_by_id(&ids).unwrap_or_default();
    rows.into_iter()
        .flatten()
        .map(|row| (row.id, row))
        .collect()
}
