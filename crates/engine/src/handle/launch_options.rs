//! Parts of a command that the core does not know.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use abide_core::{SandboxedBy, SessionName};
use abide_output::secret_fingerprints::SecretFingerprints;
use abide_session::frame::{InheritedLimits, Stdin};

use crate::sandbox::SandboxChoice;

/// Parts of a command to be started that the keeper needs and the core does not.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// Program and arguments; `None`: the configured shell with the command.
    pub argv: Option<Vec<OsString>>,
    pub cwd: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    pub stdin: Stdin,
    /// Columns and rows of its terminal, if it gets one.
    pub pty: Option<(u16, u16)>,
    /// Umask and resource limits of the caller. `None`: those of the daemon.
    pub inherited_limits: Option<InheritedLimits>,
    /// Fingerprints of the secrets in its environment, which are masked in output.
    pub secrets: Arc<SecretFingerprints>,
    pub sandbox: SandboxChoice,
    /// Permissions of this sandbox beyond the settings: a person has to approve the launch.
    pub beyond_settings: Option<BeyondSettings>,
    pub name: Option<SessionName>,
}

/// Permissions of the sandbox of a launch beyond the settings.
#[derive(Clone, Debug)]
pub struct BeyondSettings {
    /// In words, for the person who is asked.
    pub why: String,
    /// Mechanism that is weaker than the settings want, if nothing else is beyond them: a person can accept it for longer
    /// than this launch.
    pub weaker: Option<SandboxedBy>,
}

impl LaunchOptions {
    /// Options for the launch of a command without a terminal.
    pub fn plain(
        cwd: PathBuf,
        env: Vec<(OsString, OsString)>,
        stdin: Option<String>,
        secrets: Arc<SecretFingerprints>,
    ) -> Self {
        let stdin = stdin.map_or(Stdin::None, |text| Stdin::Bytes(text.into_bytes()));
        LaunchOptions {
            argv: None,
            cwd,
            env,
            stdin,
            pty: None,
            inherited_limits: None,
            secrets,
            sandbox: SandboxChoice::Off,
            beyond_settings: None,
            name: None,
        }
    }
}
