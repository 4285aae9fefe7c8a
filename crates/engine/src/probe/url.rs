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
use super::{Bounds, Impossible, Observations, OutOfBounds, ProbeContext, port, port_candidates};
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
    observations.set_if_empty(|| format!("{}: no answer yet", condition.url));
    let local = port::is_local(Some(&condition.host));
    let mut backoff = context.services.active.begin(local, condition.every_ms);
    let mut candidates = pin!(port_candidates::all_failed(port_candidates::follow(
        context, local
    )));
    let mut last = None;
    loop {
        let answered = match check(condition, context).await {
            Ok(seen) => {
                let seen = format!("{} answered {seen}", condition.url);
                observations.set(seen.as_str());
                return Ok(seen);
            }
            Err(Mismatch::OutOfBounds(why)) => return Err(why.into()),
            Err(mismatch) => {
                let why = format!("{}: {}", condition.url, mismatch.why());
                observations.set(why.as_str());
                // This attempt was the last one, unless something other than the agent's sessions answers.
                if let (Some(last), Mismatch::NoAnswer(_)) = (&last, &mismatch) {
                    return Err(port_candidates::impossible(&why, last));
                }
                matches!(mismatch, Mismatch::Other(_))
            }
        };
        tokio::select! {
            ended = &mut candidates, if last.is_none() => last = Some(ended),
            () = backoff.pause(answered) => {}
        }
    }
}

/// Reason why an attempt did not satisfy the condition.
pub(super) enum Mismatch {
    /// Nothing answers.
    NoAnswer(String),
    /// The answer is another one.
    Other(String),
    /// The owner of the condition must not look there.
    OutOfBounds(OutOfBounds),
}

impl Mismatch {
    fn why(&self) -> &str {
        match self {
            Mismatch::NoAnswer(why) | Mismatch::Other(why) => why,
            Mismatch::OutOfBounds(why) => &why.0,
        }
    }
}

/// One attempt: a description of the answer, or why it does not satisfy the condition.
pub(super) async fn check(condition: &Url, context: ProbeContext<'_>) -> Result<String, Mismatch> {
    let bounds = context.bounds().await.map_err(Mismatch::OutOfBounds)?;
    if let Some(bounds) = &bounds {
        let (host, port) = (&condition.host, condition.port);
        (bounds.check_host(Some(host), port)).map_err(Mismatch::OutOfBounds)?;
        if port::is_local(Some(host)) && !bounds.reaches_local(port) {
            return Err(Mismatch::NoAnswer(port::not_opened().to_string()));
        }
    }
    let mut late = pin!(pause(ANSWER_LIMIT));
    let mut answer = tokio::select! {
        answer = request(condition, &context.services.web, bounds.as_ref()) => answer.map_err(|fault| Mismatch::NoAnswer(fault.to_string()))?,
        () = &mut late => return Err(Mismatch::NoAnswer("no answer within 10s".into())),
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
        return Err(Mismatch::Other(format!("answered {status}{elsewhere}")));
    }
    let Some(body) = &condition.body else {
        return Ok(status.to_string());
    };
    match find(answer.response.body_mut(), body, late).await {
        Ok(Search::Found(words)) => Ok(format!("{status} with {words:?}")),
        Ok(Search::NoMatch { bytes }) => {
            let part = if bytes < MAX_BODY { "" } else { "the first " };
            Err(Mismatch::Other(format!(
                "answered {status}, without a match in {part}{bytes} bytes of its body"
            )))
        }
        Err(fault) => Err(Mismatch::Other(format!("its body cannot be read: {fault}"))),
    }
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
