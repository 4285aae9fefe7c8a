//! Record of what the sandbox of a session has refused: read from the session's directory, and copied into the audit log
//! once the session has ended.

use std::io::Read;

use abide_api::AuditLine;
use abide_core::SandboxedBy;
use abide_output::mask::Mask;
use abide_output::printable::one_line;
use abide_session::sandbox::{REFUSED, RefusalRecord};

use super::{Handle, SessionView};

/// Longest record that is read, in bytes: a record has at most 20 refusals, each with a path of at most 4 KiB.
const MAX_RECORD: u64 = 256 << 10;
/// File in the directory of a session whose refusals are in the audit log.
const AUDITED: &str = "refused.audited";

/// Record of a session. `None`: its sandbox has refused nothing, or it has none.
pub fn record(view: &SessionView) -> Option<RefusalRecord> {
    if view.sandboxed.as_ref()?.by == SandboxedBy::Off {
        return None;
    }
    let file = std::fs::File::open(view.folder.join(REFUSED)).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_RECORD).read_to_end(&mut bytes).ok()?;
    RefusalRecord::parse(&String::from_utf8_lossy(&bytes))
}

/// Copies the refusals of a session that has ended into the audit log, once: a session that ended without a daemon is
/// found by the next one.
pub(crate) fn audit(handle: &Handle, view: &SessionView) {
    let done = view.folder.join(AUDITED);
    let Some(record) = record(view).filter(|_| !done.exists()) else {
        return;
    };
    let RefusalRecord {
        mode,
        network,
        count,
        entries,
    } = record;
    let mask = Mask::of(handle.secrets(view.id));
    handle.audit().append(AuditLine {
        event: "refused".into(),
        agent: view.state.agent.0.to_string(),
        command: mask.apply(view.state.command.to_string()),
        commands: (entries.iter())
            .map(|entry| mask.apply(one_line(&format!("{} {}", entry.kind.as_str(), entry.text))))
            .collect(),
        why: Some(format!("refused by {mode}, network {network}: {count}")),
        ..AuditLine::default()
    });
    // Without the file, the line is written again by the next daemon.
    if let Err(fault) = std::fs::write(done, "") {
        tracing::warn!(session = %view.id, "cannot note that its refusals are in the audit log: {fault}");
    }
}
