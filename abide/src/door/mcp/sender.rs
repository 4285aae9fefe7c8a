//! Sends to a client what the library says: answers to requests that it handles itself, notifications, and
//! the daemon's own requests. The answers of tool calls leave from [`super::calls`].

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{JsonRpcMessage, ServerNotification};
use rmcp::service::TxJsonRpcMessage;
use tokio_util::sync::CancellationToken;

use super::calls::Calls;
use super::out::Out;
use super::wire::{Receipts, line_of};
use crate::door::tools::Receipt;

/// Sends what the library says.
pub struct Sender {
    pub out: Arc<Out>,
    pub calls: Arc<Calls>,
    pub receipts: Receipts,
    pub lost: CancellationToken,
}

impl Sender {
    /// Sends an answer when the client has read enough of those before it.
    pub async fn send_later(self, answer: TxJsonRpcMessage<RoleServer>) -> io::Result<()> {
        tokio::select! {
            () = self.out.room() => self.send(&answer),
            () = self.lost.cancelled() => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends a message now.
    pub fn send(&self, item: &TxJsonRpcMessage<RoleServer>) -> io::Result<()> {
        let answered = match item {
            JsonRpcMessage::Response(answer) => Some(&answer.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let receipt = answered.and_then(|id| {
            self.calls.answered(id);
            let mut receipts = self.receipts.lock().expect("no holder panics");
            receipts.remove(id)
        });
        let sent = line_of(item).and_then(|line| self.out.push(line));
        match &sent {
            Ok(()) => receipt.into_iter().for_each(Receipt::delivered),
            Err(_) => {
                self.lost.cancel();
                self.out.close();
            }
        }
        sent
    }
}

/// Whether nothing is lost where a client that does not read never gets this: the next of its kind, or the
/// next result, says the same.
pub fn is_dispensable(told: &ServerNotification) -> bool {
    matches!(
        told,
        ServerNotification::ProgressNotification(_) | ServerNotification::CustomNotification(_)
    )
}
