//! What comes from the person: keys, signals, answers. Everything is passed on to the session; this
//! program itself ends nothing.

use std::io;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::input;
use crate::cli::client::{Client, Unanswered};
use crate::cli::prompt::{Prompt, Said};
use crate::cli::terminal::{Raw, Terminal};
use crate::http::wire::{RunBody, StdinKind};
use abide_engine::entropy;

/// Keystrokes that may wait for the command.
const KEYS: usize = 1_024;
/// What the keys Ctrl and C send.
const CTRL_C: u8 = 0x03;

/// The person's side of a run.
pub struct Control {
    client: Client,
    terminal: Option<Terminal>,
    signals: Signals,
    prompt: Option<Prompt>,
    /// The question that was answered last; it may still be on its way here once more.
    answered: Option<String>,
    /// The terminal's keys go to the command.
    raw: Option<Raw>,
    keys: Option<mpsc::Sender<Bytes>>,
    source: Option<input::Source>,
    feeding: Option<JoinHandle<()>>,
    session: Option<String>,
    interrupts: u32,
    /// How often Ctrl-C was the last key, where keys go to the command.
    presses: usize,
    interrupted_at_prompt: bool,
    /// Something is on the line at which the cursor stands.
    mid_line: bool,
}

struct Signals {
    int: Signal,
    term: Signal,
    winch: Signal,
}

/// What a person did.
pub enum Happened {
    Signal(Sent),
    Resized,
    Said(Said),
    Typed(Bytes),
}

/// A signal that is meant for the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Interrupt,
    Terminate,
}

impl Control {
    pub fn new(client: Client, terminal: Option<Terminal>, body: &RunBody) -> io::Result<Self> {
        let types = body.pty.is_some() && io::IsTerminal::is_terminal(&io::stdin());
        let mut keys = None;
        let source = match body.stdin {
            StdinKind::None => None,
            StdinKind::Open if types => {
                let (sender, typed) = mpsc::channel(KEYS);
                keys = Some(sender);
                Some(input::Source::Keys(typed))
            }
            StdinKind::Open => Some(input::Source::Stdin),
        };
        let raw = match &terminal {
            Some(terminal) if types => Some(terminal.raw()?),
            _ => None,
        };
        Ok(Control {
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
            feeding: None,
            session: None,
            interrupts: 0,
            presses: 0,
            interrupted_at_prompt: false,
            mid_line: false,
        })
    }

    /// The session is known: from now on everything has somewhere to go.
    pub fn accepted(&mut self, facts: &Value) {
        let Some(id) = facts["session_id"].as_str() else {
            return;
        };
        self.session = Some(id.to_owned());
        if let Some(source) = self.source.take() {
            let feeding = input::feed(self.client.clone(), id.to_owned(), source);
            self.feeding = Some(tokio::spawn(feeding));
        }
        if self.interrupts > 0 && self.interrupts < 3 {
            self.interrupts -= 1;
            self.signalled(Sent::Interrupt);
        }
    }

    /// What the person does next. Nothing is lost where the call is given up.
    pub async fn next(&mut self) -> Happened {
        let Control {
            signals,
            terminal,
            prompt,
            raw,
            ..
        } = self;
        let typed = async {
            match (terminal, prompt) {
                (Some(terminal), Some(prompt)) => Happened::Said(prompt.answer(terminal).await),
                (Some(terminal), None) if raw.is_some() => {
                    let mut room = [0; 4 << 10];
                    match terminal.read(&mut room).await {
                        Ok(read) if read > 0 => {
                            Happened::Typed(Bytes::copy_from_slice(&room[..read]))
                        }
                        _ => std::future::pending().await,
                    }
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(()) = signals.winch.recv() => Happened::Resized,
            sent = next_signal(&mut signals.int, &mut signals.term) => Happened::Signal(sent),
            typed = typed => typed,
        }
    }

    /// The next signal alone.
    pub async fn signal(&mut self) -> Sent {
        next_signal(&mut self.signals.int, &mut self.signals.term).await
    }

    /// Sees to what the person did. `false`: they have had enough of waiting.
    pub async fn handle(&mut self, happened: Happened) -> bool {
        match happened {
            Happened::Signal(sent) => {
                self.signalled(sent);
                if self.interrupts > 2 && !self.interrupted_at_prompt {
                    self.leave();
                    return false;
                }
            }
            Happened::Resized => self.resized(),
            Happened::Said(said) => self.said(said).await,
            Happened::Typed(bytes) => self.typed(bytes).await,
        }
        true
    }

    /// The first interrupt is the command's; the second ends it. At the question the first one
    /// does.
    pub fn signalled(&mut self, sent: Sent) {
        if sent == Sent::Terminate {
            return self.act("signal", signal_body("TERM"));
        }
        self.interrupts += 1;
        if self.prompt.is_some() {
            return self.interrupt_at_prompt();
        }
        match self.interrupts {
            1 => self.act("signal", signal_body("INT")),
            2 => self.act("kill", json!({})),
            _ => {}
        }
    }

    fn interrupt_at_prompt(&mut self) {
        if self.prompt.take().is_some() {
            self.interrupts = self.interrupts.max(2);
            self.interrupted_at_prompt = true;
            self.line("");
            self.act("kill", json!({}));
        }
    }

    /// Keys are the command's. Only a second Ctrl-C in a row ends it, unless it is a program that takes
    /// keys: to an editor or a shell it is a key like any other, however often it is pressed.
    async fn typed(&mut self, bytes: Bytes) {
        self.presses = match bytes.iter().all(|byte| *byte == CTRL_C) {
            true => self.presses.saturating_add(bytes.len()),
            false => 0,
        };
        if self.presses >= 2 && !self.takes_keys().await {
            self.interrupts = self.interrupts.max(2);
            return self.act("kill", json!({}));
        }
        if let Some(keys) = &self.keys {
            let _ = keys.send(bytes).await;
        }
    }

    /// Whether the program fills the screen, or waits for somebody to type. Where nobody can tell, it
    /// is taken for one that does.
    async fn takes_keys(&self) -> bool {
        let Some(id) = &self.session else {
            return true;
        };
        let look = json!({"action": "screen", "session_id": id});
        let client = self.client.of_a_person();
        let Ok(seen) = client.post("/v1/tools/terminal_session", &look).await else {
            return true;
        };
        let says = |fact: &str| seen[fact] == json!(true);
        says("alternate_screen") || says("waiting_for_input")
    }

    async fn said(&mut self, said: Said) {
        let answer = match said {
            Said::Interrupt => return self.interrupt_at_prompt(),
            Said::Yes => "yes",
            Said::No => "no",
        };
        let Some(prompt) = self.prompt.take() else {
            return;
        };
        let person = self.client.of_a_person();
        match person.answer(&prompt.question, answer).await {
            // Where nobody heard the answer, the next daemon asks again.
            Err(Unanswered::Broken(_) | Unanswered::NoDaemon(_)) => return,
            Err(Unanswered::Refused { detail, .. }) => self.line(&format!("({detail})")),
            Ok(_) => {}
        }
        self.answered = Some(prompt.question);
    }

    /// Puts a question to whoever sits at the terminal.
    pub fn ask(&mut self, facts: &Value) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        let id = facts["question_id"].as_str();
        let shown = self.prompt.as_ref().map(|prompt| prompt.question.as_str());
        if id == shown || id == self.answered.as_deref() {
            return;
        }
        let raw = self.raw.is_some();
        if self.mid_line {
            let _ = terminal.write(if raw { b"\r\n" } else { b"\n" });
            self.mid_line = false;
        }
        self.prompt = Some(Prompt::show(terminal, facts, raw));
    }

    /// Takes the question back, if there is one.
    pub fn withdraw(&mut self, why: &str) {
        if let (Some(terminal), Some(prompt)) = (&self.terminal, self.prompt.take()) {
            prompt.withdraw(terminal, why);
        }
    }

    /// Somebody else answered, or it no longer matters.
    pub fn closed(&mut self, facts: &Value) {
        let shown = self.prompt.as_ref().map(|prompt| prompt.question.as_str());
        if shown.is_some() && shown == facts["question_id"].as_str() {
            self.withdraw("the question is closed: it was answered elsewhere or withdrawn");
        }
    }

    /// Remembers whether the cursor stands at the beginning of a line.
    pub fn wrote(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.mid_line = *last != b'\n';
        }
    }

    /// Whether the person ended the command.
    pub fn cancelled(&self) -> bool {
        self.interrupted_at_prompt || self.interrupts >= 2
    }

    /// Nobody reads what the command writes: it is told so as the kernel would tell it.
    pub async fn nobody_reads(&mut self) {
        if let Some(id) = &self.session {
            let path = format!("/v1/sessions/{id}/signal");
            let _ = self.client.post(&path, &signal_body("PIPE")).await;
        }
        self.leave();
    }

    /// Gives the terminal back.
    pub fn leave(&mut self) {
        self.raw = None;
        if let Some(feeding) = self.feeding.take() {
            feeding.abort();
        }
    }

    fn resized(&mut self) {
        if let (Some(terminal), Some(_)) = (&self.terminal, &self.raw) {
            let (cols, rows) = terminal.size();
            self.act("resize", json!({"cols": cols, "rows": rows}));
        }
    }

    /// Has something done to the session, without waiting for it.
    fn act(&self, what: &str, body: Value) {
        let Some(id) = &self.session else { return };
        let path = format!("/v1/sessions/{id}/{what}");
        let client = self.client.of_a_person();
        tokio::spawn(async move {
            // A daemon that went away in the middle is told again; one that has nothing left to do
            // this to has said so.
            let _ = client.post_again(&path, &body).await;
        });
    }

    fn line(&self, text: &str) {
        if let Some(terminal) = &self.terminal {
            let end = if self.raw.is_some() { "\r\n" } else { "\n" };
            let _ = terminal.write(format!("{text}{end}").as_bytes());
        }
    }
}

/// Said again to the next daemon, it is not sent twice.
fn signal_body(signal: &str) -> Value {
    let key = format!("{:016x}{:016x}", entropy::bits(), entropy::bits());
    json!({"signal": signal, "key": key})
}

async fn next_signal(int: &mut Signal, term: &mut Signal) -> Sent {
    tokio::select! {
        Some(()) = int.recv() => Sent::Interrupt,
        Some(()) = term.recv() => Sent::Terminate,
    }
}
