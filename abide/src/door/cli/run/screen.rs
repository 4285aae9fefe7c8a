//! Where the command's output goes: to our own output as it comes, or kept for one JSON object.

use std::io::{self, IsTerminal};

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, Stderr, Stdout};

use super::control::Control;
use crate::door::http::frame::Stream;

/// Bytes of each stream that the JSON object holds; the session's log has them all.
const KEPT: usize = 1 << 20;

/// Our output.
pub struct Screen {
    /// The offset in the log up to which everything was written out.
    pub at: u64,
    /// What is kept instead of being shown.
    pub kept: Option<Kept>,
    stdout: Out<Stdout>,
    stderr: Out<Stderr>,
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

struct Out<W> {
    to: W,
    terminal: bool,
}

impl Screen {
    pub fn new(keep: bool) -> Self {
        Screen {
            at: 0,
            kept: keep.then(Kept::default),
            stdout: Out {
                terminal: io::stdout().is_terminal(),
                to: tokio::io::stdout(),
            },
            stderr: Out {
                terminal: io::stderr().is_terminal(),
                to: tokio::io::stderr(),
            },
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
                    (self.stdout.write(bytes, control).await, self.stdout.terminal)
                }
                Stream::Stderr => (self.stderr.write(bytes, control).await, self.stderr.terminal),
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
        anstream::eprintln!("abide: {bytes} bytes did not fit the log's quota and are not shown");
    }
}

impl<W: tokio::io::AsyncWrite + Unpin> Out<W> {
    async fn write(&mut self, bytes: &[u8], control: &mut Control) -> io::Result<()> {
        let write = async {
            self.to.write_all(bytes).await?;
            self.to.flush().await
        };
        tokio::pin!(write);
        loop {
            tokio::select! {
                biased;
                written = &mut write => return written,
                signal = control.signal() => control.signalled(signal),
            }
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
