//! `read_output`: the lines that the caller has not read yet. The wait ends on an event: a new line, the end
//! of the process, a match, or, for a prompt (a line without line end), a short time without output.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use abide_api::arguments::{ReadOutputArgs, TextOrNumber};
use abide_api::{ActionResult, Activity};
use abide_core::{Millis, Mono, limit};
use abide_output::mask::Mask;

use super::settled::Settled;
use super::tail::{Found, Tail};
use super::{BadInput, Desk, DoneReading, Finished, Named, Remains, unreadable};
use crate::tools::args::pattern;
use crate::tools::position::CallerPosition;
use crate::tools::report;
use crate::unread_lines::{self, Cursor, Page, PartialLine, ResumeState};
use abide_engine::clock::{Clock, SystemClock, pause};
use abide_engine::keepers::{Follower, LogProgress};
use abide_engine::search::Pattern;
use abide_engine::{Pending, SessionView};
use abide_session::folder;
use abide_session::log::Log;
use abide_session::read_cursors::ReadCursors;

/// Time without output after which a partial line, such as a prompt, is taken to be complete.
const SETTLE: Duration = Duration::from_millis(100);
/// Time for which output may keep coming before a partial line is returned regardless.
const UNSETTLED: Millis = Millis(1_000);
/// Lines read at once while searching for a pattern.
const STRIDE: usize = 1_000;
/// Bytes reserved for the text around the lines.
const FRAME: usize = 128;

pub(in crate::tools) struct Read {
    max_lines: usize,
    timeout: Millis,
    until: Option<Pattern>,
    since: Option<Cursor>,
}

pub(super) fn read(args: ReadOutputArgs) -> Result<Read, BadInput> {
    let until = pattern("until", args.until)?;
    let since = match args.since {
        None => None,
        Some(TextOrNumber(text)) => Some(text.parse().map_err(|_| {
            BadInput(format!(
                "`since` must be a cursor from an earlier result; got \"{}\".",
                super::shortened(&text)
            ))
        })?),
    };
    Ok(Read {
        max_lines: args
            .max_lines
            .map_or(limit::LINES_DEFAULT, |lines| lines.0 as usize),
        timeout: args.timeout_seconds.map(|time| time.0).unwrap_or_default(),
        until,
        since,
    })
}

impl Desk {
    pub(super) async fn read(&self, named: &Named, read: Read) -> Option<DoneReading> {
        let view = match self.session(named) {
            Ok(view) => view,
            Err(refused) => return Some(Err(refused)),
        };
        let mut guard = self.attend(&view).await;
        let timeout = self
            .context
            .standby
            .map_or(read.timeout, |standby| read.timeout.min(standby));
        let cursors = self.handle.read_cursors().of(&view.folder);
        let from = read.since.unwrap_or_else(|| self.position(&view, &cursors));
        let mut reading = self.reading(&view, timeout);
        let mut found = match reading.find(from, &read).await {
            Ok(found) => found,
            Err(fault) => return Some(Err(unreadable(&fault))),
        };
        if read.since.is_none() {
            self.has_read(&view, &cursors, found.cursor);
        }
        let view = self.settled(&view, &reading, &mut guard).await;
        found.cut = (timeout < read.timeout).then_some(timeout);
        // After a complete line the program may do anything next. After a prompt, or after no output, its
        // current activity is worth a sample.
        let activity = match view.is_running() && !found.ends_with_complete_line() {
            true => report::current_activity(&self.handle, &view),
            false => None,
        };
        let ended = (!found.full && !view.is_running()).then_some(view.id);
        let result = self.told(&view, &reading, found, activity, None);
        let finished = self.finished(result, guard, cursors, reading);
        Some(Ok(finished.telling_end_of(ended)))
    }

    /// Read cursor of the caller.
    pub(super) fn position(&self, view: &SessionView, cursors: &ReadCursors) -> Cursor {
        CallerPosition::of(&self.context).read(&self.handle, view, cursors)
    }

    /// Stores the caller's read cursor, after the answer has been sent.
    pub(super) fn has_read(&self, view: &SessionView, cursors: &ReadCursors, cursor: Cursor) {
        CallerPosition::of(&self.context).store(&self.handle, view, cursors, cursor);
    }

    /// Result with the resources that are released after it has been sent.
    pub(super) fn finished(
        &self,
        result: super::ToolResult,
        guard: Pending,
        cursors: ReadCursors,
        reading: Reading,
    ) -> Finished {
        // Over HTTP the command may end before the server knows that the result was received. The guard is
        // dropped now, so that this end does not count as reported.
        let guard = self.context.client.is_some().then_some(guard);
        // Dropped in this order: cursors are written first, files are closed last.
        let remains = Remains::of((cursors, guard, reading));
        Finished {
            result,
            tells: None,
            remains,
        }
    }

    /// Reader of a session's output from now on.
    pub(super) fn reading(&self, view: &SessionView, timeout: Millis) -> Reading {
        let now = SystemClock.mono();
        let follower = self.handle.keepers().follow_with_priority(view.id);
        Reading {
            log: Log::open(&view.folder).counting(view.bytes()),
            lossy: false,
            mask: self.mask_of(view),
            quota: folder::read_meta(&view.folder)
                .ok()
                .flatten()
                .map(|meta| meta.log_quota),
            known: None,
            begun: ResumeState::default(),
            ended: follower.is_none() && !view.is_running(),
            follower,
            left: !view.is_running(),
            began: now,
            until: now + timeout,
        }
    }

    /// Current view. If the output has ended, waits for the view that states how the session ended.
    pub(super) async fn settled(
        &self,
        view: &Arc<SessionView>,
        reading: &Reading,
        guard: &mut Pending,
    ) -> Arc<SessionView> {
        if reading.ended && self.newest(view).is_running() {
            self.handle.wait_until_ended(view.id, guard).await;
        }
        self.newest(view)
    }

    /// Result with the lines that were read, as text and as fields.
    pub(super) fn told(
        &self,
        view: &SessionView,
        reading: &Reading,
        found: Found,
        activity: Option<Activity>,
        typed: Option<Typed>,
    ) -> super::ToolResult {
        let cursor = found.cursor.to_string();
        let lines: usize = found.lines.iter().map(|line| line.len() + 1).sum();
        let mut text = String::with_capacity(lines + FRAME);
        if let Some((skipped, since)) = found.skipped {
            text.push_str(&format!(
                "[… {skipped} earlier lines; read_output with since=\"{since}\" has them …]\n"
            ));
        }
        if found.lines.is_empty() {
            text.push_str(&found.nothing(view.is_running()));
        } else {
            for line in &found.lines {
                text.push_str(line);
                text.push('\n');
            }
            text.push_str("[cursor: ");
            text.push_str(&cursor);
            text.push(']');
        }
        if found.full {
            text.push_str("\n[there is more to read]");
        } else if let Some(cut) = found.unmatched(view.is_running()) {
            text.push_str(&cut);
        } else if !view.is_running() {
            let ending = match report::fault(view) {
                Some(fault) => format!("[could not be run: {fault}]"),
                None => abide_engine::text::ending_line(view),
            };
            text.push('\n');
            text.push_str(&ending);
        }
        let full_screen = typed.as_ref().is_some_and(|typed| typed.full_screen);
        if full_screen {
            text.push_str("\n[a full-screen program: screen shows it as a person sees it]");
        }
        let text = reading.mask.apply(text);
        let extent = reading.extent(&found);
        let summary = report::summary_with(view, view.is_running(), extent);
        let action = ActionResult::Read {
            cursor,
            lines: found.lines.len(),
            more: found.full,
            matched: found.matched,
            effective_timeout: found.cut.map(report::in_seconds),
            sent: typed.map(|typed| typed.bytes),
            alternate_screen: full_screen.then_some(true),
        };
        self.result_of(view, summary, text, activity, action)
    }
}

/// Input that was sent before a read.
pub(super) struct Typed {
    /// Number of bytes.
    pub bytes: usize,
    /// A full-screen program uses the terminal (alternate screen).
    pub full_screen: bool,
}

/// Reader that follows the output of one session.
pub(super) struct Reading {
    log: Log,
    /// Bytes are known to be missing from the log.
    lossy: bool,
    /// Masks the secrets that the session was given.
    mask: Mask,
    /// Limit on the size of the log on disk, in bytes, if it is known.
    quota: Option<u64>,
    /// Offset up to which the log is known to be written.
    known: Option<u64>,
    /// Partial lines at the end of the last page.
    begun: ResumeState,
    follower: Option<Follower>,
    /// The command has ended, or the log contains everything that the session will ever write.
    pub ended: bool,
    /// The command had ended before the read began; its background processes may still write.
    left: bool,
    began: Mono,
    until: Mono,
}

/// Reason why a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// There is more to read, or there never will be.
    More,
    /// No output arrived within [`SETTLE`].
    Quiet,
    /// The timeout of the call has passed.
    TimeUp,
}

impl Reading {
    /// Reads the requested lines, beginning at the cursor.
    async fn find(&mut self, from: Cursor, read: &Read) -> io::Result<Found> {
        let from = self.within(from)?;
        match &read.until {
            Some(pattern) => self.until(from, pattern, read.max_lines).await,
            None => self.next(from, read.max_lines).await,
        }
    }

    /// Clamps a cursor to the end of the log. A cursor beyond the end (invented by the caller, or left by a
    /// power failure that truncated the log) would skip output that comes later.
    fn within(&mut self, from: Cursor) -> io::Result<Cursor> {
        let end = self.look_how_much()?;
        Ok(if from.offset() > end {
            Cursor::at(end)
        } else {
            from
        })
    }

    /// Number of bytes written, including those that are missing from the log.
    fn look_how_much(&mut self) -> io::Result<u64> {
        let (written, missing) = self.log.extent()?;
        self.lossy |= missing > 0;
        Ok(*self.known.insert(written))
    }

    /// Reads the next lines, and waits if there are none.
    async fn next(&mut self, from: Cursor, most: usize) -> io::Result<Found> {
        loop {
            let page = self.page(from, most, PartialLine::Hold).await?;
            if !page.lines.is_empty() {
                return self.with_prompt(from, most, page).await;
            }
            if self.ended {
                return Ok(self.page(from, most, PartialLine::Emit).await?.into());
            }
            match self.wait(page.seen, page.open).await {
                Woken::More => {}
                Woken::Quiet => return Ok(self.page(from, most, PartialLine::Emit).await?.into()),
                Woken::TimeUp => return Ok(page.into()),
            }
        }
    }

    /// Adds the partial line that follows if no output has come for [`SETTLE`].
    async fn with_prompt(&mut self, from: Cursor, most: usize, page: Page) -> io::Result<Found> {
        let quiet = || SystemClock.now().wall.0.saturating_sub(page.last_at);
        if page.open && !page.full && (self.ended || quiet() >= SETTLE.as_millis() as u64) {
            return Ok(self.page(from, most, PartialLine::Emit).await?.into());
        }
        Ok(page.into())
    }

    /// Waits for a line that matches, and returns all lines up to it; if there are more than `most`, the last ones.
    async fn until(&mut self, from: Cursor, pattern: &Pattern, most: usize) -> io::Result<Found> {
        let mut tail = Tail::new(from, most);
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
            if self.wait(seen, false).await == Woken::TimeUp {
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
        let upto = self.page(tail.cursor, at + 1, PartialLine::Hold).await?;
        tail.extend(upto.lines);
        Ok(Some(upto.cursor))
    }

    /// Output that follows input which was just sent, once no more is expected.
    pub(super) async fn echo(
        &mut self,
        from: Cursor,
        most: usize,
        settled: Settled<'_>,
    ) -> io::Result<Found> {
        let mut seen = settled.sent_at;
        let mut looked = false;
        while !self.ended {
            let left = Duration::from_millis(self.until.since(SystemClock.mono()).0);
            let patience = settled.patience(seen, looked, left);
            let Some(follower) = &mut self.follower else {
                break;
            };
            tokio::select! {
                progress = follower.wait_beyond(seen) => {
                    seen = seen.max(progress.bytes);
                    self.heard(progress, progress.ended);
                    looked = false;
                }
                () = pause(patience) => {
                    let first_look = patience == settled.prompt && !looked;
                    if !first_look || (settled.waits)() {
                        break;
                    }
                    looked = true;
                }
            }
        }
        let mut tail = Tail::new(from, most);
        loop {
            let page = self.page(tail.cursor, STRIDE, PartialLine::Emit).await?;
            tail.cursor = page.cursor;
            tail.extend(page.lines);
            if !page.full {
                return Ok(tail.found(page.cursor, None));
            }
        }
    }

    /// Reads a page. More than 64 KiB are read on a blocking thread.
    async fn page(&mut self, from: Cursor, most: usize, open: PartialLine) -> io::Result<Page> {
        let log = self.log.clone();
        let known = match self.known {
            Some(known) => known,
            None => self.look_how_much()?,
        };
        let page = if known.saturating_sub(from.offset()) <= (64 << 10) {
            unread_lines::read(&log, known, from, most, open, &mut self.begun)?
        } else {
            let mut begun = std::mem::take(&mut self.begun);
            let read = tokio::task::spawn_blocking(move || {
                let page = unread_lines::read(&log, known, from, most, open, &mut begun);
                (page, begun)
            });
            let (page, begun) = read.await.map_err(io::Error::other)?;
            self.begun = begun;
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
    fn heard(&mut self, progress: LogProgress, ended: bool) {
        self.ended |= ended;
        self.log = self.log.clone().counting(progress.bytes);
        self.known = match self.ended {
            true => None,
            false => self.known.max(Some(progress.bytes)),
        };
    }

    /// Bytes written so far, and how many of them are missing from the log. The log is inspected only if
    /// bytes may be missing. The log may have grown while it was read.
    fn extent(&self, found: &Found) -> Option<(u64, u64)> {
        let quota = self.quota?;
        let read = found.cursor.offset();
        let known = self.known?;
        let known = if found.lines.is_empty() {
            known
        } else {
            known.max(read)
        };
        if self.lossy || known > quota {
            return self.log.clone().counting(known).extent().ok();
        }
        Some((known, 0))
    }

    /// Waits for more than `seen` bytes. With a partial line present, [`SETTLE`] without output ends the wait too.
    async fn wait(&mut self, seen: u64, unfinished: bool) -> Woken {
        let now = SystemClock.mono();
        let left = self.until.since(now);
        // Output that is already there is returned even to a caller with a timeout of zero.
        let patience = if unfinished {
            let unsettled = now.since(self.began) >= UNSETTLED && left == Millis(0);
            if unsettled { Duration::ZERO } else { SETTLE }
        } else {
            Duration::from_millis(left.0)
        };
        let Some(follower) = &mut self.follower else {
            self.ended = true;
            return Woken::More;
        };
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
                self.heard(progress, ended);
                Woken::More
            }
            () = pause(patience) => if unfinished { Woken::Quiet } else { Woken::TimeUp },
        }
    }
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
    fn what_was_seen_unasked_is_seen_again() {
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
            log: Log::open(folder.path()),
            lossy: false,
            mask: Mask::default(),
            quota: None,
            known: Some(5),
            begun: ResumeState::default(),
            follower: None,
            ended: false,
            left: false,
            began: Mono(0),
            until: Mono(0),
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
