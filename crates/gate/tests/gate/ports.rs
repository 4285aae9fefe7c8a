//! Ports of the sandbox: those the gate holds, and those it publishes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use abide_gate::proxy::Proxies;
use serde_json::{Value, json};

use crate::allow;
use crate::sandbox::{Sandbox, control_socket, users};
use crate::world::World;

/// A free port below those that the kernel gives out by itself. Processes begin their search at different places.
fn free_port() -> u16 {
    let start = 20_000 + (std::process::id() % 1_000) as u16 * 10;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (start..32_000).find(is_free).expect("a free port")
}

fn next_line(lines: &mut impl BufRead) -> Value {
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    serde_json::from_str(&line).expect("JSON")
}

fn exchange(port: u16) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("published");
    stream.write_all(b"hello").expect("sent");
    stream.shutdown(Shutdown::Write).expect("ended");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn g121_ports_of_the_sandbox_are_published_on_loopback() {
    for user in users() {
        for family in [
            "socket.AF_INET, '0.0.0.0'",
            "socket.AF_INET, '127.0.0.1'",
            "socket.AF_INET6, '::1'",
        ] {
            let port = free_port();
            let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let taken_port = taken.local_addr().expect("an address").port();
            let program = format!(
                r#"
def listen(family, address, port):
    s = socket.socket(family)
    s.bind((address, port)); s.listen()
    return s
other = listen(socket.AF_INET, "127.0.0.1", {taken_port})
server = listen({family}, {port})
for _ in range(200):
    s, _ = server.accept()
    text = b"".join(iter(lambda: s.recv(100), b""))
    s.sendall(text.upper()); s.close()
server.close()
sys.stdin.readline()
"#
            );
            let (_folder, path, control) = control_socket();
            let mut config = allow(&[]);
            config.publish = true;
            let mut sandbox = Sandbox::start_with(
                *user,
                config,
                World::default(),
                Proxies::default(),
                Some(control),
                &program,
            );
            let stdin = sandbox.child().stdin.take();
            let mut lines = BufReader::new(UnixStream::connect(path).expect("the gate listens"));
            let mut told = vec![next_line(&mut lines), next_line(&mut lines)];
            told.sort_by_key(|line| line["event"].to_string());
            let reason = "the port is in use on this machine";
            assert_eq!(
                told,
                [
                    json!({"event":"not_published","port":taken_port,"reason":reason}),
                    json!({"event":"published","port":port}),
                ]
            );
            let rows = listening_on(port);
            assert_eq!(rows, ["0100007F"], "loopback only");
            // More connections than there are sockets for them: each is used again.
            for _ in 0..200 {
                assert_eq!(exchange(port), "HELLO");
            }
            assert_eq!(
                next_line(&mut lines),
                json!({"event":"unpublished","port":port})
            );
            assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
            drop(stdin);
            sandbox.finish();
        }
    }
}

/// Local addresses of the host's sockets that listen on a port.
fn listening_on(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("a table")
        + &std::fs::read_to_string("/proc/self/net/tcp6").unwrap_or_default();
    let rows = table.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (address, hex) = fields.next()?.split_once(':')?;
        let listens = fields.nth(1)? == "0A";
        (listens && hex == format!("{port:04X}")).then(|| address.to_owned())
    });
    rows.collect()
}

#[test]
fn g121_reserved_ports_and_ports_of_the_gate_are_not_published() {
    let port = free_port();
    let program = format!(
        r#"
s = socket.socket(); s.bind(("127.0.0.1", {port})); s.listen()
sys.stdin.readline()
"#
    );
    let (_folder, path, control) = control_socket();
    let mut config = allow(&["allowed.test:8443"]);
    config.publish = true;
    config.never_publish = vec![port];
    let proxies = Proxies::default();
    let mut sandbox = Sandbox::start_with(
        users()[0],
        config,
        World::default(),
        proxies,
        Some(control),
        &program,
    );
    let stdin = sandbox.child().stdin.take();
    let mut lines = BufReader::new(UnixStream::connect(path).expect("the gate listens"));
    let reason = "the port is reserved on this machine";
    assert_eq!(
        next_line(&mut lines),
        json!({"event":"not_published","port":port,"reason":reason})
    );
    drop(stdin);
    sandbox.finish();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("the end");
    assert_eq!(rest, "", "nothing else was told");
}

#[test]
fn g122_ports_of_the_gate_are_in_use_inside() {
    let program = r#"
def bind(kind, address, port):
    s = socket.socket(socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((address, port))
    if kind == socket.SOCK_STREAM: s.listen()
    return "bound"
for address in ["0.0.0.0", "127.0.0.1", "198.18.0.1"]: say(attempt(bind, socket.SOCK_STREAM, address, 8443))
say(attempt(bind, socket.SOCK_STREAM, "127.0.0.1", 443))
say(attempt(bind, socket.SOCK_DGRAM, "127.0.0.1", 53))
say(attempt(bind, socket.SOCK_STREAM, "127.0.0.1", 8444))
"#;
    for user in users() {
        let config = allow(&["allowed.test:8443"]);
        let ended = Sandbox::start(*user, config, World::default(), program).finish();
        let in_use = ["EADDRINUSE"; 3];
        // Ports below 1024 need a capability, which the kernel checks first.
        assert_eq!(
            ended.lines(),
            [&in_use[..], &["EACCES", "EACCES", "bound"]].concat()
        );
    }
}
