//! Secrets in files that only their owner can read, and random tokens.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::entropy;

pub use abide_session::private_file::write;

/// Bytes in a token; its text has twice as many hexadecimal digits.
const TOKEN_BYTES: usize = 32;

/// Token in the file at `path`, created if there is none. A token that another user could have read, or that is not
/// valid, is replaced.
pub fn token(path: &Path) -> io::Result<String> {
    match read_token(path) {
        Ok(Some(token)) => return Ok(token),
        Ok(None) => tracing::warn!(
            "{} could be read by other users or contained no valid token; it has a new token now",
            path.display()
        ),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => {}
        Err(fault) => return Err(fault),
    }
    let token = random_hex::<TOKEN_BYTES>();
    write(path, &token)?;
    Ok(token)
}

/// Random bytes, in hexadecimal.
pub fn random_hex<const BYTES: usize>() -> String {
    hex(&entropy::array::<BYTES>())
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of a text in hexadecimal. `None`: it is no such text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

/// Compares in constant time, so that the duration tells nothing about the difference.
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    let differ = left.iter().zip(right).fold(0, |differ, (left, right)| {
        std::hint::black_box(differ | (left ^ right))
    });
    left.len() == right.len() && differ == 0
}

/// Content of a file that no other user can read or write. `None`: another user can.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let found = std::fs::symlink_metadata(path)?;
    let ours = found.is_file()
        && found.mode() & 0o077 == 0
        && found.uid() == rustix::process::geteuid().as_raw();
    ours.then(|| std::fs::read(path)).transpose()
}

/// Valid token in a private file. `None`: the file or its content is not valid.
fn read_token(path: &Path) -> io::Result<Option<String>> {
    let Some(text) = read(path)? else {
        return Ok(None);
    };
    let text = text.trim_ascii();
    let whole = text.len() == 2 * TOKEN_BYTES && text.iter().all(u8::is_ascii_hexdigit);
    Ok(whole.then(|| String::from_utf8_lossy(text).into_owned()))
}

/// Makes this process not dumpable: only root can read its memory, alive or as a core dump. The environment of
/// commands passes through it, and commands run as the same user. Child processes are not affected.
pub fn set_not_dumpable() {
    let wanted = rustix::process::DumpableBehavior::NotDumpable;
    if let Err(fault) = rustix::process::set_dumpable_behavior(wanted) {
        tracing::warn!(
            "cannot make this process undumpable, so its memory can be read by other processes of its user: {fault}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn token_is_created_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let made = token(&path).unwrap();
        assert_eq!(made.len(), 64);
        assert_eq!(token(&path).unwrap(), made);
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn token_readable_by_others_is_replaced() {
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
