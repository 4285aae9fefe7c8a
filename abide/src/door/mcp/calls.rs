//! The calls of one connection that are not answered.
//!
//! The library knows of few of them: to the call of a tool it has nothing to say once it knows the client,
//! and its way there and back takes longer than many a call. So they are made here, and what they bring
//! goes straight to the client.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rmcp::model::{
    CallToolRequest, CallToolResponse, JsonRpcMessage, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{RequestContext, TxJsonRpcMessage};
use rmcp::{ErrorData, RoleServer};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, ReusableBoxFuture};

use super::call::{Answered, Said};
use super::out::{Out, Weight};
use super::server::{Server, is_modern};
use super::wire::{Note, line_of};
use crate::door::tools::{LastLook, Late, Receipt, ToolResult};
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

    /// A call that is made here has come to its end. `None`: it was cancelled, and its id may be another's by
    /// now.
    fn finish(&self, id: &RequestId, note: &Arc<Note>) -> Option<Call> {
        let mut all = self.all();
        let own = |call: &Call| std::ptr::eq(call.note.as_ptr(), Arc::as_ptr(note));
        all.get(id).filter(|call| own(call))?;
        all.remove(id)
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
        if let Some(call) = back.calls.finish(&id, &note) {
            back.answer(&id, modern, answered, call.weight(), &note.lost);
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
            Ok(answered) => answer_line(id, modern, answered),
            Err(error) => {
                let error: TxJsonRpcMessage<RoleServer> =
                    JsonRpcMessage::error(error.clone(), Some(id.clone()));
                line_of(&error)
            }
        };
        // What the answer was made of is let go of when it has left.
        match line.and_then(|line| self.out.push(line, weight)) {
            Ok(()) => {
                if let Ok(Answered {
                    receipt,
                    last,
                    held,
                    turn,
                    ..
                }) = answered
                {
                    receipt.into_iter().for_each(Receipt::delivered);
                    drop((last, held, turn));
                }
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
fn answer_line(id: &RequestId, modern: bool, answered: &Answered) -> io::Result<Vec<u8>> {
    match (&answered.said, &answered.last) {
        (Said::Result(result), None) => Ok(result_line(id, modern, result, &[])?.0),
        (Said::Result(result), Some(last)) => {
            let (line, gaps) = result_line(id, modern, result, &LastLook::NAMES)?;
            fill(&line, &gaps, &last.look())
        }
        (Said::Question(question), _) => {
            let asked = CallToolResponse::from((**question).clone());
            line_of(&Answer {
                jsonrpc: "2.0",
                id,
                result: ServerResult::from(asked),
            })
        }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    result: ServerResult,
}

/// A tool's result, as the library writes it, and where in it the values of the `late` facts are missing.
fn result_line(
    id: &RequestId,
    modern: bool,
    result: &ToolResult,
    late: &[&str],
) -> io::Result<(Vec<u8>, Vec<usize>)> {
    // Most lines are no longer, so that they need not be moved while they grow.
    let mut line = Vec::with_capacity(1 << 10);
    line.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    serde_json::to_writer(&mut line, id)?;
    line.extend_from_slice(br#","result":{"#);
    if modern {
        line.extend_from_slice(br#""resultType":"complete","#);
    }
    line.extend_from_slice(br#""content":[{"type":"text","text":"#);
    let text = line.len();
    serde_json::to_writer(&mut line, &result.text)?;
    let text = text..line.len();
    line.extend_from_slice(br#"}],"structuredContent":"#);
    let mut gaps = Vec::with_capacity(late.len());
    let mut late = late.iter().peekable();
    // Facts are written in the order of their names.
    let mut between = b'{';
    for (name, value) in &result.facts {
        while let Some(late) = late.next_if(|late| **late < name.as_str()) {
            begin_fact(&mut line, &mut between, late)?;
            gaps.push(line.len());
        }
        begin_fact(&mut line, &mut between, name)?;
        match value {
            // It is long, and has been written once.
            Value::String(again) if *again == result.text => line.extend_from_within(text.clone()),
            value => serde_json::to_writer(&mut line, value)?,
        }
    }
    for late in late {
        begin_fact(&mut line, &mut between, late)?;
        gaps.push(line.len());
    }
    if between == b'{' {
        line.push(b'{');
    }
    line.extend_from_slice(br#"},"isError":"#);
    serde_json::to_writer(&mut line, &result.is_error)?;
    line.extend_from_slice(b"}}\n");
    Ok((line, gaps))
}

fn begin_fact(line: &mut Vec<u8>, between: &mut u8, name: &str) -> io::Result<()> {
    line.push(std::mem::replace(between, b','));
    serde_json::to_writer(&mut *line, name)?;
    line.push(b':');
    Ok(())
}

/// The line with what was missing.
fn fill(line: &[u8], gaps: &[usize], late: &Late) -> io::Result<Vec<u8>> {
    let mut whole = Vec::with_capacity(line.len() + (1 << 7));
    let mut from = 0;
    for (gap, (_, value)) in gaps.iter().zip(late) {
        whole.extend_from_slice(&line[from..*gap]);
        serde_json::to_writer(&mut whole, value)?;
        from = *gap;
    }
    whole.extend_from_slice(&line[from..]);
    Ok(whole)
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
                let (own, _) = result_line(&id, modern, &result, &[]).unwrap();
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

    #[test]
    fn what_is_looked_at_last_is_written_in_its_place() {
        let late: Late = [
            ("cpu", json!(3)),
            ("doing", json!("waiting for \"input\"")),
            ("waiting_for_input", json!(true)),
        ];
        assert_eq!(late.each_ref().map(|(name, _)| *name), LastLook::NAMES);
        let id = RequestId::Number(7);
        let sets = [
            json!({}),
            json!({"cursor": "c7"}),
            json!({"alone": 1, "bytes": 2, "lines": 1, "text": "a\nb"}),
            json!({"zone": "z", "bytes": [], "d": null, "e": 1.5, "text": "a\nb"}),
        ];
        for set in sets {
            let Value::Object(facts) = set else {
                unreachable!("it is an object");
            };
            let mut result = ToolResult {
                text: "a\nb".into(),
                facts,
                is_error: false,
            };
            let (line, gaps) = result_line(&id, true, &result, &LastLook::NAMES).unwrap();
            let filled = fill(&line, &gaps, &late).unwrap();
            let later = late.clone().map(|(name, value)| (name.to_owned(), value));
            result.facts.extend(later);
            let (whole, _) = result_line(&id, true, &result, &[]).unwrap();
            assert_eq!(String::from_utf8(filled), String::from_utf8(whole));
        }
    }
}
