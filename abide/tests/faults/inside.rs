//! Processes that a command of a session starts: keepers ignore their requests, and a daemon that they need is
//! started outside of the session.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use abide_session::frame::ToKeeper;
use serde_json::Value;

use crate::common::process::Process;
use crate::harness::Abide;
use crate::identity::speaker;
use crate::parent;
use crate::unprivileged::Unprivileged;

/// An abide in its own directory, as the user of the test or as an unprivileged user.
enum Installed {
    Own(Abide),
    Unprivileged(Unprivileged),
}

impl Installed {
    /// With a control group for each session if possible, and without.
    fn both() -> [Self; 2] {
        [
            Installed::Own(Abide::new()),
            Installed::Unprivileged(Unprivileged::new()),
        ]
    }

    fn command(&self, args: &[&str]) -> Command {
        match self {
            Installed::Own(abide) => abide.command(args),
            Installed::Unprivileged(abide) => abide.command(args),
        }
    }

    fn folder(&self) -> &Path {
        match self {
            Installed::Own(abide) => abide.dir(),
            Installed::Unprivileged(abide) => abide.dir(),
        }
    }

    fn fifo(&self, name: &str) -> PathBuf {
        match self {
            Installed::Own(abide) => abide.fifo(name),
            Installed::Unprivileged(abide) => abide.fifo(name),
        }
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = self.command(args).output().expect("abide runs");
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{args:?}: {out:?}"))
    }

    fn start(&self, command: &str) -> String {
        let started = self.json(&["session", "start", "--no-pty", "--json", "--", command]);
        started["session_id"].as_str().expect("an id").to_owned()
    }

    fn daemon(&self) -> i32 {
        daemon_in(&self.json(&["status", "--json"]))
    }

    fn kill_daemon(&self) {
        let daemon = Process::on(self.daemon());
        daemon.kill();
        daemon.wait_gone();
    }

    fn socket(&self, session: &str) -> PathBuf {
        self.folder().join("sessions").join(session).join("ctl")
    }

    fn keeper(&self, session: &str) -> i32 {
        let folder = self.folder().join("sessions").join(session);
        let meta = abide_session::keeper_record::read_meta(&folder);
        let meta = meta.expect("it is read").expect("a record");
        i32::try_from(meta.keeper.pid).expect("a pid")
    }

    fn assert_running(&self, wanted: &[&str]) {
        let listed = self.json(&["session", "list", "--json"]);
        let listed = listed["sessions"].as_array().expect("sessions");
        let running = listed
            .iter()
            .filter(|session| session["status"] == "running");
        let mut running: Vec<_> = running
            .map(|session| session["session_id"].as_str().expect("an id"))
            .collect();
        let mut wanted = wanted.to_vec();
        running.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(running, wanted);
    }
}

fn daemon_in(status: &Value) -> i32 {
    let pid = status["daemon"]["pid"].as_i64().expect("a pid");
    i32::try_from(pid).expect("a pid")
}

/// A session that runs a line of shell for each word it receives, and prints one line.
struct Puppet {
    session: String,
    words: File,
    lines: BufReader<File>,
}

impl Puppet {
    fn new(abide: &Installed, line: &str) -> Self {
        let [words, lines] = ["words", "lines"].map(|name| abide.fifo(name));
        let script = format!(
            "while read word; do {line}; done < {} > {}",
            words.display(),
            lines.display()
        );
        let session = abide.start(&script);
        Puppet {
            session,
            words: File::options().write(true).open(words).expect("a reader"),
            lines: BufReader::new(File::open(lines).expect("a writer")),
        }
    }

    fn run(&mut self, word: &str) -> String {
        writeln!(self.words, "{word}").expect("it reads");
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }
}

#[test]
fn s13_keepers_refuse_a_command_with_and_without_a_daemon() {
    for abide in Installed::both() {
        let program = speaker(abide.folder());
        let order = abide.folder().join("order");
        let mut wire = Vec::new();
        ToKeeper::Deadline { in_ms: 3_600_000 }.encode(&mut wire);
        std::fs::write(&order, wire).expect("an order");
        if let Installed::Unprivileged(plain) = &abide {
            plain.open_to_all(&order);
        }
        let other = abide.start("exec sleep 9999");
        // In the background, so that it becomes an orphan too.
        let line = format!(
            "(setsid env -i {} say $word {} &)",
            program.display(),
            order.display()
        );
        let mut puppet = Puppet::new(&abide, &line);
        let own = puppet.session.clone();
        let sockets = [&own, &other].map(|session| abide.socket(session));
        for socket in &sockets {
            let said = puppet.run(&socket.display().to_string());
            assert_eq!(said, "refused", "with a daemon: {}", socket.display());
        }
        abide.kill_daemon();
        for socket in &sockets {
            let said = puppet.run(&socket.display().to_string());
            assert_eq!(said, "refused", "without one: {}", socket.display());
        }
        abide.assert_running(&[&own, &other]);
    }
}

#[test]
fn daemon_started_by_a_command_runs_outside_of_the_session_and_outlives_it() {
    for abide in Installed::both() {
        let other = abide.start("exec sleep 9999");
        let program = abide.command(&[]).get_program().to_owned();
        let line = format!(
            "ABIDE_DIR={} {} status --json | tr -d '\\n'; echo",
            abide.folder().display(),
            program.display()
        );
        let mut puppet = Puppet::new(&abide, &line);
        abide.kill_daemon();
        let status = puppet.run("go");
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let daemon = daemon_in(&status);
        abide.assert_running(&[&puppet.session, &other]);
        let killed = abide
            .command(&["session", "kill", &puppet.session])
            .output();
        assert!(killed.expect("abide runs").status.success());
        abide.assert_running(&[&other]);
        assert_eq!(abide.daemon(), daemon);
        let group = std::fs::read_to_string(format!("/proc/{daemon}/cgroup")).expect("its group");
        assert!(!group.contains("abide-session_"), "{group}");
    }
}

#[test]
fn command_without_a_fork_server_starts_no_daemon_and_sessions_stay() {
    for abide in Installed::both() {
        let other = abide.start("exec sleep 9999");
        let program = abide.command(&[]).get_program().to_owned();
        let line = format!(
            "ABIDE_DIR={} {} $word 2>&1 | tr -d '\\n'; echo",
            abide.folder().display(),
            program.display()
        );
        let mut puppet = Puppet::new(&abide, &line);
        let server = Process::on(parent(abide.keeper(&other)));
        let daemon = Process::on(abide.daemon());
        for process in [&daemon, &server] {
            process.kill();
            process.wait_gone();
        }
        for word in ["status", "serve"] {
            let said = puppet.run(word);
            assert!(said.contains("outside of every session"), "{word}: {said}");
        }
        abide.assert_running(&[&puppet.session, &other]);
    }
}
