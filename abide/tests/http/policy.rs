//! Rules, decisions and refusals over HTTP.

use serde_json::{Value, json};

use crate::harness::Abide;

const PERSON: &str = "abide-person: true\r\n";

const RULES: &str = "[[policy.rule]]\nname = \"no\"\nrun = [\"true\", \"denied\"]\ndo = \"deny\"\nwhy = \"a rule for this test\"\n";
const ALWAYS: &str =
    "[[rule]]\nname = \"always-1\"\nrun = [\"true\", \"allowed\"]\ndo = \"allow\"\n";

fn configured() -> Abide {
    let abide = Abide::with(RULES);
    std::fs::write(abide.path("abide/policy.toml"), ALWAYS).expect("a file");
    abide
}

fn commands(page: &Value) -> Vec<&str> {
    let entries = page["entries"].as_array().expect("entries").iter();
    entries
        .map(|entry| entry["command"].as_str().unwrap_or_default())
        .collect()
}

#[test]
fn rules_have_their_source_and_reason_and_those_of_always_can_be_removed() {
    let abide = configured();
    let policy = abide.good("GET /v1/policy", PERSON, &Value::Null);
    let rules = policy["rules"].as_array().expect("rules");
    let rule = |name: &str| {
        let rule = rules.iter().find(|rule| rule["name"] == name);
        rule.unwrap_or_else(|| panic!("{name}: {policy}"))
    };
    assert_eq!(rule("force-push")["source"], "built-in");
    assert_eq!(rule("no")["source"], "configuration");
    assert_eq!(rule("no")["why"], "a rule for this test");
    assert_eq!(rule("always-1")["source"], "always");
    let removed = abide.good("POST /v1/policy/rules/always-1/remove", PERSON, &json!({}));
    assert_eq!(removed, json!({"removed": "always-1"}));
    for (name, status) in [("always-1", 404), ("no", 404), ("force-push", 404)] {
        let line = format!("POST /v1/policy/rules/{name}/remove");
        assert_eq!(abide.ask(&line, PERSON, &json!({})).0, status, "{name}");
    }
    let audit = abide.good("GET /v1/audit", PERSON, &Value::Null);
    assert_eq!(audit["entries"][0]["event"], "removed", "{audit}");
    assert_eq!(audit["entries"][0]["rule"], "always-1", "{audit}");
    std::fs::write(abide.path("abide/config.toml"), "[policy").expect("a file");
    let broken = abide.good("GET /v1/policy", PERSON, &Value::Null);
    assert!(broken["error"].as_str().is_some(), "{broken}");
}

#[test]
fn invisible_characters_of_rules_are_shown() {
    let rules = RULES.replace("a rule for", "a\u{202e}\u{9b}2J rule for");
    let abide = Abide::with(&rules);
    for arguments in [&["policy", "list"][..], &["policy", "test", "true denied"]] {
        let output = abide.output(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("a\\u{202e}\\u{9b}2J rule for"), "{text}");
        let is_raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(is_raw), "{text:?}");
    }
}

#[test]
fn command_line_is_judged_and_not_run() {
    let abide = configured();
    let made = abide.path("made");
    let command = format!("touch {}; true denied", made.display());
    let body = json!({"command": command, "cwd": "/"});
    let tested = abide.good("POST /v1/policy/test", PERSON, &body);
    assert_eq!(tested["decision"], "deny", "{tested}");
    assert_eq!(tested["rule"], "no", "{tested}");
    assert_eq!(
        tested["parts"].as_array().map(Vec::len),
        Some(2),
        "{tested}"
    );
    assert!(!made.exists());
    let relative = json!({"command": "ls", "cwd": "x"});
    assert_eq!(abide.ask("POST /v1/policy/test", PERSON, &relative).0, 400);
    // A test is not recorded as a decision.
    let audit = abide.good("GET /v1/audit", PERSON, &Value::Null);
    assert_eq!(audit["entries"], json!([]));
}

#[test]
fn run_of_an_agent_is_judged_by_the_words_that_are_executed() {
    let abide = configured();
    for (words, status) in [(["true", "denied"], 403), (["true", "plain"], 200)] {
        let run = json!({
            "command": "true plain", "argv": words, "cwd": "/", "env": [["PATH", "/usr/bin:/bin"]], "key": words[1],
        });
        let stream = abide.open("POST /v1/runs", "", &run.to_string());
        assert_eq!(stream.status, status, "{words:?}");
        stream.rest();
    }
    let audit = abide.good("GET /v1/audit", PERSON, &Value::Null);
    assert_eq!(commands(&audit), ["true plain", "true denied"]);
}

#[test]
fn command_of_an_agent_sees_decisions_about_that_agent_and_removes_no_rule() {
    let abide = configured();
    let shell = |agent: &str, command: &str| {
        let headers = format!("abide-agent: {agent}\r\n");
        let command = json!({"command": command});
        let result = abide.good("POST /v1/tools/shell", &headers, &command);
        result["text"].to_string()
    };
    shell("bob", "true secret plan");
    let seen = shell("ann", "\"$ABIDE\" audit; \"$ABIDE\" policy replay");
    assert!(seen.contains(" ann: "), "{seen}");
    assert!(!seen.contains("secret plan"), "{seen}");
    assert!(seen.contains("1 recorded commands"), "{seen}");
    let removed = shell("ann", "\"$ABIDE\" policy remove always-1");
    assert!(removed.contains("only a person can"), "{removed}");
    let policy = abide.good("GET /v1/policy", PERSON, &Value::Null);
    assert!(policy.to_string().contains("always-1"), "{policy}");
}

#[test]
fn decisions_are_paged_filtered_and_verified() {
    let abide = configured();
    for word in ["one", "two", "three"] {
        abide.ask(
            "POST /v1/tools/shell",
            "",
            &json!({"command": format!("true denied {word}")}),
        );
    }
    abide.shell("true allowed");
    abide.shell("true unruled");
    let all = abide.good("GET /v1/audit", PERSON, &Value::Null);
    assert_eq!(commands(&all)[..2], ["true unruled", "true allowed"]);
    let unruled = &all["entries"][0];
    assert_eq!(
        (&unruled["event"], &unruled["rule"], &unruled["why"]),
        (&json!("allow"), &Value::Null, &Value::Null)
    );
    let ruled = abide.good("GET /v1/audit?ruled=true", PERSON, &Value::Null);
    assert_eq!(commands(&ruled)[..2], ["true allowed", "true denied three"]);
    let lines = |args: &[&str]| {
        String::from_utf8_lossy(&abide.output(args).stdout)
            .lines()
            .count()
    };
    assert_eq!(lines(&["audit"]), 5);
    assert_eq!(lines(&["audit", "--ruled", "--json"]), 4);
    let first = abide.good("GET /v1/audit?limit=2&event=deny", PERSON, &Value::Null);
    assert_eq!(commands(&first), ["true denied three", "true denied two"]);
    let next = first["next"].as_str().expect("another page");
    let line = format!("GET /v1/audit?limit=2&event=deny&after={next}");
    let second = abide.good(&line, PERSON, &Value::Null);
    assert_eq!(commands(&second), ["true denied one"]);
    assert_eq!(second["next"], Value::Null);
    let found = abide.good("GET /v1/audit?q=TWO", PERSON, &Value::Null);
    assert_eq!(commands(&found), ["true denied two"]);
    assert_eq!(
        abide.ask("GET /v1/audit?after=x", PERSON, &Value::Null).0,
        400
    );
    let verified = abide.good("GET /v1/audit/verify", PERSON, &Value::Null);
    assert_eq!(verified["intact"], true, "{verified}");
    assert_eq!(verified["lines"], 5, "{verified}");
    assert_eq!(abide.json(["audit", "--verify", "--json"]), verified);
    let folder = abide.path("abide/audit");
    let file = std::fs::read_dir(&folder)
        .expect("a folder")
        .flatten()
        .next();
    let file = file.expect("a file").path();
    let text = std::fs::read_to_string(&file).expect("a file");
    std::fs::write(&file, text.replace("denied two", "allowed")).expect("a file");
    let verified = abide.good("GET /v1/audit/verify", PERSON, &Value::Null);
    assert_eq!(verified["intact"], false, "{verified}");
    let output = abide.output(["audit", "--verify"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("line 3: it does not follow"), "{said}");
}

#[test]
fn refusals_of_sandboxes_are_listed_newest_first() {
    let abide = configured();
    let work = abide.path("work");
    std::fs::create_dir(&work).expect("a folder");
    for name in ["one", "two"] {
        let script = format!("mkdir /usr/{name}");
        let cwd = work.to_str().expect("a path");
        abide.output([
            "run",
            "--sandbox",
            "workspace-write",
            "--cwd",
            cwd,
            "--",
            "sh",
            "-c",
            &script,
        ]);
    }
    let page = abide.good("GET /v1/refusals?limit=1", PERSON, &Value::Null);
    let refused = &page["sessions"][0];
    assert_eq!(
        refused["refused"],
        json!([{"kind": "write", "what": "/usr/two"}]),
        "{page}"
    );
    assert_eq!(refused["mode"], "workspace-write", "{page}");
    assert_eq!(refused["count"], 1, "{page}");
    let next = page["next"].as_str().expect("another page");
    let line = format!("GET /v1/refusals?limit=1&after={next}");
    let page = abide.good(&line, PERSON, &Value::Null);
    assert_eq!(
        page["sessions"][0]["refused"][0]["what"], "/usr/one",
        "{page}"
    );
    assert_eq!(page["next"], Value::Null);
}

#[test]
fn p173_agent_and_command_see_no_rules_and_remove_none() {
    let abide = configured();
    for line in [
        "GET /v1/policy",
        "POST /v1/policy/test",
        "POST /v1/policy/rules/always-1/remove",
        "GET /v1/audit",
        "GET /v1/audit/verify",
        "GET /v1/refusals",
    ] {
        let (status, answer) = abide.ask(line, "", &json!({"command": "ls"}));
        assert_eq!(status, 403, "{line}: {answer}");
    }
    let (address, token) = (abide.address(), abide.token());
    let port = address.port();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'POST /v1/policy/rules/always-1/remove HTTP/1.0\\r\\nhost: \
         {address}\\r\\nauthorization: Bearer {token}\\r\\nabide-person: true\\r\\ncontent-length: 0\\r\\n\\r\\n' >&3; cat <&3"
    );
    let path = abide.path("speak");
    std::fs::write(&path, script).expect("a file");
    let result = abide.shell(&format!("bash {}", path.display()));
    let text = result["text"].as_str().unwrap_or_default();
    assert!(text.contains("403 Forbidden"), "{result}");
    let text = std::fs::read_to_string(abide.path("abide/policy.toml")).expect("a file");
    assert!(text.contains("always-1"), "{text}");
}

#[test]
fn held_command_is_withdrawn_by_a_kill() {
    let abide =
        Abide::with("[[policy.rule]]\nrun = [\"touch\"]\ndo = \"ask\"\nwhy = \"makes a file\"\n");
    let held = || {
        let shell = json!({"command": "touch made"});
        let held = abide.good("POST /v1/tools/shell", "", &shell);
        assert_eq!(held["status"], "held", "{held}");
        let id = held["session_id"].as_str().expect("an id").to_owned();
        (id, held["question_id"].clone())
    };
    let open = || abide.good("GET /v1/questions", PERSON, &Value::Null)["total"].clone();
    // As an agent, as a person, and with `abide kill`.
    for headers in ["", PERSON] {
        let (id, question) = held();
        let other = "abide-agent: other\r\n";
        let line = format!("POST /v1/sessions/{id}/kill");
        assert_eq!(abide.ask(&line, other, &json!({})).0, 404);
        assert_eq!(open(), 1);
        let killed = abide.good(&line, headers, &json!({}));
        assert_eq!(killed["status"], "withdrawn", "{killed}");
        assert_eq!(killed["question_id"], question, "{killed}");
        assert_eq!(open(), 0);
        assert_eq!(abide.ask(&line, headers, &json!({})).0, 404);
        // The agent knows what it has withdrawn itself.
        let messages = abide.good("POST /v1/tools/read_messages", "", &json!({}));
        let text = messages["text"].to_string();
        let told = format!("Question '{}'", question.as_str().expect("an id"));
        assert_eq!(text.contains(&told), headers == PERSON, "{text}");
    }
    let (id, _) = held();
    let killed = abide.output(["kill", &id]);
    let said = String::from_utf8_lossy(&killed.stdout).into_owned();
    assert!(
        said.contains("is withdrawn. Nothing was run."),
        "{killed:?}"
    );
    assert_eq!(open(), 0);
}
