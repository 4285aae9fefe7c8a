//! Channel to the client of one connection or HTTP session, for notifications and elicitation requests of the daemon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientResult, ElicitRequest, ElicitResult,
    JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::front_writer::{FrontWriter, RenderPermit};
use super::http::event_stream::{EventStream, PendingAnswer};
use crate::tools::Receipt;

/// Destination of messages to a client.
#[derive(Clone)]
pub enum Sink {
    /// The connection of a front.
    Front(Arc<FrontWriter>),
    /// The event stream of an HTTP response.
    Events(Arc<EventStream>),
}

impl Sink {
    /// Sends a message. `false`: the client is gone.
    pub fn send(&self, message: &ServerJsonRpcMessage) -> bool {
        match self {
            Sink::Front(writer) => writer.send(message),
            Sink::Events(stream) => stream.send(message),
        }
    }

    /// Sends the answer to a request. The receipt is confirmed once the answer has been sent.
    pub fn send_answer(&self, message: &ServerJsonRpcMessage, receipt: Option<Receipt>) {
        match self {
            Sink::Front(writer) => {
                if writer.send(message) {
                    receipt.into_iter().for_each(Receipt::delivered);
                }
            }
            Sink::Events(stream) => stream.send_answer(message, receipt),
        }
    }

    /// Keeps an event stream open until a request has been answered.
    pub fn expect_answer(&self) -> Option<PendingAnswer> {
        match self {
            Sink::Front(_) => None,
            Sink::Events(stream) => Some(stream.expect_answer()),
        }
    }

    /// True if another answer may be rendered now.
    pub fn has_room(&self) -> bool {
        match self {
            Sink::Front(writer) => writer.has_room(),
            Sink::Events(_) => true,
        }
    }

    /// Waits until another answer may be rendered. `false`: the connection is lost.
    pub async fn wait_for_room(&self) -> bool {
        match self {
            Sink::Front(writer) => writer.wait_for_room().await,
            Sink::Events(_) => true,
        }
    }

    /// Waits for a permit to render an answer. `None`: no permit is needed, or the connection is lost.
    pub async fn render_permit(&self) -> Option<RenderPermit> {
        match self {
            Sink::Front(writer) => writer.render_permit().await,
            Sink::Events(_) => None,
        }
    }

    /// Token that is cancelled when the connection of a front, or the HTTP session, has ended.
    pub fn lost(&self) -> &CancellationToken {
        match self {
            Sink::Front(writer) => &writer.lost,
            Sink::Events(stream) => &stream.lost,
        }
    }
}

/// Channel to the client of one connection or HTTP session.
#[derive(Clone)]
pub struct ClientChannel {
    sink: Sink,
    requests: Arc<OutgoingRequests>,
}

/// An elicitation request that the client has not answered.
pub struct Elicitation {
    pub id: RequestId,
    /// Result of the elicitation. `None`: the client answered with an error or with another kind of result.
    pub answer: BoxFuture<'static, Option<ElicitResult>>,
}

impl ClientChannel {
    /// Channel whose messages go through `sink`.
    pub fn new(sink: Sink, requests: Arc<OutgoingRequests>) -> Self {
        ClientChannel { sink, requests }
    }

    /// Sends a notification. `false`: the client is gone.
    pub fn notify(&self, notification: ServerNotification) -> bool {
        if !self.sink.has_room() && is_dispensable(&notification) {
            return true;
        }
        self.sink.send(&JsonRpcMessage::notification(notification))
    }

    /// Sends an elicitation request. `None`: the client is gone.
    pub fn elicit(&self, request: ElicitRequest) -> Option<Elicitation> {
        let (id, answered) = self.requests.begin();
        let request = ServerRequest::ElicitRequest(request);
        let sent = (self.sink).send(&JsonRpcMessage::request(request, id.clone()));
        let answer = async move {
            match answered.await {
                Ok(ClientResult::ElicitResult(result)) => Some(result),
                Ok(_) | Err(_) => None,
            }
        };
        sent.then(|| Elicitation {
            id,
            answer: Box::pin(answer),
        })
    }

    /// Cancels an elicitation request.
    pub fn withdraw(&self, id: RequestId, reason: &str) {
        self.requests.forget(&id);
        let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
        let cancelled = CancelledNotification::new(params);
        self.notify(ServerNotification::CancelledNotification(cancelled));
    }

    /// True if the client is gone.
    pub fn is_closed(&self) -> bool {
        self.sink.lost().is_cancelled()
    }
}

/// Requests of the daemon that a client has not answered.
pub struct OutgoingRequests(Mutex<OutgoingTable>);

struct OutgoingTable {
    next: i64,
    answers: HashMap<RequestId, oneshot::Sender<ClientResult>>,
}

impl OutgoingRequests {
    /// Empty table; the daemon's requests are numbered from `first` on.
    pub fn new(first: i64) -> Arc<Self> {
        Arc::new(OutgoingRequests(Mutex::new(OutgoingTable {
            next: first,
            answers: HashMap::new(),
        })))
    }

    fn table(&self) -> MutexGuard<'_, OutgoingTable> {
        self.0.lock().expect("no holder panics")
    }

    fn begin(&self) -> (RequestId, oneshot::Receiver<ClientResult>) {
        let (answer, answered) = oneshot::channel();
        let mut table = self.table();
        // A call that has ended has dropped its receiver.
        table.answers.retain(|_, answer| !answer.is_closed());
        let id = RequestId::Number(table.next);
        table.next += 1;
        table.answers.insert(id.clone(), answer);
        (id, answered)
    }

    /// Takes the client's answer to a request. `None`: the client answered with an error.
    pub fn answered(&self, id: &RequestId, result: Option<ClientResult>) {
        let waiting = self.table().answers.remove(id);
        // Without a result the sender is dropped, which the receiver sees as an error.
        if let (Some(waiting), Some(result)) = (waiting, result) {
            let _ = waiting.send(result);
        }
    }

    fn forget(&self, id: &RequestId) {
        self.table().answers.remove(id);
    }
}

/// True if a client that does not read may miss this notification, because the next one of its kind, or the
/// next result, repeats the information.
fn is_dispensable(notification: &ServerNotification) -> bool {
    matches!(
        notification,
        ServerNotification::ProgressNotification(_) | ServerNotification::CustomNotification(_)
    )
}
