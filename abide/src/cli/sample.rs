//! Values of the public types for tests.

use abide_api::cli::Top;
use abide_api::{
    AnswerOffer, Daemon, Message, QuestionAbout, QuestionCommand, QuestionDetails, Session,
    TimerDetails,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Value of a type with these fields in place of the sample's.
fn with<T: DeserializeOwned>(mut sample: Value, fields: Value) -> T {
    let (Some(all), Value::Object(fields)) = (sample.as_object_mut(), fields) else {
        panic!("these are no objects");
    };
    all.extend(fields);
    serde_json::from_value(sample).expect("a value of the type")
}

/// A running session.
pub fn session(fields: Value) -> Session {
    let sample = json!({
        "session_id": "session_00000000", "status": "running", "command": "make", "agent": "a", "cwd": "/",
        "created_at": 0, "last_activity": 0, "duration": 0.0, "bytes_total": 0, "bytes_dropped": 0,
        "still_running": [], "sandbox_gaps": [], "pty": false,
    });
    with(sample, fields)
}

/// A running timer, of whose time one half is over.
pub fn timer(fields: Value) -> TimerDetails {
    let sample = json!({
        "timer_id": "timer_00000000", "timer_type": "waiting", "agent": "a", "status": "running",
        "total_duration": 100, "timeout_duration": 100, "elapsed_time": 50, "remaining_time": 50,
        "created_at": 0, "last_check_at": 0, "standing_by": true,
    });
    with(sample, fields)
}

/// A question about an idle session.
pub fn question(fields: Value) -> QuestionDetails {
    let sample = json!({
        "question_id": "question_00000000", "session_id": "session_00000000", "about": "idle",
        "question": "Command has been idle for 60s. Continue waiting?", "command": "make", "agent": "a",
        "cwd": "/", "idle": 60.0, "running_for": 60.0, "last_line": "", "doing": "sleeping",
        "waiting_for_input": false, "cpu": 0, "asked_at": 0, "text": "a\nb", "facts": "sleeping", "tail": [],
    });
    with(sample, fields)
}

/// A question about a command, with these answers and the rules that they add.
pub fn held_question(offers: &[(&str, &str)]) -> QuestionDetails {
    let mut details = question(json!({}));
    let offer = |(answer, adds): &(&str, &str)| AnswerOffer {
        answer: (*answer).into(),
        adds: (*adds).into(),
    };
    details.question.about = QuestionAbout::Command;
    details.question.held = Some(QuestionCommand {
        folder: "/".into(),
        part: "make".into(),
        rule: String::new(),
        why: String::new(),
        answers: offers.iter().map(offer).collect(),
    });
    details
}

/// A message that was not seen yet.
pub fn message(text: &str) -> Message {
    let sample = json!({
        "message_id": "message_00000000", "agent": "a", "created_at": 0, "wake_attempts": 0, "deliveries": [],
    });
    with(sample, json!({"text": text}))
}

/// Lists without rows.
pub fn top() -> Top {
    Top {
        daemon: Daemon {
            pid: 1,
            version: "0.1.0".into(),
            started_at: 0,
        },
        questions: Vec::new(),
        sessions: Vec::new(),
        timers: Vec::new(),
        messages: Vec::new(),
        as_of: None,
        trouble: None,
    }
}
