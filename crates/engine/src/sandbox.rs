//! Choice of the sandbox of a command: from the settings of its agent and from what the call asks for. A call can ask for
//! less than the settings allow, never for more.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use abide_session::sandbox::{Folder, Mode, Network, OWN_LAYERS, Plan};

use crate::config::{Config, NetworkMode, Paths, SandboxMode};

/// Sandbox of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxChoice {
    /// The command has none.
    Off,
    /// This one.
    Plan(Box<Plan>),
    /// The settings want one that cannot be made: nothing may run. The sentence says why.
    Impossible(String),
}

/// Wishes of a call about its sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxWish {
    /// Permission to write.
    pub mode: Option<SandboxMode>,
    /// Permission to connect.
    pub network: Option<NetworkMode>,
}

/// Caller whose wish is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WishOf {
    /// An agent, which is bound by the settings.
    Agent,
    /// A person, who may choose freely and has no sandbox by default.
    Person,
}

/// Wish for more than the settings allow, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TooMuch(pub String);

/// Facts about a command on which its sandbox depends.
pub struct SandboxSubject<'a> {
    /// Settings of the daemon.
    pub config: &'a Config,
    /// Paths of the daemon.
    pub paths: &'a Paths,
    /// Agent of the command.
    pub agent: &'a str,
    /// Root folder of the agent.
    pub root: &'a Path,
}

impl SandboxSubject<'_> {
    /// Chooses the sandbox of a command.
    pub fn choose(&self, of: WishOf, wish: SandboxWish) -> Result<SandboxChoice, TooMuch> {
        let home = crate::config::home();
        let settings = self.config.sandbox.of(self.agent, self.root, &home);
        let (mode, network) = match of {
            WishOf::Agent => (
                less(settings.mode, wish.mode)?,
                less_network(settings.network, wish.network, settings.mode)?,
            ),
            WishOf::Person => (
                wish.mode.unwrap_or(SandboxMode::Off),
                wish.network.unwrap_or(settings.network),
            ),
        };
        let mode = match mode {
            SandboxMode::Off => return Ok(SandboxChoice::Off),
            SandboxMode::ReadOnly => Mode::ReadOnly,
            SandboxMode::WorkspaceWrite => Mode::WorkspaceWrite,
        };
        let impossible = |why: String| {
            Ok(SandboxChoice::Impossible(format!(
                "the sandbox `{}` cannot be enforced here: {why}. Nothing was run.",
                mode.as_str()
            )))
        };
        let network = match network {
            NetworkMode::Off => Network::Off,
            NetworkMode::On => Network::On,
            NetworkMode::Allowlist => {
                return impossible(
                    "`sandbox.network = \"allowlist\"` is not available in this version; set it to \"on\" or \"off\""
                        .into(),
                );
            }
        };
        let own = self.own_folders();
        let workspace = match workspace(self.root, &home, &own) {
            Ok(workspace) => workspace,
            Err(why) => return impossible(why),
        };
        if let Some(path) = settings.write.iter().find(|path| touches_own(path, &own)) {
            let shown = path.display();
            return impossible(format!(
                "`sandbox.write` names '{shown}', which belongs to abide"
            ));
        }
        Ok(SandboxChoice::Plan(Box::new(Plan {
            at_least: settings.at_least.into(),
            mode,
            network,
            workspace,
            home,
            layers: self
                .paths
                .state
                .join(OWN_LAYERS)
                .join(file_name(self.agent)),
            write: settings.write,
            hide: settings.hide,
            own,
        })))
    }

    /// Folders of abide itself.
    fn own_folders(&self) -> Vec<PathBuf> {
        let paths = self.paths;
        let config = paths.config.parent().unwrap_or(&paths.config);
        let mut all = vec![
            paths.state.clone(),
            paths.runtime.clone(),
            config.to_owned(),
        ];
        all.sort();
        all.dedup_by(|inner, outer| inner.starts_with(outer));
        all
    }
}

/// The lesser of what the settings allow and what an agent asks for.
fn less(allowed: SandboxMode, asked: Option<SandboxMode>) -> Result<SandboxMode, TooMuch> {
    match asked {
        Some(asked) if asked > allowed => Err(too_much("sandbox", asked.as_str(), allowed)),
        Some(asked) => Ok(asked),
        None => Ok(allowed),
    }
}

fn less_network(
    allowed: NetworkMode,
    asked: Option<NetworkMode>,
    mode: SandboxMode,
) -> Result<NetworkMode, TooMuch> {
    match asked {
        // Without a sandbox nothing limits the network.
        Some(asked) if asked > allowed && mode != SandboxMode::Off => {
            Err(too_much("network", "on", mode))
        }
        Some(asked) => Ok(asked),
        None => Ok(allowed),
    }
}

fn too_much(field: &str, asked: &str, allowed: SandboxMode) -> TooMuch {
    TooMuch(format!(
        "`{field}` asks for more than this agent's sandbox, `{}`, permits; got \"{asked}\". To ask a person for more, \
         send `needs` and `justification`.",
        allowed.as_str()
    ))
}

/// Workspace of an agent: its root folder, unless too much would become writable.
fn workspace(root: &Path, home: &Path, own: &[PathBuf]) -> Result<Folder, String> {
    let shown = root.display();
    let folder = Folder::resolve(root)
        .map_err(|fault| format!("the workspace '{shown}' cannot be opened: {fault}"))?;
    let path = &folder.path;
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    if home.starts_with(path) {
        return Err(format!(
            "the workspace '{}' holds the whole home folder; start abide in a project folder",
            path.display()
        ));
    }
    let system = [
        "/tmp", "/var/tmp", "/etc", "/usr", "/var", "/proc", "/dev", "/run", "/sys",
    ];
    if path.parent().is_none() || system.iter().any(|whole| path == Path::new(whole)) {
        return Err(format!(
            "the workspace '{}' belongs to the system; start abide in a project folder",
            path.display()
        ));
    }
    if let Some(held) = own.iter().find(|own| touches(path, own)) {
        return Err(format!(
            "the workspace '{}' holds a folder of abide itself, '{}'; start abide in another folder",
            path.display(),
            held.display()
        ));
    }
    Ok(folder)
}

/// True if one path is inside the other.
fn touches(path: &Path, own: &Path) -> bool {
    let own = own.canonicalize().unwrap_or_else(|_| own.to_owned());
    path.starts_with(&own) || own.starts_with(path)
}

fn touches_own(path: &Path, own: &[PathBuf]) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    own.iter().any(|own| touches(&path, own))
}

/// Name of an agent as a file name: different for different agents.
fn file_name(agent: &str) -> String {
    let mut name = String::from("agent-");
    for byte in agent.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' => name.push(char::from(byte)),
            _ => name.push_str(&format!("-{byte:02x}")),
        }
    }
    match name.len() {
        // A file name has at most 255 bytes.
        ..=200 => name,
        _ => {
            let digest = Sha256::digest(agent);
            let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("agent-{}", hex.concat())
        }
    }
}

/// Variables that lead out of a sandbox, or that only make sense outside. A sandboxed command does not inherit them.
const LEADING_OUT: [&str; 17] = [
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "DISPLAY",
    "XAUTHORITY",
    "WAYLAND_DISPLAY",
    "WAYLAND_SOCKET",
    "PULSE_SERVER",
    "BASH_ENV",
    "ENV",
    "TMUX",
    "STY",
    "TMPDIR",
];

/// Removes inherited variables that hold secrets or lead out of the sandbox.
pub fn confine_environment(env: &mut Vec<(OsString, OsString)>) {
    env.retain(|(name, _)| {
        let Some(name) = name.to_str() else {
            return false;
        };
        !LEADING_OUT.contains(&name)
            && !name.starts_with("LD_")
            && !name.starts_with("ABIDE_")
            && !abide_output::mask::is_secret_name(name)
    });
    env.push(("ABIDE_SANDBOX".into(), "1".into()));
    env.push(("TMPDIR".into(), "/tmp".into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_can_ask_for_less_and_not_for_more() {
        use SandboxMode::{Off, ReadOnly, WorkspaceWrite};
        assert_eq!(less(WorkspaceWrite, None).unwrap(), WorkspaceWrite);
        assert_eq!(less(WorkspaceWrite, Some(ReadOnly)).unwrap(), ReadOnly);
        assert_eq!(less(Off, Some(WorkspaceWrite)).unwrap(), WorkspaceWrite);
        let refused = less(ReadOnly, Some(WorkspaceWrite)).unwrap_err();
        assert!(refused.0.contains("needs"), "{refused}");
        use NetworkMode::{Allowlist, On};
        assert!(less_network(Allowlist, Some(On), ReadOnly).is_err());
        assert_eq!(
            less_network(On, Some(NetworkMode::Off), ReadOnly).unwrap(),
            NetworkMode::Off
        );
    }

    #[test]
    fn workspace_that_holds_too_much_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (home, own, work) = (
            base.join("home"),
            base.join("home/state"),
            base.join("home/work"),
        );
        for folder in [&own, &work] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let own = [own];
        assert_eq!(workspace(&work, &home, &own).unwrap().path, work);
        for root in [
            Path::new("/"),
            &base,
            &home,
            &own[0],
            Path::new("/tmp"),
            &base.join("none"),
        ] {
            assert!(workspace(root, &home, &own).is_err(), "{}", root.display());
        }
    }

    #[test]
    fn agents_have_different_file_names() {
        assert_eq!(file_name("codex"), "agent-codex");
        assert_ne!(file_name("a/b"), file_name("a-b"));
        assert!(!file_name("../x").contains('/'));
    }
}
