//! Sandboxes that this machine can enforce. Only building one shows it, which needs a process with one thread: the daemon
//! starts its own program for that, and reads what it prints.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::SandboxedBy;
use abide_session::sandbox::{Probed, probe};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::pause;
use crate::lock::lock;

/// First argument of a process that probes.
pub const ROLE: &str = "probe-sandboxes";

/// Time after which a probe that does not end is given up.
const DEADLINE: Duration = Duration::from_secs(20);

/// Strongest sandbox that this machine can enforce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforceable {
    /// Mechanism that works; `Off`: none.
    #[serde(serialize_with = "write_word", deserialize_with = "read_word")]
    pub strongest: SandboxedBy,
    /// Reason why no stronger mechanism works. Empty: it is the strongest of all.
    pub why_not_stronger: String,
}

impl Enforceable {
    fn of(probed: &[Probed]) -> Self {
        let strongest = probed.iter().find(|(_, made)| made.is_ok());
        let strongest = strongest.map_or(SandboxedBy::Off, |(by, _)| *by);
        let stronger = probed.iter().take_while(|(by, _)| *by > strongest);
        let why: Vec<String> = stronger
            .filter_map(|(_, made)| made.as_ref().err())
            .map(ToString::to_string)
            .collect();
        Enforceable {
            strongest,
            why_not_stronger: why.join("; "),
        }
    }
}

fn write_word<S: Serializer>(by: &SandboxedBy, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(by.as_str())
}

fn read_word<'de, D: Deserializer<'de>>(from: D) -> Result<SandboxedBy, D::Error> {
    let word = String::deserialize(from)?;
    SandboxedBy::of_word(&word).ok_or_else(|| D::Error::custom("no mechanism of a sandbox"))
}

/// Runs as the process that probes, in this folder. Returns its exit code.
pub fn main(folder: &Path) -> i32 {
    let folder = folder.join(format!("probe-{}", std::process::id()));
    let probed = probe(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    let found = probed.map(|probed| Enforceable::of(&probed));
    match found.and_then(|found| serde_json::to_string(&found).ok()) {
        Some(line) => {
            println!("{line}");
            0
        }
        None => 1,
    }
}

/// Probes this machine, and keeps what it found.
pub struct SandboxProbe {
    program: PathBuf,
    folder: PathBuf,
    found: Mutex<Option<Arc<Enforceable>>>,
    /// Locked while a probe runs.
    running: tokio::sync::Mutex<()>,
    /// Number of probes that have ended.
    ended: AtomicU64,
}

impl SandboxProbe {
    /// Probe by this abide binary, with its files in `folder`.
    pub(super) fn new(program: PathBuf, folder: PathBuf) -> Self {
        SandboxProbe {
            program,
            folder,
            found: Mutex::default(),
            running: tokio::sync::Mutex::default(),
            ended: AtomicU64::new(0),
        }
    }

    /// Result of the last probe. `None`: there was none, or it failed.
    pub fn found(&self) -> Option<Arc<Enforceable>> {
        lock(&self.found).clone()
    }

    /// Probes the machine, unless a mechanism at least as strong as this one is known to work: a person may have changed
    /// the machine since one was found not to work.
    pub async fn run_unless_known(&self, wanted: SandboxedBy) {
        if self.found().is_some_and(|found| found.strongest >= wanted) {
            return;
        }
        let before = self.ended.load(Ordering::Relaxed);
        let _running = self.running.lock().await;
        // A probe that has ended while this call waited is new enough.
        if self.ended.load(Ordering::Relaxed) != before {
            return;
        }
        match self.run().await {
            Ok(found) => *lock(&self.found) = Some(Arc::new(found)),
            Err(fault) => tracing::warn!("cannot probe the sandboxes of this machine: {fault}"),
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    async fn run(&self) -> io::Result<Enforceable> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the probe is started here and nowhere else"
        )]
        let mut command = std::process::Command::new(&self.program);
        command
            .arg(ROLE)
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        tokio::select! {
            output = command.output() => Ok(serde_json::from_slice(&output?.stdout)?),
            () = pause(DEADLINE) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use abide_session::sandbox::NotBuilt;

    use super::*;

    #[test]
    fn strongest_mechanism_that_works_is_found_with_the_reasons_against_stronger_ones() {
        let not = |why: &str| Err(NotBuilt::unavailable(why));
        let of = |probed: &[Probed]| {
            let found = Enforceable::of(probed);
            (found.strongest, found.why_not_stronger)
        };
        use SandboxedBy::{Bubblewrap, Landlock, Namespaces, Off};
        let all = [
            (Namespaces, Ok(Vec::new())),
            (Bubblewrap, not("b")),
            (Landlock, Ok(Vec::new())),
        ];
        assert_eq!(of(&all), (Namespaces, String::new()));
        let weak = [
            (Namespaces, not("a")),
            (Bubblewrap, not("b")),
            (Landlock, Ok(Vec::new())),
        ];
        assert_eq!(of(&weak), (Landlock, "a; b".into()));
        let none = [(Namespaces, not("a")), (Landlock, not("c"))];
        assert_eq!(of(&none), (Off, "a; c".into()));
    }
}
