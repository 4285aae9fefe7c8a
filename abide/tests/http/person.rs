//! Requests on behalf of a person over TCP. A command can read the token, but it cannot leave its session.

use std::thread::{JoinHandle, spawn};

use serde_json::{Value, json};

use crate::harness::{Abide, Answer};

const PERSON: &str = "abide-person: true\r\n";

/// Next event about a question.
fn next_question(watched: &mut Answer) -> Value {
    loop {
        let (_, name, question) = watched.next_event();
        if name == "question" {
            return question;
        }
    }
}

/// A command that was idle for a second: the stream of events, the question about the command, and the answer of
/// the call.
fn asked(abide: &Abide) -> (Answer, String, JoinHandle<Value>) {
    let mut watched = abide.open("GET /v1/events", PERSON, "");
    assert_eq!(watched.status, 200);
    let call = json!({"command": "sleep 1000", "timeout": 1}).to_string();
    let call = abide.send("POST /v1/tools/execute_command", "", &call);
    let answer = spawn(move || {
        let text = Answer::begin(call).rest();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    });
    let question = next_question(&mut watched);
    assert_eq!(question["state"], "open", "{question}");
    let id = question["question_id"].as_str().expect("its id").to_owned();
    (watched, id, answer)
}

#[test]
fn person_follows_questions_and_answers() {
    let abide = Abide::new();
    let (_watched, id, answer) = asked(&abide);
    let line = format!("POST /v1/questions/{id}/answer");
    let no = json!({"answer": "no"});
    let (status, refused) = abide.ask(&line, "", &no);
    assert_eq!(status, 403, "an agent cannot: {refused}");
    abide.good(&line, PERSON, &no);
    let answer = answer.join().expect("an answer");
    assert_eq!(answer["end"], "idle_declined", "{answer}");
}

#[test]
fn s14_command_cannot_act_as_a_person() {
    refused_from_inside(&Abide::new());
}

#[test]
fn detached_command_cannot_act_as_a_person() {
    refused_from_inside(&Abide::with("containment = \"subreaper\"\n"));
}

fn refused_from_inside(abide: &Abide) {
    let (_watched, id, answer) = asked(abide);
    let script = abide.path("speak");
    let (address, token) = (abide.address(), abide.token());
    let (port, body) = (address.port(), r#"{"answer":"no"}"#);
    let speak = |line: &str, body: &str| {
        let length = body.len();
        format!(
            "#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port}\nprintf '{line} HTTP/1.0\\r\\nhost: {address}\\r\\n\
             authorization: Bearer {token}\\r\\nabide-person: true\\r\\ncontent-type: application/json\\r\\n\
             content-length: {length}\\r\\n\\r\\n%s' '{body}' >&3\ncat <&3\n"
        )
    };
    let path = script.display();
    for (line, body) in [
        (format!("POST /v1/questions/{id}/answer"), body),
        ("POST /v1/stop".into(), ""),
        ("GET /v1/sessions".into(), ""),
    ] {
        std::fs::write(&script, speak(&line, body)).unwrap();
        for how in [
            format!("bash {path}"),
            format!("setsid --wait bash {path}"),
            format!("(setsid bash {path} & wait)"),
        ] {
            let result = abide.shell(&how);
            let text = result["text"].as_str().unwrap();
            assert!(text.contains("403 Forbidden"), "{how}: {text}");
        }
    }
    let open = abide.good("GET /v1/questions", PERSON, &Value::Null);
    assert_eq!(open["questions"][0]["question_id"], id.as_str(), "{open}");
    let line = format!("POST /v1/questions/{id}/answer");
    abide.good(&line, PERSON, &json!({"answer": "no"}));
    assert_eq!(answer.join().unwrap()["end"], "idle_declined");
}

#[test]
fn agent_follows_only_its_own_questions() {
    let abide = Abide::new();
    let mut spy = abide.open("GET /v1/events", "abide-agent: spy\r\n", "");
    assert_eq!(spy.status, 200);
    let (mut watched, other, answer) = asked(&abide);
    let yes_or_no = |id: &str| {
        abide.good(
            &format!("POST /v1/questions/{id}/answer"),
            PERSON,
            &json!({"answer": "no"}),
        )
    };
    yes_or_no(&other);
    answer.join().expect("an answer");
    let closed = next_question(&mut watched);
    assert_eq!(closed["question_id"], other.as_str(), "{closed}");
    let call = json!({"command": "sleep 1000", "timeout": 1}).to_string();
    let _call = abide.send(
        "POST /v1/tools/execute_command",
        "abide-agent: spy\r\n",
        &call,
    );
    let own = next_question(&mut spy);
    assert_eq!(
        (&own["state"], &own["agent"]),
        (&json!("open"), &json!("spy")),
        "{own}"
    );
    yes_or_no(own["question_id"].as_str().expect("its id"));
    let closed = next_question(&mut spy);
    assert_eq!(closed["question_id"], own["question_id"], "{closed}");
}

#[test]
fn session_of_a_person_in_a_sandbox_writes_only_to_the_folder_that_it_names() {
    let abide = Abide::new();
    let work = abide.path("work");
    std::fs::create_dir(&work).expect("a folder");
    let command = "echo inside > file; echo outside > ../file";
    let start = |sandbox: &str| {
        let body = json!({"command": command, "cwd": work, "pty": false, "sandbox": sandbox});
        let (_, run) = abide.ask("POST /v1/sessions", PERSON, &body);
        abide.ended(run["session_id"].as_str().expect("a session id"))
    };
    let exist = || [work.join("file"), abide.path("file")].map(|file| file.exists());
    assert_eq!(start("read-only")["sandboxed_by"], "namespaces");
    assert_eq!(exist(), [false, false]);
    assert_eq!(start("workspace-write")["sandboxed_by"], "namespaces");
    assert_eq!(exist(), [true, false]);
    // Without a sandbox.
    assert_eq!(start("")["sandboxed_by"], "off");
    assert_eq!(exist(), [true, true]);
}
