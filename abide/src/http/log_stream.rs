//! Session log as a response body: existing output and, with `follow`, new output. The log is read as
//! the client takes it, so a slow client costs no memory.

use std::io;
use std::sync::Arc;

use abide_api::OutputEnded;
use abide_core::session::Phase;
use axum::extract::{Path, State as Shared};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use super::body::Query;
use super::frame::{self, Frame};
use super::log_mask::LogMask;
use super::problem::{Problem, json};
use super::requester::Requester;
use super::sessions::session_for;
use super::state::{State, body_until_logout};
use abide_engine::keepers::Follower;
use abide_engine::{AttachGuard, Handle, PendingCall, SessionView};
use abide_output::mask::Mask;
use abide_session::log::{Log, Piece, Pieces, Stream};

/// Largest number of bytes read at once.
const PAGE: usize = 256 << 10;
/// Page size from which the next page is read on a blocking thread, because more data is likely.
const BULK: usize = 64 << 10;

/// Reader of a log that waits at its end for new output.
pub struct LogTail {
    pieces: Option<Pieces>,
    follower: Option<Follower>,
    /// End offset, exclusive.
    to: u64,
    /// Number of bytes that the keeper has reported, readable or not.
    known: u64,
    bulk: bool,
    mask: Option<LogMask>,
    /// Keeps the log from being removed.
    _reader: Arc<()>,
}

/// Consecutive pieces of a log.
pub type Page = Vec<Piece>;

impl LogTail {
    /// Opens the log at offset `from`; `filter` selects one stream. Secrets are overwritten if a model reads it.
    pub fn open(
        handle: &Handle,
        requester: &Requester,
        view: &SessionView,
        from: u64,
        filter: Option<Stream>,
    ) -> Self {
        let mask = || LogMask::new(Mask::of(handle.secrets(view.id)));
        LogTail {
            mask: requester.is_a_model().then(mask),
            pieces: Some(session_log(view).pieces(from, filter)),
            follower: handle.keepers().follow(view.id),
            to: u64::MAX,
            known: 0,
            bulk: false,
            _reader: view.readers.clone(),
        }
    }

    /// Limits the reader to output before this offset.
    pub fn stop_before(&mut self, to: u64) {
        self.to = self.to.min(to);
    }

    /// Limits the reader to output before this offset, and stops waiting for new output.
    pub fn end_at(&mut self, to: u64) {
        self.to = self.to.min(to);
        self.follower = None;
    }

    /// Offset of the next byte.
    pub fn at(&self) -> u64 {
        let held = self.mask.as_ref().and_then(LogMask::held_from);
        held.unwrap_or_else(|| self.read_to())
    }

    /// Offset after the last byte that was read.
    fn read_to(&self) -> u64 {
        self.pieces.as_ref().map_or(u64::MAX, Pieces::at)
    }

    /// Reads the next page of what exists now; it may be empty.
    pub async fn page(&mut self) -> io::Result<Page> {
        loop {
            let page = self.unmasked_page().await?;
            let Some(mask) = &mut self.mask else {
                return Ok(page);
            };
            let is_empty = page.is_empty();
            let is_at_end = self.pieces.as_ref().is_some_and(|all| all.at() >= self.to);
            let are_last = is_at_end || (is_empty && self.follower.is_none());
            let masked = mask.apply(page, are_last);
            // Of a page that is held as a whole more may exist.
            if is_empty || !masked.is_empty() {
                return Ok(masked);
            }
        }
    }

    async fn unmasked_page(&mut self) -> io::Result<Page> {
        let Some(mut pieces) = self.pieces.take() else {
            return Ok(Page::new());
        };
        let to = self.to;
        let (pieces, page) = if self.bulk {
            let read = move || {
                let page = read(&mut pieces, to);
                (pieces, page)
            };
            tokio::task::spawn_blocking(read)
                .await
                .map_err(io::Error::other)?
        } else {
            let page = read(&mut pieces, to);
            (pieces, page)
        };
        self.pieces = Some(pieces);
        let page = page?;
        self.bulk = page.iter().map(size).sum::<usize>() >= BULK;
        Ok(page)
    }

    /// Waits until there may be more output than was read. `false`: the leader has ended, and all its
    /// output is in the log.
    pub async fn wait(&mut self) -> bool {
        let at = self.read_to().max(self.known);
        let Some(follower) = &mut self.follower else {
            return false;
        };
        let progress = follower.wait_beyond(at).await;
        self.known = progress.bytes;
        if let Some(pieces) = &mut self.pieces {
            pieces.raise_written(progress.bytes);
        }
        if progress.ended {
            self.follower = None;
        }
        true
    }
}

/// Log of a session, which has written at least as many bytes as its view says.
pub fn session_log(view: &SessionView) -> Log {
    Log::open(&view.folder).with_written(view.bytes())
}

fn read(pieces: &mut Pieces, to: u64) -> io::Result<Page> {
    let mut page = Page::new();
    let mut room = PAGE;
    while room > 0 && pieces.at() < to {
        let left = usize::try_from(to - pieces.at()).unwrap_or(usize::MAX);
        match pieces.next_within(left)? {
            None => break,
            Some(piece) => {
                room = room.saturating_sub(size(&piece).max(1));
                page.push(piece);
            }
        }
    }
    Ok(page)
}

fn size(piece: &Piece) -> usize {
    match piece {
        Piece::Chunk(chunk) => chunk.bytes.len(),
        Piece::Gap { .. } => 0,
    }
}

/// Encodes a page as frames. `next` is the offset that the client computes by itself; an `Offset` frame
/// is sent if the output that follows has another one. With `last_time`, the arrival time that was sent
/// last, a `Time` frame is sent if the output that follows has another one.
pub fn frames(page: Page, next: &mut u64, mut last_time: Option<&mut u64>) -> Bytes {
    let mut out = BytesMut::new();
    for piece in page {
        let chunk = match piece {
            Piece::Gap { from, to } => {
                Frame::Gap(to - from).encode_to(&mut out);
                continue;
            }
            Piece::Chunk(chunk) => chunk,
        };
        if chunk.offset != *next {
            Frame::Offset(chunk.offset).encode_to(&mut out);
        }
        *next = chunk.offset + chunk.bytes.len() as u64;
        if let Some(last_time) = &mut last_time
            && chunk.at_wall_ms != **last_time
        {
            **last_time = chunk.at_wall_ms;
            Frame::Time(chunk.at_wall_ms).encode_to(&mut out);
        }
        Frame::Output(chunk.stream, chunk.bytes.into()).encode_to(&mut out);
    }
    out.freeze()
}

/// Output bytes of a page, without gaps.
pub fn output_bytes(page: Page) -> Bytes {
    let mut out = BytesMut::new();
    for piece in page {
        if let Piece::Chunk(chunk) = piece {
            out.extend_from_slice(&chunk.bytes);
        }
    }
    out.freeze()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Start offset.
    #[serde(default)]
    from: u64,
    /// End offset, exclusive.
    to: Option<u64>,
    /// Stream to send.
    #[serde(default)]
    stream: StreamFilter,
    /// If true, new output is sent until the session ends.
    #[serde(default)]
    follow: bool,
    /// If true, a person is attached to the session's terminal while this stream is open.
    #[serde(default)]
    attach: bool,
    /// Raw bytes, or frames that separate the streams.
    #[serde(default)]
    format: LogFormat,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StreamFilter {
    #[default]
    All,
    Stdout,
    Stderr,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LogFormat {
    #[default]
    Raw,
    Frames,
}

pub async fn log(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Response, Problem> {
    let view = requester.session(&state, &id)?;
    let filter = match query.stream {
        StreamFilter::All => None,
        // A pseudo-terminal has one stream, which counts as standard output.
        StreamFilter::Stdout if view.pty => Some(Stream::Pty),
        StreamFilter::Stdout => Some(Stream::Stdout),
        StreamFilter::Stderr => Some(Stream::Stderr),
    };
    let mut tail = LogTail::open(&state.handle, &requester, &view, query.from, filter);
    if !query.follow || !view.is_running() {
        tail.end_at(session_log(&view).extent()?.0);
    }
    tail.stop_before(query.to.unwrap_or(u64::MAX));
    let (kind, format) = match query.format {
        LogFormat::Raw => ("application/octet-stream", query.format),
        LogFormat::Frames => (frame::MEDIA_TYPE, query.format),
    };
    // A client that reads a running session counts as activity, even without `follow`.
    let activity = match query.follow || view.is_running() {
        true => Some(state.handle.keep_active(requester.caller(), view.id).await),
        false => None,
    };
    let attached =
        (query.attach && requester.may_be_a_person()).then(|| state.handle.attach(view.id));
    let login = requester.login();
    let log_body = LogBody {
        requester,
        activity,
        follow: query.follow,
        _attached: attached,
        state: state.clone(),
        view,
        next: tail.at(),
        time: 0,
        tail,
        format,
        ended: false,
    };
    let pages = stream::try_unfold(log_body, LogBody::page);
    let body = body_until_logout(&state, login, pages);
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

struct LogBody {
    requester: Requester,
    /// Call that marks the session as in use while the client reads.
    activity: Option<PendingCall>,
    follow: bool,
    _attached: Option<AttachGuard>,
    state: State,
    view: Arc<SessionView>,
    tail: LogTail,
    format: LogFormat,
    next: u64,
    /// Arrival time of the last output that was sent, in Unix milliseconds.
    time: u64,
    ended: bool,
}

impl LogBody {
    async fn page(mut self) -> io::Result<Option<(Bytes, Self)>> {
        while !self.ended {
            let page = self.tail.page().await?;
            if !page.is_empty() {
                let bytes = match self.format {
                    LogFormat::Raw => output_bytes(page),
                    LogFormat::Frames => frames(page, &mut self.next, Some(&mut self.time)),
                };
                return Ok(Some((bytes, self)));
            }
            let wants_more = self.tail.at() < self.tail.to;
            if wants_more && self.tail.wait().await {
                continue;
            }
            self.ended = true;
            if let (true, Some(activity)) = (wants_more && self.follow, &mut self.activity) {
                // The keeper has reported the end; the outcome is known once the engine has processed it.
                let handle = &self.state.handle;
                handle.wait_until_ended(self.view.id, activity).await;
            }
            if self.format == LogFormat::Frames {
                let last = Frame::Ended(json(&self.ending())).encode();
                return Ok(Some((last, self)));
            }
        }
        Ok(None)
    }

    fn ending(&self) -> OutputEnded {
        let newest = self.state.handle.published().session(self.view.id);
        let newest = newest.as_deref().unwrap_or(&self.view);
        OutputEnded {
            session: session_for(&self.state, &self.requester, newest),
            next: self.tail.at(),
        }
    }
}

/// Offset at which the output of the session's leader ends; `None` while the leader runs.
pub fn output_end(view: &SessionView) -> Option<u64> {
    match &view.state.phase {
        Phase::Starting | Phase::Running { .. } => None,
        Phase::Leftover { ending } | Phase::Ended { ending } => Some(ending.bytes),
        Phase::Failed { .. } => Some(0),
    }
}
