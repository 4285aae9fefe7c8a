//! Descriptions of the tools for timers and messages.

use abide_api::arguments::{
    PauseTimerArgs, ReadMessagesArgs, ReadTimerArgs, TimerActionArgs, TimerArgs,
};
use abide_api::schema::{tool_input, tool_output};
use abide_api::{ReadMessagesResult, ReadTimerResult, TimerResult};

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
    input: tool_input::<TimerArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const READ_TIMER: Described = Described {
    name: "read_timer",
    title: "Read timer",
    description: "Look at one of your timers, or at all that have not ended. Not needed for waiting: \
        a timer tells when it completes.",
    power: Power::Reads,
    input: tool_input::<ReadTimerArgs>,
    output: tool_output::<ReadTimerResult>,
};

pub(super) const STOP_TIMER: Described = Described {
    name: "stop_timer",
    title: "Stop timer",
    description: "End a timer for good. It will tell nobody.",
    power: Power::Ends,
    input: tool_input::<TimerActionArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const CANCEL_TIMER: Described = Described {
    name: "cancel_timer",
    title: "Cancel timer",
    description: "Stop waiting for a timer but let it run on in the background: a message comes when \
        it completes.",
    power: Power::Changes,
    input: tool_input::<TimerActionArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const PAUSE_TIMER: Described = Described {
    name: "pause_timer",
    title: "Pause timer",
    description: "Let nothing elapse on a timer for a while; it goes on by itself afterwards.",
    power: Power::Ends,
    input: tool_input::<PauseTimerArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const RESUME_TIMER: Described = Described {
    name: "resume_timer",
    title: "Resume timer",
    description: "Let a paused timer go on now, in the state it had before the pause.",
    power: Power::Runs,
    input: tool_input::<TimerActionArgs>,
    output: tool_output::<TimerResult>,
};

pub(super) const READ_MESSAGES: Described = Described {
    name: "read_messages",
    title: "Read messages",
    description: "Read the messages that wait for you (a timer has completed, a session has ended), \
        oldest first; they count as seen then. They are also appended to the next result of any \
        tool, so there is no need to look for them in a loop.",
    power: Power::Changes,
    input: tool_input::<ReadMessagesArgs>,
    output: tool_output::<ReadMessagesResult>,
};
