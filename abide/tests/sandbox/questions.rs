//! Attacks 180 to 192 that go through a question, and what terminals are told of refusals.

use serde_json::{Value, json};

use crate::agents::{call, text};
use crate::harness::{User, as_each_user};

const SANDBOXED: &str = "[sandbox]\nmode = \"workspace-write\"\n[[policy.rule]]\nrun = [\"touch\"]\ndo = \"ask\"\nwhy = \"makes a file\"\n";

fn id(result: &Value, name: &str) -> String {
    let id = result["result"][name].as_str();
    id.unwrap_or_else(|| panic!("{name}: {result}")).to_owned()
}

fn yes(user: &User, held: &Value) {
    let answered = user.abide(&["answer", &id(held, "question_id"), "yes"]);
    assert_eq!(answered.code, 0, "{answered:?}");
}

#[test]
fn p180_yes_starts_nothing_where_the_mechanism_is_gone() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        let program = user.path("abide-program");
        let program = program.display();
        // A user namespace of its own, in which the limit can be changed while the daemon runs.
        let script = format!(
            r#"
call() {{ printf '<tool name="shell">%s</tool>' "$1" | {program} call --agent codex --json; }}
field() {{ python3 -c 'import json, sys; print(json.load(sys.stdin)["result"][sys.argv[1]])' "$1"; }}
call '<command>true</command>' | grep -q namespaces || exit 3
held=$(call '<command>touch made</command>')
echo 0 > /proc/sys/user/max_net_namespaces
{program} answer $(field question_id <<< "$held") yes
call "<session_id>$(field session_id <<< "$held")</session_id>"
"#
        );
        let ran = user.in_user_namespace(&script);
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert!(
            said.contains("cannot be enforced here: make namespaces"),
            "180: {said}"
        );
        assert!(said.contains("FATAL_ERROR"), "180: {said}");
        assert!(!user.exists("work/made"), "180");
    });
}

#[test]
fn p182_once_is_used_once() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        let wanted = json!({"command": "touch made; echo ran >> runs"});
        let held = call(user, "shell", &wanted);
        yes(user, &held);
        let ended = call(
            user,
            "shell",
            &json!({"session_id": id(&held, "session_id")}),
        );
        assert_eq!(ended["result"]["status"], "SUCCESS", "182: {ended}");
        let late = user.abide(&["answer", &id(&held, "question_id"), "yes"]);
        assert!(late.code != 0, "177: {late:?}");
        let again = call(user, "shell", &wanted);
        assert_eq!(again["result"]["status"], "held", "182: {again}");
        assert_eq!(user.read("work/runs"), "ran\n");
    });
}

#[test]
fn open_question_lists_its_answers_and_the_rule_that_always_adds() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        call(user, "shell", &json!({"command": "touch made"}));
        let listed = user.abide(&["answer"]).text;
        let answers = "answers: once, this agent, always here, always, no, or \"no, because …\"";
        assert!(listed.contains(answers), "{listed}");
        assert!(listed.contains("always adds:"), "{listed}");
        assert!(listed.contains("run = [\"touch\", \"made\"]"), "{listed}");
        call(user, "shell", &json!({"command": "sudo sh"}));
        let listed = user.abide(&["answer"]).text;
        assert!(listed.contains("answers: once, no, or"), "{listed}");
    });
}

#[test]
fn refused_command_is_told_once_in_a_result() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        let held = call(user, "shell", &json!({"command": "touch made"}));
        let question = id(&held, "question_id");
        let answered = user.abide(&["answer", &question, "no, because not here"]);
        assert_eq!(answered.code, 0, "{answered:?}");
        let session = id(&held, "session_id");
        let ended = call(user, "shell", &json!({"session_id": session}));
        let told = "REFUSED: a person said no: not here. Nothing was run.";
        assert_eq!(ended["result"]["text"], told, "{ended}");
    });
}

#[test]
fn secret_of_a_held_command_is_masked_in_every_line_of_the_audit_log() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        let env = json!({"MY_TOKEN": "horsebattery99"});
        let wanted = json!({"command": "touch horsebattery99", "env": env});
        let held = call(user, "shell", &wanted);
        let question = id(&held, "question_id");
        let answered = user.abide(&["answer", &question, "no"]);
        assert_eq!(answered.code, 0, "{answered:?}");
        let log = user.abide(&["audit", "--json"]).text;
        assert_eq!(
            log.matches("\"touch [masked:MY_TOKEN]\"").count(),
            3,
            "{log}"
        );
        assert!(!log.contains("horsebattery99"), "{log}");
    });
}

#[test]
fn p187_workspace_that_was_replaced_before_the_yes_runs_nothing() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        let held = call(user, "shell", &json!({"command": "touch made"}));
        user.outside("cd / && mv $ROOT/work $ROOT/moved && mkdir $ROOT/work");
        yes(user, &held);
        let ended = text(&call(
            user,
            "shell",
            &json!({"session_id": id(&held, "session_id")}),
        ));
        assert!(ended.contains("cannot be enforced here"), "187: {ended}");
        assert!(
            !user.exists("work/made") && !user.exists("moved/made"),
            "187"
        );
    });
}

#[test]
fn p188_too_many_protected_paths_are_refused_and_not_skipped() {
    as_each_user(|user| {
        user.outside("for i in $(seq 700); do mkdir -p r$i/.git && : > r$i/.git/config; done");
        let ran = user.run("touch made");
        assert!(
            ran.code != 0 && ran.text.contains("cannot be enforced here"),
            "188: {ran:?}"
        );
        assert!(!user.exists("work/made"), "188");
        user.outside("rm -r r?? r???");
        user.works("188", "touch made");
    });
}

#[test]
fn p192_results_of_all_tools_name_the_mechanism() {
    as_each_user(|user| {
        for (config, by) in [
            ("", "off"),
            ("[sandbox]\nmode = \"read-only\"\n", "namespaces"),
        ] {
            user.abide(&["stop"]);
            user.write("state/config.toml", config);
            let start = json!({"action": "start", "command": "cat"});
            let started = call(user, "terminal_session", &start);
            let session = id(&started, "session_id");
            let act = |action: &str| {
                let fields = json!({"action": action, "session_id": session});
                call(user, "terminal_session", &fields)
            };
            let all = [
                call(user, "shell", &json!({"command": "true"})),
                call(user, "execute_command", &json!({"command": "true"})),
                started.clone(),
                act("read_output"),
                act("screen"),
                act("kill"),
            ];
            for result in all {
                assert_eq!(result["result"]["sandboxed_by"], by, "192: {result}");
                assert!(result["result"]["sandbox_gaps"].is_array(), "192: {result}");
            }
        }
    });
}

#[test]
fn terminal_is_told_each_refusal_once() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        let start =
            json!({"action": "start", "command": "echo x > $ROOT/outside/first; exec bash --norc"});
        let started = call(user, "terminal_session", &start);
        let said = text(&started);
        assert!(said.contains("SANDBOX: 1 thing was refused"), "{said}");
        assert!(
            said.contains(&format!("write  {}", user.path("outside/first").display())),
            "{said}"
        );
        let session = id(&started, "session_id");
        let send = |line: &str| {
            let fields = json!({"action": "send_input", "session_id": session, "input": line, "keys": ["enter"]});
            text(&call(user, "terminal_session", &fields))
        };
        let said = send("echo quiet");
        assert!(!said.contains("SANDBOX:"), "{said}");
        let mut said = send("echo x > $ROOT/outside/second");
        let first = format!("write  {}", user.path("outside/first").display());
        assert!(!said.contains(&first), "{said}");
        let read = json!({
            "action": "read_output", "session_id": session, "until": "second: Read-only", "timeout_seconds": 60, "since": "0",
        });
        said.push_str(&text(&call(user, "terminal_session", &read)));
        assert_eq!(
            said.matches("SANDBOX: 1 thing was refused").count(),
            1,
            "{said}"
        );
        assert!(
            said.contains(&format!("write  {}", user.path("outside/second").display())),
            "{said}"
        );
        let killed = json!({"action": "kill", "session_id": session});
        call(user, "terminal_session", &killed);
    });
}

#[test]
fn p174_agent_cannot_answer_its_own_question() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        let held = call(user, "shell", &json!({"command": "touch made"}));
        let question = id(&held, "question_id");
        let answer = |header: &str| {
            user.outside(&format!(
                "curl -s --unix-socket $ROOT/state/run/http.sock -H 'content-type: application/json' -H '{header}' \
                 -d '{{\"answer\": \"yes\"}}' http://localhost/v1/questions/{question}/answer"
            ))
        };
        let said = answer("abide-agent: codex");
        assert!(said.contains("person"), "174: {said}");
        let open = user.abide(&["answer", "--json"]);
        assert!(open.text.contains(&question), "174: {open:?}");
        assert!(!user.exists("work/made"), "174");
        answer("abide-person: true");
        let ended = call(
            user,
            "shell",
            &json!({"session_id": id(&held, "session_id")}),
        );
        assert_eq!(ended["result"]["status"], "SUCCESS", "174: {ended}");
    });
}

/// A rule is about words: the guide says that it also holds for a script that has changed.
#[test]
fn p181_always_is_for_the_words_of_a_command() {
    as_each_user(|user| {
        let config = "[sandbox]\nmode = \"workspace-write\"\n[[policy.rule]]\nrun = [\"./tool\"]\ndo = \"ask\"\nwhy = \"runs a script\"\n";
        user.write("state/config.toml", config);
        user.write("work/tool", "#!/bin/sh\necho first\n");
        user.outside("chmod 755 tool");
        let held = call(user, "shell", &json!({"command": "./tool a"}));
        let answered = user.abide(&["answer", &id(&held, "question_id"), "always here"]);
        assert_eq!(answered.code, 0, "181: {answered:?}");
        // A file that is being executed cannot be written.
        call(
            user,
            "shell",
            &json!({"session_id": id(&held, "session_id")}),
        );
        user.write(
            "work/tool",
            "#!/bin/sh\necho second; echo x > $ROOT/outside/x\n",
        );
        let said = text(&call(user, "shell", &json!({"command": "./tool a"})));
        // No question, and the sandbox holds.
        assert!(
            said.contains("second") && said.contains("Read-only"),
            "181: {said}"
        );
        let said = text(&call(user, "shell", &json!({"command": "./tool b"})));
        assert!(
            said.contains("held") || said.contains("second"),
            "181: {said}"
        );
        assert!(!user.exists("outside/x"), "181");
    });
}
