//! Access check for TCP requests, which any page in any browser can send. A request must name this
//! server in its `Host` header, must not come from a foreign page, and must show the token or the
//! cookie of a login. The check runs before all other handlers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Scheme;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body;

use super::login;
use super::page;
use super::problem::Problem;
use crate::http::login_store::{LoginId, Logins};
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::secret::constant_time_eq;

const JSON: &str = "application/json";
/// Content type of session input, which need not be JSON. A page cannot send this type cross-origin
/// without a CORS preflight either.
const BYTES: &str = "application/octet-stream";
/// Header in which a browser states the relation between the requesting page and this server.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers that are added to every response that does not set them itself.
const ALWAYS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Credentials and names that a request is checked against.
pub struct Lock {
    token: String,
    cookie: String,
    logins: Arc<Logins>,
    authorities: Vec<String>,
    origins: Vec<String>,
}

/// Credential that the caller has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// No credential, for a resource that needs none.
    Nothing,
    /// The bearer token.
    Token,
    /// The cookie of a login, with the login's id.
    Login(LoginId),
}

impl Lock {
    /// Creates the check for a server that listens on `address`.
    pub fn new(token: String, logins: Arc<Logins>, address: SocketAddr) -> Self {
        let port = address.port();
        let mut hosts = Vec::from(["127.0.0.1", "localhost", "[::1]"].map(str::to_owned));
        let own = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        if !hosts.contains(&own) {
            hosts.push(own);
        }
        let mut authorities: Vec<String> =
            hosts.iter().map(|host| format!("{host}:{port}")).collect();
        if port == 80 {
            // Clients omit the default port.
            authorities.extend(hosts);
        }
        let origins = authorities.iter().map(|name| format!("http://{name}"));
        Lock {
            token,
            cookie: login::cookie_name(port),
            logins,
            origins: origins.collect(),
            authorities,
        }
    }

    fn opens(&self, request: &Request) -> Result<Shown, Problem> {
        let headers = request.headers();
        self.is_called_here(request.uri(), headers)?;
        let origin = self.is_no_foreign_page(headers)?;
        let shown = self.is_known(request, origin)?;
        is_json(request)?;
        Ok(shown)
    }

    fn is_called_here(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let ours = |name: &str| self.authorities.iter().any(|ours| ours == name);
        let named = match only(headers, &header::HOST) {
            One::Value(host) => host.to_str().is_ok_and(ours),
            One::None | One::Several => false,
        };
        // A request may name the server a second time, in the absolute form of its target.
        let line = match (uri.scheme(), uri.authority()) {
            (None, None) => true,
            (Some(scheme), Some(name)) => *scheme == Scheme::HTTP && ours(name.as_str()),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if named && line {
            return Ok(());
        }
        Err(Problem::forbidden(
            "Host header not allowed; use 127.0.0.1:PORT",
        ))
    }

    fn is_no_foreign_page(&self, headers: &HeaderMap) -> Result<Origin, Problem> {
        let ours = |origin: &str| self.origins.iter().any(|ours| ours == origin);
        match only(headers, &header::ORIGIN) {
            One::None => Ok(Origin::Unsaid),
            One::Value(origin) if origin.to_str().is_ok_and(ours) => Ok(Origin::Ours),
            One::Value(_) | One::Several => Err(Problem::forbidden("Origin not allowed")),
        }
    }

    /// Checks the credential. A token, if present, must be correct; a cookie counts only without a token.
    fn is_known(&self, request: &Request, origin: Origin) -> Result<Shown, Problem> {
        let (method, headers) = (request.method(), request.headers());
        let path = request.uri().path();
        if headers.contains_key(header::AUTHORIZATION) {
            return self.has_the_token(headers).map(|()| Shown::Token);
        }
        let looks = *method == Method::GET || *method == Method::HEAD;
        if looks && page::is_for_everybody(path) || *method == Method::POST && path == login::PATH {
            return Ok(Shown::Nothing);
        }
        // MCP clients are agents, and agents have no login.
        if path == "/mcp" {
            return Err(Problem::unauthorized());
        }
        let login = self.login(headers).ok_or_else(Problem::unauthorized)?;
        let opens_a_channel = headers.contains_key(header::UPGRADE);
        if (!looks || opens_a_channel) && origin == Origin::Unsaid {
            return Err(Problem::forbidden(
                "a request with a login cookie needs an `Origin` header",
            ));
        }
        // A page of another server on this machine sends our cookie along, since cookies are not
        // separated by port. The page cannot forge `Sec-Fetch-Site`, which the browser sets.
        match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Ok(Shown::Login(login)),
            Some(_) => Err(Problem::forbidden("Origin not allowed")),
        }
    }

    fn login(&self, headers: &HeaderMap) -> Option<LoginId> {
        let One::Value(cookies) = only(headers, &header::COOKIE) else {
            return None;
        };
        let mut ours = cookies
            .to_str()
            .ok()?
            .split(';')
            .filter_map(|pair| pair.trim_start().split_once('='))
            .filter(|(name, _)| *name == self.cookie);
        let (_, secret) = ours.next()?;
        if ours.next().is_some() {
            return None;
        }
        self.logins.of(secret.as_bytes(), SystemClock.now().wall)
    }

    fn has_the_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let shown = match only(headers, &header::AUTHORIZATION) {
            One::Value(shown) => bearer(shown.as_bytes()),
            One::None | One::Several => None,
        };
        match shown {
            Some(shown) if constant_time_eq(shown, self.token.as_bytes()) => Ok(()),
            Some(_) | None => Err(Problem::unauthorized()),
        }
    }
}

/// Result of the `Origin` check; a foreign origin is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Unsaid,
    Ours,
}

/// Middleware in front of every route.
pub async fn locked(State(lock): State<Arc<Lock>>, mut request: Request, next: Next) -> Response {
    let mut response = match lock.opens(&request) {
        Ok(shown) => {
            request.extensions_mut().insert(shown);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Refuses a request body that is not declared as JSON (or as bytes for session input). A page can send
/// the other content types cross-origin without a CORS preflight.
fn is_json(request: &Request) -> Result<(), Problem> {
    if request.body().is_end_stream() {
        return Ok(());
    }
    let kind = match only(request.headers(), &header::CONTENT_TYPE) {
        One::Value(kind) => kind.to_str().unwrap_or_default(),
        One::None | One::Several => "",
    };
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let path = request.uri().path();
    let takes_bytes = path.starts_with("/v1/sessions/") && path.ends_with("/input");
    if essence.eq_ignore_ascii_case(JSON) || takes_bytes && essence.eq_ignore_ascii_case(BYTES) {
        return Ok(());
    }
    let given = if kind.is_empty() { "nothing" } else { kind };
    let detail = format!("the Content-Type must be {JSON}; got {given}");
    Err(Problem::not_json(detail))
}

/// Values of a header that must occur at most once.
enum One<'a> {
    None,
    Value(&'a HeaderValue),
    Several,
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> One<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => One::None,
        (Some(value), None) => One::Value(value),
        (Some(_), Some(_)) => One::Several,
    }
}

fn bearer(shown: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = shown.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(address: &str) -> Lock {
        let logins = Logins::open("/nowhere".into(), SystemClock.now().wall);
        let address = address.parse().unwrap();
        Lock::new("0123456789abcdef".into(), Arc::new(logins), address)
    }

    #[test]
    fn the_names_are_those_of_this_machine() {
        assert_eq!(
            lock("127.0.0.1:8931").authorities,
            ["127.0.0.1:8931", "localhost:8931", "[::1]:8931"]
        );
        let other = lock("127.0.0.2:8931");
        assert_eq!(other.authorities.last().unwrap(), "127.0.0.2:8931");
        let beyond = lock("192.0.2.7:80");
        for name in ["localhost:80", "localhost", "192.0.2.7:80", "192.0.2.7"] {
            assert!(beyond.authorities.iter().any(|ours| ours == name), "{name}");
        }
        let origins = &beyond.origins;
        assert!(origins.iter().any(|origin| origin == "http://192.0.2.7"));
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let shown = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            lock("127.0.0.1:1").has_the_token(&headers).is_ok()
        };
        assert!(shown("Bearer 0123456789abcdef"));
        assert!(shown("bearer 0123456789abcdef"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer  0123456789abcdef",
            "Bearer 0123456789ABCDEF",
            "Bearer0123456789abcdef",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!shown(wrong), "{wrong:?}");
        }
    }
}
