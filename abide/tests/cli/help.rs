//! Snapshots of the help texts.

use crate::harness::{Abide, text};

/// A terminal of half the usual width shows each usage in one line.
const NARROW: usize = 60;

fn help(words: &[&str]) -> String {
    let abide = Abide::new();
    let output = abide.output(words.iter().copied().chain(["--help"]));
    assert!(output.status.success(), "{output:?}");
    let help = text(&output.stdout);
    let usage = help.split("Usage: ").nth(1).expect("how it is called");
    let ways = usage.split("\n\n").next().expect("at least one way");
    for way in ways.lines() {
        let columns = "Usage: ".len() + way.trim_start().chars().count();
        assert!(columns <= NARROW, "{columns} columns: {way}");
    }
    help
}

macro_rules! helps {
    ($($name:ident: $($word:literal)*;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(help(&[$($word),*]));
        }
    )*};
}

helps! {
    abide: ;
    run: "run";
    answer: "answer";
    sandbox_layers: "sandbox" "layers";
    session: "session";
    session_start: "session" "start";
    session_attach: "session" "attach";
    session_send: "session" "send";
    session_screen: "session" "screen";
    session_search: "session" "search";
    session_resize: "session" "resize";
    session_signal: "session" "signal";
    session_list: "session" "list";
    session_read: "session" "read";
    session_kill: "session" "kill";
    session_extend: "session" "extend";
    session_rename: "session" "rename";
    session_rm: "session" "rm";
    session_rerun: "session" "rerun";
    ps: "ps";
    attach: "attach";
    kill: "kill";
    rm: "rm";
    rerun: "rerun";
    logs: "logs";
    timer: "timer";
    timer_start: "timer" "start";
    timer_wait: "timer" "wait";
    timer_read: "timer" "read";
    timer_stop: "timer" "stop";
    timer_cancel: "timer" "cancel";
    timer_pause: "timer" "pause";
    timer_resume: "timer" "resume";
    timer_list: "timer" "list";
    timer_history: "timer" "history";
    timer_stats: "timer" "stats";
    wait: "wait";
    messages: "messages";
    messages_resend: "messages" "resend";
    policy: "policy";
    policy_list: "policy" "list";
    policy_test: "policy" "test";
    policy_remove: "policy" "remove";
    policy_replay: "policy" "replay";
    audit: "audit";
    call: "call";
    open: "open";
    top: "top";
    setup: "setup";
    doctor: "doctor";
    status: "status";
    stop: "stop";
    serve: "serve";
    mcp: "mcp";
    tools: "tools";
    schema: "schema";
    completions: "completions";
    man: "man";
    version: "version";
}

#[test]
fn help_starts_no_daemon() {
    let abide = Abide::new();
    for words in [
        &["--help"][..],
        &["version"],
        &["tools"],
        &["completions", "bash"],
        &["schema"],
        &["stop"],
    ] {
        let output = abide.output(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    assert!(!abide.path("abide").exists());
}

#[test]
fn every_command_has_a_manual_page() {
    let abide = Abide::new();
    let dir = abide.path("man");
    assert!(
        abide
            .output(["man".as_ref(), dir.as_os_str()])
            .status
            .success()
    );
    let pages: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .flatten()
        .map(|page| page.file_name())
        .collect();
    for page in [
        "abide.1",
        "abide-run.1",
        "abide-session-list.1",
        "abide-setup.1",
        "abide-doctor.1",
        "abide-top.1",
        "abide-schema.1",
    ] {
        assert!(pages.iter().any(|known| known == page), "{pages:?}");
    }
    for page in std::fs::read_dir(&dir).unwrap().flatten() {
        let page = std::fs::read_to_string(page.path()).unwrap();
        assert!(!page.contains("SH EXTRA"), "{page}");
    }
}

#[test]
fn tools_prints_every_format() {
    let abide = Abide::new();
    let mcp = abide.json(["tools", "--format", "mcp"]);
    let names: Vec<_> = mcp["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert!(names.iter().any(|name| *name == "shell"), "{names:?}");
    assert_eq!(mcp["tools"][0]["inputSchema"]["type"], "object");
    let openai = abide.json(["tools", "--format", "openai"]);
    assert_eq!(openai[0]["type"], "function");
    let anthropic = abide.json(["tools", "--format", "anthropic"]);
    assert_eq!(anthropic[0]["input_schema"]["type"], "object");
    for input in [
        &mcp["tools"][0]["inputSchema"],
        &openai[0]["function"]["parameters"],
        &anthropic[0]["input_schema"],
    ] {
        assert!(input["properties"]["command"].is_object(), "{input}");
        assert!(input["properties"]["sandbox"].is_null(), "{input}");
    }
    let xml = text(&abide.output(["tools", "--format", "xml"]).stdout);
    assert!(xml.contains("<tool name=\"shell\">"), "{xml}");
    assert!(
        xml.contains("- command (string): Required, unless session_id is given.\n"),
        "{xml}"
    );
    assert!(
        xml.contains("- env (object)\n") && !xml.contains(r"\n is Enter"),
        "{xml}"
    );
    assert!(!xml.contains("- sandbox"), "{xml}");
    // Where a sandbox is configured, models can ask for another one.
    std::fs::create_dir_all(abide.path("abide")).unwrap();
    std::fs::write(
        abide.path("abide/config.toml"),
        "[sandbox]\nmode = \"workspace-write\"\n",
    )
    .unwrap();
    let mcp = abide.json(["tools", "--format", "mcp"]);
    assert!(mcp["tools"][0]["inputSchema"]["properties"]["sandbox"].is_object());
    let xml = text(&abide.output(["tools", "--format", "xml"]).stdout);
    assert!(xml.contains("- sandbox"), "{xml}");
}

#[test]
fn tools_have_the_field_on_in_a_fleet_only() {
    let abide = Abide::new();
    let with_on = || {
        let openai = abide.json(["tools", "--format", "openai"]);
        let mcp = abide.json(["tools", "--format", "mcp"]);
        let xml = text(&abide.output(["tools", "--format", "xml"]).stdout);
        [
            openai[0]["function"]["parameters"]["properties"]["on"].is_object(),
            mcp["tools"][0]["inputSchema"]["properties"]["on"].is_object(),
            xml.contains("\n- on (string): "),
        ]
    };
    std::fs::create_dir_all(abide.path("abide")).unwrap();
    let store = "store = \"postgres://user@127.0.0.1:1/db\"\n";
    std::fs::write(abide.path("abide/config.toml"), store).unwrap();
    assert_eq!(with_on(), [false; 3]);
    std::fs::write(abide.path("abide/fleet-secret"), "").unwrap();
    assert_eq!(with_on(), [true; 3]);
}

#[test]
fn mistyped_command_is_an_error_and_starts_no_daemon() {
    let abide = Abide::new();
    // A command may exit with code 2 too, so `run` has another one.
    for (words, code) in [
        (&["run", "--idle", "soon", "--", "true"][..], 125),
        (&["run", "--idle", "0", "--", "true"], 125),
        (&["run", "--timeout", "0", "--", "true"], 125),
        (&["run", "--env", "novalue", "--", "true"], 125),
        (&["run", "--name", "a b", "--", "true"], 125),
        (&["run"], 125),
        (&["answer", "question_k3v9x2bc"], 2),
        (&["answer", "question_k3v9x2bc", "maybe"], 2),
        (&["session", "extend", "session_k3v9x2bc"], 2),
        (&["nonsense"], 2),
    ] {
        let output = abide.output(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{words:?}");
    }
    assert!(!abide.path("abide").exists());
}

#[test]
fn help_command_prints_the_help_of_a_command() {
    let abide = Abide::new();
    for words in [&[][..], &["run"], &["session", "kill"]] {
        let asked = abide.output(["help"].iter().chain(words));
        let option = abide.output(words.iter().chain(&["--help"]));
        assert!(asked.status.success(), "{words:?}: {asked:?}");
        assert_eq!(asked.stdout, option.stdout, "{words:?}");
    }
    assert_eq!(abide.output(["help", "nonsense"]).status.code(), Some(2));
}

#[test]
fn invalid_values_are_refused_with_what_is_allowed() {
    let abide = Abide::new();
    for (words, said) in [
        (
            &["session", "start", "--inactivity", "-3s", "--", "true"][..],
            "cannot be negative",
        ),
        (&["logs", "last", "--tail", "x"], "must be a whole number"),
        (
            &["messages", "--limit", "0"],
            "must be a whole number from 1 to 1000",
        ),
        (
            &["session", "resize", "x", "1", "24"],
            "must be a whole number from 2 to 1000",
        ),
        (&["wait", "--status", "200"], "--status needs --url"),
        (
            &["wait", "--port", "1", "--matches", "x"],
            "--matches needs --file",
        ),
        (
            &["wait"],
            "--port, --url, --file, --session, --command or --until",
        ),
    ] {
        let refused = abide.output(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {refused:?}");
        let shown = text(&refused.stderr);
        assert!(shown.contains(said), "{words:?}: {shown}");
    }
}
