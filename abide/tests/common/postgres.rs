//! A real PostgreSQL server for one test, in a folder of its own, reached over its unix socket.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Environment variable that chooses the store of the tests: `postgres`, or SQLite.
const STORE: &str = "ABIDE_TEST_STORE";

pub struct Server {
    folder: TempDir,
    process: Option<Child>,
    settings: Vec<String>,
}

impl Server {
    /// Server, if the tests run on PostgreSQL.
    pub fn if_chosen() -> Option<Self> {
        let chosen = std::env::var(STORE).is_ok_and(|store| store == "postgres");
        chosen.then(Server::start)
    }

    pub fn start() -> Self {
        Server::with_settings(&[])
    }

    /// Server with settings such as `max_connections=5`.
    pub fn with_settings(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let copied = run(plain("cp")
            .arg("-a")
            .arg(template())
            .arg(folder.path().join("data")));
        assert!(copied.status.success(), "{copied:?}");
        Server::in_folder(folder, settings)
    }

    fn in_folder(folder: TempDir, settings: &[&str]) -> Self {
        let everybody = PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), everybody).expect("permissions");
        let mut server = Server {
            folder,
            process: None,
            settings: settings.iter().map(|text| (*text).to_owned()).collect(),
        };
        server.resume();
        server
    }

    /// Standby of this server that follows it, not promoted.
    pub fn standby(&self) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let everybody = PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), everybody).expect("permissions");
        let mut copy = as_server("pg_basebackup");
        copy.args(["-R", "-X", "stream", "-c", "fast", "-U", "postgres", "-h"])
            .arg(self.folder.path())
            .arg("-D")
            .arg(folder.path().join("data"));
        let copied = run(&mut copy);
        assert!(copied.status.success(), "{copied:?}");
        Server::in_folder(folder, &[])
    }

    /// Starts the server again.
    pub fn resume(&mut self) {
        assert!(self.process.is_none(), "it runs");
        // A server that was killed leaves these.
        let _ = std::fs::remove_file(self.path("data/postmaster.pid"));
        let _ = std::fs::remove_file(self.path(".s.PGSQL.5432.lock"));
        let mut command = as_server("postgres");
        command
            .arg("-D")
            .arg(self.path("data"))
            .arg("-k")
            .arg(self.folder.path());
        for setting in ["listen_addresses=", "fsync=off", "max_wal_senders=4"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        let log = log.expect("a log");
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        self.process = Some(command.process_group(0).spawn().expect("the server starts"));
        loop {
            let mut ready = plain(program("pg_isready"));
            if run(ready.arg("-q").arg("-h").arg(self.folder.path()))
                .status
                .success()
            {
                return;
            }
            let process = self.process.as_mut().expect("the server");
            let ended = process.try_wait().expect("a child");
            assert!(ended.is_none(), "{}", self.log());
            std::thread::yield_now();
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Socket of the server.
    pub fn socket(&self) -> PathBuf {
        self.path(".s.PGSQL.5432")
    }

    /// Address for `store`.
    pub fn url(&self) -> String {
        let host = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}/postgres?schema=abide")
    }

    /// Runs SQL. Returns what `psql` prints.
    pub fn sql(&self, text: &str) -> String {
        let out = self.try_sql(text);
        assert!(out.status.success(), "{text}: {out:?}");
        String::from_utf8(out.stdout)
            .expect("text")
            .trim_end()
            .to_owned()
    }

    pub fn try_sql(&self, text: &str) -> Output {
        run(&mut self.psql(text))
    }

    /// Begins to run SQL.
    pub fn session(&self, text: &str) -> Child {
        let mut psql = self.psql(text);
        psql.stdout(Stdio::null()).stderr(Stdio::null());
        psql.spawn().expect("psql runs")
    }

    fn psql(&self, text: &str) -> Command {
        let mut psql = plain(program("psql"));
        psql.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-h",
        ])
        .arg(self.folder.path())
        .args(["-c", text]);
        psql
    }

    /// Kills all processes of the server at once, as a loss of power does.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Stops the server: connections are ended, commits are kept.
    pub fn stop(&mut self) {
        self.end(Signal::INT);
    }

    /// Sends a signal to the first process; `KILL` to all.
    fn end(&mut self, signal: Signal) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let pid = i32::try_from(process.id()).expect("a pid");
        let pid = Pid::from_raw(pid).expect("a pid");
        let children = match signal == Signal::KILL {
            true => children_of(pid),
            false => Vec::new(),
        };
        kill_process(pid, signal).expect("the server runs");
        for child in children {
            let _ = kill_process(child, signal);
        }
        let _ = process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Signal::KILL);
    }
}

fn children_of(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_nonzero();
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    let pids = list.split_whitespace().filter_map(|text| text.parse().ok());
    pids.filter_map(Pid::from_raw).collect()
}

/// Folder of a server that was never started, made once.
fn template() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(folder).expect("a folder");
    let template = folder.join("postgres-template");
    let lock = std::fs::File::create(folder.join("postgres-template.lock")).expect("a lock");
    lock.lock().expect("a lock");
    if template.exists() {
        return template;
    }
    let made = tempfile::tempdir().expect("a folder");
    let everybody = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(made.path(), everybody).expect("permissions");
    let data = made.path().join("data");
    let mut command = as_server("initdb");
    command
        .args([
            "--username=postgres",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
        ])
        .arg(&data);
    let out = run(&mut command);
    assert!(out.status.success(), "{out:?}");
    let moved = run(plain("cp").arg("-a").arg(&data).arg(&template));
    assert!(moved.status.success(), "{moved:?}");
    template
}

/// Program of the newest PostgreSQL that is installed.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let found = versions
        .flatten()
        .map(|entry| entry.path().join("bin").join(name));
    let newest = found.filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| PathBuf::from(name))
}

/// Program of the server, which refuses to run as root, and ends with this thread.
fn as_server(name: &str) -> Command {
    let mut command = plain("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    }
    command.arg(program(name)).current_dir("/");
    command
}

fn plain(name: impl AsRef<std::ffi::OsStr>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    Command::new(name)
}

fn run(command: &mut Command) -> Output {
    let out = command.stdin(Stdio::null()).output();
    out.expect("PostgreSQL is installed (`make programs` does that)")
}
