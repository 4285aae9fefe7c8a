//! `abide attach`: connects a person's terminal to the terminal of a session, which others may use at the same time.
//! The session is shown on the alternate screen, so that the person's own screen comes back.

use std::io::Write;
use std::time::Duration;

use abide_api::{ScreenPaint, Session, SessionEnd, SessionStatus, cli};
use abide_core::{Millis, Mono};
use abide_output::terminal_filter::TerminalFilter;
use bytes::Bytes;
use hyper::StatusCode;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::args::AttachArgs;
use super::client::{Client, ClientError, ResponseStream, public_type};
use super::error::{CliError, EXIT_ABIDE_ERROR};
use super::ids;
use super::reconnect::Reconnect;
use super::run::input::{self, Source};
use super::sessions;
use super::show::{self, errln};
use crate::cli::terminal::{RawMode, Terminal, TerminalSignal, TerminalSignals};
use crate::http::frame::Frame;
use abide_engine::clock::{SystemClock, pause, sleep_until};

/// Key that detaches: Ctrl-].
const DETACH_KEY: u8 = 0x1d;
/// Capacity of the queue of key input on its way to the program.
const KEY_QUEUE: usize = 1_024;
/// Longest wait for the last keys to arrive after the person has detached.
const KEY_TIME: Duration = Duration::from_secs(1);
/// Time for which the hint is shown, unless a key is pressed before.
const HINT_TIME: u64 = 2_000;
/// Switches to the alternate screen.
const ENTER: &[u8] = b"\x1b[?1049h";
/// Reverts terminal modes that a program may have set, and goes back to the main screen. That comes last, because some
/// of the others move the cursor, and it restores it.
const RESTORE: &[u8] =
    b"\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l\x1b[?1l\x1b>\x1b[?1000l\x1b[?1002l\x1b[?1003l\
    \x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b(B\x0f\x1b[0m\x1b[?1049l";
/// Clears the screen before the session's screen is drawn.
const CLEAR: &[u8] = b"\x1b[0m\x1b[H\x1b[2J";

/// Connects this terminal to the session until the person detaches or the session ends.
pub async fn attach(client: Client, attach: AttachArgs) -> Result<u8, CliError> {
    let session = match &attach.session {
        Some(session) => session.clone(),
        None => only_terminal(&client).await?,
    };
    let terminal = Terminal::foreground().ok_or_else(|| {
        CliError::new("there is no terminal to attach to")
            .next("run it at a terminal; `abide logs` and `abide session screen` show a session anywhere")
            .code(EXIT_ABIDE_ERROR)
    })?;
    let id = ids::session(&client, &session).await?;
    check_attachable(&client, &id).await?;
    let (keys, typed) = mpsc::channel(KEY_QUEUE);
    let raw = terminal.raw()?;
    let (refuse, refused) = mpsc::channel(1);
    let forwarding = tokio::spawn(forward_keys(client.clone(), id.clone(), typed, refuse));
    let mut attachment = Attachment {
        client,
        id,
        terminal,
        keys,
        filter: TerminalFilter::new(attach.unfiltered).on_alternate_screen(),
        resizes: !attach.keep_size,
        at: 0,
        hint: None,
        refused,
        _raw: raw,
    };
    let _ = attachment.terminal.write(ENTER);
    let end = attachment.run().await;
    let _ = attachment.terminal.write(RESTORE);
    let (id, client) = (attachment.id.clone(), attachment.client.clone());
    // Dropping this restores the terminal mode, so that the following lines end normally.
    drop(attachment);
    let end = end?;
    // Keys that were typed before Ctrl-] are on their way.
    tokio::select! {
        _ = forwarding => {}
        () = pause(KEY_TIME) => {}
    }
    if attach.json {
        let session = client.get(&format!("/v1/sessions/{id}")).await?;
        let left = matches!(end, AttachEnd::Detached);
        show::json(&cli::Attached { session, left });
        return Ok(0);
    }
    match end {
        AttachEnd::Detached => {
            errln!("[detached from {id}; it is still running. `abide attach {id}` attaches again]")
        }
        AttachEnd::Ended(session) => errln!("{}", ending(&id, &session)),
    }
    Ok(0)
}

/// Forwards keys to the session. Its end is shown by its output; a machine that does not allow input says so here.
async fn forward_keys(
    client: Client,
    id: String,
    typed: mpsc::Receiver<Bytes>,
    refuse: mpsc::Sender<ClientError>,
) {
    let session = watch::channel(id).1;
    let forwarded = input::forward(client, session, Source::Keys(typed)).await;
    if let Err(error @ ClientError::Refused { status, .. }) = forwarded
        && status == StatusCode::FORBIDDEN
    {
        let _ = refuse.send(error).await;
    }
}

/// Refuses a session that has ended, or that has no terminal.
async fn check_attachable(client: &Client, id: &str) -> Result<(), CliError> {
    let session: Session = client.get(&format!("/v1/sessions/{id}")).await?;
    if session.status != SessionStatus::Running {
        return Err(CliError::new(format!("Session '{id}' has ended"))
            .next(format!("`abide logs {id}` shows its output")));
    }
    if !session.pty {
        return Err(CliError::new(format!("Session '{id}' has no terminal"))
            .next(format!("`abide logs {id} --follow` shows its output")));
    }
    Ok(())
}

/// Id of the session to attach to if the person names none: the only terminal that runs. Several are listed.
async fn only_terminal(client: &Client) -> Result<String, CliError> {
    let mut running = sessions::running(client).await?;
    running.retain(|session| session.status == SessionStatus::Running && session.pty);
    match &running[..] {
        [] => Err(CliError::new("no terminal is running").next(
            "`abide session start -- COMMAND` starts one; `abide ps` shows the other sessions",
        )),
        [one] => Ok(one.summary.session_id.0.to_string()),
        several => {
            sessions::print_sessions(several);
            Err(CliError::new("there are several terminals")
                .next("choose one of them with `abide attach SESSION`")
                .code(2))
        }
    }
}

/// Reason why the person is no longer attached.
enum AttachEnd {
    Detached,
    Ended(Box<Session>),
}

/// Reason why the output is no longer followed.
enum FollowEnd {
    Attach(AttachEnd),
    /// The whole screen has to be drawn.
    Redraw,
}

/// Hint that is shown on entry.
struct Hint {
    until: Mono,
    /// Bytes that draw the screen without it.
    screen: Vec<u8>,
}

/// Attached terminal.
struct Attachment {
    client: Client,
    id: String,
    terminal: Terminal,
    keys: mpsc::Sender<Bytes>,
    filter: TerminalFilter,
    /// Set if the session's terminal is resized to this one.
    resizes: bool,
    at: u64,
    /// Hint in the last line, if it is shown. No output is drawn meanwhile.
    hint: Option<Hint>,
    /// Refusal of the keys.
    refused: mpsc::Receiver<ClientError>,
    _raw: RawMode,
}

impl Attachment {
    async fn run(&mut self) -> Result<AttachEnd, CliError> {
        let mut signals = TerminalSignals::new()?;
        self.resize_session().await?;
        let screen = self.draw_snapshot().await?;
        self.draw_hint(screen);
        let mut reconnect = Reconnect::new();
        loop {
            let path = format!(
                "/v1/sessions/{}/log?from={}&follow=true&format=frames&attach=true",
                self.id, self.at
            );
            let before = self.at;
            let stream = self.client.get_stream(&path).await;
            let followed = match stream {
                Ok(mut answer) => self.follow(&mut answer, &mut signals).await,
                Err(error) => Err(error),
            };
            match followed {
                Ok(FollowEnd::Attach(end)) => return Ok(end),
                Ok(FollowEnd::Redraw) => drop(self.draw_snapshot().await?),
                Err(ClientError::Broken(_)) if reconnect.should_retry(self.at > before).await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Shows output and forwards input until the session ends or the person detaches.
    async fn follow(
        &mut self,
        answer: &mut ResponseStream,
        signals: &mut TerminalSignals,
    ) -> Result<FollowEnd, ClientError> {
        let mut room = [0; 4 << 10];
        let detached = || Ok(FollowEnd::Attach(AttachEnd::Detached));
        loop {
            tokio::select! {
                frame = answer.frame(), if self.hint.is_none() => match frame? {
                    Frame::Output(_, bytes) => {
                        self.write_output(&bytes);
                        if self.filter.take_left_screen() {
                            return Ok(FollowEnd::Redraw);
                        }
                    }
                    Frame::Offset(offset) => self.at = offset,
                    Frame::Gap(bytes) => {
                        self.at += bytes;
                        return Ok(FollowEnd::Redraw);
                    }
                    Frame::Ended(facts) => {
                        return Ok(FollowEnd::Attach(AttachEnd::Ended(public_type(facts)?)));
                    }
                    Frame::Time(_) | Frame::Accepted(_) => {}
                    Frame::Question(_) | Frame::Closed(_) => {}
                },
                read = self.terminal.read(&mut room) => {
                    let typed = &room[..read.unwrap_or(0)];
                    // End of input: the terminal is gone.
                    if typed.is_empty() {
                        return detached();
                    }
                    let detach = typed.iter().position(|key| *key == DETACH_KEY);
                    let typed = &typed[..detach.unwrap_or(typed.len())];
                    if !typed.is_empty() {
                        let _ = self.keys.send(Bytes::copy_from_slice(typed)).await;
                    }
                    if detach.is_some() {
                        return detached();
                    }
                    self.remove_hint();
                },
                () = sleep_until(&SystemClock, self.hint.as_ref().map(|hint| hint.until)) => {
                    self.remove_hint();
                }
                Some(refusal) = self.refused.recv() => return Err(refusal),
                signal = signals.next() => match signal {
                    TerminalSignal::Resized => self.resize_session().await?,
                    TerminalSignal::End => return detached(),
                },
            }
        }
    }

    fn write_output(&mut self, bytes: &[u8]) {
        self.at += bytes.len() as u64;
        let _ = self.terminal.write(&self.filter.pass(bytes));
        let _ = std::io::stdout().flush();
    }

    /// Resizes the session's terminal to the size of this one.
    async fn resize_session(&self) -> Result<(), ClientError> {
        if self.resizes {
            let (cols, rows) = self.terminal.size();
            let path = format!("/v1/sessions/{}/resize", self.id);
            let size = json!({"cols": cols, "rows": rows});
            let _: Session = self.client.post(&path, &size).await?;
        }
        Ok(())
    }

    /// Shows in the last line how to leave.
    fn draw_hint(&mut self, screen: Vec<u8>) {
        let (cols, rows) = self.terminal.size();
        let text = format!(" attached to {}; Ctrl-] detaches ", self.id);
        let text = show::truncate(&text, cols.into());
        let hint = format!("\x1b7\x1b[{rows};1H\x1b[0;7m{text}\x1b[0m\x1b[K\x1b8");
        let _ = self.terminal.write(hint.as_bytes());
        self.hint = Some(Hint {
            until: Mono(SystemClock.mono().0 + HINT_TIME),
            screen,
        });
    }

    fn remove_hint(&mut self) {
        if let Some(hint) = self.hint.take() {
            let _ = self.terminal.write(CLEAR);
            let _ = self.terminal.write(&hint.screen);
        }
    }

    /// Draws a snapshot of the session's screen and sets the log offset to continue from. Returns the bytes that were
    /// drawn.
    async fn draw_snapshot(&mut self) -> Result<Vec<u8>, ClientError> {
        let path = format!("/v1/sessions/{}/paint", self.id);
        let snapshot: ScreenPaint = self.client.get(&path).await?;
        let _ = self.terminal.write(CLEAR);
        let shown = self.filter.pass(snapshot.paint.as_bytes());
        let _ = self.terminal.write(&shown);
        // Bytes at the end that are not in the log were counted, and are not asked for again.
        self.at = self.at.max(snapshot.offset);
        Ok(shown)
    }
}

fn ending(id: &str, session: &Session) -> String {
    let after = Millis::from_secs(session.summary.duration as u64);
    match (session.summary.end, session.summary.exit_code) {
        (Some(SessionEnd::Exited), Some(code)) => {
            format!("[{id} exited with code {code} after {after}]")
        }
        _ => {
            let (how, _) = sessions::state(session);
            format!("[{id} has ended after {after}: {how}]")
        }
    }
}
