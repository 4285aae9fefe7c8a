//! A user, network and mount namespace with a gate, and a Python program inside it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use abide_gate::process::{Config, receive, serve};
use abide_gate::proxy::Proxies;
use abide_gate::refusals::Listed;
use abide_session::sandbox::gate_sockets;

use crate::world::World;

/// User that creates the namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The user of the test.
    Own,
    /// An ordinary user, if the test runs as root.
    Nobody,
}

const NOBODY: u32 = 65534;
const HIGHEST_CAPABILITY: u32 = 63;

/// All users that can create the namespaces here.
pub fn users() -> &'static [User] {
    match rustix::process::geteuid().is_root() {
        true => &[User::Own, User::Nobody],
        false => &[User::Own],
    }
}

/// A sandbox whose program is running.
pub struct Sandbox {
    child: Option<Child>,
    gate: Option<JoinHandle<Listed>>,
    _folder: tempfile::TempDir,
}

/// Exit of a program and of its gate.
#[derive(Debug)]
pub struct Ended {
    pub text: String,
    pub refusals: Listed,
}

/// Python functions that the programs use.
const PRELUDE: &str = r#"
import errno, os, socket, ssl, struct, subprocess, sys, time
socket.setdefaulttimeout(50)
def say(*words): print(*words, flush=True)
def attempt(act, *words):
    try: return act(*words)
    except socket.gaierror: return "no such name"
    # A program may notice the reset when it sends, when it ends its direction or when it reads.
    except OSError as e:
        if e.errno in [errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN]: return "reset"
        return errno.errorcode.get(e.errno, type(e).__name__)
def connect(name, port): return socket.create_connection((name, port))
def exchange(name, port, text=b"hello"):
    with connect(name, port) as s:
        s.sendall(text)
        s.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: s.recv(65536), b"")).decode()
def tls(name, port, server_name, text=b"hello"):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with connect(name, port) as s, context.wrap_socket(s, server_hostname=server_name) as t:
        t.sendall(text)
        return t.recv(65536).decode()
"#;

impl Sandbox {
    /// Starts a program with a gate of this configuration.
    pub fn start(user: User, config: Config, world: World, program: &str) -> Self {
        Self::start_with(user, config, world, Proxies::default(), None, program)
    }

    /// Starts a program whose gate has a control socket and proxies.
    pub fn start_with(
        user: User,
        config: Config,
        world: World,
        proxies: Proxies,
        control: Option<OwnedFd>,
        program: &str,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let resolv_conf = folder.path().join("resolv.conf");
        std::fs::write(&resolv_conf, "nameserver 127.0.0.1\n").expect("resolv.conf");
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), readable).expect("permissions");

        let allow = abide_gate::allowlist::Allowlist::parse(&config.allow).expect("patterns");
        let (own, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair of sockets");
        let child = spawn(
            user,
            &allow.ports(),
            &config.host_ports,
            &theirs,
            &resolv_conf,
            program,
        );
        let config = serde_json::to_string(&config).expect("JSON");
        let config = format!("{}\n{config}", child.id());
        let control: Vec<_> = control.iter().map(AsFd::as_fd).collect();
        abide_session::fd_passing::send(theirs.as_fd(), config.as_bytes(), &control)
            .expect("the configuration is sent");
        drop(theirs);
        let gate = std::thread::spawn(move || {
            let received = receive(&own).expect("sockets");
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let serve = serve(received, None, Box::new(world), Ok(proxies));
            runtime
                .expect("a runtime")
                .block_on(serve)
                .expect("the gate ends in peace")
        });
        Self {
            child: Some(child),
            gate: Some(gate),
            _folder: folder,
        }
    }

    /// The process inside.
    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("a program")
    }

    /// Waits for the end of the program and of the gate.
    pub fn finish(mut self) -> Ended {
        let output = self
            .child
            .take()
            .expect("a program")
            .wait_with_output()
            .expect("output");
        let refusals = self
            .gate
            .take()
            .expect("a gate")
            .join()
            .expect("the gate does not panic");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(output.status.success(), "{:?}: {text}", output.status);
        Ended { text, refusals }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ended {
    /// The lines the program printed.
    pub fn lines(&self) -> Vec<&str> {
        self.text.lines().collect()
    }

    /// Name, port (0 for none), reason and count of each refusal.
    pub fn refused(&self) -> Vec<(&str, u64, &str, u64)> {
        let refused = self.refusals.entries.iter().map(|entry| {
            let port = u64::from(entry.port.unwrap_or(0));
            (
                entry.name.as_str(),
                port,
                entry.reason.as_str(),
                entry.count,
            )
        });
        refused.collect()
    }
}

/// A Python program with [`PRELUDE`], in an empty environment.
#[expect(clippy::disallowed_methods, reason = "the test starts its own program")]
pub fn python(program: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", &format!("{PRELUDE}\n{program}")]);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

fn spawn(
    user: User,
    ports: &[u16],
    host_ports: &[u16],
    channel: &OwnedFd,
    resolv_conf: &Path,
    program: &str,
) -> Child {
    let mut command = python(program);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .current_dir("/");
    let (ports, host_ports) = (ports.to_vec(), host_ports.to_vec());
    let channel = channel.try_clone().expect("a descriptor");
    let resolv_conf = PathBuf::from(resolv_conf);
    let build = move || {
        if user == User::Nobody {
            become_nobody()?;
        }
        enter_namespaces()?;
        let sockets = gate_sockets::open_sockets(&ports, &host_ports).map_err(io::Error::other)?;
        gate_sockets::send(channel.as_fd(), &sockets).map_err(io::Error::other)?;
        bind_over(&resolv_conf, c"/etc/resolv.conf")?;
        drop_capabilities()
    };
    // SAFETY: the closure allocates, which glibc allows in the child of a fork; it takes no lock of this process.
    unsafe { command.pre_exec(build) };
    command.spawn().expect("a sandbox")
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn become_nobody() -> io::Result<()> {
    // SAFETY: plain system calls with numbers and a null pointer of length zero.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(NOBODY, NOBODY, NOBODY))?;
        check(libc::setresuid(NOBODY, NOBODY, NOBODY))?;
        // Otherwise the files in /proc/self belong to root.
        check(libc::prctl(libc::PR_SET_DUMPABLE, 1))
    }
}

fn enter_namespaces() -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    // SAFETY: a plain system call.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS) })?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn bind_over(source: &Path, target: &std::ffi::CStr) -> io::Result<()> {
    let source =
        std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(source.as_os_str()))?;
    // SAFETY: both paths are strings that end with NUL and live until the call returns.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            std::ptr::null(),
            libc::MS_BIND,
            std::ptr::null(),
        )
    };
    check(result)
}

fn drop_capabilities() -> io::Result<()> {
    for capability in 0..=HIGHEST_CAPABILITY {
        // SAFETY: a plain system call. It fails for numbers that this kernel does not have.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability) };
    }
    Ok(())
}

/// A listening unix socket in its own directory, and its path.
pub fn control_socket() -> (tempfile::TempDir, PathBuf, OwnedFd) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gate.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    assert!(listener.as_raw_fd() >= 0);
    (folder, path, listener.into())
}
