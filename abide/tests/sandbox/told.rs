//! Refusals that results tell, whatever the exit code is: links, removals, calls of root, and the text about them.

use serde_json::{Value, json};

use crate::agents::call;
use crate::harness::{User, as_each_user, count};

/// Text of the result of a command of an agent in a sandbox.
fn run(user: &User, command: &str) -> String {
    let config = "[sandbox]\nmode = \"workspace-write\"\n";
    user.write("state/config.toml", config);
    let result = call(user, "shell", &json!({"command": command}));
    text_of(&result)
}

fn text_of(result: &Value) -> String {
    result["result"]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn writes_through_links_are_told_with_the_paths_to_which_they_lead() {
    as_each_user(|user| {
        user.write("outside/file", "");
        user.write("work/own", "");
        user.outside("ln -s ../outside/file link; ln -s ../outside folder; ln -s own to-own");
        user.outside("ln -s \"$ROOT/work/own\" ../outside/back; ln -s ../home/.profile to-home");
        let said = run(
            user,
            r#"exec 3> own; (echo x > link; echo x > folder/new; mkdir folder/made; echo x > folder/back; echo x > to-own;
               echo x > /dev/stdout; echo x > /proc/self/fd/3; echo x > to-home) 2> /dev/null
               /usr/bin/python3 -c 'import os; open(f"/proc/self/fd/{os.memfd_create("m")}", "w")'"#,
        );
        for path in ["outside/file", "outside/new", "outside/made"] {
            let line = format!("  write  {}\n", user.path(path).display());
            assert!(said.contains(&line), "5: {path}: {said}");
        }
        assert!(said.contains("SANDBOX: 3 things were refused"), "5: {said}");
        assert_eq!(user.read("work/own"), "x\n", "5: {said}");
    });
}

#[test]
fn removal_is_told_with_advice_about_its_folder() {
    as_each_user(|user| {
        user.write("outside/deep/file", "");
        let said = run(
            user,
            "cd $ROOT/outside; (rm -f deep/file; rm -f deep/none; rmdir deep) 2> /dev/null",
        );
        let deep = user.path("outside/deep").display().to_string();
        for line in [
            format!("  remove {deep}/file\n"),
            format!("  remove {deep}\n"),
        ] {
            assert!(said.contains(&line), "{said}");
        }
        assert!(said.contains("SANDBOX: 2 things were refused"), "{said}");
        let outside = user.path("outside").display().to_string();
        let needs = format!("needs={}", json!({"write": [deep, outside]}));
        assert!(said.contains(&needs), "{needs}: {said}");
        assert!(user.exists("outside/deep/file"));
    });
}

#[test]
fn calls_of_root_are_told() {
    as_each_user(|user| {
        user.write("outside/file", "");
        let program = r#"
import os, socket, stat
def attempt(act, *words):
    try: act(*words)
    except OSError: pass
made = os.open("file", os.O_CREAT | os.O_WRONLY, 0o644)
attempt(os.fchown, made, 1, 1)
attempt(os.fchown, os.open(os.environ["ROOT"] + "/outside/file", os.O_RDONLY), 1, 1)
attempt(os.mknod, "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
attempt(os.mknod, "fifo", 0o600 | stat.S_IFIFO)
attempt(os.mknod, "whiteout", 0o600 | stat.S_IFCHR, 0)
attempt(socket.socket().bind, ("0.0.0.0", 80))
attempt(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind, ("0.0.0.0", 81))
"#;
        user.write("work/program.py", program);
        let said = run(user, "/usr/bin/python3 program.py");
        let at = |path: &str| user.path(path).display().to_string();
        let outside = format!("  write  {}\n", at("outside/file"));
        let told = [
            format!("  call   chown {}", at("work/file")),
            format!("  call   mknod {}", at("work/device")),
            "  call   bind 0.0.0.0:80 ".to_owned(),
        ];
        // An ordinary user could do none of it outside.
        let number = told.iter().filter(|line| said.contains(&**line)).count();
        assert_eq!(number, if user.is_root() { 3 } else { 0 }, "20, 22: {said}");
        assert!(said.contains(&outside), "20: {said}");
        assert_eq!(count(&said, "  call "), number, "20, 22: {said}");
    });
}

#[test]
fn bits_by_which_a_file_runs_as_its_owner_are_told_by_every_way() {
    as_each_user(|user| {
        let program = r#"
import ctypes, os, platform, stat
libc = ctypes.CDLL(None, use_errno=True)
def attempt(act, *words):
    try: return act(*words)
    except OSError: pass
for name in ["chmod", "fchmod", "fchmodat2"]: open(name, "w").close()
attempt(os.chmod, "chmod", 0o4755)
attempt(os.fchmod, os.open("fchmod", os.O_RDONLY), 0o4755)
libc.syscall(452, -100, b"fchmodat2", 0o2755, 0)
attempt(os.open, "open", os.O_CREAT | os.O_WRONLY, 0o4755)
attempt(os.open, ".", os.O_TMPFILE | os.O_WRONLY, 0o4755)
attempt(os.mknod, "mknod", 0o4755 | stat.S_IFREG)
if platform.machine() == "x86_64": libc.syscall(85, b"creat", 0o4755)
else: attempt(os.open, "creat", os.O_CREAT | os.O_WRONLY, 0o4755)
"#;
        user.write("work/program.py", program);
        let said = run(user, "/usr/bin/python3 program.py; find . -perm /6000");
        let work = user.path("work").display().to_string();
        for name in [
            "chmod",
            "fchmod",
            "fchmodat2",
            "open",
            ".",
            "mknod",
            "creat",
        ] {
            let line = format!("  call   chmod {work}/{name}  a file cannot get");
            assert!(said.contains(&line), "21: {name}: {said}");
        }
        assert!(
            said.contains("SANDBOX: 7 things were refused"),
            "21: {said}"
        );
    });
}

#[test]
fn paths_are_told_as_they_are() {
    as_each_user(|user| {
        user.write("outside/c\nd", "");
        let write =
            r#"echo x > "$ROOT/outside/"$'a\nb ' 2> /dev/null; echo x > "$ROOT/outside/"$'c\nd'"#;
        let said = run(user, write);
        let outside = user.path("outside").display().to_string();
        for line in [r"a\nb ", r"c\nd"] {
            let line = format!("  write  {outside}/{line}\n");
            assert!(said.contains(&line), "30: {line}: {said}");
        }
        let needs = json!({"write": [outside, format!("{outside}/c\nd")]});
        assert!(said.contains(&format!("needs={needs}")), "30: {said}");
        assert_eq!(count(&said, "SANDBOX:"), 1, "30: {said}");
    });
}
