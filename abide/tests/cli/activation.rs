//! A daemon that gets its listening sockets from its parent, as with systemd socket activation.

use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::harness::{Abide, text};

/// Starts a daemon with these sockets as file descriptors 3 and up.
#[expect(clippy::disallowed_methods, reason = "the test starts what it tests")]
fn serve(abide: &Abide, sockets: &[UnixListener]) -> Child {
    let count = sockets.len();
    let script = format!("LISTEN_PID=$$ LISTEN_FDS={count} exec \"$ABIDE\" serve");
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &script])
        .env("ABIDE_DIR", abide.path("abide"))
        .env("ABIDE", env!("CARGO_BIN_EXE_abide"))
        .env("NOTIFY_SOCKET", abide.path("notify"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // Copied to high descriptors first, so that none is overwritten before it is moved.
    let far: Vec<_> = sockets
        .iter()
        .map(|socket| rustix::io::fcntl_dupfd_cloexec(socket, 100).expect("a copy"))
        .collect();
    let raw: Vec<i32> = far.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: only dup2 runs between fork and exec.
    unsafe {
        command.pre_exec(move || {
            for (place, fd) in raw.iter().enumerate() {
                let place = 3 + i32::try_from(place).unwrap_or(0);
                if libc::dup2(*fd, place) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn().expect("a daemon")
}

fn folders(abide: &Abide) {
    let mut private = std::fs::DirBuilder::new();
    private.mode(0o700).recursive(true);
    private.create(abide.path("abide/run")).expect("folders");
}

#[test]
fn passed_sockets_are_served_and_left_in_place() {
    let abide = Abide::new();
    folders(&abide);
    let notify = UnixDatagram::bind(abide.path("notify")).unwrap();
    let sockets = ["http.sock", "mcp.sock"]
        .map(|name| UnixListener::bind(abide.path("abide/run").join(name)).unwrap());
    let mut daemon = serve(&abide, &sockets);
    let mut said = [0; 64];
    let read = notify.recv(&mut said).unwrap();
    assert_eq!(&said[..read], b"READY=1");
    assert_eq!(abide.pid(), daemon.id().cast_signed());
    // Commands do not inherit the variables of socket activation.
    let call = "<tool name=\"shell\"><command>env</command></tool>";
    std::fs::write(abide.path("text"), call).unwrap();
    let started = abide.json(["call", "--json", "text"]);
    let env = started["result"]["text"].as_str().unwrap();
    assert!(env.contains("STATUS: SUCCESS"), "{env}");
    for name in ["LISTEN_", "NOTIFY_SOCKET"] {
        assert!(!env.contains(name), "{env}");
    }
    abide.output(["stop"]);
    assert!(daemon.wait().unwrap().success());
    for name in ["http.sock", "mcp.sock"] {
        assert!(abide.path("abide/run").join(name).exists(), "{name}");
    }
    // Nothing listens once the sockets are closed; the next command starts a daemon.
    drop(sockets);
    assert_ne!(abide.pid(), daemon.id().cast_signed());
}

#[test]
fn passed_socket_at_another_path_is_an_error() {
    let abide = Abide::new();
    folders(&abide);
    let socket = UnixListener::bind(abide.path("elsewhere.sock")).unwrap();
    let daemon = serve(&abide, &[socket]);
    let output = daemon.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(
        said.contains("elsewhere.sock") && said.contains("http.sock"),
        "{said}"
    );
}
