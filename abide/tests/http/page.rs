//! The page as a browser requests it: without login, under each of its paths, and with an ETag.

use crate::harness::{Abide, Answer};

const HTML: &str = "accept: text/html,application/xhtml+xml\r\n";

fn get(abide: &Abide, line: &str, headers: &str) -> Answer {
    Answer::begin(abide.send_bare(line, headers, ""))
}

#[test]
fn page_is_served_at_the_addresses_of_its_views() {
    let abide = Abide::new();
    for path in ["/", "/timers", "/sessions/session_00000000", "/messages"] {
        let page = get(&abide, &format!("GET {path}"), HTML);
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(page.header("cache-control"), Some("no-cache"));
        let policy = page.header("content-security-policy").unwrap().to_owned();
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(page.header(name), Some(value), "{path}");
        }
        assert!(page.rest().contains("<title>"), "{path}");
    }
    for path in ["/assets/none.js", "/timers"] {
        let missing = get(&abide, &format!("GET {path}"), "accept: */*\r\n");
        assert_eq!(missing.status, 404, "{path}");
    }
    let missing = get(&abide, "GET /assets/none.js", HTML);
    assert_eq!(missing.status, 404, "a file is not a view");
    let health = get(&abide, "GET /v1/health", "");
    assert_eq!(health.status, 200);
    assert_eq!(health.rest(), "{\"status\":\"ok\"}");
}

#[test]
fn page_with_a_known_etag_is_not_sent_again() {
    let abide = Abide::new();
    let first = get(&abide, "GET /", HTML);
    let tag = first.header("etag").expect("a tag").to_owned();
    let again = get(&abide, "GET /", &format!("{HTML}if-none-match: {tag}\r\n"));
    assert_eq!(again.status, 304);
    assert_eq!(again.rest(), "");
}

#[test]
fn head_request_returns_headers_only() {
    let abide = Abide::new();
    let length = get(&abide, "GET /", HTML).rest().len().to_string();
    let head = get(&abide, "HEAD /", HTML);
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), Some(length.as_str()));
    assert_eq!(head.rest(), "");
}

#[test]
fn page_is_compressed_if_accepted() {
    let abide = Abide::new();
    let plain = get(&abide, "GET /", HTML);
    assert_eq!(plain.header("content-encoding"), None);
    let plain = plain.rest().len();
    for coding in ["br", "gzip"] {
        let headers = format!("{HTML}accept-encoding: {coding}\r\n");
        let page = get(&abide, "GET /", &headers);
        assert_eq!(page.header("content-encoding"), Some(coding));
        assert_eq!(page.header("vary"), Some("accept-encoding"));
        let length: usize = page.header("content-length").unwrap().parse().unwrap();
        assert!(length < plain, "{coding}: {length} of {plain}");
    }
}
