//! `abide answer`: shows open questions and sends a person's answers.

use std::collections::VecDeque;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::args::{Answer, YesNo};
use super::client::{self, Client, ClientError};
use super::patience::{self, Listener, Patience};
use super::prompt::{Prompt, Said};
use super::show;
use super::show::say;
use super::trouble::Trouble;
use crate::cli::terminal::Terminal;

pub async fn answer(client: Client, args: Answer) -> Result<u8, Trouble> {
    if let (Some(question), Some(answer)) = (&args.question, args.answer) {
        return give(&client, question, answer, args.json.json).await;
    }
    let open = client.get("/v1/questions").await?;
    let open = open["questions"].as_array().cloned().unwrap_or_default();
    let seated = super::person_reads() && std::io::IsTerminal::is_terminal(&std::io::stdin());
    if args.json.json {
        return if args.follow {
            lines(&client).await
        } else {
            listed(&open)
        };
    }
    if open.is_empty() && !args.follow {
        say!("No open questions.");
        return Ok(0);
    }
    match Terminal::in_front().filter(|_| seated) {
        Some(terminal) => {
            let left = if args.follow { None } else { Some(open.len()) };
            Asking::new(client, terminal, left).ask().await
        }
        None if args.follow => Err(Trouble::new("there is no terminal to answer at")
            .next("`abide answer --follow --json` prints questions as they come")),
        None => {
            for question in &open {
                let id = question["question_id"].as_str().unwrap_or_default();
                let text = question["text"].as_str().unwrap_or_default();
                say!("{id}: {text}");
            }
            say!("\nAnswer with `abide answer QUESTION yes` or `no`.");
            Ok(0)
        }
    }
}

fn listed(open: &[Value]) -> Result<u8, Trouble> {
    show::json(&json!({"questions": open}));
    Ok(0)
}

async fn give(client: &Client, question: &str, answer: YesNo, json: bool) -> Result<u8, Trouble> {
    let word = match answer {
        YesNo::Yes => "yes",
        YesNo::No => "no",
    };
    let answered = client.answer(super::name(question)?, word).await;
    let answered = answered.map_err(|error| match error {
        ClientError::Refused { detail, .. } => Trouble::new(detail),
        other => other.into(),
    })?;
    if json {
        show::json(&answered);
    } else {
        say!("{}", done(word));
    }
    Ok(0)
}

fn done(word: &str) -> &'static str {
    match word {
        "yes" => "Yes: continuing to wait.",
        _ => "No: the command is being ended.",
    }
}

/// Prints a line for each question that is opened or closed.
async fn lines(client: &Client) -> Result<u8, Trouble> {
    patience::follow(client, &mut Told::default()).await?;
    Ok(0)
}

/// Ids of questions that were reported as open and not yet as closed.
#[derive(Default)]
struct Told(Vec<String>);

impl Told {
    fn note(&mut self, line: &Value) {
        let id = line["question_id"].as_str().unwrap_or_default();
        self.0.retain(|told| told != id);
        if line["event"] == "asked" {
            self.0.push(id.to_owned());
        }
    }

    /// Path of the request. It names the known questions, so that a restarted daemon reports only what
    /// became of them, and all others.
    fn path(&self) -> String {
        match self.0.is_empty() {
            true => "/v1/questions?follow=true".into(),
            false => format!("/v1/questions?follow=true&told={}", self.0.join(",")),
        }
    }
}

impl Listener for Told {
    fn path(&self) -> String {
        Told::path(self)
    }

    fn hear(&mut self, line: Value) -> Result<bool, Trouble> {
        self.note(&line);
        super::print(format!("{line}\n").as_bytes())
    }
}

/// Person at a terminal who answers questions one by one.
struct Asking {
    client: Client,
    terminal: Terminal,
    waiting: VecDeque<Value>,
    shown: Option<Prompt>,
    told: Told,
    /// Number of questions until the program ends; `None`: it runs until interrupted.
    left: Option<usize>,
}

impl Asking {
    fn new(client: Client, terminal: Terminal, left: Option<usize>) -> Self {
        Asking {
            client,
            terminal,
            waiting: VecDeque::new(),
            shown: None,
            told: Told::default(),
            left,
        }
    }

    async fn ask(mut self) -> Result<u8, Trouble> {
        if self.left.is_none() {
            say!("Waiting for questions. Press Ctrl-C to quit.");
        }
        let mut patience = Patience::new();
        loop {
            let path = self.told.path();
            // While this stream is open, the daemon counts this person as available for questions.
            let followed = match self.client.stream(Method::GET, &path, Bytes::new()).await {
                Ok(stream) => self.follow(stream).await,
                Err(error) => Err(error),
            };
            match followed {
                Ok(()) => return Ok(0),
                // The daemon went away; the next one reports what became of the known questions.
                Err(ClientError::Broken(_)) if patience.goes_on(path != self.told.path()).await => {
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn follow(&mut self, mut stream: client::ResponseStream) -> Result<(), ClientError> {
        while self.left != Some(0) {
            if self.shown.is_none()
                && let Some(question) = self.waiting.pop_front()
            {
                self.shown = Some(Prompt::show(&self.terminal, &question, false));
            }
            let said = async {
                match &mut self.shown {
                    Some(prompt) => prompt.answer(&self.terminal).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = stream.line() => match line? {
                    Some(line) => self.hear(line),
                    None => return Err(ClientError::Broken("in the middle".into())),
                },
                said = said => self.said(said).await?,
            }
        }
        Ok(())
    }

    fn hear(&mut self, line: Value) {
        self.told.note(&line);
        let id = line["question_id"].as_str().unwrap_or_default();
        let shown = self
            .shown
            .as_ref()
            .is_some_and(|prompt| prompt.question == id);
        match line["event"].as_str() {
            Some("asked") if !shown => self.waiting.push_back(line),
            Some("closed") => {
                let before = self.waiting.len();
                self.waiting
                    .retain(|question| question["question_id"] != line["question_id"]);
                if shown && let Some(prompt) = self.shown.take() {
                    let why = match line["closing"].as_str() {
                        Some("withdrawn") => "withdrawn: no longer needed",
                        Some("no") => "answered elsewhere: no",
                        _ => "answered elsewhere: yes",
                    };
                    prompt.withdraw(&self.terminal, why);
                }
                if shown || self.waiting.len() < before {
                    self.one_less();
                }
            }
            _ => {}
        }
    }

    async fn said(&mut self, said: Said) -> Result<(), ClientError> {
        let Some(prompt) = self.shown.take() else {
            return Ok(());
        };
        let word = match said {
            Said::Yes => "yes",
            Said::No => "no",
            Said::Interrupt => return Ok(()),
        };
        let line = match self.client.answer(&prompt.question, word).await {
            Ok(_) => done(word).to_owned(),
            Err(ClientError::Refused { detail, .. }) => format!("({detail})"),
            Err(broken) => {
                // The next daemon does not send known questions again, so the question must stay here.
                prompt.ask_again(&self.terminal);
                self.shown = Some(prompt);
                return Err(broken);
            }
        };
        let _ = self.terminal.write(format!("{line}\n").as_bytes());
        self.one_less();
        Ok(())
    }

    fn one_less(&mut self) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
        }
    }
}
