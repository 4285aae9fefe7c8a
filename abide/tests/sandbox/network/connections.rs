//! Attacks 123, 126 and 127: floods, the end of the daemon, and the proxy of a company.

use std::io::{BufRead, BufReader, Write};

use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use super::{ALLOWLIST, PRELUDE, Person, configure, python};
use crate::agents::call;
use crate::harness::User;
use crate::outside::with_outside;

#[test]
fn flood_of_connections_is_bounded_and_others_go_on() {
    with_outside(|user, _| {
        configure(user, &["allowed.test", "allowed.test:8443"], "");
        let lines = python(
            user,
            r#"
held = [connect("allowed.test", 8443) for _ in range(400)]
say(web("allowed.test"))
data = b"x" * (1 << 20)
with connect("allowed.test", 8443) as s:
    def send():
        for _ in range(64): s.sendall(data)
    threading.Thread(target=send, daemon=True).start()
    count = 0
    while count < 64 << 20: count += len(s.recv(1 << 20))
    say(count)
held += [connect("allowed.test", 8443) for _ in range(200)]
for s in held[:300]: s.close()
say(web("allowed.test"))
"#,
        );
        assert_eq!(
            lines,
            [
                "outside / allowed.test",
                "67108864",
                "outside / allowed.test"
            ],
            "123"
        );
    });
}

#[test]
fn gate_dials_through_the_proxy_of_the_caller_and_programs_do_not_see_it() {
    with_outside(|user, outside| {
        configure(user, &["allowed.test"], "");
        let mut command = user.command(user.path("abide-program"));
        let ran = command
            .env("HTTPS_PROXY", "http://93.184.216.34:3128")
            .env("http_proxy", "http://93.184.216.34:3128")
            .arg("run")
            .args(ALLOWLIST)
            .args(["--", "/bin/bash", "-c"])
            .arg("env | grep -ci proxy; curl -sk https://allowed.test/")
            .output()
            .expect("abide runs");
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!(text, "0\noutside / allowed.test\n", "127: {ran:?}");
        let log = outside.log();
        assert_eq!(
            log,
            ["proxy CONNECT allowed.test:443 HTTP/1.1"],
            "127: the proxy looks names up"
        );
    });
}

#[test]
fn connections_live_on_and_a_held_one_waits_when_the_daemon_is_killed() {
    with_outside(|user, _| {
        configure(user, &["allowed.test:8443"], "");
        let mut person = Person::watch(user);
        let program = r#"
running = connect("allowed.test", 8443)
running.sendall(b"before ")
held = threading.Thread(target=lambda: say(attempt(web, "new.test")))
held.start()
say(running.recv(100).decode())
sys.stdin.readline()
running.sendall(b"after")
say(running.recv(100).decode())
held.join()
"#;
        user.write("work/program.py", &format!("{PRELUDE}\n{program}"));
        let mut words = vec!["run"];
        words.extend(ALLOWLIST);
        words.extend(["--", "/usr/bin/python3", "program.py"]);
        let mut command = user.command(user.path("abide-program"));
        command.args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ran = command.spawn().expect("abide runs");
        let mut lines = BufReader::new(ran.stdout.take().expect("output")).lines();
        let mut next = || lines.next().expect("a line").expect("text");
        assert_eq!(next(), "BEFORE ");
        let first = person.next();
        assert_eq!(first["about"], "connection", "{first}");
        let status = user.abide(&["status", "--json"]);
        let status: Value = serde_json::from_str(status.text.trim()).expect("JSON");
        let pid = status["daemon"]["pid"].as_i64().expect("a pid");
        user.outside(&format!("kill -9 {pid}"));
        let input = ran.stdin.as_mut().expect("input");
        input.write_all(b"\n").expect("written");
        assert_eq!(next(), "AFTER", "126: a running connection lives on");
        let mut again = person.next();
        while again["about"] != "connection" {
            again = person.next();
        }
        assert_ne!(again["question_id"], first["question_id"]);
        person.answer(&again, &["once"]);
        assert_eq!(next(), "outside / new.test", "126: a held one waits");
        assert!(ran.wait().expect("ended").success());
    });
}

/// Gates of this user's program that live.
fn gates(user: &User) -> Vec<OwnedFd> {
    let program = user.path("abide-program");
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let gates = processes.filter_map(|entry| {
        let is_ours = std::fs::read_link(entry.path().join("exe")).ok()? == program;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let pid = Pid::from_raw(pid).filter(|_| is_ours && line.ends_with(b"\0gate\0"))?;
        pidfd_open(pid, PidfdFlags::empty()).ok()
    });
    gates.collect()
}

#[test]
fn gate_ends_with_its_session_and_is_no_process_of_it() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let serve = json!({"action": "start", "command": "sleep 1000"});
        let started = call(user, "terminal_session", &serve);
        let id = started["result"]["session_id"].as_str().expect("an id");
        let gates = gates(user);
        assert_eq!(gates.len(), 1);
        call(
            user,
            "terminal_session",
            &json!({"action": "kill", "session_id": id}),
        );
        for gate in &gates {
            let mut events = [PollFd::new(gate, PollFlags::IN)];
            let limit = Timespec {
                tv_sec: 60,
                tv_nsec: 0,
            };
            assert_eq!(poll(&mut events, Some(&limit)), Ok(1), "the gate lives on");
        }
        let left = json!({"command": "sleep 1000 & echo over"});
        let result = call(user, "shell", &left);
        let running = result["result"]["still_running"]
            .as_array()
            .expect("a list");
        assert_eq!(running.len(), 1, "{result}");
    });
}
