//! Messages about sessions that are lost with their machine.

use super::common::process::Process;
use super::harness::{parent, wait_for_pid};
use super::*;

impl Pair {
    /// Session on `build` of an agent that is called ann, once the directory has it.
    fn session_of_ann(&self, command: &str) -> String {
        let start = json!({"action": "start", "command": command, "inactivity_timeout": 0});
        let begun = self.build.begin_for("ann", "terminal_session", &start);
        let started = harness::receive(begun).expect("an answer").body;
        let id = started["session_id"].as_str().expect("an id").to_owned();
        self.wait_listed(&id);
        id
    }

    /// Message that ann gets on `desk`.
    fn told_to_ann(&self) -> String {
        look_for("the message", || {
            let begun = self.desk.begin_for("ann", "read_messages", &json!({}));
            let read = harness::receive(begun)?.body;
            let told = read["messages"][0]["text"].as_str();
            told.map(str::to_owned)
        })
    }

    fn messages_about(&self, id: &str) -> String {
        let about = format!("SELECT count(*) FROM abide.message WHERE about = '{id}'");
        self.server().sql(&about)
    }
}

/// Starts the daemon of a machine in another boot. `None`: not permitted on this machine.
fn start_in_another_boot(machine: &Abide) -> Option<()> {
    let boot_id = machine.path("boot_id");
    std::fs::write(&boot_id, "0b8d6c1e-5a0f-4a59-9c57-2f9f6d1f8a11\n").expect("a file");
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec {} status",
        boot_id.display(),
        env!("CARGO_BIN_EXE_abide")
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "there is no other daemon to start"
    )]
    let started = std::process::Command::new("unshare")
        .args(["--mount", "--fork", "--", "sh", "-c", &script])
        .env("ABIDE_DIR", machine.dir())
        .output()
        .ok()?;
    if !started.status.success() {
        println!("not tried: {}", String::from_utf8_lossy(&started.stderr));
        return None;
    }
    Some(())
}

#[test]
fn owner_of_a_session_that_a_person_declares_lost_is_told_once() {
    let pair = Pair::with("");
    let id = pair.session_of_ann("cat");
    pair.build.kill_daemon();
    look_for("a machine that is silent", || {
        let lost = pair.desk.output(["machine", "lost", "build"]);
        lost.status.success().then_some(())
    });
    let told = pair.told_to_ann();
    let lost = format!("Session '{id}' is lost: a person has said so of machine build.");
    for part in [&*lost, "Command: cat"] {
        assert!(told.contains(part), "{told}");
    }
    pair.desk.kill_daemon();
    pair.desk.start();
    look_for("a heartbeat of the next daemon", || {
        let known = pair.desk.get("/v1/machines");
        (known["joined"] == true).then_some(())
    });
    let done = "SELECT count(*) FROM abide.session WHERE ending IS NULL";
    assert_eq!(pair.server().sql(done), "0");
    assert_eq!(pair.messages_about(&id), "1");
    pair.build.start();
}

#[test]
fn owner_of_a_session_is_told_when_its_machine_was_silent_for_as_long_as_it_had_declared() {
    let pair = Pair::with("lost_after = 600\n");
    let id = pair.session_of_ann("cat");
    pair.build.kill_daemon();
    // As it is if the daemon dies before its first heartbeat.
    let shorter = "UPDATE abide.machine SET lost_after = 1000, fleet_time = NULL WHERE lost_after = 600000 RETURNING name";
    assert_eq!(pair.server().sql(shorter), "build");
    let told = pair.told_to_ann();
    let lost = format!("Session '{id}' is lost: machine build was silent for too long.");
    for part in [&*lost, "Command: cat"] {
        assert!(told.contains(part), "{told}");
    }
    pair.build.start();
}

#[test]
fn owner_of_a_session_is_told_by_its_own_machine_when_that_was_started_again() {
    let pair = Pair::with("");
    let command = "sleep 86397";
    let id = pair.session_of_ann(command);
    let leader = wait_for_pid(command);
    pair.build.kill_daemon();
    // Both are opened first: the end of the keeper ends its command.
    for process in [parent(leader), leader].map(Process::on) {
        process.kill();
        process.wait_gone();
    }
    let Some(()) = start_in_another_boot(&pair.build) else {
        pair.build.start();
        return;
    };
    let told = pair.told_to_ann();
    for part in [&*format!("Session '{id}'"), "lost", "Command: sleep 86397"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(pair.messages_about(&id), "1");
}
