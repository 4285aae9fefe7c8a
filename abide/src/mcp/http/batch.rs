//! Batches over HTTP. The library knows nothing of them: each message is passed to it in a request of its
//! own, in order, and all that comes back goes out on one stream, which ends when all is answered.
//!
//! Such a stream cannot be taken up again after a break: an event's id names a place in the answer to one
//! message only, so the ids are left out.

use std::collections::HashSet;
use std::convert::Infallible;

use axum::body::{Body, to_bytes};
use axum::http::{StatusCode, header, request::Parts};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, future};
use memchr::memmem;

use super::{EVENTS, Http, ONE_AT_A_TIME, refused};
use crate::mcp::batch;
use crate::mcp::decode::{self, Unread};
use crate::mcp::scan::{Kind, Outline};
use crate::mcp::wire::{TWICE, refusal};

/// The longest refusal of the library's that is told.
const REFUSAL_LIMIT: usize = 64 << 10;
/// Where an event ends.
const END: &[u8] = b"\n\n";

type Id = Option<Vec<u8>>;
type Events = BoxStream<'static, Bytes>;

/// Answers the batch in `body`.
pub async fn answer(http: Http, head: Parts, body: &[u8]) -> Response {
    match http.takes_batches(&head.headers) {
        Some(true) => {}
        Some(false) => return refused(StatusCode::BAD_REQUEST, None, -32600, ONE_AT_A_TIME),
        None => return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response(),
    }
    let Some(messages) = batch::messages(body) else {
        let sentence = "the batch is not JSON";
        return refused(StatusCode::BAD_REQUEST, None, -32700, sentence);
    };
    if let Some(sentence) = batch::objection(&messages) {
        return refused(StatusCode::BAD_REQUEST, None, -32600, &sentence);
    }
    let batch = Batch::of(messages, |outline| http.objection(&head.headers, outline));
    batch.answer(http, head).await
}

/// What is to become of the messages of a batch.
struct Batch {
    /// These are passed on, under their ids.
    passed: Vec<(Id, Bytes)>,
    /// So are these answered that are not.
    refused: Vec<Bytes>,
    /// Some of what is passed on asks for an answer.
    asks: bool,
}

impl Batch {
    /// `in_use` objects to requests under an id that another has.
    fn of(messages: Vec<Vec<u8>>, in_use: impl Fn(&Outline) -> Option<(i32, String)>) -> Self {
        let mut batch = Batch {
            passed: Vec::new(),
            refused: Vec::new(),
            asks: false,
        };
        let mut ids = HashSet::new();
        for line in messages {
            let outline = Outline::of(&line);
            let asks = outline.kind() == Kind::Request;
            let objection = objection(&line, &outline);
            let objection = objection.or_else(|| in_use(&outline)).or_else(|| {
                let again = asks && !ids.insert(outline.id.clone());
                again.then(|| (-32600, TWICE.to_owned()))
            });
            match objection {
                Some((code, sentence)) => {
                    let line = refusal(outline.id.as_deref(), code, &sentence);
                    batch.refused.push(event(&line));
                }
                None => {
                    batch.asks |= asks;
                    batch.passed.push((outline.id, line.into()));
                }
            }
        }
        batch
    }

    /// What HTTP itself refuses of the first message, as for what its headers say, it refuses of all.
    async fn answer(self, http: Http, head: Parts) -> Response {
        let tells = self.asks || !self.refused.is_empty();
        let mut passed = self.passed.into_iter();
        let mut first = None;
        if let Some((id, line)) = passed.next() {
            let answer = http.clone().pass(head.clone(), line).await;
            if !answer.status().is_success() {
                return answer;
            }
            first = Some(events(id, answer).await);
        }
        let answers = together(first, answers(http, head, passed));
        let all = stream::iter(self.refused).chain(answers);
        if !tells {
            all.for_each(|_| future::ready(())).await;
            return StatusCode::ACCEPTED.into_response();
        }
        let head = [
            (header::CONTENT_TYPE, EVENTS),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        let all = all.map(Ok::<_, Infallible>);
        (head, Body::from_stream(all)).into_response()
    }
}

/// The answers to these messages, each of which is passed on when the one before was.
fn answers(
    http: Http,
    head: Parts,
    passed: impl Iterator<Item = (Id, Bytes)> + Send + 'static,
) -> BoxStream<'static, Events> {
    let answer = move |(id, line)| {
        let (http, head) = (http.clone(), head.clone());
        async move { events(id, http.pass(head, line).await).await }.boxed()
    };
    stream::iter(passed).then(answer).boxed()
}

/// What all of these say, as it comes.
fn together(first: Option<Events>, rest: BoxStream<'static, Events>) -> Events {
    let all = stream::iter(first).chain(rest);
    all.flatten_unordered(None).boxed()
}

/// Why a message is not passed on.
fn objection(line: &[u8], outline: &Outline) -> Option<(i32, String)> {
    if outline.kind() == Kind::Unknown {
        return Some((-32600, "not a message of MCP".to_owned()));
    }
    match decode::message(line, outline) {
        Ok(_) => None,
        Err(Unread::Twice(sentence)) => Some((-32602, sentence)),
        Err(Unread::Fault(fault)) => Some((-32600, format!("not a message of MCP: {fault}"))),
    }
}

/// What the library answers to the message under this id.
async fn events(id: Id, answer: Response) -> Events {
    let kind = answer.headers().get(header::CONTENT_TYPE);
    let is = |wanted: &str| kind.is_some_and(|kind| kind.as_bytes().starts_with(wanted.as_bytes()));
    if is(EVENTS) {
        return nameless(answer.into_body());
    }
    if answer.status() == StatusCode::ACCEPTED {
        return stream::empty().boxed();
    }
    let is_message = is("application/json");
    let said = to_bytes(answer.into_body(), REFUSAL_LIMIT).await;
    let said = said.unwrap_or_default();
    let event = match is_message {
        true => event(&said),
        false => {
            let sentence = String::from_utf8_lossy(&said);
            event(&refusal(id.as_deref(), -32600, &sentence))
        }
    };
    stream::iter([event]).boxed()
}

/// A message as an event.
fn event(line: &[u8]) -> Bytes {
    [b"data: ", line.trim_ascii(), END].concat().into()
}

/// The events of a body, without their ids.
fn nameless(body: Body) -> Events {
    let cut = |unfinished: &mut BytesMut, part: Result<Bytes, axum::Error>| {
        let part = part.ok();
        future::ready(part.map(|part| {
            unfinished.extend_from_slice(&part);
            without_ids(unfinished)
        }))
    };
    let whole = body.into_data_stream().scan(BytesMut::new(), cut);
    let said = whole.filter(|events| future::ready(!events.is_empty()));
    said.boxed()
}

/// Takes the whole events out. One that had nothing but an id is left out.
fn without_ids(unfinished: &mut BytesMut) -> Bytes {
    let mut whole = Vec::new();
    while let Some(at) = memmem::find(unfinished, END) {
        let event = unfinished.split_to(at + END.len());
        let told = |line: &&[u8]| !line.starts_with(b"id:") && !line.starts_with(b"retry:");
        let lines = event[..at].split(|byte| *byte == b'\n').filter(told);
        let lines: Vec<&[u8]> = lines.collect();
        let empty = |line: &&[u8]| line.trim_ascii() == b"data:";
        if !lines.iter().all(empty) {
            whole.extend_from_slice(&lines.join(&b'\n'));
            whole.extend_from_slice(END);
        }
    }
    whole.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_lose_their_ids_and_nothing_else() {
        let mut unfinished = BytesMut::from(
            &b"data: \nid: 0/1\nretry: 3000\n\ndata: {\"a\":1}\nid: 1/1\n\n:\n\nid: 2/1\ndata: {"[..],
        );
        let whole = without_ids(&mut unfinished);
        assert_eq!(whole, &b"data: {\"a\":1}\n\n:\n\n"[..]);
        assert_eq!(without_ids(&mut unfinished), "");
        unfinished.extend_from_slice(b"}\n\n");
        assert_eq!(without_ids(&mut unfinished), &b"data: {}\n\n"[..]);
    }
}
