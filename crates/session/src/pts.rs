//! Input side of a session's terminal.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{self, InputModes, LocalModes};

use super::keeper_record::Meta;

/// True in canonical mode (`ICANON`): the terminal collects input into lines before the program gets it.
/// That is the default; a program that waits for answers of the terminal turns it off.
pub fn is_canonical(meta: &Meta) -> bool {
    let modes = open(meta).and_then(|device| termios::tcgetattr(device).ok());
    modes.is_some_and(|modes| modes.local_modes.contains(LocalModes::ICANON))
}

/// Keys that are typed at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typed {
    /// Enter becomes a newline (`ICRNL`), as most programs expect it. A shell or a REPL that edits its line turns that off
    /// while it reads.
    pub enter_is_newline: bool,
    /// Some were not read yet.
    pub unread: bool,
}

/// State of the keys that are typed now. `None`: the terminal cannot be asked.
pub fn typed(meta: &Meta) -> Option<Typed> {
    let device = open(meta)?;
    let modes = termios::tcgetattr(&device).ok()?;
    Some(Typed {
        enter_is_newline: modes.input_modes.contains(InputModes::ICRNL),
        unread: rustix::io::ioctl_fionread(&device).ok()? > 0,
    })
}

fn open(meta: &Meta) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(device(meta.keeper.pid)?, flags, Mode::empty()).ok()
}

/// The terminal that a keeper has open for its session, by its descriptor: in a sandbox the terminal is not among those of
/// this process.
fn device(keeper: u32) -> Option<PathBuf> {
    let held = std::fs::read_dir(format!("/proc/{keeper}/fd")).ok()?;
    let is_terminal = |file: &PathBuf| {
        let target = std::fs::read_link(file).unwrap_or_default();
        let number = target.strip_prefix("/dev/pts").ok();
        let number = number.and_then(|number| number.to_str());
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    held.flatten().map(|file| file.path()).find(is_terminal)
}
