//! The last lines of a session, for a message about something else.

use abide_output::digest::{Digest, Limits};
use abide_output::mask::Mask;
use abide_output::printable::one_line;

use crate::daemon::{Handle, SessionView};
use abide_session::log::tail;

/// So many lines.
const LINES: usize = 10;
/// In so many characters.
const CHARS: usize = 1_000;

/// Characters of a command that are shown beside them.
const COMMAND: usize = 120;

/// The command of a session on one line, and no longer than needed to know it by.
pub(crate) fn short_command(handle: &Handle, view: &SessionView) -> String {
    let command = Mask::of(handle.secrets(view.id)).apply(one_line(&view.state.command));
    match command.char_indices().nth(COMMAND) {
        None => command,
        Some((end, _)) => format!("{}…", &command[..end]),
    }
}

/// The last lines of what a session wrote, as a person would have seen them.
pub(crate) fn last_lines(handle: &Handle, view: &SessionView) -> String {
    let lines = tail::last_lines(&view.folder, LINES);
    let limits = Limits {
        max_chars: CHARS,
        omitted_hint: super::output::omitted_hint(view),
        ..Limits::default()
    };
    let mut digest = Digest::new(&limits);
    digest.push(&lines.join(&b'\n'));
    Mask::of(handle.secrets(view.id)).apply(digest.finish().text)
}
