//! `abide setup`: configuration files of clients, changed and restored.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::harness::{Abide, Pty, text};

/// Every client, its file in the home directory, and the key of its servers.
const CLIENTS: [(&str, &str, &str); 4] = [
    ("claude-code", ".claude.json", "mcpServers"),
    ("cursor", ".cursor/mcp.json", "mcpServers"),
    ("vscode", ".config/Code/User/mcp.json", "servers"),
    ("gemini", ".gemini/settings.json", "mcpServers"),
];

fn command(abide: &Abide, words: &[&str]) -> Command {
    abide.command_at_home(["setup"].iter().chain(words))
}

fn setup(abide: &Abide, words: &[&str]) -> Output {
    command(abide, words).output().expect("abide runs")
}

#[track_caller]
fn done(abide: &Abide, words: &[&str]) -> String {
    let output = setup(abide, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    text(&output.stdout)
}

fn home(abide: &Abide, file: &str) -> PathBuf {
    abide.path("home").join(file)
}

fn put(path: &PathBuf, content: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn read(path: &PathBuf) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn missing_file_is_created_and_removed_by_undo() {
    for (client, file, key) in CLIENTS {
        let abide = Abide::new();
        let path = home(&abide, file);
        let said = done(&abide, &[client, "--yes"]);
        let next = format!("no sandbox. To switch it on, run `abide setup {client} --sandbox");
        assert!(said.contains(&next), "{said}");
        let made: Value = serde_json::from_str(&read(&path)).unwrap();
        let server = &made[key]["abide"];
        assert_eq!(server["command"], env!("CARGO_BIN_EXE_abide"), "{client}");
        assert_eq!(server["args"], json!(["mcp", "--agent", client]));
        let folder = abide.path("abide");
        assert_eq!(server["env"]["ABIDE_DIR"], folder.to_str().unwrap());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(done(&abide, &[client, "--yes"]).contains("is already set up"));
        done(&abide, &[client, "--undo", "--yes"]);
        assert!(!path.exists(), "{client}");
        // So are the folders that setup made.
        assert!(!home(&abide, "").exists(), "{client}");
        assert!(!abide.path("abide").exists(), "{client}");
        assert!(done(&abide, &[client, "--undo"]).contains("nothing to undo"));
    }
}

#[test]
fn undo_leaves_an_empty_folder_that_was_there_before() {
    for (client, file, _) in CLIENTS {
        let abide = Abide::new();
        let path = home(&abide, file);
        let folder = path.parent().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::create_dir_all(abide.path("abide")).unwrap();
        for _ in 0..2 {
            done(&abide, &[client, "--waker", "--yes"]);
            done(&abide, &[client, "--undo", "--yes"]);
            assert!(folder.is_dir(), "{client}");
            let left = std::fs::read_dir(abide.path("abide")).unwrap().count();
            assert_eq!(left, 0, "{client}");
        }
    }
}

#[test]
fn undo_removes_a_created_folder_once_the_last_file_in_it_is_gone() {
    let abide = Abide::new();
    let waker = |client: &str, word: &str| done(&abide, &[client, word, "--yes"]);
    waker("claude-code", "--waker");
    waker("codex", "--waker");
    waker("claude-code", "--undo");
    assert!(abide.path("abide/config.toml").exists());
    waker("codex", "--undo");
    assert!(!abide.path("abide").exists());
    assert!(!home(&abide, "").exists());
}

#[test]
fn rest_of_the_file_is_kept_byte_for_byte() {
    let mine = "// mine\n{\n\t\"theme\": \"dark\", // at night\n\t\"KEY\": {\n\t\t\"other\": { \"command\": \"x\" }, /* used */\n\t},\n}\n";
    for (client, file, key) in CLIENTS {
        let abide = Abide::new();
        let path = home(&abide, file);
        let before = mine.replace("KEY", key);
        put(&path, &before);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        done(&abide, &[client, "--yes"]);
        let after = read(&path);
        for line in before.lines() {
            assert!(after.contains(line), "{client}: {line:?} in {after}");
        }
        assert!(after.contains("\n\t\t\"abide\": {\n\t\t\t\""), "{after}");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let copy = path.with_added_extension("before-abide");
        assert_eq!(read(&copy), before);
        done(&abide, &[client, "--undo", "--yes"]);
        assert_eq!(read(&path), before);
        assert!(!copy.exists());
    }
}

#[test]
fn undo_of_a_changed_file_removes_only_the_entry() {
    let abide = Abide::new();
    let path = home(&abide, ".claude.json");
    put(&path, "{\n  \"a\": 1\n}");
    done(&abide, &["claude-code", "--yes"]);
    let later = read(&path).replacen("\"a\": 1", "\"a\": 2,\n  \"b\": 3", 1);
    put(&path, &later);
    done(&abide, &["claude-code", "--undo", "--yes"]);
    assert_eq!(read(&path), "{\n  \"a\": 2,\n  \"b\": 3\n}");
}

#[test]
fn undo_restores_the_entry_before_setup() {
    let abide = Abide::new();
    let path = home(&abide, ".cursor/mcp.json");
    let before = "{\"mcpServers\": {\"abide\": {\"command\": \"mine\"}}}";
    put(&path, before);
    done(&abide, &["cursor", "--yes"]);
    done(&abide, &["cursor", "--yes", "--agent", "another"]);
    assert!(read(&path).contains("another"));
    put(&path, &read(&path).replacen('{', "{\"new\": 1, ", 1));
    done(&abide, &["cursor", "--undo", "--yes"]);
    let back: Value = serde_json::from_str(&read(&path)).unwrap();
    assert_eq!(
        back,
        json!({"new": 1, "mcpServers": {"abide": {"command": "mine"}}})
    );
}

#[test]
fn fields_added_by_the_person_are_kept() {
    for (client, file, key) in CLIENTS {
        let abide = Abide::new();
        let path = home(&abide, file);
        done(&abide, &[client, "--yes"]);
        let ours = "\"args\": [";
        let theirs = "\"trust\": true, // mine\n      \"args\": [";
        let set = read(&path).replacen(ours, theirs, 1);
        let set = set.replacen("\"env\": {", "\"env\": {\n        \"MINE\": \"1\",", 1);
        put(&path, &set);
        assert!(done(&abide, &[client, "--yes"]).contains("is already set up"));
        assert_eq!(read(&path), set, "{client}");
        done(&abide, &[client, "--yes", "--agent", "another"]);
        assert_eq!(
            read(&path),
            set.replace(&format!("\"{client}\""), "\"another\"")
        );
        done(&abide, &[client, "--undo", "--yes"]);
        assert!(!path.exists(), "{client} of {key}: {}", read(&path));
    }
}

#[test]
fn entry_for_another_directory_or_url_is_corrected() {
    let abide = Abide::new();
    let path = home(&abide, ".gemini/settings.json");
    put(
        &path,
        r#"{"mcpServers": {"abide": {"command": "x", "env": {"XDG_STATE_HOME": "/old", "MINE": "1"}}}}"#,
    );
    done(&abide, &["gemini", "--yes"]);
    let made: Value = serde_json::from_str(&read(&path)).unwrap();
    let env = &made["mcpServers"]["abide"]["env"];
    let folder = abide.path("abide");
    let wanted = json!({"MINE": "1", "ABIDE_DIR": folder, "ABIDE_CALL_LIMIT": "3600"});
    assert_eq!(*env, wanted);
    put(
        &path,
        r#"{"mcpServers": {"abide": {"httpUrl": "http://127.0.0.1:1/mcp"}}}"#,
    );
    done(&abide, &["gemini", "--yes"]);
    let made: Value = serde_json::from_str(&read(&path)).unwrap();
    let entry = &made["mcpServers"]["abide"];
    assert_eq!(entry["command"], env!("CARGO_BIN_EXE_abide"));
    assert_eq!(entry["httpUrl"], Value::Null);
}

#[test]
fn codex_file_keeps_comments_and_gets_a_timeout() {
    let abide = Abide::new();
    let path = abide.path("codex/config.toml");
    let before = "# mine\nmodel = \"m\" # fast\n\n[mcp_servers.other]\ncommand = \"x\"\n";
    put(&path, before);
    let run = |words: &[&str]| {
        let mut command = command(&abide, words);
        let output = command.env("CODEX_HOME", abide.path("codex")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run(&["codex", "--yes"]);
    let after = read(&path);
    assert!(after.starts_with(before), "{after}");
    assert!(after.contains("tool_timeout_sec = 3600"), "{after}");
    assert!(after.contains("ABIDE_CALL_LIMIT = \"3600\""), "{after}");
    run(&["codex", "--undo", "--yes"]);
    assert_eq!(read(&path), before);
}

#[test]
fn invalid_files_are_not_changed() {
    let abide = Abide::new();
    for (client, file, broken) in [
        (
            "claude-code",
            ".claude.json",
            "{\n  \"a\": 1\n  \"b\": 2\n}",
        ),
        ("gemini", ".gemini/settings.json", "{\"mcpServers\": []}"),
        ("codex", ".codex/config.toml", "a = 1\nb =\n"),
        ("codex", ".codex/config.toml", "mcp_servers = 1\n"),
        ("cursor", ".cursor/mcp.json", "{} trailing"),
    ] {
        let path = home(&abide, file);
        put(&path, broken);
        for words in [&[client, "--yes"][..], &[client, "--undo", "--yes"]] {
            let output = setup(&abide, words);
            let why = text(&output.stderr);
            if output.status.success() {
                // The file parses and has no entry of abide.
                assert!(words.contains(&"--undo"), "{words:?} {output:?}");
            } else {
                assert!(why.contains("was not changed"), "{why}");
                assert!(why.contains(file), "{why}");
            }
        }
        assert_eq!(read(&path), broken);
        assert!(!path.with_added_extension("before-abide").exists());
    }
}

#[test]
fn nothing_is_written_without_confirmation() {
    let abide = Abide::new();
    let path = home(&abide, ".claude.json");
    let output = setup(&abide, &["claude-code"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("+   \"mcpServers\": {"), "{said}");
    assert!(said.contains("Nothing was written"), "{said}");
    let printed = done(&abide, &["claude-code", "--print"]);
    assert!(printed.contains("+   \"mcpServers\": {"), "{printed}");
    let output = setup(&abide, &["claude-code", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["written"], false);
    assert_eq!(facts["files"][0]["change"], "create");
    assert!(!path.exists());
    let facts = done(&abide, &["claude-code", "--json", "--yes"]);
    let facts: Value = serde_json::from_str(&facts).unwrap();
    assert_eq!(facts["written"], true);
    assert!(path.exists());
}

#[test]
fn answer_from_a_pipe_writes_nothing() {
    let abide = Abide::new();
    let path = home(&abide, ".claude.json");
    for answer in ["", "n\n", "y\n"] {
        let mut asked = command(&abide, &["claude-code"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("abide runs");
        let mut pipe = asked.stdin.take().expect("a pipe");
        // The pipe may be closed already, because it is not read.
        let _ = pipe.write_all(answer.as_bytes());
        drop(pipe);
        let output = asked.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stdout);
        assert!(said.contains("no terminal to ask at"), "{said}");
        assert!(!path.exists(), "{output:?}");
    }
}

#[test]
fn confirmation_defaults_to_no() {
    let abide = Abide::new();
    let path = home(&abide, ".claude.json");
    for (answer, written) in [("\n", false), ("n\n", false), ("y\n", true)] {
        let mut pty = Pty::run(command(&abide, &["claude-code"]));
        // What a waker can cost is said in the question about it.
        for question in ["in a sandbox", "without asking you each time", "You pay"] {
            pty.wait_for(question);
            pty.type_in(b"\n");
        }
        pty.wait_for("Write this? [y/N]");
        pty.type_in(answer.as_bytes());
        let (status, shown) = pty.end();
        assert_eq!(status.success(), written);
        let refused = shown.contains("Claude Code: nothing was changed.");
        assert_eq!(refused, !written, "{shown}");
        assert_eq!(path.exists(), written, "{answer:?}");
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains("even if Claude Code has a sandbox for its own tools"),
            "{shown}"
        );
        // What the person has just refused is not offered again; what to try is said only after a change.
        assert!(!shown.contains("have no sandbox"), "{shown}");
        let is_told = shown.contains("Use abide to run `echo building; sleep 60; echo built`");
        assert_eq!(is_told, written, "{shown}");
        // Neither the sandbox nor the waker nor the permission is written without a yes.
        assert!(!abide.path("abide/config.toml").exists());
        assert!(!home(&abide, ".claude/settings.json").exists());
    }
}

#[test]
fn person_who_says_yes_gets_the_sandbox_the_permission_and_the_waker() {
    let abide = Abide::new();
    let mut pty = Pty::run(command(&abide, &["claude-code"]));
    for question in [
        "in a sandbox",
        "without asking you each time",
        "May abide start a turn of Claude Code",
        "Write this? [y/N]",
    ] {
        pty.wait_for(question);
        pty.type_in(b"y\n");
    }
    let (status, shown) = pty.end();
    assert!(status.success());
    // The client needs no further permission.
    assert!(!shown.contains("--approve"), "{shown}");
    assert!(!shown.contains("have no sandbox"), "{shown}");
    let config = read(&abide.path("abide/config.toml"));
    let entry = "[[sandbox.for]]\nagent = \"claude-code\"\nmode = \"workspace-write\"\n";
    assert!(config.contains(entry), "{config}");
    let entry = "[[wakers]]\nagent = \"claude-code\"\nclaude_code = true\n";
    assert!(config.contains(entry), "{config}");
    let settings: Value =
        serde_json::from_str(&read(&home(&abide, ".claude/settings.json"))).unwrap();
    assert_eq!(settings, json!({"permissions": {"allow": ["mcp__abide"]}}));
}

#[test]
fn sandbox_is_written_for_the_agent_and_removed_by_off_and_undo() {
    let abide = Abide::new();
    let config = abide.path("abide/config.toml");
    put(&config, "# mine\nmax_output = 9000\n");
    let shown = done(
        &abide,
        &["claude-code", "--sandbox", "workspace-write", "--print"],
    );
    assert!(shown.contains("+ mode = \"workspace-write\""), "{shown}");
    assert!(!read(&config).contains("sandbox"));
    let with = ["--sandbox", "workspace-write", "--yes"];
    for client in ["claude-code", "cursor"] {
        done(&abide, &[&[client][..], &with].concat());
    }
    let text = read(&config);
    assert_eq!(
        text.matches("mode = \"workspace-write\"").count(),
        2,
        "{text}"
    );
    // A later setup without the option changes nothing.
    done(&abide, &["cursor", "--yes"]);
    assert_eq!(read(&config), text);
    done(&abide, &["cursor", "--sandbox", "off", "--yes"]);
    let text = read(&config);
    assert!(
        !text.contains("cursor") && text.contains("claude-code"),
        "{text}"
    );
    done(&abide, &["claude-code", "--undo", "--yes"]);
    assert_eq!(read(&config), "# mine\nmax_output = 9000\n");
    assert_eq!(
        setup(&abide, &["cursor", "--sandbox", "read"])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn permission_entry_is_written_where_the_client_has_one() {
    let abide = Abide::new();
    let settings = home(&abide, ".claude/settings.json");
    let before = "{\n  // mine\n  \"permissions\": {\"allow\": [\"Bash(ls)\"]}\n}\n";
    put(&settings, before);
    for (client, has_setting) in [
        ("claude-code", true),
        ("codex", true),
        ("gemini", true),
        ("cursor", false),
    ] {
        let offer = format!("run `abide setup {client} --approve`.");
        let said = done(&abide, &[client, "--yes"]);
        assert_eq!(said.contains(&offer), has_setting, "{said}");
        let output = setup(&abide, &[client, "--approve", "--waker", "--yes"]);
        let (said, warned) = (text(&output.stdout), text(&output.stderr));
        assert!(!said.contains("--approve"), "{said}");
        let missing = match client {
            "gemini" => "abide: Gemini CLI has no setting for --waker\n",
            "cursor" => "abide: Cursor has no setting for --approve and --waker\n",
            _ => "",
        };
        assert_eq!(warned, missing);
    }
    let text = read(&settings);
    assert!(
        text.contains("// mine") && text.contains("\"Bash(ls)\""),
        "{text}"
    );
    assert!(text.contains("\"mcp__abide\""), "{text}");
    assert!(
        read(&home(&abide, ".codex/config.toml"))
            .contains("default_tools_approval_mode = \"approve\"")
    );
    assert!(read(&home(&abide, ".gemini/settings.json")).contains("\"trust\": true"));
    done(&abide, &["claude-code", "--undo", "--yes"]);
    assert_eq!(read(&settings), before);
}

#[test]
fn client_that_is_not_installed_and_a_change_that_was_not_written_are_said() {
    let abide = Abide::new();
    let mut bare = command(&abide, &["codex", "--print"]);
    let output = bare
        .env("PATH", "/nonexistent")
        .output()
        .expect("abide runs");
    let said = text(&output.stdout);
    assert!(
        said.contains("Codex was not found on this machine"),
        "{said}"
    );
    let output = setup(&abide, &["codex", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["written"], false);
    let output = setup(&abide, &["codex", "--json", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    std::fs::create_dir_all(home(&abide, ".cursor")).unwrap();
    let output = setup(&abide, &["cursor", "--json", "--print"]);
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["installed"], true, "{facts}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn person_chooses_among_several_installed_clients() {
    let abide = Abide::new();
    put(&home(&abide, ".claude.json"), "{}");
    put(&home(&abide, ".codex/config.toml"), "");
    let mut bare = command(&abide, &[]);
    bare.env("PATH", "/nonexistent");
    let mut pty = Pty::run(bare);
    pty.wait_for("Found Claude Code and Codex on this machine.");
    pty.wait_for("Set up Claude Code? [Y/n]");
    pty.type_in(b"n\n");
    for (question, answer) in [
        // An empty line sets a client up, because each change is asked about.
        ("Set up Codex? [Y/n]", "\n"),
        ("in a sandbox", "\n"),
        ("without asking you each time", "\n"),
        ("May abide start a turn of Codex", "\n"),
        ("Write this? [y/N]", "y\n"),
    ] {
        pty.wait_for(question);
        pty.type_in(answer.as_bytes());
    }
    let (status, _) = pty.end();
    assert!(status.success());
    assert_eq!(read(&home(&abide, ".claude.json")), "{}");
    let codex = read(&home(&abide, ".codex/config.toml"));
    assert!(codex.contains("[mcp_servers.abide]"), "{codex}");
}

#[test]
fn without_a_client_every_installed_one_is_set_up() {
    let abide = Abide::new();
    let bare = |words: &[&str]| {
        let mut command = command(&abide, words);
        command.env("PATH", "/nonexistent");
        command.output().expect("abide runs")
    };
    let output = bare(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("none of these clients was found"), "{said}");

    put(&home(&abide, ".cursor/mcp.json"), "{broken");
    put(&home(&abide, ".claude.json"), "{}");
    std::fs::create_dir_all(home(&abide, ".gemini")).unwrap();
    let output = bare(&["--yes", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let facts: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let clients: Vec<&Value> = facts.iter().map(|fact| &fact["client"]).collect();
    assert_eq!(clients, ["claude-code", "cursor", "gemini"]);
    for fact in [&facts[0], &facts[2]] {
        assert_eq!(
            [&fact["agent"], &fact["written"]],
            [&fact["client"], &json!(true)]
        );
    }
    let why = facts[1]["error"].as_str().unwrap();
    assert!(why.contains(".cursor/mcp.json was not changed"), "{why}");
    for file in [".claude.json", ".gemini/settings.json"] {
        assert!(read(&home(&abide, file)).contains("\"abide\""), "{file}");
    }
    assert!(!home(&abide, ".codex").exists());
    put(&home(&abide, ".cursor/mcp.json"), "{}");
    let output = bare(&["--undo", "--yes"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(read(&home(&abide, ".claude.json")), "{}");
}

#[test]
fn project_file_has_no_path_of_this_machine() {
    let abide = Abide::new();
    for (client, file) in [
        ("claude-code", ".mcp.json"),
        ("codex", ".codex/config.toml"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("gemini", ".gemini/settings.json"),
    ] {
        done(&abide, &[client, "--project", "--yes"]);
        let made = read(&abide.path(file));
        assert!(made.contains("\"abide\""), "{made}");
        let root = abide.path("");
        assert!(!made.contains(root.to_str().unwrap()), "{made}");
    }
    assert!(!abide.path("home").exists());
}

#[test]
fn symbolic_link_is_kept() {
    let abide = Abide::new();
    let real = abide.path("dotfiles/claude.json");
    put(&real, "{}\n");
    std::fs::create_dir_all(abide.path("home")).unwrap();
    let link = home(&abide, ".claude.json");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    done(&abide, &["claude-code", "--yes"]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(read(&real).contains("\"abide\""));
    done(&abide, &["claude-code", "--undo", "--yes"]);
    assert_eq!(read(&real), "{}\n");
}

#[test]
fn read_only_file_is_not_changed() {
    let abide = Abide::new();
    let path = home(&abide, ".cursor/mcp.json");
    put(&path, "{}\n");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    let output = setup(&abide, &["cursor", "--yes"]);
    assert_eq!(output.status.code(), Some(1));
    let why = text(&output.stderr);
    assert!(
        why.contains("it is read-only; make it writable first"),
        "{why}"
    );
    assert_eq!(read(&path), "{}\n");
    assert!(!path.with_added_extension("before-abide").exists());
    // A dry run needs no write permission.
    assert!(done(&abide, &["cursor", "--print"]).contains("\"abide\""));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    done(&abide, &["cursor", "--yes"]);
    assert!(read(&path).contains("\"abide\""));
}

#[test]
fn setup_starts_no_daemon() {
    let abide = Abide::new();
    done(&abide, &["gemini", "--yes"]);
    assert!(!abide.path("abide/run").exists());
}

#[test]
fn waker_is_added_if_asked_for_and_removed_with_the_client() {
    let abide = Abide::new();
    let config = abide.path("abide/config.toml");
    for client in ["claude-code", "codex"] {
        done(&abide, &[client, "--yes"]);
        assert!(!config.exists(), "{client}");
    }
    done(&abide, &["claude-code", "--waker", "--yes"]);
    done(&abide, &["codex", "--waker", "--yes", "--agent", "two"]);
    let both = read(&config);
    assert!(
        both.contains("agent = \"claude-code\"\nclaude_code = true\n"),
        "{both}"
    );
    assert!(both.contains("agent = \"two\"\ncodex = true\n"), "{both}");
    // A later setup without the option changes nothing.
    done(&abide, &["claude-code", "--yes"]);
    assert_eq!(read(&config), both);
    // The daemon accepts it.
    abide.json(["status", "--json"]);
    done(&abide, &["claude-code", "--undo", "--yes"]);
    assert!(!read(&config).contains("claude_code"), "{}", read(&config));
    done(&abide, &["codex", "--undo", "--yes", "--agent", "two"]);
    assert!(!config.exists(), "{}", read(&config));
}

#[test]
fn later_setup_and_undo_are_for_the_agent_of_the_first() {
    for client in ["claude-code", "codex"] {
        let abide = Abide::new();
        let config = abide.path("abide/config.toml");
        let with = ["--agent", "my agent", "--waker", "--yes"];
        let said = done(&abide, &[&[client][..], &with].concat());
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for option in ["--approve", "--undo", "--sandbox workspace-write"] {
            let hint = format!("run `abide setup {client} --agent 'my agent' {option}`.");
            assert!(said.contains(&hint), "{hint}: {said}");
        }
        let said = done(&abide, &[client, "--sandbox", "workspace-write", "--yes"]);
        assert!(said.contains("is set up as agent my agent."), "{said}");
        let entry = "[[sandbox.for]]\nagent = \"my agent\"\n";
        assert!(read(&config).contains(entry), "{}", read(&config));
        done(&abide, &[client, "--agent", "other", "--yes"]);
        assert!(!read(&config).contains("my agent"), "{}", read(&config));
        done(&abide, &[client, "--undo", "--yes"]);
        assert!(!config.exists(), "{}", read(&config));
    }
}

#[test]
fn person_is_not_asked_about_what_is_set_up_already() {
    for client in ["claude-code", "codex"] {
        let abide = Abide::new();
        let with = [
            "--sandbox",
            "workspace-write",
            "--approve",
            "--waker",
            "--yes",
        ];
        done(&abide, &[&[client][..], &with].concat());
        let (status, shown) = Pty::run(command(&abide, &[client])).end();
        assert!(status.success());
        assert!(shown.contains("is already set up"), "{shown}");
        assert!(!shown.contains("[y/N]"), "{shown}");
        let said = done(&abide, &[client, "--sandbox", "off", "--yes"]);
        assert!(!said.contains("without asking you"), "{said}");
    }
}

#[test]
fn invalid_own_configuration_stops_the_setup() {
    let abide = Abide::new();
    put(&abide.path("abide/config.toml"), "a = \n");
    let output = setup(&abide, &["claude-code", "--waker", "--yes"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("config.toml was not changed"));
    assert!(!home(&abide, ".claude.json").exists());
}

#[test]
fn setup_explains_the_waker_and_its_cost() {
    let abide = Abide::new();
    for (client, resumes) in [
        ("claude-code", "`claude -p --resume`"),
        ("codex", "`codex exec resume`"),
    ] {
        let said = done(&abide, &[client, "--waker", "--yes"]).replace('\n', " ");
        assert!(said.contains(resumes) && said.contains("You pay"), "{said}");
    }
    let said = done(&abide, &["cursor", "--waker", "--yes"]);
    assert!(!said.contains("You pay"), "there is no waker: {said}");
}
