//! Output of the command: written to our own output as it arrives, or collected for one JSON object.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use abide_engine::clock::pause;
use abide_output::terminal_filter::TerminalFilter;
use bytes::Bytes;

use super::control::{InputEvent, RunControl};
use super::outcome::TERMINATED;
use crate::cli::show::errln;
use crate::http::frame::Stream;

/// Largest number of bytes of each stream in the JSON object; the session's log has all of them.
const COLLECT_LIMIT: usize = 1 << 20;

/// Output side of a run.
pub struct RunOutput {
    /// Offset in the session's log up to which everything was written or collected.
    pub at: u64,
    /// Collected output with `--json`; `None` if output is written directly.
    pub collected: Option<CollectedOutput>,
    /// Filters of the streams that are written to a terminal.
    stdout_filter: Option<TerminalFilter>,
    stderr_filter: Option<TerminalFilter>,
    /// Bytes that are missing from the log.
    pub missing: u64,
}

/// Output for the JSON object.
#[derive(Default)]
pub struct CollectedOutput {
    /// Standard output, or the output of a pseudo-terminal.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Set if bytes over the limit were dropped.
    pub truncated: bool,
}

/// Reason why output could not be written.
pub enum WriteError {
    /// The reader closed the pipe.
    Closed,
    /// The person gave up waiting for the reader; the exit code.
    GaveUp(u8),
    /// Any other write error.
    Fault(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(fault: io::Error) -> Self {
        match fault.kind() {
            io::ErrorKind::BrokenPipe => WriteError::Closed,
            _ => WriteError::Fault(fault),
        }
    }
}

impl RunOutput {
    /// Output that is collected, or written and, where it goes to a terminal, filtered.
    pub fn new(collect: bool, unfiltered: bool) -> Self {
        let filter = |terminal: bool| terminal.then(|| TerminalFilter::new(unfiltered));
        RunOutput {
            at: 0,
            collected: collect.then(CollectedOutput::default),
            stdout_filter: filter(io::stdout().is_terminal()),
            stderr_filter: filter(io::stderr().is_terminal()),
            missing: 0,
        }
    }

    /// Writes or collects output. Signals are handled meanwhile, so that the person can interrupt even
    /// if the reader of our output does not read.
    pub async fn write(
        &mut self,
        stream: Stream,
        bytes: &Bytes,
        control: &mut RunControl,
    ) -> Result<(), WriteError> {
        if let Some(collected) = &mut self.collected {
            collected.add(stream, bytes);
        } else {
            let filter = match stream {
                Stream::Stdout | Stream::Pty => &mut self.stdout_filter,
                Stream::Stderr => &mut self.stderr_filter,
            };
            let shown = match filter {
                Some(filter) => Bytes::from(filter.pass(bytes)),
                None => bytes.clone(),
            };
            match stream {
                Stream::Stdout | Stream::Pty => {
                    write_blocking(io::stdout(), &shown, control).await?
                }
                Stream::Stderr => write_blocking(io::stderr(), &shown, control).await?,
            }
            if filter.is_some() {
                control.track_cursor(&shown);
            }
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Reports bytes that are missing from the log.
    pub fn gap(&mut self, bytes: u64) {
        self.missing += bytes;
        self.at += bytes;
        errln!("abide: {bytes} bytes are not shown: the log's quota or the disk was full");
    }
}

/// Time after the end of a command, which SIGTERM has asked to end, in which its output must be read on.
const READER_TIME: Duration = Duration::from_secs(2);

/// Writes on a blocking thread, so that a reader that does not read cannot block the handling of signals.
async fn write_blocking(
    mut to: impl Write + Send + 'static,
    bytes: &Bytes,
    control: &mut RunControl,
) -> Result<(), WriteError> {
    let bytes = bytes.clone();
    let mut write = tokio::task::spawn_blocking(move || {
        to.write_all(&bytes)?;
        to.flush()
    });
    loop {
        let session_end = control.session_end();
        let terminated = control.is_terminated();
        tokio::select! {
            biased;
            written = &mut write => return Ok(written.map_err(io::Error::other)??),
            signal = control.signal() => {
                if let Some(code) = control.handle(InputEvent::Signal(signal)).await {
                    return Err(WriteError::GaveUp(code));
                }
            }
            () = async { session_end.await; pause(READER_TIME).await }, if terminated => {
                return Err(WriteError::GaveUp(TERMINATED));
            }
        }
    }
}

impl CollectedOutput {
    fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let collected = match stream {
            Stream::Stdout | Stream::Pty => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let room = COLLECT_LIMIT
            .saturating_sub(collected.len())
            .min(bytes.len());
        collected.extend_from_slice(&bytes[..room]);
        self.truncated |= room < bytes.len();
    }
}
