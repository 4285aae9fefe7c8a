//! Many large answers at once: a client gets each of them once, at the speed at which it reads, and the daemon has
//! only a few of them in memory.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::harness::{Client, Home, LEGACY, MODERN, is_error, text};

/// Concurrent calls. Their answers are more than 100 MB.
const CALLS: u64 = 60;
/// Bytes that each command writes; an answer contains them twice.
const OUTPUT: usize = 900_000;
/// Answers that fit into front and daemon while the client reads nothing.
const HELD: usize = 8;
/// Memory limit of the daemon, in kB. All answers at once would be more.
const MEMORY: u64 = 160_000;

/// Command that records its run in a file and writes one long line.
fn large(number: u64) -> Value {
    let command = format!("echo {number} >> ran; head -c {OUTPUT} /dev/zero | tr '\\0' x");
    json!({"command": command, "raw": true, "max_output": 1_000_000})
}

/// Asserts that a result is the whole output of one command.
fn check(result: &Value) {
    assert!(!is_error(result), "{:.300}", result.to_string());
    let text = text(result);
    let output = text.bytes().rev().filter(|byte| *byte == b'x').count();
    assert!(output >= OUTPUT, "{output} bytes: {text:.300}");
}

/// Asserts that each command ran once, and that the daemon never had all answers in memory.
fn check_daemon(home: &Home, calls: u64) {
    let ran = std::fs::read_to_string(home.path("ran")).expect("they ran");
    let mut numbers: Vec<u64> = ran
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..calls), "each ran once: {ran}");
    let daemon = home.daemon_pid().expect("a daemon runs");
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    let peak: u64 = peak.expect("a peak").trim().parse().expect("a number");
    assert!(peak < MEMORY, "the daemon used {peak} kB");
}

#[test]
fn sixty_large_answers_read_at_once_arrive_once_each() {
    let home = Home::new();
    let mut client = Client::start(&home, MODERN);
    client.call("shell", json!({"command": "true"}));
    let begun: Vec<u64> = (0..CALLS)
        .map(|number| client.begin("shell", large(number)))
        .collect();
    for id in begun {
        check(&client.result(id));
    }
    check_daemon(&home, CALLS);
    client.close_input();
    assert_eq!(client.ended().1, Vec::<Value>::new(), "nothing comes twice");
}

/// A client that reads only on request.
struct Late {
    front: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Late {
    fn start(home: &Home) -> Self {
        let mut front = home
            .command(["mcp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("abide mcp starts");
        let input = front.stdin.take().expect("a pipe");
        let output = front.stdout.take().expect("a pipe");
        let mut late = Late {
            front,
            input,
            lines: BufReader::new(output).lines(),
        };
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "late", "version": "1"},
        });
        late.send(
            json!({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": params}),
        );
        assert_eq!(late.read()["id"], "first");
        late.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        late
    }

    fn send(&mut self, message: Value) {
        writeln!(self.input, "{message}").expect("it reads");
    }

    fn begin(&mut self, id: u64, tool: &str, arguments: Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    fn read(&mut self) -> Value {
        let line = self.lines.next().expect("an answer").expect("a line");
        serde_json::from_str(&line).expect("a message")
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.front.kill();
        let _ = self.front.wait();
    }
}

/// Call of another client, which waits until some commands have ended.
fn wait_for_commands(home: &Home, other: &mut Client, count: usize) {
    let command = format!("until [ $(wc -l < ran) -ge {count} ]; do sleep 0.05; done; echo enough");
    let started = json!({"command": format!("touch ran; {command}"), "timeout": 120});
    let result = other.call("shell", started);
    assert!(text(&result).contains("STDOUT:\nenough\n"), "{result}");
    assert!(home.lines("ran") >= count);
}

#[test]
fn sixty_large_answers_read_late_arrive_once_each() {
    let home = Home::new();
    let mut late = Late::start(&home);
    let mut other = Client::start(&home, MODERN);
    for number in 0..CALLS {
        late.begin(number, "shell", large(number));
    }
    wait_for_commands(&home, &mut other, HELD);
    let mut answered = BTreeSet::new();
    while answered.len() < CALLS as usize {
        let answer = late.read();
        check(&answer["result"]);
        let id = answer["id"].as_u64().expect("a number");
        assert!(answered.insert(id), "{id} is answered once");
    }
    check_daemon(&home, CALLS);
    // No other message has arrived, and the client is served as before.
    late.begin(CALLS, "shell", json!({"command": "echo next"}));
    let answer = late.read();
    assert_eq!(answer["id"], CALLS);
    assert!(text(&answer["result"]).contains("next"), "{answer}");
}

#[test]
fn client_that_reads_nothing_delays_no_other_client() {
    let home = Home::new();
    let mut late = Late::start(&home);
    let mut other = Client::start(&home, LEGACY);
    // More than front and daemon can buffer.
    let calls = 20;
    for number in 0..calls {
        late.begin(number, "shell", large(number));
    }
    for number in calls..calls + 500 {
        late.send(json!({"jsonrpc": "2.0", "id": number, "method": "tools/list"}));
        late.send(json!("nonsense"));
    }
    wait_for_commands(&home, &mut other, HELD);
    for number in 0..20 {
        let result = other.call("shell", json!({"command": format!("echo said {number}")}));
        assert!(
            text(&result).contains(&format!("said {number}\n")),
            "{result}"
        );
    }
    assert!(late.front.try_wait().expect("it can be asked").is_none());
    // The client is still served, from the first answer to the last.
    let mut refused = 0;
    let mut answered = BTreeSet::new();
    while answered.len() < calls as usize + 500 || refused < 500 {
        let answer = late.read();
        match answer["id"].as_u64() {
            None => refused += 1,
            Some(id) if id < calls => {
                check(&answer["result"]);
                assert!(answered.insert(id), "{id} is answered once");
            }
            Some(id) => assert!(answered.insert(id), "{id} is answered once"),
        }
    }
    assert_eq!(refused, 500);
    check_daemon(&home, calls);
}
