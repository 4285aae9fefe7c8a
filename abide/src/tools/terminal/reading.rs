//! Reader of a session's output. It carries out the waiting rules of `abide_core::terminal_wait`: it waits for output by
//! events, and looks at processes only if a rule asks for it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use abide_core::terminal_wait::{LONGEST, Next, PROMPT, QUIET, TerminalWait, Unread};
use abide_core::{Millis, Mono};
use abide_engine::SessionView;
use abide_engine::clock::{Clock, SystemClock, pause};
use abide_engine::keepers::{Follower, LogProgress};
use abide_engine::search::Pattern;
use abide_session::facts;
use abide_session::keeper_record::{self, Meta};
use abide_session::log::{Log, Piece};
use abide_session::pts;

use super::tail::{Found, Tail, TailLimits};
use crate::tools::report;
use crate::unread_lines::{Cursor, MAX_PAGE_BYTES, Page, PartialLine, UnreadLines};

/// Lines read at once while searching for a pattern.
const STRIDE: usize = 1_000;
/// Size of a response to a start or to input, in bytes.
const RESPONSE_BYTES: usize = 32 << 10;
/// Bytes of the first output in which a full-screen program is recognised.
const FIRST_OUTPUT: usize = 64 << 10;
/// Escape sequences that switch to the alternate screen.
const ALTERNATE_SCREEN: [&[u8]; 3] = [b"\x1b[?1049h", b"\x1b[?1047h", b"\x1b[?47h"];
/// Escape sequences that a program such as `top` sends, which paints the whole screen without switching to another:
/// cursor keys in their application form, and no cursor.
const WHOLE_SCREEN: [&[u8]; 2] = [b"\x1b[?1h", b"\x1b[?25l"];

/// Reader that follows the output of one session.
pub(super) struct Reading {
    /// Directory of the session.
    folder: PathBuf,
    log: Log,
    /// Bytes are known to be missing from the log.
    lossy: bool,
    /// Limit on the size of the log on disk, in bytes, if it is known.
    quota: Option<u64>,
    /// Offset up to which the log is known to be written.
    known: Option<u64>,
    lines: UnreadLines,
    follower: Option<Follower>,
    /// The command has ended, or the log contains everything that the session will ever write.
    pub ended: bool,
    /// The command had ended before the read began; its background processes may still write.
    left: bool,
}

/// End of one wait for output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// There is more to read, or there never will be. The log has this many bytes.
    More(u64),
    /// The time has come.
    TimeUp,
}

/// Step that a rule has come to.
enum Followed {
    /// There is more to read, or there never will be. The log has this many bytes.
    More(u64),
    /// The caller is answered; `true`: with a line that has no newline yet.
    Return(bool),
}

impl Reading {
    /// Reader of a session's output from now on.
    pub fn new(view: &SessionView, follower: Option<Follower>) -> Self {
        let log = Log::open(&view.folder).with_written(view.bytes());
        Reading {
            folder: view.folder.clone(),
            lines: UnreadLines::new(log.clone()),
            log,
            lossy: false,
            quota: keeper_record::read_meta(&view.folder)
                .ok()
                .flatten()
                .map(|meta| meta.launch.log_quota),
            known: None,
            ended: follower.is_none() && !view.is_running(),
            follower,
            left: !view.is_running(),
        }
    }

    /// Clamps a cursor to the end of the log. A cursor beyond the end (invented by the caller, or left by a
    /// power failure that truncated the log) would skip output that comes later.
    fn within(&mut self, from: Cursor) -> io::Result<Cursor> {
        let end = self.written_bytes()?;
        Ok(if from.offset() > end {
            Cursor::at(end)
        } else {
            from
        })
    }

    /// Returns whether a cursor is in the middle of a line, which no reader was given: a cursor stands behind a newline
    /// or names the line that it is within.
    pub fn is_within_line(&self, cursor: Cursor) -> io::Result<bool> {
        let Some(before) = cursor.offset().checked_sub(1) else {
            return Ok(false);
        };
        let is_in_line = match self.log.pieces(before, None).next_within(1)? {
            Some(Piece::Chunk(chunk)) => !chunk.bytes.starts_with(b"\n"),
            Some(Piece::Gap { .. }) | None => false,
        };
        Ok(is_in_line && cursor == Cursor::at(cursor.offset()))
    }

    /// Number of bytes written, including those that are missing from the log.
    fn written_bytes(&mut self) -> io::Result<u64> {
        let (written, missing) = self.log.extent()?;
        self.lossy |= missing > 0;
        Ok(*self.known.insert(written))
    }

    /// Reads the next lines, as soon as the rule says so.
    pub async fn next(
        &mut self,
        from: Cursor,
        most: usize,
        mut rule: TerminalWait,
    ) -> io::Result<Found> {
        let from = self.within(from)?;
        let mut output_at = None;
        loop {
            let page = self.page(from, most, PartialLine::Hold).await?;
            let unread = match (page.full, page.lines.is_empty(), page.open) {
                (true, ..) => Unread::Full,
                (false, false, _) => Unread::Lines,
                (false, true, true) => Unread::PartialLine,
                (false, true, false) => Unread::Nothing,
            };
            rule.output(output_at.unwrap_or_else(|| mono_of(page.last_at)), unread);
            match self.follow(&mut rule, page.seen).await {
                Followed::More(_) => output_at = Some(SystemClock.mono()),
                Followed::Return(true) if page.open && !page.full => {
                    return Ok(self.page(from, most, PartialLine::Emit).await?.into());
                }
                Followed::Return(_) => return Ok(page.into()),
            }
        }
    }

    /// Output that follows a start, or input which was sent when the log had `sent_at` bytes; once the rule says that it
    /// is complete. `echo`: bytes that the terminal itself may echo of the input.
    pub async fn response(
        &mut self,
        from: Cursor,
        most: usize,
        mut rule: TerminalWait,
        (sent_at, echo): (u64, u64),
    ) -> io::Result<Found> {
        let mut seen = sent_at;
        while let Followed::More(bytes) = self.follow(&mut rule, seen).await {
            if bytes > seen {
                seen = bytes;
                let answered = seen > sent_at + echo;
                let unread = if answered {
                    Unread::Lines
                } else {
                    Unread::Echo
                };
                rule.output(SystemClock.mono(), unread);
            }
        }
        let limits = TailLimits {
            lines: most,
            bytes: RESPONSE_BYTES,
        };
        let mut tail = Tail::new(self.within(from)?, limits);
        loop {
            let page = self.page(tail.cursor, STRIDE, PartialLine::Emit).await?;
            tail.cursor = page.cursor;
            tail.extend(page.lines);
            if !page.full {
                return Ok(tail.found(page.cursor, None));
            }
        }
    }

    /// Waits until a program has read a line that was typed when the log had `sent_at` bytes, and can take the next one.
    /// `false`: none has read it in time.
    pub async fn line_read(&mut self, meta: &Meta, sent_at: u64) -> bool {
        let sent = SystemClock.mono();
        let (mut seen, mut answered) = (sent_at, false);
        loop {
            let now = SystemClock.mono();
            let Some(typed) = pts::typed(meta) else {
                return false;
            };
            if self.ended || now >= sent + LONGEST {
                return false;
            }
            // The terminal itself echoes a line at once. A program that reads key by key echoes each key.
            let arrives_within = match (answered, typed.enter_is_newline) {
                (true, true) => Millis(0),
                (true, false) => PROMPT,
                (false, _) => QUIET,
            };
            // First the input, then the processes: a process that waits after this has read everything.
            let is_read = now >= sent + arrives_within
                && !typed.unread
                && (typed.enter_is_newline || facts::facts(meta).waiting_for_input());
            if is_read {
                return true;
            }
            if let Woken::More(bytes) = self.wait(seen, now + PROMPT).await {
                answered |= bytes > sent_at;
                seen = bytes;
            }
        }
    }

    /// Returns whether the first output looks like that of a full-screen program.
    pub fn has_full_screen_program(&self) -> bool {
        let first = self.log.pieces(0, None).next_within(FIRST_OUTPUT);
        let Ok(Some(Piece::Chunk(chunk))) = first else {
            return false;
        };
        let has = |sequence: &&[u8]| memchr::memmem::find(&chunk.bytes, sequence).is_some();
        ALTERNATE_SCREEN.iter().any(has) || WHOLE_SCREEN.iter().all(has)
    }

    /// Carries out a rule until it answers, or until there are more than `seen` bytes.
    async fn follow(&mut self, rule: &mut TerminalWait, seen: u64) -> Followed {
        if self.ended {
            rule.ended();
        }
        loop {
            match rule.next(SystemClock.mono()) {
                Next::Return { partial_line } => return Followed::Return(partial_line),
                Next::CheckProcesses => {
                    rule.processes_checked(report::waits_for_input_alone(&self.folder))
                }
                Next::WaitUntil(until) => {
                    if let Woken::More(bytes) = self.wait(seen, until).await {
                        return Followed::More(bytes);
                    }
                }
            }
        }
    }

    /// Waits for a line that matches, and returns all lines up to it; if there are more than `most`, the last ones.
    pub async fn until(
        &mut self,
        from: Cursor,
        pattern: &Pattern,
        most: usize,
        until: Mono,
    ) -> io::Result<Found> {
        let from = self.within(from)?;
        let limits = TailLimits {
            lines: most,
            bytes: MAX_PAGE_BYTES,
        };
        let mut tail = Tail::new(from, limits);
        loop {
            let page = self.page(tail.cursor, STRIDE, PartialLine::Hold).await?;
            let (full, open, seen) = (page.full, page.open, page.seen);
            if let Some(cursor) = self.first_match(&mut tail, &page, pattern).await? {
                return Ok(tail.found(cursor, Some(true)));
            }
            tail.cursor = page.cursor;
            tail.extend(page.lines);
            if full {
                continue;
            }
            if open {
                let page = self.page(tail.cursor, STRIDE, PartialLine::Emit).await?;
                if page
                    .lines
                    .iter()
                    .any(|line| pattern.matches(unprefixed(line)))
                {
                    tail.extend(page.lines);
                    return Ok(tail.found(page.cursor, Some(true)));
                }
            }
            if self.ended {
                let page = self.page(tail.cursor, STRIDE, PartialLine::Emit).await?;
                tail.extend(page.lines);
                return Ok(tail.found(page.cursor, Some(false)));
            }
            // A prompt that does not match does not end the wait.
            if self.wait(seen, until).await == Woken::TimeUp {
                let mut found: Found = self.page(from, most, PartialLine::Emit).await?.into();
                found.matched = Some(false);
                return Ok(found);
            }
        }
    }

    /// Cursor behind the first matching line. On a match, the lines up to it have been added to the tail.
    async fn first_match(
        &mut self,
        tail: &mut Tail,
        page: &Page,
        pattern: &Pattern,
    ) -> io::Result<Option<Cursor>> {
        let is_in = |line: &String| pattern.matches(unprefixed(line));
        let Some(at) = page.lines.iter().position(is_in) else {
            return Ok(None);
        };
        if at + 1 == page.lines.len() {
            tail.extend(page.lines.clone());
            return Ok(Some(page.cursor));
        }
        let upto = self.page(tail.cursor, at + 1, PartialLine::Hold).await?;
        tail.extend(upto.lines);
        Ok(Some(upto.cursor))
    }

    /// Reads a page. More than 64 KiB are read on a blocking thread.
    async fn page(&mut self, from: Cursor, most: usize, open: PartialLine) -> io::Result<Page> {
        let known = match self.known {
            Some(known) => known,
            None => self.written_bytes()?,
        };
        let page = if known.saturating_sub(from.offset()) <= (64 << 10) {
            self.lines.read(known, from, most, open)?
        } else {
            let unused = UnreadLines::new(self.log.clone());
            let mut lines = std::mem::replace(&mut self.lines, unused);
            let read = tokio::task::spawn_blocking(move || {
                let page = lines.read(known, from, most, open);
                (page, lines)
            });
            let (page, lines) = read.await.map_err(io::Error::other)?;
            self.lines = lines;
            page?
        };
        // The log may have grown beyond what the keeper had reported. The next read must see at least as much
        // as this one.
        self.known = Some(known.max(page.seen));
        self.lossy |= page.lossy;
        Ok(page)
    }

    /// Takes a progress report of the keeper. At the end of the output the extent of the log is read again:
    /// the last bytes may have been written without a report.
    fn progress_reported(&mut self, progress: LogProgress, ended: bool) {
        self.ended |= ended;
        self.log = self.log.clone().with_written(progress.bytes);
        self.known = match self.ended {
            true => None,
            false => self.known.max(Some(progress.bytes)),
        };
    }

    /// Bytes written so far, and how many of them are missing from the log. The log is inspected only if
    /// bytes may be missing. The log may have grown while it was read.
    pub fn extent(&self, found: &Found) -> Option<(u64, u64)> {
        let quota = self.quota?;
        let read = found.cursor.offset();
        let known = self.known?;
        let known = if found.lines.is_empty() {
            known
        } else {
            known.max(read)
        };
        if self.lossy || known > quota {
            return self.log.clone().with_written(known).extent().ok();
        }
        Some((known, 0))
    }

    /// Waits for more than `seen` bytes until the given time.
    async fn wait(&mut self, seen: u64, until: Mono) -> Woken {
        let time_left = Duration::from_millis(until.since(SystemClock.mono()).0);
        let Some(follower) = &mut self.follower else {
            self.ended = true;
            return Woken::More(seen);
        };
        self.lines.expect_bytes_at(seen);
        let left = self.left;
        let more = async {
            match left {
                false => {
                    let progress = follower.wait_beyond(seen).await;
                    (progress, progress.ended)
                }
                true => {
                    let progress = follower.wait_beyond_after_exit(seen).await;
                    (progress, progress.closed)
                }
            }
        };
        tokio::select! {
            biased;
            (progress, ended) = more => {
                self.progress_reported(progress, ended);
                Woken::More(progress.bytes)
            }
            () = pause(time_left) => Woken::TimeUp,
        }
    }
}

/// Time of a chunk of the log on the monotonic clock.
fn mono_of(wall_ms: u64) -> Mono {
    let now = SystemClock.now();
    let age = now.wall.0.saturating_sub(wall_ms);
    Mono(now.mono.0.saturating_sub(age))
}

/// Line without the name of its stream.
fn unprefixed(line: &str) -> &[u8] {
    let line = line.strip_prefix("[stdout] ").unwrap_or(line);
    line.strip_prefix("[stderr] ").unwrap_or(line).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keeper had reported five bytes when two more were written to the same piece of the log.
    #[test]
    fn bytes_seen_without_a_report_are_returned_by_the_next_read() {
        use std::io::Write;
        use std::os::fd::AsFd;
        let folder = tempfile::tempdir().unwrap();
        let place = std::fs::File::open(folder.path()).unwrap();
        let place = std::rc::Rc::new(std::os::fd::OwnedFd::from(place));
        let (from, mut to) = std::io::pipe().unwrap();
        to.write_all(b"one\r\n$ ").unwrap();
        let mut written = abide_session::log::LogWriter::new(place, 1 << 20);
        written.take(from.as_fd(), abide_session::log::Stream::Pty, 7);
        let mut reading = Reading {
            folder: folder.path().to_owned(),
            log: Log::open(folder.path()),
            lossy: false,
            quota: None,
            known: Some(5),
            lines: UnreadLines::new(Log::open(folder.path())),
            follower: None,
            ended: false,
            left: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let page = reading.page(Cursor::default(), 10, PartialLine::Hold).await;
            let page = page.unwrap();
            assert_eq!((page.lines, page.seen), (vec!["one".to_owned()], 7));
            let prompt = reading
                .page(page.cursor, 10, PartialLine::Emit)
                .await
                .unwrap();
            assert_eq!(prompt.lines, ["$ "]);
        });
    }
}
