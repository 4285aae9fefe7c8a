//! Attacks 95 to 105: unix sockets and local services. Descriptors of another program (101) need one of its sockets.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::harness::as_each_user;

#[test]
fn sockets_of_other_programs_are_unreachable() {
    as_each_user(|user| {
        let places =
            ["home/agent", "work/in-workspace", "outside/visible"].map(|name| user.path(name));
        let temporary = tempfile::Builder::new()
            .prefix("ssh-")
            .tempdir()
            .expect("a folder");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(temporary.path(), open).expect("permissions");
        let in_tmp = temporary.path().join("agent.1");
        let mut listeners = Vec::new();
        for place in places.iter().chain([&in_tmp]) {
            listeners.push(UnixListener::bind(place).expect("a socket"));
            let all = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(place, all).expect("permissions");
        }
        for place in places.iter().chain([&in_tmp]) {
            let said = user.python(&format!(
                "print('answer', attempt(lambda: socket.socket(socket.AF_UNIX).connect('{}')))",
                place.display()
            ));
            let closed = ["ECONNREFUSED", "ENOENT", "EACCES"];
            assert!(
                closed.iter().any(|word| said.contains(word)),
                "95, 96, 99: {place:?}: {said}"
            );
        }
        let said = user
            .python("print(sorted(os.listdir('/run')), os.path.exists('/var/run/docker.sock'))");
        assert!(
            ["dbus", "docker", "WSL"]
                .iter()
                .all(|name| !said.contains(name)),
            "95, 97, 105: {said}"
        );
        assert!(said.contains("False"), "{said}");
    });
}

#[test]
fn abstract_sockets_are_unreachable_with_network_too() {
    as_each_user(|user| {
        let name = format!("abide-attack-{}-{}", std::process::id(), user.is_root());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let _listener = UnixListener::bind_addr(&address).expect("a socket");
        let program = format!(
            "import socket, errno\ntry:\n  socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('connected')\nexcept OSError as e: print(errno.errorcode[e.errno])"
        );
        for (network, expected) in [("on", "EPERM\n"), ("off", "ECONNREFUSED\n")] {
            let options = ["--sandbox", "workspace-write", "--network", network];
            let ran = user.run_in(&options, &format!("/usr/bin/python3 - <<'X'\n{program}\nX"));
            assert_eq!(ran.text, expected, "98");
        }
    });
}

#[test]
fn own_sockets_pipes_and_pairs_work() {
    as_each_user(|user| {
        let said = user.python(
            r#"
import tempfile
for place in (tempfile.mkdtemp(), ".", os.path.expanduser("~"), "/dev/shm"):
    server = socket.socket(socket.AF_UNIX)
    server.bind(place + "/own.sock")
    server.listen()
    print("102", attempt(lambda: socket.socket(socket.AF_UNIX).connect(place + "/own.sock")))
    os.unlink(place + "/own.sock")
server = socket.socket(socket.AF_UNIX)
server.bind("\0own")
server.listen()
print("102", attempt(lambda: socket.socket(socket.AF_UNIX).connect("\0own")))
a, b = socket.socketpair()
a.send(b"x")
print("103", b.recv(1), os.pipe() and "ok")
"#,
        );
        assert_eq!(said.matches("102 ok").count(), 5, "{said}");
        assert!(said.contains("103 b'x' ok"), "{said}");
    });
}

#[test]
fn fifo_outside_cannot_be_written() {
    as_each_user(|user| {
        user.outside("mkfifo $ROOT/outside/fifo own");
        let mut reader = user
            .command("/bin/cat")
            .arg(user.path("outside/fifo"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("cat runs");
        user.refused(
            "104",
            &["echo x > $ROOT/outside/fifo"],
            &["Permission denied", "Read-only"],
        );
        user.works("104", "cat own & echo inside > own; wait");
        user.outside("echo outside > $ROOT/outside/fifo");
        let mut text = String::new();
        let mut output = reader.stdout.take().expect("a pipe");
        std::io::Read::read_to_string(&mut output, &mut text).expect("text");
        assert_eq!(text, "outside\n", "104");
        reader.wait().expect("an ending");
    });
}
