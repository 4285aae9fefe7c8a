//! `abide run` in a pipe: exit codes, streams, input, limits.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use abide_session::proc;
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Abide, RunningCommand, feed, text, wait_for_line};

fn code(abide: &Abide, words: &[&str]) -> i32 {
    let output = abide.output(["run"].iter().chain(words));
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

#[test]
fn exit_code_is_that_of_the_command() {
    let abide = Abide::new();
    assert_eq!(code(&abide, &["--", "true"]), 0);
    assert_eq!(code(&abide, &["--", "exit 7"]), 7);
    assert_eq!(code(&abide, &["--", "sh", "-c", "exit 255"]), 255);
    assert_eq!(code(&abide, &["--", "kill -TERM $$"]), 143);
    assert_eq!(code(&abide, &["--", "kill -KILL $$"]), 137);
}

#[test]
fn command_that_cannot_start_exits_with_126_or_127() {
    let abide = Abide::new();
    assert_eq!(code(&abide, &["--", "no-such-command-here"]), 127);
    assert_eq!(code(&abide, &["--", "no-such-command-here", "x"]), 127);
    assert_eq!(code(&abide, &["--", "/", "x"]), 126);
    let file = abide.path("plain");
    std::fs::write(&file, "text").unwrap();
    assert_eq!(code(&abide, &["--", file.to_str().unwrap(), "x"]), 126);
    assert_eq!(code(&abide, &["--cwd", "nowhere", "--", "true"]), 125);
    let output = abide.output(["run", "--", "no-such-command-here", "x"]);
    assert!(
        text(&output.stderr).contains("no-such-command-here"),
        "{output:?}"
    );
}

#[test]
fn mistyped_option_is_refused_with_a_suggestion_and_nothing_is_run() {
    let abide = Abide::new();
    for (words, sentence) in [
        (
            &["run", "--timout", "5s", "--", "touch", "made"][..],
            "error: unexpected option '--timout'; did you mean '--timeout'?\n",
        ),
        (
            &["run", "--timout=5s", "touch", "made"],
            "error: unexpected option '--timout'; did you mean '--timeout'?\n",
        ),
        (
            &["run", "--idle", "5s", "-x", "touch made"],
            "error: unexpected option '-x'\n",
        ),
        (
            &["session", "start", "--no-ptty", "--", "touch made"],
            "error: unexpected option '--no-ptty'; did you mean '--no-pty'?\n",
        ),
        (
            &["session", "send", "session_k3v9x2bc", "--keys"],
            "error: unexpected option '--keys'; did you mean '--key'?\n",
        ),
        (
            &["wait", "--comand", "touch made", "--for", "1s"],
            "error: unexpected option '--comand'; did you mean '--command'?\n",
        ),
    ] {
        let output = abide.output(words);
        let said = text(&output.stderr);
        assert!(said.starts_with(sentence), "{words:?}: {said}");
        assert!(said.contains("\n\nUsage: abide "), "{words:?}: {said}");
        // 2 could be the exit code of the command.
        let code = if words[0] == "run" { 125 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
    }
    // No daemon was started.
    assert!(!abide.path("abide").exists() && !abide.path("made").exists());
}

#[test]
fn options_after_the_command_belong_to_it() {
    let abide = Abide::new();
    for words in [
        &["run", "printf", "%s|", "--timeout", "-x"][..],
        &["run", "--", "printf", "%s|", "--timeout", "-x"],
        &["run", "--timeout", "1m", "printf", "%s|", "--timeout", "-x"],
    ] {
        let output = abide.output(words);
        assert_eq!(text(&output.stdout), "--timeout|-x|", "{words:?}");
    }
    // The first word after `--` is the program, even if it begins with a dash.
    let program = abide.path("-odd");
    std::fs::write(&program, "#!/bin/sh\necho \"$@\"\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let found = abide
        .command(["run", "--", "-odd", "--", "a"])
        .env("PATH", abide.path("").to_str().unwrap())
        .output()
        .unwrap();
    assert_eq!(text(&found.stdout), "-- a\n", "{found:?}");
}

#[test]
fn stdout_and_stderr_are_separate() {
    let abide = Abide::new();
    let output = abide.output(["run", "--", "echo out; echo err >&2; printf 'no newline'"]);
    assert_eq!(text(&output.stdout), "out\nno newline");
    assert_eq!(text(&output.stderr), "err\n");
}

#[test]
fn one_word_is_run_by_the_shell_and_several_are_executed() {
    let abide = Abide::new();
    let output = abide.output(["run", "--", "echo $((1+1)) && echo b"]);
    assert_eq!(text(&output.stdout), "2\nb\n");
    let output = abide.output(["run", "--", "printf", "%s|", "$HOME", "a b", "*", ""]);
    assert_eq!(text(&output.stdout), "$HOME|a b|*||");
    let output = abide.output(["run", "printf", "%s", "--flag"]);
    assert_eq!(text(&output.stdout), "--flag");
}

#[test]
fn command_inherits_directory_and_environment() {
    let abide = Abide::new();
    std::fs::create_dir(abide.path("sub")).unwrap();
    let mut command = abide.command([
        "run",
        "--cwd",
        "sub",
        "--env",
        "B=two words",
        "--",
        "pwd; echo $A; echo $B",
    ]);
    let output = command.env("A", "inherited").output().unwrap();
    let lines = text(&output.stdout);
    let lines: Vec<_> = lines.lines().collect();
    assert!(lines[0].ends_with("/sub"), "{lines:?}");
    assert_eq!(lines[1..], ["inherited", "two words"]);
}

#[test]
fn python_is_unbuffered_in_a_pipe_by_default() {
    let abide = Abide::new();
    let show = "echo \"<${PYTHONUNBUFFERED-unset}>\"";
    let mut command = abide.command(["run", "--", show]);
    let output = command.env_remove("PYTHONUNBUFFERED").output().unwrap();
    assert_eq!(text(&output.stdout), "<1>\n");
    let mut command = abide.command(["run", "--", show]);
    let output = command.env("PYTHONUNBUFFERED", "").output().unwrap();
    assert_eq!(text(&output.stdout), "<>\n");
}

#[test]
fn arguments_that_are_not_unicode_are_passed_on() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let abide = Abide::new();
    let odd = OsStr::from_bytes(b"\xff\xfe");
    let mut command = abide.command(["run", "--", "sh", "-c", "printf '%s' \"$1$ODD\"", "sh"]);
    let output = command.arg(odd).env("ODD", odd).output().unwrap();
    assert_eq!(output.stdout, b"\xff\xfe\xff\xfe");
}

#[test]
fn large_output_is_complete() {
    let abide = Abide::new();
    let output = abide.output(["run", "--", "seq 1 3000000"]);
    let wanted: String = (1..=3_000_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(output.stdout.len(), wanted.len());
    assert!(output.stdout == wanted.as_bytes());
}

#[test]
fn c10_output_bytes_are_unchanged() {
    let abide = Abide::new();
    let all: Vec<u8> = (0..=255u8).cycle().take(100_000).collect();
    std::fs::write(abide.path("bytes"), &all).unwrap();
    let output = abide.output(["run", "--", "cat", "bytes"]);
    assert!(output.stdout == all);
    let output = abide.output(["run", "--", "cat bytes >&2"]);
    assert!(output.stderr == all);
}

#[test]
fn piped_input_is_complete() {
    let abide = Abide::new();
    let all: Vec<u8> = (0..=255u8).cycle().take(3_000_000).collect();
    let mut child = abide
        .command(["run", "--", "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = all.clone();
    let feeding = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    assert!(output.stdout == all, "{} bytes", output.stdout.len());
}

#[test]
fn unacknowledged_input_is_written_once_after_a_restart() {
    let abide = Abide::new();
    let mut first = abide.command(["status"]);
    first.env("ABIDE_CRASH_AT", "input.post_send");
    assert!(first.output().unwrap().status.success());
    let mut child = abide
        .command(["run", "--", "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"once\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "once\n");
}

#[test]
fn input_reaches_the_command_that_only_the_next_daemon_starts() {
    let abide = Abide::new();
    assert!(abide.output(["run", "--", "true"]).status.success());
    // The keepers that wait for a command. None is added while the fork server is stopped.
    let fork_server = proc::children(abide.pid())[0];
    let mut stopped = vec![fork_server];
    send(fork_server, Signal::STOP);
    while !is_stopped(fork_server) {}
    for keeper in proc::children(fork_server) {
        send(keeper, Signal::STOP);
        stopped.push(keeper);
    }
    let mut child = abide
        .command(["run", "--", "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"once\n").unwrap();
    // It is read when the session is known, and then sent to it.
    while ioctl_fionread(&input).unwrap() > 0 {
        assert!(child.try_wait().unwrap().is_none(), "a keeper was free");
    }
    drop(input);
    abide.kill_daemon();
    for pid in stopped {
        send(pid, Signal::CONT);
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "once\n");
}

fn send(pid: i32, signal: Signal) {
    // A process that has ended meanwhile needs no signal.
    let _ = kill_process(Pid::from_raw(pid).expect("a pid"), signal);
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains(") T ")
}

#[test]
fn unread_input_does_not_block_the_command() {
    let abide = Abide::new();
    let mut child = abide
        .command(["run", "--", "echo done"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let held = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "done\n");
    drop(held);
}

#[test]
fn output_is_printed_immediately() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut child = abide
        .command(["run", "--", "printf now; cat go"])
        .spawn()
        .unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "now");
    feed(&fifo, b"later");
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "later");
}

#[test]
fn timeout_ends_the_process_tree() {
    let abide = Abide::new();
    let words = ["run", "--timeout", "300ms", "--", "sleep 1000 & sleep 1000"];
    let output = abide.output(words);
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert!(
        text(&output.stderr).contains("timed out after 300ms"),
        "{output:?}"
    );
    let command = "echo begun; sleep 1000 & sleep 1000";
    let mut child = abide
        .command(["run", "--timeout", "1h", "--", command])
        .spawn()
        .unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "begun\n");
    let words = ["session", "extend", &abide.newest(), "--timeout", "100ms"];
    assert!(abide.output(words).status.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("timed out after ") && !said.contains("1h"),
        "{said}"
    );
    assert_eq!(
        abide.json(["session", "list", "--json"])["sessions"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn idle_command_continues_without_a_terminal() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut child = abide
        .command(["run", "--idle", "50ms", "--", "echo begun; cat go"])
        .spawn()
        .unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "begun\n");
    let words = ["run", "--", "sleep 0.3"];
    assert!(abide.output(words).status.success());
    feed(&fifo, b"done\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "done\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn json_output_has_the_result() {
    let abide = Abide::new();
    let output = abide.output(["run", "--json", "--", "echo out; echo err >&2; exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["stdout"], "out\n");
    assert_eq!(result["stderr"], "err\n");
    assert_eq!(result["exit_code"], 3);
    assert_eq!(result["return_code"], 3);
    assert_eq!(result["end"], "exited");
    assert_eq!(result["bytes_total"], 8);
    for field in [
        "session_id",
        "signal",
        "duration",
        "bytes_dropped",
        "still_running",
        "contained_by",
    ] {
        assert!(result.get(field).is_some(), "{field} in {result}");
    }
}

#[test]
fn background_processes_are_reported_and_continue() {
    let abide = Abide::new();
    let output = abide.output(["run", "--", "sleep 1000 & echo x"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "x\n");
    assert!(text(&output.stderr).contains("sleep 1000"), "{output:?}");
    let list = abide.json(["session", "list", "--json"]);
    let id = list["sessions"][0]["session_id"].as_str().unwrap();
    assert!(text(&output.stderr).contains(id), "{output:?}");
    let killed = abide.json(["session", "kill", "--json", id]);
    assert_eq!(killed["still_running"].as_array().unwrap().len(), 0);
}

#[test]
fn closed_output_pipe_ends_the_command_with_sigpipe() {
    let abide = Abide::new();
    let mut child = abide.command(["run", "--", "yes"]).spawn().unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "y\n");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    let id = &abide.json(["session", "list", "--all", "--json"])["sessions"][0]["session_id"];
    let logs = abide.output([
        "logs",
        "--follow",
        "--from",
        "99999999999",
        id.as_str().unwrap(),
    ]);
    assert!(logs.status.success(), "{logs:?}");
    let sessions = abide.json(["session", "list", "--all", "--json"]);
    assert_eq!(sessions["sessions"][0]["signal"], 13, "{sessions}");
}

/// A command that ignores `SIGPIPE`, as Python, Go and Node do, and writes without end.
const IGNORES_SIGPIPE: &str = "trap '' PIPE; while :; do echo y; done";

#[test]
fn closed_output_pipe_ends_a_command_that_ignores_sigpipe() {
    let abide = Abide::new();
    let mut child = abide
        .command(["run", "--", IGNORES_SIGPIPE])
        .spawn()
        .unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "y\n");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert!(abide.running_ids().is_empty());
}

#[test]
fn output_to_a_full_disk_ends_the_command_and_says_so() {
    let abide = Abide::new();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut run = abide.command(["run", "--", IGNORES_SIGPIPE]);
    let output = run.stdout(full.unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = text(&output.stderr);
    let wanted =
        "cannot write the output: No space left on device (os error 28); the command was ended";
    assert!(said.contains(wanted), "{said}");
    assert!(
        said.contains(&format!("`abide logs {}`", abide.newest())),
        "{said}"
    );
    assert!(abide.running_ids().is_empty());
}

/// Starts `abide run` with a command that has written more than the pipe takes, of which nothing is read.
fn run_without_reader(abide: &Abide, traps: &str) -> RunningCommand {
    let ready = abide.fifo("ready");
    let loops = "head -c 1000000 /dev/zero; echo ready >ready; while :; do sleep 0.05; done";
    let run = RunningCommand::new(abide, &["run", "--", &format!("{traps}; {loops}")]);
    std::fs::read(ready).unwrap();
    run
}

#[test]
fn third_interrupt_gives_up_if_the_output_is_not_read() {
    let abide = Abide::new();
    let caught = abide.fifo("caught");
    let mut run = run_without_reader(&abide, "trap 'echo 1 >caught' INT");
    let interrupt = || kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let id = abide.newest();
    interrupt();
    std::fs::read(caught).unwrap();
    interrupt();
    let ended = abide.output(["wait", "--session", &id, "--for", "1m"]);
    assert!(ended.status.success(), "{ended:?}");
    interrupt();
    assert_eq!(run.wait().unwrap().code(), Some(130));
}

#[test]
fn sigterm_ends_a_run_whose_output_is_not_read() {
    let abide = Abide::new();
    let mut run = run_without_reader(&abide, "trap 'exit 4' TERM");
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(143));
    assert!(abide.running_ids().is_empty());
}

#[test]
fn session_belongs_to_the_agent_of_the_run() {
    let abide = Abide::new();
    assert!(
        abide
            .output(["run", "--agent", "one", "--", "true"])
            .status
            .success()
    );
    let of = |agent: &str| {
        let list = abide.json(["session", "list", "--all", "--json", "--agent", agent]);
        list["sessions"].as_array().unwrap().len()
    };
    assert_eq!((of("one"), of("two")), (1, 0));
    assert_eq!(
        abide.json(["session", "list", "--all", "--json"])["sessions"][0]["agent"],
        "one"
    );
}

#[test]
fn sigterm_is_forwarded_to_the_command() {
    let abide = Abide::new();
    let command = "trap 'echo asked; exit 4' TERM; echo begun; while :; do sleep 0.1; done";
    let mut child = abide.command(["run", "--", command]).spawn().unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "begun\n");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "asked\n");
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn interrupt_is_forwarded_once_if_the_daemon_restarts_after_it() {
    let abide = Abide::new();
    let command = "trap 'echo caught' INT; trap 'echo asked; exit 4' TERM; echo begun; \
                   while :; do test -e go && rm go && echo again; sleep 0.05; done";
    let mut child = abide.command(["run", "--", command]).spawn().unwrap();
    let mut shown = child.stdout.take().unwrap();
    wait_for_line(&mut shown, "begun\n");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    wait_for_line(&mut shown, "caught\n");
    abide.kill_daemon();
    std::fs::write(abide.path("go"), "").unwrap();
    wait_for_line(&mut shown, "again\n");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let rest = wait_for_line(&mut shown, "asked\n");
    assert_eq!(text(&rest), "asked\n");
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

#[test]
fn command_continues_when_its_client_is_killed() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut child = abide
        .command(["run", "--", "echo begun; cat go"])
        .spawn()
        .unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "begun\n");
    child.kill().unwrap();
    child.wait().unwrap();
    let list = abide.json(["session", "list", "--json"]);
    let id = list["sessions"][0]["session_id"].as_str().unwrap();
    feed(&fifo, b"alone\n");
    let logs = abide.output(["logs", "--follow", id]);
    assert_eq!(text(&logs.stdout), "begun\nalone\n");
}

#[test]
fn command_inherits_umask_and_limits_of_the_client() {
    let abide = Abide::new();
    let ours = text(&abide.output(["run", "--", "umask"]).stdout);
    // A umask that differs from the one of the test.
    let (mask, said) = match ours.as_str() {
        "0077\n" => (0o027, "0027"),
        _ => (0o077, "0077"),
    };
    let tell = "umask; ulimit -S -n; ulimit -H -n";
    let wanted = format!("{said}\n63\n127\n");
    let mut run = abide.command(["run", "--", &format!("{tell}; touch made")]);
    let output = with_less(&mut run, mask).output().expect("abide runs");
    assert_eq!(text(&output.stdout), wanted, "{output:?}");
    let mut start = abide.command(["session", "start", "--no-pty", "--json", "--", tell]);
    let output = with_less(&mut start, mask).output().expect("abide runs");
    let started: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let id = started["session_id"].as_str().expect("a session");
    let logs = abide.output(["logs", "--follow", id]);
    assert_eq!(text(&logs.stdout), wanted, "{output:?}");
    let made = std::fs::metadata(abide.path("made")).expect("a file");
    assert_eq!(made.permissions().mode() & 0o777, 0o666 & !mask);
    let others = abide.output(["run", "--", "umask"]);
    assert_eq!(text(&others.stdout), ours);
}

/// Runs a program with this umask and its own rlimit.
fn with_less(command: &mut Command, mask: u32) -> &mut Command {
    let files = rustix::process::Rlimit {
        current: Some(63),
        maximum: Some(127),
    };
    // SAFETY: only two system calls run between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
            rustix::process::setrlimit(rustix::process::Resource::Nofile, files)?;
            Ok(())
        })
    }
}

#[test]
fn ended_run_of_a_person_is_no_message_to_an_agent() {
    let abide = Abide::new();
    let (go, other) = (abide.fifo("go"), abide.fifo("other"));
    let mut child = abide
        .command(["run", "--", "echo begun; cat go"])
        .spawn()
        .unwrap();
    wait_for_line(child.stdout.as_mut().unwrap(), "begun\n");
    let own = abide.newest();
    child.kill().unwrap();
    child.wait().unwrap();
    let start = ["session", "start", "--agent", "default", "--json", "--"];
    let started = abide.json(start.iter().chain(&["cat other"]));
    // The next daemon knows it too.
    abide.kill_daemon();
    feed(&go, b"");
    let ended = abide.output(["wait", "--session", &own, "--for", "1m"]);
    assert!(ended.status.success(), "{ended:?}");
    let mut follow = RunningCommand::new(&abide, &["messages", "--follow", "--json"]);
    feed(&other, b"");
    let told = wait_for_line(follow.stdout.as_mut().unwrap(), "\n");
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(told["session_id"], started["session_id"], "{told}");
}
