//! Input mode of a session's terminal.

use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{self, LocalModes};

use super::keeper_record::Meta;

/// True in canonical mode (`ICANON`): the terminal collects input into lines before the program gets it.
/// That is the default; a program that waits for answers of the terminal turns it off.
pub fn is_canonical(meta: &Meta) -> bool {
    let asked = || {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = rustix::fs::open(device(meta.keeper.pid)?, flags, Mode::empty()).ok()?;
        let modes = termios::tcgetattr(device).ok()?;
        Some(modes.local_modes.contains(LocalModes::ICANON))
    };
    asked().unwrap_or(false)
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
