//! Logs as files, and search in all logs.

use serde_json::{Value, json};

use crate::harness::{Abide, Answer};

const PERSON: &str = "abide-person: true\r\n";

fn get(abide: &Abide, line: &str, headers: &str) -> Answer {
    abide.open(line, &format!("{PERSON}{headers}"), "")
}

#[test]
fn log_is_downloaded_with_its_length() {
    let abide = Abide::new();
    let ran = abide.shell("printf 0123456789; printf abc >&2");
    let path = format!(
        "/v1/sessions/{}/log/raw",
        ran["session_id"].as_str().unwrap()
    );
    let whole = get(&abide, &format!("GET {path}"), "");
    assert_eq!(whole.status, 200);
    assert_eq!(whole.header("content-length"), Some("13"));
    assert_eq!(
        whole.header("content-type"),
        Some("application/octet-stream")
    );
    assert!(
        whole
            .header("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
    assert_eq!(whole.header("content-disposition"), None);
    assert_eq!(whole.rest().len(), 13);
    let head = get(&abide, &format!("HEAD {path}"), "");
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("13"))
    );
    assert_eq!(head.rest(), "");
    let file = get(&abide, &format!("GET {path}?download=1"), "");
    let name = file.header("content-disposition").unwrap().to_owned();
    assert!(
        name.starts_with("attachment; filename=\"session_"),
        "{name}"
    );
}

#[test]
fn search_covers_all_logs_newest_first() {
    let abide = Abide::new();
    abide.shell("printf 'one\\nneedle 1\\n'");
    abide.shell("printf '\\033[1mneedle 2\\033[0m\\nneedle 3\\n'");
    abide.shell("echo nothing");
    let find = |query: &str| {
        let line = format!("GET /v1/search?{query}");
        abide.good(&line, PERSON, &Value::Null)
    };
    let found = find("pattern=needle%20%5Cd");
    let texts: Vec<_> = found["matches"].as_array().unwrap().iter().collect();
    let texts: Vec<_> = texts.iter().map(|found| &found["text"]).collect();
    assert_eq!(texts, ["needle 2", "needle 3", "needle 1"], "{found}");
    assert_eq!(found["truncated"], false);
    assert_eq!(found["matches"][2]["line"], 2);
    assert!(
        found["matches"][2]["command"]
            .as_str()
            .unwrap()
            .starts_with("printf")
    );
    let some = find("pattern=needle&limit=2");
    assert_eq!(some["matches"].as_array().unwrap().len(), 2);
    assert_eq!(some["truncated"], true);
    let mut lines = Vec::new();
    let mut query = "pattern=needle&limit=1".to_owned();
    loop {
        let page = find(&query);
        lines.extend(page["matches"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        query = format!("pattern=needle&limit=1&after={next}");
    }
    assert_eq!(json!(lines), found["matches"]);
    let other = abide.good(
        "GET /v1/search?pattern=needle",
        "abide-agent: x\r\n",
        &Value::Null,
    );
    assert_eq!(
        other,
        json!({"matches": [], "truncated": false, "next": null}),
        "an agent searches its own"
    );
    let wrong = [
        "",
        "?pattern=%5B",
        "?pattern=x&limit=0",
        "?pattern=x&after=1",
        "?pattern=x&after=session_aaaaaaaa:1",
    ];
    for wrong in wrong {
        let line = format!("GET /v1/search{wrong}");
        let (status, problem) = abide.ask(&line, PERSON, &Value::Null);
        assert_eq!(status, 400, "{wrong}: {problem}");
    }
}

const TOKEN: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB";

/// Output of a session by each way that returns it byte by byte.
fn outputs(abide: &Abide, id: &str, headers: &str) -> Vec<String> {
    ["log", "log/raw", "log?format=frames&follow=true"]
        .map(|way| {
            let line = format!("GET /v1/sessions/{id}/{way}");
            abide.open(&line, headers, "").rest()
        })
        .into()
}

#[test]
fn raw_output_has_the_secrets_for_a_person_only() {
    let abide = Abide::new();
    let env = json!({"DB_PASSWORD": "correct-horse"});
    let command = format!("echo as $DB_PASSWORD; echo {TOKEN} >&2");
    let shell = json!({"command": command, "env": env});
    let ran = abide.good("POST /v1/tools/shell", "", &shell);
    let id = ran["session_id"].as_str().expect("an id");
    for output in outputs(&abide, id, PERSON) {
        assert!(output.contains("as correct-horse\n"), "{output}");
        assert!(output.contains(TOKEN), "{output}");
    }
    for output in outputs(&abide, id, "") {
        assert!(
            output.contains(&format!("as {}\n", "*".repeat(13))),
            "{output}"
        );
        assert!(output.contains(&"*".repeat(TOKEN.len())), "{output}");
        assert!(
            !output.contains("horse") && !output.contains("ghp_"),
            "{output}"
        );
    }
    let run = json!({"command": "echo as $DB_PASSWORD", "cwd": "/", "key": "k",
        "env": [["PATH", "/usr/bin:/bin"], ["DB_PASSWORD", "correct-horse"]]});
    let ran = abide.open("POST /v1/runs", "", &run.to_string()).rest();
    assert!(ran.contains(&format!("as {}\n", "*".repeat(13))), "{ran}");
    assert!(!ran.contains("horse"), "{ran}");
}
