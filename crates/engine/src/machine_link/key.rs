//! Key of this machine and the secret of the fleet.
//!
//! A machine proves who it is with its key. The fleet secret vouches for keys: a row of the database counts only with a
//! message authentication code under it, which access to the database does not suffice to make. The secret is in a
//! private file on each machine. It never enters the database, a log or an argument list.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use abide_core::fleet::MachineId;
use abide_core::fleet::rights::{self, Caller};
use abide_core::fleet::row::{Introduction, Standing};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio_rustls::rustls::crypto::ring::sign::any_eddsa_type;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::sign::SigningKey;

use crate::fleet::Machine;
use crate::{entropy, secret};

/// PKCS #8 head of an Ed25519 private key; its 32 bytes follow.
const PRIVATE_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// SubjectPublicKeyInfo head of an Ed25519 public key; its 32 bytes follow.
pub(super) const PUBLIC_HEAD: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// Bytes of a key and of the secret.
pub(crate) const BYTES: usize = 32;

/// Fault of a file with a key or a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// The file cannot be read or written.
    #[error("cannot use {path}: {source}")]
    File {
        path: String,
        /// Fault of the file.
        source: io::Error,
    },
    /// Another user could have read the file.
    #[error(
        "{0} can be read by other users; run `chmod 600 {0}`, and make a new one if another user may have read it"
    )]
    NotPrivate(String),
    /// The file has another content.
    #[error("{0} does not contain 64 hexadecimal digits")]
    Malformed(String),
}

/// Private key of this machine.
#[derive(Clone)]
pub struct MachineKey {
    signing: Arc<dyn SigningKey>,
    public: [u8; BYTES],
}

impl MachineKey {
    /// Key in the file at `path`, which is made if there is none.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFault> {
        let seed = read_or_make(path)?;
        Self::of_seed(&seed).ok_or_else(|| KeyFault::Malformed(path.display().to_string()))
    }

    /// Key of this seed.
    pub fn of_seed(seed: &[u8; BYTES]) -> Option<Self> {
        let private = [PRIVATE_HEAD.as_slice(), seed].concat();
        let signing = any_eddsa_type(&PrivatePkcs8KeyDer::from(private)).ok()?;
        let public = signing.public_key()?.to_vec();
        let public = public.strip_prefix(PUBLIC_HEAD.as_slice())?;
        let public = public.try_into().ok()?;
        Some(MachineKey { signing, public })
    }

    pub fn public(&self) -> [u8; BYTES] {
        self.public
    }

    pub(super) fn signing(&self) -> Arc<dyn SigningKey> {
        self.signing.clone()
    }
}

impl fmt::Debug for MachineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let public = secret::hex(&self.public);
        f.debug_tuple("MachineKey").field(&public).finish()
    }
}

/// Secret of the fleet.
#[derive(Clone)]
pub struct FleetSecret([u8; BYTES]);

impl FleetSecret {
    pub fn random() -> Self {
        FleetSecret(random())
    }

    /// Reads the text that [`write`](Self::write) writes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        unhex(text.trim_ascii()).map(FleetSecret)
    }

    /// Secret in the file at `path`. `None`: there is no such file, so this machine is in no fleet.
    pub fn load(path: &Path) -> Result<Option<Self>, KeyFault> {
        Ok(read_hex(path)?.map(FleetSecret))
    }

    /// Writes the secret to a private file.
    pub fn write(&self, path: &Path) -> Result<(), KeyFault> {
        write_hex(path, &self.0)
    }

    /// Row that introduces a machine to the others.
    pub fn introduce(&self, id: MachineId, name: &str, key: &MachineKey) -> Introduction {
        let mut introduction = Introduction {
            id,
            name: name.to_owned(),
            key: key.public(),
            mac: [0; BYTES],
        };
        introduction.mac = self.code(&rights::signed_bytes(&introduction));
        introduction
    }

    /// Checks the row of a machine.
    pub fn check<'a>(&self, introduction: &'a Introduction, standing: Standing) -> Caller<'a> {
        rights::introduce(introduction, standing, |bytes, code| {
            secret::constant_time_eq(&self.code(bytes), code)
        })
    }

    /// True if the row of a machine has a code under this secret.
    pub fn vouches_for(&self, machine: &Machine) -> bool {
        let (Some(key), Some(mac)) = (machine.public_key, machine.mac) else {
            return false;
        };
        let introduction = Introduction {
            id: machine.row.id,
            name: machine.name.clone(),
            key,
            mac,
        };
        self.check(&introduction, machine.row.standing) != Caller::Unknown
    }

    fn code(&self, bytes: &[u8]) -> [u8; BYTES] {
        let mut code = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        code.update(bytes);
        code.finalize().into_bytes().into()
    }
}

impl fmt::Debug for FleetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetSecret(..)")
    }
}

fn random() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    entropy::fill(&mut bytes);
    bytes
}

/// Key in the file at `path`, which is made if there is none.
pub(crate) fn read_or_make(path: &Path) -> Result<[u8; BYTES], KeyFault> {
    if let Some(key) = read_hex(path)? {
        return Ok(key);
    }
    let key = random();
    write_hex(path, &key)?;
    Ok(key)
}

/// Bytes in a private file. `None`: there is no file.
fn read_hex(path: &Path) -> Result<Option<[u8; BYTES]>, KeyFault> {
    let shown = || path.display().to_string();
    let text = match secret::read(path) {
        Ok(Some(text)) => text,
        Ok(None) => return Err(KeyFault::NotPrivate(shown())),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let path = shown();
            return Err(KeyFault::File { path, source });
        }
    };
    let bytes = unhex(text.trim_ascii()).ok_or_else(|| KeyFault::Malformed(shown()))?;
    Ok(Some(bytes))
}

fn write_hex(path: &Path, bytes: &[u8; BYTES]) -> Result<(), KeyFault> {
    let text = format!("{}\n", secret::hex(bytes));
    secret::write(path, &text).map_err(|source| KeyFault::File {
        path: path.display().to_string(),
        source,
    })
}

fn unhex(text: &[u8]) -> Option<[u8; BYTES]> {
    let bytes = secret::unhex(std::str::from_utf8(text).ok()?)?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn key_is_created_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = MachineKey::load_or_create(&path).unwrap();
        let again = MachineKey::load_or_create(&path).unwrap();
        assert_eq!(made.public(), again.public());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn key_readable_by_others_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        MachineKey::load_or_create(&path).unwrap();
        let before = std::fs::read(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let refused = MachineKey::load_or_create(&path);
        assert!(matches!(refused, Err(KeyFault::NotPrivate(_))));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn public_key_of_known_seed_is_the_one_of_rfc_8032() {
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        let key = MachineKey::of_seed(&unhex(seed.as_bytes()).unwrap()).unwrap();
        assert_eq!(secret::hex(&key.public()), public);
    }

    #[test]
    fn machine_with_the_secret_is_known_and_every_changed_row_is_not() {
        let (fleet, other) = (FleetSecret::random(), FleetSecret::random());
        let key = MachineKey::of_seed(&[7; 32]).unwrap();
        let row = fleet.introduce(MachineId(1), "laptop", &key);
        let known = Caller::Known { name: "laptop" };
        assert_eq!(fleet.check(&row, Standing::Member), known);
        assert_eq!(fleet.check(&row, Standing::Revoked), Caller::Expelled);
        assert_eq!(other.check(&row, Standing::Member), Caller::Unknown);
        let renamed = Introduction {
            name: "build".into(),
            ..row.clone()
        };
        let moved = Introduction {
            id: MachineId(2),
            ..row.clone()
        };
        let replaced = Introduction {
            key: [1; 32],
            ..row
        };
        for forged in [renamed, moved, replaced] {
            assert_eq!(fleet.check(&forged, Standing::Member), Caller::Unknown);
        }
    }

    #[test]
    fn secret_is_read_with_spaces_around_it_and_refused_if_it_is_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(FleetSecret::load(&path).unwrap().is_none());
        let made = FleetSecret::random();
        made.write(&path).unwrap();
        let text = [b" ".as_slice(), &std::fs::read(&path).unwrap(), b"\n"].concat();
        assert_eq!(FleetSecret::parse(&text).unwrap().0, made.0);
        assert!(FleetSecret::parse(b"abc").is_none());
        assert_eq!(format!("{made:?}"), "FleetSecret(..)");
    }
}
