//! Launch data of a command as bytes, for a command that another daemon may start.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use abide_core::SessionName;
use abide_core::held::HeldCommand;
use abide_output::secret_fingerprints::SecretFingerprints;
use abide_session::frame::{InheritedLimits, ResourceLimit};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::handle::{LaunchOptions, Stdin};
use crate::sandbox::SandboxChoice;
use abide_session::sandbox::Plan;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    argv: Option<Vec<String>>,
    cwd: String,
    env: Vec<(String, String)>,
    stdin: EncodedStdin,
    pty: Option<(u16, u16)>,
    umask: Option<u32>,
    limits: Vec<(u32, u64, u64)>,
    secrets: String,
    sandbox: EncodedSandbox,
    name: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum EncodedStdin {
    None,
    Bytes(String),
    Open,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum EncodedSandbox {
    Off,
    Plan(String),
    Impossible(String),
}

fn encode(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}

fn os(text: &str) -> Option<OsString> {
    decode(text).map(OsString::from_vec)
}

impl LaunchOptions {
    /// Launch data as bytes. Fingerprints of secrets are salted, so two launches with equal secrets have different bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let word = |word: &OsString| encode(word.as_bytes());
        let inherited = self.inherited_limits.as_ref();
        let limits = inherited.map(|inherited| inherited.limits.as_slice());
        let encoded = Encoded {
            argv: self
                .argv
                .as_ref()
                .map(|argv| argv.iter().map(word).collect()),
            cwd: encode(self.cwd.as_os_str().as_bytes()),
            env: self
                .env
                .iter()
                .map(|(name, value)| (word(name), word(value)))
                .collect(),
            stdin: match &self.stdin {
                Stdin::None => EncodedStdin::None,
                Stdin::Bytes(bytes) => EncodedStdin::Bytes(encode(bytes)),
                Stdin::Open => EncodedStdin::Open,
            },
            pty: self.pty,
            umask: inherited.map(|inherited| inherited.umask),
            limits: (limits.unwrap_or_default().iter())
                .map(|limit| (limit.resource, limit.soft, limit.hard))
                .collect(),
            secrets: encode(&self.secrets.to_bytes()),
            sandbox: match &self.sandbox {
                SandboxChoice::Off => EncodedSandbox::Off,
                SandboxChoice::Plan(plan) => EncodedSandbox::Plan(encode(&plan.to_bytes())),
                SandboxChoice::Impossible(why) => EncodedSandbox::Impossible(why.clone()),
            },
            name: self.name.as_ref().map(|name| name.as_str().to_owned()),
        };
        serde_json::to_vec(&encoded).unwrap_or_default()
    }

    /// Fingerprints of the secrets of a command that is held. None if its bytes are damaged.
    pub fn secrets_of_held(held: &HeldCommand) -> Arc<SecretFingerprints> {
        let launch = LaunchOptions::from_bytes(&held.approval.launch);
        launch.map_or_else(Arc::default, |launch| launch.secrets)
    }

    /// Launch data from bytes. `None`: they are damaged, or another version wrote them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let encoded: Encoded = serde_json::from_slice(bytes).ok()?;
        let limits = encoded.limits.into_iter();
        let limits = limits.map(|(resource, soft, hard)| ResourceLimit {
            resource,
            soft,
            hard,
        });
        let limits: Vec<ResourceLimit> = limits.collect();
        let argv = encoded
            .argv
            .map(|argv| argv.iter().map(|word| os(word)).collect());
        let argv: Option<Option<Vec<OsString>>> = argv;
        let env = encoded.env.iter();
        let env: Option<Vec<_>> = env
            .map(|(name, value)| Some((os(name)?, os(value)?)))
            .collect();
        Some(LaunchOptions {
            argv: match argv {
                Some(words) => Some(words?),
                None => None,
            },
            cwd: os(&encoded.cwd)?.into(),
            env: env?,
            stdin: match encoded.stdin {
                EncodedStdin::None => Stdin::None,
                EncodedStdin::Bytes(text) => Stdin::Bytes(decode(&text)?),
                EncodedStdin::Open => Stdin::Open,
            },
            pty: encoded.pty,
            inherited_limits: encoded.umask.map(|umask| InheritedLimits { umask, limits }),
            secrets: Arc::new(SecretFingerprints::from_bytes(&decode(&encoded.secrets)?)),
            sandbox: match encoded.sandbox {
                EncodedSandbox::Off => SandboxChoice::Off,
                EncodedSandbox::Plan(text) => {
                    SandboxChoice::Plan(Box::new(Plan::from_bytes(&decode(&text)?)?))
                }
                EncodedSandbox::Impossible(why) => SandboxChoice::Impossible(why),
            },
            // Only an approved command is started from bytes.
            beyond_settings: None,
            name: encoded.name.and_then(|name| SessionName::parse(&name).ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_core::SandboxedBy;
    use abide_session::sandbox::{Folder, Mode, Network};

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
                mode: Mode::ReadOnly,
                network: Network::Off,
                at_least: SandboxedBy::Namespaces,
                workspace: Folder {
                    path: "/src".into(),
                    device: 1,
                    inode: 2,
                },
                home: "/home/me".into(),
                layers: "/state/layers".into(),
                write: vec!["/cache".into()],
                hide: vec!["/home/me/.ssh".into()],
                own: vec!["/state".into()],
                layer_bytes: Some(1 << 30),
            })),
            beyond_settings: None,
            name: SessionName::parse("build").ok(),
        };
        let back = LaunchOptions::from_bytes(&launch.to_bytes()).expect("launch data");
        assert_eq!(format!("{back:?}"), format!("{launch:?}"));
        assert!(LaunchOptions::from_bytes(b"{}").is_none());
    }
}
