//! Sandbox of one command as data, decided by the daemon and sent to the keeper.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use abide_core::SandboxedBy;

use crate::{wire_enum, wire_struct};

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
    /// Ports that other commands of the agent have published, which programs inside can connect to on their own loopback.
    pub agent_ports: Vec<u16>,
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
    /// Plan that permits nothing but to read, without layers.
    pub fn read_only(workspace: Folder) -> Self {
        Plan {
            at_least: SandboxedBy::Namespaces,
            mode: Mode::ReadOnly,
            network: Network::Off,
            workspace,
            home: "/nonexistent".into(),
            layers: "/nonexistent".into(),
            write: Vec::new(),
            hide: Vec::new(),
            own: Vec::new(),
            layer_bytes: None,
        }
    }

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
}

wire_enum!(Mode {
    0 => ReadOnly,
    1 => WorkspaceWrite,
});

wire_enum!(Network {
    0 => Off,
    1 => On,
    2 => Allowlist(gate),
});

wire_struct!(GatePlan {
    ports,
    host_ports,
    agent_ports,
    config,
});

wire_struct!(Folder {
    path,
    device,
    inode,
});

wire_struct!(Plan {
    at_least,
    mode,
    network,
    workspace,
    home,
    layers,
    write,
    hide,
    own,
    layer_bytes,
});
