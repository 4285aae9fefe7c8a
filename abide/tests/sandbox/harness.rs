//! A user with their own home directory, workspace and abide.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::cleanup::Cleanup;

/// User id of `nobody`.
const NOBODY: u32 = 65_534;

/// A user with their own directories. Dropping it stops the daemon.
pub struct User {
    cleanup: Option<Cleanup>,
    dir: TempDir,
    id: u32,
    /// Process whose network and mounts its programs use.
    machine: OnceLock<u32>,
}

/// A command that has run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    /// Output and errors, in this order.
    pub text: String,
}

impl Ran {
    fn of(ran: Output) -> Self {
        let text = [ran.stdout, ran.stderr].concat();
        Ran {
            code: ran.status.code().unwrap_or(-1),
            text: String::from_utf8_lossy(&text).into_owned(),
        }
    }
}

/// Runs a test as the user of the tests, and also as an ordinary user if that is root.
pub fn as_each_user(test: impl Fn(&User)) {
    let own = rustix::process::getuid().as_raw();
    let both = [own, NOBODY];
    let all = match own {
        0 => &both[..],
        _ => &both[..1],
    };
    for id in all {
        eprintln!("as user {id}");
        test(&User::new(*id));
    }
}

impl User {
    fn new(id: u32) -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let mut user = User {
            cleanup: None,
            dir,
            id,
            machine: OnceLock::new(),
        };
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(user.dir.path(), open).expect("permissions");
        for name in ["", "home", "work", "outside", "state"] {
            let path = user.path(name);
            fs::create_dir_all(&path).expect("a folder");
            chown(&path, Some(id), Some(id)).expect("an owner");
        }
        // The ordinary user may not have access to the build directory.
        fs::hard_link(env!("CARGO_BIN_EXE_abide"), user.path("abide-program"))
            .expect("a link to the program");
        let (shell, program) = (user.command("/bin/sh"), user.path("abide-program"));
        user.cleanup = Some(Cleanup::by(shell, &program));
        user
    }

    /// Lets all programs of this user run on the machine of this process.
    pub fn enter(&self, machine: u32) {
        self.machine.set(machine).expect("no machine yet");
    }

    /// Stops the daemon.
    pub fn stop(&self) {
        let _ = self.abide(&["stop"]);
    }

    pub fn is_root(&self) -> bool {
        self.id == 0
    }

    /// Path in the directory of this user.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file as this user, and creates its parent directories.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        let mut made = Vec::new();
        let mut parent = path.parent().expect("a folder");
        while !parent.exists() {
            made.push(parent.to_owned());
            parent = parent.parent().expect("a folder");
        }
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        made.push(path.clone());
        for path in made {
            chown(path, Some(self.id), Some(self.id)).expect("an owner");
        }
        path
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    pub fn exists(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path(name)).is_ok()
    }

    /// A program that runs outside the sandbox as this user, in the workspace.
    #[expect(
        clippy::disallowed_methods,
        reason = "the test starts the program it tests"
    )]
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let own = rustix::process::getuid();
        let mut command = match self.machine.get() {
            None => Command::new(program.as_ref()),
            Some(machine) => {
                let mut command = Command::new("nsenter");
                command.args(["--target", &machine.to_string(), "--net", "--mount"]);
                if !own.is_root() {
                    command.args(["--user", "--preserve-credentials"]);
                }
                let work = self.path("work");
                command.arg("env").arg("--chdir").arg(work);
                if self.id != own.as_raw() {
                    let id = self.id.to_string();
                    command.args(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"]);
                }
                command.arg(program.as_ref());
                command
            }
        };
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.path("home"))
            .env("ABIDE_DIR", self.path("state"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C.UTF-8")
            .env("ROOT", self.dir.path())
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        if self.machine.get().is_none() && self.id != own.as_raw() {
            command.uid(self.id).gid(self.id);
        }
        command
    }

    /// Runs a script as root of a user namespace with mounts of its own, where it can limit what the kernel offers.
    pub fn in_user_namespace(&self, script: &str) -> Output {
        self.command("/usr/bin/unshare")
            .args(["--user", "--map-root-user", "--mount", "--"])
            .args(["/bin/bash", "-c", script])
            .output()
            .expect("unshare runs")
    }

    /// Runs a program outside the sandbox, which must succeed.
    pub fn outside(&self, script: &str) -> String {
        let ran = self.command("/bin/bash").args(["-ec", script]).output();
        let ran = ran.expect("bash runs");
        assert!(ran.status.success(), "{script}: {ran:?}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// Runs abide with these arguments.
    pub fn abide(&self, words: &[&str]) -> Ran {
        let ran = self
            .command(self.path("abide-program"))
            .args(words)
            .output();
        Ran::of(ran.expect("abide runs"))
    }

    /// Starts a script in the sandbox `workspace-write` and does not wait for it.
    pub fn spawn(&self, script: &str) -> Child {
        let words = ["run", "--sandbox", "workspace-write", "--"];
        let mut command = self.command(self.path("abide-program"));
        command.args(words).args(["/bin/bash", "-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("abide runs")
    }

    /// Runs a script in the sandbox `workspace-write`, without network.
    pub fn run(&self, script: &str) -> Ran {
        self.run_in(
            &["--sandbox", "workspace-write", "--network", "off"],
            script,
        )
    }

    /// Runs a script in the sandbox of a folder of the workspace, to which a link may lead.
    pub fn run_below(&self, folder: &str, script: &str) -> Ran {
        let folder = self.path("work").join(folder);
        let folder = folder.canonicalize().expect("a folder");
        let mut command = self.command(self.path("abide-program"));
        command
            .current_dir(folder)
            .args(["run", "--sandbox", "workspace-write"]);
        command.args(["--network", "off", "--", "/bin/bash", "-c", script]);
        Ran::of(command.output().expect("abide runs"))
    }

    /// Runs a script in a sandbox with these options.
    pub fn run_in(&self, options: &[&str], script: &str) -> Ran {
        let mut words = vec!["run"];
        words.extend(options);
        words.extend(["--", "/bin/bash", "-c", script]);
        self.abide(&words)
    }

    /// Result of a script in a sandbox, as fields.
    pub fn result(&self, options: &[&str], script: &str) -> Value {
        let mut words = vec!["run", "--json"];
        words.extend(options);
        words.extend(["--", "/bin/bash", "-c", script]);
        let ran = self.abide(&words);
        let line = ran.text.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(line.expect("a result")).expect("JSON")
    }

    /// Runs attacks: each must fail with one of these texts.
    pub fn refused(&self, number: &str, scripts: &[&str], words: &[&str]) {
        for script in scripts {
            let ran = self.run(script);
            let said = words.iter().any(|word| ran.text.contains(word));
            assert!(ran.code != 0 && said, "attack {number}: {script}: {ran:?}");
        }
    }

    /// Runs a script that must succeed.
    pub fn works(&self, number: &str, script: &str) -> String {
        let ran = self.run(script);
        assert_eq!(ran.code, 0, "twin of {number}: {script}: {ran:?}");
        ran.text
    }

    /// Runs a Python program in the sandbox that makes system calls: `call(number, arguments…)` returns the name of the
    /// error, or `ok`.
    pub fn python(&self, program: &str) -> String {
        let ran = self.run(&format!(
            "/usr/bin/python3 - <<'PROGRAM'\n{PRELUDE}\n{program}\nPROGRAM"
        ));
        assert_eq!(ran.code, 0, "{program}: {ran:?}");
        ran.text
    }
}

const PRELUDE: &str = r#"
import ctypes, errno, os, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def call(x86, aarch64, *args):
    args = [ctypes.c_void_p(a) if a is None else ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    done = libc.syscall(ctypes.c_long(aarch64 if arm else x86), *args)
    return errno.errorcode[ctypes.get_errno()] if done < 0 else "ok"
def attempt(act):
    try:
        act()
        return "ok"
    except OSError as fault:
        return errno.errorcode[fault.errno]
"#;

/// Number of lines of a text that say this.
pub fn count(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}
