//! `abide logs` and `abide session read`: print the output of a session.

use abide_api::Session;
use abide_api::cli::OutputLine;
use abide_output::sanitizer::Sanitizer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::args::LogsArgs;
use super::client::Client;
use super::error::CliError;
use super::ids;
use super::reconnect::Reconnect;
use super::show::errln;
use crate::http::frame::{Frame, Stream};
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::timestamp::rfc3339;

/// Bytes at the end of the log in which `--tail` looks for lines first; twice as many each time there are too few.
const TAIL_BYTES: u64 = 64 << 10;

pub async fn logs(client: Client, mut logs: LogsArgs) -> Result<u8, CliError> {
    logs.session = ids::session(&client, &logs.session).await?;
    let since = logs
        .since
        .map(|span| SystemClock.now().wall.0.saturating_sub(span.0));
    let mut printer = LogPrinter {
        sanitizers: Default::default(),
        stamps: [StampState::LineStart; 3],
        in_line: false,
        at: logs.from,
        since: since.unwrap_or(0),
        time: 0,
        logs,
    };
    if let Some(lines) = printer.logs.tail {
        printer.at = printer.tail_begin(&client, lines).await?;
    }
    let mut reconnect = Reconnect::new();
    loop {
        let from = printer.at;
        match printer.print_stream(&client).await {
            Err(error) if error.is_broken && reconnect.should_retry(printer.at > from).await => {}
            done => return done.map(|()| 0),
        }
    }
}

struct LogPrinter {
    logs: LogsArgs,
    at: u64,
    /// Arrival time of the output that is printed next, in Unix milliseconds.
    time: u64,
    /// Output that arrived before this time, in Unix milliseconds, is left out.
    since: u64,
    /// With `--timestamps`: position in the line of each stream.
    stamps: [StampState; 3],
    /// The last byte that was printed as text was no line feed.
    in_line: bool,
    /// One sanitizer per stream, because an escape sequence of one stream does not continue in another.
    sanitizers: [Sanitizer; 3],
}

/// Position of a stream in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StampState {
    LineStart,
    InLine,
}

impl LogPrinter {
    fn path(&self, from: u64, follow: bool) -> String {
        let stream = match (self.logs.stdout, self.logs.stderr) {
            (true, _) => "stdout",
            (_, true) => "stderr",
            _ => "all",
        };
        let session = &self.logs.session;
        format!(
            "/v1/sessions/{session}/log?format=frames&from={from}&stream={stream}&follow={follow}"
        )
    }

    /// Offset at which the last lines begin. Only the end of the log is read.
    async fn tail_begin(&self, client: &Client, lines: u64) -> Result<u64, CliError> {
        let path = format!("/v1/sessions/{}", self.logs.session);
        let session: Session = client.get(&path).await?;
        let end = session.summary.bytes_total;
        let lines = usize::try_from(lines).unwrap_or(usize::MAX);
        let mut bytes = TAIL_BYTES;
        loop {
            let from = end.saturating_sub(bytes);
            let path = self.path(from, false);
            let mut answer = client.get_stream(&path).await?;
            let mut starts = LineStarts::new(from);
            loop {
                match answer.frame().await? {
                    Frame::Output(_, bytes) => starts.add(&bytes),
                    Frame::Offset(offset) => starts.at = offset,
                    Frame::Ended(_) => break,
                    _ => {}
                }
            }
            if let Some(begin) = starts.last(lines, from == 0) {
                return Ok(begin);
            }
            bytes = bytes.saturating_mul(2);
        }
    }

    /// Prints from the current offset to the end, or until the daemon goes away.
    async fn print_stream(&mut self, client: &Client) -> Result<(), CliError> {
        let path = self.path(self.at, self.logs.follow);
        let mut answer = client.get_stream(&path).await?;
        loop {
            match answer.frame().await? {
                Frame::Output(_, bytes) if self.time < self.since => {
                    self.at += bytes.len() as u64;
                }
                Frame::Output(stream, bytes) => {
                    let printed = self.print(stream, &bytes)?;
                    self.at += bytes.len() as u64;
                    if !printed {
                        return Ok(());
                    }
                }
                Frame::Offset(offset) => self.at = offset,
                Frame::Time(time) => self.time = time,
                Frame::Gap(bytes) => self.gap(bytes)?,
                Frame::Ended(_) => return Ok(()),
                Frame::Accepted(_) | Frame::Question(_) | Frame::Closed(_) => {}
            }
        }
    }

    fn print(&mut self, stream: Stream, bytes: &[u8]) -> Result<bool, CliError> {
        if self.logs.json.json {
            return print_line(&self.line(stream, bytes));
        }
        if self.logs.raw {
            return super::print(bytes);
        }
        let sanitizer = &mut self.sanitizers[stream as usize];
        let text = sanitizer.clean(bytes);
        if let Some(last) = text.bytes().last() {
            self.in_line = last != b'\n';
        }
        match self.logs.timestamps {
            false => super::print(text.as_bytes()),
            true => {
                let stamp = rfc3339(self.time);
                let state = &mut self.stamps[stream as usize];
                super::print(stamped(&text, &stamp, state).as_bytes())
            }
        }
    }

    fn line(&self, stream: Stream, bytes: &[u8]) -> OutputLine {
        let stream = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
            Stream::Pty => "pty",
        };
        let (text, base64) = match std::str::from_utf8(bytes) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(bytes))),
        };
        OutputLine {
            offset: Some(self.at),
            stream: Some(stream),
            time: Some(self.time),
            text,
            base64,
            gap: None,
        }
    }

    fn gap(&mut self, bytes: u64) -> Result<(), CliError> {
        if self.logs.json.json {
            print_line(&OutputLine {
                gap: Some(bytes),
                ..OutputLine::default()
            })?;
        } else if self.logs.raw {
            errln!("abide: {bytes} bytes were not kept: the log's quota or the disk was full");
        } else {
            super::print(gap_line(bytes, self.in_line).as_bytes())?;
            // What follows continues neither a line nor an escape sequence of before.
            self.in_line = false;
            self.stamps = [StampState::LineStart; 3];
            self.sanitizers = Default::default();
        }
        Ok(())
    }
}

fn print_line(line: &OutputLine) -> Result<bool, CliError> {
    let line = serde_json::to_value(line).unwrap_or_default();
    super::print(format!("{line}\n").as_bytes())
}

/// Line in the place of missing bytes, in words of `terminal_session read_output`.
fn gap_line(bytes: u64, in_line: bool) -> String {
    let before = if in_line { "\n" } else { "" };
    format!("{before}[… {bytes} bytes are missing from the log …]\n")
}

/// Text with a timestamp at the beginning of each line.
fn stamped(text: &str, stamp: &str, state: &mut StampState) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        if std::mem::replace(state, StampState::InLine) == StampState::LineStart {
            out.push_str(stamp);
            out.push(' ');
        }
        out.push_str(line);
        if line.ends_with('\n') {
            *state = StampState::LineStart;
        }
    }
    out
}

/// Offsets at which lines begin, in a part of a log.
struct LineStarts {
    /// Offset of the next byte.
    at: u64,
    starts: Vec<u64>,
    /// The byte before is a line feed, or there is none: the next byte begins a line.
    fresh: bool,
}

impl LineStarts {
    /// Lines of the part that begins at this offset. Where its first line began is not known, unless it is the
    /// beginning of the log.
    fn new(from: u64) -> Self {
        LineStarts {
            at: from,
            starts: Vec::new(),
            fresh: from == 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if std::mem::replace(&mut self.fresh, *byte == b'\n') {
                self.starts.push(self.at);
            }
            self.at += 1;
        }
    }

    /// Offset at which the last lines begin. `None`: this part of the log has too few. `whole`: there are no others.
    fn last(&self, lines: usize, whole: bool) -> Option<u64> {
        match self.starts.len().checked_sub(lines) {
            Some(at) => Some(self.starts.get(at).copied().unwrap_or(self.at)),
            None => whole.then(|| self.starts.first().copied().unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_begin_after_the_line_feed_before_them() {
        let mut starts = LineStarts::new(0);
        starts.add(b"one\ntwo\nth");
        starts.add(b"ree");
        assert_eq!(starts.last(1, true), Some(8));
        assert_eq!(starts.last(2, true), Some(4));
        assert_eq!(starts.last(9, true), Some(0));
        assert_eq!(starts.last(9, false), None);
        assert_eq!(starts.last(0, true), Some(13));
        let mut part = LineStarts::new(100);
        part.add(b"rest\nlast\n");
        assert_eq!(part.last(1, false), Some(105));
        assert_eq!(part.last(2, false), None);
    }

    #[test]
    fn missing_bytes_have_a_line_of_their_own() {
        let line = "[… 7 bytes are missing from the log …]\n";
        assert_eq!(gap_line(7, false), line);
        assert_eq!(gap_line(7, true), format!("\n{line}"));
    }

    #[test]
    fn each_line_gets_one_timestamp() {
        let mut state = StampState::LineStart;
        assert_eq!(stamped("a\nb", "T", &mut state), "T a\nT b");
        assert_eq!(stamped("c\n", "U", &mut state), "c\n");
        assert_eq!(stamped("d", "U", &mut state), "U d");
    }
}
