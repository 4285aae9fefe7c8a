//! Attacks 183 and 186: the mechanism `bubblewrap`, where abide itself may not make user namespaces.

use serde_json::Value;

use crate::harness::{Ran, User, as_each_user};

/// Runs a test where bubblewrap is installed.
fn as_each_user_with_bubblewrap(test: impl Fn(&User)) {
    if !std::path::Path::new("/usr/bin/bwrap").exists() {
        eprintln!("skipped: no bubblewrap; `make programs` installs it");
        return;
    }
    as_each_user(test);
}

/// Runs abide on a machine where only bubblewrap may make user namespaces.
fn abide(user: &User, words: &[&str]) -> Ran {
    let ran = user
        .command(user.path("abide-program"))
        .env("ABIDE_OFF", "namespaces")
        .args(words)
        .output()
        .expect("abide runs");
    Ran {
        code: ran.status.code().unwrap_or(-1),
        text: String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned(),
    }
}

fn run(user: &User, script: &str) -> Ran {
    let words = ["run", "--sandbox", "workspace-write", "--network", "off"];
    abide(
        user,
        &[&words[..], &["--", "/bin/bash", "-c", script]].concat(),
    )
}

fn fields(ran: &Ran) -> Value {
    let line = ran.text.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{ran:?}"))).expect("JSON")
}

#[test]
fn p183_bubblewrap_is_used_where_namespaces_are_not_allowed() {
    as_each_user_with_bubblewrap(|user| {
        user.write("home/.aws/credentials", "horse");
        let words = [
            "run",
            "--json",
            "--sandbox",
            "workspace-write",
            "--",
            "true",
        ];
        let result = fields(&abide(user, &words));
        assert_eq!(result["sandboxed_by"], "bubblewrap", "192: {result}");
        assert_eq!(
            result["sandbox_gaps"],
            serde_json::json!([]),
            "192: {result}"
        );
        let ran = run(
            user,
            "echo own > file && cat file; echo x > ~/layered; echo x > $ROOT/outside/x; cat ~/.aws/credentials; echo $$; \
             ps -e -o comm= | grep -c -e bwrap -e cat; kill -9 -1",
        );
        assert!(ran.text.starts_with("own\n"), "{ran:?}");
        assert!(ran.text.contains("outside/x: Read-only"), "1: {ran:?}");
        assert!(!ran.text.contains("horse"), "51: {ran:?}");
        assert!(!user.exists("home/layered") && !user.exists("outside/x"));
        assert_eq!(user.read("work/file"), "own\n");
        // Nothing of bubblewrap is left in or beside the sandbox.
        assert!(ran.text.contains("\n0\n"), "190: {ran:?}");
        let left =
            user.outside("ps -u $(id -u) -o args= | grep -c '[b]wrap --unshare-user' || true");
        assert_eq!(left.trim(), "0", "190");
    });
}

#[test]
fn p186_attacks_are_held_off_by_bubblewrap() {
    as_each_user_with_bubblewrap(|user| {
        user.write("home/.aws/credentials", "horse");
        let ran = abide(user, &["doctor", "--hostile", "--json"]);
        let report = fields(&ran);
        assert_eq!(report["sandboxed_by"], "bubblewrap", "{report}");
        assert_eq!(report["held"], true, "{report}");
        let attacks = report["attacks"].as_array().expect("attacks");
        let with = |result: &str| attacks.iter().filter(|one| one["result"] == result).count();
        assert_eq!((with("failed"), with("gap")), (0, 0), "{report}");
        assert!(with("ok") >= 36, "{report}");
    });
}

#[test]
fn p183_namespaces_that_are_required_are_not_replaced() {
    as_each_user_with_bubblewrap(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nat_least = \"namespaces\"\n",
        );
        let ran = run(user, "touch made");
        assert!(
            ran.code != 0 && ran.text.contains("Nothing was run"),
            "183: {ran:?}"
        );
        assert!(!user.exists("work/made"), "183");
    });
}

#[test]
fn p186_bwrap_of_the_workspace_is_not_run() {
    as_each_user_with_bubblewrap(|user| {
        user.write("work/bwrap", "#!/bin/sh\ntouch $ROOT/outside/fake\n");
        user.outside("chmod 755 bwrap");
        let ran = user
            .command(user.path("abide-program"))
            .env("ABIDE_OFF", "namespaces")
            .env("PATH", user.path("work"))
            .args(["run", "--sandbox", "read-only", "--", "/bin/true"])
            .output()
            .expect("abide runs");
        assert!(ran.status.success(), "186: {ran:?}");
        assert!(!user.exists("outside/fake"), "186");
    });
}
