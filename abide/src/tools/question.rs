//! A question as text for a person, and as fields.

use std::os::unix::ffi::OsStrExt;

use abide_api::{AnswerOffer, Id, Question, QuestionCommand};
use abide_core::{HeldCommand, HeldConnection, Millis, Subject, shorten};
use abide_output::digest::rendered_rows;
use abide_output::mask::Mask;
use abide_output::printable::{one_line, visible};

use super::report::activity_text;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::policy::changes_commands;
use abide_engine::sandbox::is_set_by_abide;
use abide_engine::text::whole_seconds;
use abide_engine::{HeldLaunch, QuestionView, Stdin};

/// Characters of the last line of output that a question shows.
const LAST_LINE_CHARS: usize = 400;

/// Labels of the two buttons of a client's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormButtons {
    /// Button that answers yes.
    pub accept: &'static str,
    /// Button that answers no.
    pub decline: &'static str,
}

/// Question as a person reads it: the question itself, and below it the facts. Three lines in total, because
/// Claude Code shows no more.
pub fn question_text(question: &QuestionView) -> String {
    text(question, None)
}

/// Question in a form of a client. It says what the buttons do where the question does not.
pub fn form_text(question: &QuestionView, buttons: FormButtons) -> String {
    text(question, Some(buttons))
}

/// Rules that an answer adds, to be shown below a question. Empty if it adds none.
pub fn rules_added(answer: &str, adds: &str) -> String {
    match visible(adds.trim()).as_str() {
        "" => String::new(),
        rule => format!("  {answer} adds:\n    {}\n", rule.replace('\n', "\n    ")),
    }
}

fn text(question: &QuestionView, buttons: Option<FormButtons>) -> String {
    if let Some(held) = question.state.held() {
        return command_question(question, held);
    }
    if let Some(connection) = question.state.connection() {
        return connection_question(question, connection);
    }
    let effect = buttons.map(|FormButtons { accept, decline }| {
        format!("{accept} keeps waiting, {decline} ends the command; ")
    });
    let mut text = format!(
        "Command has been idle for {}. Continue waiting?\n  command: {}\n  {}running for {}, quiet for {}, now {}",
        question.state.idle().unwrap_or_default(),
        one_line(&question.command),
        effect.unwrap_or_default(),
        whole_seconds(run_time(question)),
        whole_seconds(quiet_time(question)),
        doing(question)
    );
    let last = last_line(question);
    if !last.is_empty() {
        text.push_str("; last output: ");
        text.push_str(&last);
    }
    text
}

/// Characters of a command that a question shows. HTTP and the page have all of them.
const COMMAND_CHARS: usize = 4_000;

/// Characters of the part of a command that a rule asks about.
const PART_CHARS: usize = 400;

/// Question about connections of a sandbox that wait.
fn connection_question(question: &QuestionView, connection: &HeldConnection) -> String {
    let command = shorten(&one_line(&question.command), COMMAND_CHARS);
    format!(
        "{}\n  command: {command}\n  agent {} in {}; the connection waits for at most a minute",
        asked_connection(connection),
        one_line(&question.agent.0),
        one_line(&connection.folder),
    )
}

fn asked_connection(connection: &HeldConnection) -> String {
    let name = one_line(&connection.name);
    format!(
        "Allow this command to connect to {name} (port {})?",
        connection.port
    )
}

/// Question about a command that was not started.
fn command_question(question: &QuestionView, held: &HeldCommand) -> String {
    let approval = &held.approval;
    let rule = match &*approval.rule {
        "" => String::new(),
        rule => format!(" (rule: {rule})"),
    };
    let command = shorten(&one_line(&question.command), COMMAND_CHARS);
    let part = shorten(&one_line(&approval.part), PART_CHARS);
    let given = given_text(held).map_or_else(String::new, |given| format!("; {given}"));
    format!(
        "Allow this command? {}{}\n  command: {command}\n  agent {} in {}{given}; the part that asks: {part}",
        one_line(&approval.why),
        one_line(&rule),
        one_line(&held.agent.0),
        one_line(&approval.folder),
    )
}

/// Characters of the name and of the value of a variable, of all variables and of the input of a call that a question shows.
const NAME_CHARS: usize = 60;
const VALUE_CHARS: usize = 100;
const VARIABLES_CHARS: usize = 400;
const INPUT_CHARS: usize = 200;

/// Variables and input that a call gives to a held command, masked, on one line. Variables that decide which programs run
/// come first. `None`: it gives none.
fn given_text(held: &HeldCommand) -> Option<String> {
    let launch = HeldLaunch::from_bytes(&held.approval.launch)?;
    let mask = Mask::of(launch.options.secrets.clone());
    let shown = |text: &[u8], most| {
        let text = mask.apply(String::from_utf8_lossy(text).into_owned());
        shorten(&one_line(&text), most)
    };
    let given = launch.given.iter();
    let given = given.filter(|(name, value)| !is_set_by_abide(name, value));
    let mut variables: Vec<_> = given.collect();
    variables.sort_by_key(|(name, _)| !name.to_str().is_some_and(changes_commands));
    let variables = variables.iter().map(|(name, value)| {
        let value = shown(value.as_bytes(), VALUE_CHARS);
        format!(
            "{}={value}",
            shorten(&one_line(&name.to_string_lossy()), NAME_CHARS)
        )
    });
    let variables: Vec<String> = variables.collect();
    let mut parts = Vec::new();
    if !variables.is_empty() {
        let all = variables.join(", ");
        let shown = shorten(&all, VARIABLES_CHARS);
        parts.push(match shown == all {
            true => format!("it sets {all}"),
            false => format!("it sets {} variables: {shown}", variables.len()),
        });
    }
    if let Stdin::Bytes(input) = &launch.options.stdin {
        let input = shown(input, INPUT_CHARS);
        parts.push(format!("its input is \"{input}\""));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Last line of output with visible text, as a person would have seen it: without escape sequences, on one line.
fn last_line(question: &QuestionView) -> String {
    let lines = question.last_lines.iter().rev();
    let mut shown = lines.flat_map(|line| rendered_rows(line, LAST_LINE_CHARS).into_iter().rev());
    let last = shown.find(|line| !line.trim().is_empty());
    one_line(last.unwrap_or_default().trim_end())
}

/// Time that the command has run by now; the answer may come long after the question was asked.
fn run_time(question: &QuestionView) -> Millis {
    let asked = question.state.asked.0;
    question.ran + Millis(SystemClock.now().wall.0.saturating_sub(asked))
}

/// Time since the last output by now. It is longer than the idle limit if the question is not the first one.
fn quiet_time(question: &QuestionView) -> Millis {
    let now = SystemClock.now().wall.0;
    Millis(now.saturating_sub(question.last_output.0))
}

fn doing(question: &QuestionView) -> String {
    activity_text(question.facts.as_ref(), question.cpu_percent, question.pty)
}

pub fn question_fields(question: &QuestionView) -> Question {
    Question {
        question_id: Id(question.id),
        session_id: Id(question.state.session()),
        about: (&question.state.subject).into(),
        question: match &question.state.subject {
            Subject::Idle { idle, .. } => {
                format!("Command has been idle for {idle}. Continue waiting?")
            }
            Subject::Command { .. } => "Allow this command?".into(),
            Subject::Connection { connection, .. } => asked_connection(connection),
        },
        command: question.command.to_string(),
        agent: question.agent.0.to_string(),
        cwd: question.cwd.to_string_lossy().into_owned(),
        idle: question.state.idle().unwrap_or_default().as_secs_f64(),
        running_for: question.ran.as_secs_f64(),
        last_line: last_line(question),
        doing: doing(question),
        waiting_for_input: question
            .facts
            .is_some_and(|facts| facts.waiting_for_input()),
        cpu: question.cpu_percent,
        asked_at: question.state.asked.0,
        text: question_text(question),
        held: details(&question.state),
        machine: None,
        as_of: None,
    }
}

/// Details of a question that is not about an idle session.
fn details(state: &abide_core::Question) -> Option<QuestionCommand> {
    let answers = (state.offers().iter()).map(|(choice, adds)| AnswerOffer {
        answer: choice.as_str().to_owned(),
        adds: visible(adds),
    });
    let answers = answers.collect();
    match &state.subject {
        Subject::Idle { .. } => None,
        Subject::Command { held, .. } => Some(QuestionCommand {
            folder: held.approval.folder.to_string(),
            part: held.approval.part.to_string(),
            rule: held.approval.rule.to_string(),
            why: match given_text(held) {
                Some(given) => format!("{}; {given}", held.approval.why),
                None => held.approval.why.to_string(),
            },
            answers,
        }),
        Subject::Connection { connection, .. } => Some(QuestionCommand {
            folder: connection.folder.to_string(),
            part: format!("{}:{}", connection.name, connection.port),
            rule: String::new(),
            why: "the command runs, and its connection waits for an answer".into(),
            answers,
        }),
    }
}

#[cfg(test)]
mod tests {
    use abide_core::{Agent, Question, QuestionId, SessionId, Wall};
    use abide_session::facts::{Facts, ProcessActivity};

    use super::*;

    fn question(last_lines: &[&[u8]]) -> QuestionView {
        let now = SystemClock.now().wall.0;
        QuestionView {
            id: QuestionId::from_bits(1),
            state: Question {
                subject: Subject::Idle {
                    session: SessionId::from_bits(1),
                    idle: Millis(60_000),
                },
                asked: Wall(now - 3_600_000),
            },
            command: "make".into(),
            cwd: "/src".into(),
            agent: Agent("default".into()),
            ran: Millis(60_000),
            last_output: Wall(now - 3_660_000),
            pty: false,
            last_lines: last_lines.iter().map(|line| line.to_vec()).collect(),
            facts: None,
            cpu_percent: 0,
        }
    }

    #[test]
    fn rules_of_an_answer_show_invisible_characters() {
        let adds = "[[rule]]\nrun = [\"touch\", \"a\u{202e}b\u{9b}2J\"]\n";
        let shown = rules_added("always", adds);
        let rule = "    run = [\"touch\", \"a\\u{202e}b\\u{9b}2J\"]\n";
        assert_eq!(shown, format!("  always adds:\n    [[rule]]\n{rule}"));
    }

    #[test]
    fn question_asked_late_states_run_time_and_quiet_time_until_then() {
        let text = question_text(&question(&[b"cc main.c"]));
        let begin =
            "Command has been idle for 60s. Continue waiting?\n  command: make\n  running for 1h1m";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains(", quiet for 1h1m"), "{text}");
    }

    #[test]
    fn form_says_what_its_buttons_do() {
        let buttons = FormButtons {
            accept: "Allow",
            decline: "Deny",
        };
        let text = form_text(&question(&[b"cc main.c"]), buttons);
        let line = "\n  Allow keeps waiting, Deny ends the command; running for ";
        assert!(text.contains(line), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn waiting_for_input_names_the_terminal_only_if_there_is_one() {
        let mut question = question(&[]);
        question.facts = Some(Facts {
            doing: ProcessActivity::WaitingForInput,
            cpu_ms: 0,
            processes: 1,
            memory: 0,
            only_input: true,
        });
        for (pty, doing) in [
            (false, "waiting for input"),
            (true, "waiting for input at its terminal"),
        ] {
            question.pty = pty;
            assert_eq!(question_fields(&question).doing, doing);
            let text = question_text(&question);
            assert!(text.ends_with(&format!(", now {doing}")), "{text}");
        }
    }

    #[test]
    fn question_shows_last_output_without_escape_sequences() {
        for (lines, shown) in [
            (&[b"\x1b[32mok\x1b[0m done\r".as_slice()][..], "ok done"),
            (&[b"\x1b[1mlinking\x1b[0m", b"\x1b[0m", b"  \r"], "linking"),
            (&[b" 10%\r 20%\r100%"], "100%"),
            (&[b"\x1b[31m"], ""),
            (&[], ""),
        ] {
            let question = question(lines);
            assert_eq!(question_fields(&question).last_line, shown);
            let text = question_text(&question);
            let output = text
                .split_once("; last output: ")
                .map_or("", |(_, last)| last);
            assert_eq!(output, shown, "{text}");
        }
    }

    #[test]
    fn cut_command_of_a_connection_says_how_much_is_left_out() {
        let mut question = question(&[]);
        let connection = HeldConnection {
            number: 1,
            name: "example.org".into(),
            port: 443,
            folder: "/src".into(),
            offers: Vec::new(),
        };
        question.state.subject = Subject::Connection {
            session: SessionId::from_bits(1),
            connection: connection.into(),
        };
        question.command = "x".repeat(COMMAND_CHARS + 7).into();
        let text = question_text(&question);
        assert!(text.contains("x… (7 more characters)\n"), "{text}");
    }

    #[test]
    fn hostile_last_output_reaches_no_terminal() {
        for hostile in [
            b"a\x1b]0;owned\x07b".as_slice(),
            b"a\x1b[\t\x1b[2Jb",
            b"a\x9b2Jb\xe2\x80\xaeevil",
            b"\x1bP1;2q\x1b",
            b"a\nfake: yes\x00\x08\x7f",
        ] {
            let question = question(&[hostile]);
            let last = question_fields(&question).last_line;
            let text = question_text(&question);
            let unsafe_char = |c: char| (c.is_control() || c == '\u{202e}') && c != '\n';
            assert!(!last.contains(unsafe_char), "{last}");
            assert!(!text.contains(unsafe_char), "{text}");
            assert_eq!(text.lines().count(), 3, "{text}");
        }
    }
}
