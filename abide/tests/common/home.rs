//! An abide of one test: its folder, its program and its daemon. Every test program that starts real daemons uses it and
//! adds only the client that it tests with.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::cleanup::Cleanup;
use super::process::Process;

/// Time limit: longer than any step takes, even on a busy machine, so that a hang becomes a failure.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Folder of a test with abide's state in it. Dropping it kills the sessions and stops the daemon.
pub struct Home {
    _cleanup: Cleanup,
    dir: TempDir,
    state: PathBuf,
    /// Working directory of abide.
    work: PathBuf,
}

impl Home {
    /// The state is in the folder `abide`, beside the files of the test.
    pub fn new() -> Self {
        Home::with_config("")
    }

    /// The same, with this configuration.
    pub fn with_config(config: &str) -> Self {
        let home = Home::with_state("abide");
        if !config.is_empty() {
            std::fs::create_dir(&home.state).expect("a folder");
            let private = PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(&home.state, private).expect("permissions");
            std::fs::write(home.state.join("config.toml"), config).expect("a configuration");
        }
        home
    }

    /// The folder of the test is the state directory.
    pub fn of_state() -> Self {
        Home::with_state("")
    }

    fn with_state(name: &str) -> Self {
        let dir = private_folder();
        let state = dir.path().join(name);
        Home {
            _cleanup: Cleanup::of(&state),
            work: dir.path().to_owned(),
            dir,
            state,
        }
    }

    /// Abide starts in a folder that can be a workspace.
    pub fn with_workspace() -> Self {
        let mut home = Home::new();
        home.work = home.path("work");
        std::fs::create_dir(&home.work).expect("a folder");
        home
    }

    /// The first daemon crashes at this crash point.
    pub fn dying(at: &str) -> Self {
        let home = Home::new();
        home.start_to_crash_at(at);
        home
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Path in the folder of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a named pipe, on which a command can block until the test writes to it.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        super::fifo::make(&path);
        path
    }

    /// Number of lines of a file; zero if the file does not exist.
    pub fn lines(&self, name: &str) -> usize {
        std::fs::read_to_string(self.path(name)).map_or(0, |text| text.lines().count())
    }

    /// The program under test.
    pub fn command<I: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = I>) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
        command
            .args(words)
            .env("ABIDE_DIR", &self.state)
            .env("ABIDE", env!("CARGO_BIN_EXE_abide"))
            .current_dir(&self.work)
            .stdin(Stdio::null());
        for name in OWN_ENVIRONMENT {
            command.env_remove(name);
        }
        command
    }

    /// Runs the command to its end.
    pub fn output<I: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = I>) -> Output {
        self.command(words).output().expect("abide runs")
    }

    /// Runs the command, which must succeed, and parses its output as JSON.
    pub fn json<I: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = I>) -> Value {
        let output = self.output(words);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Starts the daemon, if there is none.
    pub fn start(&self) {
        let output = self.output(["status"]);
        assert!(output.status.success(), "{output:?}");
    }

    /// Starts a daemon that kills itself at this crash point.
    pub fn start_to_crash_at(&self, point: &str) {
        let mut status = self.command(["status"]);
        let output = status.env("ABIDE_CRASH_AT", point).output();
        let output = output.expect("abide runs");
        assert!(output.status.success(), "{output:?}");
    }

    /// Process number of the daemon, which is started if there is none.
    pub fn pid(&self) -> i32 {
        let pid = &self.json(["status", "--json"])["daemon"]["pid"];
        i32::try_from(pid.as_i64().expect("a pid")).expect("a pid")
    }

    /// Kills the daemon with SIGKILL, like a crash, and waits for its end.
    pub fn kill_daemon(&self) {
        let daemon = Process::on(self.pid());
        daemon.kill();
        daemon.wait_gone();
    }

    /// Process number of the daemon that runs; nothing is started.
    pub fn daemon_pid(&self) -> Option<i32> {
        let pid = std::fs::read_to_string(self.state.join("run/lock")).ok()?;
        pid.trim().parse().ok()
    }

    /// Sets the idle limit of the newest running session. The idle time starts over, so output from before this call
    /// cannot withdraw the question, however slow the machine is.
    pub fn set_idle_limit(&self, idle: &str) {
        let running = self.running_ids();
        let newest = running.first().expect("a session runs");
        let output = self.output(["session", "extend", newest, "--idle", idle]);
        assert!(output.status.success(), "{output:?}");
    }

    /// Ids of the running sessions, newest first.
    pub fn running_ids(&self) -> Vec<String> {
        let list = self.json(["session", "list", "--json"]);
        let sessions = list["sessions"].as_array().into_iter().flatten();
        let ids = sessions.filter_map(|session| session["session_id"].as_str());
        ids.map(str::to_owned).collect()
    }
}

/// Variables of the environment of the tests that would change what abide does.
const OWN_ENVIRONMENT: [&str; 5] = [
    "ABIDE_AGENT",
    "ABIDE_CALL_LIMIT",
    "ABIDE_CRASH_AT",
    "COLUMNS",
    "MCP_TOOL_TIMEOUT",
];

/// Temporary directory with mode 0700, regardless of the umask.
pub fn private_folder() -> TempDir {
    let mut folder = tempfile::Builder::new();
    folder.permissions(PermissionsExt::from_mode(0o700));
    folder.tempdir().expect("a folder for the test")
}
