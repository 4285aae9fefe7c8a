//! Descriptions of the tools for timers and messages.

use abide_api::arguments::{
    PauseTimerArgs, ReadMessagesArgs, ReadTimerArgs, TimerActionArgs, TimerArgs,
};
use abide_api::schema::{tool_input, tool_output};
use abide_api::{ReadMessagesResult, ReadTimerResult, TimerResult};

use super::{ToolDescription, ToolEffect};

pub(super) const TIMER: ToolDescription = ToolDescription {
    name: "timer",
    title: "Timer",
    template: "Wait without polling; survives restarts. With `reason`: wait now, until `until` holds or no \
        longer can, or the time is up. With `mission`: for later; returns at once and says how you \
        will be told. With `timer_id`: wait again on an existing timer.",
    effect: ToolEffect::Runs,
    input: tool_input::<TimerArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const READ_TIMER: ToolDescription = ToolDescription {
    name: "read_timer",
    title: "Read timer",
    template: "State of one timer or of all.",
    effect: ToolEffect::Reads,
    input: tool_input::<ReadTimerArgs>,
    output: tool_output::<ReadTimerResult>,
};

pub(super) const STOP_TIMER: ToolDescription = ToolDescription {
    name: "stop_timer",
    title: "Stop timer",
    template: "End a timer. Nobody is notified.",
    effect: ToolEffect::Ends,
    input: tool_input::<TimerActionArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const CANCEL_TIMER: ToolDescription = ToolDescription {
    name: "cancel_timer",
    title: "Cancel timer",
    template: "Stop waiting, but keep the timer running in the background; a message comes when it \
        completes.",
    effect: ToolEffect::Changes,
    input: tool_input::<TimerActionArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const PAUSE_TIMER: ToolDescription = ToolDescription {
    name: "pause_timer",
    title: "Pause timer",
    template: "Pause a timer; it resumes by itself.",
    effect: ToolEffect::Ends,
    input: tool_input::<PauseTimerArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const RESUME_TIMER: ToolDescription = ToolDescription {
    name: "resume_timer",
    title: "Resume timer",
    template: "Resume a paused timer now.",
    effect: ToolEffect::Runs,
    input: tool_input::<TimerActionArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const READ_MESSAGES: ToolDescription = ToolDescription {
    name: "read_messages",
    title: "Read messages",
    template: "Read unread messages (timer completed, session ended), or wait for one. They also come with \
        the next result of any tool.",
    effect: ToolEffect::Changes,
    input: tool_input::<ReadMessagesArgs>,
    output: tool_output::<ReadMessagesResult>,
};
