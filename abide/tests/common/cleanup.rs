//! Ends the sessions and the daemon of a test, also if the process of the test is interrupted or killed.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of the test, which closes its input; then ends fronts that are left, because they would start
/// another daemon, kills each session and stops the daemon. Nothing is started if there never was a daemon. `$0` is the
/// program.
const SCRIPT: &str = r#"
cat > /dev/null
[ -e "$ABIDE_DIR/run" ] || exit 0
for environ in $(grep -lsxzF "ABIDE_DIR=$ABIDE_DIR" /proc/[0-9]*/environ); do
    front=${environ%/environ}
    grep -qsxzF mcp "$front/cmdline" && kill -KILL "${front#/proc/}"
done
for id in $("$0" session list --json | grep -o '"session_id": *"[^"]*"' | cut -d'"' -f4); do
    "$0" session kill "$id"
done
"$0" stop
"#;

/// Process that cleans up when this value is dropped, or when the test dies.
pub struct Cleanup(Child);

impl Cleanup {
    /// Cleans up the daemon with this state directory.
    pub fn of(state: &Path) -> Self {
        #[expect(clippy::disallowed_methods, reason = "it must outlive the test")]
        let mut shell = Command::new("/bin/sh");
        shell.env("ABIDE_DIR", state).env_remove("ABIDE_AGENT");
        Self::by(shell, env!("CARGO_BIN_EXE_abide").as_ref())
    }

    /// Cleans up with this program and a shell that has the user and the environment of the test.
    pub fn by(mut shell: Command, program: &Path) -> Self {
        shell
            .args(["-c", SCRIPT])
            .arg(program)
            .env_remove("ABIDE_CRASH_AT")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals to the group of the test do not reach it.
            .process_group(0);
        Cleanup(shell.spawn().expect("a shell runs"))
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
