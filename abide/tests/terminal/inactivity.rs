//! An unused session is closed. The exact times are in the transcripts of the core.

use serde_json::json;

use crate::{fact, with_engine};

#[test]
fn unused_session_is_closed_and_its_log_kept() {
    with_engine(|engine| async move {
        let limit = json!({"inactivity_timeout": 2});
        let session = engine.start("echo up; exec sleep 1000", limit).await;
        session.until("up").await;
        let mut changes = engine.handle.published().follow();
        let id = session.id.parse().unwrap();
        while engine.handle.published().session(id).unwrap().is_running() {
            changes.recv().await.unwrap();
        }
        let read = session.act("read_output", json!({"since": "0"})).await;
        assert!(read.text.starts_with("up\n"), "{}", read.text);
        assert_eq!(fact(&read, "end"), json!("inactivity"));
        let context = engine.context();
        let messages = engine.try_begin("read_messages", json!({}), context).await;
        let told = messages.unwrap().to_result().await.unwrap();
        let message = format!("[System] Session '{}' has ended.", session.id);
        assert!(told.text.contains(&message), "{}", told.text);
        assert!(told.text.contains("[ended after "), "{}", told.text);
        let end = " with code 143: it was inactive]\nLast lines:\nup";
        assert!(told.text.ends_with(end), "{}", told.text);
    });
}

#[test]
fn timer_that_waits_for_the_session_keeps_it_open() {
    with_engine(|engine| async move {
        let limit = json!({"inactivity_timeout": 5});
        let session = engine.start("exec sleep 8", limit).await;
        let until = json!({"session": session.id});
        let wait = json!({"total_duration": 600, "reason": "build", "until": until});
        let context = engine.context();
        let timer = engine.try_begin("timer", wait, context).await;
        let over = timer.unwrap().to_result().await.unwrap();
        assert!(over.text.contains("exited with code 0"), "{}", over.text);
    });
}

#[test]
fn waiting_read_and_output_keep_the_session_open() {
    with_engine(|engine| async move {
        // Long enough for a program that starts slowly to begin reading.
        let limit = json!({"inactivity_timeout": 10});
        let command =
            "i=0; while [ $i -lt 22 ]; do sleep 0.5; i=$((i+1)); echo $i; done; sleep 1000";
        let session = engine.start(command, limit).await;
        session.until("^22$").await;
        let read = session
            .act("read_output", json!({"timeout_seconds": 11}))
            .await;
        assert_eq!(read.text, "No output available");
        assert_eq!(fact(&read, "status"), json!("running"));
        session.kill().await;
    });
}
