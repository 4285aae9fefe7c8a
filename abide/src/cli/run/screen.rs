//! Where the command's output goes: to our own output as it comes, or kept for one JSON object.

use std::io::{self, IsTerminal, Write};

use bytes::Bytes;

use super::control::Control;
use crate::cli::show::complain;
use crate::http::frame::Stream;

/// Bytes of each stream that the JSON object holds; the session's log has them all.
const KEPT: usize = 1 << 20;

/// Our output.
pub struct Screen {
    /// The offset in the log up to which everything was written out.
    pub at: u64,
    /// What is kept instead of being shown.
    pub kept: Option<Kept>,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    /// Bytes that were not in the log any more.
    pub missing: u64,
}

/// Output for the JSON object.
#[derive(Default)]
pub struct Kept {
    /// Of standard output and of a terminal.
    pub stdout: Vec<u8>,
    /// Of standard error.
    pub stderr: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
}

/// Why output could not be written.
pub enum Gone {
    /// Nobody reads it any more.
    Nobody,
    /// Something else.
    Fault(io::Error),
}

impl Screen {
    pub fn new(keep: bool) -> Self {
        Screen {
            at: 0,
            kept: keep.then(Kept::default),
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            missing: 0,
        }
    }

    /// Shows output. What happens meanwhile is seen to: a reader that does not read keeps nobody
    /// from interrupting.
    pub async fn output(
        &mut self,
        stream: Stream,
        bytes: &Bytes,
        control: &mut Control,
    ) -> Result<(), Gone> {
        if let Some(kept) = &mut self.kept {
            kept.keep(stream, bytes);
        } else {
            let (written, terminal) = match stream {
                Stream::Stdout | Stream::Pty => {
                    let written = write(io::stdout(), bytes, control).await;
                    (written, self.stdout_is_terminal)
                }
                Stream::Stderr => {
                    let written = write(io::stderr(), bytes, control).await;
                    (written, self.stderr_is_terminal)
                }
            };
            written.map_err(|fault| match fault.kind() {
                io::ErrorKind::BrokenPipe => Gone::Nobody,
                _ => Gone::Fault(fault),
            })?;
            if terminal {
                control.wrote(bytes);
            }
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Says that something is missing.
    pub fn gap(&mut self, bytes: u64) {
        self.missing += bytes;
        self.at += bytes;
        complain!("abide: {bytes} bytes are not shown: the log's quota or the disk was full");
    }
}

/// Writes on a thread of its own, so that a reader who does not read blocks nothing here.
async fn write(
    mut to: impl Write + Send + 'static,
    bytes: &Bytes,
    control: &mut Control,
) -> io::Result<()> {
    let bytes = bytes.clone();
    let mut write = tokio::task::spawn_blocking(move || {
        to.write_all(&bytes)?;
        to.flush()
    });
    loop {
        tokio::select! {
            biased;
            written = &mut write => return written.map_err(io::Error::other)?,
            signal = control.signal() => control.signalled(signal),
        }
    }
}

impl Kept {
    fn keep(&mut self, stream: Stream, bytes: &[u8]) {
        let kept = match stream {
            Stream::Stdout | Stream::Pty => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let room = KEPT.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        self.truncated |= room < bytes.len();
    }
}
