//! `read_output`: the lines that the caller has not read yet, and the text that all readers of output share.

use std::sync::Arc;

use abide_api::arguments::{ReadOutputArgs, TextOrNumber};
use abide_api::{ActionResult, Activity, ErrorCode};
use abide_core::terminal_wait::TerminalWait;
use abide_core::{Millis, limit};
use abide_engine::clock::SystemClock;
use abide_engine::search::Pattern;
use abide_engine::{PendingCall, SessionView};
use abide_session::daemon_record::OpenRecord;

use super::reading::Reading;
use super::tail::Found;
use super::{
    ActionError, ActionRunner, BadInput, FinishedAction, FinishedCall, SessionRef, unreadable,
};
use crate::tools::args::pattern;
use crate::tools::position::CallerPosition;
use crate::tools::report;
use crate::unread_lines::Cursor;

pub(in crate::tools) struct Read {
    max_lines: usize,
    timeout: Millis,
    until: Option<Pattern>,
    since: Option<Cursor>,
}

pub(super) fn read(args: ReadOutputArgs) -> Result<Read, BadInput> {
    let until = pattern("until", args.until.map(|until| until.0))?;
    let since = match args.since {
        None => None,
        Some(TextOrNumber(text)) => Some(text.parse().map_err(|_| {
            BadInput::about(
                "since",
                format!(
                    "must be a cursor from an earlier result; got \"{}\".",
                    super::shortened(&text)
                ),
            )
        })?),
    };
    Ok(Read {
        max_lines: args
            .max_lines
            .map_or(limit::LINES_DEFAULT, |lines| lines.0 as usize),
        timeout: args.timeout_seconds.map(|time| time.0).unwrap_or_default(),
        until,
        since,
    })
}

/// Refuses a cursor that is in the middle of a line: no result has named it.
fn check_cursor(reading: &Reading, since: Cursor) -> Result<(), ActionError> {
    match reading.is_within_line(since).map_err(unreadable)? {
        false => Ok(()),
        true => Err(ActionError::Refused(
            ErrorCode::BadInput,
            format!(
                "`since` must be a cursor from an earlier result; \"{since}\" is none of this session. \
                 A line number is no cursor: use action `search` for lines by number, or since=\"0\" for all."
            ),
        )),
    }
}

impl ActionRunner {
    pub(super) async fn read(&self, session_ref: &SessionRef, read: Read) -> FinishedAction {
        let view = self.session(session_ref)?;
        let mut guard = self.attend(view.id).await;
        let timeout = self
            .context
            .standby
            .map_or(read.timeout, |standby| read.timeout.min(standby));
        let record = self.handle.daemon_record(view.id);
        let position = self.position(&view, &record);
        let from = read.since.unwrap_or(position);
        let mut reading = self.reading(&view);
        if let Some(since) = read.since {
            check_cursor(&reading, since)?;
        }
        let now = SystemClock.mono();
        let left = self.context.left_of(timeout);
        let found = match &read.until {
            Some(pattern) => {
                let until = now + left;
                reading.until(from, pattern, read.max_lines, until).await
            }
            None => {
                let wait = TerminalWait::read(now, left, view.pty);
                reading.next(from, read.max_lines, wait).await
            }
        };
        let mut found = found.map_err(unreadable)?;
        // Lines that were skipped with `since` stay unread, and lines that are read again do not become unread.
        let reads_on = from.offset() <= position.offset();
        if read.since.is_none() || (reads_on && found.cursor.offset() > position.offset()) {
            self.has_read(&view, &record, found.cursor);
        }
        let view = self.settled(&view, &reading, &mut guard).await;
        found.timeout = timeout;
        found.cut = (timeout < read.timeout).then_some(timeout);
        // After a complete line the program may do anything next. After a prompt, or after no output, its
        // current activity is worth a sample.
        let activity = match found.ends_with_complete_line() {
            true => None,
            false => self.activity(&view),
        };
        let ended = (!found.full && !view.is_running()).then_some(view.id);
        // Lines of a full-screen program are of no use: they are what paints its screen.
        let plain = read.since.is_none() && read.until.is_none() && !found.lines.is_empty();
        let input = SentInput {
            bytes: None,
            screen: if plain {
                self.full_screen(&view).await
            } else {
                None
            },
        };
        let result = self.lines_read(&view, &reading, found, activity, input);
        let finished = self.finished(result, guard, record, reading);
        Ok(finished.reporting_end_of(ended))
    }

    /// Read cursor of the caller.
    pub(super) fn position(&self, view: &SessionView, record: &OpenRecord) -> Cursor {
        CallerPosition::of(&self.context).read(&self.handle, view, record)
    }

    /// Stores the caller's read cursor, after the answer has been sent.
    pub(super) fn has_read(&self, view: &SessionView, record: &OpenRecord, cursor: Cursor) {
        CallerPosition::of(&self.context).store(&self.handle, view, record, cursor);
    }

    /// Result with the resources that are released after it has been sent.
    pub(super) fn finished(
        &self,
        result: super::ToolResult,
        guard: PendingCall,
        record: OpenRecord,
        reading: Reading,
    ) -> FinishedCall {
        // Over HTTP the command may end before the server knows that the result was received. The guard is
        // dropped now, so that this end does not count as reported.
        let guard = self.context.client.is_some().then_some(guard);
        // Dropped in this order: cursors are written first, files are closed last.
        FinishedCall::from(result).with((record, guard, reading))
    }

    /// Reader of a session's output from now on.
    pub(super) fn reading(&self, view: &SessionView) -> Reading {
        let follower = self.handle.keepers().follow(view.id);
        Reading::new(view, follower)
    }

    /// Current view. If the output has ended, waits for the view that states how the session ended.
    pub(super) async fn settled(
        &self,
        view: &Arc<SessionView>,
        reading: &Reading,
        guard: &mut PendingCall,
    ) -> Arc<SessionView> {
        if reading.ended && self.newest(view).is_running() {
            self.handle.wait_until_ended(view.id, guard).await;
        }
        self.newest(view)
    }

    /// Result with the lines that were read, as text and as fields.
    pub(super) fn lines_read(
        &self,
        view: &SessionView,
        reading: &Reading,
        found: Found,
        activity: Option<Activity>,
        input: SentInput,
    ) -> super::ToolResult {
        let cursor = found.cursor.to_string();
        let is_screen = input.screen.is_some();
        let mut text = input.screen.unwrap_or_else(|| found.text());
        if is_screen {
            // The lines of a full-screen program are the bytes that paint its screen.
        } else if found.lines.is_empty() {
            text.push_str(&found.nothing(view.is_running()));
        } else {
            text.push_str("[cursor: ");
            text.push_str(&cursor);
            text.push(']');
        }
        if found.full {
            text.push_str("\n[there is more to read]");
        }
        let unmatched = found.unmatched(view.is_running());
        if let Some(last) = unmatched.or_else(|| ending(view).filter(|_| !found.full)) {
            text.push('\n');
            text.push_str(&last);
        }
        let text = self.mask(view, text);
        let extent = reading.extent(&found);
        let summary = report::summary_with(view, view.is_running(), extent);
        let action = ActionResult::Read {
            cursor,
            lines: if is_screen { 0 } else { found.lines.len() },
            more: found.full,
            matched: found.matched,
            effective_timeout: found.cut.map(Millis::as_secs_f64),
            sent: input.bytes,
            alternate_screen: is_screen.then_some(true),
        };
        self.result_of(view, summary, text, activity, action)
    }
}

/// Input that was sent before a read.
#[derive(Default)]
pub(super) struct SentInput {
    /// Number of bytes.
    pub bytes: Option<usize>,
    /// Screen, if a full-screen program runs. It is returned in place of lines.
    pub screen: Option<String>,
}

/// Line about the ending of a session, if it has ended.
pub(super) fn ending(view: &SessionView) -> Option<String> {
    if view.is_running() {
        return None;
    }
    Some(match report::fault(view) {
        Some(fault) => format!("[could not be run: {fault}]"),
        None => abide_engine::text::ending_line(view),
    })
}
