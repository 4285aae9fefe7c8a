//! Requests of a client that are not answered yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rmcp::model::RequestId;
use tokio_util::sync::CancellationToken;

use super::out::{Out, Turn};

/// One request that is not answered yet.
pub struct InFlight {
    /// Number of this request among all that its front has ever forwarded. It stays the same when the front
    /// replays the request.
    pub ordinal: Option<u64>,
    /// The connection is lost.
    pub lost: CancellationToken,
    /// The client has cancelled the request.
    pub cancelled: CancellationToken,
    /// Reason of the cancellation, set before `cancelled`.
    reason: OnceLock<Option<String>>,
    /// Writer of the answer, if that goes to a front.
    out: Option<Arc<Out>>,
}

impl InFlight {
    /// Request of a front, with its number.
    pub fn of_front(ordinal: Option<u64>, out: &Arc<Out>) -> Self {
        InFlight {
            ordinal,
            out: Some(out.clone()),
            ..InFlight::over_http(out.lost.clone())
        }
    }

    /// Request of an HTTP session, which ends with `lost`.
    pub fn over_http(lost: CancellationToken) -> Self {
        InFlight {
            ordinal: None,
            lost,
            cancelled: CancellationToken::new(),
            reason: OnceLock::new(),
            out: None,
        }
    }

    /// Waits until the client has read enough for another answer. `false`: the connection is lost.
    pub async fn room(&self) -> bool {
        match &self.out {
            Some(out) => out.room().await,
            None => true,
        }
    }

    /// Waits for the turn to render the answer. `None`: no turn is needed.
    pub async fn turn(&self) -> Option<Turn> {
        match &self.out {
            Some(out) => out.turn().await,
            None => None,
        }
    }

    /// Cancels the request. The first reason counts.
    pub fn cancel(&self, reason: Option<String>) {
        let _ = self.reason.set(reason);
        self.cancelled.cancel();
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

    /// Whether a request under this id is not answered yet.
    pub fn contains(&self, id: &RequestId) -> bool {
        self.all().contains_key(id)
    }

    /// Adds a request.
    pub fn add(&self, id: RequestId, request: Arc<InFlight>) {
        self.all().insert(id, request);
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
        let is_own = all.get(id).is_some_and(|own| Arc::ptr_eq(own, request));
        is_own && all.remove(id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_request_is_not_answered_under_an_id_that_is_used_again() {
        let table = InFlightTable::default();
        let id = RequestId::Number(1);
        let [first, second] =
            [0, 1].map(|_| Arc::new(InFlight::over_http(CancellationToken::new())));
        table.add(id.clone(), first.clone());
        table.cancel(&id, Some("why".into()));
        assert_eq!(first.reason(), Some(Some("why")));
        assert!(first.cancelled.is_cancelled());
        table.add(id.clone(), second.clone());
        assert!(!table.finish(&id, &first) && table.contains(&id));
        assert!(table.finish(&id, &second) && !table.contains(&id));
    }
}
