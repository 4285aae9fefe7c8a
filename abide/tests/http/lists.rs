//! Lists: filters, sort order and pages.

use serde_json::{Value, json};

use crate::harness::Abide;

const PERSON: &str = "abide-person: true\r\n";

fn get(abide: &Abide, path: &str) -> Value {
    abide.good(&format!("GET {path}"), PERSON, &Value::Null)
}

/// One field of every entry of a list, over all pages.
fn all(abide: &Abide, path: &str, list: &str, field: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut page = get(abide, path);
    loop {
        let things = page[list].as_array().expect("a list");
        found.extend(things.iter().map(|thing| text(&thing[field])));
        match page["next"].as_str() {
            None => return found,
            Some(next) => page = get(abide, &format!("{path}&after={next}")),
        }
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn sessions_are_paged_and_filtered_by_text() {
    let abide = Abide::new();
    for command in ["echo one", "echo Two", "true three", "echo 100%"] {
        abide.shell(command);
    }
    let path = "/v1/sessions?include_ended=true&limit=1";
    let commands = all(&abide, path, "sessions", "command");
    assert_eq!(
        commands,
        ["echo 100%", "true three", "echo Two", "echo one"]
    );
    let list = get(&abide, &format!("{path}&q=ECHO"));
    assert_eq!(
        (&list["total"], &list["sessions"][0]["command"]),
        (&json!(3), &json!("echo 100%"))
    );
    let id = text(&list["sessions"][0]["session_id"]);
    let list = get(&abide, &format!("{path}&q={id}"));
    assert_eq!((&list["total"], &list["next"]), (&json!(1), &Value::Null));
    let session = &list["sessions"][0];
    assert_eq!(session["timeout"], 100.0, "{session}");
    for field in ["idle", "idle_for", "inactivity_timeout"] {
        assert!(
            session.as_object().unwrap().contains_key(field),
            "{field}: {session}"
        );
    }
    assert_eq!(get(&abide, "/v1/sessions")["total"], 0, "none runs");
    for (wrong, sentence) in [
        ("limit=0", "`limit` must be 1 to 1000; got 0"),
        ("limit=1001", "`limit` must be 1 to 1000; got 1001"),
        ("limit=-1", "limit: it must be 1 to 1000; got -1"),
        ("limit=x", "limit: it must be 1 to 1000; got x"),
        (
            "include_ended=yes",
            "include_ended: it must be true or false; got yes",
        ),
        (
            "after=x",
            "`after` must be the `next` of the page before; got x",
        ),
        ("unknown=1", "unknown field `unknown`"),
    ] {
        let (status, problem) =
            abide.ask(&format!("GET /v1/sessions?{wrong}"), PERSON, &Value::Null);
        assert_eq!(status, 400, "{wrong}: {problem}");
        let told = text(&problem["detail"]);
        assert!(told.contains(sentence), "{wrong}: {told}");
        assert!(
            problem["type"]
                .as_str()
                .unwrap()
                .starts_with("urn:abide:problem:"),
            "{problem}"
        );
    }
}

#[test]
fn secrets_in_commands_are_masked_for_agents_and_shown_to_people() {
    let abide = Abide::new();
    let token = format!("ghp_{}", "aB3d".repeat(9));
    let command = format!("echo found; cat; : correct-horse-battery {token}");
    let env = json!({"API_PASSWORD": "correct-horse-battery"});
    let start = json!({"command": command, "env": env});
    let started = abide.ask("POST /v1/sessions", "", &start).1;
    let masked = "echo found; cat; : [masked:API_PASSWORD] [masked:github_token]";
    assert_eq!(started["command"], masked, "{started}");
    let path = format!("/v1/sessions/{}", text(&started["session_id"]));
    let list = |headers: &str| {
        let list = abide.good("GET /v1/sessions", headers, &Value::Null);
        list["sessions"][0]["command"].clone()
    };
    assert_eq!(list(""), masked);
    assert_eq!(list("abide-person: true\r\n"), command.as_str());
    let one = abide.good(&format!("GET {path}"), "", &Value::Null);
    assert_eq!(one["command"], masked);
    let killed = abide.good(&format!("POST {path}/kill"), "", &json!({}));
    assert_eq!(killed["command"], masked);
    let found = abide.good("GET /v1/search?pattern=found", "", &Value::Null);
    assert_eq!(found["matches"][0]["command"], masked, "{found}");
}

#[test]
fn match_in_the_middle_of_a_long_line_is_shown() {
    let abide = Abide::new();
    let long = "printf '%03000d needle %03000d\\n' 0 0";
    abide.shell(long);
    let found = abide.good("GET /v1/search?pattern=needle", "", &Value::Null);
    let line = text(&found["matches"][0]["text"]);
    assert!(line.contains("0 needle 0"), "{line}");
}

#[test]
fn timers_are_filtered_sorted_and_paged() {
    let abide = Abide::new();
    let make = |total: u32, mission: &str| {
        let body = json!({"total_duration": total, "mission": mission});
        text(&abide.good("POST /v1/timers", "", &body)["timer_id"])
    };
    let long = make(900, "long Alpha");
    let short = make(300, "short beta");
    let paused = make(600, "paused 50%_x");
    let stopped = make(100, "stopped alpha");
    let act = |id: &str, act: &str, body: Value| {
        abide.good(&format!("POST /v1/timers/{id}/{act}"), PERSON, &body);
    };
    act(&paused, "pause", json!({"pause_duration": 500}));
    act(&stopped, "stop", json!({"reason": "enough"}));
    let ids = |query: &str| {
        all(
            &abide,
            &format!("/v1/timers?limit=1{query}"),
            "timers",
            "timer_id",
        )
    };
    assert_eq!(ids(""), [&*paused, &short, &long]);
    assert_eq!(
        ids("&include_ended=true"),
        [&*stopped, &paused, &short, &long]
    );
    assert_eq!(ids("&sort=remaining"), [&*short, &long, &paused]);
    assert_eq!(
        ids("&sort=remaining&include_ended=true"),
        [&*short, &long, &paused, &stopped]
    );
    assert_eq!(
        ids("&sort=status&include_ended=true"),
        [&*short, &long, &paused, &stopped]
    );
    assert_eq!(ids("&status=paused,stopped"), [&*stopped, &paused]);
    assert_eq!(ids("&q=ALPHA"), [&*long]);
    assert_eq!(ids("&q=alpha&include_ended=true"), [&*stopped, &long]);
    assert_eq!(
        ids("&q=50%25_"),
        [&*paused],
        "nothing in it stands for anything else"
    );
    assert_eq!(ids(&format!("&q={short}")), [&*short]);
    let page = get(&abide, "/v1/timers?limit=1&include_ended=true");
    assert_eq!(page["total"], 4);
    assert_eq!(page["timers"][0]["stop_reason"], "enough", "{page}");
    for wrong in [
        "status=gone",
        "sort=size",
        "after=x",
        "after=timer_00000000",
        "limit=0",
    ] {
        let line = format!("GET /v1/timers?{wrong}");
        let (status, problem) = abide.ask(&line, PERSON, &Value::Null);
        assert_eq!(status, 400, "{wrong}: {problem}");
    }
    let others = abide.good("GET /v1/timers", "abide-agent: other\r\n", &Value::Null);
    assert_eq!(others["total"], 0, "an agent sees its own");
    let one = get(&abide, &format!("/v1/timers/{paused}"));
    assert_eq!(
        (&one["standing_by"], &one["until"]),
        (&json!(false), &Value::Null),
        "{one}"
    );
}

#[test]
fn reading_a_timer_changes_nothing() {
    let abide = Abide::new();
    let body = json!({"total_duration": 900, "mission": "later"});
    let made = abide.good("POST /v1/timers", "", &body);
    let path = format!("/v1/timers/{}", text(&made["timer_id"]));
    // Repeats until the check was in another millisecond than the creation.
    loop {
        let looked = get(&abide, &path);
        let elapsed = looked["elapsed_time"].as_f64().expect("a number");
        assert_eq!(looked["last_check_at"], made["last_check_at"], "{looked}");
        let words = format!(": {elapsed} of 900 seconds elapsed");
        assert!(text(&looked["text"]).contains(&words), "{looked}");
        if elapsed > 0.0 {
            break;
        }
    }
}

#[test]
fn timer_history_is_paged_and_stats_are_summed() {
    let abide = Abide::new();
    for n in 0..3 {
        let body = json!({"total_duration": 0.01, "reason": format!("wait {n}")});
        abide.good("POST /v1/timers", "", &body);
    }
    let later = json!({"total_duration": 1000, "mission": "later"});
    let later = abide.good("POST /v1/timers", "", &later);
    let id = text(&later["timer_id"]);
    abide.good(&format!("POST /v1/timers/{id}/stop"), PERSON, &json!({}));
    let past = all(&abide, "/v1/timers/history?limit=1", "timers", "timer_id");
    assert_eq!((past.len(), &past[0]), (4, &id));
    let found = get(&abide, "/v1/timers/history?q=wait");
    assert_eq!(found["total"], 3);
    let stats = get(&abide, "/v1/timers/stats");
    let days = stats["days"].as_array().expect("days");
    let sum = |field: &str| {
        days.iter()
            .map(|day| day[field].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!((sum("completed"), sum("stopped")), (3, 1), "{stats}");
    assert_eq!(days[0]["day"].as_str().unwrap().len(), "2026-11-15".len());
    assert_eq!(stats["calls_saved"], 0, "nothing was waited for: {stats}");
}
