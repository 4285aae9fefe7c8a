//! Attacks 129 to 142: abide itself.

use crate::harness::as_each_user;

#[test]
fn folders_and_sockets_of_abide_are_hidden() {
    as_each_user(|user| {
        user.works("129", "true");
        assert!(user.exists("state/sessions") && user.exists("state/run/http.sock"));
        let text = user.works("129, 131", "ls -A $ROOT/state | wc -l; find $ROOT -name http.sock; find $ROOT -name abide.db; true");
        assert_eq!(text, "0\n");
        user.refused(
            "130",
            &["echo x > $ROOT/state/config.toml", "rm -rf $ROOT/state"],
            &["Read-only", "busy"],
        );
        assert!(user.exists("state/sessions"));
    });
}

#[test]
fn abide_inside_cannot_reach_the_daemon_outside() {
    as_each_user(|user| {
        let program = user.path("abide-program");
        let program = program.display();
        let ran = user.run(&format!("ABIDE_DIR=$ROOT/state {program} session list --all; ABIDE_DIR=$ROOT/state {program} stop"));
        assert!(!ran.text.contains("session_"), "131: {ran:?}");
        // Starting another daemon gains nothing.
        let script = format!(
            "export ABIDE_DIR=/tmp/own; {program} run -- sh -c 'echo inner; echo x > /etc/x'; {program} stop > /dev/null"
        );
        let ran = user.run(&script);
        assert!(
            ran.text.contains("inner") && ran.text.contains("Read-only"),
            "132: {ran:?}"
        );
        user.works("132", "true");
    });
}

#[test]
fn layers_of_other_agents_are_hidden() {
    as_each_user(|user| {
        let run = |agent: &str, script: &str| {
            user.run_in(&["--sandbox", "workspace-write", "--agent", agent], script)
        };
        assert_eq!(
            run("first", "echo secret > ~/note && cat ~/note").text,
            "secret\n"
        );
        let ran = run("second", "cat ~/note; find $ROOT -name note");
        assert!(
            !ran.text.contains("secret") && !ran.text.contains("/note\n"),
            "62: {ran:?}"
        );
        assert_eq!(run("first", "cat ~/note").text, "secret\n");
    });
}
