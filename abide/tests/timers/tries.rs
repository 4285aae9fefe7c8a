//! Commands of conditions run as sessions: supervised by a keeper, listed, killed as a tree, never two at once.

use std::fs;

use serde_json::{Value, json};

use crate::common::process::Process;
use crate::harness::{Abide, look_for, pids_of, receive, wait_for_pid};
use crate::{call, id_of};

/// Sessions that this timer started, including ended ones.
fn tries(abide: &Abide, started_by: &str) -> Vec<Value> {
    let listed = abide.get("/v1/sessions?include_ended=true");
    let listed = listed["sessions"].as_array().expect("a list").clone();
    let own = |session: &Value| session["started_by"] == started_by;
    listed.into_iter().filter(own).collect()
}

/// The only run of the timer's command.
fn try_of(abide: &Abide, timer: &str) -> Value {
    look_for("a try", || tries(abide, timer).into_iter().next())
}

fn mission(abide: &Abide, until: &Value) -> String {
    let arguments = json!({"total_duration": 600, "mission": "m", "until": until});
    id_of(&call(abide, "timer", arguments))
}

#[test]
fn condition_command_is_session_of_its_timer_with_limit_log_and_containment() {
    let abide = Abide::started();
    let until = json!({"command": "echo looked around; exit 7", "every": 3600});
    let timer = mission(&abide, &until);
    let session = look_for("a try that has ended", || {
        let session = try_of(&abide, &timer);
        (session["status"] == "exited").then_some(session)
    });
    assert_eq!(session["exit_code"], 7, "{session}");
    let agent = session["agent"].as_str().expect("a name");
    assert_eq!(abide_core::settings_name(agent), "default", "{session}");
    assert_eq!(session["timeout"], 60.0, "{session}");
    assert!(session["contained_by"].is_string(), "{session}");
    let id = session["session_id"].as_str().expect("an id");
    let read = json!({"action": "read_output", "session_id": id});
    let read = call(&abide, "terminal_session", read);
    let text = read["text"].as_str().expect("text");
    assert!(text.contains("looked around"), "{text}");
    assert_eq!(read["started_by"], timer.as_str(), "{read}");
    let listed = json!({"action": "list", "include_ended": true});
    let listed = call(&abide, "terminal_session", listed);
    let line = listed["text"].as_str().expect("text");
    assert!(
        line.contains(&format!("condition of {timer}: echo")),
        "{line}"
    );
    // Its last output is the result of the last check, and its end causes no message.
    let stands = call(&abide, "read_timer", json!({"timer_id": timer}));
    let seen = "`echo looked around; exit 7` exited with code 7: looked around";
    assert_eq!(stands["last_look"], seen, "{stands}");
    call(&abide, "stop_timer", json!({"timer_id": timer}));
    let told = call(&abide, "read_messages", json!({}));
    assert_eq!(told["messages"], json!([]), "{told}");
}

#[test]
fn only_latest_try_of_condition_is_kept() {
    let abide = Abide::started();
    let count = abide.path("count");
    let command = format!("echo >> {}; exit 1", count.display());
    let timer = mission(&abide, &json!({"command": command, "every": 0.1}));
    look_for("five tries", || {
        let tries = fs::read_to_string(&count).map_or(0, |count| count.lines().count());
        (tries >= 5).then_some(())
    });
    call(&abide, "stop_timer", json!({"timer_id": timer}));
    assert_eq!(tries(&abide, &timer).len(), 1);
    look_for("only one folder of a try", || {
        let folders = fs::read_dir(abide.path("sessions")).expect("a folder");
        let metas = folders.flatten().map(|folder| folder.path().join("meta"));
        let of_tries = metas
            .filter(|meta| fs::read_to_string(meta).is_ok_and(|meta| meta.contains("started_by")));
        (of_tries.count() == 1).then_some(())
    });
}

/// A command line that no other process on this machine has.
fn sleep(number: u32) -> String {
    format!(
        "sleep {}{number}",
        7_000_000_000 + u64::from(std::process::id())
    )
}

/// A command that runs for long and leaves a process behind that has left every process group. Returns the command
/// and the command lines of both processes.
fn family(number: u32) -> (String, [String; 2]) {
    let (own, other) = (sleep(2 * number), sleep(2 * number + 1));
    (format!("(setsid {other} &); exec {own}"), [own, other])
}

fn born(lines: &[String; 2]) -> Vec<Process> {
    lines
        .iter()
        .map(|line| Process::on(wait_for_pid(line)))
        .collect()
}

#[test]
fn whole_tree_of_try_is_ended_when_timer_is_stopped_paused_or_completed() {
    let abide = Abide::started();
    let done = abide.path("done");
    let end = |n: usize, timer: &str| match n {
        0 => drop(call(&abide, "stop_timer", json!({"timer_id": timer}))),
        1 => {
            let pause = json!({"timer_id": timer, "pause_duration": 3600});
            drop(call(&abide, "pause_timer", pause));
        }
        _ => fs::write(&done, "").expect("a file"),
    };
    for n in 0..3 {
        let (command, lines) = family(u32::try_from(n).expect("a number"));
        let until = json!({"any": [{"command": command}, {"file": done}]});
        let timer = mission(&abide, &until);
        let family = born(&lines);
        end(n, &timer);
        for process in family {
            process.wait_gone();
        }
    }
}

#[test]
fn what_succeeding_try_leaves_behind_is_ended_before_timer_completes() {
    let abide = Abide::started();
    let line = sleep(0);
    let until = json!({"command": format!("setsid {line} & exit 0")});
    let arguments = json!({"total_duration": 600, "reason": "r", "until": until});
    let result = call(&abide, "timer", arguments);
    assert_eq!(result["completed_by"], "condition", "{result}");
    assert_eq!(pids_of(&line), Vec::<i32>::new());
}

#[test]
fn try_is_joined_after_daemon_was_killed_and_never_runs_twice() {
    let abide = Abide::started();
    let (count, go) = (abide.path("count"), abide.fifo("go"));
    let command = format!("echo >> {}; read _ < {}", count.display(), go.display());
    let timer = mission(&abide, &json!({"command": command, "every": 0.1}));
    look_for("the first try", || count.exists().then_some(()));
    let before = try_of(&abide, &timer)["session_id"].clone();
    abide.kill_daemon();
    abide.start();
    let after = try_of(&abide, &timer);
    assert_eq!(after["session_id"], before, "{after}");
    fs::write(&go, "go\n").expect("a word");
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"][0]["timer_id"], timer.as_str(), "{told}");
    let tried = fs::read_to_string(&count).expect("a count");
    assert_eq!(tried.lines().count(), 1, "{tried:?}");
}

#[test]
fn try_of_wait_is_ended_by_next_daemon_where_its_daemon_was_killed() {
    let abide = Abide::started();
    let (command, lines) = family(0);
    let until = json!({"until": {"command": command}, "for": 600});
    let _waiting = abide.begin("/v1/wait", &until);
    let family = born(&lines);
    abide.kill_daemon();
    abide.start();
    for process in family {
        process.wait_gone();
    }
}

#[test]
fn try_of_wait_is_session_and_ends_with_its_wait() {
    let abide = Abide::started();
    let (command, lines) = family(0);
    let until = json!({"until": {"command": command}, "for": 600});
    let waiting = abide.begin("/v1/wait", &until);
    let family = born(&lines);
    assert_eq!(tries(&abide, "wait").len(), 1);
    drop(waiting);
    for process in family {
        process.wait_gone();
    }
    let waited = abide.begin(
        "/v1/wait",
        &json!({"until": {"command": "exit 0"}, "for": 600}),
    );
    let waited = receive(waited).expect("an answer").body;
    assert_eq!(waited["held"], true, "{waited}");
    let told = call(&abide, "read_messages", json!({}));
    assert_eq!(told["messages"], json!([]), "{told}");
}
