//! Output of a session that a result returns: read from the log and digested; and warnings about output that is missing
//! or unreadable.

use std::io;
use std::ops::Range;

use abide_api::SessionSummary;
use abide_core::session::End;
use abide_core::{Millis, Mono};
use abide_engine::SessionView;
use abide_engine::clock::SystemClock;
use abide_output::digest::{Digest, Digested, Gap, Limits};
use abide_output::mask::Mask;
use abide_session::accelerator::Accelerator;
use abide_session::log::{Log, Piece, Stream};

use crate::unread_lines::{self, Cursor};

/// Largest log, in bytes, that is read on the calling thread; larger ones are read on a blocking thread.
const READ_ON_THE_SPOT: u64 = 64 << 10;
/// Time limit for digesting the output of a command that hit its deadline, so that the answer is not late.
/// Beyond it only the last [`TAIL_BYTES`] bytes are read; the bytes between are counted, not read.
const DIGEST_TIME: Millis = Millis(10);
const TAIL_BYTES: u64 = 512 << 10;
/// Bytes of a stream that are searched for secrets at once.
const MASK_AT_ONCE: usize = 64 << 10;
/// Bytes at the end of a stream that may be the begin of a secret. Of a longer secret a part may be shown.
const SECRET_BYTES: usize = 4 << 10;

/// Amount and form of the output that a call wants.
#[derive(Clone, Copy)]
pub(super) struct OutputLimits {
    pub max_chars: usize,
    pub raw: bool,
}

/// Digested output of a session.
#[derive(Default)]
pub(super) struct Output {
    pub digested: Digested,
    /// Bytes that are missing from the log.
    pub missing: u64,
    /// Error that stopped reading, at the beginning or before the end of the log.
    pub fault: Option<io::Error>,
}

/// Outputs of a log that could not be read.
fn unreadable<const N: usize>(fault: io::Error) -> [Output; N] {
    let mut fault = Some(fault);
    std::array::from_fn(|_| Output {
        fault: fault.take(),
        ..Output::default()
    })
}

/// Part of a session's output.
pub(super) struct Part {
    reading: Reading,
    pty: bool,
    /// Error of finding the end of the log. The part is empty then.
    fault: Option<io::Error>,
}

impl Part {
    /// Output after a cursor, with what background processes of the command have written since its end. Without a
    /// cursor, the output of the command itself.
    pub fn since(view: &SessionView, from: Option<Cursor>) -> Self {
        let log = Log::open(&view.folder).with_written(view.bytes());
        let ending = view.ending();
        let end = match (ending, from) {
            (Some(ending), None) => Ok(ending.bytes),
            _ => log.extent().map(|(end, _)| end),
        };
        let from = from.unwrap_or_default();
        let (end, fault) = end.map_or_else(|fault| (0, Some(fault)), |end| (end, None));
        Part {
            reading: Reading {
                log,
                from,
                end: end.max(from.offset()),
                dropped: ending.map_or(0, |ending| ending.dropped),
                deadline_reached: ending.is_some_and(|ending| ending.end == End::Deadline),
            },
            pty: view.pty,
            fault,
        }
    }

    /// Returns whether there is no output in this part.
    pub fn is_empty(&self) -> bool {
        self.reading.end == self.reading.from.offset()
    }

    /// Both streams, each digested. A terminal has one stream, which counts as stdout. The secrets of the mask are
    /// replaced before the digest may cut them.
    pub async fn two_streams(&mut self, limits: OutputLimits, mask: &Mask) -> [Output; 2] {
        if self.pty {
            return [self.one_stream(limits, mask).await, Output::default()];
        }
        self.digest([Some(Stream::Stdout), Some(Stream::Stderr)], limits, mask)
            .await
    }

    /// Both streams, digested in the order of arrival, with the secrets of the mask replaced.
    pub async fn one_stream(&mut self, limits: OutputLimits, mask: &Mask) -> Output {
        let [output] = self.digest([None], limits, mask).await;
        output
    }

    /// Cursor of a reader that was given this part.
    pub fn cursor(&self) -> Cursor {
        let Reading { log, from, end, .. } = &self.reading;
        let cursor = unread_lines::cursor_at(log, *from, *end);
        cursor.unwrap_or_else(|_| Cursor::at(*end))
    }

    async fn digest<const N: usize>(
        &mut self,
        streams: [Option<Stream>; N],
        limits: OutputLimits,
        mask: &Mask,
    ) -> [Output; N] {
        if let Some(fault) = self.fault.take() {
            return unreadable(fault);
        }
        if self.is_empty() {
            return streams.map(|_| Output::default());
        }
        let reading = self.reading.clone();
        let limits = Limits {
            max_chars: limits.max_chars,
            raw: limits.raw,
            repeat_fast_path: Accelerator::RepeatFastPath.is_on(),
            ..Limits::default()
        };
        if reading.end <= READ_ON_THE_SPOT {
            return reading.digested(streams, limits, mask);
        }
        let mask = mask.clone();
        tokio::task::spawn_blocking(move || reading.digested(streams, limits, &mask))
            .await
            .unwrap_or_else(|fault| unreadable(io::Error::other(fault)))
    }
}

/// Part of a log to digest.
#[derive(Clone)]
struct Reading {
    log: Log,
    from: Cursor,
    end: u64,
    /// Bytes that are known to have been dropped from the log.
    dropped: u64,
    deadline_reached: bool,
}

/// Digest of one stream of a log, or of all.
struct StreamDigest {
    only: Option<Stream>,
    digest: Digest,
    bytes: u64,
    mask: Mask,
    /// Bytes that the digest has not been given yet, because a secret at their end may be incomplete.
    held: Vec<u8>,
    /// Newlines of other streams, with the number of held bytes before them.
    other_lines: Vec<(usize, u64)>,
}

impl StreamDigest {
    /// Takes the next bytes. Returns the number of newlines in them.
    fn push(&mut self, bytes: &[u8]) -> u64 {
        self.bytes += bytes.len() as u64;
        if !self.mask.has_secrets() {
            return self.digest.push(bytes);
        }
        self.held.extend_from_slice(bytes);
        if self.held.len() >= MASK_AT_ONCE {
            self.release(self.held.len() - SECRET_BYTES);
        }
        memchr::memchr_iter(b'\n', bytes).count() as u64
    }

    /// Notes that another stream has these newlines here.
    fn other_lines(&mut self, newlines: u64) {
        if self.held.is_empty() {
            self.digest.other_lines(newlines);
        } else if newlines > 0 {
            self.other_lines.push((self.held.len(), newlines));
        }
    }

    /// Gives the digest all held bytes.
    fn flush(&mut self) {
        self.release(self.held.len());
    }

    /// Gives the digest the first `limit` held bytes with their secrets masked, or fewer if a secret lies over the
    /// limit.
    fn release(&mut self, mut limit: usize) {
        let mut secrets = self.mask.find_secrets(&self.held);
        let cut = (secrets.iter()).find(|(place, _)| place.start < limit && limit < place.end);
        limit = cut.map_or(limit, |(place, _)| place.start);
        secrets.retain(|(place, _)| place.end <= limit);
        let mut secrets = secrets.into_iter().peekable();
        let mut lines = self.other_lines.iter().copied().peekable();
        let mut at = 0;
        while at < limit {
            let secret = secrets.peek().map_or(limit, |(place, _)| place.start);
            let line = lines.peek().map_or(limit, |(before, _)| *before);
            let next = secret.min(line).min(limit);
            if at < next {
                self.digest.push(&self.held[at..next]);
                at = next;
            }
            if let Some((_, newlines)) = lines.next_if(|(before, _)| *before <= at) {
                self.digest.other_lines(newlines);
            } else if let Some((place, name)) = secrets.next_if(|(place, _)| place.start <= at) {
                self.digest.push(format!("[masked:{name}]").as_bytes());
                at = place.end;
            }
        }
        while let Some((_, newlines)) = lines.next_if(|(before, _)| *before <= limit) {
            self.digest.other_lines(newlines);
        }
        self.held.drain(..limit);
        self.other_lines.retain(|(before, _)| *before > limit);
        for (before, _) in &mut self.other_lines {
            *before -= limit;
        }
    }
}

/// Digests of the streams of one log, which are fed together: each line has its number in the whole log, as in a search.
struct StreamDigests {
    streams: Vec<StreamDigest>,
    dropped: u64,
    fault: Option<io::Error>,
}

impl StreamDigests {
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let mut newlines = 0;
        let takes = |of: &StreamDigest| of.only.is_none_or(|only| only == stream);
        for of in self.streams.iter_mut().filter(|of| takes(of)) {
            newlines = of.push(bytes);
        }
        for of in self.streams.iter_mut().filter(|of| !takes(of)) {
            of.other_lines(newlines);
        }
    }

    fn gap(&mut self, gap: Gap) {
        for of in &mut self.streams {
            of.flush();
            of.digest.gap(gap);
        }
        if let Gap::Dropped(bytes) = gap {
            self.dropped += bytes;
        }
    }
}

impl Reading {
    fn digested<const N: usize>(
        self,
        streams: [Option<Stream>; N],
        mut limits: Limits,
        mask: &Mask,
    ) -> [Output; N] {
        let from = self.from.offset();
        limits.lines_before = self.lines_before();
        let digest = |only| StreamDigest {
            only,
            digest: Digest::new(&limits),
            bytes: 0,
            mask: mask.clone(),
            held: Vec::new(),
            other_lines: Vec::new(),
        };
        let mut digests = StreamDigests {
            streams: streams.into_iter().map(digest).collect(),
            dropped: 0,
            fault: None,
        };
        for (stream, start) in self.from.line_starts() {
            let stream = unread_lines::log_stream(stream);
            self.feed(&mut digests, Some(stream), start..from, None);
        }
        let tail = self.end.saturating_sub(TAIL_BYTES);
        let until = self
            .deadline_reached
            .then(|| SystemClock.mono() + DIGEST_TIME);
        let read_to = self.feed(&mut digests, None, from..self.end, until);
        if read_to < tail && digests.fault.is_none() {
            // Bytes are dropped from the middle of a log.
            let unread = tail - read_to;
            let dropped = self.dropped.saturating_sub(digests.dropped).min(unread);
            if dropped > 0 {
                digests.gap(Gap::Dropped(dropped));
            }
            if unread > dropped {
                digests.gap(Gap::Unread(unread - dropped));
            }
        }
        if read_to < self.end && digests.fault.is_none() {
            self.feed(&mut digests, None, read_to.max(tail)..self.end, None);
        }
        let mut fault = digests.fault;
        let mut outputs = digests.streams.into_iter().map(|of| Output {
            missing: digests.dropped,
            fault: fault.take(),
            digested: self.finished(of, digests.dropped),
        });
        streams.map(|_| outputs.next().unwrap_or_default())
    }

    fn finished(&self, mut of: StreamDigest, dropped: u64) -> Digested {
        if of.bytes == 0 {
            // It is not known which stream the dropped bytes belonged to. A stream without any bytes reports
            // none missing.
            return Digested::default();
        }
        of.flush();
        let mut digested = of.digest.finish();
        // The newline of a line that was returned before is no line of its own.
        if self.from.is_within_line() && digested.text.starts_with('\n') {
            digested.text.remove(0);
        }
        // Bytes dropped from the log are reported apart from bytes that only the digest left out.
        digested.bytes_left_out = digested.bytes_left_out.saturating_sub(dropped);
        digested.shortened = digested.bytes_left_out > 0 || digested.lines_left_out > 0;
        digested
    }

    /// Number of lines before the part, as far as they can be read.
    fn lines_before(&self) -> u64 {
        let to = self.from.offset();
        let mut pieces = self.log.pieces(0, None);
        let mut lines = 0;
        while pieces.at() < to
            && let Ok(Some(piece)) = pieces.next_within(usize::MAX)
        {
            if let Piece::Chunk(chunk) = piece {
                let most = usize::try_from(to.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
                let before = &chunk.bytes[..chunk.bytes.len().min(most)];
                lines += memchr::memchr_iter(b'\n', before).count() as u64;
            }
        }
        lines
    }

    /// Feeds a part of the log to the digests until its end, the time limit or a read error; returns the
    /// offset where it stopped.
    fn feed(
        &self,
        digests: &mut StreamDigests,
        only: Option<Stream>,
        part: Range<u64>,
        until: Option<Mono>,
    ) -> u64 {
        let mut pieces = self.log.pieces(part.start, only).up_to(part.end);
        loop {
            let piece = match pieces.next_within(usize::MAX) {
                Ok(Some(piece)) => piece,
                Ok(None) => return part.end,
                Err(fault) => {
                    digests.fault = Some(fault);
                    return pieces.at().min(part.end);
                }
            };
            match piece {
                Piece::Chunk(chunk) if chunk.offset >= part.end => return part.end,
                Piece::Chunk(chunk) => {
                    let most = usize::try_from(part.end - chunk.offset).unwrap_or(usize::MAX);
                    digests.push(chunk.stream, &chunk.bytes[..chunk.bytes.len().min(most)]);
                }
                Piece::Gap { from, to } => digests.gap(Gap::Dropped(to - from)),
            }
            if until.is_some_and(|until| SystemClock.mono() > until) {
                return pieces.at().min(part.end);
            }
        }
    }
}

/// Warning that the log on disk is incomplete. The missing bytes are also counted in the summary.
pub(super) fn lost(
    view: &SessionView,
    quota: u64,
    outputs: &[Output],
    summary: &mut SessionSummary,
) -> Option<String> {
    let dropped = view.ending().map_or(0, |ending| ending.dropped);
    let missing = outputs.iter().map(|output| output.missing).max();
    let missing = missing.unwrap_or(0);
    if missing > dropped {
        summary.bytes_dropped = missing;
        return Some(format!(
            "{missing} bytes of the output are missing from the log: the disk did not take them, or the log \
             was removed or damaged"
        ));
    }
    let ending = view.ending().filter(|ending| ending.dropped > 0)?;
    Some(if ending.bytes > quota {
        format!(
            "{dropped} bytes from the middle of the output were dropped: they did not fit the log's quota"
        )
    } else {
        format!(
            "{dropped} bytes of the output were dropped: the log and its index did not fit the log's quota, or the disk \
             did not take them"
        )
    })
}

/// Warning that output could not be read, with the next step.
pub(super) fn unread(view: &SessionView, outputs: &[Output]) -> Option<String> {
    let fault = outputs.iter().find_map(|output| output.fault.as_ref())?;
    tracing::error!("the log of {} could not be read: {fault}", view.id);
    Some(format!(
        "the output could not be read: {}. It is kept in {id}: read it with terminal_session read_output",
        because(fault),
        id = view.id
    ))
}

/// Reason why a log could not be read, with a remedy if one is known.
pub(super) fn because(fault: &io::Error) -> String {
    match fault.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => format!(
            "{fault}; the daemon can open no more files, so end some sessions or let it have more (`ulimit -n`)"
        ),
        _ => fault.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_digested_to_nothing() {
        let nothing = Digest::new(&Limits::default()).finish();
        assert_eq!(nothing, Digested::default());
    }
}
