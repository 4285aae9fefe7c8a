//! Whether a command succeeds. It is a short look, run in a group of its own, and it is ended with
//! everything in that group when nobody wants to know any more.

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::Child;

use super::condition::Command;
use super::{Slots, Tools};
use crate::world::clock::pause;
use crate::world::{descriptors, oom};

/// A look that takes longer is ended, and did not succeed.
const TRY: Duration = Duration::from_secs(60);
/// So much of what it says is looked at.
const SAID: u64 = 4 << 10;

pub(super) async fn until_succeeds(wanted: &Command, tools: &Tools, slots: &Slots) -> String {
    let shown = shown(&wanted.command);
    slots.begin(|| format!("`{shown}` has not ended yet"));
    loop {
        match look(wanted, tools).await {
            Ok(()) => {
                let seen = format!("`{shown}` exited with code 0");
                slots.say(seen.as_str());
                return seen;
            }
            Err(why) => slots.say(format!("`{shown}` {why}")),
        }
        pause(Duration::from_millis(wanted.every_ms)).await;
    }
}

/// Ends its whole group when it goes.
struct Look {
    child: Child,
    group: Option<Pid>,
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// One look.
pub(super) async fn look(wanted: &Command, tools: &Tools) -> Result<(), String> {
    let (program, words) = wanted.shell.split_first().ok_or("has no shell")?;
    #[expect(
        clippy::disallowed_methods,
        reason = "a look of a few milliseconds needs no keeper"
    )]
    let mut command = std::process::Command::new(program);
    command
        .args(words)
        .arg(&wanted.command)
        .current_dir(&wanted.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(path) = &wanted.search_path {
        command.env("PATH", path);
    }
    descriptors::as_before(&mut command);
    oom::as_before(&mut command);
    let mut look = begin(command, tools).await?;
    let ended = tokio::select! {
        ended = look.child.wait() => ended.map_err(|e| e.to_string())?,
        () = pause(TRY) => return Err("had not ended after 60s".into()),
    };
    if ended.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    if let Some(errors) = look.child.stderr.take() {
        let mut errors = errors.take(SAID);
        // What it left in the background may hold this open; what is there is enough.
        tokio::select! {
            biased;
            _ = errors.read_to_end(&mut said) => {}
            () = pause(Duration::from_millis(20)) => {}
        }
    }
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map_or(String::new(), |line| format!(": {}", shown(line.trim())));
    Err(match ended.code() {
        Some(code) => format!("exited with code {code}{last}"),
        None => format!("was ended by a signal{last}"),
    })
}

/// Starts it on a thread of its own: its folder may lie on a file system that does not answer.
async fn begin(command: std::process::Command, tools: &Tools) -> Result<Look, String> {
    let starting = tools.aside(move || {
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Look { child, group })
    });
    let begun: std::io::Result<Look> = starting.await;
    begun.map_err(|e| format!("cannot be run: {e}"))
}

fn shown(text: &str) -> String {
    const MOST: usize = 120;
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match clean.char_indices().nth(MOST) {
        None => clean,
        Some((cut, _)) => format!("{}…", &clean[..cut]),
    }
}
