//! Agents and their timers on two machines.

use super::*;

/// Result of a tool for an agent; `None` is one without a name.
fn tool(machine: &Abide, agent: Option<&str>, name: &str, arguments: &str) -> Value {
    let agent = agent.map(|agent| ["--agent", agent]);
    let args = ["call", "--json"]
        .into_iter()
        .chain(agent.into_iter().flatten());
    let mut command = machine.command(args);
    command.env_remove("ABIDE_AGENT");
    harness::said_to(
        command,
        &format!("<tool name=\"{name}\">{arguments}</tool>"),
    )
}

/// Makes a timer for an agent. Returns its id.
fn timer(machine: &Abide, agent: Option<&str>, arguments: &str) -> String {
    look_for("a timer that can be made", || {
        let made = tool(machine, agent, "timer", arguments);
        made["timer_id"].as_str().map(str::to_owned)
    })
}

const HOUR: &str = "<total_duration>3600</total_duration><mission>later</mission>";

#[test]
fn agent_without_a_name_is_called_after_its_machine() {
    let pair = Pair::with("");
    let start =
        "<action>start</action><command>cat</command><inactivity_timeout>0</inactivity_timeout>";
    let started = tool(&pair.build, None, "terminal_session", start);
    let id = started["session_id"].as_str().expect("an id").to_owned();
    pair.wait_listed(&id);
    let listed = pair.desk.get("/v1/sessions");
    assert_eq!(listed["sessions"][0]["agent"], "default@build", "{listed}");
    let list = "<action>list</action>";
    let own = tool(&pair.build, None, "terminal_session", list);
    assert_eq!(own["sessions"][0]["session_id"], json!(id), "{own}");
    let none = tool(&pair.desk, None, "terminal_session", list);
    assert_eq!(none["sessions"], json!([]), "{none}");
    // The name of the other one can be given, as that of any agent.
    let other = tool(&pair.desk, Some("default@build"), "terminal_session", list);
    assert_eq!(other["sessions"][0]["session_id"], json!(id), "{other}");
}

#[test]
fn session_that_a_person_starts_elsewhere_is_of_the_machine_of_that_person() {
    let pair = Pair::with("[fleet]\nrun = [\"desk\"]\n");
    let started = pair
        .desk
        .output(["session", "start", "--on", "build", "--json", "cat"]);
    let started: Value = serde_json::from_slice(&started.stdout).expect("JSON");
    let id = started["session_id"].as_str().expect("an id").to_owned();
    pair.wait_listed(&id);
    let session = pair.build.get(&format!("/v1/sessions/{id}"));
    assert_eq!(session["agent"], "default@desk", "{session}");
}

#[test]
fn agent_without_a_name_is_called_after_the_name_that_its_machine_got_instead_of_a_taken_one() {
    let pair = Pair::with("");
    let second = Abide::on(None);
    let config = format!("store = {:?}\nmachine = \"desk\"\n", pair.server().url());
    std::fs::write(second.path("config.toml"), config).expect("a configuration");
    give_secret(&second, SECRET);
    // The code of the first row: that of another name would be believed by no machine.
    pair.server().sql(
        "CREATE TABLE entered AS SELECT name, mac FROM abide.machine WHERE false; \
         CREATE FUNCTION enter() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO public.entered VALUES (NEW.name, NEW.mac); RETURN NEW; END $$; \
         CREATE TRIGGER enter BEFORE INSERT ON abide.machine FOR EACH ROW EXECUTE FUNCTION enter()",
    );
    second.start();
    let name = look_for("another name", || {
        let names = "SELECT name FROM abide.machine WHERE name LIKE 'desk-%'";
        Some(pair.server().sql(names)).filter(|name| !name.is_empty())
    });
    let start = "<action>start</action><command>true</command>";
    let started = tool(&second, None, "terminal_session", start);
    let id = started["session_id"].as_str().expect("an id");
    let session = second.get(&format!("/v1/sessions/{id}"));
    assert_eq!(session["agent"], json!(format!("default@{name}")));
    look_for("a machine that is vouched for", || {
        let known = pair.desk.get("/v1/machines");
        let mut known = known["machines"].as_array()?.iter();
        known
            .find(|known| known["name"] == json!(name) && known["vouched_for"] == true)
            .map(drop)
    });
    let same = "SELECT count(*) FROM entered NATURAL JOIN abide.machine";
    assert_eq!(pair.server().sql(same), "1");
    let said =
        format!("Another machine of the fleet has the name desk, so this one is called {name};");
    for words in [["fleet", "status"].as_slice(), &["doctor"]] {
        let printed = second.output(words);
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        assert!(printed.contains(&said), "{printed}");
    }
    let status = pair.desk.output(["fleet", "status"]);
    assert!(!String::from_utf8_lossy(&status.stdout).contains("has the name"));
}

#[test]
fn cancellation_by_a_person_ends_the_command_on_the_other_machine() {
    use std::io::Write;
    use std::process::Stdio;
    let pair = Pair::with("[fleet]\nrun = [\"desk\"]\ntype = [\"desk\"]\n");
    let mut front = pair.desk.command(["mcp", "--agent", "ann"]);
    front.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut front = front.spawn().expect("a front");
    let mut lines = front.stdin.take().expect("a pipe");
    let mut send = |message: Value| writeln!(lines, "{message}").expect("the front reads");
    let client = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    send(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}));
    send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let arguments = json!({"command": "sleep 600", "on": "build"});
    send(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "execute_command", "arguments": arguments}}));
    pair.build.running();
    send(
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 2, "reason": "cancelled by the user"}}),
    );
    look_for("the end of the command", || {
        let listed = pair.build.get("/v1/sessions?include_ended=true");
        (listed["sessions"][0]["end"] == "user").then_some(())
    });
    drop(lines);
    front.wait().expect("the front ends");
}

const RUNS_AND_ASKS: &str = "[fleet]\nrun = [\"desk\"]\ntype = [\"desk\"]\n\
     [[policy.rule]]\nrun = [\"touch\"]\ndo = \"ask\"\nwhy = \"makes a file\"\n";

#[test]
fn command_that_another_machine_holds_can_be_waited_for() {
    let pair = Pair::with(RUNS_AND_ASKS);
    let made = pair.build.path("made");
    let shell = |arguments: Value| {
        let answer = pair.desk.call_in(["ann", "c"], "shell", &arguments);
        answer.expect("an answer").body
    };
    let command = json!({"command": format!("touch {}", made.display()), "on": "build"});
    let held = shell(command);
    assert_eq!(held["status"], "held", "{held}");
    let answer = json!({"answer": "once"});
    let answered = (pair.build).post(&answer_path(&held["question_id"]), &answer);
    assert_eq!(answered.status, 200, "{}", answered.body);
    let done = shell(json!({"session_id": held["session_id"]}));
    assert_eq!(done["status"], "SUCCESS", "{done}");
    assert!(made.exists());
}

#[test]
fn folder_of_a_command_on_another_machine_is_its_workspace_there() {
    let rights = "[fleet]\nrun = [\"desk\"]\n[sandbox]\nmode = \"workspace-write\"\n";
    let pair = Pair::with(rights);
    let work = tempfile::tempdir().expect("a folder");
    let command = format!(
        "<command>touch made</command><cwd>{}</cwd><on>build</on>",
        work.path().display()
    );
    let done = tool(&pair.desk, Some("ann"), "shell", &command);
    assert_eq!(done["status"], "SUCCESS", "{done}");
    assert_eq!(done["sandboxed_by"], "namespaces", "{done}");
    assert!(work.path().join("made").exists(), "{done}");
}

#[test]
fn message_about_a_session_of_the_other_machine_says_how_it_ended() {
    let pair = Pair::with("");
    let start =
        "<action>start</action><command>cat</command><inactivity_timeout>0</inactivity_timeout>";
    let started = tool(&pair.build, Some("ann"), "terminal_session", start);
    let id = started["session_id"].as_str().expect("an id").to_owned();
    let killed = pair.build.output(["session", "kill", &id]);
    assert!(killed.status.success(), "{killed:?}");
    let ended = format!("SELECT count(*) FROM abide.session WHERE id = '{id}' AND state = 'ended'");
    look_for("the end in the directory", || {
        (pair.server().sql(&ended) == "1").then_some(())
    });
    let told = look_for("the message", || {
        let read = tool(&pair.desk, Some("ann"), "read_messages", "");
        let told = read["messages"][0]["text"].as_str();
        told.map(str::to_owned)
    });
    let parts = [
        "on machine build",
        "Command: cat",
        "[ended after",
        "a person ended it",
    ];
    for part in parts.into_iter().chain([&*id]) {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn message_about_a_session_of_the_other_machine_has_its_duration_and_last_lines() {
    let pair = Pair::with("");
    let start = "<action>start</action><command>echo first; echo last; read line; exit 3</command>";
    let started = tool(&pair.build, Some("ann"), "terminal_session", start);
    let id = started["session_id"].as_str().expect("an id");
    let sent = (pair.build).output(["session", "send", id, "go", "--key", "enter"]);
    assert!(sent.status.success(), "{sent:?}");
    let told = look_for("the message", || {
        let read = tool(&pair.desk, Some("ann"), "read_messages", "");
        let told = read["messages"][0]["text"].as_str();
        told.map(str::to_owned)
    });
    for part in [
        "on machine build",
        "[exited with code 3 after ",
        "Last lines:\nfirst\nlast\n",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn session_from_before_the_fleet_stays_with_the_agent_without_a_name() {
    let machine = Abide::on(None);
    machine.start();
    let start =
        "<action>start</action><command>cat</command><inactivity_timeout>0</inactivity_timeout>";
    let started = tool(&machine, None, "terminal_session", start);
    let id = started["session_id"].as_str().expect("an id").to_owned();
    machine.output(["stop"]);
    let server = Server::start();
    let config = format!("store = {:?}\nmachine = \"desk\"\n", server.url());
    std::fs::write(machine.path("config.toml"), config).expect("a configuration");
    machine.start();
    let list = "<action>list</action>";
    let listed = tool(&machine, None, "terminal_session", list);
    assert_eq!(listed["sessions"][0]["session_id"], json!(id), "{listed}");
    assert_eq!(listed["sessions"][0]["agent"], "default@desk", "{listed}");
    machine.output(["stop"]);
    std::fs::write(machine.path("config.toml"), "").expect("a configuration");
    machine.start();
    let listed = tool(&machine, None, "terminal_session", list);
    assert_eq!(listed["sessions"][0]["agent"], "default", "{listed}");
    harness::end_all(|args| machine.command(args));
}

#[test]
fn key_of_a_timer_on_the_other_machine_joins_it() {
    let pair = Pair::with("");
    let keyed = format!("{HOUR}<idempotency_key>once</idempotency_key>");
    let first = timer(&pair.build, Some("ann"), &keyed);
    assert_eq!(timer(&pair.desk, Some("ann"), &keyed), first);
    assert_ne!(timer(&pair.desk, Some("bob"), &keyed), first);
    let stop = format!("<timer_id>{first}</timer_id><reason>enough</reason>");
    let stopped = tool(&pair.build, Some("ann"), "stop_timer", &stop);
    assert_eq!(stopped["status"], "stopped", "{stopped}");
    assert_eq!(timer(&pair.desk, Some("ann"), &keyed), first);
    let waiting = "<total_duration>60</total_duration><reason>x</reason><idempotency_key>once</idempotency_key>";
    let refused = tool(&pair.desk, Some("ann"), "timer", waiting);
    assert!(refused["timer_id"].is_null(), "{refused}");
    let body = json!({"total_duration": 60, "mission": "by HTTP", "idempotency_key": "page"});
    let made = |machine: &Abide| {
        look_for("a timer that can be made", || {
            let answer = machine.try_post("/v1/timers", &body)?;
            answer.body["timer_id"].as_str().map(str::to_owned)
        })
    };
    // People of two machines are two agents without a name.
    assert_ne!(made(&pair.build), made(&pair.desk));
}

#[test]
fn timer_of_the_other_machine_is_read_waited_for_and_stopped() {
    let pair = Pair::with("");
    let id = timer(&pair.build, Some("ann"), HOUR);
    let about = format!("<timer_id>{id}</timer_id>");
    let read = tool(&pair.desk, Some("ann"), "read_timer", &about);
    assert_eq!(read["machine"], "build", "{read}");
    assert_eq!(read["status"], "running", "{read}");
    let all = tool(&pair.desk, Some("ann"), "read_timer", "");
    assert_eq!(all["timers"][0]["timer_id"], json!(id), "{all}");
    let listed = pair.desk.get("/v1/timers");
    for timer in [&all["timers"][0], &listed["timers"][0]] {
        let [total, elapsed, remaining] = ["total_duration", "elapsed_time", "remaining_time"]
            .map(|name| timer[name].as_f64().expect("a time"));
        assert!(remaining > 0.5 * total, "{timer}");
        assert!((elapsed + remaining - total).abs() < 0.01, "{timer}");
    }
    let foreign = tool(&pair.desk, Some("bob"), "read_timer", &about);
    assert!(foreign["timer_id"].is_null(), "{foreign}");
    let stop = json!({"reason": "enough"});
    let stopped = pair.desk.post(&format!("/v1/timers/{id}/stop"), &stop);
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    assert_eq!(stopped.body["status"], "stopped", "{}", stopped.body);
    let short = timer(
        &pair.build,
        Some("ann"),
        "<total_duration>3</total_duration><reason>soon</reason><timeout_duration>0.1</timeout_duration>",
    );
    let waited = tool(
        &pair.desk,
        Some("ann"),
        "timer",
        &format!("<timer_id>{short}</timer_id>"),
    );
    assert_eq!(waited["status"], "completed", "{waited}");
}
