//! Links over ssh, with a real sshd on a loopback port.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use super::*;
use crate::common::home::PATIENCE;

const SSHD: &str = "/usr/sbin/sshd";
/// Folder that sshd wants to be there if root starts it.
const SSHD_FOLDER: &str = "/run/sshd";
/// Destination of `build`, which the configuration of the client resolves.
const DESTINATION: &str = "build-host";

/// sshd with a key of its own: one process for each connection, as inetd starts it.
struct Sshd {
    folder: tempfile::TempDir,
    /// Processes of the connections; `None`: no further connection is taken.
    connections: Arc<Mutex<Option<Vec<Child>>>>,
    port: u16,
}

fn tool(program: &str) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    Command::new(program)
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("permissions");
}

impl Sshd {
    fn start() -> Self {
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir_all(SSHD_FOLDER).expect("a folder");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let sshd = Sshd {
            folder: tempfile::tempdir().expect("a folder"),
            connections: Arc::new(Mutex::new(Some(Vec::new()))),
            port,
        };
        for key in ["host_key", "key"] {
            let mut keygen = tool("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            let made = keygen.arg(sshd.path(key)).status();
            assert!(made.expect("ssh-keygen is installed").success());
        }
        sshd.configure_client();
        let (connections, config) = (sshd.connections.clone(), sshd.path("sshd_config"));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                match connections.lock().expect("no holder panics").as_mut() {
                    Some(processes) => processes.push(serve(stream, &config)),
                    None => return,
                }
            }
        });
        sshd
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a program `ssh` that takes its settings from here and not from the home folder.
    fn configure_client(&self) {
        let folder = self.folder.path().display();
        let host_key = std::fs::read_to_string(self.path("host_key.pub")).expect("a key");
        write(
            &self.path("known_hosts"),
            &format!("{DESTINATION} {host_key}"),
            0o600,
        );
        let config = format!(
            "Host {DESTINATION}\nHostName 127.0.0.1\nPort {}\nHostKeyAlias {DESTINATION}\n\
             IdentityFile {folder}/key\nIdentitiesOnly yes\nIdentityAgent none\n\
             UserKnownHostsFile {folder}/known_hosts\nGlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\n",
            self.port
        );
        write(&self.path("ssh_config"), &config, 0o600);
        std::fs::create_dir(self.path("bin")).expect("a folder");
        let script = format!("#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config \"$@\"\n");
        write(&self.path("bin/ssh"), &script, 0o700);
    }

    /// Has logins reach the daemon of this machine.
    fn lead_to(&self, machine: &Abide) {
        let folder = self.folder.path().display();
        let program = Path::new(env!("CARGO_BIN_EXE_abide"))
            .parent()
            .expect("a folder");
        let config = format!(
            "HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/key.pub\nStrictModes no\nUsePAM no\n\
             PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             SetEnv ABIDE_DIR={} PATH={}:/usr/bin:/bin\n",
            machine.dir().display(),
            program.display()
        );
        write(&self.path("sshd_config"), &config, 0o600);
    }

    /// Two machines, of which `desk` calls `build` over ssh. `rights` is the configuration of `build`.
    fn pair(&self, rights: &str) -> Pair {
        let server = Server::start();
        let url = server.url();
        let path = std::env::var("PATH").expect("a path");
        let path = format!("{}:{path}", self.path("bin").display());
        let pair = Pair::started_by(server, &url, rights, |machine| {
            let started = machine.command(["status"]).env("PATH", &path).output();
            assert!(started.expect("abide runs").status.success());
        });
        self.lead_to(&pair.build);
        let config = pair.desk.path("config.toml");
        let text = std::fs::read_to_string(&config).expect("a configuration");
        let text = format!("{text}[fleet.ssh]\nbuild = {DESTINATION:?}\n");
        std::fs::write(&config, text).expect("a configuration");
        pair
    }

    /// Ends the connections there are. New ones are taken.
    fn break_connections(&self) -> usize {
        let mut connections = self.connections.lock().expect("no holder panics");
        let processes = connections.as_mut().expect("it runs");
        let count = processes.len();
        processes.drain(..).for_each(end);
        count
    }

    /// Takes no connections any more.
    fn stop(&self) {
        let connections = self.connections.lock().expect("no holder panics").take();
        connections.into_iter().flatten().for_each(end);
        // Wakes the thread, which closes the port.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        look_for("a closed port", || {
            TcpStream::connect(("127.0.0.1", self.port))
                .is_err()
                .then_some(())
        });
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let connections = self.connections.lock().expect("no holder panics").take();
        connections.into_iter().flatten().for_each(end);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn end(mut process: Child) {
    let _ = process.kill();
    let _ = process.wait();
}

fn serve(stream: TcpStream, config: &Path) -> Child {
    let input = OwnedFd::from(stream.try_clone().expect("a descriptor"));
    let mut sshd = tool(SSHD);
    sshd.args(["-i", "-f"]).arg(config);
    sshd.stdin(input)
        .stdout(OwnedFd::from(stream))
        .stderr(Stdio::null());
    sshd.spawn()
        .expect("sshd is installed (`make programs` does that)")
}

/// Has the database carry no frames, so that what works goes over ssh.
fn swallow_frames(pair: &Pair) {
    pair.server().sql(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
         CREATE TRIGGER swallow BEFORE INSERT ON abide.frame FOR EACH ROW EXECUTE FUNCTION swallow()",
    );
}

fn listed(machine: &Abide) -> String {
    let out = machine.output(["machine", "list"]);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn call_and_long_log_travel_over_ssh_where_it_is_configured() {
    let sshd = Sshd::start();
    let pair = sshd.pair("[fleet]\nrun = [\"desk\"]\n");
    swallow_frames(&pair);
    let command = json!({"command": "seq 300000", "on": "build"});
    let ran = pair.desk.post("/v1/tools/shell", &command);
    assert_eq!(ran.body["status"], "SUCCESS", "{}", ran.body);
    assert_eq!(ran.body["machine"], "build", "{}", ran.body);
    let id = ran.body["session_id"].as_str().expect("an id");
    let mut stream = UnixStream::connect(pair.desk.path("run/http.sock")).expect("a daemon");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!(
        "GET /v1/sessions/{id}/log/raw HTTP/1.1\r\nhost: abide\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut log = Vec::new();
    stream.read_to_end(&mut log).expect("a log");
    let written: usize = (1..=300_000u32).map(|n| n.to_string().len() + 1).sum();
    assert!(log.len() > written, "{} of {written}", log.len());
    let listed = listed(&pair.desk);
    assert!(
        listed.contains("Calls to build go over ssh to build-host."),
        "{listed}"
    );
}

#[test]
fn f59_rights_are_decided_by_the_target_over_ssh_too() {
    let sshd = Sshd::start();
    let pair = sshd.pair("");
    let id = pair.cat();
    swallow_frames(&pair);
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    assert_eq!(call(&pair.desk, &read).body["machine"], "build");
    let input = json!({"action": "send_input", "session_id": id, "input": "x\n"});
    let refused = call(&pair.desk, &input);
    let said = text(&refused);
    assert!(
        said.contains("`type = [\"desk\"]` below `[fleet]`"),
        "{said}"
    );
    let shell = json!({"command": "true", "on": "build"});
    let refused = pair.desk.post("/v1/tools/shell", &shell);
    assert!(
        text(&refused).contains("`run = [\"desk\"]`"),
        "{}",
        refused.body
    );
}

#[test]
fn f58_command_whose_ssh_ends_after_it_began_runs_once_and_is_answered() {
    let sshd = Sshd::start();
    let pair = sshd.pair("[fleet]\nrun = [\"desk\"]\n");
    swallow_frames(&pair);
    let (file, go) = (pair.build.path("ran"), pair.build.fifo("go"));
    let command = format!(
        "echo once >> {}; read line < {}; echo finished",
        file.display(),
        go.display()
    );
    let body = json!({"command": command, "on": "build"});
    let begun = pair.desk.begin("/v1/tools/shell", &body);
    look_for("the command", || file.exists().then_some(()));
    assert_eq!(sshd.break_connections(), 1);
    std::fs::write(&go, "go\n").expect("the command reads");
    let answer = harness::receive(begun).expect("an answer");
    assert_eq!(answer.body["status"], "SUCCESS", "{}", answer.body);
    assert!(text(&answer).contains("finished"), "{}", answer.body);
    assert_eq!(pair.build.lines("ran"), 1);
}

#[test]
fn f73_machine_that_ssh_does_not_reach_is_called_through_the_database() {
    let sshd = Sshd::start();
    let pair = sshd.pair("");
    let id = pair.cat();
    sshd.stop();
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    let answer = call(&pair.desk, &read);
    assert_eq!(answer.body["machine"], "build", "{}", answer.body);
    let listed = listed(&pair.desk);
    let sentence = "Calls to build go through the database, because ssh to build-host failed: ";
    assert!(listed.contains(sentence), "{listed}");
    assert!(listed.contains("Connection refused"), "{listed}");
}

#[test]
fn f73_login_that_leads_to_another_machine_is_not_used() {
    let sshd = Sshd::start();
    let pair = sshd.pair("");
    let id = pair.cat();
    sshd.lead_to(&pair.desk);
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    let answer = call(&pair.desk, &read);
    assert_eq!(answer.body["machine"], "build", "{}", answer.body);
    let listed = listed(&pair.desk);
    assert!(listed.contains("ssh to build-host failed"), "{listed}");
}

#[test]
fn f74_login_without_a_key_of_the_fleet_gets_no_further_than_the_greeting() {
    let pair = Pair::with("");
    let relay = pair.build.output(["relay"]);
    assert_eq!(String::from_utf8_lossy(&relay.stdout), "abide-link 1\n");
    let desk = pair
        .server()
        .sql("SELECT lpad(to_hex(id), 16, '0') FROM abide.machine WHERE name = 'desk'");
    for opener in [desk.as_str(), "00000000000000ff"] {
        let socket = pair.build.path("run/link.sock");
        let mut link = UnixStream::connect(socket).expect("the daemon listens");
        link.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let said = format!("{opener}\nGET /v1/sessions HTTP/1.1\r\nhost: machine\r\n\r\n");
        link.write_all(said.as_bytes()).expect("it is sent");
        let mut answer = Vec::new();
        let _ = link.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("abide-link 1\n"), "{answer:?}");
        assert!(answer.len() < 32 && !answer.contains("HTTP"), "{answer:?}");
    }
}

#[test]
fn relay_of_a_machine_without_a_fleet_says_what_is_missing() {
    let alone = Abide::on(None);
    let relay = alone.output(["relay"]);
    assert!(
        !relay.status.success() && relay.stdout.is_empty(),
        "{relay:?}"
    );
    let said = String::from_utf8_lossy(&relay.stderr).into_owned();
    assert!(said.contains("no fleet secret"), "{said}");
}
