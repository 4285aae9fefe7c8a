use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::process::Process;
use crate::harness::Abide;
use crate::{call, newest};

/// All crash points around a commit and an answer.
const POINTS: [&str; 14] = [
    "timer.create.pre",
    "timer.create.post",
    "timer.change.pre",
    "timer.change.post",
    "timer.stop.pre",
    "timer.stop.post",
    "timer.due.pre",
    "timer.due.post",
    "message.told.pre",
    "message.told.post",
    "message.seen.pre",
    "message.seen.post",
    "reply.pre_send",
    "reply.post_send",
];

/// A client that repeats unanswered calls and counts what it receives.
struct Client {
    abide: Abide,
    daemon: Process,
    /// For each timer: the messages or results that reported it, and whether they were marked as repeated.
    told: Vec<(String, Option<String>, bool)>,
    deaths: usize,
}

impl Client {
    fn new(point: &str) -> Self {
        let abide = Abide::new();
        abide.start_to_crash_at(point);
        Client {
            daemon: Process::on(abide.pid()),
            abide,
            told: Vec::new(),
            deaths: 0,
        }
    }

    fn insist(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("POST", &format!("/v1/tools/{tool}"), arguments);
        self.note(tool, &answer);
        answer
    }

    /// Repeats the call until it is answered, whatever crashes meanwhile.
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> Value {
        loop {
            if let Some(answer) = self.abide.request(method, path, body) {
                return answer.body;
            }
            self.daemon.wait_gone();
            self.deaths += 1;
            self.abide.start();
            self.daemon = Process::on(self.abide.pid());
        }
    }

    fn note(&mut self, tool: &str, answer: &Value) {
        let text = |message: &Value, field: &str| message[field].as_str().map(str::to_owned);
        let ended =
            text(answer, "timer_id").filter(|_| tool == "timer" && answer["status"] == "completed");
        for message in answer["messages"].as_array().into_iter().flatten() {
            if let (Some(timer), Some(id)) =
                (text(message, "timer_id"), text(message, "message_id"))
            {
                assert_ne!(
                    ended.as_ref(),
                    Some(&timer),
                    "twice in one result: {answer}"
                );
                self.told
                    .push((timer, Some(id), message["repeated"] == true));
            }
        }
        if let Some(timer) = ended {
            self.told.push((timer, None, true));
        }
    }

    fn make(&mut self, key: &str, seconds: f64) -> String {
        let arguments = json!({
            "total_duration": seconds,
            "mission": key,
            "idempotency_key": key
        });
        let made = self.insist("timer", &arguments);
        made["timer_id"].as_str().expect("a timer").to_owned()
    }

    /// An action may find that it was done before the daemon died; the answer then says so.
    fn act(&mut self, tool: &str, id: &str, more: Value) {
        let mut arguments = json!({"timer_id": id});
        let fields = arguments.as_object_mut().expect("fields");
        fields.extend(more.as_object().expect("fields").clone());
        self.insist(tool, &arguments);
    }
}

/// Life of three timers: one completes, one is changed and completes, and one is stopped. The daemon crashes at
/// `point`.
fn lives_through(point: &str) -> usize {
    let mut client = Client::new(point);
    let plain = client.make("plain", 0.05);
    let moved = client.make("moved", 600.0);
    let stopped = client.make("stopped", 600.0);
    client.act("pause_timer", &moved, json!({"pause_duration": 600}));
    client.act("resume_timer", &moved, json!({}));
    client.act("stop_timer", &stopped, json!({}));
    client.act("cancel_timer", &moved, json!({}));
    let sooner = json!({"total_duration": 0.05, "timeout_duration": 0.01});
    client.act("timer", &moved, sooner);
    let wanted = [plain.clone(), moved.clone()];
    let told = |client: &Client, id: &String| client.told.iter().any(|(timer, ..)| timer == id);
    while !wanted.iter().all(|id| told(&client, id)) {
        client.insist("timer", &json!({"timer_id": moved}));
        client.insist("read_messages", &json!({"timeout_seconds": 0.3}));
    }
    // The daemon may crash after it has delivered the last message, and delivers it again.
    while client.insist("read_messages", &json!({}))["messages"] != json!([]) {}
    let mut ids: BTreeMap<&String, &Option<String>> = BTreeMap::new();
    for (timer, message, repeated) in &client.told {
        assert_ne!(*timer, stopped, "{point}: a stopped timer tells nobody");
        match ids.insert(timer, message) {
            None => {}
            Some(first) => {
                assert!(repeated, "{point}: twice as new: {:?}", client.told);
                if first.is_some() && message.is_some() {
                    assert_eq!(first, message, "{point}: the same message");
                }
            }
        }
    }
    let left = client.insist("read_timer", &json!({}));
    assert_eq!(left["timers"], json!([]), "{point}");
    let past = client.ask("GET", "/v1/timers/history?limit=10", &Value::Null);
    let ends = past["timers"].as_array().expect("a list");
    assert_eq!(ends.len(), 3, "{point}: each once: {past}");
    client.deaths
}

/// Number of crashes of the daemon.
fn every_point(times: impl Iterator<Item = usize> + Clone) -> usize {
    let mut deaths = 0;
    for point in POINTS {
        for time in times.clone() {
            deaths += lives_through(&format!("{point}:{time}"));
        }
    }
    assert!(deaths >= POINTS.len() / 2, "it died only {deaths} times");
    deaths
}

#[test]
fn k10_k11_killed_at_every_point_for_the_first_time() {
    every_point(1..=1);
}

#[test]
fn k10_k11_killed_at_every_point_for_the_second_time() {
    every_point(2..=2);
}

#[test]
#[ignore = "hours of kills, for `make soak`"]
fn k10_k11_g7_killed_at_every_point_again_and_again() {
    let rounds = std::env::var("ABIDE_KILLS")
        .ok()
        .and_then(|n| n.parse().ok());
    let mut deaths = 0;
    for round in 1..=rounds.unwrap_or(100) {
        deaths += every_point(1..=4);
        eprintln!("round {round}: {deaths} kills so far, nothing lost and nothing doubled");
    }
}

/// Directories of sessions with files; those of idle keepers are still empty.
fn recorded(abide: &Abide) -> Vec<PathBuf> {
    let folders = fs::read_dir(abide.path("sessions")).expect("a folder");
    let folders = folders.map(|folder| folder.expect("a folder").path());
    let is_recorded =
        |folder: &PathBuf| fs::read(folder.join("meta")).is_ok_and(|meta| meta.len() > 1);
    folders.filter(is_recorded).collect()
}

#[test]
fn k12_daemon_killed_during_retention() {
    let abide = Abide::started();
    let fifo = abide.fifo("go");
    for command in ["echo one", "echo two", "echo three"] {
        call(&abide, "shell", json!({"command": command}));
    }
    let command = format!("echo alive; read line < {}; echo on", fifo.display());
    let arguments = json!({"command": command, "timeout": 0.1});
    let running = call(&abide, "execute_command", arguments);
    let id = running["session_id"]
        .as_str()
        .expect("a session")
        .to_owned();
    crate::mission(&abide, "unseen");
    newest(&abide, Value::is_object);
    abide.kill_daemon();
    abide.configure("keep_days = 0\n");
    // Of three that have ended the first is removed, then the other two and a part of the rows of the database. No
    // command is asked to start a daemon, since that would start another one for each that dies.
    for (point, left) in [("gc.mid:2", 3), ("gc.mid:3", 1)] {
        let mut dying = abide.command(["serve"]);
        let died = dying.env("ABIDE_CRASH_AT", point).output();
        assert!(!died.expect("it runs").status.success());
        assert_eq!(recorded(&abide).len(), left, "{point}");
    }
    abide.start();
    let sessions = abide.get("/v1/sessions?include_ended=true");
    let left = sessions["sessions"].as_array().expect("a list");
    assert_eq!(left.len(), 1, "what was removed stays removed: {sessions}");
    assert_eq!(left[0]["session_id"], id);
    let told = call(&abide, "read_messages", json!({}));
    let text = told["text"].as_str().expect("a text");
    assert!(
        text.contains("Mission: unseen"),
        "it was never seen: {text}"
    );
    fs::write(&fifo, "go\n").expect("a word");
    let arguments = json!({"action": "read_output", "session_id": id, "timeout_seconds": 180,
        "until": "on", "since": "0"});
    let read = call(&abide, "terminal_session", arguments);
    let text = read["text"].as_str().expect("a text");
    assert!(text.contains("alive") && text.contains("on"), "{text}");
}
