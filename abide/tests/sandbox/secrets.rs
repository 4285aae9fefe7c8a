//! Attacks 51 to 64: reading secrets.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;

use crate::harness::as_each_user;

const SECRET: &str = "correct-horse-battery";

#[test]
fn secrets_of_the_home_folder_look_empty_by_every_path() {
    as_each_user(|user| {
        for name in [
            ".ssh/id_ed25519",
            ".aws/credentials",
            ".netrc",
            ".git-credentials",
            ".gnupg/private-keys-v1.d/a.key",
            ".config/gh/hosts.yml",
            ".mozilla/firefox/a/cookies.sqlite",
            ".bash_history",
            ".claude/.credentials.json",
            ".docker/config.json",
            ".pgpass",
            ".cache/huggingface/token",
            ".config/containers/auth.json",
            ".pulumi/credentials.json",
            ".codex/history.jsonl",
            ".aliyun/config.json",
            ".config/openstack/clouds.yaml",
        ] {
            user.write(&format!("home/{name}"), SECRET);
        }
        user.write("home/.npmrc", &format!("//r/:_authToken={SECRET}\n"));
        user.write("home/.config/plain", "readable\n");
        user.write("home/.ssh/config", "Host x\n  IdentityFile ~/keys/other\n");
        user.write("home/.ssh/known_hosts", "host key\n");
        user.write("home/keys/other", SECRET);
        user.outside("ln -s $HOME/.aws link");
        let text = user.run(
            "cat ~/.ssh/id_ed25519 ~/.aws/credentials ~/.aws//credentials ~/./.aws/credentials \
             $HOME/../home/.aws/credentials link/credentials ~/.netrc ~/.git-credentials ~/.npmrc ~/.bash_history \
             /proc/self/root$HOME/.aws/credentials ~/.claude/.credentials.json ~/.docker/config.json ~/keys/other \
             ~/.pulumi/* ~/.codex/history.jsonl ~/.pgpass ~/.cache/huggingface/token ~/.config/containers/auth.json \
             ~/.aliyun/config.json ~/.config/openstack/*; \
             find ~ -name 'id_*'; grep -r horse $ROOT; tar c ~ | grep -a horse; ls -A ~/.aws ~/.gnupg",
        );
        assert!(!text.text.contains("horse"), "51, 52, 53: {text:?}");
        assert!(!text.text.contains("/.ssh/id_ed25519\n"), "52: {text:?}");
        let twin = user.works("51", "cat ~/.config/plain ~/.ssh/known_hosts ~/.ssh/config");
        assert_eq!(
            twin,
            "readable\nhost key\nHost x\n  IdentityFile ~/keys/other\n"
        );
        user.refused(
            "54",
            &[
                "rm ~/.netrc",
                "rm -rf ~/.aws && ln -s /etc ~/.aws",
                "echo x > ~/.ssh/authorized_keys",
            ],
            &["busy", "Read-only"],
        );
        assert_eq!(user.read("home/.netrc"), SECRET);
    });
}

#[test]
fn secrets_are_hidden_in_every_mount_of_the_home_folder() {
    as_each_user(|user| {
        for name in [".ssh/id_ed25519", ".aws/credentials"] {
            user.write(&format!("home/{name}"), SECRET);
        }
        user.write("home/.config/plain", "readable\n");
        user.outside("mkdir ../alias ../keys");
        let script = format!(
            "mount --bind $HOME $ROOT/alias && mount --bind $HOME/.aws $ROOT/keys && {} run --sandbox workspace-write -- \
             bash -c 'cat $ROOT/alias/.config/plain; cat $ROOT/alias/.ssh/* $ROOT/alias/.aws/* $ROOT/keys/*; grep -r horse $ROOT'",
            user.path("abide-program").display()
        );
        let ran = user.in_user_namespace(&script);
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert!(said.starts_with("readable\n"), "51: {said}");
        assert!(!said.contains("horse"), "51: {said}");
    });
}

#[test]
fn settings_of_build_tools_are_hidden_only_with_a_secret() {
    as_each_user(|user| {
        for (name, plain, secret) in [
            (".npmrc", "registry=https://r", "//r/:_password=horse"),
            (".yarnrc.yml", "nodeLinker: pnp", "npmAuthToken: horse"),
            (".m2/settings.xml", "<mirror>", "<password>horse</password>"),
            (
                ".gradle/gradle.properties",
                "org.gradle.daemon=false",
                "mavenPassword=horse",
            ),
            (
                ".nuget/NuGet/NuGet.Config",
                "<add key=\"a\"/>",
                "ClearTextPassword horse",
            ),
            (
                ".bundle/config",
                "BUNDLE_PATH: \"vendor\"",
                "BUNDLE_GEMS__EXAMPLE__COM: \"a:horse\"",
            ),
            (".pip/pip.conf", "[global]", "index-url = https://a:horse@r"),
        ] {
            let (in_home, shown) = (format!("home/{name}"), format!("cat ~/{name}"));
            user.write(&in_home, plain);
            assert_eq!(user.works("51", &shown), plain, "51: {name}");
            user.write(&in_home, &format!("{plain}\n{secret}\n"));
            assert_eq!(user.works("51", &shown), "", "51: {name}");
        }
    });
}

#[test]
fn secrets_of_the_environment_are_not_inherited() {
    as_each_user(|user| {
        let ran = user
            .command(user.path("abide-program"))
            .env("DB_PASSWORD", SECRET)
            .env("SSH_AUTH_SOCK", "/tmp/agent")
            .env("LD_PRELOAD", "")
            .env("PLAIN_SETTING", "kept")
            .env("PLAIN_URL", "https://me@host/a:b@c")
            .env("GH_PAT", SECRET)
            .env("SLACK_WEBHOOK_URL", SECRET)
            .env("DATABASE_URL", format!("postgres://me:{SECRET}@host/db"))
            .env("HTTP_PROXY", format!("http://me:{SECRET}@host:1"))
            .env("HARMLESS", format!("ghp_{}", "a1B2".repeat(9)))
            .args(["run", "--sandbox", "workspace-write", "--", "env"])
            .output()
            .expect("abide runs");
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(
            text.contains("PLAIN_SETTING=kept") && text.contains("ABIDE_SANDBOX=1"),
            "{text}"
        );
        assert!(text.contains("PLAIN_URL=https://me@host/a:b@c"), "{text}");
        for gone in [SECRET, "ghp_", "SSH_AUTH_SOCK", "LD_PRELOAD", "ABIDE_DIR"] {
            assert!(!text.contains(gone), "56: {gone}: {text}");
        }
    });
}

#[test]
fn files_of_secrets_that_variables_name_are_hidden() {
    as_each_user(|user| {
        let (first, second) = (user.path("outside/one"), user.path("outside/two"));
        let key = user.path("outside/key.json");
        for name in ["outside/one", "outside/two", "outside/key.json"] {
            user.write(name, SECRET);
        }
        let ran = user
            .command(user.path("abide-program"))
            .env(
                "KUBECONFIG",
                std::env::join_paths([&first, &second]).expect("a list"),
            )
            .env("GOOGLE_APPLICATION_CREDENTIALS", &key)
            .args(["run", "--sandbox", "workspace-write", "--"])
            .args(["sh", "-c", "cat $ROOT/outside/*; echo end"])
            .output()
            .expect("abide runs");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "end\n", "{ran:?}");
    });
}

#[test]
fn other_processes_and_the_kernel_show_nothing() {
    as_each_user(|user| {
        let text = user.works("57", "cat /proc/*/environ | tr '\\0' '\\n' | grep -c ABIDE_DIR; ls -d /proc/[0-9]* | wc -l; true");
        let numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(numbers[0], 0, "57: {text}");
        assert!(numbers[1] < 20, "57: {text}");
        let text = user.run(
            "cat /proc/kcore /proc/keys /proc/kallsyms /proc/timer_list 2>/dev/null | wc -c; ls /sys/firmware /sys/kernel/debug \
             2>/dev/null | wc -l; dmesg 2>&1 | wc -l",
        );
        assert!(text.text.starts_with("0\n"), "58: {text:?}");
        assert!(
            user.works("58", "cat /proc/cpuinfo /proc/meminfo")
                .contains("MemTotal")
        );
    });
}

#[test]
fn shared_memory_and_queues_are_separate() {
    as_each_user(|user| {
        let name = format!("abide-attack-{}", user.path("").metadata().unwrap().ino());
        let outside = std::path::Path::new("/dev/shm").join(&name);
        std::fs::write(&outside, SECRET).expect("shared memory");
        let ran = user.run("cat /dev/shm/*; ipcs -m 2>/dev/null | tail -n +4");
        std::fs::remove_file(&outside).expect("shared memory");
        assert!(!ran.text.contains(SECRET), "59: {ran:?}");
        user.works("59", "echo x > /dev/shm/own && cat /dev/shm/own");
    });
}

#[test]
fn socket_of_the_desktop_is_absent() {
    as_each_user(|user| {
        let socket = user.path("home/bus");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&socket, open).expect("permissions");
        let said = user.python(&format!(
            r#"
s = socket.socket(socket.AF_UNIX)
print("64", attempt(lambda: s.connect("{}")))
print("run", os.listdir("/run/user/" + str(os.getuid())))
"#,
            socket.display()
        ));
        assert!(
            said.contains("64 ECONNREFUSED") || said.contains("64 ENOENT"),
            "{said}"
        );
        assert!(said.contains("run []"), "{said}");
    });
}

#[test]
fn secret_that_appears_later_is_hidden_from_the_next_command() {
    as_each_user(|user| {
        user.works("55", "test ! -e ~/.aws");
        user.write("home/.aws/credentials", SECRET);
        let ran = user.run("cat ~/.aws/credentials; ls -A ~/.aws");
        assert!(!ran.text.contains("horse") && ran.code == 0, "55: {ran:?}");
    });
}

#[test]
fn page_cache_of_a_hidden_file_cannot_be_probed() {
    as_each_user(|user| {
        let path = user.write("home/.aws/credentials", SECRET);
        let said = user.python(&format!(
            r#"
path = "{}"
print("60", attempt(lambda: os.open(path, os.O_RDONLY)), attempt(lambda: os.stat(path)))
"#,
            path.display()
        ));
        assert!(said.contains("60 ENOENT ENOENT"), "{said}");
    });
}

#[test]
fn files_that_everyone_may_read_are_readable() {
    as_each_user(|user| {
        user.write("outside/public", "public\n");
        let text = user.works("61", "cat $ROOT/outside/public && head -c 4 /etc/passwd");
        assert_eq!(text, "public\nroot", "61");
    });
}

#[test]
fn file_of_the_workspace_can_be_hidden() {
    as_each_user(|user| {
        let path = user.write("work/.env", SECRET);
        user.write(
            "state/config.toml",
            &format!("[sandbox]\nhide = [\"{}\"]\n", path.display()),
        );
        let ran =
            user.run("cat .env; cp .env copy; mv .env other; ln .env link; cat copy other link");
        assert!(!ran.text.contains("horse"), "63: {ran:?}");
        assert_eq!(user.read("work/.env"), SECRET, "63");
    });
}

#[test]
fn hidden_dev_looks_empty() {
    as_each_user(|user| {
        user.write("state/config.toml", "[sandbox]\nhide = [\"/dev\"]\n");
        assert_eq!(user.works("64", "ls -A /dev; echo end"), "end\n", "64");
    });
}

#[test]
fn mount_from_which_covers_are_cloned_is_gone() {
    as_each_user(|user| {
        let script = "grep ' /dev/covers' /proc/self/mountinfo; ls -A /dev | grep cover; echo end";
        assert_eq!(user.works("64", script), "end\n", "64");
    });
}
