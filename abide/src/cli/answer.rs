//! `abide answer`: shows open questions and sends a person's answers.

use std::collections::VecDeque;

use abide_api::cli::QuestionLine;
use abide_api::{Answered, Question, QuestionAbout, QuestionDetails, QuestionEvent, QuestionPage};
use abide_core::{Answer, Closing, Millis};
use abide_engine::clock::{Clock, SystemClock};
use abide_output::printable::one_line;
use serde_json::json;

use super::args::AnswerArgs;
use super::client::{Client, ClientError, QuestionFollower};
use super::error::CliError;
use super::fleet;
use super::ids;
use super::prompt::{Prompt, PromptAnswer, offered_answers};
use super::reconnect::Reconnect;
use super::show::{self, outln};
use crate::cli::terminal::Terminal;
use crate::tools::GivenAnswer;

pub async fn answer(client: Client, args: AnswerArgs) -> Result<u8, CliError> {
    if let Some(question) = &args.question {
        let answer = args.answer.join(" ");
        return send_answer(&client, question, &answer, args.json.json).await;
    }
    let open: QuestionPage = client.get("/v1/questions").await?;
    let open = open.questions;
    let at_terminal =
        super::stdout_is_terminal() && std::io::IsTerminal::is_terminal(&std::io::stdin());
    if args.json.json {
        match args.follow {
            // A line for each question that is opened or closed.
            true => follow(&client, async |questions| print_changes(questions).await).await?,
            false => {
                let open = open.into_iter().map(Box::new);
                let open: Vec<_> = open.map(with_current_run_time).collect();
                show::json(&json!({"questions": open}));
            }
        }
        return Ok(0);
    }
    if !args.follow
        && let Some(trouble) = fleet::trouble(&client).await?
    {
        outln!("{trouble}\nOpen questions of other machines are not known.");
    }
    if open.is_empty() && !args.follow {
        match at_terminal {
            true => outln!("No open questions. `abide answer --follow` waits for the next ones."),
            false => outln!("No open questions."),
        }
        return Ok(0);
    }
    match Terminal::foreground().filter(|_| at_terminal) {
        Some(terminal) => {
            let remaining = if args.follow { None } else { Some(open.len()) };
            let mut answers = AnswerLoop::new(client.clone(), terminal, remaining);
            follow(&client, async |questions| {
                Ok(answers.follow(questions).await?)
            })
            .await?;
            Ok(0)
        }
        None if args.follow => Err(CliError::new("there is no terminal to answer at")
            .next("`abide answer --follow --json` prints questions as they come")),
        None => {
            for QuestionDetails { question, .. } in &open {
                let id = question.question_id.0;
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

/// Question with the time that its command has run by now. A held command does not run.
fn with_current_run_time(mut details: Box<QuestionDetails>) -> Box<QuestionDetails> {
    let question = &mut details.question;
    if question.about != QuestionAbout::Command {
        let passed = SystemClock.now().wall.0.saturating_sub(question.asked_at);
        question.running_for += Millis(passed).as_secs_f64();
    }
    details
}

/// Text of a question, with its agent and folder, and its machine if that is another one.
fn text_with_owner(question: &Question) -> String {
    let (text, machine) = (&question.text, question.machine.as_deref().map(one_line));
    // The text of a question about a command or a connection names agent and folder.
    if question.held.is_some() {
        let machine = machine.map(|machine| format!("\n  on machine {machine}"));
        return format!("{text}{}", machine.unwrap_or_default());
    }
    let (agent, folder) = (one_line(&question.agent), one_line(&question.cwd));
    let machine = machine.map(|machine| format!(" on machine {machine}"));
    let machine = machine.unwrap_or_default();
    format!("{text}\n  agent {agent} in {folder}{machine}")
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
    let Some(given) = GivenAnswer::parse(word) else {
        let shown = one_line(word);
        return Err(CliError::new(format!("'{shown}' is not an answer"))
            .next("answer yes or no; about a command or a connection also: once, this agent, always here, always, \"no, because …\"")
            .code(2));
    };
    // A reason is sent as it was written.
    let word = match given.because {
        Some(_) => word.to_owned(),
        None => word.to_lowercase(),
    };
    let id = ids::question(client, question).await?;
    let answered = client.answer(&id, &word).await;
    let answered = answered.map_err(|error| match error {
        ClientError::Refused { detail, .. } => CliError::new(detail),
        other => other.into(),
    })?;
    show::result(json, &answered, done(&answered));
    Ok(0)
}

/// Consequence of an answer, as the daemon has taken it.
pub(super) fn done(answered: &Answered) -> &'static str {
    use QuestionAbout::{Command, Connection, Idle};
    match (answered.about, answered.answer.as_str()) {
        (Connection, "once" | "yes") => "Once: the connection continues.",
        (Connection, "this agent") => {
            "This agent: the connection continues, as will others of this agent to this host."
        }
        (Connection, "always here" | "always") => {
            "Always: the connection continues, and the permission is written."
        }
        (Connection, _) => "No: the connection is refused.",
        (_, "yes") => "Yes: continuing to wait.",
        (_, "once") => "Once: the command is being started.",
        (_, "this agent") => {
            "This agent: the command is being started, and such commands of this agent will be."
        }
        (_, "always here" | "always") => {
            "Always: the command is being started, and the rule is written."
        }
        (Command, _) => "No: the command is not started.",
        (Idle, _) => "No: the command is being ended.",
    }
}

/// Reads questions across restarts of the daemon, until `read` is done: the next daemon tells what became of those that
/// are known. While they are followed, the daemon counts this person as reachable.
async fn follow(
    client: &Client,
    mut read: impl AsyncFnMut(&mut QuestionFollower) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut reconnect = Reconnect::new();
    let mut known = Vec::new();
    loop {
        let before = known.clone();
        let done = match QuestionFollower::begin(client, before.clone()).await {
            Ok(mut questions) => {
                let done = read(&mut questions).await;
                known = questions.known;
                done
            }
            Err(error) => Err(error.into()),
        };
        match done {
            Err(error) if error.is_broken && reconnect.should_retry(known != before).await => {}
            done => return done,
        }
    }
}

/// Prints a line for each question that is opened or closed.
async fn print_changes(questions: &mut QuestionFollower) -> Result<(), CliError> {
    while let Some(change) = questions.next().await? {
        let change = match change {
            QuestionEvent::Open(details) => QuestionEvent::Open(with_current_run_time(details)),
            closed @ QuestionEvent::Closed(_) => closed,
        };
        let line = serde_json::to_value(QuestionLine::from(change)).unwrap_or_default();
        if !super::print(format!("{line}\n").as_bytes())? {
            return Ok(());
        }
    }
    Err(ClientError::ended_early().into())
}

/// Person at a terminal who answers questions one by one.
struct AnswerLoop {
    client: Client,
    terminal: Terminal,
    queue: VecDeque<Question>,
    shown: Option<Prompt>,
    /// Number of questions until the program ends; `None`: it runs until interrupted.
    remaining: Option<usize>,
}

impl AnswerLoop {
    fn new(client: Client, terminal: Terminal, remaining: Option<usize>) -> Self {
        if remaining.is_none() {
            outln!("Waiting for questions. Press Ctrl-C to quit.");
        }
        AnswerLoop {
            client,
            terminal,
            queue: VecDeque::new(),
            shown: None,
            remaining,
        }
    }

    async fn follow(&mut self, questions: &mut QuestionFollower) -> Result<(), ClientError> {
        while self.remaining != Some(0) {
            if self.shown.is_none()
                && let Some(mut question) = self.queue.pop_front()
            {
                question.text = text_with_owner(&question);
                self.shown = Some(Prompt::show(&self.terminal, &question, false));
            }
            let answer = async {
                match &mut self.shown {
                    Some(prompt) => prompt.answer(&self.terminal).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                change = questions.next() => match change? {
                    Some(change) => self.handle_event(change),
                    None => return Err(ClientError::ended_early()),
                },
                answer = answer => self.handle_answer(answer).await?,
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, event: QuestionEvent) {
        let id = event.id();
        let shown = self.shown.as_ref();
        let shown = shown.is_some_and(|prompt| prompt.question == id);
        match event {
            QuestionEvent::Open(details) if !shown => self.queue.push_back(details.question),
            QuestionEvent::Open(_) => {}
            QuestionEvent::Closed(closed) => {
                let before = self.queue.len();
                self.queue.retain(|question| question.question_id.0 != id);
                if shown && let Some(prompt) = self.shown.take() {
                    let why = match Closing::of_word(&closed.closing) {
                        Some(Closing::Withdrawn) => "withdrawn: no longer needed",
                        Some(Closing::Expired) => "expired: nobody answered within a day",
                        Some(Closing::Answered(Answer::No)) => "answered elsewhere: no",
                        Some(Closing::Answered(Answer::Refused)) => {
                            "answered elsewhere: yes, but the command was refused"
                        }
                        Some(Closing::Answered(Answer::Yes)) => "answered elsewhere: yes",
                        // The daemon could not read how it was closed.
                        None => "closed elsewhere",
                    };
                    prompt.withdraw(&self.terminal, why);
                }
                if shown || self.queue.len() < before {
                    self.question_done();
                }
            }
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
        let line = match self.client.answer(prompt.question, word).await {
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
