//! Sends messages to web servers, one request each, signed according to Standard Webhooks. The id of the message is
//! the id of the delivery, so that a receiver can detect repetitions.

use std::time::Duration;

use abide_core::Millis;
use abide_core::message::About;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::Full;
use hyper::{HeaderMap, Request, StatusCode, header};
use serde_json::{Value, json};
use sha2::Sha256;

use super::attempt::WakeFault;
use crate::Handle;
use crate::clock::pause;
use crate::config::Webhook;
use crate::dns::EVERY_ADDRESS;
use crate::store::MessageRow;
use crate::text::message_text;
use crate::timestamp;
use crate::web::{USER_AGENT, Web};

const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Maximum of bytes of text, so that a payload stays below what receivers accept.
const MAX_TEXT: usize = 12_000;

pub(super) async fn send(
    handle: &Handle,
    web: &Web,
    hook: &Webhook,
    number: u64,
    at_ms: u64,
) -> Result<(), WakeFault> {
    let row = handle.store_reader().message(number).await;
    let row = row.ok().flatten();
    let row = row.ok_or_else(|| WakeFault::Retry("the message no longer exists".into()))?;
    let secret = hook
        .secret
        .bytes()
        .map_err(|fault| WakeFault::Retry(fault.to_string()))?;
    let body = payload(handle, &row).await.to_string();
    let (id, time) = (row.id.to_string(), (at_ms / 1_000).to_string());
    let signature = signature(&secret, &id, &time, &body);
    let address = &hook.address;
    let request = Request::post(&address.path)
        .header(header::HOST, address.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .header("webhook-id", id)
        .header("webhook-timestamp", time)
        .header("webhook-signature", format!("v1,{signature}"))
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| WakeFault::Retry(e.to_string()))?;
    let answer = tokio::select! {
        answer = web.send(address, request, EVERY_ADDRESS) => answer.map_err(|fault| WakeFault::Retry(fault.to_string()))?,
        () = pause(ANSWER_LIMIT) => {
            return Err(WakeFault::Retry(format!("no answer within {}s", ANSWER_LIMIT.as_secs())));
        }
    };
    check_status(answer.response.status(), answer.response.headers(), at_ms)
}

async fn payload(handle: &Handle, row: &MessageRow) -> Value {
    let mut text = message_text(handle, row.about).await;
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str(" …");
    }
    let mut data = json!({
        "message_id": row.id.to_string(),
        "agent": row.agent,
        "text": text,
        "created_at": row.made.0,
    });
    let kind = match row.about {
        About::Timer(timer) => {
            data["timer_id"] = json!(timer.to_string());
            "timer.completed"
        }
        About::Session(session) => {
            data["session_id"] = json!(session.to_string());
            "session.ended"
        }
        About::Question(question) => {
            data["question_id"] = json!(question.to_string());
            "question.closed"
        }
    };
    json!({"type": kind, "timestamp": timestamp::rfc3339(row.made.0), "data": data})
}

/// Signature of a request according to Standard Webhooks.
fn signature(secret: &[u8], id: &str, time: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length will do");
    for part in [id, ".", time, ".", body] {
        mac.update(part.as_bytes());
    }
    BASE64_STANDARD.encode(mac.finalize().into_bytes())
}

/// Interprets the status of an answer.
fn check_status(status: StatusCode, headers: &HeaderMap, now_ms: u64) -> Result<(), WakeFault> {
    match status {
        good if good.is_success() => Ok(()),
        StatusCode::GONE => Err(WakeFault::Disabled(
            "it answered 410 Gone; nothing more is sent until its settings change or a message is sent again by hand"
                .into(),
        )),
        elsewhere if elsewhere.is_redirection() => Err(WakeFault::Retry(format!(
            "it answered {elsewhere}; redirects are not followed, so configure the final URL"
        ))),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let why = format!("it answered {status}");
            Err(match retry_after(headers, now_ms) {
                Some(pause) => WakeFault::RetryAfter(why, pause),
                None => WakeFault::Retry(why),
            })
        }
        other => Err(WakeFault::Retry(format!("it answered {other}"))),
    }
}

/// Value of `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Millis> {
    let said = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    match said.parse() {
        Ok(seconds) => Some(Millis::from_secs(seconds)),
        Err(_) => Some(Millis(timestamp::http_date(said)?.saturating_sub(now_ms))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_equals_reference_signature() {
        let secret = BASE64_STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signed = signature(
            &secret.unwrap(),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn status_gives_success_retry_retry_after_or_disabled() {
        let mut headers = HeaderMap::new();
        let of = |status: u16, headers: &HeaderMap| {
            check_status(
                StatusCode::from_u16(status).unwrap(),
                headers,
                784_111_776_000,
            )
        };
        assert_eq!(of(204, &headers), Ok(()));
        for status in [302, 400, 404, 429, 500, 503] {
            let fault = of(status, &headers).unwrap_err();
            assert!(matches!(fault, WakeFault::Retry(_)), "{status}: {fault:?}");
        }
        assert!(matches!(of(410, &headers), Err(WakeFault::Disabled(_))));
        for (said, pause) in [("120", 120), ("Sun, 06 Nov 1994 08:49:37 GMT", 1)] {
            headers.insert(header::RETRY_AFTER, said.parse().unwrap());
            for status in [429, 503] {
                let (_, request) = of(status, &headers).unwrap_err().into_parts();
                assert_eq!(request, Some(Millis::from_secs(pause)), "{said}");
            }
            assert_eq!(of(500, &headers).unwrap_err().into_parts().1, None);
        }
    }
}
