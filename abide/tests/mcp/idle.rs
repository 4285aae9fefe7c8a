//! Idle supervision belongs to the session: it continues after the call that started the command was handed over,
//! cancelled or lost.

use serde_json::{Value, json};

use crate::harness::*;

/// Limit of a client whose calls are handed over, which happens after five sixths of it. No test of such a client has
/// to act before that.
const LIMIT: [(&str, &str); 1] = [("ABIDE_CALL_LIMIT", "1.2")];

/// A client whose limit is shorter than the idle limit.
fn hurried(home: &Home, era: Era) -> Client {
    Client::start(home, setup_in(era, &LIMIT))
}

/// Starts a command that prints its pid and nothing more. Returns the call that waits for it.
fn begun(home: &Home, client: &mut Client, idle: f64) -> (u64, Process) {
    let fifo = Fifo::new(home, &format!("fifo{}", client.front()));
    let say = "printf '\\033[32mgreen\\033[0m\\n'";
    let command = format!("{say}; echo $$ > {}; exec sleep 1000", fifo.path());
    let arguments = json!({"command": command, "timeout": idle});
    let id = client.begin("execute_command", arguments);
    (id, fifo.read_process())
}

/// The same, after its call was handed over.
fn handed_over(home: &Home, client: &mut Client, idle: f64) -> Process {
    let (id, process) = begun(home, client, idle);
    let result = client.result(id);
    assert_eq!(result["structuredContent"]["status"], "running", "{result}");
    process
}

/// The same after the client has cancelled its call, with an open question about it. The limit of the client is
/// irrelevant here: a call waits until the test answers.
fn asked_about(home: &Home, client: &mut Client) -> (Process, Value) {
    let (id, process) = begun(home, client, 600.0);
    let params = json!({"requestId": id, "reason": "Request timed out"});
    client.notify("notifications/cancelled", params);
    // Earlier messages have been processed when this is answered.
    client.call("shell", json!({"command": "true"}));
    home.set_idle_limit("200ms");
    (process, the_question(home))
}

/// Arguments of a timer that completes when the test creates the file.
fn until(home: &Home, file: &str) -> Value {
    json!({"total_duration": 600, "reason": "the build", "until": {"file": home.path(file)}})
}

fn create(home: &Home, file: &str) {
    std::fs::write(home.path(file), "").expect("a file");
}

fn is_question(message: &Value) -> bool {
    message["method"] == "elicitation/create"
}

/// Open questions from `abide answer --json`, once there are some.
fn questions(home: &Home) -> Vec<Value> {
    for look in 1.. {
        assert!(look < 10_000, "no question was put");
        let listed = home.command(["answer", "--json"]).output();
        let listed = listed.expect("abide runs").stdout;
        let listed: Value = serde_json::from_slice(&listed).expect("JSON");
        let open = listed["questions"].as_array().expect("a list");
        if !open.is_empty() {
            return open.clone();
        }
    }
    unreachable!()
}

/// The open question, once there is one.
pub fn the_question(home: &Home) -> Value {
    let mut open = questions(home);
    assert_eq!(open.len(), 1, "one question a session: {open:?}");
    open.remove(0)
}

pub fn answer(home: &Home, question: &Value, word: &str) {
    let id = question["question_id"].as_str().expect("an id");
    let answered = home.command(["answer", id, word]).output();
    let answered = answered.expect("abide runs");
    assert!(answered.status.success(), "{answered:?}");
}

/// Text of the next messages.
fn message(client: &mut Client) -> String {
    for look in 1.. {
        assert!(look < 1_000, "no message came");
        let read = client.call("read_messages", json!({"timeout_seconds": 60}));
        if text(&read).contains("[System] Session") {
            return text(&read).to_owned();
        }
    }
    unreachable!()
}

#[test]
fn handed_over_command_is_asked_about_at_its_idle_limit_and_no_ends_it() {
    for era in ERAS {
        let home = Home::new();
        let mut client = hurried(&home, era);
        // Idle for less than half the idle limit when it is handed over: no question in the call.
        let process = handed_over(&home, &mut client, 3.0);
        let question = the_question(&home);
        assert_eq!(
            question["question"],
            "Command has been idle for 3s. Continue waiting?"
        );
        assert_eq!(question["last_line"], "green");
        answer(&home, &question, "yes");
        assert!(process.is_alive());
        let again = the_question(&home);
        assert_ne!(again["question_id"], question["question_id"]);
        answer(&home, &again, "no");
        process.wait_gone();
        let told = message(&mut client);
        assert!(told.contains("a person answered no]"), "{told}");
    }
}

#[test]
fn question_says_how_busy_the_command_was_since_its_last_output() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let mut doing = |command: &str| {
        let arguments = json!({"command": command, "timeout": 2});
        let id = client.begin("execute_command", arguments);
        let asked = client.asked();
        let question = the_question(&home);
        client.reply(&asked, "decline");
        client.result(id);
        question
    };
    // CPU time of children that have exited counts as well; each of them lives only for a moment.
    let spins = "echo begin; while :; do (i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done); done";
    let busy = doing(spins);
    assert!(busy["cpu"].as_u64() > Some(0), "{busy}");
    assert!(busy["doing"].as_str().unwrap().contains("(CPU "), "{busy}");
    let asleep = doing("echo begin; exec sleep 1000");
    assert_eq!(asleep["doing"], "sleeping", "{asleep}");
    assert_eq!(asleep["cpu"], 0, "{asleep}");
}

#[test]
fn extending_the_idle_limit_works_after_a_handover() {
    let home = Home::new();
    let mut client = hurried(&home, Era::Legacy);
    let process = handed_over(&home, &mut client, 600.0);
    home.set_idle_limit("200ms");
    let question = the_question(&home);
    assert_eq!(question["idle"], 0.2);
    // After new activity the question is withdrawn.
    home.set_idle_limit("600s");
    let late = ["answer", question["question_id"].as_str().unwrap(), "no"];
    let late = home.command(late).output().expect("abide runs");
    assert!(!late.status.success(), "{late:?}");
    assert!(process.is_alive());
}

#[test]
fn next_waiting_call_shows_the_question_of_a_command_that_runs_on() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let (process, _) = asked_about(&home, &mut client);
    // The call is answered, and the question is withdrawn.
    let id = client.begin("timer", until(&home, "first"));
    let first = client.asked();
    let message = first["params"]["message"].as_str().expect("a message");
    let begin = "Command has been idle for 200ms. Continue waiting?\n";
    assert!(message.starts_with(begin), "{message}");
    assert!(message.ends_with("; last output: green"), "{message}");
    create(&home, "first");
    client.result(id);
    let withdrawn = client.notified("notifications/cancelled");
    assert_eq!(withdrawn["requestId"], first["id"]);
    // Of two calls that wait at the same time, one shows the question.
    let timers = [(); 2].map(|()| client.begin("timer", until(&home, "second")));
    let second = client.asked();
    client.reply(&second, "decline");
    process.wait_gone();
    create(&home, "second");
    for id in timers {
        client.result(id);
    }
    assert!(
        !client.has_received(is_question),
        "asked twice about one session"
    );
}

#[test]
fn client_that_says_nobody_is_there_is_not_asked_the_same_again() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let (process, question) = asked_about(&home, &mut client);
    let id = client.begin("timer", until(&home, "first"));
    let asked = client.asked();
    client.reply(&asked, "cancel");
    client.call("shell", json!({"command": "true"}));
    create(&home, "first");
    client.result(id);
    let wait = json!({"total_duration": 600, "timeout_duration": 1, "reason": "the build"});
    client.call("timer", wait);
    assert!(!client.has_received(is_question), "asked again");
    assert_eq!(the_question(&home)["question_id"], question["question_id"]);
    assert!(process.is_alive());
}

#[test]
fn another_connection_is_not_asked_about_a_command_that_runs_on() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    asked_about(&home, &mut client);
    let mut other = Client::start(&home, LEGACY);
    let wait = json!({"total_duration": 600, "timeout_duration": 1, "reason": "the build"});
    other.call("timer", wait);
    assert!(
        !other.has_received(is_question),
        "asked in another conversation"
    );
}

#[test]
fn call_that_returns_to_ask_does_so_before_the_clients_limit() {
    let home = Home::new();
    // Handed over after ten seconds; idle after twelve.
    let env = [("ABIDE_CALL_LIMIT", "12")];
    let mut client = Client::start(&home, setup_in(Era::Modern, &env));
    let fifo = Fifo::new(&home, "fifo");
    let command = format!("echo $$ > {}; exec sleep 1000", fifo.path());
    let arguments = json!({"command": command, "timeout": 12});
    let id = client.begin("execute_command", arguments.clone());
    let process = fifo.read_process();
    let asked = client.result(id);
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let question = the_question(&home);
    let idle = question["idle"].as_f64().expect("seconds");
    assert!(
        (6.0..12.0).contains(&idle),
        "the real idle time: {question}"
    );
    let responses = json!({question["question_id"].as_str().unwrap(): {"action": "decline"}});
    let id = client.request(
        "tools/call",
        json!({
            "name": "execute_command",
            "arguments": arguments,
            "inputResponses": responses,
            "requestState": asked["requestState"],
        }),
    );
    let result = client.result(id);
    let said = format!("command execution timeout: no output for {idle}s");
    assert!(text(&result).starts_with(&said), "{result}");
    process.wait_gone();
}

#[test]
fn next_daemon_supervises_a_handed_over_command_and_counts_its_running_time_on() {
    let home = Home::new();
    let mut client = hurried(&home, Era::Legacy);
    let process = handed_over(&home, &mut client, 2.5);
    home.kill_daemon();
    let question = the_question(&home);
    home.kill_daemon();
    let again = the_question(&home);
    assert_eq!(again["question_id"], question["question_id"]);
    let ran = |question: &Value| question["running_for"].as_f64().expect("seconds");
    assert!(ran(&again) > ran(&question), "{again}");
    assert_eq!(again["asked_at"], question["asked_at"]);
    answer(&home, &again, "no");
    process.wait_gone();
}

#[test]
fn read_that_was_cut_to_the_clients_limit_says_so() {
    let home = Home::new();
    let env = [("ABIDE_CALL_LIMIT", "0.6")];
    for era in ERAS {
        let mut client = Client::start(&home, setup_in(era, &env));
        let arguments = json!({"action": "start", "command": "echo one; exec sleep 1000"});
        let started = client.call("terminal_session", arguments);
        let session = started["structuredContent"]["session_id"].clone();
        let mut read = |more: Value| {
            let mut arguments = json!({"action": "read_output", "session_id": session});
            for (name, value) in more.as_object().expect("fields") {
                arguments[name] = value.clone();
            }
            text(&client.call("terminal_session", arguments)).to_owned()
        };
        let all = json!({"since": "0", "until": "two", "timeout_seconds": 600});
        let mut unmatched = read(all.clone());
        while !unmatched.starts_with("one\n") {
            unmatched = read(all.clone());
        }
        let cut = "\n[still running; no match in 500ms (limit of this client)]";
        assert!(unmatched.ends_with(cut), "{unmatched}");
        read(json!({}));
        let nothing = read(json!({"timeout_seconds": 600}));
        assert_eq!(
            nothing,
            "Still running; no output in 500ms (limit of this client)"
        );
        assert_eq!(read(json!({"timeout_seconds": 0.1})), "No output available");
        assert_eq!(read(json!({})), "No output available");
    }
}
