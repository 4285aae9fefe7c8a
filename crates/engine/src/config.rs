//! Paths and settings. No other module reads environment variables or configuration files. Configuration is never
//! read from the working directory.

pub mod clients;
mod fleet;
mod sandbox;
mod wakers;

use std::env;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use etcetera::BaseStrategy;
use serde::Deserialize;

use crate::store::PostgresAddress;
pub use fleet::FleetConfig;
pub(crate) use fleet::is_name as is_machine_name;
pub use sandbox::{AtLeast, NetworkMode, SandboxConfig, SandboxFor, SandboxMode};
pub use wakers::{Secret, WakerConfig, WakerKind, WakesFor, Webhook};

/// Paths of one installation. Each `ABIDE_DIR` is a separate installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Directory of sessions, database and the daemon's log.
    pub state: PathBuf,
    /// Directory of sockets and the lock.
    pub runtime: PathBuf,
    /// Configuration file.
    pub config: PathBuf,
}

impl Paths {
    /// Paths that the environment names: `ABIDE_DIR`, else the XDG directories.
    pub fn from_env() -> Result<Self, ConfigError> {
        if let Some(dir) = env::var_os("ABIDE_DIR").filter(|d| !d.is_empty()) {
            let dir = std::path::absolute(Path::new(&dir))
                .map_err(|e| ConfigError::Read("ABIDE_DIR".into(), e.to_string()))?;
            return Ok(Self::under(&dir));
        }
        Self::of_user()
    }

    /// Paths of this user's own installation, without `ABIDE_DIR`.
    pub fn of_user() -> Result<Self, ConfigError> {
        let xdg = etcetera::base_strategy::Xdg::new().map_err(|_| ConfigError::NoHome)?;
        let state = xdg
            .state_dir()
            .unwrap_or_else(|| xdg.data_dir())
            .join("abide");
        // Not in XDG_RUNTIME_DIR: some clients (Codex) do not pass it on, and two daemons that do not find each other
        // would use the same state.
        Ok(Paths {
            runtime: state.join("run"),
            config: xdg.config_dir().join("abide/config.toml"),
            state,
        })
    }

    /// Paths under one directory.
    pub fn under(dir: &Path) -> Self {
        Paths {
            state: dir.to_owned(),
            runtime: dir.join("run"),
            config: dir.join("config.toml"),
        }
    }

    /// Directory that contains everything, if there is one.
    pub fn one_folder(&self) -> Option<&Path> {
        (*self == Paths::under(&self.state)).then_some(self.state.as_path())
    }

    /// Directory with one subdirectory per session.
    pub fn sessions(&self) -> PathBuf {
        self.state.join("sessions")
    }

    /// Database of questions, timers and messages.
    pub fn database(&self) -> PathBuf {
        self.state.join("abide.db")
    }

    /// File with the id and the name by which the machines of a fleet know this one.
    pub fn machine(&self) -> PathBuf {
        self.state.join("machine")
    }

    /// File with the relation of the fleet time to the boot clock.
    pub fn fleet_time(&self) -> PathBuf {
        self.state.join("fleet-time")
    }

    /// Log file of the daemon.
    pub fn daemon_log(&self) -> PathBuf {
        self.state.join("daemon.log")
    }

    /// Lock file that the running daemon holds.
    pub fn lock(&self) -> PathBuf {
        self.runtime.join("lock")
    }

    /// File with the version of the running daemon, which a newer one may replace.
    pub fn daemon_version(&self) -> PathBuf {
        self.runtime.join("version")
    }

    /// Socket that serves HTTP to the command line.
    pub fn http_socket(&self) -> PathBuf {
        self.runtime.join("http.sock")
    }

    /// Socket that serves `abide mcp`.
    pub fn mcp_socket(&self) -> PathBuf {
        self.runtime.join("mcp.sock")
    }

    /// File with the TCP address that serves HTTP.
    pub fn http_address(&self) -> PathBuf {
        self.runtime.join("http.address")
    }

    /// File with the TCP address that served HTTP last, so that open pages find it again.
    pub fn last_address(&self) -> PathBuf {
        self.runtime.join("http.last")
    }

    /// TCP address that serves HTTP, or served it last.
    pub fn read_last_address(&self) -> Option<SocketAddr> {
        let text = std::fs::read_to_string(self.last_address()).ok()?;
        text.trim().parse().ok()
    }

    /// File with the logins of the page.
    pub fn logins(&self) -> PathBuf {
        self.state.join("logins")
    }

    /// Directory of the audit log.
    pub fn audit(&self) -> PathBuf {
        self.state.join("audit")
    }

    /// File with the token for callers over TCP.
    pub fn token(&self) -> PathBuf {
        self.state.join("token")
    }
}

/// Settings of `config.toml`. Every field has a default; an unknown field is an error, because a mistyped setting
/// would be ignored silently.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Program that runs a command line; the command is added as the last argument. Default: `bash -c` where bash is
    /// installed, else `sh -c`.
    pub shell: Vec<String>,
    /// Characters of output per stream that a model gets if the call names no limit.
    pub max_output: u64,
    /// Bytes of log kept per session on disk.
    pub log_quota: u64,
    /// Days that ended sessions are kept.
    pub keep_days: u64,
    /// Bytes that all ended sessions may take on disk, with their logs.
    pub keep_bytes: u64,
    /// Seconds between SIGTERM and SIGKILL.
    pub kill_grace: f64,
    /// `auto`, `cgroup`, `pid_namespace` or `subreaper`.
    pub containment: Containment,
    /// Maximum of processes and threads of a session, if its control group counts them. 0: no limit.
    pub max_processes: u32,
    /// Keepers started in advance.
    pub idle_keepers: usize,
    /// TCP address that serves HTTP, such as `127.0.0.1:8931` (port 0: any free port), or `off`.
    pub http: HttpListen,
    /// Allows `http` to name an address that other machines can reach.
    pub http_beyond_loopback: bool,
    /// File of certificates (PEM) to trust in addition to the machine's own, for `until.url` and webhooks.
    pub ca_file: Option<PathBuf>,
    /// PostgreSQL database for timers, messages and questions, such as `postgres://user@host/db?schema=abide`. Default:
    /// a file in the state folder.
    pub store: Option<String>,
    /// Name of this machine in a fleet. Default: the name of the host.
    pub machine: Option<String>,
    /// Labels of this machine, by which other machines can choose it.
    pub labels: Vec<String>,
    /// Seconds without a heartbeat after which the sessions of this machine count as lost. Default: never.
    pub lost_after: Option<u64>,
    /// Rights of the other machines of the fleet on this one.
    pub fleet: FleetConfig,
    /// Sandbox of the commands of agents.
    pub sandbox: SandboxConfig,
    /// Wakers for agents that do not read their messages.
    pub wakers: Vec<WakerConfig>,
    /// Rules about commands of agents. They are read and checked by `policy`, again whenever the file changes.
    pub policy: toml::Table,
}

/// TCP address that serves HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum HttpListen {
    /// No TCP.
    Off,
    /// This address.
    At(SocketAddr),
}

impl TryFrom<String> for HttpListen {
    type Error = InvalidSetting;

    fn try_from(text: String) -> Result<Self, InvalidSetting> {
        if text == "off" {
            return Ok(HttpListen::Off);
        }
        text.parse().map(HttpListen::At).map_err(|_| {
            InvalidSetting(format!(
                "`http` must be an address such as \"127.0.0.1:8931\", or \"off\"; got {text:?}"
            ))
        })
    }
}

/// Requested containment of a session's process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    /// The strongest that the machine supports.
    Auto,
    /// Control group; a session is refused without one.
    Cgroup,
    /// Control group and PID namespace.
    PidNamespace,
    /// Subreaper only.
    Subreaper,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            shell: default_shell(),
            max_output: 10_000,
            log_quota: 256 << 20,
            keep_days: 30,
            keep_bytes: 1 << 30,
            kill_grace: 2.0,
            containment: Containment::Auto,
            max_processes: 8_192,
            idle_keepers: 4,
            http: HttpListen::At(SocketAddr::from(([127, 0, 0, 1], 0))),
            http_beyond_loopback: false,
            ca_file: None,
            store: None,
            machine: None,
            labels: Vec::new(),
            lost_after: None,
            fleet: FleetConfig::default(),
            sandbox: SandboxConfig::default(),
            wakers: Vec::new(),
            policy: toml::Table::new(),
        }
    }
}

/// Places of bash, besides the folders in `PATH`.
const BASH: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];

/// bash where it is installed, because models write commands for bash; else sh.
fn default_shell() -> Vec<String> {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    let found = PROGRAM.get_or_init(|| {
        let known = BASH.iter().map(PathBuf::from).find(|place| place.is_file());
        let bash = known.or_else(|| program("bash").filter(|place| place.is_absolute()));
        let bash = bash.and_then(|place| place.into_os_string().into_string().ok());
        bash.unwrap_or_else(|| "/bin/sh".into())
    });
    vec![found.clone(), "-c".into()]
}

/// Setting with a value that is not allowed, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSetting(String);

impl From<&str> for InvalidSetting {
    fn from(sentence: &str) -> Self {
        InvalidSetting(sentence.to_owned())
    }
}

/// Checks that the value of a setting is in its range.
fn within<T: PartialOrd + Display>(
    setting: &str,
    value: T,
    range: RangeInclusive<T>,
    unit: &str,
) -> Result<(), InvalidSetting> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(InvalidSetting(format!(
        "`{setting}` must be {least} to {most}{unit}; got {value}"
    )))
}

/// Configuration that cannot be used. Each message says what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No `ABIDE_DIR` and no home directory.
    #[error("there is no home folder to keep state in; set ABIDE_DIR to a folder of your own")]
    NoHome,
    /// The file exists but cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, String),
    /// The file can be read but is not valid.
    #[error("{0}: {1}")]
    Parse(PathBuf, String),
}

impl Config {
    /// Milliseconds between SIGTERM and SIGKILL.
    pub fn kill_grace_ms(&self) -> u32 {
        (self.kill_grace * 1_000.0) as u32
    }

    /// Reads the file. A missing file gives the defaults.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(e) => return Err(ConfigError::Read(path.to_owned(), e.to_string())),
        };
        Self::parse(path, &text)
    }

    /// Reads the text of the file at `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let bad = |why: String| ConfigError::Parse(path.to_owned(), why);
        let config: Config =
            toml::from_str(text).map_err(|e| bad(without_excerpt(&e.to_string())))?;
        config.check().map_err(|e| bad(e.to_string()))?;
        Ok(config)
    }

    /// PostgreSQL server and database, without the password, if `store` names one.
    pub fn shown_store(&self) -> Option<String> {
        let address = PostgresAddress::parse(self.store.as_deref()?, None).ok()?;
        Some(format!(
            "PostgreSQL at {}, schema {}",
            address.shown(),
            address.schema
        ))
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        self.sandbox.check()?;
        self.check_fleet()?;
        if let Some(url) = &self.store
            && let Err(why) = PostgresAddress::parse(url, None)
        {
            return Err(InvalidSetting(format!(
                "`store` must be an address such as \"postgres://user@host/db?schema=abide\": {why}"
            )));
        }
        if self.shell.is_empty() {
            return Err("`shell` needs at least one word, such as [\"/bin/bash\", \"-c\"]".into());
        }
        within("max_output", self.max_output, 1..=1_000_000, "")?;
        if self.log_quota < 1 << 20 {
            return Err(InvalidSetting(format!(
                "`log_quota` must be at least 1048576 bytes; got {}",
                self.log_quota
            )));
        }
        within("kill_grace", self.kill_grace, 0.0..=600.0, " seconds")?;
        within("idle_keepers", self.idle_keepers, 0..=64, "")?;
        if let HttpListen::At(address) = self.http
            && address.ip().is_unspecified()
        {
            return Err(InvalidSetting(format!(
                "`http` must name one address of this machine, since callers are known by the \
                 address they call; got {address}"
            )));
        }
        if let HttpListen::At(address) = self.http
            && !address.ip().is_loopback()
            && !self.http_beyond_loopback
        {
            return Err(InvalidSetting(format!(
                "`http` names {address}, which other machines may reach; set \
                 `http_beyond_loopback = true` if that is meant"
            )));
        }
        Ok(())
    }
}

/// Agent that the environment names, else `default`.
pub fn agent_from_env() -> String {
    env::var("ABIDE_AGENT")
        .ok()
        .filter(|a| !a.is_empty())
        .unwrap_or_else(|| "default".into())
}

/// True unless `NO_COLOR` is set.
pub fn colour_enabled() -> bool {
    env::var_os("NO_COLOR").is_none_or(|said| said.is_empty())
}

/// Variables of the service manager, meant for this process alone.
const SERVICE_MANAGER_VARIABLES: [&str; 4] = [
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
];

/// Environment that commands inherit if their caller brings none.
pub fn environment() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    env::vars_os()
        .filter(|(name, _)| {
            !SERVICE_MANAGER_VARIABLES
                .iter()
                .any(|variable| name == variable)
        })
        .collect()
}

/// Variable that a command on pipes needs to write its output at once. Python would buffer its output until it exits, and
/// lose it when it is killed.
pub(crate) const PIPE_DEFAULT: (&str, &str) = ("PYTHONUNBUFFERED", "1");

/// Sets that variable, unless it is set.
pub fn add_pipe_default(env: &mut Vec<(std::ffi::OsString, std::ffi::OsString)>) {
    let (name, value) = PIPE_DEFAULT;
    if !env.iter().any(|(known, _)| known == name) {
        env.push((name.into(), value.into()));
    }
}

/// Address of the desktop's D-Bus, for a daemon that was not started from the desktop.
pub fn desktop_bus() -> Option<(String, String)> {
    let name = "DBUS_SESSION_BUS_ADDRESS";
    if env::var_os(name).is_some() {
        return None;
    }
    let bus = format!("/run/user/{}/bus", rustix::process::getuid().as_raw());
    let there = Path::new(&bus).exists();
    there.then(|| (name.to_owned(), format!("unix:path={bus}")))
}

/// Path of a program on the search path.
pub fn program(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| {
            rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
        })
}

/// Interactive shell of the user.
pub fn shell_program() -> std::ffi::OsString {
    env::var_os("SHELL")
        .filter(|shell| !shell.is_empty())
        .unwrap_or_else(|| "/bin/sh".into())
}

/// Home directory of the user.
pub fn home() -> PathBuf {
    env::home_dir().unwrap_or_else(|| "/".into())
}

/// Message of the TOML parser on one line, without the lines that draw where the fault is.
fn without_excerpt(message: &str) -> String {
    let is_drawn = |line: &&str| {
        line.split_once('|')
            .is_some_and(|(number, _)| number.trim().chars().all(|c| c.is_ascii_digit()))
    };
    let words: Vec<&str> = message.lines().filter(|line| !is_drawn(line)).collect();
    let message = words.join(": ");
    let known = (EXPECTED.iter()).find_map(|(kind, words)| {
        let rest = message.strip_suffix(kind)?;
        rest.ends_with(", expected ")
            .then(|| format!("{rest}{words}"))
    });
    known.unwrap_or(message)
}

/// Kinds of values in the words of the parser, and in those of people.
const EXPECTED: [(&str, &str); 9] = [
    ("u16", "a whole number"),
    ("u32", "a whole number"),
    ("u64", "a whole number, not negative"),
    ("usize", "a whole number, not negative"),
    ("f64", "a number"),
    ("a sequence", "a list, such as [\"a\", \"b\"]"),
    ("a string", "text in quotes"),
    ("path string", "a path in quotes"),
    ("a boolean", "true or false"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
        config.check().map_err(|e| e.to_string())?;
        Ok(config)
    }

    #[test]
    fn value_of_a_wrong_kind_is_refused_in_words_of_people() {
        for (text, end) in [
            (
                "keep_days = -1",
                "`-1`, expected a whole number, not negative",
            ),
            ("kill_grace = \"x\"", "\"x\", expected a number"),
            (
                "shell = \"bash\"",
                "expected a list, such as [\"a\", \"b\"]",
            ),
            ("ca_file = 1", "`1`, expected a path in quotes"),
            ("machine = 1", "`1`, expected text in quotes"),
            ("http_beyond_loopback = 1", "`1`, expected true or false"),
        ] {
            let refused = Config::parse(Path::new("f"), text).unwrap_err().to_string();
            assert!(refused.ends_with(end), "{text}: {refused}");
        }
    }

    #[test]
    fn http_address_beyond_loopback_needs_its_setting() {
        let loopback = |config: Config| match config.http {
            HttpListen::At(address) => address.ip().is_loopback(),
            HttpListen::Off => false,
        };
        assert!(loopback(Config::default()));
        assert!(read("http = \"[::1]:8931\"").is_ok_and(loopback));
        assert_eq!(read("http = \"off\"").unwrap().http, HttpListen::Off);
        for open in ["192.0.2.7:80", "[2001:db8::1]:0"] {
            let refused = read(&format!("http = \"{open}\"")).unwrap_err();
            assert!(refused.contains("http_beyond_loopback"), "{refused}");
            assert!(read(&format!("http = \"{open}\"\nhttp_beyond_loopback = true")).is_ok());
        }
        for every in ["0.0.0.0:1", "[::]:0"] {
            let open = format!("http = \"{every}\"\nhttp_beyond_loopback = true");
            assert!(read(&open).unwrap_err().contains("must name one address"));
        }
        for nonsense in ["", "on", "8931", "localhost", "127.0.0.1"] {
            let refused = read(&format!("http = \"{nonsense}\"")).unwrap_err();
            assert!(refused.contains("`http` must be"), "{refused}");
        }
    }
}
