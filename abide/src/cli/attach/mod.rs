//! `abide session attach`: connects a person's terminal to the terminal of a session, which others may
//! use at the same time.

use std::io::Write;

use abide_core::Millis;
use abide_output::terminal_filter::TerminalFilter;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::args::Attach;
use super::client::{Client, ClientError, ResponseStream};
use super::name;
use super::patience::Patience;
use super::run::input::{self, Source};
use super::show::{self, complain};
use super::trouble::{OWN, Trouble};
use crate::cli::terminal::{Raw, Terminal};
use crate::http::frame::Frame;

/// Key that detaches: Ctrl-].
const LEAVE: u8 = 0x1d;
/// Capacity of the queue of key input on its way to the program.
const KEYS: usize = 1_024;
/// Reverts terminal modes that a program may have set, and moves to a new line.
const RESTORE: &[u8] =
    b"\x1b[?1049l\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l\x1b[?1l\x1b>\x1b[?1000l\x1b[?1002l\
    \x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b(B\x0f\x1b[0m\r\n";
/// Clears the screen before the session's screen is drawn.
const CLEAR: &[u8] = b"\x1b[0m\x1b[H\x1b[2J";

pub async fn attach(client: Client, attach: Attach) -> Result<u8, Trouble> {
    let id = name(&attach.session)?.to_owned();
    let terminal = Terminal::in_front().ok_or_else(|| {
        Trouble::new("there is no terminal to attach to")
            .next("run it at a terminal; `abide session read` and `screen` show a session anywhere")
            .code(OWN)
    })?;
    let session = client.get(&format!("/v1/sessions/{id}")).await?;
    if session["status"] != json!("running") {
        return Err(Trouble::new(format!("Session '{id}' has ended"))
            .next(format!("`abide session read {id}` shows its output")));
    }
    if session["pty"] != json!(true) {
        return Err(
            Trouble::new(format!("Session '{id}' has no terminal")).next(format!(
                "`abide session read {id} --follow` shows its output"
            )),
        );
    }
    let (keys, typed) = mpsc::channel(KEYS);
    let raw = terminal.raw()?;
    tokio::spawn(input::feed(client.clone(), id.clone(), Source::Keys(typed)));
    let mut seat = Seat {
        client,
        id,
        terminal,
        keys,
        filter: TerminalFilter::new(attach.unfiltered),
        fits: !attach.keep_size,
        at: 0,
        _raw: raw,
    };
    let left = seat.sit().await;
    let _ = seat.terminal.write(RESTORE);
    let (id, client) = (seat.id.clone(), seat.client.clone());
    // Dropping this restores the terminal mode, so that the following lines end normally.
    drop(seat);
    let left = left?;
    if attach.json {
        let mut session = client.get(&format!("/v1/sessions/{id}")).await?;
        session["left"] = json!(matches!(left, Left::Detached));
        show::json(&session);
        return Ok(0);
    }
    match left {
        Left::Detached => {
            complain!(
                "[detached from {id}; it is still running. `abide session attach {id}` attaches again]"
            )
        }
        Left::Ended(facts) => complain!("{}", ending(&id, &facts)),
    }
    Ok(0)
}

/// Reason why the person is no longer attached.
enum Left {
    Detached,
    Ended(Value),
}

/// Signals: a change of the terminal's size, and those that end this program after the terminal is restored.
struct Outside {
    resized: Signal,
    term: Signal,
    hang_up: Signal,
}

impl Outside {
    fn new() -> std::io::Result<Self> {
        Ok(Outside {
            resized: signal(SignalKind::window_change())?,
            term: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// Attached terminal.
struct Seat {
    client: Client,
    id: String,
    terminal: Terminal,
    keys: mpsc::Sender<Bytes>,
    filter: TerminalFilter,
    /// Set if the session's terminal is resized to this one.
    fits: bool,
    at: u64,
    _raw: Raw,
}

impl Seat {
    async fn sit(&mut self) -> Result<Left, Trouble> {
        let mut outside = Outside::new()?;
        self.fit().await?;
        self.paint().await?;
        let mut patience = Patience::new();
        loop {
            let path = format!(
                "/v1/sessions/{}/log?from={}&follow=true&format=frames&attach=true",
                self.id, self.at
            );
            let before = self.at;
            let stream = self.client.stream(Method::GET, &path, Bytes::new()).await;
            let followed = match stream {
                Ok(mut answer) => self.follow(&mut answer, &mut outside).await,
                Err(error) => Err(error),
            };
            match followed {
                Ok(left) => return Ok(left),
                Err(ClientError::Broken(_)) if patience.goes_on(self.at > before).await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Shows output and forwards input until the session ends or the person detaches.
    async fn follow(
        &mut self,
        answer: &mut ResponseStream,
        outside: &mut Outside,
    ) -> Result<Left, ClientError> {
        let mut room = [0; 4 << 10];
        loop {
            tokio::select! {
                frame = answer.frame() => match frame? {
                    Some(Frame::Output(_, bytes)) => self.show(&bytes),
                    Some(Frame::Offset(offset)) => self.at = offset,
                    Some(Frame::Gap(bytes)) => self.at += bytes,
                    Some(Frame::Ended(facts)) => return Ok(Left::Ended(facts)),
                    Some(Frame::Time(_) | Frame::Accepted(_)) => {}
                    Some(Frame::Question(_) | Frame::Closed(_)) => {}
                    None => return Err(ClientError::Broken("in the middle".into())),
                },
                read = self.terminal.read(&mut room) => {
                    let typed = &room[..read.unwrap_or(0)];
                    // End of input: the terminal is gone.
                    if typed.is_empty() {
                        return Ok(Left::Detached);
                    }
                    let leave = typed.iter().position(|key| *key == LEAVE);
                    let typed = &typed[..leave.unwrap_or(typed.len())];
                    if !typed.is_empty() {
                        let _ = self.keys.send(Bytes::copy_from_slice(typed)).await;
                    }
                    if leave.is_some() {
                        return Ok(Left::Detached);
                    }
                },
                _ = outside.resized.recv() => self.fit().await?,
                _ = outside.term.recv() => return Ok(Left::Detached),
                _ = outside.hang_up.recv() => return Ok(Left::Detached),
            }
        }
    }

    fn show(&mut self, bytes: &[u8]) {
        self.at += bytes.len() as u64;
        let _ = self.terminal.write(&self.filter.pass(bytes));
        let _ = std::io::stdout().flush();
    }

    /// Resizes the session's terminal to the size of this one.
    async fn fit(&self) -> Result<(), ClientError> {
        if self.fits {
            let (cols, rows) = self.terminal.size();
            let path = format!("/v1/sessions/{}/resize", self.id);
            let size = json!({"cols": cols, "rows": rows});
            self.client.post(&path, &size).await?;
        }
        Ok(())
    }

    /// Draws a snapshot of the session's screen and sets the log offset to continue from.
    async fn paint(&mut self) -> Result<(), ClientError> {
        let path = format!("/v1/sessions/{}/paint", self.id);
        let painted = self.client.get(&path).await?;
        let bytes = painted["paint"].as_str().unwrap_or_default().as_bytes();
        let _ = self.terminal.write(CLEAR);
        let shown = self.filter.pass(bytes);
        let _ = self.terminal.write(&shown);
        self.at = painted["offset"].as_u64().unwrap_or(0);
        Ok(())
    }
}

fn ending(id: &str, facts: &Value) -> String {
    let after =
        Millis((facts["duration"].as_f64().unwrap_or(0.0) * 1_000.0) as u64 / 1_000 * 1_000);
    match (facts["exit_code"].as_i64(), facts["signal"].as_i64()) {
        (Some(code), _) => format!("[{id} exited with code {code} after {after}]"),
        (_, Some(signal)) => format!("[{id} was ended by signal {signal} after {after}]"),
        _ => format!("[{id} has ended]"),
    }
}
