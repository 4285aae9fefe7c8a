//! Messages of agents that are connected to another machine than the one that made them.

use std::process::Stdio;

use harness::postgres::Server;
use harness::{Abide, look_for, receive, said_to};
use serde_json::{Value, json};

use super::fleet::{joined, machine, named};
use super::harness;

/// Result of a tool for an agent.
pub fn tool(abide: &Abide, agent: &str, name: &str, arguments: &str) -> Value {
    let command = abide.command(["call", "--json", "--agent", agent]);
    said_to(
        command,
        &format!("<tool name=\"{name}\">{arguments}</tool>"),
    )
}

/// Makes a mission that is due soon. Returns its id.
fn mission(abide: &Abide, agent: &str, seconds: f64) -> String {
    look_for("a timer that can be made", || {
        let made = tool(
            abide,
            agent,
            "timer",
            &format!("<total_duration>{seconds}</total_duration><mission>now</mission>"),
        );
        made["timer_id"].as_str().map(str::to_owned)
    })
}

/// Waits for messages. Returns the timers that they are about.
fn read(abide: &Abide, agent: &str) -> Vec<String> {
    let read = tool(
        abide,
        agent,
        "read_messages",
        "<timeout_seconds>60</timeout_seconds>",
    );
    let messages = read["messages"].as_array().expect("messages").iter();
    messages
        .filter_map(|message| message["timer_id"].as_str().map(str::to_owned))
        .collect()
}

fn unseen(server: &Server) -> String {
    server.sql("SELECT count(*) FROM abide.message WHERE seen_ms IS NULL")
}

#[test]
fn message_reaches_an_agent_on_another_machine_once() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let id = mission(&one, "ann", 0.2);
    assert_eq!(read(&two, "ann"), std::slice::from_ref(&id));
    look_for("a message that was seen", || {
        (unseen(&server) == "0").then_some(())
    });
    // The first machine has the message in memory, and learns that it was told.
    let none = tool(&one, "ann", "read_messages", "");
    assert_eq!(none["messages"], json!([]), "{none}");
    let next = mission(&one, "ann", 0.2);
    let read = look_for("the next message", || {
        let read = read(&one, "ann");
        (!read.is_empty()).then_some(read)
    });
    assert_eq!(read, [next]);
}

#[test]
fn message_reaches_an_agent_without_a_connection_with_its_next_call_on_another_machine() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    for (name, arguments) in [("read_messages", ""), ("shell", "<command>true</command>")] {
        let id = mission(&one, "ann", 0.2);
        let told = look_for("the message", || {
            let told = tool(&two, "ann", name, arguments);
            let told = told["messages"][0]["timer_id"].as_str();
            told.map(str::to_owned)
        });
        assert_eq!(told, id);
    }
}

#[test]
fn call_of_a_connected_agent_does_not_ask_the_database_for_messages() {
    use std::io::{BufRead, BufReader, Write};
    let server = Server::with_settings(&["log_statement=all"]);
    let (_one, two) = (machine(&server, "one"), machine(&server, "two"));
    look_for("a machine that knows the other", || {
        let known = two.get("/v1/machines");
        (known["machines"].as_array()?.len() == 2).then_some(())
    });
    let searches = || {
        server
            .log()
            .matches("m.told_by IS NULL AND s.owner <>")
            .count()
    };
    tool(&two, "bob", "shell", "<command>true</command>");
    assert_eq!(searches(), 1, "an agent without a connection");
    let mut front = two.command(["mcp", "--agent", "ann"]);
    front.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut front = front.spawn().expect("a front");
    let mut lines = front.stdin.take().expect("a pipe");
    let answers = BufReader::new(front.stdout.take().expect("a pipe"));
    let client = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    let call = json!({"name": "shell", "arguments": {"command": "echo works"}});
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    ] {
        writeln!(lines, "{message}").expect("the front reads");
    }
    let answer = answers.lines().map(|line| line.expect("a line"));
    let answer = answer.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    let answer = { answer }.find(|answer| answer["id"] == 2);
    assert!(answer.is_some_and(|answer| answer.to_string().contains("works")));
    assert_eq!(searches(), 1, "an agent with a connection");
    drop(lines);
    front.wait().expect("the front ends");
}

#[test]
fn message_of_a_conversation_that_is_gone_reaches_its_agent_on_another_machine() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let soon = json!({"total_duration": 0.2, "mission": "now"});
    let id = look_for("a timer that can be made", || {
        let made = one.call_in(["ann", "closed"], "timer", &soon)?;
        made.body["timer_id"].as_str().map(str::to_owned)
    });
    assert_eq!(read(&two, "ann"), [id]);
    look_for("a message that was seen", || {
        (unseen(&server) == "0").then_some(())
    });
}

#[test]
fn f54_one_of_two_machines_tells_a_message() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let ids: Vec<String> = (0..4).map(|_| mission(&one, "ann", 5.0)).collect();
    look_for("all messages", || {
        (server.sql("SELECT count(*) FROM abide.message") == "4").then_some(())
    });
    let mut told: Vec<String> = std::thread::scope(|scope| {
        let readers = [&one, &two].map(|abide| {
            let server = &server;
            scope.spawn(move || {
                let mut all = Vec::new();
                while unseen(server) != "0" {
                    let read = tool(abide, "ann", "read_messages", "");
                    let messages = read["messages"].as_array().cloned().unwrap_or_default();
                    let timers = messages.iter().filter_map(|m| m["timer_id"].as_str());
                    all.extend(timers.map(str::to_owned));
                }
                all
            })
        });
        let read = readers.map(|reader| reader.join().expect("a reader"));
        read.into_iter().flatten().collect()
    });
    told.sort();
    let mut known = ids;
    known.sort();
    assert_eq!(told, known);
}

#[test]
fn message_of_an_agent_that_is_connected_to_two_machines_stays_where_it_is() {
    let server = Server::start();
    let machines = ["one", "two"].map(|name| machine(&server, name));
    let mut fronts = machines.each_ref().map(|abide| {
        let mut front = abide.command(["mcp", "--agent", "ann"]);
        front.stdin(Stdio::piped()).stdout(Stdio::null());
        front.spawn().expect("a front")
    });
    let connected = "SELECT count(*) FROM abide.machine WHERE agents = ARRAY['ann']";
    look_for("two heartbeats that name the agent", || {
        (server.sql(connected) == "2").then_some(())
    });
    mission(&machines[0], "ann", 0.2);
    look_for("a message", || (unseen(&server) == "1").then_some(()));
    server.sql(
        "CREATE TABLE moved (n int); \
         CREATE FUNCTION moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.moved VALUES (1); \
         RETURN NEW; END $$; CREATE TRIGGER moved BEFORE UPDATE ON abide.message FOR EACH ROW \
         WHEN (NEW.shard <> OLD.shard) EXECUTE FUNCTION moved()",
    );
    // A message is taken after a heartbeat, before the next one is sent.
    let heartbeats = "SELECT string_agg(heartbeat::text, ' ' ORDER BY name) FROM abide.machine";
    let heartbeats = || -> Vec<u64> {
        let both = server.sql(heartbeats);
        both.split(' ').filter_map(|n| n.parse().ok()).collect()
    };
    let before = heartbeats();
    look_for("three more heartbeats of both", || {
        let now = heartbeats();
        let all_beat = now.iter().zip(&before).all(|(now, then)| *now >= then + 3);
        all_beat.then_some(())
    });
    assert_eq!(server.sql("SELECT count(*) FROM moved"), "0");
    // It moves when its agent is connected to the other machine only.
    fronts[0].kill().expect("the front runs");
    look_for("the message on the other machine", || {
        (server.sql("SELECT count(*) FROM moved") == "1").then_some(())
    });
    fronts[1].kill().expect("the front runs");
    for mut front in fronts {
        front.wait().expect("the front ends");
    }
}

#[test]
fn message_of_an_adopted_timer_stays_deliverable_when_its_conversation_connects() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let soon = json!({"total_duration": 3, "mission": "now"});
    let id = look_for("a timer that can be made", || {
        let made = one.call_in(["ann", "claude-code:resumed"], "timer", &soon)?;
        made.body["timer_id"].as_str().map(str::to_owned)
    });
    one.kill_daemon();
    look_for("a message", || (unseen(&server) == "1").then_some(()));
    let heartbeat = || -> u64 {
        let sql = "SELECT heartbeat FROM abide.machine WHERE name = 'two'";
        server.sql(sql).parse().expect("a number")
    };
    let mut front = two.command(["mcp", "--agent", "ann"]);
    front.env("CLAUDE_CODE_SESSION_ID", "resumed");
    front.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut front = front.spawn().expect("a front");
    look_for("a heartbeat that names the agent", || {
        let named =
            "SELECT count(*) FROM abide.machine WHERE name = 'two' AND agents = ARRAY['ann']";
        (server.sql(named) == "1").then_some(())
    });
    let before = heartbeat();
    look_for("three more heartbeats", || {
        (heartbeat() >= before + 3).then_some(())
    });
    let read = look_for("the message", || {
        let read = two.call_in(["ann", "claude-code:resumed"], "read_messages", &json!({}))?;
        read.body["messages"][0]["timer_id"]
            .as_str()
            .map(str::to_owned)
    });
    assert_eq!(read, id);
    look_for("a message that was seen", || {
        (unseen(&server) == "0").then_some(())
    });
    front.kill().expect("the front runs");
    front.wait().expect("the front ends");
}

#[test]
fn message_that_cannot_be_read_after_it_was_taken_is_read_later() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let id = mission(&one, "ann", 0.2);
    look_for("a message", || (unseen(&server) == "1").then_some(()));
    server.sql(
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.made_ms := -NEW.made_ms; \
         RETURN NEW; END $$; CREATE TRIGGER spoil BEFORE UPDATE ON abide.message FOR EACH ROW \
         WHEN (NEW.shard <> OLD.shard) EXECUTE FUNCTION spoil()",
    );
    let told = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&two, "ann"));
        look_for("a message that was taken", || {
            let taken = "SELECT count(*) FROM abide.message WHERE made_ms < 0";
            (server.sql(taken) == "1").then_some(())
        });
        server.sql("UPDATE abide.message SET made_ms = -made_ms");
        reader.join().expect("a reader")
    });
    assert_eq!(told, [id]);
}

#[test]
fn f55_message_of_a_reader_that_dies_is_told_again_and_marked() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), named(&server, "two"));
    two.start_to_crash_at("message.told.post");
    joined(&server, "two");
    let id = mission(&one, "ann", 0.2);
    let wait = json!({"timeout_seconds": 60});
    let read_there = two.begin_for("ann", "read_messages", &wait);
    // The reader has said that it tells the message, and dies before it does.
    assert!(receive(read_there).is_none());
    let read = look_for("the message on the other machine", || {
        let read = tool(&one, "ann", "read_messages", "");
        let read = read["messages"].as_array()?.clone();
        (!read.is_empty()).then_some(read)
    });
    assert_eq!(read.len(), 1, "{read:?}");
    assert_eq!(read[0]["timer_id"], json!(id), "{read:?}");
    assert_eq!(read[0]["repeated"], true, "{read:?}");
}

#[test]
fn agents_without_a_name_do_not_share_messages() {
    let server = Server::start();
    let (one, two) = (machine(&server, "one"), machine(&server, "two"));
    let id = mission(&one, "default", 0.2);
    let named = mission(&one, "ann", 0.2);
    assert_eq!(read(&two, "ann"), [named]);
    let none = tool(&two, "default", "read_messages", "");
    assert_eq!(none["messages"].as_array().map(Vec::len), Some(0), "{none}");
    assert_eq!(read(&one, "default"), [id]);
}
