//! `shell` as its description specifies it.

use abide::tools::{self, Context};
use abide_api::{CommandTool, ToolName};
use abide_engine::config::Config;
use serde_json::{Value, json};

use super::{Engine, pids_of, wait_for_pid, with_configured_engine, with_engine};

#[test]
fn result_text_has_the_specified_layout() {
    with_engine(async |engine| {
        let result = engine.call("shell", json!({"command": "echo hello"})).await;
        assert_eq!(
            result.text,
            "COMMAND: echo hello\nSTATUS: SUCCESS\nRETURN_CODE: 0\nSTDOUT:\nhello\nSTDERR:\n"
        );
        assert_eq!(
            result.to_fields()["text"],
            Value::String(result.text.clone())
        );
        assert!(!result.is_error());
    });
}

#[test]
fn every_result_has_all_fields() {
    with_engine(async |engine| {
        let facts = engine
            .call("shell", json!({"command": "printf abc"}))
            .await
            .to_fields();
        assert!(
            facts["session_id"]
                .as_str()
                .is_some_and(|id| id.starts_with("session_"))
        );
        assert_eq!(facts["status"], "SUCCESS");
        assert_eq!(facts["return_code"], 0);
        assert_eq!(facts["exit_code"], 0);
        assert_eq!(facts["signal"], Value::Null);
        assert_eq!(facts["end"], "exited");
        assert!(facts["duration"].is_number());
        assert_eq!(facts["bytes_total"], 3);
        assert_eq!(facts["bytes_dropped"], 0);
        assert_eq!(facts["still_running"], json!([]));
        let held = facts["contained_by"].as_str().expect("a rung");
        assert!(["cgroup", "pid_namespace", "subreaper"].contains(&held));
    });
}

#[test]
fn nonzero_exit_code_has_status_error() {
    with_engine(async |engine| {
        let result = engine
            .call("shell", json!({"command": "echo bad >&2; exit 3"}))
            .await;
        assert_eq!(
            result.text,
            "COMMAND: echo bad >&2; exit 3\nSTATUS: ERROR\nRETURN_CODE: 3\nSTDOUT:\n\nSTDERR:\nbad"
        );
        assert_eq!(result.to_fields()["exit_code"], 3);
        assert!(!result.is_error());
    });
}

#[test]
fn exit_code_of_a_signal_is_128_plus_its_number() {
    with_engine(async |engine| {
        let result = engine.call("shell", json!({"command": "kill -9 $$"})).await;
        assert!(
            result.text.contains("STATUS: ERROR\nRETURN_CODE: 137\n"),
            "{}",
            result.text
        );
        assert_eq!(result.to_fields()["exit_code"], Value::Null);
        assert_eq!(result.to_fields()["signal"], 9);
        assert_eq!(result.to_fields()["end"], "signaled");
    });
}

#[test]
fn missing_command_is_reported_by_the_shell() {
    with_engine(async |engine| {
        let result = engine
            .call("shell", json!({"command": "no-such-program-here"}))
            .await;
        assert!(
            result.text.contains("STATUS: ERROR\nRETURN_CODE: 127\n"),
            "{}",
            result.text
        );
    });
}

#[test]
fn timeout_kills_the_tree_and_keeps_the_output() {
    with_engine(async |engine| {
        let mark = format!("7{}", std::process::id());
        let command = format!(
            "echo partial; printf 'no newline'; setsid sleep {mark} & \
             (setsid sh -c 'trap \"\" TERM HUP INT; sleep {mark}; sleep {mark}' &) ; sleep {mark}"
        );
        let arguments = json!({"command": command, "timeout": 600});
        let (call, session) = engine.begin("shell", arguments, engine.context()).await;
        // The command has reached this point before its time limit.
        engine.wrote(&session, "no newline").await;
        wait_for_pid(&format!("sleep {mark}"));
        engine.extend(&session, "timeout", 2.0).await;
        let result = call.result_only().await.expect("an answer");
        assert!(
            result
                .text
                .contains("STATUS: TIMEOUT_ERROR\nRETURN_CODE: -1\n"),
            "{}",
            result.text
        );
        assert!(
            result
                .text
                .contains("STDOUT:\npartial\nno newline\nSTDERR:\n"),
            "{}",
            result.text
        );
        // The limit that was reached, not the one with which the command was started.
        assert!(result.text.contains("s. Partial output captured."));
        assert!(!result.text.contains("after 600s"), "{}", result.text);
        assert_eq!(result.to_fields()["end"], "deadline");
        assert_eq!(result.to_fields()["exit_code"], Value::Null);
        assert_eq!(pids_of(&format!("sleep {mark}")), Vec::<i32>::new());
    });
}

#[test]
fn shell_says_that_nothing_was_captured_when_a_silent_command_times_out() {
    with_engine(async |engine| {
        let arguments = json!({"command": "sleep 1000", "timeout": 1});
        let result = engine.call("shell", arguments).await;
        let warning = "\nWARNING: Command timed out after 1s. Partial output captured. It is empty: \
                       a program that buffers its output on a pipe loses it when killed.";
        assert!(result.text.ends_with(warning), "{}", result.text);
    });
}

/// A context with this value of `PYTHONUNBUFFERED`, or without the variable.
fn with_python_setting(engine: &Engine, value: Option<&str>) -> Context {
    let name = "PYTHONUNBUFFERED";
    let mut env: Vec<_> = std::env::vars_os()
        .filter(|(known, _)| known != name)
        .collect();
    env.extend(value.map(|value| (name.into(), value.into())));
    let mut context = engine.context();
    context.env = env.into();
    context
}

#[test]
fn output_of_python_on_a_pipe_is_not_delayed() {
    with_engine(async |engine| {
        let command = "exec python3 -c 'import time; print(\"first line\"); time.sleep(1000)'";
        for tool in ["shell", "execute_command"] {
            let arguments = json!({"command": command, "timeout": 600});
            let context = with_python_setting(&engine, None);
            let (call, session) = engine.begin(tool, arguments, context).await;
            engine.wrote(&session, "first line").await;
            engine.kill(&session).await;
            let result = call.result_only().await.expect("an answer");
            assert!(result.text.contains("first line"), "{}", result.text);
        }
    });
}

#[test]
fn python_is_unbuffered_on_pipes_unless_told_otherwise() {
    with_engine(async |engine| {
        let command = "echo \"<${PYTHONUNBUFFERED-unset}>\"";
        for (env, inherited, wanted) in [
            (json!({}), None, "<1>"),
            (json!({"PYTHONUNBUFFERED": "x"}), None, "<x>"),
            (json!({"PYTHONUNBUFFERED": ""}), None, "<>"),
            (json!({"PYTHONUNBUFFERED": null}), None, "<unset>"),
            (json!({}), Some(""), "<>"),
        ] {
            let context = with_python_setting(&engine, inherited);
            let arguments = json!({"command": command, "env": env});
            let (call, _) = engine.begin("shell", arguments, context).await;
            let result = call.result_only().await.expect("an answer");
            assert!(result.text.contains(wanted), "{env}: {}", result.text);
        }
    });
}

#[test]
fn control_characters_of_output_are_removed_from_tool_texts() {
    with_engine(async |engine| {
        let hostile =
            r"a\033[\t\033[2Jb\033]0;t\033[1\t\302\2332Jc\302\205\033[\302\033[31md\001\n";
        let named = "bash -c 'exec -a \"$(printf \"x\\033[2J\")\" sleep 1000' &";
        let known = "until grep -qa ^x /proc/$!/cmdline; do :; done";
        let command = format!("# \u{1b}[2J\n{named} {known}; printf '{hostile}'");
        let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        for tool in ["shell", "execute_command"] {
            let result = engine.call(tool, json!({"command": command})).await;
            let text = &result.text;
            assert!(text.contains("still running"), "{text}");
            assert!(!text.contains(control), "{tool}: {text:?}");
            let fields = result.to_fields();
            let session = fields["session_id"].as_str().expect("a session");
            for arguments in [
                json!({"action": "read_output", "session_id": session}),
                json!({"action": "search", "session_id": session, "pattern": "."}),
                json!({"action": "list"}),
            ] {
                let read = engine.call("terminal_session", arguments.clone()).await;
                assert!(!read.text.contains(control), "{arguments}: {:?}", read.text);
            }
            engine.kill(session).await;
        }
    });
}

#[test]
fn background_processes_are_reported_and_keep_running() {
    with_engine(async |engine| {
        let mark = format!("8{}", std::process::id());
        // The process has executed its program before the command ends.
        let command = format!(
            "sleep {mark} & until grep -qa ^sleep /proc/$!/cmdline; do :; done; echo front"
        );
        let result = engine.call("shell", json!({"command": command})).await;
        assert!(result.text.contains("STATUS: SUCCESS"), "{}", result.text);
        let fields = result.to_fields();
        let session = fields["session_id"].as_str().expect("a session");
        assert!(
            result.text.contains(&format!("sleep {mark}")),
            "{}",
            result.text
        );
        assert!(result.text.contains(session), "{}", result.text);
        let fields = result.to_fields();
        let left = fields["still_running"].as_array().expect("a list");
        assert_eq!(left.len(), 1);
        assert_eq!(left[0]["command"], format!("sleep {mark}"));
        assert_eq!(pids_of(&format!("sleep {mark}")).len(), 1);
        let kill = json!({"action": "kill", "session_id": session});
        let killed = engine.call("terminal_session", kill.clone()).await;
        let said = format!(
            "Session '{session}' had ended already; what it left in the background is killed\n"
        );
        assert!(killed.text.starts_with(&said), "{}", killed.text);
        assert_eq!(pids_of(&format!("sleep {mark}")), Vec::<i32>::new());
        let again = engine.call("terminal_session", kill).await;
        let said = format!("Session '{session}' had ended already\n");
        assert!(again.text.starts_with(&said), "{}", again.text);
    });
}

#[test]
fn warning_about_two_background_processes_speaks_of_both() {
    with_engine(async |engine| {
        let command = "sleep 1000 & sleep 1000 & echo front";
        let result = engine.call("shell", json!({"command": command})).await;
        let fields = result.to_fields();
        let session = fields["session_id"].as_str().expect("a session");
        let said = format!("They live on in {session} until they end or are killed.");
        assert!(result.text.contains(&said), "{}", result.text);
        let kill = json!({"action": "kill", "session_id": session});
        engine.call("terminal_session", kill).await;
    });
}

#[test]
fn missing_working_directory_is_fatal() {
    with_engine(async |engine| {
        let result = engine
            .call(
                "shell",
                json!({"command": "true", "cwd": "/no/such/folder"}),
            )
            .await;
        assert!(
            result
                .text
                .contains("STATUS: FATAL_ERROR\nRETURN_CODE: -2\n"),
            "{}",
            result.text
        );
        assert!(result.text.contains("/no/such/folder"), "{}", result.text);
    });
}

#[test]
fn missing_shell_is_fatal() {
    let config = Config {
        shell: vec!["/no/such/shell".into(), "-c".into()],
        ..Config::default()
    };
    with_configured_engine(config, async |engine| {
        let result = engine.call("shell", json!({"command": "true"})).await;
        assert!(
            result
                .text
                .contains("STATUS: FATAL_ERROR\nRETURN_CODE: -2\n"),
            "{}",
            result.text
        );
        assert!(result.text.contains("/no/such/shell"), "{}", result.text);
    });
}

#[test]
fn command_gets_directory_environment_and_input() {
    with_engine(async |engine| {
        std::fs::create_dir(engine.path("inner")).expect("a folder");
        let arguments = json!({
            "command": "basename \"$PWD\"; echo \"$GREETING\"; cat",
            "cwd": "inner",
            "env": {"GREETING": "hi there"},
            "stdin": "from stdin"
        });
        let result = engine.call("shell", arguments).await;
        assert!(
            result
                .text
                .contains("STDOUT:\ninner\nhi there\nfrom stdin\n"),
            "{}",
            result.text
        );
    });
}

#[test]
fn stdin_without_input_is_at_end_of_file() {
    with_engine(async |engine| {
        let result = engine
            .call("shell", json!({"command": "cat; echo over"}))
            .await;
        assert!(result.text.contains("STDOUT:\nover\n"), "{}", result.text);
    });
}

#[test]
fn s8_invalid_arguments_are_refused_with_one_sentence() {
    let table = [
        (
            json!({"command": ""}),
            "ERROR: Shell command cannot be empty.",
        ),
        (
            json!({"command": " \n\t"}),
            "ERROR: Shell command cannot be empty.",
        ),
        (json!({}), "ERROR: Shell command cannot be empty."),
        (json!({"command": 7}), "`command` must be text; got 7."),
        (
            json!({"command": "a\u{0}b"}),
            "`command` must be text without NUL bytes; got one at byte 1.",
        ),
        (
            json!({"command": "true", "timeout": 0}),
            "`timeout` must be a whole number of seconds, at least 1 and at most 100 years; got 0.",
        ),
        (
            json!({"command": "true", "timeout": -5}),
            "`timeout` must be a whole number of seconds, at least 1 and at most 100 years; got -5.",
        ),
        (
            json!({"command": "true", "timeout": 1.5}),
            "`timeout` must be a whole number of seconds, at least 1 and at most 100 years; got 1.5.",
        ),
        (
            json!({"command": "true", "timeout": "soon"}),
            "`timeout` must be a whole number of seconds, at least 1 and at most 100 years; got \"soon\".",
        ),
        (
            json!({"command": "true", "timeout": 1e300}),
            "`timeout` must be a whole number of seconds, at least 1 and at most 100 years; got 1e+300.",
        ),
        (
            json!({"command": "true", "max_output": 1_000_001}),
            "`max_output` must be a whole number from 1 to 1000000; got 1000001.",
        ),
        (
            json!({"command": "true", "env": "A=1"}),
            "`env` must be an object of names and text values; got \"A=1\".",
        ),
        (
            json!({"command": "true", "env": {"A=": "1"}}),
            "`env` names must not be empty and must hold neither '=' nor NUL; got \"A=\".",
        ),
        (
            json!({"command": "true", "raw": "yes"}),
            "`raw` must be true or false; got \"yes\".",
        ),
        (
            json!({"command": "true", "tiemout": 5}),
            "`tiemout` is not a field of this tool; the fields are command, session_id, timeout, cwd, env, stdin, \
             max_output, raw, sandbox, network, needs, justification, idempotency_key.",
        ),
    ];
    with_engine(async |engine| {
        for (arguments, sentence) in table {
            assert_eq!(engine.refused("shell", arguments).await, sentence);
        }
        assert!(engine.handle.published().sessions().is_empty());
    });
}

#[test]
fn call_is_answered_before_the_clients_limit_and_keeps_its_deadline() {
    with_engine(async |engine| {
        let mark = format!("9{}", std::process::id());
        let line = format!("sleep {mark}");
        let arguments = json!({"command": format!("echo early; exec {line}"), "timeout": 600,
            "idempotency_key": "k"});
        let context = engine.context();
        let (_first, session) = engine.begin("shell", arguments.clone(), context).await;
        engine.wrote(&session, "early").await;
        wait_for_pid(&line);
        // The same request, repeated by a client with a short limit.
        let standby = Some(abide_core::Millis(1_500));
        let context = tools::Context {
            standby,
            ..engine.context()
        };
        let result = engine.call_as(context, "shell", arguments).await;
        assert!(result.text.contains("STATUS: RUNNING\n"), "{}", result.text);
        assert!(result.text.contains("STDOUT:\nearly\n"), "{}", result.text);
        assert_eq!(result.to_fields()["effective_timeout"], 1.5);
        assert_eq!(result.to_fields()["session_id"], session);
        assert!(result.text.contains(&session), "{}", result.text);
        engine.extend(&session, "timeout", 1.0).await;
        let view = engine.ended(&session).await;
        assert_eq!(
            view.ending().map(|ending| ending.end.as_str()),
            Some("deadline")
        );
        assert_eq!(pids_of(&format!("sleep {mark}")), Vec::<i32>::new());
    });
}

#[test]
fn same_idempotency_key_runs_once() {
    with_engine(async |engine: Engine| {
        let arguments = json!({"command": "echo ran >> runs; echo done", "idempotency_key": "k"});
        let first = engine.call("shell", arguments.clone()).await;
        let second = engine.call("shell", arguments).await;
        assert_eq!(
            first.to_fields()["session_id"],
            second.to_fields()["session_id"]
        );
        assert_eq!(first.text, second.text);
        assert_eq!(
            std::fs::read_to_string(engine.path("runs")).expect("a file"),
            "ran\n"
        );
        let other = json!({"command": "echo other", "idempotency_key": "k"});
        let refused = engine.call("shell", other).await;
        assert!(refused.is_error());
        assert!(
            refused.text.contains("used for another command"),
            "{}",
            refused.text
        );
    });
}

#[test]
fn idempotency_key_with_other_arguments_is_refused() {
    with_engine(async |engine: Engine| {
        std::fs::create_dir(engine.path("other")).expect("a folder");
        let given = json!({"command": "cat; pwd", "idempotency_key": "k",
            "cwd": ".", "env": {"A": "1", "B": "2"}, "stdin": "text\n"});
        for tool in ["shell", "execute_command"] {
            let call = async |field: &str, value: Value| {
                let mut arguments = given.clone();
                arguments["idempotency_key"] = json!(tool);
                arguments[field] = value;
                let fields = arguments.as_object_mut().expect("an object");
                fields.retain(|_, value| !value.is_null());
                engine.call(tool, arguments).await
            };
            let first = call("cwd", json!(".")).await;
            assert!(!first.is_error(), "{}", first.text);
            for (field, value) in [
                ("cwd", json!("other")),
                ("cwd", Value::Null),
                ("env", json!({"A": "1", "B": "3"})),
                ("env", Value::Null),
                ("stdin", json!("other\n")),
                ("stdin", Value::Null),
            ] {
                let refused = call(field, value.clone()).await;
                assert!(refused.is_error(), "{tool} {field} {value}");
                assert!(
                    refused.text.contains("used for another command"),
                    "{}",
                    refused.text
                );
            }
            // The limits of a call are its own.
            for (field, value) in [("timeout", json!(50)), ("max_output", json!(500))] {
                let again = call(field, value).await;
                assert_eq!(again.text, first.text);
            }
        }
    });
}

#[test]
fn empty_idempotency_key_is_refused() {
    with_engine(async |engine: Engine| {
        for (tool, rest) in [
            ("shell", json!({"command": "true"})),
            ("execute_command", json!({"command": "true"})),
            (
                "terminal_session",
                json!({"action": "start", "command": "true"}),
            ),
            ("timer", json!({"total_duration": 1, "mission": "m"})),
        ] {
            let mut arguments = rest;
            arguments["idempotency_key"] = json!("");
            let refused = engine.refused(tool, arguments).await;
            let expected =
                "`idempotency_key` must be text that is not blank, or left out; got \"\".";
            assert_eq!(refused, expected, "{tool}");
        }
    });
}

#[test]
fn long_output_is_shortened_with_a_pointer_to_the_log() {
    with_engine(async |engine| {
        let command = "awk 'BEGIN { for (i = 0; i < 20000; i++) print \"word\" i * 7919 % 10007 \" tail\" i }'";
        let result = engine.call("shell", json!({"command": command})).await;
        let fields = result.to_fields();
        let session = fields["session_id"].as_str().expect("a session");
        assert!(
            result.text.chars().count() < 11_000,
            "{}",
            result.text.chars().count()
        );
        assert!(
            result.text.contains("WARNING: stdout was shortened: "),
            "{}",
            result.text
        );
        assert!(result.text.contains(session), "{}", result.text);
    });
}

#[test]
fn secrets_of_the_call_are_masked() {
    with_engine(async |engine| {
        let arguments =
            json!({"command": "echo $API_TOKEN", "env": {"API_TOKEN": "hunter2hunter2"}});
        let result = engine.call("shell", arguments).await;
        assert!(!result.text.contains("hunter2"), "{}", result.text);
    });
}

#[test]
fn secrets_are_masked_in_folders_and_errors_in_lists_and_in_the_audit_log() {
    with_engine(|engine| async move {
        let folder = engine.path("hunter2hunter2");
        let env = json!({"API_TOKEN": "hunter2hunter2"});
        let arguments = json!({"command": "true", "cwd": folder, "env": env});
        for tool in ["shell", "execute_command"] {
            let failed = Value::Object(engine.call(tool, arguments.clone()).await.to_fields());
            let error = failed["error"].as_str().expect("an error");
            assert!(error.contains("[masked:API_TOKEN]"), "{failed}");
            assert!(!failed.to_string().contains("hunter2"), "{failed}");
        }
        let list = json!({"action": "list", "include_ended": true});
        let listed = engine.call("terminal_session", list).await;
        let shown = format!("{} {}", listed.text, Value::Object(listed.to_fields()));
        assert!(shown.contains("[masked:API_TOKEN]"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        let audit = engine.handle.audit().read(0, 100);
        let audit = serde_json::to_string(&audit).expect("JSON");
        assert!(audit.contains("[masked:API_TOKEN]"), "{audit}");
        assert!(!audit.contains("hunter2"), "{audit}");
    });
}

#[test]
fn secrets_that_a_shortened_output_would_cut_are_masked() {
    with_engine(|engine| async move {
        let env = json!({"API_KEY": "supersecretvalue123"});
        // More than is searched at once, and little.
        for times in [12, 20_000] {
            let command = format!("printf \"$API_KEY%.0s\" $(seq {times})");
            for tool in ["shell", "execute_command"] {
                for raw in [false, true] {
                    let arguments =
                        json!({"command": command, "env": env, "max_output": 200, "raw": raw});
                    let result = engine.call(tool, arguments).await;
                    let said = &result.text;
                    assert!(said.contains("[masked:API_"), "{said}");
                    for part in ["supersec", "value123"] {
                        assert!(!said.contains(part), "{tool}, raw: {raw}: {said}");
                    }
                }
            }
        }
    });
}

#[test]
fn secrets_of_the_call_stay_masked_in_later_reads() {
    with_engine(|engine| async move {
        for tool in ["shell", "execute_command"] {
            // The remaining process has executed its program before the command ends.
            let command = "echo \"it is $API_TOKEN\"; \
                sh -c \"sleep 1000; : $API_TOKEN\" >/dev/null 2>&1 & \
                until grep -qa \"$API_TOKEN\" /proc/$!/cmdline; do :; done";
            let env = json!({"API_TOKEN": "correct-horse-battery"});
            let ran = engine
                .call(tool, json!({"command": command, "env": env}))
                .await;
            let left = ran.to_fields()["still_running"].to_string();
            assert!(left.contains("[masked:API_TOKEN]"), "{left}");
            assert!(!left.contains("correct-horse"), "{left}");
            let session = &ran.to_fields()["session_id"];
            for more in [
                json!({"action": "read_output"}),
                json!({"action": "search", "pattern": "it is"}),
                json!({"action": "kill"}),
            ] {
                let mut arguments = more.clone();
                arguments["session_id"] = session.clone();
                let later = engine.call("terminal_session", arguments).await;
                let said = serde_json::to_string(&later.to_fields()).expect("JSON");
                assert!(!said.contains("correct-horse"), "{more}: {said}");
            }
        }
    });
}

#[test]
fn call_that_is_cancelled_at_once_still_runs_its_command() {
    with_engine(|engine| async move {
        let arguments = json!({"command": "exit 7"});
        let call = engine.try_begin("shell", arguments, engine.context()).await;
        drop(call.expect("the arguments are right"));
        engine.call("shell", json!({"command": "true"})).await;
        let sessions = engine.handle.published().sessions();
        let started = sessions
            .iter()
            .find(|view| &*view.state.command == "exit 7")
            .expect("a session");
        let ended = engine.ended(&started.id.to_string()).await;
        let ending = ended.ending().expect("it has ended");
        assert_eq!(ending.exit, Some(abide_core::Exit::Code(7)));
    });
}

#[test]
fn commands_run_in_bash_where_it_is_installed() {
    with_engine(|engine| async move {
        let command = "[[ a == a ]] && list=(x y z) && echo ${#list[@]}";
        let ran = engine.call("shell", json!({"command": command})).await;
        assert!(ran.text.contains("STDOUT:\n3\n"), "{}", ran.text);
        for tool in [CommandTool::Shell, CommandTool::Execute] {
            let description = tools::of(ToolName::Command(tool)).description();
            assert!(description.ends_with("Runs in bash."), "{description}");
        }
    });
}
