//! A real PostgreSQL server for one test, in a folder of its own, reached over its unix socket.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Environment variable that chooses the store of the tests: `postgres`, or SQLite.
const STORE: &str = "ABIDE_TEST_STORE";

pub struct Server {
    folder: TempDir,
    process: Option<Child>,
    settings: Vec<String>,
    /// Port of the socket, and of TCP if the settings have `listen_addresses`.
    port: u16,
    /// Size of the disk with the data in MiB, if it has one of its own.
    disk: Option<u32>,
}

/// Port of a server without TCP.
const PORT: u16 = 5_432;
/// Time between two questions to a server that starts.
const PAUSE: Duration = Duration::from_millis(20);

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
        Server::made(settings, PORT, None)
    }

    /// Server that also listens on a port of the loopback interface.
    pub fn on_loopback(settings: &[&str]) -> Self {
        // Below the ports that the kernel gives to other sockets, and another one for each test process.
        let first = 20_000 + (std::process::id() % 10_000) as u16;
        let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let port = (first..32_000).find(is_free).expect("a free port");
        let settings = [settings, &["listen_addresses=127.0.0.1"]].concat();
        Server::made(&settings, port, None)
    }

    /// Server whose data is on a disk of this many MiB, which is gone when the server ends. `None`: mounting is not
    /// possible here.
    pub fn on_small_disk(mebibytes: u32) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: nothing can be mounted here");
            return None;
        }
        let settings = ["min_wal_size=32MB", "max_wal_size=48MB"];
        Some(Server::made(&settings, PORT, Some(mebibytes)))
    }

    fn made(settings: &[&str], port: u16, disk: Option<u32>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let copied = run(plain("cp")
            .arg("-a")
            .arg(template())
            .arg(folder.path().join("data")));
        assert!(copied.status.success(), "{copied:?}");
        Server::in_folder(folder, settings, port, disk)
    }

    fn in_folder(folder: TempDir, settings: &[&str], port: u16, disk: Option<u32>) -> Self {
        let everybody = PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), everybody).expect("permissions");
        let mut server = Server {
            folder,
            process: None,
            settings: settings.iter().map(|text| (*text).to_owned()).collect(),
            port,
            disk,
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
        Server::in_folder(folder, &[], PORT, None)
    }

    /// Starts the server again.
    pub fn resume(&mut self) {
        assert!(self.process.is_none(), "it runs");
        // A server that was killed leaves these.
        let _ = std::fs::remove_file(self.path("data/postmaster.pid"));
        let _ = std::fs::remove_file(self.path(&format!(".s.PGSQL.{}.lock", self.port)));
        let mut command = match self.disk {
            None => as_server("postgres"),
            Some(size) => on_own_disk(as_server("postgres"), &self.path("data"), size),
        };
        command
            .arg("-D")
            .arg(self.path("data"))
            .arg("-k")
            .arg(self.folder.path());
        let port = format!("port={}", self.port);
        for setting in ["listen_addresses=", "fsync=off", "max_wal_senders=4", &port] {
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
            ready.args(["-q", "-p", &self.port.to_string(), "-h"]);
            if run(ready.arg(self.folder.path())).status.success() {
                return;
            }
            let process = self.process.as_mut().expect("the server");
            let ended = process.try_wait().expect("a child");
            assert!(ended.is_none(), "{}", self.log());
            // Leaves the processor to the server.
            std::thread::park_timeout(PAUSE);
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
        self.path(&format!(".s.PGSQL.{}", self.port))
    }

    /// Address for `store`.
    pub fn url(&self) -> String {
        self.url_as("postgres")
    }

    /// Address for a user, who may have a password: `user:password`.
    pub fn url_as(&self, user: &str) -> String {
        let host = self.folder.path().display().to_string().replace('/', "%2F");
        format!(
            "postgres://{user}@{host}:{}/postgres?schema=abide",
            self.port
        )
    }

    /// Address over TCP and TLS, of a server [on the loopback interface](Self::on_loopback).
    pub fn tls_url(&self) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/postgres?schema=abide&sslmode=require",
            self.port
        )
    }

    /// Writes a private file of the server into its data folder.
    pub fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::MetadataExt;
        let path = self.path("data").join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("permissions");
        let owner = std::fs::metadata(self.path("data")).expect("a folder");
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).expect("an owner");
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

    /// Opens a connection that does nothing until it is killed. `sql` is run first.
    pub fn idle_session(&self, sql: &str) -> Child {
        idle_psql(self.folder.path(), self.port, sql)
    }

    fn psql(&self, text: &str) -> Command {
        let mut psql = psql_at(self.folder.path(), self.port);
        psql.args(["-c", text]);
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

/// `psql` on the server or pooler whose socket is in this folder.
fn psql_at(folder: &Path, port: u16) -> Command {
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
        "-p",
        &port.to_string(),
        "-h",
    ]);
    psql.arg(folder);
    psql
}

/// Connection that runs SQL and then does nothing until it is killed.
pub fn idle_psql(folder: &Path, port: u16, sql: &str) -> Child {
    let mut psql = psql_at(folder, port);
    psql.stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = psql.spawn().expect("psql runs");
    let stdin = child.stdin.as_mut().expect("its input");
    // A server without free connections has refused it already.
    let _ = writeln!(stdin, "{sql}");
    child
}

/// The same command, with the folder on a disk of its own that has a copy of it.
fn on_own_disk(command: Command, folder: &Path, mebibytes: u32) -> Command {
    let script = format!(
        "cp -a \"$1\" \"$1.kept\" && mount -t tmpfs -o size={mebibytes}m tmpfs \"$1\" && cp -a \"$1.kept/.\" \"$1\" \
         && chown --reference=\"$1.kept\" \"$1\" && chmod 700 \"$1\" && shift && exec \"$@\""
    );
    let mut outer = plain("unshare");
    outer.args(["-m", "sh", "-c", &script, "_"]).arg(folder);
    outer.arg(command.get_program()).args(command.get_args());
    outer.current_dir("/");
    outer
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
