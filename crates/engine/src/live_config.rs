//! Configuration in force. The file is checked for changes whenever a setting is used, so a change needs no restart of
//! the daemon. A file that cannot be used leaves the former configuration in force, as does one that is empty or missing
//! for a moment; the rules about commands are stricter, see `policy`.

use std::path::Path;
use std::sync::{Arc, Mutex};

use abide_core::{Mono, Wall};
use tokio::sync::watch;

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::lock::lock;
use crate::store::PostgresAddress;
use crate::watched_file::{FileStamp, Look, WatchedFile};

/// Compares one setting of two configurations.
type IsSame = fn(&Config, &Config) -> bool;

/// Settings that only a new daemon takes, with their names.
const AT_START: &[(&str, IsSame)] = &[
    ("http", |a, b| a.http == b.http),
    ("http_beyond_loopback", |a, b| {
        a.http_beyond_loopback == b.http_beyond_loopback
    }),
    ("idle_keepers", |a, b| a.idle_keepers == b.idle_keepers),
    ("ca_file", |a, b| a.ca_file == b.ca_file),
    ("store", |a, b| is_same_place(&a.store, &b.store)),
    ("machine", |a, b| a.machine == b.machine),
    ("labels", |a, b| a.labels == b.labels),
    ("lost_after", |a, b| a.lost_after == b.lost_after),
    ("fleet.return_after", |a, b| {
        a.fleet.return_after == b.fleet.return_after
    }),
];

/// True if both are in one place. A changed password is taken by the next connection.
fn is_same_place(one: &Option<String>, other: &Option<String>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => PostgresAddress::is_same_place(one, other),
        (one, other) => one == other,
    }
}

/// Configuration that follows its file.
pub struct LiveConfig {
    at_start: Arc<Config>,
    state: Mutex<State>,
    changes: watch::Sender<()>,
}

struct State {
    file: WatchedFile,
    config: Arc<Config>,
    read_at: Wall,
    /// Reason why the file cannot be used, as a sentence.
    fault: Option<Arc<str>>,
}

/// State of the configuration, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigState {
    /// Time at which the configuration in force was read.
    pub read_at: Wall,
    /// Reason why the file as it is now is not in force.
    pub fault: Option<Arc<str>>,
    /// Settings of the file that take effect when the daemon is started again.
    pub at_next_start: Vec<&'static str>,
}

impl LiveConfig {
    /// Configuration that was read from this file before, or is used without one.
    pub fn new(path: &Path, given: Config) -> Self {
        let stamp = FileStamp::of(path);
        // The file may have changed since it was read.
        let config = match stamp {
            FileStamp::Missing => given,
            _ => Config::load(path).unwrap_or(given),
        };
        let config = Arc::new(config);
        let mut file = WatchedFile::new(path);
        file.was_read(stamp, true);
        LiveConfig {
            at_start: config.clone(),
            state: Mutex::new(State {
                file,
                config,
                read_at: SystemClock.now().wall,
                fault: None,
            }),
            changes: watch::Sender::new(()),
        }
    }

    /// Configuration in force.
    pub fn current(&self) -> Arc<Config> {
        self.current_at(SystemClock.mono())
    }

    fn current_at(&self, now: Mono) -> Arc<Config> {
        let mut state = lock(&self.state);
        if let Look::Changed(stamp) = state.file.look(now) {
            self.read(&mut state, stamp);
        }
        state.config.clone()
    }

    /// Reads the file again, changed or not.
    pub fn reread(&self) {
        lock(&self.state).file.reread();
        self.current();
    }

    /// Follows changes of the configuration in force.
    pub fn follow(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub fn state(&self) -> ConfigState {
        let config = self.current();
        let state = lock(&self.state);
        let differs = AT_START.iter();
        let differs = differs.filter(|(_, same)| !same(&config, &self.at_start));
        ConfigState {
            read_at: state.read_at,
            fault: state.fault.clone(),
            at_next_start: differs.map(|(name, _)| *name).collect(),
        }
    }

    /// Reason why the file as it is now is not in force.
    pub fn fault(&self) -> Option<Arc<str>> {
        self.current();
        let state = lock(&self.state);
        state.fault.clone()
    }

    fn read(&self, state: &mut State, stamp: FileStamp) {
        let read = Config::load(state.file.path());
        state.file.was_read(stamp, read.is_ok());
        match read {
            Ok(config) => {
                state.fault = None;
                state.read_at = SystemClock.now().wall;
                if *state.config != config {
                    state.config = Arc::new(config);
                    tracing::info!("the configuration was read again");
                    self.changes.send_replace(());
                }
            }
            Err(fault) => {
                let fault = fault.to_string();
                if state.fault.as_deref() != Some(&*fault) {
                    tracing::error!("the former configuration stays in force: {fault}");
                }
                state.fault = Some(fault.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_takes_effect_and_a_bad_one_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        let write = |text: &str| {
            // Another file each time: its stamp differs even within one tick of the clock.
            std::fs::write(folder.path().join("new"), text).expect("a file");
            std::fs::rename(folder.path().join("new"), &path).expect("a file");
        };
        let given = Config {
            max_output: 7,
            ..Config::default()
        };
        let live = LiveConfig::new(&path, given);
        assert_eq!(live.current().max_output, 7);
        let mut changes = live.follow();
        write("max_output = 500\nhttp = \"off\"\n");
        assert_eq!(live.current().max_output, 500);
        assert!(changes.has_changed().expect("it lives"));
        changes.mark_unchanged();
        assert_eq!(live.state().at_next_start, ["http"]);
        write("max_output = 0\n");
        assert_eq!(live.current().max_output, 500);
        let fault = live.state().fault.expect("a fault");
        assert!(fault.contains("`max_output` must be"), "{fault}");
        assert!(!changes.has_changed().expect("it lives"));
        std::fs::remove_file(&path).expect("the file");
        live.reread();
        assert_eq!(live.current().max_output, Config::default().max_output);
        assert_eq!(live.state().fault, None);
    }

    #[test]
    fn file_that_is_empty_for_a_moment_leaves_the_configuration_in_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "max_output = 500\n").expect("a file");
        let live = LiveConfig::new(&path, Config::default());
        let now = SystemClock.mono();
        let empty = || std::fs::write(&path, "").expect("a file");
        let remove = || std::fs::remove_file(&path).expect("the file");
        let remove: [&dyn Fn(); 2] = [&empty, &remove];
        for remove in remove {
            std::fs::write(&path, "max_output = 5000\n").expect("a file");
            assert_eq!(live.current_at(now).max_output, 5_000);
            remove();
            assert_eq!(live.current_at(now).max_output, 5_000);
            let later = now + abide_core::Millis(1_000);
            let default = Config::default().max_output;
            assert_eq!(live.current_at(later).max_output, default);
        }
    }
}
