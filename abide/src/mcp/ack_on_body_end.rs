//! Acknowledges a tool result that goes out over HTTP when its body has been read to the end. A result that was
//! not read to the end is reported again.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use axum::body::Body;
use axum::http::header;
use axum::response::Response;
use futures_util::{StreamExt, stream};

use crate::tools::Receipt;

/// Holds the receipt of one call until its response body ends.
#[derive(Default)]
pub struct AckOnBodyEnd(Mutex<Option<Receipt>>);

impl AckOnBodyEnd {
    /// Puts the receipt of the call.
    pub fn put(&self, receipt: Receipt) {
        *self.0.lock().expect("no holder panics") = Some(receipt);
    }

    fn acknowledge(&self) {
        let receipt = self.0.lock().expect("no holder panics").take();
        receipt.into_iter().for_each(Receipt::delivered);
    }

    /// Returns the response, whose body acknowledges at its end.
    pub fn attach(self: Arc<Self>, response: Response) -> Response {
        let kind = response.headers().get(header::CONTENT_TYPE);
        if kind.is_none_or(|kind| kind != "text/event-stream") {
            return response;
        }
        response.map(|body| {
            let end = stream::poll_fn(move |_| {
                self.acknowledge();
                Poll::Ready(None)
            });
            Body::from_stream(body.into_data_stream().chain(end))
        })
    }
}
