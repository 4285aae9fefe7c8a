//! `abide answer`: shows open questions and sends a person's answers.

use std::collections::VecDeque;

use abide_output::printable::one_line;
use serde_json::{Value, json};

use super::args::AnswerArgs;
use super::client::{self, Client, ClientError};
use super::error::CliError;
use super::ids;
use super::prompt::{Prompt, PromptAnswer, needs_words, offered_answers};
use super::reconnect::{self, LineHandler, Reconnect};
use super::show::{self, outln};
use crate::cli::terminal::Terminal;
use crate::tools::GivenAnswer;

pub async fn answer(client: Client, args: AnswerArgs) -> Result<u8, CliError> {
    if let Some(question) = &args.question {
        let answer = args.answer.join(" ");
        return send_answer(&client, question, &answer, args.json.json).await;
    }
    let open = client.get("/v1/questions").await?;
    let open = open["questions"].as_array().cloned().unwrap_or_default();
    let at_terminal =
        super::stdout_is_terminal() && std::io::IsTerminal::is_terminal(&std::io::stdin());
    if args.json.json {
        match args.follow {
            // A line for each question that is opened or closed.
            true => reconnect::follow(&client, &mut KnownQuestions::default()).await?,
            false => show::json(&json!({"questions": open})),
        }
        return Ok(0);
    }
    if open.is_empty() && !args.follow {
        outln!("No open questions.");
        return Ok(0);
    }
    match Terminal::foreground().filter(|_| at_terminal) {
        Some(terminal) => {
            let remaining = if args.follow { None } else { Some(open.len()) };
            AnswerLoop::new(client, terminal, remaining).run().await
        }
        None if args.follow => Err(CliError::new("there is no terminal to answer at")
            .next("`abide answer --follow --json` prints questions as they come")),
        None => {
            for question in &open {
                let id = question["question_id"].as_str().unwrap_or_default();
                outln!("{id}: {}", text_with_owner(question));
                match offered_answers(question) {
                    Some(answers) => outln!("{answers}\n  for example: abide answer {id} once"),
                    None => outln!(
                        "  to keep waiting: abide answer {id} yes\n  to end the command: abide answer {id} no"
                    ),
                }
            }
            Ok(0)
        }
    }
}

/// Text of a question, with its agent and folder, and its machine if that is another one.
fn text_with_owner(question: &Value) -> String {
    let text = |field: &str| question[field].as_str().unwrap_or_default();
    let machine = question["machine"].as_str().map(one_line);
    // The text of a question about a command or a connection names agent and folder.
    if needs_words(question) {
        let machine = machine.map(|machine| format!("\n  on machine {machine}"));
        return format!("{}{}", text("text"), machine.unwrap_or_default());
    }
    let (agent, folder) = (one_line(text("agent")), one_line(text("cwd")));
    let machine = machine.map(|machine| format!(" on machine {machine}"));
    let machine = machine.unwrap_or_default();
    format!("{}\n  agent {agent} in {folder}{machine}", text("text"))
}

async fn send_answer(
    client: &Client,
    question: &str,
    answer: &str,
    json: bool,
) -> Result<u8, CliError> {
    let word = match answer.trim() {
        "y" | "Y" => "yes",
        "n" | "N" => "no",
        words => words,
    };
    if GivenAnswer::parse(word).is_none() {
        let shown = one_line(word);
        return Err(CliError::new(format!("'{shown}' is not an answer"))
            .next("answer yes or no; about a command or a connection also: once, this agent, always here, always, \"no, because …\"")
            .code(2));
    }
    let id = ids::question(client, question).await?;
    let answered = client.answer(&id, word).await;
    let answered = answered.map_err(|error| match error {
        ClientError::Refused { detail, .. } => CliError::new(detail),
        other => other.into(),
    })?;
    show::result(json, &answered, done(&answered));
    Ok(0)
}

/// Consequence of an answer, as the daemon has taken it.
pub(super) fn done(answered: &Value) -> &'static str {
    if answered["about"] == "connection" {
        return match answered["answer"].as_str() {
            Some("once" | "yes") => "Once: the connection continues.",
            Some("this agent") => {
                "This agent: the connection continues, as will others of this agent to this host."
            }
            Some("always here" | "always") => {
                "Always: the connection continues, and the permission is written."
            }
            _ => "No: the connection is refused.",
        };
    }
    match answered["answer"].as_str() {
        Some("yes") => "Yes: continuing to wait.",
        Some("once") => "Once: the command is being started.",
        Some("this agent") => {
            "This agent: the command is being started, and such commands of this agent will be."
        }
        Some("always here" | "always") => {
            "Always: the command is being started, and the rule is written."
        }
        _ if answered["about"] == "command" => "No: the command is not started.",
        _ => "No: the command is being ended.",
    }
}

/// Ids of questions that were reported as open and not yet as closed.
#[derive(Default)]
struct KnownQuestions(Vec<String>);

impl KnownQuestions {
    fn update(&mut self, line: &Value) {
        let id = line["question_id"].as_str().unwrap_or_default();
        self.0.retain(|known| known != id);
        if line["event"] == "asked" {
            self.0.push(id.to_owned());
        }
    }
}

impl LineHandler for KnownQuestions {
    /// Names the known questions, so that a restarted daemon reports only what became of them, and all others.
    fn path(&self) -> String {
        match self.0.is_empty() {
            true => "/v1/questions?follow=true".into(),
            false => format!("/v1/questions?follow=true&told={}", self.0.join(",")),
        }
    }

    fn handle_line(&mut self, line: Value) -> Result<bool, CliError> {
        self.update(&line);
        super::print(format!("{line}\n").as_bytes())
    }
}

/// Person at a terminal who answers questions one by one.
struct AnswerLoop {
    client: Client,
    terminal: Terminal,
    queue: VecDeque<Value>,
    shown: Option<Prompt>,
    known: KnownQuestions,
    /// Number of questions until the program ends; `None`: it runs until interrupted.
    remaining: Option<usize>,
}

impl AnswerLoop {
    fn new(client: Client, terminal: Terminal, remaining: Option<usize>) -> Self {
        AnswerLoop {
            client,
            terminal,
            queue: VecDeque::new(),
            shown: None,
            known: KnownQuestions::default(),
            remaining,
        }
    }

    async fn run(mut self) -> Result<u8, CliError> {
        if self.remaining.is_none() {
            outln!("Waiting for questions. Press Ctrl-C to quit.");
        }
        let mut reconnect = Reconnect::new();
        loop {
            let path = self.known.path();
            // While this stream is open, the daemon counts this person as available for questions.
            let followed = match self.client.get_stream(&path).await {
                Ok(stream) => self.follow(stream).await,
                Err(error) => Err(error),
            };
            match followed {
                Ok(()) => return Ok(0),
                // The daemon went away; the next one reports what became of the known questions.
                Err(ClientError::Broken(_))
                    if reconnect.should_retry(path != self.known.path()).await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn follow(&mut self, mut stream: client::ResponseStream) -> Result<(), ClientError> {
        while self.remaining != Some(0) {
            if self.shown.is_none()
                && let Some(mut question) = self.queue.pop_front()
            {
                question["text"] = text_with_owner(&question).into();
                self.shown = Some(Prompt::show(&self.terminal, &question, false));
            }
            let answer = async {
                match &mut self.shown {
                    Some(prompt) => prompt.answer(&self.terminal).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = stream.line() => match line? {
                    Some(line) => self.handle_event(line),
                    None => return Err(ClientError::ended_early()),
                },
                answer = answer => self.handle_answer(answer).await?,
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, line: Value) {
        self.known.update(&line);
        let id = line["question_id"].as_str().unwrap_or_default();
        let shown = self
            .shown
            .as_ref()
            .is_some_and(|prompt| prompt.question == id);
        match line["event"].as_str() {
            Some("asked") if !shown => self.queue.push_back(line),
            Some("closed") => {
                let before = self.queue.len();
                self.queue
                    .retain(|question| question["question_id"] != line["question_id"]);
                if shown && let Some(prompt) = self.shown.take() {
                    let why = match line["closing"].as_str() {
                        Some("withdrawn") => "withdrawn: no longer needed",
                        Some("expired") => "expired: nobody answered within a day",
                        Some("no") => "answered elsewhere: no",
                        _ => "answered elsewhere: yes",
                    };
                    prompt.withdraw(&self.terminal, why);
                }
                if shown || self.queue.len() < before {
                    self.question_done();
                }
            }
            _ => {}
        }
    }

    async fn handle_answer(&mut self, answer: PromptAnswer) -> Result<(), ClientError> {
        let Some(prompt) = self.shown.take() else {
            return Ok(());
        };
        let word = match &answer {
            PromptAnswer::Yes => "yes",
            PromptAnswer::No => "no",
            PromptAnswer::Words(words) => words,
            PromptAnswer::Interrupt => return Ok(()),
        };
        let line = match self.client.answer(&prompt.question, word).await {
            Ok(answered) => done(&answered).to_owned(),
            Err(ClientError::Refused { detail, .. }) => format!("({detail})"),
            Err(broken) => {
                // The next daemon does not send known questions again, so the question must stay here.
                prompt.ask_again(&self.terminal);
                self.shown = Some(prompt);
                return Err(broken);
            }
        };
        let _ = self.terminal.write(format!("{line}\n").as_bytes());
        self.question_done();
        Ok(())
    }

    fn question_done(&mut self) {
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(1);
        }
    }
}
