//! Output of the command: written to our own output as it arrives, or collected for one JSON object.

use std::io::{self, IsTerminal, Write};

use bytes::Bytes;

use super::control::Control;
use crate::cli::show::complain;
use crate::http::frame::Stream;

/// Largest number of bytes of each stream in the JSON object; the session's log has all of them.
const KEPT: usize = 1 << 20;

/// Output side of a run.
pub struct Screen {
    /// Offset in the session's log up to which everything was written or collected.
    pub at: u64,
    /// Collected output with `--json`; `None` if output is written directly.
    pub kept: Option<Kept>,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    /// Bytes that are missing from the log.
    pub missing: u64,
}

/// Output for the JSON object.
#[derive(Default)]
pub struct Kept {
    /// Standard output, or the output of a pseudo-terminal.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Set if bytes over the limit were dropped.
    pub truncated: bool,
}

/// Reason why output could not be written.
pub enum Gone {
    /// The reader closed the pipe.
    Nobody,
    /// Any other write error.
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

    /// Writes or collects output. Signals are handled meanwhile, so that the person can interrupt even
    /// if the reader of our output does not read.
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

    /// Reports bytes that are missing from the log.
    pub fn gap(&mut self, bytes: u64) {
        self.missing += bytes;
        self.at += bytes;
        complain!("abide: {bytes} bytes are not shown: the log's quota or the disk was full");
    }
}

/// Writes on a blocking thread, so that a reader that does not read cannot block the handling of signals.
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
