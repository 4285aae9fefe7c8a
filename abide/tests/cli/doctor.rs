//! `abide doctor`: findings on a healthy system and on one with problems.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Abide, text};

fn command(abide: &Abide) -> Command {
    abide.command_at_home(["doctor", "--json"])
}

fn look(abide: &Abide) -> (Option<i32>, Value) {
    let output = command(abide).output().expect("abide runs");
    let found = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.code(), found)
}

/// Finding for a topic.
#[track_caller]
fn of<'a>(found: &'a Value, topic: &str) -> &'a Value {
    let all = found["findings"].as_array().expect("findings");
    all.iter()
        .find(|finding| finding["topic"] == topic)
        .unwrap_or_else(|| panic!("nothing of {topic} in {found}"))
}

#[test]
fn doctor_starts_no_daemon() {
    let abide = Abide::new();
    let (code, found) = look(&abide);
    assert_eq!(code, Some(0), "{found}");
    for topic in [
        "configuration",
        "daemon",
        "clock",
        "page",
        "containment",
        "files",
        "processes",
        "watches",
        "state",
        "disk",
        "clients",
        "wakers",
    ] {
        assert_ne!(of(&found, topic)["level"], "trouble", "{topic}");
    }
    assert!(!abide.path("abide").exists());
}

#[test]
fn doctor_names_the_running_daemon() {
    let abide = Abide::new();
    let pid = abide.pid();
    let (code, found) = look(&abide);
    assert_eq!(code, Some(0), "{found}");
    let says = of(&found, "daemon")["says"].as_str().unwrap();
    assert!(says.contains(&format!("process {pid}")), "{says}");
    assert_eq!(of(&found, "log")["level"], "ok");
    let address = of(&found, "address")["says"].as_str().unwrap();
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
}

#[test]
fn invalid_configuration_is_a_finding_and_other_checks_run() {
    let abide = Abide::with_config("nonsense = 1\n");
    let (code, found) = look(&abide);
    assert_eq!(code, Some(1));
    assert_eq!(found["level"], "trouble");
    let finding = of(&found, "configuration");
    assert!(finding["says"].as_str().unwrap().contains("nonsense"));
    assert!(finding["next"].is_string());
    assert_eq!(of(&found, "disk")["level"].as_str(), Some("ok"));
}

#[test]
fn state_directory_writable_by_others_is_a_finding() {
    let abide = Abide::new();
    let dir = abide.path("abide");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    let (code, found) = look(&abide);
    assert_eq!(code, Some(1));
    let finding = of(&found, "state");
    assert_eq!(finding["level"], "trouble");
    assert!(finding["next"].as_str().unwrap().contains("chmod 700"));
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(of(&look(&abide).1, "state")["level"], "warning");
    abide.pid();
    let mode = std::fs::metadata(&dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(of(&look(&abide).1, "state")["level"], "ok");
}

#[test]
fn broken_rule_is_shown_with_its_line_by_doctor_and_status() {
    let abide = Abide::new();
    abide.pid();
    let rule = "max_output = 200\n\n[[policy.rule]]\nrun = []\ndo = \"ask\"\n";
    std::fs::write(abide.path("abide/config.toml"), rule).unwrap();
    let (code, found) = look(&abide);
    assert_eq!(code, Some(1));
    assert_eq!(of(&found, "configuration")["level"], "ok");
    let finding = of(&found, "policy");
    assert_eq!(finding["level"], "trouble");
    let says = finding["says"].as_str().unwrap();
    assert!(
        says.contains("config.toml: line 3: rule \"rule-1\": "),
        "{says}"
    );
    let status = text(&abide.output(["status"]).stdout);
    assert!(status.contains("config.toml: line 3: "), "{status}");
    assert!(
        status.contains("Commands of agents are refused until"),
        "{status}"
    );
    std::fs::write(abide.path("abide/config.toml"), "max_output = 200\n").unwrap();
    let status = abide.json(["status", "--json"]);
    assert_eq!(status["policy"]["trouble"], Value::Null);
}

#[test]
fn shell_and_certificates_that_are_missing_are_trouble() {
    let abide = Abide::new();
    for (config, named) in [
        (
            "shell = [\"/nonexistent\", \"-c\"]\n",
            "the shell /nonexistent",
        ),
        (
            "ca_file = \"/nonexistent\"\n",
            "certificates in /nonexistent",
        ),
    ] {
        std::fs::create_dir_all(abide.path("abide")).unwrap();
        std::fs::write(abide.path("abide/config.toml"), config).unwrap();
        let (code, found) = look(&abide);
        assert_eq!(code, Some(1), "{config}");
        let says = of(&found, "configuration")["says"].as_str().unwrap();
        assert!(says.contains(named), "{says}");
    }
}

#[test]
fn client_entry_with_another_program_is_a_finding() {
    let abide = Abide::new();
    std::fs::create_dir_all(abide.path("home/.cursor")).unwrap();
    let file = abide.path("home/.cursor/mcp.json");
    let name = |command: &str| {
        let text = format!("{{\"mcpServers\": {{\"abide\": {{\"command\": \"{command}\"}}}}}}");
        std::fs::write(&file, text).unwrap();
    };
    name("/nowhere/abide");
    let (code, found) = look(&abide);
    assert_eq!(code, Some(1));
    let finding = of(&found, "cursor");
    assert_eq!(finding["level"], "trouble");
    let next = finding["next"].as_str().unwrap();
    assert!(next.contains("abide setup cursor"), "{next}");

    let old = abide.path("old");
    std::fs::write(&old, "#!/bin/sh\necho abide 0.0.1\n").unwrap();
    std::fs::set_permissions(&old, PermissionsExt::from_mode(0o755)).unwrap();
    name(old.to_str().unwrap());
    let finding = of(&look(&abide).1, "cursor").clone();
    assert_eq!(finding["level"], "warning");
    assert!(finding["says"].as_str().unwrap().contains("abide 0.0.1"));

    name(env!("CARGO_BIN_EXE_abide"));
    assert_eq!(of(&look(&abide).1, "cursor")["level"], "ok");
    std::fs::write(&file, "{").unwrap();
    assert_eq!(of(&look(&abide).1, "cursor")["level"], "warning");
}

#[test]
fn entry_that_fetches_the_package_is_tried() {
    let abide = Abide::new();
    std::fs::create_dir_all(abide.path("home/.cursor")).unwrap();
    std::fs::create_dir_all(abide.path("bin")).unwrap();
    let entry =
        r#"{"mcpServers": {"abide": {"command": "npx", "args": ["-y", "abide-mcp", "mcp"]}}}"#;
    std::fs::write(abide.path("home/.cursor/mcp.json"), entry).unwrap();
    let npx = abide.path("bin/npx");
    let level = |script: &str| {
        std::fs::write(&npx, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&npx, PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!(
            "{}:{}",
            abide.path("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let output = command(&abide).env("PATH", path).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        of(&found, "cursor")["level"].clone()
    };
    let ours = concat!("abide ", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        level(&format!(
            "[ \"$*\" = '-y abide-mcp --version' ] && echo {ours}"
        )),
        "ok"
    );
    assert_eq!(level("echo not in the registry >&2; exit 1"), "trouble");
}

#[test]
fn missing_waker_program_is_a_finding() {
    let config =
        "[[wakers]]\ncommand = [\"no-such-program\", \"{text}\"]\ncwd = \"/nonexistent\"\n";
    let abide = Abide::with_config(config);
    let (code, found) = look(&abide);
    assert_eq!(code, Some(1));
    let says = of(&found, "wakers")["says"].as_str().unwrap();
    assert!(says.contains("no-such-program"), "{says}");
    let all = found["findings"].to_string();
    assert!(all.contains("/nonexistent is not a folder"), "{all}");
}

#[test]
fn unwritable_state_directory_is_a_finding() {
    let abide = Abide::new();
    std::fs::write(abide.path("file"), "").unwrap();
    std::fs::create_dir(abide.path("folder")).unwrap();
    std::os::unix::fs::symlink(abide.path("folder"), abide.path("link")).unwrap();
    for (place, why) in [
        ("file", "is not a directory"),
        ("link", "is not a directory"),
        ("file/below", "Not a directory"),
    ] {
        let mut doctor = command(&abide);
        let output = doctor.env("ABIDE_DIR", abide.path(place)).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let state = of(&found, "state");
        assert_eq!(state["level"], "trouble", "{place}: {state}");
        let says = state["says"].as_str().unwrap();
        assert!(says.contains(why), "{says}");
    }
}

#[test]
fn socket_directory_open_to_others_is_a_finding() {
    let abide = Abide::new();
    abide.output(["run", "--", "true"]);
    abide.output(["stop"]);
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(abide.path("abide/run"), open).unwrap();
    let (code, found) = look(&abide);
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(of(&found, "sockets")["level"], "trouble");
}

#[test]
fn low_descriptor_limit_is_a_warning() {
    let abide = Abide::new();
    let mut doctor = command(&abide);
    // SAFETY: only a system call runs between fork and exec.
    unsafe {
        use std::os::unix::process::CommandExt;
        doctor.pre_exec(|| {
            let limit = rustix::process::Rlimit {
                current: Some(128),
                maximum: Some(128),
            };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
            Ok(())
        });
    }
    let output = doctor.output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(of(&found, "files")["level"], "warning");
}

#[test]
fn doctor_prints_one_line_per_finding_and_a_summary() {
    let abide = Abide::new();
    let output = abide.output(["doctor"]);
    let said = text(&output.stdout);
    assert!(said.contains("ok       disk"), "{said}");
    assert!(!said.contains('\u{1b}'), "no colour in a pipe: {said}");
}

#[test]
fn no_client_is_a_warning_and_no_sandbox_is_off_with_the_commands_to_run() {
    let abide = Abide::new();
    let (_, found) = look(&abide);
    let clients = of(&found, "clients");
    assert_eq!(clients["level"], "warning");
    assert!(clients["next"].as_str().unwrap().contains("`abide setup`"));
    let sandbox = of(&found, "sandbox");
    assert_ne!(sandbox["level"], "ok", "{sandbox}");
    if sandbox["level"] == "off" {
        let next = sandbox["next"].as_str().unwrap();
        assert!(next.contains("--sandbox workspace-write"), "{next}");
    }
    std::fs::create_dir_all(abide.path("abide")).unwrap();
    let config = "[sandbox]\nmode = \"workspace-write\"\n";
    std::fs::write(abide.path("abide/config.toml"), config).unwrap();
    assert_ne!(of(&look(&abide).1, "sandbox")["level"], "off");
}
