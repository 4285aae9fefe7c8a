//! Login of a browser, its lifetime and its end; a command cannot log in.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use crate::harness::{Abide, Answer, own_loopback};

#[test]
fn login_with_a_code_makes_a_person() {
    let abide = Abide::new();
    let ran = abide.good(
        "POST /v1/tools/shell",
        "abide-agent: other\r\n",
        &json!({"command": "true"}),
    );
    let browser = abide.log_in();
    let line = format!("GET /v1/sessions/{}", ran["session_id"].as_str().unwrap());
    let (status, seen) = abide.ask_bare(&line, &browser, &Value::Null);
    assert_eq!((status, &seen["agent"]), (200, &json!("other")), "{seen}");
    let unknown = json!({"answer": "no"});
    let (status, said) = abide.ask_bare(
        "POST /v1/questions/question_00000000/answer",
        &browser,
        &unknown,
    );
    assert_eq!(
        status, 404,
        "a person may answer, if there were a question: {said}"
    );
}

#[test]
fn request_without_login_says_how_to_log_in() {
    let abide = Abide::new();
    let answer = Answer::begin(abide.send_bare("GET /v1/sessions", "", ""));
    assert_eq!(answer.status, 401);
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let (_, problem) = answer.whole();
    assert!(
        problem["detail"].as_str().unwrap().contains("abide open"),
        "{problem}"
    );
}

#[test]
fn code_works_once() {
    let abide = Abide::new();
    let code = json!({"code": abide.code()});
    assert_eq!(abide.ask_bare("POST /v1/login", "", &code).0, 204);
    let (status, problem) = abide.ask_bare("POST /v1/login", "", &code);
    assert_eq!(status, 403, "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains("abide open"),
        "{problem}"
    );
}

#[test]
fn too_many_wrong_codes_are_refused() {
    let abide = Abide::new();
    let guess = json!({"code": "0"});
    let first = (0..100).find(|_| abide.ask_bare("POST /v1/login", "", &guess).0 == 429);
    assert!(first.is_some_and(|tries| tries > 2), "{first:?}");
}

#[test]
fn login_and_port_survive_a_restart() {
    let abide = Abide::with(&format!("http = \"{}:0\"\n", own_loopback()));
    let (address, browser) = (abide.address(), abide.log_in());
    let mode = std::fs::metadata(abide.path("abide/logins"))
        .unwrap()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = std::fs::read_to_string(abide.path("abide/logins")).unwrap();
    let secret = browser.lines().next().unwrap().split_once('=').unwrap().1;
    assert!(!kept.contains(secret));
    abide.output(["stop"]);
    abide.status();
    assert_eq!(abide.address(), address, "an open page finds it again");
    assert_eq!(
        abide.ask_bare("GET /v1/sessions", &browser, &Value::Null).0,
        200
    );
}

#[test]
fn port_taken_meanwhile_is_replaced() {
    let abide = Abide::with(&format!("http = \"{}:0\"\n", own_loopback()));
    let address = abide.address();
    abide.output(["stop"]);
    let taken = std::net::TcpListener::bind(address).unwrap();
    abide.status();
    assert_ne!(abide.address(), address);
    drop(taken);
}

#[test]
fn logout_ends_the_login() {
    let abide = Abide::new();
    let (browser, other) = (abide.log_in(), abide.log_in());
    let answer = Answer::begin(abide.send_bare("POST /v1/logout", &browser, "{}"));
    assert_eq!(answer.status, 204);
    assert!(answer.header("set-cookie").unwrap().contains("max-age=0"));
    assert_eq!(
        abide.ask_bare("GET /v1/sessions", &browser, &Value::Null).0,
        401
    );
    assert_eq!(
        abide.ask_bare("GET /v1/sessions", &other, &Value::Null).0,
        200
    );
    assert_eq!(abide.ask("POST /v1/logout", "", &json!({})).0, 409);
}

#[test]
fn command_gets_no_link_and_cannot_use_a_login() {
    refused_inside(&Abide::new());
}

#[test]
fn detached_command_gets_no_link_and_cannot_use_a_login() {
    refused_inside(&Abide::with("containment = \"subreaper\"\n"));
}

fn refused_inside(abide: &Abide) {
    let browser = abide.log_in();
    let cookie = browser.replace("\r\n", "\\r\\n");
    let (address, token) = (abide.address(), abide.token());
    let port = address.port();
    let speak = |line: &str, headers: &str, body: &str| {
        let length = body.len();
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}\nprintf '{line} HTTP/1.0\\r\\nhost: {address}\\r\\n\
             content-type: application/json\\r\\n{headers}content-length: {length}\\r\\n\\r\\n%s' '{body}' \
             >&3\ncat <&3\n"
        )
    };
    let as_person = format!("authorization: Bearer {token}\\r\\nabide-person: true\\r\\n");
    let as_agent = format!("authorization: Bearer {token}\\r\\n");
    let script = abide.path("speak");
    let is_refused = |line: &str, headers: &str, body: &str| {
        std::fs::write(&script, speak(line, headers, body)).unwrap();
        let result = abide.shell(&format!("bash {}", script.display()));
        let text = result["text"].as_str().unwrap();
        assert!(text.contains("403 Forbidden"), "{line}: {text}");
        assert!(
            !text.to_lowercase().contains("set-cookie"),
            "{line}: {text}"
        );
    };
    for (line, headers, body) in [
        ("GET /v1/sessions", cookie.as_str(), ""),
        ("GET /v1/events", &cookie, ""),
        (
            "GET /v1/sessions/session_00000000/terminal",
            &format!("{cookie}upgrade: websocket\\r\\nconnection: upgrade\\r\\n"),
            "",
        ),
        ("POST /v1/logins", &cookie, "{}"),
        ("POST /v1/stop", &cookie, "{}"),
        ("POST /v1/tools/shell", &cookie, r#"{"command":"true"}"#),
        ("POST /v1/logins", &as_person, "{}"),
        ("POST /v1/logins", &as_agent, "{}"),
    ] {
        is_refused(line, headers, body);
    }
    let program = env!("CARGO_BIN_EXE_abide");
    let home = abide.path("abide");
    let open = format!("ABIDE_DIR={} {program} open --print", home.display());
    let text = abide.shell(&open)["text"].as_str().unwrap().to_owned();
    assert!(text.contains("only a person can open the page"), "{text}");
    assert!(!text.contains("#login="), "{text}");
    // A code is valid for a minute, so it is created now. It stays valid for its person.
    let code = json!({"code": abide.code()}).to_string();
    is_refused("POST /v1/login", "", &code);
    let code: Value = serde_json::from_str(&code).unwrap();
    assert_eq!(abide.ask_bare("POST /v1/login", "", &code).0, 204);
}

#[test]
fn login_link_needs_the_listener() {
    let abide = Abide::with("http = \"off\"\n");
    let output = abide.output(["open", "--print"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("`http` is \"off\""), "{said}");
}
