//! Limits of a session that were changed while it ran, in a small file beside its log, so that the next daemon
//! applies them too. The deadline is stored for display only; the keeper enforces it.

use std::io;
use std::path::Path;

use abide_core::{Millis, Mono};

use super::{folder, private_file};

const FILE: &str = "limits";

/// The limits after the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedLimits {
    /// The idle limit.
    pub idle: Option<Millis>,
    /// The inactivity limit.
    pub inactivity: Option<Millis>,
    /// The deadline, counted from the start of the session.
    pub deadline: Option<Millis>,
    /// Monotonic time before which no question about idleness is asked. Valid only within the boot in which the
    /// session runs.
    pub unasked_until: Mono,
}

/// Reads the changed limits of the session in this directory; `None` if none was changed.
pub fn read(folder: &Path) -> Option<ChangedLimits> {
    let text = folder::read(&folder.join(FILE)).ok()??;
    parse(std::str::from_utf8(&text).ok()?)
}

/// Writes the changed limits, atomically.
pub fn write(folder: &Path, limits: ChangedLimits) -> io::Result<()> {
    private_file::write(&folder.join(FILE), &text(limits))
}

fn text(limits: ChangedLimits) -> String {
    let limit =
        |limit: Option<Millis>| limit.map_or("none".to_owned(), |limit| limit.0.to_string());
    format!(
        "idle={}\ninactivity={}\ndeadline={}\nunasked_until={}\n",
        limit(limits.idle),
        limit(limits.inactivity),
        limit(limits.deadline),
        limits.unasked_until.0
    )
}

fn parse(text: &str) -> Option<ChangedLimits> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let limit = |name: &str| match value(name)? {
        "none" => Some(None),
        limit => limit.parse().ok().map(|ms| Some(Millis(ms))),
    };
    Some(ChangedLimits {
        idle: limit("idle=")?,
        inactivity: limit("inactivity=")?,
        deadline: limit("deadline=")?,
        unasked_until: Mono(value("unasked_until=")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_is_found_again_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), None);
        let nothing = ChangedLimits {
            idle: None,
            inactivity: None,
            deadline: None,
            unasked_until: Mono(0),
        };
        for given in [
            nothing,
            ChangedLimits {
                idle: Some(Millis(1)),
                unasked_until: Mono(7),
                ..nothing
            },
            ChangedLimits {
                inactivity: Some(Millis(9)),
                deadline: Some(Millis(3)),
                ..nothing
            },
        ] {
            write(folder.path(), given).unwrap();
            assert_eq!(read(folder.path()), Some(given));
        }
        let rest = "inactivity=none\ndeadline=none\nunasked_until=0\n";
        assert!(parse(&format!("idle=5\n{rest}")).is_some());
        assert_eq!(parse(&format!("idle=x\n{rest}")), None);
        assert_eq!(parse(rest), None);
    }
}
