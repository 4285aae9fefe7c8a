//! Output of a session as it was read, and warnings about output that is missing or unreadable.

use std::io;

use abide_api::SessionSummary;
use abide_output::digest::Digested;

use abide_engine::SessionView;

/// Digested output of a session.
#[derive(Default)]
pub(super) struct Output {
    pub digested: Digested,
    /// Bytes that are missing from the log.
    pub missing: u64,
    /// Error that stopped reading, at the beginning or before the end of the log.
    pub fault: Option<io::Error>,
}

impl Output {
    pub fn unreadable(fault: io::Error) -> Self {
        Output {
            fault: Some(fault),
            ..Output::default()
        }
    }
}

/// Warning that the log on disk is incomplete. The missing bytes are also counted in the summary.
pub(super) fn lost(
    view: &SessionView,
    quota: u64,
    outputs: &[&Output],
    summary: &mut SessionSummary,
) -> Option<String> {
    let dropped = view.ending().map_or(0, |ending| ending.dropped);
    let missing = outputs.iter().map(|output| output.missing).max();
    let missing = missing.unwrap_or(0);
    if missing > dropped {
        summary.bytes_dropped = missing;
        return Some(format!(
            "{missing} bytes of the output are missing from the log: the disk did not take them, or the log \
             was removed or damaged"
        ));
    }
    let ending = view.ending().filter(|ending| ending.dropped > 0)?;
    Some(if ending.bytes > quota {
        format!(
            "{dropped} bytes from the middle of the output were dropped: they did not fit the log's quota"
        )
    } else {
        format!("{dropped} bytes of the output are lost: the disk did not take them")
    })
}

/// Warning that output could not be read, with the next step.
pub(super) fn unread(view: &SessionView, outputs: &[&Output]) -> Option<String> {
    let fault = outputs.iter().find_map(|output| output.fault.as_ref())?;
    tracing::error!("the log of {} could not be read: {fault}", view.id);
    Some(format!(
        "the output could not be read: {}. It is kept in {id}: read it with terminal_session read_output",
        because(fault),
        id = view.id
    ))
}

/// Reason why a log could not be read, with a remedy if one is known.
pub(super) fn because(fault: &io::Error) -> String {
    match fault.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => format!(
            "{fault}; the daemon can open no more files, so end some sessions or let it have more (`ulimit -n`)"
        ),
        _ => fault.to_string(),
    }
}
