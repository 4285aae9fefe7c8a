//! Questions about names that no rule knows, as a daemon sees them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use abide_gate::process::Config;
use abide_gate::proxy::Proxies;
use serde_json::{Value, json};

use crate::allow;
use crate::sandbox::{Sandbox, User, control_socket, users};
use crate::world::{PUBLIC, World, capitals};

/// The daemon's end of the control socket.
struct Daemon {
    lines: BufReader<UnixStream>,
}

impl Daemon {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the gate listens");
        Self {
            lines: BufReader::new(stream),
        }
    }

    /// The next line of this kind.
    fn next(&mut self, event: &str) -> Value {
        loop {
            let mut line = String::new();
            let length = self.lines.read_line(&mut line).expect("a line");
            assert!(length > 0, "the gate is gone");
            let value: Value = serde_json::from_str(&line).expect("JSON");
            if value["event"] == event {
                return value;
            }
        }
    }

    fn answer(&mut self, id: &Value, answer: &str) {
        let line = json!({ "id": id, "answer": answer });
        writeln!(self.lines.get_mut(), "{line}").expect("the gate reads");
    }
}

fn asking() -> Config {
    Config {
        ask: true,
        ..allow(&["allowed.test"])
    }
}

fn world() -> World {
    let world = World::default().server(80, capitals());
    world
        .name("allowed.test", PUBLIC)
        .name("new.test", PUBLIC)
        .name("evil.test", PUBLIC)
}

fn start(
    user: User,
    config: Config,
    world: World,
    control: std::os::fd::OwnedFd,
    program: &str,
) -> Sandbox {
    Sandbox::start_with(
        user,
        config,
        world,
        Proxies::default(),
        Some(control),
        program,
    )
}

#[test]
fn g124_five_processes_put_one_question_and_all_wait_for_its_answer() {
    for user in users() {
        let (_folder, path, control) = control_socket();
        let program = r#"
children = []
for _ in range(5):
    if os.fork() == 0:
        say(attempt(exchange, "new.test", 80))
        os._exit(0)
for _ in range(5): os.wait()
say(attempt(exchange, "evil.test", 80))
say(attempt(exchange, "evil.test", 80))
say(attempt(exchange, "allowed.test", 80))
"#;
        let world = world();
        let sandbox = start(*user, asking(), world.clone(), control, program);
        let mut daemon = Daemon::connect(&path);
        let question = daemon.next("question");
        assert_eq!(
            question,
            json!({"event":"question","id":1,"name":"new.test","port":80})
        );
        assert!(
            world.looked_up().is_empty(),
            "nothing leaves before the answer"
        );
        daemon.answer(&question["id"], "this agent");
        assert_eq!(daemon.next("withdrawn")["id"], 1);
        let question = daemon.next("question");
        assert_eq!(
            question,
            json!({"event":"question","id":2,"name":"evil.test","port":80})
        );
        daemon.answer(&question["id"], "no");
        let ended = sandbox.finish();
        let capitals = ["HELLO"; 5];
        assert_eq!(
            ended.lines(),
            [&capitals[..], &["reset", "reset", "HELLO"]].concat()
        );
        assert_eq!(
            ended.refused(),
            [("evil.test", 80, "the question was answered \"no\"", 2)]
        );
    }
}

#[test]
fn g124_question_is_withdrawn_when_the_program_is_killed() {
    let (_folder, path, control) = control_socket();
    let program = r#"
child = os.fork()
if child == 0:
    connect("new.test", 80).recv(1)
sys.stdin.readline()
os.kill(child, 9)
os.wait()
say("killed")
sys.stdin.readline()
"#;
    let mut sandbox = start(users()[0], asking(), world(), control, program);
    let mut daemon = Daemon::connect(&path);
    let mut stdin = sandbox.child().stdin.take().expect("standard input");
    let question = daemon.next("question");
    writeln!(stdin, "kill").expect("the program reads");
    assert_eq!(daemon.next("withdrawn")["id"], question["id"]);
    drop(stdin);
    let ended = sandbox.finish();
    assert_eq!(ended.text, "killed");
    assert!(ended.refusals.is_empty(), "{:?}", ended.refusals);
}

#[test]
fn g125_once_for_the_connection_asks_again() {
    let (_folder, path, control) = control_socket();
    let mut config = asking();
    config.once_lasts = abide_gate::questions::OnceLasts::Connection;
    let program = r#"
say(attempt(exchange, "new.test", 80))
say(attempt(exchange, "new.test", 80))
"#;
    let sandbox = start(users()[0], config, world(), control, program);
    let mut daemon = Daemon::connect(&path);
    for id in 1..=2 {
        let question = daemon.next("question");
        assert_eq!(question["id"], id);
        daemon.answer(&question["id"], "once");
    }
    assert_eq!(sandbox.finish().lines(), ["HELLO", "HELLO"]);
}

#[test]
fn g126_connections_and_questions_survive_the_daemon() {
    let (_folder, path, control) = control_socket();
    let program = r#"
running = connect("allowed.test", 80)
running.sendall(b"before ")
say(attempt(exchange, "new.test", 80))
running.sendall(b"after")
running.shutdown(socket.SHUT_WR)
say(running.recv(100).decode())
"#;
    let sandbox = start(users()[0], asking(), world(), control, program);
    let mut first = Daemon::connect(&path);
    let question = first.next("question");
    drop(first);
    let mut second = Daemon::connect(&path);
    assert_eq!(
        second.next("question"),
        question,
        "a new daemon is shown what is open"
    );
    second.answer(&question["id"], "always here");
    assert_eq!(sandbox.finish().lines(), ["HELLO", "BEFORE AFTER"]);
}

#[test]
fn names_of_local_networks_do_not_exist_and_are_not_asked_about() {
    let (_folder, path, control) = control_socket();
    let program = r#"
for name in ["printer", "printer.local", "db.internal", "x.onion"]: say(attempt(connect, name, 80))
"#;
    let sandbox = start(users()[0], asking(), world(), control, program);
    let mut daemon = Daemon::connect(&path);
    let refused = daemon.next("refused");
    assert_eq!(refused["name"], "printer");
    assert_eq!(refused["reason"], "the name is not allowed");
    assert_eq!(sandbox.finish().lines(), ["no such name"; 4]);
}

#[test]
fn the_daemon_is_told_of_refusals_with_their_count() {
    let (_folder, path, control) = control_socket();
    let program = r#"
for _ in range(3): attempt(tls, "allowed.test", 443, "evil.test")
sys.stdin.readline()
"#;
    let mut sandbox = start(users()[0], asking(), world(), control, program);
    let stdin = sandbox.child().stdin.take();
    let mut daemon = Daemon::connect(&path);
    let mut refused = daemon.next("refused");
    while refused["count"] != 3 {
        refused = daemon.next("refused");
    }
    assert_eq!(
        refused,
        json!({"event":"refused","outcome":"refused","name":"allowed.test","port":443,
            "reason":"TLS names another server, \"evil.test\"","count":3})
    );
    drop(stdin);
    sandbox.finish();
}
