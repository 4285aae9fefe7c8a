//! Attacks 107 to 128: the network of a sandbox. Names are resolved and connections made by real servers outside.

mod asking;
mod connections;
mod names;
pub mod ports;
mod registries;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::agents::call;
use crate::harness::{Ran, User};

const ALLOWLIST: [&str; 4] = ["--sandbox", "workspace-write", "--network", "allowlist"];

/// Python functions that the programs inside use.
const PRELUDE: &str = r#"
import errno, os, socket, ssl, struct, subprocess, sys, time, threading
socket.setdefaulttimeout(50)
def say(*words): print(*words, flush=True)
def attempt(act, *words):
    try: return act(*words)
    except socket.gaierror: return "no such name"
    # A program may notice the reset when it sends, when it ends its direction or when it reads.
    except OSError as e:
        if e.errno in [errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN]: return "reset"
        return errno.errorcode.get(e.errno, type(e).__name__)
def connect(name, port): return socket.create_connection((name, port))
def echo(name, port, text=b"hello"):
    with connect(name, port) as s:
        s.sendall(text)
        return s.recv(65536).decode() or "reset"
def web(name, path="/"):
    with connect(name, 80) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        return (s.recv(65536).decode().split("\r\n\r\n")[-1].strip()) or "reset"
def tls(name, server_name, host=None):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with connect(name, 443) as s, context.wrap_socket(s, server_hostname=server_name) as t:
        t.sendall(f"GET / HTTP/1.1\r\nHost: {host or name}\r\n\r\n".encode())
        return t.recv(65536).decode().split("\r\n\r\n")[-1].strip()
"#;

/// Writes the settings: agents have the sandbox `workspace-write` with this allowlist.
fn configure(user: &User, allow: &[&str], more: &str) {
    let text = format!(
        "[sandbox]\nmode = \"workspace-write\"\nnetwork = \"allowlist\"\nallow = {}\n{more}\n",
        json!(allow)
    );
    user.write("state/config.toml", &text);
}

/// Runs a Python program with an allowlist. Returns its lines.
fn python(user: &User, program: &str) -> Vec<String> {
    user.write("work/program.py", &format!("{PRELUDE}\n{program}"));
    let ran = run(user, "/usr/bin/python3 program.py");
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines = ran.text.lines();
    // What was refused follows.
    let lines = lines.take_while(|line| !line.starts_with("SANDBOX: "));
    lines.map(str::to_owned).collect()
}

fn run(user: &User, script: &str) -> Ran {
    user.run_in(&ALLOWLIST, script)
}

/// Runs a Python program as an agent. Returns the result.
fn as_agent(user: &User, program: &str) -> Value {
    user.write("work/program.py", &format!("{PRELUDE}\n{program}"));
    let command = "/usr/bin/python3 program.py";
    call(user, "shell", &json!({"command": command}))
}

/// Lines that a program of [`as_agent`] has printed, and the rest of the text.
pub fn said(result: &Value) -> (Vec<String>, String) {
    let text = result["result"]["text"].as_str().unwrap_or_default();
    let (_, rest) = text.split_once("STDOUT:\n").unwrap_or(("", text));
    let (out, rest) = rest.split_once("\nSTDERR:").unwrap_or((rest, ""));
    (out.lines().map(str::to_owned).collect(), rest.to_owned())
}

/// Runs a program while a person says no to so many connections.
fn refusing<T>(user: &User, connections: usize, run: impl FnOnce() -> T) -> T {
    let mut person = Person::watch(user);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..connections).for_each(|_| person.refuse()));
        run()
    })
}

/// A person who follows the questions.
struct Person<'a> {
    user: &'a User,
    follower: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl<'a> Person<'a> {
    fn watch(user: &'a User) -> Self {
        // A question that is open already is shown first, so the daemon counts the person from then on.
        let needs = json!({"write": ["/usr/local"]});
        call(
            user,
            "shell",
            &json!({"command": "true", "needs": needs, "justification": "open"}),
        );
        let mut command = user.command(user.path("abide-program"));
        command.args(["answer", "--follow", "--json"]);
        let mut follower = command.stdout(Stdio::piped()).spawn().expect("abide runs");
        let lines = BufReader::new(follower.stdout.take().expect("output")).lines();
        let mut person = Person {
            user,
            follower,
            lines,
        };
        assert_eq!(person.next()["about"], "command");
        person
    }

    fn next(&mut self) -> Value {
        let line = self.lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Answers the next question about a connection with no.
    fn refuse(&mut self) {
        let question = loop {
            let line = self.next();
            if line["about"] == "connection" {
                break line;
            }
        };
        self.answer(&question, &["no"]);
    }

    fn answer(&self, question: &Value, words: &[&str]) {
        let id = question["question_id"].as_str().expect("an id");
        let mut all = vec!["answer", id];
        all.extend(words);
        let answered = self.user.abide(&all);
        assert_eq!(answered.code, 0, "{answered:?}");
    }
}

impl Drop for Person<'_> {
    fn drop(&mut self) {
        let _ = self.follower.kill();
        let _ = self.follower.wait();
    }
}
