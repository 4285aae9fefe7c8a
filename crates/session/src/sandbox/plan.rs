//! Sandbox of one command as data, decided by the daemon and sent to the keeper.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use abide_core::SandboxedBy;

use crate::codec::{Decoder, Encoder, Malformed};

/// End of the sentence about a sandbox that cannot be made: the way out for an agent.
pub const ASK_OUTSIDE: &str = "An agent can ask a person to run it outside, with needs={\"sandbox\":\"off\"} and a justification.";

/// Sandbox of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Weakest mechanism that is accepted.
    pub at_least: SandboxedBy,
    /// Permission to write.
    pub mode: Mode,
    /// Permission to connect.
    pub network: Network,
    /// The only folder of the user that can be writable.
    pub workspace: Folder,
    /// Home folder of the user, which is layered.
    pub home: PathBuf,
    /// Folder for the layers of the agent, in the state of abide.
    pub layers: PathBuf,
    /// Further files and folders that are writable.
    pub write: Vec<PathBuf>,
    /// Files and folders that look empty, besides those that are hidden in every sandbox.
    pub hide: Vec<PathBuf>,
    /// Folders of abide itself, which look empty.
    pub own: Vec<PathBuf>,
    /// Bytes that the layers of the agent may take.
    pub layer_bytes: Option<u64>,
}

/// Permission to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Nothing of the user's can be written.
    ReadOnly,
    /// The workspace can be written, but for protected paths.
    WorkspaceWrite,
}

/// Permission to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Only the loopback of the sandbox itself.
    Off,
    /// Names of an allowlist, through a gate.
    Allowlist(GatePlan),
    /// The network of the machine.
    On,
}

/// Network gate of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatePlan {
    /// Ports on which programs inside can connect to names.
    pub ports: Vec<u16>,
    /// Ports of the host's loopback that programs inside can connect to on their own loopback.
    pub host_ports: Vec<u16>,
    /// Configuration of the gate process, which the keeper passes on unread.
    pub config: Vec<u8>,
}

impl Network {
    /// Word for settings, arguments and sentences.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Network::Off => "off",
            Network::Allowlist(_) => "allowlist",
            Network::On => "on",
        }
    }

    /// Gate of a network with an allowlist.
    pub const fn gate(&self) -> Option<&GatePlan> {
        match self {
            Network::Allowlist(gate) => Some(gate),
            Network::Off | Network::On => None,
        }
    }

    fn encode<'e, 'b>(&self, to: &'e mut Encoder<'b>) -> &'e mut Encoder<'b> {
        match self {
            Network::Off => to.u8(0),
            Network::On => to.u8(1),
            Network::Allowlist(gate) => {
                to.u8(2);
                for ports in [&gate.ports, &gate.host_ports] {
                    to.u32(ports.len() as u32);
                    for port in ports {
                        to.u32(u32::from(*port));
                    }
                }
                to.bytes(&gate.config)
            }
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0 => Network::Off,
            1 => Network::On,
            2 => Network::Allowlist(GatePlan {
                ports: from.list(Decoder::u16)?,
                host_ports: from.list(Decoder::u16)?,
                config: from.bytes()?.to_vec(),
            }),
            _ => return Err(Malformed),
        })
    }
}

/// A folder whose identity was recorded when its path was resolved. A path that leads elsewhere later is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Absolute path without symbolic links.
    pub path: PathBuf,
    /// Device of the folder.
    pub device: u64,
    /// Inode of the folder.
    pub inode: u64,
}

impl Folder {
    /// Resolves a path to a folder.
    pub fn resolve(path: &Path) -> std::io::Result<Self> {
        let path = path.canonicalize()?;
        let found = path.metadata()?;
        if !found.is_dir() {
            return Err(std::io::ErrorKind::NotADirectory.into());
        }
        Ok(Folder {
            path,
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

impl Mode {
    /// Word for settings, arguments and sentences.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::ReadOnly => "read-only",
            Mode::WorkspaceWrite => "workspace-write",
        }
    }
}

impl Plan {
    /// True if something in the workspace can be written.
    pub fn writes_in_workspace(&self) -> bool {
        let root = &self.workspace.path;
        let touches = |named: &PathBuf| named.starts_with(root) || root.starts_with(named);
        self.mode == Mode::WorkspaceWrite || self.write.iter().any(touches)
    }

    /// True if a path of the workspace, relative to it, is or is below one that the plan names as writable. The workspace
    /// itself, or a folder around it, does not count: its protected paths stay protected.
    pub fn permits(&self, path: &Path) -> bool {
        let root = &self.workspace.path;
        let is_part = |named: &&PathBuf| named.starts_with(root) && *named != root;
        let path = root.join(path);
        (self.write.iter().filter(is_part)).any(|named| path.starts_with(named))
    }

    /// Plan as bytes, for a command that another daemon may start.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut Encoder(&mut bytes));
        bytes
    }

    /// Plan from bytes. `None`: they are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let plan = Plan::decode(&mut from).ok()?;
        from.0.is_empty().then_some(plan)
    }

    pub(crate) fn encode<'e, 'b>(&self, to: &'e mut Encoder<'b>) -> &'e mut Encoder<'b> {
        to.u8(self.at_least.code())
            .flag(self.mode == Mode::WorkspaceWrite);
        self.network.encode(to);
        encode_path(to, &self.workspace.path);
        to.u64(self.workspace.device).u64(self.workspace.inode);
        encode_path(to, &self.home);
        encode_path(to, &self.layers);
        for list in [&self.write, &self.hide, &self.own] {
            to.u32(list.len() as u32);
            for path in list {
                encode_path(to, path);
            }
        }
        to.maybe_u64(self.layer_bytes)
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Plan {
            at_least: SandboxedBy::from_code(from.u8()?).ok_or(Malformed)?,
            mode: match from.flag()? {
                true => Mode::WorkspaceWrite,
                false => Mode::ReadOnly,
            },
            network: Network::decode(from)?,
            workspace: Folder {
                path: decode_path(from)?,
                device: from.u64()?,
                inode: from.u64()?,
            },
            home: decode_path(from)?,
            layers: decode_path(from)?,
            write: from.list(decode_path)?,
            hide: from.list(decode_path)?,
            own: from.list(decode_path)?,
            layer_bytes: from.maybe_u64()?,
        })
    }
}

fn encode_path(to: &mut Encoder<'_>, path: &Path) {
    to.bytes(path.as_os_str().as_bytes());
}

fn decode_path(from: &mut Decoder<'_>) -> Result<PathBuf, Malformed> {
    Ok(OsString::from_vec(from.bytes()?.to_vec()).into())
}
