//! What a timer may wait for. A door makes this of what an agent wrote; it is kept as written here.

use std::path::PathBuf;

use abide_core::SessionId;
use serde::{Deserialize, Serialize};

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Somebody listens at a port; without a host, on this machine.
    Port {
        /// Where.
        host: Option<String>,
        /// Which.
        port: u16,
    },
    /// A web server answers.
    Url(Url),
    /// A file is so.
    File(File),
    /// A session is so.
    Session {
        /// Which.
        #[serde(with = "as_text")]
        session: SessionId,
        /// How.
        want: SessionCondition,
    },
    /// A command ends with code 0.
    Command(Command),
    /// All of these at one time.
    All(Vec<Condition>),
    /// One of these.
    Any(Vec<Condition>),
}

/// What a web server is to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Url {
    /// The whole address, without name and password.
    pub url: String,
    /// `name:password`, for a server that wants to know who asks.
    #[serde(default)]
    pub login: Option<String>,
    /// Whether it is asked over TLS.
    #[serde(default)]
    pub tls: bool,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its path and query.
    pub path: String,
    /// This status; else any that means success.
    pub status: Option<u16>,
    /// This in its body.
    pub body: Option<String>,
}

/// Condition on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Absolute path.
    pub path: PathBuf,
    /// State to wait for.
    pub is: FileState,
    /// Pattern that a line of the file must match.
    pub matches: Option<String>,
}

/// Condition on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// There.
    Present,
    /// Not there.
    Gone,
    /// Other than it was.
    Changed {
        /// How it was; `None`: not there.
        from: Option<Fingerprint>,
    },
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    inode: u64,
    size: u64,
    modified_ns: i128,
}

impl Fingerprint {
    /// The file's present state; `None`: it is not there. What cannot be seen may well be there.
    pub fn of(path: &std::path::Path) -> std::io::Result<Option<Self>> {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        use std::os::unix::fs::MetadataExt;
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            Err(e) if matches!(e.kind(), NotFound | NotADirectory) => return Ok(None),
            Err(e) => return Err(e),
        };
        Ok(Some(Fingerprint {
            inode: found.ino(),
            size: found.len(),
            modified_ns: i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()),
        }))
    }
}

/// How a session is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionCondition {
    /// Its leader has ended.
    Ended,
    /// It has written this.
    Output(String),
}

/// A command that is to succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// As for `sh -c`.
    pub command: String,
    /// What runs it.
    pub shell: Vec<String>,
    /// Where.
    pub cwd: PathBuf,
    /// Where programs are looked for.
    pub search_path: Option<String>,
    /// How long after one try the next begins.
    pub every_ms: u64,
}

impl Condition {
    /// How many simple conditions it is made of.
    pub fn leaves(&self) -> usize {
        match self {
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().map(Condition::leaves).sum()
            }
            Condition::Port { .. }
            | Condition::Url(_)
            | Condition::File(_)
            | Condition::Session { .. }
            | Condition::Command(_) => 1,
        }
    }

    /// Whether time passes between what a look sees and its end.
    pub fn takes_a_while(&self) -> bool {
        matches!(self, Condition::Command(_) | Condition::Url(_))
    }
}

mod as_text {
    use abide_core::SessionId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(id: &SessionId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SessionId, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|_| D::Error::custom("not a session's id"))
    }
}
