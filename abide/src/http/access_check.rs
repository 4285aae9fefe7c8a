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

use super::page;
use super::problem::Problem;
use crate::http::login_store::{LoginId, LoginStore};
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::secret::constant_time_eq;

/// Path at which a code is exchanged. It needs no other credential.
pub const LOGIN_PATH: &str = "/v1/login";

/// Cookie name with the port, because browsers share cookies between ports of a host.
pub fn cookie_name(port: u16) -> String {
    format!("abide-{port}")
}

const JSON: &str = "application/json";
/// Content type of session input, which need not be JSON. A page cannot send this type cross-origin
/// without a CORS preflight either.
const BYTES: &str = "application/octet-stream";
/// Header in which a browser states the relation between the requesting page and this server.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers that are added to every response that does not set them itself.
const DEFAULT_HEADERS: [(HeaderName, &str); 5] = [
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
pub struct AccessCheck {
    token: String,
    cookie: String,
    logins: Arc<LoginStore>,
    authorities: Vec<String>,
    origins: Vec<String>,
}

/// Credential that the caller has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// No credential, for a resource that needs none.
    None,
    /// The bearer token.
    Token,
    /// The cookie of a login, with the login's id.
    Login(LoginId),
}

impl AccessCheck {
    /// Creates the check for a server that listens on `address`.
    pub fn new(token: String, logins: Arc<LoginStore>, address: SocketAddr) -> Self {
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
        AccessCheck {
            token,
            cookie: cookie_name(port),
            logins,
            origins: origins.collect(),
            authorities,
        }
    }

    fn check(&self, request: &Request) -> Result<Credential, Problem> {
        let headers = request.headers();
        self.check_host(request.uri(), headers)?;
        let origin = self.check_origin(headers)?;
        let credential = self.check_credential(request, origin)?;
        check_content_type(request)?;
        Ok(credential)
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let own = |name: &str| {
            let mut authorities = self.authorities.iter();
            authorities.any(|own| own.eq_ignore_ascii_case(name))
        };
        let named = match single_header(headers, &header::HOST) {
            SingleHeader::Value(host) => host.to_str().is_ok_and(own),
            SingleHeader::None | SingleHeader::Several => false,
        };
        // A request may name the server a second time, in the absolute form of its target.
        let line = match (uri.scheme(), uri.authority()) {
            (None, None) => true,
            (Some(scheme), Some(name)) => *scheme == Scheme::HTTP && own(name.as_str()),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if named && line {
            return Ok(());
        }
        Err(Problem::forbidden(
            "Host header not allowed; use 127.0.0.1:PORT",
        ))
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<OriginCheck, Problem> {
        let own = |origin: &str| self.origins.iter().any(|own| own == origin);
        match single_header(headers, &header::ORIGIN) {
            SingleHeader::None => Ok(OriginCheck::Absent),
            SingleHeader::Value(origin) if origin.to_str().is_ok_and(own) => Ok(OriginCheck::Own),
            SingleHeader::Value(_) | SingleHeader::Several => {
                Err(Problem::forbidden("Origin not allowed"))
            }
        }
    }

    /// Checks the credential. A token, if present, must be correct; a cookie counts only without a token.
    fn check_credential(
        &self,
        request: &Request,
        origin: OriginCheck,
    ) -> Result<Credential, Problem> {
        let (method, headers) = (request.method(), request.headers());
        let path = request.uri().path();
        if headers.contains_key(header::AUTHORIZATION) {
            return self.check_token(headers).map(|()| Credential::Token);
        }
        let reads = *method == Method::GET || *method == Method::HEAD;
        if reads && page::is_public(path) || *method == Method::POST && path == LOGIN_PATH {
            return Ok(Credential::None);
        }
        // MCP clients are agents, and agents have no login.
        if path == "/mcp" {
            return Err(Problem::unauthorized());
        }
        let login = self.login(headers).ok_or_else(Problem::unauthorized)?;
        let opens_a_channel = headers.contains_key(header::UPGRADE);
        if (!reads || opens_a_channel) && origin == OriginCheck::Absent {
            return Err(Problem::forbidden(
                "a request with a login cookie needs an `Origin` header",
            ));
        }
        // A page of another server on this machine sends our cookie along, since cookies are not
        // separated by port. The page cannot forge `Sec-Fetch-Site`, which the browser sets.
        match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Ok(Credential::Login(login)),
            Some(_) => Err(Problem::forbidden("Origin not allowed")),
        }
    }

    fn login(&self, headers: &HeaderMap) -> Option<LoginId> {
        let SingleHeader::Value(cookies) = single_header(headers, &header::COOKIE) else {
            return None;
        };
        let mut own = cookies
            .to_str()
            .ok()?
            .split(';')
            .filter_map(|pair| pair.trim_start().split_once('='))
            .filter(|(name, _)| *name == self.cookie);
        let (_, secret) = own.next()?;
        if own.next().is_some() {
            return None;
        }
        self.logins.find(secret.as_bytes(), SystemClock.now().wall)
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let credential = match single_header(headers, &header::AUTHORIZATION) {
            SingleHeader::Value(credential) => bearer(credential.as_bytes()),
            SingleHeader::None | SingleHeader::Several => None,
        };
        match credential {
            Some(credential) if constant_time_eq(credential, self.token.as_bytes()) => Ok(()),
            Some(_) | None => Err(Problem::unauthorized()),
        }
    }
}

/// Result of the `Origin` check; a foreign origin is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OriginCheck {
    Absent,
    Own,
}

/// Middleware in front of every route.
pub async fn check_access(
    State(access): State<Arc<AccessCheck>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match access.check(&request) {
        Ok(credential) => {
            request.extensions_mut().insert(credential);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in DEFAULT_HEADERS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Refuses a request body that is not declared as JSON (or as bytes for session input). A page can send
/// the other content types cross-origin without a CORS preflight.
fn check_content_type(request: &Request) -> Result<(), Problem> {
    if request.body().is_end_stream() {
        return Ok(());
    }
    let kind = match single_header(request.headers(), &header::CONTENT_TYPE) {
        SingleHeader::Value(kind) => kind.to_str().unwrap_or_default(),
        SingleHeader::None | SingleHeader::Several => "",
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
enum SingleHeader<'a> {
    None,
    Value(&'a HeaderValue),
    Several,
}

fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> SingleHeader<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => SingleHeader::None,
        (Some(value), None) => SingleHeader::Value(value),
        (Some(_), Some(_)) => SingleHeader::Several,
    }
}

fn bearer(credential: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = credential.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(address: &str) -> AccessCheck {
        let logins = LoginStore::open("/nowhere".into(), SystemClock.now().wall);
        let address = address.parse().unwrap();
        AccessCheck::new("0123456789abcdef".into(), Arc::new(logins), address)
    }

    #[test]
    fn allowed_hosts_are_loopback_names_and_the_own_address() {
        assert_eq!(
            access("127.0.0.1:8931").authorities,
            ["127.0.0.1:8931", "localhost:8931", "[::1]:8931"]
        );
        let other = access("127.0.0.2:8931");
        assert_eq!(other.authorities.last().unwrap(), "127.0.0.2:8931");
        let public_address = access("192.0.2.7:80");
        for name in ["localhost:80", "localhost", "192.0.2.7:80", "192.0.2.7"] {
            assert!(
                public_address.authorities.iter().any(|own| own == name),
                "{name}"
            );
        }
        let origins = &public_address.origins;
        assert!(origins.iter().any(|origin| origin == "http://192.0.2.7"));
    }

    #[test]
    fn host_names_ignore_case() {
        let access = access("127.0.0.1:8931");
        let host = |name: &'static str| {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(name))]);
            access.check_host(&Uri::from_static("/"), &headers).is_ok()
        };
        assert!(host("LocalHost:8931"));
        assert!(!host("LocalHost:8932"));
    }

    #[test]
    fn only_the_exact_bearer_token_is_accepted() {
        let credential = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            access("127.0.0.1:1").check_token(&headers).is_ok()
        };
        assert!(credential("Bearer 0123456789abcdef"));
        assert!(credential("bearer 0123456789abcdef"));
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
            assert!(!credential(wrong), "{wrong:?}");
        }
    }
}
