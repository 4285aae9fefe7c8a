//! Launch data of a held command as bytes, which another daemon may read to judge the command again and to start it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use abide_core::SessionName;
use abide_core::held::HeldCommand;
use abide_output::secret_fingerprints::SecretFingerprints;
use abide_session::codec::{Malformed, Wire};
use abide_session::wire_enum;

use crate::config::{NetworkMode, SandboxMode};
use crate::handle::LaunchOptions;
use crate::sandbox::SandboxChoice;

/// Version of the encoding: its first byte.
const VERSION: u8 = 4;

/// Launch data of a held command, and the facts with which it is judged again when a person says yes.
#[derive(Clone, Debug)]
pub struct HeldLaunch {
    pub options: LaunchOptions,
    /// Directory that the agent works in.
    pub workspace: PathBuf,
    /// Variables that the call has given.
    pub given: Vec<(OsString, OsString)>,
    /// Sandbox and network that the settings permitted when the question was asked.
    pub settings: (SandboxMode, NetworkMode),
}

impl HeldLaunch {
    /// Launch data as bytes. Fingerprints of secrets are salted, so two launches with equal secrets have different bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        self.options.put(&mut bytes);
        self.workspace.put(&mut bytes);
        self.given.put(&mut bytes);
        let (mode, network) = self.settings;
        bytes.extend([mode as u8, network as u8]);
        bytes
    }

    /// Fingerprints of the secrets of a command that is held. None if its bytes are damaged.
    pub fn secrets_of(held: &HeldCommand) -> Arc<SecretFingerprints> {
        let launch = HeldLaunch::from_bytes(&held.approval.launch);
        launch.map_or_else(Arc::default, |launch| launch.options.secrets)
    }

    /// Launch data from bytes. `None`: they are damaged, or another version wrote them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, mut rest) = bytes.split_first()? else {
            return None;
        };
        let launch = HeldLaunch::take(&mut rest).ok()?;
        rest.is_empty().then_some(launch)
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(HeldLaunch {
            options: Wire::take(from)?,
            workspace: Wire::take(from)?,
            given: Wire::take(from)?,
            settings: (
                take_one_of(SandboxMode::ALL, from)?,
                take_one_of(NetworkMode::ALL, from)?,
            ),
        })
    }
}

impl Wire for LaunchOptions {
    fn put(&self, to: &mut Vec<u8>) {
        self.argv.put(to);
        self.cwd.put(to);
        self.env.put(to);
        self.stdin.put(to);
        self.pty.put(to);
        self.secrets.to_bytes().put(to);
        self.sandbox.put(to);
        let name = self.name.as_ref();
        name.map(|name| name.as_str().to_owned()).put(to);
        self.inherited_limits.put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(LaunchOptions {
            argv: Wire::take(from)?,
            cwd: Wire::take(from)?,
            env: Wire::take(from)?,
            stdin: Wire::take(from)?,
            pty: Wire::take(from)?,
            secrets: Arc::new(SecretFingerprints::from_bytes(&Vec::take(from)?)),
            sandbox: Wire::take(from)?,
            name: <Option<String> as Wire>::take(from)?
                .and_then(|name| SessionName::parse(&name).ok()),
            inherited_limits: Wire::take(from)?,
            // Only an approved command is started from bytes.
            beyond_settings: None,
        })
    }
}

/// Takes a value that is stored as its place in the list of all.
fn take_one_of<T: Copy>(all: &[T], from: &mut &[u8]) -> Result<T, Malformed> {
    let place = u8::take(from)?;
    all.get(usize::from(place)).copied().ok_or(Malformed)
}

wire_enum!(SandboxChoice {
    0 => Off,
    1 => Plan(plan),
    2 => Impossible(why),
});

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use abide_session::frame::{InheritedLimits, ResourceLimit, Stdin};
    use abide_session::sandbox::{Folder, Plan};

    #[test]
    fn launch_data_survives_the_bytes() {
        let launch = LaunchOptions {
            argv: Some(vec!["a".into(), OsString::from_vec(vec![0xff, b'b'])]),
            cwd: "/tmp".into(),
            env: vec![("NAME".into(), OsString::from_vec(vec![0xfe]))],
            stdin: Stdin::Bytes(vec![0, 1, 2]),
            pty: Some((80, 24)),
            inherited_limits: Some(InheritedLimits {
                umask: 0o22,
                limits: vec![ResourceLimit {
                    resource: 7,
                    soft: 1,
                    hard: u64::MAX,
                }],
            }),
            secrets: Arc::default(),
            sandbox: SandboxChoice::Plan(Box::new(Plan {
                hide: vec!["/home/me/.ssh".into()],
                ..Plan::read_only(Folder {
                    path: "/src".into(),
                    device: 1,
                    inode: 2,
                })
            })),
            beyond_settings: None,
            name: SessionName::parse("build").ok(),
        };
        let launch = HeldLaunch {
            options: launch,
            workspace: "/work".into(),
            given: vec![("NAME".into(), OsString::from_vec(vec![0xfe]))],
            settings: (SandboxMode::WorkspaceWrite, NetworkMode::Allowlist),
        };
        let bytes = launch.to_bytes();
        let back = HeldLaunch::from_bytes(&bytes).expect("launch data");
        assert_eq!(format!("{back:?}"), format!("{launch:?}"));
        assert!(HeldLaunch::from_bytes(&[&bytes[..], b"x"].concat()).is_none());
        assert!(HeldLaunch::from_bytes(&bytes[..bytes.len() - 1]).is_none());
        assert!(HeldLaunch::from_bytes(b"{}").is_none());
    }
}
