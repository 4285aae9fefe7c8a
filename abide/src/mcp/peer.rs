//! The client as the daemon's peer: notifications and elicitation requests go to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientResult, ElicitRequest, ElicitResult,
    JsonRpcMessage, RequestId, ServerNotification, ServerRequest,
};
use rmcp::service::{self, PeerRequestOptions};
use tokio::sync::oneshot;

use super::out::Out;

/// The client of one connection or HTTP session.
#[derive(Clone)]
pub enum Peer {
    /// Client of a front.
    Stdio(Arc<Outgoing>),
    /// Client over HTTP, which the library serves.
    Http(service::Peer<RoleServer>),
}

/// An elicitation request that the client has not answered.
pub struct Elicitation {
    /// Id of the request.
    pub id: RequestId,
    /// The answer. `None`: an error, or no answer to an elicitation.
    pub answer: BoxFuture<'static, Option<ElicitResult>>,
}

impl Peer {
    /// Sends a notification. `false`: the client is gone.
    pub async fn notify(&self, notification: ServerNotification) -> bool {
        match self {
            Peer::Stdio(outgoing) => outgoing.notify(notification),
            Peer::Http(peer) => peer.send_notification(notification).await.is_ok(),
        }
    }

    /// Asks the client's person. `None`: the client is gone.
    pub async fn elicit(&self, request: ElicitRequest) -> Option<Elicitation> {
        let request = ServerRequest::ElicitRequest(request);
        match self {
            Peer::Stdio(outgoing) => outgoing.request(request),
            Peer::Http(peer) => {
                let options = PeerRequestOptions::no_options();
                let sent = peer.send_cancellable_request(request, options).await.ok()?;
                Some(Elicitation {
                    id: sent.id.clone(),
                    answer: Box::pin(async move { elicited(sent.await_response().await.ok()) }),
                })
            }
        }
    }

    /// Takes back an elicitation request.
    pub async fn withdraw(&self, id: RequestId, reason: &str) {
        if let Peer::Stdio(outgoing) = self {
            outgoing.forget(&id);
        }
        let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
        let cancelled = CancelledNotification::new(params);
        self.notify(ServerNotification::CancelledNotification(cancelled))
            .await;
    }

    /// Whether the client is gone.
    pub fn is_closed(&self) -> bool {
        match self {
            Peer::Stdio(outgoing) => outgoing.out.lost.is_cancelled(),
            Peer::Http(peer) => peer.is_transport_closed(),
        }
    }
}

fn elicited(answer: Option<ClientResult>) -> Option<ElicitResult> {
    match answer {
        Some(ClientResult::ElicitResult(result)) => Some(result),
        _ => None,
    }
}

/// Messages that the daemon sends to the client of a front by itself, and the table of its requests.
pub struct Outgoing {
    out: Arc<Out>,
    requests: Mutex<Requests>,
}

struct Requests {
    next: i64,
    unanswered: HashMap<RequestId, oneshot::Sender<ClientResult>>,
}

impl Outgoing {
    /// Requests are numbered from `first` on.
    pub fn new(out: Arc<Out>, first: i64) -> Arc<Self> {
        let requests = Mutex::new(Requests {
            next: first,
            unanswered: HashMap::new(),
        });
        Arc::new(Outgoing { out, requests })
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect("no holder panics")
    }

    fn notify(&self, notification: ServerNotification) -> bool {
        if !self.out.has_room() && is_dispensable(&notification) {
            return true;
        }
        self.out.send(&JsonRpcMessage::notification(notification))
    }

    fn request(self: &Arc<Self>, request: ServerRequest) -> Option<Elicitation> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut requests = self.requests();
            // A call that ends forgets its question.
            requests.unanswered.retain(|_, answer| !answer.is_closed());
            let id = RequestId::Number(requests.next);
            requests.next += 1;
            requests.unanswered.insert(id.clone(), answer);
            id
        };
        let sent = self.out.send(&JsonRpcMessage::request(request, id.clone()));
        sent.then(|| Elicitation {
            id,
            answer: Box::pin(async move { elicited(answered.await.ok()) }),
        })
    }

    /// Takes the client's answer to a request. `None`: it answers with an error.
    pub fn answered(&self, id: &RequestId, result: Option<ClientResult>) {
        let waiting = self.requests().unanswered.remove(id);
        // Without a result the sender is dropped, which is the answer.
        if let (Some(waiting), Some(result)) = (waiting, result) {
            let _ = waiting.send(result);
        }
    }

    fn forget(&self, id: &RequestId) {
        self.requests().unanswered.remove(id);
    }
}

/// Whether a client that does not read may miss this notification: the next of its kind, or the next result,
/// says the same.
fn is_dispensable(notification: &ServerNotification) -> bool {
    matches!(
        notification,
        ServerNotification::ProgressNotification(_) | ServerNotification::CustomNotification(_)
    )
}
