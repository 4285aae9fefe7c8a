use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::common::process::Process;
use crate::harness::{Abide, look_for, receive};
use crate::{call, come_due, due, id_of};

fn timers(abide: &Abide) -> Vec<Value> {
    call(abide, "read_timer", json!({}))["timers"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// Sends a call to a daemon that crashes at `point`.
fn die_at(abide: &Abide, point: &str, tool: &str, arguments: &Value) {
    abide.start_to_crash_at(point);
    let daemon = Process::on(abide.pid());
    let answer = abide.try_post(&format!("/v1/tools/{tool}"), arguments);
    assert!(answer.is_none(), "the daemon was to die at {point}");
    daemon.wait_gone();
}

#[test]
fn k10_killed_before_a_timer_was_recorded() {
    let abide = Abide::new();
    let arguments = json!({"total_duration": 60, "mission": "m", "idempotency_key": "k"});
    die_at(&abide, "timer.create.pre", "timer", &arguments);
    abide.start();
    assert!(timers(&abide).is_empty());
    call(&abide, "timer", arguments);
    assert_eq!(timers(&abide).len(), 1);
}

#[test]
fn k10_killed_after_a_timer_was_recorded() {
    let abide = Abide::new();
    let arguments = json!({"total_duration": 60, "mission": "m", "idempotency_key": "k"});
    die_at(&abide, "timer.create.post", "timer", &arguments);
    abide.start();
    let first = timers(&abide);
    assert_eq!(first.len(), 1);
    let again = call(&abide, "timer", arguments);
    assert_eq!(
        id_of(&again),
        id_of(&first[0]),
        "the same key gives the same timer"
    );
    assert_eq!(timers(&abide).len(), 1);
}

/// Kills the daemon at `point` of a completion. Returns the message after the restart.
fn completion_killed_at(point: &str, standing_by: bool) -> Value {
    let abide = Abide::new();
    abide.start_to_crash_at(point);
    let daemon = Process::on(abide.pid());
    let kind = if standing_by { "reason" } else { "mission" };
    let due = due(&abide, "m");
    let arguments = json!({"total_duration": 600, kind: "m", "until": {"file": due}});
    let mut asked = abide.begin("/v1/tools/timer", &arguments);
    if standing_by {
        look_for("the timer", || (timers(&abide).len() == 1).then_some(()));
    } else {
        receive(asked).expect("it was made");
        let read = json!({"timeout_seconds": 180});
        asked = abide.begin("/v1/tools/read_messages", &read);
        // The daemon takes calls in their order, so it has this one when it has answered a later one.
        call(&abide, "read_timer", json!({}));
    }
    // The receiver is connected before the message comes, and receives it, or nothing.
    come_due(&due);
    drop(receive(asked));
    daemon.wait_gone();
    abide.start();
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    let messages = told["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "{point}: {told}");
    assert!(timers(&abide).is_empty(), "{point}: it completes once");
    let after = call(&abide, "read_messages", json!({}));
    assert_eq!(after["messages"], json!([]), "{point}: told once more");
    messages[0].clone()
}

#[test]
fn k11_killed_before_a_completion_was_recorded() {
    for standing_by in [true, false] {
        let message = completion_killed_at("timer.due.pre", standing_by);
        assert_eq!(message["repeated"], false, "{message}");
    }
}

#[test]
fn k11_killed_after_a_completion_was_recorded() {
    for standing_by in [true, false] {
        let message = completion_killed_at("timer.due.post", standing_by);
        assert_eq!(message["repeated"], true, "it was being told: {message}");
    }
}

#[test]
fn k11_daemon_killed_between_sending_and_marking_as_seen() {
    for standing_by in [true, false] {
        let message = completion_killed_at("message.seen.pre", standing_by);
        assert_eq!(message["repeated"], true, "{message}");
    }
}

#[test]
fn k11_g7_g8_repeated_kills_lose_and_repeat_nothing() {
    let abide = Abide::started();
    let mut made = BTreeSet::new();
    let mut told: Vec<(String, bool)> = Vec::new();
    for round in 0..12_u64 {
        for n in 0..20_u64 {
            let due = ((round * 20 + n) * 7_919 % 400 + 1) as f64 / 1_000.0;
            let arguments = json!({"total_duration": due, "mission": format!("{round}.{n}")});
            let result = call(&abide, "timer", arguments);
            made.insert(id_of(&result));
            told.extend(ids(&result));
        }
        let reading = abide.begin(
            "/v1/tools/read_messages",
            &json!({"timeout_seconds": 0.05 * round as f64 / 4.0}),
        );
        abide.kill_daemon();
        if let Some(answer) = receive(reading) {
            told.extend(ids(&answer.body));
        }
        abide.start();
    }
    loop {
        let result = call(&abide, "read_messages", json!({"timeout_seconds": 2}));
        let new = ids(&result);
        if new.is_empty() {
            break;
        }
        told.extend(new);
    }
    let received: BTreeSet<String> = told.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(received, made, "every completion is told");
    let first_tellings = told.iter().filter(|(_, repeated)| !repeated).count();
    assert!(
        first_tellings <= made.len(),
        "twice without a word: {told:?}"
    );
    let mut firsts = BTreeSet::new();
    for (id, repeated) in &told {
        assert!(
            firsts.insert(id.clone()) || *repeated,
            "{id} was told twice as new"
        );
    }
}

fn ids(result: &Value) -> Vec<(String, bool)> {
    let messages = result["messages"].as_array().cloned().unwrap_or_default();
    let id = |message: &Value| message["timer_id"].as_str().map(str::to_owned);
    messages
        .iter()
        .filter_map(|m| Some((id(m)?, m["repeated"] == true)))
        .collect()
}

#[test]
fn an_overdue_timer_completes_at_the_next_start_and_says_how_late() {
    let abide = Abide::new();
    // The daemon crashes when the timer is due, however slow the machine is.
    abide.start_to_crash_at("timer.due.pre");
    let daemon = Process::on(abide.pid());
    call(
        &abide,
        "timer",
        json!({"total_duration": 0.5, "mission": "m"}),
    );
    daemon.wait_gone();
    // No daemon is running, so a timer of another abide waits until the time has passed.
    let other = Abide::started();
    call(
        &other,
        "timer",
        json!({"total_duration": 1.5, "reason": "the first is late"}),
    );
    abide.start();
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    let text = told["text"].as_str().unwrap();
    assert!(text.contains("Late by: "), "{text}");
}

#[test]
fn k13_killed_within_the_migration() {
    // PostgreSQL migrates in one statement.
    let abide = Abide::on(None);
    let out = abide
        .command(["status"])
        .env("ABIDE_CRASH_AT", "migrate.mid")
        .output()
        .expect("it runs");
    assert!(!out.status.success(), "{out:?}");
    abide.start();
    call(
        &abide,
        "timer",
        json!({"total_duration": 60, "mission": "m"}),
    );
    assert_eq!(timers(&abide).len(), 1);
}

/// Sets the limit of open files of this process and the daemon. Returns the previous limit of the daemon.
fn files(pid: i32, most: u64) -> rustix::process::Rlimit {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let limit = |maximum| Rlimit {
        current: Some(most),
        maximum,
    };
    let pid = Pid::from_raw(pid).expect("a process");
    let own = rustix::process::getrlimit(Resource::Nofile);
    let before = prlimit(Some(pid), Resource::Nofile, limit(own.maximum));
    before.expect("its limit can be moved")
}

#[test]
fn s4_g12_many_clients_are_all_answered() {
    let abide = Abide::started();
    let own = i32::try_from(std::process::id()).expect("a number");
    let before = files(own, 4_096);
    let calls: Vec<_> = (0..1_000)
        .map(|n| match n % 3 {
            0 => abide.begin(
                "/v1/tools/timer",
                &json!({"total_duration": 600, "mission": "m"}),
            ),
            1 => abide.begin("/v1/tools/read_messages", &json!({"timeout_seconds": 0.5})),
            _ => abide.begin("/v1/wait", &json!({"until": {"file": "/"}, "for": 60})),
        })
        .collect();
    for call in calls {
        let answer = receive(call).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_ne!(answer.body["is_error"], true, "{}", answer.body);
    }
    assert_eq!(timers(&abide).len(), 334, "each was made once");
    files(own, before.current.unwrap_or(1_024));
}

#[test]
fn m6_daemon_without_descriptors_loses_no_session() {
    use std::os::unix::process::CommandExt;
    const SESSIONS: usize = 40;
    let abide = Abide::started();
    let start = json!({"action": "start", "command": "sleep 1000", "pty": false});
    // At once, because each is answered only after a second without output.
    let started: Vec<_> = (0..SESSIONS)
        .map(|_| abide.begin("/v1/tools/terminal_session", &start))
        .collect();
    for call in started {
        let answer = receive(call).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    abide.kill_daemon();
    let few = rustix::process::Rlimit {
        current: Some(SESSIONS as u64),
        maximum: Some(SESSIONS as u64),
    };
    let mut status = abide.command(["status"]);
    // SAFETY: only one system call is made between fork and exec.
    unsafe {
        status.pre_exec(move || {
            let set = rustix::process::setrlimit(rustix::process::Resource::Nofile, few);
            set.map_err(std::io::Error::from)
        });
    }
    // This daemon cannot reach all keepers, and may not get further than that.
    status.output().expect("abide runs");
    let pid = abide.daemon_pid().expect("a daemon took the lock");
    let exe = fs::read_link(format!("/proc/{pid}/exe"));
    if exe.is_ok_and(|exe| exe.ends_with("abide")) {
        let daemon = Process::on(pid);
        daemon.kill();
        daemon.wait_gone();
    }
    abide.start();
    assert_eq!(abide.running_ids().len(), SESSIONS);
}

#[test]
fn m6_daemon_without_descriptors_recovers() {
    let abide = Abide::started();
    let pid = abide.pid();
    let arguments = json!({"total_duration": 600, "mission": "m"});
    let kept = id_of(&call(&abide, "timer", arguments));
    let Ok(held) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        eprintln!("skipped: only root sees how many files the daemon has open");
        return;
    };
    let before = files(pid, held.count() as u64 + 8);
    // More than it can accept: connections without a free descriptor stay in the listen queue.
    let look = json!({"timer_id": kept});
    let calls: Vec<_> = (0..64)
        .map(|_| abide.begin("/v1/tools/read_timer", &look))
        .collect();
    for call in calls {
        let answer = receive(call).expect("an answer");
        assert_eq!(answer.body["status"], "running", "{}", answer.body);
    }
    // Sessions need descriptors as well: sessions are started until no descriptor is left.
    let start = json!({"action": "start", "command": "sleep 1000", "pty": false});
    let refused = (0..64).find_map(|_| {
        let started = call(&abide, "terminal_session", start.clone());
        let said = started["text"].as_str().unwrap_or_default().to_owned();
        (started["is_error"] == true).then_some(said)
    });
    let refused = refused.expect("not that many can be kept");
    assert!(refused.contains("too_many_open_files"), "{refused}");
    files(pid, before.current.unwrap_or(1_024));
    let shell = call(&abide, "shell", json!({"command": "echo it works"}));
    assert_eq!(shell["status"], "SUCCESS", "{shell}");
    assert_eq!(abide.pid(), pid, "it is the same daemon");
}
