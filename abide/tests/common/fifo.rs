//! Named pipes, on which a command of a test blocks until the test goes on.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Creates a named pipe.
pub fn make(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
}

/// Unblocks a command that reads from a named pipe. Blocks until the command opens the pipe.
pub fn feed(fifo: &Path, bytes: impl AsRef<[u8]>) {
    let mut fifo = File::options().write(true).open(fifo).expect("the fifo");
    fifo.write_all(bytes.as_ref()).expect("the command reads");
}
