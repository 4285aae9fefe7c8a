//! What a model is told about timers and messages.

use abide_api::schema::tool_output;
use abide_api::{ReadMessagesResult, ReadTimerResult, TimerResult};
use serde_json::{Value, json};

use super::{Described, Power};

pub(super) const TIMER: Described = Described {
    name: "timer",
    title: "Timer",
    description: "Wait without polling. With `reason`: wait for something that should become true \
        soon; the call returns when the timer completes, or after `timeout_duration` while the timer \
        runs on. With `until` it returns the moment that holds: a port opens, a URL answers, a file \
        appears, a session ends or writes something, a command succeeds; waiting for a server is \
        one call, not a loop. Where it can no longer hold it returns at once and says why \
        (`completed_by`: `time`, `condition` or `impossible`). With `mission`: for later; the call returns at once and says whether you \
        will be woken or told with your next call. With `timer_id`: stand by again on a timer that exists. Timers survive restarts and \
        reboots, for years if need be.",
    power: Power::Runs,
    input: timer_input,
    output: tool_output::<TimerResult>,
};

pub(super) const READ_TIMER: Described = Described {
    name: "read_timer",
    title: "Read timer",
    description: "Look at one of your timers, or at all that have not ended. Not needed for waiting: \
        a timer tells when it completes.",
    power: Power::Reads,
    input: read_input,
    output: tool_output::<ReadTimerResult>,
};

pub(super) const STOP_TIMER: Described = Described {
    name: "stop_timer",
    title: "Stop timer",
    description: "End a timer for good. It will tell nobody.",
    power: Power::Ends,
    input: || act_input(json!({})),
    output: tool_output::<TimerResult>,
};

pub(super) const CANCEL_TIMER: Described = Described {
    name: "cancel_timer",
    title: "Cancel timer",
    description: "Stop waiting for a timer but let it run on in the background: a message comes when \
        it completes.",
    power: Power::Changes,
    input: || act_input(json!({})),
    output: tool_output::<TimerResult>,
};

pub(super) const PAUSE_TIMER: Described = Described {
    name: "pause_timer",
    title: "Pause timer",
    description: "Let nothing elapse on a timer for a while; it goes on by itself afterwards.",
    power: Power::Ends,
    input: || act_input(json!({"pause_duration": positive("Seconds until it goes on by itself.")})),
    output: tool_output::<TimerResult>,
};

pub(super) const RESUME_TIMER: Described = Described {
    name: "resume_timer",
    title: "Resume timer",
    description: "Let a paused timer go on now, in the state it had before the pause.",
    power: Power::Runs,
    input: || act_input(json!({})),
    output: tool_output::<TimerResult>,
};

pub(super) const READ_MESSAGES: Described = Described {
    name: "read_messages",
    title: "Read messages",
    description: "Read the messages that wait for you (a timer has completed, a session has ended), \
        oldest first; they count as seen then. They are also appended to the next result of any \
        tool, so there is no need to look for them in a loop.",
    power: Power::Changes,
    input: messages_input,
    output: tool_output::<ReadMessagesResult>,
};

fn positive(description: &str) -> Value {
    json!({"type": "number", "exclusiveMinimum": 0, "maximum": 3_153_600_000_u64, "description": description})
}

fn timer_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "total_duration": positive("How long the timer runs, in seconds. Required for a new timer. With timer_id: what shall remain from now on."),
            "timeout_duration": positive("How long this call stands by, in seconds. Default and upper bound: what remains."),
            "reason": {"type": "string", "description": "What you wait for. For a new timer, instead of mission."},
            "mission": {"type": "string", "description": "What you will do when it completes. For a new timer, instead of reason."},
            "timer_id": {"type": "string", "description": "Continue this timer instead of making one."},
            "until": {
                "type": "object",
                "properties": condition_fields(),
                "description": "End early, the moment this holds, or as soon as it no longer can. One of: {\"port\": 3000} or {\"port\": \"host:3000\"}; {\"url\": \"http://…\", \"status\": 200, \"body\": \"regex\"}; {\"file\": \"path\", \"is\": \"present|gone|changed\", \"matches\": \"regex\"}; {\"session\": \"session_…\", \"is\": \"ended\"} or {\"session\": \"session_…\", \"output\": \"regex\"}; {\"command\": \"test -f x\", \"every\": 2} (holds on exit code 0); {\"all\": […]}; {\"any\": […]}."
            },
            "idempotency_key": {"type": "string", "description": "A call repeated with the same key makes no second timer; it stands by on the first."}
        },
        "additionalProperties": false
    })
}

/// The fields of every kind of condition.
fn condition_fields() -> Value {
    json!({
        "port": {"type": ["integer", "string"]},
        "url": {"type": "string"},
        "status": {"type": "integer"},
        "body": {"type": "string"},
        "file": {"type": "string"},
        "is": {"type": "string"},
        "matches": {"type": "string"},
        "session": {"type": "string"},
        "output": {"type": "string"},
        "command": {"type": "string"},
        "every": {"type": "number"},
        "all": {"type": "array", "items": {"type": "object"}},
        "any": {"type": "array", "items": {"type": "object"}}
    })
}

fn read_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "timer_id": {"type": "string", "description": "Which timer. Default: all that have not ended."},
            "include_ended": {"type": "boolean", "description": "List ended timers too. Default: false."}
        },
        "additionalProperties": false
    })
}

fn act_input(more: Value) -> Value {
    let mut required = vec!["timer_id"];
    let mut fields = json!({
        "timer_id": {"type": "string", "description": "Which timer."},
        "reason": {"type": "string", "description": "Why; shown to the waiting call."}
    });
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        required.extend(
            more.contains_key("pause_duration")
                .then_some("pause_duration"),
        );
        fields.extend(more);
    }
    json!({
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": false
    })
}

fn messages_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "timeout_seconds": {"type": "number", "minimum": 0, "default": 0, "description": "How long to wait where there is none."}
        },
        "additionalProperties": false
    })
}
