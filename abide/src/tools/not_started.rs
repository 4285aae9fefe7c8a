//! Results of calls whose commands were not started: refused, held for a person, or withdrawn.

use abide_api::{
    CommandTool, ErrorCode, Id, NotStartedResult, NotStartedStatus, ToolOutput, ToolResult,
};
use abide_core::held::NotStarted;
use abide_core::policy::Reason;
use abide_core::{QuestionId, SessionId};
use abide_engine::Handle;
use abide_output::printable::one_line;

/// Refusal by a rule.
pub(super) fn refused_by(reason: &Reason) -> ToolResult {
    let mut text = format!(
        "REFUSED: {}{}. Nothing was run.",
        reason.why,
        by_rule(&reason.rule)
    );
    if let Some(instead) = &reason.instead {
        text.push_str(" Instead: ");
        text.push_str(instead);
    }
    refused(
        text,
        Some(reason.name.clone()).filter(|name| !name.is_empty()),
    )
}

pub(super) fn by_rule(rule: &str) -> String {
    match rule {
        "" => String::new(),
        rule => format!(" (rule: {rule})"),
    }
}

/// Refusal with the name of the rule that refuses.
pub(super) fn refused(text: String, rule: Option<String>) -> ToolResult {
    not_started_result(
        ErrorCode::Forbidden.into(),
        text,
        NotStartedStatus::Refused,
        |fields| {
            fields.rule = rule;
        },
    )
}

fn not_started_result(
    error: Option<ErrorCode>,
    text: String,
    status: NotStartedStatus,
    fill: impl FnOnce(&mut NotStartedResult),
) -> ToolResult {
    let mut fields = NotStartedResult {
        status,
        question_id: None,
        session_id: None,
        rule: None,
        sandboxed_by: None,
        sandbox_gaps: Vec::new(),
    };
    fill(&mut fields);
    ToolResult {
        error,
        ..ToolResult::new(text, ToolOutput::NotStarted(Box::new(fields)))
    }
}

/// Result of a call whose command was not started. `tool` is the tool that can wait for it.
pub(crate) fn not_started(
    handle: &Handle,
    tool: CommandTool,
    session: SessionId,
    question: QuestionId,
    why: &NotStarted,
) -> ToolResult {
    let (status, error, text) = match why {
        NotStarted::Held(_) => {
            let text = held_text(handle, tool, session, question);
            (NotStartedStatus::Held, None, text)
        }
        NotStarted::Declined(because) => {
            let because = because.as_ref();
            let because =
                because.map_or_else(String::new, |words| format!(": {}", one_line(words)));
            let text = format!("REFUSED: a person said no{because}. Nothing was run.");
            (NotStartedStatus::Refused, Some(ErrorCode::Forbidden), text)
        }
        NotStarted::Refused(why) => {
            let text = format!("REFUSED: {}. Nothing was run.", one_line(why));
            (NotStartedStatus::Refused, Some(ErrorCode::Forbidden), text)
        }
        NotStarted::Expired => {
            let text = format!(
                "EXPIRED: nobody answered question '{question}' within a day. Nothing was run."
            );
            (NotStartedStatus::Expired, Some(ErrorCode::Conflict), text)
        }
        NotStarted::Withdrawn => {
            let text = "command execution cancelled by user. Nothing was run.".to_owned();
            (NotStartedStatus::Withdrawn, Some(ErrorCode::Conflict), text)
        }
        NotStarted::NotStored => {
            let trouble = handle.storage_fault();
            let text = format!(
                "REFUSED: a person has to allow this command and none can be asked now, and the question cannot be \
                 stored for later: {}. Nothing was run; try again later.",
                trouble
                    .as_deref()
                    .unwrap_or("the database cannot be written")
            );
            (NotStartedStatus::Refused, Some(ErrorCode::Fault), text)
        }
        NotStarted::Killed => {
            let text = format!("WITHDRAWN: question '{question}' is withdrawn. Nothing was run.");
            (NotStartedStatus::Withdrawn, None, text)
        }
    };
    not_started_result(error, text, status, |fields| {
        fields.question_id = Some(Id(question));
        fields.session_id = (status == NotStartedStatus::Held).then_some(Id(session));
    })
}

fn held_text(
    handle: &Handle,
    tool: CommandTool,
    session: SessionId,
    question: QuestionId,
) -> String {
    let tool = tool.as_str();
    let view = handle.published().question(question);
    let approval = view.as_ref().and_then(|view| view.state.held());
    let reason = approval.map_or_else(
        || "a person has to allow it".to_owned(),
        |held| format!("{}{}", held.approval.why, by_rule(&held.approval.rule)),
    );
    format!(
        "HELD: {reason}. Nothing was run yet: a person has to allow this command and has not answered yet. Question \
         '{question}' stays open for a day (on the page and in `abide answer`); after a yes the command runs once, as session \
         '{session}', and a message tells you. Do not run it again: do something else, or wait for it with {tool} {{\"session_id\": \"{session}\"}}."
    )
}
