//! Two real daemons on one PostgreSQL server: calls from one machine to the other, and the rights that the target gives.

mod agents;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
mod conditions;
mod events;
mod faults;
#[path = "../faults/harness.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod harness;
mod links;
mod lost;
mod membership;
mod one_list;
#[path = "../postgres/proxy.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod proxy;
mod ssh;
#[path = "../common/terminal_page.rs"]
mod terminal_page;
mod terminals;

use std::os::unix::net::UnixStream;

use harness::postgres::Server;
use harness::{Abide, Answer, look_for};
use serde_json::{Value, json};

/// Secret of the fleets of these tests.
const SECRET: &str = "3f6a1c0e9b8d7f5a4c2e1b0d9f8a7c6e5d4b3a29181706f5e4d3c2b1a0918273";

/// Notifies every machine, which then looks at the others at once. A slow heartbeat comes only every five seconds.
const LOOK: &str =
    "SELECT pg_notify('abide_look_' || lpad(to_hex(id), 16, '0'), '') FROM abide.machine";

/// Two machines of a fleet: `desk`, with the server, and `build`.
struct Pair {
    build: Abide,
    desk: Abide,
}

impl Pair {
    /// Both machines, which know each other. `rights` is the configuration of `build` below its first lines.
    fn with(rights: &str) -> Self {
        let server = Server::start();
        let url = server.url();
        Pair::started_by(server, &url, rights, |machine| machine.start())
    }

    /// The same, with a database that both reach at this address, and daemons that `start` starts.
    fn started_by(server: Server, url: &str, rights: &str, start: impl Fn(&Abide)) -> Self {
        let (desk, build) = (Abide::on(Some(server)), Abide::on(None));
        let store = format!("store = {url:?}\n");
        let config = format!("{store}machine = \"desk\"\n");
        std::fs::write(desk.path("config.toml"), config).expect("a configuration");
        let config = format!("{store}machine = \"build\"\nlabels = [\"gpu\"]\n{rights}");
        std::fs::write(build.path("config.toml"), config).expect("a configuration");
        for machine in [&desk, &build] {
            give_secret(machine, SECRET);
            start(machine);
        }
        let pair = Pair { build, desk };
        pair.wait_known();
        pair
    }

    fn server(&self) -> &Server {
        self.desk.server.as_ref().expect("a server")
    }

    /// Waits until each machine knows the other.
    fn wait_known(&self) {
        self.wait_vouched_for(2);
    }

    /// Waits until both machines list so many that are vouched for.
    fn wait_vouched_for(&self, count: usize) {
        for machine in [&self.desk, &self.build] {
            look_for("machines with keys", || {
                let known = machine.get("/v1/machines");
                let known = known["machines"].as_array()?;
                let vouched = known.iter().filter(|known| known["vouched_for"] == true);
                if vouched.count() == count {
                    return Some(());
                }
                self.server().sql(LOOK);
                None
            });
        }
    }

    /// Session on `build` that waits for lines and repeats them, once the directory has it.
    fn cat(&self) -> String {
        self.started("cat", true)
    }

    /// Session on `build`, in a terminal if `pty` is true, once the directory has it.
    fn started(&self, command: &str, pty: bool) -> String {
        let started = call(
            &self.build,
            &json!({"action": "start", "command": command, "pty": pty, "inactivity_timeout": 0}),
        );
        let id = started.body["session_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        self.wait_listed(&id);
        id
    }

    /// Call of a quiet command on `build`, and the id of its question, once `desk` lists it.
    fn asked_on_build(&self) -> (UnixStream, Value) {
        let begun = self.build.begin(
            "/v1/tools/execute_command",
            &json!({"command": "sleep 600", "timeout": 1}),
        );
        let question = look_for("a question", || {
            let listed = self.desk.get("/v1/questions");
            let question = &listed["questions"][0];
            (question["machine"] == "build").then(|| question["question_id"].clone())
        });
        (begun, question)
    }

    fn wait_listed(&self, id: &str) {
        let sql = format!("SELECT count(*) FROM abide.session WHERE id = '{id}'");
        look_for("a row of the directory", || {
            (self.server().sql(&sql) == "1").then_some(())
        });
    }
}

impl Drop for Pair {
    /// Ends the sessions of `build` while both machines know it, so that nothing is left to be killed from `desk`.
    fn drop(&mut self) {
        let listed = self.build.request("GET", "/v1/sessions", &Value::Null);
        let listed = listed.map(|listed| listed.body).unwrap_or_default();
        let mut ids = Vec::new();
        for session in listed["sessions"].as_array().into_iter().flatten() {
            let id = session["session_id"].as_str().unwrap_or_default();
            if session.get("machine").is_none() {
                let _ = self
                    .build
                    .try_post(&format!("/v1/sessions/{id}/kill"), &json!({}));
                ids.push(format!("'{id}'"));
            }
        }
        if std::thread::panicking() || ids.is_empty() {
            return;
        }
        let sql = format!(
            "SELECT count(*) FROM abide.session WHERE state = 'running' AND id IN ({})",
            ids.join(",")
        );
        look_for("the end in the directory", || {
            (self.server().sql(&sql) == "0").then_some(())
        });
    }
}

fn give_secret(machine: &Abide, secret: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = machine.path("fleet-secret");
    std::fs::write(&path, secret).expect("a secret");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("permissions");
}

/// Path to which an answer to this question is posted.
fn answer_path(question: &Value) -> String {
    format!("/v1/questions/{}/answer", question.as_str().expect("an id"))
}

/// Calls `terminal_session`.
fn call(machine: &Abide, arguments: &Value) -> Answer {
    machine.post("/v1/tools/terminal_session", arguments)
}

fn text(answer: &Answer) -> &str {
    answer.body["text"].as_str().unwrap_or_default()
}
