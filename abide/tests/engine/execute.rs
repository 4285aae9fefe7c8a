//! `execute_command` as its description specifies it.

use std::sync::Arc;

use abide::tools::{self, Context, ToolCall, ToolStep};
use abide_core::request::Caller;
use abide_core::{Answer, Asking, Millis, Outcome, Request};
use abide_engine::{CallUpdate, QuestionView};
use serde_json::{Value, json};

use super::policy::person;
use super::{Engine, pids_of, wait_for_pid, with_engine};

/// Calls as a client that can ask its person.
async fn begin(engine: &Engine, arguments: Value) -> ToolCall {
    let context = Context {
        asking: Asking::Here,
        ..engine.context()
    };
    let call = engine
        .try_begin("execute_command", arguments, context)
        .await;
    call.expect("the arguments are right")
}

/// The same; the idle limit is set after the command has written this, however slow it is.
async fn idle_after(engine: &Engine, command: &str, wrote: &str, idle: f64) -> ToolCall {
    let context = Context {
        asking: Asking::Here,
        ..engine.context()
    };
    let arguments = json!({"command": command, "timeout": 600});
    let (call, session) = engine.begin("execute_command", arguments, context).await;
    engine.wrote(&session, wrote).await;
    engine.extend(&session, "idle", idle).await;
    call
}

async fn asked(call: &mut ToolCall) -> Arc<QuestionView> {
    loop {
        match call.next().await.expect("the engine runs") {
            ToolStep::Update(CallUpdate::Asked(question)) => return question,
            ToolStep::Update(_) | ToolStep::Ended => {}
            ToolStep::Done(result) => panic!("it was not asked: {}", result.text),
        }
    }
}

async fn answer(engine: &Engine, question: &QuestionView, answer: Answer) -> Outcome {
    let request = Request::Answer {
        question: question.id,
        answer,
        quiet_for: None,
        because: None,
        key: None,
    };
    let pending = engine.handle.call(Caller::PERSON, request, None).await;
    pending.done().await.expect("the engine runs")
}

#[test]
fn result_is_the_output_and_one_status_line() {
    with_engine(async |engine| {
        let command = "echo out; echo err >&2";
        let result = engine
            .call("execute_command", json!({"command": command}))
            .await;
        assert!(
            result
                .text
                .starts_with("out\nerr\n[exited with code 0 after "),
            "{}",
            result.text
        );
        assert!(result.text.ends_with("s]"), "{}", result.text);
        assert_eq!(result.to_fields()["status"], "exited");
        assert!(!result.is_error());
    });
}

#[test]
fn status_line_is_last_after_other_notices() {
    with_engine(async |engine| {
        let go = engine.path("go");
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &go, fifo, mode, 0).expect("a fifo");
        let words =
            "awk 'BEGIN { for (i = 0; i < 9000; i++) print \"w\" i * 7919 % 10007 \" t\" i }'";
        let command = format!("{words}; cat go & exit 4");
        let result = engine
            .call("execute_command", json!({"command": command}))
            .await;
        std::fs::write(&go, "").expect("it reads");
        let mut last = result.text.lines().rev();
        let told = [
            "[exited with code 4 after ",
            "[still running in the background: ",
            "[output was shortened: ",
        ];
        for told in told {
            let line = last.next().expect("a line");
            assert!(line.starts_with(told) && line.ends_with(']'), "{line}");
        }
    });
}

#[test]
fn nonzero_exit_code_is_no_tool_error() {
    with_engine(async |engine| {
        let result = engine
            .call("execute_command", json!({"command": "exit 4"}))
            .await;
        assert!(
            result.text.starts_with("[exited with code 4 after "),
            "{}",
            result.text
        );
        assert!(!result.is_error());
    });
}

#[test]
fn idle_command_is_handed_over_without_a_person() {
    with_engine(async |engine| {
        let mark = format!("5{}", std::process::id());
        let line = format!("sleep {mark}");
        let arguments = json!({"command": format!("echo so far; exec {line}"), "timeout": 600});
        let mut context = engine.context();
        context.standby = Some(Millis::from_secs(600));
        let (call, session) = engine.begin("execute_command", arguments, context).await;
        engine.wrote(&session, "so far").await;
        wait_for_pid(&line);
        engine.extend(&session, "idle", 0.2).await;
        let result = call.result_only().await.expect("an answer");
        assert_eq!(result.to_fields()["status"], "running");
        let quiet = "[still running: no output for 200ms, now sleeping";
        assert!(result.text.contains(quiet), "{}", result.text);
        let asked = ". The question whether to keep waiting is open for a person (on the page and in `abide answer`).";
        assert!(result.text.contains(asked), "{}", result.text);
        assert!(result.text.starts_with("so far\n"), "{}", result.text);
        assert_eq!(result.to_fields()["waiting_for_input"], false);
        assert!(result.to_fields().contains_key("cpu"));
        // The client's limit did not end the call.
        assert!(!result.to_fields().contains_key("effective_timeout"));
        assert_eq!(result.to_fields()["session_id"], session);
        assert!(result.text.contains(&session));
        assert_eq!(pids_of(&line).len(), 1);
        // A person who comes later finds the question, which is shown once it is stored.
        let published = engine.handle.published();
        let mut changes = published.follow_questions();
        while published.questions().is_empty() {
            changes.changed().await.expect("an engine");
        }
        let open = published.questions();
        assert_eq!(open.len(), 1, "{open:?}");
        assert_eq!(open[0].state.session().to_string(), session);
        engine.kill(&session).await;
    });
}

#[test]
fn answer_yes_continues_repeatedly_and_no_kills() {
    with_engine(async |engine| {
        let mark = format!("6{}", std::process::id());
        let command = format!("echo started; exec sleep {mark}");
        let mut call = idle_after(&engine, &command, "started", 1.0).await;
        for times in 1..=3 {
            let question = asked(&mut call).await;
            let text = tools::question_text(&question);
            // The time since the last output, also if a person has answered meanwhile.
            assert_eq!(text.contains("quiet for 1s"), times == 1, "{text}");
            assert!(
                text.starts_with("Command has been idle for 1s. Continue waiting?\n"),
                "{text}"
            );
            assert!(text.contains(&command), "{text}");
            assert!(text.contains("last output: started"), "{text}");
            assert_eq!(answer(&engine, &question, Answer::Yes).await, Outcome::Done);
            let late = answer(&engine, &question, Answer::No).await;
            assert!(matches!(late, Outcome::Refused(_)), "{late:?}");
        }
        let question = asked(&mut call).await;
        assert_eq!(answer(&engine, &question, Answer::No).await, Outcome::Done);
        let result = call.result_only().await.expect("an answer");
        assert!(result.is_error());
        assert!(
            result
                .text
                .starts_with("command execution timeout: no output for 1s\nstarted"),
            "{}",
            result.text
        );
        assert!(
            result.text.ends_with(
                "[a person was asked whether to keep waiting and said to stop the command]"
            ),
            "{}",
            result.text
        );
        assert_eq!(result.to_fields()["end"], "idle_declined");
        assert_eq!(pids_of(&format!("sleep {mark}")), Vec::<i32>::new());
    });
}

#[test]
fn interruption_kills_the_tree() {
    with_engine(async |engine| {
        let mark = format!("4{}", std::process::id());
        let command = format!("echo before; setsid sleep {mark} & wait");
        let mut call = idle_after(&engine, &command, "before", 1.0).await;
        asked(&mut call).await;
        assert!(call.interrupt());
        let result = call.result_only().await.expect("an answer");
        assert!(result.is_error());
        assert!(
            result
                .text
                .starts_with("command execution cancelled by user\nbefore"),
            "{}",
            result.text
        );
        assert_eq!(result.to_fields()["end"], "user");
        assert!(engine.handle.published().questions().is_empty());
        assert_eq!(pids_of(&format!("sleep {mark}")), Vec::<i32>::new());
        let session = &result.to_fields()["session_id"];
        let again = json!({"session_id": session});
        let again = engine.call("execute_command", again).await;
        assert!(again.is_error(), "{}", again.text);
        let told = "command execution cancelled by user\nbefore\n[ended after ";
        assert!(again.text.starts_with(told), "{}", again.text);
        assert!(
            again.text.ends_with(": a person ended it]"),
            "{}",
            again.text
        );
        assert_eq!(again.to_fields()["status"], "exited");
    });
}

#[test]
fn new_output_withdraws_the_question_and_the_call_continues() {
    with_engine(async |engine| {
        let fifo = engine.fifo("go");
        let command = format!("read line < {}; echo \"$line\"", fifo.display());
        let mut call = begin(&engine, json!({"command": command, "timeout": 0.1})).await;
        let question = asked(&mut call).await;
        std::fs::write(&fifo, "it goes on\n").expect("the command hears");
        let mut closed = false;
        let result = loop {
            match call.next().await.expect("the engine runs") {
                ToolStep::Update(CallUpdate::Closed(id)) => closed |= id == question.id,
                ToolStep::Done(result) => break result,
                ToolStep::Update(_) | ToolStep::Ended => {}
            }
        };
        assert!(closed);
        assert_eq!(result.to_fields()["exit_code"], 0);
        assert!(
            result
                .text
                .starts_with("it goes on\n[exited with code 0 after "),
            "{}",
            result.text
        );
        let late = answer(&engine, &question, Answer::No).await;
        assert!(matches!(late, Outcome::Refused(_)), "{late:?}");
    });
}

#[test]
fn session_is_handed_over_when_the_question_cannot_be_delivered() {
    with_engine(async |engine| {
        let mark = format!("3{}", std::process::id());
        let mut call = begin(
            &engine,
            json!({"command": format!("sleep {mark}"), "timeout": 0.1}),
        )
        .await;
        asked(&mut call).await;
        call.person_unreachable();
        let result = call.result_only().await.expect("an answer");
        assert_eq!(result.to_fields()["status"], "running");
        engine
            .kill(
                result.to_fields()["session_id"]
                    .as_str()
                    .expect("a session"),
            )
            .await;
    });
}

#[test]
fn dropped_call_leaves_the_command_running() {
    with_engine(async |engine| {
        let fifo = engine.fifo("go");
        let command = format!("read _ < {}; echo finished", fifo.display());
        let mut call = begin(&engine, json!({"command": command})).await;
        let ToolStep::Update(CallUpdate::Accepted(session)) = call.next().await.expect("a step")
        else {
            panic!("accepted first")
        };
        drop(call);
        std::fs::write(&fifo, "\n").expect("the command hears");
        let view = engine.ended(&session.to_string()).await;
        assert_eq!(view.ending().map(|ending| ending.bytes), Some(9));
    });
}

#[test]
fn invalid_limits_are_refused() {
    with_engine(async |engine| {
        for timeout in [json!(0), json!(-1), json!("x"), json!(1e300), json!([])] {
            let arguments = json!({"command": "true", "timeout": timeout});
            let sentence = engine.refused("execute_command", arguments).await;
            assert!(
                sentence.starts_with("`timeout` must be a number of seconds above 0"),
                "{sentence}"
            );
        }
        assert!(engine.handle.published().sessions().is_empty());
    });
}

#[test]
fn question_that_a_result_tells_of_is_listed_at_once() {
    with_engine(async |engine| {
        let arguments = json!({"command": "sleep 600", "timeout": 0.2});
        let result = engine.call("execute_command", arguments).await;
        let listed: serde_json::Value = person(&engine).get("/v1/questions").await.expect("a list");
        let told = "The question whether to keep waiting is open for a person";
        assert!(result.text.contains(told), "{}", result.text);
        let session = &result.to_fields()["session_id"];
        assert_eq!(listed["questions"][0]["session_id"], *session, "{listed}");
        engine.kill(session.as_str().expect("an id")).await;
    });
}
