//! Sessions in messages: the ending, the command and the last lines of output.

use abide_core::session::{End, Exit};
use abide_core::{Millis, shorten};
use abide_output::digest::{Digest, Limits};
use abide_output::mask::Mask;
use abide_output::printable::one_line;
use abide_session::log::tail;

use crate::{Handle, SessionView};

/// Lines of output in a message about something else.
const LAST_LINES: usize = 10;
/// Characters of those lines.
const LAST_LINES_CHARS: usize = 1_000;
/// Characters of a command in a message.
const COMMAND_CHARS: usize = 120;

/// The command of a session on one line, shortened.
pub fn short_command(handle: &Handle, view: &SessionView) -> String {
    let command = Mask::of(handle.secrets(view.id)).apply(one_line(&view.state.command));
    shorten(&command, COMMAND_CHARS)
}

/// The last lines of a session's output, as a person would have seen them.
pub fn last_lines(handle: &Handle, view: &SessionView) -> String {
    let lines = tail::last_lines(&view.folder, LAST_LINES);
    let limits = Limits {
        max_chars: LAST_LINES_CHARS,
        omitted_hint: omitted_hint(view),
        ..Limits::default()
    };
    let mask = Mask::of(handle.secrets(view.id));
    // Masked before it is shortened, so that no secret is cut; and again without its control sequences.
    let lines = String::from_utf8_lossy(&lines.join(&b'\n')).into_owned();
    let mut digest = Digest::new(&limits);
    digest.push(mask.apply(lines).as_bytes());
    mask.apply(digest.finish().text)
}

/// The ending of a session and the last lines of its output, for a message.
pub(crate) fn ending_and_last_lines(handle: &Handle, view: &SessionView) -> String {
    let mut text = ending_line(view);
    let last = last_lines(handle, view);
    if !last.is_empty() {
        text.push_str("\nLast lines:\n");
        text.push_str(&last);
    }
    text
}

/// Hint in a digest that omits lines: the call that returns them.
pub fn omitted_hint(view: &SessionView) -> String {
    let id = view.id;
    format!(
        "terminal_session action=search session_id={id} pattern=… finds them, \
         action=read_output since=\"0\" reads all from the beginning"
    )
}

/// The ending of a session in brackets, such as `[exited with code 0 after 12s]`.
pub fn ending_line(view: &SessionView) -> String {
    let Some(ending) = view.ending() else {
        return String::new();
    };
    let after = whole_seconds(ending.duration);
    match (ending.end, ending.exit) {
        (End::Lost, _) | (_, None) if ending.duration == Millis(0) => {
            "[lost: nobody saw how it ended]".into()
        }
        (End::Lost, _) | (_, None) => format!("[lost after {after}: nobody saw how it ended]"),
        (End::OutOfMemory, _) => format!("[killed after {after}: out of memory]"),
        (End::Sandbox, _) => format!("[ended by its sandbox after {after}]"),
        (End::Deadline, _) => format!("[killed at its time limit after {after}]"),
        (end @ (End::User | End::Agent | End::Inactivity | End::IdleDeclined), Some(exit)) => {
            let why = match end {
                End::IdleDeclined => "a person answered no",
                End::User => "a person ended it",
                End::Agent => "its agent ended it",
                _ => "it was inactive",
            };
            let code = exit.shell_code();
            format!("[ended after {after} with code {code}: {why}]")
        }
        (_, Some(Exit::Code(code))) => format!("[exited with code {code} after {after}]"),
        (_, Some(Exit::Signal(signal))) => format!("[ended by signal {signal} after {after}]"),
    }
}

/// A duration for people, rounded down to whole seconds.
pub fn whole_seconds(duration: Millis) -> String {
    Millis(duration.0 / 1_000 * 1_000).to_string()
}

/// Ending of a session in a sentence about it.
pub(crate) fn ending_text(end: End, exit: Option<Exit>) -> String {
    match (end, exit) {
        (End::Deadline, _) => "killed at its time limit".into(),
        (End::OutOfMemory, _) => "killed: out of memory".into(),
        (End::Sandbox, _) => "ended by its sandbox".into(),
        (End::Inactivity, _) => "closed for inactivity".into(),
        (End::User | End::IdleDeclined, _) => "ended by a person".into(),
        (End::Agent, _) => "ended by its agent".into(),
        (End::Lost, _) | (_, None) => "nobody saw how".into(),
        (End::Exited | End::Signaled, Some(Exit::Code(code))) => format!("exited with code {code}"),
        (End::Exited | End::Signaled, Some(Exit::Signal(signal))) => {
            format!("ended by signal {signal}")
        }
    }
}
