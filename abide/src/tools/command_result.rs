//! Results of `shell` and `execute_command`: the same facts, as fields and as the text that each tool has.

use abide_api::{
    Activity, CommandTool, ErrorCode, ExecuteCommandResult, SessionSummary, ShellResult,
    ShellStatus, ToolOutput, ToolResult,
};
use abide_core::session::End;
use abide_core::{Millis, Outcome, WhyRunning};
use abide_engine::{Handle, SessionView};
use abide_output::mask::Mask;

use super::command::Command;
use super::output::{self, Output, Part};
use super::report;

/// Facts from which a result is made.
pub(super) struct ResultFacts<'a> {
    pub handle: &'a Handle,
    pub view: &'a SessionView,
    pub outcome: Outcome,
    /// Time for which the client lets a call wait.
    pub standby: Option<Millis>,
    /// Masks the secrets that the session was given.
    pub mask: Mask,
}

/// Digested output, and what both tools say about it.
struct Written {
    /// Stdout and stderr of `shell`; one stream of `execute_command`.
    streams: Vec<Output>,
    /// Notes about what is missing from the output or still running.
    notes: Vec<String>,
    /// Sentence about output that could not be read.
    unread: Option<String>,
    /// Sentence about a command that continues.
    continues: Option<String>,
}

pub(super) async fn result(
    command: &Command,
    facts: ResultFacts<'_>,
    part: &mut Part,
) -> ToolResult {
    let view = facts.view;
    let why = match facts.outcome {
        Outcome::Running(_, why) => Some(why),
        _ => None,
    };
    let mut session = report::summary(view, why.is_some());
    if command.joined {
        report::recount_output(view, &mut session);
    }
    let activity = match why {
        Some(_) => report::current_activity(facts.handle, view),
        None => None,
    };
    let handover = why.map(|why| (why, activity.as_ref()));
    let written = written(command, &facts, part, handover, &mut session).await;
    let was_cut = why == Some(WhyRunning::Standby);
    let effective_timeout = facts.standby.filter(|_| was_cut).map(Millis::as_secs_f64);
    report::mask_processes(&mut session, |text| facts.mask.apply(text));
    let (failed, text, output) = match command.tool {
        CommandTool::Shell => {
            let (status, return_code) = shell_status(command, view, why, &session);
            let text = shell_text(command, &facts, &written, &session, status, return_code);
            let cancelled = matches!(facts.outcome, Outcome::Cancelled(_));
            let failed = cancelled || written.unread.is_some();
            let result = ShellResult {
                session,
                status,
                return_code,
                effective_timeout,
                error: (written.unread.or_else(|| report::fault(view)))
                    .map(|error| facts.mask.apply(error)),
                activity,
            };
            (failed, text, ToolOutput::Shell(Box::new(result)))
        }
        CommandTool::Execute => {
            let error = execute_error(&facts).or_else(|| written.unread.clone());
            let text = execute_text(command, &facts, written, error.as_deref());
            let result = ExecuteCommandResult {
                session,
                status: report::status(view, why.is_some()),
                effective_timeout,
                error: error.map(|error| facts.mask.apply(error)),
                activity,
            };
            let failed = result.error.is_some();
            (failed, text, ToolOutput::ExecuteCommand(Box::new(result)))
        }
    };
    ToolResult {
        error: failed.then_some(ErrorCode::Fault),
        ..ToolResult::new(facts.mask.apply(text), output)
    }
}

async fn written(
    command: &Command,
    facts: &ResultFacts<'_>,
    part: &mut Part,
    handover: Option<(WhyRunning, Option<&Activity>)>,
    session: &mut SessionSummary,
) -> Written {
    let view = facts.view;
    let (names, streams): (&[&str], _) = match command.tool {
        CommandTool::Shell => (
            &["stdout", "stderr"],
            part.two_streams(command.output, &facts.mask).await.into(),
        ),
        CommandTool::Execute => (
            &["output"],
            vec![part.one_stream(command.output, &facts.mask).await],
        ),
    };
    let mut notes = Vec::new();
    for (name, stream) in names.iter().zip(&streams) {
        notes.extend(report::shortened(name, &stream.digested, view));
    }
    notes.extend(report::leftovers(view, session));
    notes.extend(report::ports(view));
    let quota = facts.handle.config().log_quota;
    notes.extend(output::lost(view, quota, &streams, session));
    notes.extend(command.ignored_limit().map(str::to_owned));
    let continues = match handover {
        None => None,
        Some((WhyRunning::SurvivesKill, _)) => report::survives_kill(view, session),
        Some((why, activity)) => Some(continues(command, facts, part, why, activity)),
    };
    Written {
        unread: output::unread(view, &streams),
        streams,
        notes,
        continues,
    }
}

fn continues(
    command: &Command,
    facts: &ResultFacts<'_>,
    part: &Part,
    why: WhyRunning,
    activity: Option<&Activity>,
) -> String {
    let next = command.next_steps(facts.view);
    // Some clients show a model nothing but the text.
    let now = activity.map_or(String::new(), |now| format!(", now {}", now.doing));
    if command.tool == CommandTool::Execute && why == WhyRunning::NobodyToAsk {
        // `extend` may have moved the idle limit since the call was made.
        let idle = facts.view.state.idle.unwrap_or(command.limit);
        return format!(
            "still running: no output for {idle}{now}. The question whether to keep waiting is open for a person (on the page \
             and in `abide answer`). {next}"
        );
    }
    let cut = report::cut_call(facts.standby, part);
    format!("still running{now}; {cut}. {next}")
}

/// Deadline of a session. `extend` may have moved it since the call was made.
fn deadline(command: &Command, view: &SessionView) -> Millis {
    view.deadline.unwrap_or(command.limit)
}

fn shell_status(
    command: &Command,
    view: &SessionView,
    why: Option<WhyRunning>,
    session: &SessionSummary,
) -> (ShellStatus, Option<i32>) {
    if let Some(why) = why {
        let is_past_deadline = session.duration >= deadline(command, view).as_secs_f64();
        return match why == WhyRunning::SurvivesKill && is_past_deadline {
            true => (ShellStatus::TimeoutError, Some(-1)),
            false => (ShellStatus::Running, None),
        };
    }
    let Some(ending) = view.ending() else {
        return (ShellStatus::FatalError, Some(-2));
    };
    if ending.end == End::Deadline {
        return (ShellStatus::TimeoutError, Some(-1));
    }
    match ending.exit.map(|exit| exit.shell_code()) {
        Some(0) => (ShellStatus::Success, Some(0)),
        code => (ShellStatus::Error, code),
    }
}

fn shell_text(
    command: &Command,
    facts: &ResultFacts<'_>,
    written: &Written,
    session: &SessionSummary,
    status: ShellStatus,
    code: Option<i32>,
) -> String {
    let view = facts.view;
    let text_of = |at: usize| written.streams[at].digested.text.as_str();
    let fault = report::fault(view);
    let mut text = format!(
        "COMMAND: {}\nSTATUS: {}\nRETURN_CODE: {}\nSTDOUT:\n{}\nSTDERR:\n{}",
        report::shown_command(&view.state.command),
        status.as_str(),
        code.map_or_else(String::new, |code| code.to_string()),
        text_of(0),
        fault.as_deref().unwrap_or(text_of(1)),
    );
    let timed_out = status == ShellStatus::TimeoutError;
    let timeout = timed_out.then(|| {
        let secs = deadline(command, view).0 / 1_000;
        let empty = match session.bytes_total {
            0 => " It is empty: a program that buffers its output on a pipe loses it when killed.",
            _ => "",
        };
        format!("Command timed out after {secs}s. Partial output captured.{empty}")
    });
    let end = match facts.outcome {
        Outcome::Cancelled(_) => Some("command execution cancelled by user"),
        Outcome::Running(..) => None,
        _ if timed_out => None,
        _ => report::forced_end_reason(view),
    };
    let warnings = (timeout.as_deref().into_iter().chain(end))
        .chain(written.notes.iter().map(String::as_str))
        .chain(written.unread.as_deref())
        .chain(written.continues.as_deref());
    for warning in warnings {
        text.push_str("\nWARNING: ");
        text.push_str(warning);
    }
    if let Some(refused) = report::refused(view) {
        text.push('\n');
        text.push_str(&refused);
    }
    text
}

fn execute_error(facts: &ResultFacts<'_>) -> Option<String> {
    match &facts.outcome {
        Outcome::Declined(_, idle) => {
            Some(format!("command execution timeout: no output for {idle}"))
        }
        Outcome::Cancelled(_) => Some("command execution cancelled by user".into()),
        Outcome::Running(..) => None,
        _ => report::fault(facts.view),
    }
}

/// Note after a person's no, which the contract's error does not mention.
const DECLINED: &str = "[a person was asked whether to keep waiting and said to stop the command]";

/// Text of `execute_command`. The state of the command comes last, where readers look for it.
fn execute_text(
    command: &Command,
    facts: &ResultFacts<'_>,
    written: Written,
    error: Option<&str>,
) -> String {
    let unread = written.unread.filter(|unread| error != Some(unread));
    let notes = written.notes.into_iter().chain(unread);
    let last = match &facts.outcome {
        Outcome::Running(_, WhyRunning::SurvivesKill) => written.continues,
        Outcome::Running(..) => written.continues.map(|text| format!("[{text}]")),
        // A call that waits again gets only the error: it does not know how the command ended.
        Outcome::Cancelled(_) if !command.joined => None,
        Outcome::Declined(..) => Some(DECLINED.into()),
        _ if report::fault(facts.view).is_some() => None,
        _ => Some(abide_engine::text::ending_line(facts.view)),
    };
    let output = &written.streams[0].digested.text;
    let shown = error.into_iter().chain([output.as_str()]);
    let shown = shown.filter(|text| !text.is_empty()).map(str::to_owned);
    let lines: Vec<String> = shown
        .chain(notes.map(|note| format!("[{note}]")))
        .chain(report::refused(facts.view))
        .chain(last)
        .collect();
    let mut text = lines.join("\n");
    text.truncate(text.trim_end_matches('\n').len());
    text
}
