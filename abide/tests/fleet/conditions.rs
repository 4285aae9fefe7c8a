//! Conditions about sessions of another machine.

use super::*;

/// Command that ends with code 3 when a line comes.
const GATE: &str = "read line; exit 3";

impl Pair {
    /// Session on `build` that ends with code 3 when a line comes, once the directory has it.
    fn gate(&self) -> String {
        let start = json!({"action": "start", "command": GATE, "inactivity_timeout": 0});
        let started = call(&self.build, &start);
        let id = started.body["session_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        self.wait_listed(&id);
        id
    }

    /// Timer on `desk` that waits for this condition.
    fn waiting(&self, until: &Value) -> String {
        let body = json!({"total_duration": 3600, "mission": "when it is built", "until": until});
        look_for("a timer that can be made", || {
            let answer = self.desk.try_post("/v1/timers", &body)?;
            answer.body["timer_id"].as_str().map(str::to_owned)
        })
    }

    fn wait_completed(&self, timer: &str) -> Value {
        look_for("the end of the timer", || {
            let timer = self.desk.get(&format!("/v1/timers/{timer}"));
            (timer["status"] == "completed").then_some(timer)
        })
    }
}

#[test]
fn timer_completes_when_a_session_of_another_machine_ends_also_after_a_restart() {
    let pair = Pair::with("");
    let (here, later) = (pair.gate(), pair.gate());
    let ended = |id: &str| json!({"session": id, "is": "ended"});
    let timer = pair.waiting(&ended(&later));
    let wait = json!({"until": {"all": [ended(&here)]}, "for": 600});
    let begun = pair.desk.begin("/v1/wait", &wait);
    let input = |id: &str| json!({"action": "send_input", "session_id": id, "input": "go\n"});
    call(&pair.build, &input(&here));
    let waited = harness::receive(begun).expect("an answer").body;
    assert_eq!(waited["held"], true, "{waited}");
    let said = format!("{here} has ended: exited with code 3");
    assert_eq!(waited["seen"], json!(said));
    pair.desk.kill_daemon();
    pair.desk.start();
    call(&pair.build, &input(&later));
    let completed = pair.wait_completed(&timer);
    assert_eq!(completed["completed_by"], "condition", "{completed}");
}

#[test]
fn timer_waits_for_a_session_whose_machine_is_silent_and_completes_when_it_is_lost() {
    let pair = Pair::with("");
    let timer = pair.waiting(&json!({"session": pair.gate()}));
    pair.build.kill_daemon();
    let listed = look_for("the machine as silent", || {
        let timer = pair.desk.get(&format!("/v1/timers/{timer}"));
        let is_known = timer
            .to_string()
            .contains("build, which has it, cannot be reached");
        is_known.then_some(timer)
    });
    assert_eq!(listed["status"], "running", "{listed}");
    pair.desk.output(["machine", "lost", "build"]);
    let completed = pair.wait_completed(&timer);
    assert_eq!(completed["completed_by"], "condition", "{completed}");
    pair.build.start();
}

#[test]
fn output_of_a_session_of_another_machine_and_an_unknown_session_are_refused() {
    let pair = Pair::with("");
    let refusal = |until: Value| {
        let answer = pair
            .desk
            .post("/v1/wait", &json!({"until": until, "for": 600}));
        assert_eq!(answer.status, 400, "{}", answer.body);
        answer.body["detail"]
            .as_str()
            .expect("a sentence")
            .to_owned()
    };
    let output = refusal(json!({"session": pair.gate(), "output": "done"}));
    assert!(output.contains("on machine build"), "{output}");
    assert!(output.contains("`read_output` with `until`"), "{output}");
    let unknown = refusal(json!({"session": "session_00000000"}));
    assert!(unknown.contains("not found"), "{unknown}");
}
