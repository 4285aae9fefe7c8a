//! Requests that must be refused, without any side effect.

use serde_json::Value;

use crate::harness::Abide;

/// All routes that need credentials, and one that does not exist.
pub const PATHS: [&str; 51] = [
    "/v1/nothing",
    "/v1/status",
    "/v1/stop",
    "/v1/logins",
    "/v1/logout",
    "/v1/events",
    "/v1/tools",
    "/v1/tools/shell",
    "/v1/tools/execute_command",
    "/v1/sessions",
    "/v1/sessions/session_00000000",
    "/v1/sessions/session_00000000/log",
    "/v1/sessions/session_00000000/log/raw",
    "/v1/sessions/session_00000000/lines",
    "/v1/sessions/session_00000000/matches",
    "/v1/sessions/session_00000000/terminal",
    "/v1/search",
    "/v1/openapi.json",
    "/docs",
    "/metrics",
    "/v1/sessions/session_00000000/paint",
    "/v1/sessions/session_00000000/kill",
    "/v1/sessions/session_00000000/delete",
    "/v1/sessions/session_00000000/signal",
    "/v1/sessions/session_00000000/extend",
    "/v1/sessions/session_00000000/input",
    "/v1/sessions/session_00000000/resize",
    "/v1/questions",
    "/v1/questions/question_00000000/answer",
    "/v1/timers",
    "/v1/timers/history",
    "/v1/timers/stats",
    "/v1/timers/timer_00000000",
    "/v1/timers/timer_00000000/stop",
    "/v1/wait",
    "/v1/messages",
    "/v1/messages/message_00000000/wake",
    "/v1/runs",
    "/mcp",
    "/v1/sessions/stats",
    "/v1/sessions/session_00000000/rename",
    "/v1/ids",
    "/v1/policy",
    "/v1/policy/test",
    "/v1/policy/rules/shell/remove",
    "/v1/audit",
    "/v1/audit/verify",
    "/v1/refusals",
    "/v1/reload",
    "/v1/machines",
    "/v1/machines/build/revoke",
];

/// Routes that change something.
const ACTS: [&str; 20] = [
    "/v1/stop",
    "/v1/logins",
    "/v1/logout",
    "/v1/tools/shell",
    "/v1/tools/execute_command",
    "/v1/sessions/session_00000000/kill",
    "/v1/sessions/session_00000000/delete",
    "/v1/sessions/session_00000000/signal",
    "/v1/sessions/session_00000000/extend",
    "/v1/sessions/session_00000000/input",
    "/v1/sessions/session_00000000/resize",
    "/v1/questions/question_00000000/answer",
    "/v1/timers/timer_00000000/stop",
    "/v1/wait",
    "/v1/runs",
    "/v1/sessions/session_00000000/rename",
    "/v1/policy/test",
    "/v1/policy/rules/shell/remove",
    "/v1/reload",
    "/v1/machines/build/revoke",
];

/// Builder of a request; defaults are valid.
struct Request {
    line: String,
    host: Option<String>,
    token: Option<String>,
    kind: Option<String>,
    more: String,
    body: String,
}

struct Matrix {
    abide: Abide,
    port: u16,
    token: String,
    body: String,
    refused: usize,
}

impl Matrix {
    fn new() -> Self {
        let abide = Abide::new();
        let hit = abide.path("hit");
        Matrix {
            port: abide.address().port(),
            token: abide.token(),
            body: format!("{{\"command\":\"touch {}\"}}", hit.display()),
            refused: 0,
            abide,
        }
    }

    fn request(&self, line: &str) -> Request {
        let acts = line.starts_with("POST");
        Request {
            line: line.into(),
            host: Some(format!("127.0.0.1:{}", self.port)),
            token: Some(format!("Bearer {}", self.token)),
            kind: acts.then(|| "application/json".into()),
            more: String::new(),
            body: if acts {
                self.body.clone()
            } else {
                String::new()
            },
        }
    }

    #[track_caller]
    fn refuse(&mut self, request: &Request, wanted: u16) {
        let mut text = format!("{} HTTP/1.1\r\nconnection: close\r\n", request.line);
        for (name, value) in [
            ("host", &request.host),
            ("authorization", &request.token),
            ("content-type", &request.kind),
        ] {
            if let Some(value) = value {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        text.push_str(&request.more);
        if !request.body.is_empty() {
            text.push_str(&format!("content-length: {}\r\n", request.body.len()));
        }
        text.push_str("\r\n");
        text.push_str(&request.body);
        self.refuse_bytes(text.as_bytes(), wanted);
    }

    #[track_caller]
    fn refuse_bytes(&mut self, bytes: &[u8], wanted: u16) {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]);
        let (status, answer) = self.abide.raw(bytes).expect("an answer");
        assert_eq!(status, wanted, "{shown}\n\n{answer}");
        let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
        assert!(!head.contains("access-control-"), "{shown}\n\n{answer}");
        assert!(!answer.contains(&self.token), "{shown}\n\n{answer}");
        self.refused += 1;
    }

    fn hosts(&mut self) {
        let port = self.port;
        let other = port ^ 1;
        let hosts = [
            "evil.test".to_owned(),
            format!("evil.test:{port}"),
            format!("127.0.0.1.evil.test:{port}"),
            format!("localhost.evil.test:{port}"),
            format!("evil.test@127.0.0.1:{port}"),
            format!("127.0.0.1:{port}@evil.test"),
            format!("127.0.0.1:{port}.evil.test"),
            format!("127.0.0.1:{port}:80"),
            format!("127.0.0.1:{port},evil.test"),
            format!("127.0.0.1:{port} evil.test"),
            format!("127.0.0.1:{port}/"),
            format!("127.0.0.1:{port}0"),
            format!("127.0.0.1:0{port}"),
            format!("127.0.0.1:+{port}"),
            format!("127.0.0.1:{other}"),
            format!("localhost:{other}"),
            format!("[::1]:{other}"),
            "127.0.0.1".into(),
            "localhost".into(),
            "[::1]".into(),
            "127.0.0.1:".into(),
            "localhost:80".into(),
            format!("localhost.:{port}"),
            format!("127.0.0.1.:{port}"),
            format!("sub.localhost:{port}"),
            format!("localtest.me:{port}"),
            format!("127.0.0.1.nip.io:{port}"),
            format!("0.0.0.0:{port}"),
            format!("0:{port}"),
            format!("127.1:{port}"),
            format!("127.0.0.2:{port}"),
            format!("127.000.000.001:{port}"),
            format!("0x7f000001:{port}"),
            format!("2130706433:{port}"),
            format!("017700000001:{port}"),
            format!("::1:{port}"),
            format!("[::]:{port}"),
            format!("[0:0:0:0:0:0:0:1]:{port}"),
            format!("[::ffff:127.0.0.1]:{port}"),
            format!("[::1%25lo]:{port}"),
            format!("[::1]{port}"),
            format!("localhost\u{fe52}:{port}"),
            format!("http://127.0.0.1:{port}"),
            "*".into(),
            "null".into(),
            String::new(),
        ];
        for host in hosts {
            let mut request = self.request("POST /v1/tools/shell");
            request.host = Some(host);
            self.refuse(&request, 403);
        }
        let mut without = self.request("POST /v1/tools/shell");
        without.host = None;
        self.refuse(&without, 403);
        for second in [format!("127.0.0.1:{port}"), "evil.test".into()] {
            let mut twice = self.request("POST /v1/tools/shell");
            twice.more = format!("host: {second}\r\n");
            self.refuse(&twice, 403);
        }
        for first_line in [
            "http://evil.test".to_owned(),
            format!("http://evil.test:{port}"),
            format!("https://127.0.0.1:{port}"),
            format!("http://user@127.0.0.1:{port}"),
            format!("ftp://127.0.0.1:{port}"),
        ] {
            let line = format!("POST {first_line}/v1/tools/shell");
            self.refuse(&self.request(&line), 403);
        }
    }

    fn origins(&mut self) {
        let port = self.port;
        let other = port ^ 1;
        let origins = [
            "null".to_owned(),
            String::new(),
            "*".into(),
            "http://evil.test".into(),
            "https://evil.test".into(),
            format!("http://evil.test:{port}"),
            format!("https://127.0.0.1:{port}"),
            format!("https://localhost:{port}"),
            format!("http://127.0.0.1:{other}"),
            format!("http://localhost:{other}"),
            "http://127.0.0.1".into(),
            "http://localhost".into(),
            "http://[::1]".into(),
            format!("http://localhost.:{port}"),
            format!("http://localhost.evil.test:{port}"),
            format!("http://127.0.0.1:{port}.evil.test"),
            format!("http://evil.test@127.0.0.1:{port}"),
            format!("http://127.0.0.1:{port}/"),
            format!("http://127.0.0.1:{port}/page"),
            format!("http://127.0.0.1:{port}, http://evil.test"),
            format!("http://127.0.0.1:{port} http://evil.test"),
            format!("HTTP://127.0.0.1:{port}"),
            format!("127.0.0.1:{port}"),
            format!("//127.0.0.1:{port}"),
            "file://".into(),
            "chrome-extension://abcdefghijklmnop".into(),
            "moz-extension://abcdefghijklmnop".into(),
            "vscode-webview://abcdefghijklmnop".into(),
            format!("ws://127.0.0.1:{port}"),
            format!("http://0.0.0.0:{port}"),
        ];
        for origin in origins {
            let mut request = self.request("POST /v1/tools/shell");
            request.more = format!("origin: {origin}\r\n");
            self.refuse(&request, 403);
        }
        for path in PATHS {
            let mut request = self.request(&format!("GET {path}"));
            request.more = "origin: http://evil.test\r\n".into();
            self.refuse(&request, 403);
            let mut request = self.request(&format!("GET {path}"));
            request.host = Some(format!("evil.test:{port}"));
            self.refuse(&request, 403);
        }
        let mut twice = self.request("POST /v1/tools/shell");
        twice.more = format!("origin: http://127.0.0.1:{port}\r\n").repeat(2);
        self.refuse(&twice, 403);
        let mut upgrade = self.request("GET /v1/events");
        upgrade.more = "origin: http://evil.test\r\nupgrade: websocket\r\n\
            sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            .into();
        self.refuse(&upgrade, 403);
    }

    fn tokens(&mut self) {
        let token = self.token.clone();
        let mut turned = token.clone();
        turned.replace_range(..1, if token.starts_with('0') { "1" } else { "0" });
        let mut last = token.clone();
        last.replace_range(63.., if token.ends_with('0') { "1" } else { "0" });
        let wrong = [
            String::new(),
            "Bearer".into(),
            "Bearer ".into(),
            "Bearer null".into(),
            "Bearer undefined".into(),
            format!("Bearer {turned}"),
            format!("Bearer {last}"),
            format!("Bearer {}", &token[..63]),
            format!("Bearer {token}0"),
            format!("Bearer {token} {token}"),
            format!("Bearer {token},"),
            format!("Bearer \"{token}\""),
            format!("Bearer  {token}"),
            format!("Bearer={token}"),
            format!("Basic {token}"),
            format!("Token {token}"),
            token.clone(),
            format!("Bearer {}", "0".repeat(64)),
            format!("Bearer {}", "0".repeat(8_000)),
        ];
        for shown in wrong {
            let mut request = self.request("POST /v1/tools/shell");
            request.token = Some(shown);
            self.refuse(&request, 401);
        }
        let mut twice = self.request("POST /v1/tools/shell");
        twice.more = format!("authorization: Bearer {token}\r\n");
        self.refuse(&twice, 401);
        // Places in which a token is not accepted.
        for (line, more) in [
            (format!("POST /v1/tools/shell?token={token}"), String::new()),
            (
                format!("POST /v1/tools/shell?access_token={token}"),
                String::new(),
            ),
            (
                "POST /v1/tools/shell".into(),
                format!("cookie: token={token}\r\n"),
            ),
            (
                "POST /v1/tools/shell".into(),
                format!("x-api-key: {token}\r\n"),
            ),
            (
                "POST /v1/tools/shell".into(),
                format!("proxy-authorization: Bearer {token}\r\n"),
            ),
        ] {
            let mut request = self.request(&line);
            request.token = None;
            request.more = more;
            self.refuse(&request, 401);
        }
        for path in PATHS {
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
                let mut request = self.request(&format!("{method} {path}"));
                request.token = None;
                self.refuse(&request, 401);
            }
        }
        // Public paths allow only reading.
        for path in ["/", "/timers", "/assets/x.js", "/v1/health"] {
            for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
                let mut request = self.request(&format!("{method} {path}"));
                request.token = None;
                self.refuse(&request, 401);
            }
            // A wrong token is refused like a missing one.
            let mut request = self.request(&format!("GET {path}"));
            request.token = Some(format!("Bearer {turned}"));
            self.refuse(&request, 401);
        }
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let mut request = self.request(&format!("{method} /v1/login"));
            request.token = None;
            self.refuse(&request, 401);
        }
    }

    /// The login cookie of a browser, sent in every way that must not be accepted.
    fn cookies(&mut self) {
        let headers = self.abide.log_in();
        let cookie = headers.lines().next().expect("a cookie").to_owned();
        let (name, secret) = cookie["cookie: ".len()..].split_once('=').expect("a pair");
        let (name, secret) = (name.to_owned(), secret.to_owned());
        let (port, other) = (self.port, self.port ^ 1);
        let ours = format!("origin: http://127.0.0.1:{port}\r\n");
        let turned = match secret.strip_prefix('0') {
            Some(rest) => format!("1{rest}"),
            None => format!("0{}", &secret[1..]),
        };
        let wrong = [
            String::new(),
            "cookie: \r\n".into(),
            format!("cookie: {name}\r\n"),
            format!("cookie: {name}=\r\n"),
            format!("cookie: {name}={turned}\r\n"),
            format!("cookie: {name}={}\r\n", &secret[1..]),
            format!("cookie: {name}={secret}0\r\n"),
            format!("cookie: {name}=\"{secret}\"\r\n"),
            format!("cookie: {name}={}\r\n", secret.to_uppercase() + "A"),
            format!("cookie: {name}={}\r\n", self.token),
            format!("cookie: abide={secret}\r\n"),
            format!("cookie: abide-{other}={secret}\r\n"),
            format!("cookie: x{name}={secret}\r\n"),
            format!("cookie: {name}x={secret}\r\n"),
            format!("cookie: {name}={secret}; {name}={secret}\r\n"),
            format!("cookie: {name}={turned}; {name}={secret}\r\n"),
            format!("cookie: {name}={secret}\r\ncookie: {name}={secret}\r\n"),
            format!("cookie: {name}={secret}, x=1\r\n"),
            format!("set-cookie: {name}={secret}\r\n"),
            format!("authorization: Bearer {secret}\r\n"),
            format!("authorization: Bearer {secret}\r\n{cookie}\r\n"),
        ];
        for more in wrong {
            for line in ["POST /v1/tools/shell", "GET /v1/sessions"] {
                let mut request = self.request(line);
                request.token = None;
                request.more = format!("{more}{ours}");
                self.refuse(&request, 401);
            }
        }
        let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
            sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        for path in PATHS.into_iter().filter(|path| *path != "/mcp") {
            for (line, more) in [
                (format!("POST {path}"), String::new()),
                (format!("DELETE {path}"), String::new()),
                (format!("GET {path}"), upgrade.into()),
                (
                    format!("GET {path}"),
                    format!("origin: http://127.0.0.1:{other}\r\n"),
                ),
                (
                    format!("GET {path}"),
                    "sec-fetch-site: same-site\r\n".into(),
                ),
                (
                    format!("GET {path}"),
                    format!("sec-fetch-site: cross-site\r\n{ours}"),
                ),
                (
                    format!("POST {path}"),
                    format!("sec-fetch-site: same-site\r\n{ours}"),
                ),
                (format!("GET {path}"), format!("{upgrade}origin: null\r\n")),
            ] {
                let mut request = self.request(&line);
                request.token = None;
                request.more = format!("{cookie}\r\n{more}");
                self.refuse(&request, 403);
            }
        }
        for (line, more, wanted) in [
            ("POST /mcp", String::new(), 401),
            ("GET /mcp", String::new(), 401),
            ("GET /v1/sessions", "abide-agent: me\r\n".into(), 400),
            ("POST /v1/stop", "abide-agent: me\r\n".into(), 400),
            (
                "GET /v1/sessions",
                format!("host: 127.0.0.1:{port}\r\n"),
                403,
            ),
            (
                "POST /v1/tools/shell",
                "content-type: text/plain\r\n".into(),
                415,
            ),
        ] {
            let mut request = self.request(line);
            request.token = None;
            request.more = format!("{cookie}\r\n{ours}{more}");
            self.refuse(&request, wanted);
        }
        let (status, _) = self
            .abide
            .ask_bare("GET /v1/sessions", &headers, &Value::Null);
        assert_eq!(status, 200, "the cookie itself is good");
    }

    fn codes(&mut self) {
        let good = self.abide.code();
        let ours = format!("origin: http://127.0.0.1:{}\r\n", self.port);
        let body = |code: &str| format!("{{\"code\":\"{code}\"}}");
        for (kind, more, body, wanted) in [
            ("application/json", "origin: null\r\n", body(&good), 403),
            (
                "application/json",
                "origin: http://evil.test\r\n",
                body(&good),
                403,
            ),
            ("text/plain", &ours, body(&good), 415),
            ("application/json", &ours, String::from("{}"), 400),
            ("application/json", &ours, String::from("{\"code\":1}"), 400),
            ("application/json", &ours, format!("[{}]", body(&good)), 400),
            ("application/json", &ours, body(""), 403),
            ("application/json", &ours, body(&good[1..]), 403),
            ("application/json", &ours, body(&format!("{good}0")), 403),
        ] {
            let mut request = self.request("POST /v1/login");
            (request.token, request.kind) = (None, Some(kind.into()));
            (request.more, request.body) = (more.into(), body);
            self.refuse(&request, wanted);
        }
        let mut request = self.request("POST /v1/login");
        (request.token, request.host) = (None, Some(format!("evil.test:{}", self.port)));
        request.body = body(&good);
        self.refuse(&request, 403);
        // An agent gets no login link.
        self.refuse(&self.request("POST /v1/logins"), 403);
    }

    fn kinds(&mut self) {
        let kinds = [
            None,
            Some(""),
            Some("text/plain"),
            Some("text/plain;charset=UTF-8"),
            Some("application/x-www-form-urlencoded"),
            Some("multipart/form-data; boundary=x"),
            Some("application/jsonp"),
            Some("application/json5"),
            Some("application/ld+json"),
            Some("text/json"),
            Some("text/plain; application/json"),
            Some("text/plain, application/json"),
            Some("application/octet-stream"),
            Some("*/*"),
        ];
        for path in ["/v1/tools/shell", "/v1/runs", "/mcp"] {
            for kind in kinds {
                let mut request = self.request(&format!("POST {path}"));
                request.kind = kind.map(str::to_owned);
                self.refuse(&request, 415);
            }
        }
        let mut twice = self.request("POST /v1/tools/shell");
        twice.more = "content-type: text/plain\r\n".into();
        self.refuse(&twice, 415);
    }

    fn methods(&mut self) {
        for path in ACTS {
            for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
                self.refuse(&self.request(&format!("{method} {path}")), 405);
            }
            // A method name in another field is not the method.
            let mut request = self.request(&format!("GET {path}?_method=POST"));
            request.more = "x-http-method-override: POST\r\n".into();
            self.refuse(&request, 405);
        }
        for path in ["/", "/v1", "/v1/tools/../stop", "//v1/stop", "/v1/stop/"] {
            self.refuse(&self.request(&format!("POST {path}")), 404);
        }
        for method in ["PUT", "PATCH", "OPTIONS", "TRACE"] {
            self.refuse(&self.request(&format!("{method} /mcp")), 405);
        }
        self.refuse(&self.request("GET /mcp"), 406);
    }

    fn bodies(&mut self) {
        let large = (8 << 20) + 1;
        for path in ["/v1/tools/shell", "/v1/runs", "/mcp"] {
            let mut request = self.request(&format!("POST {path}"));
            request.more = "accept: application/json, text/event-stream\r\n".into();
            request.body = " ".repeat(large);
            self.refuse(&request, 413);
        }
        let port = self.port;
        let head = format!(
            "POST /v1/tools/shell HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\
             authorization: Bearer {}\r\n",
            self.token
        );
        let json = "content-type: application/json\r\n";
        let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
        let chunked = "transfer-encoding: chunked\r\n\r\n";
        let endless = format!("{head}{json}{chunked}{}", chunk.repeat(9));
        self.refuse_bytes(endless.as_bytes(), 413);
        let unlabelled = format!("{head}{chunked}2\r\n{{}}\r\n0\r\n\r\n");
        self.refuse_bytes(unlabelled.as_bytes(), 415);
        let long = format!("{head}x-long: {}\r\n\r\n", "x".repeat(128 << 10));
        self.refuse_bytes(long.as_bytes(), 431);
        let many = format!("{head}{}\r\n", "x-many: 1\r\n".repeat(500));
        self.refuse_bytes(many.as_bytes(), 431);
        for broken in [
            "GET\r\n\r\n".to_owned(),
            "GET /v1/status HTTP/9.9\r\n\r\n".into(),
            format!("{head}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}"),
            format!("{head}content-length: -1\r\n\r\n"),
            format!("{head}bad header: 1\r\n\r\n"),
            format!("{head} folded: 1\r\n\r\n"),
        ] {
            self.refuse_bytes(broken.as_bytes(), 400);
        }
    }

    fn persons(&mut self) {
        let answer = "/v1/questions/question_00000000/answer";
        for (more, wanted) in [
            ("", 403),
            ("abide-agent: me\r\n", 403),
            ("abide-person: yes\r\n", 400),
            ("abide-person: false\r\n", 400),
            ("abide-person: \r\n", 400),
            ("abide-person: true\r\nabide-agent: me\r\n", 400),
            ("abide-agent: \r\n", 400),
        ] {
            for path in [answer, "/v1/stop"] {
                let mut request = self.request(&format!("POST {path}"));
                request.more = more.into();
                self.refuse(&request, wanted);
            }
        }
    }
}

#[test]
fn s16_s17_s18_g13_hostile_requests_are_refused() {
    let mut matrix = Matrix::new();
    let before = matrix.abide.status();
    matrix.hosts();
    matrix.origins();
    matrix.tokens();
    matrix.cookies();
    matrix.codes();
    matrix.kinds();
    matrix.methods();
    matrix.bodies();
    matrix.persons();
    println!("{} requests were refused", matrix.refused);
    assert!(matrix.refused >= 800, "{} requests", matrix.refused);
    let after = matrix.abide.status();
    assert_eq!(before["daemon"], after["daemon"], "the same daemon lives");
    assert_eq!(after["sessions"]["ended"], 0, "{after}");
    assert_eq!(after["sessions"]["running"], 0, "{after}");
    assert!(!matrix.abide.path("hit").exists(), "something ran");
    let (status, _) = matrix.abide.ask("GET /v1/status", "", &Value::Null);
    assert_eq!(status, 200, "and whoever may come in still does");
}
