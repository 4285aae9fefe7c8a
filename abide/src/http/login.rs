//! Login of a browser: a link with a single-use code, which the browser exchanges for a cookie.

use abide_api::Link;
use axum::RequestExt;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;

use super::access_check::cookie_name;
use super::body::{JsonBody, JsonResponse};
use super::problem::Problem;
use super::requester::{self, Requester};
use super::state::{State, Tcp};
use crate::http::login_store::{CODE_LIFETIME, LOGIN_LIFETIME, LoginError};
use abide_engine::clock::{Clock, SystemClock};

/// Creates a link that logs one browser in. Only a person gets one.
pub async fn create_link(
    Shared(state): Shared<State>,
    requester: Requester,
) -> Result<JsonResponse<Link>, Problem> {
    if !requester.may_be_a_person() {
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
    requester.check_again().await?;
    let code = state.logins.create_code(SystemClock.mono());
    Ok(JsonResponse(Link {
        url: format!("http://{address}/#login={code}"),
        expires_in: CODE_LIFETIME.0 / 1_000,
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
    requester::check_outside_sessions(&parts).await?;
    let Code { code } = request.extract::<JsonBody, _>().await?.into()?;
    requester::check_outside_sessions(&parts).await?;
    let secret = state
        .logins
        .exchange(&code, SystemClock.now())
        .map_err(|why| match why {
            LoginError::WrongCode => Problem::forbidden(why.to_string()),
            LoginError::TooMany => Problem::too_many(why.to_string()),
            LoginError::NotStored(_) => Problem::fault(why.to_string()),
        })?;
    Ok(with_cookie(
        address.port(),
        &secret,
        LOGIN_LIFETIME.0 / 1_000,
    ))
}

/// Ends the login that the request shows.
pub async fn logout(
    Shared(state): Shared<State>,
    requester: Requester,
) -> Result<Response, Problem> {
    let (Some(login), Tcp::At(address)) = (requester.login(), &state.daemon.tcp) else {
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
