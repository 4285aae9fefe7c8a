//! Controlling terminal of this process, opened directly, even if standard input and output are redirected.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{self, LocalModes, OptionalActions, QueueSelector, Termios};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

use abide_engine::async_fd;

/// Default size, for a terminal that does not report one.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// Bytes that the kernel keeps of unread input.
const INPUT_SIZE: usize = 4096;

/// Controlling terminal of this process.
pub struct Terminal {
    device: AsyncFd<OwnedFd>,
}

impl Terminal {
    /// Opens the terminal if this process is in its foreground process group; otherwise the person
    /// there cannot be asked. Must be called within a Tokio runtime.
    pub fn foreground() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let device = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let group = termios::tcgetpgrp(&device).ok()?;
        if group != rustix::process::getpgrp() {
            return None;
        }
        let device = async_fd::register(device, Interest::READABLE).ok()?;
        Some(Terminal { device })
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        size_of(self.device.as_fd())
    }

    /// Reads input: whole lines, or single keys in raw mode. Zero bytes mean end of file (Ctrl-D).
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.device.readable().await?;
            match ready.try_io(|device| Ok(rustix::io::read(device, &mut *buffer)?)) {
                Ok(read) => return read,
                Err(_) => continue,
            }
        }
    }

    /// Writes to the screen.
    pub fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.device, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut fds = [PollFd::new(&self.device, PollFlags::OUT)];
                    match rustix::event::poll(&mut fds, None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(fault) => return Err(fault.into()),
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(())
    }

    /// Discards input that was typed before now: it cannot be an answer to a question that is shown now. Returns whether
    /// the terminal shows an unfinished line of it.
    pub fn discard_input(&self) -> bool {
        let unfinished = self.has_unfinished_line().unwrap_or(false);
        let _ = termios::tcflush(&self.device, QueueSelector::IFlush);
        unfinished
    }

    /// Returns whether a line was begun that the terminal has echoed. Takes what was typed.
    fn has_unfinished_line(&self) -> rustix::io::Result<bool> {
        let before = termios::tcgetattr(&self.device)?;
        let lines = LocalModes::ICANON | LocalModes::ECHO;
        if !before.local_modes.contains(lines) {
            return Ok(false);
        }
        // The beginning of a line cannot be read in canonical mode.
        let mut by_key = before.clone();
        by_key.local_modes.remove(LocalModes::ICANON);
        termios::tcsetattr(&self.device, OptionalActions::Now, &by_key)?;
        let mut typed = [0; INPUT_SIZE];
        let read = rustix::io::read(&self.device, &mut typed);
        termios::tcsetattr(&self.device, OptionalActions::Now, &before)?;
        Ok(typed[..read?].last().is_some_and(|last| *last != b'\n'))
    }

    /// Switches to raw mode until the guard is dropped.
    pub fn raw(&self) -> io::Result<RawMode> {
        let device = rustix::io::fcntl_dupfd_cloexec(&self.device, 0)?;
        let before = termios::tcgetattr(&device)?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(&device, OptionalActions::Now, &raw)?;
        Ok(RawMode { device, before })
    }
}

/// Guard that restores the terminal mode when it is dropped.
pub struct RawMode {
    device: OwnedFd,
    before: Termios,
}

impl RawMode {
    /// Second guard for the same terminal, for example for a panic hook; the first that is dropped
    /// restores the mode.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(RawMode {
            device: rustix::io::fcntl_dupfd_cloexec(&self.device, 0)?,
            before: self.before.clone(),
        })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(&self.device, OptionalActions::Now, &self.before);
    }
}

/// Signals for a program that has taken the terminal over.
pub struct TerminalSignals {
    resized: Signal,
    interrupt: Signal,
    term: Signal,
    hang_up: Signal,
}

impl TerminalSignals {
    /// Starts to receive them instead of their default actions.
    pub fn new() -> io::Result<Self> {
        Ok(TerminalSignals {
            resized: signal(SignalKind::window_change())?,
            interrupt: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub async fn next(&mut self) -> TerminalSignal {
        tokio::select! {
            _ = self.resized.recv() => TerminalSignal::Resized,
            _ = self.interrupt.recv() => TerminalSignal::End,
            _ = self.term.recv() => TerminalSignal::End,
            _ = self.hang_up.recv() => TerminalSignal::End,
        }
    }
}

/// Meaning of a signal.
pub enum TerminalSignal {
    /// The size of the terminal has changed.
    Resized,
    /// The program restores the terminal and ends.
    End,
}

/// Columns and rows of the terminal behind a descriptor.
pub fn size_of(device: BorrowedFd<'_>) -> (u16, u16) {
    match termios::tcgetwinsize(device) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => DEFAULT_SIZE,
    }
}
