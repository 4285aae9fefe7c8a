//! Who is let in over TCP, where any page in any browser can knock: callers that name this server by
//! one of its own names, come from no foreign page, and show the token. It is asked before anything
//! else sees a request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Scheme;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body;

use super::problem::Problem;

const JSON: &str = "application/json";
/// What a command reads need not be JSON. A page cannot send this unasked either.
const BYTES: &str = "application/octet-stream";

/// What a caller must know.
pub struct Lock {
    token: String,
    authorities: Vec<String>,
    origins: Vec<String>,
}

impl Lock {
    /// For a server at `address`.
    pub fn new(token: String, address: SocketAddr) -> Self {
        let port = address.port();
        let mut hosts = Vec::from(["127.0.0.1", "localhost", "[::1]"].map(str::to_owned));
        if !address.ip().is_loopback() {
            hosts.push(match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        let mut authorities: Vec<String> =
            hosts.iter().map(|host| format!("{host}:{port}")).collect();
        if port == 80 {
            // The usual port is left out by those who call it.
            authorities.extend(hosts);
        }
        let origins = authorities.iter().map(|name| format!("http://{name}"));
        Lock {
            token,
            origins: origins.collect(),
            authorities,
        }
    }

    /// The names under which this server is called.
    pub fn authorities(&self) -> &[String] {
        &self.authorities
    }

    /// The pages that may call it.
    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    fn opens(&self, request: &Request) -> Result<(), Problem> {
        let headers = request.headers();
        self.is_called_here(request.uri(), headers)?;
        self.is_no_foreign_page(headers)?;
        self.has_the_token(headers)?;
        is_json(request)
    }

    fn is_called_here(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let ours = |name: &str| self.authorities.iter().any(|ours| ours == name);
        let named = match only(headers, &header::HOST) {
            One::Value(host) => host.to_str().is_ok_and(ours),
            One::None | One::Several => false,
        };
        // A request may name the server a second time, in its first line.
        let line = match (uri.scheme(), uri.authority()) {
            (None, None) => true,
            (Some(scheme), Some(name)) => *scheme == Scheme::HTTP && ours(name.as_str()),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if named && line {
            return Ok(());
        }
        Err(Problem::forbidden("this server is not called so"))
    }

    fn is_no_foreign_page(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let ours = |origin: &str| self.origins.iter().any(|ours| ours == origin);
        let ours = match only(headers, &header::ORIGIN) {
            One::None => true,
            One::Value(origin) => origin.to_str().is_ok_and(ours),
            One::Several => false,
        };
        if ours {
            return Ok(());
        }
        Err(Problem::forbidden("pages from elsewhere are refused"))
    }

    fn has_the_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let shown = match only(headers, &header::AUTHORIZATION) {
            One::Value(shown) => bearer(shown.as_bytes()),
            One::None | One::Several => None,
        };
        match shown {
            Some(shown) if same(shown, self.token.as_bytes()) => Ok(()),
            Some(_) | None => Err(Problem::unauthorized()),
        }
    }
}

/// Stands before every route.
pub async fn locked(State(lock): State<Arc<Lock>>, request: Request, next: Next) -> Response {
    let mut response = match lock.opens(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whatever has a body says that it is JSON; what a page may send without being asked does not.
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
    let detail = format!("the body must be {JSON}, and say so; it says {given}");
    Err(Problem::not_json(detail))
}

/// A header that must not be there twice.
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

/// Compares in a time that says nothing about where the two differ.
fn same(left: &[u8], right: &[u8]) -> bool {
    let differ = left.iter().zip(right).fold(0, |differ, (left, right)| {
        std::hint::black_box(differ | (left ^ right))
    });
    left.len() == right.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(address: &str) -> Lock {
        Lock::new("0123456789abcdef".into(), address.parse().unwrap())
    }

    #[test]
    fn the_names_are_those_of_this_machine() {
        assert_eq!(
            lock("127.0.0.1:8931").authorities(),
            ["127.0.0.1:8931", "localhost:8931", "[::1]:8931"]
        );
        let beyond = lock("192.0.2.7:80");
        for name in ["localhost:80", "localhost", "192.0.2.7:80", "192.0.2.7"] {
            assert!(
                beyond.authorities().iter().any(|ours| ours == name),
                "{name}"
            );
        }
        let origins = beyond.origins();
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
