//! The outside of the network tests: two network namespaces with a cable between them. The daemon runs in the one, on a
//! machine with the address 93.184.216.1; the other is an internet in which every address answers (`outside.py`).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::harness::{User, as_each_user};

/// Network of one test. Dropping it ends its processes.
pub struct Outside {
    folder: TempDir,
    machine: Child,
    internet: Child,
}

/// Runs a test as each user, on a machine that is connected to an internet of its own.
pub fn with_outside(test: impl Fn(&User, &Outside)) {
    as_each_user(|user| {
        let outside = Outside::make();
        user.enter(outside.machine.id());
        test(user, &outside);
        user.stop();
    });
}

/// Arguments of `unshare` and `nsenter` for a user who is not root.
fn as_root_of_its_own(words: &[&'static str]) -> Vec<&'static str> {
    match rustix::process::getuid().is_root() {
        true => Vec::new(),
        false => words.to_vec(),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test starts its own programs"
)]
fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Starts a process and waits for its first line.
fn ready(command: &mut Command) -> Child {
    let mut child = command.spawn().expect("a process");
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n", "{command:?}");
    child
}

fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("a program");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Outside {
    fn make() -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = folder.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
        fs::write(path.join("resolv.conf"), "nameserver 93.184.216.53\n").expect("a file");
        fs::write(path.join("hosts"), "127.0.0.1 localhost\n").expect("a file");
        fs::write(path.join("queries"), "").expect("a file");
        certificate(path);
        let machine = ready(
            program("unshare")
                .args(as_root_of_its_own(&["--user", "--map-root-user"]))
                .args(["--net", "--mount", "bash", "-ec"])
                .arg(
                    "ip link set lo up; mount --bind resolv.conf /etc/resolv.conf; mount --bind hosts /etc/hosts; \
                     echo ready; exec cat",
                )
                .current_dir(path),
        );
        let pid = machine.id().to_string();
        let inside = |target: &str| {
            let mut command = program("nsenter");
            command
                .args(["--target", target, "--net"])
                .args(as_root_of_its_own(&["--user", "--preserve-credentials"]));
            command
        };
        let internet = ready(
            inside(&pid)
                .args(["unshare", "--net", "bash", "-ec"])
                .arg(
                    "echo ready; read go; ip link set lo up; ip addr add 93.184.216.34/24 dev v1; ip link set v1 up; \
                     for net in 1.0.0.0/8 8.0.0.0/8 10.0.0.0/8 169.254.0.0/16 93.184.216.53/32; do ip route add local $net dev lo; done; \
                     exec /usr/bin/python3 \"$0\" .",
                )
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sandbox/outside.py"))
                .current_dir(path),
        );
        let mut outside = Outside {
            machine,
            internet,
            folder,
        };
        let cable = format!(
            "ip link add name v0 type veth peer name v1 netns {}; ip addr add 93.184.216.1/24 dev v0; \
             ip link set v0 up; ip route add default via 93.184.216.34",
            outside.internet.id()
        );
        succeed(inside(&pid).args(["bash", "-ec", &cable]));
        let input = outside.internet.stdin.as_mut().expect("input");
        input.write_all(b"go\n").expect("the server reads");
        let mut line = String::new();
        let output = outside.internet.stdout.as_mut().expect("output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        outside
    }

    /// Makes registries of package managers, which the web servers have below `/files`.
    pub fn make_registries(&self) {
        succeed(
            program("/usr/bin/python3")
                .arg(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/tests/sandbox/registry.py"
                ))
                .current_dir(self.folder.path()),
        );
    }

    /// Adds a line to the file of hosts of the machine.
    pub fn add_host(&self, line: &str) {
        let hosts = fs::OpenOptions::new()
            .append(true)
            .open(self.folder.path().join("hosts"));
        writeln!(hosts.expect("a file"), "{line}").expect("it can be written");
    }

    /// Lines that the servers have logged: names that were looked up with the kind of the query, and requests to the proxy.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("queries")).expect("the log");
        text.lines().map(str::to_owned).collect()
    }

    /// Names that were looked up outside, each once.
    pub fn looked_up(&self) -> Vec<String> {
        let lines = self.log();
        let mut names: Vec<String> = (lines.iter())
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        for child in [&mut self.internet, &mut self.machine] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn certificate(folder: &Path) {
    succeed(
        program("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args([
                "-nodes",
                "-subj",
                "/CN=allowed.test",
                "-keyout",
                "key.pem",
                "-out",
                "cert.pem",
            ])
            .args(["-addext", "subjectAltName=DNS:allowed.test"])
            .current_dir(folder),
    );
}
