//! Requests of a client that are not answered yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use abide_core::Millis;
use rmcp::model::{CallToolRequestParams, RequestId};
use tokio_util::sync::CancellationToken;

use super::client_channel::Sink;
use super::control;

/// Facts that a front keeps about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Number of this request among all that its front has ever forwarded. It stays the same when the front
    /// replays the request.
    pub ordinal: u64,
    /// Time since the request first arrived. A replayed call has waited so long already.
    pub age: Millis,
}

/// One request that is not answered yet.
pub struct InFlight {
    /// `None`: the request came over HTTP.
    pub forwarded: Option<Forwarded>,
    /// Destination of the answer.
    pub sink: Sink,
    /// Cancelled when the client has cancelled the request.
    pub cancelled: CancellationToken,
    /// Reason of the cancellation, set before `cancelled`.
    reason: OnceLock<Option<String>>,
}

impl InFlight {
    /// Request whose answer goes to `sink`.
    pub fn new(forwarded: Option<Forwarded>, sink: Sink) -> Self {
        InFlight {
            forwarded,
            sink,
            cancelled: CancellationToken::new(),
            reason: OnceLock::new(),
        }
    }

    /// Waits until the client no longer wants the answer: the request was cancelled, or the client is gone.
    pub async fn unwanted(&self) {
        tokio::select! {
            () = self.cancelled.cancelled() => {}
            () = self.sink.lost().cancelled() => {}
        }
    }

    /// True if a call is unwanted before it begins, so that it starts nothing. A call of a front may have begun with an
    /// earlier daemon, and a call that names a session is about a command that runs: these are cancelled as usual.
    pub fn is_unwanted_before_it_began(&self, call: &CallToolRequestParams) -> bool {
        let arguments = call.arguments.as_ref();
        let names_session = arguments.is_some_and(|all| all.contains_key("session_id"));
        let is_unwanted = self.cancelled.is_cancelled() || self.sink.lost().is_cancelled();
        matches!(self.sink, Sink::Events(_)) && is_unwanted && !names_session
    }

    /// Cancels the request. The first reason counts.
    pub fn cancel(&self, reason: Option<String>) {
        let _ = self.reason.set(reason);
        self.cancelled.cancel();
    }

    /// Tells the front that the cancellation was carried out, so that it is not replayed.
    pub fn confirm_cancellation(&self) {
        if let (Sink::Front(writer), Some(forwarded)) = (&self.sink, self.forwarded) {
            let number = forwarded.ordinal;
            writer.send_control(&format!("{}{number}\n", control::CANCELLED));
        }
    }

    /// Reason of the cancellation, if the client has cancelled the request.
    pub fn reason(&self) -> Option<Option<&str>> {
        self.reason.get().map(Option::as_deref)
    }
}

/// Unanswered requests of one connection, by id.
#[derive(Default)]
pub struct InFlightTable(Mutex<HashMap<RequestId, Arc<InFlight>>>);

impl InFlightTable {
    fn all(&self) -> MutexGuard<'_, HashMap<RequestId, Arc<InFlight>>> {
        self.0.lock().expect("no holder panics")
    }

    /// True if all requests are answered.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Adds a request. `false`: one under this id is not answered yet.
    pub fn add(&self, id: RequestId, request: Arc<InFlight>) -> bool {
        match self.all().entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(request);
                true
            }
        }
    }

    /// Cancels and removes a request; its id is free from now on.
    pub fn cancel(&self, id: &RequestId, reason: Option<String>) {
        let cancelled = self.all().remove(id);
        if let Some(request) = cancelled {
            request.cancel(reason);
        }
    }

    /// Removes a request that is about to be answered. `false`: it was cancelled, and the id may be in use
    /// by another request.
    pub fn finish(&self, id: &RequestId, request: &Arc<InFlight>) -> bool {
        let mut all = self.all();
        let is_same = (all.get(id)).is_some_and(|known| Arc::ptr_eq(known, request));
        is_same && all.remove(id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::http::event_stream::EventStream;

    #[test]
    fn cancelled_request_is_not_answered_under_an_id_that_is_used_again() {
        let table = InFlightTable::default();
        let id = RequestId::Number(1);
        let sink = Sink::Events(EventStream::new(CancellationToken::new()));
        let [first, second] = [0, 1].map(|_| Arc::new(InFlight::new(None, sink.clone())));
        assert!(table.add(id.clone(), first.clone()));
        assert!(!table.add(id.clone(), second.clone()), "it is in use");
        table.cancel(&id, Some("why".into()));
        assert_eq!(first.reason(), Some(Some("why")));
        assert!(first.cancelled.is_cancelled());
        assert!(table.add(id.clone(), second.clone()));
        assert!(!table.finish(&id, &first) && !table.is_empty());
        assert!(table.finish(&id, &second) && table.is_empty());
    }
}
