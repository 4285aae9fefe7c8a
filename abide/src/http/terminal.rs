//! Session terminal over a WebSocket: screen snapshot, output, and input from the page. A slow page
//! delays only itself: it gets a new snapshot instead of the output that it missed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use abide_api::TerminalEvent;
use abide_core::SessionId;
use abide_core::request::Caller;
use abide_output::mask::Mask;
use abide_output::terminal_filter::TerminalFilter;
use axum::extract::rejection::PathRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, Path, State as Shared};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use tokio::sync::broadcast::{self, error::TryRecvError};

use super::log_stream::{self, LogTail};
use super::problem::{Problem, json};
use super::requester::Requester;
use super::session_actions;
use super::sessions::session_for;
use super::state::{State, until_login_ends};
use crate::fleet::CallingMachine;
use crate::tools::SessionControl;
use abide_engine::clock::pause;
use abide_engine::screen::Size;
use abide_engine::{PendingCall, SessionView};
use abide_session::log::Log;

/// Largest message from a page, in bytes.
const MESSAGE_LIMIT: usize = 1 << 20;
/// Number of log bytes shown at first for a session without a pseudo-terminal.
const INITIAL_BYTES: u64 = 256 << 10;
/// Backlog, in bytes, above which a page gets a new snapshot instead of the output.
const BACKLOG_LIMIT: u64 = 1 << 20;
/// Interval of pings on a connection without output.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Escape sequence that resets a terminal (RIS).
const RESET: &[u8] = b"\x1bc";
/// Size that is reported for a session without a pseudo-terminal.
const DEFAULT_SIZE: Size = Size {
    cols: 120,
    rows: 40,
};

/// Opens the WebSocket.
pub async fn terminal(
    Shared(state): Shared<State>,
    requester: Requester,
    calling: Option<Extension<CallingMachine>>,
    id: Result<Path<String>, PathRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id.map_err(|wrong| Problem::bad_input(wrong.body_text()))?;
    let view = requester.session(&state, &id)?;
    let upgrade = upgrade.map_err(|wrong| Problem::upgrade_required(wrong.body_text()))?;
    let upgrade = upgrade
        .max_message_size(MESSAGE_LIMIT)
        .max_frame_size(MESSAGE_LIMIT);
    let calling = calling.map(|calling| calling.0);
    Ok(upgrade.on_upgrade(move |socket| serve(state, requester, calling, view, socket)))
}

async fn serve(
    state: State,
    requester: Requester,
    calling: Option<CallingMachine>,
    view: Arc<SessionView>,
    socket: WebSocket,
) {
    let activity = state.handle.keep_active(requester.caller(), view.id).await;
    let read_only = calling.as_ref().and_then(CallingMachine::input_refusal);
    let types = requester.may_be_a_person() && read_only.is_none();
    let _attached = types.then(|| state.handle.attach(view.id));
    let (out, input) = socket.split();
    let login = requester.login();
    let output = TerminalOutput {
        requester,
        resized: state.handle.screens().resized(),
        size: DEFAULT_SIZE,
        activity,
        filter: TerminalFilter::new(false),
        state: state.clone(),
        view: view.clone(),
        read_only: read_only.clone(),
        out,
    };
    tokio::select! {
        // The result does not matter: the connection is closed either way.
        _ = output.run() => {}
        () = forward_input(&state, view.id, calling.as_ref(), read_only, input) => {}
        () = until_login_ends(state.logins.clone(), login) => {}
        () = expelled(calling.as_ref()) => {}
    }
}

/// Waits until the machine that is attached does not belong to the fleet any more.
async fn expelled(calling: Option<&CallingMachine>) {
    match calling {
        Some(calling) => calling.until_expelled().await,
        None => std::future::pending().await,
    }
}

/// Writes messages of the page to the session's input, and applies its size to the terminal. Returns if the page was
/// told something else about the right to type than what holds now: it connects again and is told.
async fn forward_input(
    state: &State,
    id: SessionId,
    calling: Option<&CallingMachine>,
    read_only: Option<String>,
    mut input: SplitStream<WebSocket>,
) {
    while let Some(Ok(message)) = input.next().await {
        let is_input = matches!(message, Message::Binary(_) | Message::Text(_));
        if is_input && calling.and_then(CallingMachine::input_refusal) != read_only {
            return;
        }
        match message {
            Message::Binary(_) | Message::Text(_) if read_only.is_some() => {}
            // Input that an ended session does not accept is dropped; the page learns of the end from `show`.
            Message::Binary(bytes) => {
                drop(session_actions::write_input(state, id, &bytes, None).await)
            }
            Message::Text(text) => resize(state, id, &text).await,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

/// Text message from a page.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PageMessage {
    Resize { cols: u16, rows: u16 },
}

async fn resize(state: &State, id: SessionId, text: &str) {
    let Some(view) = state.handle.published().session(id) else {
        return;
    };
    if let Ok(PageMessage::Resize { cols, rows }) = serde_json::from_str(text) {
        let control = SessionControl {
            handle: &state.handle,
            caller: Caller::PERSON,
            view: &view,
        };
        // A session that has ended, or has no terminal, keeps its size.
        let _ = control.resize(Some(cols), Some(rows)).await;
    }
}

/// Output side of the connection.
struct TerminalOutput {
    requester: Requester,
    state: State,
    view: Arc<SessionView>,
    /// Reason why no input is taken.
    read_only: Option<String>,
    out: SplitSink<WebSocket, Message>,
    filter: TerminalFilter,
    activity: PendingCall,
    resized: broadcast::Receiver<(SessionId, Size)>,
    /// Size that the page was told last.
    size: Size,
}

impl TerminalOutput {
    async fn run(mut self) -> io::Result<()> {
        let (size, snapshot, from) = self.snapshot().await?;
        self.size = size;
        let hello = TerminalEvent::Hello {
            cols: size.cols,
            rows: size.rows,
            pty: self.view.pty,
            running: self.view.is_running(),
            read_only: self.read_only.clone(),
        };
        self.send_event(&hello).await?;
        self.send_output(&snapshot).await?;
        let mut tail = self.tail(from)?;
        loop {
            self.send_changes_of_size().await?;
            let page = log_stream::output_bytes(tail.page().await?);
            if !page.is_empty() {
                self.send_output(&page).await?;
                if self.is_lagging(&tail)? {
                    tail = self.send_new_snapshot().await?;
                }
                continue;
            }
            tokio::select! {
                more = tail.wait() => if !more { break },
                change = self.resized.recv() => self.send_change_of_size(change.ok()).await?,
                () = pause(HEARTBEAT) => self.send(Message::Ping(Bytes::new())).await?,
            }
        }
        self.end().await
    }

    fn tail(&self, from: u64) -> io::Result<LogTail> {
        let handle = &self.state.handle;
        let mut tail = LogTail::open(handle, &self.requester, &self.view, from, None);
        let running = self.state.handle.published().session(self.view.id);
        if !running.is_some_and(|view| view.is_running()) {
            tail.end_at(Log::open(&self.view.folder).end()?);
        }
        Ok(tail)
    }

    /// Size of the terminal, bytes that draw its current screen, and the log offset to continue from.
    async fn snapshot(&self) -> io::Result<(Size, Vec<u8>, u64)> {
        if self.view.pty {
            let (screen, at) = self.state.handle.screens().paint(self.view.id).await?;
            let mut painted = screen.paint().to_vec();
            if self.requester.is_a_model() {
                Mask::of(self.state.handle.secrets(self.view.id)).overwrite(&mut painted);
            }
            return Ok((screen.size(), painted, at));
        }
        let end = Log::open(&self.view.folder).end()?;
        Ok((DEFAULT_SIZE, Vec::new(), end.saturating_sub(INITIAL_BYTES)))
    }

    fn is_lagging(&self, tail: &LogTail) -> io::Result<bool> {
        let end = Log::open(&self.view.folder).end()?;
        Ok(end.saturating_sub(tail.at()) > BACKLOG_LIMIT)
    }

    async fn send_new_snapshot(&mut self) -> io::Result<LogTail> {
        let (size, snapshot, from) = self.snapshot().await?;
        self.filter = TerminalFilter::new(false);
        self.send(Message::Binary(Bytes::from_static(RESET)))
            .await?;
        self.send_size(size).await?;
        self.send_output(&snapshot).await?;
        self.tail(from)
    }

    /// Tells the page each change of size since the last call.
    async fn send_changes_of_size(&mut self) -> io::Result<()> {
        loop {
            let change = match self.resized.try_recv() {
                Ok(change) => Some(change),
                Err(TryRecvError::Lagged(_)) => None,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Ok(()),
            };
            self.send_change_of_size(change).await?;
        }
    }

    /// Tells the page a change of size. `None`: changes were missed, maybe one of this terminal.
    async fn send_change_of_size(&mut self, change: Option<(SessionId, Size)>) -> io::Result<()> {
        match change {
            Some((id, size)) if id == self.view.id => self.send_size(size).await,
            Some(_) => Ok(()),
            None => {
                let (size, ..) = self.snapshot().await?;
                self.send_size(size).await
            }
        }
    }

    /// Tells the page the size, unless it knows it.
    async fn send_size(&mut self, size: Size) -> io::Result<()> {
        if size == self.size {
            return Ok(());
        }
        self.size = size;
        let Size { cols, rows } = size;
        let resized = TerminalEvent::Resized { cols, rows };
        self.send_event(&resized).await
    }

    async fn end(mut self) -> io::Result<()> {
        let id = self.view.id;
        self.state
            .handle
            .wait_until_ended(id, &mut self.activity)
            .await;
        let newest = self.state.handle.published().session(id);
        let newest = newest.as_deref().unwrap_or(&self.view);
        let ended = session_for(&self.state, &self.requester, newest);
        self.send_event(&TerminalEvent::Ended(Box::new(ended)))
            .await?;
        let close = CloseFrame {
            code: close_code::NORMAL,
            reason: "the session has ended".into(),
        };
        self.send(Message::Close(Some(close))).await
    }

    /// Sends output through a filter that passes only sequences that are safe for a person's terminal.
    async fn send_output(&mut self, bytes: &[u8]) -> io::Result<()> {
        let passed = self.filter.pass(bytes);
        if passed.is_empty() {
            return Ok(());
        }
        self.send(Message::Binary(passed.into())).await
    }

    async fn send_event(&mut self, event: &TerminalEvent) -> io::Result<()> {
        self.send(Message::Text(json(event).to_string().into()))
            .await
    }

    async fn send(&mut self, message: Message) -> io::Result<()> {
        self.out.send(message).await.map_err(io::Error::other)
    }
}
