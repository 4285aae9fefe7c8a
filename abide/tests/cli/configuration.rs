//! Configuration: changed while the daemon runs, and commands that show, test or change it.

use rustix::process::{Pid, Signal};

use crate::harness::{Abide, text};

/// Puts another configuration file in place, as editors do.
fn configure(abide: &Abide, text: &str) {
    std::fs::create_dir_all(abide.path("abide")).unwrap();
    std::fs::write(abide.path("new.toml"), text).unwrap();
    std::fs::rename(abide.path("new.toml"), abide.path("abide/config.toml")).unwrap();
}

/// Calls the tool `shell` as an agent.
fn shell(abide: &Abide, command: &str) -> String {
    let call = format!("<tool name=\"shell\"><command>{command}</command></tool>");
    std::fs::write(abide.path("call"), call).unwrap();
    text(&abide.output(["call", "--agent", "ann", "call"]).stdout)
}

#[test]
fn changed_configuration_takes_effect_without_a_restart() {
    let abide = Abide::new();
    let pid = abide.pid();
    let long = "seq -s x 1 1000";
    assert!(shell(&abide, long).contains("x500x"));
    configure(&abide, "max_output = 200\n");
    let said = shell(&abide, long);
    assert!(!said.contains("x500x"), "{said}");
    configure(
        &abide,
        "shell = [\"/bin/sh\", \"-c\", \"echo other shell; eval \\\"$0\\\"\"]\n",
    );
    let said = shell(&abide, "echo hello");
    assert!(said.contains("other shell\nhello"), "{said}");
    std::fs::remove_file(abide.path("abide/config.toml")).unwrap();
    assert!(shell(&abide, long).contains("x500x"));
    assert_eq!(abide.pid(), pid);
}

#[test]
fn sandbox_setting_takes_effect_without_a_restart() {
    let abide = Abide::new();
    assert!(shell(&abide, "echo hello").contains("SUCCESS"));
    // Where this mode cannot be enforced, nothing is run.
    configure(&abide, "[sandbox]\nmode = \"read-only\"\n");
    let said = shell(&abide, "touch made");
    assert!(!abide.path("made").exists(), "{said}");
    configure(&abide, "[sandbox]\nmode = \"off\"\n");
    let said = shell(&abide, "touch made");
    assert!(abide.path("made").exists(), "{said}");
}

#[test]
fn bad_configuration_leaves_the_former_one_in_force() {
    let abide = Abide::new();
    configure(&abide, "max_output = 200\n");
    let configuration = || abide.json(["status", "--json"])["configuration"].clone();
    let before = configuration();
    assert_eq!(before["trouble"], serde_json::Value::Null);
    configure(&abide, "max_output = \n");
    let now = configuration();
    assert_eq!(now["read_at"], before["read_at"]);
    let trouble = now["trouble"].as_str().expect("a sentence");
    assert!(trouble.contains("config.toml"), "{trouble}");
    let shown = text(&abide.output(["status"]).stdout);
    assert!(
        shown.contains("The former configuration stays in force."),
        "{shown}"
    );
    assert!(shown.contains("settings    read "), "{shown}");
    // A person's command runs; an agent's does not, because its rules cannot be read.
    assert!(abide.output(["run", "--", "true"]).status.success());
    let said = shell(&abide, "echo hello");
    assert!(!said.contains("SUCCESS"), "{said}");
    configure(&abide, "max_output = 300\nhttp = \"off\"\n");
    assert!(shell(&abide, "echo hello").contains("SUCCESS"));
    let now = configuration();
    assert_eq!(now["trouble"], serde_json::Value::Null);
    assert_eq!(now["at_next_start"], serde_json::json!(["http"]));
    let shown = text(&abide.output(["status"]).stdout);
    assert!(shown.contains("after `abide stop`: http"), "{shown}");
}

#[test]
fn sighup_does_not_end_the_daemon() {
    let abide = Abide::new();
    let pid = abide.pid();
    let daemon = Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(daemon, Signal::HUP).expect("it runs");
    assert_eq!(abide.pid(), pid);
}

#[test]
fn labels_are_shown_without_arguments_and_removed_by_none() {
    let abide = Abide::with_config("labels = [\"linux\"]\n");
    let label = |words: &[&str]| {
        let output = abide.output(["machine", "label"].iter().chain(words));
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    let config = || std::fs::read_to_string(abide.path("abide/config.toml")).unwrap();
    assert_eq!(label(&[]), "Labels of this machine: linux.\n");
    assert_eq!(config(), "labels = [\"linux\"]\n");
    assert_eq!(
        label(&["gpu", "big"]),
        "Labels of this machine: gpu, big.\n"
    );
    assert_eq!(label(&[]), "Labels of this machine: gpu, big.\n");
    assert_eq!(label(&["--none"]), "This machine has no labels.\n");
    assert_eq!(config(), "labels = []\n");
}

#[test]
fn policy_test_refuses_options_after_a_command_line() {
    let abide = Abide::new();
    let test = |words: &[&str]| abide.output(["policy", "test"].iter().chain(words));
    let refused = test(&["git push --force", "--json"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(text(&refused.stdout), "");
    let why = text(&refused.stderr);
    assert!(why.contains("options come before the command"), "{why}");
    let judged = test(&["--json", "git push --force"]);
    assert_eq!(judged.status.code(), Some(3), "{judged:?}");
    let judged = test(&["git", "push", "--force", "a b"]);
    assert_eq!(judged.status.code(), Some(3), "{judged:?}");
    let said = text(&judged.stdout);
    assert!(
        said.starts_with("Command: git push --force 'a b'\nask: "),
        "{said}"
    );
}
