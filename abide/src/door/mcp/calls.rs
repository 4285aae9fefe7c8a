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
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::{CancellationToken, ReusableBoxFuture};

use super::call::{Answered, Said};
use super::out::{Out, Weight};
use super::server::{Server, is_modern};
use super::wire::{Note, line_of};
use crate::door::tools::{Receipt, ToolResult};
use crate::world::ledger::Mark;

/// What is not answered, by its id.
#[derive(Default)]
pub struct Calls {
    open: Mutex<HashMap<RequestId, Call>>,
    /// Room for calls that are made here: it is large, and to ask for it each time would take long.
    rooms: Mutex<Vec<Room>>,
}

type Room = ReusableBoxFuture<'static, ()>;

/// Rooms that are kept when nobody is in them.
const ROOMS: usize = 8;

/// A request that is not answered.
struct Call {
    note: Weak<Note>,
    ordinal: Option<u64>,
    /// Where it is made here: tells it that its client does not wait for it any more.
    given_up: Option<CancellationToken>,
}

impl Call {
    /// How the answer is noted.
    fn weight(&self) -> Weight {
        match self.ordinal {
            Some(ordinal) => Weight::Marked(Mark::Answered(ordinal)),
            None => Weight::Front,
        }
    }
}

impl Calls {
    fn all(&self) -> MutexGuard<'_, HashMap<RequestId, Call>> {
        self.open.lock().expect("no holder panics")
    }

    /// Sees a call through in a room of its own.
    async fn stay(self: Arc<Self>, mut room: Room) {
        room.get_pin().await;
        let mut rooms = self.rooms.lock().expect("no holder panics");
        if rooms.len() < ROOMS {
            rooms.push(room);
        }
    }

    fn room(&self, call: impl Future<Output = ()> + Send + 'static) -> Room {
        let free = self.rooms.lock().expect("no holder panics").pop();
        match free {
            Some(mut room) => {
                room.set(call);
                room
            }
            None => Room::new(call),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all().len()
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
            ordinal: note.ordinal,
            given_up,
        };
        self.all().insert(id, call);
    }

    /// The library answers it: how that is noted. `None`: nobody knows of it.
    pub fn answered(&self, id: &RequestId) -> Option<Weight> {
        self.all().remove(id).map(|call| call.weight())
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

    /// A call that is made here has come to its end: how its answer is noted. `None`: it was cancelled, and
    /// its id may be another's by now.
    fn finish(&self, id: &RequestId, note: &Arc<Note>) -> Option<Weight> {
        let mut all = self.all();
        let own = |call: &Call| std::ptr::eq(call.note.as_ptr(), Arc::as_ptr(note));
        all.get(id).filter(|call| own(call))?;
        all.remove(id).map(|call| call.weight())
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
    let calls = back.calls.clone();
    let room = calls.room(async move {
        let (id, modern) = (context.id.clone(), is_modern(&context));
        let called = server.call(params, context, Some(note.clone()));
        let answered = called.await;
        // Whoever takes over from here has it to answer, as its front will say it again there.
        if note.lost.is_cancelled() {
            return;
        }
        if let Some(weight) = back.calls.finish(&id, &note) {
            back.answer(&id, modern, answered, weight, &note.lost);
        }
    });
    tokio::spawn(calls.stay(room));
}

impl Back {
    fn answer(
        &self,
        id: &RequestId,
        modern: bool,
        answered: Result<Answered, ErrorData>,
        weight: Weight,
        lost: &CancellationToken,
    ) {
        let line = match &answered {
            Ok(answered) => answer_line(id, modern, &answered.said),
            Err(error) => {
                let error: TxJsonRpcMessage<RoleServer> =
                    JsonRpcMessage::error(error.clone(), Some(id.clone()));
                line_of(&error)
            }
        };
        // What the answer was made of is let go of when it has left.
        match line.and_then(|line| self.out.push(line, weight)) {
            Ok(()) => {
                let receipt = answered.ok().and_then(|answered| answered.receipt);
                receipt.into_iter().for_each(Receipt::delivered);
            }
            Err(_) => {
                lost.cancel();
                self.out.end_loan();
                self.out.close();
            }
        }
    }
}

/// An answer, as the library writes it.
#[derive(Serialize)]
struct Answer<'a, Result> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    result: Result,
}

impl<'a, Result: Serialize> Answer<'a, Result> {
    fn line(id: &'a RequestId, result: Result) -> std::io::Result<Vec<u8>> {
        line_of(&Answer {
            jsonrpc: "2.0",
            id,
            result,
        })
    }
}

/// A tool's result, as the library writes it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    content: [Text<'a>; 1],
    structured_content: &'a Map<String, Value>,
    is_error: bool,
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
}

fn answer_line(id: &RequestId, modern: bool, said: &Said) -> std::io::Result<Vec<u8>> {
    match said {
        Said::Result(ToolResult {
            text,
            facts,
            is_error,
        }) => {
            let content = [Text {
                r#type: "text",
                text,
            }];
            let told = Told {
                result_type: modern.then_some("complete"),
                content,
                structured_content: facts,
                is_error: *is_error,
            };
            Answer::line(id, told)
        }
        Said::Question(question) => {
            let asked = CallToolResponse::from((**question).clone());
            Answer::line(id, ServerResult::from(asked))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_written_as_the_library_writes_it() {
        let facts =
            json!({"status": "SUCCESS", "return_code": 0, "still_running": [], "signal": null});
        let Value::Object(facts) = facts else {
            unreachable!("it is an object");
        };
        let result = ToolResult {
            text: "a \"quoted\" word,\na line and é\u{1}".into(),
            facts,
            is_error: false,
        };
        for id in [RequestId::Number(7), RequestId::String("sieben".into())] {
            for modern in [false, true] {
                let said = Said::Result(result.clone());
                let own = answer_line(&id, modern, &said).unwrap();
                let mut theirs =
                    ServerResult::from(CallToolResponse::from(Said::Result(result.clone())));
                if !modern {
                    theirs.strip_result_type_for_legacy_peer();
                }
                let message: TxJsonRpcMessage<RoleServer> =
                    JsonRpcMessage::response(theirs, id.clone());
                let theirs = line_of(&message).unwrap();
                assert_eq!(String::from_utf8(own), String::from_utf8(theirs));
            }
        }
    }
}
