//! Tests of abide as a library: the same calls to a daemon and to an engine within the program.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;

use std::time::Duration;

use abide::{Abide, EmbeddedEngine, Error, Session};
use common::cleanup::Cleanup;
use common::home::private_folder;
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_abide");
const LONG: Duration = Duration::from_secs(60);

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

async fn held(folder: &TempDir) -> EmbeddedEngine {
    let started = EmbeddedEngine::start(folder.path(), PROGRAM).await;
    started.expect("the engine starts")
}

/// Typical calls of an agent, made over each kind of connection.
async fn typical_calls(abide: &Abide) -> Result<(), Error> {
    let said = abide
        .shell("echo $GREETING; cat; echo no >&2; exit 3")
        .with("env", json!({"GREETING": "hello"}))
        .with("stdin", "from outside")
        .with("cwd", "/")
        .with("timeout", 60)
        .await?;
    assert_eq!((said.status(), said.exit_code()), (Some("ERROR"), Some(3)));
    assert!(
        said.text
            .contains("STDOUT:\nhello\nfrom outside\nSTDERR:\nno"),
        "{}",
        said.text
    );

    let done = abide.execute_command("echo built").with("timeout", 60);
    let done = done.await?;
    assert!(
        done.text.contains("built\n[exited with code 0"),
        "{}",
        done.text
    );

    let started = abide
        .start("cat")
        .with("inactivity_timeout", 60)
        .with("cols", 100)
        .with("rows", 30)
        .await?;
    let cat = abide.session(started.session_id().expect("an id"));
    let sent = cat.send_input("one\n").await?;
    assert_eq!(sent.fact("sent"), 4, "{}", sent.text);
    echoes(&cat, "one").await?;
    let found = cat.search("^one$").with("context", 1).await?;
    assert!(found.text.contains("one"), "{}", found.text);
    let listed = abide.sessions().await?;
    assert!(listed.text.contains(cat.id()), "{}", listed.text);
    cat.press(["ctrl-d"]).await?;
    let ended = cat.ended(LONG).await?;
    assert_eq!(ended.fact("completed_by"), "condition", "{}", ended.text);

    let waiting = abide
        .wait("nothing", LONG)
        .with("timeout_duration", 0.05)
        .await?;
    assert_eq!(waiting.fact("timeout"), &json!(true));
    let id = waiting.timer_id().expect("an id").to_owned();
    abide
        .pause_timer(&id, LONG)
        .with("reason", "a break")
        .await?;
    assert_eq!(abide.read_timer(&id).await?.fact("status"), "paused");
    abide.resume_timer(&id).await?;
    abide.stop_timer(&id).with("reason", "enough").await?;
    assert_eq!(abide.continue_timer(&id).await?.fact("status"), "stopped");

    // A condition decides when the mission completes: after the call that creates it was answered, since that answer
    // would deliver the message otherwise.
    let folder = private_folder();
    let due = folder.path().join("due");
    let mission = abide.mission("look again", LONG);
    mission.with("until", json!({"file": due})).await?;
    std::fs::write(&due, "").expect("a file");
    let woken = abide.read_messages().with("timeout_seconds", 60).await?;
    assert!(woken.text.contains("Mission: look again"), "{}", woken.text);

    let blocks = "<tool name=\"shell\">\n<command>echo block</command>\n</tool>\n\
                  <tool name=\"stop_timer\">\n<timer_id>timer_none</timer_id>\n</tool>";
    let results = abide.call_blocks(blocks).await?;
    assert!(results[0].1.text.contains("block"), "{results:?}");
    assert!(results[1].1.is_error, "{results:?}");
    Ok(())
}

/// Waits until a terminal shows this text: the first read may return too early.
async fn echoes(session: &Session, text: &str) -> Result<(), Error> {
    let read = session
        .read_output()
        .with("since", "0")
        .with("until", text)
        .with("timeout_seconds", 60)
        .await?;
    assert!(read.text.contains(text), "{}", read.text);
    Ok(())
}

#[test]
fn embedded_engine_accepts_every_call() {
    let folder = private_folder();
    block_on(async {
        let held = held(&folder).await;
        typical_calls(&held.abide()).await.expect("it goes well");
        held.stop().await.expect("it stops well");
    });
}

#[test]
fn daemon_accepts_the_same_calls() {
    let folder = private_folder();
    let _cleanup = Cleanup::of(folder.path());
    block_on(async {
        let abide = Abide::connect_with(folder.path(), PROGRAM).of_agent("ann");
        typical_calls(&abide).await.expect("it goes well");
    });
}

#[test]
fn person_of_the_library_is_asked_and_answers() {
    let folder = private_folder();
    block_on(async {
        let held = held(&folder).await;
        let abide = held.abide();
        let person = abide.person();
        let mut questions = person.questions().await.expect("a stream");
        let quiet = tokio::spawn(async move {
            let quiet = abide.execute_command("sleep 1000");
            quiet.with("timeout", 1).await
        });
        let question = questions
            .next()
            .await
            .expect("a stream")
            .expect("a question");
        assert!(
            question.text.contains("Continue waiting?"),
            "{}",
            question.text
        );
        assert_eq!(question.facts["command"], json!("sleep 1000"));
        person
            .answer(&question.id, "no")
            .await
            .expect("it is taken");
        let late = person
            .answer(&question.id, "yes")
            .await
            .expect_err("it is too late");
        assert!(matches!(late, Error::Refused { .. }), "{late}");
        let ended = quiet.await.expect("no panic").expect("a result");
        assert!(ended.is_error);
        let why = "command execution timeout: no output for 1s";
        assert!(ended.text.contains(why), "{}", ended.text);
        held.stop().await.expect("it stops well");
    });
}

#[test]
fn bad_input_is_an_error_and_agents_see_only_their_own_sessions() {
    let folder = private_folder();
    block_on(async {
        let held = held(&folder).await;
        let abide = held.abide();
        let refused = abide.shell(" ").await.expect_err("nothing to run");
        assert_eq!(refused.to_string(), "ERROR: Shell command cannot be empty.");
        let refused = abide
            .shell("true")
            .with("timeout", 0)
            .await
            .expect_err("not right");
        assert!(refused.to_string().contains("`timeout`"), "{refused}");
        let refused = abide.call("no_such_tool", Default::default()).await;
        assert!(
            refused
                .expect_err("unknown")
                .to_string()
                .contains("no_such_tool")
        );
        let started = abide.start("cat").await.expect("it starts");
        let id = started.session_id().expect("an id").to_owned();
        let foreign = held.abide().of_agent("somebody").session(&id).kill().await;
        let foreign = foreign.expect("a result");
        assert_eq!(foreign.text, format!("Session '{id}' not found"));
        abide.session(&id).kill().await.expect("it is gone");
        held.stop().await.expect("it stops well");
    });
}

#[test]
fn one_engine_per_folder_and_the_next_finds_its_sessions() {
    let folder = private_folder();
    block_on(async {
        let first = held(&folder).await;
        let second = EmbeddedEngine::start(folder.path(), PROGRAM).await;
        let why = second.err().expect("there is one already").to_string();
        assert!(why.contains("in use by another abide"), "{why}");
        let started = first.abide().start("cat").await.expect("it starts");
        let id = started.session_id().expect("an id").to_owned();
        let ids = vec![
            json!({"total_duration": 1_000, "reason": "one"}),
            json!({"total_duration": 2_000, "mission": "two"}),
        ];
        let ids = first.abide().make_timers(ids).await.expect("two timers");
        assert_eq!(ids.len(), 2);
        first.stop().await.expect("it stops well");

        let again = held(&folder).await;
        let abide = again.abide();
        let cat = abide.session(&id);
        cat.send_input("still here\n").await.expect("a result");
        echoes(&cat, "still here").await.expect("a result");
        let timers = abide.timers().await.expect("a result");
        let timers = timers.fact("timers").as_array().map(Vec::len);
        assert_eq!(timers, Some(2));
        let seen: Value = abide.person().get("/v1/sessions").await.expect("a list");
        assert_eq!(seen["sessions"][0]["session_id"], json!(id));
        abide.session(&id).kill().await.expect("it is gone");
        again.stop().await.expect("it stops well");
    });
}
