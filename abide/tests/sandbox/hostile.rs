//! `abide doctor --hostile`: the attacks that it ships, and that they would be noticed if they succeeded.

use serde_json::{Value, json};

use crate::harness::{User, as_each_user};

fn report(text: &str) -> Value {
    let line = text.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{text}"))).expect("JSON")
}

fn with_result<'a>(report: &'a Value, result: &str) -> Vec<&'a Value> {
    let all = report["attacks"].as_array().expect("attacks").iter();
    all.filter(|attack| attack["result"] == result).collect()
}

/// Files of attacks that are over. Another test may be at work in `/tmp`: its process still runs, or has removed its file.
fn left_behind(user: &User) -> String {
    user.outside(
        "find $HOME $ROOT/state /tmp -maxdepth 5 -name '.abide-hostile-*' -user $(id -u) 2> /dev/null |
        while read -r file; do
            readlink /proc/${file##*-}/exe > /dev/null || ! test -e $file || echo $file
        done",
    )
}

#[test]
fn attacks_are_held_off_and_leave_nothing() {
    as_each_user(|user| {
        user.write("home/.aws/credentials", "horse");
        for (config, mode) in [
            ("", "workspace-write"),
            (
                "[sandbox]\nmode = \"read-only\"\nnetwork = \"on\"\n",
                "read-only",
            ),
        ] {
            user.write("state/config.toml", config);
            user.abide(&["stop"]);
            let ran = user.abide(&["doctor", "--hostile", "--json"]);
            let report = report(&ran.text);
            assert_eq!(with_result(&report, "failed"), Vec::<&Value>::new());
            assert_eq!(ran.code, 0, "{report}");
            assert_eq!(report["held"], true, "{report}");
            assert_eq!(report["mode"], mode, "{report}");
            assert_eq!(report["sandboxed_by"], "namespaces", "{report}");
            assert_eq!(report["attacks"].as_array().map(Vec::len), Some(44));
            assert!(with_result(&report, "ok").len() >= 36, "{report}");
        }
        assert_eq!(left_behind(user), "");
        let table = user.abide(&["doctor", "--hostile"]);
        assert!(table.text.contains(" 0 failed"), "{table:?}");
    });
}

/// Runs the attacks without a sandbox, as a process that has none would.
#[test]
fn attacks_succeed_where_there_is_no_sandbox() {
    as_each_user(|user| {
        for number in [5, 7, 9, 11, 13, 20, 25] {
            user.write(&format!("outside/canary-{number}"), "canary\n");
        }
        for name in ["hooks/pre-commit", "config", "objects/a"] {
            user.write(&format!("work/.git/{name}"), "canary\n");
        }
        let home = user.write("home/file", "canary\n");
        let key = user.write("home/.aws/credentials", "horse");
        let state = user.write("state/token", "horse");
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let scene = json!({
            "workspace": user.path("work"), "outside": user.path("outside"), "in_home": home, "secrets": [key],
            "own": [state], "process": 1, "port": server.local_addr().expect("an address").port(),
            "has_network": false, "can_write": true, "socket": user.path("outside/none"),
            "abstract_socket": "none",
        });
        let ran = user.abide(&["doctor", "--attack", &scene.to_string()]);
        let reached: Vec<u64> = ran
            .text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|line| line["outcome"] == "reached")
            .filter_map(|line| line["number"].as_u64())
            .collect();
        for number in [2, 5, 7, 9, 11, 13, 20, 25, 31, 33, 41, 51, 81, 107, 129, 17] {
            assert!(reached.contains(&number), "{number}: {ran:?}");
        }
        assert_eq!(user.read("outside/canary-11"), "canary\nattacked\n");
    });
}

#[test]
fn p184_weaker_mechanism_shows_its_gaps() {
    as_each_user(|user| {
        user.write("state/config.toml", "[sandbox]\nat_least = \"landlock\"\n");
        user.write("home/.aws/credentials", "horse");
        let program = user.path("abide-program");
        let script = format!(
            "echo 0 > /proc/sys/user/max_net_namespaces && {} doctor --hostile --json",
            program.display()
        );
        let ran = user.in_user_namespace(&script);
        let report = report(&String::from_utf8_lossy(&ran.stdout));
        assert_eq!(report["sandboxed_by"], "landlock", "{report}");
        assert_eq!(with_result(&report, "failed"), Vec::<&Value>::new());
        let gaps: Vec<u64> = with_result(&report, "gap")
            .into_iter()
            .filter_map(|attack| attack["number"].as_u64())
            .collect();
        assert!(
            [31, 33, 41].iter().all(|number| gaps.contains(number)),
            "{report}"
        );
    });
}
