//! Messages to agents as text.

use abide_api::CompletedBy;
use abide_core::message::About;
use abide_core::timer::Kind;
use abide_core::{Answer, Closing, Millis, QuestionId, SessionId, TimerId, shorten};
use abide_output::mask::Mask;
use abide_output::printable::one_line;

use super::{
    ending_and_last_lines, rounded, rounded_elapsed, seconds, seconds_number, short_command,
};
use crate::Handle;
use crate::machine_link::session_end::ROW_LOOKS;
use crate::store::{CommandAnswer, TimerRow};

/// Delay from which the completion of a timer says that it was late.
const LATE: Millis = Millis::from_secs(1);

/// Text of a message that is delivered. Waits a moment for facts that another machine is still writing.
pub async fn message_text(handle: &Handle, about: About) -> String {
    text(handle, about, ROW_LOOKS).await
}

/// Text of a message in a list, from what is known now.
pub async fn listed_message_text(handle: &Handle, about: About) -> String {
    text(handle, about, 0).await
}

async fn text(handle: &Handle, about: About, looks: usize) -> String {
    match about {
        About::Timer(id) => {
            let row = handle.store_reader().timer(id).await;
            timer_message(id, row.ok().flatten().as_ref())
        }
        About::Question(id) => {
            let answer = handle.store_reader().command_answer(id).await;
            held_message(id, answer.ok().flatten().as_ref())
        }
        About::Session(id) => {
            let Some(view) = handle.published().session(id) else {
                let elsewhere = ended_elsewhere(handle, id, looks).await;
                return elsewhere.unwrap_or_else(|| format!("[System] Session '{id}' has ended."));
            };
            format!(
                "[System] Session '{id}' has ended.\nCommand: {}\n{}",
                short_command(handle, &view),
                ending_and_last_lines(handle, &view)
            )
        }
    }
}

/// The text of a message about a session of another machine.
async fn ended_elsewhere(handle: &Handle, id: SessionId, looks: usize) -> Option<String> {
    handle.other_machines()?.end_message(id, looks).await
}

/// The text of a message about a held command.
fn held_message(id: QuestionId, answer: Option<&CommandAnswer>) -> String {
    let Some(answer) = answer else {
        return format!("[System] Question '{id}' about a held command is closed.");
    };
    let mask = Mask::of(answer.secrets.clone());
    let command = one_line(&mask.apply(answer.command.clone()));
    let (session, command) = (&answer.session, shorten(&command, COMMAND_CHARS));
    match answer.closing {
        Closing::Answered(Answer::Yes) => format!(
            "[System] Your held command was allowed and has been started: session '{session}'.\nCommand: {command}"
        ),
        Closing::Answered(Answer::No) => {
            let because = match &answer.because {
                Some(words) => format!("\nThe person says: {}", one_line(words)),
                None => String::new(),
            };
            format!(
                "[System] A person refused your held command (question '{id}'). Nothing was run.\nCommand: \
                 {command}{because}"
            )
        }
        Closing::Answered(Answer::Refused) => format!(
            "[System] A person allowed your held command (question '{id}'), but it is refused by now: {}. Nothing was \
             run.\nCommand: {command}",
            one_line(answer.because.as_deref().unwrap_or_default())
        ),
        Closing::Expired => format!(
            "[System] Your held command has expired: nobody answered question '{id}' within a day. Nothing was \
             run.\nCommand: {command}"
        ),
        Closing::Withdrawn => format!(
            "[System] Question '{id}' about your held command was withdrawn. Nothing was run.\nCommand: {command}"
        ),
    }
}

/// Characters of a command in a message.
pub(crate) const COMMAND_CHARS: usize = 500;

/// The text of a message about a timer.
pub fn timer_message(id: TimerId, row: Option<&TimerRow>) -> String {
    match row {
        Some(row) => format!("[System] {}", timer_completion(row)),
        None => format!("[System] Timer '{id}' has completed."),
    }
}

/// The completion of a timer: what it was for, how long it took and why it ended.
pub fn timer_completion(row: &TimerRow) -> String {
    let elapsed = row.total.saturating_sub(row.remaining.unwrap_or_default());
    // Programs read these lines, so the unit is the same for every number.
    let mut text = format!(
        "Timer '{}' has completed.\n{}: {}\nTotal duration: {} seconds\nElapsed time: {} seconds",
        row.id,
        timer_label(row),
        row.purpose,
        seconds_number(row.total),
        seconds_number(rounded_elapsed(elapsed, row.total))
    );
    match (row.completed_by, &row.seen) {
        (Some(CompletedBy::Condition), Some(seen)) => {
            text.push_str(&format!("\nCondition: {seen}"))
        }
        (Some(CompletedBy::Impossible), Some(why)) => {
            text.push_str(&format!("\nThe condition can no longer hold: {why}"));
        }
        (_, Some(seen)) if row.condition.is_some() => {
            text.push_str(&format!("\nThe condition was not met. Last check: {seen}"));
        }
        _ => {}
    }
    if let Some(late) = row.late.filter(|late| *late >= LATE) {
        text.push_str(&format!("\nLate by: {}", seconds(rounded(late))));
    }
    text
}

/// The name of the field that holds a timer's purpose.
pub fn timer_label(row: &TimerRow) -> &'static str {
    match row.kind {
        Kind::Waiting => "Reason",
        Kind::Mission => "Mission",
    }
}
