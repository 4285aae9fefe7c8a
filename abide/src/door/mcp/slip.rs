//! The receipt of an answer that goes out over HTTP. It is signed when the answer's stream has been
//! taken to its end; what was told in an answer that nobody took is told again.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use axum::body::Body;
use axum::http::header;
use axum::response::Response;
use futures_util::{StreamExt, stream};

use crate::door::tools::Receipt;

/// Where a call leaves its receipt.
#[derive(Default)]
pub struct Slip(Mutex<Option<Receipt>>);

impl Slip {
    /// Leaves it.
    pub fn leave(&self, receipt: Receipt) {
        *self.0.lock().expect("no holder panics") = Some(receipt);
    }

    fn sign(&self) {
        let receipt = self.0.lock().expect("no holder panics").take();
        receipt.into_iter().for_each(Receipt::delivered);
    }

    /// Has the slip signed at the end of this answer.
    pub fn signed_with(self: Arc<Self>, answer: Response) -> Response {
        let kind = answer.headers().get(header::CONTENT_TYPE);
        if kind.is_none_or(|kind| kind != "text/event-stream") {
            return answer;
        }
        answer.map(|body| {
            let end = stream::poll_fn(move |_| {
                self.sign();
                Poll::Ready(None)
            });
            Body::from_stream(body.into_data_stream().chain(end))
        })
    }
}
