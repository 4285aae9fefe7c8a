//! Harness of the command-line tests: a separate abide for every test, and a pseudo-terminal for interactive
//! programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};

pub use crate::common::fifo::feed;
use crate::common::home::{Home, PATIENCE};

/// An abide of its own, as a person uses it.
pub struct Abide(Home);

impl Deref for Abide {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.0
    }
}

impl Abide {
    pub fn new() -> Self {
        Abide::with_config("")
    }

    pub fn with_config(config: &str) -> Self {
        Abide(Home::with_config(config))
    }

    /// A command that finds the files of clients in the folder `home` only.
    pub fn command_at_home<I: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = I>) -> Command {
        let mut command = self.command(words);
        command.env("HOME", self.path("home"));
        for name in [
            "CLAUDE_CONFIG_DIR",
            "CODEX_HOME",
            "GEMINI_CLI_HOME",
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
            "VSCODE_PORTABLE",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// The command, with its output in pipes.
    pub fn command<I: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = I>) -> Command {
        let mut command = self.0.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The id of the newest session.
    pub fn newest(&self) -> String {
        let list = self.json(["session", "list", "--all", "--json"]);
        let newest = list["sessions"][0]["session_id"].as_str();
        newest.expect("a session").to_owned()
    }

    pub fn socket(&self) -> PathBuf {
        self.path("abide/run/http.sock")
    }
}

/// An abide command that runs until it is done, or until the end of its test. Without that limit, a command that
/// reconnects would start another daemon after the test has stopped the last one.
pub struct RunningCommand(Child);

impl RunningCommand {
    /// Starts the command with its output in a pipe.
    pub fn new(abide: &Abide, words: &[&str]) -> Self {
        let child = abide.command(words).stdout(Stdio::piped()).spawn();
        RunningCommand(child.expect("abide runs"))
    }
}

impl Deref for RunningCommand {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for RunningCommand {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // For a command that has already ended, this only reaps it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program in a pseudo-terminal whose master end the test holds.
pub struct Pty {
    master: File,
    child: Child,
    /// Terminal modes before the program started.
    pub modes_before: String,
    seen: Vec<u8>,
    /// Number of bytes that earlier waits have consumed.
    read: usize,
}

impl Pty {
    /// Starts the program in the foreground of a new terminal.
    pub fn run(mut command: Command) -> Self {
        let (master, slave) = open_pty();
        let theirs = || Stdio::from(slave.try_clone().expect("a copy"));
        command.stdin(theirs()).stdout(theirs()).stderr(theirs());
        Self::spawn(command, master, slave)
    }

    /// Starts the program in a new terminal, with only its standard error there; `command` sets the other streams.
    pub fn run_with_stderr(command: Command) -> Self {
        let (master, slave) = open_pty();
        let mut command = command;
        command.stderr(Stdio::from(slave.try_clone().expect("a copy")));
        Self::spawn(command, master, slave)
    }

    fn spawn(mut command: Command, master: OwnedFd, slave: OwnedFd) -> Self {
        let device = slave.as_raw_fd();
        // SAFETY: only setsid and an ioctl run between fork and exec.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                let device = std::os::fd::BorrowedFd::borrow_raw(device);
                rustix::process::ioctl_tiocsctty(device)?;
                Ok(())
            });
        }
        let modes_before = modes(&master);
        let child = command.spawn().expect("abide runs");
        Pty {
            master: master.into(),
            child,
            modes_before,
            seen: Vec::new(),
            read: 0,
        }
    }

    /// Waits until this text appears after the text of the last wait.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        loop {
            let unread = String::from_utf8_lossy(&self.seen[self.read..]);
            if let Some(at) = unread.find(text) {
                // Text before the match is not searched again.
                self.read += unread[..at + text.len()].len();
                return;
            }
            assert!(
                self.more(),
                "{text:?} never came; there is {:?}",
                self.screen()
            );
        }
    }

    /// Waits until all of these texts have appeared, in any order.
    #[track_caller]
    pub fn wait_for_all(&mut self, texts: &[&str]) {
        let from = self.read;
        let mut furthest = from;
        for text in texts {
            self.read = from;
            self.wait_for(text);
            furthest = furthest.max(self.read);
        }
        self.read = furthest;
    }

    /// Everything that the terminal has shown.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    pub fn type_in(&mut self, keys: &[u8]) {
        self.master
            .write_all(keys)
            .expect("the terminal takes keys");
    }

    pub fn resize(&self, cols: u16, rows: u16) {
        let size = rustix::termios::Winsize {
            ws_col: cols,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&self.master, size).expect("a size");
    }

    /// Pid of the program.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Current terminal modes.
    pub fn modes(&self) -> String {
        modes(&self.master)
    }

    /// Waits for the end of the program; the terminal stays open.
    pub fn wait_for_end(&mut self) {
        self.child.wait().expect("it was started");
    }

    /// Reads until the terminal is closed. Returns the exit status and everything that was shown.
    #[track_caller]
    pub fn end(mut self) -> (ExitStatus, String) {
        while self.more() {}
        let status = self.child.wait().expect("it was started");
        (status, self.screen())
    }

    /// Reads the available bytes; `false`: the terminal is closed.
    #[track_caller]
    fn more(&mut self) -> bool {
        let mut wanted = [PollFd::new(&self.master, PollFlags::IN)];
        let patience = Timespec::try_from(PATIENCE).expect("a short span");
        let ready = rustix::event::poll(&mut wanted, Some(&patience)).expect("poll works");
        assert!(ready > 0, "nothing came; there is {:?}", self.screen());
        let mut room = [0; 4 << 10];
        match self.master.read(&mut room) {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.seen.extend_from_slice(&room[..read]);
                true
            }
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open_pty() -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("a terminal");
    grantpt(&master).expect("a terminal");
    unlockpt(&master).expect("a terminal");
    let slave = ioctl_tiocgptpeer(master.as_fd(), flags).expect("its other end");
    (master, slave)
}

fn modes(terminal: &impl AsFd) -> String {
    let modes = rustix::termios::tcgetattr(terminal).expect("a terminal");
    let (input, output, local) = (modes.input_modes, modes.output_modes, modes.local_modes);
    format!("{input:?} {output:?} {local:?}")
}

/// Reads until the output ends with `line`. Returns everything that was read.
pub fn wait_for_line(from: &mut impl Read, line: &str) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(line.as_bytes()) {
        assert_eq!(
            from.read(&mut byte).expect("output"),
            1,
            "{line:?} never came"
        );
        seen.push(byte[0]);
    }
    seen
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
