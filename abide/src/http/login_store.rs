//! Logins of browsers. A person gets a single-use code that expires after a minute; the browser
//! exchanges it for a secret of its own. The daemon stores only a hash of the secret, in a file that
//! only its user can read, so that a login survives a restart.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use abide_core::Millis;
use abide_core::time::{Mono, Now, Wall};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use abide_engine::secret;

/// Lifetime of a code.
pub const CODE_LIFETIME: Millis = Millis::from_secs(60);
/// Lifetime of a login.
pub const LOGIN_LIFETIME: Millis = Millis::from_secs(30 * 86_400);
/// Random bytes in a code and in a secret.
const CODE_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
/// Largest number of unused codes; a further one replaces the oldest.
const CODE_LIMIT: usize = 16;
/// Largest number of logins; a further one replaces the oldest.
const LOGIN_LIMIT: usize = 64;
/// Number of wrong codes within [`CODE_LIFETIME`] after which all codes are refused for the rest of that time.
const WRONG_CODE_LIMIT: u32 = 20;

type Hash = [u8; 32];

/// Identifier of a login: the hash of its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginId(Hash);

/// Reason why a login was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The code is unknown, used or expired.
    #[error("This code is no longer valid; the command “abide open” makes a new one")]
    WrongCode,
    /// Too many wrong codes were tried.
    #[error("Too many wrong codes; wait a minute, then use the command “abide open” for a new one")]
    TooMany,
    /// The login could not be stored.
    #[error("the login could not be stored: {0}")]
    NotStored(#[from] io::Error),
}

/// All logins of one daemon.
pub struct LoginStore {
    path: PathBuf,
    table: Mutex<LoginTable>,
    ended: watch::Sender<()>,
}

#[derive(Default)]
struct LoginTable {
    /// Logins with their expiry, oldest first.
    logins: Vec<(Hash, Wall)>,
    codes: VecDeque<(Hash, Mono)>,
    wrong: u32,
    wrong_since: Mono,
}

impl LoginStore {
    /// Loads the logins that have not expired. A file that other users could have written is ignored.
    pub fn open(path: PathBuf, now: Wall) -> Self {
        let text = secret::read(&path).ok().flatten().unwrap_or_default();
        let logins = String::from_utf8_lossy(&text)
            .lines()
            .filter_map(parse_login)
            .filter(|(_, until)| *until > now)
            .collect();
        let table = LoginTable {
            logins,
            ..LoginTable::default()
        };
        LoginStore {
            path,
            table: Mutex::new(table),
            ended: watch::channel(()).0,
        }
    }

    pub fn create_code(&self, now: Mono) -> String {
        let code = secret::random_hex::<CODE_BYTES>();
        let mut table = self.table();
        if table.codes.len() == CODE_LIMIT {
            table.codes.pop_front();
        }
        table
            .codes
            .push_back((hash(code.as_bytes()), now + CODE_LIFETIME));
        code
    }

    /// Exchanges a code for a secret. The code cannot be used again.
    pub fn exchange(&self, code: &str, now: Now) -> Result<String, LoginError> {
        let mut table = self.table();
        if now.mono.since(table.wrong_since) >= CODE_LIFETIME {
            table.wrong = 0;
            table.wrong_since = now.mono;
        }
        if table.wrong >= WRONG_CODE_LIMIT {
            return Err(LoginError::TooMany);
        }
        let shown = hash(code.trim().as_bytes());
        table.codes.retain(|(_, until)| *until > now.mono);
        let known = table
            .codes
            .iter()
            .position(|(code, _)| secret::constant_time_eq(code, &shown));
        let Some(known) = known else {
            table.wrong += 1;
            return Err(LoginError::WrongCode);
        };
        table.codes.remove(known);
        let login = secret::random_hex::<SECRET_BYTES>();
        table.logins.retain(|(_, until)| *until > now.wall);
        if table.logins.len() == LOGIN_LIMIT {
            table.logins.remove(0);
        }
        let until = Wall(now.wall.0 + LOGIN_LIFETIME.0);
        table.logins.push((hash(login.as_bytes()), until));
        self.save(&table)?;
        Ok(login)
    }

    /// Login of a secret, if it has not expired.
    pub fn find(&self, shown: &[u8], now: Wall) -> Option<LoginId> {
        let shown = hash(shown);
        let table = self.table();
        let known = table
            .logins
            .iter()
            .find(|(login, _)| secret::constant_time_eq(login, &shown));
        known
            .filter(|(_, until)| *until > now)
            .map(|(login, _)| LoginId(*login))
    }

    /// Ends a login, and the streams that were opened with it.
    pub fn end(&self, login: LoginId) -> io::Result<()> {
        let mut table = self.table();
        table.logins.retain(|(known, _)| *known != login.0);
        let saved = self.save(&table);
        drop(table);
        self.ended.send_replace(());
        saved
    }

    /// Waits until a login has ended.
    pub async fn until_ended(&self, login: LoginId) {
        let mut ended = self.ended.subscribe();
        while self
            .table()
            .logins
            .iter()
            .any(|(known, _)| *known == login.0)
        {
            if ended.changed().await.is_err() {
                return;
            }
        }
    }

    fn save(&self, table: &LoginTable) -> io::Result<()> {
        let lines: String = table
            .logins
            .iter()
            .map(|(login, until)| format!("{} {}\n", secret::hex(login), until.0))
            .collect();
        secret::write(&self.path, &lines)
    }

    fn table(&self) -> MutexGuard<'_, LoginTable> {
        self.table.lock().expect("no holder panics")
    }
}

fn hash(text: &[u8]) -> Hash {
    Sha256::digest(text).into()
}

/// Parses a line of the file.
fn parse_login(line: &str) -> Option<(Hash, Wall)> {
    let (digits, until) = line.split_once(' ')?;
    let hash = secret::unhex(digits)?.try_into().ok()?;
    Some((hash, Wall(until.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_core::time::Boot;
    use std::os::unix::fs::MetadataExt;

    fn at(ms: u64) -> Now {
        Now {
            wall: Wall(1_000_000 + ms),
            boot: Boot(ms),
            mono: Mono(ms),
        }
    }

    fn logins(folder: &tempfile::TempDir, now: Now) -> LoginStore {
        LoginStore::open(folder.path().join("logins"), now.wall)
    }

    #[test]
    fn code_works_once_and_for_one_minute() {
        let folder = tempfile::tempdir().unwrap();
        let logins = logins(&folder, at(0));
        let code = logins.create_code(Mono(0));
        assert!(code.len() * 4 >= 128);
        let secret = logins.exchange(&code, at(59_999)).unwrap();
        assert!(logins.find(secret.as_bytes(), at(60_000).wall).is_some());
        let again = logins.exchange(&code, at(59_999));
        assert!(matches!(again, Err(LoginError::WrongCode)));
        let late = logins.create_code(Mono(0));
        let late = logins.exchange(&late, at(60_000));
        assert!(matches!(late, Err(LoginError::WrongCode)));
    }

    #[test]
    fn login_survives_a_restart_and_is_gone_after_logout() {
        let folder = tempfile::tempdir().unwrap();
        let first = logins(&folder, at(0));
        let secret = first.exchange(&first.create_code(Mono(0)), at(0)).unwrap();
        let saved = std::fs::read_to_string(folder.path().join("logins")).unwrap();
        assert!(!saved.contains(&secret), "only a hash is kept");
        let mode = std::fs::metadata(folder.path().join("logins"))
            .unwrap()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = logins(&folder, at(1));
        let login = next
            .find(secret.as_bytes(), at(1).wall)
            .expect("it is known");
        assert_eq!(next.find(b"", at(1).wall), None);
        assert_eq!(next.find(&secret.as_bytes()[1..], at(1).wall), None);
        next.end(login).unwrap();
        assert_eq!(next.find(secret.as_bytes(), at(1).wall), None);
        let last = logins(&folder, at(2));
        assert_eq!(last.find(secret.as_bytes(), at(2).wall), None);
    }

    #[test]
    fn login_expires_after_thirty_days() {
        let folder = tempfile::tempdir().unwrap();
        let logins = logins(&folder, at(0));
        let secret = logins
            .exchange(&logins.create_code(Mono(0)), at(0))
            .unwrap();
        let last = LOGIN_LIFETIME.0 - 1;
        assert!(logins.find(secret.as_bytes(), at(last).wall).is_some());
        assert!(logins.find(secret.as_bytes(), at(last + 1).wall).is_none());
    }

    #[test]
    fn exchange_is_refused_for_a_minute_after_too_many_wrong_codes() {
        let folder = tempfile::tempdir().unwrap();
        let logins = logins(&folder, at(100_000));
        for _ in 0..WRONG_CODE_LIMIT {
            let wrong = logins.exchange("0", at(100_000));
            assert!(matches!(wrong, Err(LoginError::WrongCode)));
        }
        let code = logins.create_code(Mono(100_000));
        let stopped = logins.exchange(&code, at(100_001));
        assert!(matches!(stopped, Err(LoginError::TooMany)));
        let code = logins.create_code(Mono(160_000));
        assert!(logins.exchange(&code, at(160_001)).is_ok());
    }

    #[test]
    fn file_that_others_can_write_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let first = logins(&folder, at(0));
        let secret = first.exchange(&first.create_code(Mono(0)), at(0)).unwrap();
        let path = folder.path().join("logins");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o660)).unwrap();
        assert_eq!(
            logins(&folder, at(1)).find(secret.as_bytes(), at(1).wall),
            None
        );
    }
}
