//! Conditions that a timer can wait for. An interface parses them from the agent's arguments; the database stores
//! them in this form.

use std::path::PathBuf;

use abide_core::SessionId;
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;

/// Condition as the database stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCondition {
    pub condition: Condition,
    /// Root folder of the agent that waits, on which its sandbox depends; `None`: a person waits.
    pub root: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// A port accepts connections; without a host, on this machine.
    Port {
        host: Option<String>,
        port: u16,
        /// Time between two checks; `None`: they back off.
        #[serde(default)]
        every_ms: Option<u64>,
    },
    /// A web server gives a certain answer.
    Url(Url),
    /// A file is in a certain state.
    File(File),
    /// A session is in a certain state.
    Session {
        #[serde(with = "as_text")]
        session: SessionId,
        /// State to wait for.
        want: SessionCondition,
    },
    /// A session of another machine has ended.
    SessionElsewhere {
        #[serde(with = "as_text")]
        session: SessionId,
        machine: u64,
    },
    /// A command exits with code 0.
    Command(Command),
    /// All of these hold at the same time.
    All(Vec<Condition>),
    /// One of these holds.
    Any(Vec<Condition>),
}

/// Condition on the answer of a web server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Url {
    /// Whole URL, without user name and password.
    pub url: String,
    /// `name:password` for basic authentication.
    #[serde(default)]
    pub login: Option<String>,
    /// True for https.
    #[serde(default)]
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// Path and query of the URL.
    pub path: String,
    /// Expected status; `None`: any that means success.
    pub status: Option<u16>,
    /// Pattern that the body must match.
    pub body: Option<Pattern>,
    /// Time between two checks; `None`: they back off.
    #[serde(default)]
    pub every_ms: Option<u64>,
}

/// Condition on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Absolute path.
    pub path: PathBuf,
    /// State to wait for.
    pub is: FileState,
    /// Pattern that a line of the file must match.
    pub matches: Option<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// The file exists.
    Present,
    /// The file does not exist.
    Gone,
    /// The file differs from an earlier state.
    Changed {
        /// Earlier state; `None`: the file did not exist.
        from: Option<Fingerprint>,
    },
}

/// Identity of the state of a file: inode, size and modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    inode: u64,
    size: u64,
    modified_ns: i128,
}

impl Fingerprint {
    /// Present state of the file; `None`: it does not exist. An error if that cannot be determined.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionCondition {
    /// The leader has ended.
    Ended,
    /// The output matches this pattern.
    Output(Pattern),
}

/// Command that has to succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub command: String,
    /// Shell that runs it.
    pub shell: Vec<String>,
    pub cwd: PathBuf,
    pub search_path: Option<String>,
    /// Time between two tries.
    pub every_ms: u64,
}

impl Condition {
    /// Number of simple conditions in it.
    pub fn leaves(&self) -> usize {
        match self {
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().map(Condition::leaves).sum()
            }
            Condition::Port { .. }
            | Condition::Url(_)
            | Condition::File(_)
            | Condition::Session { .. }
            | Condition::SessionElsewhere { .. }
            | Condition::Command(_) => 1,
        }
    }

    /// Simple conditions in it.
    pub fn each_leaf(&self) -> Vec<&Condition> {
        match self {
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().flat_map(Condition::each_leaf).collect()
            }
            leaf => vec![leaf],
        }
    }

    /// True if a probe of it takes time, so that the result may be out of date when it arrives.
    pub fn is_slow(&self) -> bool {
        match self {
            Condition::Command(_) | Condition::Url(_) => true,
            Condition::Port { .. }
            | Condition::File(_)
            | Condition::Session { .. }
            | Condition::SessionElsewhere { .. }
            | Condition::All(_)
            | Condition::Any(_) => false,
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use abide_core::timer::{Observation, Until};
    use abide_core::{Agent, Event, SessionId, TimerId, Wall};
    use serde_json::json;
    use tokio::sync::mpsc;

    use crate::probe::Prober;
    use crate::seams::ProbeControl;
    use crate::web::Web;

    #[tokio::test]
    async fn stored_condition_with_an_invalid_pattern_is_impossible() {
        let root = tempfile::tempdir().expect("a folder");
        let url = json!({"url": "http://127.0.0.1:1/", "host": "127.0.0.1", "port": 1, "path": "/", "body": "("});
        for condition in [
            json!({"file": {"path": root.path(), "is": "present", "matches": "("}}),
            json!({"url": url}),
            json!({"session": {"session": SessionId::from_bits(1).to_string(), "want": {"output": "("}}}),
        ] {
            let (events, mut decided) = mpsc::channel(1);
            let prober = Prober::new(events, Arc::new(Web::new(None)));
            let until = Until {
                condition: json!({"condition": condition, "root": null})
                    .to_string()
                    .into(),
                agent: Agent("one".into()),
                conversation: None,
                since: Wall(0),
            };
            prober.start(TimerId::from_bits(1), Some(until));
            match decided.recv().await {
                Some(Event::ConditionImpossible {
                    why: Observation { text, .. },
                    ..
                }) => assert!(text.contains("unclosed group"), "{text}"),
                other => panic!("{condition}: {other:?}"),
            }
        }
    }
}
