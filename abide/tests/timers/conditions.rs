use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::{self, AddressFamily, SocketType};
use serde_json::{Value, json};

use crate::common::shim::start_on;
use crate::harness::{Abide, look_for, receive};
use crate::sink::{Identity, Sink};
use crate::{call, configured, has_answered, id_of, refused};

/// Waits for a condition in standby while `act` fulfils it.
fn held(abide: &Abide, until: Value, act: impl FnOnce()) -> Value {
    let arguments = json!({"total_duration": 180, "reason": "something", "until": until});
    let waiting = abide.begin("/v1/tools/timer", &arguments);
    // The condition is checked once the timer is visible.
    look_for("the timer", || {
        let early = has_answered(&waiting);
        let listed = call(abide, "read_timer", json!({}));
        let made = listed["timers"].get(0).is_some();
        assert!(made || !early, "it was answered before anything held");
        made.then_some(())
    });
    act();
    let result = receive(waiting).expect("an answer").body;
    assert_eq!(result["completed_by"], "condition", "{result}");
    assert_eq!(result["timeout"], false);
    assert_eq!(result["status"], "completed");
    result
}

/// A port on which nothing listens yet. It is reserved for the test: a port that is only free may be taken by another
/// process.
pub struct Port(OwnedFd);

impl Port {
    pub fn closed() -> Self {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        net::bind(&socket, &any).expect("a port");
        Port(socket)
    }

    pub fn number(&self) -> u16 {
        let address = net::getsockname(&self.0).expect("an address");
        let address = SocketAddrV4::try_from(address).expect("an address");
        address.port()
    }

    fn open(&self) {
        net::listen(&self.0, 8).expect("it can be listened at");
    }
}

#[test]
fn port_condition_is_met_when_the_port_opens() {
    let abide = Abide::started();
    let closed = Port::closed();
    let port = closed.number();
    let result = held(&abide, json!({"port": port}), || closed.open());
    assert_eq!(result["seen"], format!("port {port} is open"), "{result}");
    // The port is open already: answered at once.
    held_at_once(&abide, json!({"port": format!("localhost:{port}")}));
}

fn held_at_once(abide: &Abide, until: Value) -> Value {
    let arguments = json!({"total_duration": 180, "reason": "something", "until": until});
    let result = call(abide, "timer", arguments);
    assert_eq!(result["completed_by"], "condition", "{result}");
    result
}

/// Ends the timer once a check has had this result.
fn runs_out(abide: &Abide, until: Value, seen: &str) -> Value {
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "something",
        "until": until});
    let id = id_of(&call(abide, "timer", arguments));
    look_for(seen, || {
        let timer = call(abide, "read_timer", json!({"timer_id": id}));
        assert_eq!(timer["status"], "running", "{timer}");
        (timer["last_look"] == seen).then_some(())
    });
    let sooner = json!({"timer_id": id, "total_duration": 0.05});
    let result = call(abide, "timer", sooner);
    assert_eq!(result["completed_by"], "time", "{result}");
    result
}

#[test]
fn timed_out_wait_reports_the_last_check() {
    let abide = Abide::started();
    let closed = Port::closed();
    let port = closed.number();
    let refused = format!("port {port}: connection refused");
    let result = runs_out(&abide, json!({"port": port}), &refused);
    assert_eq!(result["seen"], refused, "{result}");
    let text = result["text"].as_str().unwrap();
    // A very slow machine appends how late it is.
    let last = format!("Last check: {refused}");
    assert!(text.lines().any(|line| line.ends_with(&last)), "{text}");
}

#[test]
fn url_condition_is_met_by_status_and_body() {
    let abide = Abide::started();
    let sink = Sink::new(&["503 Busy", "200 OK\n\nready"]);
    let address = sink.address;
    let until =
        json!({"url": format!("http://{address}/health"), "status": 200.0, "body": "rea.y"});
    let result = held_at_once(&abide, until);
    let seen = result["seen"].as_str().unwrap();
    assert!(seen.contains("200 OK") && seen.contains("ready"), "{seen}");
    assert_eq!(sink.next().body, "");
    let until = json!({"url": format!("http://{address}/")});
    held_at_once(&abide, until);
}

#[test]
fn url_credentials_are_sent_and_never_shown() {
    let abide = Abide::started();
    let sink = Sink::new(&["200 OK"]);
    let address = sink.address;
    let until = json!({"url": format!("http://ann:p%40ss@{address}/x")});
    let result = held_at_once(&abide, until);
    assert_eq!(
        result["seen"],
        format!("http://{address}/x answered 200 OK")
    );
    assert_eq!(sink.next().header("authorization"), "Basic YW5uOnBAc3M=");
    let id = result["timer_id"].as_str().expect("a timer");
    let shown = call(&abide, "read_timer", json!({"timer_id": id})).to_string();
    assert!(!shown.contains("ann") && !shown.contains("p@ss"), "{shown}");
}

#[test]
fn endless_body_is_matched_while_it_arrives() {
    let abide = Abide::started();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "http://{}/events",
        listener.local_addr().expect("an address")
    );
    // A slow check may be given up and repeated.
    std::thread::spawn(move || {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            if tells_for_ever(&mut stream).is_ok() {
                open.push(stream);
            }
        }
    });
    let result = held_at_once(&abide, json!({"url": url, "body": "^data: ready$"}));
    assert_eq!(
        result["seen"],
        format!("{url} answered 200 OK with \"data: ready\""),
        "{result}"
    );
}

/// Answers with an incomplete body.
fn tells_for_ever(stream: &mut (impl Read + Write)) -> std::io::Result<()> {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        asked.push(byte[0]);
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    for said in [head, "data: wait\n\ndata: re", "ady\n\n"] {
        stream.write_all(said.as_bytes())?;
    }
    Ok(())
}

#[test]
fn missing_response_is_reported() {
    let abide = Abide::started();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    for (until, seen) in [
        (json!({"url": url}), format!("{url}: no answer yet")),
        (
            json!({"command": "sleep 60"}),
            "`sleep 60` has not ended yet".to_owned(),
        ),
    ] {
        let result = runs_out(&abide, until, &seen);
        assert_eq!(result["seen"], seen, "{result}");
    }
}

#[test]
fn redirect_is_reported_and_not_followed() {
    let abide = Abide::started();
    let sink = Sink::new(&["302 Found\nlocation: /login\n"]);
    let url = format!("http://{}/", sink.address);
    let seen = format!("{url}: answered 302 Found, which leads to /login");
    let result = runs_out(&abide, json!({"url": url}), &seen);
    assert_eq!(result["seen"], seen, "{result}");
    held_at_once(&abide, json!({"url": url, "status": 302}));
}

#[test]
fn tls_url_needs_a_trusted_certificate() {
    let identity = Identity::new();
    let ready = "200 OK\n\nall is ready";
    let trusting = Abide::new();
    fs::write(trusting.path("ca.pem"), identity.pem()).expect("a certificate");
    let config = format!("ca_file = {:?}\n", trusting.path("ca.pem"));
    trusting.configure(&config);
    trusting.start();
    let sink = Sink::over_tls(&["503 Busy\n", ready], &identity);
    let port = sink.address.port();
    let until = json!({"url": format!("https://localhost:{port}/health"), "body": "ready$"});
    let result = held_at_once(&trusting, until);
    let seen = result["seen"].as_str().unwrap();
    assert!(seen.contains("200 OK") && seen.contains("ready"), "{seen}");
    let asked = sink.next();
    assert!(asked.head.starts_with("GET /health HTTP/1.1"), "{asked:?}");
    assert_eq!(asked.header("host"), format!("localhost:{port}"));

    // A client that does not trust the certificate gets an error and sends no request.
    let abide = Abide::started();
    let sink = Sink::over_tls(&[ready], &identity);
    let until = json!({"url": format!("https://localhost:{}/", sink.address.port())});
    let arguments = json!({"total_duration": 600, "mission": "server", "until": until});
    let id = id_of(&call(&abide, "timer", arguments));
    look_for("what is wrong with the certificate", || {
        let timer = call(&abide, "read_timer", json!({"timer_id": id}));
        let last = timer["last_look"].as_str().unwrap_or_default();
        let wrong = last.contains("certificate");
        // On a slow machine a check may time out, and is repeated.
        let not_yet =
            last.is_empty() || last.ends_with("no answer yet") || last.ends_with("within 10s");
        assert!(wrong || not_yet, "{timer}");
        wrong.then_some(())
    });
    assert!(!sink.was_asked());
}

#[test]
fn file_is_found_after_a_rename_in_a_new_directory() {
    let abide = Abide::started();
    let path = abide.path("deep/er/ready");
    held(&abide, json!({"file": path}), || {
        fs::create_dir_all(path.parent().unwrap()).expect("a folder");
        fs::write(abide.path("draft"), "x").expect("a file");
        fs::rename(abide.path("draft"), &path).expect("a rename");
    });
    held(&abide, json!({"file": path, "is": "gone"}), || {
        fs::remove_file(&path).expect("a file to remove");
    });
}

#[test]
fn changed_file_and_rotated_log_are_detected() {
    let abide = Abide::started();
    let path = abide.path("app.log");
    fs::write(&path, "starting\n").expect("a log");
    held(&abide, json!({"file": path, "is": "changed"}), || {
        fs::write(&path, "starting\nmore\n").expect("a log");
    });
    let result = held(
        &abide,
        json!({"file": path, "matches": "listening on \\d+"}),
        || {
            fs::rename(&path, abide.path("app.log.1")).expect("a rotation");
            let mut log = fs::File::create(&path).expect("a new log");
            for line in ["new\n", "liste", "ning on 80", "80\n"] {
                log.write_all(line.as_bytes()).expect("a line");
            }
        },
    );
    let seen = result["seen"].as_str().unwrap();
    assert!(seen.contains("listening on 80"), "{seen}");
}

#[test]
fn session_output_and_end_are_detected() {
    let abide = Abide::started();
    // One pipe for each word: a reader that returns early would find the first writer still there.
    let (go, stop) = (abide.fifo("go"), abide.fifo("stop"));
    let command = format!(
        "echo up; read line < {}; printf '\\033[31mlist'; printf 'ening\\033[0m'; read line < {}; exit 3",
        go.display(),
        stop.display()
    );
    let running = abide.begin("/v1/tools/shell", &json!({"command": command}));
    let session = abide.running();
    held_at_once(&abide, json!({"session": session, "output": "^up"}));
    let result = held(
        &abide,
        json!({"session": session, "output": "listening"}),
        || {
            fs::write(&go, "go\n").expect("a word");
        },
    );
    assert_eq!(
        result["seen"],
        format!("{session} wrote \"listening\""),
        "{result}"
    );
    let result = held(&abide, json!({"session": session, "is": "ended"}), || {
        fs::write(&stop, "stop\n").expect("a word");
    });
    assert_eq!(
        result["seen"],
        format!("{session} has ended: exited with code 3"),
        "{result}"
    );
    receive(running).expect("an answer");
}

#[test]
fn command_all_and_any_conditions_are_met() {
    let abide = Abide::started();
    let (one, two) = (abide.path("one"), abide.path("two"));
    let command = json!({"command": format!("test -f {}", one.display()), "every": 0.1});
    held(&abide, command.clone(), || {
        fs::write(&one, "").expect("a file")
    });
    let both = json!({"all": [command, {"file": two}]});
    held(&abide, both, || fs::write(&two, "").expect("a file"));
    let closed = Port::closed();
    let any = json!({"any": [{"port": closed.number()}, {"file": two}]});
    let result = held_at_once(&abide, any);
    assert_eq!(result["seen"], format!("file {} is there", two.display()));
}

#[test]
fn all_needs_its_members_to_hold_at_the_same_time() {
    let abide = Abide::started();
    let (one, two, count) = (abide.path("one"), abide.path("two"), abide.path("count"));
    let looks = || fs::read_to_string(&count).map_or(0, |count| count.lines().count());
    let look = format!(
        "echo look >> {}; test -f {}",
        count.display(),
        one.display()
    );
    let closed = Port::closed();
    let command = json!({"any": [{"command": look, "every": 0.1}, {"port": closed.number()}]});
    fs::write(&one, "").expect("a file");
    let result = held(&abide, json!({"all": [command, {"file": two}]}), || {
        let more_than = |before| {
            look_for("one more look", || {
                let timers = call(&abide, "read_timer", json!({}));
                assert_eq!(timers["timers"][0]["status"], "running", "{timers}");
                (looks() > before).then_some(())
            });
        };
        // The condition has held, and no longer holds when the other one begins to hold.
        more_than(0);
        fs::remove_file(&one).expect("a file");
        fs::write(&two, "").expect("a file");
        more_than(looks() + 2);
        fs::write(&one, "").expect("a file");
    });
    let seen = result["seen"].as_str().expect("what was seen");
    assert!(
        seen.ends_with(&format!(
            "exited with code 0; file {} is there",
            two.display()
        )),
        "{seen}"
    );
}

#[test]
fn slow_check_is_repeated_when_the_other_members_hold() {
    let abide = Abide::started();
    let (one, two, count) = (abide.path("one"), abide.path("two"), abide.path("count"));
    let (saw, go) = (abide.path("saw"), abide.fifo("go"));
    // The first check has seen the one file and ends on request; the later ones end at once.
    let look = format!(
        "echo look >> {count}; test -f {one}; found=$?; \
         test -f {saw} || {{ touch {saw}; read word < {go}; }}; exit $found",
        count = count.display(),
        one = one.display(),
        saw = saw.display(),
        go = go.display(),
    );
    fs::write(&one, "").expect("a file");
    let until = json!({"all": [{"command": look, "every": 0.1}, {"file": two}]});
    let result = held(&abide, until, || {
        let mut told = fs::OpenOptions::new();
        let mut told = told.write(true).open(&go).expect("the look's pipe");
        fs::remove_file(&one).expect("a file");
        fs::write(&two, "").expect("a file");
        // The other file is seen before this check ends.
        let goes_on_until = |what: &str, is_so: &dyn Fn(&Value) -> bool| {
            look_for(what, || {
                let timer = abide.get("/v1/timers")["timers"][0].clone();
                assert_eq!(timer["status"], "running", "{timer}");
                is_so(&timer).then_some(())
            });
        };
        goes_on_until("a look at the file", &|timer| {
            let last = timer["last_look"].as_str();
            last.is_some_and(|last| last.ends_with("is there"))
        });
        told.write_all(b"go\n").expect("the look's pipe");
        goes_on_until("one more look", &|_| {
            fs::read_to_string(&count).is_ok_and(|count| count.lines().count() >= 3)
        });
        fs::write(&one, "").expect("a file");
    });
    assert_eq!(result["completed_by"], "condition", "{result}");
}

#[test]
fn secrets_in_what_a_condition_has_seen_are_masked() {
    let abide = Abide::started();
    let token = format!("ghp_{}", "aB3d".repeat(9));
    let env = json!({"API_KEY": "supersecretvalue123"});
    let command = "echo \"tok $API_KEY\"; sleep 1000";
    let start = json!({"action": "start", "command": command, "env": env});
    let session = call(&abide, "terminal_session", start)["session_id"].clone();
    let (plain, coloured) = (abide.path("plain"), abide.path("coloured"));
    fs::write(&plain, format!("is {token}\n")).expect("a file");
    fs::write(&coloured, format!("\x1b[31m{token}\x1b[0m\n")).expect("a file");
    let cat = format!("cat {}", coloured.display());
    for (until, shown) in [
        (
            json!({"session": session, "output": "^tok .*"}),
            "tok [masked:API_KEY]",
        ),
        (
            json!({"file": plain, "matches": "^is .*"}),
            "is [masked:github_token]",
        ),
        // The match ends within the token.
        (
            json!({"file": plain, "matches": "^is .{12}"}),
            "is [masked:github_token]",
        ),
        (json!({"command": cat}), ": [masked:github_token]"),
    ] {
        let result = held_at_once(&abide, until);
        for field in ["seen", "text"] {
            let said = result[field].as_str().expect("text");
            assert!(said.contains(shown), "{said}");
        }
        let said = result.to_string();
        assert!(!said.contains("supersecret"), "{said}");
        assert!(!said.contains("aB3d"), "{said}");
    }
}

#[test]
fn patterns_match_single_lines() {
    let abide = Abide::started();
    let arguments = json!({"command": "printf 'almost ready\\r\\nready\\r\\nmore\\r\\n'"});
    let session = call(&abide, "shell", arguments)["session_id"].clone();
    let result = held_at_once(&abide, json!({"session": session, "output": "^ready$"}));
    let id = session.as_str().expect("an id");
    assert_eq!(result["seen"], format!("{id} wrote \"ready\""));
    let log = abide.path("log");
    fs::write(&log, format!("{}\nready\n", "x".repeat(300_000))).expect("a log");
    held_at_once(&abide, json!({"file": log, "matches": "^ready$"}));
    let arguments = json!({"total_duration": 0.2, "reason": "r",
        "until": {"file": log, "matches": "^x{1,100}$"}});
    let result = call(&abide, "timer", arguments);
    assert_eq!(
        result["completed_by"], "time",
        "no line is that short: {result}"
    );
}

#[test]
fn a_condition_survives_a_restart() {
    let abide = Abide::started();
    let path = abide.path("ready");
    let arguments = json!({"total_duration": 180, "mission": "m", "until": {"file": path}});
    let id = id_of(&call(&abide, "timer", arguments));
    abide.kill_daemon();
    abide.start();
    fs::write(&path, "").expect("a file");
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"][0]["timer_id"], id, "{told}");
    let text = told["text"].as_str().unwrap();
    assert!(
        text.contains(&format!("Condition: file {} is there", path.display())),
        "{text}"
    );
}

#[test]
fn invalid_condition_is_refused_with_its_field() {
    let abide = Abide::started();
    for (until, field) in [
        (json!({}), "`until`"),
        (json!(3000), "`until`"),
        (json!({"port": 3000, "file": "x"}), "`until`"),
        (json!({"port": 0}), "`until.port`"),
        (json!({"port": 70000}), "`until.port`"),
        (json!({"port": ":80"}), "`until.port`"),
        (json!({"port": "::1"}), "`until.port`"),
        (json!({"port": "[::1]"}), "`until.port`"),
        (json!({"port": "a:b:80"}), "`until.port`"),
        (json!({"port": 80, "colour": "red"}), "`until.colour`"),
        (json!({"colour": "red"}), "got colour"),
        (json!({"url": "ftp://x"}), "`until.url`"),
        (json!({"url": "https://"}), "`until.url`"),
        (json!({"url": "http://x:99999/"}), "`until.url`"),
        (json!({"url": "http://x", "status": 99}), "`until.status`"),
        (json!({"url": "http://x", "body": "("}), "`until.body`"),
        (json!({"file": ""}), "`until.file`"),
        (json!({"file": "x", "is": "there"}), "`until.is`"),
        (
            json!({"file": "x", "is": "gone", "matches": "y"}),
            "`until.matches`",
        ),
        (json!({"file": "x", "matches": "["}), "`until.matches`"),
        (json!({"session": "session_00000000"}), "`until.session`"),
        (json!({"command": " "}), "`until.command`"),
        (json!({"command": "true", "every": 0}), "`until.every`"),
        (json!({"all": []}), "`until.all`"),
        (
            json!({"any": [{"port": 1}, {"port": -1}]}),
            "`until.any[1].port`",
        ),
        (
            json!({"all": [{"all": [{"all": [{"all": [{"port": 1}]}]}]}]}),
            "nested",
        ),
    ] {
        let arguments = json!({"total_duration": 180, "reason": "r", "until": until});
        let sentence = refused(&abide, "timer", arguments);
        assert!(sentence.contains(field), "{until}: {sentence}");
    }
    let listed = call(&abide, "read_timer", json!({}));
    assert_eq!(listed["timers"], json!([]), "nothing was started");
}

#[test]
fn output_of_a_background_process_meets_the_condition() {
    let abide = Abide::started();
    let go = abide.path("go");
    let command = format!(
        "mkfifo {go}; (read line < {go}; echo listening) & echo begun",
        go = go.display()
    );
    let ended = call(&abide, "shell", json!({"command": command}));
    assert_eq!(ended["status"], "SUCCESS", "{ended}");
    let session = ended["session_id"].as_str().expect("an id");
    let result = held(
        &abide,
        json!({"session": session, "output": "listening"}),
        || fs::write(&go, "go\n").expect("a word"),
    );
    assert_eq!(
        result["seen"],
        format!("{session} wrote \"listening\""),
        "{result}"
    );
}

#[test]
fn search_of_endless_output_does_not_block_other_calls() {
    // With a small log quota, the rest of the log is searched soon after the command ends.
    let abide = configured("log_quota = 1048576\n");
    abide.start();
    let flood = json!({"action": "start", "command": "exec yes", "pty": false});
    let session = call(&abide, "terminal_session", flood);
    let session = session["session_id"].as_str().expect("an id").to_owned();
    let until = json!({"session": session, "output": "never"});
    let arguments = json!({"total_duration": 600, "mission": "a needle", "until": until});
    let timer = id_of(&call(&abide, "timer", arguments));
    let kill = json!({"action": "kill", "session_id": session});
    let killed = call(&abide, "terminal_session", kill);
    assert_eq!(killed["gone"], true, "{killed}");
    let over = look_for("the end of its output", || {
        let timer = call(&abide, "read_timer", json!({"timer_id": timer}));
        (timer["status"] == "completed").then_some(timer)
    });
    assert_eq!(over["completed_by"], "impossible", "{over}");
}

/// While the file exists, file operations in the directory `dead` block, as on a file server that does not respond.
const DEAD_SERVER: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int statx(int folder, const char *path, int flags, unsigned mask, void *into) {
    const char *mark = getenv("DEAD_SERVER");
    while (mark && path && strstr(path, "/dead/") && !access(mark, F_OK)) usleep(1000);
    return syscall(SYS_statx, folder, path, flags, mask, into);
}
"#;

#[test]
fn unresponsive_file_server_does_not_block_other_conditions() {
    let abide = Abide::new();
    let mark = start_on(&abide, DEAD_SERVER, "DEAD_SERVER");
    let file = abide.path("dead/file");
    fs::create_dir(abide.path("dead")).expect("a folder");
    fs::write(&mark, "").expect("a mark");
    let until = json!({"file": file});
    let arguments = json!({"total_duration": 600, "mission": "a file", "until": until});
    let timer = id_of(&call(&abide, "timer", arguments));
    look_for("somebody who waits for the file", || {
        let stands = call(&abide, "read_timer", json!({"timer_id": timer}));
        let looked = stands["last_look"].as_str();
        let looked = looked.filter(|looked| !looked.is_empty())?;
        assert!(looked.contains("has not been looked at yet"), "{stands}");
        Some(())
    });
    fs::write(&file, "").expect("a file");
    fs::remove_file(&mark).expect("a mark");
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"][0]["timer_id"], timer, "{told}");
}

#[test]
fn session_of_a_held_command_can_be_waited_for() {
    let abide = configured("[[policy.rule]]\nrun = [\"true\", \"asked\"]\ndo = \"ask\"\n");
    abide.start();
    // Without the name of an agent a person calls, whom no rule concerns.
    let ann = |tool: &str, arguments: Value| {
        let answer = receive(abide.begin_for("ann", tool, &arguments));
        answer.expect("an answer").body
    };
    for (answer, completed_by, seen) in [
        ("yes", "condition", "has ended: exited with code 0"),
        ("no", "impossible", "was not started: a person said no"),
    ] {
        let held = ann("shell", json!({"command": "true asked"}));
        assert_eq!(held["status"], "held", "{held}");
        let until = json!({"session": held["session_id"]});
        let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "r",
            "until": until});
        let timer = ann("timer", arguments);
        assert_eq!(timer["status"], "running", "{timer}");
        let question = held["question_id"].as_str().expect("an id");
        let answered = abide.output(["answer", question, answer]);
        assert!(answered.status.success(), "{answered:?}");
        let over = ann("timer", json!({"timer_id": timer["timer_id"]}));
        assert_eq!(over["completed_by"], completed_by, "{over}");
        let text = over["text"].as_str().expect("a text");
        assert!(text.contains(seen), "{text}");
    }
}
