//! Bytes, limits and ends of connections, and the proxy of the host.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use abide_gate::MAX_CONNECTIONS;
use abide_gate::process::Config;
use abide_gate::proxy::Proxies;

use crate::allow;
use crate::sandbox::{Sandbox, users};
use crate::world::{PUBLIC, World, capitals, server, tls_capitals};

#[test]
fn bytes_pass_both_ways_and_each_side_can_end_first() {
    let world = World::default()
        .name("allowed.test", PUBLIC)
        .server(80, capitals());
    let program = r#"
text = os.urandom(1 << 16).hex().encode() * 256
assert exchange("allowed.test", 80, text).encode() == text.upper()
say(len(text))
"#;
    for user in users() {
        for copy_only in [false, true] {
            let config = Config {
                copy_only,
                ..allow(&["allowed.test"])
            };
            let ended = Sandbox::start(*user, config, world.clone(), program).finish();
            assert_eq!(ended.text, (32 << 20).to_string());
        }
    }
}

#[test]
fn a_reset_outside_is_a_reset_inside() {
    let resets = server(|mut stream| {
        stream.read_exact(&mut [0; 5])?;
        // Closing a socket with unread bytes resets the connection.
        stream.peek(&mut [0; 1]).map(|_| ())
    });
    let world = World::default()
        .name("allowed.test", PUBLIC)
        .server(80, resets);
    let program = r#"
with connect("allowed.test", 80) as s:
    s.sendall(b"hello, world")
    say(attempt(s.recv, 10))
"#;
    let ended = Sandbox::start(users()[0], allow(&["allowed.test"]), world, program).finish();
    assert_eq!(ended.text, "reset");
}

#[test]
fn the_last_bytes_of_a_program_that_ended_are_passed_on() {
    let (sender, receiver) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let slow = server(move |mut stream| {
        let _ = wait.lock().expect("one connection").recv();
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        sender.send(text.len()).map_err(std::io::Error::other)
    });
    let world = World::default()
        .name("allowed.test", PUBLIC)
        .server(80, slow);
    let program = r#"
s = connect("allowed.test", 80)
s.sendall(b"x" * 100000)
"#;
    let mut sandbox = Sandbox::start(users()[0], allow(&["allowed.test"]), world, program);
    sandbox.child().wait().expect("the program ends");
    go.send(()).expect("the server waits");
    assert_eq!(receiver.recv().expect("the server"), 100_000);
    sandbox.finish();
}

#[test]
fn g123_flood_of_connections_is_bounded_and_others_continue() {
    static OPEN: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let counting = server(|mut stream| {
        let open = OPEN.fetch_add(1, Ordering::SeqCst) + 1;
        MOST.fetch_max(open, Ordering::SeqCst);
        let read = stream.read_to_end(&mut Vec::new());
        // Counted before the other side can see the end.
        OPEN.fetch_sub(1, Ordering::SeqCst);
        read.and_then(|_| stream.write_all(b"done"))
    });
    let world = World::default()
        .name("flood.test", PUBLIC)
        .server(80, counting);
    let program = format!(
        r#"
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = [connect("flood.test", 80) for _ in range({MAX_CONNECTIONS} + 60)]
socket.gethostbyname("flood.test")
for s in held: s.shutdown(socket.SHUT_WR)
say(sum(s.recv(10) == b"done" for s in held))
say(attempt(exchange, "flood.test", 80))
"#
    );
    let ended = Sandbox::start(users()[0], allow(&["flood.test"]), world, &program).finish();
    assert_eq!(
        ended.lines(),
        [(MAX_CONNECTIONS + 60).to_string().as_str(), "done"]
    );
    let most = MOST.load(Ordering::SeqCst);
    assert!((100..=MAX_CONNECTIONS).contains(&most), "{most}");
}

#[test]
fn g127_the_gate_dials_through_the_proxy_of_the_host() {
    let target = tls_capitals();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&asked);
    let proxy = server(move |mut stream| {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            request.push(byte[0]);
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        let refused = request.contains("forbidden");
        requests.lock().expect("requests").push(request);
        if refused {
            return stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n");
        }
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        let mut outside = std::net::TcpStream::connect(target)?;
        let (mut from, mut to) = (stream.try_clone()?, outside.try_clone()?);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            to.shutdown(Shutdown::Write)
        });
        std::io::copy(&mut outside, &mut stream).map(|_| ())
    });
    let proxies = Proxies::from_variables(|name| match name {
        "HTTPS_PROXY" => Some(format!("http://me:secret@{proxy}")),
        _ => None,
    });
    let world = World::default();
    let program = r#"
say(attempt(tls, "allowed.test", 443, "allowed.test"))
say(attempt(tls, "forbidden.test", 443, "forbidden.test"))
say(attempt(tls, "evil.example", 443, "evil.example"))
"#;
    let config = allow(&["*.test"]);
    let sandbox = Sandbox::start_with(
        users()[0],
        config,
        world.clone(),
        proxies.expect("proxies"),
        None,
        program,
    );
    let ended = sandbox.finish();
    assert_eq!(ended.lines(), ["HELLO", "reset", "no such name"]);
    assert!(world.looked_up().is_empty(), "the proxy looks names up");
    let asked = asked.lock().expect("requests");
    assert_eq!(
        asked[0],
        "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
    );
    assert_eq!(asked.len(), 2);
    let failed = &ended.refusals.entries[0];
    assert_eq!(failed.outcome, abide_gate::refusals::Outcome::Failed);
    assert_eq!(
        failed.reason,
        "the proxy of this machine did not connect: it answered \"HTTP/1.1 403 Forbidden\""
    );
}
