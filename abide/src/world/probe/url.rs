//! Whether a web server answers as wanted.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use regex::Regex;

use super::condition::Url;
use super::{Slots, Tools, port};
use crate::world::clock::pause;

/// So much of a body is looked at.
const BODY: usize = 1 << 20;
/// An answer that is not all there by then has failed.
const TRY: Duration = Duration::from_secs(10);

pub(super) async fn until_answers(wanted: &Url, tools: &Tools, slots: &Slots) -> String {
    let body = wanted
        .body
        .as_deref()
        .and_then(|body| Regex::new(body).ok());
    let mut steps = tools.pace.begin(port::is_near(Some(&wanted.host)));
    loop {
        let looked = tokio::select! {
            looked = look(wanted, body.as_ref()) => looked,
            () = pause(TRY) => Err("no answer within 10s".into()),
        };
        match looked {
            Ok(seen) => {
                let seen = format!("{} answered {seen}", wanted.url);
                slots.say(seen.as_str());
                return seen;
            }
            Err(why) => slots.say(format!("{}: {why}", wanted.url)),
        }
        steps.pause().await;
    }
}

/// One look: what was seen, or why that is not enough.
async fn look(wanted: &Url, body: Option<&Regex>) -> Result<String, String> {
    let stream = port::connect(&wanted.host, wanted.port).await;
    let stream = TokioIo::new(stream.map_err(|e| port::reason(&e))?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(|e| e.to_string())?;
    let connection = tokio::spawn(connection);
    let request = Request::get(&wanted.path)
        .header(header::HOST, format!("{}:{}", wanted.host, wanted.port))
        .header(
            header::USER_AGENT,
            concat!("abide/", env!("CARGO_PKG_VERSION")),
        )
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let answered = sender.send_request(request).await;
    let verdict = match answered {
        Err(e) => Err(e.to_string()),
        Ok(answer) => {
            let status = answer.status();
            let right = wanted
                .status
                .map_or(status.is_success(), |want| want == status.as_u16());
            match body {
                _ if !right => Err(format!("answered {status}")),
                None => Ok(status.to_string()),
                Some(body) => match Limited::new(answer.into_body(), BODY).collect().await {
                    Err(e) => Err(format!("its body cannot be read: {e}")),
                    Ok(all) => {
                        let text = String::from_utf8_lossy(&all.to_bytes()).into_owned();
                        match body.find(&text) {
                            Some(found) => Ok(format!("{status} with {:?}", found.as_str())),
                            None => Err(format!("answered {status}, without a match in its body")),
                        }
                    }
                },
            }
        }
    };
    connection.abort();
    verdict
}
