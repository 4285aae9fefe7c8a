//! Terminal of `abide top`: alternate screen, hidden cursor, raw mode. The terminal is restored on drop
//! and on panic.

use std::io;
use std::sync::{Arc, Mutex};

use crate::cli::terminal::{RawMode, Terminal};

/// Switches to the alternate screen, hides the cursor, disables line wrapping, clears the screen.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// Reverts [`ENTER`].
const LEAVE: &[u8] = b"\x1b[?7h\x1b[0m\x1b[?25h\x1b[?1049l";

/// Terminal in full-screen mode.
pub struct FullScreen {
    terminal: Arc<Terminal>,
    raw: Option<RawMode>,
    /// Lines that are on the screen now.
    shown: Vec<String>,
}

impl FullScreen {
    /// Switches the terminal to full-screen mode and installs a panic hook that restores it.
    pub fn enter(terminal: Terminal) -> io::Result<Self> {
        let raw = terminal.raw()?;
        let terminal = Arc::new(terminal);
        let (hook_terminal, hook_raw) = (terminal.clone(), Mutex::new(Some(raw.duplicate()?)));
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Restore the terminal first, so that the panic message stays readable.
            let _ = hook_terminal.write(LEAVE);
            drop(
                hook_raw
                    .lock()
                    .ok()
                    .and_then(|mut hook_raw| hook_raw.take()),
            );
            before(panic);
        }));
        terminal.write(ENTER)?;
        Ok(FullScreen {
            terminal,
            raw: Some(raw),
            shown: Vec::new(),
        })
    }

    /// Gives the terminal back for a while.
    pub fn suspend(&mut self) {
        drop(self.raw.take());
        let _ = self.terminal.write(LEAVE);
    }

    /// Takes the terminal again.
    pub fn resume(&mut self) -> io::Result<()> {
        self.raw = Some(self.terminal.raw()?);
        self.invalidate();
        self.terminal.write(ENTER)
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        self.terminal.size()
    }

    /// Reads the bytes that were typed.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.terminal.read(buffer).await
    }

    /// Forces a full redraw, because the size has changed.
    pub fn invalidate(&mut self) {
        self.shown.clear();
    }

    /// Shows these lines; only lines that differ are written.
    pub fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let mut out = String::new();
        if self.shown.len() != lines.len() {
            out.push_str("\x1b[0m\x1b[2J");
            self.shown = vec![String::new(); lines.len()];
        }
        for (row, (line, shown)) in lines.iter().zip(&mut self.shown).enumerate() {
            if line != shown {
                out.push_str(&format!("\x1b[{};1H\x1b[0m\x1b[K{line}\x1b[0m", row + 1));
                line.clone_into(shown);
            }
        }
        match out.is_empty() {
            true => Ok(()),
            // Synchronized update (mode 2026), which avoids tearing where the terminal supports it.
            false => self
                .terminal
                .write(format!("\x1b[?2026h{out}\x1b[?2026l").as_bytes()),
        }
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        drop(self.raw.take());
        let _ = self.terminal.write(LEAVE);
    }
}
