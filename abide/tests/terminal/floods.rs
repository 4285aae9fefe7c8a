//! Output that is expensive to emulate does not delay other sessions.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{Engine, with_engine};

/// Far more than a call takes on a slow machine, and far less than a blocked call would take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Duration of `shell true`.
async fn time_of_a_call(engine: &Engine) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the time is what is tested")]
    let begun = Instant::now();
    let arguments = json!({"command": "true"});
    let result = engine.call_as(engine.context(), "shell", arguments).await;
    assert_eq!(result.to_fields()["exit_code"], json!(0), "{}", result.text);
    begun.elapsed()
}

#[test]
fn calls_are_answered_during_a_flood_of_expensive_sequences() {
    with_engine(|engine| async move {
        for (name, flood) in [
            ("repeat", r"a\033[65535b"),
            ("repeat a mark", r"e\314\201\033[65535b"),
            ("back by tabs", r"\033[3g\033[99C\033[65535Z"),
            ("reset", r"\033c"),
            ("not UTF-8", r"\377\377\377\377"),
        ] {
            // About 300 kB, in bursts that a terminal accepts at once.
            let command = format!("yes \"$(printf '{flood}')\" | head -c 300000");
            let session = engine.start(&command, json!({})).await;
            for _ in 0..10 {
                let took = time_of_a_call(&engine).await;
                assert!(took < PATIENCE, "{name}: another call took {took:?}");
            }
            session.act("kill", json!({})).await;
        }
    });
}
