//! Agents on two machines.

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
fn session_from_before_the_fleet_stays_with_the_agent_without_a_name() {
    let machine = Abide::on(None);
    machine.start();
    let start =
        "<action>start</action><command>cat</command><inactivity_timeout>0</inactivity_timeout>";
    let started = tool(&machine, None, "terminal_session", start);
    let id = started["session_id"].as_str().expect("an id").to_owned();
    machine.run(&["stop"]);
    let server = Server::start();
    let config = format!("store = {:?}\nmachine = \"desk\"\n", server.url());
    std::fs::write(machine.path("config.toml"), config).expect("a configuration");
    machine.start();
    let list = "<action>list</action>";
    let listed = tool(&machine, None, "terminal_session", list);
    assert_eq!(listed["sessions"][0]["session_id"], json!(id), "{listed}");
    assert_eq!(listed["sessions"][0]["agent"], "default@desk", "{listed}");
    machine.run(&["stop"]);
    std::fs::write(machine.path("config.toml"), "").expect("a configuration");
    machine.start();
    let listed = tool(&machine, None, "terminal_session", list);
    assert_eq!(listed["sessions"][0]["agent"], "default", "{listed}");
    harness::end_all(|args| machine.command(args));
}
