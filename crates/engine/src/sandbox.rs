//! Choice of the sandbox of a command: from the settings of its agent and from what the call asks for. A call can ask for
//! less than the settings allow, never for more.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use abide_core::{Agent, Conversation, settings_name};
use abide_session::sandbox::{ASK_OUTSIDE, Folder, Mode, Network, OWN_LAYERS, Plan, measured_size};

use crate::config::{self, Config, HttpListen, NetworkMode, Paths, SandboxConfig, SandboxMode};
use crate::gate_plan::{self, GateConfig, InvalidGate};
use crate::policy::PolicyStore;
use crate::secret;

/// Sandbox of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxChoice {
    /// The command has none.
    Off,
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

/// Reason why a sandbox that the settings want cannot be made.
#[derive(Debug, thiserror::Error)]
enum ImpossiblePlan {
    #[error(transparent)]
    Gate(#[from] InvalidGate),
    #[error(transparent)]
    Workspace(#[from] BadWorkspace),
    #[error("`sandbox.write` names '{}', which contains abide's own folder '{}', or is inside it", path.display(), own.display())]
    WritesOwn { path: PathBuf, own: PathBuf },
    #[error("what this agent wrote to home and temporary folders takes {size} bytes, more than `sandbox.layer_bytes`, {limit}; \
             a person removes it with `abide sandbox layers --remove {}`", agent.0)]
    FullLayers { size: u64, limit: u64, agent: Agent },
}

/// Facts about a command on which its sandbox depends.
pub struct SandboxSubject<'a> {
    pub config: &'a Config,
    pub paths: &'a Paths,
    /// Answers of people about names, which add to the allowlist.
    pub policy: &'a PolicyStore,
    pub agent: &'a Agent,
    pub conversation: Option<&'a Conversation>,
    /// Root folder of the agent.
    pub root: &'a Path,
    /// Environment of the caller, which may name proxies.
    pub env: &'a [(OsString, OsString)],
}

impl SandboxSubject<'_> {
    /// Chooses the sandbox of a command.
    pub fn choose(&self, of: WishOf, wish: SandboxWish) -> Result<SandboxChoice, TooMuch> {
        let home = crate::config::home();
        let settings = self.config.sandbox.of(&self.agent.0, self.root, &home);
        let (mode, network) = match of {
            WishOf::Agent => (
                less(settings.mode(), wish.mode)?,
                less_network(settings.network(), wish.network, settings.mode())?,
            ),
            WishOf::Person => (
                wish.mode.unwrap_or(SandboxMode::Off),
                wish.network.unwrap_or(settings.network()),
            ),
        };
        let mode = match mode {
            SandboxMode::Off if wish.network.is_some_and(|asked| asked != NetworkMode::On) => {
                return Err(TooMuch(
                    "`network` needs a sandbox, and this command has none: send `sandbox` too, such as \"workspace-write\"."
                        .into(),
                ));
            }
            SandboxMode::Off => return Ok(SandboxChoice::Off),
            SandboxMode::ReadOnly => Mode::ReadOnly,
            SandboxMode::WorkspaceWrite => Mode::WorkspaceWrite,
        };
        Ok(match self.plan(mode, network, settings, home) {
            Ok(plan) if of == WishOf::Agent => {
                let (conversation, at_least) = (self.conversation, plan.at_least);
                let policy = self.policy;
                let at_least = policy.least_accepted(at_least, self.agent, conversation, self.root);
                SandboxChoice::Plan(Box::new(Plan { at_least, ..plan }))
            }
            Ok(plan) => SandboxChoice::Plan(Box::new(plan)),
            Err(why) => SandboxChoice::Impossible(format!(
                "the sandbox `{}` cannot be enforced here: {why}. Nothing was run. {ASK_OUTSIDE}",
                mode.as_str()
            )),
        })
    }

    fn plan(
        &self,
        mode: Mode,
        network: NetworkMode,
        settings: SandboxConfig,
        home: PathBuf,
    ) -> Result<Plan, ImpossiblePlan> {
        let network = match network {
            NetworkMode::Off => Network::Off,
            NetworkMode::On => Network::On,
            NetworkMode::Allowlist => Network::Allowlist(gate_plan::make(&self.gate(&settings))?),
        };
        let own = self.own_folders();
        let workspace = workspace(self.root, &home, &own)?;
        if mode == Mode::WorkspaceWrite
            && let Some(why) = not_writable(&workspace.path)
        {
            return Err(why.into());
        }
        for path in &settings.write {
            if let Some(own) = touched_own(path, &own) {
                let (path, own) = (path.clone(), own.clone());
                return Err(ImpossiblePlan::WritesOwn { path, own });
            }
        }
        let layers = layers_of(self.paths, &self.agent.0);
        if let (Some(limit), Some(size)) = (settings.layer_bytes, measured_size(&layers))
            && size > limit
        {
            let agent = self.agent.clone();
            return Err(ImpossiblePlan::FullLayers { size, limit, agent });
        }
        let mut hide = settings.hide;
        hide.extend(self.secret_files(&workspace.path, &home));
        Ok(Plan {
            at_least: settings.at_least.into(),
            mode,
            network,
            workspace,
            home,
            layers,
            write: settings.write.into_iter().map(real).collect(),
            hide,
            own,
            layer_bytes: settings.layer_bytes,
        })
    }

    /// Configuration of the network gate: the allowlist of the settings, and the names that people have allowed.
    fn gate(&self, settings: &SandboxConfig) -> GateConfig {
        let mut allow = settings.allow.clone();
        allow.extend((self.policy).allowed_hosts(self.agent, self.conversation, self.root));
        GateConfig {
            allow,
            private: settings.private.clone(),
            ask: true,
            host_ports: settings.host_ports.clone(),
            ..self.bare_gate()
        }
    }

    /// Configuration of a network gate that allows nothing yet.
    pub fn bare_gate(&self) -> GateConfig {
        GateConfig {
            workspace: self.root.to_string_lossy().into_owned(),
            ..gate_plan::bare(self.own_ports(), self.env)
        }
    }

    /// Ports of the daemon, which a sandbox must not take over: the configured one, and the one at which the daemon listens
    /// or listened last. An open page sends its cookie there also while no daemon runs.
    pub fn own_ports(&self) -> Vec<u16> {
        let configured = match self.config.http {
            HttpListen::At(address) => Some(address),
            HttpListen::Off => None,
        };
        let ports = configured.into_iter().chain(self.paths.read_last_address());
        ports
            .map(|address| address.port())
            .filter(|port| *port != 0)
            .collect()
    }

    /// Files of secrets that variables of the environment name.
    fn secret_files(&self, workspace: &Path, home: &Path) -> Vec<PathBuf> {
        let values =
            (self.env.iter()).filter(|(name, _)| SECRET_FILES.iter().any(|known| name == known));
        let paths = values.flat_map(|(_, value)| std::env::split_paths(value));
        let paths = paths.filter(|path| !path.as_os_str().is_empty());
        let paths = paths.map(|path| self.root.join(path));
        // A folder around them would hide everything.
        let is_around = |path: &PathBuf| workspace.starts_with(path) || home.starts_with(path);
        paths.filter(|path| !is_around(path)).collect()
    }

    /// Folders of abide itself: of this daemon, and of the user's own installation, where another daemon may run.
    fn own_folders(&self) -> Vec<PathBuf> {
        let of_user = Paths::of_user().ok();
        let installations = of_user.iter().chain([self.paths]);
        let mut all: Vec<PathBuf> = installations
            .flat_map(|paths| {
                let config = paths.config.parent().unwrap_or(&paths.config);
                [&*paths.state, &*paths.runtime, config].map(Path::to_owned)
            })
            .collect();
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
            Err(too_much("network", asked.as_str(), mode))
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

/// Reason why a folder cannot be a workspace.
#[derive(Debug, thiserror::Error)]
pub enum BadWorkspace {
    #[error("the workspace '{}' cannot be opened: {fault}", path.display())]
    NotOpened {
        path: PathBuf,
        fault: std::io::Error,
    },
    #[error("the workspace '{}' holds the whole home folder; start abide in a project folder, or name one in the header `abide-root` over HTTP", .0.display())]
    HoldsHome(PathBuf),
    #[error("the workspace '{}' belongs to the system; start abide in a project folder", .0.display())]
    OfSystem(PathBuf),
    #[error("the workspace '{}' belongs to another user ({owner}), and root has no special rights in a sandbox, so no command could \
             write there; run abide as that user, or use the mode `read-only`", path.display())]
    NotWritable { path: PathBuf, owner: u32 },
    #[error("the workspace '{}' contains abide's own folder '{}', or is inside it; start abide in another folder", path.display(), own.display())]
    HoldsOwn { path: PathBuf, own: PathBuf },
}

/// Workspace of an agent: its root folder, unless too much would become writable.
fn workspace(root: &Path, home: &Path, own: &[PathBuf]) -> Result<Folder, BadWorkspace> {
    let folder = Folder::resolve(root).map_err(|fault| BadWorkspace::NotOpened {
        path: root.to_owned(),
        fault,
    })?;
    let path = &folder.path;
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    if home.starts_with(path) {
        return Err(BadWorkspace::HoldsHome(path.clone()));
    }
    let system = [
        "/tmp", "/var/tmp", "/etc", "/usr", "/var", "/proc", "/dev", "/run", "/sys",
    ];
    if path.parent().is_none() || system.iter().any(|whole| path == Path::new(whole)) {
        return Err(BadWorkspace::OfSystem(path.clone()));
    }
    if let Some(own) = own.iter().find(|own| touches(path, own)) {
        return Err(BadWorkspace::HoldsOwn {
            path: path.clone(),
            own: own.clone(),
        });
    }
    Ok(folder)
}

/// Reason why root cannot write a workspace in a sandbox, where it has no capabilities.
pub fn not_writable(path: &Path) -> Option<BadWorkspace> {
    let found = path.metadata().ok()?;
    let groups = rustix::process::getgroups().unwrap_or_default();
    let is_of_group = found.gid() == 0 || groups.iter().any(|group| group.as_raw() == found.gid());
    let is_writable = found.mode() & 0o002 != 0 || is_of_group && found.mode() & 0o020 != 0;
    let owner = found.uid();
    let is_root = rustix::process::getuid().is_root();
    (is_root && owner != 0 && !is_writable).then(|| BadWorkspace::NotWritable {
        path: path.to_owned(),
        owner,
    })
}

/// True if one path is inside the other.
fn touches(path: &Path, own: &Path) -> bool {
    let own = own.canonicalize().unwrap_or_else(|_| own.to_owned());
    path.starts_with(&own) || own.starts_with(path)
}

/// Path without symbolic links, if it exists: a sandbox follows none to what may be written.
fn real(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

/// Folder of abide that contains a path, or is inside it.
fn touched_own<'a>(path: &Path, own: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let path = real(path.to_owned());
    own.iter().find(|own| touches(&path, own))
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
        _ => format!("agent-{}", secret::hex(&Sha256::digest(agent))),
    }
}

/// Agent whose layers are in the folder of this name; the name itself if it was too long to be kept.
pub fn agent_of_layers(name: &str) -> String {
    let Some(encoded) = name.strip_prefix("agent-") else {
        return name.to_owned();
    };
    let mut agent = Vec::new();
    let mut rest = encoded.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'-' {
            agent.push(*byte);
            continue;
        }
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let Some(decoded) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
            return name.to_owned();
        };
        agent.push(decoded);
        rest = &after[2..];
    }
    String::from_utf8(agent).unwrap_or_else(|_| name.to_owned())
}

/// Folder of the layers of an agent.
pub fn layers_of(paths: &Paths, agent: &str) -> PathBuf {
    let agent = settings_name(agent);
    paths.state.join(OWN_LAYERS).join(file_name(agent))
}

/// Variables that name files or folders of secrets. Some name several, like `PATH`.
const SECRET_FILES: [&str; 16] = [
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_CONFIG_DIR",
    "BOTO_CONFIG",
    "CLOUDSDK_CONFIG",
    "DOCKER_CONFIG",
    "GH_CONFIG_DIR",
    "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
    "NETRC",
    "NPM_CONFIG_USERCONFIG",
    "PASSWORD_STORE_DIR",
    "PGPASSFILE",
    "SOPS_AGE_KEY_FILE",
];

/// Variables that lead out of a sandbox, or that only make sense outside. A sandboxed command does not inherit them.
const LEADING_OUT: &[&str] = &[
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

/// Variables that a sandboxed command gets.
const SANDBOX_VARIABLES: [(&str, &str); 3] = [
    ("ABIDE_SANDBOX", "1"),
    ("TMPDIR", "/tmp"),
    // A layered folder is another file system than a workspace in it.
    ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),
];

/// Removes inherited variables that hold secrets or lead out of the sandbox. Behind a network gate, proxies are not
/// visible either: the gate dials through them.
pub fn confine_environment(sandbox: &SandboxChoice, env: &mut Vec<(OsString, OsString)>) {
    let plan = match sandbox {
        SandboxChoice::Plan(plan) => plan,
        SandboxChoice::Off | SandboxChoice::Impossible(_) => return,
    };
    let is_behind_gate = plan.network.gate().is_some();
    env.retain(|(name, value)| {
        let Some(name) = name.to_str() else {
            return false;
        };
        let is_proxy = gate_plan::is_proxy_variable(name);
        // Without it nothing would be reached where the machine needs one.
        let is_kept = is_proxy && plan.network == Network::On;
        let is_removed = LEADING_OUT.contains(&name)
            || name.starts_with("LD_")
            || name.starts_with("ABIDE_")
            || is_behind_gate && is_proxy
            || abide_output::mask::is_secret_name(name)
            || !is_kept && holds_secret(&value.to_string_lossy());
        !is_removed
    });
    env.extend(SANDBOX_VARIABLES.map(|(name, value)| (name.into(), value.into())));
}

/// True for a variable that abide itself has set for a command.
pub fn is_set_by_abide(name: &OsStr, value: &OsStr) -> bool {
    let mut all = SANDBOX_VARIABLES.iter().chain([&config::PIPE_DEFAULT]);
    all.any(|own| name == own.0 && value == own.1)
}

/// True for a text with a token of a known format, or a URL that has a user and a password.
fn holds_secret(text: &str) -> bool {
    has_password(text) || abide_output::mask::has_token(text)
}

/// True for a text with a URL that has a user and a password.
fn has_password(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let end = rest.find(['/', '?', '#', ' ', '\n']).unwrap_or(rest.len());
        let user = rest[..end].rsplit_once('@').map(|(user, _)| user);
        user.is_some_and(|user| user.contains(':'))
    })
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
        let refused = less_network(NetworkMode::Off, Some(Allowlist), ReadOnly).unwrap_err();
        assert!(refused.0.contains("\"allowlist\""), "{refused}");
        assert_eq!(
            less_network(On, Some(NetworkMode::Off), ReadOnly).unwrap(),
            NetworkMode::Off
        );
    }

    #[test]
    fn ports_of_the_daemon_are_never_published() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::under(folder.path());
        let mut config = Config::default();
        let ports = |config: &Config| {
            let subject = SandboxSubject {
                config,
                paths: &paths,
                policy: &PolicyStore::new(&paths.config),
                agent: &Agent("a".into()),
                conversation: None,
                root: folder.path(),
                env: &[],
            };
            subject.bare_gate().never_publish
        };
        assert!(ports(&config).is_empty(), "no daemon has listened yet");
        std::fs::create_dir(&paths.runtime).unwrap();
        std::fs::write(paths.last_address(), "127.0.0.1:40123").unwrap();
        assert_eq!(ports(&config), [40_123], "any port was configured");
        config.http = HttpListen::At(([127, 0, 0, 1], 8_080).into());
        assert_eq!(ports(&config), [8_080, 40_123]);
        config.http = HttpListen::Off;
        assert_eq!(ports(&config), [40_123]);
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
        for agent in ["codex", "a/b", "claude-code", "", "ä ", "a-2f"] {
            assert_eq!(agent_of_layers(&file_name(agent)), agent);
        }
    }
}
