//! Secrets in files that only their owner can read.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::entropy;

pub use abide_session::private_file::write;

/// Bytes in a token; twice as many digits are written.
const TOKEN_BYTES: usize = 32;

/// The token in the file at `path`, made where there is none. One that others could have read, or
/// that is none of ours, is replaced.
pub fn token(path: &Path) -> io::Result<String> {
    match read_token(path) {
        Ok(Some(token)) => return Ok(token),
        Ok(None) => tracing::warn!(
            "{} could be read by others or held no token; it holds a new one now",
            path.display()
        ),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => {}
        Err(fault) => return Err(fault),
    }
    let token = random_hex::<TOKEN_BYTES>();
    write(path, &token)?;
    Ok(token)
}

/// So many random bytes, as digits.
pub fn random_hex<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    entropy::fill(&mut bytes);
    hex(&bytes)
}

/// Bytes as digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares in a time that says nothing about where the two differ.
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    let differ = left.iter().zip(right).fold(0, |differ, (left, right)| {
        std::hint::black_box(differ | (left ^ right))
    });
    left.len() == right.len() && differ == 0
}

/// Reads a file that no other user could have read or written. `None`: another user could.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let found = std::fs::symlink_metadata(path)?;
    let ours = found.is_file()
        && found.mode() & 0o077 == 0
        && found.uid() == rustix::process::geteuid().as_raw();
    ours.then(|| std::fs::read(path)).transpose()
}

fn read_token(path: &Path) -> io::Result<Option<String>> {
    let Some(text) = read(path)? else {
        return Ok(None);
    };
    let text = text.trim_ascii();
    let whole = text.len() == 2 * TOKEN_BYTES && text.iter().all(u8::is_ascii_hexdigit);
    Ok(whole.then(|| String::from_utf8_lossy(text).into_owned()))
}

/// Lets nobody but root look into the memory of this process, alive or as a dump after a crash: the
/// variables of commands pass through it, and a command runs as the same user. What it starts can be looked
/// into as ever.
pub fn set_not_dumpable() {
    let wanted = rustix::process::DumpableBehavior::NotDumpable;
    if let Err(fault) = rustix::process::set_dumpable_behavior(wanted) {
        tracing::warn!("the memory of this process can be looked into: {fault}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let made = token(&path).unwrap();
        assert_eq!(made.len(), 64);
        assert_eq!(token(&path).unwrap(), made);
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn one_that_others_could_have_read_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let made = token(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let again = token(&path).unwrap();
        assert_ne!(again, made);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::write(&path, "short").unwrap();
        assert_ne!(token(&path).unwrap(), again);
    }
}
