//! Tests of the tools on a real engine within this process, called like the interfaces call them, with real child
//! processes.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
#[path = "../common/engine.rs"]
mod engine;
#[path = "../faults/harness.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod harness;

mod execute;
mod policy;
mod rejoin;
mod shell;

use std::sync::Arc;

use abide::tools::{Context, ToolCall, ToolStep};
use abide_api::ToolResult;
use abide_core::request::Caller;
use abide_core::{Asking, End, Outcome, Request};
use abide_engine::{CallUpdate, SessionView};
pub use engine::{Engine, with_configured_engine, with_engine};
pub use harness::{pids_of, wait_for_pid};
use serde_json::{Value, json};

impl Engine {
    pub async fn call(&self, tool: &str, arguments: Value) -> ToolResult {
        self.call_as(self.context(), tool, arguments).await
    }

    /// Starts a call. Returns the running call and its session.
    pub async fn begin(
        &self,
        tool: &str,
        arguments: Value,
        context: Context,
    ) -> (ToolCall, String) {
        let call = self.try_begin(tool, arguments, context).await;
        let mut call = call.expect("the arguments are right");
        let ToolStep::Update(CallUpdate::Accepted(session)) = call.next().await.expect("a step")
        else {
            panic!("accepted first")
        };
        (call, session.to_string())
    }

    /// Waits until the output of a session matches the pattern.
    pub async fn wrote(&self, session: &str, pattern: &str) {
        let until = json!({"session": session, "output": pattern});
        let arguments = json!({"total_duration": 180, "reason": pattern, "until": until});
        let held = self.call("timer", arguments).await;
        assert_eq!(
            held.to_fields()["completed_by"],
            "condition",
            "{}",
            held.text
        );
    }

    /// Changes a limit of a session, counted from now.
    pub async fn extend(&self, session: &str, limit: &str, seconds: f64) {
        let arguments = json!({"action": "extend", "session_id": session, limit: seconds});
        let moved = self.call("terminal_session", arguments).await;
        assert!(!moved.is_error(), "{}", moved.text);
    }

    /// Kills a session and waits until its tree is gone.
    pub async fn kill(&self, session: &str) {
        let session = session.parse().expect("an id");
        let request = Request::Kill {
            session,
            end: End::Agent,
        };
        let pending = self.handle.call(Caller::PERSON, request, None).await;
        pending.done().await.expect("the engine runs");
    }

    /// Waits until a session has ended.
    pub async fn ended(&self, session: &str) -> Arc<SessionView> {
        let session = session.parse().expect("an id");
        let request = Request::Join {
            session,
            asking: Asking::Never,
            standby: None,
        };
        let pending = self.handle.call(Caller::PERSON, request, None).await;
        let outcome = pending.done().await.expect("the engine runs");
        assert_eq!(outcome, Outcome::Ended(session));
        self.handle
            .published()
            .session(session)
            .expect("it is there")
    }
}
