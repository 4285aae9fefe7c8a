//! The limits of a session that were moved while it ran, in a small file beside its log, so that the
//! next daemon goes by them too. The hard limit is not here: the keeper holds that.

use std::io;
use std::path::Path;

use abide_core::Millis;

const FILE: &str = "limits";
const FRESH: &str = "limits.new";

/// What was moved last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The idle limit.
    pub idle: Option<Millis>,
    /// The limit of inactivity.
    pub inactivity: Option<Millis>,
}

/// What was written down for the session in this folder; `None`: nothing was moved.
pub fn moved(folder: &Path) -> Option<Moved> {
    parse(&std::fs::read_to_string(folder.join(FILE)).ok()?)
}

/// Writes it down, whole or not at all.
pub fn remember(folder: &Path, moved: Moved) -> io::Result<()> {
    let fresh = folder.join(FRESH);
    std::fs::write(&fresh, text(moved))?;
    std::fs::rename(fresh, folder.join(FILE))
}

fn text(moved: Moved) -> String {
    let limit =
        |limit: Option<Millis>| limit.map_or("none".to_owned(), |limit| limit.0.to_string());
    format!(
        "idle={}\ninactivity={}\n",
        limit(moved.idle),
        limit(moved.inactivity)
    )
}

fn parse(text: &str) -> Option<Moved> {
    let limit = |name: &str| match text.lines().find_map(|line| line.strip_prefix(name))? {
        "none" => Some(None),
        limit => limit.parse().ok().map(|ms| Some(Millis(ms))),
    };
    Some(Moved {
        idle: limit("idle=")?,
        inactivity: limit("inactivity=")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_is_found_again_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(moved(folder.path()), None);
        for (idle, inactivity) in [
            (None, None),
            (Some(Millis(1)), None),
            (None, Some(Millis(9))),
        ] {
            let given = Moved { idle, inactivity };
            remember(folder.path(), given).unwrap();
            assert_eq!(moved(folder.path()), Some(given));
        }
        assert_eq!(parse("idle=x\ninactivity=none\n"), None);
        assert_eq!(parse("idle=5\n"), None);
    }
}
