//! Launch data of a held command as bytes, which another daemon may read to start the command.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use abide_core::SessionName;
use abide_core::held::HeldCommand;
use abide_output::secret_fingerprints::SecretFingerprints;
use abide_session::codec::{Decoder, Encoder, Malformed};
use abide_session::frame::InheritedLimits;
use abide_session::sandbox::Plan;

use crate::handle::{LaunchOptions, Stdin};
use crate::sandbox::SandboxChoice;

/// Version of the encoding: its first byte.
const VERSION: u8 = 2;

impl LaunchOptions {
    /// Launch data as bytes. Fingerprints of secrets are salted, so two launches with equal secrets have different bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let mut to = Encoder(&mut bytes);
        to.flag(self.argv.is_some());
        if let Some(argv) = &self.argv {
            to.u32(argv.len() as u32);
            for word in argv {
                to.bytes(word.as_bytes());
            }
        }
        to.bytes(self.cwd.as_os_str().as_bytes());
        to.u32(self.env.len() as u32);
        for (name, value) in &self.env {
            to.bytes(name.as_bytes()).bytes(value.as_bytes());
        }
        self.stdin.encode(&mut to);
        to.flag(self.pty.is_some());
        if let Some((cols, rows)) = self.pty {
            to.u32(cols.into()).u32(rows.into());
        }
        to.bytes(&self.secrets.to_bytes());
        match &self.sandbox {
            SandboxChoice::Off => to.u8(0),
            SandboxChoice::Plan(plan) => to.u8(1).bytes(&plan.to_bytes()),
            SandboxChoice::Impossible(why) => to.u8(2).bytes(why.as_bytes()),
        };
        to.maybe_text(self.name.as_ref().map(SessionName::as_str));
        InheritedLimits::encode(self.inherited_limits.as_ref(), &mut to);
        bytes
    }

    /// Fingerprints of the secrets of a command that is held. None if its bytes are damaged.
    pub fn secrets_of_held(held: &HeldCommand) -> Arc<SecretFingerprints> {
        let launch = LaunchOptions::from_bytes(&held.approval.launch);
        launch.map_or_else(Arc::default, |launch| launch.secrets)
    }

    /// Launch data from bytes. `None`: they are damaged, or another version wrote them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = bytes.split_first()? else {
            return None;
        };
        let mut from = Decoder(rest);
        let launch = decode(&mut from).ok()?;
        from.0.is_empty().then_some(launch)
    }
}

fn decode(from: &mut Decoder<'_>) -> Result<LaunchOptions, Malformed> {
    Ok(LaunchOptions {
        argv: match from.flag()? {
            true => Some(from.list(os)?),
            false => None,
        },
        cwd: os(from)?.into(),
        env: from.list(|from| Ok((os(from)?, os(from)?)))?,
        stdin: Stdin::decode(from)?,
        pty: match from.flag()? {
            true => Some((from.u16()?, from.u16()?)),
            false => None,
        },
        secrets: Arc::new(SecretFingerprints::from_bytes(from.bytes()?)),
        sandbox: match from.u8()? {
            0 => SandboxChoice::Off,
            1 => {
                let plan = Plan::from_bytes(from.bytes()?).ok_or(Malformed)?;
                SandboxChoice::Plan(Box::new(plan))
            }
            2 => SandboxChoice::Impossible(from.text()?),
            _ => return Err(Malformed),
        },
        name: (from.maybe_text()?).and_then(|name| SessionName::parse(&name).ok()),
        inherited_limits: InheritedLimits::decode(from)?,
        // Only an approved command is started from bytes.
        beyond_settings: None,
    })
}

fn os(from: &mut Decoder<'_>) -> Result<OsString, Malformed> {
    Ok(OsString::from_vec(from.bytes()?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_core::SandboxedBy;
    use abide_session::frame::ResourceLimit;
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
        let bytes = launch.to_bytes();
        let back = LaunchOptions::from_bytes(&bytes).expect("launch data");
        assert_eq!(format!("{back:?}"), format!("{launch:?}"));
        assert!(LaunchOptions::from_bytes(&[&bytes[..], b"x"].concat()).is_none());
        assert!(LaunchOptions::from_bytes(&bytes[..bytes.len() - 1]).is_none());
        assert!(LaunchOptions::from_bytes(b"{}").is_none());
    }
}
