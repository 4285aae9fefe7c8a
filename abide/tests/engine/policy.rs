//! Policy: commands of agents are refused, asked about or held before they are started.

use std::future::{Future, poll_fn};
use std::task::Poll;

use abide::client::Client;
use abide::http;
use abide::tools::{self, ToolStep};
use abide_api::AuditLine;
use abide_core::policy::Choice;
use abide_core::request::Caller;
use abide_core::{Answer, Asking, Outcome, QuestionId, Request, Wall};
use abide_engine::CallUpdate;
use abide_engine::config::Paths;
use serde_json::{Value, json};

use crate::{Engine, with_engine};

const RULES: &str = "\
[[policy.rule]]
run = [\"touch\"]
do = \"ask\"
why = \"makes a file\"

[[policy.rule]]
run = [\"mkfs\"]
do = \"deny\"
why = \"destroys a disk\"
instead = \"ask a person\"
";

fn configure(engine: &Engine, text: &str) {
    let path = engine.path("abide/config.toml");
    abide_session::private_file::write(&path, text).expect("a configuration");
}

async fn answer(engine: &Engine, question: QuestionId, answer: Answer) -> Outcome {
    let request = Request::Answer {
        question,
        answer,
        quiet_for: None,
        because: Some("not today".into()),
        key: None,
    };
    let pending = engine.handle.call(Caller::PERSON, request, None).await;
    pending.done().await.expect("the engine runs")
}

pub fn person(engine: &Engine) -> Client {
    let daemon = http::Daemon {
        started_at: Wall(0),
        paths: Paths::under(&engine.path("abide")),
        tcp: http::Tcp::Off,
    };
    let routes = http::router(http::State::new(engine.handle.clone(), daemon));
    Client::in_process(routes, None).of_person()
}

/// Calls a tool of a client that can ask its person. Returns the question and the call that waits.
async fn asked(engine: &Engine, tool: &str, arguments: Value) -> (QuestionId, tools::ToolCall) {
    let context = tools::Context {
        asking: Asking::Here,
        ..engine.context()
    };
    let call = engine.try_begin(tool, arguments, context).await;
    let mut call = call.expect("the arguments are right");
    match call.next().await {
        Some(ToolStep::Update(CallUpdate::Asked(question))) => (question.id, call),
        Some(ToolStep::Done(result)) => panic!("not asked: {}", result.text),
        _ => panic!("not asked"),
    }
}

#[test]
fn denied_command_is_refused_with_the_reason() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        for (tool, arguments) in [
            ("shell", json!({"command": "true; mkfs x"})),
            ("execute_command", json!({"command": "mkfs x"})),
            ("shell", json!({"command": "sh", "stdin": "mkfs x"})),
            (
                "shell",
                json!({"command": "git log", "env": {"GIT_PAGER": "mkfs x"}}),
            ),
            (
                "terminal_session",
                json!({"action": "start", "command": "mkfs x"}),
            ),
        ] {
            let refused = engine.call(tool, arguments).await;
            assert_eq!(
                refused.text,
                "REFUSED: destroys a disk (rule: mkfs …). Nothing was run. Instead: ask a person"
            );
            assert!(refused.is_error());
            let fields = refused.to_fields();
            assert_eq!(fields["status"], "refused");
            assert_eq!(fields["sandboxed_by"], Value::Null);
            assert_eq!(fields["sandbox_gaps"], json!([]));
        }
        assert!(engine.handle.published().sessions().is_empty());
        let until = json!({"command": "mkfs x"});
        let timer = json!({"total_duration": 5, "reason": "x", "until": until});
        let refused = engine.refused("timer", timer).await;
        assert!(refused.starts_with("REFUSED: destroys a disk"), "{refused}");
        let decided = engine.handle.audit().read(0, 100);
        assert_eq!(decided.len(), 6);
        assert!(
            decided
                .iter()
                .all(|entry| entry.event == "deny" && entry.rule.as_deref() == Some("rule-2"))
        );
    });
}

#[test]
fn command_that_no_rule_is_about_has_a_line_and_one_of_a_person_has_none() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let command = "echo hi | cat; grep -q '\"event\":\"allow\"' \"$ABIDE_TEST_LOG\"/*.jsonl";
        let env = json!({"ABIDE_TEST_LOG": engine.path("abide/audit")});
        let done = engine
            .call("shell", json!({"command": command, "env": env}))
            .await;
        // The line is there before the command.
        assert_eq!(done.to_fields()["status"], "SUCCESS", "{}", done.text);
        let long = format!("true {}", "x".repeat(2_000));
        engine.call("shell", json!({"command": long})).await;
        let person = tools::Context {
            is_person: true,
            ..engine.context()
        };
        let arguments = json!({"command": format!("touch {}", engine.path("made").display())});
        let done = engine.call_as(person, "shell", arguments).await;
        assert_eq!(done.to_fields()["status"], "SUCCESS");
        let decided = engine.handle.audit().read(0, 100);
        assert_eq!(decided.len(), 2, "{decided:?}");
        assert!(decided.iter().all(AuditLine::is_unruled), "{decided:?}");
        assert_eq!(decided[0].command, command);
        assert!(decided[1].command.ends_with("x… (1005 more characters)"));
    });
}

#[test]
fn broken_policy_refuses_commands_of_agents() {
    with_engine(|engine| async move {
        configure(&engine, "[policy]\nmode = 1\n");
        let refused = engine.call("shell", json!({"command": "true"})).await;
        assert!(
            refused
                .text
                .starts_with("REFUSED: the policy cannot be used: "),
            "{}",
            refused.text
        );
        assert!(
            refused.text.contains("unknown field `mode`"),
            "{}",
            refused.text
        );
        configure(&engine, RULES);
        let done = engine.call("shell", json!({"command": "true"})).await;
        assert_eq!(done.to_fields()["status"], "SUCCESS");
    });
}

#[test]
fn command_runs_in_the_same_call_after_a_yes() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let made = engine.path("made");
        let command = format!("touch {} && echo done", made.display());
        for (tool, arguments, shown) in [
            ("shell", json!({"command": command}), "STDOUT:\ndone"),
            (
                "execute_command",
                json!({"command": command}),
                "done\n[exited with code 0",
            ),
            (
                "terminal_session",
                json!({"action": "start", "command": command}),
                "done",
            ),
        ] {
            let (question, mut call) = asked(&engine, tool, arguments).await;
            assert!(!made.exists(), "{tool} ran before the answer");
            assert_eq!(answer(&engine, question, Answer::Yes).await, Outcome::Done);
            let result = call.to_result().await.expect("a result");
            assert!(result.text.contains(shown), "{tool}: {}", result.text);
            assert!(made.exists(), "{tool}");
            std::fs::remove_file(&made).expect("a file");
        }
    });
}

#[test]
fn rule_of_always_is_written_though_the_person_has_gone() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let arguments = json!({"command": format!("touch {}", engine.path("made").display())});
        let (question, mut call) = asked(&engine, "shell", arguments).await;
        let person = person(&engine);
        let id = question.to_string();
        let mut answered = Box::pin(person.answer(&id, "always"));
        // The first poll gives the answer to a task of the daemon, which runs only when this test waits.
        let polled = poll_fn(|context| Poll::Ready(answered.as_mut().poll(context)));
        assert!(polled.await.is_pending());
        drop(answered);
        let result = call.to_result().await.expect("a result");
        assert_eq!(result.to_fields()["status"], "SUCCESS", "{}", result.text);
        let rules = std::fs::read_to_string(engine.handle.policy().remembered_file());
        assert!(rules.is_ok_and(|rules| rules.contains("touch")));
    });
}

#[test]
fn allowed_command_that_is_refused_by_now_is_not_started() {
    let denied = RULES.replace("ask\"\nwhy", "deny\"\nwhy");
    let sandboxed = format!("{RULES}[sandbox]\nmode = \"workspace-write\"\n");
    for (settings, why) in [
        ("[policy]\nmode = 1\n", "the policy cannot be used: "),
        ("idle_keepers = -1\n", "the configuration cannot be used: "),
        (&denied, "makes a file (rule: touch …)"),
        (
            &sandboxed,
            "the sandbox of this agent, `workspace-write`, permits less",
        ),
    ] {
        let (settings, why) = (settings.to_owned(), why.to_owned());
        with_engine(|engine| async move {
            configure(&engine, RULES);
            let made = engine.path("made");
            let arguments = json!({"command": format!("touch {}", made.display())});
            let (question, mut call) = asked(&engine, "shell", arguments).await;
            configure(&engine, &settings);
            let answered = person(&engine)
                .answer(&question.to_string(), "always")
                .await;
            let told = answered.expect_err("the command is refused").to_string();
            let sentence = format!("The command was not started: {why}");
            assert!(told.contains(&sentence), "{told}");
            let result = call.to_result().await.expect("a result");
            let refused = format!("REFUSED: {why}");
            assert!(result.text.starts_with(&refused), "{}", result.text);
            assert!(
                result.text.ends_with(". Nothing was run."),
                "{}",
                result.text
            );
            assert_eq!(result.to_fields()["status"], "refused");
            assert!(!made.exists() && !engine.handle.policy().remembered_file().exists());
            let decided = engine.handle.audit().read(0, 100);
            let events: Vec<&str> = decided.iter().map(|line| line.event.as_str()).collect();
            assert_eq!(events[..2], ["ask", "answered"], "{decided:?}");
            assert!(["deny", "broken"].contains(&events[2]), "{decided:?}");
        });
    }
}

#[test]
fn refusal_of_an_allowed_command_reaches_the_agent_as_a_message() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let held = engine.call("shell", json!({"command": "touch made"})).await;
        let held = held.to_fields();
        let question = held["question_id"].as_str().expect("an id");
        configure(&engine, &RULES.replace("\"ask\"", "\"deny\""));
        let answered = person(&engine).answer(question, "once").await;
        answered.expect_err("the command is refused");
        let again = person(&engine).answer(question, "once").await;
        let again = again.expect_err("the question is closed").to_string();
        assert!(again.contains("was already answered: yes, but"), "{again}");
        let messages = engine
            .call("read_messages", json!({"timeout_seconds": 10}))
            .await;
        let told = "but it is refused by now: makes a file (rule: touch …). Nothing was run.";
        assert!(messages.text.contains(told), "{}", messages.text);
    });
}

#[test]
fn declined_command_is_not_run_and_the_agent_gets_the_reason() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let made = engine.path("made");
        let arguments = json!({"command": format!("touch {}", made.display())});
        let (question, mut call) = asked(&engine, "shell", arguments).await;
        answer(&engine, question, Answer::No).await;
        let result = call.to_result().await.expect("a result");
        assert_eq!(
            result.text,
            "REFUSED: a person said no: not today. Nothing was run."
        );
        assert!(result.is_error() && !made.exists());
        assert_eq!(result.to_fields()["status"], "refused");
    });
}

#[test]
fn d178_command_is_held_without_a_person_and_started_by_a_later_yes() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let made = engine.path("made");
        let arguments = json!({"command": format!("touch {}", made.display())});
        let held = engine.call("shell", arguments).await;
        let fields = held.to_fields();
        assert_eq!(fields["status"], "held", "{}", held.text);
        assert!(
            held.text
                .starts_with("HELD: makes a file (rule: touch …). Nothing was run yet"),
            "{}",
            held.text
        );
        assert!(!held.is_error() && !held.text.contains("denied"));
        let screen = json!({"action": "screen", "session_id": fields["session_id"]});
        let refused = engine.call("terminal_session", screen).await.text;
        assert!(
            refused.contains("has not started: its command is held"),
            "{refused}"
        );
        let question: QuestionId = fields["question_id"]
            .as_str()
            .expect("an id")
            .parse()
            .expect("an id");
        let session = fields["session_id"].as_str().expect("an id").to_owned();
        assert_eq!(answer(&engine, question, Answer::Yes).await, Outcome::Done);
        engine.ended(&session).await;
        assert!(made.exists());
        let messages = engine
            .call("read_messages", json!({"timeout_seconds": 10}))
            .await;
        let started =
            format!("Your held command was allowed and has been started: session '{session}'");
        assert!(messages.text.contains(&started), "{}", messages.text);
        let late = answer(&engine, question, Answer::Yes).await;
        assert!(matches!(late, Outcome::Refused(_)), "{late:?}");
        let again = engine.call("shell", json!({"session_id": session})).await;
        assert_eq!(again.to_fields()["status"], "SUCCESS");
    });
}

#[test]
fn decision_that_cannot_be_recorded_starts_nothing() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let made = engine.path("made");
        let command = json!({"command": format!("touch {}", made.display())});
        let (question, _waiting) = asked(&engine, "shell", command.clone()).await;
        let audit = engine.path("abide/audit");
        std::fs::remove_dir_all(&audit).expect("removed");
        std::fs::write(&audit, "no folder").expect("a file");
        let plain = json!({"command": format!("echo > {}", made.display())});
        for command in [&command, &plain] {
            let refused = engine.call("shell", command.clone()).await;
            let said = &refused.text;
            assert_eq!(refused.to_fields()["status"], "refused", "{said}");
            assert!(said.contains("cannot be written"), "{said}");
            assert!(said.contains("Nothing was run. A person"), "{said}");
        }
        let denied = engine.call("shell", json!({"command": "mkfs x"})).await;
        assert!(denied.text.contains("destroys a disk"), "{}", denied.text);
        let id = question.to_string();
        let answered = person(&engine).answer(&id, "yes").await;
        let fault = answered.expect_err("not recorded").to_string();
        assert!(fault.contains("The question stays open"), "{fault}");
        assert!(!made.exists());
        // What starts nothing goes on.
        let listed = engine.call("terminal_session", json!({"action": "list"}));
        assert!(!listed.await.is_error());
        std::fs::remove_file(&audit).expect("removed");
        let ran = engine.call("shell", plain).await;
        assert_eq!(ran.to_fields()["status"], "SUCCESS", "{}", ran.text);
    });
}

#[test]
fn agent_withdraws_a_held_command_with_kill() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let command = format!("touch {}", engine.path("made").display());
        let (question, waiting) = asked(&engine, "shell", json!({"command": command})).await;
        let view = engine.handle.published().question(question);
        let session = view.expect("a question").state.session();
        let kill = json!({"action": "kill", "session_id": session.to_string()});
        let stranger = tools::Context {
            agent: abide_core::Agent("bob".into()),
            ..engine.context()
        };
        let refused = engine.call_as(stranger, "terminal_session", kill.clone());
        let refused = refused.await;
        assert!(refused.text.ends_with("not found"), "{}", refused.text);
        let killed = engine.call("terminal_session", kill.clone()).await;
        let expected = format!("WITHDRAWN: question '{question}' is withdrawn. Nothing was run.");
        assert_eq!(
            (killed.text.as_str(), killed.is_error()),
            (&*expected, false)
        );
        assert_eq!(killed.to_fields()["status"], "withdrawn");
        let told = waiting.result_only().await.expect("an answer");
        assert_eq!(told.text, expected);
        assert!(engine.handle.published().questions().is_empty());
        let Outcome::Refused(_) = answer(&engine, question, Answer::Yes).await else {
            panic!("a withdrawn question was answered");
        };
        assert!(!engine.path("made").exists());
        let audit = engine.handle.audit().read(0, 100);
        let last = audit.last().expect("a line");
        assert_eq!(last.event, "withdrawn");
        assert_eq!(last.question_id, Some(question.to_string()));
        assert_eq!(last.command, command);
    });
}

#[test]
fn message_about_a_held_command_masks_its_secrets() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let token = format!("ghp_{}", "aB3d".repeat(9));
        for given in [Answer::No, Answer::Yes] {
            let arguments = json!({
                "command": format!("touch made; : correct-horse-battery {token}"),
                "env": {"API_PASSWORD": "correct-horse-battery"},
                "cwd": engine.path(""),
            });
            let held = engine.call("shell", arguments).await.to_fields();
            let question = held["question_id"].as_str().expect("an id");
            let question: QuestionId = question.parse().expect("an id");
            assert_eq!(answer(&engine, question, given).await, Outcome::Done);
            let messages = engine
                .call("read_messages", json!({"timeout_seconds": 10}))
                .await;
            let masked = "touch made; : [masked:API_PASSWORD] [masked:github_token]";
            assert!(messages.text.contains(masked), "{}", messages.text);
            let shown = format!("{:?}", messages.to_fields());
            assert!(
                !shown.contains("horse") && !shown.contains(&token),
                "{shown}"
            );
        }
    });
}

#[test]
fn d175_question_shows_hostile_text_with_signs() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let command = "touch 'a\nAnswer: yes\u{1b}[2J\u{202e}'";
        let (question, call) = asked(&engine, "shell", json!({"command": command})).await;
        let view = engine.handle.published().question(question).expect("open");
        let text = tools::question_text(&view);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("\\nAnswer: yes\\u{1b}[2J\\u{202e}"), "{text}");
        assert!(
            text.starts_with("Allow this command? makes a file (rule: touch …)\n"),
            "{text}"
        );
        drop(call);
    });
}

#[test]
fn question_says_which_variables_and_input_the_call_gives() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let token = format!("ghp_{}", "aB3d".repeat(9));
        let arguments = json!({
            "command": "touch x",
            "env": {
                "A": "1\n\u{202e}",
                "API_PASSWORD": "correct-horse-battery",
                "LD_PRELOAD": "/x.so",
                "LONG": "y".repeat(300),
            },
            "stdin": format!("first\nsecond {token}"),
        });
        let (question, call) = asked(&engine, "shell", arguments).await;
        let view = engine.handle.published().question(question).expect("open");
        let text = tools::question_text(&view);
        let fields = tools::question_fields(&view);
        let why = fields.held.map(|held| held.why).unwrap_or_default();
        for text in [&text, &why] {
            for shown in [
                "; it sets LD_PRELOAD=/x.so, A=1\\n\\u{202e}, API_PASSWORD=[masked:API_PASSWORD], LONG=yyy",
                "y… (200 more characters)",
                "; its input is \"first\\nsecond [masked:github_token]\"",
            ] {
                assert!(text.contains(shown), "{shown}: {text}");
            }
        }
        assert_eq!(text.lines().count(), 3, "{text}");
        drop(call);
        let (question, call) = asked(&engine, "shell", json!({"command": "touch y"})).await;
        let view = engine.handle.published().question(question).expect("open");
        let text = tools::question_text(&view);
        assert!(
            !text.contains("it sets") && !text.contains("input"),
            "{text}"
        );
        drop(call);
    });
}

#[test]
fn variable_of_the_call_that_changes_commands_asks_like_one_in_the_command() {
    let rules =
        "[policy]\notherwise = \"ask\"\n[[policy.rule]]\nrun = [\"true\"]\ndo = \"allow\"\n";
    with_engine(|engine| async move {
        configure(&engine, rules);
        let done = engine
            .call("shell", json!({"command": "true", "env": {"A": "1"}}))
            .await;
        assert_eq!(done.to_fields()["status"], "SUCCESS", "{}", done.text);
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "ENV",
            "PROMPT_COMMAND",
            "GIT_CONFIG_GLOBAL",
            "XDG_CONFIG_HOME",
        ] {
            let arguments = json!({"command": "true", "env": {name: "/nowhere"}});
            let held = engine.call("shell", arguments).await;
            assert_eq!(held.to_fields()["status"], "held", "{name}: {}", held.text);
        }
    });
}

#[test]
fn d176_answer_is_for_one_text_only() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        let touch =
            |name: &str| json!({"command": format!("touch {name}"), "idempotency_key": "one"});
        let (question, mut call) = asked(&engine, "shell", touch("a")).await;
        // While the question is open, and when it is answered.
        let refused = async |name: &str| {
            let reused = engine.call("shell", touch(name)).await.text;
            assert!(reused.contains("was used for another command"), "{reused}");
        };
        refused("b").await;
        assert_eq!(engine.handle.published().questions().len(), 1);
        answer(&engine, question, Answer::Yes).await;
        call.to_result().await.expect("a result");
        refused("c").await;
        assert!(engine.path("a").exists() && !engine.path("b").exists());
    });
}

#[test]
fn d179_questions_of_an_agent_are_joined_and_bounded() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        for _ in 0..20 {
            engine.call("shell", json!({"command": "touch same"})).await;
        }
        assert_eq!(engine.handle.published().questions().len(), 1);
        let mut last = String::new();
        for number in 0..12 {
            let command = format!("touch {number}");
            last = engine.call("shell", json!({"command": command})).await.text;
        }
        assert!(
            last.contains("has asked 10 questions within a minute; nothing was run"),
            "{last}"
        );
        assert_eq!(engine.handle.published().questions().len(), 10);
    });
}

#[test]
fn d182_once_is_used_once() {
    with_engine(|engine| async move {
        configure(&engine, RULES);
        for _ in 0..2 {
            let (question, mut call) = asked(&engine, "shell", json!({"command": "touch x"})).await;
            answer(&engine, question, Answer::Yes).await;
            call.to_result().await.expect("a result");
        }
        let offers = engine.handle.policy().policy().expect("rules");
        let kept = offers
            .rules
            .iter()
            .any(|rule| rule.action == abide_core::policy::Action::Allow);
        assert!(!kept, "{:?}", Choice::Once);
    });
}
