//! Log of the requests that acted on a session, by idempotency key, in a small file in its directory. If a
//! daemon dies before it has answered, a repeated request is recognised by the next daemon, even if the
//! first one ended the session.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::folder;

const FILE: &str = "requests";
/// Number of requests that are remembered. A client only repeats what a daemon that died has not answered.
const MOST: usize = 64;
/// Hex digits of the key's hash that are stored.
const DIGITS: usize = 32;
/// Length of a line.
const LINE: usize = DIGITS + 1;

/// A request that acts on a session, and may be repeated if it has a key.
pub struct IdempotentRequest {
    path: PathBuf,
    line: Option<String>,
}

impl IdempotentRequest {
    /// The request to do `what` to the session in this directory, under this key. The same key with another
    /// `what` is another request.
    pub fn of(session_folder: &Path, what: &str, name: Option<&[u8]>) -> Self {
        let line = name.map(|name| {
            let hash = Sha256::new()
                .chain_update(what)
                .chain_update([0])
                .chain_update(name)
                .finalize();
            let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}\n", &digits[..DIGITS])
        });
        IdempotentRequest {
            path: session_folder.join(FILE),
            line,
        }
    }

    /// Records that the request begins. If that fails, the request is carried out all the same.
    pub fn begin(&self) {
        let Some(line) = &self.line else {
            return;
        };
        if let Err(fault) = self.add(line) {
            let path = self.path.display();
            tracing::warn!("cannot write down in {path} what was asked for: {fault}");
        }
    }

    /// True if the request has begun before.
    pub fn has_begun(&self) -> bool {
        let Some(line) = &self.line else {
            return false;
        };
        let known = folder::read(&self.path).ok().flatten().unwrap_or_default();
        known.chunks(LINE).any(|known| known == line.as_bytes())
    }

    fn add(&self, line: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(0o600).custom_flags(folder::PLAIN);
        let file = options.open(&self.path)?;
        let mut known = whole(&file)?;
        if known.chunks(LINE).any(|known| known == line.as_bytes()) {
            return Ok(());
        }
        let gone = (known.len() / LINE + 1).saturating_sub(MOST) * LINE;
        known.drain(..gone);
        known.extend_from_slice(line.as_bytes());
        // All lines have the same length, so the new ones overwrite the old.
        file.write_all_at(&known, 0)
    }
}

/// Reads the whole file, whose length is bounded.
fn whole(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; MOST * LINE];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length - length % LINE);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_is_known_by_what_it_is_and_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let request_entry = |what: &str, name: &str| {
            IdempotentRequest::of(folder.path(), what, Some(name.as_bytes()))
        };
        assert!(!request_entry("signal", "a").has_begun());
        request_entry("signal", "a").begin();
        assert!(request_entry("signal", "a").has_begun());
        assert!(
            !request_entry("signal", "b").has_begun() && !request_entry("input", "a").has_begun()
        );
        let nameless = IdempotentRequest::of(folder.path(), "signal", None);
        nameless.begin();
        assert!(!nameless.has_begun());
    }

    #[test]
    fn the_last_ones_are_known_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let request_entry =
            |n: usize| IdempotentRequest::of(folder.path(), "x", Some(n.to_string().as_bytes()));
        for n in 0..MOST + 2 {
            request_entry(n).begin();
            request_entry(n).begin();
        }
        assert!(
            !request_entry(1).has_begun()
                && request_entry(2).has_begun()
                && request_entry(MOST + 1).has_begun()
        );
        let length = std::fs::metadata(folder.path().join(FILE)).unwrap().len();
        assert_eq!(length, (MOST * LINE) as u64);
    }
}
