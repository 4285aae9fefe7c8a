//! Settings of sandboxes: `[sandbox]` and `[[sandbox.for]]`.

use std::path::{Path, PathBuf};

pub use abide_api::{NetworkMode, SandboxMode};
use abide_core::policy::matches;
use abide_core::{SandboxedBy, settings_name};
use abide_gate::allowlist::Allowlist;
use serde::{Deserialize, Serialize};

use super::InvalidSetting;

/// `[sandbox]`: settings for all agents, and changes for some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxConfig {
    /// Permission to write. Default: `off`.
    pub mode: Option<SandboxMode>,
    /// Permission to connect. Default: `off`.
    pub network: Option<NetworkMode>,
    /// Names and ports of the allowlist.
    pub allow: Vec<String>,
    /// Names of the allowlist that may have private addresses.
    pub private: Vec<String>,
    /// Ports of this machine's loopback that a sandbox with an allowlist may reach.
    pub host_ports: Vec<u16>,
    /// Further files and folders that are writable.
    pub write: Vec<PathBuf>,
    /// Further files and folders that look empty.
    pub hide: Vec<PathBuf>,
    /// Weakest mechanism that is accepted. Default: `bubblewrap`.
    pub at_least: AtLeast,
    /// Bytes that the layers of one agent may take; beyond, its commands are refused. Default: no limit.
    pub layer_bytes: Option<u64>,
    /// Changes for some agents and folders, applied in order.
    pub r#for: Vec<SandboxFor>,
}

/// `[[sandbox.for]]`: settings that replace those of `[sandbox]` for some agents and workspaces. Lists are added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxFor {
    /// Agents, with `*` for any characters.
    pub agent: Option<String>,
    /// Workspaces, with `*` for any characters.
    pub folder: Option<String>,
    pub mode: Option<SandboxMode>,
    pub network: Option<NetworkMode>,
    pub allow: Vec<String>,
    pub private: Vec<String>,
    pub host_ports: Vec<u16>,
    pub write: Vec<PathBuf>,
    pub hide: Vec<PathBuf>,
    pub at_least: Option<AtLeast>,
    pub layer_bytes: Option<u64>,
}

/// Weakest mechanism that is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AtLeast {
    /// Namespaces, mounts, Landlock and a system call filter.
    Namespaces,
    /// The same, with the help of the program `bwrap` of the system where it may make namespaces and abide may not.
    #[default]
    Bubblewrap,
    /// Landlock and a system call filter.
    Landlock,
}

impl AtLeast {
    /// Setting that accepts this mechanism. `None`: it is no sandbox.
    pub const fn accepting(by: SandboxedBy) -> Option<Self> {
        match by {
            SandboxedBy::Namespaces => Some(AtLeast::Namespaces),
            SandboxedBy::Bubblewrap => Some(AtLeast::Bubblewrap),
            SandboxedBy::Landlock => Some(AtLeast::Landlock),
            SandboxedBy::Off => None,
        }
    }
}

impl From<AtLeast> for SandboxedBy {
    fn from(at_least: AtLeast) -> Self {
        match at_least {
            AtLeast::Namespaces => SandboxedBy::Namespaces,
            AtLeast::Bubblewrap => SandboxedBy::Bubblewrap,
            AtLeast::Landlock => SandboxedBy::Landlock,
        }
    }
}

impl SandboxConfig {
    /// Permission to write.
    pub fn mode(&self) -> SandboxMode {
        self.mode.unwrap_or_default()
    }

    /// Permission to connect.
    pub fn network(&self) -> NetworkMode {
        self.network.unwrap_or_default()
    }

    /// True if some agent has a sandbox.
    pub fn is_used(&self) -> bool {
        let modes = self.r#for.iter().filter_map(|part| part.mode);
        modes.chain(self.mode).any(|mode| mode != SandboxMode::Off)
    }

    /// True if some agent has an allowlist for its network.
    pub fn uses_allowlist(&self) -> bool {
        let networks = self.r#for.iter().filter_map(|part| part.network);
        networks
            .chain(self.network)
            .any(|network| network == NetworkMode::Allowlist)
    }

    /// True if the layers of some agent have a limit.
    pub fn limits_layers(&self) -> bool {
        let parts = self.r#for.iter().map(|part| part.layer_bytes);
        parts.chain([self.layer_bytes]).any(|limit| limit.is_some())
    }

    /// Settings of an agent in its workspace.
    pub fn of(&self, agent: &str, workspace: &Path, home: &Path) -> SandboxConfig {
        let mut all = SandboxConfig {
            r#for: Vec::new(),
            ..self.clone()
        };
        for part in self
            .r#for
            .iter()
            .filter(|part| part.fits(agent, workspace, home))
        {
            all.mode = part.mode.or(all.mode);
            all.network = part.network.or(all.network);
            all.at_least = part.at_least.unwrap_or(all.at_least);
            all.layer_bytes = part.layer_bytes.or(all.layer_bytes);
            all.allow.extend_from_slice(&part.allow);
            all.private.extend_from_slice(&part.private);
            all.host_ports.extend_from_slice(&part.host_ports);
            all.write.extend_from_slice(&part.write);
            all.hide.extend_from_slice(&part.hide);
        }
        for path in all.write.iter_mut().chain(&mut all.hide) {
            *path = in_home(path, home);
        }
        all
    }

    pub(super) fn check(&self) -> Result<(), InvalidSetting> {
        let has_mode = self.mode.is_some() || self.r#for.iter().any(|part| part.mode.is_some());
        let mut parts = self.r#for.iter();
        let has_network = self.network.is_some() || parts.any(|part| part.network.is_some());
        if has_network && !has_mode {
            // Such a file would leave commands without the limits that it seems to set.
            return Err("`network` in `[sandbox]` limits no command of an agent without `mode`, which is \"off\" by default: \
                        add `mode = \"workspace-write\"`, or `mode = \"off\"` if it is meant for `abide run --sandbox` only"
                .into());
        }
        let parts = self.r#for.iter();
        let lists = [(&self.write, &self.hide)];
        for (write, hide) in lists
            .into_iter()
            .chain(parts.map(|part| (&part.write, &part.hide)))
        {
            for path in write.iter().chain(hide) {
                let shown = path.display().to_string();
                if !path.is_absolute() && !path.starts_with("~") {
                    return Err(InvalidSetting(format!(
                        "`sandbox.write` and `sandbox.hide` need paths that begin with / or ~/; got {shown:?}"
                    )));
                }
                if shown.contains('*') {
                    return Err(InvalidSetting(format!(
                        "`sandbox.write` and `sandbox.hide` take no patterns; name the folder instead of {shown:?}"
                    )));
                }
            }
        }
        let lists = (self.r#for.iter()).map(|part| (&part.allow, &part.host_ports));
        for (allow, host_ports) in lists.chain([(&self.allow, &self.host_ports)]) {
            Allowlist::parse(allow)
                .map_err(|fault| InvalidSetting(format!("`sandbox.allow`: {fault}")))?;
            if let Some(port) = host_ports.iter().find(|port| matches!(port, 0 | 53)) {
                return Err(InvalidSetting(format!(
                    "`sandbox.host_ports` cannot have the port {port}"
                )));
            }
        }
        let lists = self.r#for.iter().map(|part| &part.private);
        for private in lists.chain([&self.private]) {
            Allowlist::parse(private)
                .map_err(|fault| InvalidSetting(format!("`sandbox.private`: {fault}")))?;
        }
        for part in &self.r#for {
            if part.agent.is_none() && part.folder.is_none() {
                return Err("`[[sandbox.for]]` needs `agent` or `folder`".into());
            }
            if part.agent.as_deref() == Some("") {
                return Err("`agent` of `[[sandbox.for]]` needs a name".into());
            }
            if let Some(folder) = &part.folder
                && !folder.starts_with(['/', '*'])
                && !Path::new(folder).starts_with("~")
            {
                return Err(InvalidSetting(format!(
                    "`folder` of `[[sandbox.for]]` needs a path that begins with /, ~/ or *; got {folder:?}"
                )));
            }
        }
        Ok(())
    }
}

impl SandboxFor {
    fn fits(&self, agent: &str, workspace: &Path, home: &Path) -> bool {
        let names = [agent, settings_name(agent)];
        let fits_name = |glob: &String| names.iter().any(|name| matches(glob, name));
        let agent_fits = self.agent.as_ref().is_none_or(fits_name);
        let folder_fits = self.folder.as_ref().is_none_or(|glob| {
            let glob = in_home(Path::new(glob), home);
            matches(&glob.to_string_lossy(), &workspace.to_string_lossy())
        });
        agent_fits && folder_fits
    }
}

/// Path with `~` replaced by the home folder.
fn in_home(path: &Path, home: &Path) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(rest) => home.join(rest),
        Err(_) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SandboxConfig, String> {
        let config: SandboxConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        config.check().map_err(|e| e.to_string())?;
        Ok(config)
    }

    #[test]
    fn later_parts_replace_settings_for_the_agents_and_folders_they_name() {
        let text = r#"
            mode = "workspace-write"
            network = "on"
            write = ["~/cache"]
            [[for]]
            agent = "review*"
            mode = "read-only"
            hide = ["/secret"]
            [[for]]
            folder = "~/src/*"
            network = "off"
        "#;
        let config = read(text).unwrap();
        let home = Path::new("/home/u");
        let plain = config.of("codex", Path::new("/work"), home);
        assert_eq!(
            (plain.mode(), plain.network()),
            (SandboxMode::WorkspaceWrite, NetworkMode::On)
        );
        assert_eq!(plain.write, [PathBuf::from("/home/u/cache")]);
        let both = config.of("reviewer", Path::new("/home/u/src/a"), home);
        assert_eq!(
            (both.mode(), both.network()),
            (SandboxMode::ReadOnly, NetworkMode::Off)
        );
        assert_eq!(both.hide, [PathBuf::from("/secret")]);
    }

    #[test]
    fn settings_that_cannot_be_meant_are_refused() {
        for (text, part) in [
            ("mode = \"none\"", "unknown variant"),
            ("modes = \"off\"", "unknown field"),
            ("write = [\"cache\"]", "begin with / or ~/"),
            ("hide = [\"~/*.key\"]", "take no patterns"),
            ("[[for]]\nfolder = \"src/*\"", "begins with /, ~/ or *"),
            ("[[for]]\nagent = \"\"", "needs a name"),
            ("[[for]]\nmode = \"off\"", "needs `agent` or `folder`"),
            ("allow = [\"*\"]", "`sandbox.allow`: allow entry \"*\""),
            ("allow = [\"https://a.org\"]", "without a scheme"),
            ("host_ports = [53]", "cannot have the port 53"),
            (
                "network = \"off\"",
                "limits no command of an agent without `mode`",
            ),
            ("[[for]]\nagent = \"a\"\nnetwork = \"on\"", "without `mode`"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
        for text in [
            "mode = \"off\"\nnetwork = \"allowlist\"",
            "network = \"off\"\n[[for]]\nagent = \"a\"\nmode = \"read-only\"",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
        assert_eq!(read("").unwrap().mode(), SandboxMode::Off);
    }
}
