//! How far the owner of a session has read, in a small file beside its log: it outlives the daemon,
//! and costs no more than the read itself. Where it is lost, everything counts as unread again.

use std::path::Path;

const FILE: &str = "read";

/// The cursor that was written down last.
pub fn position(folder: &Path) -> Option<String> {
    std::fs::read_to_string(folder.join(FILE)).ok()
}

/// Everything before the cursor has been read.
pub fn remember(folder: &Path, cursor: &str) {
    if let Err(fault) = std::fs::write(folder.join(FILE), cursor) {
        let folder = folder.display();
        tracing::warn!("cannot write down how far {folder} was read: {fault}");
    }
}
