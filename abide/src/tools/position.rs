//! Read position of a caller in the output of a session.

use abide_engine::{Handle, SessionView};
use abide_session::daemon_record::OpenRecord;

use super::Context;
use crate::reader_cursors::SessionReader;
use crate::unread_lines::Cursor;

/// Caller as a reader: what one of its calls has returned is not returned by the next.
#[derive(Clone)]
pub(super) struct CallerPosition {
    client: Option<String>,
    /// Conversation of a caller that has no connection.
    conversation: Option<String>,
    request: Option<String>,
}

impl CallerPosition {
    pub fn of(context: &Context) -> Self {
        let conversation = context.conversation.as_ref();
        CallerPosition {
            client: context.client.clone(),
            conversation: conversation.map(|name| name.0.to_string()),
            request: context.request_key.clone(),
        }
    }

    /// Cursor behind everything that the caller has read.
    pub fn read(&self, handle: &Handle, view: &SessionView, record: &OpenRecord) -> Cursor {
        let connected = handle.clients().connections_of(&view.state.agent.0);
        record.with_cursors(|all| self.reader(&connected).position(all))
    }

    /// Stores the caller's cursor, after the answer has been sent.
    pub fn store(&self, handle: &Handle, view: &SessionView, record: &OpenRecord, cursor: Cursor) {
        let (clients, agent) = (handle.clients().clone(), view.state.agent.clone());
        let this = self.clone();
        record.defer(move |all| {
            let connected = clients.connections_of(&agent.0);
            this.reader(&connected).store(all, cursor);
        });
    }

    fn reader<'a>(&'a self, connected: &'a [String]) -> SessionReader<'a> {
        SessionReader {
            client: self.client.as_deref(),
            conversation: self.conversation.as_deref(),
            connected,
            request: self.request.as_deref(),
        }
    }
}
