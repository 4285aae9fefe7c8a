//! Whether a web server answers as wanted.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, header};

use super::condition::Url;
use super::pattern::pattern;
use super::{Slots, Tools, port};
use crate::world::clock::pause;
use crate::world::web::{Address, USER_AGENT, Web};

/// So much of a body is looked at.
const BODY: usize = 1 << 20;
/// An answer that is not all there by then has failed.
const TRY: Duration = Duration::from_secs(10);

pub(super) async fn until_answers(wanted: &Url, tools: &Tools, slots: &Slots) -> String {
    let mut steps = tools.pace.begin(port::is_near(Some(&wanted.host)));
    loop {
        match look(wanted, &tools.web).await {
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
pub(super) async fn look(wanted: &Url, web: &Web) -> Result<String, String> {
    tokio::select! {
        looked = ask(wanted, web) => looked,
        () = pause(TRY) => Err("no answer within 10s".into()),
    }
}

async fn ask(wanted: &Url, web: &Web) -> Result<String, String> {
    let address = Address {
        tls: wanted.tls,
        login: wanted.login.clone(),
        host: wanted.host.trim_matches(['[', ']']).to_owned(),
        port: wanted.port,
        path: wanted.path.clone(),
    };
    let request = Request::get(&wanted.path)
        .header(header::HOST, address.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close")
        .body(Full::<Bytes>::default())
        .map_err(|e| e.to_string())?;
    let mut answer = web.send(&address, request).await?;
    let status = answer.response.status();
    let right = wanted
        .status
        .map_or(status.is_success(), |want| want == status.as_u16());
    if !right {
        // What is not followed is told, so that it can be asked for.
        let headers = answer.response.headers();
        let elsewhere = headers
            .get(header::LOCATION)
            .and_then(|to| to.to_str().ok());
        let elsewhere = elsewhere.filter(|_| status.is_redirection());
        let elsewhere = elsewhere.map_or(String::new(), |to| format!(", which leads to {to}"));
        return Err(format!("answered {status}{elsewhere}"));
    }
    let body = wanted.body.as_deref().and_then(|text| pattern(text).ok());
    let Some(body) = body else {
        return Ok(status.to_string());
    };
    let all = Limited::new(answer.response.body_mut(), BODY)
        .collect()
        .await
        .map_err(|e| format!("its body cannot be read: {e}"))?;
    match body.find(&all.to_bytes()) {
        Some(found) => {
            let words = String::from_utf8_lossy(found.as_bytes());
            Ok(format!("{status} with {words:?}"))
        }
        None => Err(format!("answered {status}, without a match in its body")),
    }
}
