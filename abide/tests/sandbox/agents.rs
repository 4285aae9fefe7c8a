//! Attacks 134 to 137: requests of an agent through the tools.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{User, as_each_user};

const AGENT: &str = "codex";

/// Calls a tool as an agent, in the workspace. Returns the result as fields.
pub fn call(user: &User, tool: &str, arguments: &Value) -> Value {
    call_as(user, AGENT, tool, arguments)
}

/// The same as the agent of this name.
pub fn call_as(user: &User, agent: &str, tool: &str, arguments: &Value) -> Value {
    let fields = arguments.as_object().expect("an object");
    let fields = fields.iter().map(|(name, value)| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        format!(
            "<{name}>{}</{name}>",
            text.replace('&', "&amp;").replace('<', "&lt;")
        )
    });
    let block = format!(
        "<tool name=\"{tool}\">{}</tool>",
        fields.collect::<String>()
    );
    let mut child = user
        .command(user.path("abide-program"))
        .args(["call", "--agent", agent, "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("abide runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(block.as_bytes()).expect("input");
    drop(input);
    let output = child.wait_with_output().expect("an ending");
    // A call with a field that the tool does not have is refused by the command line.
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&output.stderr).into_owned()))
}

pub fn text(result: &Value) -> String {
    result.to_string()
}

#[test]
fn configured_sandbox_holds_for_every_tool_and_a_call_gets_less_but_not_more() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let attack = "echo inside > file; echo x > $ROOT/outside/x";
        for tool in ["shell", "execute_command"] {
            let result = text(&call(user, tool, &json!({"command": attack})));
            assert!(result.contains("Read-only file system"), "{tool}: {result}");
            assert!(result.contains("namespaces"), "192: {tool}: {result}");
        }
        let start = json!({"action": "start", "command": "echo x > $ROOT/outside/x"});
        let result = text(&call(user, "terminal_session", &start));
        assert!(result.contains("Read-only file system"), "137: {result}");
        assert!(!user.exists("outside/x"));
        assert_eq!(user.read("work/file"), "inside\n");
        let less = json!({"command": "echo x > other", "sandbox": "read-only", "network": "off"});
        assert!(text(&call(user, "shell", &less)).contains("Read-only file system"));
        assert!(!user.exists("work/other"));
        for (field, value) in [
            ("sandbox", "off"),
            ("network", "on"),
            ("dangerouslyDisableSandbox", "true"),
        ] {
            let result = text(&call(
                user,
                "shell",
                &json!({"command": "touch made", field: value}),
            ));
            assert!(result.contains(field), "134: {result}");
            assert!(!user.exists("work/made"), "134: {field}");
        }
    });
}

#[test]
fn needs_are_validated_and_never_granted_without_a_question() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let state = user.path("state");
        let state = state.to_str().expect("a path");
        for (needs, why, part) in [
            (json!({"write": ["/usr/local"]}), "", "justification"),
            (
                json!({"write": ["/usr/local"]}),
                "install",
                "HELD: asks for more than its sandbox permits: write /usr/local.",
            ),
            (json!({"read": ["~/.ssh"]}), "look", "never shown"),
            (json!({"read": ["~"]}), "look", "never shown"),
            (json!({"write": [state]}), "look", "never shown"),
            (json!({"read": ["/etc/shadow"]}), "look", "never shown"),
            (
                json!({"write": ["/proc/sys"]}),
                "tune",
                "no sandbox can write",
            ),
            (
                json!({"write": [".github"]}),
                "add CI",
                "HELD: asks for more than its sandbox permits: write ",
            ),
            (
                json!({"sandbox": "off"}),
                "all",
                "HELD: asks for more than its sandbox permits: run outside the sandbox.",
            ),
            (json!({"network": ["allowlist"]}), "all", "host names; got"),
            (json!({"write": ["/usr/lo\0cal"]}), "all", "NUL byte"),
            (
                json!({"root": true}),
                "all",
                "write, read, network and sandbox",
            ),
        ] {
            let result = text(&call(
                user,
                "shell",
                &json!({"command": "touch made", "needs": needs, "justification": why}),
            ));
            assert!(result.contains(part), "135: {needs}: {result}");
            assert!(!user.exists("work/made"), "135: {needs}");
        }
        let needs = json!({"write": [".", "sub/new"]});
        let asked = json!({"command": "touch made", "needs": needs, "justification": "a test"});
        let said = text(&call(user, "shell", &asked));
        assert!(said.contains("STATUS: SUCCESS"), "135: {said}");
        assert!(user.exists("work/made"), "135");
    });
}

#[test]
fn needs_that_a_person_grants_hold_for_this_command_only() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        user.write("outside/there", "");
        let outside = user.path("outside");
        let outside = outside.to_str().expect("a path");
        let command = format!("echo granted > {outside}/made");
        let needs = json!({"write": [outside]});
        let wanted =
            json!({"command": command, "needs": needs, "justification": "install the tool"});
        let held = call(user, "shell", &wanted);
        let words = text(&held);
        assert!(words.contains("install the tool"), "{words}");
        assert!(!user.exists("outside/made"), "135: {words}");
        let id = |name: &str| held["result"][name].as_str().expect("an id").to_owned();
        let answered = user.abide(&["answer", &id("question_id"), "yes"]);
        assert_eq!(answered.code, 0, "{answered:?}");
        let ended = call(user, "shell", &json!({"session_id": id("session_id")}));
        assert_eq!(ended["result"]["status"], "SUCCESS", "{ended}");
        assert!(user.exists("outside/made"), "{ended}");
        let again = json!({"command": format!("echo again > {outside}/again")});
        let again = text(&call(user, "shell", &again));
        assert!(!user.exists("outside/again"), "{again}");
    });
}

#[test]
fn granted_path_that_became_a_link_is_refused() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        for link in ["outside/granted", "outside/granted/below"] {
            user.outside(
                "rm -rf ../outside/* && mkdir -p ../outside/granted/below ../outside/other/below",
            );
            let granted = user.path("outside/granted/below").display().to_string();
            let wanted = json!({
                "command": format!("echo x > {granted}/made"), "needs": {"write": [granted]}, "justification": "a test",
            });
            let held = call(user, "shell", &wanted);
            let id = |name: &str| held["result"][name].as_str().expect("an id").to_owned();
            let link = user.path(link).display().to_string();
            user.outside(&format!("rm -r {link} && ln -s $ROOT/outside/other {link}"));
            let answered = user.abide(&["answer", &id("question_id"), "yes"]);
            assert_eq!(answered.code, 0, "{answered:?}");
            let joined = json!({"session_id": id("session_id")});
            let ended = text(&call(user, "shell", &joined));
            assert!(
                ended.contains("a symbolic link has taken the place"),
                "{ended}"
            );
            assert!(!user.exists("outside/other/made"), "{ended}");
            assert!(!user.exists("outside/other/below/made"), "{ended}");
        }
    });
}

#[test]
fn protected_paths_that_a_person_grants_can_be_written() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        user.outside("git init -q . && mkdir .vscode && echo {} > .vscode/settings.json");
        let command = "git config a.b c; echo x > .vscode/settings.json; echo x > .git/hooks/new; echo x > .vscode/new";
        let needs = json!({"write": [".git/config", ".vscode/settings.json"]});
        let wanted = json!({"command": command, "needs": needs, "justification": "set it up"});
        let held = call(user, "shell", &wanted);
        let id = |name: &str| held["result"][name].as_str().expect("an id").to_owned();
        let answered = user.abide(&["answer", &id("question_id"), "yes"]);
        assert_eq!(answered.code, 0, "{answered:?}");
        let ended = text(&call(
            user,
            "shell",
            &json!({"session_id": id("session_id")}),
        ));
        assert!(ended.contains("SANDBOX: 2 things were refused"), "{ended}");
        assert!(!ended.contains("planted"), "{ended}");
        assert_eq!(user.outside("git config a.b"), "c\n", "{ended}");
        assert_eq!(user.read("work/.vscode/settings.json"), "x\n", "{ended}");
        assert!(!user.exists("work/.git/hooks/new") && !user.exists("work/.vscode/new"));
    });
}

#[test]
fn protected_name_that_a_person_grants_can_be_made() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let command = "mkdir -p .github/workflows; mkdir .vscode";
        let needs = json!({"write": [".github/workflows"]});
        let wanted = json!({"command": command, "needs": needs, "justification": "add CI"});
        let held = call(user, "shell", &wanted);
        let id = |name: &str| held["result"][name].as_str().expect("an id").to_owned();
        let answered = user.abide(&["answer", &id("question_id"), "yes"]);
        assert_eq!(answered.code, 0, "{answered:?}");
        let joined = json!({"session_id": id("session_id")});
        let ended = text(&call(user, "shell", &joined));
        assert!(user.exists("work/.github/workflows"), "{ended}");
        assert!(!user.exists("work/.vscode"), "{ended}");
        assert!(ended.contains("SANDBOX: 1 thing was refused"), "{ended}");
    });
}

#[test]
fn agent_can_ask_for_the_whole_network() {
    as_each_user(|user| {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = server.local_addr().expect("an address").port();
        for network in ["off", "allowlist"] {
            let config =
                format!("[sandbox]\nmode = \"workspace-write\"\nnetwork = \"{network}\"\n");
            user.write("state/config.toml", &config);
            let command = format!("exec 3<> /dev/tcp/127.0.0.1/{port}");
            let refused = call(user, "shell", &json!({"command": command}));
            assert_eq!(refused["result"]["exit_code"], 1, "{refused}");
            let wanted =
                json!({"command": command, "needs": {"network": "on"}, "justification": "test"});
            let held = call(user, "shell", &wanted);
            let said = text(&held);
            assert!(said.contains("the network of the machine"), "{said}");
            let id = |name: &str| held["result"][name].as_str().expect("an id").to_owned();
            let answered = user.abide(&["answer", &id("question_id"), "yes"]);
            assert_eq!(answered.code, 0, "{answered:?}");
            let ended = call(user, "shell", &json!({"session_id": id("session_id")}));
            assert_eq!(ended["result"]["exit_code"], 0, "{ended}");
        }
    });
}

#[test]
fn agent_can_ask_to_run_outside_a_sandbox_that_cannot_be_made() {
    as_each_user(|user| {
        let config = "[sandbox]\nmode = \"workspace-write\"\nwrite = [\"STATE\"]\n";
        let state = user.path("state").display().to_string();
        user.write("state/config.toml", &config.replace("STATE", &state));
        let said = text(&call(user, "shell", &json!({"command": "touch made"})));
        assert!(said.contains("cannot be enforced here"), "{said}");
        let way_out = r#"needs={\"sandbox\":\"off\"}"#;
        assert!(said.contains(way_out), "{said}");
        let needs = json!({"sandbox": "off"});
        let wanted = json!({"command": "touch made", "needs": needs, "justification": "no way"});
        let held = call(user, "shell", &wanted);
        let said = text(&held);
        assert!(said.contains("run outside the sandbox"), "{said}");
        assert!(!user.exists("work/made"), "{said}");
        let id = |name: &str| held["result"][name].as_str().expect("an id").to_owned();
        let answered = user.abide(&["answer", &id("question_id"), "yes"]);
        assert_eq!(answered.code, 0, "{answered:?}");
        let ended = call(user, "shell", &json!({"session_id": id("session_id")}));
        assert_eq!(ended["result"]["sandboxed_by"], "off", "{ended}");
        assert!(user.exists("work/made"), "{ended}");
    });
}

#[test]
fn settings_that_make_everything_writable_are_refused_with_the_reason() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\nwrite = [\"/\"]\n",
        );
        let said = text(&call(user, "shell", &json!({"command": "touch made"})));
        assert!(
            said.contains("'/', which contains abide's own folder"),
            "{said}"
        );
        assert!(!user.exists("work/made"));
    });
}

#[test]
fn folder_of_a_call_outside_the_workspace_can_only_be_read() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        user.write("outside/there", "was read\n");
        let command = "cat there; echo x > made; echo y > $ROOT/work/made";
        let outside = user.path("outside");
        let asked = json!({"command": command, "cwd": outside});
        let result = text(&call(user, "shell", &asked));
        for expected in ["was read", "Read-only file system"] {
            assert!(result.contains(expected), "28: {expected}: {result}");
        }
        assert!(!user.exists("outside/made"), "28: {result}");
        assert_eq!(user.read("work/made"), "y\n", "28: {result}");
    });
}

#[test]
fn variables_of_a_call_stay_inside() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let ours = json!({"command": "touch made", "env": {"ABIDE_DIR": "/x"}});
        let result = text(&call(user, "shell", &ours));
        assert!(result.contains("belong to abide"), "136: {result}");
        assert!(!user.exists("work/made"));
        let path = json!({"command": "echo x > $ROOT/outside/x; echo $LD_LIBRARY_PATH", "env": {"LD_LIBRARY_PATH": "/given"}});
        let result = text(&call(user, "shell", &path));
        assert!(
            result.contains("/given") && result.contains("Read-only"),
            "136: {result}"
        );
    });
}

#[test]
fn command_of_a_condition_runs_in_the_sandbox_of_its_agent() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let outside = user.path("outside/x");
        let command = format!("echo x > tried; echo x > {}; true", outside.display());
        let timer = json!({
            "total_duration": 60, "reason": "a", "until": {"command": command, "every": 1},
        });
        let result = text(&call(user, "timer", &timer));
        assert!(
            result.contains("completed") || result.contains("COMPLETED"),
            "137: {result}"
        );
        assert_eq!(user.read("work/tried"), "x\n");
        assert!(!user.exists("outside/x"), "137");
        let refused = format!("write {}", outside.display());
        for part in ["sandboxed_by namespaces", "SANDBOX: 1 refused", &refused] {
            assert!(result.contains(part), "192: {part}: {result}");
        }
    });
}

#[test]
fn refusals_are_reported_with_any_exit_code() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        user.write("work/.git/config", "");
        let command = "(echo x > $ROOT/outside/x; (cd $ROOT/outside && mkdir new); echo x > .git/config; rm -f .git/config) 2> /dev/null; mkdir .vscode; echo y > file";
        for tool in ["shell", "execute_command"] {
            let result = call(user, tool, &json!({"command": command}));
            let said = text(&result);
            assert!(
                said.contains("SANDBOX: 5 things were refused (workspace-write, network off)"),
                "{said}"
            );
            let paths = ["outside/x", "outside/new", "work/.git/config"];
            for path in paths {
                let path = user.path(path).display().to_string();
                assert!(said.contains(&format!("write  {path}")), "{path}: {said}");
            }
            assert!(said.contains("needs="), "{said}");
            let name = user.path("work/.vscode").display().to_string();
            assert!(said.contains(&format!("make   {name}")), "41: {said}");
            assert!(!said.contains("planted"), "41: {said}");
            assert!(!user.exists("work/.vscode"), "41: {said}");
            let result = text(&call(
                user,
                tool,
                &json!({"command": "echo y > file; echo z > ~/z; echo > /dev/null"}),
            ));
            assert!(!result.contains("SANDBOX:"), "{result}");
        }
    });
}

#[test]
fn mistake_in_the_settings_refuses_commands_of_agents() {
    as_each_user(|user| {
        let said = text(&call(user, "shell", &json!({"command": "touch before"})));
        assert!(said.contains("STATUS: SUCCESS"), "{said}");
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-wirte\"\n",
        );
        let said = text(&call(user, "shell", &json!({"command": "touch made"})));
        assert!(
            said.contains("REFUSED: the configuration cannot be used"),
            "{said}"
        );
        assert!(
            said.contains("at line 2, column 8: unknown variant"),
            "{said}"
        );
        assert!(user.exists("work/before") && !user.exists("work/made"));
    });
}

#[test]
fn needed_path_that_does_not_exist_is_refused_without_a_question() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let asked = json!({"command": "touch made", "needs": {"write": ["/usr/none"]}, "justification": "a test"});
        let said = text(&call(user, "shell", &asked));
        assert!(said.contains("which does not exist"), "{said}");
        assert!(!user.exists("work/made"));
    });
}

#[test]
fn connections_without_network_are_reported() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let command = "python3 -c 'import socket\nfor target in (\"192.0.2.1\", 443), (\"127.0.0.1\", 9):\n  \
                       print(socket.socket().connect_ex(target))'";
        let said = text(&call(user, "shell", &json!({"command": command})));
        for part in [
            "SANDBOX: 1 thing was refused (workspace-write, network off)",
            "  address 192.0.2.1:443  the network is off",
            "call again with needs=",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    });
}

#[test]
fn network_off_without_a_sandbox_is_refused_and_nothing_is_run() {
    as_each_user(|user| {
        let asked = json!({"command": "touch made", "network": "off"});
        let said = text(&call(user, "shell", &asked));
        assert!(said.contains("`network` needs a sandbox"), "{said}");
        assert!(!user.exists("work/made"));
        let asked =
            json!({"command": "touch made", "network": "off", "sandbox": "workspace-write"});
        let said = text(&call(user, "shell", &asked));
        assert!(said.contains("STATUS: SUCCESS"), "{said}");
        assert!(user.exists("work/made"));
    });
}

#[test]
fn many_refusals_are_counted_and_bounded() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let command = "for i in $(seq 300); do { : > $ROOT/outside/x$i; } 2> /dev/null; done; true";
        let said = text(&call(user, "shell", &json!({"command": command})));
        assert!(said.contains("300 things were refused"), "142: {said}");
        let line = format!("write  {}", user.path("outside/x").display());
        assert_eq!(said.matches(&line).count(), 20, "142");
        assert!(said.contains("  … and 280 more"), "142: {said}");
    });
}

#[test]
fn refusals_of_all_kinds_of_changes_are_told_and_counted() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        user.outside("git init -q . && touch ../outside/{mode,owner,label}");
        let command = "for i in 1 2 3; do echo x > ../outside/new; done; chmod 600 ../outside/mode; \
                       chown $(id -u) ../outside/owner; mv .git old; \
                       python3 -c 'import os; os.setxattr(\"../outside/label\", \"user.x\", b\"\")'";
        let said = text(&call(user, "shell", &json!({"command": command})));
        let path = |name: &str| user.path(name).display().to_string();
        for line in [
            "SANDBOX: 7 things were refused".to_owned(),
            format!("  write  {} (3 times)", path("outside/new")),
            format!("  write  {}\\n", path("outside/mode")),
            format!("  write  {}\\n", path("outside/owner")),
            format!("  write  {}\\n", path("outside/label")),
            format!("  write  {}  it is protected", path("work/.git")),
        ] {
            assert!(said.contains(&line), "142: {line}: {said}");
        }
    });
}

#[test]
fn model_can_choose_an_allowlist_where_the_network_is_on() {
    as_each_user(|user| {
        let asked = json!({"command": "getent hosts printer.internal", "network": "allowlist"});
        for (network, expected) in [("on", "SANDBOX: "), ("off", "`network` asks for more")] {
            let config =
                format!("[sandbox]\nmode = \"workspace-write\"\nnetwork = \"{network}\"\n");
            user.write("state/config.toml", &config);
            let said = text(&call(user, "shell", &asked));
            assert!(said.contains(expected), "134: {network}: {said}");
        }
    });
}

#[test]
fn refusals_are_in_the_audit_log_once() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let command = "echo x > $ROOT/outside/refused; true";
        let refused_path = user.path("outside/refused").display().to_string();
        call(user, "shell", &json!({"command": command}));
        user.outside("while ! ls $ROOT/state/sessions/*/refused.audited > /dev/null 2>&1; do sleep 0.05; done");
        // The next daemon looks at the session again.
        user.abide(&["stop"]);
        call(user, "shell", &json!({"command": "true"}));
        let log = user.abide(&["audit", "--json"]).text;
        let lines = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let refused: Vec<Value> = lines.filter(|line| line["event"] == "refused").collect();
        assert_eq!(refused.len(), 1, "{log}");
        assert_eq!(
            refused[0]["commands"],
            json!([format!("write {refused_path}")]),
            "{log}"
        );
        assert_eq!(
            (&refused[0]["agent"], &refused[0]["command"]),
            (&json!("codex"), &json!(command)),
            "{log}"
        );
        let shown = user.abide(&["audit", "--ruled"]).text;
        let refused = format!("(refused by workspace-write, network off: 1: write {refused_path})");
        assert!(shown.contains(&refused), "{shown}");
        let verified = user.abide(&["audit", "--verify"]);
        assert_eq!(verified.code, 0, "{verified:?}");
    });
}
