use serde_json::{Value, json};

use crate::harness::{Abide, look_for, receive};
use crate::{call, come_due, due, has_answered, id_of, mission, newest, refused};

#[test]
fn a_waiting_timer_answers_when_it_completes() {
    let abide = Abide::started();
    let result = call(
        &abide,
        "timer",
        json!({"total_duration": 0.2, "reason": "the build"}),
    );
    let id = id_of(&result);
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["timeout"], false);
    assert_eq!(result["completed_by"], "time");
    assert_eq!(result["elapsed_time"], 0.2);
    let text = format!(
        "Timer '{id}' has completed.\nReason: the build\nTotal duration: 0.2 seconds\nElapsed time: 0.2 seconds"
    );
    assert_eq!(but_for_lateness(&result["text"]), text);
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["text"], "No messages.", "it was told once");
    let again = call(&abide, "timer", json!({"timer_id": id}));
    assert_eq!(again["status"], "completed", "{again}");
}

/// Text about an ending; a very slow machine appends how late it is.
fn but_for_lateness(text: &Value) -> &str {
    let text = text.as_str().expect("a text");
    text.split_once("\nLate by: ")
        .map_or(text, |(text, _)| text)
}

#[test]
fn a_standby_ends_before_the_timer() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.05, "reason": "r"});
    let result = call(&abide, "timer", arguments);
    assert_eq!(result["timeout"], true, "{result}");
    assert_eq!(result["status"], "running");
    assert_eq!(result["timeout_duration"], 0.05);
    let sum = result["elapsed_time"].as_f64().unwrap() + result["remaining_time"].as_f64().unwrap();
    assert!((sum - 600.0).abs() < 1e-6, "{result}");
    let id = id_of(&result);
    let more = json!({"timer_id": id, "total_duration": 0.1});
    let result = call(&abide, "timer", more);
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["remaining_time"], 0);
}

#[test]
fn completed_mission_is_reported_by_the_next_result() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "mission": "later"});
    let made = call(&abide, "timer", arguments);
    let text = made["text"].as_str().unwrap();
    assert!(text.contains("\nEnd your turn now"), "{made}");
    assert!(text.contains("told with your next abide call"), "{made}");
    let id = mission(&abide, "look again");
    newest(&abide, Value::is_object);
    let shell = call(&abide, "shell", json!({"command": "echo hello"}));
    let told = shell["messages"].as_array().expect("messages");
    assert_eq!(told.len(), 1, "{shell}");
    let text = format!(
        "[System] Timer '{id}' has completed.\nMission: look again\nTotal duration: 0.05 seconds\nElapsed time: 0.05 seconds"
    );
    assert_eq!(but_for_lateness(&told[0]["text"]), text);
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "it was told once: {none}");
}

#[test]
fn words_about_timers_contain_no_tokens_and_control_characters() {
    let abide = Abide::started();
    let words = format!("with ghp_{}\n\u{1b}]0;\u{7}", "aB3d".repeat(9));
    let shown = "with [masked:github_token]\n\\u{1b}]0;\\u{7}";
    let check = |result: &Value, field: &str| {
        assert_eq!(result[field], shown, "{result}");
        assert!(result["text"].as_str().unwrap().contains(shown), "{result}");
    };
    let until = json!({"file": "/nonexistent/\u{1b}]0;"});
    let arguments =
        json!({"total_duration": 600, "timeout_duration": 0.05, "reason": words, "until": until});
    let waiting = call(&abide, "timer", arguments);
    check(&waiting, "reason");
    let last_look = waiting["last_look"].as_str().unwrap();
    assert!(last_look.contains("/\\u{1b}]0;"), "{waiting}");
    let stop = json!({"timer_id": id_of(&waiting), "reason": words});
    check(&call(&abide, "stop_timer", stop), "stop_reason");
    check(
        &call(&abide, "read_timer", json!({"timer_id": id_of(&waiting)})),
        "reason",
    );
    mission(&abide, &words);
    newest(&abide, Value::is_object);
    let told = call(&abide, "read_messages", json!({}));
    let message = told["messages"][0]["text"].as_str().unwrap();
    assert!(message.contains(shown), "{told}");
}

#[test]
fn actions_are_allowed_by_state() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "r"});
    let id = id_of(&call(&abide, "timer", arguments));
    let on = |more: Value| {
        let mut arguments = json!({"timer_id": id});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        arguments
    };
    let cancelled = call(
        &abide,
        "cancel_timer",
        on(json!({"reason": "something else"})),
    );
    assert_eq!(cancelled["status"], "running_background", "{cancelled}");
    let paused = call(&abide, "pause_timer", on(json!({"pause_duration": 3600})));
    assert_eq!(paused["status"], "paused");
    assert!(paused["pause_until"].as_u64().is_some(), "{paused}");
    let sentence = refused(&abide, "cancel_timer", on(json!({})));
    assert!(sentence.contains("is paused"), "{sentence}");
    let resumed = call(&abide, "resume_timer", on(json!({})));
    assert_eq!(resumed["status"], "running_background");
    let stopped = call(&abide, "stop_timer", on(json!({"reason": "enough"})));
    assert_eq!(stopped["status"], "stopped");
    assert_eq!(stopped["stop_reason"], "enough");
    let sentence = refused(&abide, "stop_timer", on(json!({})));
    assert!(sentence.contains("is stopped"), "{sentence}");
    let listed = call(&abide, "read_timer", json!({}));
    assert_eq!(listed["timers"], json!([]));
    let listed = call(&abide, "read_timer", json!({"include_ended": true}));
    assert_eq!(listed["timers"][0]["timer_id"], id);
}

#[test]
fn standby_returns_when_another_caller_changes_the_timer() {
    let abide = Abide::started();
    for (tool, more, status) in [
        ("stop_timer", json!({}), "stopped"),
        ("cancel_timer", json!({}), "running_background"),
        ("pause_timer", json!({"pause_duration": 60}), "paused"),
    ] {
        let waiting = abide.begin(
            "/v1/tools/timer",
            &json!({"total_duration": 600, "reason": tool}),
        );
        let id = look_for("the timer", || {
            assert!(!has_answered(&waiting), "it stands by");
            let listed = call(&abide, "read_timer", json!({}));
            let mut list = listed["timers"].as_array().unwrap().iter();
            list.find(|timer| timer["reason"] == tool).map(id_of)
        });
        let mut arguments = json!({"timer_id": id});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        call(&abide, tool, arguments);
        let received = crate::harness::receive(waiting).expect("an answer").body;
        assert_eq!(received["status"], status, "{received}");
        assert_eq!(received["timeout"], false);
        let said = match tool {
            "stop_timer" => "was stopped:",
            "cancel_timer" => "was cancelled:",
            _ => "was paused:",
        };
        assert!(
            received["text"].as_str().unwrap().contains(said),
            "{received}"
        );
    }
}

#[test]
fn s27_invalid_durations_are_refused_and_long_ones_work() {
    let abide = Abide::started();
    for absurd in [
        json!(0),
        json!(-1),
        json!("soon"),
        json!(1e308),
        json!(3_153_600_001_u64),
        json!(null),
    ] {
        let arguments = json!({"total_duration": absurd, "reason": "r"});
        let sentence = refused(&abide, "timer", arguments);
        assert!(sentence.contains("`total_duration`"), "{sentence}");
    }
    for days in [30_u64, 3_650, 36_500] {
        let arguments = json!({"total_duration": days * 86_400, "mission": "later"});
        let result = call(&abide, "timer", arguments);
        assert_eq!(result["remaining_time"], days * 86_400, "{result}");
    }
    assert!(
        refused(&abide, "timer", json!({"total_duration": 1})).contains("`reason` or `mission`")
    );
    let both = json!({"total_duration": 1, "reason": "a", "mission": "b"});
    assert!(refused(&abide, "timer", both).contains("exclude each other; got both"));
    let nothing = json!({"total_duration": 1, "reason": "a", "until": {"port": null}});
    let sentence = refused(&abide, "timer", nothing);
    assert!(
        sentence.starts_with("`until.port` must be a port") && sentence.ends_with("got null."),
        "{sentence}"
    );
    let turned = refused(&abide, "read_timer", json!({"timer_id": "timer_\u{202e}x"}));
    assert!(!turned.contains('\u{202e}'), "{turned}");
    let unknown = json!({"total_duration": 1, "reason": "a", "colour": "red"});
    assert!(refused(&abide, "timer", unknown).contains("`colour`"));
}

#[test]
fn mission_for_a_waiting_timer_is_refused() {
    let abide = Abide::started();
    let timer =
        |kind: &str| json!({"total_duration": 600, "timeout_duration": 0.01, kind: "first"});
    let waiting = id_of(&call(&abide, "timer", timer("reason")));
    let more =
        |id: &str| json!({"timer_id": id, "timeout_duration": 0.01, "mission": "look again"});
    let sentence = refused(&abide, "timer", more(&waiting));
    assert!(
        sentence.starts_with("`mission` belongs to a new timer"),
        "{sentence}"
    );
    let mission = id_of(&call(&abide, "timer", timer("mission")));
    assert_eq!(call(&abide, "timer", more(&mission))["timeout"], true);
}

#[test]
fn empty_field_counts_as_missing() {
    let abide = Abide::started();
    for (filled, empty) in [("reason", "mission"), ("mission", "reason")] {
        let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "timer_id": "",
            filled: "something", empty: " ", "until": null});
        let timer = call(&abide, "timer", arguments);
        assert_eq!(timer[filled], "something", "{timer}");
        assert!(timer[empty].is_null(), "{timer}");
    }
    let mission = |text: &str| json!({"total_duration": 600, "mission": text, "reason": ""});
    let first = call(&abide, "timer", mission("first"));
    let second = call(&abide, "timer", mission("second"));
    assert_ne!(first["timer_id"], second["timer_id"]);
    let all = call(&abide, "read_timer", json!({"timer_id": ""}));
    assert_eq!(all["timers"].as_array().map(Vec::len), Some(4), "{all}");
    let stop = json!({"timer_id": first["timer_id"], "reason": ""});
    let stopped = call(&abide, "stop_timer", stop);
    assert!(stopped["stop_reason"].is_null(), "{stopped}");
    let arguments = json!({"total_duration": 600, "reason": "", "mission": null});
    let sentence = refused(&abide, "timer", arguments);
    assert!(
        sentence.starts_with("`reason` must not be empty") && sentence.ends_with("got \"\"."),
        "{sentence}"
    );
    let arguments = json!({"total_duration": 600, "reason": "", "mission": "", "timer_id": ""});
    let sentence = refused(&abide, "timer", arguments);
    let neither = "`reason` or `mission` is required for a new timer; got neither.";
    assert!(sentence.starts_with(neither), "{sentence}");
    let arguments = json!({"total_duration": 600, "mission": "m", "until": ""});
    let id = id_of(&call(&abide, "timer", arguments));
    let arguments = json!({"timer_id": id, "timeout_duration": 0.01, "until": {}});
    let timer = call(&abide, "timer", arguments);
    assert_eq!(timer["status"], "running", "{timer}");
    let sentence = refused(&abide, "read_messages", json!({"timeout_seconds": -1}));
    assert!(sentence.contains("from 0"), "{sentence}");
}

#[test]
fn error_of_an_unknown_timer_lists_the_timers() {
    let abide = Abide::started();
    assert!(refused(&abide, "timer", json!({"timer_id": "timer_00000000"})).contains("no timers"));
    let id = id_of(&call(
        &abide,
        "timer",
        json!({"total_duration": 3_600, "mission": "m"}),
    ));
    for unknown in ["timer_00000000", "nonsense"] {
        for tool in ["timer", "stop_timer", "read_timer"] {
            let sentence = refused(&abide, tool, json!({"timer_id": unknown}));
            assert!(
                sentence.contains(&id) && sentence.contains(unknown),
                "{sentence}"
            );
        }
    }
    // An ended timer exists as well: it can be read.
    call(&abide, "stop_timer", json!({"timer_id": id}));
    let sentence = refused(&abide, "read_timer", json!({"timer_id": "nonsense"}));
    assert_eq!(
        sentence,
        format!("Timer 'nonsense' not found; the timers that exist have ended: {id}")
    );
    let arguments = json!({"total_duration": 3_600, "mission": "m"});
    let made: Vec<String> = (0..25)
        .map(|_| id_of(&call(&abide, "timer", arguments.clone())))
        .collect();
    for unknown in ["timer_00000000", "nonsense"] {
        let sentence = refused(&abide, "cancel_timer", json!({"timer_id": unknown}));
        assert!(sentence.contains(&made[0]), "{sentence}");
        let rest = format!(" and 5 more, and of those that have ended {id}");
        assert!(sentence.ends_with(&rest), "{sentence}");
    }
}

#[test]
fn s25_a_list_that_leaves_timers_out_says_so() {
    let abide = Abide::started();
    let one = json!({"total_duration": 3_600, "mission": "m"});
    let make = |count: usize| {
        let many = json!({"timers": vec![one.clone(); count]});
        let made = abide.post("/v1/timers", &many);
        assert_eq!(made.status, 200, "{}", made.body);
    };
    make(1_000);
    let listed = call(&abide, "read_timer", json!({}));
    assert_eq!(listed["timers"].as_array().map(Vec::len), Some(1_000));
    assert_eq!(listed["truncated"], false);
    make(20);
    let listed = call(&abide, "read_timer", json!({}));
    assert_eq!(listed["timers"].as_array().map(Vec::len), Some(1_000));
    assert_eq!(listed["truncated"], true);
    let text = listed["text"].as_str().unwrap();
    assert!(
        text.ends_with("\nOnly the 1000 oldest are listed."),
        "{text}"
    );
}

#[test]
fn a_list_of_ended_timers_that_leaves_some_out_says_so() {
    let abide = Abide::started();
    let stopped = |count: usize| {
        for _ in 0..count {
            let arguments = json!({"total_duration": 3_600, "mission": "m"});
            let id = id_of(&call(&abide, "timer", arguments));
            call(&abide, "stop_timer", json!({"timer_id": id}));
        }
        call(&abide, "read_timer", json!({"include_ended": true}))
    };
    let all = stopped(100);
    assert_eq!(all["truncated"], false);
    assert_eq!(all["timers"].as_array().map(Vec::len), Some(100));
    let newest = stopped(1);
    assert_eq!(newest["truncated"], true);
    assert_eq!(newest["timers"].as_array().map(Vec::len), Some(100));
}

#[test]
fn reading_a_timer_updates_last_check_at() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "mission": "m"});
    let made = call(&abide, "timer", arguments);
    let id = id_of(&made);
    let mut last = made["last_check_at"].as_u64().expect("a stamp");
    for arguments in [json!({"timer_id": id}), json!({})] {
        // Timestamps are in milliseconds, and a call may take less.
        last = look_for("a later look", || {
            let looked = call(&abide, "read_timer", arguments.clone());
            let timer = looked["timers"].get(0).unwrap_or(&looked);
            let checked = timer["last_check_at"].as_u64().expect("a stamp");
            assert!(checked >= last, "{looked}");
            (checked > last).then_some(checked)
        });
    }
    // The stored row says the same once the timer has ended.
    let stopped = call(&abide, "stop_timer", json!({"timer_id": id}));
    assert_eq!(stopped["last_check_at"], last, "{stopped}");
    let listed = call(&abide, "read_timer", json!({"include_ended": true}));
    assert_eq!(listed["timers"][0]["last_check_at"], last, "{listed}");
}

#[test]
fn reason_of_resume_is_not_the_stop_reason() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "mission": "m"});
    let id = id_of(&call(&abide, "timer", arguments));
    let pause = json!({"timer_id": id, "pause_duration": 60, "reason": "lunch"});
    assert_eq!(call(&abide, "pause_timer", pause)["stop_reason"], "lunch");
    let resume = json!({"timer_id": id, "reason": "back again"});
    let resumed = call(&abide, "resume_timer", resume);
    assert_eq!(resumed["stop_reason"], Value::Null, "{resumed}");
    let text = resumed["text"].as_str().unwrap();
    assert!(text.contains("Why: back again"), "{text}");
}

#[test]
fn standby_is_limited_by_the_remaining_time() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 0.1, "timeout_duration": 1_000, "reason": "r"});
    assert_eq!(call(&abide, "timer", arguments)["timeout_duration"], 0.1);
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "r"});
    let id = call(&abide, "timer", arguments)["timer_id"].clone();
    let arguments = json!({"timer_id": id, "total_duration": 0.1});
    let result = call(&abide, "timer", arguments);
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["timeout_duration"], 0.1);
    // A mission returns at once, whatever time its caller would have waited.
    let arguments = json!({"total_duration": 600, "timeout_duration": 60, "mission": "m"});
    let mission = call(&abide, "timer", arguments);
    assert_eq!(mission["status"], "running");
    assert_eq!(mission["timeout_duration"], 600);
}

#[test]
fn history_of_a_timer_keeps_what_was_done_to_it_and_why() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "mission": "m"});
    let id = id_of(&call(&abide, "timer", arguments));
    let act = |tool: &str, arguments: Value| call(&abide, tool, arguments);
    act(
        "pause_timer",
        json!({"timer_id": id, "pause_duration": 3600, "reason": "lunch"}),
    );
    let paused = act("read_timer", json!({"timer_id": id}));
    let text = paused["text"].as_str().expect("a text");
    assert!(text.contains("\nPaused: lunch\n"), "{text}");
    let resumed = act("resume_timer", json!({"timer_id": id, "reason": "back"}));
    let text = resumed["text"].as_str().expect("a text");
    assert!(text.contains("\nWhy: back\n"), "{text}");
    act(
        "pause_timer",
        json!({"timer_id": id, "pause_duration": 0.01}),
    );
    look_for("the end of the pause", || {
        let read = act("read_timer", json!({"timer_id": id}));
        (read["status"] == "running").then_some(())
    });
    let read = act("read_timer", json!({"timer_id": id}));
    let changes = read["changes"].as_array().expect("a history");
    let changes = changes.iter().map(|change| {
        let word = |field: &str| change[field].as_str().map(str::to_owned);
        (word("change").expect("a change"), word("reason"))
    });
    let wanted = [
        ("paused", Some("lunch")),
        ("resumed", Some("back")),
        ("paused", None),
        ("resumed_by_itself", None),
    ]
    .map(|(change, reason)| (change.to_owned(), reason.map(str::to_owned)));
    assert_eq!(changes.collect::<Vec<_>>(), wanted);
    let text = read["text"].as_str().expect("a text");
    assert!(
        text.ends_with("Resumed by itself after the pause."),
        "{text}"
    );
}

#[test]
fn standby_on_a_paused_timer_is_refused_with_its_state() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "mission": "m"});
    let id = id_of(&call(&abide, "timer", arguments));
    call(
        &abide,
        "pause_timer",
        json!({"timer_id": id, "pause_duration": 3600}),
    );
    let answer = abide.post("/v1/tools/timer", &json!({"timer_id": id}));
    let refusal = answer.body;
    assert_eq!(refusal["is_error"], true, "{refusal}");
    assert_eq!(refusal["status"], "paused", "{refusal}");
    assert_eq!(refusal["total_duration"], 600, "{refusal}");
    let paused = call(&abide, "read_timer", json!({"timer_id": id}));
    assert!(paused["pause_until"].is_u64(), "{paused}");
    assert_eq!(refusal["pause_until"], paused["pause_until"], "{refusal}");
    for answer in [refusal, paused] {
        let text = answer["text"].as_str().expect("a text");
        let (_, left) = text.split_once("It resumes by itself in ").expect("a time");
        let (left, _) = left.split_once(" seconds").expect("seconds");
        let left: f64 = left.parse().expect("a number");
        assert!(left > 0.0 && left <= 3600.0, "{answer}");
    }
}

#[test]
fn refused_act_returns_the_state_of_the_timer() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "mission": "m"});
    let id = id_of(&call(&abide, "timer", arguments));
    let refused = |tool: &str, more: Value| {
        let mut arguments = json!({"timer_id": id});
        for (name, value) in more.as_object().expect("fields") {
            arguments[name] = value.clone();
        }
        let refusal = abide.post(&format!("/v1/tools/{tool}"), &arguments).body;
        assert_eq!(refusal["is_error"], true, "{refusal}");
        assert_eq!(refusal["total_duration"], 600, "{refusal}");
        assert_eq!(refusal["mission"], "m", "{refusal}");
        refusal
    };
    let running = refused("resume_timer", json!({}));
    assert_eq!(running["status"], "running", "{running}");
    call(
        &abide,
        "stop_timer",
        json!({"timer_id": id, "reason": "enough"}),
    );
    let stopped = refused("pause_timer", json!({"pause_duration": 60}));
    assert_eq!(stopped["status"], "stopped", "{stopped}");
    assert_eq!(stopped["stop_reason"], "enough", "{stopped}");
}

#[test]
fn read_of_a_completed_timer_tells_its_completion_once() {
    let abide = Abide::started();
    for restarted in [false, true] {
        let id = mission(&abide, "look again");
        newest(&abide, |message| message["timer_id"] == id.as_str());
        if restarted {
            abide.kill_daemon();
            abide.start();
        }
        let read = call(&abide, "read_timer", json!({"timer_id": id}));
        let text = format!("Timer '{id}' has completed.\nMission: look again\n");
        let said = read["text"].as_str().expect("a text");
        assert!(said.starts_with(&text), "{read}");
        assert!(!said.contains("[System]"), "{read}");
        assert_eq!(read["status"], "completed", "{read}");
        let none = call(&abide, "read_messages", json!({}));
        assert_eq!(none["messages"], json!([]), "it was told once: {none}");
    }
}

#[test]
fn text_of_a_stopped_timer_tells_why_it_was_stopped() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "mission": "m"});
    let id = id_of(&call(&abide, "timer", arguments));
    let stop = json!({"timer_id": id, "reason": "the build failed"});
    call(&abide, "stop_timer", stop);
    for tool in ["timer", "read_timer"] {
        let answer = call(&abide, tool, json!({"timer_id": id}));
        let text = answer["text"].as_str().expect("a text");
        let why = "\nMission: m\nWhy: the build failed";
        assert!(text.ends_with(why), "{tool}: {text}");
    }
}

#[test]
fn list_rounds_times_as_the_read_of_one_timer_does() {
    let abide = Abide::started();
    let arguments = json!({"total_duration": 600, "mission": "m"});
    let id = id_of(&call(&abide, "timer", arguments));
    // From one second on, tenths are enough.
    let more = json!({"total_duration": 1.01, "reason": "time passes"});
    call(&abide, "timer", more);
    let pause = json!({"timer_id": id, "pause_duration": 3600});
    call(&abide, "pause_timer", pause);
    let one = call(&abide, "read_timer", json!({"timer_id": id}));
    let text = one["text"].as_str().expect("a text");
    let (_, progress) = text.split_once("is paused: ").expect("the progress");
    let (progress, _) = progress.split_once(".\n").expect("its end");
    let listed = call(&abide, "read_timer", json!({}));
    let line = format!("{id} mission paused: {progress}: m");
    assert_eq!(listed["text"], line);
}

#[test]
fn key_of_another_timer_is_refused() {
    let abide = Abide::started();
    let with = |purpose: &str, until: Value| json!({"total_duration": 600, "mission": purpose, "until": until, "idempotency_key": "k"});
    let condition = json!({"file": "/nowhere/at/all"});
    let first = call(&abide, "timer", with("m", condition.clone()));
    let again = call(&abide, "timer", with("m", condition.clone()));
    assert_eq!(again["timer_id"], first["timer_id"], "{again}");
    let stop = json!({"timer_id": first["timer_id"]});
    for state in ["running", "stopped"] {
        for other in [with("other", condition.clone()), with("m", Value::Null)] {
            let sentence = refused(&abide, "timer", other);
            let used = "`idempotency_key` 'k' was used for another timer already";
            assert!(sentence.starts_with(used), "{state}: {sentence}");
        }
        if state == "running" {
            call(&abide, "stop_timer", stop.clone());
        }
    }
}

#[test]
fn continued_mission_is_waited_for() {
    let abide = Abide::started();
    let due = due(&abide, "m");
    let arguments = json!({"total_duration": 600, "mission": "m", "until": {"file": due}});
    let timer = call(&abide, "timer", arguments)["timer_id"].clone();
    let waiting = abide.begin("/v1/tools/timer", &json!({"timer_id": timer}));
    look_for("the call that waits", || {
        let timers = abide.get("/v1/timers");
        (timers["timers"][0]["standing_by"] == true).then_some(())
    });
    come_due(&due);
    let result = receive(waiting).expect("an answer").body;
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["timeout"], false, "{result}");
}
