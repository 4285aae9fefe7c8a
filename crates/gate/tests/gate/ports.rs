//! Ports of the sandbox: ports that the gate reserves, and ports that it publishes.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;

use abide_gate::proxy::Proxies;
use serde_json::{Value, json};

use crate::allow;
use crate::sandbox::{Sandbox, control_socket, users};
use crate::world::World;

/// A free port below the ephemeral range of the kernel. Each process begins its search at another port.
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

/// Starts a program that listens on this port until its input ends, with a gate that publishes its ports.
fn listening_sandbox(port: u16, never_publish: Vec<u16>) -> (Sandbox, impl BufRead) {
    let program = format!(
        r#"
s = socket.socket(); s.bind(("127.0.0.1", {port})); s.listen()
sys.stdin.readline()
"#
    );
    let (_folder, path, control) = control_socket();
    let mut config = allow(&["allowed.test:8443"]);
    config.publish = true;
    config.never_publish = never_publish;
    let proxies = Proxies::default();
    let sandbox = Sandbox::start_with(
        users()[0],
        config,
        World::default(),
        proxies,
        Some(control),
        &program,
    );
    let lines = BufReader::new(UnixStream::connect(path).expect("the gate listens"));
    (sandbox, lines)
}

#[test]
fn g121_reserved_ports_and_ports_of_the_gate_are_not_published() {
    let port = free_port();
    let (mut sandbox, mut lines) = listening_sandbox(port, vec![port]);
    let stdin = sandbox.child().stdin.take();
    let reason = "the port is reserved on this machine";
    assert_eq!(
        next_line(&mut lines),
        json!({"event":"not_published","port":port,"reason":reason})
    );
    drop(stdin);
    sandbox.finish();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("the end");
    assert!(!rest.contains("\"published\""), "{rest}");
}

#[test]
fn g121_port_that_was_in_use_is_published_when_it_is_free() {
    let port = free_port();
    let in_use = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
    let (mut sandbox, mut lines) = listening_sandbox(port, Vec::new());
    let stdin = sandbox.child().stdin.take();
    let reason = "the port is in use on this machine";
    assert_eq!(
        next_line(&mut lines),
        json!({"event":"not_published","port":port,"reason":reason})
    );
    drop(in_use);
    assert_eq!(
        next_line(&mut lines),
        json!({"event":"published","port":port})
    );
    drop(stdin);
    sandbox.finish();
}
