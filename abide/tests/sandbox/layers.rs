//! Layers on disk: listing, removal, and what is left of killed keepers.

use serde_json::{Value, json};

use crate::agents::{call, text};
use crate::harness::as_each_user;

const SANDBOXED: &str = "[sandbox]\nmode = \"workspace-write\"\n";

#[test]
fn p191_layers_outlive_the_daemon_and_are_listed_and_removed() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        let made =
            json!({"command": "mkdir -p ~/cache && echo kept > ~/cache/file && chmod 555 ~/cache"});
        call(user, "shell", &made);
        user.abide(&["stop"]);
        let seen = text(&call(
            user,
            "shell",
            &json!({"command": "cat ~/cache/file"}),
        ));
        assert!(seen.contains("kept"), "{seen}");
        assert!(!user.exists("home/cache"));
        let listed = user.abide(&["sandbox", "layers", "--json"]);
        let listed: Value = serde_json::from_str(&listed.text).expect("JSON");
        assert_eq!(listed["layers"][0]["agent"], "codex", "{listed}");
        assert!(
            listed["layers"][0]["bytes"].as_u64() >= Some(4_096),
            "{listed}"
        );
        let shown = user.abide(&["sandbox", "layers"]);
        assert!(shown.text.contains("codex"), "{shown:?}");
        let unknown = user.abide(&["sandbox", "layers", "--remove", "nobody"]);
        assert!(
            unknown.code != 0 && unknown.text.contains("has no layers"),
            "{unknown:?}"
        );
        let start = json!({"action": "start", "command": "echo ready; exec sleep 1000"});
        let started = call(user, "terminal_session", &start);
        let id = started["result"]["session_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let used = user.abide(&["sandbox", "layers", "--remove", "codex"]);
        assert!(used.code != 0 && used.text.contains(&id), "{used:?}");
        user.abide(&["session", "kill", &id]);
        user.abide(&["stop"]);
        let layers = user.path("state/layers");
        user.outside(&format!(
            "while find {} -maxdepth 3 -name 'work.*' | grep -q .; do sleep 0.05; done",
            layers.display()
        ));
        let removed = user.abide(&["sandbox", "layers", "--remove", "codex"]);
        assert_eq!(removed.code, 0, "{removed:?}");
        assert!(!user.exists("state/layers/agent-codex"));
    });
}

#[test]
fn p48_work_folders_of_a_killed_keeper_are_removed_by_the_next_daemon() {
    as_each_user(|user| {
        user.write("state/config.toml", SANDBOXED);
        call(user, "shell", &json!({"command": "echo x > ~/x"}));
        user.abide(&["stop"]);
        let layer = user.outside("ls -d $ROOT/state/layers/agent-codex/*/upper | head -n 1");
        let left = layer.trim().replace("upper", "work.session_00000000");
        user.outside(&format!("mkdir -p {left}/work && chmod 000 {left}/work"));
        user.abide(&["status"]);
        user.outside(&format!("while test -e {left}; do sleep 0.05; done"));
    });
}

#[test]
fn p24_agent_whose_layers_are_too_large_is_refused_until_they_are_removed() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            &format!("{SANDBOXED}layer_bytes = 1_000_000\n"),
        );
        let fill = json!({"command": "head -c 3000000 /dev/zero > ~/large; touch made"});
        let said = text(&call(user, "shell", &fill));
        assert!(said.contains("STATUS: SUCCESS"), "24: {said}");
        let noted = user.path("state/layers/agent-codex/size");
        let noted = noted.display();
        user.outside(&format!(
            "while ! [ $(cat {noted} 2> /dev/null || echo 0) -gt 1000000 ]; do sleep 0.05; done"
        ));
        let refused = text(&call(user, "shell", &json!({"command": "touch second"})));
        assert!(
            refused.contains("more than `sandbox.layer_bytes`, 1000000"),
            "24: {refused}"
        );
        assert!(refused.contains("--remove codex"), "24: {refused}");
        assert!(!user.exists("work/second"), "24");
        let removed = user.abide(&["sandbox", "layers", "--remove", "codex"]);
        assert_eq!(removed.code, 0, "{removed:?}");
        let said = text(&call(user, "shell", &json!({"command": "touch second"})));
        assert!(said.contains("STATUS: SUCCESS"), "24: {said}");
    });
}

#[test]
fn command_that_fills_its_layers_is_ended() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            &format!("{SANDBOXED}layer_bytes = 1_000_000\n"),
        );
        let fill = json!({"command": "head -c 3000000 /dev/zero > ~/large; sync ~/large; exec sleep 1000", "timeout": 600});
        let ended = call(user, "shell", &fill);
        assert_eq!(ended["result"]["end"], "sandbox", "{ended}");
        let said = text(&ended);
        assert!(
            said.contains("more than `sandbox.layer_bytes`, 1000000"),
            "{said}"
        );
        let small = json!({"command": "head -c 3000000 /dev/zero > in-the-workspace"});
        user.abide(&["sandbox", "layers", "--remove", "codex"]);
        let said = text(&call(user, "shell", &small));
        assert!(said.contains("STATUS: SUCCESS"), "{said}");
    });
}
