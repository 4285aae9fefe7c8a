//! The calls of one connection that are not answered.
//!
//! The library knows of few of them: to the call of a tool it has nothing to say once it knows the client,
//! and its way there and back takes longer than many a call. So they are made here, and what they bring
//! goes straight to the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rmcp::model::{
    CallToolRequest, CallToolResponse, JsonRpcMessage, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{RequestContext, TxJsonRpcMessage};
use rmcp::{ErrorData, RoleServer};
use tokio_util::sync::CancellationToken;

use super::call::Answered;
use super::out::Out;
use super::server::{Server, is_modern};
use super::wire::{Note, line_of};
use crate::door::tools::Receipt;

/// What is not answered, by its id.
#[derive(Default)]
pub struct Calls {
    open: Mutex<HashMap<RequestId, Call>>,
}

/// A request that is not answered.
struct Call {
    note: Weak<Note>,
    /// Where it is made here: tells it that its client does not wait for it any more.
    given_up: Option<CancellationToken>,
}

impl Calls {
    fn all(&self) -> MutexGuard<'_, HashMap<RequestId, Call>> {
        self.open.lock().expect("no holder panics")
    }

    /// Whether a request under this id is not answered yet.
    pub fn is_open(&self, id: &RequestId) -> bool {
        let all = self.all();
        all.get(id).is_some_and(|call| call.note.strong_count() > 0)
    }

    /// One more. Whoever makes it here is told by `given_up` that it is cancelled.
    pub fn open(&self, id: RequestId, note: &Arc<Note>, given_up: Option<CancellationToken>) {
        let call = Call {
            note: Arc::downgrade(note),
            given_up,
        };
        self.all().insert(id, call);
    }

    /// The library answers it.
    pub fn answered(&self, id: &RequestId) {
        self.all().remove(id);
    }

    /// The client does not want the answer any more. The reason is there before the call hears of it.
    pub fn cancel(&self, id: &RequestId, reason: Option<String>) {
        let Some(call) = self.all().remove(id) else {
            return;
        };
        if let Some(note) = call.note.upgrade() {
            note.cancel(reason);
        }
        if let Some(given_up) = call.given_up {
            given_up.cancel();
        }
    }

    /// A call that is made here has come to its end. `false`: it was cancelled, and its id may be another's by
    /// now.
    fn finish(&self, id: &RequestId, note: &Arc<Note>) -> bool {
        let mut all = self.all();
        let own = |call: &Call| std::ptr::eq(call.note.as_ptr(), Arc::as_ptr(note));
        all.get(id).is_some_and(own) && all.remove(id).is_some()
    }
}

/// The way back of a call.
pub struct Back {
    pub calls: Arc<Calls>,
    pub out: Arc<Out>,
}

/// Makes a call for a client that the library knows, and answers it.
pub fn make(
    server: Server,
    call: &mut CallToolRequest,
    mut context: RequestContext<RoleServer>,
    note: Arc<Note>,
    back: Back,
) {
    if let Some(meta) = call.extensions.remove::<RequestMetaObject>() {
        context.meta = meta;
    }
    let given_up = Some(context.ct.clone());
    back.calls.open(context.id.clone(), &note, given_up);
    let params = std::mem::take(&mut call.params);
    tokio::spawn(async move {
        let (id, modern) = (context.id.clone(), is_modern(&context));
        // A call of a client that does not read its answers begins when it does.
        let begins = tokio::select! {
            biased;
            room = note.room() => room,
            () = context.ct.cancelled() => false,
        };
        if !begins {
            return;
        }
        let called = server.call(params, context, Some(note.clone()));
        let answered = called.await;
        if !note.room().await {
            return;
        }
        // Whoever takes over from here has it to answer, as its front will say it again there.
        if note.lost.is_cancelled() {
            return;
        }
        if back.calls.finish(&id, &note) {
            back.answer(id, modern, answered, &note.lost);
        }
    });
}

impl Back {
    fn answer(
        &self,
        id: RequestId,
        modern: bool,
        answered: Result<Answered, ErrorData>,
        lost: &CancellationToken,
    ) {
        let (message, (receipt, turn)) = match answered {
            Ok(Answered {
                said,
                receipt,
                turn,
            }) => {
                let mut result = ServerResult::from(CallToolResponse::from(said));
                if !modern {
                    result.strip_result_type_for_legacy_peer();
                }
                let response = JsonRpcMessage::response(result, id);
                (response, (receipt, turn))
            }
            Err(error) => (JsonRpcMessage::error(error, Some(id)), (None, None)),
        };
        let message: TxJsonRpcMessage<RoleServer> = message;
        match line_of(&message).and_then(|line| self.out.push(line)) {
            Ok(()) => {
                receipt.into_iter().for_each(Receipt::delivered);
                drop(turn);
            }
            Err(_) => {
                lost.cancel();
                self.out.close();
            }
        }
    }
}
