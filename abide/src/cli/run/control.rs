//! Input from the person during `abide run`: keys, signals, answers. Each is forwarded to the daemon,
//! which acts on the session; this program kills no process itself.

use std::io;
use std::pin::pin;

use abide_api::{Question, Session, Waited};
use abide_core::{Millis, QuestionId, SessionId};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::input;
use super::outcome::{INTERRUPTED, TERMINATED};
use crate::cli::client::{Client, ClientError, ToolResult};
use crate::cli::prompt::{Prompt, PromptAnswer};
use crate::cli::terminal::{RawMode, Terminal};
use crate::http::run_request::{RunBody, StdinKind};

/// Capacity of the queue of key input on its way to the command.
const KEY_QUEUE: usize = 1_024;
/// Time in which a command whose output cannot be written may end by itself.
const PIPE_TIME: Millis = Millis::from_secs(1);
/// Longest wait for the end of a command that was asked to end.
const END_TIME: Millis = Millis::from_secs(24 * 3_600);
/// Byte that a terminal sends for Ctrl-C.
const CTRL_C: u8 = 0x03;

/// State of the person's side of a run.
pub struct RunControl {
    client: Client,
    terminal: Option<Terminal>,
    signals: Signals,
    prompt: Option<Prompt>,
    /// Question that was answered last. The daemon may send it once more before it has processed the answer.
    answered: Option<QuestionId>,
    /// Raw mode of the terminal; `Some` while keys go to the command.
    raw: Option<RawMode>,
    keys: Option<mpsc::Sender<Bytes>>,
    source: Option<input::Source>,
    input_task: Option<JoinHandle<()>>,
    /// Id of the session, once the command is accepted. The task that forwards the input follows it.
    session: Option<watch::Sender<String>>,
    interrupt: Interrupt,
    /// Number of consecutive Ctrl-C bytes, while keys go to the command.
    ctrl_c_count: usize,
    /// The command was asked to end with SIGTERM.
    terminated: bool,
    /// Set if the cursor is not at the beginning of a line.
    mid_line: bool,
}

/// Effect of the interrupts of the person so far.
#[derive(Clone, Copy, PartialEq)]
enum Interrupt {
    None,
    /// Came before the command was accepted; is forwarded then.
    BeforeStart,
    /// Forwarded to the command.
    Forwarded,
    /// The session was killed. Unless that was at a question, with the next one the person gives up waiting.
    Killed {
        at_prompt: bool,
    },
}

struct Signals {
    int: Signal,
    term: Signal,
    winch: Signal,
}

/// Input event from the person or the terminal.
pub enum InputEvent {
    Signal(ForwardedSignal),
    Resized,
    Answered(PromptAnswer),
    Typed(Bytes),
}

/// Signal to forward to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedSignal {
    Interrupt,
    Terminate,
}

impl RunControl {
    pub fn new(client: Client, terminal: Option<Terminal>, body: &RunBody) -> io::Result<Self> {
        let reads_terminal = body.pty.is_some() && io::IsTerminal::is_terminal(&io::stdin());
        let mut keys = None;
        let source = match body.stdin {
            StdinKind::None => None,
            StdinKind::Open if reads_terminal => {
                let (sender, typed) = mpsc::channel(KEY_QUEUE);
                keys = Some(sender);
                Some(input::Source::Keys(typed))
            }
            StdinKind::Open => Some(input::Source::Stdin),
        };
        let raw = match &terminal {
            Some(terminal) if reads_terminal => Some(terminal.raw()?),
            _ => None,
        };
        Ok(RunControl {
            client,
            terminal,
            signals: Signals {
                int: signal(SignalKind::interrupt())?,
                term: signal(SignalKind::terminate())?,
                winch: signal(SignalKind::window_change())?,
            },
            prompt: None,
            answered: None,
            raw,
            keys,
            source,
            input_task: None,
            session: None,
            interrupt: Interrupt::None,
            ctrl_c_count: 0,
            terminated: false,
            mid_line: false,
        })
    }

    /// Records the session id. Input starts to flow, and an interrupt that came before is forwarded now.
    /// Each later connection names the same session again, or a new one if the command has never been started.
    pub fn accepted(&mut self, session: SessionId) {
        let id = session.to_string();
        if let Some(session) = &self.session {
            session.send_if_modified(|known| {
                let is_new = *known != id;
                *known = id;
                is_new
            });
            return;
        }
        let session = self.session.insert(watch::Sender::new(id));
        if let Some(source) = self.source.take() {
            let session = session.subscribe();
            let forwarded = input::forward(self.client.clone(), session, source);
            // A session that does not take its input any more has ended, which its output tells.
            self.input_task = Some(tokio::spawn(async move { drop(forwarded.await) }));
        }
        if self.interrupt == Interrupt::BeforeStart {
            self.interrupted();
        }
    }

    /// Waits for the next input event. Cancel safe: no input is lost if the future is dropped.
    pub async fn next(&mut self) -> InputEvent {
        let RunControl {
            signals,
            terminal,
            prompt,
            raw,
            ..
        } = self;
        let typed = async {
            match (terminal, prompt) {
                (Some(terminal), Some(prompt)) => {
                    InputEvent::Answered(prompt.answer(terminal).await)
                }
                (Some(terminal), None) if raw.is_some() => {
                    let mut room = [0; 4 << 10];
                    match terminal.read(&mut room).await {
                        Ok(read) if read > 0 => {
                            InputEvent::Typed(Bytes::copy_from_slice(&room[..read]))
                        }
                        _ => std::future::pending().await,
                    }
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(()) = signals.winch.recv() => InputEvent::Resized,
            sent = next_signal(&mut signals.int, &mut signals.term) => InputEvent::Signal(sent),
            typed = typed => typed,
        }
    }

    /// Waits for the next signal only.
    pub async fn signal(&mut self) -> ForwardedSignal {
        next_signal(&mut self.signals.int, &mut self.signals.term).await
    }

    /// Waits for `work` and handles input meanwhile. `Err` is the exit code if the person has given up waiting.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, u8> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                event = self.next() => if let Some(code) = self.handle(event).await {
                    return Err(code);
                },
            }
        }
    }

    /// Handles an input event. Returns the exit code if the person has given up waiting: with the third interrupt, or
    /// before the command was started.
    pub async fn handle(&mut self, event: InputEvent) -> Option<u8> {
        match event {
            InputEvent::Signal(sent) if self.session.is_none() => {
                return self.signalled_before_start(sent).await;
            }
            InputEvent::Answered(PromptAnswer::Interrupt) if self.session.is_none() => {
                return self
                    .signalled_before_start(ForwardedSignal::Interrupt)
                    .await;
            }
            InputEvent::Typed(bytes) if self.session.is_none() && bytes.contains(&CTRL_C) => {
                return self
                    .signalled_before_start(ForwardedSignal::Interrupt)
                    .await;
            }
            InputEvent::Signal(ForwardedSignal::Interrupt) => return self.interrupted(),
            InputEvent::Signal(ForwardedSignal::Terminate) => {
                self.terminated = true;
                self.request("signal", json!({"signal": "TERM"}));
            }
            InputEvent::Resized => self.resized(),
            InputEvent::Answered(answer) => self.answer_prompt(answer).await,
            InputEvent::Typed(bytes) => self.typed(bytes).await,
        }
        None
    }

    /// Handles a signal while there is no session. A question about the command is answered with no. Without one, the
    /// command is probably about to start: the first interrupt is forwarded to it then.
    async fn signalled_before_start(&mut self, sent: ForwardedSignal) -> Option<u8> {
        let code = match sent {
            ForwardedSignal::Interrupt => INTERRUPTED,
            ForwardedSignal::Terminate => TERMINATED,
        };
        if let Some(prompt) = self.prompt.take() {
            self.line("");
            let _ = self.client.of_person().answer(prompt.question, "no").await;
        } else if sent == ForwardedSignal::Interrupt && self.interrupt == Interrupt::None {
            self.interrupt = Interrupt::BeforeStart;
            return None;
        }
        self.stop();
        Some(code)
    }

    /// Handles an interrupt. The first one goes to the command, the second kills the session, and with the third the person
    /// gives up waiting. While a question is shown, the first one kills the session.
    fn interrupted(&mut self) -> Option<u8> {
        if self.prompt.is_some() {
            self.interrupt_at_prompt();
            return None;
        }
        match self.interrupt {
            Interrupt::None | Interrupt::BeforeStart => {
                self.interrupt = Interrupt::Forwarded;
                self.request("signal", json!({"signal": "INT"}));
            }
            Interrupt::Forwarded => self.kill(false),
            Interrupt::Killed { at_prompt: true } => {}
            Interrupt::Killed { at_prompt: false } => {
                self.stop();
                return Some(INTERRUPTED);
            }
        }
        None
    }

    fn interrupt_at_prompt(&mut self) {
        if self.prompt.take().is_some() {
            self.line("");
            self.kill(true);
        }
    }

    fn kill(&mut self, at_prompt: bool) {
        let was_at_prompt = self.interrupt == Interrupt::Killed { at_prompt: true };
        self.interrupt = Interrupt::Killed {
            at_prompt: at_prompt || was_at_prompt,
        };
        self.request("kill", json!({}));
    }

    /// Sends keys to the command. A second Ctrl-C in a row kills the session, unless the program reads
    /// keys: for an editor or a shell, Ctrl-C is a key like any other.
    async fn typed(&mut self, bytes: Bytes) {
        self.ctrl_c_count = match bytes.iter().all(|byte| *byte == CTRL_C) {
            true => self.ctrl_c_count.saturating_add(bytes.len()),
            false => 0,
        };
        if self.ctrl_c_count >= 2 && !self.reads_keys().await {
            return self.kill(false);
        }
        if let Some(keys) = &self.keys {
            let _ = keys.send(bytes).await;
        }
    }

    /// Returns `true` if the program uses the alternate screen or waits for input, and also if the
    /// daemon cannot tell.
    async fn reads_keys(&self) -> bool {
        let Some(id) = self.session() else {
            return true;
        };
        let request = json!({"action": "screen", "session_id": id});
        let client = self.client.of_person();
        let screen = client.post("/v1/tools/terminal_session", &request).await;
        screen.ok().is_none_or(|screen: ToolResult| {
            screen.is_true("alternate_screen") || screen.is_true("waiting_for_input")
        })
    }

    async fn answer_prompt(&mut self, answer: PromptAnswer) {
        let answer = match &answer {
            PromptAnswer::Interrupt => return self.interrupt_at_prompt(),
            PromptAnswer::Yes => "yes",
            PromptAnswer::No => "no",
            PromptAnswer::Words(words) => words,
        };
        let Some(prompt) = self.prompt.take() else {
            return;
        };
        let person = self.client.of_person();
        match person.answer(prompt.question, answer).await {
            // The answer was not received; the next daemon asks again.
            Err(ClientError::Broken(_) | ClientError::NoDaemon(_)) => return,
            Err(ClientError::Refused { detail, .. }) => self.line(&format!("({detail})")),
            Ok(_) => {}
        }
        self.answered = Some(prompt.question);
    }

    /// Shows a question at the terminal, unless it is shown already or was answered.
    pub fn ask(&mut self, question: &Question) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        let id = Some(question.question_id.0);
        if id == self.shown_question() || id == self.answered {
            return;
        }
        let raw = self.raw.is_some();
        if self.mid_line {
            let _ = terminal.write(if raw { b"\r\n" } else { b"\n" });
            self.mid_line = false;
        }
        self.prompt = Some(Prompt::show(terminal, question, raw));
    }

    fn shown_question(&self) -> Option<QuestionId> {
        self.prompt.as_ref().map(|prompt| prompt.question)
    }

    /// Withdraws the question that is shown, if any.
    pub fn withdraw(&mut self, why: &str) {
        if let (Some(terminal), Some(prompt)) = (&self.terminal, self.prompt.take()) {
            prompt.withdraw(terminal, why);
        }
    }

    /// Withdraws the question if it was answered by another client or is obsolete.
    pub fn closed(&mut self, question: QuestionId) {
        if self.shown_question() == Some(question) {
            self.withdraw("the question is closed: it was answered elsewhere or withdrawn");
        }
    }

    /// Records if the cursor is at the beginning of a line after this output.
    pub fn track_cursor(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.mid_line = *last != b'\n';
        }
    }

    /// Returns `true` if the person ended the command.
    pub fn cancelled(&self) -> bool {
        matches!(self.interrupt, Interrupt::Killed { .. })
    }

    /// Ends the command because its output cannot be written: with `SIGPIPE`, as the kernel would, and with a kill if it
    /// still runs after [`PIPE_TIME`], because many programs ignore that signal. Returns whether it was seen to end.
    pub async fn end_command(&mut self) -> bool {
        self.stop();
        let Some(id) = self.session() else {
            return false;
        };
        let client = self.client.of_person();
        let end = async move {
            let act = async |what: &str, body: Value| {
                let path = format!("/v1/sessions/{id}/{what}");
                client.post_retrying::<Session>(&path, &body).await.is_ok()
            };
            act("signal", json!({"signal": "PIPE"})).await;
            until_ended(&client, &id, PIPE_TIME).await || act("kill", json!({})).await
        };
        self.during(end).await.unwrap_or(false)
    }

    /// Session of the command, once it is known.
    pub fn session(&self) -> Option<String> {
        self.session.as_ref().map(|id| id.borrow().clone())
    }

    /// Returns whether the command was asked to end with SIGTERM.
    pub fn is_terminated(&self) -> bool {
        self.terminated
    }

    /// Waits for the end of the session.
    pub fn session_end(&self) -> impl Future<Output = ()> + use<> {
        let (client, session) = (self.client.of_person(), self.session());
        async move {
            if let Some(id) = session {
                until_ended(&client, &id, END_TIME).await;
            }
        }
    }

    /// Restores the terminal and stops forwarding input.
    pub fn stop(&mut self) {
        self.raw = None;
        if let Some(input_task) = self.input_task.take() {
            input_task.abort();
        }
    }

    fn resized(&mut self) {
        if let (Some(terminal), Some(_)) = (&self.terminal, &self.raw) {
            let (cols, rows) = terminal.size();
            self.request("resize", json!({"cols": cols, "rows": rows}));
        }
    }

    /// Requests an action on the session without waiting for the response.
    fn request(&self, what: &str, body: Value) {
        let Some(id) = self.session() else { return };
        let path = format!("/v1/sessions/{id}/{what}");
        let client = self.client.of_person();
        tokio::spawn(async move {
            // Retried if the daemon goes away. A refusal means that the session has already ended.
            let _ = client.post_retrying::<Session>(&path, &body).await;
        });
    }

    fn line(&self, text: &str) {
        if let Some(terminal) = &self.terminal {
            let end = if self.raw.is_some() { "\r\n" } else { "\n" };
            let _ = terminal.write(format!("{text}{end}").as_bytes());
        }
    }
}

/// Waits for the end of a session, at most for this time. Returns whether it has ended.
async fn until_ended(client: &Client, id: &str, most: Millis) -> bool {
    let until = json!({"session": id, "is": "ended"});
    let body = json!({"until": until, "for": most.as_secs_f64()});
    let waited = client.post_retrying("/v1/wait", &body).await;
    waited.is_ok_and(|result: Waited| result.held)
}

async fn next_signal(int: &mut Signal, term: &mut Signal) -> ForwardedSignal {
    tokio::select! {
        Some(()) = int.recv() => ForwardedSignal::Interrupt,
        Some(()) = term.recv() => ForwardedSignal::Terminate,
    }
}
