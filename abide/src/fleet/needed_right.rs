//! Right that a request of another machine needs. A request that is not listed is refused, whatever the rights are.

use abide_api::{TimerTool, ToolName};
use abide_core::fleet::rights::{Denied, Right};
use axum::http::Method;
use serde_json::{Map, Value};

/// Right that a request needs; `None`: no machine may send it. `arguments` is the body of a tool call.
pub fn needed(method: &Method, path: &str, arguments: &Map<String, Value>) -> Option<Right> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if *method == Method::GET {
        return match parts[..] {
            ["v1", "sessions", _]
            | ["v1", "sessions", _, "lines" | "matches" | "paint" | "log"]
            | ["v1", "sessions", _, "log", "raw"]
            // Its input needs the right to type, which the terminal checks.
            | ["v1", "sessions", _, "terminal"]
            | ["v1", "timers", _]
            | ["v1", "questions" | "search" | "health"] => Some(Right::See),
            _ => None,
        };
    }
    if *method != Method::POST {
        return None;
    }
    match parts[..] {
        [
            "v1",
            "sessions",
            _,
            "kill" | "delete" | "rename" | "signal" | "extend" | "input" | "resize",
        ]
        | ["v1", "questions", _, "answer"] => Some(Right::Type),
        ["v1", "tools", name] => of_tool(name.parse().ok()?, arguments),
        // Timers are data of the fleet: a machine that can write the database can change them.
        [
            "v1",
            "timers",
            _,
            "stop" | "cancel" | "pause" | "resume" | "continue",
        ] => Some(Right::See),
        _ => None,
    }
}

fn of_tool(tool: ToolName, arguments: &Map<String, Value>) -> Option<Right> {
    match tool {
        // A call with a session waits for what runs there. With a command, whatever else is given, it may start one.
        ToolName::Command(_) => {
            let joins = matches!(arguments.get("session_id"), Some(Value::String(_)));
            match joins && !arguments.contains_key("command") {
                true => Some(Right::See),
                false => Some(Right::Run),
            }
        }
        ToolName::TerminalSession => of_action(arguments.get("action")?.as_str()?),
        // A new timer could run the command of its condition.
        ToolName::Timer(TimerTool::Timer) => {
            let waits = matches!(arguments.get("timer_id"), Some(Value::String(_)));
            let makes = ["reason", "mission", "until"].map(|field| arguments.contains_key(field));
            (waits && makes == [false; 3]).then_some(Right::See)
        }
        ToolName::Timer(_) => Some(Right::See),
        ToolName::ReadMessages => None,
    }
}

fn of_action(action: &str) -> Option<Right> {
    match action {
        "read_output" | "screen" | "search" => Some(Right::See),
        "send_input" | "extend" | "resize" | "signal" | "kill" => Some(Right::Type),
        "start" => Some(Right::Run),
        _ => None,
    }
}

/// Sentence about a request that was denied: what is missing, and the line to add.
pub fn sentence(denied: &Denied, caller: &str, own: &str) -> String {
    match denied {
        Denied::Unknown => format!(
            "machine {own} does not know machine {caller}; run `abide fleet join` on {caller} with the secret of this fleet"
        ),
        Denied::Expelled => format!("machine {caller} was revoked or forgotten"),
        Denied::NotNamed { setting } => {
            let key = setting.rsplit('.').next().unwrap_or(setting);
            format!(
                "machine {own} does not allow this to machine {caller}; to allow it, add the line `{key} = [\"{caller}\"]` \
                 below `[fleet]` in config.toml on {own}, or the name to that list"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn post(path: &str, body: Value) -> Option<Right> {
        let body = body.as_object().cloned().unwrap_or_default();
        needed(&Method::POST, path, &body)
    }

    fn get(path: &str) -> Option<Right> {
        needed(&Method::GET, path, &Map::new())
    }

    #[test]
    fn reading_needs_see_and_acting_needs_type_or_run() {
        assert_eq!(get("/v1/sessions/session_a/lines"), Some(Right::See));
        assert_eq!(
            post("/v1/sessions/session_a/kill", json!({})),
            Some(Right::Type)
        );
        assert_eq!(
            post("/v1/questions/question_a/answer", json!({})),
            Some(Right::Type)
        );
        let tool = |action: &str| post("/v1/tools/terminal_session", json!({"action": action}));
        assert_eq!(tool("read_output"), Some(Right::See));
        assert_eq!(tool("send_input"), Some(Right::Type));
        assert_eq!(tool("start"), Some(Right::Run));
        let shell = |body| post("/v1/tools/shell", body);
        assert_eq!(shell(json!({"command": "true"})), Some(Right::Run));
        assert_eq!(shell(json!({"session_id": "session_a"})), Some(Right::See));
        for body in [
            json!({"session_id": null, "command": "true"}),
            json!({"session_id": "session_a", "command": "true"}),
            json!({"session_id": null}),
            json!({}),
        ] {
            assert_eq!(shell(body), Some(Right::Run));
        }
    }

    #[test]
    fn timer_of_the_fleet_needs_see_and_a_new_one_is_refused() {
        assert_eq!(get("/v1/timers/timer_a"), Some(Right::See));
        assert_eq!(post("/v1/timers/timer_a/stop", json!({})), Some(Right::See));
        let timer = |body| post("/v1/tools/timer", body);
        assert_eq!(timer(json!({"timer_id": "timer_a"})), Some(Right::See));
        for body in [
            json!({"timer_id": null}),
            json!({"mission": "x", "total_duration": 1}),
            json!({"timer_id": "", "reason": "x", "total_duration": 1}),
            json!({"timer_id": "timer_a", "until": {"command": "true"}}),
        ] {
            assert_eq!(timer(body), None);
        }
    }

    #[test]
    fn other_requests_are_refused() {
        for path in [
            "/v1/policy",
            "/v1/audit",
            "/v1/events",
            "/v1/status",
            "/metrics",
            "/v1/sessions/session_a/other",
            "/v1/sessions",
            "/",
            "",
        ] {
            assert_eq!(get(path), None, "{path}");
        }
        for path in [
            "/v1/stop",
            "/v1/reload",
            "/v1/runs",
            "/v1/sessions",
            "/v1/logins",
            "/v1/timers",
            "/v1/timers/timer_a/other",
            "/v1/tools/timer",
            "/v1/tools/read_messages",
            "/v1/policy/rules/a/remove",
            "/v1/sessions/session_a/kill/more",
        ] {
            assert_eq!(post(path, json!({"action": "start"})), None, "{path}");
        }
        assert_eq!(post("/v1/tools/terminal_session", json!({})), None);
        assert_eq!(
            post("/v1/tools/terminal_session", json!({"action": "list"})),
            None
        );
        assert_eq!(
            needed(&Method::DELETE, "/v1/sessions/session_a", &Map::new()),
            None
        );
    }

    #[test]
    fn denied_right_names_the_line_to_add() {
        let denied = Denied::NotNamed {
            setting: "fleet.type",
        };
        let said = sentence(&denied, "desk", "build");
        assert!(
            said.contains("`type = [\"desk\"]` below `[fleet]`"),
            "{said}"
        );
    }
}
