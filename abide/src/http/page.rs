//! Web page: files that are embedded in this program, with their compressed forms. The files contain no
//! user data and need no login; the page gets its data from the other routes.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::problem;

/// Content security policy of the page: requests to this server only, and no inline scripts or styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Path prefix of files whose names contain a hash of their content.
const ASSETS: &str = "/assets/";
const INDEX: &str = "/index.html";
/// Path prefixes that belong to other routes and need a login or a token.
const ROUTES: [&str; 4] = ["/v1", "/mcp", "/metrics", "/docs"];

/// Embedded file.
struct File {
    path: &'static str,
    kind: &'static str,
    /// Hash of the content, for `ETag`.
    tag: &'static str,
    plain: &'static [u8],
    brotli: Option<&'static [u8]>,
    gzip: Option<&'static [u8]>,
}

/// `FILES`, sorted by path. If the page was not built, there is a single file that says so.
mod built {
    use crate::http::page::File;
    include!(concat!(env!("OUT_DIR"), "/page.rs"));
}

/// Returns `true` if the page was embedded when this program was built.
pub fn is_built() -> bool {
    built::FILES.len() > 1
}

/// Returns `true` if `GET` requests for this path need no credential.
pub fn is_public(path: &str) -> bool {
    let below = |route: &str| {
        let rest = path.strip_prefix(route);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    path == "/v1/health" || !ROUTES.iter().any(|route| below(route))
}

/// Fallback handler: serves an embedded file, the index file for the address of a view, or 404.
pub async fn page(request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let is_read = *method == Method::GET || *method == Method::HEAD;
    let file = match path {
        "/" => file(INDEX),
        path => file(path).or_else(|| view(path, request.headers())),
    };
    match file {
        Some(file) if is_read && is_public(path) => {
            answer(file, request.headers(), *method == Method::HEAD)
        }
        _ => problem::no_such_route(request.uri().clone())
            .await
            .into_response(),
    }
}

fn file(path: &str) -> Option<&'static File> {
    let at = built::FILES.binary_search_by(|file| file.path.cmp(path));
    at.ok().map(|at| &built::FILES[at])
}

/// Index file for the address of a view, which a browser requests on reload.
fn view(path: &str, headers: &HeaderMap) -> Option<&'static File> {
    let wants_a_page = headers
        .get(header::ACCEPT)
        .and_then(|accepted| accepted.to_str().ok())
        .is_some_and(|accepted| accepted.contains("text/html"));
    (wants_a_page && !path.starts_with(ASSETS)).then(|| file(INDEX))?
}

fn answer(file: &'static File, headers: &HeaderMap, only_head: bool) -> Response {
    let (coding, bytes) = choose(file, headers);
    let tag = match coding {
        Some(coding) => format!("\"{}-{coding}\"", file.tag),
        None => format!("\"{}\"", file.tag),
    };
    let keep = match file.path.starts_with(ASSETS) {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let mut response = if is_cached(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if only_head {
        let length = HeaderValue::from(bytes.len());
        let mut response = Body::empty().into_response();
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, length);
        response
    } else {
        Body::from(Bytes::from_static(bytes)).into_response()
    };
    let response_headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response_headers.insert(name, value);
        }
    };
    set(header::ETAG, &tag);
    set(header::CACHE_CONTROL, keep);
    set(header::VARY, "accept-encoding");
    set(header::CONTENT_TYPE, file.kind);
    if let Some(coding) = coding {
        set(header::CONTENT_ENCODING, coding);
    }
    if file.path == INDEX {
        set(header::CONTENT_SECURITY_POLICY, POLICY);
    }
    response
}

/// Smallest encoding that the browser accepts.
fn choose(file: &'static File, headers: &HeaderMap) -> (Option<&'static str>, &'static [u8]) {
    let takes = |coding: &str| {
        let lists = headers.get_all(header::ACCEPT_ENCODING).iter();
        lists
            .filter_map(|list| list.to_str().ok())
            .flat_map(|list| list.split(','))
            .any(|item| {
                let mut words = item.split(';').map(str::trim);
                let named = words
                    .next()
                    .is_some_and(|name| name.eq_ignore_ascii_case(coding));
                let refused = words.any(|word| {
                    let weight = word.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok());
                    weight == Some(0.0)
                });
                named && !refused
            })
    };
    match (file.brotli, file.gzip) {
        (Some(bytes), _) if takes("br") => (Some("br"), bytes),
        (_, Some(bytes)) if takes("gzip") => (Some("gzip"), bytes),
        _ => (None, file.plain),
    }
}

/// Returns `true` if the browser has this version in its cache.
fn is_cached(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter();
    lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(|known| known.trim().trim_start_matches("W/"))
        .any(|known| known == tag || known == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    static FILE: File = File {
        path: "/assets/a.js",
        kind: "text/javascript; charset=utf-8",
        tag: "t",
        plain: b"plain",
        brotli: Some(b"br"),
        gzip: Some(b"gzip"),
    };

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn smallest_accepted_encoding_is_chosen() {
        let chosen = |accepted: &str| {
            let headers = headers(header::ACCEPT_ENCODING, accepted);
            String::from_utf8_lossy(choose(&FILE, &headers).1).into_owned()
        };
        assert_eq!(chosen("gzip, deflate, br, zstd"), "br");
        assert_eq!(chosen("gzip, deflate"), "gzip");
        assert_eq!(chosen("br;q=0, GZIP;q=0.5"), "gzip");
        assert_eq!(chosen("identity"), "plain");
        assert_eq!(chosen(""), "plain");
        assert_eq!(choose(&FILE, &HeaderMap::new()).1, b"plain");
    }

    #[test]
    fn matching_etag_answers_not_modified() {
        let status = |known: &str| {
            let mut headers = headers(header::IF_NONE_MATCH, known);
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("br"));
            answer(&FILE, &headers, false).status()
        };
        assert_eq!(status("\"t-br\""), StatusCode::NOT_MODIFIED);
        assert_eq!(status("\"x\", W/\"t-br\""), StatusCode::NOT_MODIFIED);
        assert_eq!(
            status("\"t-gzip\""),
            StatusCode::OK,
            "another form is another thing"
        );
        assert_eq!(status("\"t\""), StatusCode::OK);
    }

    #[test]
    fn only_page_paths_are_public() {
        for open in [
            "/",
            "/index.html",
            "/assets/x.js",
            "/timers",
            "/v1/health",
            "/v1x",
            "/docsx",
        ] {
            assert!(is_public(open), "{open}");
        }
        for closed in [
            "/v1",
            "/v1/",
            "/v1/status",
            "/v1/health/",
            "/mcp",
            "/metrics",
            "/docs",
            "/docs/x",
        ] {
            assert!(!is_public(closed), "{closed}");
        }
    }

    #[test]
    fn embedded_files_are_sorted_and_have_an_index() {
        assert!(file(INDEX).is_some());
        assert!(built::FILES.is_sorted_by_key(|file| file.path));
    }
}
