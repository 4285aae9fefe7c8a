//! The OpenAPI document: complete, correct and readable.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Abide, Answer, feed};
use crate::hostile::PATHS;
use crate::shape::wrong;

const PERSON: &str = "abide-person: true\r\n";

fn document(abide: &Abide) -> Value {
    abide.good("GET /v1/openapi.json", "", &Value::Null)
}

/// A path with values for its parameters.
fn filled(path: &str) -> String {
    let kind = path
        .split('/')
        .nth(2)
        .unwrap_or_default()
        .trim_end_matches('s');
    path.replace("{id}", &format!("{kind}_00000000"))
        .replace("/machines/{name}/{act}", "/machines/build/revoke")
        .replace("{act}", "stop")
        .replace("{name}", "shell")
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, op) in item.as_object().expect("methods") {
            all.push((path.clone(), method.to_uppercase(), op.clone()));
        }
    }
    all
}

#[test]
fn every_route_is_documented_and_every_documented_route_exists() {
    let abide = Abide::new();
    let document = document(&abide);
    assert_eq!(document["openapi"], "3.1.0");
    let mut told = BTreeSet::new();
    for (path, method, _) in operations(&document) {
        let line = format!("{method} {}", filled(&path));
        let body = if method == "POST" { "{}" } else { "" };
        let answer = abide.open(&line, "", body);
        let status = answer.status;
        assert_ne!(status, 405, "{line}");
        if status == 404 {
            let detail = answer.rest();
            assert!(!detail.contains("there is nothing at"), "{line}: {detail}");
        }
        told.insert(filled(&path));
    }
    // The hostile requests cover every route, and the document lists no other one.
    let tried: BTreeSet<String> = PATHS.iter().map(|path| (*path).to_owned()).collect();
    for path in &tried {
        assert!(
            path == "/v1/nothing" || told.contains(path),
            "{path} is not told"
        );
    }
    for path in &told {
        let known = tried.contains(path) || path.starts_with("/v1/tools/");
        let open = ["/v1/health", "/v1/login"].contains(&path.as_str());
        assert!(known || open, "nobody has tried to break into {path}");
    }
}

#[test]
fn openapi_document_matches_its_snapshot() {
    let abide = Abide::new();
    let document = document(&abide);
    let mut lines = Vec::new();
    for (path, method, op) in operations(&document) {
        let named = |place: &str| -> Vec<&str> {
            let parameters = op["parameters"].as_array().into_iter().flatten();
            parameters
                .filter(|parameter| parameter["in"] == place)
                .filter_map(|parameter| parameter["name"].as_str())
                .collect()
        };
        let query = named("query");
        let answers: Vec<String> = op["responses"]
            .as_object()
            .expect("answers")
            .iter()
            .filter(|(status, _)| *status != "default")
            .map(|(status, answer)| {
                let content = answer["content"].as_object().into_iter().flatten();
                let kinds: Vec<String> = content
                    .map(|(kind, body)| {
                        let shape = body["schema"]["$ref"].as_str().unwrap_or_default();
                        let shape = shape.rsplit('/').next().unwrap_or_default();
                        format!("{kind} {shape}").trim().to_owned()
                    })
                    .collect();
                format!("{status} {}", kinds.join(", ")).trim().to_owned()
            })
            .collect();
        let query = match query.is_empty() {
            true => String::new(),
            false => format!("?{}", query.join("&")),
        };
        let headers = match named("header")[..] {
            // Those of every request of a caller.
            ["abide-agent", "abide-person"] => String::new(),
            [] => " (no headers)".to_owned(),
            ["abide-agent", "abide-person", ref further @ ..] => {
                format!(" ({})", further.join(", "))
            }
            ref others => format!(" (only {})", others.join(", ")),
        };
        lines.push(format!(
            "{method} {path}{query}{headers} -> {}",
            answers.join("; ")
        ));
    }
    let shapes = document["components"]["schemas"]
        .as_object()
        .expect("shapes");
    for (name, shape) in shapes {
        let fields = shape["properties"].as_object().into_iter().flatten();
        let fields: Vec<&str> = fields.map(|(field, _)| field.as_str()).collect();
        lines.push(format!("{name}: {}", fields.join(", ")));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

/// Checks a response against the document.
#[track_caller]
fn hold(document: &Value, method: &str, path: &str, status: u16, answer: &Value) {
    let told = &document["paths"][path][method]["responses"];
    let told = match told.get(status.to_string()) {
        Some(told) => told,
        None if status >= 400 => &document["components"]["responses"]["Problem"],
        None => panic!("{method} {path}: {status} is not told"),
    };
    let content = told["content"].as_object().expect("a kind of content");
    let (_, body) = content.iter().next().expect("one");
    let found = wrong(document, &body["schema"], answer, path);
    assert!(found.is_empty(), "{found:#?}: {method} {path}: {answer}");
}

#[test]
fn get_responses_match_their_schemas() {
    let abide = Abide::new();
    let document = document(&abide);
    let browser = abide.log_in();
    let fifo = abide.fifo("go");
    let mut stream = Answer::begin(abide.send_bare("GET /v1/events", &browser, ""));
    let command = format!("echo line; cat {}", fifo.display());
    let call = json!({"command": command, "timeout": 3600}).to_string();
    let call = abide.send("POST /v1/tools/execute_command", "", &call);
    let (_, begun) = stream.until("session", |_| true);
    abide.set_idle_limit_after(begun["session_id"].as_str().unwrap(), 5);
    stream.until("question", |_| true);
    abide.shell("exit 3");
    let until = json!({"total_duration": 900, "mission": "later", "until": {"port": 1}});
    let timer = abide.good("POST /v1/timers", "", &until);
    let soon = json!({"total_duration": 0.01, "mission": "soon"});
    abide.good("POST /v1/timers", "", &soon);
    stream.until("message", |_| true);
    let list = abide.good("GET /v1/sessions", PERSON, &Value::Null);
    let session = list["sessions"][0]["session_id"].as_str().unwrap();
    let timer = timer["timer_id"].as_str().unwrap();
    for (path, asked) in [
        ("/v1/health", "/v1/health".to_owned()),
        (
            "/v1/sessions",
            "/v1/sessions?include_ended=true&tails=true".into(),
        ),
        ("/v1/sessions/{id}", format!("/v1/sessions/{session}")),
        ("/v1/timers", "/v1/timers?include_ended=true".into()),
        ("/v1/timers/{id}", format!("/v1/timers/{timer}")),
        ("/v1/timers/history", "/v1/timers/history".into()),
        ("/v1/timers/stats", "/v1/timers/stats".into()),
        ("/v1/questions", "/v1/questions".into()),
        ("/v1/messages", "/v1/messages".into()),
        ("/v1/search", "/v1/search?pattern=line".into()),
        ("/v1/status", "/v1/status".into()),
        ("/v1/tools", "/v1/tools".into()),
    ] {
        let answer = abide.good(&format!("GET {asked}"), PERSON, &Value::Null);
        hold(&document, "get", path, 200, &answer);
        let lists = answer.as_object().expect("an object").values();
        let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        let shows_all = path.contains('{') || !lists.clone().any(empty);
        assert!(shows_all, "{path} showed nothing: {answer}");
    }
    feed(&fifo, "");
    Answer::begin(call).rest();
}

#[test]
fn post_responses_match_their_schemas() {
    let abide = Abide::new();
    let document = document(&abide);
    let done = |path: &str, asked: &str, body: Value, wanted: u16| {
        let (status, answer) = abide.ask(&format!("POST {asked}"), PERSON, &body);
        assert_eq!(status, wanted, "{asked}: {answer}");
        hold(&document, "post", path, status, &answer);
        answer
    };
    let new = |body: Value| done("/v1/timers", "/v1/timers", body, 200);
    let until = json!({"file": "/nowhere"});
    let timer = new(json!({"total_duration": 900, "mission": "later", "until": until}));
    assert_eq!(timer["until"]["file"], "/nowhere", "{timer}");
    assert_eq!(timer["standing_by"], false);
    new(json!({"total_duration": 0.01, "reason": "now"}));
    new(json!({"total_duration": 900, "timeout_duration": 0.01, "reason": "now"}));
    new(json!({"timers": [{"total_duration": 900, "mission": "a"}]}));
    done(
        "/v1/timers",
        "/v1/timers",
        json!({"total_duration": -1}),
        400,
    );
    let id = timer["timer_id"].as_str().expect("an id");
    for (act, body, wanted) in [
        ("cancel", json!({"reason": "else"}), 200),
        ("pause", json!({"pause_duration": 60}), 200),
        ("pause", json!({"pause_duration": 60}), 409),
        ("resume", json!({}), 200),
        ("continue", json!({"timeout_duration": 0.01}), 200),
        ("stop", json!({"reason": "enough"}), 200),
        ("dance", json!({}), 404),
    ] {
        let asked = format!("/v1/timers/{id}/{act}");
        done("/v1/timers/{id}/{act}", &asked, body, wanted);
    }
    let wait = json!({"until": {"command": "true"}, "for": 60});
    done("/v1/wait", "/v1/wait", wait, 200);
    let shell = json!({"command": "echo hello"});
    done("/v1/tools/shell", "/v1/tools/shell", shell, 200);
    let started = done(
        "/v1/sessions",
        "/v1/sessions",
        json!({"command": "cat"}),
        201,
    );
    let session = started["session_id"].as_str().expect("an id");
    for (act, body) in [
        ("resize", json!({"cols": 100, "rows": 30})),
        ("extend", json!({"timeout": 600, "inactivity_timeout": 900})),
        ("signal", json!({"signal": "CONT"})),
        ("kill", json!({})),
    ] {
        let (path, asked) = (
            format!("/v1/sessions/{{id}}/{act}"),
            format!("/v1/sessions/{session}/{act}"),
        );
        let session = done(&path, &asked, body, 200);
        if act == "extend" {
            assert_eq!(session["inactivity_timeout"], 900.0, "{session}");
        }
    }
    done("/v1/logins", "/v1/logins", json!({}), 200);
    let (path, asked) = (
        "/v1/messages/{id}/wake",
        "/v1/messages/message_00000000/wake",
    );
    done(path, asked, json!({}), 404);
}

#[test]
fn docs_page_needs_no_script_and_no_request() {
    let abide = Abide::new();
    let page = abide.open("GET /docs", "", "");
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy").unwrap().to_owned();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    let text = page.rest();
    for foreign in ["<script", "src=", "=\"http", "=\"//", "@import", "url("] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    for (path, _, _) in operations(&document(&abide)) {
        assert!(text.contains(&format!("<code>{path}</code>")), "{path}");
    }
    let place = |group: &str| text.find(&format!("<h2 id=\"{group}\">")).unwrap();
    assert!(place("tools") < place("sessions") && place("events") < place("audit"));
}

#[test]
fn metrics_need_the_token() {
    let abide = Abide::new();
    abide.shell("true");
    abide.shell("false");
    let answer = abide.open("GET /metrics", "", "");
    assert_eq!(answer.status, 200);
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let text = answer.rest();
    for line in [
        "abide_sessions{state=\"ended\"} 2",
        "abide_sessions{state=\"running\"} 0",
        "abide_timers 0",
        "abide_questions_open 0",
        "abide_messages_unseen 0",
        "abide_event_streams 0",
        "abide_tool_call_seconds_count{tool=\"shell\"} 2",
        "abide_tool_call_seconds_bucket{tool=\"shell\",le=\"+Inf\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        assert!(
            value.parse::<f64>().is_ok_and(|value| value >= 0.0),
            "{line}"
        );
        let name = name.split('{').next().unwrap_or_default();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| {
                name.strip_suffix(end)
                    .filter(|name| name.ends_with("seconds"))
            })
            .unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {family} ")), "{line}");
    }
    for name in ["process_resident_memory_bytes", "abide_uptime_seconds"] {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        assert!(line.is_some(), "{name}\n{text}");
    }
}
