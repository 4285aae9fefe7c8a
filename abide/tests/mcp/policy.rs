//! Questions about commands, in both generations of the protocol, and after a crash of the daemon.

use serde_json::{Value, json};

use crate::harness::*;
use crate::idle::{answer, the_question};

const SANDBOX: &str = "[sandbox]\nmode = \"workspace-write\"\nnetwork = \"allowlist\"\n";
const RULES: &str = "[[policy.rule]]\nrun = [\"touch\"]\ndo = \"ask\"\nwhy = \"makes a file\"\n";

fn configured(home: Home) -> Home {
    configured_with(home, RULES)
}

fn configured_with(home: Home, settings: &str) -> Home {
    let path = home.path("abide/config.toml");
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(&path, settings).expect("a configuration");
    home
}

/// Answers the question of a call about the rule that makes a file. Returns the result of the call.
fn answered(client: &mut Client, era: Era, tool: &str, arguments: &Value, action: &str) -> Value {
    let (result, message) = answer_question(client, era, tool, arguments, action);
    let start = "Allow this command? makes a file (rule: touch …)";
    assert!(message.starts_with(start), "{message}");
    result
}

/// Answers the question of a call like a client of its generation. Returns the result of the call and the question.
fn answer_question(
    client: &mut Client,
    era: Era,
    tool: &str,
    arguments: &Value,
    action: &str,
) -> (Value, String) {
    let id = client.begin(tool, arguments.clone());
    let message = |params: &Value| params["message"].as_str().expect("a question").to_owned();
    match era {
        Era::Legacy => {
            let question = client.asked();
            client.reply(&question, action);
            (client.result(id), message(&question["params"]))
        }
        Era::Modern => {
            let asked = client.result(id);
            assert_eq!(asked["resultType"], "input_required", "{asked}");
            let requests = asked["inputRequests"].as_object().expect("questions");
            let (name, request) = requests.iter().next().expect("one");
            let params = json!({
                "name": tool,
                "arguments": arguments,
                "inputResponses": {name: {"action": action}},
                "requestState": asked["requestState"],
            });
            let id = client.request("tools/call", params);
            (client.result(id), message(&request["params"]))
        }
    }
}

#[test]
fn client_asks_its_person_before_the_command_runs() {
    for era in ERAS {
        let home = configured(Home::new());
        let mut client = Client::start(&home, setup(era));
        let command = json!({"command": "touch made && echo ran >> runs"});
        let refused = answered(&mut client, era, "shell", &command, "decline");
        assert!(is_error(&refused), "{refused}");
        assert_eq!(
            text(&refused),
            "REFUSED: a person said no. Nothing was run."
        );
        assert_eq!(home.lines("runs"), 0);
        let done = answered(&mut client, era, "shell", &command, "accept");
        assert!(text(&done).contains("STATUS: SUCCESS"), "{done}");
        assert_eq!(home.lines("runs"), 1);
        let start =
            json!({"action": "start", "command": "touch made; echo ran >> runs; echo there"});
        let started = answered(&mut client, era, "terminal_session", &start, "accept");
        assert!(text(&started).contains("there"), "{started}");
        assert_eq!(home.lines("runs"), 2);
    }
}

#[test]
fn client_that_reaches_nobody_gets_the_held_command() {
    for era in ERAS {
        let home = configured(Home::new());
        // The call waits for a person until shortly before the client's limit.
        let mut client = Client::start(&home, setup_in(era, &[("ABIDE_CALL_LIMIT", "12")]));
        let command = json!({"command": "touch made"});
        let held = answered(&mut client, era, "shell", &command, "cancel");
        assert!(!is_error(&held), "{held}");
        assert_eq!(held["structuredContent"]["status"], "held", "{held}");
        assert!(text(&held).contains("has not answered yet"), "{held}");
    }
}

#[test]
fn d174_client_that_accepts_by_itself_is_not_asked_where_a_rule_wants_a_person() {
    for era in ERAS {
        let home = configured_with(Home::new(), &format!("{RULES}by = \"person\"\n"));
        let mut client = Client::start(&home, setup(era));
        held(&mut client);
        assert_eq!(home.lines("runs"), 0);
    }
}

#[test]
fn client_asks_its_person_about_connections_one_after_the_other() {
    let command = "curl -s http://one.test/ & curl -s http://two.test/ & wait; echo over";
    for (era, tool) in ERAS
        .into_iter()
        .flat_map(|era| [(era, "shell"), (era, "execute_command")])
    {
        let home = configured_with(Home::with_workspace(), SANDBOX);
        let mut client = Client::start(&home, setup(era));
        let arguments = json!({"command": command});
        let mut id = client.begin(tool, arguments.clone());
        let mut messages = Vec::new();
        let result = loop {
            if era == Era::Legacy && messages.len() < 2 {
                let question = client.asked();
                messages.push(question["params"]["message"].to_string());
                client.reply(&question, "decline");
                continue;
            }
            let result = client.result(id);
            if result["resultType"] != "input_required" {
                break result;
            }
            let requests = result["inputRequests"].as_object().expect("questions");
            let (name, request) = requests.iter().next().expect("one");
            messages.push(request.to_string());
            let params = json!({
                "name": tool,
                "arguments": arguments,
                "inputResponses": {name: {"action": "decline"}},
                "requestState": result["requestState"],
            });
            id = client.request("tools/call", params);
        };
        assert!(text(&result).contains("over"), "{result}");
        assert_eq!(messages.len(), 2, "{messages:?}");
        for host in ["one.test", "two.test"] {
            let asked = format!("Allow this command to connect to {host} (port 80)?");
            assert!(
                messages.iter().any(|message| message.contains(&asked)),
                "{messages:?}"
            );
            let told = format!("name   {host}:80  the question was answered \"no\"");
            assert!(text(&result).contains(&told), "{result}");
        }
    }
}

#[test]
fn answer_in_a_form_of_codex_counts_only_for_the_question_in_it() {
    let home = configured(Home::new());
    let codex = Setup {
        name: "codex-mcp-client",
        ..LEGACY
    };
    let mut client = Client::start(&home, codex);
    let fifo = Fifo::new(&home, "fifo");
    let command = format!("touch made; echo $$ > {}; exec sleep 1000", fifo.path());
    let arguments = json!({"command": command, "timeout": 0.3});
    let id = client.begin("execute_command", arguments);
    let about_command = client.asked();
    answer(&home, &the_question(&home), "once");
    let process = fifo.read_process();
    // Codex still shows the form about the start when the command is idle.
    let idle = the_question(&home);
    client.call("shell", json!({"command": "sleep 0.5"}));
    client.reply(&about_command, "accept");
    let about_idle = client.asked();
    let open = the_question(&home);
    assert_eq!(open["question_id"], idle["question_id"], "nobody read it");
    let message = about_idle["params"]["message"].as_str();
    assert!(
        message.is_some_and(|message| !message.starts_with("Allow this command?")),
        "{about_idle}"
    );
    client.call("shell", json!({"command": "sleep 0.5"}));
    client.reply(&about_idle, "decline");
    assert!(text(&client.result(id)).starts_with("command execution timeout: no output for 300ms"));
    process.wait_gone();
}

/// Starts a held command. Returns its question and session.
fn held(client: &mut Client) -> (String, String) {
    let held = client.call("shell", json!({"command": "touch made; echo ran >> runs"}));
    let fields = &held["structuredContent"];
    assert_eq!(fields["status"], "held", "{held}");
    let field = |name: &str| fields[name].as_str().expect("an id").to_owned();
    (field("question_id"), field("session_id"))
}

const NO_PERSON: Setup = Setup {
    asks: false,
    ..LEGACY
};

#[test]
fn d177_answer_after_a_crash_of_the_daemon_applies_once() {
    let home = configured(Home::new());
    let mut client = Client::start(&home, NO_PERSON);
    let (question, session) = held(&mut client);
    home.kill_daemon();
    let answer = || {
        home.command(["answer", &question, "once"])
            .output()
            .expect("abide answer")
    };
    let first = answer();
    assert!(first.status.success(), "{first:?}");
    let done = client.call("shell", json!({"session_id": session}));
    assert!(text(&done).contains("STATUS: SUCCESS"), "{done}");
    assert_eq!(home.lines("runs"), 1);
    let second = answer();
    assert!(!second.status.success(), "{second:?}");
    assert_eq!(home.lines("runs"), 1);
}

#[test]
fn command_approved_just_before_a_crash_is_started_once() {
    let home = configured(Home::dying("held.approve.post"));
    let mut client = Client::start(&home, NO_PERSON);
    let (question, session) = held(&mut client);
    let answered = home
        .command(["answer", &question, "once"])
        .output()
        .expect("abide answer");
    assert!(answered.status.success(), "{answered:?}");
    let done = client.call("shell", json!({"session_id": session}));
    assert!(text(&done).contains("STATUS: SUCCESS"), "{done}");
    assert_eq!(home.lines("runs"), 1);
}

#[test]
fn replayed_call_that_joined_a_question_gets_its_session_after_a_crash() {
    let home = configured(Home::new());
    let mut client = Client::start(&home, NO_PERSON);
    let mut start = |key: &str| {
        let command = "touch made; echo ran >> runs; cat";
        let start = json!({"action": "start", "command": command, "idempotency_key": key});
        client.call("terminal_session", start)["structuredContent"].clone()
    };
    let (first, joined) = (start("a"), start("b"));
    assert_eq!(joined["status"], "held", "{joined}");
    assert_eq!(joined["question_id"], first["question_id"]);
    let question = first["question_id"].as_str().expect("an id");
    let answered = home.command(["answer", question, "once"]).output();
    assert!(answered.expect("abide answer").status.success());
    assert_eq!(start("a")["session_id"], first["session_id"]);
    home.kill_daemon();
    assert_eq!(start("b")["session_id"], first["session_id"]);
    assert_eq!(home.lines("runs"), 1);
}

const REFUSED: &str = "[[policy.rule]]\nrun = [\"cat\"]\ndo = \"deny\"\nwhy = \"no\"\n";

#[test]
fn replayed_call_gets_its_command_though_a_rule_refuses_it_by_now() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let (fifo, go) = (Fifo::new(&home, "fifo"), Fifo::new(&home, "go"));
    let (on, wait) = (fifo.path(), go.path());
    let command = format!("echo ran >> runs; echo on > {on}; cat {wait}; echo over");
    let id = client.begin("shell", json!({"command": command}));
    fifo.read();
    let home = configured_with(home, REFUSED);
    home.kill_daemon();
    let mut other = Client::start(&home, LEGACY);
    let refused = other.call("shell", json!({"command": "cat"}));
    assert!(text(&refused).starts_with("REFUSED"), "{refused}");
    std::fs::write(home.path("go"), "").expect("the command reads");
    let result = client.result(id);
    assert!(text(&result).contains("STDOUT:\nover\n"), "{result}");
    assert_eq!(home.lines("runs"), 1);
}

#[test]
fn start_with_a_used_key_gets_its_session_though_a_rule_refuses_it_by_now() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let command = "echo ran >> runs; echo there; cat";
    let start = json!({"action": "start", "command": command, "idempotency_key": "k"});
    let first = client.call("terminal_session", start.clone());
    let home = configured_with(home, REFUSED);
    home.kill_daemon();
    let second = client.call("terminal_session", start);
    assert!(!is_error(&second), "{second}");
    let session = |result: &Value| result["structuredContent"]["session_id"].clone();
    assert_eq!(session(&first), session(&second));
    assert_eq!(home.lines("runs"), 1);
}

const WITHOUT_NETWORK: &str = "[sandbox]\nmode = \"workspace-write\"\n";
const ONLY_LANDLOCK: &[(&str, &str)] = &[("ABIDE_OFF", "namespaces,bubblewrap")];

#[test]
fn person_is_asked_before_a_weaker_sandbox_than_the_settings_want() {
    for (era, tool) in ERAS
        .into_iter()
        .flat_map(|era| [(era, "shell"), (era, "terminal_session")])
    {
        let home = configured_with(Home::with_workspace(), WITHOUT_NETWORK);
        let mut client = Client::start(&home, setup_in(era, ONLY_LANDLOCK));
        let mut arguments = json!({"command": "touch made; echo there"});
        if tool == "terminal_session" {
            arguments["action"] = "start".into();
        }
        let (refused, question) = answer_question(&mut client, era, tool, &arguments, "decline");
        assert!(question.contains("cannot be enforced here"), "{question}");
        assert!(question.contains("`landlock`"), "{question}");
        assert_eq!(
            refused["structuredContent"]["status"], "refused",
            "{refused}"
        );
        let (done, _) = answer_question(&mut client, era, tool, &arguments, "accept");
        assert!(text(&done).contains("there"), "{done}");
        assert_eq!(
            done["structuredContent"]["sandboxed_by"], "landlock",
            "{done}"
        );
        let (_, again) = answer_question(&mut client, era, tool, &arguments, "decline");
        assert!(!again.is_empty(), "a yes in a client is for one command");
    }
}

#[test]
fn weaker_sandbox_that_is_accepted_for_longer_is_not_asked_about_again() {
    for choice in ["this agent", "always here"] {
        let home = configured_with(Home::with_workspace(), WITHOUT_NETWORK);
        let mut client = Client::start(&home, setup_in(Era::Legacy, ONLY_LANDLOCK));
        let id = client.begin("shell", json!({"command": "echo first"}));
        client.asked();
        answer(&home, &the_question(&home), choice);
        let first = client.result(id);
        assert!(text(&first).contains("first"), "{first}");
        let second = client.call("shell", json!({"command": "echo second"}));
        assert!(text(&second).contains("second"), "{second}");
        assert_eq!(second["structuredContent"]["sandboxed_by"], "landlock");
        let listed = home
            .command(["policy", "list"])
            .output()
            .expect("abide policy");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert_eq!(
            listed.contains("allow sandboxes by landlock in "),
            choice == "always here",
            "{listed}"
        );
    }
}

#[test]
fn sandbox_that_cannot_be_enforced_is_refused_where_nobody_can_be_asked() {
    let home = configured_with(Home::with_workspace(), WITHOUT_NETWORK);
    let mut client = Client::start(
        &home,
        Setup {
            env: ONLY_LANDLOCK,
            ..NO_PERSON
        },
    );
    let result = client.call("shell", json!({"command": "touch made"}));
    assert!(text(&result).contains("STATUS: FATAL_ERROR"), "{result}");
    assert_eq!(result["structuredContent"]["return_code"], -2, "{result}");
    assert!(text(&result).contains("Nothing was run"), "{result}");
    assert!(text(&result).contains("abide doctor"), "{result}");
}
