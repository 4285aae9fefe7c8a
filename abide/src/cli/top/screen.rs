//! The terminal while it is drawn on: another screen, no cursor, every key as it is typed. It is given
//! back as it was, whatever ends the program.

use std::io;
use std::sync::{Arc, Mutex};

use crate::cli::terminal::{Raw, Terminal};

/// Another screen, no cursor, no wrapping of lines that are too long.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// And back.
const LEAVE: &[u8] = b"\x1b[?7h\x1b[0m\x1b[?25h\x1b[?1049l";

/// A terminal that is drawn on.
pub struct Screen {
    terminal: Arc<Terminal>,
    raw: Option<Raw>,
    /// What stands there.
    shown: Vec<String>,
}

impl Screen {
    /// Takes the terminal over.
    pub fn enter(terminal: Terminal) -> io::Result<Self> {
        let raw = terminal.raw()?;
        let terminal = Arc::new(terminal);
        let (again, spare) = (terminal.clone(), Mutex::new(Some(raw.twin()?)));
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // What went wrong is to be read, not drawn over.
            let _ = again.write(LEAVE);
            drop(spare.lock().ok().and_then(|mut spare| spare.take()));
            before(panic);
        }));
        terminal.write(ENTER)?;
        Ok(Screen {
            terminal,
            raw: Some(raw),
            shown: Vec::new(),
        })
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        self.terminal.size()
    }

    /// What was typed.
    pub async fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        self.terminal.read(room).await
    }

    /// All is to be drawn anew: the size has changed.
    pub fn forget(&mut self) {
        self.shown.clear();
    }

    /// Shows these lines; only those that differ are written.
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
            // All at once, where the terminal knows how.
            false => self
                .terminal
                .write(format!("\x1b[?2026h{out}\x1b[?2026l").as_bytes()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.raw.take());
        let _ = self.terminal.write(LEAVE);
    }
}
