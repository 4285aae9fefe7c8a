//! Probe for the answer of a web server.

use std::pin::{Pin, pin};
use std::time::Duration;

use abide_output::mask::Mask;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, header};
use regex::bytes::Regex;

use super::condition::Url;
use super::pattern::{OVERLAP, masked};
use super::reach::{Attempt, NOT_OPENED, until_reached};
use super::{Bounds, Impossible, Observations, OutOfBounds, ProbeContext, port};
use crate::clock::pause;
use crate::web::{Address, Answer, USER_AGENT, Web, WebFault};

/// Bytes of a body that are searched.
const MAX_BODY: usize = 1 << 20;
/// Time limit of one request with its answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Waits until the server gives the requested answer, or no session is left that could serve it.
pub(super) async fn until_answers(
    condition: &Url,
    context: ProbeContext<'_>,
    observations: &Observations,
) -> Result<String, Impossible> {
    let (name, every_ms) = (&condition.url, condition.every_ms);
    let attempt = || check(condition, context);
    let local = port::is_local(Some(&condition.host));
    until_reached(name, local, every_ms, context, observations, attempt).await
}

/// One attempt, if the owner of the condition may make it.
pub(super) async fn check(
    condition: &Url,
    context: ProbeContext<'_>,
) -> Result<Attempt, OutOfBounds> {
    let bounds = context.bounds().await?;
    if let Some(bounds) = &bounds
        && !bounds.may_reach(Some(&condition.host), condition.port)?
    {
        return Ok(Attempt::NoAnswer(NOT_OPENED.to_owned()));
    }
    let answered = answer(condition, &context.services.web, bounds.as_ref());
    Ok(answered
        .await
        .unwrap_or_else(|fault| Attempt::NoAnswer(fault.to_string())))
}

/// Sends the request, and compares the answer with the condition.
async fn answer(condition: &Url, web: &Web, bounds: Option<&Bounds>) -> Result<Attempt, WebFault> {
    let mut late = pin!(pause(ANSWER_LIMIT));
    let mut answer = tokio::select! {
        answer = request(condition, web, bounds) => answer?,
        () = &mut late => {
            let limit = ANSWER_LIMIT.as_secs();
            return Ok(Attempt::NoAnswer(format!("no answer within {limit}s")));
        }
    };
    let status = answer.response.status();
    let right = condition
        .status
        .map_or(status.is_success(), |want| want == status.as_u16());
    if !right {
        // Redirects are not followed, so their target is named.
        let headers = answer.response.headers();
        let elsewhere = headers.get(header::LOCATION);
        let elsewhere = elsewhere.and_then(|to| to.to_str().ok());
        let elsewhere = elsewhere.filter(|_| status.is_redirection());
        let elsewhere = elsewhere.map_or(String::new(), |to| format!(", which leads to {to}"));
        return Ok(Attempt::Mismatch(format!("answered {status}{elsewhere}")));
    }
    let Some(body) = &condition.body else {
        return Ok(Attempt::Holds(format!("answered {status}")));
    };
    Ok(match find(answer.response.body_mut(), body, late).await {
        Ok(Search::Found(words)) => Attempt::Holds(format!("answered {status} with {words:?}")),
        Ok(Search::NoMatch { bytes }) => {
            let part = if bytes < MAX_BODY { "" } else { "the first " };
            Attempt::Mismatch(format!(
                "answered {status}, without a match in {part}{bytes} bytes of its body"
            ))
        }
        Err(fault) => Attempt::Mismatch(format!("its body cannot be read: {fault}")),
    })
}

async fn request(condition: &Url, web: &Web, bounds: Option<&Bounds>) -> Result<Answer, WebFault> {
    let address = Address {
        tls: condition.tls,
        login: condition.login.clone(),
        host: condition.host.trim_matches(['[', ']']).to_owned(),
        port: condition.port,
        path: condition.path.clone(),
    };
    let request = Request::get(&condition.path)
        .header(header::HOST, address.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close")
        .body(Full::<Bytes>::default())
        .map_err(|e| WebFault::Request(e.to_string()))?;
    let permits = |ip| bounds.is_none_or(|bounds| bounds.permits(&address.host, address.port, ip));
    web.send(&address, request, &permits).await
}

/// Result of a search in a body.
enum Search {
    /// Text of the first match, with tokens masked.
    Found(String),
    /// This many bytes do not match.
    NoMatch { bytes: usize },
}

/// Searches a body for the first match. A body may be endless, so it is searched while it arrives.
async fn find(
    body: &mut Incoming,
    pattern: &Regex,
    mut late: Pin<&mut impl Future<Output = ()>>,
) -> Result<Search, hyper::Error> {
    let mut text = Vec::new();
    while text.len() < MAX_BODY {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = &mut late => break,
        };
        let Some(frame) = frame else { break };
        let frame = frame?;
        let from = text.len().saturating_sub(OVERLAP);
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
        // A match at the end of the text may grow with the next frame.
        let found = pattern.find_at(&text, from);
        if let Some(found) = found.filter(|found| found.end() < text.len()) {
            let words = masked(&text, found.range(), &Mask::default());
            return Ok(Search::Found(words));
        }
    }
    Ok(match pattern.find(&text) {
        Some(found) => Search::Found(masked(&text, found.range(), &Mask::default())),
        None => Search::NoMatch { bytes: text.len() },
    })
}
