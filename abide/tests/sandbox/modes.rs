//! Attacks 183 to 192, and the content of results.

use crate::harness::{User, as_each_user};

const SANDBOX: [&str; 2] = ["--sandbox", "workspace-write"];

#[test]
fn result_names_the_mechanism() {
    as_each_user(|user| {
        let result = user.result(&SANDBOX, "true");
        assert_eq!(result["sandboxed_by"], "namespaces", "192: {result}");
        assert_eq!(
            result["sandbox_gaps"],
            serde_json::json!([]),
            "192: {result}"
        );
        let result = user.result(&[], "true");
        assert_eq!(result["sandboxed_by"], "off", "192: {result}");
        let shown = user.abide(&["session", "list", "--all", "--json"]).text;
        assert!(
            shown.contains("\"sandboxed_by\":\"off\"")
                || shown.contains("\"sandboxed_by\": \"off\""),
            "{shown}"
        );
    });
}

#[test]
fn run_tells_what_was_refused_whatever_the_exit_code() {
    as_each_user(|user| {
        user.outside("mkdir ../other");
        let (first, second) = (user.path("outside"), user.path("other"));
        let (first, second) = (first.display(), second.display());
        for (end, code) in [("true", 0), ("exit 3", 3)] {
            let script = format!("echo x > {first}/a; echo x > {second}/b; {end}");
            let ran = user.run(&script);
            assert_eq!(ran.code, code, "{ran:?}");
            let told = format!(
                "SANDBOX: 2 things were refused (workspace-write, network off)\n  write  {first}/a\n  write  {second}/b\n\
                 To permit it, set in [sandbox] of config.toml: write = [\"{first}\",\"{second}\"]\n"
            );
            assert!(ran.text.ends_with(&told), "{ran:?}");
        }
        let result = user.result(&SANDBOX, &format!("echo x > {first}/a; true"));
        let refused = result["refused"].as_str().unwrap_or_default();
        assert!(refused.contains(&format!("  write  {first}/a")), "{result}");
        let ran = user.run("true");
        assert_eq!((ran.code, ran.text.as_str()), (0, ""));
    });
}

#[test]
fn paths_that_the_user_cannot_write_outside_either_are_not_told() {
    as_each_user(|user| {
        let ran = user.run("echo x > /usr/share/abide-a; mkdir -p /usr/share/abide-b/c");
        assert!(ran.code != 0, "{ran:?}");
        let is_told = ran.text.contains("write  /usr/share/abide-a");
        assert_eq!(is_told, user.is_root(), "{ran:?}");
        assert_eq!(ran.text.contains("SANDBOX"), user.is_root(), "{ran:?}");
    });
}

#[test]
fn root_is_told_that_it_cannot_write_a_workspace_of_another_user() {
    as_each_user(|user| {
        if !user.is_root() {
            return;
        }
        let work = user.path("work");
        std::os::unix::fs::chown(&work, Some(65_534), Some(65_534)).expect("an owner");
        let ran = user.run("touch file");
        assert!(ran.code != 0 && !user.exists("work/file"), "{ran:?}");
        let told = "belongs to another user (65534)";
        assert!(
            ran.text.contains(told) && ran.text.contains("run abide as that user"),
            "{ran:?}"
        );
        let ran = user.run_in(&["--sandbox", "read-only"], "ls");
        assert_eq!(ran.code, 0, "{ran:?}");
        user.write("state/config.toml", "[sandbox]\nmode = \"read-only\"\n");
        let said = user.abide(&["doctor"]).text;
        assert!(said.contains(told), "{said}");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&work, open).expect("permissions");
        user.works("192", "touch file");
    });
}

#[test]
fn mechanism_is_remembered_by_the_next_daemon() {
    as_each_user(|user| {
        user.result(&SANDBOX, "true");
        user.abide(&["stop"]);
        let shown = user.abide(&["session", "list", "--all", "--json"]).text;
        assert!(shown.contains("namespaces"), "140: {shown}");
    });
}

/// Runs a script in a sandbox where network namespaces are not available, as on a hardened machine.
fn run_without_namespaces(user: &User, script: &str) -> (bool, String) {
    run_without_namespaces_in("off", user, script)
}

fn run_without_namespaces_in(network: &str, user: &User, script: &str) -> (bool, String) {
    let program = user.path("abide-program");
    let script = format!(
        "echo 0 > /proc/sys/user/max_net_namespaces && {} run --sandbox workspace-write --network {network} -- bash -c '{script}'",
        program.display()
    );
    let ran = user.in_user_namespace(&script);
    let text = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    (ran.status.success(), text)
}

#[test]
fn sandbox_that_cannot_be_built_runs_nothing() {
    as_each_user(|user| {
        let (success, text) = run_without_namespaces(user, "touch made");
        assert!(!success, "183: {text}");
        assert!(
            text.contains("cannot be enforced here: make namespaces"),
            "183: {text}"
        );
        assert!(text.contains("Nothing was run"), "183: {text}");
        assert!(!user.exists("work/made"), "183");
    });
}

#[test]
fn landlock_alone_is_used_if_accepted() {
    as_each_user(|user| {
        user.write("state/config.toml", "[sandbox]\nat_least = \"landlock\"\n");
        user.write("home/.aws/credentials", "horse");
        user.write("home/plain", "readable\n");
        // Only root can write there, and for root alone it is hidden.
        let backup = user.is_root().then(|| {
            let backup = tempfile::Builder::new()
                .prefix("abide-test")
                .tempfile_in("/var/backups");
            let mut backup = backup.expect("a file of root");
            std::io::Write::write_all(&mut backup, b"stable").expect("it is written");
            backup
        });
        let (_, text) = run_without_namespaces(
            user,
            "echo own > own && cat own ~/plain; echo x > $ROOT/outside/x; cat ~/.aws/credentials; echo x > ~/new; \
             cat $ROOT/state/config.toml; mktemp -p $TMPDIR > /dev/null && echo temporary; \
             cat /var/backups/abide-test*; exec 3<>/dev/tcp/127.0.0.1/1; kill -0 $PPID",
        );
        drop(backup);
        assert!(!text.contains("stable"), "51: {text}");
        assert!(
            text.starts_with("own\nreadable\ntemporary\n"),
            "183: {text}"
        );
        assert!(
            !text.contains("horse") && !text.contains("at_least"),
            "51: {text}"
        );
        assert!(text.matches("Permission denied").count() >= 4, "1: {text}");
        assert!(
            text.matches("Operation not permitted").count() >= 2,
            "{text}"
        );
        assert!(!user.exists("outside/x") && !user.exists("home/new"));
        user.abide(&["stop"]);
        let listed = user.abide(&["session", "list", "--all", "--json"]).text;
        assert!(listed.contains("\"landlock\""), "192: {listed}");
        assert!(
            listed.contains("protected paths of the workspace can be written"),
            "192: {listed}"
        );
    });
}

#[test]
fn landlock_alone_does_not_reach_shared_memory_and_limits_of_other_processes() {
    as_each_user(|user| {
        user.write("state/config.toml", "[sandbox]\nat_least = \"landlock\"\n");
        user.write(
            "work/attack.py",
            r#"import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def attempt(call, *args):
    done = call(*args)
    print(call.__name__, os.strerror(ctypes.get_errno()) if done == -1 else "done")
attempt(libc.shmget, 0, 4096, 0o1600)
attempt(libc.msgget, 0, 0o1600)
attempt(libc.semget, 0, 1, 0o1600)
try:
    resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))
except OSError as fault:
    print("prlimit", fault.strerror)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print("own limit")
"#,
        );
        let (_, text) = run_without_namespaces(user, "python3 attack.py; true");
        let no = "Operation not permitted";
        let expected = format!("shmget {no}\nmsgget {no}\nsemget {no}\nprlimit {no}\nown limit\n");
        assert!(text.starts_with(&expected), "59, 71: {text}");
    });
}

#[test]
fn landlock_alone_does_not_reach_terminals_of_the_user() {
    as_each_user(|user| {
        user.write("state/config.toml", "[sandbox]\nat_least = \"landlock\"\n");
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let terminal = rustix::pty::openpt(flags).expect("a terminal");
        rustix::pty::unlockpt(&terminal).expect("it is unlocked");
        let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("a name");
        let name = name.to_string_lossy();
        let script = format!("echo x > {name}; cat < {name}; true < /dev/tty; true < /dev/null");
        let (success, text) = run_without_namespaces(user, &script);
        assert!(success, "73: {text}");
        assert_eq!(text.matches("Permission denied").count(), 2, "73: {text}");
    });
}

#[test]
fn allowlist_needs_namespaces() {
    as_each_user(|user| {
        user.write("state/config.toml", "[sandbox]\nat_least = \"landlock\"\n");
        let (success, text) = run_without_namespaces_in("allowlist", user, "touch made");
        assert!(!success, "183: {text}");
        let why = "a network allowlist needs namespaces; set `sandbox.network` to";
        assert!(text.contains(why), "183: {text}");
        assert!(!user.exists("work/made"), "183");
    });
}

#[test]
fn many_sessions_leave_nothing_behind() {
    as_each_user(|user| {
        user.works("190", "true");
        let count = || {
            user.outside("wc -l < /proc/self/mountinfo")
                .trim()
                .to_owned()
        };
        let before = count();
        for _ in 0..20 {
            user.works("190", "true");
        }
        assert_eq!(count(), before);
        user.abide(&["stop"]);
        let layers = user.path("state/layers");
        // Keepers remove these folders after the answer, so the last ones may still be doing it.
        user.outside(&format!(
            "until [ -z \"$(find {} -name 'work.*' 2>&1)\" ]; do sleep 0.05; done",
            layers.display()
        ));
    });
}

#[test]
fn invalid_sandbox_settings_refuse_the_start() {
    as_each_user(|user| {
        for (text, part) in [
            ("[sandbox]\nmode = \"none\"\n", "unknown variant"),
            ("[sandbox]\nmodus = \"off\"\n", "unknown field"),
        ] {
            user.write("state/config.toml", text);
            let ran = user.abide(&["run", "--", "touch", "made"]);
            assert!(ran.code != 0 && ran.text.contains(part), "{ran:?}");
            assert!(!user.exists("work/made"));
        }
    });
}

#[test]
fn configured_paths_are_writable_or_hidden() {
    as_each_user(|user| {
        user.write("outside/cache/x", "");
        user.write("outside/secret/key", "horse\n");
        let root = user.path("outside");
        let root = root.display();
        let text = format!("[sandbox]\nwrite = [\"{root}/cache\"]\nhide = [\"{root}/secret\"]\n");
        user.write("state/config.toml", &text);
        user.works("write", "echo new > $ROOT/outside/cache/new");
        assert_eq!(user.read("outside/cache/new"), "new\n");
        let ran = user.run(
            "cat $ROOT/outside/secret/key; ls -A $ROOT/outside/secret; echo x > $ROOT/outside/file",
        );
        assert!(
            !ran.text.contains("horse") && !ran.text.contains("key\n"),
            "{ran:?}"
        );
        assert!(ran.text.contains("Read-only"), "{ran:?}");
    });
}
