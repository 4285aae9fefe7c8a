//! Attacks 1 to 30: writing outside the workspace.

use std::os::unix::fs::MetadataExt;

use crate::harness::as_each_user;

const READ_ONLY: &[&str] = &["Read-only file system", "Permission denied"];

#[test]
fn files_of_the_system_cannot_be_written_and_files_of_the_workspace_can() {
    as_each_user(|user| {
        let outside = user.path("outside/x");
        let outside = outside.to_str().unwrap();
        let scripts = [
            "echo x > /etc/x",
            "echo x > /usr/local/bin/x",
            "echo x > /opt/x",
            &format!("echo x > {outside}"),
        ];
        user.refused("1", &scripts, READ_ONLY);
        assert!(!user.exists("outside/x"));
        user.works("1", "echo x > x && mkdir -p a/b && mv x a/b/");
        assert_eq!(user.read("work/a/b/x"), "x\n");
    });
}

#[test]
fn writes_to_home_and_temporary_folders_go_to_a_layer() {
    as_each_user(|user| {
        user.write("home/.bashrc", "mine\n");
        let names = [
            ".bashrc",
            ".profile",
            ".zshenv",
            ".config/fish/config.fish",
            ".config/autostart/x.desktop",
            ".config/systemd/user/x.service",
            ".local/bin/git",
        ];
        for name in names {
            let script =
                format!("mkdir -p $(dirname ~/{name}) && echo evil >> ~/{name} && cat ~/{name}");
            assert!(user.works("2, 3", &script).contains("evil"));
        }
        assert_eq!(user.read("home/.bashrc"), "mine\n");
        assert!(!user.exists("home/.config") && !user.exists("home/.local"));
        // The layer belongs to the agent: its next command sees it.
        assert_eq!(user.works("2", "cat ~/.bashrc"), "mine\nevil\n");
        let name = format!("abide-attack-{}", user.path("").metadata().unwrap().ino());
        user.works(
            "2",
            &format!("echo x > /tmp/{name}; echo x > /var/tmp/{name}"),
        );
        assert_eq!(user.works("2", &format!("cat /tmp/{name}")), "x\n");
        for folder in ["/tmp", "/var/tmp"] {
            assert!(!std::path::Path::new(folder).join(&name).exists());
        }
    });
}

#[test]
fn links_do_not_lead_writes_out() {
    as_each_user(|user| {
        user.write("home/.bashrc", "mine\n");
        user.write("outside/file", "theirs\n");
        user.outside(
            "ln -s $ROOT/outside/file link; ln -s $HOME/.bashrc rc; ln $ROOT/outside/file hard",
        );
        user.refused(
            "5",
            &["ln -s /etc/x new && echo x > new", "echo x > link"],
            READ_ONLY,
        );
        user.works("6", "echo evil >> rc");
        assert_eq!(user.read("home/.bashrc"), "mine\n");
        user.refused(
            "7",
            &["ln /etc/passwd p"],
            &["Invalid cross-device", "Permission", "permitted"],
        );
        // A hard link in the workspace is the workspace's own file.
        user.works("8", "echo more >> hard");
        assert_eq!(user.read("outside/file"), "theirs\nmore\n");
        user.refused("9", &["mkdir d && mv d $ROOT/outside/"], READ_ONLY);
        assert_eq!(user.read("outside/file"), "theirs\nmore\n");
    });
}

#[test]
fn renames_handles_and_descriptors_do_not_lead_out() {
    as_each_user(|user| {
        user.write("outside/file", "theirs\n");
        user.write("work/own", "own\n");
        let outside = user.path("outside");
        let outside = outside.display();
        let said = user.python(&format!(
            r#"
import stat
print("10", call(316, 276, -100, b"own", -100, b"{outside}/file", 2))
d = os.open(".", os.O_RDONLY)
print("11", attempt(lambda: os.open("../outside/new", os.O_WRONLY | os.O_CREAT, dir_fd=d)))
print("12", attempt(lambda: os.open("{outside}", os.O_WRONLY | os.O_TMPFILE)))
print("13", attempt(lambda: os.open("/proc/self/root{outside}/new", os.O_WRONLY | os.O_CREAT)))
print("13", attempt(lambda: os.open("/proc/1/root{outside}/new", os.O_WRONLY | os.O_CREAT)))
print("14", sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) > 3 + 1 and os.path.lexists("/proc/self/fd/" + n)))
print("19", call(304, 265, d, None, 0))
print("20", attempt(lambda: os.chmod("{outside}/file", 0o777)), attempt(lambda: os.utime("{outside}/file")),
      attempt(lambda: os.setxattr("{outside}/file", "user.x", b"x")))
print("25", attempt(lambda: os.truncate("{outside}/file", 0)), attempt(lambda: os.open("{outside}/file", os.O_RDWR)))
print("twin", call(316, 276, -100, b"own", -100, b"renamed", 1), attempt(lambda: os.chmod("renamed", 0o600)),
      attempt(lambda: os.truncate("renamed", 0)), attempt(lambda: os.setxattr("renamed", "user.x", b"x")))
"#
        ));
        let expected = [
            "10 EXDEV",
            "11 EROFS",
            "12 EROFS",
            "13 EROFS",
            "14 []",
            "19 EPERM",
            "20 EROFS EROFS EROFS",
            "25 EROFS EROFS",
            "twin ok ok ok ok",
        ];
        for line in expected {
            assert!(said.lines().any(|said| said == line), "{line}: {said}");
        }
        assert!(!user.exists("outside/new"));
        assert_eq!(user.read("outside/file"), "theirs\n");
    });
}

#[test]
fn mounts_cannot_be_changed() {
    as_each_user(|user| {
        let said = user.python(
            r#"
print("16", call(165, 40, b"none", b"/mnt", b"tmpfs", 0, None), call(166, 39, b"/proc", 2), call(428, 428, -100, b"/", 1),
      call(430, 430, b"tmpfs", 0), call(429, 429, -100, b"/", -100, b"/mnt", 0), call(442, 442, -100, b"/", 0, None, 32))
print("17", call(272, 97, 0x10000000), call(272, 97, 0x20000), call(56, 220, 0x10000000 | 17, 0, 0, 0, 0))
print("18", call(161, 51, b"/"), call(155, 41, b"/", b"/"))
print("22", attempt(lambda: os.mknod("node", 0o600 | 0o20000, os.makedev(1, 3))), attempt(lambda: os.mkfifo("fifo")))
print("87", call(435, 435, None, 0))
"#,
        );
        for line in [
            "16 EPERM EPERM EPERM EPERM EPERM EPERM",
            "17 EPERM EPERM EPERM",
            "18 EPERM EPERM",
            "22 EPERM ok",
            "87 ENOSYS",
        ] {
            assert!(said.lines().any(|said| said == line), "{line}: {said}");
        }
        let text = user.works("23", "ls /dev | sort | tr '\\n' ' '");
        assert_eq!(
            text,
            "console fd full null ptmx pts random shm stderr stdin stdout tty urandom zero "
        );
    });
}

#[test]
fn setuid_bits_have_no_effect() {
    as_each_user(|user| {
        user.refused("21", &["cp /bin/true t && chmod u+s t"], &["not permitted"]);
        let ran = user
            .run("cp /usr/bin/id id && chmod 755 id && ./id -u; grep NoNewPrivs /proc/self/status");
        assert!(ran.text.contains("NoNewPrivs:\t1"), "{ran:?}");
        user.works("21", "cp /bin/true t && chmod 755 t && ./t");
    });
}

#[test]
fn workspace_is_refused_where_it_holds_too_much() {
    as_each_user(|user| {
        let home = user.path("home");
        let base = user.path("");
        let state = user.path("state");
        for folder in ["/", "/tmp", "/etc"]
            .map(std::path::Path::new)
            .into_iter()
            .chain([home.as_path(), &base, &state])
        {
            let cwd = folder.to_str().unwrap();
            let ran = user.abide(&[
                "run",
                "--sandbox",
                "workspace-write",
                "--cwd",
                cwd,
                "--",
                "touch",
                "made",
            ]);
            assert!(ran.code != 0, "27: {cwd}: {ran:?}");
            assert!(
                ran.text.contains("cannot be enforced here: the workspace"),
                "{ran:?}"
            );
            assert!(ran.text.contains("Nothing was run"), "{ran:?}");
            assert!(!folder.join("made").exists(), "{cwd}");
        }
    });
}

#[test]
fn names_with_any_bytes_are_protected_exactly() {
    as_each_user(|user| {
        for name in ["new\nline", "blank and \\ back", &"x".repeat(200)] {
            let base = format!("work/{name}");
            user.write(&format!("{base}/.git/config"), "[core]\n");
            let cwd = user.path(&base);
            let cwd = cwd.to_str().unwrap();
            let options = [
                "--sandbox",
                "workspace-write",
                "--network",
                "off",
                "--cwd",
                cwd,
            ];
            let ran = user.run_in(&options, "echo ok > file; echo evil > .git/config");
            assert!(ran.text.contains("Read-only file system"), "30: {ran:?}");
            assert_eq!(user.read(&format!("{base}/file")), "ok\n");
            assert_eq!(user.read(&format!("{base}/.git/config")), "[core]\n");
        }
    });
}

#[test]
fn descriptors_of_the_keeper_are_closed() {
    as_each_user(|user| {
        let said = user.python(
            r#"
left = []
for fd in range(3, 1024):
    try:
        left.append(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        pass
print("15, 78", [path for path in left if not path.startswith("/proc/")])
print("15", attempt(lambda: os.fchdir(3)))
"#,
        );
        assert!(said.contains("15, 78 []"), "{said}");
        assert!(said.contains("15 EBADF"), "{said}");
    });
}

#[test]
fn installations_outside_are_refused_and_those_in_the_home_folder_are_layered() {
    as_each_user(|user| {
        user.outside(
            "git init -q . && git config user.name a && git config user.email a@b.c && touch file && git add . && git commit -qm 1",
        );
        user.refused(
            "26",
            &["git worktree add $ROOT/outside/tree"],
            &["Read-only file system"],
        );
        user.works("26", "git worktree add -q tree && test -e tree/file");
        user.write(
            "work/package/package.json",
            "{\"name\":\"a\",\"version\":\"1.0.0\",\"bin\":\"a.js\"}",
        );
        user.write(
            "work/package/a.js",
            "#!/usr/bin/env node\nconsole.log(42)\n",
        );
        if !std::path::Path::new("/usr/bin/npm").exists() {
            eprintln!("skipped in part: no npm");
            return;
        }
        let npm = "npm install --offline --no-audit --no-fund --silent -g ./package";
        let ran = user.run(&format!("{npm} --prefix $ROOT/outside/prefix"));
        assert!(ran.code != 0, "26: {ran:?}");
        let text = user.works("26", &format!("{npm} --prefix ~/prefix && ~/prefix/bin/a"));
        assert!(text.ends_with("42\n"), "26: {text}");
        assert!(
            !user.exists("outside/prefix") && !user.exists("home/prefix"),
            "26"
        );
    });
}
