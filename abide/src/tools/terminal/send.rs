//! `send_input`: sends text and keys, and returns the output that follows.

use std::ops::Range;
use std::time::Duration;

use abide_api::arguments::SendInputArgs;
use abide_core::Millis;
use abide_core::terminal_wait::TerminalWait;

use super::read::SentInput;
use super::reading::Reading;
use super::{ActionError, ActionRunner, BadInput, FinishedAction, SessionRef, ended, unreadable};
use crate::keys;
use abide_engine::SessionView;
use abide_engine::clock::{SystemClock, pause};
use abide_engine::screen::Modes;
use abide_session::frame::{InputKey, ToKeeper};
use abide_session::keeper_record;
use abide_session::log::Log;

/// Lines of a response that are returned.
pub(super) const LINES: usize = abide_core::limit::LINES_DEFAULT;
/// Limit on the number of keys in one call.
const KEY_LIMIT: usize = 1_000;
/// Bytes sent to the keeper at once.
const PART: usize = 16 << 10;
/// Time for which the program may not read its input before the call gives up.
const STALL: Duration = Duration::from_secs(10);
/// Time after which the rest of the input is sent at once, even if each of its lines was waited for so far.
const BY_LINE: Millis = Millis::from_secs(5);
/// Unread bytes that a terminal holds. Longer input is for one program, which reads all of it.
const TERMINAL_BUFFER: usize = 4 << 10;
/// Byte of the Enter key.
const ENTER: u8 = b'\r';
/// Time for which a program may leave input unread before the call is answered.
const TAKEN: Duration = Duration::from_secs(1);

pub(in crate::tools) struct Send {
    input: String,
    keys: Vec<String>,
}

pub(super) fn read(args: SendInputArgs) -> Result<Send, BadInput> {
    let input = args.input.map(|input| input.0).unwrap_or_default();
    let keys = args.keys.map(|keys| keys.0).unwrap_or_default();
    if keys.len() > KEY_LIMIT {
        return Err(BadInput::about(
            "keys",
            format!("must hold at most {KEY_LIMIT}; got {}.", keys.len()),
        ));
    }
    if input.is_empty() && keys.is_empty() {
        return Err(BadInput::new(
            "`input` or `keys` is required: there is nothing to send.".into(),
        ));
    }
    for key in &keys {
        keys::key(key, Modes::default()).map_err(|e| BadInput::about("keys", format!(": {e}.")))?;
    }
    Ok(Send { input, keys })
}

/// Input as it is sent to a program.
struct Input {
    bytes: Vec<u8>,
    /// The input is closed after the bytes.
    end: bool,
}

/// Bytes that a terminal echoes for typed input: a control character as two, such as `^C`.
fn shown(typed: &[u8]) -> u64 {
    let of = |byte: &u8| 1 + u64::from(byte.is_ascii_control());
    typed.iter().map(of).sum()
}

impl ActionRunner {
    pub(super) async fn send(&self, session_ref: &SessionRef, send: Send) -> FinishedAction {
        let view = self.session(session_ref)?;
        let record = self.handle.daemon_record(view.id);
        let request = self.request_name("input");
        let is_known = record.has_begun(&request);
        let runs = view.is_running();
        if !runs && !is_known {
            return Err(ended(view.id));
        }
        let mut guard = self.attend(view.id).await;
        let modes = self.modes(&view).await;
        if !is_known {
            record.begin_request(&request);
        }
        let Input { bytes, end } = input(&view, &send, modes)?;
        let dropped = self.handle.keepers().dropped_input(view.id);
        let mut reading = self.reading(&view);
        let mut last_line = (written(&view)?, 0);
        if runs {
            let by_line = view.pty && !modes.full_screen && bytes.len() <= TERMINAL_BUFFER;
            last_line = self
                .send_lines(&view, &mut reading, &bytes, by_line)
                .await?;
            if end {
                self.handle.keepers().send(view.id, &ToKeeper::CloseInput);
            }
        }
        let from = self.position(&view, &record);
        let wait = TerminalWait::input(SystemClock.mono());
        let found = reading
            .response(from, LINES, wait, last_line)
            .await
            .map_err(unreadable)?;
        if self.was_dropped(&view, dropped).await && self.session(session_ref)?.is_running() {
            return Err(ActionError::conflict(format!(
                "Session '{}' takes no input any more: what was sent has reached no program; signal and kill still work",
                view.id
            )));
        }
        self.has_read(&view, &record, found.cursor);
        let view = self.settled(&view, &reading, &mut guard).await;
        let typed = SentInput {
            bytes: Some(bytes.len()),
            screen: self.full_screen(&view).await,
        };
        let activity = self.activity(&view);
        let ended = (!found.full && !view.is_running()).then_some(view.id);
        let result = self.lines_read(&view, &reading, found, activity, typed);
        let finished = self.finished(result, guard, record, reading);
        Ok(finished.reporting_end_of(ended))
    }

    /// Returns whether input was dropped since the count was `before`. A terminal takes all input.
    async fn was_dropped(&self, view: &SessionView, before: u64) -> bool {
        if !view.pty {
            self.input_taken(view).await;
        }
        self.handle.keepers().dropped_input(view.id) > before
    }

    /// Waits until the program, or the terminal, has taken what was sent.
    async fn input_taken(&self, view: &SessionView) {
        tokio::select! {
            () = self.handle.keepers().input_taken(view.id) => {}
            () = pause(TAKEN) => {}
        }
    }

    /// Terminal modes that the program has set.
    pub(super) async fn modes(&self, view: &SessionView) -> Modes {
        if !view.pty {
            return Modes::default();
        }
        let modes = self.handle.screens().modes(view.id).await;
        modes.unwrap_or_default()
    }

    /// Sends input, each line when the one before was read: a shell and the programs that it starts read from the terminal in
    /// turn, each in its own mode, and a change of the mode alters what is typed ahead: Enter then ends no line, or a
    /// program gets the lines that are meant for the next one. Returns the bytes of the log before the last line was sent,
    /// and the bytes that the terminal may echo of it.
    async fn send_lines(
        &self,
        view: &SessionView,
        reading: &mut Reading,
        bytes: &[u8],
        mut by_line: bool,
    ) -> Result<(u64, u64), ActionError> {
        let several = by_line && line_before_others(bytes).is_some();
        let meta = several.then(|| keeper_record::read_meta(&view.folder));
        let meta = meta.and_then(|meta| meta.ok().flatten());
        let standby = self.context.standby_left().unwrap_or(Millis::MAX);
        let until = SystemClock.mono() + BY_LINE.min(Millis(standby.0 / 2));
        let mut sent = 0;
        loop {
            let rest = &bytes[sent..];
            let meta = meta.as_ref().filter(|_| by_line);
            let line = meta.and_then(|meta| Some((meta, line_before_others(rest)?)));
            let sent_at = written(view)?;
            let Some((meta, line)) = line else {
                self.send_paced(view, bytes, sent..bytes.len()).await?;
                return Ok((sent_at, if view.pty { shown(rest) } else { 0 }));
            };
            self.send_paced(view, bytes, sent..sent + line).await?;
            self.input_taken(view).await;
            sent += line;
            by_line = reading.line_read(meta, sent_at).await && SystemClock.mono() < until;
        }
    }

    /// Sends a part of the input, no faster than the program reads it.
    async fn send_paced(
        &self,
        view: &SessionView,
        bytes: &[u8],
        line: Range<usize>,
    ) -> Result<(), ActionError> {
        let mut sent = line.start;
        let keepers = self.handle.keepers();
        for part in bytes[line].chunks(PART) {
            // The idempotency key and the offset keep a replayed request from typing anything twice.
            let once = self.context.request_key.as_ref().map(|key| InputKey {
                key: key.as_bytes().to_vec(),
                from: sent as u64,
            });
            tokio::select! {
                taken = keepers.input(view.id, part, once) => {
                    taken.map_err(|_| ended(view.id))?;
                }
                () = pause(STALL) => {
                    return Err(ActionError::conflict(format!(
                        "the program does not read its input: {sent} of {} bytes were handed over \
                         before it stopped for {}; send the rest later",
                        bytes.len(),
                        Millis(STALL.as_millis() as u64)
                    )));
                }
            }
            sent += part.len();
        }
        Ok(())
    }
}

/// Bytes of output so far.
fn written(view: &SessionView) -> Result<u64, ActionError> {
    let log = Log::open(&view.folder).with_written(view.bytes());
    let (bytes, _) = log.extent().map_err(unreadable)?;
    Ok(bytes)
}

/// Length of the first of several lines of input.
fn line_before_others(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|byte| *byte == ENTER)? + 1;
    (line < bytes.len()).then_some(line)
}

/// Bytes that a terminal would send for the input; without a terminal, the text itself.
fn input(view: &SessionView, send: &Send, modes: Modes) -> Result<Input, ActionError> {
    let mut end = false;
    let mut bytes = if view.pty {
        keys::typed(&send.input)
    } else {
        send.input.clone().into_bytes()
    };
    for key in &send.keys {
        let key = keys::key(key, modes).map_err(|e| ActionError::conflict(e.to_string()))?;
        if end {
            return Err(ActionError::conflict(
                "`keys`: eof closes the input of a session without a terminal, so it must be the last key",
            ));
        }
        if !view.pty && key == keys::INTERRUPT {
            return Err(ActionError::conflict(
                "`keys`: ctrl-c does nothing in a session without a terminal; send the signal INT instead",
            ));
        }
        if !view.pty && key == keys::END_OF_FILE {
            end = true;
            continue;
        }
        // Without a terminal there is no line discipline to turn the carriage return of Enter into a newline.
        let enter = !view.pty && key == b"\r";
        bytes.extend_from_slice(if enter { b"\n" } else { &key });
    }
    Ok(Input { bytes, end })
}
