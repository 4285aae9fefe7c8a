//! Login of a browser: a link with a single-use code, which the browser exchanges for a cookie.

use abide_api::Link;
use axum::RequestExt;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;

use super::body::{Answer, JsonBody};
use super::problem::Problem;
use super::requester::{self, Who};
use super::{State, Tcp};
use crate::http::login_store::{CODE_LIFE, LOGIN_LIFE, NoLogin};
use abide_engine::clock::{Clock, SystemClock};

/// Path at which a code is exchanged. It needs no other credential.
pub const PATH: &str = "/v1/login";

/// Cookie name with the port, because browsers share cookies between ports of a host.
pub fn cookie_name(port: u16) -> String {
    format!("abide-{port}")
}

/// Creates a link that logs one browser in. Only a person gets one.
pub async fn offer(Shared(state): Shared<State>, who: Who) -> Result<Answer<Link>, Problem> {
    if !who.may_be_a_person() {
        return Err(Problem::forbidden(
            "only a person can open the page: run `abide open` outside of a session",
        ));
    }
    let address = match &state.daemon.tcp {
        Tcp::At(address) => *address,
        Tcp::Off => {
            return Err(Problem::conflict(
                "the page is not served: `http` is \"off\" in the configuration",
            ));
        }
        Tcp::Failed(why) => return Err(Problem::conflict(why.clone())),
    };
    who.look_again().await?;
    let code = state.logins.code(SystemClock.mono());
    Ok(Answer(Link {
        url: format!("http://{address}/#login={code}"),
        expires_in: CODE_LIFE.0 / 1_000,
    }))
}

/// Body of a login request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Code {
    code: String,
}

/// Exchanges a code for a cookie. The peer is checked too, because a command inside a session may have
/// seen the code; the second check covers the time in which the body was read.
pub async fn login(
    Shared(state): Shared<State>,
    mut request: Request,
) -> Result<Response, Problem> {
    let Tcp::At(address) = &state.daemon.tcp else {
        return Err(Problem::conflict("the page is not served"));
    };
    let parts = request
        .extract_parts::<axum::http::request::Parts>()
        .await
        .map_err(|_| Problem::fault("cannot read the request"))?;
    requester::be_outside(&parts).await?;
    let Code { code } = request.extract::<JsonBody, _>().await?.into()?;
    requester::be_outside(&parts).await?;
    let secret = state
        .logins
        .exchange(&code, SystemClock.now())
        .map_err(|why| match why {
            NoLogin::WrongCode => Problem::forbidden(why.to_string()),
            NoLogin::TooMany => Problem::too_many(why.to_string()),
            NoLogin::NotKept(_) => Problem::fault(why.to_string()),
        })?;
    Ok(with_cookie(address.port(), &secret, LOGIN_LIFE.0 / 1_000))
}

/// Ends the login that the request shows.
pub async fn logout(Shared(state): Shared<State>, who: Who) -> Result<Response, Problem> {
    let (Some(login), Tcp::At(address)) = (who.login(), &state.daemon.tcp) else {
        return Err(Problem::conflict("this request has no login to end"));
    };
    let ended = state.logins.end(login);
    ended.map_err(|fault| Problem::fault(format!("cannot end the login: {fault}")))?;
    Ok(with_cookie(address.port(), "", 0))
}

fn with_cookie(port: u16, value: &str, seconds: u64) -> Response {
    let name = cookie_name(port);
    let cookie = format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}");
    let mut headers = HeaderMap::new();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        headers.insert(header::SET_COOKIE, cookie);
    }
    (StatusCode::NO_CONTENT, headers).into_response()
}
