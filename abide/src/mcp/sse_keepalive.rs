//! SSE comments on the response to a call that takes long. The library sends the response head with the first
//! message; clients that limit the time to the first byte would give up a silent call.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, to_bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};

use abide_engine::clock::pause;

/// A response that is ready by then is sent unchanged, with its own status.
const PATIENCE: Duration = Duration::from_millis(250);
/// Interval of comments.
const ALIVE: Duration = Duration::from_secs(15);
/// SSE comment, which readers skip.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");
/// Content type of SSE.
pub const EVENTS: &str = "text/event-stream";
/// Longest response that is not a stream, in bytes.
const ANSWER_LIMIT: usize = 64 << 20;

/// Returns the response, or an event stream that begins now and will contain it. Dropping the stream drops the
/// response's future.
pub async fn with_keepalive(answer: impl Future<Output = Response> + Send + 'static) -> Response {
    let mut answer = answer.boxed();
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        () = pause(PATIENCE) => {}
    }
    let parts = stream::unfold(Rest::Opening(answer), |rest| async {
        let (part, rest) = rest.next().await?;
        Some((Ok::<_, Infallible>(part), rest))
    });
    let head = [
        (header::CONTENT_TYPE, EVENTS),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (head, Body::from_stream(parts)).into_response()
}

/// State of the event stream.
enum Rest {
    Opening(BoxFuture<'static, Response>),
    Waiting(BoxFuture<'static, Response>),
    Passing(BodyDataStream),
    Over,
}

impl Rest {
    async fn next(self) -> Option<(Bytes, Rest)> {
        match self {
            Rest::Opening(answer) => Some((COMMENT, Rest::Waiting(answer))),
            Rest::Waiting(mut answer) => tokio::select! {
                biased;
                answer = &mut answer => begin(answer).await,
                () = pause(ALIVE) => Some((COMMENT, Rest::Waiting(answer))),
            },
            Rest::Passing(parts) => pass(parts).await,
            Rest::Over => None,
        }
    }
}

/// Continues with the response. One that is not a stream becomes a single event.
async fn begin(answer: Response) -> Option<(Bytes, Rest)> {
    let kind = answer.headers().get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENTS.as_bytes()));
    let body = answer.into_body();
    if is_stream {
        return pass(body.into_data_stream()).await;
    }
    let whole = to_bytes(body, ANSWER_LIMIT).await.ok()?;
    let event = [&b"data: "[..], &whole, b"\n\n"].concat();
    Some((event.into(), Rest::Over))
}

async fn pass(mut parts: BodyDataStream) -> Option<(Bytes, Rest)> {
    let part = parts.next().await?.ok()?;
    Some((part, Rest::Passing(parts)))
}
